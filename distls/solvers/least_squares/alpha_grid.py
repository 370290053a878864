"""The regularization path of generalized least squares: its alphas, its folds, and their validation errors.

A path has a fit for each alpha and fold; a fold's rows are left out of its fits, and validate them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import ParameterError
from distls.workers.least_squares.block_task import Moments
from distls.workers.linear_algebra.packed_triangle import diagonal

Array = NDArray[np.float64]

_DEFAULT_FOLDS = 5
_GRID_SIZE = 20
_GRID_DECADES = (1.0, -6.0)  # of alpha relative to the mean diagonal of Sigma


def fold_count(params: dict[str, Any]) -> int:
    """Return the folds of a fit of `gls`: 1 without a path."""
    return (params["folds"] or _DEFAULT_FOLDS) if params["alpha"] == "path" else 1


def grid_size(given: str | None) -> int:
    """Return how many alphas `alpha_grid` returns."""
    return _GRID_SIZE if given is None else len({float(value) for value in given.split(":")})


def alpha_grid(given: str | None, total: Moments) -> Array:
    """Return the alphas of a path, decreasing, from colon-separated values."""
    if given is not None:
        # Decreasing: strong penalties first, as in any path, whose fits are easier.
        return np.array(sorted({float(value) for value in given.split(":")}, reverse=True))
    # log-spaced from 10 to 1e-6 times the mean diagonal of Sigma
    # Sigma's mean diagonal is the scale of alpha: the grid moves with the units of the features.
    mean_square = float(diagonal(total.gram).mean()) / total.weight_sum
    return (mean_square or 1.0) * np.logspace(*_GRID_DECADES, _GRID_SIZE)


def check_folds(weights: Sequence[float]) -> None:
    """Raise ParameterError for folds, given the weight of their rows, that leave nothing to fit or to validate on."""
    # A fold with all the weight leaves nothing to fit, one without any nothing to judge by.
    if any(not 0.0 < weight < sum(weights) for weight in weights):
        raise ParameterError(
            f"folds={len(weights)}: a fold has no rows of any weight; ask for fewer, or ingest with a larger "
            "--partition-size"
        )


def choice_note(alpha: float, alphas: Array, folds: int, measure: str, least: float) -> str:
    """Return the note about the alpha that cross-validation has chosen."""
    return (
        f"alpha={alpha:.6g} has the lowest mean {measure} of {len(alphas)} in {folds}-fold "
        f"cross-validation, {least:.6g}"
    )


class Verdict(NamedTuple):
    """Each alpha's mean loss and share of wrong rows, every fold judged by the fit to the others: shape (n_alphas,)."""

    losses: Array
    errors: Array

    def to_json(self, alphas: Array) -> list[dict[str, Any]]:
        """Return a line for each alpha."""
        lines = zip(alphas, self.losses, self.errors, strict=True)
        return [{"alpha": float(a), "cv_loss": float(loss), "cv_error": float(wrong)} for a, loss, wrong in lines]


class Grid(NamedTuple):
    """The numbering of fits: fit ``fold * n_alphas + a`` leaves out a fold and has the a-th alpha."""

    alphas: Array
    folds: int

    @property
    def size(self) -> int:
        """Fits."""
        return len(self.alphas) * self.folds

    def alpha_of(self, fits: Sequence[int]) -> Array:
        """Return their alphas."""
        return np.asarray(self.alphas[np.asarray(fits, np.int64) % len(self.alphas)])

    def fold_of(self, fits: Sequence[int]) -> NDArray[np.int64]:
        """Return the folds that they leave out."""
        return np.asarray(fits, np.int64) // len(self.alphas)

    def fits_of(self, alpha: float) -> list[int]:
        """Return the fits of one alpha, one for each fold."""
        # Exact comparison is meant: alphas are copied, never recomputed.
        a = int(np.flatnonzero(self.alphas == alpha)[0])
        return [a + len(self.alphas) * fold for fold in range(self.folds)]

    def verdict(self, held_out: Array, weight_sum: float, n_rows: int) -> Verdict:
        """Judge the alphas by sums of losses and wrong rows (size, 2) over the folds that were left out."""
        loss, wrong = held_out.reshape(self.folds, len(self.alphas), 2).sum(axis=0).T
        return Verdict(loss / weight_sum, wrong / n_rows)
