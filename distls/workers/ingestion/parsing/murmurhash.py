"""MurmurHash3 of text in kernels: the hash of Vowpal Wabbit and of scikit-learn's hashing vectorisers."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from __future__ import annotations

import numpy as np

from distls.workers.compilation.jit import helper, inlined
from distls.workers.ingestion.parsing.array_types import Bytes
from distls.workers.ingestion.parsing.decimal_kernels import load_word

_LOW = np.uint64(0xFFFFFFFF)


@inlined
def _multiply(a: np.uint64, b: np.uint64) -> np.uint64:
    return (a * b) & _LOW


@inlined
def _rotate(a: np.uint64, bits: int) -> np.uint64:
    return ((a << np.uint64(bits)) | (a >> np.uint64(32 - bits))) & _LOW


@inlined
def _mixed(word: np.uint64) -> np.uint64:
    return _multiply(_rotate(_multiply(word, np.uint64(0xCC9E2D51)), 15), np.uint64(0x1B873593))


@helper
def murmur3_32(text: Bytes, start: int, end: int, seed: int) -> int:
    """Return MurmurHash3_x86_32 of the bytes text[start:end]; seven more must follow them in memory."""
    hashed, p = np.uint64(seed) & _LOW, start
    while p + 4 <= end:
        hashed = _rotate(hashed ^ _mixed(load_word(text, p) & _LOW), 13)
        hashed = (hashed * np.uint64(5) + np.uint64(0xE6546B64)) & _LOW
        p += 4
    if p < end:
        rest = np.uint64(8 * (end - p))
        hashed ^= _mixed(load_word(text, p) & ((np.uint64(1) << rest) - np.uint64(1)))
    hashed ^= np.uint64(end - start)
    hashed = _multiply(hashed ^ (hashed >> np.uint64(16)), np.uint64(0x85EBCA6B))
    hashed = _multiply(hashed ^ (hashed >> np.uint64(13)), np.uint64(0xC2B2AE35))
    return np.int64(hashed ^ (hashed >> np.uint64(16)))
