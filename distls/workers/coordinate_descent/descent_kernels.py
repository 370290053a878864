"""Sweeps of block coordinate descent over columns, on the scores Z = XW of all rows (its paper's Algorithms 1-3).

A shard is read as the rows of X^T: `CsrRows` or `DenseRows`, one row a column of X. For each column j of an order

    G_j = sum_i s_i x_ij g_i,    h_j = sum_i s_i x_ij^2 g'_i        (Eq. 5 and 6; g_i, g'_i derivatives in the scores)
    W_j* = prox_{alpha/L}(W_j - G_j / L),    L = max_r h_jr or the constant K_j                       (Eq. 3 and 4)
    W_j <- W_j + eta (W_j* - W_j),           Z_i <- Z_i + eta x_ij (W_j* - W_j)                            (Eq. 7)

with eta = 1, 1/2, 1/4, ... until F decreases as Eq. 7 asks. The derivatives are computed from the scores at each
non-zero. A block that is zero and stays zero costs only G_j; one without data nothing.

Shapes: w (n_columns, k); z (n_rows, k), float32 or float64; y int32 (n_rows,), or `LabelSets` for the squared hinges;
weight float64 (n_rows,) or (0,) for all ones; all arithmetic float64. Vectors of classes are padded (see
`distls.workers.simd.vectors`).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import math
from typing import NamedTuple

import numpy as np

from distls.workers.compilation.array_copy import copy_vector
from distls.workers.compilation.jit import helper, kernel
from distls.workers.linear_algebra.prefetch import prefetch_scores
from distls.workers.linear_algebra.score_kernels import row_arrays, row_span
from distls.workers.losses.row_functions import (
    add_score_curvature,
    add_score_gradient,
    add_score_hessian,
    descent_factor,
    lipschitz,
    score_change,
)
from distls.workers.penalties.row_kernels import row_penalty, row_prox
from distls.workers.simd.vectors import padded

_SIGMA, _BETA = 0.01, 0.5  # Eq. 7
_TRIES = 40  # 2^-39 of a step is as good as none
_EPSILON = 1e-12  # lower bound of L: a column may have no curvature at all
_AHEAD = 12  # non-zeros between prefetch and use of scores
# Added to the Hessian's diagonal, relative to it: adding a constant to all classes has no curvature in many losses.
_DAMPING = 1e-7
# Decrease of the mean loss, that a step of the intercept promises, which is lost in the rounding of scores: of float64
# and of float32.
_NO_GAIN, _NO_GAIN_SINGLE = 1e-20, 1e-15


class Step(NamedTuple):
    """Step rule of a block, and its penalty."""

    alpha: float  # strength of the penalty
    rho: float  # `l1_ratio`
    scale: float  # 1 / sum_i s_i
    constant: bool  # L = K_j, without a line search (Richtarik and Takac), else L = max h_j (Tseng and Yun)
    loose: float = 1.0  # printed L over the sharp K_j or max h_j
    printed: bool = False  # the violation is that of Eq. 9 where W_j != 0 too


class Totals(NamedTuple):
    """Places of a pass's totals."""

    violation: int = 0  # sum of L_j |W_j* - W_j|, Eq. 9 where W_j = 0
    largest: int = 1  # the largest of these terms
    change: int = 2  # change of F
    moved: int = 3  # blocks whose weights changed
    tries: int = 4  # tries of the line search


N_TOTALS = len(Totals._fields)
_T = Totals()


# ---------------------------------------------------------------- one block


@helper
def _block_gradient(loss, indices, data, start, stop, z, y, weight, g, own, scratch):
    """Set g to G_j times sum_i s_i."""
    g[:], own[:] = 0.0, 0.0
    for p in range(start, stop):
        i = np.intp(indices[p])
        prefetch_scores(z, np.intp(indices[min(p + _AHEAD, stop - 1)]))
        factor = np.float64(data[p])
        if len(weight):
            factor *= weight[i]
        add_score_gradient(loss, z, i, y, factor, g, own, scratch)
    by = descent_factor(loss)
    for r in range(len(own)):
        g[r] = by * (g[r] + own[r])


@helper
def _curvature(loss, indices, data, start, stop, z, y, weight, h, own, scratch):
    """Return max_r h_jr times sum_i s_i (Eq. 6)."""
    h[:], own[:] = 0.0, 0.0
    for p in range(start, stop):
        i = np.intp(indices[p])
        prefetch_scores(z, np.intp(indices[min(p + _AHEAD, stop - 1)]))
        x = np.float64(data[p])
        factor = x * x
        if len(weight):
            factor *= weight[i]
        add_score_curvature(loss, z, i, y, factor, h, own, scratch)
    largest = 0.0
    for r in range(len(own)):
        largest = max(largest, h[r] + own[r])
    return descent_factor(loss) * largest


@helper
def _constant(loss, indices, data, start, stop, k, weight):
    """Return K_j times sum_i s_i."""
    total = 0.0
    for p in range(start, stop):
        x = np.float64(data[p])
        factor = x * x
        if len(weight):
            factor *= weight[np.intp(indices[p])]
        total += factor
    return lipschitz(loss, k) * total


@helper
def _moved(loss, indices, data, start, stop, z, y, weight, d, scratch):
    """Add ``x_ij d`` to the scores of all rows; return the change of the loss times sum_i s_i."""
    total = 0.0
    for p in range(start, stop):
        i = np.intp(indices[p])
        prefetch_scores(z, np.intp(indices[min(p + _AHEAD, stop - 1)]))
        change = score_change(loss, z, i, y, np.float64(data[p]), d, scratch)
        if len(weight):
            change *= weight[i]
        total += change
    return total


@helper
def _is_zero(w):
    for r in range(len(w)):  # noqa: SIM110 (numba has no `all`)
        if w[r] != 0.0:
            return False
    return True


@helper
def _norm(d):
    total = 0.0
    for r in range(len(d)):
        total += d[r] * d[r]
    return math.sqrt(total)


@helper
def _inner(a, b):
    total = 0.0
    for r in range(len(b)):
        total += a[r] * b[r]
    return total


@helper
def _along(w, size, d, out):
    """Set ``out = w + size * d``."""
    for r in range(len(w)):
        out[r] = w[r] + size * d[r]


@helper
def _search(loss, penalty, step, indices, data, start, stop, z, y, weight, w, g, d, part, scratch, totals):
    """Backtrack along d until Eq. 7 holds, and update w and Z; count the change of F and the tries."""
    k = len(w)
    row = scratch[:k]
    before = row_penalty(penalty, w, step.rho)
    _along(w, 1.0, d, row)
    # Delta of Eq. 7: the decrease that the linear model of the loss predicts for a full step
    predicted = step.scale * _inner(g, d[:k]) + step.alpha * (row_penalty(penalty, row, step.rho) - before)
    size, change = 1.0, 0.0
    copy_vector(d, part)
    for _ in range(_TRIES):
        change += step.scale * _moved(loss, indices, data, start, stop, z, y, weight, part, scratch)
        _along(w, size, d, row)
        total = change + step.alpha * (row_penalty(penalty, row, step.rho) - before)
        totals[_T.tries] += 1.0
        if step.constant or total <= _SIGMA * size * predicted:
            copy_vector(row, w)
            totals[_T.change] += total
            totals[_T.moved] += 1.0
            return
        size *= _BETA
        # Z was moved by part in all; the next part leaves it at size * d
        _along(part, -1.0, part, part)
        _along(part, -size, d, part)
    # no size was good enough: Z goes back to where it was
    _along(part, -size, d, part)
    _moved(loss, indices, data, start, stop, z, y, weight, part, scratch)


@helper
def _stays_zero(penalty, v, step, d, idle, j, below):
    """Whether a zero block with minus the gradient v is optimal; mark it `idle` if it is so at `below` too."""
    row_prox(penalty, v, step.alpha, step.rho, d)
    stays = _is_zero(d)
    if stays and len(idle):
        row_prox(penalty, v, below, step.rho, d)
        idle[j] = _is_zero(d)
    return stays


@helper
def _violation(moves, w, g, step):
    """Return how far a block is from its optimum: L_j |W_j* - W_j|, or as printed the difference of norms of Eq. 9."""
    if step.printed and not _is_zero(w):
        return abs(step.scale * _norm(g) - step.alpha)
    return moves


@kernel
def column_sweep(x, order, w, z, y, weight, loss, penalty, step, totals, idle, below):
    """Do one coordinate pass over the columns `order` of a shard, updating w, z and `totals` in place.

    Parameters
    ----------
    x : rows of X^T
    order : int64 array
        Places of columns in the shard.
    w : float64 array of shape (n_columns of the shard, k)
    step : Step
    totals : float64 array of N_TOTALS, added to
    idle : bool array (n_columns of the shard,), or (0,): set where a zero column stays zero at strength `below` too
    """
    indices, data = row_arrays(x)
    k, width = w.shape[1], padded(w.shape[1])
    g, h, d, part = np.zeros(width), np.zeros(width), np.zeros(width), np.zeros(width)
    own, scratch, v = np.zeros(k), np.zeros(k), np.zeros(k)
    for j in order:
        start, stop = row_span(x, j, indices, data)
        if start == stop:
            continue
        _block_gradient(loss, indices, data, start, stop, z, y, weight, g, own, scratch)
        if _is_zero(w[j]):  # whether it stays zero depends on G_j alone: no curvature, no line search
            for r in range(k):
                v[r] = -step.scale * g[r]
            if _stays_zero(penalty, v, step, d[:k], idle, j, below):
                continue
        if step.constant:
            lipschitz = _constant(loss, indices, data, start, stop, k, weight)
        else:
            lipschitz = _curvature(loss, indices, data, start, stop, z, y, weight, h, own, scratch)
        lipschitz = max(step.loose * lipschitz, _EPSILON / step.scale)
        for r in range(k):
            v[r] = w[j, r] - g[r] / lipschitz
        # In sums over rows: alpha / L of the means is alpha / (scale L).
        row_prox(penalty, v, step.alpha / (step.scale * lipschitz), step.rho, d[:k])
        for r in range(k):
            d[r] -= w[j, r]
        moves = step.scale * lipschitz * _norm(d[:k])
        violation = _violation(moves, w[j], g[:k], step)
        totals[_T.violation] += violation
        totals[_T.largest] = max(totals[_T.largest], violation)
        if moves > 0.0:
            _search(loss, penalty, step, indices, data, start, stop, z, y, weight, w[j], g, d, part, scratch, totals)


# ---------------------------------------------------------------- the intercept


@helper
def _factorise(a):
    """Overwrite the lower triangle of a (k, k) by its Cholesky factor; a class without curvature has a zero there."""
    k = len(a)
    for j in range(k):
        a[j, j] *= 1.0 + _DAMPING
        pivot = a[j, j]
        for c in range(j):
            pivot -= a[j, c] * a[j, c]
        pivot = math.sqrt(pivot) if pivot > 0.0 else 0.0
        a[j, j] = pivot
        for i in range(j + 1, k):
            total = a[i, j]
            for c in range(j):
                total -= a[i, c] * a[j, c]
            a[i, j] = total / pivot if pivot > 0.0 else 0.0


@helper
def _solve(a, d):
    """Overwrite the first k numbers of d by the solution of ``a a^T d = d``, a as `_factorise` leaves it."""
    k = len(a)
    for j in range(k):
        for c in range(j):
            d[j] -= a[j, c] * d[c]
        d[j] = d[j] / a[j, j] if a[j, j] > 0.0 else 0.0
    for j in range(k - 1, -1, -1):
        for i in range(j + 1, k):
            d[j] -= a[i, j] * d[i]
        d[j] = d[j] / a[j, j] if a[j, j] > 0.0 else 0.0


@helper
def _is_flat(a):
    """Whether a constant added to all classes has no curvature, by the lower triangle of the Hessian a."""
    trace, total = 0.0, 0.0
    for i in range(len(a)):
        trace += a[i, i]
        for j in range(i):
            total += 2.0 * a[i, j]
    return abs(trace + total) <= _DAMPING * trace


@helper
def _centre(a, d):
    """Subtract the mean of a step from it, over the classes with curvature, a as `_factorise` leaves it.

    The direction has no curvature but the damping's, so that rounding of the gradient is 1e7 times as large in it, and
    other weights of the same rows lead away from each other.
    """
    total, count = 0.0, 0
    for r in range(len(a)):
        if a[r, r] > 0.0:
            total += d[r]
            count += 1
    for r in range(len(a)):
        if a[r, r] > 0.0:
            d[r] -= total / count


@helper
def _newton(loss, n, z, y, weight, hessian, d, scratch):
    """Overwrite d, minus the gradient in the intercept times sum_i s_i, by the Newton step."""
    hessian[:] = 0.0
    for i in range(n):
        factor = weight[i] if len(weight) else 1.0
        add_score_hessian(loss, z, i, y, factor, hessian, scratch)
    flat = _is_flat(hessian)
    _factorise(hessian)
    _solve(hessian, d)
    if flat:
        _centre(hessian, d)


@kernel
def intercept_step(x, b, z, y, weight, loss, step, hessian, totals):
    """Do a Newton step of the intercept, updating b, z and `totals` in place.

    Its block is not penalised, so its violation is the norm of its gradient, which `totals` get as of one column.

    Parameters
    ----------
    x : DenseRows of one row of ones
    b : float64 (k,)
    step : Step of alpha 0 with a line search
    hessian : float64 (k, k), scratch; or (0, 0): the step of each class is its own, by the second derivative
    totals : as of `column_sweep`

    Returns
    -------
    The longest part of the step, in units of scores.
    """
    indices, data = row_arrays(x)
    start, stop = row_span(x, 0, indices, data)
    k = len(b)
    width = padded(k)
    g, h, d, part = np.zeros(width), np.zeros(width), np.zeros(width), np.zeros(width)
    own, scratch = np.zeros(k), np.zeros(k)
    _block_gradient(loss, indices, data, start, stop, z, y, weight, g, own, scratch)
    violation = step.scale * _norm(g[:k])
    totals[_T.violation] += violation
    totals[_T.largest] = max(totals[_T.largest], violation)
    for c in range(k):
        d[c] = -g[c]
    if len(hessian):
        _newton(loss, len(z), z, y, weight, hessian, d, scratch)
    else:
        least = max(_curvature(loss, indices, data, start, stop, z, y, weight, h, own, scratch), 1.0) * _EPSILON
        for r in range(k):
            d[r] /= max(descent_factor(loss) * (h[r] + own[r]), least)
    longest = 0.0
    for r in range(k):
        longest = max(longest, abs(d[r]))
    # Below it the promised decrease is lost in the rounding of the scores, and the search would only fail.
    if -step.scale * _inner(g, d[:k]) > (_NO_GAIN_SINGLE if z.itemsize == 4 else _NO_GAIN):
        _search(loss, 0, step, indices, data, start, stop, z, y, weight, b, g, d, part, scratch, totals)
    return longest
