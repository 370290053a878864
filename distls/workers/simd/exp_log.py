"""exp and log of a number or a `Vector`, inlined: a call of the library's saves all vector registers.

Polynomials without tables or branches. In float64 results are within 1e-15 of the library's, relative to the larger of
the result and 1 for logarithms; far from 0 an exponential is less exact, by as much as x is rounded. In float32 the
absolute error of an exponential is at most 1.2e-7, no more than the rounding of a score causes.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
import numpy as np

from distls.workers.compilation.jit import helper
from distls.workers.simd.vector_builder import INT32, VectorBuilder
from distls.workers.simd.vectors import elementwise_intrinsic, floor_of, fused, select

_MANTISSA_BITS, _BIAS = {4: 23, 8: 52}, {4: 127, 8: 1023}  # by the bytes of a float; bias of its exponent
_SMALLEST = -1022  # exponent of a normal float64
_ROOT_HALF = 0x3FE6A09E667F3BCD  # the bits of the square root of 1/2
_LOG_2 = 0.6931471805599453
# exp(r) on [-log(2) / 2, log(2) / 2] by Chebyshev interpolation of degree 11; relative error 2e-17 before rounding
_EXP = (
    1.0,
    1.0,
    0.5000000000000019,
    0.1666666666666668,
    0.0416666666664881,
    0.008333333333319601,
    0.0013888888952314775,
    0.00019841269890047113,
    2.4801485482328494e-05,
    2.755724091857897e-06,
    2.763263963904103e-07,
    2.5110037605963777e-08,
)
_LOG = tuple(2.0 / (2 * n + 1) for n in range(9))  # log((1 + t) / (1 - t)) / t in terms of t^2 < 0.0295
# 2^f on [-1/2, 1/2] by Chebyshev interpolation of degree 6; relative error 2e-9 before rounding
_EXP2 = tuple(
    np.float32(c)
    for c in np.polynomial.chebyshev.Chebyshev.interpolate(np.exp2, 6, domain=[-0.5, 0.5])
    .convert(kind=np.polynomial.Polynomial)
    .coef
)
LOG2_E, _HALF = np.float32(1.0 / _LOG_2), np.float32(0.5)
SMALLEST_FLOAT32_POWER = np.float32(-60.0)


def _exponent(own, x):
    """Build n of a float64 x = m 2^n, m between the square roots of 1/2 and 2."""
    kind = own.integers
    # An arithmetic shift: exponents of numbers below one are negative.
    bits = own.builder.sub(own.builder.bitcast(x, kind), own.constant(_ROOT_HALF, kind))
    return own.builder.ashr(bits, own.constant(_MANTISSA_BITS[8], kind))


# Whole numbers are of 32 bits between floats and their exponents: AVX2 has no conversion of 64.
@elementwise_intrinsic
def _exponent_of(builder, x):
    """Return n of a positive normal float64 x = m 2^n, as a float64."""
    own = VectorBuilder.like(builder, x)
    return builder.sitofp(builder.trunc(_exponent(own, x), own.of(INT32)), x.type)


@elementwise_intrinsic
def _mantissa_of(builder, x):
    """Return m of a positive normal float64 x = m 2^n, between the square roots of 1/2 and 2."""
    own = VectorBuilder.like(builder, x)
    shifted = builder.shl(_exponent(own, x), own.constant(_MANTISSA_BITS[8], own.integers))
    return builder.bitcast(builder.sub(builder.bitcast(x, own.integers), shifted), x.type)


@elementwise_intrinsic
def _power_of_two(builder, whole):
    """Return 2^n of a whole number n, by writing the bits of the exponent."""
    own = VectorBuilder.like(builder, whole)
    n = builder.fptosi(whole, own.of(INT32))
    biased = builder.add(
        builder.sext(n, own.integers) if own.size == 8 else n, own.constant(_BIAS[own.size], own.integers)
    )
    bits = builder.shl(biased, own.constant(_MANTISSA_BITS[own.size], own.integers))
    return builder.bitcast(bits, whole.type)


@helper
def exp_of_negative(x):
    """Return exp(x) of x <= 0, at least 2e-308; of float64."""
    # The smallest normal float64: below it, bits of the exponent would wrap.
    least = _SMALLEST * _LOG_2
    x = select(x < least, least, x)  # propagates a NaN
    # Rounded to the nearest whole number, so that |r| <= log(2) / 2.
    whole = floor_of(fused(x, 1.0 / _LOG_2, 0.5))
    r = fused(whole, -_LOG_2, x)
    c, s = _EXP, r * r
    # three short chains: one of Horner's would wait eleven times for a product
    low = fused(fused(c[3], r, c[2]), s, fused(c[1], r, c[0]))
    middle = fused(fused(c[7], r, c[6]), s, fused(c[5], r, c[4]))
    high = fused(fused(c[11], r, c[10]), s, fused(c[9], r, c[8]))
    return fused(s * s, fused(s * s, high, middle), low) * _power_of_two(whole)


@helper
def exp2_in_float32(t):
    """Return 2^t of a float32 t <= 0, or of a vector of them, at least 2^-60."""
    t = select(t < SMALLEST_FLOAT32_POWER, SMALLEST_FLOAT32_POWER, t)  # propagates a NaN
    whole = floor_of(t + _HALF)
    # The fraction in [-1/2, 1/2], which is exact in float32.
    f, c = t - whole, _EXP2
    high = fused(f, fused(f, fused(f, c[6], c[5]), c[4]), c[3])
    return fused(f, fused(f, fused(f, high, c[2]), c[1]), c[0]) * _power_of_two(whole)


@helper
def log_of_normal(x):
    """Return log(x) of a positive normal number; of infinity and NaN it is some number."""
    mantissa = _mantissa_of(x)
    # log m as a series in t = (m - 1)/(m + 1), which converges twice as fast.
    t = (mantissa - 1.0) / (mantissa + 1.0)
    u = t * t
    c, s = _LOG, u * u
    low = fused(fused(c[3], u, c[2]), s, fused(c[1], u, c[0]))
    high = fused(fused(c[7], u, c[6]), s, fused(c[5], u, c[4]))
    return fused(t, fused(s * s, fused(s * s, c[8], high), low), _exponent_of(x) * _LOG_2)
