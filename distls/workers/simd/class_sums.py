"""Sums and maxima over one row's classes, and an exp that vectorises: building blocks of row functions.

The order of summation never changes. LLVM would compile a loop that also writes g in two versions, vectorised or not,
and choose by the distance of the arrays in memory: the same numbers with other last bits.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from __future__ import annotations

import math

import numpy as np
from numba import types
from numba.extending import intrinsic, overload

from distls.workers.compilation.jit import helper
from distls.workers.simd.exp_log import exp_of_negative
from distls.workers.simd.vectors import LANES, load, store


@helper
def first_max(z):
    """Return the first place of the maximum."""
    best = 0
    for c in range(1, len(z)):
        if z[c] > z[best]:
            best = c
    return best


@helper
def sum_of(g):
    """Return the sum of g, in its own type."""
    total = g.dtype.type(0.0)
    for c in range(len(g)):
        total += g[c]
    return total


@helper
def sum_of_squares(g):
    """Return the sum of squares, float64."""
    total = 0.0
    for c in range(len(g)):
        total += np.float64(g[c]) * np.float64(g[c])
    return total


# 2^f on [-1/2, 1/2] by Chebyshev interpolation of degree 6; relative error 2e-9 before rounding
_EXP2 = tuple(
    np.float32(c)
    for c in np.polynomial.chebyshev.Chebyshev.interpolate(np.exp2, 6, domain=[-0.5, 0.5])
    .convert(kind=np.polynomial.Polynomial)
    .coef
)
_LOG2_E = np.float32(1.0 / math.log(2.0))


def exp_below(z, scale, top, g):
    """Set ``g = exp(scale * (z - top))`` and return its sum; `top` is the maximum of z."""
    raise NotImplementedError


def exp_of_minus_abs(z, scale, g):
    """Set ``g = exp(-|scale * z|)``."""
    raise NotImplementedError


@intrinsic
def _power_of_two(_context, n):
    """Return the float32 2^n of an int32 n in [-126, 127], by writing the exponent bits."""

    def build(context, builder, _signature, args):
        integer = args[0].type
        bits = builder.shl(builder.add(args[0], integer(127)), integer(23))
        return builder.bitcast(bits, context.get_value_type(types.float32))

    return types.float32(types.int32), build


@helper
def _exp2_float32(t):
    """Return the float32 2^t of a float32 t <= 0 by a polynomial, with t = n + f; 0 for t <= -60."""
    # the absolute error of exp(x) is at most 1.2e-7 for every x <= 0, no more than the rounding of a score causes
    t = np.float32(-60.0) if t < np.float32(-60.0) else t  # unlike `max`, propagates a NaN
    whole = np.floor(t + np.float32(0.5))
    f = t - whole
    p = _EXP2[5] + f * _EXP2[6]
    p = _EXP2[3] + f * (_EXP2[4] + f * p)
    p = _EXP2[0] + f * (_EXP2[1] + f * (_EXP2[2] + f * p))
    e = p * _power_of_two(np.int32(whole))
    return np.float32(0.0) if t <= np.float32(-60.0) else e


@overload(exp_below)
def _exp_below_overload(z, scale, top, g):
    def in_float64(z, scale, top, g):
        for first in range(0, len(g), LANES):
            store(exp_of_negative(scale * (load(z, first, top) - top)), g, first)
        return sum_of(g)

    def in_float32(z, scale, top, g):  # LLVM vectorises the polynomial, not the library's exp
        factor = np.float32(scale) * _LOG2_E
        for c in range(len(g)):
            g[c] = _exp2_float32(factor * (z[c] - top))
        return np.float64(sum_of(g))

    return in_float32 if g.dtype == types.float32 else in_float64


@overload(exp_of_minus_abs)
def _exp_of_minus_abs_overload(z, scale, g):
    def in_float64(z, scale, g):
        for first in range(0, len(g), LANES):
            store(exp_of_negative(-abs(scale * load(z, first, 0.0))), g, first)

    def in_float32(z, scale, g):
        factor = np.float32(scale) * _LOG2_E
        for c in range(len(g)):
            g[c] = _exp2_float32(-abs(factor * z[c]))

    return in_float32 if g.dtype == types.float32 else in_float64
