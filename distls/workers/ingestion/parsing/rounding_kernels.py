"""The columns of which float32, or float64, does not keep the values: different ones may become equal."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import helper, kernel
from distls.workers.ingestion.parsing.array_types import Bytes, Doubles, Ints, ULongs
from distls.workers.ingestion.parsing.decimal_kernels import double_bits

KEPT = 2.0**24  # whole numbers up to here are
EXACT = 2.0**53  # float64 has all whole numbers up to here
_WHOLE = 2.0**63  # beyond, no integer type has them: they were not counted
# Rows of a chunk that are looked at: the first, then so many neighbours, as one day's hours are, of every so many.
_FIRST, _NEIGHBOURS, _MANY = 64, 16, 256
_SAMPLED = 4096  # columns, of which a sample is kept
_MODULUS = 2**53 - 1  # ten times that is in int64
_RANGE = 2.0**-10  # of values over their size: few of those that float32 has are left
_SAMPLE = 16  # numbers of float32 by which it is told how many are met by different values
_SHARE = 4  # of a column's: one of so many is a loss, fewer are met by any fractions
_NOISE = 2.0**-40  # differences over size that sums of decimal fractions have
_LARGEST = float(np.finfo(np.float32).max)
_NO_KEY = 2**64 - 1
# of a column of a chunk: its number, the smallest and the largest value that is rounded, and 1 if different ones were
# seen to become equal, or a whole number to become another, 2 if float64 does not keep it either
Rounded = tuple[int, float, float, int]


class EqualValues(NamedTuple):
    """Values of a column that become equal."""

    low: float
    high: float
    level: int  # as `Rounded` has it
    two: tuple[float, float]  # that float32 makes equal
    both: bool  # are in the column; otherwise the second is what the first is read as


class Rounding(NamedTuple):
    """The values that float32 rounds, by column; shapes (n_columns,)."""

    low: Doubles
    high: Doubles
    level: NDArray[np.int8]  # as `Rounded` has it
    # Of numbers of float32, the few of each column that come first in a fixed order, whatever the order of rows:
    # their places in it, increasing, and the smallest and largest value of each; shapes (n, _SAMPLE)
    # for the first columns.
    keys: ULongs
    least: Doubles
    most: Doubles


def no_rounding(n_columns: int) -> Rounding:
    """Return the state before any value."""
    low, sample = np.full(n_columns, np.inf), np.zeros((min(n_columns, _SAMPLED), _SAMPLE))
    keys = np.full(sample.shape, _NO_KEY, dtype=np.uint64)
    return Rounding(low, -low, np.zeros(n_columns, dtype=np.int8), keys, sample, sample.copy())


def take_rounded(rounding: Rounding) -> list[Rounded]:
    """Return the columns whose values may have become equal, and start anew."""
    low, high, level, keys, least, most = rounding
    size = np.maximum(np.abs(low), np.abs(high))
    merged = most - least > _NOISE * np.maximum(np.abs(least), np.abs(most))
    many = merged.any(axis=1) & (merged.sum(axis=1) * _SHARE >= (keys < _NO_KEY).sum(axis=1))
    # zero, whose key is 0, is what small values become
    many |= (merged & (keys == 0)).any(axis=1)
    many &= level[: len(many)] == 0
    for column in np.flatnonzero(many):  # others, however far, hide nothing
        first = int(np.argmax(merged[column]))
        low[column], high[column], level[column] = least[column, first], most[column, first], 1
    with np.errstate(invalid="ignore"):
        found = np.flatnonzero((low <= high) & ((level > 0) | (high - low < _RANGE * size)))
    columns = [(int(c), float(low[c]), float(high[c]), int(level[c])) for c in found]
    low[:], high[:], level[:], keys[:], least[:], most[:] = np.inf, -np.inf, 0, _NO_KEY, 0.0, 0.0
    return columns


def merge_rounded(chunks: list[list[Rounded]]) -> dict[int, EqualValues]:
    """Return of all chunks together the columns in which different values become equal."""
    found: dict[int, list[Rounded]] = {}
    for entry in (entry for chunk in chunks for entry in chunk):
        found.setdefault(entry[0], []).append(entry)
    merged, single = {}, np.float32
    for column, entries in found.items():
        low, high = min(entry[1] for entry in entries), max(entry[2] for entry in entries)
        # a column that is wide in some chunk is wide
        narrow = len(entries) == len(chunks) and 0 < high - low < _RANGE * max(abs(low), abs(high))
        if narrow or any(entry[3] for entry in entries):
            with np.errstate(over="ignore"):  # of float64 they may be beyond float32
                both = next(((a, b) for _, a, b, _ in entries if a < b and single(a) == single(b)), None)
                two = both or (high, float(single(high)))
            level = max(int(entry[3]) for entry in entries)
            merged[column] = EqualValues(low, high, level, two, both is not None)
    return merged


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


@helper
def note_value(rounding: Rounding, column: int, value: float) -> None:
    """Note a whole number that float64 does not keep."""
    rounding.low[column] = min(rounding.low[column], value)
    rounding.high[column] = max(rounding.high[column], value)
    rounding.level[column] = 2


@helper
def is_merged(value: float) -> bool:
    """Return whether float32 takes a whole number for another one."""
    size = abs(value)
    return KEPT < size < _WHOLE and size == np.floor(size) and np.float64(np.float32(size)) != size


@helper
def _note_key(rounding: Rounding, column: int, rounded: float, value: float) -> None:
    """Note which values become one number of float32, of a few numbers."""
    # a product with an odd number has another value for each, in an order that says nothing of their sizes
    key = np.uint64(double_bits(rounded)) * np.uint64(0x9E3779B97F4A7C15)
    keys, least, most = rounding.keys, rounding.least, rounding.most
    if key > keys[column, _SAMPLE - 1]:
        return
    place = 0
    while keys[column, place] < key:
        place += 1
    if keys[column, place] != key:
        for k in range(_SAMPLE - 1, place, -1):
            keys[column, k] = keys[column, k - 1]
            least[column, k], most[column, k] = least[column, k - 1], most[column, k - 1]
        keys[column, place], least[column, place], most[column, place] = key, value, value
    least[column, place] = min(least[column, place], value)
    most[column, place] = max(most[column, place], value)


@helper
def _note(rounding: Rounding, column: int, value: float, sampled: bool) -> None:
    """Note a value if float32 does not keep it; where it is `sampled` also the number that it becomes."""
    rounded = np.float64(np.float32(value))
    if rounded != value:
        if value < rounding.low[column]:
            rounding.low[column] = value
        if value > rounding.high[column]:
            rounding.high[column] = value
        if is_merged(value):
            rounding.level[column] = max(rounding.level[column], 1)
        if sampled and column < len(rounding.keys) and abs(value) <= _LARGEST:
            _note_key(rounding, column, rounded, value)


@helper
def note_row(rounding: Rounding, values: Doubles, first: int, row: int) -> None:
    """Note values[first:] of a row: its whole numbers, and of some rows all numbers, which tell their range."""
    sampled = row < _FIRST or row % _MANY < _NEIGHBOURS
    is_looked_at = sampled
    # one pass without branches over most rows
    for k in range(first, len(values)):
        is_looked_at |= abs(values[k]) > KEPT
    if is_looked_at:
        for k in range(first, len(values)):
            _note(rounding, k - first, values[k], sampled)


@kernel
def note_rows(values: Doubles, rounding: Rounding) -> None:
    """Note the values of dense rows."""
    for r in range(len(values)):
        note_row(rounding, values[r], 0, r)


@kernel
def note_pairs(indices: Ints, data: Doubles, rounding: Rounding) -> None:
    """Note the values of sparse rows."""
    for k in range(len(data)):
        _note(rounding, indices[k], data[k], True)
