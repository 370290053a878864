"""One look at text, eight bytes at a time: how many lines it has, and whether bytes that readers treat differently."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from enum import IntEnum
from typing import Any

import numpy as np

from distls.workers.compilation.jit import helper, kernel
from distls.workers.ingestion.parsing.array_types import Bytes
from distls.workers.ingestion.parsing.decimal_kernels import load_word


class Seen(IntEnum):
    """Bits that tell what is in text."""

    QUOTE = 1
    RETURN = 2  # a carriage return
    CONTROL = 4  # any other control character but newlines and tabs
    HIGH = 8  # a byte that is not ASCII


_ONES, _TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_NEWLINES, _TABS, _RETURNS, _QUOTES = (_ONES * np.uint64(code) for code in b'\n\t\r"')
_CONTROLS = _ONES * np.uint64(0xE0)  # bits that no control character has
_EVEN = np.uint64(0x00FF00FF00FF00FF)
_SUM = np.uint64(0x0001000100010001)


@helper
def _zero_bytes(word: np.uint64) -> np.uint64:
    """Return a word with the top bit of each byte set that is zero."""
    return ~(((word & ~_TOPS) + ~_TOPS) | word) & _TOPS


@kernel
def look_at_bytes(text: Bytes, stop: int) -> Any:
    """Return (number of newlines, bits of Seen) of text[:stop], behind which are at least seven newlines."""
    n_ends, p = 0, 0
    quotes = returns = controls = high = np.uint64(0)
    while p < stop:
        end, counts = min(p + 8 * 255, stop), np.uint64(0)  # a byte counts up to 255
        # without branches, so that many words are looked at together
        for q in range(p, end, 8):
            word = load_word(text, q)
            newline, carriage = _zero_bytes(word ^ _NEWLINES), _zero_bytes(word ^ _RETURNS)
            counts += newline >> np.uint64(7)
            quotes |= _zero_bytes(word ^ _QUOTES)
            returns |= carriage
            controls |= _zero_bytes(word & _CONTROLS) & ~(newline | carriage | _zero_bytes(word ^ _TABS))
            high |= word & _TOPS
        pairs = (counts & _EVEN) + ((counts >> np.uint64(8)) & _EVEN)
        n_ends += np.int64((pairs * _SUM) >> np.uint64(48))
        p = end
    seen = (quotes > 0) * Seen.QUOTE + (returns > 0) * Seen.RETURN
    seen += (controls > 0) * Seen.CONTROL + (high > 0) * Seen.HIGH
    return n_ends - (-stop) % 8, seen
