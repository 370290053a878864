"""Stochastic steps with a diagonal metric, and dense parts done every `skip` rows (SGD-QN paper, Figures 1 and 2).

Row t of a lane (t counts from 1; tau = t - 1 + t0 is the paper's t + t0) changes the weights of its non-zeros,

    W_jc <- W_jc - s_t g_c x_tj D_jc,        and every `skip` rows        W_jc <- W_jc - skip alpha D_jc W_jc.

D is the diagonal of the metric, over tau:

- NONE: ``1 / (alpha tau)``. SVMSGD2 (Figure 1); with skip = 1 plain SGD as the paper has it, O(d k) a row.
- PAPER: ``B_jc / tau``. SGD-QN (Figure 2) as printed: B starts at 1/alpha; the row after each dense part is learned
  from, and its own secant, w_(t+1) - w_t over the change of its gradient, moves B by 2/r of the way (to 1/alpha where
  x_tj or the slope is 0), kept above 0.01/alpha. On dense data it stays a multiple of the identity: the ratio does not
  contain x_tj.
- SECANT: ``1 / (alpha tau + C_jc)``. The row after each dense part sees the displacement since the last such row,
  delta: C grows by skip times ``dl_c x_tj / delta_jc``, dl the change of the row's slopes, kept between 0 and 99 alpha.
- GAUSS_NEWTON: the same form, C growing at each row by the diagonal of its Hessian, ``s_t h_c x_tj^2``, h the second
  derivative of the loss in the score.

In the last two, ``alpha tau + C`` is the accumulated curvature: tau times its mean, so that D is the inverse of the
mean curvature over tau as in Equation 2. An intercept, which the paper has not, is not penalised and has MCID's steps.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from distls.workers.kernels._jit import kernel
from distls.workers.kernels.linear import (
    check_widths,
    row_arrays,
    row_scores,
    row_span,
    row_update,
    row_weight,
)
from distls.workers.kernels.stochastic import prefetch_row
from distls.workers.losses import (
    SLOPES_IN_G,
    BinaryHinge,
    BinaryLog,
    BinarySquaredHinge,
    Loss,
    OvrHinge,
    OvrLog,
    OvrSquaredHinge,
    Softmax,
    Squared,
    add_slopes,
    code_of,
    target_slopes,
)

__all__ = ["METRICS", "ScheduledSettings", "scheduled_block", "scheduled_settings"]

METRICS = {"none": 0, "paper": 1, "secant": 2, "gauss-newton": 3}
_NONE, _PAPER, _SECANT, _GAUSS_NEWTON = (
    METRICS[name] for name in ("none", "paper", "secant", "gauss-newton")
)

_LEAST_B = 1e-2  # times 1/alpha: Figure 2, line 8
_MOST_CURVATURE = 99.0  # times alpha
_ROWS_AHEAD = 2


class ScheduledSettings(NamedTuple):
    """What `scheduled_block` is told; build it with `scheduled_settings`.

    Attributes
    ----------
    alpha : float, > 0
    t0 : float, > 0
    skip : int, >= 1
    metric : int, a value of `METRICS`
    fit_intercept : bool
    loss : a member of `LOSSES` or `BINARY_LOSSES` whose slopes are not a pair
    """

    alpha: float
    t0: float
    skip: int
    metric: int
    fit_intercept: bool
    loss: Loss


def scheduled_settings(
    loss: Loss, alpha: float, t0: float, skip: int, *, metric: str = "none", fit_intercept: bool = False
) -> ScheduledSettings:
    """Return settings of the one set of types that kernels are compiled for."""
    if not alpha > 0 or not t0 > 0 or skip < 1:
        raise ValueError(f"need alpha > 0, t0 > 0, skip >= 1: got {alpha}, {t0}, {skip}")
    return ScheduledSettings(float(alpha), float(t0), int(skip), METRICS[metric], bool(fit_intercept), loss)


def _curvatures(loss: Loss, y: Any, g: Any, h: Any) -> None:
    """Set h to the second derivatives of a loss in the scores, from its slopes g at class y."""
    raise NotImplementedError


@overload(_curvatures)
def _curvatures_overload(loss, y, g, h):
    def none(loss, y, g, h):
        h[:] = 0

    def one(loss, y, g, h):
        h[:] = 1

    def where_short(loss, y, g, h):
        for c in range(len(g)):
            h[c] = g.dtype.type(1.0 if g[c] != 0.0 else 0.0)

    def logistic(loss, y, g, h):
        for c in range(len(g)):
            size = abs(g[c])  # 1 - p of the row's class, p of the others
            h[c] = size * (g.dtype.type(1.0) - size)

    kinds = {
        OvrHinge: none, BinaryHinge: none, Squared: one, OvrSquaredHinge: where_short, BinarySquaredHinge: where_short,
        OvrLog: logistic, BinaryLog: logistic, Softmax: logistic,
    }  # fmt: skip
    return kinds[loss.instance_class]


@kernel
def _row_step(columns, values, factor, tau, alpha, metric, g, h, w, diagonal):
    """Take the row's step in the metric; Gauss-Newton's learns from the row first (factor is -s_t)."""
    k, kind, length = len(g), w.dtype.type, len(columns)
    if metric == _GAUSS_NEWTON:
        for c in range(k):
            if h[c] > 0.0:
                grow = kind(-factor) * h[c]
                for p in range(length):
                    x = kind(values[p])
                    diagonal[np.intp(columns[p]), c] += grow * x * x
    for c in range(k):
        if g[c] != 0.0:  # a NaN goes on
            slope, floor, one = kind(factor) * g[c], kind(alpha * tau), kind(1.0)
            if metric == _PAPER:
                slope /= kind(tau)
                for p in range(length):
                    j = np.intp(columns[p])
                    w[j, c] += slope * kind(values[p]) * diagonal[j, c]
            else:
                for p in range(length):
                    j = np.intp(columns[p])
                    w[j, c] += slope * kind(values[p]) * (one / (floor + diagonal[j, c]))


@kernel
def _decay(w, diagonal, tau, settings):
    """Do the dense part: ``W <- W - skip alpha D W``; never beyond zero."""
    kind = w.dtype.type
    share = settings.skip * settings.alpha
    if settings.metric == _NONE:
        factor = kind(max(1.0 - settings.skip / tau, 0.0))
        for j in range(len(w)):
            for c in range(w.shape[1]):
                w[j, c] *= factor
    elif settings.metric == _PAPER:
        for j in range(len(w)):
            for c in range(w.shape[1]):
                w[j, c] *= kind(max(1.0 - share / tau * diagonal[j, c], 0.0))
    else:
        floor = settings.alpha * tau
        for j in range(len(w)):
            for c in range(w.shape[1]):
                w[j, c] *= kind(max(1.0 - share / (floor + diagonal[j, c]), 0.0))


@kernel
def _learn_paper(columns, values, slopes, after, factor, tau, r, alpha, diagonal):
    """Move B towards the row's own secants (Figure 2, lines 6 to 8): its slopes before and after its step."""
    kind, share, top = diagonal.dtype.type, 2.0 / r, 1.0 / alpha
    least = _LEAST_B * top
    k, length = diagonal.shape[1], len(columns)
    steps = np.empty((length, k))
    for p in range(length):
        j, x = np.intp(columns[p]), np.float64(values[p])
        for c in range(k):
            moved = factor / tau * slopes[c] * x * diagonal[j, c]
            ratio = top
            if moved != 0.0:
                ratio = moved / (alpha * moved + (np.float64(after[c]) - np.float64(slopes[c])) * x)
            steps[p, c] = diagonal[j, c] + share * (ratio - diagonal[j, c])
    for j in range(len(diagonal)):
        for c in range(k):
            diagonal[j, c] = kind(max(diagonal[j, c] + share * (top - diagonal[j, c]), least))
    for p in range(length):
        for c in range(k):
            diagonal[np.intp(columns[p]), c] = kind(max(steps[p, c], least))


@kernel
def _learn_secant(columns, values, slopes, before, w, previous, settings, diagonal):
    """Let C grow by what the row sees of the displacement since the last dense part: its slopes now and there."""
    kind, most = diagonal.dtype.type, _MOST_CURVATURE * settings.alpha
    for p in range(len(columns)):
        j, x = np.intp(columns[p]), np.float64(values[p])
        for c in range(diagonal.shape[1]):
            moved, change = np.float64(w[j, c]) - np.float64(previous[j, c]), slopes[c] - before[c]
            if moved != 0.0 and change != 0.0:
                seen = np.float64(change) * x / moved
                diagonal[j, c] += kind(settings.skip * min(max(seen, 0.0), most))


@kernel
def _slopes(columns, values, w, b, y, i, settings, z, g):
    """Set g to the slopes of row i at other weights."""
    row_scores(columns, values, 0, len(columns), w, z)
    _add(z, b, settings.fit_intercept)
    _, rival, _ = target_slopes(settings.loss, z, 1.0, y, i, g)
    if rival != SLOPES_IN_G:
        g[:] = 0


@kernel
def scheduled_block(rows, y, weight, order, w, b, diagonal, previous, clock, settings):
    """Train on the rows `order` of one block, in that order.

    Parameters
    ----------
    rows : CsrRows or DenseRows
    y : int32 (n_rows,), class codes, or float64 (n_rows, k), numbers
    weight : float64 (n_rows,), s_i with mean 1 over the data set; or (0,) for all ones
    order : int64 (m,), rows to visit
    w : float32 or float64 (n_features, k), C-ordered; mutated
    b : float64 (k,), mutated if `fit_intercept`, else zeros
    diagonal : as w: B of PAPER, C of SECANT and GAUSS_NEWTON; mutated; (0, k) of NONE
    previous : as w: the weights after the last dense part, of SECANT; mutated; (0, k) of others
    clock : float64 (1,), rows learned from; mutated
    settings : ScheduledSettings

    Returns
    -------
    loss_sum : sum_i s_i * loss_i, each at the weights before its own step, float64
    errors : rows whose class did not have the highest score then; 0 for numbers
    """
    check_widths(w, b)
    metric, alpha, skip = settings.metric, settings.alpha, settings.skip
    if (metric != _NONE and diagonal.shape != w.shape) or (metric == _SECANT and previous.shape != w.shape):
        raise ValueError("the metric needs a number for every weight")
    k, n, t = len(b), len(order), clock[0]
    z, g, other, h = np.empty(k, w.dtype), np.empty(k, w.dtype), np.empty(k, w.dtype), np.empty(k, w.dtype)
    indices, data = row_arrays(rows)
    loss_sum, errors = 0.0, 0
    for at in range(n):
        i = np.intp(order[at])
        prefetch_row(rows, np.intp(order[min(at + _ROWS_AHEAD, n - 1)]))
        start, stop = row_span(rows, i, indices, data)
        columns, values = indices[start:stop], data[start:stop]
        tau = t + settings.t0
        row_scores(indices, data, start, stop, w, z)
        _add(z, b, settings.fit_intercept)
        value, rival, best = target_slopes(settings.loss, z, 1.0, y, i, g)
        s, label = row_weight(weight, i), code_of(y, i)
        loss_sum += s * value
        errors += best != label
        learning = t >= skip and t % skip == 0.0  # the row after a dense part
        flat = rival != SLOPES_IN_G
        if flat:
            g[:] = 0
        if learning and metric == _SECANT:
            _slopes(columns, values, previous, b, y, i, settings, z, other)
            _learn_secant(columns, values, g, other, w, previous, settings, diagonal)
            previous[:] = w
        if not flat:
            if metric == _NONE:
                row_update(indices, data, start, stop, -s / (alpha * tau), rival, label, g, w)
            else:
                _curvatures(settings.loss, label, g, h)
                _row_step(columns, values, -s, tau, alpha, metric, g, h, w, diagonal)
            if settings.fit_intercept:
                add_slopes(-s * min(1.0 / (alpha * tau), 1.0 / math.sqrt(tau)), rival, label, g, b)
        if learning and metric == _PAPER:
            _slopes(columns, values, w, b, y, i, settings, z, other)
            _learn_paper(columns, values, g, other, -s, tau, 1.0 + t // skip, alpha, diagonal)
        t += 1.0
        if t % skip == 0.0:
            _decay(w, diagonal, tau, settings)
    clock[0] = t
    return loss_sum, errors


@kernel
def _add(z, b, fit_intercept):
    if fit_intercept:
        for c in range(len(z)):
            z[c] += z.dtype.type(b[c])
