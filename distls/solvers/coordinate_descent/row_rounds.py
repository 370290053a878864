"""Rounds by working sets on row partitions: what of them is a sum over rows, and a descent on columns from rows.

The columns that a descent works on are gathered from the rows into the memory of one task, which has the scores of all
rows too. Where these do not fit, `row_blocks.py` keeps no number of a row.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.execution.memory_budget import MIB
from distls.execution.row_reads import reduce_rows
from distls.solvers.coordinate_descent.bcd_round import BcdState, RoundSetting, sent
from distls.solvers.coordinate_descent.working_set_round import WorkingSetRound
from distls.workers.coordinate_descent.all_rows import RowSums
from distls.workers.coordinate_descent.dual_bounds import has_conjugate
from distls.workers.coordinate_descent.row_model_task import Gathered, GatherTask, ModelSums, ModelTask
from distls.workers.coordinate_descent.row_scores_task import RowScores, SparseWeights
from distls.workers.coordinate_descent.violation_task import ConjugateTask, Violations, moves_of
from distls.workers.coordinate_descent.working_columns import ranks_of
from distls.workers.coordinate_descent.working_set_task import Descended, GatheredSetTask
from distls.workers.penalties.penalty_registry import penalty_named
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.task import Call, Task

Array = NDArray[np.float64]
Places = NDArray[np.int64]


class RowReads:
    """What rounds read of rows, with second derivatives of so many `parts` where these are read too."""

    def __init__(self, setting: RoundSetting, parts: int = 0) -> None:
        self.setting, self.parts = setting, parts
        # The sums at the weights of the newest state; without them they are read again, with the same bits.
        self.newest: tuple[SparseWeights, ModelSums] | None = None
        self.lowest = math.inf  # objective of any weights that were read

    def read_task(self, columns: Places | None, moving: Places | None) -> ModelTask:
        """Return the task of a read of some columns, or of all."""
        problem = self.setting.problem
        own = problem.loss, problem.row_weights, 1.0 / problem.dataset.meta.n_rows
        return ModelTask(self.setting.data, *own, columns, moving, self.parts, problem.fit_intercept)


class RowRound(WorkingSetRound):
    """One round, whose read of all columns is a sum over row partitions."""

    def __init__(self, reads: RowReads, executor: Executor, *, fresh: bool) -> None:
        super().__init__(reads.setting, executor, fresh=fresh)
        self._reads = reads
        self._columns: Places | None = None  # of the descent

    def _begun(self, state: BcdState) -> BcdState:
        return self._judged(state, None)[0]

    def _judged(self, state: BcdState, rows: RowSums | None) -> tuple[BcdState, Violations]:
        """Read all columns; return the state with its objective and gap, and what was found."""
        problem, given, w = self._problem, sent(state), np.asarray(state.weights, np.float64)
        sums: ModelSums = self._summed(self._reads.read_task(None, None), given)
        self._reads.newest = given, sums
        factor, conjugated = self._conjugate(sums)
        sizes = self._moves(w, sums.gradient)
        found = Violations(
            factor, conjugated, float(np.vdot(sums.gradient, w)), float(sizes.sum()), float(sizes.max(initial=0.0))
        )
        own = RowSums(sums.loss, float(np.abs(sums.of_intercept).sum()), sums.errors)
        used, exact = int(np.count_nonzero(w.any(axis=1))), has_conjugate(problem.loss, problem.target)
        conjugate = self._conjugate_mean(state, factor) if exact else None
        state = self._certified(state, own, found, conjugate, self._next_size(state, used))
        self._reads.lowest = min(self._reads.lowest, state.objective)
        return state, found

    def _conjugate_mean(self, state: BcdState, factor: float) -> float | None:
        """Return the mean conjugate at the state's gradients times a factor, None where nothing of rows is kept."""
        if self._columns is None:
            return None
        shared = factor, self._problem.shape[1]
        found: float = self._reduced(self._task(ConjugateTask, state), [Lane(0, ())], shared)
        return found

    def _chosen_columns(self, state: BcdState) -> Places:
        """Return the columns of a descent: all that have weights, and the largest violators."""
        assert self._reads.newest is not None
        gradient, given = self._reads.newest[1].gradient, state.weights.any(axis=1)
        rank = ranks_of(self._problem.penalty, gradient, self._setting.step_of(self._problem))
        others = np.flatnonzero(~given & (rank > 0.0))
        room = max(state.size - int(given.sum()), 0)
        best = others[np.argsort(-rank[others], kind="stable")[:room]]
        return np.union1d(np.flatnonzero(given), best)

    def _descended(self, state: BcdState) -> Descended | None:
        """Gather the columns, and descend on them; None where they do not fit."""
        setting, limit = self._setting, self._setting.params["active_mib"] * MIB
        scores, columns = setting.row_scores(RowScores, state.round), self._chosen_columns(state)
        gathered: Gathered = self._summed(GatherTask(scores, columns, limit), None)
        if gathered.n_bytes > limit:
            return None
        self._columns = columns
        used = int(np.count_nonzero(state.weights.any(axis=1)))
        target = self._target(state, used, len(columns))
        task = setting.sweeps(GatheredSetTask, scores, state)
        task = replace(task, columns=columns, target=target, gram_bytes=limit)
        found: Descended = self._reduced(task, [Lane(0, ())], sent(state))
        self._ledger = self._ledger.merge(found.ledger)
        return found

    def _summed(self, task: Task, shared: Any) -> Any:
        """Return the sums of a read of all rows."""
        found = reduce_rows(self._executor, self._problem.dataset, shared, task, self._setting.row_lanes)
        self._ledger = self._ledger.merge(found.ledger)
        return found

    def _conjugate(self, sums: ModelSums) -> tuple[float, float]:
        problem = self._problem
        return penalty_named(problem.penalty).conjugate(-sums.gradient, problem.alpha, problem.l1_ratio)

    def _moves(self, w: Array, gradient: Array) -> Array:
        return moves_of(self._problem.penalty, w, gradient, self._setting.step_of(self._problem))


def row_round_tasks(setting: RoundSetting, data: DatasetRef) -> list[Call]:
    """Return the tasks of rounds whose columns are gathered, on one row, with a strength at which it is worked on."""
    problem = replace(setting.problem, alpha=1e-9)
    setting, k = replace(setting, problem=problem, data=data), problem.shape[1]
    column, lane, limit = np.zeros(1, np.int64), Lane(0, (0,)), setting.params["active_mib"] * MIB
    weights = SparseWeights(column, np.ones((1, k), problem.dtype), np.zeros(k))
    scores = setting.row_scores(RowScores, 0)
    descent = setting.sweeps(GatheredSetTask, scores, BcdState())
    conjugate = ConjugateTask(replace(scores, version=1), problem.penalty, setting.step_of(problem))
    return [
        Call(RowReads(setting).read_task(None, None), weights, lane),
        Call(GatherTask(scores, column, limit), None, lane),
        Call(replace(descent, columns=column, target=np.inf, gram_bytes=limit), weights, Lane(0, ())),
        *([Call(conjugate, (1.0, k), Lane(0, ()))] if has_conjugate(problem.loss, problem.target) else []),
    ]
