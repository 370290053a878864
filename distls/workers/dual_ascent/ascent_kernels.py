"""Stochastic dual coordinate ascent over the rows of a block (Shalev-Shwartz and Zhang 2013; proximal form 2014).

At row i the dual is maximised over the row's own duals a_i (`distls.workers.losses.row_functions.dual_step`), and the
weights follow: with ``U = sum_i s_i x_i a_i^T / (alpha n)`` they are ``W = shrink(U, l1) / (1 - l1)``, U itself for l2.
A lane of K sees its own changes magnified by `sigma_prime` (CoCoA+: 1 <= sigma_prime <= K), as if the others did the
same.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="arg-type"
from typing import NamedTuple

import numpy as np

from distls.workers.compilation.jit import helper, kernel
from distls.workers.linear_algebra.prefetch import prefetch_row
from distls.workers.linear_algebra.score_kernels import (
    check_widths,
    row_arrays,
    row_axpy,
    row_scores,
    row_span,
    row_weight,
    single_axpy,
    single_score,
    square_norm,
)
from distls.workers.losses.loss import Loss
from distls.workers.losses.row_functions import code_of, dual_step
from distls.workers.losses.shared_parts import has_single_step, single_dual_step
from distls.workers.simd.vectors import fused, padded

_ROWS_AHEAD = 8  # rows between prefetch and use
_SPARSE = 4  # outputs are updated one by one if fewer than one in this many have moved


class AscentSettings(NamedTuple):
    """Settings of `ascend_rows`."""

    step: float  # sigma_prime / (alpha n): what a row of weight one adds to U
    l1: float  # share of l1 in the penalty, in [0, 1)
    intercept_square: float  # square of the constant feature behind the intercept, 0: none
    loss: Loss  # with a `dual_step`


class Totals(NamedTuple):
    """Places of the sums in `totals`."""

    loss: int = 0  # s_i times the loss of each row before its own step
    before: int = 1  # s_i times the conjugate before and after it
    after: int = 2
    errors: int = 3  # rows predicted wrong before it
    moved: int = 4  # rows whose duals have changed
    # s_i times loss + conjugate + scores . duals before its step: the duality gap, if all rows were at one point
    gap: int = 5


_T = Totals()


@helper
def add_moved(indices, data, start, stop, factor, d, w):
    """Add ``factor * x (x) d`` to w, output by output where d is not zero."""
    for c in range(len(d)):
        if d[c] != 0.0:
            step = w.dtype.type(factor) * d[c]
            for p in range(start, stop):
                j = np.intp(indices[p])
                w[j, c] = fused(step, w.dtype.type(data[p]), w[j, c])


@helper
def _shrink_row(indices, start, stop, u, l1, w):
    """Set the rows of w that belong to a row of the block to those of u, shrunk."""
    kind = w.dtype.type
    threshold, inverse, none = kind(l1), kind(1.0 / (1.0 - l1)), kind(0.0)
    # 1 / (1 - l1) is the inverse of the share of l2.
    for p in range(start, stop):
        j = np.intp(indices[p])
        # Only the features of this row have changed, so only they are shrunk.
        for c in range(w.shape[1]):
            v = u[j, c]
            kept = (v - threshold if v > none else v + threshold) * inverse
            w[j, c] = none if abs(v) <= threshold else kept


@helper
def _add_totals(totals, loss, before, after, errors, moved, gap):
    """Add to the sums that `Totals` names."""
    totals[_T.loss] += loss
    totals[_T.before] += before
    totals[_T.after] += after
    totals[_T.errors] += errors
    totals[_T.moved] += moved
    totals[_T.gap] += gap


@helper
def _add_intercept(b, duals, i, z):
    """Add b to the scores z and return their product with the duals of row i."""
    product = 0.0
    for c in range(len(z)):
        z[c] += z.dtype.type(b[c])
        product += np.float64(z[c]) * np.float64(duals[i, c])
    return product


@helper
def _add_changes(duals, i, d, s, shift, up, down, b):
    """Enter the changes d of the duals of row i in their sums, and ``shift * d`` in the intercept."""
    for c in range(len(d)):
        # From the rounded duals, as stored: sums of what was computed would drift from them.
        new = np.float64(duals[i, c])
        old = new - np.float64(d[c])
        # Positive and negative parts apart, because balancing the intercept scales them separately.
        up[c] += s * (max(new, 0.0) - max(old, 0.0))
        down[c] += s * (max(-new, 0.0) - max(-old, 0.0))
        b[c] += shift * np.float64(d[c])


@helper
def _add_to_weights(indices, data, start, stop, step, d, moved, l1, u, w):
    """Add ``step * x (x) d`` to the weights, of which `moved` outputs change; with l1 to u, and shrink."""
    shrinks = len(u) > 0
    target = u if shrinks else w
    # Few outputs of a hinge move; a column of w at a time saves the others' memory traffic.
    if _SPARSE * moved < len(d):
        add_moved(indices, data, start, stop, step, d, target)
    else:
        row_axpy(indices, data, start, stop, step, d, target)
    if shrinks:
        _shrink_row(indices, start, stop, u, l1, w)


@kernel
def ascend_rows(rows, y, weight, order, w, u, b, duals, up, down, totals, settings):
    """Maximise the dual over the duals of each row in `order`, in that order.

    Parameters
    ----------
    rows : CsrRows or DenseRows
    y : int32 (n_rows,), class codes, or float64 (n_rows, k), numbers
    weight : float64 (n_rows,), s_i with mean 1 over the data set; or (0,) for all ones
    order : int64 (m,), rows to visit
    w : float32 or float64 (n_features, k), C-ordered; mutated
    u : as w: U, mutated, with l1; (0, k) without, where it is w
    b : float64 (k,), mutated if `intercept_square`
    duals : (n_rows, k) of the type of w, mutated
    up, down : float64 (k,), the changes of ``sum_i s_i max(a_ic, 0)`` and ``sum_i s_i max(-a_ic, 0)`` are added
    totals : float64 (6,), sums are added; see `Totals`
    settings : AscentSettings
    """
    # Numba does not check bounds.
    check_widths(w, b)
    if duals.shape[1] != len(b) or (len(u) and u.shape != w.shape):
        raise ValueError("the duals or U have another number of outputs")
    k, n, kind = len(b), len(order), w.dtype.type
    z, d, work = np.empty(k, w.dtype), np.empty(k, w.dtype), np.empty((4, padded(k)))
    indices, data = row_arrays(rows)
    # A flat view: one output needs no second index.
    every, single = w.reshape(w.size), k == 1 and len(u) == 0
    alone = k == 1 and has_single_step(settings.loss)
    start, stop, strength = np.int64(0), np.int64(0), 1.0 / (1.0 - settings.l1)
    loss_sum, before_sum, after_sum, gap_sum, errors, rows_moved = 0.0, 0.0, 0.0, 0.0, 0, 0
    for at in range(n):
        i = np.intp(order[at])
        ahead = min(at + _ROWS_AHEAD, n - 1)
        # rows that follow each other are fetched by the processor itself
        if order[ahead] != order[max(ahead - 2, 0)] + 2:
            prefetch_row(rows, np.intp(order[ahead]))
        s = row_weight(weight, i)
        if s == 0.0:
            # A row of no weight has no dual, and would divide by zero.
            continue
        if single:
            z[0] = single_score(rows, i, every)
        else:
            start, stop = row_span(rows, i, indices, data)
            row_scores(indices, data, start, stop, w, z)
        product, step = _add_intercept(b, duals, i, z), settings.step * s
        # not zero, so that rows without features have a best dual too
        q = max(step * (square_norm(rows, i) * strength + settings.intercept_square), 1e-30)
        if alone:
            own = duals[i, 0]
            # The step in registers; with one output the arrays would cost more than the step.
            changed, value, before, after = single_dual_step(settings.loss, z[0], y, i, q, own)
            duals[i, 0] = kind(changed)
            d[0] = duals[i, 0] - own
            moved, best = int(d[0] != 0.0), int(z[0] > 0.0)
        else:
            value, before, after, moved, best = dual_step(settings.loss, z, y, i, q, duals[i], d, work)
        loss_sum += s * value
        before_sum += s * before
        after_sum += s * after
        # The gap of the row: loss plus conjugate plus product of scores and duals (Fenchel and Young).
        gap_sum += s * (value + before + product)
        errors += best != code_of(y, i)
        # Neither weights nor sums change, which is most visits of a hinge near the optimum.
        if moved == 0:
            continue
        rows_moved += 1
        _add_changes(duals, i, d, s, settings.intercept_square * step, up, down, b)
        if single:
            single_axpy(rows, i, kind(step) * d[0], every)
        else:
            _add_to_weights(indices, data, start, stop, step, d, moved, settings.l1, u, w)
    _add_totals(totals, loss_sum, before_sum, after_sum, errors, rows_moved, gap_sum)
