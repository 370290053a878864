"""Generalized least squares for the identity link: Algorithm 1 ends after one step (least squares revisited, page 4).

With the squared loss L is 1 and the step of Eq. 14 from zero weights leads to the optimum: one read, one solve. Where
Sigma's columns are nearly dependent another read sums it again in a basis that is nearly orthonormal. A path of
alphas is judged from the sums of that first read too, which are kept for each fold separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.solvers.least_squares.alpha_grid import alpha_grid, check_folds, choice_note
from distls.solvers.least_squares.gls_passes import BASIS_NOTE, GlsPasses, rank_notes
from distls.solvers.least_squares.metric import Metric
from distls.solvers.solver import Fitted, RoundReport, Solver, State
from distls.solvers.status import Status
from distls.workers.least_squares.block_task import Moments
from distls.workers.least_squares.ridge_task import PathJob, held_out
from distls.workers.runtime.process import single_threaded_blas

Array = NDArray[np.float64]

_LIPSCHITZ = 1.0  # of the identity


@dataclass
class ClosedFormState(State):
    """State between two reads."""

    # shape (m, k): Zero before the system is solved, then its solution
    theta: Array = field(default_factory=lambda: np.empty((0, 0)))
    # shape (m, k): Of the objective at zero; (0, 0) before the first read
    gradient: Array = field(default_factory=lambda: np.empty((0, 0)))
    # shape (m, m) or (0, 0): In which Sigma is to be read again
    basis: Array = field(default_factory=lambda: np.empty((0, 0)))
    solved: bool = False
    alpha: float = 0.0  # With a path the chosen one
    path: list[dict[str, float]] = field(default_factory=list)  # Each alpha's judgement
    notes: list[str] = field(default_factory=list)


class ClosedForm(GlsPasses, Solver[ClosedFormState]):
    """The solver of `gls` with link=identity."""

    state_type = ClosedFormState

    def init(self) -> ClosedFormState:
        """Return zero weights."""
        alpha = 0.0 if self._follows_path else self.problem.alpha
        return ClosedFormState(theta=np.zeros(self._shape), alpha=alpha)

    def step(self, state: ClosedFormState, executor: Executor) -> tuple[ClosedFormState, RoundReport]:
        """Do one read, then solve or change the basis."""
        following = replace(state, round=state.round + 1, passes=float(state.round + 1))
        if not len(state.basis):
            # Algorithm 1, "Define": Sigma, and the gradient at W_0 = 0
            sums = self._read_sigma(executor, None, self._folds)
            with single_threaded_blas():
                # Folds partition the rows, so the sum of their moments is Sigma of all rows, in one read.
                following = self._define(following, sums.folds, executor)
        else:
            sums = self._read_in_basis(executor, state.theta, state.basis)
            with single_threaded_blas():
                metric = self._metric_in_basis(state.basis, sums.folds[0], state.alpha)
                following = replace(following, notes=[*state.notes, BASIS_NOTE])
                following = self._solve(following, metric)
        details = {"lipschitz": _LIPSCHITZ}
        return following, self._report(sums, details, following.path, following.notes)

    def _define(
        self, state: ClosedFormState, folds: Sequence[Moments], executor: Executor
    ) -> ClosedFormState:
        """Choose alpha for a path; then solve, or ask for Sigma in another basis."""
        total = Moments.over(folds)
        sigma = self._sigma(total)
        if self._follows_path:
            state = self._choose(state, alpha_grid(self.params["alphas"], total), folds, executor)
        start = self._evaluated(state.theta, total, total.weight_sum, state.alpha)
        if not np.isfinite(start.value):
            return state  # the loop ends such a fit
        state = replace(state, gradient=start.gradient)
        metric = self._scaled_metric(sigma, state.alpha)
        if self._needs_basis(metric, state.alpha):
            return replace(state, basis=metric.next_basis())
        return self._solve(state, metric)

    def _solve(self, state: ClosedFormState, metric: Metric) -> ClosedFormState:
        """Take the one step of Eq. 14."""
        step = metric.steps(state.gradient, _LIPSCHITZ)
        notes = [*state.notes, *rank_notes(metric)]
        return replace(state, theta=state.theta - step, basis=np.empty((0, 0)), solved=True, notes=notes)

    def _choose(
        self, state: ClosedFormState, alphas: Array, folds: Sequence[Moments], executor: Executor
    ) -> ClosedFormState:
        """Choose alpha by cross-validation from the sums of each fold, which suffice for the squared loss."""
        errors = cross_validated(executor, folds, alphas, intercept=bool(self._first), eps=self._eps)
        # The first minimum: alphas decrease, so ties go to the stronger penalty.
        alpha = float(alphas[np.argmin(errors)])
        note = choice_note(alpha, alphas, self._folds, "squared error", float(errors.min()))
        path = [{"alpha": float(a), "cv_mse": float(error)} for a, error in zip(alphas, errors, strict=True)]
        return replace(state, alpha=alpha, path=path, notes=[*state.notes, note])

    def status(self, state: ClosedFormState) -> Status:
        """Return CONVERGED once the system is solved."""
        if not np.isfinite(state.theta).all():
            return Status.DIVERGED
        return Status.CONVERGED if state.solved else Status.RUNNING

    def weights(self, state: ClosedFormState) -> Fitted:
        """Return the solution."""
        return self._fitted(state.theta, state.alpha)


def cross_validated(
    executor: Executor, folds: Sequence[Moments], alphas: Array, *, intercept: bool, eps: float
) -> Array:
    """Return each alpha's mean squared error, every fold predicted by the fit to the others, shape (n_alphas,).

    The sums of the folds are at zero weights, where the gradient of the squared loss in the scores is minus the
    targets; `eps` is the relative rounding error of Gram matrices. The executor fits the folds in parallel. The error
    is the weighted mean over rows and the mean over outputs. Raises ParameterError for a fold without rows of any
    weight.
    """
    weights = [fold.weight_sum for fold in folds]
    check_folds(weights)
    job = PathJob(folds, alphas, intercept, eps)
    squares = sum(executor.map(held_out, range(len(folds)), shared=job))
    return np.asarray(squares) / (sum(weights) * folds[0].cross.shape[1])
