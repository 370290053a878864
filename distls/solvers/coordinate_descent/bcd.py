"""Block coordinate descent over column shards: Algorithm 1 of its paper in one lane, parallel rounds in several.

A round makes the scores Z = XW of all rows from the weights, by partitions; then each lane sweeps its column shards
on a private copy of Z. What the lanes have changed adds up, because Z is linear in W, and is taken at the best of
1, 1/2, 1/4, ..., about 1/S, the last of which cannot fail where F is convex: every round descends. Where few columns
have weights, these are swept some times more, in one lane, which also makes those zeros exact that a shorter step
has only brought near.

With `debias` the rounds go on when the violation is small, over the columns that have weights then, for the same loss
with an l2 penalty in place of the sparse one, which shrinks the weights of the features that it selects.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.execution.memory_budget import MIB, MemoryBudget, human
from distls.memory_plan import OfRows, Plan, make_plan
from distls.problem import Problem
from distls.solvers.solver import Refit, RoundReport, State, Status, Weights
from distls.solvers.warm_start import check_initial, initial_weights
from distls.storage.dataset.column_shards import ColumnShards
from distls.storage.dataset.metadata import DatasetMeta
from distls.storage.errors import DistlsError, MemoryPlanError, MismatchError, ParameterError, StateLostError
from distls.storage.model.model import LinearModel
from distls.workers.coordinate_descent.descent_kernels import Step, Totals
from distls.workers.coordinate_descent.row_scores_task import (
    MarginJob,
    MarginSums,
    SparseWeights,
    change_lane,
    margin_lane,
    merge_margins,
)
from distls.workers.coordinate_descent.sweep_task import (
    LaneSweeps,
    SweepJob,
    active_sweeps,
    merge_sweeps,
    probe_sweep,
    sweep_lane,
    warm_up,
)
from distls.workers.prediction.threshold_task import threshold_bytes
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import DEFAULT_LANES, Lane, deal

__all__ = ["BcdState", "BlockCoordinateDescent"]

Array = NDArray[np.float64]

_T = Totals()
# Bytes of active columns that a refusal tells how to do without.
_WORTH_NAMING = 16 * MIB
# How much F may rise by rounding, relative to itself.
_ROUNDING = {"float64": 1e-10, "float32": 1e-5}


@dataclass
class BcdState(State):
    """Everything a round starts from; scores follow from the weights.

    Attributes
    ----------
    weights : array of shape (n_features, k)
    intercept : float64 array of shape (k,)
    first : float
        The violation of the first round.
    ratio : float
        That of the newest by it (Eq. 10); infinity before the first.
    refit : bool
        The columns `used` are fitted with l2. `first` and `ratio` are those of these rounds then.
    used : bool array of shape (n_features,), or (0,) before
    """

    weights: NDArray[Any] = field(default_factory=lambda: np.empty((0, 0)))
    intercept: Array = field(default_factory=lambda: np.empty(0))
    first: float = 0.0
    ratio: float = math.inf
    refit: bool = False
    used: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, bool))


class BlockCoordinateDescent:
    """The solver of `bcd`.

    Parameters
    ----------
    problem : Problem
    params : dict
        All parameters of the method, resolved.
    slots : int
        Worker threads, for the plan only.
    memory : MemoryBudget, optional
    initial : LinearModel, optional
        Starts from its weights instead of zero.
    state : str, optional
        Folder of the scores; without one there is a plan, but no training.

    Raises
    ------
    MismatchError
        The data have no column shards, or a model to start from does not fit.
    MemoryPlanError
        The job cannot fit.
    ParameterError
        There are fewer shards than lanes.
    """

    state_type = BcdState

    def __init__(
        self,
        problem: Problem,
        params: dict[str, Any],
        *,
        slots: int = 1,
        memory: MemoryBudget | None = None,
        initial: LinearModel | None = None,
        state: str | None = None,
    ) -> None:
        self.problem, self.params, self._initial, self._kept = problem, params, initial, state
        if params["debias"] is not None and params["tau"] == 0.0:
            raise ParameterError(
                "debias: features are fitted anew once violations are below tau, which is 0; give a tau above 0"
            )
        if initial is not None:
            check_initial(initial, problem, params["init"])
        dataset = problem.dataset
        self._shards = _shards_of(problem)
        self.lanes = deal(self._shards.decoded_bytes, _lane_count(params["lanes"], self._shards))
        self._row_lanes = deal(dataset.decoded_bytes, min(DEFAULT_LANES, len(dataset)))
        self._polishes = len(self.lanes) > 1 and params["active_sweeps"] > 0
        self._active_bytes = params["active_mib"] * MIB // len(self.lanes)
        self.plan = self._planned(memory or MemoryBudget(workers=slots))
        self.data = DatasetRef(
            str(dataset.path.resolve()),
            dataset.fingerprint,
            self.plan.cache_bytes,
            columns=self._shards.digest,
        )
        self._class_weight = problem.row_weights

    def _planned(self, memory: MemoryBudget) -> Plan:
        """Return the plan; where it does not fit, say what could be done without."""
        try:
            return self._plan(memory)
        except MemoryPlanError as error:
            spare = self._most_active()
            if spare < _WORTH_NAMING:
                raise
            raise MemoryPlanError(f"{error}, or lower active_mib, which takes {human(spare)} of it") from None

    def _plan(self, memory: MemoryBudget) -> Plan:
        n_features, k = self.problem.shape
        dataset, size = self.problem.dataset, self.problem.dtype.itemsize
        most_rows = int(dataset.table.rows.max(initial=0))
        score = k * size
        # where sets of labels are compared, several copies of a partition's scores
        copies = 2 if self.problem.target == "class" else 4
        ranking = threshold_bytes(k) if self.problem.ranks else 0
        # written once and read by every lane; in several lanes read again where sizes are judged, made and read again
        # before active sweeps
        exchanges = 1 + len(self.lanes) + (len(self.lanes) > 1) + 2 * self._polishes
        return make_plan(
            dataset,
            # in float64 a lane has the weights of its own columns, and the columns' numbers
            weight_bytes=n_features * score,
            result_copies=3 * 8 / size / len(self.lanes),
            lanes=len(self.lanes),
            rounds_per_pass=1,
            sample_bytes=0,
            driver_copies=5 + ranking / (n_features * score),
            budget=memory,
            work_bytes=copies * most_rows * score + self._most_active() + ranking,
            reductions=2 + (len(self.lanes) > 1) + 2 * self._polishes,
            of_rows=OfRows(
                columns=self._shards,
                thread_bytes=score,
                worker_bytes=_target_bytes(dataset.meta) + 8 * dataset.meta.weighted,
                reads=1 + (len(self.lanes) > 1) + self._polishes,
                exchanged_bytes=exchanges * score,
            ),
        )

    def _most_active(self) -> int:
        """Return the bytes of active columns that a task may hold, with a copy where they are put together."""
        if not self.params["active_sweeps"]:
            return 0
        return 2 * min(self.params["active_mib"] * MIB, int(self._shards.decoded_bytes.sum()))

    def prepare(self, executor: Executor) -> None:
        """Have the kernels compiled here, then loaded by every worker."""
        warm = partial(warm_up, loss=self.problem.loss, dtype=self.problem.dtype.name)
        warm(self.data)
        executor.each_worker(warm, self.data)

    def init(self) -> BcdState:
        """Return zero weights, or those of the initial model."""
        weights = np.zeros(self.problem.shape, self.problem.dtype)
        intercept = np.zeros(self.problem.shape[1])
        if self._initial is not None:
            weights[:] = initial_weights(self._initial, self.problem)
            if self.problem.fit_intercept:
                intercept[:] = self._initial.intercept
        return BcdState(weights=weights, intercept=intercept)

    def step(self, state: BcdState, executor: Executor) -> tuple[BcdState, RoundReport]:
        """Do one round; where what is kept in RUN/state was lost meanwhile, once more."""
        if self._selected(state) and not state.refit:
            used = np.asarray(state.weights.any(axis=1))
            state = replace(state, refit=True, used=used, first=0.0, ratio=math.inf)
        try:
            return _Round(self, state, executor).run()
        except StateLostError:
            return _Round(self, state, executor).run()

    def margin_job(self, version: int) -> MarginJob:
        """Return which scores a round makes, or reads."""
        assert self._kept is not None
        return MarginJob(
            self.data, self.problem.loss, self.problem.dtype.name, self._class_weight, self._kept, version
        )

    def problem_of(self, state: BcdState) -> Problem:
        """Return what the round after `state` minimises."""
        return (
            replace(self.problem, alpha=self.params["debias"], penalty="l2") if state.refit else self.problem
        )

    def _selected(self, state: BcdState) -> bool:
        """Tell whether the sparse problem is solved, where features are to be fitted anew then."""
        return self.params["debias"] is not None and state.ratio <= self.params["tau"]

    def sweep_job(self, margins: MarginJob, state: BcdState) -> SweepJob:
        """Return what the lanes of the round after `state` do."""
        problem, constant = self.problem_of(state), self.params["step"] == "constant"
        return SweepJob(
            margins=margins,
            penalty=problem.penalty,
            step=Step(problem.alpha, problem.l1_ratio, 1.0 / problem.dataset.meta.n_rows, constant),
            seed=problem.seed,
            round=state.round,
            with_replacement=constant,
            fit_intercept=problem.fit_intercept,
            sweeps=self.params["active_sweeps"],
            keep=self._polishes,
            active_bytes=self._active_bytes,
            given_only=state.refit,
        )

    def row_lanes(self) -> list[Lane]:
        """Return the lanes in which partitions are read."""
        return [Lane(i, blocks) for i, blocks in enumerate(self._row_lanes)]

    @property
    def n_shards(self) -> int:
        """Column shards of the data."""
        return len(self._shards)

    @property
    def shard_bytes(self) -> int:
        """Decoded bytes of all shards."""
        return int(self._shards.decoded_bytes.sum())

    def status(self, state: BcdState) -> Status:
        """Tell whether the violation of a round is small beside that of the first (Eq. 10)."""
        if not (np.isfinite(state.weights).all() and np.isfinite(state.intercept).all()):
            return Status.DIVERGED
        waits = self._selected(state) and not state.refit
        return Status.CONVERGED if state.ratio <= self.params["tau"] and not waits else Status.RUNNING

    def weights(self, state: BcdState) -> Weights:
        """Return the model."""
        refit = Refit(self.params["debias"], state.used) if state.refit else None
        return Weights(state.weights, state.intercept, refit=refit)

    def probe(self, block: int) -> None:
        """Score one partition and sweep a shard in this process, and forget it: what `plan` times."""
        job = replace(
            MarginJob(self.data, self.problem.loss, self.problem.dtype.name, self._class_weight, "", 0),
            data=replace(self.data, cache_bytes=0, prefetch=False),
        )
        shard = block * len(self._shards) // len(self.problem.dataset)
        probe_sweep(self.sweep_job(job, BcdState()), self.problem.shape[1], block, shard)


def _target_bytes(meta: DatasetMeta) -> int:
    """Return the bytes a row of what a worker keeps of targets: a class, or a set of labels with its place."""
    if meta.target == "class":
        return 4
    return 16 + 4 * -(-sum(meta.label_counts) // max(meta.n_rows, 1))


def _shards_of(problem: Problem) -> ColumnShards:
    """Return the column shards of the data.

    Raises
    ------
    MismatchError
        There are none.
    """
    shards = problem.dataset.columns
    if shards is None:
        path = problem.dataset.path
        raise MismatchError(
            f"{path} has no column shards, which bcd works on; `distls columns {path}` adds them"
        )
    return shards


def _lane_count(asked: int, shards: ColumnShards) -> int:
    """Return the number of lanes: as asked, or one a shard where there are fewer by default."""
    if asked is None:
        return max(1, min(_DEFAULT_LANES, len(shards)))
    if asked > len(shards):
        raise ParameterError(
            f"lanes={asked}: the data set has only {len(shards)} column shards; cut smaller ones with "
            "`distls columns --shard-size`"
        )
    return asked


# More lanes need more rounds (docs/decisions/0015), so that few are the best choice on few cores.
_DEFAULT_LANES = 2


class _Round:
    """One round of a fit."""

    def __init__(self, solver: BlockCoordinateDescent, state: BcdState, executor: Executor) -> None:
        self._solver, self._problem, self._executor = solver, solver.problem_of(state), executor
        self._state, self._n = state, solver.problem.dataset.meta.n_rows
        self._margins = solver.margin_job(2 * state.round)
        self._details: dict[str, Any] = {}

    def run(self) -> tuple[BcdState, RoundReport]:
        """Return the next state and what the round tells."""
        state, lanes = self._state, self._solver.lanes
        scored = self._score(state, self._margins)
        before = self._value(float(scored.losses[0]), state.weights)
        swept = self._sweep()
        if len(lanes) == 1:
            following, after = self._with(swept.weights), before + swept.change
        else:
            following, after = self._combined(swept, before)
        self._check_descent(before, after)
        polished = self._polish(following, swept) if len(lanes) > 1 else swept
        if polished is not None and len(lanes) > 1:
            following = self._with(polished.weights, following)
            self._check_descent(after, after + polished.change)
        extra = 0.0 if polished is None else polished.swept_bytes / max(self._solver.shard_bytes, 1)
        following = self._judged(following, swept, extra)
        return following, self._report(scored, swept, following)

    def _score(self, state: BcdState, job: MarginJob) -> MarginSums:
        """Make the scores of all rows anew."""
        task, weights = partial(margin_lane, job), self._sent(state)
        return self._checked(
            self._executor.reduce(task, self._solver.row_lanes(), merge=merge_margins, shared=weights)
        )

    @staticmethod
    def _sent(state: BcdState) -> SparseWeights:
        """Return the weights as they are sent: of all columns that a refit is of, else of those that have some."""
        columns = np.flatnonzero(state.used if state.refit else state.weights.any(axis=1))
        return SparseWeights(columns, state.weights[columns], state.intercept)

    def _checked(self, sums: MarginSums) -> MarginSums:
        sums.ledger.check_cover(range(len(self._problem.dataset)), self._n)
        return sums

    def _sweep(self) -> LaneSweeps:
        """Have every lane sweep its shards from the same weights."""
        state = self._state
        lanes = [Lane(i, blocks) for i, blocks in enumerate(self._solver.lanes)]
        job = self._solver.sweep_job(self._margins, state)
        weights = self._sent(state)
        swept = self._executor.reduce(partial(sweep_lane, job), lanes, merge=merge_sweeps, shared=weights)
        swept.ledger.check_cover(range(self._solver.n_shards), 0, "column shards")
        return swept

    def _value(self, loss_sum: float, weights: NDArray[Any]) -> float:
        return loss_sum / self._n + self._problem.alpha * self._problem.penalty_of(weights)

    def _with(self, parts: list[SparseWeights], state: BcdState | None = None) -> BcdState:
        """Return the state with new values of some rows of the weights."""
        state = state or self._state
        weights, intercept = state.weights.copy(), state.intercept
        for part in parts:
            weights[part.columns] = part.values
            intercept = part.intercept if part.intercept.size else intercept
        return replace(state, weights=weights, intercept=intercept)

    def _combined(self, swept: LaneSweeps, before: float) -> tuple[BcdState, float]:
        """Go along what all lanes have changed as far as is best; return the objective there too."""
        state, problem = self._state, self._problem
        target = self._with(swept.weights)
        columns = np.unique(np.concatenate([part.columns for part in swept.weights]))
        old = state.weights[columns]
        change = target.weights[columns] - old
        sizes = 0.5 ** np.arange(math.ceil(math.log2(len(self._solver.lanes))) + 1)
        shared = SparseWeights(columns, change, target.intercept - state.intercept), sizes
        sums = self._checked(
            self._executor.reduce(
                partial(change_lane, self._margins),
                self._solver.row_lanes(),
                merge=merge_margins,
                shared=shared,
            )
        )
        rest = problem.alpha * (problem.penalty_of(state.weights) - problem.penalty_of(old))
        best, at = math.inf, 0
        for place, size in enumerate(sizes):  # F is convex: once it rises it goes on rising
            penalty = problem.alpha * problem.penalty_of(old + size * change)
            value = float(sums.losses[place]) / self._n + rest + penalty
            if not value < best:
                break
            best, at = value, place
        self._details["step_size"] = float(sizes[at])
        if at == 0:
            return target, best
        weights = state.weights.copy()
        weights[columns] = old + sizes[at] * change
        return replace(
            state, weights=weights, intercept=state.intercept + sizes[at] * shared[0].intercept
        ), best

    def _polish(self, state: BcdState, swept: LaneSweeps) -> LaneSweeps | None:
        """Sweep the columns with weights alone, in one lane, where they are few."""
        if swept.active_bytes < 0 or not self._solver.sweep_job(self._margins, state).keep:
            return None
        margins = self._solver.margin_job(2 * self._state.round + 1)
        self._score(state, margins)
        job = replace(self._solver.sweep_job(margins, state), round=self._state.round)
        weights = self._sent(state)
        lanes = [len(self._solver.lanes)]
        return self._executor.reduce(partial(active_sweeps, job), lanes, merge=merge_sweeps, shared=weights)

    def _check_descent(self, before: float, after: float) -> None:
        """Refuse to go on where the objective has risen, which convexity rules out."""
        slack = _ROUNDING[self._problem.dtype.name] * max(abs(before), 1.0)
        if after > before + slack:
            raise DistlsError(
                f"round {self._state.round + 1}: the objective rose from {before:.12g} to {after:.12g}; this is an "
                "error in distls, please report it"
            )

    def _judged(self, state: BcdState, swept: LaneSweeps, extra: float) -> BcdState:
        """Return the state after the round, with its violation beside the first one's."""
        largest = self._solver.params["violation"] == "max"
        violation = float(swept.totals[_T.largest if largest else _T.violation])
        first = state.first if math.isfinite(self._state.ratio) else violation
        return replace(
            state,
            round=state.round + 1,
            passes=state.passes + 1.0 + extra,
            first=first,
            ratio=violation / first if first > 0.0 else 0.0,
        )

    def _report(self, scored: MarginSums, swept: LaneSweeps, state: BcdState) -> RoundReport:
        return RoundReport.of(
            scored.ledger.merge(swept.ledger),
            float(scored.losses[0]),
            scored.errors,
            details={
                **self._details,
                "violation": float(swept.totals[_T.violation]),
                "largest_violation": float(swept.totals[_T.largest]),
                "violation_ratio": state.ratio,
                "blocks_moved": int(swept.totals[_T.moved]),
                "tries": int(swept.totals[_T.tries]),
                "non_zero_rows": int(state.weights.any(axis=1).sum()),
                **({} if self._solver.params["debias"] is None else {"refit": state.refit}),
            },
            preliminary=(self._solver.params["debias"] is not None and not state.refit) or None,
        )
