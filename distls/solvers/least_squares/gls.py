"""The method `gls`, Algorithm 1 of least squares revisited: the choice of a solver, and that of the identity link.

For the identity the algorithm ends after one step (page 4): with the squared loss L is 1 and the step of Eq. 14 from
zero weights leads to the optimum, one read, one solve. Where Sigma's columns are nearly dependent another read sums it
again in a basis that is nearly orthonormal. A path of alphas is judged from the sums of that first read too, which are
kept for each fold separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.methods.method import Params
from distls.problem import Problem
from distls.solvers.block_reads import BlockReader
from distls.solvers.least_squares.accelerated import Accelerated
from distls.solvers.least_squares.alpha_grid import alpha_grid, check_folds, choice_note, fold_count, grid_size
from distls.solvers.least_squares.gls_passes import BASIS_NOTE, GlsPasses, may_need_basis, rank_notes
from distls.solvers.least_squares.metric import Metric
from distls.solvers.least_squares.path import Path
from distls.solvers.solver import Fitted, RoundReport, Solver, State
from distls.solvers.status import Status
from distls.storage.errors import MemoryPlanError, ParameterError
from distls.storage.model.model import LinearModel
from distls.workers.features.design import PIECE_ROWS
from distls.workers.least_squares.block_task import Moments
from distls.workers.least_squares.multi_point_task import PathJob, PointTask, held_out, held_out_bytes
from distls.workers.linear_algebra.gram import gram_work_bytes
from distls.workers.linear_algebra.packed_triangle import packed_size
from distls.workers.losses.loss_registry import loss_named
from distls.workers.rounds.task import Needs
from distls.workers.runtime.process import single_threaded_blas

Array = NDArray[np.float64]

_LIPSCHITZ = 1.0  # of the identity
# Points of a fit that a round sends and reads: the candidate, and the point ahead of it.
_POINTS = 2
# Matrices of Sigma's size in the driver: Sigma, its factor, and the copies they are made from; of a path also Sigma
# itself, its reduction to a band, and the copy that is reduced.
_METRIC_COPIES, _PATH_METRIC_COPIES = 4, 3
# Matrices of the weights' size in the driver: weights and gradients of the best point and the base, candidate and point
# ahead, before a round and after it, and the gradient and the step that are at work.
_STATE_COPIES = 14


def generalized_least_squares(
    problem: Problem,
    params: Params,
    *,
    slots: int = 1,
    memory: MemoryBudget | None = None,
    initial: LinearModel | None = None,
) -> ClosedForm | Accelerated:
    """Return the solver of a setting of `gls`.

    Raises ParameterError for a parameter without a meaning for the link, and MemoryPlanError, which proposes
    `stagewise`, if the Gram matrix does not fit.
    """
    _check_combination(problem, params)
    reader = _planned_reader(problem, params, memory or MemoryBudget(workers=slots))
    # The quadratic loss needs one solve, all other links an iteration.
    if loss_named(problem.loss).quadratic:
        return ClosedForm(problem, params, reader)
    iteration = Path if params["alpha"] == "path" else Accelerated
    return iteration(problem, params, reader, initial)


def _check_combination(problem: Problem, params: Params) -> None:
    """Raise ParameterError for parameters that would have no effect."""
    if loss_named(problem.loss).quadratic:
        for name in ("lipschitz", "accelerate", "init"):
            # its one step is that of the paper's L = 1, and has no momentum
            if params[name] not in (None, {"lipschitz": "paper", "accelerate": "none"}.get(name)):
                raise ParameterError(
                    f"gls: {name}={params[name]}: link=identity is solved in closed form and has no use for it; drop it"
                )
    elif not loss_named(problem.loss).smooth:
        what = [f"{name}={params[name]}" for name in ("alpha", "lipschitz") if params[name] in ("path", "sharp")]
        if what:
            raise ParameterError(
                f"gls: {what[0]}: the curvature of link={problem.loss} has no bound, which that needs; drop it"
            )
    if params["alpha"] != "path":
        for name in ("folds", "alphas"):
            if params[name] is not None:
                raise ParameterError(f"gls: {name}={params[name]} is of alpha=path; give that too, or drop it")


_PROPOSED_SIZES = (8192, 4096, 2048, 1024, 512, 256)


def _planned_reader(problem: Problem, params: Params, memory: MemoryBudget) -> BlockReader:
    """Return the reader; if it does not fit, propose a smaller path, or a block size of `stagewise`."""
    n_features, planned = problem.shape[0], partial(_reader, problem, params["lanes"], memory)
    alphas = grid_size(params["alphas"]) if params["alpha"] == "path" else 0
    try:
        return planned(n_features, fold_count(params), alphas)
    except MemoryPlanError as error:
        # Where a single fit fits, the path is what is too large. The largest block that fits is the best.
        sizes = [n_features] * bool(alphas) + [size for size in _PROPOSED_SIZES if size < n_features]
        for size in sizes:
            try:
                planned(size)
            except MemoryPlanError:
                continue
            remedy = f"fit blocks of features: `distls fit stagewise` with -p block_size={size}"
            if size == n_features:
                remedy = "try fewer alphas or folds: -p alphas=1:0.1:0.01 -p folds=2"
            raise MemoryPlanError(f"{error}, or {remedy}") from None
        raise


def _reader(
    problem: Problem, lanes: int | None, memory: MemoryBudget, width: int, folds: int = 1, alphas: int = 0
) -> BlockReader:
    """Plan a fit of so many features; of a path with its folds and alphas."""
    closed, k, size = loss_named(problem.loss).quadratic, problem.shape[1], problem.dtype.itemsize
    m = width + problem.fit_intercept
    gram, half, sums = 8 * m * m, 8 * packed_size(m), 8 * m * k
    # A second Gram matrix, in another basis, is held only where alpha is too small to regularise the first.
    in_another = bool(alphas) or may_need_basis(problem.dataset.meta.mean_square_norm, problem.alpha)
    # Gram matrices of every fold at one read, or weights of every fold and alpha at each
    grams = folds if closed else 1
    fits = 1 if closed or not alphas else folds * alphas
    rows = PIECE_ROWS * m * (size + 16 * in_another)
    work = grams * gram_work_bytes(m, problem.dtype) + 2 * gram * in_another
    # Cross-validation in the workers holds a fold's eigenvectors, more than the read itself.
    if closed and alphas:
        # what is sent then is less than what is held while reading
        work = max(work, held_out_bytes(m, alphas * k))
    return BlockReader(
        problem,
        lanes=lanes,
        # a basis is sent in one round only
        needs=Needs(
            _POINTS * fits * sums,
            max(grams * (half + 2 * sums), _POINTS * fits * sums),
            work + rows + _chunk_bytes(problem, fits),
        ),
        driver_bytes=(_PATH_METRIC_COPIES * bool(alphas) + _METRIC_COPIES) * gram
        + closed * folds * half
        + _STATE_COPIES * fits * sums,
        memory=memory,
    )


def _chunk_bytes(problem: Problem, fits: int) -> int:
    """Return the bytes of scores and gradients, for a chunk of dense rows or a partition of sparse ones."""
    dataset, k = problem.dataset, problem.shape[1]
    if fits > 1:
        return PointTask.work_bytes(dataset, problem.dtype, 2 * fits * k)
    n_rows = int(dataset.table.rows.max(initial=0))
    if dataset.meta.layout == "dense":
        return 8 * k * (n_rows + 8 * min(n_rows, PIECE_ROWS))
    # values of another type than asked for are copied
    copied = 2 * (dataset.meta.dtype != problem.dtype.name) * int(dataset.decoded_bytes.max(initial=0))
    return 8 * k * 9 * n_rows + copied


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

    def _define(self, state: ClosedFormState, folds: Sequence[Moments], executor: Executor) -> ClosedFormState:
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
