"""Parse separated text (CSV, TSV) into row records (see `record_kernels`), or survey its columns.

The kernel stops at the first field that it cannot decide on, and `workers/ingestion/formats/csv.py` explains it or
answers. Text is followed by `PADDING` newlines.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from typing import Any, NamedTuple

import numpy as np

from distls.workers.compilation.jit import helper, kernel
from distls.workers.ingestion.parsing.array_types import Bytes, Doubles, Ints
from distls.workers.ingestion.parsing.csv_field_kernels import (
    CODED,
    COMMA,
    KIND,
    NA,
    NEWLINE,
    POINT,
    SLOT,
    SPACE,
    ZERO,
    Answers,
    Code,
    Kind,
    Mode,
    Rules,
    State,
    field_bounds,
    general_number,
    row_end,
    word_in,
)
from distls.workers.ingestion.parsing.date_kernels import store_date, store_time
from distls.workers.ingestion.parsing.decimal_kernels import write_double
from distls.workers.ingestion.parsing.number_kernels import parse_short_field
from distls.workers.ingestion.parsing.record_kernels import Records, store_pair
from distls.workers.ingestion.parsing.rounding_kernels import (
    EXACT,
    Rounding,
    is_inexact,
    note_row,
    note_value,
)
from distls.workers.ingestion.parsing.word_table_kernels import Words


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
def _word(
    text: Bytes, p: int, rules: Rules, columns: Ints, c: int, words: Words, slots: Slots, state: Ints
) -> Any:
    """Read a field that may be a word into its slots; return (code, position after it, value)."""
    kind, slot = columns[c, KIND], columns[c, SLOT]
    if kind > Kind.DATE:
        code, start, end, after, _ = field_bounds(text, p, rules.separator)
        if kind == Kind.TIME:
            found = store_time(text, start, end, slots.values, slot)
        else:
            found = store_date(text, start, end, slots.values, slot, kind == Kind.TIMESTAMP)
        if found and code == Code.DONE:
            return Code.DONE, after, 0.0
    code, after, value = word_in(text, p, rules, columns[c], 2 * c, words, state)
    _store_word(value, kind, slot, slots)
    return code, after, value


@helper
def _note_inexact(
    text: Bytes, code: int, value: float, column: Ints, rules: Rules, slots: Slots, state: Ints
) -> None:
    """Note the number of a feature, which was just read, if float64 does not keep it."""
    large = code == Code.DONE and abs(value) >= EXACT and column[KIND] in (Kind.NUMBER, Kind.GAPPED)
    mark = COMMA if rules.mode & Mode.COMMA else POINT
    if large and is_inexact(text, state[State.START], state[State.END], mark, value):
        note_value(slots.rounding, column[SLOT] - FEATURES, value)


@helper
def _note_code(text: Bytes, p: int, wanted: bool, columns: Ints, c: int) -> None:
    """Note in a survey that a number begins with a zero before other digits."""
    if wanted and text[p] == ZERO and ZERO <= text[p + 1] <= ZERO + 9:
        columns[c, NA] = CODED


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
    ends = (rules.separator, NEWLINE) if rules.mode & (Mode.COMMA | Mode.MARKED) == 0 else (256, 256)
    for c in range(n_columns):
        kind, slot = columns[c, KIND], columns[c, SLOT]
        code, start = Code.DONE, p
        if Kind.NUMBER <= kind <= Kind.CHECK_LABEL:
            after, value = parse_short_field(text, p, separators)
            # plain numbers are below 1e15; a negative weight is left to be refused, a label may be a code
            special = (value < 0.0 and kind == Kind.WEIGHT) or kind == Kind.CHECK_LABEL
            if after < 0 or text[after] not in ends or special:
                code, after, value = general_number(text, p, rules, kind, answers, state)
                _note_inexact(text, code, value, columns[c], rules, slots, state)
                start = state[State.START]  # behind blanks and a quote
            slots.values[slot] = value
            _note_code(text, start, looked_at and kind == Kind.CHECK, columns, c)
        elif kind == Kind.SKIP:
            code, start, end, after, _ = field_bounds(text, p, rules.separator)
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
            if text[p] == NEWLINE:
                return Code.FEW, p, 0
            p += 1
    if rules.separator == SPACE:
        p = row_end(text, p, SPACE)
    return (Code.DONE if text[p] == NEWLINE else Code.MANY), p, n_unseen


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
        end = row_end(text, p, rules.separator)
        if text[end] != NEWLINE:
            if state[State.WORDS] + needed > len(records.words):
                state[State.POSITION] = p
                return Code.FULL
            n_gaps = state[State.GAPS]
            code, end, n_unseen = _parse_row(
                text, p, rules, separators, columns, words, answers, slots, state
            )
            if code != Code.DONE:
                # the row is parsed again after an answer, or skipped by the caller
                state[State.POSITION], state[State.GAPS] = p, n_gaps
                return code
            state[State.UNSEEN] += n_unseen
            state[State.ANSWERS] = 0
            if rules.mode & Mode.SURVEY:
                state[State.ROWS] += 1
            else:
                _store_row(records, rules, slots, state)
        p = end + 1
        state[State.LINE] += 1
    state[State.POSITION] = p
    return Code.DONE
