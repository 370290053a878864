"""FISTA and SpaRSA on row partitions: steps along the whole gradient, each followed by the penalty's prox.

A round is a read of all rows. FISTA (Beck and Teboulle 2009) reads the loss where a step has led to, and the gradient
at the point ahead of it, from which the next step will be taken if this one is accepted: both from one read. SpaRSA
(Wright, Nowak, Figueiredo 2009) has loss and gradient at the same point. A step that is not accepted costs a read;
its curvature, known from the loss, says how much shorter the next one must be.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.problem import Problem
from distls.solvers.block_reads import BlockReader
from distls.solvers.least_squares.accelerated_steps import next_momentum
from distls.solvers.solver import RoundReport, State, Status, Weights
from distls.solvers.warm_start import check_initial, initial_weights
from distls.storage.errors import ParameterError
from distls.storage.model.model import LinearModel
from distls.storage.rows import index_dtype
from distls.workers.features.design import PIECE_ROWS
from distls.workers.least_squares.block_task import BlockSums
from distls.workers.least_squares.multi_point_task import (
    SCORES,
    PointJob,
    PointMoments,
    Points,
    point_lane,
    sigma_lane,
    warm_up_products,
)
from distls.workers.losses.registry import loss_named
from distls.workers.penalties.registry import prox_rows
from distls.workers.prediction.threshold_task import threshold_bytes
from distls.workers.rounds.lanes import Lane
from distls.workers.runtime.process import single_threaded_blas
from distls.workers.stochastic.lane_task import KernelTypes

__all__ = ["Fista", "Proximal", "ProximalState", "Sparsa"]

Array = NDArray[np.float64]

_NORM, _START, _STEPS = "norm", "start", "steps"
_NONE = np.empty((0, 0))

# The norm of Sigma: columns of the subspace, the relative residual that ends its iteration, and the reads that do.
_COLUMNS, _RESIDUAL, _NORM_READS = 4, 0.01, 20
# L starts at its bound divided by this, and is then what steps see of the curvature times the slack; a step makes it
# at most so much less.
_SLACK, _DOWN = 1.5, 0.8
_START_SHARE = 64.0
# Differences of the objective below this many roundings of it tell nothing.
_ROUNDINGS = 64.0
# How far steps move weights that have diverged.
_FAR = 1e100
# SpaRSA's sufficient decrease.
_SIGMA = 0.01
_LEAST = 1e-8  # of its bound that SpaRSA's L may be


class Read(NamedTuple):
    """What a read tells: the mean loss at the candidate, and mean loss and gradient at the point ahead of it.

    Without such a point these are the candidate's own.
    """

    candidate: float
    value: float
    gradient: Array


@dataclass
class ProximalState(State):
    """Everything a round starts from. Weights are of shape (m, k), the intercept first where there is one.

    Attributes
    ----------
    stage : {"norm", "start", "steps"}
        What the next round reads.
    point : float64 array of shape (m, k)
        The last accepted weights.
    base, gradient : float64 arrays of shape (m, k)
        Where the step at hand is taken from, and the gradient of the mean loss there.
    value : float
        The mean loss at the base.
    candidate : float64 array of shape (m, k)
        Where the step leads.
    ahead : float64 array of shape (m, k) or (0, 0)
        Where the next step will be taken from, if not from the candidate.
    lipschitz, momentum : float
        L, and Nesterov's t.
    objectives : float64 array of shape (n,)
        Of the last accepted weights, the newest last.
    moved, first, ratio : float
        L times how far the step at hand moves rows of weights, summed; that of the first step; and the last accepted
        one's by it, None before.
    vectors : float64 array of shape (m, q)
        An orthonormal basis in the iteration for the norm of Sigma.
    """

    stage: str = _START
    point: Array = field(default_factory=_NONE.copy)
    base: Array = field(default_factory=_NONE.copy)
    gradient: Array = field(default_factory=_NONE.copy)
    value: float = 0.0
    candidate: Array = field(default_factory=_NONE.copy)
    ahead: Array = field(default_factory=_NONE.copy)
    lipschitz: float = 1.0
    momentum: float = 1.0
    objectives: Array = field(default_factory=lambda: np.empty(0))
    moved: float = 0.0
    first: float = 0.0
    ratio: float | None = None
    vectors: Array = field(default_factory=_NONE.copy)


class Proximal:
    """What FISTA and SpaRSA share.

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
    MismatchError
        A model to start from does not fit.
    MemoryPlanError
        The job cannot fit.
    """

    state_type = ProximalState
    # points of a round, the last of which has a gradient
    points = 1

    def __init__(
        self,
        problem: Problem,
        params: dict[str, Any],
        *,
        slots: int = 1,
        memory: MemoryBudget | None = None,
        initial: LinearModel | None = None,
    ) -> None:
        self.problem, self.params, self._initial = problem, params, initial
        if initial is not None:
            check_initial(initial, problem, params["init"])
        self._first = int(problem.fit_intercept)
        self._constant = params.get("step") == "constant"
        self._reader = self._planned(memory or MemoryBudget(workers=slots))
        self.plan, self.lanes, self.data = self._reader.plan, self._reader.lanes, self._reader.data
        self._sharp = loss_named(problem.loss).lipschitz(problem.shape[1])
        self._rounding = _ROUNDINGS * float(np.finfo(problem.dtype).eps)

    def _planned(self, memory: MemoryBudget) -> BlockReader:
        dataset, (n_features, k) = self.problem.dataset, self.problem.shape
        one = 8 * k * (n_features + self._first)
        copied = (
            2 * (dataset.meta.dtype != self.problem.dtype.name) * int(dataset.decoded_bytes.max(initial=0))
        )
        pieces = max(SCORES, self.points * k * PIECE_ROWS)
        ranking = threshold_bytes(k) if self.problem.ranks else 0
        return BlockReader(
            self.problem,
            lanes=self.params["lanes"],
            block_bytes=one,
            weight_bytes=self.points * one,
            # scores and slopes of a piece, as they are made, for a point and for all
            work_bytes=4 * 8 * pieces + copied + ranking,
            # the state before and after, and what a step is made from
            driver_bytes=14 * one + ranking,
            memory=memory,
        )

    def prepare(self, executor: Executor) -> None:
        """Have the kernels compiled here, then loaded by every worker."""
        meta = self.problem.dataset.meta
        indices = index_dtype(meta.n_features).name
        for dtype in sorted({self.problem.dtype.name, *(["float64"] if self._constant else [])}):
            types = KernelTypes(meta.layout, meta.dtype, indices, dtype, self.problem.loss)
            warm_up_products(types)
            executor.each_worker(warm_up_products, types)

    def init(self) -> ProximalState:
        """Return zero weights, or those of the initial model."""
        n_features, k = self.problem.shape
        theta = np.zeros((n_features + self._first, k))
        if self._initial is not None:
            theta[self._first :] = initial_weights(self._initial, self.problem)
            theta[: self._first] = self._initial.intercept
        state = ProximalState(point=theta, base=theta, candidate=theta, lipschitz=self._lipschitz())
        if self._constant and self.params["lipschitz"] in (None, "norm"):
            state.stage, state.vectors = _NORM, _general_basis(len(theta))
        return state

    def _lipschitz(self) -> float:
        """Return L to start with; the norm of Sigma is not known yet."""
        given = self.params["lipschitz"]
        if isinstance(given, float):
            return given
        return self.safe / (1.0 if self._constant else _START_SHARE)

    @property
    def safe(self) -> float:
        """A bound of L: the trace of Sigma is at least its norm."""
        largest = 1.0 if self._reader.class_weight is None else float(self.problem.row_weight_by_class.max())
        square = self.problem.dataset.meta.mean_square_norm + self._first
        return self._sharp * max(largest * square, float(np.finfo(float).tiny))

    def step(self, state: ProximalState, executor: Executor) -> tuple[ProximalState, RoundReport]:
        """Do one read, and what it allows."""
        following = replace(state, round=state.round + 1, passes=float(state.round + 1))
        read = self._read_sigma if state.stage == _NORM else self._read_points
        sums = read(state, executor)
        # divergence is the loop's to report
        with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
            take_up = self._bound_norm if state.stage == _NORM else self._advance
            outcome = take_up(following, sums)
        report = self._reader.report(sums)
        report.details = {
            "outcome": outcome,
            "lipschitz": following.lipschitz,
            "violation_ratio": following.ratio,
            "non_zero_rows": int(following.point[self._first :].any(axis=1).sum()),
        }
        return following, report

    # -- reads

    def _job(self) -> PointJob:
        return PointJob(
            data=self.data,
            loss=self.problem.loss,
            n_outputs=self.problem.shape[1],
            dtype=self.problem.dtype.name,
            class_weight=self._reader.class_weight,
        )

    def _points(self, thetas: list[Array]) -> Points:
        flat = np.concatenate(thetas, axis=1) if len(thetas) > 1 else thetas[0]
        intercept = flat[0].copy() if self._first else np.zeros(flat.shape[1])
        return Points(np.ascontiguousarray(flat[self._first :]), intercept, bare=len(thetas) - 1)

    def _read_points(self, state: ProximalState, executor: Executor) -> BlockSums:
        thetas = [state.candidate, state.ahead] if state.ahead.size else [state.candidate]
        return self._reader.reduce(executor, partial(point_lane, self._job()), self._points(thetas))

    def _read_sigma(self, state: ProximalState, executor: Executor) -> BlockSums:
        return self._reader.reduce(
            executor, partial(sigma_lane, self._job()), self._points([state.point, state.vectors])
        )

    def _bound_norm(self, state: ProximalState, sums: BlockSums) -> str:
        """Take up Sigma times the vectors; once the norm of Sigma is known well enough it makes L."""
        moments = sums.folds[0]
        product = np.concatenate([moments.slopes[None]] * self._first + [moments.cross]) / moments.weight_sum
        if not np.isfinite(product.sum()):
            return _diverged(state)
        values, rotation = np.linalg.eigh(state.vectors.T @ product)
        leading = product @ rotation[:, -1] - values[-1] * (state.vectors @ rotation[:, -1])
        residual = float(np.sqrt(leading @ leading))
        state.lipschitz = self._sharp * (float(values[-1]) + residual)
        if residual > _RESIDUAL * values[-1] and state.round < _NORM_READS:
            state.vectors = np.linalg.qr(product)[0]
        else:
            state.stage, state.vectors = _START, _NONE.copy()
        return "norm"

    # -- steps

    def _advance(self, state: ProximalState, sums: BlockSums) -> str:
        """Judge the candidate, then propose the next one."""
        moments = sums.folds[0]
        assert isinstance(moments, PointMoments)
        values = moments.losses / moments.weight_sum
        gradient = np.concatenate([moments.slopes[None]] * self._first + [moments.cross]) / moments.weight_sum
        if not np.isfinite([*values, gradient.sum()]).all():
            return _diverged(state)
        read = Read(float(values[0]), float(values[-1]), gradient)
        objective = read.candidate + self._penalty(state.candidate)
        if state.stage == _START:
            outcome, state.stage = "start", _STEPS
            self._take(state, read, objective)
        else:
            outcome = self._judge(state, read, objective)
        self._propose(state)
        if outcome == "start":
            state.first = state.moved
        return outcome

    def _judge(self, state: ProximalState, read: Read, objective: float) -> str:
        """Take the candidate, or change L."""
        curvature = self._curvature(state, read)
        if (
            not self._constant
            and state.lipschitz < self.safe
            and not self._accepts(state, curvature, objective)
        ):
            state.lipschitz = min(max(_SLACK * curvature, 2.0 * state.lipschitz), self.safe)
            return "rejected"
        state.ratio = state.moved / state.first if state.first > 0.0 else 0.0
        outcome = self._follow(state, read, curvature)
        self._take(state, read, objective)
        return outcome

    def _curvature(self, state: ProximalState, read: Read) -> float:
        """Return the least L that would have done for the step; L itself where that is lost in rounding."""
        step = state.candidate - state.base
        square = float(np.vdot(step, step))
        over = read.candidate - state.value - float(np.vdot(state.gradient, step))
        if not square * state.lipschitz > 2.0 * self._rounding * abs(state.value):
            return state.lipschitz
        return 2.0 * over / square

    def _accepts(self, state: ProximalState, curvature: float, objective: float) -> bool:
        """Tell whether the candidate is good enough to be taken."""
        raise NotImplementedError

    def _follow(self, state: ProximalState, read: Read, curvature: float) -> str:
        """Set L, and the momentum, for what follows an accepted candidate; tell what has come of it."""
        raise NotImplementedError

    def _take(self, state: ProximalState, read: Read, objective: float) -> None:
        state.point = state.candidate
        state.base = state.ahead if state.ahead.size else state.candidate
        state.value, state.gradient = read.value, read.gradient
        state.objectives = np.append(state.objectives, objective)[-self.params.get("history", 1) :]

    def _propose(self, state: ProximalState) -> None:
        """Step from the base, and look ahead from where that leads."""
        state.candidate = self._prox(state.base - state.gradient / state.lipschitz, state.lipschitz)
        step = state.candidate - state.base
        state.moved = state.lipschitz * float(np.sqrt(np.square(step).sum(axis=1)).sum())
        state.ahead = self._look_ahead(state)
        if not state.moved < _FAR:
            _diverged(state)

    def _look_ahead(self, state: ProximalState) -> Array:
        """Return the point from which the step after the candidate's is taken, (0, 0) where it is that."""
        return _NONE.copy()

    def _penalty(self, theta: Array) -> float:
        return self.problem.alpha * self.problem.penalty_of(theta[self._first :])

    def _prox(self, theta: Array, lipschitz: float) -> Array:
        out, problem = theta.copy(), self.problem
        out[self._first :] = prox_rows(
            problem.penalty, theta[self._first :], problem.alpha / lipschitz, problem.l1_ratio
        )
        return out

    def status(self, state: ProximalState) -> Status:
        """Tell whether the last step was small beside the first (as Eq. 10 of the paper of `bcd` has it)."""
        if not np.isfinite(state.candidate).all():
            return Status.DIVERGED
        ended = state.ratio is not None and state.ratio <= self.params["tau"]
        return Status.CONVERGED if ended else Status.RUNNING

    def weights(self, state: ProximalState) -> Weights:
        """Return the last accepted weights."""
        theta, k = state.point, self.problem.shape[1]
        intercept = theta[0].copy() if self._first else np.zeros(k)
        return Weights(np.ascontiguousarray(theta[self._first :], self.problem.dtype), intercept)

    def probe(self, block: int) -> None:
        """Do to one partition in this process what most rounds do, and forget it: what `plan` times."""
        data, zero = replace(self.data, cache_bytes=0, prefetch=False), self.init().point
        with single_threaded_blas():
            point_lane(replace(self._job(), data=data), self._points([zero] * self.points), Lane(0, (block,)))


class Fista(Proximal):
    """The solver of `fista`: Nesterov's steps, started anew where the momentum points away from the last one.

    Raises
    ------
    ParameterError
        What L is, is told of a line search, which finds it.
    """

    points = 2

    def __init__(self, problem: Problem, params: dict[str, Any], **options: Any) -> None:
        given = params["lipschitz"]
        if params["step"] == "line-search" and isinstance(given, str):
            raise ParameterError(
                f"lipschitz={given}: of step=constant; give a number, where the line search starts, or leave it out"
            )
        super().__init__(problem, params, **options)

    def _accepts(self, state: ProximalState, curvature: float, objective: float) -> bool:
        return curvature <= state.lipschitz

    def _follow(self, state: ProximalState, read: Read, curvature: float) -> str:
        if not self._constant:
            seen = min(state.lipschitz, _SLACK * curvature)
            state.lipschitz = max(_DOWN * state.lipschitz, seen)
        restarted = state.momentum > 1.0 and not state.ahead.size
        state.momentum = _after(state.momentum if state.ahead.size else 1.0)
        return "restarted" if restarted else "accepted"

    def _look_ahead(self, state: ProximalState) -> Array:
        """Return the point from which the next step is taken; the candidate where momentum would lead back."""
        change = state.candidate - state.point
        weight = (state.momentum - 1.0) / _after(state.momentum)
        if weight == 0.0 or float(np.vdot(state.base - state.candidate, change)) > 0.0:
            return _NONE.copy()
        return state.candidate + weight * change


class Sparsa(Proximal):
    """The solver of `sparsa`: L from the last step (Barzilai and Borwein), no monotone descent asked for."""

    def _accepts(self, state: ProximalState, curvature: float, objective: float) -> bool:
        step = state.candidate - state.base
        worst = float(state.objectives.max())
        least = 0.5 * _SIGMA * state.lipschitz * float(np.vdot(step, step))
        return objective <= worst - least + self._rounding * abs(worst)

    def _follow(self, state: ProximalState, read: Read, curvature: float) -> str:
        step = state.candidate - state.base
        square = float(np.vdot(step, step))
        if square > 0.0:
            seen = float(np.vdot(step, read.gradient - state.gradient)) / square
            state.lipschitz = min(max(seen, _LEAST * self.safe), self.safe)
        return "accepted"


def _diverged(state: ProximalState) -> str:
    """Note what `status` looks for; numbers that are not finite have no place in a checkpoint."""
    state.candidate = np.full_like(state.candidate, np.nan)
    return "diverged"


def _after(t: float) -> float:
    """Return Nesterov's t after t."""
    return float(next_momentum(np.array(t)))


def _general_basis(m: int) -> Array:
    """Return orthonormal columns in general position, always the same."""
    waves = np.cos(np.outer(np.arange(1.0, m + 1.0), np.sqrt(np.arange(2.0, 2.0 + min(_COLUMNS, m)))))
    waves[:, 0] = 1.0  # not orthogonal to the leading direction of rows that are not negative
    with single_threaded_blas():
        return np.asarray(np.linalg.qr(waves)[0])
