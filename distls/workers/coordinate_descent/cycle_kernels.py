"""Kernels of steps on the quadratic model of a loss over the rows: a cycle of descent of one output; a product."""

# mypy: allow-untyped-defs, allow-untyped-calls
import numpy as np
from numba.extending import overload

from distls.workers.compilation.jit import helper, kernel
from distls.workers.linear_algebra.prefetch import prefetch_element, prefetch_row
from distls.workers.linear_algebra.score_kernels import column_of, is_csr, places, value_of
from distls.workers.penalties.row_kernels import row_prox
from distls.workers.simd.vectors import F64_PER_VECTOR, fused, load, load_as, splat, sum_of_lanes

# Of a column's own curvature what is left at the optimal intercept, at least: less is rounding.
_ROUNDING = 1e-6
_AT_ONCE = 2 * F64_PER_VECTOR


@kernel
def newton_cycle(x, order, w, t, h, total, penalty, alpha, rho, curvatures):
    """Descend once on the model plus the penalty, column by column; return the largest move and that of the intercept.

    Moves of a column are times its curvature. An intercept that is optimal at the start stays so: its moves are equal
    for all rows, and kept apart from those of the rows.

    Parameters
    ----------
    x : Rows
        Columns as rows of X^T.
    order : int64 (m,)
        Of the columns.
    w : float64 (m, 1), changed in place
    t : float64 (n_rows,)
        The model's slopes of the rows over h, but for the intercept's moves, changed in place: by what scores change.
    h : float32 (n_rows,)
        Second derivatives of the rows.
    total : float
        Their sum, infinite without an intercept.
    curvatures : float64 (m,)
        Set to those of the columns.
    """
    largest, shift, target, new = 0.0, 0.0, np.zeros(1), np.zeros(1)
    for place in range(len(order)):
        j = order[place]
        following = order[min(place + 1, len(order) - 1)]
        slope, square, mean = _sums_of(x, j, following, t, h)
        curvatures[j] = curvature = max(square - mean * mean / total, _ROUNDING * square)
        if not 0.0 < curvature < np.inf:
            continue
        target[0] = w[j, 0] - (slope + shift * mean) / curvature
        row_prox(penalty, target, alpha / curvature, rho, new)
        d = new[0] - w[j, 0]
        if d != 0.0:
            largest = max(largest, curvature * abs(d))
            w[j, 0] = new[0]
            shift -= mean / total * d
            _move(x, j, d, t)
    return largest, shift


@helper
def _move(x, j, d, t):
    """Change the scores as weight j changes by d."""
    first, end = places(x, j)
    for p in range(first, end):
        t[column_of(x, p)] += np.float64(value_of(x, j, p)) * d


def _sums_of(x, j, following, t, h):
    """Return ``sum_i h_i x_ij t_i``, ``sum_i h_i x_ij^2``, ``sum_i h_i x_ij`` of column j; fetch the next column."""


@overload(_sums_of, inline="always")
def _sums_overload(x, j, following, t, h):
    if is_csr(x):
        return lambda x, j, following, t, h: _in_order(x, j, following, t, h)
    return lambda x, j, following, t, h: _in_vectors(x.values[j], x.values[following], t, h)


@helper
def _in_order(x, j, following, t, h):
    prefetch_row(x, following)
    slope, square, mean = 0.0, 0.0, 0.0
    first, end = places(x, j)
    for p in range(first, end):
        i, value = column_of(x, p), np.float64(value_of(x, j, p))
        bent = value * np.float64(h[i])
        slope += bent * t[i]
        square += value * bent
        mean += bent
    return slope, square, mean


@helper
def _in_vectors(values, following, t, h):
    zero = splat(0.0)
    slope, square, mean = zero, zero, zero
    slope2, square2, mean2 = zero, zero, zero
    # Two vectors, which need not wait for each other.
    whole = len(t) // _AT_ONCE * _AT_ONCE
    for i in range(0, whole, _AT_ONCE):
        j = i + F64_PER_VECTOR
        prefetch_element(following, i)
        value, value2 = load_as(values, i, 0, zero), load_as(values, j, 0, zero)
        bent, bent2 = value * load_as(h, i, 0, zero), value2 * load_as(h, j, 0, zero)
        slope, slope2 = (fused(bent, load_as(t, i, 0, zero), slope), fused(bent2, load_as(t, j, 0, zero), slope2))
        square, square2 = fused(value, bent, square), fused(value2, bent2, square2)
        mean, mean2 = mean + bent, mean2 + bent2
    for i in range(whole, len(t), F64_PER_VECTOR):
        value = load(values, i, 0.0)
        bent = value * load(h, i, 0.0)
        slope, square, mean = fused(bent, load(t, i, 0.0), slope), fused(value, bent, square), mean + bent
    return sum_of_lanes(slope + slope2), sum_of_lanes(square + square2), sum_of_lanes(mean + mean2)


@kernel
def curved(h, v):
    """Return the products (n, k) of rows' second derivatives (n, parts), see `working_set_kernels`, with v (n, k)."""
    k, parts, out = v.shape[1], h.shape[1], np.zeros(v.shape)
    for i in range(len(v)):
        place = 0
        for r in range(k):
            if parts < k:
                out[i, r] = np.float64(h[i, 0]) * (v[i, r] - v[i, 1 - r])
            elif parts == k:
                out[i, r] = np.float64(h[i, r]) * v[i, r]
            else:
                for c in range(r + 1):
                    own = np.float64(h[i, place])
                    out[i, r] += own * v[i, c]
                    if c < r:
                        out[i, c] += own * v[i, r]
                    place += 1
    return out
