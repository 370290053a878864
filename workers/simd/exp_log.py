"""exp and log of one float64, inlined: a call of the library's saves all vector registers, and its log1p is slow.

Polynomials with coefficients that are exact to the last bit anywhere; no tables, no branches. Results are within 1e-14
of the library's, relative to the larger of the result and 1 for logarithms.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import math

import numpy as np
from numba import types
from numba.extending import intrinsic

from distls.workers.compilation.jit import helper

__all__ = ["exp_of_negative", "log_of_normal"]

_MANTISSA_BITS, _BIAS = 52, 1023  # of float64, and of its exponent
_SMALLEST = -1022  # exponent of a normal number
_ROOT_HALF = 0x3FE6A09E667F3BCD  # the bits of the square root of 1/2
_LOG_2 = 0.6931471805599453
_EXP = tuple(1.0 / math.factorial(n) for n in range(12))  # of r in [-log(2) / 2, log(2) / 2]
_LOG = tuple(2.0 / (2 * n + 1) for n in range(9))  # log((1 + t) / (1 - t)) / t in terms of t^2 < 0.0295


@intrinsic
def _float_of_bits(_context, bits):
    """Return the float64 that has the bits of an int64."""

    def build(context, builder, _signature, args):
        return builder.bitcast(args[0], context.get_value_type(types.float64))

    return types.float64(types.int64), build


@intrinsic
def _bits_of_float(_context, x):
    """Return the bits of a float64 as an int64."""

    def build(context, builder, _signature, args):
        return builder.bitcast(args[0], context.get_value_type(types.int64))

    return types.int64(types.float64), build


@helper
def exp_of_negative(x):
    """Return exp(x) of x <= 0, at least 2e-308."""
    least = _SMALLEST * _LOG_2
    x = least if x < least else x  # unlike `max`, propagates a NaN
    whole = np.floor(x * (1.0 / _LOG_2) + 0.5)
    r = x - whole * _LOG_2
    c, s = _EXP, r * r
    # three short chains: one of Horner's would wait eleven times for a product
    low = (c[0] + c[1] * r) + (c[2] + c[3] * r) * s
    middle = (c[4] + c[5] * r) + (c[6] + c[7] * r) * s
    high = (c[8] + c[9] * r) + (c[10] + c[11] * r) * s
    power = _float_of_bits((np.int64(whole) + _BIAS) << _MANTISSA_BITS)
    return (low + s * s * (middle + s * s * high)) * power


@helper
def log_of_normal(x):
    """Return log(x) of a positive normal number."""
    bits = _bits_of_float(x)
    exponent = (bits - _ROOT_HALF) >> _MANTISSA_BITS
    mantissa = _float_of_bits(bits - (exponent << _MANTISSA_BITS))  # between the square roots of 1/2 and 2
    t = (mantissa - 1.0) / (mantissa + 1.0)
    u = t * t
    c, s = _LOG, u * u
    low = (c[0] + c[1] * u) + (c[2] + c[3] * u) * s
    high = (c[4] + c[5] * u) + (c[6] + c[7] * u) * s
    return t * (low + s * s * (high + s * s * c[8])) + np.float64(exponent) * _LOG_2
