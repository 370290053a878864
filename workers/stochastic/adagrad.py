"""Stochastic steps that adapt to each feature (AdaGrad's, one accumulator a feature), with exact lazy L2.

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
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import helper, kernel
from distls.workers.linear_algebra.prefetch import prefetch_row
from distls.workers.linear_algebra.score_kernels import (
    check_widths,
    row_arrays,
    row_scores,
    row_span,
    row_weight,
)
from distls.workers.losses.loss import Loss
from distls.workers.losses.row_functions import (
    GRADIENT_IN_G,
    add_row_gradient,
    code_of,
    row_update,
    target_gradient,
)
from distls.workers.stochastic.step_choice import ProblemStats, StepChoice
from distls.workers.stochastic.update import Arrays, KernelLearner, Update

__all__ = [
    "AdagradSettings",
    "AdagradUpdate",
    "adagrad_block",
    "adagrad_settings",
    "adagrad_steps",
]

_TINY = 1e-18  # avoids 0/0, far below the root of any sum of squares that matters
_SMALLEST_FACTOR = 1e-4  # smaller ones are folded into V, which grows as r_j shrinks
_SMALL_STEP = 1e-5  # below it two terms of the exponential series are exact in float64
_ROWS_AHEAD = 2  # rows between prefetch and use
# The size of a step in the scores (docs/decisions/0011 and 0018).
_SCORE_STEP, _SCORE_STEP_HINGE = 0.5, 0.25


class AdagradSettings(NamedTuple):
    """Settings of `adagrad_block`, made by `adagrad_settings`: other field types are compiled again."""

    eta0: float  # > 0, of the weights
    eta_b: float  # > 0, of the intercept
    alpha: float  # L2 strength >= 0
    fit_intercept: bool
    loss: Loss


def adagrad_settings(
    loss: Loss, eta0: float, *, eta_b: float = 1.0, alpha: float = 0.0, fit_intercept: bool = False
) -> AdagradSettings:
    """Return settings of the one set of types that kernels are compiled for."""
    if not eta0 > 0 or not eta_b > 0 or not alpha >= 0:
        raise ValueError(f"need eta0 > 0, eta_b > 0 and alpha >= 0: got {eta0}, {eta_b}, {alpha}")
    return AdagradSettings(float(eta0), float(eta_b), float(alpha), bool(fit_intercept), loss)


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
    for p in range(len(columns)):
        j = np.intp(columns[p])
        missed = until - decay.since[j]
        if missed > 0.0:
            step = missed * rate / (math.sqrt(squares[j]) + _TINY) if squares[j] > 0.0 else 0.0
            decay.factors[j] *= 1.0 - step * (1.0 - 0.5 * step) if step < _SMALL_STEP else math.exp(-step)
            decay.since[j] = until
            if decay.factors[j] < _SMALLEST_FACTOR:
                for c in range(w.shape[1]):
                    w[j, c] *= decay.factors[j]
                decay.factors[j] = 1.0


@helper
def _squared_norm(runner_up, y, g):
    if runner_up != GRADIENT_IN_G:
        return 0.0 if runner_up == y else 2.0
    total = 0.0
    for c in range(len(g)):
        total += np.float64(g[c]) * np.float64(g[c])
    return total


@helper
def _accumulate(columns, values, square, eta, squares, factors, steps):
    """Add the row's squares to G, and set ``steps = eta x_j / (sqrt(G_j) r_j)``."""
    one = squares.dtype.type(1.0)
    square, eta, tiny = squares.dtype.type(square), squares.dtype.type(eta), squares.dtype.type(_TINY)
    # two loops: the first gathers in vectors, which it could not do if it also scattered
    for p in range(len(columns)):
        x = squares.dtype.type(values[p])
        steps[p] = squares[np.intp(columns[p])] + square * x * x
    for p in range(len(columns)):
        squares[np.intp(columns[p])] = steps[p]
    for p in range(len(columns)):
        steps[p] = eta * squares.dtype.type(values[p]) * (one / (np.sqrt(steps[p]) + tiny))
    if len(factors):
        for p in range(len(columns)):
            steps[p] /= factors[np.intp(columns[p])]


@kernel
def adagrad_block(rows, y, weight, order, w, b, squares, square_b, decay, clock, settings):
    """Train on the rows `order` of one block, in that order.

    Parameters
    ----------
    rows : CsrRows or DenseRows
    y : int32 (n_rows,), class codes, or float64 (n_rows, k), numbers
    weight : float64 (n_rows,), s_i with mean 1 over the data set; or (0,) for all ones
    order : int64 (m,), rows to visit
    w : float32 or float64 (n_features, k), C-ordered; mutated. Multiplied by `decay.factors` it is W
    b : float64 (k,), mutated if `fit_intercept`, else zeros
    squares : as w, (n_features,): G; mutated
    square_b : float64 (1,): the G of the intercept; mutated
    decay : Decay; mutated where alpha > 0
    clock : float64 (1,), steps taken; mutated
    settings : AdagradSettings

    Returns
    -------
    loss_sum : sum_i s_i * loss_i, each at the weights before its own step, float64
    errors : rows whose class did not have the highest score then; 0 for numbers
    """
    check_widths(w, b)
    if len(squares) != len(w) or (settings.alpha > 0.0 and len(decay.factors) != len(w)):
        raise ValueError("accumulators and decay need a place for every feature")
    k, n, t = len(b), len(order), clock[0]
    z, g = np.empty(k, w.dtype), np.empty(k, w.dtype)
    indices, data = row_arrays(rows)
    scratch, steps = np.empty(len(w), w.dtype), np.empty(len(w), w.dtype)
    lazy, rate = settings.alpha > 0.0, settings.alpha * settings.eta0
    loss_sum, errors = 0.0, 0
    for at in range(n):
        i = np.intp(order[at])
        prefetch_row(rows, np.intp(order[min(at + _ROWS_AHEAD, n - 1)]))
        start, stop = row_span(rows, i, indices, data)
        columns, values, length = indices[start:stop], data[start:stop], stop - start
        if lazy:
            _catch_up(columns, rate, t, w, squares, decay)
            for p in range(length):
                scratch[p] = w.dtype.type(values[p]) * decay.factors[np.intp(columns[p])]
            row_scores(columns, scratch, 0, length, w, z)
        else:
            row_scores(columns, values, 0, length, w, z)
        if settings.fit_intercept:
            for c in range(k):
                z[c] += w.dtype.type(b[c])
        value, runner_up, best = target_gradient(settings.loss, z, 1.0, y, i, g)
        s, label = row_weight(weight, i), code_of(y, i)
        loss_sum += s * value
        errors += best != label
        t += 1.0
        square = s * s * _squared_norm(runner_up, label, g)
        if square == 0.0:  # false of a NaN, which must reach the weights
            continue
        _accumulate(columns, values, square, settings.eta0 * s, squares, decay.factors, steps)
        row_update(columns, steps, 0, length, -1.0, runner_up, label, g, w)
        if settings.fit_intercept:
            square_b[0] += square
            add_row_gradient(-settings.eta_b * s / math.sqrt(square_b[0]), runner_up, label, g, b)
    clock[0] = t
    return loss_sum, errors


@kernel
def settle(w, squares, decay, time, settings):
    """Apply the pending decay of all features up to `time`: w becomes W, the factors one."""
    if settings.alpha > 0.0:
        for j in range(len(w)):
            step = 0.0
            if squares[j] > 0.0:
                rate = settings.alpha * settings.eta0 / (math.sqrt(squares[j]) + _TINY)
                step = (time - decay.since[j]) * rate
            factor = w.dtype.type(decay.factors[j] * math.exp(-step))
            for c in range(w.shape[1]):
                w[j, c] *= factor
            decay.factors[j] = 1.0
            decay.since[j] = time


@dataclass(frozen=True)
class AdagradUpdate(Update):
    """AdaGrad steps with one accumulator for each feature."""

    eta0: float = 1.0  # of the weights
    eta_b: float = 1.0  # of the intercept

    def extra_arrays(self, shape: tuple[int, int], dtype: Any) -> Arrays:
        """Return the accumulators of features and intercept."""
        return np.zeros(shape[0], dtype), np.zeros(1)

    def start_lane(self, arrays: Arrays, time: float, tail_from: float = math.inf) -> KernelLearner:
        """Return the learner of a lane that has taken `time` steps."""
        own = tuple(array.copy() for array in arrays)
        settings = adagrad_settings(
            self.row_loss, self.eta0, eta_b=self.eta_b, alpha=self.alpha, fit_intercept=self.fit_intercept
        )
        decay, clock = new_decay(len(own[0]), self.alpha, time, own[0].dtype), np.array([float(time)])
        return _AdagradLearner(settings, (*own, decay, clock), clock, len(own))


class _AdagradLearner(KernelLearner):
    kernel = staticmethod(adagrad_block)

    def arrays(self) -> Arrays:
        """Return weights, intercept and accumulators, all decay applied."""
        weights, _, squares, _, decay, _ = self.state
        settle(weights, squares, decay, self.time, self.settings)
        return super().arrays()


def adagrad_steps(stats: ProblemStats, params: dict[str, Any], n_lanes: int, *, warm: bool) -> StepChoice:
    """Return AdaGrad's steps; their size in the scores is known in advance, so none are tried."""
    objective, size = stats.objective(), math.sqrt(stats.mean_square_norm) or 1.0
    if stats.loss == "crammer_singer":  # its gradient is non-zero for two outputs, whatever their number
        scale = _SCORE_STEP_HINGE * max(stats.n_rows / 1e4, 1.0) ** 0.25
    else:
        scale = _SCORE_STEP * math.sqrt(1 if objective["one_column"] else stats.n_outputs)
    score_step = scale * n_lanes ** (1 / 3)
    eta0 = params["eta0"] or score_step / size
    return StepChoice(AdagradUpdate(**objective, eta0=eta0, eta_b=params["eta0"] or score_step))
