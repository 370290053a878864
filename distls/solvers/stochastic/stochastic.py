"""The stochastic methods: one pass after another over rows, on averaged lanes.

With one lane and without averaging of iterates this is each paper's own algorithm over rows reshuffled in every pass
(of MCID its Algorithm 1).
With P lanes each lane counts its own steps, starts every round from the averaged arrays of the method, and the averages
are reported with what they cost. What a method does to a row is its `distls.workers.stochastic.update.Update`,
which the method's `steps` choose: this solver knows no method by name.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from distls.execution.batch import Wanted, reduced, run_alone
from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.memory_plan import Footprint, Plan, make_plan
from distls.methods.method import Params
from distls.problem import Problem
from distls.solvers.block_reads import BlockReader, lane_count
from distls.solvers.features.fitted_designs import OneBlock
from distls.solvers.solver import Fitted, RoundReport, Solver, evaluation_tasks
from distls.solvers.status import Status
from distls.solvers.stochastic.measured_steps import (
    Measurement,
    given_by,
    measured_steps,
    stats_of_problem,
    told,
    try_candidates,
)
from distls.solvers.stochastic.stochastic_state import StochasticState
from distls.solvers.warm_start import check_initial
from distls.storage.errors import ParameterError
from distls.workers.evaluation.sample import SampleRef, mean_loss, sample_size
from distls.workers.evaluation.score_task import joint_gradient_bytes
from distls.workers.features.design import PIECE_ROWS
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.averaging import add_scaled
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import Lane, deal, round_of_pass, rounds_in_pass
from distls.workers.rounds.task import Call, Needs, ReadTogether
from distls.workers.stochastic.lane_task import (
    DRAWS,
    LaneResult,
    LaneStart,
    MeanSums,
    MeanTask,
    StochasticTask,
    TrainTask,
    TrialTask,
)
from distls.workers.stochastic.step_choice import ChooseSteps, StepChoice, needs_measurement
from distls.workers.stochastic.update import Arrays, Update

T = TypeVar("T", bound=StochasticTask)
# A lane reads at least this many bytes, and this multiple of the weights, between averagings (docs/decisions/0013).
_LEAST_SYNC_BYTES, _SYNC_WEIGHTS = 64 * 2**20, 16
# Relative spreads of lanes above which they are averaged more often, and below which less often.
_FAR, _NEAR = 0.3, 0.1


class Stochastic(Solver[StochasticState]):
    """The solver of all stochastic methods, which differ in `steps`."""

    state_type = StochasticState

    def __init__(
        self,
        problem: Problem,
        params: Params,
        *,
        steps: ChooseSteps,  # chooses what lanes do: the update of the method, or candidates that are tried first
        **given: Any,
    ) -> None:
        super().__init__(problem, params, **given)
        dataset = problem.dataset
        n_lanes = lane_count(params["lanes"], len(dataset), problem.parallelism)
        # Lanes are a property of the data and the parameters, not of the machine: results do not depend on workers.
        self.lanes = deal(dataset.decoded_bytes, n_lanes)
        block = OneBlock(params, problem) if "features" in params else None
        self._block = block if block and block.generated else None
        self._measures = needs_measurement(params.get("eta0"), params.get("tolerance"))
        if self._block and (self._measures or params.get("center") == "global"):
            raise ParameterError(
                f"features={params['features']}: moments of all generated rows are not known; leave out "
                "eta0=spectrum and tolerance, and use center=running"
            )
        self.generates = self._block is not None
        self.shape = (self._block.width if self._block else problem.shape[0], problem.shape[1])
        stats = stats_of_problem(problem, self._block.width if self._block else None)
        self._choose = partial(steps, stats, n_lanes=n_lanes, warm=self._initial is not None)
        self.steps = self._choose(params)
        self.parts, self.longest = self._parts()
        rows = sample_size(dataset, n_lanes * self.parts)
        # A single lane is not averaged, so there is nothing to compare before and after.
        self.sample = SampleRef(rows, problem.seed) if n_lanes > 1 else None
        self._most_steps = params.get("steps") or math.inf
        self.plan = self._plan(self._memory)
        if params.get("steps"):
            fewest = min(int(dataset.table.rows[list(lane)].sum()) for lane in self.lanes)
            each = max(fewest // params["batch_size"], 1)
            self.plan = replace(self.plan, passes=float(-(-params["steps"] // each)))
        self.data = DatasetRef.of(dataset, self.plan.cache_bytes)
        self._averages = params.get("average", "none")
        self._retired: NDArray[np.float64] | None = None
        self._class_weight = problem.row_weights

    def _parts(self) -> tuple[int, int]:
        """Return the number of parts of a pass, and the most parts that a round takes.

        Several lanes start with rounds of one part: small enough to average often, large enough to make that cheap.
        """
        stored, longest = self.problem.dataset.stored_bytes, self.params["round_bytes"]
        rounds = rounds_in_pass(self.lanes, stored, longest)
        # A single lane gains nothing from averaging, so its rounds are as long as allowed.
        if len(self.lanes) == 1:
            return rounds, 1
        weights = self.steps.default.bytes_of(self.shape, self.problem.dtype)
        least = self.params["sync_bytes"] or max(_LEAST_SYNC_BYTES, _SYNC_WEIGHTS * weights)
        parts = rounds_in_pass(self.lanes, stored, min(least, longest))
        return parts, parts // rounds

    def _plan(self, memory: MemoryBudget) -> Plan:
        meta = self.problem.dataset.meta
        weight_bytes = self.steps.default.bytes_of(self.shape, self.problem.dtype)
        windows = self.params.get("average", "none") != "none"
        sample_rows = self.sample.n_rows if self.sample else 0
        row_bytes = int(self.problem.dataset.decoded_bytes.sum()) // max(meta.n_rows, 1)
        needs = TrainTask.needs(weight_bytes, self._work_bytes(row_bytes) + self._joint_bytes(memory.models))
        if self.problem.fit_intercept and not self.problem.penalty_is_quadratic:
            # Their certificate makes the intercept optimal, in float64.
            needs = needs._replace(shared=max(needs.shared, 8 * self.shape[0] * self.shape[1]))
        return make_plan(
            self.problem.dataset,
            Footprint(
                needs,
                # the state before and after a round; two windows in float64, of both
                weight_bytes * (2 + windows * 4 * 8 / self.problem.dtype.itemsize),
                sample_bytes=2 * sample_rows * row_bytes,
                exchanged=self._exchanged(windows),
            ),
            lanes=len(self.lanes),
            rounds_per_pass=self.parts,
            budget=memory,
        )

    def _exchanged(self, windows: bool) -> tuple[int, int]:
        """Return the bytes of what a lane starts from and of what it returns, with its window's mean."""
        update, dtype = self.steps.default, self.problem.dtype
        sent = update.sent_bytes(self.shape, dtype)
        weights, intercept = update.zeros((1, self.shape[1]), dtype)[:2]
        return sent, sent + windows * (self.shape[0] * weights.nbytes + intercept.nbytes)

    def _joint_bytes(self, models: int) -> int:
        """Return the bytes of what fits side by side hold in common: while they train, or while they are evaluated."""
        given = self.shape, self.problem.dtype, models
        mean_rows = 8 * models * self.shape[0] if self.problem.is_ridge else 0
        return max(self.steps.default.joint_bytes(*given), joint_gradient_bytes(*given) + mean_rows)

    def _work_bytes(self, row_bytes: int) -> int:
        """Return the bytes of a task for rows that are drawn, and for features: rows in order, a chunk's features."""
        # where rows are drawn, those of all partitions of a lane, and a copy while they are put together
        held = [int(self.problem.dataset.decoded_bytes[list(lane)].sum()) for lane in self.lanes]
        drawn = 2 * max(held) * (self.params["shuffle"] == DRAWS)
        if self._block is None:
            return drawn
        most_rows = int(self.problem.dataset.table.rows.max(initial=0))
        return (
            drawn
            + self._block.work_bytes
            + most_rows * row_bytes
            + PIECE_ROWS * self.shape[0] * self.problem.dtype.itemsize
        )

    def prepare(self, executor: Executor) -> None:
        """See `Solver.prepare`; the driver averages windows."""
        if self._averages != "none":
            add_scaled(np.zeros(1), np.zeros(1), np.zeros(1, self.problem.dtype), 1.0)
        super().prepare(executor)

    @property
    def kernels(self) -> tuple[Any, ...]:
        lanes = len(self.lanes) > 1  # whose weights are merged
        decays = self.problem.alpha > 0.0
        return *super().kernels, type(self.steps.default).__name__, self._memory.models, lanes, decays

    def tasks(self, data: DatasetRef, block: int = 0) -> list[Call]:
        update, state, models = self.steps.default, StochasticState(), self._memory.models
        width, k = data.one_row or self.problem.shape[0], self.problem.shape[1]
        if self._block:
            state, width = state.with_design(self._block.probe()), self._block.width
        # rows of trials are judged as those of a sample
        sample = self.sample or (SampleRef(1, self.problem.seed) if self.steps.candidates else None)
        task = replace(self._task(TrainTask, state, update), data=data, sample=sample)
        mean = replace(self._task(MeanTask, state, update), data=data)
        lane, zero = Lane(0, (block,)), update.zeros((width, k), self.problem.dtype)
        start = LaneStart(lane, 0.0, 0.0)
        return [
            Call(ReadTogether((task,)), (zero,), ((0, start),) * models, len(self.lanes) > 1),
            *([Call(mean, (width, k), lane)] if update.needs_mean else []),
            *evaluation_tasks(self.problem, self.data, models),
        ]

    def init(self) -> StochasticState:
        """Return zero weights, or those of the initial model."""
        lane = self.steps.default.zeros(self.shape, self.problem.dtype)
        if self._initial is not None:
            check_initial(self._initial, self.problem, self.params["init"], generated=self.generates)
            intercept = self._initial.intercept.astype(np.float64)
            self.steps.default.start_from(self._initial.weights, intercept, lane)
        window = lane[0].shape if self._averages != "none" else (0, lane[0].shape[1])
        return StochasticState(
            lane=lane,
            times=np.zeros(len(self.lanes)),
            tail=np.zeros(window),
            tail_intercept=np.zeros(window[1]),
            before=np.zeros(window),
            before_intercept=np.zeros(window[1]),
        )

    def step(self, state: StochasticState, executor: Executor) -> tuple[StochasticState, RoundReport]:
        """Do one round alone."""
        return run_alone(self.round(state), executor)

    async def round(self, state: StochasticState) -> tuple[StochasticState, RoundReport]:
        """Do one round: every lane from the averaged arrays, then average."""
        details: dict[str, Any] | None = None
        if self._block and not state.recipe:
            state = await Wanted(partial(self._with_features, state))
        # A fixed mean has to be known before the first step.
        if not state.round and self.steps.default.needs_mean:
            state = replace(state, lane=await self._with_mean(state.lane))
        if self._measures and not state.measured:
            sums = await self._mean_sums()
            state = replace(state, measured=await Wanted(partial(self._measured, sums)))
            details = {"measured": state.measured}
        steps = self._steps_of(state)
        # Trials start from the state itself, so that a warm start is tried where it will be used.
        if state.chosen is None and steps.candidates:
            trial = self._task(TrialTask, state, steps.default)
            chosen, tried = await try_candidates(steps, trial, state.lane, self.problem)
            state, details = replace(state, chosen=chosen), {**(details or {}), "tried": tried}
        task = self._task(TrainTask, state, self._update(state))
        starts = self._lane_starts(state)
        result: LaneResult = await reduced(task, starts, merge=task.merge, shared=state.lane)
        # Each row is learned from once a pass; anything else would bias the averages.
        blocks = [block for start in starts for block in start.lane.blocks]
        result.ledger.check_cover(blocks, int(self.problem.dataset.table.rows[blocks].sum()))
        following = self._advance(state, result)
        notes = [told(state.measured)] if state.measured else None
        return following, replace(self._report(result, task), details=details, notes=notes)

    def _steps_of(self, state: StochasticState) -> StepChoice:
        if not state.measured:
            return self.steps
        return self._choose({**self.params, "tolerance": None, **given_by(state.measured)})

    def _update(self, state: StochasticState) -> Update:
        steps = self._steps_of(state)
        return steps.default if state.chosen is None else steps.candidates[state.chosen].update

    def _measured(self, sums: MeanSums, executor: Executor) -> dict[str, float]:
        lanes, memory = len(self.lanes), self._memory
        found = Measurement(self.problem, sums, executor, lanes=lanes, memory=memory)
        return measured_steps(found, self.steps.default, self.params, lanes)

    def _with_features(self, state: StochasticState, executor: Executor) -> StochasticState:
        """Fit the feature map: principal components, bandwidth, filters."""
        assert self._block is not None
        needs = Needs(1, max(self._block.preparation_bytes, 1), self._block.work_bytes)
        reader = BlockReader(self.problem, lanes=self.params["lanes"], needs=needs, memory=self._memory)
        fitted = self._block.fitted(reader, executor)
        return state.with_design(fitted)

    def _task(self, kind: type[T], state: StochasticState, update: Update) -> T:
        return kind(
            data=self.data,
            update=update,
            class_weight=self._class_weight,
            shuffle=self.params["shuffle"],
            seed=self.problem.seed,
            round=state.round,
            sample=self.sample,
            recipe={"features": state.recipe} if state.recipe else {},
            arrays=state.arrays,
            dtype=self.problem.dtype.name,
            most_steps=self._most_steps,
        )

    async def _with_mean(self, lane: Arrays) -> Arrays:
        """Return the arrays with the mean of all rows and targets."""
        sums = await self._mean_sums()
        return self.steps.default.with_mean(lane, sums.x / sums.weight, sums.y / sums.weight)

    def _mean_sums(self) -> Wanted[MeanSums]:
        """Return what to await for the means of rows and targets: a read."""
        task = self._task(MeanTask, StochasticState(), self.steps.default)
        lanes = [Lane(index, blocks) for index, blocks in enumerate(self.lanes)]
        return reduced(task, lanes, merge=task.merge, shared=self.problem.shape)

    def _lane_starts(self, state: StochasticState) -> list[LaneStart]:
        parts = range(state.part, self._end(state))
        pass_index, shuffle = math.floor(state.passes), self.params["shuffle"]
        # rows that are drawn from all of a lane's need no order of partitions
        work = round_of_pass(self.lanes, self.parts, pass_index, parts, self.problem.seed, shuffle=shuffle is True)
        return [
            LaneStart(lane, t, self._tail_from(state, lane.blocks, t))
            for lane, t in zip(work, state.times, strict=True)
        ]

    def _end(self, state: StochasticState) -> int:
        """Return the part of the pass at which the next round ends."""
        return min(state.part + state.interval, self.parts)

    def _following_interval(self, state: StochasticState, spread: float) -> int:
        """Return the parts of the next round: fewer if the lanes differ much, more if they agree."""
        if spread > _FAR:
            return max(state.interval // 2, 1)
        # Halving and doubling with a gap between both thresholds, so that the interval does not oscillate.
        return min(state.interval * 2, self.longest) if spread < _NEAR else state.interval

    def _tail_from(self, state: StochasticState, blocks: tuple[int, ...], time: float) -> float:
        """Return when a lane's window starts: half-way through the first round, at the start of later ones."""
        if state.round or self._averages == "all":
            return float(time)
        # A batch is one step, and the last batch of a partition may be shorter.
        steps = sum(
            math.ceil(n / self.params.get("batch_size", 1)) for n in self.problem.dataset.table.rows[list(blocks)]
        )
        return float(time + min(steps, self._most_steps) // 2)

    def _advance(self, state: StochasticState, result: LaneResult) -> StochasticState:
        stored, end = self.problem.dataset.stored_bytes, self._end(state)
        passes = state.passes + float(stored[result.ledger.blocks].sum() / stored.sum())
        # Byte shares add up with rounding; a limit of whole passes has to be met exactly.
        if end == self.parts:
            passes, end = math.floor(state.passes) + 1.0, 0  # whole passes are whole numbers
        following = replace(
            state,
            round=state.round + 1,
            passes=passes,
            part=end,
            interval=self._following_interval(state, _relative_spread(result)),
            lane=result.arrays,
            times=np.array([result.times[lane] for lane in range(len(self.lanes))]),
        )
        if self._averages != "none":
            # reuse the memory of the state before the last one: an interrupt can only need the last
            out, self._retired = self._retired, state.tail
            following.extend_window(state, result.tail, result.tail_steps, doubling=self._averages == "tail", out=out)
        return following

    def _report(self, result: LaneResult, task: TrainTask) -> RoundReport:
        averaging = None
        if self.sample is not None:
            data, predictor = replace(self.data, cache_bytes=0), task.predictor(task.update, result.arrays)
            after = mean_loss(data, self.sample, self.problem.loss, predictor, result.ledger)
            averaging = {
                "loss_before": result.sample_loss / result.ledger.n_rows,
                "loss_after": after,
                "penalty": after - result.sample_loss / result.ledger.n_rows,
                "spread": _relative_spread(result),
            }
        errors = None if self.problem.target == "continuous" else result.errors
        return RoundReport.of(result.ledger, result.loss_sum, errors, averaging=averaging)

    def status(self, state: StochasticState) -> Status:
        """Return DIVERGED once weights are not finite, MAX_PASSES once all lanes have taken the steps asked for."""
        if not all(np.isfinite(array).all() for array in state.lane):
            return Status.DIVERGED
        return Status.MAX_PASSES if state.times.min() >= self._most_steps else Status.RUNNING

    def weights(self, state: StochasticState) -> Fitted:
        """Return the window's mean, or the last averaged weights without averaging of iterates."""
        steps, update = state.tail_steps + state.before_steps, self._update(state)
        recipe = {"n_features": self.problem.shape[0], "features": state.recipe} if state.recipe else {}
        if not steps:
            return Fitted(LinearPredictor(*update.model(state.lane), recipe, state.arrays))
        # Sums of windows are float64: thousands of float32 iterates would lose digits.
        mean = ((state.tail + state.before) / steps).astype(self.problem.dtype)
        intercept = (state.tail_intercept + state.before_intercept) / steps
        model = update.model((mean, intercept, *state.lane[2:]))
        return Fitted(LinearPredictor(*model, recipe, state.arrays))


def _relative_spread(result: LaneResult) -> float:
    """Return the lanes' mean distance from their mean, relative to its size."""
    size = float(np.square(result.arrays[0], dtype=np.float64).sum())
    return math.sqrt(result.spread / result.ledger.n_rows / size) if size else 0.0
