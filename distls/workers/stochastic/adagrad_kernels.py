"""Stochastic steps that adapt to each feature (AdaGrad's, one accumulator a feature), with exact lazy L2.

AdaGrad is that of Duchi, Hazan and Singer (2011), with the diagonal of its matrix shared by the outputs.

With g_t the gradient of row t's loss with respect to its k scores, s_t its weight and
``G_j(t) = sum_{u <= t} s_u^2 |g_u|^2 x_uj^2``, the step of feature j is ``eta_j(t) = eta0 / sqrt(G_j(t))`` and

    W_j(t) = exp(-alpha eta_j(t)) (W_j(t-1) - eta_j(t) s_t x_tj g_t).

The k outputs of a feature share its step: with 53 classes that has a lower error after an epoch than a step for each
weight, and costs one root a non-zero (docs/decisions/0011). A feature that is in none of the rows from t1 to t2 has
decayed by another ``exp(-alpha (t2 - t1) eta_j(t1))``, which is applied at its next occurrence to a factor of its own:
``W_j = r_j V_j``. So a step costs O(nnz k), and nothing is approximated. Without L2 there are no factors.

The intercept is an unpenalised feature of value 1 with a step size of its own: weights scale as 1/x, the intercept as
the scores.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import helper, kernel
from distls.workers.linear_algebra.dense_vectors import add_to_scores
from distls.workers.linear_algebra.prefetch import prefetch_row
from distls.workers.linear_algebra.score_kernels import check_widths, row_arrays, row_scores, row_span, row_weight
from distls.workers.losses.loss import GRADIENT_IN_G, Loss
from distls.workers.losses.row_functions import code_of, row_update, target_gradient
from distls.workers.simd.adaptive_steps import SMALLEST_FACTOR, TINY, added_square, decayed, step_by
from distls.workers.simd.class_sums import sum_of_squares
from distls.workers.simd.vectors import fused

_ROWS_AHEAD = 2  # rows between prefetch and use


class AdagradSettings(NamedTuple):
    """Settings of `adagrad_block`; with a whole number in the place of a float it would be compiled again."""

    loss: Loss
    eta0: float  # > 0, of the weights
    eta_b: float = 1.0  # > 0, of the intercept
    alpha: float = 0.0  # L2 strength >= 0
    fit_intercept: bool = False


class Decay(NamedTuple):
    """Lazy decay of each feature in a lane; arrays of length 0 without L2."""

    factors: NDArray[Any]  # (n_features,): r_j, by which the stored weights of feature j are to be multiplied
    since: NDArray[np.float64]  # (n_features,): the time up to which the feature has decayed


def new_decay(n_features: int, alpha: float, time: float, dtype: Any) -> Decay:
    """Return the state of weights that have decayed up to `time`."""
    n = n_features if alpha > 0 else 0
    return Decay(np.ones(n, dtype), np.full(n, float(time)))


@helper
def _catch_up(columns, rate, until, w, squares, decay):
    """Apply the pending decay of the row's features up to time `until`."""
    # Decay factors have the type of the weights, so that all models have the same bits side by side or alone.
    kind = w.dtype.type
    for p in range(len(columns)):
        j = np.intp(columns[p])
        # The time since the last occurrence is exact in float64, and small enough for float32 afterwards.
        missed = kind(until - decay.since[j])
        # Marked before the row's own step: a feature that is twice in a row decays once.
        decay.since[j] = until
        decay.factors[j] = decayed(decay.factors[j], missed, kind(rate), squares[j])
        # The factor is folded in before it underflows; the stored weights have grown by its inverse meanwhile.
        if decay.factors[j] < kind(SMALLEST_FACTOR):
            for c in range(w.shape[1]):
                w[j, c] *= decay.factors[j]
            decay.factors[j] = kind(1.0)


@helper
def _scores_of_one(columns, values, w, z):
    """Set z to the only score, in two sums as `row_scores` has them of several outputs."""
    # Two sums, as two chains of additions hide the latency; their order is fixed, so the bits are too.
    even, odd, length = w.dtype.type(0.0), w.dtype.type(0.0), len(columns)
    for p in range(0, length - 1, 2):
        even = fused(values[p], w[np.intp(columns[p]), 0], even)
        odd = fused(values[p + 1], w[np.intp(columns[p + 1]), 0], odd)
    # The last value of an odd length belongs to the even sum, as in `row_scores`.
    if length % 2:
        even = fused(values[length - 1], w[np.intp(columns[length - 1]), 0], even)
    z[0] = even + odd


@helper
def _decayed_scores(columns, values, factors, scratch, w, z):
    """Set z to the scores of a row, its weights multiplied by their factors."""
    for p in range(len(columns)):
        # Values are multiplied by the factors, not the weights: one product a non-zero for all k outputs.
        scratch[p] = w.dtype.type(values[p]) * factors[np.intp(columns[p])]
    if len(z) == 1:
        _scores_of_one(columns, scratch, w, z)
    else:
        row_scores(columns, scratch, 0, len(columns), w, z)


@helper
def squared_norm(runner_up, y, g):
    """Return the sum of squares of a gradient as `row_gradient` returns it, float64."""
    if runner_up != GRADIENT_IN_G:
        # A pair of +1 and -1 has the squared norm 2, an example without loss none.
        return 0.0 if runner_up == y else 2.0
    return sum_of_squares(g)


@helper
def _accumulate(columns, values, square, eta, squares, steps):
    """Add the row's squares to G, and set ``steps = eta x_j / sqrt(G_j)``."""
    one = squares.dtype.type(1.0)
    # TINY keeps 1 / sqrt(0) finite; it is far below every G of a row that has moved anything.
    square, eta, tiny = squares.dtype.type(square), squares.dtype.type(eta), squares.dtype.type(TINY)
    # two loops: the first gathers in vectors, which it could not do if it also scattered
    for p in range(len(columns)):
        x = squares.dtype.type(values[p])
        steps[p] = squares[np.intp(columns[p])] + square * x * x
    for p in range(len(columns)):
        squares[np.intp(columns[p])] = steps[p]
    for p in range(len(columns)):
        # One reciprocal for a non-zero, and products for its outputs.
        steps[p] = eta * squares.dtype.type(values[p]) * (one / (np.sqrt(steps[p]) + tiny))


@helper
def _accumulate_decayed(columns, values, square, eta, squares, factors, steps):
    """Do the same for weights with factors: ``steps = eta x_j / (sqrt(G_j) r_j)``."""
    kind = squares.dtype.type
    square, eta = kind(square), kind(eta)
    for p in range(len(columns)):
        steps[p] = added_square(squares[np.intp(columns[p])], square, kind(values[p]))
    for p in range(len(columns)):
        squares[np.intp(columns[p])] = steps[p]
    for p in range(len(columns)):
        steps[p] = step_by(eta, kind(values[p]), steps[p], factors[np.intp(columns[p])])


@helper
def intercept_step(eta_b, s, square):
    """Return the intercept's step."""
    return -eta_b * s / math.sqrt(square)


@helper
def move_intercept(step, runner_up, y, g, b):
    """Do what `add_row_gradient` does, with the same bits wherever it is compiled."""
    if runner_up == GRADIENT_IN_G:
        for c in range(len(b)):
            b[c] += step * g[c]
    elif runner_up != y:
        b[runner_up] += step
        b[y] -= step


@kernel
def adagrad_block(rows, y, weight, order, w, b, squares, square_b, decay, clock, settings):
    """Train on the rows `order` of one block, in that order.

    Parameters
    ----------
    rows, y, weight, order : as of `distls.workers.stochastic.sgd_kernels.sgd_block`, as are the returned sums
    w : float32 or float64 (n_features, k), C-ordered; mutated. Multiplied by `decay.factors` it is W
    b : float64 (k,), mutated if `fit_intercept`, else zeros
    squares : as w, (n_features,): G; mutated
    square_b : float64 (1,): the G of the intercept; mutated
    decay : Decay; mutated where alpha > 0
    clock : float64 (1,), steps taken; mutated
    settings : AdagradSettings
    """
    check_widths(w, b)
    if len(squares) != len(w) or (settings.alpha > 0.0 and len(decay.factors) != len(w)):
        raise ValueError("accumulators and decay need a place for every feature")
    k, n, t = len(b), len(order), clock[0]
    # All scratch is allocated once a block: an allocation at every row would cost more than the row.
    z, g = np.empty(k, w.dtype), np.empty(k, w.dtype)
    indices, data = row_arrays(rows)
    scratch, steps = np.empty(len(w), w.dtype), np.empty(len(w), w.dtype)
    # alpha eta0, since the decay of a feature is exp(-alpha eta0 / sqrt(G) (t2 - t1)).
    lazy, rate = settings.alpha > 0.0, settings.alpha * settings.eta0
    loss_sum, errors = 0.0, 0
    for at in range(n):
        i = np.intp(order[at])
        prefetch_row(rows, np.intp(order[min(at + _ROWS_AHEAD, n - 1)]))
        start, stop = row_span(rows, i, indices, data)
        columns, values, length = indices[start:stop], data[start:stop], stop - start
        if lazy:
            # Features decay up to the time before this step, whose gradient is taken there.
            _catch_up(columns, rate, t, w, squares, decay)
            _decayed_scores(columns, values, decay.factors, scratch, w, z)
        else:
            row_scores(columns, values, 0, length, w, z)
        if settings.fit_intercept:
            add_to_scores(b, z)
        value, runner_up, best = target_gradient(settings.loss, z, 1.0, y, i, g)
        s, label = row_weight(weight, i), code_of(y, i)
        # Losses are summed in float64: a partition has too many rows for float32.
        loss_sum += s * value
        errors += best != label
        t += 1.0
        square = s * s * squared_norm(runner_up, label, g)
        # A row without loss moves nothing, and its decay is caught up with at its next step.
        if square == 0.0:  # false of a NaN, which must reach the weights
            continue
        if lazy:
            _accumulate_decayed(columns, values, square, settings.eta0 * s, squares, decay.factors, steps)
        else:
            _accumulate(columns, values, square, settings.eta0 * s, squares, steps)
        row_update(columns, steps, 0, length, -1.0, runner_up, label, g, w)
        if settings.fit_intercept:
            # The squares of the intercept's feature, whose value is 1.
            square_b[0] += square
            move_intercept(intercept_step(settings.eta_b, s, square_b[0]), runner_up, label, g, b)
    clock[0] = t
    return loss_sum, errors


@kernel
def settle(w, squares, decay, time, settings):
    """Apply the pending decay of all features up to `time`: w becomes W, the factors one; alpha is above zero."""
    for j in range(len(w)):
        step = 0.0
        # Without a squared gradient so far there is no step size, and so no decay.
        if squares[j] > 0.0:
            rate = settings.alpha * settings.eta0 / (math.sqrt(squares[j]) + TINY)
            step = (time - decay.since[j]) * rate
        factor = w.dtype.type(decay.factors[j] * math.exp(-step))
        for c in range(w.shape[1]):
            w[j, c] *= factor
        decay.factors[j] = 1.0
        decay.since[j] = time
