"""Dates and times of fixed width, as programs write them, to the numbers that `mixed_columns.date_parts` has of them.

The same operations in the same order, and the sines of the same library: equal bits.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import math
from typing import Any

import numpy as np

from distls.workers.compilation.jit import helper
from distls.workers.ingestion.parsing.array_types import Bytes, Doubles

_POINT, _COLON, _SPACE, _PLUS, _MINUS, _SLASH, _T, _Z = b".: +-/TZ"
_DAYS_BEFORE = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365])
_FIRST_DAY = 730_120  # of 2000
_TENS = 10.0 ** np.arange(16)  # exact doubles
_MOST_DECIMALS = 13  # of seconds: fifteen digits are an exact double
_DAY = 86400.0


@helper
def _two_digits(text: Bytes, p: int) -> int:
    """Return the number of two digits, -1 if they are none."""
    first, second = np.int64(text[p]) - 48, np.int64(text[p + 1]) - 48
    return first * 10 + second if 0 <= first <= 9 and 0 <= second <= 9 else -1


@helper
def _seconds(text: Bytes, p: int, end: int) -> Any:
    """Return (end, value) of the seconds at `p`, maybe with decimals; the end is -1 if there are none."""
    second = _two_digits(text, p)
    q = p + 2
    if second < 0 or q >= end or text[q] != _POINT:
        return (q if second >= 0 and q <= end else -1), np.float64(second)
    q += 1
    first = q
    while q < end and 48 <= text[q] <= 57:
        second = second * 10 + np.int64(text[q]) - 48 if q - first < _MOST_DECIMALS else second
        q += 1
    n_decimals = q - first
    return (q if 0 < n_decimals <= _MOST_DECIMALS else -1), second / _TENS[min(n_decimals, _MOST_DECIMALS)]


@helper
def _clock(text: Bytes, p: int, end: int) -> Any:
    """Return (end, part of the day) of the time at `p`, as 10:05 or 10:05:30.25; the end is -1 if there is none."""
    hour, minute, second, q = _two_digits(text, p), _two_digits(text, p + 3), 0.0, p + 5
    if q > end or text[p + 2] != _COLON or not (0 <= hour <= 24 and 0 <= minute <= 59):
        return -1, 0.0
    if q < end and text[q] == _COLON:
        q, second = _seconds(text, q + 1, end)
    return (q if second < 61.0 else -1), (3600.0 * hour + 60.0 * minute + second) / _DAY


@helper
def _is_zone(text: Bytes, p: int, end: int) -> bool:
    """Return whether text[p:end] is empty, Z or an offset from UTC as +01, +0100 or +01:00."""
    if end - p <= 1:
        return end == p or text[p] == _Z
    if (text[p] != _PLUS and text[p] != _MINUS) or _two_digits(text, p + 1) < 0:
        return False
    minutes = p + 3 + (text[p + 3] == _COLON)
    return end == p + 3 or (end == minutes + 2 and _two_digits(text, minutes) >= 0)


@helper
def _day(text: Bytes, p: int) -> Any:
    """Return (days from the first of the first year, days from the first of January), both -1 if none is at `p`."""
    century, year = _two_digits(text, p), _two_digits(text, p + 2)
    month, day, mark = _two_digits(text, p + 5), _two_digits(text, p + 8), text[p + 4]
    marked = text[p + 7] == mark and mark in (_MINUS, _SLASH, _POINT)
    year += 100 * century
    if not marked or year < max(1, 100 * century) or not 1 <= month <= 12:
        return -1, -1
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    before = _DAYS_BEFORE[month - 1] + (leap and month > 2)
    if not 1 <= day <= _DAYS_BEFORE[month] - _DAYS_BEFORE[month - 1] + (leap and month == 2):
        return -1, -1
    past = year - 1
    return 365 * past + past // 4 - past // 100 + past // 400 + before + day, before + day - 1


@helper
def _store_cycle(turn: float, values: Doubles, slot: int) -> None:
    angle = 2.0 * math.pi * turn
    values[slot], values[slot + 1] = math.sin(angle), math.cos(angle)


@helper
def store_date(text: Bytes, start: int, end: int, values: Doubles, slot: int, timed: bool) -> bool:
    """Write the numbers of a date as 2024-01-31, maybe with a time, from `slot` on; return whether it is one.

    Those of the day are written if the column is `timed`.
    """
    if end - start < 10:
        return False
    days, in_year = _day(text, start)
    part, p = 0.0, start + 10
    if p < end:
        parted = text[p] == _T or text[p] == _SPACE
        p, part = _clock(text, p + 1, end)
        if not parted or p < 0 or not _is_zone(text, p, end):
            return False
    if days < 0:
        return False
    values[slot] = (days - _FIRST_DAY) + part
    _store_cycle((in_year + part) / 365.25, values, slot + 1)
    _store_cycle(((days + 6) % 7 + part) / 7.0, values, slot + 3)
    if timed:
        _store_cycle(part, values, slot + 5)
    return True


@helper
def store_time(text: Bytes, start: int, end: int, values: Doubles, slot: int) -> bool:
    """Write the numbers of a time of day, as 13:45:10, from `slot` on; return whether it is one."""
    stop, part = _clock(text, start, end)
    if stop == end:
        _store_cycle(part, values, slot)
    return stop == end
