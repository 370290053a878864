"""Parse a field of separated text: where it ends, and its number or word.

Fields are those of RFC 4180; blanks around an unquoted field are not part of it.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from distls.workers.compilation.jit import helper
from distls.workers.ingestion.parsing import word_table
from distls.workers.ingestion.parsing.array_types import Bytes, Doubles, Ints, ULongs
from distls.workers.ingestion.parsing.decimal_kernels import load_word, trailing_zeros
from distls.workers.ingestion.parsing.number_kernels import scan_number
from distls.workers.ingestion.parsing.word_table import Words


class Kind(IntEnum):
    """Treatment of the fields of a column."""

    SKIP = 0
    NUMBER = 1
    GAPPED = 2  # a number, or NaN where it is missing
    LABEL = 3  # a number
    WEIGHT = 4
    CHECK = 5  # survey: numbers so far
    CHECK_LABEL = 6
    CATEGORY = 7
    LABEL_WORD = 8
    COLLECT = 9  # survey: collect the distinct values
    DATE = 10  # each of its words is read once
    TIMESTAMP = 11  # those of fixed width are read where they are
    DAY_TIMESTAMP = 12  # without the time of day
    TIME = 13


class Mode(IntEnum):
    """Bits of the parser's `mode`."""

    SURVEY = 1
    DENSE = 2
    FLOAT64 = 4
    LABELLED = 8
    COMMA = 16  # numbers have a decimal comma
    MARKED = 32  # some numbers stand for no value


class Code(IntEnum):
    """Why the parser returned; from FEW on, the row is refused."""

    DONE = 0
    FULL = 1  # no room for more rows: take them away and call again
    ASK = 2  # the value of a number, or whether a word may be here: add it to the answers and call again
    WORDS_FULL = 3  # no room for more words: grow their table and call again
    NEW_WORD = 4  # a label or a date: give the last word its value and call again
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
    GAPS = 13  # missing values that were read
    SIZE = 14


class Markers(NamedTuple):
    """Texts that stand for no value, beside the empty one."""

    sizes: ULongs  # shape (256,); by first byte: bit n is set if there is one of n bytes, bit 63 for more
    texts: Bytes  # of each its number of bytes, then these
    numbers: Doubles  # those that are numbers, which may be written in other ways too


class Rules(NamedTuple):
    """Options that apply to all rows."""

    separator: int  # a byte
    mode: int  # bits of Mode
    na: float  # value of a missing field; NaN: it is refused
    n_extra: int  # words to reserve in each record
    markers: Markers
    scratch: Bytes  # shape (SCRATCH,): a number with a comma, as it is written with a point


class Answers(NamedTuple):
    """Values of fields of the current row that Python has converted; state[ANSWERS] of them."""

    starts: Ints
    values: Doubles


NEWLINE, _RETURN, SPACE, _TAB, _QUOTE, COMMA, POINT, ZERO = 10, 13, 32, 9, 34, 44, 46, 48
SCRATCH = 128  # bytes: 64 of a number, and newlines after it
_ONES, _TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_ABOVE_QUOTE = np.uint64(0x2323232323232323)
LARGEST_FLOAT32 = 3.4028235677973366e38  # halfway to 2**128: from here on float32 is infinite
KIND, SLOT, NA = 0, 1, 2  # of a column
CODED = 2


@helper
def is_blank(character: int, separator: int) -> bool:
    """Return whether a character around a field is no part of it."""
    return (character in (SPACE, _TAB) and character != separator) or character == _RETURN


@helper
def row_end(text: Bytes, p: int, separator: int) -> int:
    """Return the newline after `p` if only blanks are before it, also where they separate fields; else `p`."""
    end = p
    while text[end] == SPACE or is_blank(text[end], separator):
        end += 1
    return end if text[end] == NEWLINE else p


@helper
def _bare_end(text: Bytes, p: int, separator: int) -> int:
    """Return the end of the field at `p` if it is not empty and has neither blanks nor quotes; else `p`."""
    q, stops = p, np.uint64(0)
    separators = _ONES * np.uint64(separator)
    while stops == np.uint64(0):  # of eight bytes at a time, the separators and those up to a quote
        word = load_word(text, q)
        odd = word ^ separators
        stops = (((odd - _ONES) & ~odd) | ((word - _ABOVE_QUOTE) & ~word)) & _TOPS
        q += 8
    end = q - 8 + (trailing_zeros(stops) >> 3)
    return end if text[end] == separator or text[end] == NEWLINE else p


@helper
def _quoted_bounds(text: Bytes, start: int, separator: int) -> Any:
    """Return as `field_bounds` those of a field whose first quote is before `start`."""
    p, escaped = start, False
    while text[p] != _QUOTE or text[p + 1] == _QUOTE:
        if text[p] == NEWLINE:
            return Code.UNCLOSED, start - 1, p, p, False
        if text[p] == _QUOTE:
            escaped = True
            p += 1
        p += 1
    end = p
    p += 1
    while is_blank(text[p], separator):
        p += 1
    if text[p] != separator and text[p] != NEWLINE:
        return Code.AFTER_QUOTE, start - 1, p + 1, p, False
    return Code.DONE, start, end, p, escaped


@helper
def field_bounds(text: Bytes, p: int, separator: int) -> Any:
    """Return (code, start, end, position of the separator or newline, whether quotes are escaped) of a field."""
    bare = _bare_end(text, p, separator)
    if bare > p:
        return Code.DONE, p, bare, bare, False
    # several blanks are one separator
    while is_blank(text[p], separator) or text[p] == SPACE:
        p += 1
    if text[p] == _QUOTE:
        return _quoted_bounds(text, p + 1, separator)
    start = end = p
    while text[p] != separator and text[p] != NEWLINE:
        if not is_blank(text[p], separator):
            end = p + 1
        p += 1
    return Code.DONE, start, end, p, False


@helper
def _is_missing(text: Bytes, start: int, end: int, markers: Markers) -> bool:
    """Return whether a field is empty or one of the markers."""
    n = end - start
    if n == 0:
        return True
    # most fields are told from all markers by their first byte and their size
    if (markers.sizes[text[start]] >> np.uint64(min(n, 63))) & np.uint64(1) == np.uint64(0):
        return False
    p = 0
    while p < len(markers.texts):
        size, k = np.int64(markers.texts[p]), 0
        while size == n and k < n and text[start + k] == markers.texts[p + 1 + k]:
            k += 1
        if k == n:
            return True
        p += size + 1
    return False


@helper
def _stands_for_none(value: float, rules: Rules) -> bool:
    """Return whether a number is one of the markers."""
    found = False
    if rules.mode & Mode.MARKED:
        for number in rules.markers.numbers:
            found = found or number == value
    return found


@helper
def _scan_comma(text: Bytes, start: int, end: int, scratch: Bytes) -> Any:
    """Return as `scan_number` (end, value, exact) of a number with a decimal comma, maybe points between thousands."""
    n, digits, grouped, comma = 0, 0, False, False
    if end - start > SCRATCH // 2:
        return -1, 0.0, True
    for p in range(start, end):
        character = text[p]
        if character in (POINT, COMMA):
            # a group of thousands has three digits, the first up to three
            whole = digits == 3 if grouped else character == COMMA or 0 < digits <= 3
            if comma or not whole:
                return -1, 0.0, True
            grouped, comma = grouped or character == POINT, character == COMMA
            digits = 0
        digits += 48 <= character <= 57
        if character != POINT:
            scratch[n] = POINT if character == COMMA else character
            n += 1
    for p in range(n, SCRATCH):
        scratch[p] = NEWLINE
    stop, value, exact = scan_number(scratch, 0)
    whole = comma or not grouped or digits == 3
    return (end if stop == n and whole else -1), value, exact


@helper
def _truth(text: Bytes, start: int, end: int) -> float:
    """Return 1 for ``true`` and 0 for ``false``, in any case, as booleans of Parquet are read; else -1."""
    n = end - start
    if n < 4 or n > 5:
        return -1.0
    # a letter's bit 32 is its case
    a, b, c, d = text[start] | 32, text[start + 1] | 32, text[start + 2] | 32, text[start + 3] | 32
    if n == 4:
        return 1.0 if a == 116 and b == 114 and c == 117 and d == 101 else -1.0
    is_false = a == 102 and b == 97 and c == 108 and d == 115 and text[start + 4] | 32 == 101
    return 0.0 if is_false else -1.0


@helper
def _answer(answers: Answers, n_answers: int, start: int) -> Any:
    """Return (whether there is one, the answer) about the field at `start`."""
    for k in range(n_answers):
        if answers.starts[k] == start:
            return True, answers.values[k]
    return False, 0.0


@helper
def _is_code(text: Bytes, start: int) -> bool:
    """Return whether a whole number has leading zeros or more than 15 digits, which float64 does not keep."""
    p = start + (text[start] in (43, 45))
    first = p
    while 48 <= text[p] <= 57:
        p += 1
    return p - first > 15 or (p - first > 1 and text[first] == 48)


@helper
def _number_in(text: Bytes, start: int, end: int, kind: int, rules: Rules, answers: Answers, state: Ints) -> Any:
    """Return (code, value) of the number in text[start:end]."""
    if rules.mode & Mode.COMMA:
        number_end, value, exact = _scan_comma(text, start, end, rules.scratch)
    else:
        number_end, value, exact = scan_number(text, start)
    if _stands_for_none(value, rules) if number_end == end else _is_missing(text, start, end, rules.markers):
        may_miss = kind in (Kind.NUMBER, Kind.CHECK) and not np.isnan(rules.na)
        state[State.GAPS] += 1
        return (Code.DONE if may_miss or kind == Kind.GAPPED else Code.VALUE), rules.na
    is_code = kind == Kind.CHECK_LABEL and _is_code(text, start)
    if number_end == end and exact and not is_code:
        return Code.DONE, value
    if number_end != end and kind in (Kind.NUMBER, Kind.GAPPED, Kind.CHECK):
        truth = _truth(text, start, end)
        if truth >= 0.0:
            return Code.DONE, truth
    if number_end != end and kind < Kind.CHECK:
        return Code.VALUE, 0.0
    known, answer = _answer(answers, state[State.ANSWERS], start)
    return (Code.DONE if known else Code.ASK), answer


@helper
def _is_sound(value: float, kind: int, wide: int) -> bool:
    """Return whether a number is in the range of its column."""
    if kind >= Kind.CHECK or (kind == Kind.GAPPED and np.isnan(value)):
        return True
    if kind == Kind.WEIGHT:
        return 0.0 <= value < LARGEST_FLOAT32
    return abs(value) < (np.inf if wide or kind == Kind.LABEL else LARGEST_FLOAT32)


@helper
def general_number(text: Bytes, p: int, rules: Rules, kind: int, answers: Answers, state: Ints) -> Any:
    """Return (code, position after the field, value) of a number in any notation."""
    code, start, end, after, _ = field_bounds(text, p, rules.separator)
    value = 0.0
    if code == Code.DONE:
        code, value = _number_in(text, start, end, kind, rules, answers, state)
    if code == Code.DONE and not _is_sound(value, kind, rules.mode & Mode.FLOAT64):
        code = Code.VALUE
    state[State.START], state[State.END] = start, end
    return code, after, value


@helper
def word_in(text: Bytes, p: int, rules: Rules, column: Ints, key: int, words: Words, state: Ints) -> Any:
    """Return (code, position after the field, value) of a field that may be a word.

    `key` is that of its column (see `word_table`). The value is a feature (-1: unknown category), a label, or the place
    of a date in `Slots.dates`.
    """
    kind = column[KIND]
    code, start, end, after, escaped = field_bounds(text, p, rules.separator)
    state[State.START], state[State.END] = start, end
    if code != Code.DONE:
        return code, after, 0.0
    if _is_missing(text, start, end, rules.markers):
        own = (kind == Kind.CATEGORY or kind >= Kind.DATE) and column[NA] != -1
        if kind == Kind.LABEL_WORD or (np.isnan(rules.na) and not own):
            return Code.VALUE, after, 0.0
        state[State.GAPS] += 1
        if kind == Kind.COLLECT:
            column[NA] = 1
        return Code.DONE, after, np.float64(column[NA])
    key += escaped
    value = word_table.word_hash(text, start, end, key)
    entry, slot = word_table.find_word(words, value, key, text, start, end)
    if entry < 0:
        if kind == Kind.CATEGORY:
            return Code.DONE, after, -1.0
        if not word_table.has_room(words, 1, end - start):
            return Code.WORDS_FULL, after, 0.0
        entry = word_table.insert_word(words, slot, value, key, state[State.LINE], text, start, end)
    is_new = (kind == Kind.LABEL_WORD or kind >= Kind.DATE) and np.isnan(words.values[entry])
    return (Code.NEW_WORD if is_new else Code.DONE), after, words.values[entry]
