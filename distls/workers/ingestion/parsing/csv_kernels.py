"""Parse separated text (CSV, TSV) into row records (see `record_kernels`), or survey its columns.

The kernel stops at the first field that it cannot decide on, and `workers/ingestion/formats/csv.py` explains it or
answers. Text is followed by `PADDING` newlines.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import math
from typing import Any, NamedTuple

import numpy as np

from distls.workers.compilation.jit import helper, kernel
from distls.workers.ingestion.parsing import csv_field_kernels as fields
from distls.workers.ingestion.parsing.array_types import Bytes, Doubles, Ints
from distls.workers.ingestion.parsing.csv_field_kernels import Answers, Code, Kind, Mode, Rules, State
from distls.workers.ingestion.parsing.decimal_kernels import write_double
from distls.workers.ingestion.parsing.number_kernels import parse_short_field
from distls.workers.ingestion.parsing.record_kernels import Records, store_pair
from distls.workers.ingestion.parsing.rounding_kernels import EXACT, Rounding, is_inexact, note_row, note_value
from distls.workers.ingestion.parsing.word_table import Words

# -- dates and times of fixed width, as programs write them ----------------------------------------------
# To the numbers that `mixed_columns.date_parts` has of them, by the same operations in the same order, and the sines of
# the same library: equal bits.

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


# -- rows ------------------------------------------------------------------------------------------------


class Slots(NamedTuple):
    """Scratch of a row: slot LABEL, slot WEIGHT, from FEATURES on one for each feature column, for dates several."""

    # shape (FEATURES + n slots of features,); feature numbers; the parser fills in those of categories
    indices: Ints
    values: Doubles
    rounding: Rounding  # of the feature columns
    dates: Doubles  # of each its number of features, then these


_EVERY = 16
LABEL, WEIGHT, FEATURES = 0, 1, 2  # of `Slots`; features in the order of the records


@helper
def _note_unseen(state: Ints, column: int, n_before: int) -> None:
    """Record the first value of an unknown category."""
    if state[State.UNSEEN] + n_before == 0:
        state[State.UNSEEN_START], state[State.UNSEEN_END] = state[State.START], state[State.END]
        state[State.UNSEEN_COLUMN], state[State.UNSEEN_LINE] = column, state[State.LINE]


@helper
def _store_word(value: float, kind: int, slot: int, slots: Slots) -> None:
    """Fill the slots of a label, a category or a date; an unknown category is zero."""
    if kind == Kind.LABEL_WORD:
        slots.values[slot] = value
    elif kind == Kind.CATEGORY and value < -1.0:  # missing, though no row of the training data lacks one
        slots.indices[slot] = -2 - np.int64(value)
        slots.values[slot] = np.nan
    elif kind == Kind.CATEGORY:
        slots.indices[slot] = np.int64(value)
        slots.values[slot] = np.float64(value >= 0.0)
    elif kind >= Kind.DATE and value >= 0.0:
        at = np.int64(value)
        for k in range(np.int64(slots.dates[at])):
            slots.values[slot + k] = slots.dates[at + 1 + k]


@helper
def _word(text: Bytes, p: int, rules: Rules, columns: Ints, c: int, words: Words, slots: Slots, state: Ints) -> Any:
    """Read a field that may be a word into its slots; return (code, position after it, value)."""
    kind, slot = columns[c, fields.KIND], columns[c, fields.SLOT]
    if kind > Kind.DATE:
        code, start, end, after, _ = fields.field_bounds(text, p, rules.separator)
        if kind == Kind.TIME:
            found = store_time(text, start, end, slots.values, slot)
        else:
            found = store_date(text, start, end, slots.values, slot, kind == Kind.TIMESTAMP)
        if found and code == Code.DONE:
            return Code.DONE, after, 0.0
    code, after, value = fields.word_in(text, p, rules, columns[c], 2 * c, words, state)
    _store_word(value, kind, slot, slots)
    return code, after, value


@helper
def _note_inexact(text: Bytes, code: int, value: float, column: Ints, rules: Rules, slots: Slots, state: Ints) -> None:
    """Note the number of a feature, which was just read, if float64 does not keep it."""
    large = code == Code.DONE and abs(value) >= EXACT and column[fields.KIND] in (Kind.NUMBER, Kind.GAPPED)
    mark = fields.COMMA if rules.mode & Mode.COMMA else fields.POINT
    if large and is_inexact(text, state[State.START], state[State.END], mark, value):
        note_value(slots.rounding, column[fields.SLOT] - FEATURES, value)


@helper
def _note_code(text: Bytes, p: int, wanted: bool, columns: Ints, c: int) -> None:
    """Note in a survey that a number begins with a zero before other digits."""
    if wanted and text[p] == fields.ZERO and fields.ZERO <= text[p + 1] <= fields.ZERO + 9:
        columns[c, fields.NA] = fields.CODED


@helper
def _parse_row(
    text: Bytes,
    p: int,
    rules: Rules,
    separators: np.uint64,
    columns: Ints,
    words: Words,
    answers: Answers,
    slots: Slots,
    state: Ints,
) -> Any:
    """Parse the row at `p` into the slots; return (code, position of its newline, unseen values)."""
    n_columns, n_unseen = len(columns), 0
    looked_at = state[State.ROWS] % _EVERY == 0  # for codes, which many rows have: all would cost a twentieth
    # where plain numbers need a look, none ends at a byte that there is
    ends = (rules.separator, fields.NEWLINE) if rules.mode & (Mode.COMMA | Mode.MARKED) == 0 else (256, 256)
    for c in range(n_columns):
        kind, slot = columns[c, fields.KIND], columns[c, fields.SLOT]
        code, start = Code.DONE, p
        if Kind.NUMBER <= kind <= Kind.CHECK_LABEL:
            after, value = parse_short_field(text, p, separators)
            # plain numbers are below 1e15; a negative weight is left to be refused, a label may be a code
            special = (value < 0.0 and kind == Kind.WEIGHT) or kind == Kind.CHECK_LABEL
            if after < 0 or text[after] not in ends or special:
                code, after, value = fields.general_number(text, p, rules, kind, answers, state)
                _note_inexact(text, code, value, columns[c], rules, slots, state)
                start = state[State.START]  # behind blanks and a quote
            slots.values[slot] = value
            _note_code(text, start, looked_at and kind == Kind.CHECK, columns, c)
        elif kind == Kind.SKIP:
            code, start, end, after, _ = fields.field_bounds(text, p, rules.separator)
            state[State.START], state[State.END] = start, end
        else:
            code, after, value = _word(text, p, rules, columns, c, words, slots, state)
            if value == -1.0 and kind == Kind.CATEGORY:
                _note_unseen(state, c, n_unseen)
                n_unseen += 1
        if code != Code.DONE:
            state[State.COLUMN] = c
            return code, p, 0
        p = after
        if c + 1 < n_columns:
            if text[p] == fields.NEWLINE:
                return Code.FEW, p, 0
            p += 1
    if rules.separator == fields.SPACE:
        p = fields.row_end(text, p, fields.SPACE)
    return (Code.DONE if text[p] == fields.NEWLINE else Code.MANY), p, n_unseen


@helper
def _store_row(records: Records, rules: Rules, slots: Slots, state: Ints) -> None:
    words, floats, mode = records.words, records.floats, rules.mode
    row, at = state[State.ROWS], state[State.WORDS]
    wide, n_slots = mode & Mode.FLOAT64, len(slots.indices)
    records.row_at[row], records.row_line[row] = at, state[State.LINE]
    records.row_weight[row] = slots.values[WEIGHT]
    words[at + 1] = 1 if mode & Mode.LABELLED else 0
    end = at + 2 + rules.n_extra
    if mode & Mode.LABELLED:
        write_double(words, end, slots.values[LABEL] + 0.0)  # minus zero is zero
        end += 2
    start = end
    if not wide:
        note_row(slots.rounding, slots.values, FEATURES, row)
    if mode & Mode.DENSE:
        for s in range(FEATURES, n_slots):
            if wide:
                write_double(words, start + 2 * (s - FEATURES), slots.values[s])
            else:
                floats[start + s - FEATURES] = slots.values[s]
        words[at] = n_slots - FEATURES
        end += (n_slots - FEATURES) * (2 if wide else 1)
    else:
        for s in range(FEATURES, n_slots):
            end = store_pair(words, floats, end, slots.indices[s], slots.values[s], wide)
        words[at] = (end - start) // (3 if wide else 2)
    state[State.ROWS] = row + 1
    state[State.WORDS] = end


@kernel
def parse_rows(
    text: Bytes,
    stop: int,
    rules: Rules,
    columns: Ints,
    words: Words,
    answers: Answers,
    slots: Slots,
    records: Records,
    state: Ints,
) -> int:
    """Parse text[state[POSITION]:stop] into records; return a Code.

    Parameters
    ----------
    text : shape (at least stop + PADDING,), newlines from `stop` on
    columns : shape (n_columns, 3): Kind, slot, and the feature of a missing category (-2 less it, if NaN is to be its
        value), the place of a missing date (-1: unknown); for a column to collect, whether a value was missing; for
        one to check, CODED once a number begins with a zero, as codes do
    state : shape (State.SIZE,); COLUMN, START and END locate the error in a refused row
    """
    p = state[State.POSITION]
    separators = np.uint64(0x0101010101010101) * np.uint64(rules.separator)  # in each of eight bytes
    needed = 4 + rules.n_extra + (len(slots.indices) - FEATURES) * 3  # of a row of doubles with indices
    while p < stop:
        end = fields.row_end(text, p, rules.separator)
        if text[end] != fields.NEWLINE:
            if state[State.WORDS] + needed > len(records.words):
                state[State.POSITION] = p
                return Code.FULL
            n_gaps = state[State.GAPS]
            code, end, n_new = _parse_row(text, p, rules, separators, columns, words, answers, slots, state)
            if code != Code.DONE:
                # the row is parsed again after an answer, or skipped by the caller
                state[State.POSITION], state[State.GAPS] = p, n_gaps
                return code
            state[State.UNSEEN] += n_new
            state[State.ANSWERS] = 0
            if rules.mode & Mode.SURVEY:
                state[State.ROWS] += 1
            else:
                _store_row(records, rules, slots, state)
        p = end + 1
        state[State.LINE] += 1
    state[State.POSITION] = p
    return Code.DONE
