"""exp and log of a float64 or a `Vector`, inlined: a call of the library's saves all vector registers.

Polynomials without tables or branches. Results are within 1e-15 of the library's, relative to the larger of the result
and 1 for logarithms; far from 0 an exponential is less exact, by as much as x is rounded.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
from numba.extending import intrinsic

from distls.workers.compilation.jit import helper
from distls.workers.simd.vectors import floor_of, select

_MANTISSA_BITS, _BIAS = 52, 1023  # of float64, and of its exponent
_SMALLEST = -1022  # exponent of a normal number
_ROOT_HALF = 0x3FE6A09E667F3BCD  # the bits of the square root of 1/2
_LOG_2 = 0.6931471805599453
# exp(r) on [-log(2) / 2, log(2) / 2] by Chebyshev interpolation of degree 11; relative error 2e-17 before rounding
_EXP = (
    1.0, 1.0, 0.5000000000000019, 0.1666666666666668, 0.0416666666664881, 0.008333333333319601,
    0.0013888888952314775, 0.00019841269890047113, 2.4801485482328494e-05, 2.755724091857897e-06,
    2.763263963904103e-07, 2.5110037605963777e-08,
)  # fmt: skip
_LOG = tuple(2.0 / (2 * n + 1) for n in range(9))  # log((1 + t) / (1 - t)) / t in terms of t^2 < 0.0295


def _like(value: Any, bits: int) -> Any:
    """Return the type of whole numbers in the form of a float64 or a vector."""
    kind = ir.IntType(bits)
    return ir.VectorType(kind, value.type.count) if isinstance(value.type, ir.VectorType) else kind


def _constant(kind: Any, number: int) -> Any:
    return ir.Constant(kind, [number] * kind.count if isinstance(kind, ir.VectorType) else number)


def _exponent(builder: Any, x: Any) -> Any:
    """Build n of x = m 2^n, m between the square roots of 1/2 and 2."""
    kind = _like(x, 64)
    bits = builder.sub(builder.bitcast(x, kind), _constant(kind, _ROOT_HALF))
    return builder.ashr(bits, _constant(kind, _MANTISSA_BITS))


# Whole numbers are of 32 bits between floats and their exponents: AVX2 has no conversion of 64.
@intrinsic
def _exponent_of(_context, x):
    """Return n of a positive normal number x = m 2^n, as a float64."""

    def build(_context, builder, _signature, args):
        exponent = builder.trunc(_exponent(builder, args[0]), _like(args[0], 32))
        return builder.sitofp(exponent, args[0].type)

    return x(x), build


@intrinsic
def _mantissa_of(_context, x):
    """Return m of a positive normal number x = m 2^n, between the square roots of 1/2 and 2."""

    def build(_context, builder, _signature, args):
        kind = _like(args[0], 64)
        shifted = builder.shl(_exponent(builder, args[0]), _constant(kind, _MANTISSA_BITS))
        return builder.bitcast(builder.sub(builder.bitcast(args[0], kind), shifted), args[0].type)

    return x(x), build


@intrinsic
def _power_of_two(_context, whole):
    """Return 2^n of a whole number n, a float64."""

    def build(_context, builder, _signature, args):
        kind = _like(args[0], 64)
        exponent = builder.sext(builder.fptosi(args[0], _like(args[0], 32)), kind)
        biased = builder.add(exponent, _constant(kind, _BIAS))
        return builder.bitcast(builder.shl(biased, _constant(kind, _MANTISSA_BITS)), args[0].type)

    return whole(whole), build


@helper
def exp_of_negative(x):
    """Return exp(x) of x <= 0, at least 2e-308."""
    least = _SMALLEST * _LOG_2
    x = select(x < least, least, x)  # propagates a NaN
    whole = floor_of(x * (1.0 / _LOG_2) + 0.5)
    r = x - whole * _LOG_2
    c, s = _EXP, r * r
    # three short chains: one of Horner's would wait eleven times for a product
    low = (c[0] + c[1] * r) + (c[2] + c[3] * r) * s
    middle = (c[4] + c[5] * r) + (c[6] + c[7] * r) * s
    high = (c[8] + c[9] * r) + (c[10] + c[11] * r) * s
    return (low + s * s * (middle + s * s * high)) * _power_of_two(whole)


@helper
def log_of_normal(x):
    """Return log(x) of a positive normal number; of infinity and NaN it is some number."""
    mantissa = _mantissa_of(x)
    t = (mantissa - 1.0) / (mantissa + 1.0)
    u = t * t
    c, s = _LOG, u * u
    low = (c[0] + c[1] * u) + (c[2] + c[3] * u) * s
    high = (c[4] + c[5] * u) + (c[6] + c[7] * u) * s
    return t * (low + s * s * (high + s * s * c[8])) + _exponent_of(x) * _LOG_2
