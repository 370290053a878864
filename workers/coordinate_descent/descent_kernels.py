"""Sweeps of block coordinate descent over columns, on the scores Z = XW of all rows (its paper's Algorithms 1-3).

A shard is read as the rows of X^T: `CsrRows` or `DenseRows`, one row a column of X. For each column j of an order

    G_j = sum_i s_i x_ij g_i,    h_j = sum_i s_i x_ij^2 g'_i        (Eq. 5 and 6; g_i, g'_i derivatives in the scores)
    W_j* = prox_{alpha/L}(W_j - G_j / L),    L = max_r h_jr or the constant K_j                       (Eq. 3 and 4)
    W_j <- W_j + eta (W_j* - W_j),           Z_i <- Z_i + eta x_ij (W_j* - W_j)                            (Eq. 7)

with eta = 1, 1/2, 1/4, ... until F falls as Eq. 7 asks. The derivatives are made anew from the scores at each non-zero.
A block that is zero and stays zero costs G_j alone; one without data nothing.

Shapes: w (n_columns, k); z (n_rows, k), float32 or float64; y int32 (n_rows,), or `LabelSets` for the squared hinges;
weight float64 (n_rows,) or (0,) for all ones; all arithmetic float64. Vectors of classes are padded (see
`distls.workers.coordinate_descent.slack_kernels`).

Sums keep the order they are written in. Were they reassociated, a function that is called and not inlined could have
other last bits in the process that compiles it than in those that load the caller from the disk cache, which holds a
copy that was optimised once more.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload, register_jitable

from distls.workers.compilation.jit import elementwise, elementwise_helper
from distls.workers.coordinate_descent.slack_kernels import (
    LANES,
    prefetch_row,
    slack_curvature,
    slack_gradient,
    slack_move,
)
from distls.workers.linear_algebra.score_kernels import row_arrays, row_span
from distls.workers.losses.registry import MulticlassSquaredHinge, MultitaskSquaredHinge, Softmax, row_slopes
from distls.workers.penalties.registry import row_penalty, row_prox

__all__ = ["N_TOTALS", "LabelSets", "Step", "Totals", "column_sweep", "loss_of_scores", "set_slopes"]

_SIGMA, _BETA = 0.01, 0.5  # Eq. 7
_TRIES = 40  # 2^-39 of a step is as good as none
_EPSILON = 1e-12
_AHEAD = 12  # non-zeros: how far before their use scores are fetched


class LabelSets(NamedTuple):
    """The label codes of each row: row i has ``indices[indptr[i]:indptr[i + 1]]``, each code at most once.

    Attributes
    ----------
    indptr : int64 array of shape (n_rows + 1,)
    indices : int32 array
    """

    indptr: Any
    indices: Any


class Step(NamedTuple):
    """How far a block goes, and what it is charged for.

    Attributes
    ----------
    alpha, rho : float
        Strength of the penalty, and `l1_ratio`.
    scale : float
        1 / sum_i s_i.
    constant : bool
        L = K_j, without a line search (Richtarik and Takac), else L = max h_j (Tseng and Yun).
    """

    alpha: float
    rho: float
    scale: float
    constant: bool


class Totals(NamedTuple):
    """Places of a sweep's totals."""

    violation: int = 0  # sum of L_j |W_j* - W_j|, Eq. 9 where W_j = 0
    largest: int = 1  # of them
    change: int = 2  # of F
    moved: int = 3  # blocks
    tries: int = 4  # of the line search


N_TOTALS = len(Totals._fields)
_T = Totals()


# ---------------------------------------------------------------- one non-zero under each loss


def _add_gradient(loss, z, i, y, factor, g, own, scratch):
    """Add ``factor`` times the slopes of row i to g, but for what belongs to its own class alone: that to own[y]."""


def _add_curvature(loss, z, i, y, factor, h, own, scratch):
    """Add ``factor`` times the second derivatives of row i to h and own[y] likewise."""


def _move(loss, z, i, y, x, d, scratch):
    """Add ``x * d`` to the scores of row i and return the change of its loss."""


def _slope_factor(loss):
    """Return what g + own is to be multiplied by."""


def _lipschitz(loss, k):
    """Return K_j / sum_i s_i x_ij^2: sharp, not the paper's 4 (k - 1) (docs/papers.md)."""


def _row_loss(loss, z, y, i, slopes):
    """Return the loss of row i, whose scores are the vector z."""


@register_jitable
def _square_of_slack(a):
    return 0.0 if a <= 0.0 else a * a


@register_jitable
def _change_of_square(new, old):
    """Return ``max(new, 0)^2 - max(old, 0)^2``; near the optimum the squares cancel."""
    after, before = 0.0 if new <= 0.0 else new, 0.0 if old <= 0.0 else old
    return (after - before) * (after + before)


@register_jitable
def _own_correction(z, own):
    """Return the loss of the row's own class less what counting it as any other class would add."""
    return _square_of_slack(1.0 - own) - _square_of_slack(1.0 + own)


@overload(_add_gradient, inline="always")
def _add_gradient_overload(loss, z, i, y, factor, g, own, scratch):
    def multiclass(loss, z, i, y, factor, g, own, scratch):
        own[y[i]] -= factor * slack_gradient(z, i, 1.0 - np.float64(z[i, y[i]]), factor, g)

    def ranking(loss, z, i, y, factor, g, own, scratch):
        labels = y.indices[y.indptr[i] : y.indptr[i + 1]]
        for a in labels:
            c = 1.0 - np.float64(z[i, a])
            total = slack_gradient(z, i, c, factor, g)
            for b in labels:  # a label has no slack against another one of the row
                slack = max(np.float64(z[i, b]) + c, 0.0)
                own[b] -= factor * slack
                total -= slack
            own[a] -= factor * total

    def multitask(loss, z, i, y, factor, g, own, scratch):
        slack_gradient(z, i, 1.0, factor, g)
        score = np.float64(z[i, y[i]])
        own[y[i]] -= factor * (max(1.0 - score, 0.0) + max(1.0 + score, 0.0))

    def labels_apart(loss, z, i, y, factor, g, own, scratch):
        slack_gradient(z, i, 1.0, factor, g)
        for a in y.indices[y.indptr[i] : y.indptr[i + 1]]:
            score = np.float64(z[i, a])
            own[a] -= factor * (max(1.0 - score, 0.0) + max(1.0 + score, 0.0))

    def softmax(loss, z, i, y, factor, g, own, scratch):
        by = factor / _exponentials(z, i, scratch)
        for r in range(z.shape[1]):
            g[r] += by * scratch[r]
        own[y[i]] -= factor

    return _chosen(loss, y, (multiclass, ranking), (multitask, labels_apart), softmax)


@overload(_add_curvature, inline="always")
def _add_curvature_overload(loss, z, i, y, factor, h, own, scratch):
    def multiclass(loss, z, i, y, factor, h, own, scratch):
        # the row's own class counts its rivals, not itself; it is among those counted, and in h[y] once
        own[y[i]] += factor * (slack_curvature(z, i, 1.0 - np.float64(z[i, y[i]]), factor, h) - 2.0)

    def ranking(loss, z, i, y, factor, h, own, scratch):
        labels = y.indices[y.indptr[i] : y.indptr[i + 1]]
        for a in labels:
            c = 1.0 - np.float64(z[i, a])
            rivals = slack_curvature(z, i, c, factor, h)
            for b in labels:
                within = 1.0 if np.float64(z[i, b]) + c > 0.0 else 0.0
                own[b] -= factor * within
                rivals -= within
            own[a] += factor * rivals

    def multitask(loss, z, i, y, factor, h, own, scratch):
        slack_curvature(z, i, 1.0, factor, h)
        score = np.float64(z[i, y[i]])
        own[y[i]] += factor * ((1.0 if score < 1.0 else 0.0) - (1.0 if score > -1.0 else 0.0))

    def labels_apart(loss, z, i, y, factor, h, own, scratch):
        slack_curvature(z, i, 1.0, factor, h)
        for a in y.indices[y.indptr[i] : y.indptr[i + 1]]:
            score = np.float64(z[i, a])
            own[a] += factor * ((1.0 if score < 1.0 else 0.0) - (1.0 if score > -1.0 else 0.0))

    def softmax(loss, z, i, y, factor, h, own, scratch):
        inverse = 1.0 / _exponentials(z, i, scratch)
        for r in range(z.shape[1]):
            p = inverse * scratch[r]
            h[r] += factor * p * (1.0 - p)

    return _chosen(loss, y, (multiclass, ranking), (multitask, labels_apart), softmax)


@elementwise_helper
def _move_ranked(z, i, labels, x, d, scratch):
    for r in range(z.shape[1]):
        scratch[r] = z[i, r]
        z[i, r] += x * d[r]
    change = 0.0
    for a in labels:
        before, after = 1.0 - scratch[a], 1.0 - np.float64(z[i, a])
        for r in range(z.shape[1]):
            change += _change_of_square(np.float64(z[i, r]) + after, scratch[r] + before)
        for b in labels:
            change -= _change_of_square(np.float64(z[i, b]) + after, scratch[b] + before)
    return change


@overload(_move, inline="always")
def _move_overload(loss, z, i, y, x, d, scratch):
    def multiclass(loss, z, i, y, x, d, scratch):
        old = np.float64(z[i, y[i]])
        new = np.float64(z.dtype.type(old + x * d[y[i]]))
        return slack_move(z, i, 1.0 - old, 1.0 - new, x, d)

    def ranking(loss, z, i, y, x, d, scratch):
        return _move_ranked(z, i, y.indices[y.indptr[i] : y.indptr[i + 1]], x, d, scratch)

    def multitask(loss, z, i, y, x, d, scratch):
        old = np.float64(z[i, y[i]])
        change = slack_move(z, i, 1.0, 1.0, x, d)
        return change + _own_correction(z, np.float64(z[i, y[i]])) - _own_correction(z, old)

    def labels_apart(loss, z, i, y, x, d, scratch):
        labels = y.indices[y.indptr[i] : y.indptr[i + 1]]
        for a in labels:
            scratch[a] = z[i, a]
        change = slack_move(z, i, 1.0, 1.0, x, d)
        for a in labels:
            change += _own_correction(z, np.float64(z[i, a])) - _own_correction(z, scratch[a])
        return change

    def softmax(loss, z, i, y, x, d, scratch):
        before = _log_loss(z, i, y[i], scratch)
        for r in range(z.shape[1]):
            z[i, r] += x * d[r]
        return _log_loss(z, i, y[i], scratch) - before

    return _chosen(loss, y, (multiclass, ranking), (multitask, labels_apart), softmax)


@overload(_row_loss, inline="always")
def _row_loss_overload(loss, z, y, i, slopes):
    def of_class(loss, z, y, i, slopes):
        return row_slopes(loss, z, 1.0, np.intp(y[i]), slopes)[0]

    def ranking(loss, z, y, i, slopes):
        labels = y.indices[y.indptr[i] : y.indptr[i + 1]]
        total = 0.0
        for a in labels:
            for r in range(len(z)):
                total += _square_of_slack(1.0 - z[a] + z[r])
            for b in labels:
                total -= _square_of_slack(1.0 - z[a] + z[b])
        return total

    def labels_apart(loss, z, y, i, slopes):
        total = 0.0
        for r in range(len(z)):
            total += _square_of_slack(1.0 + z[r])
        for a in y.indices[y.indptr[i] : y.indptr[i + 1]]:
            total += _own_correction(z, z[a])
        return total

    return _chosen(loss, y, (of_class, ranking), (of_class, labels_apart), of_class)


@overload(_slope_factor, inline="always")
def _slope_factor_overload(loss):
    factor = 1.0 if loss.instance_class is Softmax else 2.0
    return lambda loss: factor


@overload(_lipschitz, inline="always")
def _lipschitz_overload(loss, k):
    # sets of labels have the constants of classes: (label, rival) pairs are edges of a complete bipartite graph
    if loss.instance_class is MulticlassSquaredHinge:
        return lambda loss, k: 2.0 * k
    factor = 0.5 if loss.instance_class is Softmax else 2.0
    return lambda loss, k: factor


def _chosen(loss: Any, y: Any, multiclass: Any, multitask: Any, softmax: Any) -> Any:
    """Return what a loss needs: of the squared hinges that for classes or for sets of labels."""
    sets = not isinstance(y, types.Array)
    table = {MulticlassSquaredHinge: multiclass[sets], MultitaskSquaredHinge: multitask[sets]}
    return softmax if loss.instance_class is Softmax and not sets else table[loss.instance_class]


@elementwise_helper
def _exponentials(z, i, scratch):
    """Set ``scratch = exp(z_i - max z_i)`` and return the sum."""
    top = z[i, 0]
    for r in range(1, z.shape[1]):
        top = max(top, z[i, r])
    for r in range(z.shape[1]):
        scratch[r] = math.exp(np.float64(z[i, r]) - np.float64(top))
    total = 0.0
    for r in range(z.shape[1]):
        total += scratch[r]
    return total


@elementwise_helper
def _log_loss(z, i, y, scratch):
    top = z[i, 0]
    for r in range(1, z.shape[1]):
        top = max(top, z[i, r])
    return math.log(_exponentials(z, i, scratch)) + np.float64(top) - np.float64(z[i, y])


# ---------------------------------------------------------------- one block


@elementwise
def _gradient(loss, indices, data, start, stop, z, y, weight, g, own, scratch):
    """Set g to G_j times sum_i s_i."""
    g[:], own[:] = 0.0, 0.0
    for p in range(start, stop):
        i = np.intp(indices[p])
        prefetch_row(z, np.intp(indices[min(p + _AHEAD, stop - 1)]))
        factor = np.float64(data[p])
        if len(weight):
            factor *= weight[i]
        _add_gradient(loss, z, i, y, factor, g, own, scratch)
    by = _slope_factor(loss)
    for r in range(len(own)):
        g[r] = by * (g[r] + own[r])


@elementwise
def _curvature(loss, indices, data, start, stop, z, y, weight, h, own, scratch):
    """Return max_r h_jr times sum_i s_i (Eq. 6)."""
    h[:], own[:] = 0.0, 0.0
    for p in range(start, stop):
        i = np.intp(indices[p])
        prefetch_row(z, np.intp(indices[min(p + _AHEAD, stop - 1)]))
        x = np.float64(data[p])
        factor = x * x
        if len(weight):
            factor *= weight[i]
        _add_curvature(loss, z, i, y, factor, h, own, scratch)
    largest = 0.0
    for r in range(len(own)):
        largest = max(largest, h[r] + own[r])
    return _slope_factor(loss) * largest


@elementwise
def _constant(loss, indices, data, start, stop, k, weight):
    """Return K_j times sum_i s_i."""
    total = 0.0
    for p in range(start, stop):
        x = np.float64(data[p])
        factor = x * x
        if len(weight):
            factor *= weight[np.intp(indices[p])]
        total += factor
    return _lipschitz(loss, k) * total


@elementwise_helper
def _moved(loss, indices, data, start, stop, z, y, weight, d, scratch):
    """Add ``x_ij d`` to the scores of all rows; return the change of the loss times sum_i s_i."""
    total = 0.0
    for p in range(start, stop):
        i = np.intp(indices[p])
        prefetch_row(z, np.intp(indices[min(p + _AHEAD, stop - 1)]))
        change = _move(loss, z, i, y, np.float64(data[p]), d, scratch)
        if len(weight):
            change *= weight[i]
        total += change
    return total


@elementwise_helper
def _is_zero(w):
    for r in range(len(w)):  # noqa: SIM110 (numba has no `all`)
        if w[r] != 0.0:
            return False
    return True


@elementwise_helper
def _norm(d):
    total = 0.0
    for r in range(len(d)):
        total += d[r] * d[r]
    return math.sqrt(total)


@elementwise_helper
def _inner(a, b):
    total = 0.0
    for r in range(len(b)):
        total += a[r] * b[r]
    return total


@elementwise_helper
def _along(w, size, d, out):
    """Set ``out = w + size * d``."""
    for r in range(len(w)):
        out[r] = w[r] + size * d[r]


@elementwise_helper
def _search(loss, penalty, step, indices, data, start, stop, z, y, weight, w, g, d, part, scratch, totals):
    """Go from w along d as far as Eq. 7 allows, and change w and Z so; count the change of F and the tries."""
    k = len(w)
    row = scratch[:k]
    before = row_penalty(penalty, w, step.rho)
    _along(w, 1.0, d, row)
    slope = step.scale * _inner(g, d[:k]) + step.alpha * (row_penalty(penalty, row, step.rho) - before)
    size, change = 1.0, 0.0
    part[:] = d
    for _ in range(_TRIES):
        change += step.scale * _moved(loss, indices, data, start, stop, z, y, weight, part, scratch)
        _along(w, size, d, row)
        total = change + step.alpha * (row_penalty(penalty, row, step.rho) - before)
        totals[_T.tries] += 1.0
        if step.constant or total <= _SIGMA * size * slope:
            w[:] = row
            totals[_T.change] += total
            totals[_T.moved] += 1.0
            return
        size *= _BETA
        _along(part, -1.0, part, part)
        _along(part, -size, d, part)
    _along(part, -size, d, part)
    _moved(loss, indices, data, start, stop, z, y, weight, part, scratch)


@elementwise
def column_sweep(x, order, w, z, y, weight, loss, penalty, step, totals):
    """Do one sweep over the columns `order` of a shard, in place of w and z.

    Parameters
    ----------
    x : rows of X^T
    order : int64 array
        Places of columns in the shard.
    w : float64 array of shape (n_columns of the shard, k)
    step : Step
    totals : float64 array of N_TOTALS
        What was done is added.
    """
    indices, data = row_arrays(x)
    k = w.shape[1]
    width = (k + LANES - 1) // LANES * LANES
    g, h, d, part = np.zeros(width), np.zeros(width), np.zeros(width), np.zeros(width)
    own, scratch, v = np.zeros(k), np.zeros(k), np.zeros(k)
    for j in order:
        start, stop = row_span(x, j, indices, data)
        if start == stop:
            continue
        _gradient(loss, indices, data, start, stop, z, y, weight, g, own, scratch)
        if _is_zero(w[j]):
            for r in range(k):
                v[r] = -step.scale * g[r]
            row_prox(penalty, v, step.alpha, step.rho, d[:k])
            if _is_zero(d[:k]):
                continue
        if step.constant:
            lipschitz = _constant(loss, indices, data, start, stop, k, weight)
        else:
            lipschitz = _curvature(loss, indices, data, start, stop, z, y, weight, h, own, scratch)
        lipschitz = max(lipschitz, _EPSILON / step.scale)
        for r in range(k):
            v[r] = w[j, r] - g[r] / lipschitz
        row_prox(penalty, v, step.alpha / (step.scale * lipschitz), step.rho, d[:k])
        for r in range(k):
            d[r] -= w[j, r]
        violation = step.scale * lipschitz * _norm(d[:k])
        totals[_T.violation] += violation
        totals[_T.largest] = max(totals[_T.largest], violation)
        if violation > 0.0:
            _search(
                loss,
                penalty,
                step,
                indices,
                data,
                start,
                stop,
                z,
                y,
                weight,
                w[j],
                g,
                d,
                part,
                scratch,
                totals,
            )


# ---------------------------------------------------------------- rows


@elementwise
def loss_of_scores(z, change, size, y, weight, loss):
    """Return ``sum_i s_i loss(y_i, z_i + size * change_i)``."""
    scratch, slopes = np.empty(z.shape[1]), np.empty(z.shape[1])
    total = 0.0
    for i in range(len(z)):
        for r in range(z.shape[1]):
            scratch[r] = np.float64(z[i, r]) + size * np.float64(change[i, r])
        total += _row_loss(loss, scratch, y, i, slopes) * (weight[i] if len(weight) else 1.0)
    return total


@elementwise
def set_slopes(z, y, loss, slopes, values):
    """Set slopes (n_rows, k) and losses (n_rows,) of rows with sets of labels, all float64."""
    k = z.shape[1]
    width = (k + LANES - 1) // LANES * LANES
    g, own, scratch = np.zeros(width), np.zeros(k), np.zeros(k)
    for i in range(len(z)):
        g[:], own[:] = 0.0, 0.0
        _add_gradient(loss, z, i, y, 1.0, g, own, scratch)
        for r in range(k):
            slopes[i, r] = _slope_factor(loss) * (g[r] + own[r])
            scratch[r] = z[i, r]
        values[i] = _row_loss(loss, scratch, y, i, own)
