"""Generalized least squares (Algorithm 1 of least squares revisited): steps in the metric L Sigma + alpha I.

The first round sums Sigma and the gradient at the start; where Sigma's columns are nearly dependent another one sums
them again in a basis that is nearly orthonormal. From then on a round reads the loss and the gradient at the weights
the step before has led to, and, accelerated, at the point from which the next step will be taken: one read for both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.execution.base import Executor
from distls.memory import MemoryBudget
from distls.problem import Problem
from distls.solvers.base import RoundReport, State, Status, Weights
from distls.solvers.gls_setup import check_combination, check_initial, may_need_basis, planned_reader
from distls.solvers.metric import Metric, assemble, mirrored
from distls.solvers.ridge import alpha_grid, cross_validated, total_of
from distls.storage.model import LinearModel
from distls.storage.rows import index_dtype
from distls.workers.features import Design
from distls.workers.lanes import Lane
from distls.workers.least_squares import Block, BlockJob, BlockSums, Moments, block_lane
from distls.workers.points import PointJob, PointMoments, Points, basis_lane, point_lane, warm_up_products
from distls.workers.process import single_threaded_blas
from distls.workers.training import KernelTypes

__all__ = ["GeneralizedLeastSquares", "GlsState", "lipschitz_bounds"]

Array = NDArray[np.float64]

# The Lipschitz constants of the links' slopes: L Sigma is above every Hessian from these on.
_SHARP = {"squared": 1.0, "ovr_log": 0.25, "softmax": 0.5}
_START = 8.0  # L starts at the sharp bound divided by this, unless told otherwise
_DEFAULT_FOLDS = 5
# Differences of the objective below this share of it are rounding.
_ROUNDING = 64 * float(np.finfo(np.float64).eps)

_GRAM, _BASIS, _POINTS, _DONE = "gram", "basis", "points", "done"


def lipschitz_bounds(loss: str, given: Any) -> tuple[float, float]:
    """Return where L starts, and the bound from which on the objective cannot increase.

    Parameters
    ----------
    given : None, "adaptive", "sharp", "paper" or float
    """
    sharp = _SHARP[loss]
    named = {None: sharp / _START, "adaptive": sharp / _START, "sharp": sharp, "paper": 1.0}
    return (sharp, sharp) if loss == "squared" else (float(named.get(given, given)), sharp)


@dataclass
class GlsState(State):
    """Everything a round starts from. Weights are of shape (m, k), the constant column's first where there is one.

    Attributes
    ----------
    stage : {"gram", "basis", "points", "done"}
        What the next round reads.
    alpha : float
    basis, gram : float64 arrays
        Of the metric; see `distls.solvers.metric.Metric`.
    best, best_gradient, best_value
        The weights of lowest objective, its gradient there and its value.
    base, base_gradient, base_value
        The point from which the step at hand is taken.
    candidate : float64 array of shape (m, k)
        Where it leads.
    ahead : float64 array of shape (m, k) or (0, 0)
        Where the next step will be taken from, if not from the candidate.
    bound : float
        What the objective at the candidate is at most, if L is large enough.
    lipschitz, momentum : float
        L, and Nesterov's t.
    accepted : int
        Steps taken.
    notes : list of str
    """

    stage: str = _GRAM
    alpha: float = 0.0
    basis: Array = field(default_factory=lambda: np.empty((0, 0)))
    gram: Array = field(default_factory=lambda: np.empty((0, 0)))
    best: Array = field(default_factory=lambda: np.empty((0, 0)))
    best_gradient: Array = field(default_factory=lambda: np.empty((0, 0)))
    best_value: float = 0.0
    base: Array = field(default_factory=lambda: np.empty((0, 0)))
    base_gradient: Array = field(default_factory=lambda: np.empty((0, 0)))
    base_value: float = 0.0
    candidate: Array = field(default_factory=lambda: np.empty((0, 0)))
    ahead: Array = field(default_factory=lambda: np.empty((0, 0)))
    bound: float = 0.0
    lipschitz: float = 0.0
    momentum: float = 1.0
    accepted: int = 0
    notes: list[str] = field(default_factory=list)


class Point(NamedTuple):
    """Weights with the objective and its gradient there."""

    theta: Array
    gradient: Array
    value: float


class GeneralizedLeastSquares:
    """The solver of `gls`.

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
    ParameterError
        A parameter has no meaning for the link, or needs another one.
    MemoryPlanError
        The Gram matrix does not fit; the message proposes `stagewise`.
    """

    state_type = GlsState

    def __init__(
        self,
        problem: Problem,
        params: dict[str, Any],
        *,
        slots: int = 1,
        memory: MemoryBudget | None = None,
        initial: LinearModel | None = None,
    ) -> None:
        check_combination(problem, params)
        self.problem, self.params = problem, params
        self._initial = initial
        self._first = int(problem.fit_intercept)
        self._closed = problem.loss == "squared"
        self._accelerated = not self._closed and params["accelerate"] != "none"
        self._path = params["alpha"] == "path"
        self._folds = (params["folds"] or _DEFAULT_FOLDS) if self._path else 1
        self._start, self._safe = lipschitz_bounds(problem.loss, params["lipschitz"])
        self._reader = planned_reader(
            problem, params["lanes"], self._folds, memory or MemoryBudget(workers=slots)
        )
        self.plan, self.lanes, self.data = self._reader.plan, self._reader.lanes, self._reader.data
        self._metric_now: Metric | None = None

    def prepare(self, executor: Executor) -> None:
        """Have the kernels compiled here, then loaded by every worker."""
        meta = self.problem.dataset.meta
        indices = index_dtype(meta.n_features).name
        types = KernelTypes(meta.layout, meta.dtype, indices, self.problem.dtype.name, self.problem.loss)
        warm_up_products(types)
        executor.each_worker(warm_up_products, types)

    def init(self) -> GlsState:
        """Return zero weights, or those of the initial model."""
        n_features, k = self.problem.shape
        theta = np.zeros((n_features + self._first, k))
        if self._initial is not None:
            check_initial(self._initial, self.problem, self.params["init"])
            theta[self._first :] = self._initial.weights
            theta[: self._first] = self._initial.intercept
        alpha = 0.0 if self._path else self.problem.alpha
        return GlsState(best=theta, candidate=theta, alpha=alpha, lipschitz=self._start)

    def step(self, state: GlsState, executor: Executor) -> tuple[GlsState, RoundReport]:
        """Do one read, and what it allows."""
        following = replace(state, round=state.round + 1, passes=float(state.round + 1))
        details: dict[str, Any] = {}
        if state.stage == _GRAM:
            sums = self._read_gram(state, executor)
            with single_threaded_blas():
                self._begin(following, sums, details)
        elif state.stage == _BASIS:
            sums = self._read_basis(state, executor)
            with single_threaded_blas():
                self._enter_basis(following, sums.folds[0])
        else:
            sums = self._read_points(state, executor)
            with single_threaded_blas():
                self._advance(following, sums, details)
        report = self._reader.report(sums)
        report.details = {"lipschitz": following.lipschitz, **details}
        report.notes = following.notes or None
        return following, report

    def _read_gram(self, state: GlsState, executor: Executor) -> BlockSums:
        current = None
        if self._initial is not None:
            current = Block(Design(), state.best[self._first :], self._intercept(state.best))
        return self._reader.read(executor, self._gram_job(), current=current)

    def _gram_job(self) -> BlockJob:
        return BlockJob(
            data=self.data,
            loss=self.problem.loss,
            design=Design(),
            n_outputs=self.problem.shape[1],
            dtype=self.problem.dtype.name,
            class_weight=self._reader.class_weight,
            folds=self._folds,
        )

    def _read_basis(self, state: GlsState, executor: Executor) -> BlockSums:
        points = Points(state.basis @ state.best, np.zeros(self.problem.shape[1]), state.basis)
        return self._reader.reduce(executor, partial(basis_lane, self._point_job()), points)

    def _read_points(self, state: GlsState, executor: Executor) -> BlockSums:
        thetas = [state.candidate, state.ahead] if state.ahead.size else [state.candidate]
        return self._reader.reduce(executor, partial(point_lane, self._point_job()), self._points(thetas))

    def _point_job(self) -> PointJob:
        return PointJob(
            data=self.data,
            loss=self.problem.loss,
            n_outputs=self.problem.shape[1],
            dtype=self.problem.dtype.name,
            class_weight=self._reader.class_weight,
        )

    def _points(self, thetas: list[Array]) -> Points:
        weights = np.concatenate([theta[self._first :] for theta in thetas], axis=1)
        return Points(weights, np.concatenate([self._intercept(theta) for theta in thetas]))

    def _intercept(self, theta: Array) -> Array:
        return theta[0].copy() if self._first else np.zeros(theta.shape[1])

    def _point_of(
        self, state: GlsState, theta: Array, cross: Array, slopes: Array, loss: float, weight_sum: float
    ) -> Point:
        """Return a point from the sums over rows there: loss and slopes divided by the weights, and the penalty."""
        gradient = np.empty_like(theta)
        penalised = theta[self._first :]
        gradient[: self._first] = slopes / weight_sum
        gradient[self._first :] = cross / weight_sum + state.alpha * penalised
        value = loss / weight_sum + 0.5 * state.alpha * float(np.square(penalised).sum())
        return Point(theta, gradient, value)

    def _begin(self, state: GlsState, sums: BlockSums, details: dict[str, Any]) -> None:
        """Take up Sigma and the gradient at the start; choose alpha where a path is asked for."""
        total = total_of(sums.folds)
        if self._path:
            self._choose_alpha(state, sums.folds, total, details)
        sigma = assemble(total.gram, total.sums, total.weight_sum, intercept=bool(self._first))
        eps = float(np.finfo(self.problem.dtype).eps)
        metric = Metric.scaled(sigma, state.alpha, intercept=bool(self._first), eps=eps)
        start = self._point_of(state, state.best, total.cross, total.slopes, total.loss_sum, total.weight_sum)
        state.best, state.best_gradient, state.best_value = start
        state.base, state.base_gradient, state.base_value = start
        if metric.is_sound or not may_need_basis(self.problem.dataset.meta.mean_square_norm, state.alpha):
            self._set_metric(state, metric)
            self._propose(state)
        else:
            state.stage, state.basis = _BASIS, metric.next_basis()

    def _choose_alpha(
        self, state: GlsState, folds: list[Moments], total: Moments, details: dict[str, Any]
    ) -> None:
        alphas = alpha_grid(self.params["alphas"], total)
        errors = cross_validated(folds, alphas, intercept=bool(self._first))
        best = int(np.argmin(errors))
        state.alpha = float(alphas[best])
        details["path"] = [
            {"alpha": float(alpha), "cv_mse": float(error)}
            for alpha, error in zip(alphas, errors, strict=True)
        ]
        state.notes = [
            *state.notes,
            f"alpha={state.alpha:.6g} has the lowest mean squared error of {len(alphas)} in {len(folds)}-fold "
            f"cross-validation, {errors[best]:.6g}",
        ]

    def _enter_basis(self, state: GlsState, moments: Moments) -> None:
        """Take up the Gram matrix of the rows in the new basis, and take the first step."""
        state.notes = [*state.notes, "Sigma is ill-conditioned: another read gave it in an orthonormal basis"]
        gram = mirrored(moments.gram / moments.weight_sum)
        self._set_metric(state, Metric(state.basis, gram, state.alpha, intercept=bool(self._first)))
        self._propose(state)

    def _set_metric(self, state: GlsState, metric: Metric) -> None:
        self._metric_now, state.basis, state.gram, state.stage = metric, metric.basis, metric.gram, _POINTS
        if metric.rank < metric.size:
            left_out = metric.size - metric.rank
            state.notes = [
                *state.notes,
                f"Sigma has rank {metric.rank} of {metric.size}: {left_out} directions in which the rows do not "
                "vary are left out; alpha greater than 0 would choose among their weights",
            ]

    def _metric(self, state: GlsState) -> Metric:
        """Return the state's metric; a resumed fit makes it anew."""
        if self._metric_now is None or self._metric_now.gram is not state.gram:
            eps = float(np.finfo(self.problem.dtype if state.basis.ndim == 1 else np.float64).eps)
            self._metric_now = Metric(
                state.basis, state.gram, state.alpha, intercept=bool(self._first), eps=eps
            )
        return self._metric_now

    def _propose(self, state: GlsState) -> None:
        """Take the step of Equation 14 from the base, and Nesterov's look ahead from where it leads."""
        step = self._metric(state).steps(state.base_gradient, state.lipschitz)
        decrease = 0.5 * float(np.vdot(state.base_gradient, step))
        state.bound, state.candidate = state.base_value - decrease, state.base - step
        state.ahead = np.empty((0, 0))
        if self._closed:
            state.best, state.best_value, state.stage = state.candidate, state.bound, _DONE
        elif decrease <= _ROUNDING * abs(state.base_value):
            if state.base_value <= state.best_value:
                state.best, state.best_value = state.base, state.base_value
            state.stage = _DONE
        elif self._accelerated and state.momentum > 1.0:
            weight = (state.momentum - 1.0) / _next_momentum(state.momentum)
            state.ahead = state.candidate + weight * (state.candidate - state.best)

    def _advance(self, state: GlsState, sums: BlockSums, details: dict[str, Any]) -> None:
        """Judge the candidate, then propose the next one."""
        candidate, *ahead = self._read_off(state, sums.folds[0])
        rounding = _ROUNDING * abs(state.bound)
        if state.lipschitz < self._safe and candidate.value > state.bound + rounding:
            details["outcome"] = "rejected"
            state.lipschitz = min(2.0 * state.lipschitz, self._safe)
        elif candidate.value > state.best_value:
            self._restart(state, details)
        else:
            details["outcome"] = "accepted"
            state.accepted += 1
            state.best, state.best_gradient, state.best_value = candidate
            state.base, state.base_gradient, state.base_value = ahead[0] if ahead else candidate
            state.momentum = _next_momentum(state.momentum) if self._accelerated else 1.0
        details["best_objective"] = state.best_value
        if state.stage == _POINTS:
            self._propose(state)

    def _restart(self, state: GlsState, details: dict[str, Any]) -> None:
        """Drop the momentum, which led upwards; without any, a step does not help any more but for rounding."""
        if state.base_value == state.best_value:
            details["outcome"], state.stage = "rounding", _DONE
            return
        details["outcome"], state.momentum = "restarted", 1.0
        state.base, state.base_gradient, state.base_value = state.best, state.best_gradient, state.best_value

    def _read_off(self, state: GlsState, moments: Moments) -> list[Point]:
        """Return the points of a read."""
        assert isinstance(moments, PointMoments)
        k = self.problem.shape[1]
        thetas = [state.candidate, state.ahead] if state.ahead.size else [state.candidate]
        points = []
        for number, theta in enumerate(thetas):
            own = slice(number * k, (number + 1) * k)
            cross, slopes = moments.cross[:, own], moments.slopes[own]
            loss = float(moments.losses[number])
            points.append(self._point_of(state, theta, cross, slopes, loss, moments.weight_sum))
        return points

    def status(self, state: GlsState) -> Status:
        """Tell whether the optimum is reached: in closed form, or as far as rounding lets see."""
        if not np.isfinite(state.candidate).all():
            return Status.DIVERGED
        return Status.CONVERGED if state.stage == _DONE else Status.RUNNING

    def weights(self, state: GlsState) -> Weights:
        """Return the last weights that are known to be better than all before."""
        theta = self._published(state)
        coefficients = np.ascontiguousarray(theta[self._first :], self.problem.dtype)
        return Weights(coefficients, self._intercept(theta), alpha=state.alpha if self._path else None)

    def _published(self, state: GlsState) -> Array:
        """Return the candidate where the bound holds for certain; before any step is taken, a safe step."""
        if state.stage != _POINTS:
            return state.best
        if state.lipschitz >= self._safe and state.bound <= state.best_value:
            return state.candidate
        if state.accepted:
            return state.best
        with single_threaded_blas():
            return state.best - self._metric(state).steps(state.best_gradient, self._safe)

    def probe(self, block: int) -> None:
        """Do to one partition in this process what most rounds do, and forget it: what `plan` times."""
        data, lane = replace(self.data, cache_bytes=0, prefetch=False), Lane(0, (block,))
        with single_threaded_blas():
            if self._closed:
                block_lane(replace(self._gram_job(), data=data), (None, None), lane)
                return
            n_features, k = self.problem.shape
            zero = np.zeros((n_features + self._first, k))
            points = self._points([zero] * (1 + self._accelerated))
            point_lane(replace(self._point_job(), data=data), points, lane)


def _next_momentum(momentum: float) -> float:
    return 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum * momentum))
