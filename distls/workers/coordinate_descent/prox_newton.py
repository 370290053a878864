"""Proximal Newton steps on some columns: cycles of descent over their rows, or on their Gram alone, without the rows.

The methods of Yuan, Ho and Lin (2012, newGLMNET) and of skglm (Bertrand et al. 2022) have the first form. Of one output
a cycle over the columns, in random order, is a step: nearly uncorrelated columns need ten. Where columns are
correlated, or much accuracy is asked for, the Gram is faster. An intercept is a column of ones without a penalty; it
stays optimal for the model while blocks change, so that columns with means do not take turns with it.
"""

import math

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import DenseRows, Rows
from distls.workers.coordinate_descent.cycle_kernels import newton_cycle
from distls.workers.coordinate_descent.kept_gram import gram_of, rows_of
from distls.workers.coordinate_descent.quadratic_model import (
    SINGLE,
    Model,
    SupportStep,
    expanded,
    gram_serves,
    minimise,
    own_parts,
    passes_are_quick,
)
from distls.workers.coordinate_descent.working_columns import Judged, WorkingColumns, squares_of
from distls.workers.linear_algebra.column_selection import count_by_row
from distls.workers.losses.loss_registry import loss_named
from distls.workers.penalties.penalty import recentre_rows
from distls.workers.penalties.penalty_registry import penalty_named
from distls.workers.penalties.row_kernels import kernel_argument
from distls.workers.rounds.block_stream import open_ref

Array = NDArray[np.float64]
Single = NDArray[np.float32]

_STEPS = 50  # of Newton's method
# Blocks may move by this part of alpha times the relative gap, once the model counts as minimised.
_PRECISION = 1e-2
_DECREASE, _HALVINGS = 1e-3, 30  # of the search along a step
_FARTHEST = 1e8  # of the changes of scores, in units of the largest score
# What is left of the gap after a step, at most, so that its Gram serves again, as it is or scaled; and the part of the
# gap by which the objective falls in steps that have not come to an end.
_FAST, _SCALED, _WORTH = 0.25, 0.95, 1e-3
# Cycles at most, and those after which their rate is known: at least so many, and this part of those that the other way
# is worth; more where dense columns are too many for a Gram.
_CYCLES, _TRIED, _SPENT, _SPENT_DENSE = 300, 3, 0.1, 0.5
# Those between two steps in the weights that are not zero, what a product of such a step costs, of dense columns read
# twice, and products a step is worth; parts of the cycles between two judgements, and whose rate counts.
_BETWEEN, _PRODUCT, _DENSE_PRODUCT, _WORTHWHILE, _APART, _RECENT = 5, 0.5, 2.0, 10.0, 0.2, 3
# Second derivatives are at least this part of the largest in cycles, so that changes of slopes tell those of scores.
_FLOOR = 1e-8
# Nanoseconds of the product of two non-zeros in a Gram, of two dense values, and of the passes over a number of it; of
# a non-zero in a cycle, and of a dense value; cycles that take as long as what steps on a Gram do beside it.
_PAIR, _DENSE_PAIR, _PASSED, _TOUCHED, _DENSE_TOUCHED, _STEPPED = 0.8, 0.02, 10.0, 3.5, 0.4, 6.0
# Rows for each column, from which a Gram is summed where the gap is to fall to no less than this part: the error of
# such a model is about the root of 1/20. What may be left where such steps come to an end, or one of all rows is made.
_SAMPLE, _LOOSE, _ENOUGH = 20, 1e-3, 0.75
# What may be left of it after all steps, or of the objective, without sweeps being tried, whose searches see no less;
# and of the objective, below which a gap is rounding.
_LED, _SWEPT, _ROUNDING = 0.1, 1e-9, 1e-12
# In units of the last place of the objective: rises are rounding.
_RISE = 8.0 * float(np.finfo(np.float64).eps)


class ProxNewton:
    """Newton steps on columns; `near` if the fit has begun at the weights of another model."""

    def __init__(self, columns: WorkingColumns, parts: int, most_bytes: int, near: bool) -> None:
        self._columns, self._most_bytes = columns, most_bytes
        n_rows, self._k = columns.margins.z.shape
        self._h, self._ones = np.empty((n_rows, parts), np.float32), columns.task.fit_intercept
        beside = np.full(int(self._ones), open_ref(columns.task.data).meta.n_features)
        self._numbers = np.concatenate([columns.numbers, beside])
        self._model: Model | None = None
        self._is_quadratic = loss_named(columns.task.scores.loss).quadratic
        self._shift = 0  # every 2^shift-th row is in the Gram
        self._rows: tuple[int, Rows] | None = None  # the shift for which they were put together, and they
        self._holds_gram = gram_serves(columns, parts, most_bytes)
        self._fits_gram = self._holds_gram and passes_are_quick(columns, parts)
        self._dense = isinstance(columns.x, DenseRows)
        # Of dense columns a Gram that stays the same is kept for later rounds, which many steps are worth.
        kept = self._is_quadratic and self._fits_gram and self._dense and not near
        self._by_cycles = parts == self._k == 1 and not kept
        self._pairs: float | None = None  # of non-zeros in one row
        self._curvatures: Array | None = None  # of columns, as the last cycle has found them

    def serves(self) -> bool:
        """Return whether there are steps that are sooner than sweeps."""
        return self._fits_gram or self._by_cycles

    def run(self, target: float) -> bool:
        """Do steps until the gap is at most `target`, one at least; return whether they have led anywhere."""
        columns = self._columns
        first = judged = columns.judge(columns.value(self._h))
        # Zero weights stay exact zeros where they are optimal.
        if first.gap <= _ROUNDING * first.value:
            return True
        if self._by_cycles:
            judged = self._run_cycles(first, target)
            self._curvatures = None  # sweeps may move columns that cycles have left out
            if judged.gap <= target and not columns.task.data.one_row:
                return True
        return self._fits_gram and self._run_gram(first, judged, target)

    def _run_cycles(self, judged: Judged, target: float) -> Judged:
        """Do steps of one cycle each, until the gap is at most `target`, or another way would be sooner."""
        columns, value, moves, spent = self._columns, judged.value, [], [0.0]
        # A cycle's largest move falls as the gap does: how the two stood where the gap was judged last.
        by, known, some, last = math.inf, True, np.ones(len(columns.w), bool), 0
        price = _DENSE_PRODUCT if self._dense else _PRODUCT
        for number in range(1, _CYCLES + 1):
            found = self._cycle(value, number, some)
            if found is None:
                break
            value, known = found[0], False
            moves.append(found[1])
            spent.append(spent[-1] + 1.0)
            if number == 1 or (by * moves[-1] <= target and number - last >= _APART * number):
                judged, known, last = columns.judge(value), True, number
                by = judged.gap / moves[-1] if moves[-1] > 0.0 else 0.0
                some = columns.near(judged.gradient)
                if judged.gap <= target:
                    break
            # As near as rounding allows.
            if not (target > 0.0 and 0.0 < by * moves[-1] < math.inf):
                break
            needed = _needed(moves, spent, math.log(target / (by * moves[-1])))
            if self._is_slow(number, needed):
                break
            if number % _BETWEEN == 0 and needed > _WORTHWHILE * price:
                value, products = self._leapt(value)
                spent[-1] += price * products
                known = False
        return judged if known else columns.judge(value)

    def _is_slow(self, number: int, needed: float) -> bool:
        """Return whether the cycles that are needed take longer than steps on a Gram, or than sweeps."""
        least = self._worth(exact=False) if self._fits_gram else _CYCLES
        # A move larger than the one before it says little: cycles are tried for a part of what they are to save.
        tried = _SPENT if self._fits_gram or not self._dense else _SPENT_DENSE
        slow = number > tried * least and needed > least
        return slow and (not self._fits_gram or needed > self._worth(exact=True))

    def _worth(self, *, exact: bool) -> float:
        """Return how many cycles take as long as steps on a Gram do, or at least as many."""
        x, m, n = self._columns.x, len(self._columns.w), len(self._h)
        if isinstance(x, DenseRows):
            return _STEPPED + (_DENSE_PAIR * m + _PASSED * m / n) / _DENSE_TOUCHED
        size = max(len(x.data), 1)
        pairs = size * (size / n)
        if exact:
            if self._pairs is None:
                counts = np.zeros(n + 1, np.int64)
                count_by_row(x.indices, 0, counts)
                self._pairs = float(counts @ counts)
            pairs = self._pairs
        return _STEPPED + (0.5 * _PAIR * pairs + _PASSED * m * m) / (_TOUCHED * size)

    def _cycle(self, before: float, number: int, some: NDArray[np.bool_]) -> tuple[float, float] | None:
        """Do a step by one cycle over some columns, in random order; return the objective and its move.

        None where it would not fall.
        """
        columns, task, step, h = self._columns, self._columns.task, self._columns.step, self._h
        largest = h.max(initial=0.0)
        if not largest > 0.0:
            return None
        np.maximum(h, _FLOOR * largest, out=h)
        old, scaled, self._curvatures = columns.w.copy(), columns.slopes / h, np.ones(len(columns.w))
        total = float(h.sum(dtype=np.float64)) if self._ones else math.inf
        # The intercept moves to its optimum for the model first, where it stays.
        first = -float(columns.slopes.sum()) / total
        scaled += first
        penalty, order = kernel_argument(penalty_named(task.penalty)), task.order(number, len(old))
        order = order[some[order]]
        with task.ledger.in_kernels():
            x, w = columns.x, columns.w
            given = w, scaled.ravel(), h.ravel(), total, penalty, step.alpha, step.rho, self._curvatures
            move, later = newton_cycle(x, order, *given)
        # Scores have moved by what slopes have, over the second derivatives.
        scaled -= columns.slopes / h
        scaled += later
        w, slope = columns.w.copy(), float(np.vdot(columns.slopes, scaled))
        found = self._searched(before, old, w, np.full(1, first + later), scaled, slope)
        return None if found is None else (found, float(move))

    def _leapt(self, value: float) -> tuple[float, int]:
        """Do a step in the weights that are not zero, if the objective falls; return it, and the products it took."""
        if not float(self._h.sum(dtype=np.float64)) > 0.0:
            return value, 0
        step = SupportStep(self._columns, self._h, self._curvatures)
        old = self._columns.w.copy()
        with self._columns.task.ledger.in_kernels():
            found = step.found()
        if found is None:
            return value, 0
        later = self._searched(value, old, *found)
        return value if later is None else later, step.products

    def run_again(self, target: float) -> None:
        """Do steps on a Gram where sweeps have led nowhere, which were to be sooner."""
        if self._holds_gram and not self._fits_gram:
            first = self._columns.judge(self._columns.value(self._h))
            self._run_gram(first, first, target)

    def leap(self) -> None:
        """Do such a step from any weights, where products with second derivatives take no longer than a sweep."""
        (n, parts), k, x = self._h.shape, self._k, self._columns.x
        size = x.values.size if isinstance(x, DenseRows) else len(x.data)
        if parts and n * (parts if parts == k else k * k) <= size * k:
            self._leapt(self._columns.value(self._h))

    def _run_gram(self, first: Judged, judged: Judged, target: float) -> bool:
        """Do steps on a Gram; return whether these, and those before, have led anywhere."""
        columns, before, stale, idle = self._columns, np.inf, False, 0
        # That of a quadratic loss stays the same, and serves for all steps.
        if target >= _LOOSE * first.gap and not self._is_quadratic:
            share = len(self._h) // (_SAMPLE * len(self._numbers))
            self._shift = max(share.bit_length() - 1, 0)
        for _ in range(_STEPS):
            stale = self._model is not None and judged.gap <= self._limit(stale) * before
            # One of some rows has done what it can: if that is enough, other columns matter more.
            if self._shift and not stale and self._model is not None:
                if judged.gap <= _ENOUGH * first.gap:
                    return True
                self._shift = 0
            before, found = judged.gap, self._stepped(judged, stale=stale)
            if found is None and (stale or self._shift):
                self._shift, stale = 0, False
                found = self._stepped(judged, stale=False)
            if found is None:
                break
            earlier, judged = judged, columns.judge(found)
            if judged.gap <= target:
                return True
            # As near as rounding allows: two steps with Grams of their own have brought next to nothing. One may: where
            # alpha is small, bounds are far below until the last step.
            idle = idle + 1 if not (stale or self._shift) and _is_idle(earlier, judged) else 0
            if idle == 2:
                break
        return judged.gap <= max(_LED * first.gap, _SWEPT * judged.value)

    def _limit(self, stale: bool) -> float:
        """Return what a step may leave of the gap, so that its Gram, which was `stale` there or not, serves again."""
        if not self._scales():
            return _FAST
        return _SCALED if stale else np.inf

    def _scales(self) -> bool:
        """Return whether a Gram serves again scaled: of unlike parts, which change by more, one of some rows alone."""
        return not self._is_quadratic and (self._shift > 0 or self._h.shape[1] <= self._k)

    def _stepped(self, judged: Judged, *, stale: bool) -> float | None:
        """Do one step; return the objective, None where it would not fall."""
        columns = self._columns
        if not stale:
            gram = self._gram()
            self._model = self._quadratic(gram)
        elif self._scales() and self._model is not None:
            self._model = self._quadratic(self._scaled(self._model.gram))
        if self._model is None:
            return None
        w, shift = self._minimised(self._model, judged)
        change, old = w - columns.w, columns.w.copy()
        moved = columns.change_scores(change, shift)
        slope = float(np.vdot(judged.gradient, change) + judged.of_intercept @ shift)
        return self._searched(judged.value, old, w, shift, moved, slope)

    def _searched(self, before: float, old: Array, w: Array, shift: Array, moved: Array, slope: float) -> float | None:
        """Move from `old` weights towards `w` until the objective falls; return it, None where it would not.

        `moved` are the changes of the scores by those of the weights and of the intercept, and `slope` that of the mean
        loss along them.
        """
        columns, change = self._columns, w - old
        predicted = min(slope + columns.penalty(w) - columns.penalty(old), 0.0)
        size, z = 1.0, columns.margins.z
        largest, most = (float(np.abs(each).max(initial=0.0)) for each in (moved, z))
        # Farther away scores would lose their digits, and so would those to which they come back.
        while size * largest > _FARTHEST * (1.0 + most) and math.isfinite(largest):
            size /= 2.0
        # They move along the step in place, so that no copy of them is held.
        z += size * moved
        for _ in range(_HALVINGS if math.isfinite(largest) else 0):
            columns.w[:] = w if size == 1.0 else old + size * change
            value = columns.value(self._h)
            if value <= before + _DECREASE * size * predicted + _RISE * abs(value):
                columns.task.b += size * shift
                return value
            size /= 2.0
            z -= size * moved
        columns.w[:] = old
        z[:] = columns.change_scores(old, columns.intercept())
        columns.value(self._h)
        return None

    def _gram(self) -> Single:
        """Return the Gram at the last second derivatives."""
        task = self._columns.task
        # Of another loss the next Gram would have other second derivatives.
        most = self._most_bytes if self._is_quadratic else 0
        h = np.ascontiguousarray(self._h[:: 1 << self._shift])
        with task.ledger.in_kernels(), np.errstate(over="ignore", invalid="ignore"):
            if self._rows is None or self._rows[0] != self._shift:
                rows = rows_of(self._columns.x, len(h), self._shift, ones=self._ones)
                self._rows = self._shift, rows
            gram = gram_of(self._rows[1], h, self._numbers, task.data, most)
            return self._scaled(gram) if self._shift else gram

    def _scaled(self, gram: Single) -> Single:
        """Scale an earlier Gram in place, or one of some rows, to the diagonal that all rows have now."""
        earlier = np.diagonal(gram, axis1=0, axis2=2).T.copy()
        diagonal = np.zeros(earlier.shape)
        with self._columns.task.ledger.in_kernels():
            diagonal[: len(self._columns.w)] = squares_of(self._columns.x, self._h, self._k)
        if self._ones:
            diagonal[-1] = self._h.sum(axis=0, dtype=np.float64)
        new, old = diagonal, earlier
        # Unlike parts have one scale, or the matrix would not stay positive.
        if earlier.shape[1] > self._k:
            new, old = (own_parts(each, self._k).sum(axis=1)[:, None] for each in (diagonal, earlier))
        scale = np.sqrt(new / np.where(old > 0.0, old, 1.0)).astype(np.float32)
        # On both sides: a positive matrix stays one.
        gram *= scale.T
        gram *= scale[:, :, None]
        # A column may have had no values, or no curvature, in these rows.
        bare = np.broadcast_to(old <= 0.0, earlier.shape)
        columns, parts = np.nonzero(bare)
        gram[columns, parts, columns] = diagonal[bare]
        return gram

    def _quadratic(self, gram: Single) -> Model | None:
        """Return the quadratic model with a Gram; None beyond float32."""
        k, m = self._k, len(self._columns.w)
        diagonal = np.ascontiguousarray(np.diagonal(gram, axis1=0, axis2=2).T, np.float64)
        # Values beyond the range of float32 are left to sweeps.
        if not np.isfinite(diagonal).all():
            return None
        blocks, pull = expanded(diagonal, k), np.zeros((0, k, k))
        own, inverse, coupling = np.trace(blocks, axis1=1, axis2=2), None, None
        if self._ones:
            # The intercept's own optimum for the model, and how blocks move it.
            # Singular where the loss ignores constants.
            inverse = np.linalg.pinv(blocks[m], rcond=SINGLE, hermitian=True)
            coupling = expanded(np.ascontiguousarray(gram[m].T, np.float64), k)
            pull = np.ascontiguousarray(inverse @ coupling[:m])
            blocks = blocks[:m] - coupling[:m] @ pull
        # At least rounding, so that a column that the intercept explains still shrinks to zero.
        longest = np.maximum(np.linalg.eigvalsh(blocks)[:, -1], SINGLE * own[:m])
        task = self._columns.task
        penalty = kernel_argument(penalty_named(task.penalty))
        found = np.ascontiguousarray(blocks), longest, pull, inverse, coupling
        return Model(gram, *found, penalty, self._columns.step)

    def _minimised(self, model: Model, judged: Judged) -> tuple[Array, Array]:
        """Return the weights that minimise the model, and the change of the intercept."""
        columns, step, m = self._columns, self._columns.step, len(self._columns.w)
        shift, slopes = np.zeros(self._k), np.zeros((self._k, len(model.gram)))
        slopes[:, :m] = judged.gradient.T
        if model.inverse is not None and model.coupling is not None:
            slopes[:, m] = judged.of_intercept
            shift = -model.inverse @ judged.of_intercept
            slopes += (model.coupling @ shift).T
        penalty, w = penalty_named(columns.task.penalty), columns.w.copy()
        tolerance = _PRECISION * step.alpha * min(1.0, judged.gap / max(judged.value, 1e-300))
        for _ in range(_STEPS):
            with columns.task.ledger.in_kernels():
                found = minimise(model, penalty, w, shift, slopes, tolerance)
            # A constant added to a row of weights has no curvature, where the loss ignores it. Turns that did not
            # suffice follow a direction in which the model has no end, as one of some rows may where columns are
            # collinear: more would lead farther away.
            if not found or not columns.task.recentre or recentre_rows(penalty, w, np.arange(m), step.rho) > -1e-12:
                break
        return w, shift


def _needed(moves: list[float], spent: list[float], fall: float) -> float:
    """Return about how many cycles it takes until the logarithm of the gap has changed by `fall`; 0 if unknown."""
    # Of other steps' changes, whose price is in `spent`, cycles as far behind one tell; single moves rise and fall.
    some = max(len(moves) // 2, _TRIED - 1) if len(moves) <= _BETWEEN else max(_BETWEEN, len(moves) // _RECENT)
    if len(moves) <= some:
        return 0.0
    latest, earlier = min(moves[-_TRIED:]), min(moves[max(len(moves) - some - _TRIED, 0) : len(moves) - some])
    rate = (latest / earlier) ** (1.0 / (spent[-1] - spent[-1 - some]))
    return fall / math.log(rate) if rate < 1.0 else math.inf


def _is_idle(earlier: Judged, judged: Judged) -> bool:
    little = earlier.value - judged.value <= _WORTH * judged.gap
    return little and judged.gap > _ENOUGH * earlier.gap
