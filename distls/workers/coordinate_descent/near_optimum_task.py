"""Weights nearer to the optimum than those of a fit, at which its certificate has its dual point.

The gap at the gradients of the fit's own weights is of the first order in their distance from the optimum, while what
they are above it is of the second: the one is the square root of the other. So the columns with weights, and those that
violate the optimality conditions, are swept forth and back in memory, and every few sweeps the weights are extrapolated
to where these lead (Anderson; Bertrand and Massias 2021). It ends once the gap is proven to be a small multiple of what
the fit's weights are above the optimum, as the objective at the new weights shows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import Rows, concatenate_rows, n_rows_of, take_rows
from distls.workers.coordinate_descent.descent_kernels import N_TOTALS, loss_of_scores
from distls.workers.coordinate_descent.near_kernels import add_products, column_gradients
from distls.workers.coordinate_descent.row_scores_task import SparseWeights
from distls.workers.coordinate_descent.sweep_task import ColumnTask, Shard
from distls.workers.losses.loss_registry import loss_named
from distls.workers.penalties.penalty_registry import penalty_named, penalty_value, prox_rows
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger
from distls.workers.runtime.process import single_threaded_blas

Array = NDArray[np.float64]

# Sweeps between extrapolations, and most sweeps (docs/decisions/0022).
_BETWEEN, _SWEEPS = 10, 300
# Most non-zeros times classes that sweeps after a read of the shards visit, some 10 s: a fit to millions of rows is not
# to wait for its certificate longer than for its weights.
_VISITS = 4e9
# Most reads of all shards, and the violation, relative to alpha, from which on a column is swept too.
_READS, _VIOLATION = 4, 1e-9
# Copies of the weights: those extrapolated from, where these started, the best ones and a sum.
KEPT = _BETWEEN + 4
# The gap over what the weights are proven to be above the optimum at least, at which it is good enough.
_GOOD = 4.0
# Of the differences' products, relative to their mean square: they are nearly dependent.
_DAMPING = 1e-12
# In units of the last place of the objective: smaller gaps are rounding.
_ROUNDING = 8.0


@dataclass
class NearOptimum:
    """What the task finds."""

    weights: SparseWeights | None  # None where the columns take more memory than they may
    ledger: Ledger = field(default_factory=Ledger)


class NearTask(ColumnTask):
    """Sweeps some columns of all shards, in one lane, from the weights of the stored scores; errors as `ColumnTask`.

    Shards are read again while columns violate the conditions that did not before.
    """

    def reads(self, item: Lane) -> tuple[int, ...]:
        """Return nothing: all shards are read as often as they are needed."""
        return ()

    def result(self) -> NearOptimum:
        """Search, and return the weights."""
        weights, found, search = self.shared, None, None
        # One BLAS thread, whatever the machine: products have the same bits.
        with single_threaded_blas():
            for _ in range(_READS):
                working = _working_columns(self, weights if found is None else found, self.item)
                if working is None or (search is not None and not working.more):
                    break
                search = _Search(self, working.x, working.w, search)
                values, intercept = search.run()
                used = values.any(axis=1)
                # Sorted, since receivers look columns up by bisection.
                order = np.argsort(working.columns[used])
                found = SparseWeights(working.columns[used][order], values[used][order], intercept)
        return NearOptimum(found, self.ledger)

    @staticmethod
    def merge(left: Any, right: Any) -> Any:
        """Return the one result: one lane looks for the weights."""
        return left


class _Working(NamedTuple):
    """Columns to sweep: their numbers, they themselves as rows of X^T, their weights, and how many have none."""

    columns: NDArray[np.int64]
    x: Rows
    w: Array
    more: int


def _working_columns(task: ColumnTask, weights: SparseWeights, lane: Lane) -> _Working | None:
    """Return the columns with weights and those that violate the conditions; None if there are none or too many."""
    columns, found, held = [], [], 0
    for shard in task.shards(lane.blocks):
        used = weights.columns[slice(*np.searchsorted(weights.columns, _span(shard)))] - shard.first
        chosen = np.union1d(used, _violating(task, shard.x))
        columns.append(shard.first + chosen)
        found.append(take_rows(shard.x, chosen))
        # once more where all are put together
        held += (
            2 * sum(array.nbytes for array in found[-1]) + KEPT * 8 * len(chosen) * weights.values.shape[1]
        )
        # Held to the end, so the limit is checked while columns are collected.
        if held > 2 * task.active_bytes:
            return None
    numbers = np.concatenate(columns)
    if not numbers.size:
        return None
    w = np.zeros((len(numbers), weights.values.shape[1]))
    kept = np.isin(numbers, weights.columns)
    w[kept] = weights.values[np.searchsorted(weights.columns, numbers[kept])]
    return _Working(numbers, concatenate_rows(found), w, int(np.count_nonzero(~kept)))


def _span(shard: Shard) -> list[int]:
    return [shard.first, shard.first + n_rows_of(shard.x)]


def _violating(task: ColumnTask, x: Rows) -> NDArray[np.int64]:
    """Return the places of columns that would get weights if they had none."""
    z, y, weight = task.margins
    step, gradient = task.step, np.empty((n_rows_of(x), z.shape[1]))
    column_gradients(x, z, y, weight, loss_named(task.scores.loss), gradient)
    # Minus the mean gradient, as the prox takes it for a zero block.
    gradient *= -step.scale
    # A little above alpha, so that columns at the boundary do not come and go by rounding.
    moved = prox_rows(task.penalty, gradient, step.alpha * (1.0 + _VIOLATION), step.rho)
    return np.flatnonzero(moved.any(axis=1))


class _Search:
    """The sweeps over some columns, and the best bound of the optimum that they have led to."""

    def __init__(self, task: ColumnTask, x: Rows, w: Array, before: _Search | None) -> None:
        self._task, self._x, self._w = task, x, w
        self._loss, self._means = loss_named(task.scores.loss), task.leaning(x)
        self._bound, self._best = -math.inf, self._point()
        self._lowest: float = math.inf if before is None else before._lowest
        value = self._judge()
        self._first: float = value if before is None else before._first

    def run(self) -> tuple[Array, Array]:
        """Return the weights and the intercept with the best bound, whose scores are left in the margins."""
        visits = max(self._x[-1].size * self._w.shape[1], 1)  # of a sweep
        most = min(_SWEEPS, int(_VISITS // visits))
        # Whole rounds of sweeps only: an extrapolation needs all of its points.
        for _ in range(0, most - _BETWEEN + 1, _BETWEEN):
            if self._is_good():
                break
            points = [self._point()]
            for number in range(_BETWEEN):
                # Forth and back: such sweeps are symmetric, and their errors extrapolate better (Bertrand and
                # Massias 2021).
                self._sweep(-1 if number % 2 else 1)
                points.append(self._point())
            before = self._judge()
            if self._extrapolate(points, before):
                self._judge()
        self._move(self._best)
        # duals are a bound with an intercept only where they sum to zero
        self._task.optimise_intercept(counted=False)
        return self._parts(self._point())

    def _is_good(self) -> bool:
        gap, excess = self._first - self._bound, self._first - self._lowest
        rounding = _ROUNDING * float(np.finfo(self._task.scores.dtype).eps) * self._first
        return gap <= max(_GOOD * excess, rounding)

    def _sweep(self, direction: int) -> None:
        self._task.run(
            self._x, np.arange(len(self._w))[::direction], self._w, np.zeros(N_TOTALS), self._means
        )
        self._task.step_intercept()

    def _judge(self) -> float:
        """Return the objective, and keep the weights if their dual point, for these columns alone, is the best."""
        z, y, weight = self._task.margins
        step, gradient = self._task.step, np.empty_like(self._w)
        column_gradients(self._x, z, y, weight, self._loss, gradient)
        gradient *= step.scale
        loss = self._loss_mean()
        value = loss + step.alpha * penalty_value(self._task.penalty, self._w, step.rho)
        product = float(np.vdot(gradient, self._w))
        c, conjugated = penalty_named(self._task.penalty).conjugate(-gradient, step.alpha, step.rho)
        # The dual point is the gradient scaled into the dual domain by c; the shortfall is what scaling costs.
        bound = loss * (1.0 - self._loss.dual_shortfall(c)) - c * product - conjugated
        if bound > self._bound:
            self._bound, self._best = bound, self._point()
        self._lowest = min(self._lowest, value)
        return value

    def _point(self) -> Array:
        return np.concatenate([self._w.ravel(), self._task.b + self._task.shift])

    def _parts(self, point: Array) -> tuple[Array, Array]:
        return point[: self._w.size].reshape(self._w.shape), point[self._w.size :]

    def _move(self, point: Array) -> None:
        """Take other weights, with their scores."""
        task = self._task
        self._w[:], task.b[:] = self._parts(point)
        task.shift[:] = 0.0
        # Scores anew from the weights: rounding of many sweeps does not add up.
        task.margins.z[:] = task.b
        add_products(self._x, self._w, task.margins.z)

    def _extrapolate(self, points: list[Array], before: float) -> bool:
        """Move to where the points lead if the objective is lower there; the points are overwritten."""
        last = points.pop()
        shares = _shares(points, last)
        if shares is None:
            return False
        there = last.copy()
        for share, change in zip(shares, points[1:], strict=True):
            there -= share * change
        values, kept = self._parts(there)[0], self._parts(last)[0].any(axis=1)
        # Rows that the sweeps have made zero stay so: an extrapolated row would be tiny but not zero.
        values[~kept] = 0.0
        self._move(there)
        # Anderson steps may rise: then the last sweep's weights stay.
        if self._value() < before:
            return True
        self._move(last)
        return False

    def _value(self) -> float:
        step = self._task.step
        return self._loss_mean() + step.alpha * penalty_value(self._task.penalty, self._w, step.rho)

    def _loss_mean(self) -> float:
        z, y, weight = self._task.margins
        return float(self._task.step.scale * loss_of_scores(z, z, 0.0, y, weight, self._loss))


def _shares(points: list[Array], last: Array) -> Array | None:
    """Overwrite points by their differences to the next; return how much of all but the first to take from `last`."""
    for place, point in enumerate(points):
        # In place, as the points are as large as the weights.
        np.subtract(points[place + 1] if place + 1 < len(points) else last, point, out=point)
    products = np.array([[float(a @ b) for b in points] for a in points])
    mean = float(np.trace(products)) / len(points)
    if not mean > 0.0:
        return None
    # Differences of converging sweeps become parallel, and the matrix singular.
    products[np.diag_indices(len(points))] += _DAMPING * mean
    # the combination of the differences, with shares that sum to one, which is the shortest
    shares = np.linalg.solve(products, np.ones(len(points)))
    return np.asarray(np.cumsum(shares / shares.sum())[:-1])
