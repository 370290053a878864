"""L-BFGS for rows in memory: the optimum of a smooth loss with an l2 penalty and its duality gap, or a path of them.

The method is that of Liu and Nocedal (1989), by SciPy's L-BFGS-B (Byrd, Lu, Nocedal, Zhu 1995) without bounds.

Dual ascent moves row by row, and takes hundreds of passes where columns are correlated and the penalty is weak. Where
the matrix of the columns' products is small it is factored once: in the coordinates that it gives the problem is round
but for the loss's curvature, whatever the scales of the columns, and a few tens of reads of the rows are enough. The
dual point is at the gradients of the losses, so the weights are as good as they are said to be. Sparse rows keep their
own coordinates. All of it is NumPy's and SciPy's: nothing has to be compiled.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, solve_triangular
from scipy.optimize import OptimizeResult, minimize

from distls.methods.recommendation import SPARSE_WEIGHTS
from distls.workers.duals.dual_domains import Balance, feasible
from distls.workers.losses.loss import Loss
from distls.workers.losses.targets import is_codes
from distls.workers.runtime.process import single_threaded_blas

Array = NDArray[np.float64]

MOST_READS = 200  # of the rows; a problem that takes more is left to dual ascent
_MOST_BYTES, _MOST_COLUMNS, _MOST_OUTPUTS = 32 * 2**20, 1024, 64
_MEMORY = 20  # steps that L-BFGS remembers
_MOST_STEPS = 20  # of Newton's method, of which sparse rows rarely take ten
# Where a fit of a path ends: strengths are told apart long before the optimum.
# The decrease of a step, of L-BFGS as SciPy has it, of Newton's method as a part of all from zero weights on.
_TRIAL_GAP, _TRIAL_STEP, _TRIAL_NEWTON_STEP = 1e-4, 1e-6, 3e-4
_FLAT = 0.02  # curvature in the intercept, at least, of losses that are not saturated
# Of the tolerance: what the estimate of the gap is brought to, one after the other.
_GOALS = (0.5, 0.05, 0.005)


@dataclass(frozen=True, eq=False)
class RowsInMemory:
    """The mean of ``s_i loss(x_i W + b)`` plus ``alpha / 2 |W|^2``."""

    x: Any  # (n_rows, n_features), float64: an array, or for paths SciPy's CSR matrix
    y: NDArray[Any]  # int32 class codes, or numbers (n_rows, n_outputs)
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
    return problem.alpha > 0.0 and are_few(len(problem.x), problem.x.shape[1], problem.n_outputs, problem.loss)


def are_few(n_rows: int, n_features: int, n_outputs: int, loss: Loss, nnz: int | None = None) -> bool:
    """Return whether so many rows, of sparse ones so many values, are solved here."""
    n_values = n_rows * n_features if nnz is None else 2 * nnz  # with their columns
    # of sparse columns only those with a value count
    few = n_features <= _MOST_COLUMNS if nnz is None else min(n_features, nnz) * n_outputs <= SPARSE_WEIGHTS
    small = few and n_values * 8 <= _MOST_BYTES and n_outputs <= _MOST_OUTPUTS
    return small and loss.smooth and loss.dual_domain != "none"


def find_optimum(problem: RowsInMemory, rtol: float) -> Optimum | None:
    """Return weights with a duality gap of at most `rtol` times the objective; None where that takes too long."""
    with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return _descended(problem, rtol)


def path_weights(problem: RowsInMemory, alphas: Sequence[float], last: float = 0.0) -> Iterator[tuple[Array, Array]]:
    """Yield weights and intercept near the optimum of each of decreasing strengths; nothing is proven of them.

    Each starts from the one before; the last is brought to a gap of about `last`, if given.

    Raises LinAlgError for columns that float64 cannot tell apart.
    """
    rows, start = _Rows(problem), None
    for alpha in alphas:
        with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            search = _Search(replace(problem, alpha=alpha), rows, start)
            search.descend(_TRIAL_GAP, _TRIAL_STEP)
            if last and alpha == alphas[-1]:
                search.descend(last)
        start = search.weights
        yield start


def _descended(problem: RowsInMemory, rtol: float) -> Optimum | None:
    try:
        # A failed factorisation is no error: dual ascent takes over.
        search = _Search(problem, _Rows(problem))
    except (LinAlgError, ValueError):  # columns that float64 cannot tell apart, or values it cannot square
        return None
    for goal in _GOALS:
        met, found = search.descend(goal * rtol), search.optimum()
        if found.gap <= rtol * found.objective:
            return found
        if not met:
            return None
    return None


class _Rows:
    """The rows as all strengths see them: dense ones centred, with the products of their columns."""

    def __init__(self, problem: RowsInMemory) -> None:
        # Weights divided by n, so that all sums are means.
        self.share = problem.weight / len(problem.weight)
        self.dense = isinstance(problem.x, np.ndarray)
        centred = self.dense and problem.fit_intercept
        self.mean = self.share @ problem.x if centred else np.zeros(problem.x.shape[1])
        # an intercept moves with the columns' means, so it is as good as independent of W
        self.x = problem.x - self.mean if self.dense else problem.x

    @cached_property
    def products(self) -> Array:
        """The products of the columns, shape (n_features, n_features)."""
        # Square roots on both sides: the product is exactly symmetric.
        scaled = self.x * np.sqrt(self.share)[:, None]
        return np.asarray(scaled.T @ scaled)

    @cached_property
    def squares(self) -> Any:
        """The squares of sparse values, shape (n_features, n_rows)."""
        return self.x.multiply(self.x).T.tocsr()


class _Search:
    """Weights on their way to the optimum, in the coordinates ``V = L^T W``.

    L L^T is the factored matrix, of sparse rows the diagonal of the Hessian at the start.
    """

    def __init__(self, problem: RowsInMemory, rows: _Rows, start: tuple[Array, Array] | None = None) -> None:
        self._problem, self._rows, self._reads = problem, rows, 0
        factor = None
        if rows.dense:
            # The bound of the loss's curvature times Sigma, plus alpha: the Hessian is at most this matrix.
            bound = problem.loss.lipschitz(problem.n_outputs) * rows.products
            bound.flat[:: len(bound) + 1] += problem.alpha
            factor = np.linalg.cholesky(bound)
        # The inverse is formed once; afterwards each evaluation has matrix products alone.
        self._whiten = None if factor is None else solve_triangular(factor, np.eye(len(factor)), lower=True)
        self._at = np.zeros((problem.x.shape[1] + problem.fit_intercept) * problem.n_outputs)
        self._scale: Any = 1.0 if rows.dense else self._scales(start)
        if start is not None:
            w, b = start
            moved = [w if factor is None else factor.T @ w, (b + rows.mean @ w)[None]]
            self._at = (np.concatenate(moved[: 1 + problem.fit_intercept]) / self._scale).ravel()

    def _scales(self, start: tuple[Array, Array] | None) -> Array:
        """Return what sparse columns and the intercept are multiplied by: their curvature is near one then."""
        problem, rows = self._problem, self._rows
        scores = np.zeros((len(rows.share), problem.n_outputs))
        slopes = _slopes(problem, scores if start is None else rows.x @ start[0] + start[1])[0]
        units = np.eye(problem.n_outputs)
        bent = [problem.loss.curvature_product(slopes, np.tile(e, (len(slopes), 1))) @ e for e in units]
        weighed = rows.share[:, None] * np.column_stack(bent)
        parts = [rows.squares @ weighed, *[weighed.sum(axis=0)[None]] * problem.fit_intercept]
        # alpha in the intercept too, which has no curvature where all losses are zero
        return np.asarray(1.0 / np.sqrt(np.concatenate(parts) + problem.alpha))

    def descend(self, rtol: float, ftol: float = 0.0) -> bool:
        """Go on until the gap seems to be at most `rtol` times the objective; return whether it does.

        With `ftol` also until a step lowers the objective by no more, where that is enough.
        """
        self._goal, self._before = rtol, np.inf
        self._least = _TRIAL_NEWTON_STEP if ftol and self._whiten is None else 0.0
        at_zero = _slopes(self._problem, np.zeros((len(self._rows.share), self._problem.n_outputs)))[1]
        self._at_zero = float(self._rows.share @ at_zero)
        given: dict[str, Any] = {"jac": True, "callback": self._stop_if_met}
        if self._whiten is None:
            # Of many weights the memory of steps costs more than products with the Hessian.
            given |= {"hessp": self._product, "method": "Newton-CG"}
            options: dict[str, Any] = {"maxiter": _MOST_STEPS, "xtol": 0.0}
        else:
            # Tolerances of SciPy are off: the duality gap alone decides, through the callback.
            given["method"] = "L-BFGS-B"
            options = {"maxcor": _MEMORY, "maxfun": MOST_READS - self._reads, "maxiter": MOST_READS}
            options |= {"ftol": ftol, "gtol": 0.0}
        self._at = minimize(self._evaluate, self._at, options=options, **given).x
        # The result of the minimizer need not be its last evaluation, whose scores and slopes the gap is made from.
        self._evaluate(self._at)
        return self._seems_met()

    def _evaluate(self, at: Array) -> tuple[float, Array]:
        """Return the objective and its gradient, in the coordinates of the search."""
        problem, rows, n = self._problem, self._rows, self._problem.x.shape[1]
        v = at.reshape(-1, problem.n_outputs) * self._scale
        self._w = v[:n] if self._whiten is None else self._whiten.T @ v[:n]
        # The intercept is not whitened: it is orthogonal to the centred columns.
        self._b = v[n] if problem.fit_intercept else np.zeros(problem.n_outputs)
        self._scores = rows.x @ self._w + self._b
        self._slopes, values = _slopes(problem, self._scores)
        self._value = float(rows.share @ values) + 0.5 * problem.alpha * float(np.vdot(self._w, self._w))
        weighed = rows.share[:, None] * self._slopes
        self._gradient = rows.x.T @ weighed + problem.alpha * self._w
        self._tilt = weighed.sum(axis=0)
        self._reads += 1
        # Chain rule for W = L^-T V.
        moved = self._gradient if self._whiten is None else self._whiten @ self._gradient
        parts = [moved, self._tilt[None]] if problem.fit_intercept else [moved]
        return self._value, (np.concatenate(parts) * self._scale).ravel()

    def _product(self, at: Array, direction: Array) -> Array:
        """Return the Hessian of the last evaluation, which was at this point, times a direction."""
        problem, x = self._problem, self._rows.x
        v = direction.reshape(-1, problem.n_outputs) * self._scale
        moved = x @ v[: x.shape[1]] + (v[-1] if problem.fit_intercept else 0.0)
        bent = self._rows.share[:, None] * problem.loss.curvature_product(self._slopes, moved)
        parts = [x.T @ bent + problem.alpha * v[: x.shape[1]]]
        parts += [bent.sum(axis=0)[None]] * problem.fit_intercept
        return (np.concatenate(parts) * self._scale).ravel()

    def _seems_met(self) -> bool:
        """Estimate the gap: that of the gradients, which is exact where the intercept's is zero."""
        # |gradient|^2 / (2 alpha) bounds the excess by strong convexity.
        gap = float(np.vdot(self._gradient, self._gradient)) / (2.0 * self._problem.alpha)
        if self._problem.fit_intercept:
            gap += float(np.vdot(self._tilt, self._tilt)) / _FLAT
        return gap <= self._goal * self._value

    def _stop_if_met(self, intermediate_result: OptimizeResult) -> None:
        done = self._before - self._value <= self._least * max(self._at_zero - self._value, 0.0)
        self._before = self._value
        if self._seems_met() or (done and self._least):  # of the last evaluation, which was at this result
            # SciPy takes this for a regular end.
            raise StopIteration

    @property
    def weights(self) -> tuple[Array, Array]:
        """The weights, and the intercept of the rows as they were given."""
        return self._w, np.asarray(self._b - self._rows.mean @ self._w)

    def optimum(self) -> Optimum:
        """Return the weights, with the gap to the dual point at the gradients of their losses."""
        problem, rows, loss = self._problem, self._rows, self._problem.loss
        # The dual point at the negative gradients, which is optimal where the weights are.
        duals = feasible(loss.dual_domain, -self._slopes, problem.y)
        s = problem.weight
        if problem.fit_intercept:
            # An intercept that is not penalised requires duals that sum to zero in each output: they are rescaled.
            up, down = s @ np.maximum(duals, 0.0), s @ np.maximum(-duals, 0.0)
            classes = np.zeros(problem.n_outputs)
            if is_codes(problem.y):
                classes = np.asarray(np.bincount(problem.y, s, problem.n_outputs), np.float64)
            duals = Balance(loss.dual_domain, up, down, classes, float(len(s)))(duals, problem.y)
        u = rows.x.T @ (rows.share[:, None] * duals) / problem.alpha
        dual = -float(rows.share @ loss.conjugate(duals, problem.y))
        dual -= 0.5 * problem.alpha * float(np.vdot(u, u))
        # The gap is a difference of two close numbers, and may be negative by rounding.
        gap = max(self._value - dual, 0.0) + np.finfo(np.float64).eps * abs(self._value)
        return Optimum(*self.weights, self._value, gap, self._reads)


def _slopes(problem: RowsInMemory, scores: Array) -> tuple[Array, Array]:
    """Return gradients in the scores (n, k), and losses (n,)."""
    loss, y = problem.loss, problem.y
    if not is_codes(y):
        return loss.number_gradient(scores, y)
    return np.asarray(loss.gradient(scores, y), np.float64), np.asarray(loss.values(scores, y), np.float64)
