"""The problem whose dual is maximised; its dual and weights.

With duals a_i (negative gradients), ``U = sum_i s_i x_i a_i^T / (alpha n)`` and ``t = sum_i s_i a_i / (alpha n)``::

    W = shrink(U, l1) / (1 - l1)        (U itself for l2)
    b = center + q t                  (an intercept, see below)
    D(a) = -mean s_i conjugate_i(a_i) - alpha R*(U) - alpha (center . t + q/2 |t|^2)

with ``R*(U) = |shrink(U, l1)|^2 / (2 (1 - l1))``. The intercept is the weight of a constant feature, whose square is q
(`intercept_square`), with the penalty ``alpha/2 (b - center)^2 / q``; moving `center` to b after every pass makes it
unpenalised (the proximal point method). Where the intercept is to be penalised, `center` stays zero.

The gradients at any weights are a dual point too, once their intercept is optimal: it is found by reads of the gradient
alone (Anderson 1965).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.problem import Problem
from distls.storage.errors import ParameterError
from distls.workers.dual_ascent.ascent_task import square_sum
from distls.workers.duals.dual_domains import Balance
from distls.workers.losses.loss import DualDomain, Loss
from distls.workers.losses.loss_registry import loss_named
from distls.workers.runtime.process import single_threaded_blas

Array = NDArray[np.float64]

# Of a search for an intercept: reads at most; changes that are combined where outputs depend on each other.
_READS, _KEPT = 40, 20
# From so many times the least gradient on, what is combined leads away.
_WORSE = 4.0
# The sum of the gradient's absolute values that is as good as zero: certificates count what is left of it.
_ENDED = 1e-9
# The square of the constant feature behind an unpenalised intercept: of the rows' mean square norm m, and of its
# geometric mean with alpha.
_FEATURE_SHARE, _FEATURE_REACH = 0.1, 10.0


def balance_of(problem: Problem, domain: DualDomain, up: NDArray[np.float64], down: NDArray[np.float64]) -> Balance:
    """Return what makes the duals of a problem with an unpenalised intercept sum to zero in each output."""
    meta, classes = problem.dataset.meta, np.zeros(len(up))
    if meta.target == "class":
        classes = np.asarray(meta.label_weights) * problem.row_weight_by_class
    return Balance(domain, up, down, classes, float(meta.n_rows))


@dataclass(frozen=True, eq=False)
class DualProblem:
    """The problem in the form in which it is solved."""

    form: Loss
    n_outputs: int
    alpha: float
    l1: float
    intercept_square: float  # square of the constant feature, 0 without an intercept
    free_intercept: bool  # whether `center` moves: an intercept without a penalty

    @classmethod
    def of(cls, problem: Problem) -> DualProblem:
        """Return the form of a problem; raise ParameterError if it has none."""
        loss, l1 = loss_named(problem.loss), problem.l1_ratio
        if l1 == 1.0:
            raise ParameterError(
                "l1_ratio=1: a dual point needs an l2 part, l1_ratio below 1; use bcd or fista for l1 alone"
            )
        intercept_square, scaling = 0.0, problem.intercept_scaling
        if problem.fit_intercept:
            # Small, or the rows would compete for the intercept more than for their weights; but larger with alpha, or
            # a pass would move it by a small part of what is left (docs/decisions/0021).
            square, alpha = problem.dataset.meta.mean_square_norm, problem.alpha
            free = max(_FEATURE_SHARE * square, _FEATURE_REACH * math.sqrt(alpha * square), alpha)
            intercept_square = free if scaling is None else scaling**2
        free_intercept = problem.fit_intercept and scaling is None
        return cls(loss, problem.shape[1], problem.alpha, l1, intercept_square, free_intercept)

    def shrunk(self, u: NDArray[Any]) -> NDArray[Any]:
        """Return the weights W of U, in its type."""
        if not self.l1:
            return u
        kind = u.dtype.type
        return np.asarray(np.sign(u) * np.maximum(np.abs(u) - kind(self.l1), kind(0.0)) * kind(1.0 / (1.0 - self.l1)))

    def conjugate_penalty(self, u: NDArray[Any]) -> float:
        """Return R*(U)."""
        w = self.shrunk(u)
        return 0.5 * (1.0 - self.l1) * square_sum(w)

    def dual(self, conjugate: float, u: NDArray[Any], t: NDArray[np.float64], center: NDArray[np.float64]) -> float:
        """Return D, from the mean of the conjugates."""
        own = float(center @ t) + 0.5 * self.intercept_square * float(t @ t) if self.intercept_square else 0.0
        return -conjugate - self.alpha * (self.conjugate_penalty(u) + own)


def intercept_curvature(problem: Problem) -> Array:
    """Return a diagonal that is about the second derivatives in the intercept, or above them."""
    k, loss = problem.shape[1], loss_named(problem.loss)
    if loss.logistic and not loss.separable and problem.target == "class":
        # of the softmax they are below the mean probabilities, at the optimum the shares of the classes
        shares = np.asarray(problem.dataset.meta.label_weights, np.float64)
        shares = shares * (1.0 if problem.row_weights is None else problem.row_weights)
        # A class without rows would have no curvature, and its first step no bound.
        return np.maximum(shares / shares.sum(), 1e-9)
    bound = loss.lipschitz(2)
    return np.full(k, bound if np.isfinite(bound) else 1.0)


def optimal_intercept(
    gradient_at: Callable[[Array], Array], start: Array, curvature: Array, *, separable: bool
) -> Array:
    """Return the intercept at which the gradient vanishes, or the best one found.

    Parameters
    ----------
    gradient_at : callable
        Returns the gradient of the mean loss at an intercept, shape (k,); a read.
    start : array of shape (k,)
        Where to begin.
    curvature : array of shape (k,)
        A diagonal that is above the second derivatives, for the first step.
    separable : bool
        Whether the loss is a sum over outputs, so that each has a secant of its own. Otherwise the changes seen are
        combined so that the gradient is shortest (Anderson).
    """
    gradient = shortest = gradient_at(start)
    best, least = start, float(np.abs(gradient).sum())
    points, gradients = [start], [gradient]
    for _ in range(_READS - 1):
        # A NaN ends the search with the best intercept so far.
        if least <= _ENDED or not np.isfinite(gradient).all():
            break
        step = (_secant if separable else _combined)(points[-_KEPT:], gradients[-_KEPT:], curvature)
        point = points[-1] + step
        gradient = gradient_at(point)
        size = float(np.abs(gradient).sum())
        if size < least:
            best, shortest, least = point, gradient, size
        # A secant over a kink, or across saturated rows, can point anywhere.
        if size > _WORSE * least:  # the changes that were seen mislead
            points, gradients = [best], [shortest]
        else:
            points.append(point)
            gradients.append(gradient)
    return best


def _secant(points: list[Array], gradients: list[Array], curvature: Array) -> Array:
    """Return the step of each output by the slope between its last two points."""
    slope = curvature.copy()
    if len(points) > 1:
        moved, change = points[-1] - points[-2], gradients[-1] - gradients[-2]
        # the gradient rises with the intercept; where rounding hides it, the first slope has to do
        rises = moved * change > 0.0
        slope[rises] = change[rises] / moved[rises]
    return -gradients[-1] / slope


def _combined(points: list[Array], gradients: list[Array], curvature: Array) -> Array:
    """Return the step from the combination of all points whose gradient is shortest."""
    gradient = gradients[-1]
    if len(points) == 1:
        return -gradient / curvature
    moves, changes = (np.diff(np.stack(each, axis=1), axis=1) for each in (points, gradients))
    with single_threaded_blas():
        # The tolerance drops nearly parallel changes, whose combination would amplify rounding.
        shares = np.linalg.lstsq(changes, gradient, rcond=1e-12)[0]
        # Anderson: the combination's point, then a step from there by the diagonal for what the changes do
        # not explain.
        return np.asarray(-(moves @ shares) - (gradient - changes @ shares) / curvature)
