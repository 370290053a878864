"""L-BFGS on whitened columns, for rows in memory: the optimum of a smooth loss with an l2 penalty, and its duality gap.

The method is that of Liu and Nocedal (1989), by SciPy's L-BFGS-B (Byrd, Lu, Nocedal, Zhu 1995) without bounds.

Dual ascent moves row by row, and takes hundreds of passes where columns are correlated and the penalty is weak. Where
the matrix of the columns' products is small it is factored once: in the coordinates that it gives the problem is round
but for the loss's curvature, whatever the scales of the columns, and a few tens of reads of the rows are enough. The
dual point is at the gradients of the losses, so the weights are as good as they are said to be.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, solve_triangular
from scipy.optimize import OptimizeResult, minimize

from distls.workers.duals.dual_domains import Balance, feasible
from distls.workers.losses.loss import Loss
from distls.workers.losses.targets import LossSums, class_losses, weigh_gradients
from distls.workers.runtime.process import single_threaded_blas

Array = NDArray[np.float64]

MOST_READS = 200  # of the rows; a problem that takes more is left to dual ascent
_MOST_BYTES, _MOST_COLUMNS, _MOST_OUTPUTS = 32 * 2**20, 1024, 64
_MEMORY = 20  # steps that L-BFGS remembers
_FLAT = 0.02  # curvature in the intercept, at least, of losses that are not saturated
# Of the tolerance: what the estimate of the gap is brought to, one after the other.
_GOALS = (0.5, 0.05, 0.005)


@dataclass(frozen=True, eq=False)
class RowsInMemory:
    """The mean of ``s_i loss(x_i W + b)`` plus ``alpha / 2 |W|^2``."""

    x: Array  # (n_rows, n_features)
    y: NDArray[np.int32]  # class codes
    weight: Array  # s_i, with mean 1
    loss: Loss  # see `is_solved`
    n_outputs: int
    alpha: float
    fit_intercept: bool


@dataclass(frozen=True, eq=False)
class Optimum:
    """Weights, and how far their objective is above the optimum at most."""

    weights: Array  # (n_features, n_outputs)
    intercept: Array
    objective: float
    gap: float
    reads: int  # of the rows


def is_solved(problem: RowsInMemory) -> bool:
    """Return whether the loss is smooth and has a dual, and rows and the products of columns are small enough."""
    x, loss = problem.x, problem.loss
    small = x.size * 8 <= _MOST_BYTES and x.shape[1] <= _MOST_COLUMNS and problem.n_outputs <= _MOST_OUTPUTS
    return small and loss.smooth and loss.dual_domain != "none" and problem.alpha > 0.0


def find_optimum(problem: RowsInMemory, rtol: float) -> Optimum | None:
    """Return weights with a duality gap of at most `rtol` times the objective; None where that takes too long."""
    with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return _descended(problem, rtol)


def _descended(problem: RowsInMemory, rtol: float) -> Optimum | None:
    try:
        # A failed factorisation is no error: dual ascent takes over.
        search = _Search(problem)
    except (LinAlgError, ValueError):  # columns that float64 cannot tell apart, or values it cannot square
        return None
    for goal in _GOALS:
        met, found = search.descend(goal * rtol), search.optimum()
        if found.gap <= rtol * found.objective:
            return found
        if not met:
            return None
    return None


class _Search:
    """Weights on their way to the optimum, in the coordinates ``V = L^T W`` with L L^T the factored matrix."""

    def __init__(self, problem: RowsInMemory) -> None:
        self._problem, n = problem, len(problem.x)
        # Weights divided by n, so that all sums are means.
        self._share = problem.weight / n
        x = problem.x
        self._mean = self._share @ x if problem.fit_intercept else np.zeros(x.shape[1])
        # an intercept moves with the columns' means, so it is as good as independent of W
        self._x = x - self._mean
        # Square roots on both sides: the product is exactly symmetric.
        scaled = self._x * np.sqrt(self._share)[:, None]
        # The bound of the loss's curvature times Sigma, plus alpha: the Hessian is at most this matrix.
        products = problem.loss.lipschitz(problem.n_outputs) * (scaled.T @ scaled)
        products.flat[:: len(products) + 1] += problem.alpha
        factor = np.linalg.cholesky(products)
        # The inverse is formed once; afterwards each evaluation has matrix products alone.
        self._whiten = solve_triangular(factor, np.eye(len(factor)), lower=True)
        self._at = np.zeros((x.shape[1] + problem.fit_intercept) * problem.n_outputs)
        self._runner_ups, self._reads = np.empty(n, np.int32), 0

    def descend(self, rtol: float) -> bool:
        """Go on until the gap seems to be at most `rtol` times the objective; return whether it does."""
        self._goal = rtol
        # Tolerances of SciPy are off: the duality gap alone decides, through the callback.
        options = {"maxcor": _MEMORY, "maxfun": MOST_READS - self._reads, "maxiter": MOST_READS}
        found = minimize(
            self._evaluate, self._at, method="L-BFGS-B", jac=True, callback=self._stop_if_met,
            options={**options, "ftol": 0.0, "gtol": 0.0},
        )  # fmt: skip
        self._at = found.x
        # The result of the minimizer need not be its last evaluation, whose scores and slopes the gap is made from.
        self._evaluate(self._at)
        return self._seems_met()

    def _evaluate(self, at: Array) -> tuple[float, Array]:
        """Return the objective and its gradient, in the coordinates of the search."""
        problem, n = self._problem, self._x.shape[1]
        v = at.reshape(-1, problem.n_outputs)
        self._w = self._whiten.T @ v[:n]
        # The intercept is not whitened: it is orthogonal to the centred columns.
        self._b = v[n] if problem.fit_intercept else np.zeros(problem.n_outputs)
        self._scores = self._x @ self._w + self._b
        sums, slopes = LossSums(), np.zeros(self._scores.shape)
        given = problem.loss, self._scores, problem.y, self._share
        class_losses(*given, sums, runner_ups=self._runner_ups, gradients=slopes)
        weigh_gradients(self._runner_ups, problem.y, self._share, slopes)
        self._value = float(sums.values[0]) + 0.5 * problem.alpha * float(np.vdot(self._w, self._w))
        self._gradient = self._x.T @ slopes + problem.alpha * self._w
        self._tilt = slopes.sum(axis=0)
        self._reads += 1
        # Chain rule for W = L^-T V.
        moved = self._whiten @ self._gradient
        parts = [moved, self._tilt[None]] if problem.fit_intercept else [moved]
        return self._value, np.concatenate(parts).ravel()

    def _seems_met(self) -> bool:
        """Estimate the gap: that of the gradients, which is exact where the intercept's is zero."""
        # |gradient|^2 / (2 alpha) bounds the excess by strong convexity.
        gap = float(np.vdot(self._gradient, self._gradient)) / (2.0 * self._problem.alpha)
        if self._problem.fit_intercept:
            gap += float(np.vdot(self._tilt, self._tilt)) / _FLAT
        return gap <= self._goal * self._value

    def _stop_if_met(self, intermediate_result: OptimizeResult) -> None:
        if self._seems_met():  # of the last evaluation, which was at this result
            # SciPy takes this for a regular end.
            raise StopIteration

    def optimum(self) -> Optimum:
        """Return the weights, with the gap to the dual point at the gradients of their losses."""
        problem, n, loss = self._problem, len(self._x), self._problem.loss
        # The dual point at the negative gradients, which is optimal where the weights are.
        duals = feasible(loss.dual_domain, -loss.gradient(self._scores, problem.y), problem.y)
        s = problem.weight
        if problem.fit_intercept:
            # An intercept that is not penalised requires duals that sum to zero in each output: they are rescaled.
            up, down = s @ np.maximum(duals, 0.0), s @ np.maximum(-duals, 0.0)
            classes = np.asarray(np.bincount(problem.y, s, problem.n_outputs), np.float64)
            duals = Balance(loss.dual_domain, up, down, classes, float(n))(duals, problem.y)
        u = self._x.T @ (self._share[:, None] * duals) / problem.alpha
        dual = -float(self._share @ loss.conjugate(duals, problem.y))
        dual -= 0.5 * problem.alpha * float(np.vdot(u, u))
        # The gap is a difference of two close numbers, and may be negative by rounding.
        gap = max(self._value - dual, 0.0) + np.finfo(np.float64).eps * abs(self._value)
        # The intercept of the uncentred rows.
        return Optimum(self._w, self._b - self._mean @ self._w, self._value, gap, self._reads)
