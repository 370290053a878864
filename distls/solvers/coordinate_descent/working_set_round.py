"""A round by working sets: descent on the columns that matter, then a read of all columns, which is the certificate.

The read looks for columns that violate the optimality conditions at the new weights, and finds by how much the slopes
of the rows are to be scaled to be a point of the dual: the duality gap, at no further read (docs/decisions/0037).
"""

import math
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from distls.execution.executor import Executor
from distls.execution.memory_budget import MIB
from distls.execution.serial import SerialExecutor
from distls.solvers.coordinate_descent.bcd_round import BcdState, RoundSetting, sent
from distls.solvers.solver import Enough, RoundReport, no_gap
from distls.workers.coordinate_descent.all_rows import RowSums
from distls.workers.coordinate_descent.dual_bounds import BALANCED, bound_of, has_conjugate, intercept_slack
from distls.workers.coordinate_descent.row_scores_task import RowScores, SparseWeights
from distls.workers.coordinate_descent.violation_task import (
    ConjugateTask,
    OnAllScores,
    Scored,
    ScoresOfColumns,
    Violations,
    ViolationTask,
)
from distls.workers.coordinate_descent.working_set_task import Descended, WorkingSetTask
from distls.workers.losses.loss_registry import loss_named
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.task import Call

T = TypeVar("T", bound=OnAllScores)

# Columns of the first working set beside those with weights, at least; later ones have twice as many as before.
_FIRST = 256
# The gap of the columns that are worked on, at which a descent ends, as a part of that of all columns: the fewer of the
# columns are new, the more of the gap is that of the columns themselves.
_SHARE, _LEAST_SHARE = 0.1, 1e-6
# Of the gap that is asked for, that at which a descent ends in any case.
_ASKED = 0.9
# The decrease of a round, as a part of the gap, below which it has brought nothing.
_STALLED = 1e-3
# The gap, as a part of the objective, at which a fit is solved whatever found no memory.
_SOLVED = 1e-9


class WorkingSetRound:
    """One round of a fit, whose lanes are those of the setting; `fresh` if nothing of rows is kept yet."""

    def __init__(self, setting: RoundSetting, executor: Executor, *, fresh: bool, enough: Enough = no_gap) -> None:
        self._setting = replace(setting, alone=setting.alone and isinstance(executor, SerialExecutor))
        self._problem, self._executor = setting.problem, executor
        self._fresh, self._ledger, self._enough = fresh, Ledger(), enough

    @property
    def bytes_read(self) -> int:
        """Bytes that were read so far."""
        return self._ledger.bytes_read

    def run(self, state: BcdState) -> tuple[BcdState, RoundReport] | None:
        """Return the next state and the report; None where the columns with weights do not fit in memory."""
        reads = 1.0
        if self._fresh:
            # A fit that goes on has counted this read already.
            reads += float(not state.size)
            state = self._begun(state)
        self.before = state.objective
        # Nothing is lost: sweeps start from the same weights.
        if not state.size:
            return None
        found = self._descended(state)
        if found is None:
            return None
        weights = np.zeros_like(state.weights)
        weights[found.weights.columns] = found.weights.values
        following = replace(
            state,
            weights=weights,
            intercept=found.weights.intercept,
            round=state.round + 1,
            passes=state.passes + reads,
            # More than all columns are no more; a tolerance below rounding would double it without an end.
            size=min(2 * state.size, 2 * len(weights) + _FIRST),
        )
        following, violations = self._judged(following, found.rows)
        return following, self._report(following, violations, found)

    def _begun(self, state: BcdState) -> BcdState:
        """Store scores and slopes, and the columns of the first descent from the state."""
        setting = self._setting
        # Scores are a function of the weights: whether they are kept or made anew, they have the same bits.
        columns = np.flatnonzero(state.weights.any(axis=1))
        needed = np.unique(np.searchsorted(setting.shards.first, columns, side="right") - 1)
        item = Lane(0, tuple(needed.tolist()))
        scored: Scored = self._reduced(self._task(ScoresOfColumns, state), [item], sent(state))
        self._ledger = self._ledger.merge(scored.ledger)
        begun = self._judged(state, scored.rows)[0]
        # What a round before has decided stays: that it has brought something is no longer seen.
        return state if state.size else begun

    def _descended(self, state: BcdState) -> Descended | None:
        """Descend on the columns that were stored."""
        setting, used = self._setting, int(np.count_nonzero(state.weights.any(axis=1)))
        task = replace(
            setting.sweeps(WorkingSetTask, setting.row_scores(RowScores, state.round), state),
            target=self._target(state, used, state.held),
            gram_bytes=setting.params["active_mib"] * MIB,
            near=self._enough is not no_gap,
        )
        found: Descended = self._reduced(task, [Lane(len(setting.lanes), ())], sent(state))
        self._ledger = self._ledger.merge(found.ledger)
        return found

    def _judged(self, state: BcdState, rows: RowSums) -> tuple[BcdState, Violations]:
        """Read all columns: return the state with its objective and gap, and what was found."""
        setting, problem, k = self._setting, self._problem, self._problem.shape[1]
        used = int(np.count_nonzero(state.weights.any(axis=1)))
        size = self._next_size(state, used)
        task = replace(
            self._task(ViolationTask, state),
            room=-(-(size - used) // len(setting.lanes)),
            most_bytes=setting.params["active_mib"] * MIB // len(setting.lanes),
        )
        lanes = [Lane(i, shards) for i, shards in enumerate(setting.lanes)]
        found: Violations = self._reduced(task, lanes, sent(state))
        found.ledger.check_cover(range(len(setting.shards)), 0, "column shards")
        self._ledger = self._ledger.merge(found.ledger)
        conjugate = None
        if has_conjugate(problem.loss, problem.target):
            shared = found.factor, k
            conjugate = self._reduced(self._task(ConjugateTask, state), [Lane(0, ())], shared)
        return self._certified(state, rows, found, conjugate, size), found

    def _certified(
        self, state: BcdState, rows: RowSums, found: Violations, conjugate: float | None, size: int
    ) -> BcdState:
        """Return the state with its objective and gap, from sums over rows and columns, and the next set's size."""
        problem = self._problem
        bound = bound_of(problem.loss, rows.loss, found.dual, conjugate)
        if problem.fit_intercept:
            balanced = rows.rest <= BALANCED
            bound = bound - intercept_slack(rows.rest, state.intercept) if balanced else -math.inf
        value = rows.loss + problem.alpha * problem.penalty_of(state.weights)
        # Zero is a bound too: no loss is negative. Every bound holds for all weights.
        bound = max(bound, state.bound if state.size else -math.inf, loss_named(problem.loss).floor)
        gap = max(value - bound, 0.0) + float(np.finfo(problem.dtype).eps) * abs(value)
        # Columns that matter have found no memory, and those that have are solved: sweeps have to go on.
        brings = state.objective - value >= _STALLED * state.gap or gap <= max(0.5 * state.gap, _SOLVED * value)
        stalls = found.left_out > 0 and state.size > 0 and not brings
        sweeps = found.held < 0 or stalls
        return replace(
            state,
            size=0 if sweeps else size,
            held=max(found.held, 0),
            objective=value,
            bound=bound,
            gap=gap,
            # That of sweeps is another: of violations, to the first of them.
            ratio=None if sweeps else gap / value if value > 0.0 else 0.0,
        )

    @staticmethod
    def _next_size(state: BcdState, used: int) -> int:
        """Return the size of the next set after a state of `used` columns with weights."""
        # Room for the support to double, or more.
        return max(state.size, 2 * used + _FIRST)

    def _target(self, state: BcdState, used: int, held: int) -> float:
        """Return the gap of the `held` columns of a set at which their descent ends."""
        fresh = 1.0 - used / max(held, 1)
        own = max(_SHARE * fresh**4, _LEAST_SHARE) * state.gap
        return max(own, _ASKED * self._enough(state.objective))

    def _task(self, kind: type[T], state: BcdState) -> T:
        scores = self._setting.row_scores(RowScores, state.round)
        return kind(scores, self._problem.penalty, self._setting.step_of(self._problem))

    def _reduced(self, task: Any, lanes: list[Lane], shared: Any) -> Any:
        return self._executor.reduce(task, lanes, merge=task.merge, shared=shared)

    def _report(self, state: BcdState, found: Violations, descended: Descended) -> RoundReport:
        n_rows = self._problem.dataset.meta.n_rows
        return RoundReport.of(
            replace(self._ledger, n_rows=n_rows),
            descended.rows.loss * n_rows,
            None if self._problem.target == "continuous" else descended.rows.errors,
            details={
                "violation": found.violation,
                "largest_violation": found.largest,
                "relative_gap": state.ratio,
                "working_set": descended.columns,
                "non_zero_rows": int(state.weights.any(axis=1).sum()),
                **({} if self._setting.params["debias"] is None else {"refit": False}),
            },
            preliminary=(self._setting.params["debias"] is not None) or None,
        )


def working_set_tasks(setting: RoundSetting) -> list[Call]:
    """Return the tasks of rounds by working sets on one row, with a strength at which its column is worked on."""
    k, problem = setting.problem.shape[1], replace(setting.problem, alpha=1e-9)
    setting = replace(setting, problem=problem, lanes=[(0,)])
    weights = SparseWeights.of(np.ones((1, k), problem.dtype), np.zeros(k))
    lane, targets = Lane(0, (0,)), setting.row_scores(RowScores, 0)
    own = targets, problem.penalty, setting.step_of(problem)
    descent = setting.sweeps(WorkingSetTask, targets, BcdState())
    calls = [
        Call(ScoresOfColumns(*own), weights, lane),
        Call(ViolationTask(*own, most_bytes=MIB), weights, lane),
        Call(replace(descent, target=math.inf, gram_bytes=MIB, near=True), weights, Lane(1, ())),
    ]
    exact = has_conjugate(problem.loss, problem.target)
    return [*calls, *([Call(ConjugateTask(*own), (1.0, k), Lane(0, ()))] if exact else [])]
