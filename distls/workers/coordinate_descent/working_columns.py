"""Some columns in memory with their weights, and how near these are to the optimum that these columns alone have."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import DenseRows, Rows, n_rows_of, take_rows
from distls.workers.coordinate_descent.active_columns import Active
from distls.workers.coordinate_descent.all_rows import NO_PARTS, derivatives, in_threads
from distls.workers.coordinate_descent.descent_kernels import Step
from distls.workers.coordinate_descent.dual_bounds import (
    DualFactor,
    bound_of,
    conjugate_mean,
    has_conjugate,
    intercept_slack,
)
from distls.workers.coordinate_descent.sweep_task import ColumnTask
from distls.workers.coordinate_descent.working_set_kernels import add_products, dense_products
from distls.workers.linear_algebra.score_kernels import scores
from distls.workers.losses.loss import LabelSets
from distls.workers.losses.targets import slice_rows
from distls.workers.penalties.penalty_registry import penalty_named, penalty_value, prox_rows

Array = NDArray[np.float64]

_SQUARES = 2**20  # values that are squared at a time
# Parts of a product that threads share, and the values of each at least.
_PARTS, _LEAST_VALUES = 8, 2**18
# Columns are worked on that would violate the conditions at this part of alpha: they are about to.
_NEAR = 0.97


@dataclass
class Judged:
    """Weights as they were judged."""

    value: float  # the objective
    gradient: Array  # of the mean loss, (m, k), and in the intercept (k,)
    of_intercept: Array
    gap: float  # to the best bound of the columns' optimum so far


def products_of(x: Rows, slopes: Array, places: NDArray[np.int64] | None = None, *, alone: bool = False) -> Array:
    """Return the products of columns, as rows of X^T, with the slopes (n_rows, k) of the rows.

    Those at some places (m,) alone, if they are given; in threads, if this is the only task (`alone`).
    """
    if places is None:
        places = np.arange(n_rows_of(x))
    elif not isinstance(x, DenseRows):
        x = take_rows(x, places)
    out, zero, turned = np.empty((len(places), slopes.shape[1])), np.zeros(slopes.shape[1]), slopes
    size = len(places) * x.values.shape[1] if isinstance(x, DenseRows) else len(x.data)
    parts = min(_PARTS, size // _LEAST_VALUES) if alone else 1
    ends = np.arange(1, max(parts, 1)) * (size // max(parts, 1))
    if isinstance(x, DenseRows):
        cuts = ends // max(x.values.shape[1], 1)
        turned = np.ascontiguousarray(slopes.T)
    else:
        cuts = np.searchsorted(x.indptr, ends)

    def of_part(span: tuple[int, int]) -> None:
        first, end = span
        # Dense columns are not gathered without their zeros first, which would take longer than the products.
        if isinstance(x, DenseRows):
            dense_products(x.values, places[first:end], turned, out[first:end])
        else:
            scores(x, slopes, zero, out[first:end], first)

    in_threads(of_part, list(pairwise([0, *cuts.tolist(), len(out)])))
    return out


def ranks_of(penalty: str, gradient: Array, step: Step) -> Array:
    """Return how much columns without weights, of that gradient, violate the conditions or are about to; else 0."""
    return sizes_of(prox_rows(penalty, -gradient, _NEAR * step.alpha, step.rho))


def sizes_of(rows: Array) -> Array:
    """Return the norms of rows (m, k)."""
    if rows.shape[1] == 1:
        return np.abs(rows[:, 0])
    return np.asarray(np.sqrt(np.square(rows).sum(axis=1)))


def squares_of(x: Rows, h: NDArray[np.float32], width: int) -> Array:
    """Return ``sum_i x_ij^2 h_i`` (m, parts) of columns j, rows of X^T, with the kernel of `products_of`.

    So many columns of h at a time, and columns of at most a few MiB, are copied.
    """
    m, out = n_rows_of(x), np.empty((n_rows_of(x), h.shape[1]))
    step = max(1, _SQUARES * m // max(x.values.size if isinstance(x, DenseRows) else len(x.data), 1))
    for t in range(0, h.shape[1], width):
        slopes = h[:, t : t + width].astype(np.float64)
        for j in range(0, m, step):
            some = slice_rows(x, slice(j, min(j + step, m)))
            some = some._replace(**{some._fields[-1]: np.square(some[-1], dtype=np.float64)})
            out[j : j + step, t : t + width] = products_of(some, slopes)
    return out


class WorkingColumns:
    """Columns as rows of X^T, whose weights `w` (m, k) and the intercept change with scores and slopes of all rows."""

    def __init__(self, task: ColumnTask, held: Active, w: Array) -> None:
        self.task, self.numbers, self.x, self.w = task, held.columns, held.x, w
        self.step, self.margins = task.step, task.margins
        self.slopes = np.empty(self.margins.z.shape)
        self._exact = has_conjugate(
            task.scores.loss, "multilabel" if isinstance(self.margins.y, LabelSets) else "class"
        )
        self._bound = -np.inf

    def intercept(self) -> Array:
        """Return it: that of its own steps, and by what centred columns have changed it."""
        return self.task.b + self.task.shift

    def penalty(self, w: Array) -> float:
        """Return alpha times the penalty."""
        return self.step.alpha * penalty_value(self.task.penalty, w, self.step.rho)

    def value(self, h: NDArray[np.float32] = NO_PARTS) -> float:
        """Return the objective, and keep the slopes of the rows; `h` gets their second derivatives."""
        with self.task.ledger.in_kernels():
            self.mean = derivatives(self.margins, self.task.scores.loss, self.step.scale, self.slopes, h)
        return self.mean + self.penalty(self.w)

    def judge(self, value: float) -> Judged:
        """Return the gradient and the gap, of these columns alone, where `value` has just given the objective."""
        step, task = self.step, self.task
        with task.ledger.in_kernels():
            gradient = products_of(self.x, self.slopes, alone=True)
        factor, conjugated = penalty_named(task.penalty).conjugate(-gradient, step.alpha, step.rho)
        dual = DualFactor(factor, conjugated, float(np.vdot(gradient, self.w)))
        # Where it can be computed it is better than what convexity gives.
        conjugate = None
        if self._exact:
            given = task.scores.loss, self.margins, self.slopes, factor, step.scale
            conjugate = conjugate_mean(*given, alone=True)
        bound, rest = (bound_of(task.scores.loss, self.mean, dual, conjugate), np.asarray(self.slopes.sum(axis=0)))
        if task.fit_intercept:
            bound -= intercept_slack(float(np.abs(rest).sum()), self.intercept())
        # Dual points are not monotone, and every bound stays one.
        self._bound = max(self._bound, bound)
        return Judged(value, gradient, rest, value - self._bound)

    def near(self, gradient: Array) -> NDArray[np.bool_]:
        """Return which columns have weights, or are about to have some."""
        ranks = ranks_of(self.task.penalty, gradient, self.step)
        return np.asarray(self.w.any(axis=1) | (ranks > 0.0))

    def change_scores(self, change: Array, shift: Array) -> Array:
        """Return the changes of the scores of all rows by those of the weights and of the intercept."""
        out = np.tile(shift, (len(self.margins.z), 1))
        with self.task.ledger.in_kernels():
            add_products(self.x, change, out)
        return out

    def move(self, w: Array, intercept: Array) -> None:
        """Take other weights, with their scores."""
        self.w[:], self.task.b[:] = w, intercept
        self.task.shift[:] = 0.0
        # Anew from the weights: what many changes have rounded does not add up.
        self.margins.z[:] = self.change_scores(self.w, self.task.b)
