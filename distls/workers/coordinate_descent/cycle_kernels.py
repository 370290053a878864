"""The kernel of a cycle of coordinate descent on the quadratic model of a separable loss, over the rows themselves."""

# mypy: allow-untyped-defs, allow-untyped-calls
import numpy as np

from distls.workers.compilation.jit import elementwise, elementwise_helper
from distls.workers.coordinate_descent.working_set_kernels import minimise_block
from distls.workers.linear_algebra.score_kernels import row_arrays, row_span

# Of a column's own curvature what is left at the optimal intercept, at least: less is rounding.
_ROUNDING = 1e-6


@elementwise_helper
def _column_sums(indices, data, start, stop, s, h, sums):
    """Set the sums (3, k) of a column: with the slopes, and with the second derivatives, of its squares and values."""
    k = s.shape[1]
    sums[:] = 0.0
    if k == 1:
        # Plain sums, which stay in registers.
        slope, square, mean = 0.0, 0.0, 0.0
        for p in range(start, stop):
            i, value = np.intp(indices[p]), np.float64(data[p])
            bent = value * np.float64(h[i, 0])
            slope += value * s[i, 0]
            square += value * bent
            mean += bent
        sums[0, 0], sums[1, 0], sums[2, 0] = slope, square, mean
        return
    for p in range(start, stop):
        i, value = np.intp(indices[p]), np.float64(data[p])
        for r in range(k):
            bent = value * np.float64(h[i, r])
            sums[0, r] += value * s[i, r]
            sums[1, r] += value * bent
            sums[2, r] += bent


@elementwise
def newton_cycle(x, order, w, s, h, total, shift, penalty, alpha, rho):
    """Descend once on the quadratic model plus the penalty of a separable loss; return the largest move.

    Moves of a block are times its curvature. An intercept that is optimal at the start stays so: it moves by a constant
    for all rows, which is kept apart from their slopes.

    Parameters
    ----------
    x : Rows
        Columns as rows of X^T.
    order : int64 (m,)
        Of the columns.
    w : float64 (m, k), changed in place
    s : float64 (n_rows, k)
        The model's slopes of the rows but for the intercept's moves, changed in place.
    h : float32 (n_rows, k)
    total : float64 (k,)
        The sums of h, infinite without an intercept.
    shift : float64 (k,)
        The moves of the intercept are added to it.
    """
    indices, data = row_arrays(x)
    k, largest = w.shape[1], 0.0
    slopes, sums, block, moved = np.zeros((k, 1)), np.zeros((3, k)), np.zeros((k, k)), np.zeros(k)
    u, target, new = np.zeros(k), np.zeros(k), np.zeros(k)
    for j in order:
        start, stop = row_span(x, j, indices, data)
        first, end = np.uintp(start), np.uintp(stop)  # unsigned: see `places`
        _column_sums(indices, data, first, end, s, h, sums)
        longest = 0.0
        for r in range(k):
            slopes[r, 0] = sums[0, r] + moved[r] * sums[2, r]
            block[r, r] = max(sums[1, r] - sums[2, r] * sums[2, r] / total[r], _ROUNDING * sums[1, r])
            longest = max(longest, block[r, r])
        if longest <= 0.0:
            continue
        size = minimise_block(slopes, 0, block, longest, penalty, alpha, rho, w[j], u, target, new, 0.0)
        largest = max(largest, size)
        for r in range(k):
            d = u[r] - w[j, r]
            w[j, r] = u[r]
            if d != 0.0:
                moved[r] -= sums[2, r] / total[r] * d
                for p in range(first, end):
                    i = np.intp(indices[p])
                    s[i, r] += np.float64(data[p]) * d * np.float64(h[i, r])
    for r in range(k):
        shift[r] += moved[r]
    return largest
