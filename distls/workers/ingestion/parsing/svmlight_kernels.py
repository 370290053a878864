"""Parse svmlight text into row records (see `record_kernels`).

The grammar is that of scikit-learn's `load_svmlight_file`, with everything dubious refused: a kernel stops at the
first offending token and `workers/ingestion/formats/svmlight.py` explains it. Text is followed by `PADDING` newlines.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from enum import IntEnum
from typing import Any

import numpy as np

from distls.workers.compilation.jit import helper, kernel
from distls.workers.ingestion.parsing.array_types import Bytes, Ints, Singles, UInts
from distls.workers.ingestion.parsing.decimal_kernels import double_bits, write_double
from distls.workers.ingestion.parsing.number_kernels import MAX_INDEX, parse_index, parse_short_value, scan_number
from distls.workers.ingestion.parsing.record_kernels import Records, is_repeated, store_pair
from distls.workers.ingestion.parsing.rounding_kernels import EXACT, KEPT, is_inexact, is_merged

PADDING = 24


class Mode(IntEnum):
    """Bits of the parser's `mode`."""

    LABELLED = 1
    MULTILABEL = 2
    ONE_BASED = 4
    FLOAT64 = 8
    WEIGHTED = 16  # labels may have weights, as in 1:0.5


class Code(IntEnum):
    """Why the parser returned."""

    DONE = 0
    SLOW_FULL = 1  # no room for more tokens that Python must convert: drain the list and call again
    LABEL = 2
    SEVERAL_LABELS = 3
    NO_LABEL = 4
    REPEATED_LABEL = 5
    QID = 6
    PAIR = 7
    ORDER = 8
    LARGE_INDEX = 9
    OVERFLOW = 10
    FULL = 11  # no room for more words: take the rows away and call again
    WEIGHT = 12


class State(IntEnum):
    """Entries of the parser's int64 `state`, running totals over the text parsed so far."""

    POSITION = 0  # next byte to parse, or the offending token
    LINE = 1  # lines finished before POSITION
    ROWS = 2
    WORDS = 3
    NNZ = 4
    SLOW = 5
    QIDS = 6
    MIN_INDEX = 7  # -1 when there is none
    MIN_LINE = 8  # 0-based line of the first row with that index
    MAX_INDEX = 9
    MAX_LINE = 10
    LAST_INDEX = 11  # the index before the offending token in its row
    # the index of a whole number that is not kept (-1 - index: nor in float64), and its bits as a double; 0: none
    ROUNDED = 12
    ROUNDED_VALUE = 13
    SIZE = 14


# Entries of the scratch array of a row.
_NNZ, _FIRST, _LAST, _SLOW, _QIDS, _N_LABELS, _ROUNDED, _ROUNDED_VALUE = range(8)

_NEWLINE, _SPACE, _HASH, _COLON, _COMMA, _POINT = 10, 32, 35, 58, 44, 46
_LARGEST_FLOAT32 = 3.4028235677973366e38  # halfway to 2**128: from here on float32 is infinite
_CERTAIN = 1 - 1e-15  # a truncated mantissa is this close to the exact one


@helper
def _is_blank(character: int) -> bool:
    return character == _SPACE or (9 <= character <= 13 and character != _NEWLINE)


@helper
def _ends_token(character: int) -> bool:
    return character in (_NEWLINE, _HASH) or _is_blank(character)


@helper
def _skip_blanks(text: Bytes, p: int) -> int:
    while _is_blank(text[p]):
        p += 1
    return p


@kernel
def line_end(text: Bytes, position: int) -> int:
    """Return the position of the first newline at or after `position`; there must be one."""
    while text[position] != _NEWLINE:
        position += 1
    return position


@helper
def _note_slow(slow: Ints, row: Ints, start: int, end: int, at: int) -> None:
    """Leave the token text[start:end] to Python, which stores its value at word `at`."""
    n = row[_SLOW]
    slow[n, 0], slow[n, 1], slow[n, 2] = start, end, at
    row[_SLOW] = n + 1


@helper
def _has_colon(text: Bytes, p: int) -> bool:
    while not _ends_token(text[p]):
        if text[p] == _COLON:
            return True
        p += 1
    return False


@helper
def _parse_label(text: Bytes, p: int, at: int, row: Ints, slow: Ints) -> Any:
    """Return (code, end, value) of the label at `p`, which goes to word `at`."""
    end, value, exact = scan_number(text, p)
    if end < 0 or np.isinf(value) or not (_ends_token(text[end]) or text[end] in (_COMMA, _COLON)):
        return Code.LABEL, p, 0.0
    if not exact or abs(value) >= EXACT:
        if row[_SLOW] == len(slow):
            return Code.SLOW_FULL, p, 0.0
        _note_slow(slow, row, p, end, -at - 1)
    return Code.DONE, end, value + 0.0  # minus zero is zero


@helper
def _parse_labels(text: Bytes, token: int, mode: int, words: UInts, at: int, row: Ints, slow: Ints) -> Any:
    """Write the labels at `token` from word `at` on; return (code, position after them or of the error)."""
    row[_N_LABELS] = 0
    if not mode & Mode.LABELLED:
        return Code.DONE, token
    if not mode & Mode.WEIGHTED and _has_colon(text, token):
        return (Code.DONE if mode & Mode.MULTILABEL else Code.NO_LABEL), token
    p = token
    while at + 2 <= len(words):
        code, p, value = _parse_label(text, p, at, row, slow)
        if code != Code.DONE:
            return code, token
        write_double(words, at, value)
        if is_repeated(words, at, row[_N_LABELS]):
            return Code.REPEATED_LABEL, token
        at += 2
        row[_N_LABELS] += 1
        if text[p] != _COMMA:
            return Code.DONE, p
        if not mode & Mode.MULTILABEL:
            return Code.SEVERAL_LABELS, token
        p += 1
    return Code.FULL, token


@helper
def _parse_weight(text: Bytes, p: int) -> Any:
    """Return (code, position, weight) of what may follow a label at `p`: a colon and its weight, else 1."""
    if text[p] != _COLON:
        return Code.DONE, p, 1.0
    end, weight, _ = scan_number(text, p + 1)
    if end < 0 or not _ends_token(text[end]) or not 0.0 <= weight < _LARGEST_FLOAT32:
        return Code.WEIGHT, p + 1, 1.0
    return Code.DONE, end, weight


@helper
def _skip_qid(text: Bytes, p: int, row: Ints) -> Any:
    """Skip an optional ``qid:NUMBER`` at `p`; return (code, position)."""
    row[_QIDS] = 0
    p = _skip_blanks(text, p)
    if not (text[p] == 113 and text[p + 1] == 105 and text[p + 2] == 100):  # "qid"
        return Code.DONE, p
    end = p + 4
    while 48 <= text[end] <= 57:
        end += 1
    if text[p + 3] != _COLON or end == p + 4 or not _ends_token(text[end]):
        return Code.QID, p
    row[_QIDS] = 1
    return Code.DONE, end


@helper
def _parse_long_value(text: Bytes, start: int, wide: int, at: int, index: int, row: Ints, slow: Ints) -> Any:
    """Return (code, end, value) of the number of `index` at `start` in any notation, to be stored at word `at`."""
    start = _skip_blanks(text, start)  # some writers pad values
    end, value, exact = scan_number(text, start)
    if end < 0 or not _ends_token(text[end]):
        return Code.PAIR, start, 0.0
    size = abs(value)
    if size == np.inf or (not wide and size >= _LARGEST_FLOAT32 * (1.0 if exact else _CERTAIN)):
        return Code.OVERFLOW, start, 0.0
    if size >= EXACT and is_inexact(text, start, end, _POINT, size):
        row[_ROUNDED], row[_ROUNDED_VALUE] = -1 - index, np.int64(double_bits(value))
    if exact or (not wide and np.float32(size) == np.float32(0.0)):
        return Code.DONE, end, value
    # undecided between zero and the smallest double; a zero is not stored, so cannot be corrected
    if size == 0.0:
        return Code.OVERFLOW, start, 0.0
    if row[_SLOW] == len(slow):
        return Code.SLOW_FULL, start, 0.0
    _note_slow(slow, row, start, end, at)
    return Code.DONE, end, value


@helper
def _parse_pairs(  # noqa: C901  (one loop: moving the pair into a function of its own costs a quarter of the speed)
    text: Bytes, p: int, mode: int, words: UInts, floats: Singles, at: int, row: Ints, slow: Ints
) -> Any:
    """Write the pairs from `p` to the end of the line at word `at`; return (code, position, next word).

    Zeros count for the width but are not stored. `floats` is `words` seen as float32.
    """
    wide = mode & Mode.FLOAT64
    first, last = -1, (0 if mode & Mode.ONE_BASED else -1)
    start_word, token, code = at, p, Code.DONE
    while True:
        token = _skip_blanks(text, p)
        if text[token] in (_NEWLINE, _HASH):
            break
        if at + 3 > len(words):
            code = Code.FULL
            break
        value_at, index = parse_index(text, token)
        if value_at < 0:
            code = Code.PAIR
            break
        p, value = parse_short_value(text, value_at)
        if p < 0:
            code, p, value = _parse_long_value(text, value_at, wide, at + 1, index, row, slow)
        elif not _ends_token(text[p]):
            code = Code.PAIR
        if index <= last:
            code = Code.ORDER
        elif index > MAX_INDEX:
            code = Code.LARGE_INDEX
        if code != Code.DONE:
            break
        if first < 0:
            first = index
        last = index
        if not wide and abs(value) > KEPT and is_merged(value) and row[_ROUNDED] >= 0:
            row[_ROUNDED], row[_ROUNDED_VALUE] = index, np.int64(double_bits(value))
        at = store_pair(words, floats, at, index, value, wide)
    row[_NNZ] = (at - start_word) // (3 if wide else 2)
    row[_FIRST], row[_LAST] = first, last
    return code, token, at


@helper
def note_indices(state: Ints, first: int, last: int) -> None:
    """Update the extreme indices by those of the row at state[LINE], first <= last; -1: it has none."""
    if first < 0:
        return
    if state[State.MIN_INDEX] < 0 or first < state[State.MIN_INDEX]:
        state[State.MIN_INDEX], state[State.MIN_LINE] = first, state[State.LINE]
    if last > state[State.MAX_INDEX]:
        state[State.MAX_INDEX], state[State.MAX_LINE] = last, state[State.LINE]


@helper
def _finish_row(state: Ints, row: Ints) -> None:
    state[State.NNZ] += row[_NNZ]
    state[State.ROWS] += 1
    state[State.SLOW] = row[_SLOW]
    state[State.QIDS] += row[_QIDS]
    state[State.ROUNDED], state[State.ROUNDED_VALUE] = row[_ROUNDED], row[_ROUNDED_VALUE]
    note_indices(state, row[_FIRST], row[_LAST])


@kernel
def parse_lines(text: Bytes, stop: int, mode: int, n_extra: int, records: Records, slow: Ints, state: Ints) -> int:
    """Parse text[state[POSITION]:stop] into records; return a Code.

    Parameters
    ----------
    text : shape (at least stop + PADDING,), newlines from `stop` on
    slow : shape (any, 3): start and end in the text and target word of tokens left to Python; a negative target
        t is the label at word -t - 1
    state : shape (State.SIZE,); on an error POSITION is the offending token and nothing of its line is kept
    """
    p, words, floats = state[State.POSITION], records.words, records.floats
    row = np.zeros(8, dtype=np.int64)
    row[_ROUNDED], row[_ROUNDED_VALUE] = state[State.ROUNDED], state[State.ROUNDED_VALUE]
    while p < stop:
        line_start = p
        p = _skip_blanks(text, p)
        if text[p] != _NEWLINE and text[p] != _HASH:
            row[_SLOW] = state[State.SLOW]
            at = state[State.WORDS]
            labels_at = at + 2 + n_extra
            if labels_at > len(words):
                state[State.POSITION] = line_start
                return Code.FULL
            code, p = _parse_labels(text, p, mode, words, labels_at, row, slow)
            weight = 1.0
            if code == Code.DONE and mode & Mode.WEIGHTED:
                code, p, weight = _parse_weight(text, p)
            if code == Code.DONE:
                code, p = _skip_qid(text, p, row)
            if code == Code.DONE:
                pairs_at = labels_at + 2 * row[_N_LABELS]
                code, p, end = _parse_pairs(text, p, mode, words, floats, pairs_at, row, slow)
            if code != Code.DONE:
                # nothing of the row was counted: it is parsed again, or its offending token is reported
                state[State.POSITION] = line_start if code == Code.SLOW_FULL or code == Code.FULL else p
                state[State.LAST_INDEX] = row[_LAST]
                return code
            words[at], words[at + 1] = row[_NNZ], row[_N_LABELS]
            n_rows = state[State.ROWS]
            records.row_at[n_rows], records.row_line[n_rows] = at, state[State.LINE]
            records.row_weight[n_rows] = weight
            state[State.WORDS] = end
            _finish_row(state, row)
        p = line_end(text, p) + 1
        state[State.LINE] += 1
    state[State.POSITION] = p
    return Code.DONE
