"""Decimal text to the nearest double, exactly, in integers only.

The Eisel-Lemire algorithm (Lemire, "Number parsing at a gigabyte per second", 2021; proof of the fallback-free
variant: Mushtak and Lemire, 2023).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from distls.workers.compilation.jit import helper
from distls.workers.ingestion.parsing.array_types import UInts, ULongs

# A mantissa of this many decimal digits always fits into 64 bits.
EXACT_DIGITS = 19

_MIN_EXPONENT = -342
_MAX_EXPONENT = 308
_INFINITE = np.uint64(0x7FF0000000000000)


def _power_of_five(q: int) -> int:
    """Return 5**q as a 128-bit significand, its top bit set, truncated (rounded up for negative q)."""
    if q >= 0:
        power = 5**q
        shift = 128 - power.bit_length()
        return power << shift if shift >= 0 else power >> -shift
    power = 5**-q
    bits = (power - 1).bit_length()
    significand = (1 << (bits + 127 if q >= -27 else 2 * bits + 128)) // power + 1
    return significand >> max(significand.bit_length() - 128, 0)


def _table() -> tuple[ULongs, ULongs]:
    powers = [_power_of_five(q) for q in range(_MIN_EXPONENT, _MAX_EXPONENT + 1)]
    high = np.array([p >> 64 for p in powers], dtype=np.uint64)
    low = np.array([p & (2**64 - 1) for p in powers], dtype=np.uint64)
    return high, low


_FIVE_HIGH, _FIVE_LOW = _table()


@intrinsic
def _multiply_high(context: Any, a: Any, b: Any) -> Any:
    """Upper 64 bits of the 128-bit product of two uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        left, right = (builder.zext(argument, wide) for argument in arguments)
        product = builder.mul(left, right)
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


def _of_number(returns: Any, takes: Any, build: Callable[[Any, Any], Any]) -> Any:
    """Return an intrinsic of one number, which `build` makes with LLVM's builder."""

    @intrinsic
    def found(context: Any, number: Any) -> Any:
        return returns(takes), lambda context, builder, signature, numbers: build(builder, numbers[0])

    return found


_DEFINED = ir.Constant(ir.IntType(1), 0)  # of zero too, which has 64 zeros
_leading_zeros = _of_number(types.uint64, types.uint64, lambda b, word: b.ctlz(word, _DEFINED))
# below the lowest bit that is set
trailing_zeros = _of_number(types.int64, types.uint64, lambda b, word: b.cttz(word, _DEFINED))
_double_of_bits = _of_number(types.float64, types.uint64, lambda b, bits: b.bitcast(bits, ir.DoubleType()))
double_bits = _of_number(types.uint64, types.float64, lambda b, value: b.bitcast(value, ir.IntType(64)))


@intrinsic
def load_word(context: Any, text: Any, position: Any) -> Any:
    """Load text[position:position + 8] as one little-endian uint64, at any alignment, unchecked."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        word = ir.IntType(64)
        address = builder.bitcast(builder.gep(array.data, [arguments[1]]), word.as_pointer())
        loaded = builder.load(address)
        loaded.align = 1
        return loaded

    return types.uint64(text, types.int64), generate


@helper
def decimal_to_double(mantissa: np.uint64, exponent: int) -> float:
    """Return the double nearest to mantissa * 10**exponent, ties to even; infinity when it overflows."""
    if mantissa == np.uint64(0) or exponent < _MIN_EXPONENT:
        return 0.0
    if exponent > _MAX_EXPONENT:
        return _double_of_bits(_INFINITE)
    one, all_ones = np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF)
    n_zeros = _leading_zeros(mantissa)
    word = mantissa << n_zeros
    entry = exponent - _MIN_EXPONENT
    low = word * _FIVE_HIGH[entry]
    high = _multiply_high(word, _FIVE_HIGH[entry])
    # 52 bits of mantissa, one hidden, one for rounding and one for the top bit's two places must be certain
    uncertain = all_ones >> np.uint64(55)
    if high & uncertain == uncertain:
        correction = _multiply_high(word, _FIVE_LOW[entry])
        low = low + correction
        if correction > low:
            high = high + one
    top = high >> np.uint64(63)
    shift = top + np.uint64(9)
    fraction = high >> shift
    # floor(log2(10**q)) by a multiplication that is exact over the table's range
    power = ((217706 * exponent) >> 16) + 63 + np.int64(top) - np.int64(n_zeros) + 1023
    if power <= 0:
        return _subnormal(fraction, power)
    if low <= one and -4 <= exponent <= 23 and fraction & np.uint64(3) == one and fraction << shift == high:
        fraction = fraction & ~one  # exactly half way between two doubles: to even
    fraction = (fraction + (fraction & one)) >> one
    if fraction >= np.uint64(1 << 53):
        fraction = np.uint64(1 << 52)
        power += 1
    if power >= 0x7FF:
        return _double_of_bits(_INFINITE)
    return _double_of_bits(fraction & ~np.uint64(1 << 52) | np.uint64(power) << np.uint64(52))


@helper
def _subnormal(fraction: np.uint64, power: int) -> float:
    """Finish a result below the normal doubles: `fraction` still has its rounding bit."""
    if 1 - power >= 64:
        return 0.0
    one = np.uint64(1)
    fraction = fraction >> np.uint64(1 - power)
    fraction = (fraction + (fraction & one)) >> one
    # rounding up to the smallest normal number sets the exponent field by carrying into it
    return _double_of_bits(fraction)


@helper
def write_double(words: UInts, at: int, value: float) -> None:
    """Store a double as two words, the low one first."""
    bits = double_bits(value)
    words[at] = np.uint32(bits & np.uint64(0xFFFFFFFF))
    words[at + 1] = np.uint32(bits >> np.uint64(32))


@helper
def read_double(words: UInts, at: int) -> float:
    """Load the double that `write_double` stored."""
    return _double_of_bits(np.uint64(words[at]) | np.uint64(words[at + 1]) << np.uint64(32))
