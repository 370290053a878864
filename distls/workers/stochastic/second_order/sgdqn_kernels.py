"""Stochastic steps with a diagonal metric, and dense updates every `skip` rows (SGD-QN paper, Figures 1 and 2).

Row t of a lane (t counts from 1; tau = t - 1 + t0 is the paper's t + t0) changes the weights of its non-zeros,

    W_jc <- W_jc - s_t g_c x_tj D_jc,        and every `skip` rows        W_jc <- W_jc - skip alpha D_jc W_jc.

D is the diagonal of the metric, over tau:

- NONE: ``1 / (alpha tau)``. SVMSGD2 (Figure 1); with skip = 1 plain SGD as the paper has it, O(d k) a row.
- PAPER: ``B_jc / tau``. SGD-QN (Figure 2) as printed: B starts at 1/alpha; the secant of the row after each dense
  update, w_(t+1) - w_t over the change of its gradient (s_t times, as in the step), moves B by 2/r of the way (to
  1/alpha where x_tj or the gradient is 0), bounded below by 0.01/alpha. On dense data it stays a multiple of the
  identity: the ratio does not contain x_tj.
- SECANT: ``1 / (alpha tau + C_jc)``. The row after each dense update sees the displacement since the last such row,
  delta: C grows by skip times ``s_t dl_c x_tj / delta_jc``, dl the change of the row's gradient, within [0, 99 alpha].
- GAUSS_NEWTON: the same form, C growing at each row by the diagonal of its Hessian, ``s_t h_c x_tj^2``, h the second
  derivative of the loss in the score; as CAPPED, the default, up to `most`, or to what a row adds times the non-zeros
  of a row: from then on a feature has the steps of SVMSGD2 started at C / alpha, some passes late. Without a cap steps
  get too short in flat directions where axes are rotated, so that the diagonal says nothing of them.

SECANT is the corrected algorithm of the authors' erratum (Bordes, Bottou, Gallinari, Chang, Smith 2010, SGDQN is Less
Careful than Expected), which says what is wrong with PAPER's diagonal.

In the last two, ``alpha tau + C`` is the accumulated curvature: tau times its mean, so that D is the inverse of the
mean curvature over tau as in Equation 2. An intercept, which the paper has not, is not penalised and has MCID's steps.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import math
from typing import NamedTuple

import numpy as np

from distls.workers.compilation.array_copy import copy_matrix
from distls.workers.compilation.jit import helper, kernel
from distls.workers.linear_algebra.dense_vectors import add_to_scores, scores_of
from distls.workers.linear_algebra.prefetch import prefetch_row
from distls.workers.linear_algebra.score_kernels import (
    check_widths,
    column_of,
    places,
    row_arrays,
    row_axpy,
    row_scores,
    row_span,
    row_weight,
    single_axpy,
    single_score,
    value_of,
)
from distls.workers.losses.loss import GRADIENT_IN_G, Loss
from distls.workers.losses.row_functions import add_row_gradient, code_of, row_curvature, target_gradient
from distls.workers.simd.vectors import fused

METRICS = {"none": 0, "paper": 1, "secant": 2, "gauss-newton": 3, "capped": 3}
_NONE, _PAPER, _SECANT, _GAUSS_NEWTON = (METRICS[name] for name in ("none", "paper", "secant", "gauss-newton"))

_LEAST_B = 1e-2  # times 1/alpha: Figure 2, line 8
_MOST_CURVATURE = 99.0  # times alpha
_ROWS_AHEAD = 8  # rows between prefetch and use


class SgdqnSettings(NamedTuple):
    """Settings of `sgdqn_block`."""

    loss: Loss  # with a `row_curvature`, and a gradient that is not a pair
    alpha: float  # > 0
    t0: float  # > 0
    skip: int  # >= 1
    metric: int  # a value of `METRICS`
    fit_intercept: bool
    most: float  # that C may grow to: infinity but for CAPPED
    spread: float  # of CAPPED, the non-zeros of a row: C may always be as many times what a row adds


@helper
def _grown(curvature, added, cap):
    """Return C after a row that adds to it, within its cap, (most, spread)."""
    # a row moves its own score by its non-zeros times what each adds over C: below that steps are unstable
    return min(curvature + added, max(curvature, max(cap[0], cap[1] * added)))


@helper
def _row_step(columns, values, factor, tau, settings, g, h, w, diagonal, cap):
    """Take the row's step in the metric; Gauss-Newton's adds the row's curvature first (factor is -s_t)."""
    k, kind, length, alpha, metric = len(g), w.dtype.type, len(columns), settings.alpha, settings.metric
    # Without a metric the step is the plain one.
    if metric == _NONE:
        row_axpy(columns, values, 0, length, factor / (alpha * tau), g, w)
        return
    if metric == _GAUSS_NEWTON:
        # The row's own curvature first: the step is then safe even for the first row of a feature.
        _learn_gauss_newton(columns, values, kind(-factor), h, diagonal, cap)
    for c in range(k):
        if g[c] != 0.0:  # true of a NaN too, which must reach the weights
            step, floor, one = kind(factor) * g[c], kind(alpha * tau), kind(1.0)
            if metric == _PAPER:
                step /= kind(tau)
                for p in range(length):
                    j = np.intp(columns[p])
                    w[j, c] += step * kind(values[p]) * diagonal[j, c]
            else:
                for p in range(length):
                    j = np.intp(columns[p])
                    # C >= 0, so the divisor is at least alpha tau.
                    w[j, c] += step * kind(values[p]) * (one / (floor + diagonal[j, c]))


# Steps of a single output, w and diagonal (n_features,), each a function of its own: in one that chooses among these
# loops numba would count references to all arrays, once a row.


@helper
def _add_row_times(rows, i, step, diagonal, w):
    start, stop = places(rows, i)
    for p in range(start, stop):
        j = column_of(rows, p)
        w[j] = fused(step * w.dtype.type(value_of(rows, i, p)), diagonal[j], w[j])


@helper
def _add_row_over(rows, i, step, grow, floor, diagonal, w, cap):
    start, stop = places(rows, i)
    for p in range(start, stop):
        j, x = column_of(rows, p), w.dtype.type(value_of(rows, i, p))
        curvature = _grown(diagonal[j], grow * x * x, cap)
        diagonal[j] = curvature
        w[j] += step * x / (floor + curvature)


@helper
def _decay(w, diagonal, tau, settings):
    """Do the dense update: ``W <- W - skip alpha D W``, never beyond zero; w and diagonal are flat."""
    kind = w.dtype.type
    # A long skip early on could take the weights beyond zero: the decay is cut off there.
    share, none = kind(settings.skip * settings.alpha), kind(0.0)
    if settings.metric == _NONE:
        factor = kind(max(1.0 - settings.skip / tau, 0.0))
        for j in range(len(w)):
            w[j] *= factor
    elif settings.metric == _PAPER:
        share /= kind(tau)
        for j in range(len(w)):
            left = kind(1.0) - share * diagonal[j]
            w[j] *= none if left < none else left  # not `max`: a NaN must go on
    else:
        floor = kind(settings.alpha * tau)
        for j in range(len(w)):
            left = kind(1.0) - share / (floor + diagonal[j])
            w[j] *= none if left < none else left


@helper
def _learn_gauss_newton(columns, values, weight, h, diagonal, cap):
    """Let C grow by the diagonal of the row's Hessian."""
    # Most outputs of a row have no curvature under hinges.
    for c in range(len(h)):
        if h[c] > 0.0:
            grow = weight * h[c]
            for p in range(len(columns)):
                x = h.dtype.type(values[p])
                j = np.intp(columns[p])
                diagonal[j, c] = _grown(diagonal[j, c], grow * x * x, cap)


@helper
def _learn_paper(columns, values, before, after, s, tau, r, alpha, diagonal, steps):
    """Move B towards the row's secants (Figure 2, lines 6 to 8), from its gradients before and after its step.

    The step was by s times the gradient, so that the change of the gradient counts s times too; steps is scratch.
    """
    kind, share, top = diagonal.dtype.type, 2.0 / r, 1.0 / alpha
    # Figure 2, line 8: at least 0.01 / alpha.
    least = _LEAST_B * top
    k, length = diagonal.shape[1], len(columns)
    for p in range(length):
        j, x = np.intp(columns[p]), np.float64(values[p])
        for c in range(k):
            # The displacement of the row's own step, as the paper takes the secant.
            moved = -s / tau * before[c] * x * diagonal[j, c]
            # The printed rule for 0 / 0 (r = 1 / alpha).
            ratio = top
            if moved != 0.0:
                ratio = moved / (alpha * moved + s * (np.float64(after[c]) - np.float64(before[c])) * x)
            steps[p, c] = diagonal[j, c] + share * (ratio - diagonal[j, c])
    # all weights move towards 1/alpha, then the row's own are overwritten: no test for membership in the loop
    for j in range(len(diagonal)):
        for c in range(k):
            # float64 until stored: the share 2 / r gets small.
            diagonal[j, c] = kind(max(diagonal[j, c] + share * (top - diagonal[j, c]), least))
    for p in range(length):
        for c in range(k):
            diagonal[np.intp(columns[p]), c] = kind(max(steps[p, c], least))


@helper
def _learn_secant(columns, values, now, before, s, w, previous, settings, diagonal):
    """Add to C s times the row's secants over the displacement since the last dense update (gradients before, now)."""
    kind, most = diagonal.dtype.type, _MOST_CURVATURE * settings.alpha
    for p in range(len(columns)):
        j, x = np.intp(columns[p]), np.float64(values[p])
        for c in range(diagonal.shape[1]):
            moved, change = np.float64(w[j, c]) - np.float64(previous[j, c]), now[c] - before[c]
            # A change of zero says that the row was in a flat part of its loss, not that there is no curvature.
            if moved != 0.0 and change != 0.0:
                seen = s * np.float64(change) * x / moved
                # Clipped from both sides: noise of one row must not make a step infinite or stop it for ever.
                diagonal[j, c] += kind(settings.skip * min(max(seen, 0.0), most))


@helper
def _gradient_at(indices, data, start, stop, w, b, y, i, settings, z, g):
    """Set g to the gradient of row i with respect to its scores at other weights."""
    scores_of(indices, data, start, stop, w, b, settings.fit_intercept, z)
    _, runner_up, _ = target_gradient(settings.loss, z, 1.0, y, i, g)
    # A pair, of a hinge without loss here.
    if runner_up != GRADIENT_IN_G:
        g[:] = 0


@kernel
def sgdqn_block(  # noqa: C901, PLR0915  (one loop: calls that choose among loops count references at every row)
    rows, y, weight, order, w, b, diagonal, previous, clock, settings
):
    """Train on the rows `order` of one block, in that order.

    Parameters
    ----------
    rows, y, weight, order : as of `distls.workers.stochastic.sgd_kernels.sgd_block`, as are the returned sums
    w : float32 or float64 (n_features, k), C-ordered; mutated
    b : float64 (k,), mutated if `fit_intercept`, else zeros
    diagonal : as w: B of PAPER, C of SECANT and GAUSS_NEWTON; mutated; (0, k) of NONE
    previous : as w: the weights after the last dense update, of SECANT; mutated; (0, k) of others
    clock : float64 (1,), rows learned from; mutated
    settings : SgdqnSettings
    """
    check_widths(w, b)
    metric, alpha, skip = settings.metric, settings.alpha, settings.skip
    cap = w.dtype.type(settings.most), w.dtype.type(settings.spread)
    if (metric != _NONE and diagonal.shape != w.shape) or (metric == _SECANT and previous.shape != w.shape):
        raise ValueError("the metric needs a number for every weight")
    k, n, t = len(b), len(order), clock[0]
    # Continues over blocks: the dense update comes every `skip` rows of the lane.
    since = np.intp(t) % skip  # rows since the last dense update
    z, g, other, h = np.empty(k, w.dtype), np.empty(k, w.dtype), np.empty(k, w.dtype), np.zeros(k, w.dtype)
    indices, data = row_arrays(rows)
    # flat views, for the only column and for the dense update
    every, every_diagonal, single = w.reshape(w.size), diagonal.reshape(diagonal.size), k == 1
    start, stop, kind, loss_sum, errors = np.int64(0), np.int64(0), w.dtype.type, 0.0, 0
    for at in range(n):
        i = np.intp(order[at])
        prefetch_row(rows, np.intp(order[min(at + _ROWS_AHEAD, n - 1)]))
        tau = t + settings.t0
        # The secant needs two gradients of the same row.
        learning = since == 0 and t >= skip  # the row after a dense update
        if learning or not single:
            start, stop = row_span(rows, i, indices, data)
        # One column is scored by a function of its own, without the overhead of a loop over outputs.
        if single:
            z[0] = single_score(rows, i, every)
        else:
            row_scores(indices, data, start, stop, w, z)
        if settings.fit_intercept:
            add_to_scores(b, z)
        value, runner_up, best = target_gradient(settings.loss, z, 1.0, y, i, g)
        s, label = row_weight(weight, i), code_of(y, i)
        loss_sum += s * value
        errors += best != label
        flat = runner_up != GRADIENT_IN_G
        if flat:
            g[:] = 0
        if learning and metric == _SECANT:
            _gradient_at(indices, data, start, stop, previous, b, y, i, settings, z, other)
            _learn_secant(indices[start:stop], data[start:stop], g, other, s, w, previous, settings, diagonal)
            # The displacement counts from here on.
            copy_matrix(w, previous)
        if not flat:
            if metric == _GAUSS_NEWTON:
                row_curvature(settings.loss, g, h)
            if single:
                step, grow, floor = kind(-s) * g[0], kind(s) * h[0], kind(alpha * tau)
                if metric == _NONE:
                    single_axpy(rows, i, step / floor, every)
                elif metric == _PAPER:
                    _add_row_times(rows, i, step / kind(tau), every_diagonal, every)
                else:
                    _add_row_over(rows, i, step, grow, floor, every_diagonal, every, cap)
            else:
                _row_step(indices[start:stop], data[start:stop], -s, tau, settings, g, h, w, diagonal, cap)
            if settings.fit_intercept:  # MCID's steps: 1/(alpha tau) alone would throw it to 1/alpha at first
                add_row_gradient(-s * min(1.0 / (alpha * tau), 1.0 / math.sqrt(tau)), runner_up, label, g, b)
        if learning and metric == _PAPER:
            _gradient_at(indices, data, start, stop, w, b, y, i, settings, z, other)
            columns, values = indices[start:stop], data[start:stop]
            steps = np.empty((stop - start, len(b)))
            _learn_paper(columns, values, g, other, s, tau, 1.0 + t // skip, alpha, diagonal, steps)
        t += 1.0
        # Counted rather than divided: `t` is a float64 of the clock.
        since += 1
        if since == skip:
            since = 0
            _decay(every, every_diagonal, tau, settings)
    clock[0] = t
    return loss_sum, errors
