"""Rounds by working sets that keep no number of a row: for data whose rows do not fit in the workers' memory.

The rounds are those of `working_set_round.py`: a descent on some columns, and a read of all, which is the certificate.
What either needs of rows is a sum over them, which the lanes of row partitions return; of these only the columns that
are worked on are kept between the reads of a descent, as far as there is room (docs/decisions/0045).
"""

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.execution.memory_budget import MIB, MemoryBudget
from distls.problem import Problem
from distls.solvers.block_reads import BlockReader
from distls.solvers.coordinate_descent.bcd_round import BcdState, RoundSetting, sent
from distls.solvers.coordinate_descent.row_rounds import RowReads, RowRound
from distls.solvers.solver import RoundReport
from distls.storage.errors import ParameterError
from distls.workers.coordinate_descent.all_rows import RowSums
from distls.workers.coordinate_descent.dual_bounds import BALANCED, DualFactor, bound_of, has_conjugate, intercept_slack
from distls.workers.coordinate_descent.quadratic_model import parts_of
from distls.workers.coordinate_descent.row_model_task import ModelStep, ModelSums
from distls.workers.coordinate_descent.row_scores_task import SparseWeights
from distls.workers.coordinate_descent.working_columns import Judged
from distls.workers.coordinate_descent.working_set_task import Descended
from distls.workers.losses.loss_registry import loss_named
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.task import Call, Needs

Array = NDArray[np.float64]
Places = NDArray[np.int64]

_NO_PLACES = np.empty(0, np.int64)
# A Gram's part of active_mib: it is a lane's result, of which a worker holds several while it merges.
_SHARE_OF_GRAM = 32
_STEPS, _DECREASE, _HALVINGS = 50, 1e-3, 12  # of Newton's method, and of the search along a step
# The objective's decrease, as a part of the gap, below which a step brings next to nothing.
_WORTH = 1e-3
_RISE = 8.0 * float(np.finfo(np.float64).eps)
_FAR = 1e-3  # a gap, as a part of the objective, that is no rounding
_BALANCINGS = 20  # reads that make the intercept optimal, at most
_READS = 8  # of a round, about, most of a few columns
_DRIVER_WEIGHTS = 8  # matrices of the weights' size in the driver


class RowBlocks(RowReads):
    """The plan and the rounds of a problem whose rows are read by partitions."""

    def __init__(self, problem: Problem, params: dict[str, Any], memory: MemoryBudget) -> None:
        (n_features, k), dataset = problem.shape, problem.dataset
        parts = parts_of(loss_named(problem.loss), k, sets=problem.target == "multilabel")
        if not parts:
            raise ParameterError(f"loss={problem.loss} has no second derivatives: not with algorithm=row-blocks")
        most = params["active_mib"] * MIB // _SHARE_OF_GRAM
        # columns that move at once: a Gram of all would not fit
        self.most = max(math.isqrt(most // (4 * parts)) - 1, 1)
        one, gram = 8 * n_features * k, 4 * parts * (min(n_features, self.most) + 1) ** 2
        rows, largest = (int(sizes.max(initial=0)) for sizes in (dataset.table.rows, dataset.decoded_bytes))
        # of a partition: scores, slopes and second derivatives; its columns, those that move, and with ones, of dense
        # rows in float64 and weighted too
        copies = 6 if dataset.meta.layout == "dense" else 3
        work = rows * (3 * 8 * k + 4 * parts + 12) + copies * largest + one
        reader = BlockReader(
            problem,
            lanes=params["lanes"],
            needs=Needs(one + gram, one + gram, max(work, gram + 24 * k * k * self.most)),
            memory=memory,
            driver_bytes=_DRIVER_WEIGHTS * one + 2 * gram,
        )
        one_read = reader.plan
        self.plan = replace(
            one_read,
            reductions=_READS,
            bytes_per_pass=_READS * one_read.bytes_per_pass,
            network_bytes_per_round=_READS * one_read.network_bytes_per_round,
        )
        self.lanes = reader.lanes
        self.data = replace(DatasetRef.of(dataset, self.plan.cache_bytes), beside=True)  # with its fold
        super().__init__(
            RoundSetting(
                problem=problem,
                params=params,
                data=self.data,
                shards=cast("Any", None),
                lanes=[],
                row_lanes=reader.work,
                polishes=False,
                folder=None,
            ),
            parts,
        )

    def tasks(self, data: DatasetRef, block: int) -> list[Call]:
        """See `Solver.tasks`: a read of all columns, of some, and a step."""
        problem, k, lane = self.setting.problem, self.setting.problem.shape[1], Lane(0, (block,))
        weights = SparseWeights(np.zeros(1, np.int64), np.ones((1, k), problem.dtype), np.zeros(k))
        every = replace(self.read_task(None, None), data=data)
        some = replace(self.read_task(weights.columns, weights.columns), data=data)
        m = 1 + problem.fit_intercept
        judged = Judged(1.0, np.zeros((1, k)), np.zeros(k), 1.0)
        gram = np.ones((m, m, self.parts), np.float32) + np.eye(m, dtype=np.float32)[:, :, None]
        # Columns are taken from those of a descent too, and conjugates are of its own kernels.
        none = replace(some, moving=_NO_PLACES)
        exact = has_conjugate(problem.loss, problem.target)
        return [
            *(Call(task, weights, lane) for task in (every, some, none)),
            *([Call(replace(none, factor=1.0), weights, lane)] if exact else []),
            Call(replace(self.step_task(BcdState()), data=data), (judged, gram, np.ones((1, k))), Lane(0, ())),
        ]

    def step_task(self, state: BcdState) -> ModelStep:
        """Return the task that minimises a model."""
        problem = self.setting.problem
        recentre = state.recentres and loss_named(problem.loss).ignores_constants
        step = self.setting.step_of(problem)
        return ModelStep(self.data, problem.penalty, step, recentre, problem.fit_intercept)

    def step(self, state: BcdState, executor: Executor) -> tuple[BcdState, RoundReport]:
        """Do one round."""
        known, given = self.newest, sent(state)
        fresh = known is None or not all(map(np.array_equal, known[0], given))
        rounds = _RowBlockRound(self, executor, fresh=fresh)
        found = rounds.run(state)
        assert found is not None  # some columns always fit
        following, report = found
        if rounds.is_stuck:
            report.notes = ["no Newton step lowers the objective: give a larger alpha, or another algorithm"]
        return replace(following, stuck=(state.stuck + 1) * rounds.is_stuck), report

    def intercept_alone(self, executor: Executor) -> Array:
        """Return the intercept that is optimal where all weights are zero."""
        return _RowBlockRound(self, executor, fresh=True).optimal_intercept()


class _RowBlockRound(RowRound):
    """One round that keeps no number of a row."""

    def __init__(self, blocks: RowBlocks, executor: Executor, *, fresh: bool) -> None:
        super().__init__(blocks, executor, fresh=fresh)
        self._blocks = blocks
        self.is_stuck = False  # whether it made no step, far from the optimum

    def optimal_intercept(self) -> Array:
        """Return the intercept that is optimal for zero weights."""
        k = self._problem.shape[1]
        return self._balanced(BcdState(), SparseWeights(_NO_PLACES, np.zeros((0, k)), np.zeros(k)))

    def _begun(self, state: BcdState) -> BcdState:
        """Read all columns at the weights, of zero weights with the intercept that is optimal for them."""
        if state.size:
            # A fit that goes on has judged them already, and the sums have the same bits.
            self._blocks.newest = sent(state), self._read(sent(state), None)
            return state
        if self._problem.fit_intercept and not state.weights.any():
            state = replace(state, intercept=self.optimal_intercept())
        return self._judged(state, None)[0]

    def _descended(self, state: BcdState) -> Descended:
        """Do Newton steps on the columns that are chosen, until their own gap is small."""
        columns, moving = self._chosen(state)
        self._columns = columns
        used = int(np.count_nonzero(state.weights.any(axis=1)))
        target, bound = self._target(state, used, len(columns)), -math.inf
        at = SparseWeights(columns, state.weights[columns].astype(np.float64), state.intercept)
        sums = self._read(at, moving)
        first = self._value(at, sums)
        for _ in range(_STEPS):
            bound = max(bound, self._bound(at, sums))
            judged = Judged(self._value(at, sums), sums.gradient, sums.of_intercept, 0.0)
            judged.gap = judged.value - bound
            found = self._stepped(state, at, sums, judged, moving) if judged.gap > target else None
            if found is None:
                break
            at, sums = found
            if judged.value - self._value(at, sums) <= _WORTH * judged.gap:
                break
        self.is_stuck = judged.gap > max(target, _FAR * first) and not self._value(at, sums) < first
        # Rounded to the type of the state, before the intercept is made optimal for them.
        values = at.values.astype(state.weights.dtype)
        known = sums if np.array_equal(values, at.values) else None
        at = at._replace(values=values)
        at = at._replace(intercept=self._balanced(state, at, known))
        # The next read is at these weights, and has the sums of a report.
        return Descended(at, len(columns), RowSums(sums.loss, 0.0, sums.errors))

    def _chosen(self, state: BcdState) -> tuple[Places, Places]:
        """Return the columns of a descent, with all that have weights, and the places of those that move."""
        assert self._blocks.newest is not None
        gradient, w = self._blocks.newest[1].gradient, np.asarray(state.weights, np.float64)
        columns = self._chosen_columns(state)
        if len(columns) <= self._blocks.most:
            return columns, np.arange(len(columns))
        # In turns: those that are farthest from their optimum.
        far = np.argsort(-self._moves(w[columns], gradient[columns]), kind="stable")
        return columns, np.sort(far[: self._blocks.most])

    def _stepped(
        self, state: BcdState, at: SparseWeights, sums: ModelSums, judged: Judged, moving: Places
    ) -> tuple[SparseWeights, ModelSums] | None:
        """Do a Newton step; return the weights and the sums there, None where the objective would not fall."""
        w, shift = self._minimum(state, judged, sums.gram, at.values[moving], moving)
        change = np.zeros_like(at.values)
        change[moving] = w - at.values[moving]
        predicted = float(np.vdot(sums.gradient, change) + sums.of_intercept @ shift)
        predicted += self._problem.alpha * (
            self._problem.penalty_of(at.values + change) - self._problem.penalty_of(at.values)
        )
        size = 1.0
        for _ in range(_HALVINGS):
            values = at.values + size * change
            if size == 1.0:
                values[moving] = w
            there = at._replace(values=values, intercept=at.intercept + size * shift)
            found = self._read(there, moving)
            value = self._value(there, found)
            if value <= judged.value + _DECREASE * size * predicted + _RISE * abs(value):
                return there, found
            size /= 2.0
        return None

    def _minimum(
        self, state: BcdState, judged: Judged, gram: NDArray[np.float32], w: Array, moving: Places
    ) -> tuple[Array, Array]:
        own = replace(judged, gradient=judged.gradient[moving])
        task = self._blocks.step_task(state)
        found: tuple[Array, Array] = self._reduced(task, [Lane(0, ())], (own, gram, w.astype(np.float64)))
        return found

    def _balanced(self, state: BcdState, at: SparseWeights, sums: ModelSums | None = None) -> Array:
        """Return the intercept that is optimal for some weights: duals are a bound only where they sum to zero."""
        for _ in range(_BALANCINGS if self._problem.fit_intercept else 0):
            sums = sums or self._read(at, _NO_PLACES)
            if float(np.abs(sums.of_intercept).sum()) <= BALANCED:
                break
            judged = Judged(1.0, sums.gradient, sums.of_intercept, 1.0)
            of_ones = sums.gram[-1:, -1:]
            shift = self._minimum(state, judged, of_ones, at.values[:0], _NO_PLACES)[1]
            at, sums = at._replace(intercept=at.intercept + shift), None
        return at.intercept

    def _conjugate_mean(self, state: BcdState, factor: float) -> float:
        """See `RowRound`: of the columns that were worked on, which have all weights and are kept."""
        columns = sent(state).columns if self._columns is None else self._columns
        at = SparseWeights(columns, state.weights[columns].astype(np.float64), state.intercept)
        return self._read(at, _NO_PLACES, factor).loss

    def _read(self, at: SparseWeights, moving: Places | None, factor: float | None = None) -> ModelSums:
        """Return the sums at some weights: of all columns, or of those of the weights."""
        task = self._blocks.read_task(None if moving is None else at.columns, moving)
        found: ModelSums = self._summed(replace(task, factor=factor), at)
        return found

    def _value(self, at: SparseWeights, sums: ModelSums) -> float:
        return sums.loss + self._problem.alpha * self._problem.penalty_of(at.values)

    def _bound(self, at: SparseWeights, sums: ModelSums) -> float:
        """Return a lower bound of the optimum that the columns of some weights alone have."""
        dual = DualFactor(*self._conjugate(sums), float(np.vdot(sums.gradient, at.values)))
        bound = bound_of(self._problem.loss, sums.loss, dual, None)
        rest = float(np.abs(sums.of_intercept).sum())
        return bound - intercept_slack(rest, at.intercept) if self._problem.fit_intercept else bound
