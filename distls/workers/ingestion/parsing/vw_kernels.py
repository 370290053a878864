"""Parse Vowpal Wabbit text into row records (see `record_kernels`).

The grammar is Vowpal Wabbit's, but what it reads with a warning is refused: a kernel stops at the first offending
token and `workers/ingestion/formats/vw.py` explains it. Text is followed by `PADDING` newlines.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from typing import Any

import numpy as np

from distls.workers.compilation.jit import helper, kernel
from distls.workers.ingestion.parsing import vw_token_kernels as tokens
from distls.workers.ingestion.parsing.array_types import Bytes, Ints, ULongs
from distls.workers.ingestion.parsing.number_kernels import MAX_INDEX, parse_index, parse_short_value
from distls.workers.ingestion.parsing.record_kernels import Records, store_pair
from distls.workers.ingestion.parsing.rounding_kernels import KEPT
from distls.workers.ingestion.parsing.svmlight_kernels import Mode, State, line_end, note_indices
from distls.workers.ingestion.parsing.vw_token_kernels import Code, Line, Rules, VwState


@helper
def _parse_features(  # noqa: C901  (one loop, as in the svmlight parser: calls in it cost a quarter of the speed)
    text: Bytes, p: int, rules: Rules, room: int, line: Line
) -> Any:
    """List the features of the line from `p` on; return (code, position, features, whether indices increase)."""
    wide, mask, plain = rules.mode & Mode.FLOAT64, rules.mask, rules.mask < 0
    code, n, last, in_order = Code.DONE, 0, -1, True
    seed, scale, n_nameless = 0, 1.0, 0
    token = p
    while True:
        token = p = tokens.skip_blanks(text, p)
        if text[p] == tokens.BAR:
            code, p, seed, scale = tokens.parse_namespace(text, p, rules.namespace, line)
            n_nameless = 0
            if code != Code.DONE:
                break
            continue
        if tokens.at_line_end(text, p):
            break
        if text[p] == tokens.RETURN or n == room:
            code = Code.RETURN if text[p] == tokens.RETURN else Code.FULL
            break
        value_at, index = parse_index(text, p)
        if value_at < 0 or index > MAX_INDEX:
            n_nameless += text[p] == tokens.COLON
            code, p, index = tokens.parse_name(text, p, plain, seed, n_nameless - 1)
            value_at = p + 1 if text[p] == tokens.COLON else -1
        elif not plain:
            index += seed
        value = 1.0
        if value_at >= 0 and code == Code.DONE:
            p, value = parse_short_value(text, value_at)
            if p < 0:
                code, p, value = tokens.parse_long_value(text, value_at, line)
            elif not tokens.ends_token(text[p]):
                code = Code.VALUE
            if abs(value) > KEPT and code == Code.DONE:
                tokens.note_rounded(text, value_at, p, value, wide, index if plain else index & mask, line.row)
        value *= scale
        if code == Code.DONE and tokens.overflows(value, wide):
            code = Code.OVERFLOW
        if code != Code.DONE:
            break
        if not plain:
            index &= mask
        in_order = in_order and index > last
        last = index
        # sorting by (index, position in the row) keeps equal indices in source order
        line.keys[n] = np.uint64(index) << np.uint64(32) | np.uint64(n)
        line.values[n] = value
        n += 1
    return code, token, n, in_order


@kernel  # numba's sorting needs reference counts
def _sort(keys: ULongs) -> None:
    keys.sort()


@helper
def _index_of(key: np.uint64) -> int:
    return np.int64(key >> np.uint64(32))


@helper
def _store_features(records: Records, at: int, n: int, wide: int, line: Line) -> Any:
    """Write sorted features at word `at`, equal indices summed in source order; return (code, next word)."""
    k, keys, values, row = 0, line.keys, line.values, line.row
    while k < n:
        index = _index_of(keys[k])
        value = values[np.int64(keys[k] & tokens.LOW)]
        k += 1
        while k < n and _index_of(keys[k]) == index:
            value += values[np.int64(keys[k] & tokens.LOW)]
            k += 1
        if tokens.overflows(value, wide):
            row[tokens.ROW_LAST] = index
            return Code.SUM, at
        at = store_pair(records.words, records.floats, at, index, value, wide)
    row[tokens.ROW_FIRST] = _index_of(keys[0]) if n else -1
    row[tokens.ROW_LAST] = _index_of(keys[n - 1]) if n else -1
    return Code.DONE, at


@helper
def _finish_row(state: Ints, row: Ints) -> None:
    state[State.NNZ] += row[tokens.ROW_NNZ]
    state[State.ROWS] += 1
    state[VwState.TAGS] += row[tokens.ROW_TAG]
    state[VwState.BASES] += row[tokens.ROW_BASE]
    if row[tokens.ROW_ROUNDED_VALUE]:
        state[State.ROUNDED], state[State.ROUNDED_VALUE] = (row[tokens.ROW_ROUNDED], row[tokens.ROW_ROUNDED_VALUE])
    note_indices(state, row[tokens.ROW_FIRST], row[tokens.ROW_LAST])


@helper
def _parse_line(text: Bytes, p: int, rules: Rules, labels_at: int, records: Records, line: Line) -> Any:
    """Write labels and features from word `labels_at` on; return (code, position, next word, importance)."""
    words, mode, row = records.words, rules.mode, line.row
    if labels_at > len(words):
        return Code.FULL, p, 0, 1.0
    stride = 3 if mode & Mode.FLOAT64 else 2
    code, p, weight = tokens.parse_head(text, p, mode, words, labels_at, line)
    at = labels_at + 2 * row[tokens.ROW_LABELS]
    if code == Code.DONE:
        room = max(len(words) - at, 0) // stride
        code, p, n, in_order = _parse_features(text, p, rules, room, line)
        if code == Code.DONE:
            if not in_order:
                _sort(line.keys[:n])
            start = at
            code, at = _store_features(records, at, n, mode & Mode.FLOAT64, line)
            row[tokens.ROW_NNZ] = (at - start) // stride
    # any other error may come from a number that Python has yet to convert
    if code != Code.FULL and row[tokens.ROW_UNSURE] > row[tokens.ROW_KNOWN]:
        code = Code.SLOW_FULL
    return code, p, at, weight


@kernel
def parse_vw_lines(text: Bytes, stop: int, rules: Rules, records: Records, line: Line, state: Ints) -> int:
    """Parse text[state[POSITION]:stop] into records; return a Code.

    Parameters
    ----------
    text : shape (at least stop + PADDING,), newlines from `stop` on
    state : shape (VW_STATE_SIZE,); on an error POSITION is the offending token and nothing of its line is kept
    """
    p, words, row = state[State.POSITION], records.words, line.row
    while p < stop:
        line_start = p
        p = tokens.skip_blanks(text, tokens.skip_mark(text, p))
        if not tokens.at_line_end(text, p):
            row[:] = 0
            row[tokens.ROW_KNOWN] = state[VwState.KNOWN]
            at, n_rows = state[State.WORDS], state[State.ROWS]
            labels_at = at + 2 + rules.n_extra
            code, p, end, weight = _parse_line(text, p, rules, labels_at, records, line)
            if code != Code.DONE:
                again = code == Code.SLOW_FULL or code == Code.FULL or code == Code.SUM
                state[State.POSITION] = line_start if again else p
                state[State.LAST_INDEX], state[State.SLOW] = row[tokens.ROW_LAST], row[tokens.ROW_UNSURE]
                return code
            words[at], words[at + 1] = row[tokens.ROW_NNZ], row[tokens.ROW_LABELS]
            records.row_at[n_rows], records.row_line[n_rows] = at, state[State.LINE]
            records.row_weight[n_rows] = weight
            state[State.WORDS] = end
            state[VwState.KNOWN] = 0
            _finish_row(state, row)
        p = line_end(text, p) + 1
        state[State.LINE] += 1
    state[State.POSITION] = p
    return Code.DONE
