"""Ridge regression along a path of alphas, judged by cross-validation, all from the sums of one read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from distls.solvers.metric import mirrored
from distls.storage.errors import ParameterError
from distls.workers.least_squares import Moments

__all__ = ["alpha_grid", "cross_validated", "total_of"]

Array = NDArray[np.float64]

_GRID_SIZE = 20
_GRID_DECADES = (1.0, -6.0)
# Reflectors that LAPACK applies at once: its workspace in columns.
_BLOCK = 64


def total_of(folds: Sequence[Moments]) -> Moments:
    """Return the sums over all folds."""
    first = folds[0]
    total = Moments.zero(*first.cross.shape, with_gram=first.gram.size > 0)
    for fold in folds:
        total.add(fold)
    return total


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
    mean_square = float(np.trace(total.gram)) / (total.weight_sum * len(total.gram))
    return (mean_square or 1.0) * np.logspace(*_GRID_DECADES, _GRID_SIZE)


def cross_validated(folds: Sequence[Moments], alphas: Array, *, intercept: bool) -> Array:
    """Return the mean squared error of each alpha, every fold predicted by the fit to the other folds.

    Parameters
    ----------
    folds : sequence of Moments
        At zero weights, where the slopes of the squared loss are the negative targets.
    alphas : array of shape (n_alphas,), all above 0
    intercept : bool

    Returns
    -------
    errors : array of shape (n_alphas,)
        Weighted mean over rows, mean over outputs.

    Raises
    ------
    ParameterError
        A fold has no rows, or none of weight.
    """
    total = total_of(folds)
    if any(not 0.0 < fold.weight_sum < total.weight_sum for fold in folds):
        raise ParameterError(
            f"folds={len(folds)}: a fold has no rows of any weight; ask for fewer, or ingest with a larger "
            "--partition-size"
        )
    k = total.cross.shape[1]
    squares = sum(_held_out(total, fold, alphas, intercept=intercept) for fold in folds)
    return np.asarray(squares) / (total.weight_sum * k)


@dataclass(frozen=True)
class _Line:
    """Weights (d, n_alphas * k) and intercepts (n_alphas * k,) of the fits along the path."""

    weights: Array
    intercept: Array


def _held_out(total: Moments, fold: Moments, alphas: Array, *, intercept: bool) -> Array:
    """Return the sum of squared residuals on one fold at each alpha, shape (n_alphas,)."""
    line = _fit_others(total, fold, alphas, intercept=intercept)
    n, w, b = len(alphas), line.weights, line.intercept
    # sum_i s_i (y_i - W^T x_i - b)^2, expanded; the slopes at zero weights are -y
    own = mirrored(fold.gram.copy()) @ w
    targets, products = np.tile(fold.slopes, n), np.tile(fold.cross, n)
    sums = np.tile(fold.squares, n) + np.einsum("ij,ij->j", w, own + 2.0 * products)
    sums += b * (2.0 * (targets + fold.sums @ w) + fold.weight_sum * b)
    return np.asarray(sums.reshape(n, -1).sum(axis=1))


def _fit_others(total: Moments, fold: Moments, alphas: Array, *, intercept: bool) -> _Line:
    """Fit everything but one fold at all alphas, by one decomposition."""
    weight = total.weight_sum - fold.weight_sum
    gram = mirrored((total.gram - fold.gram) / weight)
    products, targets = (fold.cross - total.cross) / weight, (fold.slopes - total.slopes) / weight
    mean = (total.sums - fold.sums) / weight
    if intercept:
        gram -= np.outer(mean, mean)
        products -= np.outer(mean, targets)
    weights = _Tridiagonal(gram).solve(products, alphas)
    offsets = np.tile(targets, len(alphas)) - mean @ weights
    return _Line(weights, offsets if intercept else np.zeros_like(offsets))


class _Tridiagonal:
    """Q T Q^T of a symmetric matrix, whose memory it takes: half of an eigendecomposition's cost, and as good here."""

    def __init__(self, matrix: Array) -> None:
        work, _ = linalg.lapack.dsytrd_lwork(len(matrix), lower=1)
        self._reflectors, self._diagonal, self._beside, self._scales, _ = linalg.lapack.dsytrd(
            matrix.T, lower=1, lwork=int(work), overwrite_a=1
        )
        largest = np.abs(self._diagonal).max() + np.abs(self._beside).max(initial=0.0)
        # below this an alpha is lost in the rounding of T, which could then have no factor
        self._least = len(matrix) * float(np.finfo(np.float64).eps) * largest

    def solve(self, right: Array, alphas: Array) -> Array:
        """Return ``(A + alpha I)^-1 @ right`` for each alpha, side by side: shape (d, n_alphas * k)."""
        inner = self._times(right, "T")
        found = [
            linalg.lapack.dptsv(self._diagonal + max(alpha, self._least), self._beside, inner)[2]
            for alpha in alphas
        ]
        return self._times(np.concatenate(found, axis=1), "N")

    def _times(self, right: Array, trans: str) -> Array:
        """Return ``Q @ right``, or ``Q^T @ right``: Q leaves the first row as it is, and reflects the others."""
        out = np.asfortranarray(right)
        if len(right) > 1:
            reflectors = np.asfortranarray(self._reflectors[1:, :-1])
            work = _BLOCK * right.shape[1]
            rest, _, _ = linalg.lapack.dormqr("L", trans, reflectors, self._scales, out[1:], work)
            out = np.concatenate([out[:1], rest])
        return np.ascontiguousarray(out)
