"""Generalized least squares (Algorithm 1 of least squares revisited) for links without a closed form, accelerated.

The first round sums Sigma and the gradient at the start; where Sigma's columns are nearly dependent another one sums
them again in a basis that is nearly orthonormal. From then on a round reads the loss and the gradient at the weights
the step before has led to, and, accelerated, at the point from which the next step will be taken: one read for both.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.problem import loss_of, two_column_step
from distls.solvers.least_squares.alpha_grid import grid_size
from distls.solvers.least_squares.gls_passes import BASIS_NOTE, GlsPasses, rank_notes
from distls.solvers.least_squares.iterate import Evaluated, GlsState, Iterate, propose
from distls.solvers.least_squares.metric import Metric
from distls.solvers.solver import Fitted, RoundReport, Solver, known_gap, predictor_of
from distls.solvers.status import Record, Status
from distls.solvers.warm_start import check_initial
from distls.workers.least_squares.block_task import BlockSums, Moments
from distls.workers.least_squares.multi_point_task import PointTask
from distls.workers.losses.loss_registry import loss_named
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.task import Call
from distls.workers.runtime.process import single_threaded_blas

Array = NDArray[np.float64]

# Rounds ahead of the weights at which the certificate has its dual point: where curvatures are far above alpha, the
# bound from the weights' own gradient is many times what they are above the optimum.
_NEARER = 12
_START = 8.0  # L starts at the sharp bound divided by this, by default


def lipschitz_bounds(loss: str, given: str | float | None, printed: float = 1.0) -> tuple[float, float]:
    """Return the initial L, that of the paper `printed`, and the bound from which on the objective cannot increase."""
    # L Sigma is above every Hessian from here on, for any number of outputs (footnote 3 for the softmax)
    sharp = loss_named(loss).lipschitz(2)
    first = sharp / _START if math.isfinite(sharp) else 1.0
    named = {None: first, "adaptive": first, "sharp": sharp, "paper": printed}
    return float(given if isinstance(given, float | int) else named[given]), sharp


class Accelerated(GlsPasses, Solver[GlsState]):
    """The solver of `gls` with links other than the identity, at one alpha."""

    state_type = GlsState

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._accelerated = self.params["accelerate"] != "none"
        self._start, self._safe = lipschitz_bounds(
            self.problem.loss, self.params["lipschitz"], two_column_step(loss_of(self.params), self.problem.loss)
        )
        self._metric_now: Metric | None = None

    def init(self) -> GlsState:
        """Return zero weights, or those of the initial model."""
        # float64 throughout: a step is a solve in Sigma, which amplifies rounding by its condition number.
        theta = np.zeros(self._shape)
        check_initial(self._initial, self.problem, self.params["init"])
        if self._initial is not None:
            theta[self._first :] = self._initial.weights
            theta[: self._first] = self._initial.intercept
        alpha = 0.0 if self._follows_path else self.problem.alpha
        return GlsState(iterates=[Iterate.start(theta, self._start, self._safe)], alpha=alpha)

    def step(self, state: GlsState, executor: Executor) -> tuple[GlsState, RoundReport]:
        """Do one read, then the step of Algorithm 1 that it allows."""
        following = replace(state, round=state.round + 1, passes=float(state.round + 1))
        details: dict[str, Any] = {}
        # A round does one read; which one follows from the arrays of the state alone, so a resume needs nothing else.
        if not len(state.basis):
            # "Define": Sigma, with the loss and the gradient at W_0
            sums = self._read_start(state, executor)
            with single_threaded_blas():
                following = self._define(following, sums.folds[0])
        elif not len(state.gram):
            sums = self._read_in_basis(executor, state.iterates[0].best.theta, state.basis)
            with single_threaded_blas():
                metric = self._metric_in_basis(state.basis, sums.folds[0], state.alpha)
                following = self._begin(replace(following, notes=[*state.notes, BASIS_NOTE]), metric)
        else:
            # "repeat": judge what Eq. 14 has led to, and take the next step
            sums = self._read_points(executor, points_of(state.iterates))
            with single_threaded_blas():
                following, details = self._update(following, sums.folds[0])
        details = {"lipschitz": following.iterates[0].lipschitz, **details}
        report = self._report(sums, details, following.path, following.notes)
        bound, best = self._bound(following), following.iterates[0].best
        if bound is not None:
            report.objective_estimate, report.gap_estimate = best.value, best.value - bound
        return following, report

    def _bound(self, state: GlsState) -> float | None:
        """Return the bound of the optimum that the gradients of the last read give; None where it is none."""
        iterate, alpha = state.iterates[0], self.problem.alpha
        if self._follows_path or self._first or not alpha > 0.0 or not np.isfinite(iterate.best.value):
            return None
        # Strong convexity with an l2 penalty on all weights: F - F* <= |gradient|^2 / (2 alpha).
        return max(
            point.value - float(np.square(point.gradient).sum()) / (2.0 * alpha)
            for point in (iterate.best, iterate.base)
            if np.isfinite(point.value)
        )

    def _read_start(self, state: GlsState, executor: Executor) -> BlockSums:
        start = None if self._initial is None else state.iterates[0].best.theta
        return self._read_sigma(executor, start)

    def _define(self, state: GlsState, sums: Moments) -> GlsState:
        """Set up the metric and take the first step from the gradient at the start."""
        sigma, (iterate,) = self._sigma(sums), state.iterates
        start = self._evaluated(iterate.best.theta, sums, sums.weight_sum, state.alpha)
        iterate = iterate.accept(start, None, accelerated=self._accelerated)
        return self._enter(replace(state, iterates=[iterate]), sigma)

    def _enter(self, state: GlsState, sigma: Array) -> GlsState:
        """Use Sigma as the metric at the state's alpha, or ask for it in another basis."""
        metric = self._scaled_metric(sigma, state.alpha)
        # Solves that lose more than half of the digits would make the direction depend on the scales of the features.
        if self._needs_basis(metric, state.alpha):
            return replace(state, basis=metric.next_basis(), gram=np.empty((0, 0)))
        return self._begin(state, metric)

    def _begin(self, state: GlsState, metric: Metric) -> GlsState:
        """Take the first step in a metric, which serves all that follow."""
        self._metric_now, notes = metric, [*state.notes, *rank_notes(metric)]
        state = replace(state, basis=metric.basis, gram=metric.gram, notes=notes)
        return replace(state, iterates=self._step_from(state, state.iterates[0]))

    def _metric(self, state: GlsState) -> Metric:
        """Return the state's metric; a resumed fit factorises it again."""
        if self._metric_now is None or self._metric_now.gram is not state.gram:
            # what was read in a basis was summed in float64
            eps = self._eps if state.basis.ndim == 1 else float(np.finfo(np.float64).eps)
            self._metric_now = Metric(state.basis, state.gram, state.alpha, intercept=bool(self._first), eps=eps)
        return self._metric_now

    def _step_from(self, state: GlsState, iterate: Iterate) -> list[Iterate]:
        """Return the iterate after the update of Eq. 14: W - (L Sigma + alpha P)^-1 gradient."""
        if not iterate.running or not np.isfinite(iterate.base.value):
            return [iterate]  # ended, or its base is read next
        if self._first and self._initial is None and not iterate.accepted:
            # Some losses know the best intercept at zero weights in closed form, a better first step than any
            # metric's.
            start = loss_named(self.problem.loss).start_at(iterate.base.gradient[0])
            if start is not None and not iterate.base.theta.any():
                return [iterate.move(*start)]
        step = self._metric(state).steps(iterate.base.gradient, iterate.lipschitz)
        return propose([iterate], [step])

    def _update(self, state: GlsState, sums: Moments) -> tuple[GlsState, dict[str, Any]]:
        """Accept or undo the candidate, then take the next step."""
        ((candidate, ahead),) = self._candidates(state.iterates, sums, [sums.weight_sum], [state.alpha])
        iterate, outcome = state.iterates[0].judge(candidate, ahead, accelerated=self._accelerated)
        details = {"outcome": outcome, "best_objective": iterate.best.value}
        return replace(state, iterates=self._step_from(state, iterate)), details

    def _candidates(
        self, iterates: Sequence[Iterate], sums: Moments, weights: Sequence[float], alphas: Sequence[float]
    ) -> list[tuple[Evaluated, Evaluated | None]]:
        """Return the candidate of each running iterate and the point ahead of it, as a read found them."""
        # Candidates come first in the columns of a read, then the points ahead, in the same order.
        moving = [iterate for iterate in iterates if iterate.running]
        found: list[tuple[Evaluated, Evaluated | None]] = []
        for place, iterate in enumerate(moving):
            own = sums, weights[place], alphas[place]
            ahead = None
            if iterate.ahead is not None:
                ahead = self._evaluated(iterate.ahead, *own, len(moving) + place)
            found.append((self._evaluated(iterate.candidate, *own, place), ahead))
        return found

    def status(self, state: GlsState) -> Status:
        """Return CONVERGED once the optimum is reached up to rounding."""
        if not all(np.isfinite(state.iterates[number].candidate).all() for number in state.running):
            return Status.DIVERGED
        return Status.RUNNING if state.running else Status.CONVERGED

    def weights(self, state: GlsState) -> Fitted:
        """Return the weights of the lowest objective that is known or certain."""
        theta = self._published(state)
        return self._fitted(theta, state.alpha, partial(self._nearer, state), self._known(state, theta))

    def _known(self, state: GlsState, theta: Array) -> Record | None:
        """Return objective and certificate as the rounds' own reads have found them; None where they have not."""
        bound, best = self._bound(state), state.iterates[0].best
        if bound is None or theta is not best.theta:
            return None
        rounding = float(np.finfo(self.problem.dtype).eps) * abs(best.value)
        gap = max(best.value - bound, 0.0) + rounding
        return known_gap(self.problem, best.value, gap, "strong_convexity")

    def _nearer(
        self, state: GlsState, most: float, executor: Executor
    ) -> tuple[LinearPredictor | float | None, int, float]:
        """Return the bound from weights some rounds ahead, or these weights, the bytes read, and the passes."""
        own, read, before = self._published(state), 0, state.passes
        # the rounds of a path may be those of other alphas
        for _ in range(0 if self._follows_path else int(min(_NEARER, most))):
            if not state.running:
                break
            state, report = self.step(state, executor)
            read += report.bytes_read
        theta = self._published(state)
        if self._can_balance:
            near, further, passes = self._with_best_intercept(theta, most, executor)
            return near, read + further, passes + state.passes - before
        bound = self._bound(state)
        if bound is not None:
            return bound, read, state.passes - before
        return (None if theta is own else predictor_of(theta, self.problem)), read, state.passes - before

    def _published(self, state: GlsState) -> Array:
        """Return the candidate if its bound is certain; before the first accepted step, a safe step."""
        iterate = state.iterates[0]
        if not len(state.gram) or not iterate.running or not np.isfinite(iterate.best.value):
            return iterate.best.theta
        # Where a tolerance is to be met: the candidate's bound would take another read, which the next round makes.
        # Without momentum it is published as the algorithm has it.
        judged = self.enough(iterate.best.value) > 0.0
        if judged and self._accelerated and iterate.accepted > 0 and self._bound(state) is not None:
            return iterate.best.theta
        # L is at its bound, so the candidate's objective is below the model's without another read.
        if iterate.lipschitz >= iterate.safe and iterate.bound <= iterate.best.value:
            return iterate.candidate
        if iterate.accepted or not math.isfinite(iterate.safe):
            return iterate.best.theta
        # Before the first accepted step, one at the safe L is sure to descend.
        with single_threaded_blas():
            step = self._metric(state).steps(iterate.best.gradient, iterate.safe)
        return iterate.best.theta - step

    def tasks(self, data: DatasetRef, block: int = 0) -> list[Call]:
        """See `Solver.tasks`: all points of a round at one read."""
        shape = (data.one_row or self.problem.shape[0]) + self._first, self.problem.shape[1]
        # Fits that share a read, each with its candidate and the point ahead.
        fits = grid_size(self.params["alphas"]) * self._folds if self._follows_path else 1
        points = self._stacked([np.zeros(shape)] * (fits * (1 + self._accelerated)))
        task = replace(self._reader.task(PointTask, folds=self._folds), data=data)
        return [Call(task, points, Lane(0, (block,))), *super().tasks(data, block)]


def points_of(iterates: Sequence[Iterate]) -> list[Array]:
    """Return all that the next read evaluates: the candidates of running iterates, then the points ahead of them."""
    moving = [iterate for iterate in iterates if iterate.running]
    ahead = [iterate.ahead for iterate in moving if iterate.ahead is not None]
    return [*(iterate.candidate for iterate in moving), *ahead]
