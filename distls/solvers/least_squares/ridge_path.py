"""Ridge regression along a path of alphas, judged by cross-validation, all from the sums of one read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.storage.errors import ParameterError
from distls.workers.least_squares.block_task import Moments
from distls.workers.least_squares.ridge_task import FoldSums, PathJob, held_out
from distls.workers.linear_algebra.packed_triangle import diagonal

__all__ = ["alpha_grid", "check_folds", "cross_validated", "grid_size", "total_of"]

Array = NDArray[np.float64]

_GRID_SIZE = 20
_GRID_DECADES = (1.0, -6.0)


def total_of(folds: Sequence[Moments]) -> Moments:
    """Return the sums over all folds."""
    first = folds[0]
    total = Moments.zero(*first.cross.shape, with_gram=first.gram.size > 0)
    for fold in folds:
        total.add(fold)
    return total


def grid_size(given: str | None) -> int:
    """Return how many alphas `alpha_grid` returns."""
    return _GRID_SIZE if given is None else len({float(value) for value in given.split(":")})


def alpha_grid(given: str | None, total: Moments) -> Array:
    """Return the alphas of a path, decreasing.

    Parameters
    ----------
    given : str or None
        Values with colons between them; None: 20 values, evenly spaced in their logarithm from 10 to 1e-6 times the
        mean diagonal of Sigma.
    """
    if given is not None:
        return np.array(sorted({float(value) for value in given.split(":")}, reverse=True))
    mean_square = float(diagonal(total.gram).mean()) / total.weight_sum
    return (mean_square or 1.0) * np.logspace(*_GRID_DECADES, _GRID_SIZE)


def cross_validated(
    executor: Executor, folds: Sequence[Moments], alphas: Array, *, intercept: bool, eps: float
) -> Array:
    """Return the mean squared error of each alpha, every fold predicted by the fit to the other folds.

    Parameters
    ----------
    executor : Executor
        Fits the folds at once.
    folds : sequence of Moments
        At zero weights, where the slopes of the squared loss are the negative targets.
    alphas : array of shape (n_alphas,), all above 0
    intercept : bool
    eps : float
        Relative rounding error of the Gram matrices.

    Returns
    -------
    errors : array of shape (n_alphas,)
        Weighted mean over rows, mean over outputs.

    Raises
    ------
    ParameterError
        A fold has no rows, or none of weight.
    """
    weights = [fold.weight_sum for fold in folds]
    check_folds(weights)
    job = PathJob([FoldSums.of(fold) for fold in folds], alphas, intercept, eps)
    squares = sum(executor.map(held_out, range(len(folds)), shared=job))
    return np.asarray(squares) / (sum(weights) * folds[0].cross.shape[1])


def check_folds(weights: Sequence[float]) -> None:
    """Refuse folds that leave nothing to fit or nothing to judge by.

    Parameters
    ----------
    weights : sequence of float
        Of the rows of each fold.

    Raises
    ------
    ParameterError
    """
    if any(not 0.0 < weight < sum(weights) for weight in weights):
        raise ParameterError(
            f"folds={len(weights)}: a fold has no rows of any weight; ask for fewer, or ingest with a larger "
            "--partition-size"
        )
