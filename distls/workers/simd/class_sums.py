"""Sums and maxima over one row's classes, and an exp that vectorises: building blocks of row functions.

The order of summation never changes, and is that of vectors: LLVM may not choose another.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import numpy as np
from numba import types
from numba.extending import overload

from distls.workers.compilation.jit import helper
from distls.workers.simd.exp_log import LOG2_E, SMALLEST_FLOAT32_POWER, exp2_in_float32, exp_of_negative
from distls.workers.simd.vectors import F64_PER_VECTOR, fused, load, splat, store, sum_of_lanes


@helper
def first_max(z):
    """Return the first place of the maximum."""
    best = 0
    for c in range(1, len(z)):
        # Greater, not equal: ties go to the lowest class.
        if z[c] > z[best]:
            best = c
    return best


@helper
def sum_of(g):
    """Return the sum of g, float64, of every fourth number and then of these."""
    total = splat(0.0)
    for first in range(0, len(g), F64_PER_VECTOR):
        total = total + load(g, first, 0.0)
    return sum_of_lanes(total)


@helper
def sum_of_squares(g):
    """Return the sum of squares likewise."""
    total = splat(0.0)
    for first in range(0, len(g), F64_PER_VECTOR):
        # float64, since squares of float32 slacks of many classes lose digits.
        part = load(g, first, 0.0)
        total = fused(part, part, total)
    return sum_of_lanes(total)


def exp_below(z, scale, top, g):
    """Set ``g = exp(scale * (z - top))`` and return its sum; `top` is the maximum of z."""
    raise NotImplementedError


def exp_of_minus_abs(z, scale, g):
    """Set ``g = exp(-|scale * z|)``."""
    raise NotImplementedError


@helper
def _exp2(t):
    """Return the float32 2^t of a float32 t <= 0; 0 for t <= -60, where a class has no share."""
    return np.float32(0.0) if t <= SMALLEST_FLOAT32_POWER else exp2_in_float32(t)


@overload(exp_below)
def _exp_below_overload(z, scale, top, g):
    def in_float64(z, scale, top, g):
        for first in range(0, len(g), F64_PER_VECTOR):
            # Padding lanes hold `top`, whose exponential is not stored.
            store(exp_of_negative(scale * (load(z, first, top) - top)), g, first)
        return sum_of(g)

    def in_float32(z, scale, top, g):  # LLVM vectorises the polynomial, not the library's exp
        # 2^(z log2 e): one constant instead of a division in the loop.
        factor = np.float32(scale) * LOG2_E
        for c in range(len(g)):
            g[c] = _exp2(factor * (z[c] - top))
        return sum_of(g)

    return in_float32 if g.dtype == types.float32 else in_float64


@overload(exp_of_minus_abs)
def _exp_of_minus_abs_overload(z, scale, g):
    def in_float64(z, scale, g):
        for first in range(0, len(g), F64_PER_VECTOR):
            store(exp_of_negative(-abs(scale * load(z, first, 0.0))), g, first)

    def in_float32(z, scale, g):
        factor = np.float32(scale) * LOG2_E
        for c in range(len(g)):
            g[c] = _exp2(-abs(factor * z[c]))

    return in_float32 if g.dtype == types.float32 else in_float64
