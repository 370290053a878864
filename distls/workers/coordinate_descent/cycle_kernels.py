"""The kernel of a cycle of coordinate descent on the quadratic model of a loss of one output, over the rows."""

# mypy: allow-untyped-defs, allow-untyped-calls
import numpy as np

from distls.workers.compilation.jit import elementwise
from distls.workers.linear_algebra.score_kernels import row_arrays, row_span
from distls.workers.penalties.row_kernels import row_prox

# Of a column's own curvature what is left at the optimal intercept, at least: less is rounding.
_ROUNDING = 1e-6


@elementwise
def newton_cycle(x, order, w, s, h, total, penalty, alpha, rho):
    """Descend once on the model plus the penalty, column by column; return the largest move and that of the intercept.

    Moves of a column are times its curvature. An intercept that is optimal at the start stays so: its moves are equal
    for all rows, and kept apart from their slopes.

    Parameters
    ----------
    x : Rows
        Columns as rows of X^T.
    order : int64 (m,)
        Of the columns.
    w : float64 (m, 1), changed in place
    s : float64 (n_rows, 1)
        The model's slopes of the rows but for the intercept's moves, changed in place.
    h : float32 (n_rows, 1)
        Second derivatives of the rows.
    total : float
        Their sum, infinite without an intercept.
    """
    indices, data = row_arrays(x)
    largest, shift, target, new = 0.0, 0.0, np.zeros(1), np.zeros(1)
    for j in order:
        start, stop = row_span(x, j, indices, data)
        first, end = np.uintp(start), np.uintp(stop)  # unsigned: see `places`
        slope, square, mean = 0.0, 0.0, 0.0
        for p in range(first, end):
            i, value = np.intp(indices[p]), np.float64(data[p])
            bent = value * np.float64(h[i, 0])
            slope += value * s[i, 0]
            square += value * bent
            mean += bent
        curvature = max(square - mean * mean / total, _ROUNDING * square)
        if not 0.0 < curvature < np.inf:
            continue
        target[0] = w[j, 0] - (slope + shift * mean) / curvature
        row_prox(penalty, target, alpha / curvature, rho, new)
        d = new[0] - w[j, 0]
        if d != 0.0:
            largest = max(largest, curvature * abs(d))
            w[j, 0] = new[0]
            shift -= mean / total * d
            for p in range(first, end):
                i = np.intp(indices[p])
                s[i, 0] += np.float64(data[p]) * d * np.float64(h[i, 0])
    return largest, shift
