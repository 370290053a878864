"""Features computed in place from products: cosines, logistic functions, products, and patches of images.

The cosines are random Fourier features (Rahimi and Recht 2007).

A value does not depend on its place in an array.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import math

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial

from distls.workers.compilation.jit import kernel
from distls.workers.simd.vectors import fused


def _coefficients(function, degree, low, high):
    """Return the float32 coefficients of the polynomial that interpolates at Chebyshev's points."""
    # Computed at import from the function, instead of constants that nobody can check.
    fitted = Chebyshev.interpolate(function, degree, domain=[low, high]).convert(kind=Polynomial)
    return tuple(np.float32(c) for c in fitted.coef)


# sqrt(2) sin(2 pi s) / s in s^2, for |s| <= 1/4: relative error 7e-9 before rounding.
_SINE = _coefficients(lambda q: math.sqrt(2.0) * np.sin(2.0 * math.pi * np.sqrt(q)) / np.sqrt(q), 4, 0.0, 1.0 / 16.0)
# 2^f on [-1/2, 1/2]: relative error 3e-9 before rounding.
_EXP2 = _coefficients(np.exp2, 6, -0.5, 0.5)
# Adding and subtracting it rounds to a whole number, for absolute values below 2^22.
_ROUND = np.float32(1.5 * 2.0**23)
_QUARTER, _ONE = np.float32(0.25), np.float32(1.0)
_MINUS_LOG2_E = np.float32(-1.0 / math.log(2.0))
_MOST = np.float32(126.0)
_BIAS, _SHIFT = np.int32(127), np.int32(23)


@kernel
def cosines(turns, offsets):
    """Set ``turns = sqrt(2) cos(2 pi (turns + offsets))``, float32, the first m columns of (n, any) and (m,)."""
    # a turn's fraction r in [-1/2, 1/2] is exact, and s = 1/4 - |r| up to its last bit; cos(2 pi r) is sin(2 pi s),
    # an odd polynomial
    for i in range(turns.shape[0]):
        for j in range(offsets.shape[0]):
            t = turns[i, j] + offsets[j]
            s = _QUARTER - abs(t - ((t + _ROUND) - _ROUND))
            q = s * s
            high = fused(q, fused(q, _SINE[4], _SINE[3]), _SINE[2])
            turns[i, j] = s * fused(q, fused(q, high, _SINE[1]), _SINE[0])


@kernel
def logits(z, offsets):
    """Set ``z = 2 / (1 + exp(-(z + offsets))) - 1``, float32, the first m columns of (n, any) and (m,)."""
    for i in range(z.shape[0]):
        for j in range(offsets.shape[0]):
            # exp(-x) = 2^(-x log2 e).
            t = _MINUS_LOG2_E * (z[i, j] + offsets[j])
            t = _MOST if t > _MOST else t  # unlike `min` and `max`, propagates a NaN
            t = -_MOST if t < -_MOST else t
            whole = (t + _ROUND) - _ROUND
            f = t - whole
            p = fused(f, fused(f, _EXP2[6], _EXP2[5]), _EXP2[4])
            p = fused(f, fused(f, fused(f, fused(f, p, _EXP2[3]), _EXP2[2]), _EXP2[1]), _EXP2[0])
            # 2^whole, by writing the exponent's bits
            e = p * np.int32((np.int32(whole) + _BIAS) << _SHIFT).view(np.float32)
            z[i, j] = (_ONE - e) / (_ONE + e)


@kernel
def times_shifted(product, z, offsets):
    """Set ``product *= z + offsets``, the first m columns of (n, any), (n, m) and (m,)."""
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            product[i, j] *= z[i, j] + offsets[j]


@kernel
def cut_patches(images, side, out):
    """Set `out` to all patches of images, side by side, then row by row, then image by image.

    Images are (n, channels, height, width), `out` (n * (height - side + 1) * (width - side + 1), channels * side *
    side).
    """
    n, channels, height, width = images.shape
    p = 0
    for i in range(n):
        for top in range(height - side + 1):
            for left in range(width - side + 1):
                q = 0
                for c in range(channels):
                    for y in range(side):
                        for x in range(side):
                            out[p, q] = images[i, c, top + y, left + x]
                            q += 1
                p += 1


@kernel
def normalise_patches(patches, eps):
    """Make the mean of each patch (n, p) zero and its variance one, as far as it exceeds `eps`."""
    for i in range(patches.shape[0]):
        total = 0.0
        for j in range(patches.shape[1]):
            total += patches[i, j]
        mean = total / patches.shape[1]
        squares = 0.0
        for j in range(patches.shape[1]):
            squares += (patches[i, j] - mean) ** 2
        # eps keeps the scale of flat patches finite.
        scale = 1.0 / math.sqrt(squares / patches.shape[1] + eps)
        for j in range(patches.shape[1]):
            patches[i, j] = (patches[i, j] - mean) * scale


@kernel
def pool_two_sided(responses, offsets, threshold, cells, weights, out):
    """Set `out` to the weighted sums of ``max(r - threshold, 0)`` and ``max(-r - threshold, 0)`` over regions.

    r are the responses (n, n_positions, n_filters) plus the offsets (n_filters,); `cells`, int64 (n_positions,), has
    the region of each position, weights are (n_cells,), `out` is (n, n_cells, 2, n_filters).
    """
    # A zero of the type of the responses.
    zero = threshold - threshold
    out[:] = 0
    for i in range(responses.shape[0]):
        for p in range(responses.shape[1]):
            a, w = cells[p], weights[cells[p]]
            for j in range(responses.shape[2]):
                r = responses[i, p, j] + offsets[j]
                out[i, a, 0, j] += w * max(r - threshold, zero)
                out[i, a, 1, j] += w * max(-r - threshold, zero)


@kernel
def pool_absolute(responses, offsets, threshold, cells, weights, out):
    """Set `out` (n, n_cells, n_filters) to the weighted sums of ``max(|r| - threshold, 0)``; see `pool_two_sided`."""
    zero = threshold - threshold
    out[:] = 0
    for i in range(responses.shape[0]):
        for p in range(responses.shape[1]):
            a, w = cells[p], weights[cells[p]]
            for j in range(responses.shape[2]):
                out[i, a, j] += w * max(abs(responses[i, p, j] + offsets[j]) - threshold, zero)
