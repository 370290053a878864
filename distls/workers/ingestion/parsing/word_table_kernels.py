"""A hash table from words of a text to values: categories, labels, the values of a column."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import helper, kernel
from distls.workers.ingestion.parsing.array_types import Bytes, Doubles, Ints
from distls.workers.ingestion.parsing.decimal_kernels import load_word

ENTRIES, BYTES = 0, 1  # of `Words.size`

_MIX = np.uint64(0x9E3779B97F4A7C15)


class Words(NamedTuple):
    """Open addressing with linear probing; entries are in the order of insertion."""

    slots: NDArray[np.int32]  # shape (a power of two,), entry + 1 or 0
    hashes: NDArray[np.uint64]  # shape (n_entries,)
    keys: Ints  # shape (n_entries,); distinguishes equal texts of different columns
    lines: Ints  # shape (n_entries,); first occurrence
    starts: Ints  # shape (n_entries + 1,), into `text`
    values: Doubles  # shape (n_entries,); NaN: not known yet
    text: Bytes
    size: Ints  # shape (2,); entries, and bytes of their texts


@helper
def _word_before(text: Bytes, p: int, n: int) -> np.uint64:
    """Return the eight bytes at `p`, of which those from the n-th on are zero."""
    word = load_word(text, p)
    return word & ((np.uint64(1) << np.uint64(8 * n)) - np.uint64(1)) if n < 8 else word


@helper
def word_hash(text: Bytes, start: int, end: int, key: int) -> np.uint64:
    """Hash text[start:end] eight bytes at a time; eight bytes behind it must be readable."""
    value = np.uint64(key + 1) * _MIX
    while start < end:
        value = (value ^ _word_before(text, start, end - start)) * _MIX
        value ^= value >> np.uint64(29)
        start += 8
    return value


@helper
def _same(words: Words, entry: int, text: Bytes, start: int, end: int) -> bool:
    at = words.starts[entry]
    if words.starts[entry + 1] - at != end - start:
        return False
    for p in range(start, end, 8):
        if _word_before(words.text, at + p - start, end - p) != _word_before(text, p, end - p):
            return False
    return True


@helper
def find_word(words: Words, value: np.uint64, key: int, text: Bytes, start: int, end: int) -> Any:
    """Return (entry or -1, slot where it is or belongs) of the word text[start:end] with the hash `value`."""
    mask = len(words.slots) - 1
    slot = np.int64(value >> np.uint64(20)) & mask
    while words.slots[slot]:
        entry = np.int64(words.slots[slot]) - 1
        known = words.hashes[entry] == value and words.keys[entry] == key
        if known and _same(words, entry, text, start, end):
            return entry, slot
        slot = (slot + 1) & mask
    return -1, slot


@helper
def has_room(words: Words, n_entries: int, n_bytes: int) -> bool:
    """Return whether `n_entries` more words of `n_bytes` in all fit in."""
    # eight bytes to spare, as word_hash reads behind the last word
    enough = words.size[ENTRIES] + n_entries <= len(words.keys)
    return enough and words.size[BYTES] + n_bytes + 8 <= len(words.text)


@helper
def insert_word(
    words: Words, slot: int, value: np.uint64, key: int, line: int, text: Bytes, start: int, end: int
) -> int:
    """Insert a new word at its slot; return its entry."""
    entry, at = words.size[ENTRIES], words.size[BYTES]
    for k in range(end - start):
        words.text[at + k] = text[start + k]
    words.slots[slot] = np.int32(entry + 1)
    words.hashes[entry], words.keys[entry] = value, key
    words.starts[entry], words.starts[entry + 1] = at, at + end - start
    words.values[entry], words.lines[entry] = np.nan, line
    words.size[ENTRIES], words.size[BYTES] = entry + 1, at + end - start
    return entry


@kernel
def insert_words(words: Words, keys: Ints, lines: Ints, text: Bytes, ends: Ints) -> None:
    """Insert new words, concatenated in `text` (and eight bytes more), into a table with room for them."""
    start = 0
    for k in range(len(keys)):
        value = word_hash(text, start, ends[k], keys[k])
        _, slot = find_word(words, value, keys[k], text, start, ends[k])
        insert_word(words, slot, value, keys[k], lines[k], text, start, ends[k])
        start = ends[k]
