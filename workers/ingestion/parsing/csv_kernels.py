"""Parse separated text (CSV, TSV) into row records (see `record_kernels`), or survey its columns.

Fields are those of RFC 4180; blanks around an unquoted field are not part of it. The kernel stops at the first field
that it cannot decide on, and `workers/ingestion/formats/csv.py` explains it or answers. Text is followed by `PADDING`
newlines.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import helper, inlined, kernel
from distls.workers.ingestion.parsing.decimal_kernels import write_double
from distls.workers.ingestion.parsing.number_kernels import parse_short_field, scan_number
from distls.workers.ingestion.parsing.record_kernels import store_pair
from distls.workers.ingestion.parsing.word_table_kernels import (
    Words,
    find_word,
    has_room,
    insert_word,
    word_hash,
)

__all__ = ["FEATURES", "Answers", "Code", "Kind", "Mode", "Records", "Rules", "Slots", "State", "parse_rows"]


class Kind(IntEnum):
    """Treatment of the fields of a column."""

    SKIP = 0
    NUMBER = 1
    LABEL = 2  # a number
    WEIGHT = 3
    CHECK = 4  # survey: numbers so far
    CHECK_LABEL = 5
    CATEGORY = 6
    LABEL_WORD = 7
    COLLECT = 8  # survey: collect the distinct values


class Mode(IntEnum):
    """Bits of the parser's `mode`."""

    SURVEY = 1
    DENSE = 2
    FLOAT64 = 4
    LABELLED = 8


class Code(IntEnum):
    """Why the parser returned; from FEW on, the row is refused."""

    DONE = 0
    FULL = 1  # no room for more rows: take them away and call again
    ASK = 2  # the value of a number, or whether a word may be here: add it to the answers and call again
    WORDS_FULL = 3  # no room for more words: grow their table and call again
    NEW_LABEL = 4  # give the last word its value and call again
    FEW = 5
    MANY = 6
    VALUE = 7  # missing, not a number, not finite or too large
    AFTER_QUOTE = 8
    UNCLOSED = 9


class State(IntEnum):
    """Entries of the parser's int64 `state`."""

    POSITION = 0  # next row to parse; in a refused one, its start
    LINE = 1  # lines finished before POSITION
    ROWS = 2
    WORDS = 3
    ANSWERS = 4
    COLUMN = 5  # where the parser stopped
    START = 6  # text of that field
    END = 7
    UNSEEN = 8  # values of unknown categories
    UNSEEN_START = 9  # the first of them, and its row
    UNSEEN_END = 10
    UNSEEN_COLUMN = 11
    UNSEEN_LINE = 12
    SIZE = 13


class Rules(NamedTuple):
    """Options that apply to all rows."""

    separator: int  # a byte
    mode: int  # bits of Mode
    na: float  # value of a missing field; NaN: it is refused
    n_extra: int  # words to reserve in each record


class Answers(NamedTuple):
    """Values of fields of the current row that Python has converted; state[ANSWERS] of them."""

    starts: NDArray[np.int64]
    values: NDArray[np.float64]


class Slots(NamedTuple):
    """Scratch of a row: slot LABEL, slot WEIGHT, and from FEATURES on one for each feature column."""

    # shape (FEATURES + n feature columns,); feature numbers; the parser fills in those of categories
    indices: NDArray[np.int64]
    values: NDArray[np.float64]


class Records(NamedTuple):
    """Buffers for the records of rows."""

    words: NDArray[np.uint32]  # shape (n_words,)
    floats: NDArray[np.float32]  # shape (n_words,), the same memory
    row_at: NDArray[np.int64]
    row_line: NDArray[np.int32]
    row_weight: NDArray[np.float32]


LABEL, WEIGHT, FEATURES = 0, 1, 2  # of `Slots`; features in the order of the records

_NEWLINE, _RETURN, _SPACE, _TAB, _QUOTE = 10, 13, 32, 9, 34
_LARGEST_FLOAT32 = 3.4028235677973366e38  # halfway to 2**128: from here on float32 is infinite
_KIND, _SLOT, _NA = 0, 1, 2  # of a column


@inlined
def _is_blank(character: int, separator: int) -> bool:
    return (character in (_SPACE, _TAB) and character != separator) or character == _RETURN


# -- fields ----------------------------------------------------------------------------------------------


@inlined
def _bounds(text: NDArray[np.uint8], p: int, separator: int) -> Any:
    """Return (code, start, end, position of the separator or newline, whether quotes are escaped) of a field."""
    while _is_blank(text[p], separator):
        p += 1
    if text[p] != _QUOTE:
        start = end = p
        while text[p] != separator and text[p] != _NEWLINE:
            if not _is_blank(text[p], separator):
                end = p + 1
            p += 1
        return Code.DONE, start, end, p, False
    start, escaped = p + 1, False
    p = start
    while text[p] != _QUOTE or text[p + 1] == _QUOTE:
        if text[p] == _NEWLINE:
            return Code.UNCLOSED, start - 1, p, p, False
        if text[p] == _QUOTE:
            escaped = True
            p += 1
        p += 1
    end = p
    p += 1
    while _is_blank(text[p], separator):
        p += 1
    if text[p] != separator and text[p] != _NEWLINE:
        return Code.AFTER_QUOTE, start - 1, p + 1, p, False
    return Code.DONE, start, end, p, escaped


@inlined
def _is_missing(text: NDArray[np.uint8], start: int, end: int) -> bool:
    """Return whether a field is empty, ``?``, ``NA``, ``NaN`` or ``nan``."""
    n = end - start
    if n == 0 or (n == 1 and text[start] == 63):
        return True
    a, b, c = text[start], text[start + 1], text[start + 2]
    if n == 2:
        return a == 78 and b == 65
    return n == 3 and ((a == 78 and b == 97 and c == 78) or (a == 110 and b == 97 and c == 110))


@inlined
def _answer(answers: Answers, n_answers: int, start: int) -> Any:
    """Return (whether there is one, the answer) about the field at `start`."""
    for k in range(n_answers):
        if answers.starts[k] == start:
            return True, answers.values[k]
    return False, 0.0


@inlined
def _is_code(text: NDArray[np.uint8], start: int) -> bool:
    """Return whether a whole number has leading zeros or more than 15 digits, which float64 does not keep."""
    p = start + (text[start] in (43, 45))
    first = p
    while 48 <= text[p] <= 57:
        p += 1
    return p - first > 15 or (p - first > 1 and text[first] == 48)


@inlined
def _number_in(
    text: NDArray[np.uint8],
    start: int,
    end: int,
    kind: int,
    na: float,
    answers: Answers,
    state: NDArray[np.int64],
) -> Any:
    """Return (code, value) of the number in text[start:end]; `na` is the value of a missing one, or NaN."""
    if _is_missing(text, start, end):
        may_miss = kind in (Kind.NUMBER, Kind.CHECK) and not np.isnan(na)
        return (Code.DONE if may_miss else Code.VALUE), na
    number_end, value, exact = scan_number(text, start)
    is_code = kind == Kind.CHECK_LABEL and _is_code(text, start)
    if number_end == end and exact and not is_code:
        return Code.DONE, value
    if number_end != end and kind < Kind.CHECK:
        return Code.VALUE, 0.0
    known, answer = _answer(answers, state[State.ANSWERS], start)
    return (Code.DONE if known else Code.ASK), answer


@inlined
def _is_sound(value: float, kind: int, wide: int) -> bool:
    """Return whether a number is in the range of its column."""
    if kind >= Kind.CHECK:
        return True
    if kind == Kind.WEIGHT:
        return 0.0 <= value < _LARGEST_FLOAT32
    return abs(value) < (np.inf if wide or kind == Kind.LABEL else _LARGEST_FLOAT32)


@helper
def _general_number(
    text: NDArray[np.uint8],
    p: int,
    rules: Rules,
    kind: int,
    answers: Answers,
    state: NDArray[np.int64],
) -> Any:
    """Return (code, position after the field, value) of a number in any notation."""
    code, start, end, after, _ = _bounds(text, p, rules.separator)
    value = 0.0
    if code == Code.DONE:
        code, value = _number_in(text, start, end, kind, rules.na, answers, state)
    if code == Code.DONE and not _is_sound(value, kind, rules.mode & Mode.FLOAT64):
        code = Code.VALUE
    state[State.START], state[State.END] = start, end
    return code, after, value


@inlined
def _word_in(
    text: NDArray[np.uint8],
    p: int,
    rules: Rules,
    column: NDArray[np.int64],
    key: int,
    words: Words,
    state: NDArray[np.int64],
) -> Any:
    """Return (code, position after the field, value) of a field that may be a word.

    `key` is that of its column (see `word_table`). The value is a feature (-1: unknown category), or a label.
    """
    kind = column[_KIND]
    code, start, end, after, escaped = _bounds(text, p, rules.separator)
    state[State.START], state[State.END] = start, end
    if code != Code.DONE:
        return code, after, 0.0
    if _is_missing(text, start, end):
        if np.isnan(rules.na) or kind == Kind.LABEL_WORD:
            return Code.VALUE, after, 0.0
        if kind == Kind.COLLECT:
            column[_NA] = 1
        return Code.DONE, after, np.float64(column[_NA])
    key += escaped
    value = word_hash(text, start, end, key)
    entry, slot = find_word(words, value, key, text, start, end)
    if entry < 0:
        if kind == Kind.CATEGORY:
            return Code.DONE, after, -1.0
        if not has_room(words, 1, end - start):
            return Code.WORDS_FULL, after, 0.0
        entry = insert_word(words, slot, value, key, state[State.LINE], text, start, end)
    is_new = kind == Kind.LABEL_WORD and np.isnan(words.values[entry])
    return (Code.NEW_LABEL if is_new else Code.DONE), after, words.values[entry]


# -- rows ------------------------------------------------------------------------------------------------


@inlined
def _note_unseen(state: NDArray[np.int64], column: int, n_before: int) -> None:
    """Record the first value of an unknown category."""
    if state[State.UNSEEN] + n_before == 0:
        state[State.UNSEEN_START], state[State.UNSEEN_END] = state[State.START], state[State.END]
        state[State.UNSEEN_COLUMN], state[State.UNSEEN_LINE] = column, state[State.LINE]


@inlined
def _store_word(value: float, kind: int, slot: int, slots: Slots) -> None:
    """Fill the slot of a label or a category; an unknown category is zero."""
    if kind == Kind.LABEL_WORD:
        slots.values[slot] = value
    elif kind == Kind.CATEGORY:
        slots.indices[slot] = np.int64(value)
        slots.values[slot] = np.float64(value >= 0.0)


@inlined
def _parse_row(
    text: NDArray[np.uint8],
    p: int,
    rules: Rules,
    separators: np.uint64,
    columns: NDArray[np.int64],
    words: Words,
    answers: Answers,
    slots: Slots,
    state: NDArray[np.int64],
) -> Any:
    """Parse the row at `p` into the slots; return (code, position of its newline, unseen values)."""
    n_columns, n_unseen = len(columns), 0
    for c in range(n_columns):
        kind, slot = columns[c, _KIND], columns[c, _SLOT]
        code = Code.DONE
        if Kind.NUMBER <= kind <= Kind.CHECK_LABEL:
            after, value = parse_short_field(text, p, separators)
            # plain numbers are below 1e15; a negative weight is left to be refused, a label may be a code
            special = (value < 0.0 and kind == Kind.WEIGHT) or kind == Kind.CHECK_LABEL
            if after < 0 or text[after] not in (rules.separator, _NEWLINE) or special:
                code, after, value = _general_number(text, p, rules, kind, answers, state)
            slots.values[slot] = value
        elif kind == Kind.SKIP:
            code, start, end, after, _ = _bounds(text, p, rules.separator)
            state[State.START], state[State.END] = start, end
        else:
            code, after, value = _word_in(text, p, rules, columns[c], 2 * c, words, state)
            _store_word(value, kind, slot, slots)
            if value < 0.0 and kind == Kind.CATEGORY:
                _note_unseen(state, c, n_unseen)
                n_unseen += 1
        if code != Code.DONE:
            state[State.COLUMN] = c
            return code, p, 0
        p = after
        if c + 1 < n_columns:
            if text[p] == _NEWLINE:
                return Code.FEW, p, 0
            p += 1
    return (Code.DONE if text[p] == _NEWLINE else Code.MANY), p, n_unseen


@inlined
def _store_row(records: Records, rules: Rules, slots: Slots, state: NDArray[np.int64]) -> None:
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
    text: NDArray[np.uint8],
    stop: int,
    rules: Rules,
    columns: NDArray[np.int64],
    words: Words,
    answers: Answers,
    slots: Slots,
    records: Records,
    state: NDArray[np.int64],
) -> int:
    """Parse text[state[POSITION]:stop] into records; return a Code.

    Parameters
    ----------
    text : shape (at least stop + PADDING,), newlines from `stop` on
    columns : shape (n_columns, 3): Kind, slot, and the feature of a missing category (-1: unknown); for a column to
        collect, whether a value was missing
    state : shape (State.SIZE,); COLUMN, START and END locate the error in a refused row
    """
    p = state[State.POSITION]
    separators = np.uint64(0x0101010101010101) * np.uint64(rules.separator)  # in each of eight bytes
    needed = 4 + rules.n_extra + (len(slots.indices) - FEATURES) * 3  # of a row of doubles with indices
    while p < stop:
        end = p
        while _is_blank(text[end], rules.separator):
            end += 1
        if text[end] != _NEWLINE:
            if state[State.WORDS] + needed > len(records.words):
                state[State.POSITION] = p
                return Code.FULL
            code, end, n_unseen = _parse_row(
                text, p, rules, separators, columns, words, answers, slots, state
            )
            if code != Code.DONE:
                # the row is parsed again after an answer, or skipped by the caller
                state[State.POSITION] = p
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
