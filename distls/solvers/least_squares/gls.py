"""The method `gls`: the choice of a solver, its checks and its memory plan, before any data are read.

The method is Algorithm 1 of least squares revisited.
"""

from __future__ import annotations

from functools import partial

from distls.execution.memory_budget import MemoryBudget
from distls.methods.method import Params
from distls.problem import Problem
from distls.solvers.block_reads import BlockReader
from distls.solvers.least_squares.accelerated import Accelerated
from distls.solvers.least_squares.alpha_grid import fold_count, grid_size
from distls.solvers.least_squares.closed_form import ClosedForm
from distls.solvers.least_squares.gls_passes import may_need_basis
from distls.solvers.least_squares.path import Path
from distls.storage.errors import MemoryPlanError, ParameterError
from distls.storage.model.model import LinearModel
from distls.workers.features.design import PIECE_ROWS
from distls.workers.least_squares.multi_point_task import PointTask
from distls.workers.least_squares.ridge_task import held_out_bytes
from distls.workers.linear_algebra.gram import gram_work_bytes
from distls.workers.linear_algebra.packed_triangle import packed_size
from distls.workers.losses.loss_registry import loss_named
from distls.workers.rounds.task import Needs

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
    """Return the solver of a setting of `gls`; see `SolverFactory`.

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
                    f"gls: {name}={params[name]}: link=identity is solved in closed form and has no use for it; "
                    "drop it"
                )
    elif not loss_named(problem.loss).smooth:
        what = [
            f"{name}={params[name]}" for name in ("alpha", "lipschitz") if params[name] in ("path", "sharp")
        ]
        if what:
            raise ParameterError(
                f"gls: {what[0]}: the curvature of link={problem.loss} has no bound, which that needs; drop it"
            )
    if params["alpha"] != "path":
        for name in ("folds", "alphas"):
            if params[name] is not None:
                raise ParameterError(
                    f"gls: {name}={params[name]} is of alpha=path; give that too, or drop it"
                )


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
