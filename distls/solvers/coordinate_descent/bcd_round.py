"""A round of block coordinate descent: scores, sweeps, the step along what all lanes have changed, active sweeps.

A lane's sweep is an epoch of Algorithm 1 of the paper of block coordinate descent.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.execution.memory_budget import MIB
from distls.execution.row_reads import reduce_rows
from distls.methods.coordinate_descent import PRINTED_LIPSCHITZ
from distls.problem import Problem, loss_of, two_column_step
from distls.solvers.solver import RoundReport, State
from distls.storage.dataset.column_shards import ColumnShards
from distls.storage.errors import DistlsError
from distls.workers.coordinate_descent.descent_kernels import Step, Totals
from distls.workers.coordinate_descent.row_scores_task import (
    Change,
    ChangedScores,
    MarginSums,
    RowScores,
    SparseWeights,
)
from distls.workers.coordinate_descent.sweep_task import ActiveSweeps, ColumnTask, LaneSweeps, SweepTask
from distls.workers.losses.loss_registry import loss_named
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.task import Call
from distls.workers.runtime.rng import Purpose, rng

Array = NDArray[np.float64]
R = TypeVar("R", bound=RowScores)
T = TypeVar("T", bound=ColumnTask)

_T = Totals()
# How much F may rise by rounding, relative to itself.
_ROUNDING = {"float64": 1e-10, "float32": 1e-5}


@dataclass
class BcdState(State):
    """Everything a round starts from; scores follow from the weights."""

    weights: NDArray[Any] = field(default_factory=lambda: np.empty((0, 0)))  # shape (n_features, k)
    intercept: Array = field(default_factory=lambda: np.empty(0))  # shape (k,)
    first: float = 0.0  # The violation of the first round
    ratio: float | None = None  # That of the newest by it (Eq. 10); None before the first
    # The columns `used` are fitted with l2. `first` and `ratio` are those of these rounds then
    refit: bool = False
    # shape (n_features,), or (0,) before
    used: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, bool))
    # Rows of weights are recentred, as the loss allows it
    recentres: bool = False
    # Columns that the next round skips, shape (n_features,), or (0,): none
    idle: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, bool))
    partial: bool = False  # The newest round has skipped columns, so that its violation is of the others alone
    largest: float = -1.0  # The largest violation of the newest round; negative: none is skipped after it
    size: int = 0  # By working sets: columns of the next one, at most; 0: rounds are sweeps
    held: int = 0  # and how many it has
    # By working sets: the objective, the best bound of the optimum, and how far they are apart
    objective: float = 0.0
    bound: float = 0.0
    gap: float = 0.0
    # Of row blocks: rounds in a row in which no step has lowered the objective, far from the optimum
    stuck: int = 0


@dataclass(frozen=True, eq=False)
class RoundSetting:
    """The setting that all rounds of a fit share."""

    problem: Problem  # The sparse one
    params: dict[str, Any]  # All parameters of the method, resolved
    data: DatasetRef
    shards: ColumnShards
    lanes: list[tuple[int, ...]]  # Column shards of each lane
    row_lanes: list[Lane]  # In which partitions are read
    polishes: bool  # One lane makes extra passes over the active columns at the end of a round
    folder: str | None  # Of the scores; without one nothing is trained
    alone: bool = False  # What rounds by working sets keep is in memory, where one process does all their tasks

    def problem_of(self, state: BcdState) -> Problem:
        """Return the problem that the round after `state` minimises."""
        if not state.refit:
            return self.problem
        return self.problem.with_squares(self.params["debias"])

    def step_of(self, problem: Problem) -> Step:
        """Return the step rule of blocks."""
        constant, loss, k = self.params["step"] == "constant", loss_named(problem.loss), problem.shape[1]
        loose = 1.0
        if self.as_printed and not constant:
            loose = two_column_step(loss_of(self.params), problem.loss)
        elif self.as_printed and problem.loss in PRINTED_LIPSCHITZ:
            loose = PRINTED_LIPSCHITZ[problem.loss](k) / loss.lipschitz(k)
        scale = 1.0 / problem.dataset.meta.n_rows
        # a refit has squares for its penalty, of which Eq. 9 says nothing
        printed = self.as_printed and problem.penalty == self.problem.penalty
        return Step(problem.alpha, problem.l1_ratio, scale, constant, loose, printed)

    @property
    def as_printed(self) -> bool:
        """Whether order, constants and violation are the paper's to the letter."""
        return self.params.get("rules") == "paper"

    def row_scores(self, kind: type[R], version: int) -> R:
        """Return the task that computes or reads the scores of a round."""
        assert self.folder is not None
        problem = self.problem
        own = self.folder, version, self.alone
        return kind(self.data, problem.loss, problem.dtype.name, problem.row_weights, *own)

    def sweeps(self, kind: type[T], margins: RowScores, state: BcdState) -> T:
        """Return a task of the lanes in the round after `state`."""
        problem, step = self.problem_of(state), self.step_of(self.problem_of(state))
        return kind(
            scores=margins,
            penalty=problem.penalty,
            step=step,
            seed=problem.seed,
            round=state.round,
            draws=self._draws(state) if step.constant else None,
            fit_intercept=problem.fit_intercept,
            sweeps=self.params["active_sweeps"],
            keep=self.polishes,
            active_bytes=self.params["active_mib"] * MIB // len(self.lanes),
            recentre=state.recentres
            and self.params["active_sweeps"] > 0
            and loss_named(problem.loss).ignores_constants,
            given_only=state.refit,
            skipped=np.packbits(state.idle).tobytes(),
            in_order=self.as_printed,
            below=self._idle_below(state),
        )

    def _draws(self, state: BcdState) -> NDArray[np.int64]:
        """Return how many columns of each shard are drawn: in all as many as there are, uniformly from all."""
        # The paper draws blocks uniformly from all columns; each shard gets its binomial share of one common draw.
        swept = np.ones(self.problem.shape[0], bool)
        if state.refit:
            swept = state.used
        elif len(state.idle):
            swept = ~state.idle
        # Shards are contiguous ranges of columns, so their counts are sums over slices.
        counts = np.add.reduceat(swept.astype(np.int64), self.shards.first[:-1])
        generator = rng(self.problem.seed, Purpose.DRAWS, state.round)
        # The floor of 1 only avoids 0/0 where nothing is left to sweep.
        return generator.multinomial(counts.sum(), counts / max(counts.sum(), 1))

    def _idle_below(self, state: BcdState) -> float:
        """Return the strength at which columns without weights must stay zero to be skipped from then on."""
        if not self.params["shrink"] or state.refit or state.largest < 0.0:
            return 0.0
        # A column whose gradient norm is below alpha by more than the largest violation is expected to stay at zero.
        return max(self.problem.alpha - state.largest, 0.0)


def row_tasks(setting: RoundSetting) -> list[Call]:
    """Return the tasks of rounds by sweeps on one row."""
    k = setting.problem.shape[1]
    values = np.zeros((1, k), setting.problem.dtype)
    values[0, 0] = 1.0  # columns without weights are not searched
    weights, lane = SparseWeights(np.zeros(1, np.int64), values, np.zeros(k)), Lane(0, (0,))
    margins, changed = (setting.row_scores(kind, 0) for kind in (RowScores, ChangedScores))
    state = BcdState(weights=values)
    return [
        Call(margins, weights, lane),
        Call(changed, Change(weights, np.ones(1), np.zeros(k)), lane),
        Call(replace(setting.sweeps(SweepTask, margins, state), keep=False), weights, lane),
    ]


def sent(state: BcdState) -> SparseWeights:
    """Return the weights to send: of all columns of a refit, otherwise of the nonzero ones."""
    columns = np.flatnonzero(state.used if state.refit else state.weights.any(axis=1))
    return SparseWeights(columns, state.weights[columns], state.intercept)


class Round:
    """One round of a fit, by sweeps."""

    def __init__(self, setting: RoundSetting, state: BcdState, executor: Executor) -> None:
        self._setting, self._problem, self._executor = setting, setting.problem_of(state), executor
        self._state, self._n = state, setting.problem.dataset.meta.n_rows
        # Versions are even for the scores of a round and odd for those of its polishing, so that neither
        # overwrites the other.
        self._margins = setting.row_scores(RowScores, 2 * state.round)
        self._details: dict[str, Any] = {}

    def run(self) -> tuple[BcdState, RoundReport]:
        """Return the next state and the report of the round."""
        state, lanes = self._state, self._setting.lanes
        reference = self._violation_at_zero() if self._is_warm() else None
        scored = self._score(state, self._margins)
        before = self._value(float(scored.losses[0]), state.weights)
        swept = self._sweep()
        # In one lane the sweep keeps the scores current, so its own sum of decreases is the change of the objective.
        if len(lanes) == 1:
            following, after = self._with(swept, self._state), before + swept.change
        else:
            following, after = self._combined(swept, before)
        self._check_descent(before, after)
        # a single lane has made its extra passes over active columns already
        polished = self._polish(following, swept) if len(lanes) > 1 else swept
        if polished is not None and len(lanes) > 1:
            following = self._with(polished, following)
            self._check_descent(after, after + polished.change)
        extra = 0.0
        if polished is not None:
            extra = polished.swept_bytes / max(int(self._setting.shards.decoded_bytes.sum()), 1)
        following = self._judged(following, swept, extra, reference)
        return following, self._report(scored, swept, following)

    def intercept_alone(self) -> Array:
        """Return the intercept that is optimal for the weights of the state."""
        self._score(self._state, self._margins)
        task = replace(self._setting.sweeps(SweepTask, self._margins, self._state), keep=False)
        # Weights go to the workers as rows of nonzero columns: few are nonzero under a sparse penalty.
        weights = sent(self._state)
        found: LaneSweeps = self._executor.reduce(task, [Lane(0, ())], merge=task.merge, shared=weights)
        return found.intercept

    def _is_warm(self) -> bool:
        """Return whether this is the first round of a fit that starts from a model."""
        # A violation relative to a nearly optimal start would never become small: the reference is that of
        # zero weights.
        state = self._state
        return not (state.round or state.refit) and bool(state.weights.any() or state.intercept.any())

    def _violation_at_zero(self) -> float:
        """Return the violation of the first round of a fit without an initial model."""
        zero = BcdState(weights=np.zeros_like(self._state.weights), intercept=np.zeros_like(self._state.intercept))
        # a version that the next one removes
        cold = Round(self._setting, zero, self._executor)
        cold._margins = self._setting.row_scores(RowScores, -2)
        cold._score(zero, cold._margins)
        return cold._violation(cold._sweep())

    def _violation(self, swept: LaneSweeps) -> float:
        """Return the violation of a round, as the parameter defines it."""
        params = self._setting.params
        largest = params["violation"] == "max" or (self._setting.as_printed and params["step"] == "constant")
        return float(swept.totals[_T.largest if largest else _T.violation])

    def _score(self, state: BcdState, task: RowScores) -> MarginSums:
        """Compute the scores of all rows from the weights."""
        return self._summed(task, sent(state))

    def _summed(self, task: RowScores, shared: Any) -> MarginSums:
        dataset, lanes = self._problem.dataset, self._setting.row_lanes
        sums: MarginSums = reduce_rows(self._executor, dataset, shared, task, lanes)
        return sums

    def _sweep(self) -> LaneSweeps:
        """Have every lane sweep its shards from the same weights."""
        state = self._state
        lanes = [Lane(i, blocks) for i, blocks in enumerate(self._setting.lanes)]
        task = self._setting.sweeps(SweepTask, self._margins, state)
        swept: LaneSweeps = self._executor.reduce(task, lanes, merge=task.merge, shared=sent(state))
        swept.ledger.check_cover(range(len(self._setting.shards)), 0, "column shards")
        return swept

    def _value(self, loss_sum: float, weights: NDArray[Any]) -> float:
        return loss_sum / self._n + self._problem.alpha * self._problem.penalty_of(weights)

    def _with(self, swept: LaneSweeps, state: BcdState) -> BcdState:
        """Return the state with new values of some rows of the weights, and of the intercept."""
        # A state is never changed in place: a round that is repeated after a loss starts from the same weights.
        weights = state.weights.copy()
        for part in swept.weights:
            weights[part.columns] = part.values
        return replace(state, weights=weights, intercept=swept.intercept + swept.shift)

    def _combined(self, swept: LaneSweeps, before: float) -> tuple[BcdState, float]:
        """Take the joint step of all lanes with the best step size; return the objective there too."""
        state, problem = self._state, self._problem
        target = self._with(swept, state)
        # Lanes have disjoint column shards, so no column is in two parts; sorted, because a later lookup needs it.
        columns = np.unique(np.concatenate([part.columns for part in swept.weights]))
        old = state.weights[columns]
        change = target.weights[columns] - old
        n_sizes = math.ceil(math.log2(len(self._setting.lanes))) + 1
        # At 1/S a step leads to the mean of the lanes' points, where a convex F is no higher than at the start.
        sizes = np.asarray(0.5 ** np.arange(n_sizes), np.float64)
        shared = Change(SparseWeights(columns, change, swept.shift), sizes, swept.intercept - state.intercept)
        sums = self._summed(self._setting.row_scores(ChangedScores, self._margins.version), shared)
        # the penalty is a sum over rows of W, so only that of the changed columns is computed for each step size
        rest = problem.alpha * (problem.penalty_of(state.weights) - problem.penalty_of(old))
        # Ties go to the larger step, and a value that is not finite is never the best.
        best, at = math.inf, 0
        for place, size in enumerate(sizes):  # F is convex: once it rises it goes on rising
            penalty = problem.alpha * problem.penalty_of(old + size * change)
            value = float(sums.losses[place]) / self._n + rest + penalty
            if not value < best:
                break
            best, at = value, place
        self._details["step_size"] = float(sizes[at])
        if at == 0:  # a whole step takes the lanes' own values, exact zeros among them
            return target, best
        weights = state.weights.copy()
        weights[columns] = old + sizes[at] * change
        return replace(state, weights=weights, intercept=swept.intercept + sizes[at] * swept.shift), best

    def _polish(self, state: BcdState, swept: LaneSweeps) -> LaneSweeps | None:
        """Make extra passes over the nonzero columns in one lane, if they are few."""
        # No active columns fitted in the memory: there is nothing to polish with.
        if swept.active_bytes < 0 or not self._setting.polishes:
            return None
        # The combined step has changed the scores, and those of the sweep are of the weights before it.
        margins = self._setting.row_scores(RowScores, 2 * self._state.round + 1)
        self._score(state, margins)
        task = replace(self._setting.sweeps(ActiveSweeps, margins, state), round=self._state.round)
        lanes, weights = [Lane(len(self._setting.lanes), ())], sent(state)
        found: LaneSweeps = self._executor.reduce(task, lanes, merge=task.merge, shared=weights)
        return found

    def _check_descent(self, before: float, after: float) -> None:
        """Raise DistlsError if the objective has risen, which convexity rules out."""
        # A rise of the objective means wrong scores or a wrong sweep, and is not to be hidden by further rounds.
        slack = _ROUNDING[self._problem.dtype.name] * max(abs(before), 1.0)
        if after > before + slack:
            raise DistlsError(
                f"round {self._state.round + 1}: the objective rose from {before:.12g} to {after:.12g}; this is an "
                "error in distls, please report it"
            )

    def _judged(self, state: BcdState, swept: LaneSweeps, extra: float, reference: float | None) -> BcdState:
        """Return the state after the round, with its violation relative to that of the first or of zero weights.

        A model to start from may be so good that its own first round is no measure.
        """
        violation = self._violation(swept)
        # There is no `ratio` before the first round of a problem, whose violation then becomes the reference.
        first = state.first if self._state.ratio is not None else reference or violation
        return replace(
            self._shrunk(state, swept, violation <= self._setting.params["tau"] * first),
            round=state.round + 1,
            passes=state.passes + 1.0 + extra + float(reference is not None),
            first=first,
            ratio=violation / first if first > 0.0 else 0.0,
        )

    def _shrunk(self, state: BcdState, swept: LaneSweeps, solved: bool) -> BcdState:
        """Return the state with the columns that the next round skips, none if the others are solved."""
        if not self._setting.params["shrink"] or state.refit:
            return state
        partial = bool(state.idle.any())
        # The others are solved: all columns are swept again, which confirms or refutes what was skipped
        # (section 5.2.4).
        if solved:
            return replace(state, idle=np.empty(0, bool), partial=partial, largest=-1.0)
        idle = state.idle.copy() if partial else np.zeros(len(state.weights), bool)
        # The empty array keeps `concatenate` defined where no lane reports any.
        idle[np.concatenate([*swept.idle, np.empty(0, np.int64)])] = True
        # A column with weights is never skipped.
        idle &= ~state.weights.any(axis=1)
        return replace(state, idle=idle, partial=partial, largest=float(swept.totals[_T.largest]))

    def _report(self, scored: MarginSums, swept: LaneSweeps, state: BcdState) -> RoundReport:
        return RoundReport.of(
            scored.ledger.merge(swept.ledger),
            float(scored.losses[0]),
            None if self._problem.target == "continuous" else scored.errors,
            details={
                **self._details,
                "violation": float(swept.totals[_T.violation]),
                "largest_violation": float(swept.totals[_T.largest]),
                "violation_ratio": state.ratio,
                "blocks_moved": int(swept.totals[_T.moved]),
                "tries": int(swept.totals[_T.tries]),
                "non_zero_rows": int(state.weights.any(axis=1).sum()),
                **({"skipped": int(self._state.idle.sum())} if self._setting.params["shrink"] else {}),
                **({} if self._setting.params["debias"] is None else {"refit": state.refit}),
            },
            preliminary=(self._setting.params["debias"] is not None and not state.refit) or None,
        )
