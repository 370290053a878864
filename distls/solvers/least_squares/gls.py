"""Generalized least squares (Algorithm 1 of least squares revisited): steps in the metric L Sigma + alpha I.

The first round sums Sigma and the gradient at the start; where Sigma's columns are nearly dependent another one sums
them again in a basis that is nearly orthonormal. From then on a round reads the loss and the gradient at the weights
the step before has led to, and, accelerated, at the point from which the next step will be taken: one read for both.
A path of alphas first does that for all alphas and folds at once, and then goes on with the alpha chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.problem import Problem
from distls.solvers.least_squares.accelerated_steps import Descent, Tried
from distls.solvers.least_squares.curvature import Metric, assemble
from distls.solvers.least_squares.gls_path import Grid, PathMetric
from distls.solvers.least_squares.gls_setup import check_combination, may_need_basis, planned_reader
from distls.solvers.least_squares.ridge_path import (
    alpha_grid,
    check_folds,
    cross_validated,
    grid_size,
    total_of,
)
from distls.solvers.solver import Fitted, RoundReport, Status
from distls.solvers.warm_start import check_initial
from distls.storage.model.model import LinearModel
from distls.storage.rows import index_dtype
from distls.workers.features.design import Design
from distls.workers.least_squares.block_task import Block, BlockJob, BlockSums, Moments, block_lane
from distls.workers.least_squares.multi_point_task import (
    PointJob,
    PointMoments,
    Points,
    basis_lane,
    point_lane,
    warm_up_products,
)
from distls.workers.linear_algebra.packed_triangle import unpacked
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.kernel_types import KernelTypes
from distls.workers.rounds.lanes import Lane
from distls.workers.runtime.process import single_threaded_blas

__all__ = ["GeneralizedLeastSquares", "GlsState", "lipschitz_bounds"]

Array = NDArray[np.float64]

# The Lipschitz constants of the links' slopes: L Sigma is above every Hessian from these on.
_SHARP = {"squared": 1.0, "ovr_log": 0.25, "softmax": 0.5}
_START = 8.0  # L starts at the sharp bound divided by this, unless told otherwise
_DEFAULT_FOLDS = 5
# A fit of a path ends when its step is sure to lower the objective by no more than this share of it.
_SETTLED = 1e-6

_GRAM, _PATH, _BASIS, _POINTS, _DONE = "gram", "path", "basis", "points", "done"


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
class GlsState(Descent):
    """Everything a round starts from: the fit, or those of a path, and the metric of its steps.

    Attributes
    ----------
    stage : {"gram", "path", "basis", "points", "done"}
        What the next round reads.
    alpha : float
        With a path the best so far.
    alphas : float64 array of shape (n_alphas,)
        Of a path.
    basis, gram : float64 arrays
        Of the metric; see `distls.solvers.least_squares.curvature.Metric`. With a path at first Sigma.
    path : list of dict
        Each alpha's judgement.
    notes : list of str
    """

    stage: str = _GRAM
    alpha: float = 0.0
    alphas: Array = field(default_factory=lambda: np.empty(0))
    basis: Array = field(default_factory=lambda: np.empty((0, 0)))
    gram: Array = field(default_factory=lambda: np.empty((0, 0)))
    path: list[dict[str, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


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
        self._reader = planned_reader(problem, params, self._folds, memory or MemoryBudget(workers=slots))
        self.plan, self.lanes, self.data = self._reader.plan, self._reader.lanes, self._reader.data
        self._metric_now: Metric | None = None
        self._path_metric: tuple[Array, PathMetric] | None = None

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
        theta = np.zeros((n_features + self._first, 1, k))
        if self._initial is not None:
            check_initial(self._initial, self.problem, self.params["init"])
            theta[self._first :, 0] = self._initial.weights
            theta[: self._first, 0] = self._initial.intercept
        state = GlsState(alpha=0.0 if self._path else self.problem.alpha)
        state.start_at(theta, self._start, self._safe)
        return state

    def step(self, state: GlsState, executor: Executor) -> tuple[GlsState, RoundReport]:
        """Do one read, and what it allows."""
        following = replace(state, round=state.round + 1, passes=float(state.round + 1))
        details: dict[str, Any] = {}
        if state.stage == _GRAM:
            sums = self._read_gram(state, executor)
            with single_threaded_blas():
                self._begin(following, sums, executor)
        elif state.stage == _BASIS:
            sums = self._read_basis(state, executor)
            with single_threaded_blas():
                self._enter_basis(following, sums.folds[0])
        else:
            sums = self._read_points(state, executor)
            with single_threaded_blas():
                self._advance(following, sums, details)
        report = self._reader.report(sums)
        report.preliminary = following.stage == _PATH or None
        path = {"path": following.path} if following.path else {}
        report.details = {"lipschitz": float(following.lipschitz.max()), **details, **path}
        unfinished = ["more passes would end the fits of the path"] if following.stage == _PATH else []
        report.notes = [*following.notes, *unfinished] or None
        if state.stage == _PATH:
            self._report_path(following, report)
        return following, report

    def _read_gram(self, state: GlsState, executor: Executor) -> BlockSums:
        current = None
        if self._initial is not None:
            theta = state.best[:, 0]
            current = Block(Design(), theta[self._first :], self._intercept(theta))
        return self._reader.read(executor, self._gram_job(), current=current)

    def _gram_job(self) -> BlockJob:
        return BlockJob(
            data=self.data,
            loss=self.problem.loss,
            design=Design(),
            n_outputs=self.problem.shape[1],
            dtype=self.problem.dtype.name,
            class_weight=self._reader.class_weight,
            folds=self._folds if self._closed else 1,
        )

    def _read_basis(self, state: GlsState, executor: Executor) -> BlockSums:
        points = Points(state.basis @ state.best[:, 0], np.zeros(self.problem.shape[1]), state.basis)
        return self._reader.reduce(executor, partial(basis_lane, self._point_job()), points)

    def _read_points(self, state: GlsState, executor: Executor) -> BlockSums:
        thetas = [state.candidate, state.ahead] if state.ahead.size else [state.candidate]
        held = self._grid(state).fold_of(np.flatnonzero(state.running)) if state.stage == _PATH else None
        job = self._point_job(1 if held is None else self._folds)
        return self._reader.reduce(executor, partial(point_lane, job), self._points(thetas, held))

    def _point_job(self, folds: int = 1) -> PointJob:
        return PointJob(
            data=self.data,
            loss=self.problem.loss,
            n_outputs=self.problem.shape[1],
            dtype=self.problem.dtype.name,
            class_weight=self._reader.class_weight,
            folds=folds,
        )

    def _points(self, thetas: list[Array], held: NDArray[np.int64] | None) -> Points:
        flat = np.concatenate([theta.reshape(len(theta), -1) for theta in thetas], axis=1)
        folds = () if held is None else tuple(held.tolist()) * len(thetas)
        return Points(np.ascontiguousarray(flat[self._first :]), self._intercept(flat), held=folds)

    def _intercept(self, theta: Array) -> Array:
        return theta[0].copy() if self._first else np.zeros(theta.shape[1])

    def _grid(self, state: GlsState) -> Grid:
        return Grid(state.alphas, self._folds)

    def _tried(
        self,
        theta: Array,
        sums: tuple[Array, Array, Array],
        weights: Array | float,
        alphas: Array | float,
        held: Array,
    ) -> Tried:
        """Return points (m, r, k) from the sums of products, slopes and losses over their rows, and the penalty."""
        cross, slopes, losses = sums
        alphas, weights = np.broadcast_to(alphas, len(losses)), np.broadcast_to(weights, len(losses))
        penalised = theta[self._first :]
        gradient = np.empty_like(theta)
        gradient[: self._first] = (slopes / weights[:, None])[None]
        gradient[self._first :] = cross / weights[:, None] + alphas[:, None] * penalised
        value = losses / weights + 0.5 * alphas * np.einsum("irk,irk->r", penalised, penalised)
        return Tried(theta, gradient, value, held)

    def _begin(self, state: GlsState, sums: BlockSums, executor: Executor) -> None:
        """Take up Sigma and the gradient at the start; choose alpha where a path is asked for."""
        total = total_of(sums.folds)
        sigma = assemble(total.gram, total.sums, total.weight_sum, intercept=bool(self._first))
        if self._path:
            state.alphas = alpha_grid(self.params["alphas"], total)
        if self._path and not self._closed:
            self._begin_path(state, sigma)
            return
        if self._path:
            self._choose_at_once(state, sums.folds, executor)
        sums_here = total.cross[:, None], total.slopes[None], np.array([total.loss_sum])
        start = self._tried(state.best, sums_here, total.weight_sum, state.alpha, np.zeros((1, 2)))
        state.know_start(start)
        self._enter(state, sigma)

    def _enter(self, state: GlsState, sigma: Array) -> None:
        """Take up Sigma as the metric at the state's alpha, or find that it needs another basis."""
        eps = float(np.finfo(self.problem.dtype).eps)
        metric = Metric.scaled(sigma, state.alpha, intercept=bool(self._first), eps=eps)
        if metric.is_sound or not may_need_basis(self.problem.dataset.meta.mean_square_norm, state.alpha):
            self._set_metric(state, metric)
            self._propose(state)
        else:
            state.stage, state.basis = _BASIS, metric.next_basis()

    def _choose_at_once(self, state: GlsState, folds: list[Moments], executor: Executor) -> None:
        """Choose alpha from the sums of each fold: what the squared loss allows."""
        eps = float(np.finfo(self.problem.dtype).eps)
        errors = cross_validated(executor, folds, state.alphas, intercept=bool(self._first), eps=eps)
        lines = zip(state.alphas, errors, strict=True)
        state.path = [{"alpha": float(alpha), "cv_mse": float(error)} for alpha, error in lines]
        state.alpha = float(state.alphas[np.argmin(errors)])
        state.notes = [*state.notes, self._said(state, "squared error", float(errors.min()))]

    def _said(self, state: GlsState, what: str, least: float) -> str:
        return (
            f"alpha={state.alpha:.6g} has the lowest mean {what} of {len(state.alphas)} in {self._folds}-fold "
            f"cross-validation, {least:.6g}"
        )

    def _begin_path(self, state: GlsState, sigma: Array) -> None:
        """Start the fits of all alphas and folds."""
        size = self._grid(state).size
        state.start_at(np.tile(state.best, (1, size, 1)), self._start, self._safe)
        state.stage, state.gram, state.alpha = _PATH, sigma, float(state.alphas[0])
        state.notes = [
            f"alpha={state.alpha:.6g} is the first of {len(state.alphas)}, none of which is judged yet"
        ]

    def _enter_basis(self, state: GlsState, moments: Moments) -> None:
        """Take up the Gram matrix of the rows in the new basis, and take the first step."""
        state.notes = [*state.notes, "Sigma is ill-conditioned: another read gave it in an orthonormal basis"]
        gram = unpacked(moments.gram, np.empty_like(state.basis))
        gram /= moments.weight_sum
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

    def _metric_of_path(self, state: GlsState) -> PathMetric:
        if self._path_metric is None or self._path_metric[0] is not state.gram:
            eps = float(np.finfo(self.problem.dtype).eps)
            self._path_metric = state.gram, PathMetric(state.gram, intercept=bool(self._first), eps=eps)
        return self._path_metric[1]

    def _steps(self, state: GlsState, fits: NDArray[np.int64], gradients: Array) -> Array:
        """Return the step of Equation 14 for some fits' gradients."""
        if state.stage == _PATH:
            alphas = self._grid(state).alpha_of(fits)
            return self._metric_of_path(state).steps(gradients, state.lipschitz[fits], alphas)
        return self._metric(state).steps(gradients[:, 0], float(state.lipschitz[0]))[:, None]

    def _propose(self, state: GlsState) -> None:
        """Take the steps from the bases; where nothing is left to gain the fit ends."""
        if not np.isfinite(state.base_value).all():
            return  # the next read tells what it starts from
        if self._closed:
            step = self._steps(state, np.arange(1), state.base_gradient)
            state.best_value = state.base_value - 0.5 * float(np.vdot(state.base_gradient, step))
            state.best = state.candidate = state.base - step
            state.stage = _DONE
            return
        state.propose(partial(self._steps, state), *([_SETTLED] if state.stage == _PATH else []))
        if state.stage == _POINTS and not state.running.any():
            state.stage = _DONE

    def _advance(self, state: GlsState, sums: BlockSums, details: dict[str, Any]) -> None:
        """Judge the candidates, then propose the next ones."""
        moments = sums.folds[0]
        assert isinstance(moments, PointMoments)
        if state.stage == _PATH:
            check_folds(moments.fold_weights.tolist())
            state.safe = (
                self._safe * moments.weight_sum / self._weights(state, moments, np.arange(len(state.safe)))
            )
        candidate, *ahead = self._read_off(state, moments)
        outcomes = state.judge(candidate, ahead[0] if ahead else None, accelerated=self._accelerated)
        if state.stage == _PATH:
            self._judge_path(state, moments)
            self._propose(state)
            details["fits"] = int(state.running.sum())
            if not state.running.any():
                self._go_on(state)
            return
        details["outcome"] = str(outcomes[0])
        details["best_objective"] = float(state.best_value[0])
        self._propose(state)

    def _weights(self, state: GlsState, moments: PointMoments, fits: NDArray[np.int64]) -> Array:
        """Return the sum of the weights of the rows that each fit is trained on."""
        folds = self._grid(state).fold_of(fits)
        return np.asarray(moments.weight_sum - moments.fold_weights[folds])

    def _read_off(self, state: GlsState, moments: PointMoments) -> list[Tried]:
        """Return the points of a read."""
        k, fits = self.problem.shape[1], np.flatnonzero(state.running)
        weights: Array | float = moments.weight_sum
        alphas: Array | float = state.alpha
        if state.stage == _PATH:
            weights, alphas = self._weights(state, moments, fits), self._grid(state).alpha_of(fits)
        cross, slopes = moments.cross.reshape(len(moments.cross), -1, k), moments.slopes.reshape(-1, k)
        judged = np.stack([moments.held_losses, moments.wrong.astype(np.float64)], axis=1)
        points = []
        for number, theta in enumerate(
            [state.candidate, state.ahead] if state.ahead.size else [state.candidate]
        ):
            own = slice(number * len(fits), (number + 1) * len(fits))
            sums = cross[:, own], slopes[own], moments.losses[own]
            points.append(self._tried(theta, sums, weights, alphas, judged[own]))
        return points

    def _judge_path(self, state: GlsState, moments: PointMoments) -> None:
        """Note which alpha is best as the fits now stand."""
        meta = self.problem.dataset.meta
        verdict = self._grid(state).verdict(state.best_held, moments.weight_sum, meta.n_rows)
        state.path = verdict.to_json(state.alphas)
        state.alpha = float(state.alphas[np.argmin(verdict.losses)])
        state.notes = [self._said(state, "loss", float(verdict.losses.min()))]

    def _report_path(self, state: GlsState, report: RoundReport) -> None:
        """Report the loss and the errors of the best alpha, on rows that its fits have not seen."""
        best = min(state.path, key=lambda line: line["cv_loss"])
        report.running_loss = best["cv_loss"]
        if report.running_error is not None:
            report.running_error = best["cv_error"]

    def _go_on(self, state: GlsState) -> None:
        """Start the fit to everything at the alpha chosen, from the mean of its folds' weights."""
        fits = self._chosen(state)
        lipschitz = min(float(state.lipschitz[fits].max()), max(self._start, self._safe))
        state.start_at(self._mean(state, fits), lipschitz, self._safe)
        self._enter(state, state.gram.copy())

    def _chosen(self, state: GlsState) -> NDArray[np.int64]:
        grid = self._grid(state)
        return grid.fits_of(int(np.flatnonzero(grid.alphas == state.alpha)[0]))

    def _mean(self, state: GlsState, fits: NDArray[np.int64]) -> Array:
        return np.asarray(state.best[:, fits].mean(axis=1, keepdims=True))

    def status(self, state: GlsState) -> Status:
        """Tell whether the optimum is reached: in closed form, or as far as rounding lets see."""
        if not np.isfinite(state.candidate).all():
            return Status.DIVERGED
        return Status.CONVERGED if state.stage == _DONE else Status.RUNNING

    def weights(self, state: GlsState) -> Fitted:
        """Return the last weights that are known to be better than all before."""
        theta = self._published(state)
        coefficients = np.ascontiguousarray(theta[self._first :], self.problem.dtype)
        predictor = LinearPredictor(coefficients, self._intercept(theta))
        return Fitted(predictor, alpha=state.alpha if self._path else None)

    def _published(self, state: GlsState) -> Array:
        """Return the candidate where the bound holds for certain; before any step is taken, a safe step."""
        if state.stage == _PATH:
            return self._mean(state, self._chosen(state))[:, 0]
        if state.stage == _POINTS and np.isfinite(state.best_value[0]):
            if state.lipschitz[0] >= state.safe[0] and state.bound[0] <= state.best_value[0]:
                return state.candidate[:, 0]
            if not state.accepted[0]:
                with single_threaded_blas():
                    step = self._metric(state).steps(state.best_gradient[:, 0], float(state.safe[0]))
                return state.best[:, 0] - step
        return state.best[:, 0]

    def fits(self, state: GlsState) -> bool:
        """See `Solver.fits`: p fits, r of them running."""
        n_features, k = self.problem.shape
        m, p, r = n_features + self._first, len(state.running), int(state.running.sum())
        own = [
            getattr(state, f"{name}{part}").shape for name in ("best", "base") for part in ("", "_gradient")
        ]
        counted = ("running", "best_value", "base_value", "lipschitz", "safe", "momentum", "accepted")
        return (
            all(shape == (m, p, k) for shape in own)
            and all(getattr(state, name).shape == (p,) for name in counted)
            and state.best_held.shape == state.base_held.shape == (p, 2)
            and state.candidate.shape in ((m, r, k), (m, p, k))
            and state.ahead.shape in (state.candidate.shape, (0, 0, 0))
            and state.bound.shape == state.candidate.shape[1:2]
            and len(state.basis) in (0, m)
            and len(state.gram) in (0, m, *state.basis.shape)
            and state.alphas.ndim == 1
        )

    def probe(self, block: int) -> None:
        """Do to one partition in this process what most rounds do, and forget it: what `plan` times."""
        data, lane = replace(self.data, cache_bytes=0, prefetch=False), Lane(0, (block,))
        with single_threaded_blas():
            if self._closed:
                block_lane(replace(self._gram_job(), data=data), (None, None), lane)
                return
            n_features, k = self.problem.shape
            fits = grid_size(self.params["alphas"]) * self._folds if self._path else 1
            zero = np.zeros((n_features + self._first, fits, k))
            points = self._points([zero] * (1 + self._accelerated), None)
            point_lane(replace(self._point_job(self._folds), data=data), points, lane)
