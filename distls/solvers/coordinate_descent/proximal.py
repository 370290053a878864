"""FISTA and SpaRSA on row partitions: steps along the full gradient, each followed by the penalty's prox.

A round is a read of all rows. FISTA (Beck and Teboulle 2009) reads the loss where a step has led to, and the gradient
at the point ahead of it, from which the next step will be taken if this one is accepted: both from one read. SpaRSA
(Wright, Nowak, Figueiredo 2009) has loss and gradient at the same point. A step that is not accepted costs a read;
its curvature, known from the loss, determines how much shorter the next one must be.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.dual_problem import intercept_curvature, optimal_intercept
from distls.execution.executor import Executor
from distls.execution.memory_budget import human
from distls.methods.method import Params
from distls.problem import Problem
from distls.solvers.block_reads import BlockReader
from distls.solvers.coordinate_descent.balanced_gradients import balanced_bound, has_balance
from distls.solvers.coordinate_descent.near_search import NearSearch
from distls.solvers.coordinate_descent.proximal_steps import (
    NONE,
    FistaSteps,
    ProximalState,
    ProximalSteps,
    Read,
    SparsaSteps,
    diverged,
)
from distls.solvers.largest_eigenvalue import COLUMNS, NORM_READS, RESIDUAL, general_basis, leading_eigenvalue
from distls.solvers.solver import Fitted, RoundReport, Solver, evaluation_tasks, known_gap, predictor_of
from distls.solvers.status import Status
from distls.solvers.warm_start import check_initial, initial_weights
from distls.storage.errors import MemoryPlanError, ParameterError
from distls.workers.coordinate_descent.dual_bounds import DualFactor, bound_of
from distls.workers.least_squares.block_task import BlockSums, Moments
from distls.workers.least_squares.multi_point_task import (
    PointMoments,
    PointTask,
    SigmaTask,
    SparsePoints,
    StackedWeights,
)
from distls.workers.losses.loss_registry import loss_named
from distls.workers.penalties.penalty_registry import penalty_named
from distls.workers.prediction.threshold_task import threshold_bytes
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.task import Call, Needs
from distls.workers.runtime.process import single_threaded_blas

Array = NDArray[np.float64]

_NORM, _START, _STEPS = "norm", "start", "steps"

# L starts at its bound divided by this, where it is searched for.
_START_SHARE = 64.0
# Steps below so many roundings of the first are rounding: no bound comes nearer.
_STILL = 8.0


class Proximal(Solver[ProximalState]):
    """Base of FISTA and SpaRSA."""

    state_type = ProximalState
    # points of a round, the last of which has a gradient
    points = 1
    steps_type: type[ProximalSteps]

    def __init__(self, problem: Problem, params: Params, **given: Any) -> None:
        super().__init__(problem, params, **given)
        self._check_params()
        # with l2 the gradients of the weights themselves give a bound of the second order
        plain = problem.penalty_is_quadratic
        self._search = None if plain else NearSearch.of(problem, params["active_mib"], self._folder, self.points)
        check_initial(self._initial, problem, params["init"])
        self._first = int(problem.fit_intercept)
        # a free intercept asks for gradients that sum to zero
        # of a path, which is planned alone, it is not known yet
        self._proves = not plain and problem.alpha != 0.0 and (not self._first or has_balance(problem))
        self._classes = len(problem.dataset.meta.classes or ()) if self._proves and self._first else 0
        self._constant = params.get("step") == "constant"
        try:
            self._reader = self._planned()
        except MemoryPlanError as error:
            if self._search is None:
                raise
            held, self._search = human(self._search.descent_bytes), None
            self._planned()  # without it: what does not fit either is refused for its own needs
            raise MemoryPlanError(f"{error}, or give active_mib=0: the search for bounds takes {held}") from None
        self.plan, self.lanes, self.data = self._reader.plan, self._reader.lanes, self._reader.data
        self._sharp = loss_named(problem.loss).lipschitz(problem.shape[1])
        printed = params.get("rules") == "paper"
        self._steps = self.steps_type(
            # as printed every step is judged, whatever bound of L is known
            problem,
            safe=math.inf if printed else self.safe,
            constant=self._constant,
            history=params.get("history", 1),
            printed=printed,
        )

    def _check_params(self) -> None:
        """Refuse parameters that contradict each other."""

    def _planned(self) -> BlockReader:
        dataset, (n_features, k) = self.problem.dataset, self.problem.shape
        # FISTA and SpaRSA work on float64 weights in the driver, whatever the type of the data.
        one = 8 * k * (n_features + self._first)
        of_classes = 8 * self._classes * (n_features + 1)
        # scores of a row; those of the subspace are beside the scores of one point
        columns = max(self.points * k, k + COLUMNS * self._constant)
        work = PointTask.work_bytes(dataset, self.problem.dtype, columns)
        ranking = threshold_bytes(k) if self.problem.ranks else 0
        search = self._search
        return BlockReader(
            self.problem,
            lanes=self.params["lanes"],
            needs=Needs(
                self.points * one,
                one + of_classes,
                # all rows of weights where only some were sent
                max(
                    work + ranking + self.points * one + (0 if search is None else search.kept_bytes),
                    0 if search is None else search.work_bytes,
                ),
            ),
            # the state before and after, and what a step is made from
            alone_bytes=0 if search is None else search.descent_bytes,
            driver_bytes=14 * one + 3 * of_classes + ranking,
            memory=self._memory,
        )

    def tasks(self, data: DatasetRef, block: int = 0) -> list[Call]:
        """See `Solver.tasks`; the norm of Sigma is iterated in float64."""
        lane = Lane(0, (block,))
        points, sigma = (replace(self._reader.of_points(kind), data=data) for kind in (PointTask, SigmaTask))
        zero = np.zeros(((data.one_row or self.problem.shape[0]) + self._first, self.problem.shape[1]))
        return [
            Call(points, self._points([zero] * self.points), lane),
            *([Call(sigma, self._points([zero, zero[:, :1]]), lane)] if self._constant else []),
            *evaluation_tasks(self.problem, self.data),
        ]

    def init(self) -> ProximalState:
        """Return zero weights, or those of the initial model."""
        n_features, k = self.problem.shape
        theta = np.zeros((n_features + self._first, k))
        if self._initial is not None:
            theta[self._first :] = initial_weights(self._initial, self.problem)
            theta[: self._first] = self._initial.intercept
        state = ProximalState(point=theta, base=theta, candidate=theta, lipschitz=self._lipschitz())
        # The constant step needs a bound of L before the first step: reads for the norm of Sigma come first.
        if self._constant and self.params["lipschitz"] in (None, "norm"):
            return replace(state, stage=_NORM, vectors=general_basis(len(theta)))
        return state

    def _lipschitz(self) -> float:
        """Return L to start with; the norm of Sigma is not known yet."""
        given = self.params["lipschitz"]
        if isinstance(given, float):
            return given
        # The trace bounds the norm, often by far: a line search may start well below it, as it raises L where
        # that fails.
        return self.safe / (1.0 if self._constant else _START_SHARE)

    def intercept_alone(self, executor: Executor) -> Array:
        """Return the intercept that is optimal where all weights are zero; a read for each that is tried."""
        self.prepare(executor)
        start, separable = self.init(), loss_named(self.problem.loss).separable

        def gradient_at(intercept: Array) -> Array:
            theta = np.zeros_like(start.point)
            theta[0] = intercept
            sums = self._read_points(replace(start, candidate=theta), executor)
            return np.asarray(self._products(sums.folds[0])[0])

        curvature = intercept_curvature(self.problem)
        return optimal_intercept(gradient_at, np.zeros(len(curvature)), curvature, separable=separable)

    @property
    def safe(self) -> float:
        """A bound of L: the trace of Sigma is at least its norm."""
        # With class weights the rows of the heaviest class bound all others.
        largest = 1.0 if self._reader.class_weight is None else float(self.problem.row_weight_by_class.max())
        square = self.problem.dataset.meta.mean_square_norm + self._first
        return self._sharp * max(largest * square, float(np.finfo(float).tiny))

    def step(self, state: ProximalState, executor: Executor) -> tuple[ProximalState, RoundReport]:
        """Do one read, then the step that it allows."""
        # Every round is one read of all rows, so rounds and passes are the same number.
        following = replace(state, round=state.round + 1, passes=float(state.round + 1))
        read = self._read_sigma if state.stage == _NORM else self._read_points
        sums = read(state, executor)
        # divergence is the loop's to report
        with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
            take_up = self._bound_norm if state.stage == _NORM else self._advance
            following, outcome = take_up(following, sums)
        report = self._reader.report(sums)
        report.details = {
            "outcome": outcome,
            "lipschitz": following.lipschitz,
            "violation_ratio": following.ratio,
            "non_zero_rows": int(following.point[self._first :].any(axis=1).sum()),
        }
        return following, report

    # -- reads

    def _points(self, thetas: list[Array]) -> StackedWeights:
        # Points lie side by side as columns, so that one product of the rows serves all of them.
        flat = np.concatenate(thetas, axis=1) if len(thetas) > 1 else thetas[0]
        intercept = flat[0].copy() if self._first else np.zeros(flat.shape[1])
        return StackedWeights(np.ascontiguousarray(flat[self._first :]), intercept, losses_only=len(thetas) - 1)

    def _read_points(self, state: ProximalState, executor: Executor) -> BlockSums:
        points = self._points([state.candidate, state.ahead] if state.ahead.size else [state.candidate])
        # Where few rows of the weights are nonzero, only those are sent and multiplied.
        classes = 0 if state.class_rows.size else self._classes
        task = self._reader.of_points(PointTask, with_masses=self._proves, class_rows=classes)
        return self._reader.reduce(executor, task, SparsePoints.of(points) or points)

    def _read_sigma(self, state: ProximalState, executor: Executor) -> BlockSums:
        return self._reader.reduce(
            executor, self._reader.of_points(SigmaTask), self._points([state.point, state.vectors])
        )

    def _bound_norm(self, state: ProximalState, sums: BlockSums) -> tuple[ProximalState, str]:
        """Do a step of subspace iteration for the norm of Sigma; once accurate enough, it determines L."""
        product = self._products(sums.folds[0])
        if not np.isfinite(product.sum()):
            return diverged(state), "diverged"
        largest, residual = leading_eigenvalue(state.vectors, product)
        state = replace(state, lipschitz=self._sharp * (largest + residual))
        # Where the reads run out, the estimate plus its residual has to do.
        if residual > RESIDUAL * largest and state.round < NORM_READS:
            return replace(state, vectors=np.linalg.qr(product)[0]), "norm"
        return replace(state, stage=_START, vectors=NONE.copy()), "norm"

    def _advance(self, state: ProximalState, sums: BlockSums) -> tuple[ProximalState, str]:
        """Accept or reject the candidate by what was read, then propose the next one."""
        moments = sums.folds[0]
        assert isinstance(moments, PointMoments)
        # Sums over rows are divided once, at the end: every lane's sums are of the same scale.
        values, gradient = moments.losses / moments.weight_sum, self._products(moments)
        # The sum of the gradient is NaN or infinite as soon as any element is.
        if not np.isfinite([*values, gradient.sum()]).all():
            return diverged(state), "diverged"
        if moments.class_rows.size:
            state = replace(state, class_rows=moments.class_rows / moments.weight_sum)
        if self._proves:
            state = replace(state, bound=max(state.bound, self._bound(state, moments, gradient)))
        return self._steps.advance(state, Read(float(values[0]), float(values[-1]), gradient))

    def _bound(self, state: ProximalState, moments: PointMoments, gradient: Array) -> float:
        """Return the bound of the optimum that the gradients at the point that was read give."""
        problem, point = self.problem, state.ahead if state.ahead.size else state.candidate
        loss, masses = float(moments.losses[-1] / moments.weight_sum), moments.masses / moments.weight_sum
        dual = DualFactor(1.0, 0.0, float(np.vdot(gradient, point)), float(masses[0]), float(masses[1]))
        if self._first:
            return balanced_bound(problem, dual, loss, gradient, state.class_rows, point[0]) or 0.0
        factor, conjugated = penalty_named(problem.penalty).conjugate(-gradient, problem.alpha, problem.l1_ratio)
        return bound_of(problem.loss, loss, dual._replace(factor=factor, conjugated=conjugated), None)

    def _products(self, moments: Moments) -> Array:
        """Return the means of rows, with the constant where there is one, times their gradients; shape (m, q)."""
        return np.asarray(np.concatenate([moments.slopes[None]] * self._first + [moments.cross]) / moments.weight_sum)

    def status(self, state: ProximalState) -> Status:
        """Return CONVERGED once steps are small relative to the first (as Eq. 10 of the paper of `bcd`)."""
        if not np.isfinite(state.candidate).all():
            return Status.DIVERGED
        ended = state.ratio is not None and state.ratio <= self.params["tau"]
        return Status.CONVERGED if ended else Status.RUNNING

    def certifies(self, state: ProximalState) -> bool:
        """See `Solver.certifies`: until steps are those that rounding leaves."""
        least = _STILL * float(np.finfo(self.problem.dtype).eps)
        return state.ratio is None or state.ratio > least

    def _has_bound(self, state: ProximalState) -> bool:
        # with an intercept only once gradients have been balanced
        return self._proves and (not self._first or state.bound > 0.0)

    def weights(self, state: ProximalState) -> Fitted:
        """Return the last accepted weights."""
        fitted = Fitted(predictor_of(state.point, self.problem), known=self._known(state))
        search, own = self._search, fitted.predictor
        if search is None:
            return fitted
        nearer = partial(search.nearer, own.coefficients, own.intercept, self.data)
        return replace(fitted, improved_weights=nearer, first_search=search.round_passes)

    def _known(self, state: ProximalState) -> dict[str, Any] | None:
        """Return objective and certificate as reads for steps have found them, None where these prove nothing."""
        if not (self._has_bound(state) and len(state.objectives)):
            return None
        objective = float(state.objectives[-1])
        rounding = float(np.finfo(self.problem.dtype).eps) * abs(objective)
        return known_gap(self.problem, objective, max(objective - state.bound, 0.0) + rounding)


class Fista(Proximal):
    """The solver of `fista`; raises ParameterError if ``lipschitz`` names a bound and a line search finds L itself."""

    points = 2
    steps_type = FistaSteps

    def _check_params(self) -> None:
        given = self.params["lipschitz"]
        if self.params["step"] == "line-search" and isinstance(given, str):
            raise ParameterError(
                f"lipschitz={given}: of step=constant; give a number, where the line search starts, or leave it out"
            )


class Sparsa(Proximal):
    """The solver of `sparsa`."""

    steps_type = SparsaSteps
