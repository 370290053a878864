"""What gls refuses, and what it plans, before anything is read."""

from __future__ import annotations

from typing import Any

from distls.memory import MemoryBudget
from distls.problem import Problem
from distls.solvers.blocks import BlockReader
from distls.storage.errors import MemoryPlanError, MismatchError, ParameterError
from distls.storage.model import LinearModel
from distls.workers.features import PIECE_ROWS
from distls.workers.products import gram_work_bytes

__all__ = ["check_combination", "check_initial", "may_need_basis", "planned_reader"]

# With alpha above this share of the mean square norm of the rows another basis is never needed.
_WELL_CONDITIONED = 1e-6


def may_need_basis(mean_square_norm: float, alpha: float) -> bool:
    """Tell, from metadata alone, whether alpha is too small to keep the metric well-conditioned."""
    return alpha <= _WELL_CONDITIONED * mean_square_norm


def check_combination(problem: Problem, params: dict[str, Any]) -> None:
    """Refuse parameters that would have no effect.

    Raises
    ------
    ParameterError
    """
    if problem.loss == "squared":
        for name in ("lipschitz", "accelerate", "init"):
            if params[name] is not None:
                raise ParameterError(
                    f"gls: {name}={params[name]}: link=identity is solved in closed form and has no use for it; "
                    "drop it"
                )
    elif params["alpha"] == "path":
        raise ParameterError(
            "gls: alpha=path is for link=identity; with other links list values, alpha=1e-3,1e-4, and let "
            "--select DATASET choose"
        )
    if params["alpha"] != "path":
        for name in ("folds", "alphas"):
            if params[name] is not None:
                raise ParameterError(
                    f"gls: {name}={params[name]} is of alpha=path; give that too, or drop it"
                )


def check_initial(initial: LinearModel, problem: Problem, given: str) -> None:
    """Refuse a model that cannot be started from.

    Raises
    ------
    MismatchError
    """
    meta = problem.dataset.meta
    if initial.recipe:
        raise MismatchError(
            f"init={given}: a model of {initial.method}, which is not plainly linear in the rows"
        )
    shape = initial.n_features, len(initial.intercept)
    if shape != problem.shape or list(initial.classes) != list(meta.classes):
        raise MismatchError(
            f"init={given}: a model of {shape[0]} features and {shape[1]} outputs; "
            f"{problem.dataset.path} has {problem.shape[0]} and {problem.shape[1]}, or other labels"
        )


_PROPOSED_SIZES = (8192, 4096, 2048, 1024, 512, 256)


def planned_reader(problem: Problem, lanes: int | None, folds: int, memory: MemoryBudget) -> BlockReader:
    """Return the reader; where the Gram matrix does not fit, say which block size of `stagewise` would."""
    n_features = problem.shape[0]
    try:
        return _reader(problem, lanes, folds, memory, n_features)
    except MemoryPlanError as error:
        for size in (size for size in _PROPOSED_SIZES if size < n_features):
            try:
                _reader(problem, lanes, 1, memory, size)
            except MemoryPlanError:
                continue
            raise MemoryPlanError(
                f"{error}, or fit blocks of features: `distls fit stagewise` with -p block_size={size}"
            ) from None
        raise


def _reader(problem: Problem, lanes: int | None, folds: int, memory: MemoryBudget, width: int) -> BlockReader:
    """Return the reader of a Gram matrix of `width` features."""
    k, size = problem.shape[1], problem.dtype.itemsize
    m = width + problem.fit_intercept
    gram, sums = 8 * m * m, 8 * m * k
    path = folds > 1
    in_another = path or may_need_basis(problem.dataset.meta.mean_square_norm, problem.alpha)
    pieces = _piece_bytes(problem) + PIECE_ROWS * m * (size + 16 * in_another)
    return BlockReader(
        problem,
        lanes=lanes,
        block_bytes=folds * (gram + 2 * sums),
        weight_bytes=2 * sums,
        # a basis is sent in one round only
        work_bytes=folds * gram_work_bytes(m, problem.dtype) + pieces + 2 * gram * in_another,
        # the merged Gram matrix, Sigma, its factor, and the copies they are made from; the points of the state
        driver_bytes=(3 * path + 4) * gram + 6 * sums,
        memory=memory,
    )


def _piece_bytes(problem: Problem) -> int:
    """Return what scores and slopes take, of a piece of dense rows or of a partition of sparse ones."""
    dataset, k = problem.dataset, problem.shape[1]
    n_rows = int(dataset.table.rows.max(initial=0))
    if dataset.meta.layout == "dense":
        return 8 * k * (n_rows + 8 * min(n_rows, PIECE_ROWS))
    # values of another type than asked for are copied
    copied = dataset.meta.dtype != problem.dtype.name
    return 8 * k * 9 * n_rows + 2 * copied * int(dataset.decoded_bytes.max(initial=0))
