"""MCID (Chen, Chen, Yang 2011): stochastic multi-class learning with step 1/(alpha t), on averaged lanes.

With one lane and ``average=none`` this is the paper's Algorithm 1 over rows shuffled anew every pass. With P
lanes each lane counts its own steps, starts every round from the averaged weights, and the averages are
reported with what they cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.execution.base import Executor
from distls.memory import MemoryBudget
from distls.planning import Plan, make_plan
from distls.problem import Problem
from distls.solvers.base import RoundReport, State, Status, Weights
from distls.solvers.blocks import lane_count
from distls.storage.errors import DistlsError, MismatchError
from distls.storage.model import LinearModel
from distls.storage.rows import index_dtype
from distls.workers.kernels.averaging import add_scaled
from distls.workers.lanes import Lane, deal, round_of_pass, rounds_in_pass
from distls.workers.sample import SampleRef, mean_loss, sample_size
from distls.workers.stream import DatasetRef
from distls.workers.training import (
    KernelTypes,
    LaneResult,
    LaneStart,
    StochasticJob,
    merge_lanes,
    train_lane,
    warm_up,
)

__all__ = ["Mcid", "McidState", "safe_start"]

# t0 of several lanes, in units of mean|x|^2 / alpha: docs/decisions/0003 has the measurements.
_SAFE_START = 0.3


def safe_start(mean_square_norm: float, alpha: float) -> float:
    """Return the start time t0 of several lanes, or of trained weights; `mean_square_norm` is mean_i |x_i|^2."""
    return _SAFE_START * mean_square_norm / alpha


@dataclass
class McidState(State):
    """Everything a round starts from.

    Attributes
    ----------
    coefficients : array of shape (n_features, n_outputs)
    intercept : float64 array of shape (n_outputs,)
    times : float64 array of shape (n_lanes,)
        Steps each lane has taken.
    tail, tail_intercept : float64 arrays
        Sum over the current averaging window of (mean iterate of a round) * (its steps); empty without averaging.
    before, before_intercept : float64 arrays
        The same of the window before it.
    tail_steps, before_steps : float
        Iterates in the two windows.
    """

    coefficients: NDArray[Any] = field(default_factory=lambda: np.empty((0, 0)))
    intercept: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    times: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    tail: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    tail_intercept: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    before: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    before_intercept: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    tail_steps: float = 0.0
    before_steps: float = 0.0


class Mcid:
    """The MCID solver.

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

    Raises
    ------
    MemoryPlanError
        The job cannot fit.
    """

    state_type = McidState

    def __init__(
        self,
        problem: Problem,
        params: dict[str, Any],
        *,
        slots: int = 1,
        memory: MemoryBudget | None = None,
        initial: LinearModel | None = None,
    ) -> None:
        self.problem = problem
        self.params = params
        dataset = problem.dataset
        n_lanes = lane_count(params["lanes"], len(dataset))
        self.lanes = deal(dataset.decoded_bytes, n_lanes)
        self.rounds_per_pass = rounds_in_pass(self.lanes, dataset.stored_bytes, params["round_bytes"])
        self.sample = SampleRef(sample_size(dataset, n_lanes), problem.seed) if n_lanes > 1 else None
        self.plan = self._plan(memory or MemoryBudget(workers=slots))
        self.data = DatasetRef(str(dataset.path.resolve()), dataset.fingerprint, self.plan.cache_bytes)
        self.t0 = self._start_time(initial)
        self._initial = initial
        self._retired: NDArray[np.float64] | None = None
        by_class = problem.row_weight_by_class
        plain = not dataset.meta.weighted and bool(np.all(by_class == 1.0))
        self._class_weight = None if plain else by_class

    def _plan(self, memory: MemoryBudget) -> Plan:
        meta = self.problem.dataset.meta
        n_features, n_outputs = self.problem.shape
        weight_bytes = n_features * n_outputs * self.problem.dtype.itemsize
        # a lane returns its weights and its window's mean; the certificate a gradient in float64
        copies = 2
        average = self.params["average"] != "none"
        sample_rows = self.sample.n_rows if self.sample else 0
        row_bytes = int(self.problem.dataset.decoded_bytes.sum()) // max(meta.n_rows, 1)
        return make_plan(
            self.problem.dataset,
            weight_bytes=weight_bytes,
            result_copies=copies,
            lanes=len(self.lanes),
            rounds_per_pass=self.rounds_per_pass,
            sample_bytes=2 * sample_rows * row_bytes,
            driver_copies=2 + average * 4 * 8 / self.problem.dtype.itemsize,
            budget=memory,
        )

    def _start_time(self, initial: LinearModel | None) -> float:
        """Return t0: as given, else 0 (the paper) in one lane, and where steps are safe elsewhere.

        A step of 1/(alpha t) from t = 1 would erase a warm start; several lanes would each throw the weights to
        1/alpha before they are first averaged.
        """
        if self.params["t0"] is not None:
            return float(self.params["t0"])
        if initial is None and len(self.lanes) == 1:
            return 0.0
        return safe_start(self.problem.dataset.meta.mean_square_norm, self.problem.alpha)

    def prepare(self, executor: Executor) -> None:
        """Have the kernels compiled here, then loaded by every worker."""
        meta = self.problem.dataset.meta
        indices = index_dtype(meta.n_features).name
        types = KernelTypes(meta.layout, meta.dtype, indices, self.problem.dtype.name, self.problem.loss)
        warm_up(types)
        executor.each_worker(warm_up, types)

    def init(self) -> McidState:
        """Return zero weights, or those of the initial model."""
        shape, n_lanes = self.problem.shape, len(self.lanes)
        windowed = self.params["average"] != "none"
        window = shape if windowed else (0, shape[1])
        state = McidState(
            coefficients=np.zeros(shape, self.problem.dtype),
            intercept=np.zeros(shape[1]),
            times=np.zeros(n_lanes),
            tail=np.zeros(window),
            tail_intercept=np.zeros(shape[1]),
            before=np.zeros(window),
            before_intercept=np.zeros(shape[1]),
        )
        if self._initial is not None:
            self._start_from(self._initial, state)
        return state

    def _start_from(self, initial: LinearModel, state: McidState) -> None:
        meta = self.problem.dataset.meta
        if initial.n_features != meta.n_features or list(initial.classes) != list(meta.classes):
            raise MismatchError(
                f"init={self.params['init']}: a model of {initial.n_features} features and {len(initial.classes)} "
                f"classes; {self.problem.dataset.path} has {meta.n_features} and {len(meta.classes)}, or other labels"
            )
        state.coefficients[...] = initial.weights
        if self.problem.fit_intercept:
            state.intercept[...] = initial.intercept

    def step(self, state: McidState, executor: Executor) -> tuple[McidState, RoundReport]:
        """Do one round: every lane from the averaged weights, then average."""
        job = self._job(state.round)
        starts = self._lane_starts(state)
        result = executor.reduce(
            partial(train_lane, job), starts, merge=merge_lanes, shared=(state.coefficients, state.intercept)
        )
        _check_cover(result, starts, self.problem)
        return self._advance(state, result), self._report(result)

    def _job(self, round_index: int) -> StochasticJob:
        """Return what all lanes of a round share."""
        return StochasticJob(
            data=self.data,
            loss=self.problem.loss,
            alpha=self.problem.alpha,
            t0=self.t0,
            batch_size=self.params["batch_size"],
            fit_intercept=self.problem.fit_intercept,
            averaging=self.params["average"] != "none",
            class_weight=self._class_weight,
            shuffle=self.params["shuffle"],
            seed=self.problem.seed,
            round=round_index,
            sample=self.sample,
        )

    def probe(self, block: int) -> None:
        """Train one partition in this process and forget it: what `plan` times."""
        job = self._job(0)
        job = replace(job, data=replace(job.data, cache_bytes=0, prefetch=False), sample=None)
        zero = np.zeros(self.problem.shape, self.problem.dtype), np.zeros(self.problem.shape[1])
        train_lane(job, zero, LaneStart(Lane(0, (block,)), 0.0, 0.0))

    def _lane_starts(self, state: McidState) -> list[LaneStart]:
        turn = state.round % self.rounds_per_pass
        pass_index = state.round // self.rounds_per_pass
        work = round_of_pass(
            self.lanes,
            self.rounds_per_pass,
            pass_index,
            turn,
            self.problem.seed,
            shuffle=self.params["shuffle"],
        )
        return [
            LaneStart(lane, t, self._tail_from(state, lane.blocks, t))
            for lane, t in zip(work, state.times, strict=True)
        ]

    def _tail_from(self, state: McidState, blocks: tuple[int, ...], time: float) -> float:
        """Return when a lane's window starts: half-way through the first round, at the start of later ones."""
        if state.round or self.params["average"] == "all":
            return float(time)
        steps = sum(
            math.ceil(n / self.params["batch_size"]) for n in self.problem.dataset.table.rows[list(blocks)]
        )
        return float(time + steps // 2)

    def _advance(self, state: McidState, result: LaneResult) -> McidState:
        dataset = self.problem.dataset
        done = state.round + 1
        blocks = dataset.stored_bytes[result.blocks].sum() / dataset.stored_bytes.sum()
        passes = state.passes + float(blocks)
        if done % self.rounds_per_pass == 0:
            passes = float(done // self.rounds_per_pass)  # whole passes are whole numbers
        following = McidState(
            round=done,
            passes=passes,
            coefficients=result.weights,
            intercept=result.intercept,
            times=np.array([result.times[lane] for lane in range(len(self.lanes))]),
            tail=state.tail,
            tail_intercept=state.tail_intercept,
            before=state.before,
            before_intercept=state.before_intercept,
            tail_steps=state.tail_steps,
            before_steps=state.before_steps,
        )
        if self.params["average"] != "none":
            self._extend_window(state, following, result)
        return following

    def _extend_window(self, state: McidState, following: McidState, result: LaneResult) -> None:
        """Add a round's mean iterate to the window.

        Windows double: rounds 1, 2, 3-4, 5-8, ...; the model is the mean over the current window and the one
        before it, dropped when the current one is complete. So it covers the last half of all rounds at the
        least, and three quarters at the most.
        """
        # never in place: an interrupt must find the state of the last whole round. The memory is that of the
        # state before it, which nobody can ask for any more.
        out = np.empty_like(state.tail) if self._retired is None else self._retired
        add_scaled(out.reshape(-1), state.tail.reshape(-1), result.tail.reshape(-1), result.tail_steps)
        self._retired = state.tail
        following.tail = out
        following.tail_intercept = state.tail_intercept + result.tail_intercept * result.tail_steps
        following.tail_steps = state.tail_steps + result.tail_steps
        if self.params["average"] == "tail" and following.round & (following.round - 1) == 0:
            following.before, following.tail = following.tail, np.zeros_like(out)
            following.before_intercept = following.tail_intercept
            following.tail_intercept = np.zeros_like(following.tail_intercept)
            following.before_steps, following.tail_steps = following.tail_steps, 0.0

    def _report(self, result: LaneResult) -> RoundReport:
        averaging = None
        if self.sample is not None:
            job = replace(self.data, cache_bytes=0)
            loss = self.problem.loss
            after = mean_loss(job, self.sample, loss, result.weights, result.intercept, result.reads)
            size = float(np.square(result.weights, dtype=np.float64).sum())
            averaging = {
                "loss_before": result.sample_loss / result.n_rows,
                "loss_after": after,
                "penalty": after - result.sample_loss / result.n_rows,
                "spread": math.sqrt(result.spread / result.n_rows / size) if size else 0.0,
            }
        return RoundReport(
            running_loss=result.loss_sum / result.n_rows,
            running_error=result.errors / result.n_rows,
            n_rows=result.n_rows,
            bytes_read=result.reads.bytes_read,
            cached_bytes=result.reads.cached_bytes,
            kernel_seconds=result.kernel_seconds,
            wait_seconds=result.reads.wait_seconds,
            averaging=averaging,
            worker_seconds=result.busy,
            worker_peaks=result.peaks,
        )

    def status(self, state: McidState) -> Status:
        """Tell whether the weights are finite."""
        finite = np.isfinite(state.coefficients).all() and np.isfinite(state.intercept).all()
        return Status.RUNNING if finite else Status.DIVERGED

    def weights(self, state: McidState) -> Weights:
        """Return the window's mean, or the last averaged weights without averaging of iterates."""
        steps = state.tail_steps + state.before_steps
        if not steps:
            return Weights(state.coefficients, state.intercept)
        mean = ((state.tail + state.before) / steps).astype(self.problem.dtype)
        intercept = (state.tail_intercept + state.before_intercept) / steps
        return Weights(mean, intercept if self.problem.fit_intercept else np.zeros_like(intercept))


def _check_cover(result: LaneResult, starts: list[LaneStart], problem: Problem) -> None:
    """Every partition of the round exactly once, every row counted."""
    expected = sorted(block for start in starts for block in start.lane.blocks)
    n_rows = int(problem.dataset.table.rows[expected].sum()) if expected else 0
    if sorted(result.blocks) != expected or result.n_rows != n_rows or len(result.times) != len(starts):
        raise DistlsError(
            f"a round covered {len(result.blocks)} partitions and {result.n_rows} rows instead of {len(expected)} "
            f"and {n_rows}; resume the run"
        )
