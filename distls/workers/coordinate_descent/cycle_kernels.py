"""The kernel of a cycle of coordinate descent on the quadratic model of a separable loss, over the rows themselves."""

# mypy: allow-untyped-defs, allow-untyped-calls
import numpy as np

from distls.workers.compilation.jit import elementwise, elementwise_helper
from distls.workers.coordinate_descent.working_set_kernels import minimise_block
from distls.workers.linear_algebra.score_kernels import row_arrays, row_span


@elementwise_helper
def _column_sums(indices, data, start, stop, s, h, slopes, curvature):
    """Set the slopes (k, 1) and curvature (k,) of a column from those of the rows."""
    k = s.shape[1]
    slopes[:], curvature[:] = 0.0, 0.0
    if k == 1:
        # Plain sums, which stay in registers.
        slope, bent = 0.0, 0.0
        for p in range(start, stop):
            i, value = np.intp(indices[p]), np.float64(data[p])
            slope += value * s[i, 0]
            bent += value * value * np.float64(h[i, 0])
        slopes[0, 0], curvature[0] = slope, bent
        return
    for p in range(start, stop):
        i, value = np.intp(indices[p]), np.float64(data[p])
        for r in range(k):
            slopes[r, 0] += value * s[i, r]
            curvature[r] += value * value * np.float64(h[i, r])


@elementwise
def newton_cycle(x, order, w, s, h, penalty, alpha, rho):
    """Descend once on the quadratic model plus the penalty of a separable loss; return the largest move.

    Moves of a block are times its curvature.

    Parameters
    ----------
    x : Rows
        Columns as rows of X^T.
    order : int64 (m,)
        Of the columns.
    w : float64 (m, k), changed in place
    s : float64 (n_rows, k), the model's slopes of the rows, changed in place
    h : float32 (n_rows, k)
    """
    indices, data = row_arrays(x)
    k, largest = w.shape[1], 0.0
    slopes, curvature, block = np.zeros((k, 1)), np.zeros(k), np.zeros((k, k))
    u, target, new = np.zeros(k), np.zeros(k), np.zeros(k)
    for j in order:
        start, stop = row_span(x, j, indices, data)
        first, end = np.uintp(start), np.uintp(stop)  # unsigned: see `places`
        _column_sums(indices, data, first, end, s, h, slopes, curvature)
        longest = 0.0
        for r in range(k):
            block[r, r] = curvature[r]
            longest = max(longest, curvature[r])
        if longest <= 0.0:
            continue
        moved = minimise_block(slopes, 0, block, longest, penalty, alpha, rho, w[j], u, target, new, 0.0)
        largest = max(largest, moved)
        for r in range(k):
            d = u[r] - w[j, r]
            w[j, r] = u[r]
            if d != 0.0:
                for p in range(first, end):
                    i = np.intp(indices[p])
                    s[i, r] += np.float64(data[p]) * d * np.float64(h[i, r])
    return largest
