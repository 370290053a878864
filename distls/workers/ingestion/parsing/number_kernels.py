"""Read the numbers of svmlight text: bytes one at a time in general, eight at a time where they are plain.

The eight-byte paths (after Lemire's "SIMD within a register" tricks) matter because digit counts vary from token
to token: a loop over the digits mispredicts a branch at each end.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from typing import Any

import numpy as np

from distls.workers.compilation.jit import helper
from distls.workers.ingestion.parsing.array_types import Bytes
from distls.workers.ingestion.parsing.decimal_kernels import EXACT_DIGITS, decimal_to_double, load_word, trailing_zeros

MAX_INDEX = 2**31 - 1

_COLON, _MINUS, _PLUS, _POINT = 58, 45, 43, 46

_ONES = np.uint64(0x0101010101010101)
_TOPS = np.uint64(0x8080808080808080)
_ZEROS = np.uint64(0x3030303030303030)
_COLONS = np.uint64(0x3A3A3A3A3A3A3A3A)
_POINTS = np.uint64(0x2E2E2E2E2E2E2E2E)
_ABOVE_SPACE = np.uint64(0x2121212121212121)
_TO_TOP = np.uint64(0x7676767676767676)  # added to a byte above 9, it sets the top bit
_PAIRS = np.uint64(0x000000FF000000FF)
_WEIGHTS_EVEN = np.uint64(0x000F424000000064)
_WEIGHTS_ODD = np.uint64(0x0000271000000001)
_TENS = 10.0 ** np.arange(16)  # exact doubles
_POWERS = np.uint64(10) ** np.arange(8, dtype=np.uint64)
_HUNDRED_MILLION = np.uint64(10**8)


@helper
def _scan_digits(text: Bytes, p: int, mantissa: np.uint64, n_digits: int) -> Any:
    """Append the digits at `p` to `mantissa`; those beyond EXACT_DIGITS are only counted."""
    dropped = 0
    while True:
        digit = np.int64(text[p]) - 48
        if digit < 0 or digit > 9:
            return p, mantissa, n_digits, dropped
        if n_digits < EXACT_DIGITS:
            mantissa = mantissa * np.uint64(10) + np.uint64(digit)
            n_digits += mantissa != np.uint64(0)
        else:
            dropped += 1
        p += 1


@helper
def _scan_exponent(text: Bytes, p: int) -> Any:
    """Return (end, exponent) of an optional exponent at `p`; the end is -1 when it has no digits."""
    if text[p] | 32 != 101:  # neither e nor E
        return p, 0
    p += 1
    negative = text[p] == _MINUS
    if negative or text[p] == _PLUS:
        p += 1
    start, exponent = p, 0
    while 48 <= text[p] <= 57:
        exponent = min(exponent * 10 + np.int64(text[p]) - 48, 1_000_000_000)
        p += 1
    return (p if p > start else -1), (-exponent if negative else exponent)


@helper
def _scan_decimal(text: Bytes, first: int) -> Any:
    """Return (end, mantissa, exponent, truncated) of the digits and point at `first`; the end is -1 without digits."""
    p, mantissa, n_digits, exponent = _scan_digits(text, first, np.uint64(0), 0)
    any_digits = p > first
    truncated = exponent > 0
    if text[p] == _POINT:
        point = p
        p, mantissa, n_digits, dropped = _scan_digits(text, p + 1, mantissa, n_digits)
        exponent -= p - point - 1 - dropped
        any_digits = any_digits or p > point + 1
        truncated = truncated or dropped > 0
    return (p if any_digits else -1), mantissa, exponent, truncated


@helper
def scan_number(text: Bytes, start: int) -> Any:
    """Return (end, value, exact) of the decimal number at `start`; the end is -1 when there is none."""
    p, truncated = start, False
    negative = text[p] == _MINUS
    if negative or text[p] == _PLUS:
        p += 1
    first = p
    p, mantissa, exponent = _scan_long_decimal(text, first)
    if p < 0:
        p, mantissa, exponent, truncated = _scan_decimal(text, first)
    if p < 0:
        return -1, 0.0, True
    p, power = _scan_exponent(text, p)
    if p < 0:
        return -1, 0.0, True
    value = decimal_to_double(mantissa, exponent + power)
    exact = not truncated or value == decimal_to_double(mantissa + np.uint64(1), exponent + power)
    return p, (-value if negative else value), exact


@helper
def _eight_digits(digits: np.uint64) -> np.uint64:
    """Combine eight digit values, one a byte, the most significant in the lowest byte."""
    digits = digits * np.uint64(10) + (digits >> np.uint64(8))
    even = (digits & _PAIRS) * _WEIGHTS_EVEN
    odd = ((digits >> np.uint64(16)) & _PAIRS) * _WEIGHTS_ODD
    return (even + odd) >> np.uint64(32)


@helper
def _first_match(word: np.uint64) -> int:
    """Return 8 x the number of bytes before the first zero byte (64 when there is none)."""
    return trailing_zeros((word - _ONES) & ~word & _TOPS) & 120


@helper
def _short_number(word: np.uint64, n_bits: int) -> Any:
    """Return (valid, value) of the first n_bits / 8 characters of `word` read as digits."""
    digits = (word ^ _ZEROS) << np.uint64(64 - n_bits)
    return (digits | (digits + _TO_TOP)) & _TOPS == np.uint64(0), _eight_digits(digits)


@helper
def _digit_count(word: np.uint64) -> int:
    """Return the number of characters before the first that is no digit (8 when all are)."""
    digits = word ^ _ZEROS
    return trailing_zeros((digits | (digits + _TO_TOP)) & _TOPS) >> 3


@helper
def _scan_long_decimal(text: Bytes, p: int) -> Any:
    """Return (end, mantissa, exponent) of 16 to 22 digits with a point among the first eight characters; else end -1.

    These are what programs print of doubles, such as 0.07182592153549194.
    """
    word, second, third = load_word(text, p), load_word(text, p + 8), load_word(text, p + 16)
    point, count = _first_match(word ^ _POINTS), _digit_count(third)
    if point == 64 or count == 0 or count == 8:
        return -1, np.uint64(0), 0
    word = _without_point(word, point) | (second << np.uint64(56))
    second = (second >> np.uint64(8)) | (third << np.uint64(56))
    if _digit_count(word) < 8 or _digit_count(second) < 8:
        return -1, np.uint64(0), 0
    mantissa, more = _eight_digits(word ^ _ZEROS), _eight_digits(second ^ _ZEROS)
    if mantissa * _POWERS[max(count - 4, 0)] >= _HUNDRED_MILLION:  # more than EXACT_DIGITS
        return -1, np.uint64(0), 0
    # in two steps, since a word cannot be shifted by 64 bits
    rest = _eight_digits(((third >> np.uint64(8)) ^ _ZEROS) << np.uint64(64 - 8 * count) << np.uint64(8))
    mantissa = (mantissa * _HUNDRED_MILLION + more) * _POWERS[count - 1] + rest
    return p + 16 + count, mantissa, (point >> 3) - 15 - count


@helper
def parse_index(text: Bytes, p: int) -> Any:
    """Return (position after the colon, index); the position is -1 when there is no ``digits:`` here."""
    word = load_word(text, p)
    n_bits = _first_match(word ^ _COLONS)
    if 0 < n_bits < 64:
        valid, index = _short_number(word, n_bits)
        if valid:
            return p + (n_bits >> 3) + 1, np.int64(index)
    start, index = p, 0
    while 48 <= text[p] <= 57:
        index = min(index * 10 + np.int64(text[p]) - 48, MAX_INDEX + 1)
        p += 1
    return (p + 1 if p > start and text[p] == _COLON else -1), index


@helper
def _without_point(word: np.uint64, point: int) -> np.uint64:
    """Close the gap of the character at bit `point`; the last byte becomes zero."""
    before = (np.uint64(1) << np.uint64(point)) - np.uint64(1)
    return (word & before) | ((word >> np.uint64(8)) & ~before)


@helper
def _token_bits(word: np.uint64) -> int:
    """Return 8 x the number of characters before the first blank (64 when there is none)."""
    return trailing_zeros((word - _ABOVE_SPACE) & ~word & _TOPS) & 120


@helper
def _long_token(p: int, word: np.uint64, second: np.uint64) -> Any:
    """Return (end, value) of the decimal of 8 to 15 characters at `p`, in `word` and `second`; else end -1."""
    n_bits = _token_bits(second)
    if n_bits == 64:
        return -1, 0.0
    after, n_digits, decimals = p + 8 + (n_bits >> 3), 8 + (n_bits >> 3), 0
    point = _first_match(word ^ _POINTS)
    if point < 64:
        word = _without_point(word, point) | (second << np.uint64(56))
        second >>= np.uint64(8)
        n_digits -= 1
        decimals = n_digits - (point >> 3)
    else:
        point = _first_match(second ^ _POINTS)
        if point < n_bits:
            second = _without_point(second, point)
            n_digits -= 1
            decimals = n_digits - 8 - (point >> 3)
    if n_digits == 7:
        valid, mantissa = _short_number(word, 56)
    else:
        # in two steps, since a word cannot be shifted by 64 bits
        rest = ((second ^ _ZEROS) << np.uint64(120 - 8 * n_digits)) << np.uint64(8)
        first = word ^ _ZEROS
        valid = ((first | (first + _TO_TOP)) | (rest | (rest + _TO_TOP))) & _TOPS == np.uint64(0)
        mantissa = _eight_digits(first) * _POWERS[n_digits - 8] + _eight_digits(rest)
    return (after if valid else -1), np.float64(np.int64(mantissa)) / _TENS[decimals]


@helper
def _short_token(p: int, word: np.uint64, second: np.uint64) -> Any:
    """Return (end, value) of the plain decimal at `p`, in `word` and `second`; the end is -1 for others."""
    n_bits = _token_bits(word)
    if n_bits == 64:
        return _long_token(p, word, second)
    after = p + (n_bits >> 3)
    point = _first_match(word ^ _POINTS)
    decimals = 0
    if point < n_bits:
        word = _without_point(word, point)
        n_bits -= 8
        decimals = (n_bits - point) >> 3
    if n_bits == 0:
        return -1, 0.0
    valid, mantissa = _short_number(word, n_bits)
    # mantissa and power of ten are exact doubles: one division rounds correctly
    return (after if valid else -1), np.float64(np.int64(mantissa)) / _TENS[decimals]


@helper
def parse_short_value(text: Bytes, start: int) -> Any:
    """Return (end, value) of a plain decimal of up to 15 characters and a sign; the end is -1 for others."""
    negative = text[start] == _MINUS
    p = start + negative
    end, value = _short_token(p, load_word(text, p), load_word(text, p + 8))
    return end, (-value if negative else value)


@helper
def _ended_at(word: np.uint64, separators: np.uint64) -> np.uint64:
    """Return a word with a zero byte in place of the first separator; the bytes after it are undefined."""
    odd = word ^ separators
    hits = (odd - _ONES) & ~odd & _TOPS
    return word & ~((hits >> np.uint64(7)) * np.uint64(0xFF))


@helper
def parse_short_field(text: Bytes, start: int, separators: np.uint64) -> Any:
    """Parse as `parse_short_value` a decimal that may also end at the byte that `separators` holds eight times."""
    digit = np.int64(text[start]) - 48
    if text[start + 1] == np.uint8(separators & np.uint64(0xFF)) and 0 <= digit <= 9:
        return start + 1, np.float64(digit)
    negative = text[start] == _MINUS
    p = start + negative
    word = _ended_at(load_word(text, p), separators)
    end, value = _short_token(p, word, _ended_at(load_word(text, p + 8), separators))
    return end, (-value if negative else value)
