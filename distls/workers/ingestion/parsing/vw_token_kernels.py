"""Tokens of Vowpal Wabbit text, for `vw_kernels`: labels, importance and tag, namespaces, names and values."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from distls.workers.compilation.jit import helper, kernel
from distls.workers.ingestion.parsing import svmlight_kernels as svmlight
from distls.workers.ingestion.parsing.array_types import Bytes, Doubles, Ints, UInts, ULongs
from distls.workers.ingestion.parsing.decimal_kernels import double_bits, load_word, write_double
from distls.workers.ingestion.parsing.number_kernels import MAX_INDEX, scan_number
from distls.workers.ingestion.parsing.record_kernels import is_repeated
from distls.workers.ingestion.parsing.rounding_kernels import EXACT, is_inexact, is_merged
from distls.workers.ingestion.parsing.svmlight_kernels import Mode, State


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

# Entries of the scratch array of a row.
ROW_NNZ, ROW_FIRST, ROW_LAST, ROW_UNSURE, ROW_KNOWN, ROW_LABELS, ROW_TAG, ROW_BASE = range(8)
ROW_ROUNDED, ROW_ROUNDED_VALUE, ROW_SIZE = range(8, 11)


class Rules(NamedTuple):
    """Options that apply to all lines."""

    mode: int  # bits of Mode
    mask: int  # of hashes; negative: names are column numbers
    namespace: int  # hash of the only one that is allowed; -1: any
    n_extra: int  # words to reserve in each record


class Line(NamedTuple):
    """Scratch of a line."""

    row: Ints  # shape (ROW_SIZE,)
    keys: ULongs  # its features: index and place, shape (any,)
    values: Doubles
    # start and end in the text of the state[SLOW] numbers that Python must convert, shape (any, 2), and the values of
    # the first state[KNOWN] of them when the line is parsed again
    slow: Ints
    known: Doubles


_TAB, _NEWLINE, RETURN, _SPACE, _QUOTE, _COMMA, _POINT, COLON, BAR = 9, 10, 13, 32, 39, 44, 46, 58, 124
LOW = np.uint64(0xFFFFFFFF)
_LARGEST_FLOAT32 = 3.4028235677973366e38  # halfway to 2**128: from here on float32 is infinite


@helper
def ends_token(character: int) -> bool:
    """Return whether a token ends before this character."""
    return character in (_SPACE, _NEWLINE, BAR, _TAB, RETURN)


@helper
def _token_end(text: Bytes, p: int) -> int:
    while not ends_token(text[p]):
        p += 1
    return p


@helper
def _name_end(text: Bytes, p: int) -> int:
    while text[p] != COLON and not ends_token(text[p]):
        p += 1
    return p


@helper
def skip_blanks(text: Bytes, p: int) -> int:
    """Return where the blanks from `p` on end."""
    while text[p] in (_SPACE, _TAB):
        p += 1
    return p


@helper
def skip_mark(text: Bytes, p: int) -> int:
    """Skip the byte order mark of UTF-8."""
    marked = text[p] == 0xEF and text[p + 1] == 0xBB and text[p + 2] == 0xBF
    return p + 3 if marked else p


@helper
def at_line_end(text: Bytes, p: int) -> bool:
    """Return whether the line ends at `p`."""
    return text[p] == _NEWLINE or (text[p] == RETURN and text[p + 1] == _NEWLINE)


@kernel
def hash_name(text: Bytes, start: int, end: int, seed: int) -> int:
    """Return Vowpal Wabbit's hash of a name, modulo 2**32."""
    while start < end and text[start] <= _SPACE:
        start += 1
    while start < end and text[end - 1] <= _SPACE:
        end -= 1
    number = np.uint64(0)
    # as with --hash strings: a name of digits is a number added to the seed, any other is hashed
    for p in range(start, end):
        digit = np.int64(text[p]) - 48
        if digit < 0 or digit > 9:
            return murmur3_32(text, start, end, seed)
        number = number * np.uint64(10) + np.uint64(digit)
    return np.int64((number + np.uint64(seed)) & LOW)


@helper
def _plain_index(text: Bytes, start: int, end: int) -> int:
    """Return the column number in text[start:end]; -1 if it is none, MAX_INDEX + 1 if it is too large."""
    index = 0
    for p in range(start, end):
        digit = np.int64(text[p]) - 48
        if digit < 0 or digit > 9:
            return -1
        index = min(index * 10 + digit, MAX_INDEX + 1)
    return index


@kernel
def _number(text: Bytes, start: int, line: Line) -> Any:
    """Return (end, value) of the number at `start`; the end is -1 if there is none."""
    end, value, exact = scan_number(text, start)
    if end < 0 or exact:
        return end, value
    # undecided: Python converts the listed tokens and parses the line again with their values
    n = line.row[ROW_UNSURE]
    line.row[ROW_UNSURE] = n + 1
    if n < line.row[ROW_KNOWN]:
        value = line.known[n]
    elif n < len(line.slow):
        line.slow[n, 0], line.slow[n, 1] = start, end
    return end, value


@helper
def overflows(value: float, wide: int) -> bool:
    """Return whether a value is NaN or too large for its type."""
    return not abs(value) < (np.inf if wide else _LARGEST_FLOAT32)


@helper
def note_rounded(text: Bytes, start: int, end: int, value: float, wide: int, index: int, row: Ints) -> None:
    """Note the large number in text[start:end] if it is not kept."""
    inexact = abs(value) >= EXACT and is_inexact(text, start, end, _POINT, value)
    if inexact or (not wide and is_merged(value)):
        row[ROW_ROUNDED] = -1 - index if inexact else index
        row[ROW_ROUNDED_VALUE] = np.int64(double_bits(value))


# -- before the first bar --------------------------------------------------------------------------------


@helper
def _parse_labels(text: Bytes, p: int, end: int, mode: int, words: UInts, at: int, line: Line) -> int:
    """Write the labels text[p:end] from word `at` on."""
    if not mode & Mode.LABELLED:
        return Code.UNWANTED_LABEL
    while at + 2 <= len(words):
        p, value = _number(text, p, line)
        if p < 0 or np.isinf(value) or not (p == end or text[p] == _COMMA):
            return Code.LABEL
        write_double(words, at, value + 0.0)  # minus zero is zero
        if is_repeated(words, at, line.row[ROW_LABELS]):
            return Code.REPEATED_LABEL
        at += 2
        line.row[ROW_LABELS] += 1
        if p == end:
            return Code.DONE
        if not mode & Mode.MULTILABEL:
            return Code.SEVERAL_LABELS
        p += 1
    return Code.FULL


@helper
def _parse_word(text: Bytes, p: int, end: int, n_words: int, mode: int, words: UInts, at: int, line: Line) -> Any:
    """Read word number `n_words`, text[p:end]: labels, importance or base; return (code, value)."""
    if n_words == 0:
        return _parse_labels(text, p, end, mode, words, at, line), 1.0
    if n_words > 2:
        return Code.HEAD, 1.0
    stop, value = _number(text, p, line)
    if n_words == 1:
        wrong = stop != end or value < 0.0 or overflows(value, 0)
        return (Code.WEIGHT if wrong else Code.DONE), value
    line.row[ROW_BASE] = value != 0.0
    return (Code.BASE if stop != end or np.isinf(value) else Code.DONE), value


@helper
def _has_bar(text: Bytes, p: int) -> bool:
    while text[p] != _NEWLINE:
        if text[p] == BAR:
            return True
        p += 1
    return False


@helper
def parse_head(text: Bytes, p: int, mode: int, words: UInts, at: int, line: Line) -> Any:
    """Read ``[label] [importance] [base] [tag]``; return (code, position of the bar or the error, importance)."""
    start, n_words, weight = p, 0, 1.0
    if not _has_bar(text, p):
        return Code.NO_BAR, p, weight
    while text[p] != BAR:
        end = _token_end(text, p)
        after = end
        while text[after] == _SPACE:
            after += 1
        if text[after] == _TAB or text[after] == RETURN:
            return (Code.TAB if text[after] == _TAB else Code.RETURN), p, weight
        # a tag touches the bar, or begins with a quote
        if text[after] == BAR and (after == end or text[p] == _QUOTE):
            line.row[ROW_TAG] = 1
        else:
            code, value = _parse_word(text, p, end, n_words, mode, words, at, line)
            if code != Code.DONE:
                return code, p, weight
            weight = value if n_words == 1 else weight
        n_words += 1
        p = after
    unlabelled = not line.row[ROW_LABELS] and mode & Mode.LABELLED and not mode & Mode.MULTILABEL
    return (Code.NO_LABEL if unlabelled else Code.DONE), (start if unlabelled else p), weight


@helper
def parse_namespace(text: Bytes, p: int, namespace: int, line: Line) -> Any:
    """Return (code, end, hash, scale) of the namespace after the bar at `p`; -1 as `namespace` allows any."""
    end = _name_end(text, p + 1)
    seed, scale = 0, 1.0
    if end > p + 1:
        seed = hash_name(text, p + 1, end, 0)
    elif text[end] == COLON:
        return Code.NAMESPACE, p, seed, scale
    if namespace >= 0 and seed != namespace:
        return Code.OTHER_NAMESPACE, p, seed, scale
    if text[end] == COLON:
        end, scale = _number(text, end + 1, line)
        if end < 0 or np.isinf(scale) or not ends_token(text[end]):
            return Code.SCALE, p, seed, scale
    return Code.DONE, end, seed, scale


@helper
def parse_name(text: Bytes, p: int, plain: bool, seed: int, n_nameless: int) -> Any:
    """Return (code, end, index before the mask) of the name at `p`, which may be empty."""
    end = _name_end(text, p)
    if end == p:  # nameless features of a namespace are numbered
        return Code.DONE, end, (n_nameless if plain else seed + n_nameless)
    if not plain:
        return Code.DONE, end, hash_name(text, p, end, seed)
    index = _plain_index(text, p, end)
    code = Code.NAME if index < 0 else Code.LARGE_INDEX if index > MAX_INDEX else Code.DONE
    return code, end, index


@helper
def parse_long_value(text: Bytes, start: int, line: Line) -> Any:
    """Return (code, end, value) of the number at `start` in any notation."""
    end, value = _number(text, start, line)
    if end < 0 or not ends_token(text[end]):
        return Code.VALUE, start, 0.0
    return Code.DONE, end, value


# -- MurmurHash3, the hash of Vowpal Wabbit and of scikit-learn ------------------------------------------


@helper
def _multiply(a: np.uint64, b: np.uint64) -> np.uint64:
    return (a * b) & LOW


@helper
def _rotate(a: np.uint64, bits: int) -> np.uint64:
    return ((a << np.uint64(bits)) | (a >> np.uint64(32 - bits))) & LOW


@helper
def _mixed(word: np.uint64) -> np.uint64:
    return _multiply(_rotate(_multiply(word, np.uint64(0xCC9E2D51)), 15), np.uint64(0x1B873593))


@helper
def murmur3_32(text: Bytes, start: int, end: int, seed: int) -> int:
    """Return MurmurHash3_x86_32 of the bytes text[start:end]; seven more must follow them in memory."""
    hashed, p = np.uint64(seed) & LOW, start
    while p + 4 <= end:
        hashed = _rotate(hashed ^ _mixed(load_word(text, p) & LOW), 13)
        hashed = (hashed * np.uint64(5) + np.uint64(0xE6546B64)) & LOW
        p += 4
    if p < end:
        rest = np.uint64(8 * (end - p))
        hashed ^= _mixed(load_word(text, p) & ((np.uint64(1) << rest) - np.uint64(1)))
    hashed ^= np.uint64(end - start)
    hashed = _multiply(hashed ^ (hashed >> np.uint64(16)), np.uint64(0x85EBCA6B))
    hashed = _multiply(hashed ^ (hashed >> np.uint64(13)), np.uint64(0xC2B2AE35))
    return np.int64(hashed ^ (hashed >> np.uint64(16)))
