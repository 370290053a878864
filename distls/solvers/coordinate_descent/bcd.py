"""Block coordinate descent over column shards: Algorithm 1 of its paper in one lane, parallel rounds in several.

A round computes the scores Z = XW of all rows by partitions; then each lane makes a pass over its column shards on a
private copy of Z. The lanes' changes add up, because Z is linear in W, and are taken with the best step size of 1,
1/2, 1/4, ..., about 1/S; for convex F the last cannot fail, so every round descends. If few columns have weights,
one lane makes extra passes over these, which also makes zeros exact that a shorter step has only approached.

An intercept is a block of its own, without a penalty: every lane makes it optimal for the scores it starts from, and so
finds the same one, before it judges its columns (`workers/coordinate_descent/intercept.py`).

With `debias`, once the violation is small, the selected columns are refitted to the same loss with an l2 penalty
instead of the sparse one, which shrinks the weights of the features that it selects.
"""

from bisect import bisect_left
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.execution.row_reads import lanes_of
from distls.memory_plan import Footprint, PerRowCost, Plan, make_plan
from distls.methods.coordinate_descent import SPARSE_PENALTY, by_working_sets, only_of_sweeps
from distls.methods.method import Params
from distls.problem import Problem
from distls.solvers.coordinate_descent.bcd_round import BcdState, Round, RoundSetting, row_tasks
from distls.solvers.coordinate_descent.near_search import (
    SWEEP_PASSES,
    kept_row_bytes,
    near_optimum_of,
    target_bytes,
    working_row_bytes,
    working_set_bytes,
)
from distls.solvers.coordinate_descent.row_blocks import RowBlocks
from distls.solvers.coordinate_descent.working_set_round import WorkingSetRound, working_set_tasks
from distls.solvers.solver import (
    DebiasProblem,
    Fitted,
    RoundReport,
    Solver,
    evaluation_tasks,
    known_gap,
    no_gap,
    prepare,
)
from distls.solvers.status import Status
from distls.solvers.warm_start import check_initial, initial_weights
from distls.storage.dataset.column_shards import ColumnShards
from distls.storage.errors import MemoryPlanError, MismatchError, ParameterError, StateLostError
from distls.storage.temporary.row_state import IN_MEMORY
from distls.workers.coordinate_descent.active_columns import known_bytes
from distls.workers.coordinate_descent.intercept import NEWTON_CLASSES
from distls.workers.coordinate_descent.row_scores_task import RowScores
from distls.workers.coordinate_descent.sweep_task import SweepTask, probe_sweep
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.prediction.threshold_task import threshold_bytes
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import DEFAULT_LANES, Lane, deal
from distls.workers.rounds.task import Call, Needs

# MiB of columns and their Gram, below which no limit is proposed: rounds would be sweeps.
_WORTH_NAMING = 16
# Weights in the driver: the state's, those sent, the common target, the shorter step, the polished ones.
_DRIVER_WEIGHTS = 5
# Of a row, in a task with an intercept: its column of ones, a centred column, and what kernels gather it into.
_INTERCEPT_BYTES = 4 + 8 + 12
# Of sweeps more lanes need more rounds (docs/decisions/0015), so few lanes are the best choice on few cores.
_DEFAULT_LANES = 2


class BlockCoordinateDescent(Solver[BcdState]):
    """The solver of `bcd`; the data must have column shards."""

    state_type = BcdState

    def __init__(self, problem: Problem, params: Params, **given: Any) -> None:
        super().__init__(problem, params, **given)
        _check_together(problem, params)
        check_initial(self._initial, problem, params["init"])
        self.proves = _is_by_working_sets(problem, params)
        self._blocks: RowBlocks | None = None
        if params.get("algorithm") == "row-blocks":
            self._read_rows()
        else:
            self._read_columns()

    def _read_columns(self) -> None:
        """Have rounds read column shards, where the numbers of all rows fit."""
        problem, params, dataset = self.problem, self.params, self.problem.dataset
        self._shards = _shards_of(problem)
        # Rounds that read columns alone have the same result in any number of lanes, but for the columns they choose.
        most = DEFAULT_LANES if self.proves else _DEFAULT_LANES
        self.lanes, self._sweeping = self._dealt(most), self._dealt(_DEFAULT_LANES)
        # A single lane makes its extra passes in the sweep itself, where the scores are current.
        self._polishes = len(self._sweeping) > 1 and params["active_sweeps"] > 0
        self.plan = self._planned()
        self.data = DatasetRef.of(dataset, self.plan.cache_bytes, self._shards.digest)
        # Rows are dealt to lanes of their own: scores are computed by partitions, sweeps by column shards.
        row_lanes = deal(dataset.decoded_bytes, lanes_of(problem.parallelism, len(dataset)))
        self._setting = RoundSetting(
            problem=problem,
            params=params,
            data=self.data,
            shards=self._shards,
            lanes=self._sweeping,
            row_lanes=[Lane(i, blocks) for i, blocks in enumerate(row_lanes)],
            polishes=self._polishes,
            folder=self._folder,
        )
        self._sets, self._has_begun = replace(self._setting, lanes=self.lanes, alone=True), False
        self._has_sweep_kernels = False

    def _dealt(self, least: int) -> list[tuple[int, ...]]:
        """Return the column shards of each lane: as asked, else of so many or as many as threads are meant."""
        count = _lane_count(self.params["lanes"], self._shards, max(least, self.problem.parallelism))
        return deal(self._shards.decoded_bytes, count)

    def _read_rows(self) -> None:
        """Have rounds keep no number of a row."""
        self._blocks = blocks = RowBlocks(self.problem, self.params, self._memory)
        self.plan, self.data, self.lanes = blocks.plan, blocks.data, blocks.lanes

    @property
    def kernels(self) -> tuple[Any, ...]:
        """See `Solver.kernels`."""
        return *super().kernels, str(self._blocks is not None)

    def _planned(self) -> Plan:
        """Return the plan; if it does not fit, name the parameter that would save memory."""
        # The plan is the first to know whether column copies fit, so only here can its message propose to hold fewer.
        try:
            return self._plan(self.params["active_mib"])
        except MemoryPlanError as error:
            ways = [str(error)]
            fits = bisect_left(range(1, self.params["active_mib"]), True, key=lambda mib: not self._fits(mib))
            if fits >= _WORTH_NAMING:
                ways.append(f"give active_mib={fits}, the most that fits")
            # They are named and not taken, as bits would follow from the memory of the day; a refit is by sweeps.
            if self.proves and self.params["debias"] is None:
                ways.append("give algorithm=row-blocks, which keeps no number of a row")
            raise MemoryPlanError(", or ".join(ways)) from None

    def _fits(self, active_mib: int) -> bool:
        try:
            self._plan(active_mib)
        except MemoryPlanError:
            return False
        return True

    def _plan(self, active_mib: int) -> Plan:
        (n_features, k), dataset = self.problem.shape, self.problem.dataset
        score_bytes = k * self.problem.dtype.itemsize
        weight_bytes = n_features * score_bytes
        partition_scores = int(dataset.table.rows.max(initial=0)) * score_bytes
        # sets of labels are compared by indicators, which are as many as scores
        score_copies = 2 if self.problem.target == "class" else 4
        threshold = threshold_bytes(k) if self.problem.ranks else 0
        held = self._most_active(active_mib) + self._drawn_from()
        # the numbers of columns to skip, of 8 bytes, in units of weights, of which a row has k
        skipping = self.params["shrink"] / k
        # The Newton step of the intercept holds a k x k Hessian, and is not taken above this number of classes.
        hessian = 8 * k * k * (self.problem.fit_intercept and k <= NEWTON_CLASSES)
        # several lanes: another read judges the common step; scores are written, and read by each lane and the judging,
        # and polishing does both again
        judging, polishing = int(len(self._sweeping) > 1), int(self._polishes)
        exchanged = (1 + len(self._sweeping) + judging + 2 * polishing) * score_bytes
        reads, reductions = 1 + judging + polishing, 2 + judging + 2 * polishing
        if self.proves:
            # of float64: scores and slopes, which are written, and read by the descent, the dual and every lane
            exchanged, reads, reductions = (4 + len(self.lanes)) * 8 * k, 0, 3
        return make_plan(
            dataset,
            Footprint(
                Needs(
                    weight_bytes,
                    SweepTask.result_bytes(n_features, k, skipping) / len(self.lanes),
                    score_copies * partition_scores + held + threshold + hessian,
                ),
                (_DRIVER_WEIGHTS + skipping) * weight_bytes + threshold,
                per_row=PerRowCost(
                    columns=self._shards,
                    worker_bytes=self._row_bytes(self._memory.threads),
                    reads=reads,
                    exchanged_bytes=exchanged,
                ),
            ),
            lanes=len(self.lanes),
            budget=self._memory,
            reductions=reductions,
        )

    def _row_bytes(self, threads: int) -> int:
        """Return a worker's bytes per row: targets, what tasks hold, last slopes and scores, products, Gram's rows."""
        k, meta = self.problem.shape[1], self.problem.dataset.meta
        # Of sweeps every lane has its scores; a descent on a working set is one task, and reads share the slopes.
        scores, own = k * self.problem.dtype.itemsize, _INTERCEPT_BYTES * self.problem.fit_intercept
        at_work = min(len(self._sweeping), threads) * (scores + own)
        # sweeps have their certificate from a working set
        if self.proves or self.params["active_sweeps"] > 0:
            at_work = max(at_work, working_row_bytes(self.problem) + own)
        kept = (8 * k + known_bytes(meta, k) + kept_row_bytes(self.problem)) * self.proves
        return target_bytes(meta) + 8 * meta.weighted + at_work + kept

    def _most_active(self, active_mib: int) -> int:
        """Return the bytes of active columns that a task may hold, with a copy where they are put together."""
        if not (self.proves or self.params["active_sweeps"]):
            return 0
        return working_set_bytes(self.problem, self._shards, active_mib)

    def _drawn_from(self) -> int:
        """Return the bytes of a lane's columns where they are drawn from all, with a copy of them."""
        if not self.params.get("rules") or self.params["step"] != "constant":
            return 0
        return 2 * max(int(self._shards.decoded_bytes[list(lane)].sum()) for lane in self._sweeping)

    def tasks(self, data: DatasetRef, block: int = 0) -> list[Call]:
        """See `Solver.tasks`: one partition is scored and one shard swept."""
        if self._blocks is not None:
            return self._blocks.tasks(data, block)
        setting = replace(self._setting, data=data, folder=IN_MEMORY)
        return working_set_tasks(setting) if self.proves else self._sweep_tasks(setting, block)

    def _sweep_tasks(self, setting: RoundSetting, block: int = 0) -> list[Call]:
        shard = block * len(self._shards) // len(self.problem.dataset)
        task = setting.sweeps(SweepTask, setting.row_scores(RowScores, 0), BcdState())
        return [
            Call(partial(probe_sweep, task), block, shard),
            *row_tasks(setting),
            *(working_set_tasks(setting) if self.params["active_sweeps"] else []),
            *evaluation_tasks(self.problem, self.data),
        ]

    def _prepare_sweeps(self, executor: Executor) -> None:
        """Have the kernels of sweeps compiled too, for which workers have no room: columns do not fit into sets."""
        if not self._has_sweep_kernels:
            setting = replace(self._setting, data=self.data.like(), folder=IN_MEMORY)
            prepare(executor, self.problem, (*self.kernels, "sweeps"), self._sweep_tasks(setting))
        self._has_sweep_kernels = True

    def init(self) -> BcdState:
        """Return zero weights, or those of the initial model."""
        # float32 weights are enough, because scores are recomputed from them in every round and errors do not add up.
        weights = np.zeros(self.problem.shape, self.problem.dtype)
        # The intercept is a sum over all rows, and stays in float64.
        intercept = np.zeros(self.problem.shape[1])
        if self._initial is not None:
            weights[:] = initial_weights(self._initial, self.problem)
            if self.problem.fit_intercept:
                intercept[:] = self._initial.intercept
        return BcdState(weights=weights, intercept=intercept, recentres=True)

    def step(self, state: BcdState, executor: Executor) -> tuple[BcdState, RoundReport]:
        """Do one round, and do it again if the scores kept in RUN/state were lost meanwhile."""
        if self._blocks is not None:
            return self._blocks.step(state, executor)
        if self._selected(state) and not state.refit:
            # A refit is another problem: the violation and the skipped columns of the sparse one say nothing about it.
            used = np.asarray(state.weights.any(axis=1))
            state = replace(state, refit=True, used=used, first=0.0, ratio=None, idle=np.empty(0, bool), partial=False)
        if self._works_on_sets(state):
            found = self._descend(state, executor)
            if found is not None:
                return found
        if self.proves:
            self._prepare_sweeps(executor)
        # Scores can be lost with a worker's disk; a round is a pure function of the state, so it is simply repeated.
        try:
            following, report = Round(self._setting, state, executor).run()
        except StateLostError:
            following, report = Round(self._setting, state, executor).run()
        if self.proves and not state.refit:
            report.notes = [
                f"the columns that matter take more than active_mib={self.params['active_mib']}: rounds are sweeps "
                "over all columns, without a certificate of their own"
            ]
        return following, report

    def _works_on_sets(self, state: BcdState) -> bool:
        """Return whether the round after a state is one of working sets; sweeps that have begun go on."""
        return self.proves and not state.refit and (not state.round or state.size > 0)

    def _descend(self, state: BcdState, executor: Executor) -> tuple[BcdState, RoundReport] | None:
        """Do a round by working sets, None where columns do not fit; what it keeps is made anew where it is lost."""
        fresh, self._has_begun = not self._has_begun, True
        # One round is to do where a fit begins at another model, as those of a path do, and it leads no further than is
        # asked for, by `tau` alone without a tolerance. Others depend on neither. Features are selected by `tau`.
        near, tau = self._initial is not None and self.params["debias"] is None, self.params["tau"]
        enough = (lambda objective: self.enough(objective) or tau * objective) if near else no_gap
        try:
            return WorkingSetRound(self._sets, executor, fresh=fresh, enough=enough).run(state)
        except StateLostError:
            # Of the memory of this process other fits may take their part again: from now on it is in files.
            self._sets = replace(self._sets, alone=False)
            return WorkingSetRound(self._sets, executor, fresh=True, enough=enough).run(state)

    def intercept_alone(self, executor: Executor) -> NDArray[np.float64]:
        """Return the intercept that is optimal where all weights are zero."""
        self.prepare(executor)
        if self._blocks is not None:
            return self._blocks.intercept_alone(executor)
        zero = BcdState(
            weights=np.zeros(self.problem.shape, self.problem.dtype), intercept=np.zeros(self.problem.shape[1])
        )
        try:
            return Round(self._setting, zero, executor).intercept_alone()
        except StateLostError:
            return Round(self._setting, zero, executor).intercept_alone()

    def _selected(self, state: BcdState) -> bool:
        """Return whether features are selected for a refit: the sparse problem is solved to `tau`."""
        return self.params["debias"] is not None and self._solved(state)

    def _solved(self, state: BcdState) -> bool:
        """Return whether the violation of all columns is at most `tau` times that of a first round (Eq. 10)."""
        # A refit of no columns is of the intercept alone, which every round makes optimal.
        if state.refit and not state.used.any():
            return True
        # A round that skipped columns has measured the violation of the others alone, which proves nothing.
        return state.ratio is not None and state.ratio <= self.params["tau"] and not state.partial

    def status(self, state: BcdState) -> Status:
        """Return CONVERGED once the violation is at most `tau` times that of a first round (Eq. 10)."""
        if not (np.isfinite(state.weights).all() and np.isfinite(state.intercept).all()):
            return Status.DIVERGED
        # Another turn, of other columns, has brought nothing either.
        if state.stuck > 1:
            return Status.MAX_PASSES
        # With `debias` the solution of the sparse problem is not the end: the refit still has to be made.
        waits = self._selected(state) and not state.refit
        return Status.CONVERGED if self._solved(state) and not waits else Status.RUNNING

    def certifies(self, state: BcdState) -> bool:
        """See `Solver.certifies`: rounds by working sets do."""
        return self.proves and state.size > 0 and not state.refit

    def weights(self, state: BcdState) -> Fitted:
        """Return the model."""
        predictor = LinearPredictor(state.weights, state.intercept)
        if state.refit:
            return Fitted(predictor, debias=DebiasProblem(self.params["debias"], state.used))
        if self.certifies(state):
            return Fitted(predictor, known=known_gap(self.problem, state.objective, state.gap))
        # with the paper's algorithm no columns are held in memory
        if self._blocks is not None or self.params["active_sweeps"] == 0:
            return Fitted(predictor, first_search=SWEEP_PASSES)
        nearer = partial(near_optimum_of, partial(WorkingSetRound, self._setting), state)
        return Fitted(predictor, improved_weights=nearer, first_search=SWEEP_PASSES)


def _shards_of(problem: Problem) -> ColumnShards:
    """Return the column shards of the data; raise MismatchError if there are none."""
    shards = problem.dataset.columns
    if shards is None:
        path = problem.dataset.path
        raise MismatchError(
            f"{path} has no column shards, which bcd works on; `distls columns {path}` adds them, in Python "
            "distls.add_columns, and -p algorithm=row-blocks does without"
        )
    return shards


def _check_together(problem: Problem, params: Params) -> None:
    """Raise ParameterError for parameters that contradict each other."""
    if params["debias"] is not None and params["tau"] == 0.0:
        raise ParameterError("debias needs tau > 0: debiasing starts when the stopping criterion reaches tau")
    if params["shrink"] and params["tau"] == 0.0:
        raise ParameterError("shrink needs tau > 0: skipped columns are swept again once tau is reached")
    if params.get("rules") and problem.penalty != SPARSE_PENALTY:
        raise ParameterError(f"penalty={problem.penalty}: rules=paper is for {SPARSE_PENALTY}; drop one of them")


def _is_by_working_sets(problem: Problem, params: dict[str, Any]) -> bool:
    """Return whether rounds are descents on working sets; raise ParameterError where they cannot be as asked."""
    own = by_working_sets(params) and not problem.penalty_is_quadratic
    # A refit after a selection of features is by sweeps.
    if params.get("algorithm") == "row-blocks" and params["debias"] is not None:
        raise ParameterError(f"debias={params['debias']}: not with algorithm=row-blocks; drop one of them")
    if params.get("algorithm") in ("working-set", "row-blocks") and not own:
        given = [*only_of_sweeps(params), "alpha=0" if params["alpha"] == 0.0 else f"penalty={problem.penalty}"][0]
        raise ParameterError(f"{given}: not with algorithm={params['algorithm']}, but with algorithm=sweeps")
    return own


def _lane_count(asked: int, shards: ColumnShards, most: int) -> int:
    """Return the number of lanes: as asked, by default at most one per shard."""
    if asked is None:
        return max(1, min(most, len(shards)))
    if asked > len(shards):
        raise ParameterError(
            f"lanes={asked}: the data set has only {len(shards)} column shards; cut smaller ones with "
            "`distls columns --shard-size`"
        )
    return asked
