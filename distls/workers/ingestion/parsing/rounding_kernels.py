"""The columns of which float32, or float64, does not keep the values: different ones may become equal."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import helper, inlined, kernel
from distls.workers.ingestion.parsing.array_types import Bytes, Doubles
from distls.workers.ingestion.parsing.decimal_kernels import double_bits

KEPT = 2.0**24  # whole numbers up to here are
EXACT = 2.0**53  # float64 has all whole numbers up to here
_WHOLE = 2.0**63  # beyond, no integer type has them: they were not counted
_FIRST, _EVERY = 64, 16  # rows of a chunk whose numbers with a fraction tell the range of their column
_MODULUS = 2**53 - 1  # ten times that is in int64
_RANGE = 2.0**-10  # of values over their size: few of those that float32 has are left
# of a column of a chunk: its number, the smallest and the largest value that is rounded, and 1 if one is whole, or 2
# if float64 does not keep it either
Rounded = tuple[int, float, float, int]


class Rounding(NamedTuple):
    """The values that float32 rounds, by column; shapes (n_columns,)."""

    low: Doubles
    high: Doubles
    whole: NDArray[np.int8]  # as `Rounded` has it


def no_rounding(n_columns: int) -> Rounding:
    """Return the state before any value."""
    return Rounding(
        np.full(n_columns, np.inf), np.full(n_columns, -np.inf), np.zeros(n_columns, dtype=np.int8)
    )


def take_rounded(rounding: Rounding) -> list[Rounded]:
    """Return the columns whose values may have become equal, and start anew."""
    low, high, whole = rounding
    size = np.maximum(np.abs(low), np.abs(high))
    with np.errstate(invalid="ignore"):
        found = np.flatnonzero((low <= high) & ((whole > 0) | (high - low < _RANGE * size)))
    columns = [(int(c), float(low[c]), float(high[c]), int(whole[c])) for c in found]
    low[:], high[:], whole[:] = np.inf, -np.inf, 0
    return columns


def merge_rounded(chunks: list[list[Rounded]]) -> dict[int, Rounded]:
    """Return of all chunks together the columns in which different values become equal."""
    found: dict[int, list[Rounded]] = {}
    for entry in (entry for chunk in chunks for entry in chunk):
        found.setdefault(entry[0], []).append(entry)
    merged = {}
    for column, entries in found.items():
        low, high = min(entry[1] for entry in entries), max(entry[2] for entry in entries)
        # a column that is wide in some chunk is wide
        narrow = len(entries) == len(chunks) and 0 < high - low < _RANGE * max(abs(low), abs(high))
        if narrow or any(entry[3] for entry in entries):
            merged[column] = (column, low, high, max(int(entry[3]) for entry in entries))
    return merged


# -- kernels -------------------------------------------------------------------------------------------


@helper
def is_inexact(text: Bytes, start: int, end: int, point: int, value: float) -> bool:
    """Return whether the number in text[start:end], whose float64 is `value` of `EXACT` or more, is another one.

    `point` is its decimal mark. A number with an exponent was rounded by who wrote it.
    """
    # by remainders, as no type has all of its digits: rounding is less than the modulus up to 2**106
    remainder, fraction = 0, False
    for p in range(start, end):
        digit = np.int64(text[p]) - 48
        if text[p] | 32 == 101:
            return False
        fraction = fraction or text[p] == point
        if 0 <= digit <= 9:
            if fraction and digit > 0:
                return True
            remainder = remainder if fraction else (remainder * 10 + digit) % _MODULUS
    bits = np.int64(double_bits(abs(value)))
    found = (bits & (2**52 - 1)) + 2**52
    for _ in range((bits >> 52) - 1075):
        found = found * 2 % _MODULUS
    return found % _MODULUS != remainder


@inlined
def note_value(rounding: Rounding, column: int, value: float) -> None:
    """Note a whole number that float64 does not keep."""
    rounding.low[column] = min(rounding.low[column], value)
    rounding.high[column] = max(rounding.high[column], value)
    rounding.whole[column] = 2


@inlined
def is_merged(value: float) -> bool:
    """Return whether float32 takes a whole number for another one."""
    size = abs(value)
    return KEPT < size < _WHOLE and size == np.floor(size) and np.float64(np.float32(size)) != size


@inlined
def _note(rounding: Rounding, column: int, value: float) -> None:
    """Note a value if float32 does not keep it."""
    if np.float64(np.float32(value)) != value:
        if value < rounding.low[column]:
            rounding.low[column] = value
        if value > rounding.high[column]:
            rounding.high[column] = value
        if is_merged(value):
            rounding.whole[column] = max(rounding.whole[column], 1)


@inlined
def note_row(rounding: Rounding, values: Doubles, first: int, row: int) -> None:
    """Note values[first:] of a row: its whole numbers, and of some rows all numbers, which tell their range."""
    is_looked_at = row < _FIRST or row % _EVERY == 0
    # one pass without branches over most rows
    for k in range(first, len(values)):
        is_looked_at |= abs(values[k]) > KEPT
    if is_looked_at:
        for k in range(first, len(values)):
            _note(rounding, k - first, values[k])


@kernel
def note_rows(values: NDArray[np.float64], rounding: Rounding) -> None:
    """Note the values of dense rows."""
    for r in range(len(values)):
        note_row(rounding, values[r], 0, r)


@kernel
def note_pairs(indices: NDArray[np.int64], data: Doubles, rounding: Rounding) -> None:
    """Note the values of sparse rows."""
    for k in range(len(data)):
        _note(rounding, indices[k], data[k])
