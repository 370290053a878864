"""Parse Vowpal Wabbit text into row records (see kernels/records.py).

The grammar is Vowpal Wabbit's with everything refused that it would read with a warning: a kernel stops at the first
offending token and `workers/ingestion/formats/vw.py` explains it. Text is followed by `PADDING` newlines.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import helper, inlined, kernel
from distls.workers.ingestion.parsing import svmlight_kernels as svmlight
from distls.workers.ingestion.parsing.decimal_kernels import write_double
from distls.workers.ingestion.parsing.murmurhash import murmur3_32
from distls.workers.ingestion.parsing.number_kernels import (
    MAX_INDEX,
    parse_index,
    parse_short_value,
    scan_number,
)
from distls.workers.ingestion.parsing.record_kernels import is_repeated, store_pair
from distls.workers.ingestion.parsing.svmlight_kernels import Mode, State, line_end, note_indices

__all__ = ["VW_STATE_SIZE", "Code", "VwState", "hash_name", "parse_vw_lines"]


class Code(IntEnum):
    """Why the parser returned; DONE, SLOW_FULL and FULL are those of the svmlight parser."""

    DONE = int(svmlight.Code.DONE)
    # the line has numbers that Python must convert: do, and call again
    SLOW_FULL = int(svmlight.Code.SLOW_FULL)
    FULL = int(svmlight.Code.FULL)
    NO_BAR = 32
    TAB = 33
    HEAD = 34
    LABEL = 35
    SEVERAL_LABELS = 36
    REPEATED_LABEL = 37
    NO_LABEL = 38
    UNWANTED_LABEL = 39
    WEIGHT = 40
    BASE = 41
    NAMESPACE = 42
    OTHER_NAMESPACE = 43
    SCALE = 44
    NAME = 45
    LARGE_INDEX = 46
    VALUE = 47
    OVERFLOW = 48
    SUM = 49
    RETURN = 50


class VwState(IntEnum):
    """Entries of the parser's state after those of the svmlight parser."""

    TAGS = int(State.SIZE)  # rows with a tag
    BASES = int(State.SIZE) + 1  # rows with a base that is not 0
    KNOWN = int(State.SIZE) + 2  # converted numbers of the next line


VW_STATE_SIZE = int(State.SIZE) + 3

# What is known of a row besides its words: entries of a small int64 scratch array.
_NNZ, _FIRST, _LAST, _UNSURE, _KNOWN, _N_LABELS, _TAG, _BASE = range(8)

_TAB, _NEWLINE, _RETURN, _SPACE, _QUOTE, _COMMA, _COLON, _BAR = 9, 10, 13, 32, 39, 44, 58, 124
_LARGEST_FLOAT32 = 3.4028235677973366e38  # halfway to 2**128: from here on float32 is infinite
_LOW = np.uint64(0xFFFFFFFF)


@inlined
def _ends_token(character: int) -> bool:
    return character in (_SPACE, _NEWLINE, _BAR, _TAB, _RETURN)


@inlined
def _token_end(text: NDArray[np.uint8], p: int) -> int:
    while not _ends_token(text[p]):
        p += 1
    return p


@inlined
def _name_end(text: NDArray[np.uint8], p: int) -> int:
    while text[p] != _COLON and not _ends_token(text[p]):
        p += 1
    return p


@inlined
def _skip_blanks(text: NDArray[np.uint8], p: int) -> int:
    while text[p] in (_SPACE, _TAB):
        p += 1
    return p


@inlined
def _skip_mark(text: NDArray[np.uint8], p: int) -> int:
    """Pass over the byte order mark of UTF-8."""
    marked = text[p] == 0xEF and text[p + 1] == 0xBB and text[p + 2] == 0xBF
    return p + 3 if marked else p


@inlined
def _at_line_end(text: NDArray[np.uint8], p: int) -> bool:
    return text[p] == _NEWLINE or (text[p] == _RETURN and text[p + 1] == _NEWLINE)


# Arithmetic on parsed values stays out of the kernels' own `fastmath`.
@inlined
def _product(a: float, b: float) -> float:
    return a * b


@inlined
def _total(a: float, b: float) -> float:
    return a + b


# -- names -----------------------------------------------------------------------------------------------


@kernel
def hash_name(text: NDArray[np.uint8], start: int, end: int, seed: int) -> int:
    """Return Vowpal Wabbit's hash of a name, modulo 2**32: digits are a number added to `seed`, all else is hashed."""
    while start < end and text[start] <= _SPACE:
        start += 1
    while start < end and text[end - 1] <= _SPACE:
        end -= 1
    number = np.uint64(0)
    for p in range(start, end):
        digit = np.int64(text[p]) - 48
        if digit < 0 or digit > 9:
            return murmur3_32(text, start, end, seed)
        number = number * np.uint64(10) + np.uint64(digit)
    return np.int64((number + np.uint64(seed)) & _LOW)


@inlined
def _plain_index(text: NDArray[np.uint8], start: int, end: int) -> int:
    """Return the number that a name is; -1 when it is none, MAX_INDEX + 1 when it is too large."""
    index = 0
    for p in range(start, end):
        digit = np.int64(text[p]) - 48
        if digit < 0 or digit > 9:
            return -1
        index = min(index * 10 + digit, MAX_INDEX + 1)
    return index


# -- numbers ---------------------------------------------------------------------------------------------


@kernel
def _number(
    text: NDArray[np.uint8],
    start: int,
    row: NDArray[np.int64],
    slow: NDArray[np.int64],
    known: NDArray[np.float64],
) -> Any:
    """Return (end, value) of the number at `start`; the end is -1 when there is none.

    What the kernel cannot decide is listed for Python, which calls again with the values known.
    """
    end, value, exact = scan_number(text, start)
    if end < 0 or exact:
        return end, value
    n = row[_UNSURE]
    row[_UNSURE] = n + 1
    if n < row[_KNOWN]:
        value = known[n]
    elif n < len(slow):
        slow[n, 0], slow[n, 1] = start, end
    return end, value


@inlined
def _overflows(value: float, wide: int) -> bool:
    return not abs(value) < (np.inf if wide else _LARGEST_FLOAT32)


# -- before the first bar --------------------------------------------------------------------------------


@helper
def _parse_labels(
    text: NDArray[np.uint8],
    p: int,
    end: int,
    mode: int,
    words: NDArray[np.uint32],
    at: int,
    row: NDArray[np.int64],
    slow: NDArray[np.int64],
    known: NDArray[np.float64],
) -> int:
    """Write the labels text[p:end] from word `at` on."""
    if not mode & Mode.LABELLED:
        return Code.UNWANTED_LABEL
    while at + 2 <= len(words):
        p, value = _number(text, p, row, slow, known)
        if p < 0 or np.isinf(value) or not (p == end or text[p] == _COMMA):
            return Code.LABEL
        write_double(words, at, _total(value, 0.0))  # minus zero is zero
        if is_repeated(words, at, row[_N_LABELS]):
            return Code.REPEATED_LABEL
        at += 2
        row[_N_LABELS] += 1
        if p == end:
            return Code.DONE
        if not mode & Mode.MULTILABEL:
            return Code.SEVERAL_LABELS
        p += 1
    return Code.FULL


@helper
def _parse_word(
    text: NDArray[np.uint8],
    p: int,
    end: int,
    n_words: int,
    mode: int,
    words: NDArray[np.uint32],
    at: int,
    row: NDArray[np.int64],
    slow: NDArray[np.int64],
    known: NDArray[np.float64],
) -> Any:
    """Read text[p:end], before which `n_words` stand: labels, importance or base; return (code, value)."""
    if n_words == 0:
        return _parse_labels(text, p, end, mode, words, at, row, slow, known), 1.0
    if n_words > 2:
        return Code.HEAD, 1.0
    stop, value = _number(text, p, row, slow, known)
    if n_words == 1:
        wrong = stop != end or value < 0.0 or _overflows(value, 0)
        return (Code.WEIGHT if wrong else Code.DONE), value
    row[_BASE] = value != 0.0
    return (Code.BASE if stop != end or np.isinf(value) else Code.DONE), value


@inlined
def _has_bar(text: NDArray[np.uint8], p: int) -> bool:
    while text[p] != _NEWLINE:
        if text[p] == _BAR:
            return True
        p += 1
    return False


@helper
def _parse_head(
    text: NDArray[np.uint8],
    p: int,
    mode: int,
    words: NDArray[np.uint32],
    at: int,
    row: NDArray[np.int64],
    slow: NDArray[np.int64],
    known: NDArray[np.float64],
) -> Any:
    """Read ``[label] [importance] [base] [tag]``; return (code, position of the bar or the offender, importance)."""
    start, n_words, weight = p, 0, 1.0
    if not _has_bar(text, p):
        return Code.NO_BAR, p, weight
    while text[p] != _BAR:
        end = _token_end(text, p)
        after = end
        while text[after] == _SPACE:
            after += 1
        if text[after] == _TAB or text[after] == _RETURN:
            return (Code.TAB if text[after] == _TAB else Code.RETURN), p, weight
        if text[after] == _BAR and (after == end or text[p] == _QUOTE):
            row[_TAG] = 1
        else:
            code, value = _parse_word(text, p, end, n_words, mode, words, at, row, slow, known)
            if code != Code.DONE:
                return code, p, weight
            weight = value if n_words == 1 else weight
        n_words += 1
        p = after
    unlabelled = not row[_N_LABELS] and mode & Mode.LABELLED and not mode & Mode.MULTILABEL
    return (Code.NO_LABEL if unlabelled else Code.DONE), (start if unlabelled else p), weight


# -- features --------------------------------------------------------------------------------------------


@helper
def _parse_namespace(
    text: NDArray[np.uint8],
    p: int,
    namespace: int,
    row: NDArray[np.int64],
    slow: NDArray[np.int64],
    known: NDArray[np.float64],
) -> Any:
    """Return (code, end, hash, scale) of the namespace after the bar at `p`; it must be `namespace`, unless -1."""
    end = _name_end(text, p + 1)
    seed, scale = 0, 1.0
    if end > p + 1:
        seed = hash_name(text, p + 1, end, 0)
    elif text[end] == _COLON:
        return Code.NAMESPACE, p, seed, scale
    if namespace >= 0 and seed != namespace:
        return Code.OTHER_NAMESPACE, p, seed, scale
    if text[end] == _COLON:
        end, scale = _number(text, end + 1, row, slow, known)
        if end < 0 or np.isinf(scale) or not _ends_token(text[end]):
            return Code.SCALE, p, seed, scale
    return Code.DONE, end, seed, scale


@helper
def _parse_name(text: NDArray[np.uint8], p: int, plain: bool, seed: int, n_nameless: int) -> Any:
    """Return (code, end, index before the mask) of the name at `p`, which may be empty."""
    end = _name_end(text, p)
    if end == p:
        return Code.DONE, end, (n_nameless if plain else seed + n_nameless)
    if not plain:
        return Code.DONE, end, hash_name(text, p, end, seed)
    index = _plain_index(text, p, end)
    code = Code.NAME if index < 0 else Code.LARGE_INDEX if index > MAX_INDEX else Code.DONE
    return code, end, index


@helper
def _parse_long_value(
    text: NDArray[np.uint8],
    start: int,
    row: NDArray[np.int64],
    slow: NDArray[np.int64],
    known: NDArray[np.float64],
) -> Any:
    """Return (code, end, value) of the number at `start` in any notation."""
    end, value = _number(text, start, row, slow, known)
    if end < 0 or not _ends_token(text[end]):
        return Code.VALUE, start, 0.0
    return Code.DONE, end, value


@inlined
def _parse_features(  # noqa: C901  (one loop, as in the svmlight parser: calls in it cost a quarter of the speed)
    text: NDArray[np.uint8],
    p: int,
    mode: int,
    mask: int,
    namespace: int,
    room: int,
    keys: NDArray[np.uint64],
    values: NDArray[np.float64],
    row: NDArray[np.int64],
    slow: NDArray[np.int64],
    known: NDArray[np.float64],
) -> Any:
    """List the features from `p` to the end of the line; return (code, position, features, whether indices increase).

    A key is index * 2**32 + place in the row.
    """
    wide, plain = mode & Mode.FLOAT64, mask < 0
    code, n, last, in_order = Code.DONE, 0, -1, True
    seed, scale, n_nameless = 0, 1.0, 0
    token = p
    while True:
        token = p = _skip_blanks(text, p)
        if text[p] == _BAR:
            code, p, seed, scale = _parse_namespace(text, p, namespace, row, slow, known)
            n_nameless = 0
            if code != Code.DONE:
                break
            continue
        if _at_line_end(text, p):
            break
        if text[p] == _RETURN or n == room:
            code = Code.RETURN if text[p] == _RETURN else Code.FULL
            break
        value_at, index = parse_index(text, p)
        if value_at < 0 or index > MAX_INDEX:
            n_nameless += text[p] == _COLON
            code, p, index = _parse_name(text, p, plain, seed, n_nameless - 1)
            value_at = p + 1 if text[p] == _COLON else -1
        elif not plain:
            index += seed
        value = 1.0
        if value_at >= 0 and code == Code.DONE:
            p, value = parse_short_value(text, value_at)
            if p < 0:
                code, p, value = _parse_long_value(text, value_at, row, slow, known)
            elif not _ends_token(text[p]):
                code = Code.VALUE
        value = _product(value, scale)
        if code == Code.DONE and _overflows(value, wide):
            code = Code.OVERFLOW
        if code != Code.DONE:
            break
        if not plain:
            index &= mask
        in_order = in_order and index > last
        last = index
        keys[n] = np.uint64(index) << np.uint64(32) | np.uint64(n)
        values[n] = value
        n += 1
    return code, token, n, in_order


@helper
def _sort(keys: NDArray[np.uint64]) -> None:
    keys.sort()


@inlined
def _index_of(key: np.uint64) -> int:
    return np.int64(key >> np.uint64(32))


@inlined
def _store_features(
    words: NDArray[np.uint32],
    floats: NDArray[np.float32],
    at: int,
    keys: NDArray[np.uint64],
    values: NDArray[np.float64],
    n: int,
    wide: int,
    row: NDArray[np.int64],
) -> Any:
    """Write sorted features at word `at`, those of one index summed in source order; return (code, next word)."""
    k = 0
    while k < n:
        index = _index_of(keys[k])
        value = values[np.int64(keys[k] & _LOW)]
        k += 1
        while k < n and _index_of(keys[k]) == index:
            value = _total(value, values[np.int64(keys[k] & _LOW)])
            k += 1
        if _overflows(value, wide):
            row[_LAST] = index
            return Code.SUM, at
        at = store_pair(words, floats, at, index, value, wide)
    row[_FIRST] = _index_of(keys[0]) if n else -1
    row[_LAST] = _index_of(keys[n - 1]) if n else -1
    return Code.DONE, at


# -- lines -----------------------------------------------------------------------------------------------


@inlined
def _finish_row(state: NDArray[np.int64], row: NDArray[np.int64]) -> None:
    """Add a whole row to the totals."""
    state[State.NNZ] += row[_NNZ]
    state[State.ROWS] += 1
    state[VwState.TAGS] += row[_TAG]
    state[VwState.BASES] += row[_BASE]
    note_indices(state, row[_FIRST], row[_LAST])


@inlined
def _parse_line(
    text: NDArray[np.uint8],
    p: int,
    mode: int,
    mask: int,
    namespace: int,
    labels_at: int,
    words: NDArray[np.uint32],
    floats: NDArray[np.float32],
    keys: NDArray[np.uint64],
    values: NDArray[np.float64],
    row: NDArray[np.int64],
    slow: NDArray[np.int64],
    known: NDArray[np.float64],
) -> Any:
    """Write labels and features from word `labels_at` on; return (code, position, next word, importance)."""
    if labels_at > len(words):
        return Code.FULL, p, 0, 1.0
    stride = 3 if mode & Mode.FLOAT64 else 2
    code, p, weight = _parse_head(text, p, mode, words, labels_at, row, slow, known)
    at = labels_at + 2 * row[_N_LABELS]
    if code == Code.DONE:
        room = max(len(words) - at, 0) // stride
        code, p, n, in_order = _parse_features(
            text, p, mode, mask, namespace, room, keys, values, row, slow, known
        )
        if code == Code.DONE:
            if not in_order:
                _sort(keys[:n])
            start = at
            code, at = _store_features(words, floats, at, keys, values, n, mode & Mode.FLOAT64, row)
            row[_NNZ] = (at - start) // stride
    if code != Code.FULL and row[_UNSURE] > row[_KNOWN]:
        code = Code.SLOW_FULL
    return code, p, at, weight


@kernel
def parse_vw_lines(
    text: NDArray[np.uint8],
    stop: int,
    mode: int,
    mask: int,
    namespace: int,
    n_extra: int,
    words: NDArray[np.uint32],
    floats: NDArray[np.float32],
    row_at: NDArray[np.int64],
    row_line: NDArray[np.int32],
    row_weight: NDArray[np.float32],
    keys: NDArray[np.uint64],
    values: NDArray[np.float64],
    slow: NDArray[np.int64],
    known: NDArray[np.float64],
    state: NDArray[np.int64],
) -> int:
    """Parse text[state[POSITION]:stop] into records; return a Code.

    Parameters
    ----------
    text : shape (at least stop + PADDING,), newlines from `stop` on
    mode : bits of svmlight's Mode
    mask : 2**bits - 1 to hash names; -1 to take them as numbers
    namespace : hash of the only namespace there may be; -1 for any
    n_extra, words, floats, row_at, row_line : as for the svmlight parser
    row_weight : as long as row_line; importances
    keys, values : of one row's features; as many as words could hold
    slow : shape (any, 2), start and end in the text of the numbers of a line that Python must convert; state[SLOW]
        tells how many there are
    known : shape (len(slow),), the values of the first state[KNOWN] of them when the line is parsed again
    state : shape (VW_STATE_SIZE,); on an error POSITION is the offending token and nothing of its line is kept
    """
    p = state[State.POSITION]
    row = np.zeros(8, dtype=np.int64)
    while p < stop:
        line_start = p
        p = _skip_blanks(text, _skip_mark(text, p))
        if not _at_line_end(text, p):
            row[:] = 0
            row[_KNOWN] = state[VwState.KNOWN]
            at, n_rows = state[State.WORDS], state[State.ROWS]
            code, p, end, weight = _parse_line(
                text,
                p,
                mode,
                mask,
                namespace,
                at + 2 + n_extra,
                words,
                floats,
                keys,
                values,
                row,
                slow,
                known,
            )
            if code != Code.DONE:
                again = code == Code.SLOW_FULL or code == Code.FULL or code == Code.SUM
                state[State.POSITION] = line_start if again else p
                state[State.LAST_INDEX], state[State.SLOW] = row[_LAST], row[_UNSURE]
                return code
            words[at], words[at + 1] = row[_NNZ], row[_N_LABELS]
            row_at[n_rows], row_line[n_rows], row_weight[n_rows] = at, state[State.LINE], weight
            state[State.WORDS] = end
            state[VwState.KNOWN] = 0
            _finish_row(state, row)
        p = line_end(text, p) + 1
        state[State.LINE] += 1
    state[State.POSITION] = p
    return Code.DONE
