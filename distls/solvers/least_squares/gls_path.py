"""The path of alphas for links without a closed form: a fit for each alpha and fold, all of them at each read.

A fold's objective is the mean over the rows of the other folds. Its Hessian is at most S / (S - S_f) times L Sigma +
alpha P, with S the weight of all rows and S_f that of the fold, so the Sigma of all rows serves every fold; and one
reduction of the covariances to a band serves every L and alpha.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.workers.linear_algebra.shifted_solve import Shifted

__all__ = ["Grid", "PathMetric", "Verdict"]

Array = NDArray[np.float64]
Fits = NDArray[np.int64]


class Verdict(NamedTuple):
    """Each alpha's mean loss and share of wrong rows, every fold judged by the fit to the others: shape (n_alphas,)."""

    losses: Array
    errors: Array

    def to_json(self, alphas: Array) -> list[dict[str, Any]]:
        """Return a line for each alpha."""
        lines = zip(alphas, self.losses, self.errors, strict=True)
        return [
            {"alpha": float(a), "cv_loss": float(loss), "cv_error": float(wrong)} for a, loss, wrong in lines
        ]


class Grid(NamedTuple):
    """Which fit is whose: fit ``fold * n_alphas + a`` leaves out a fold and has the a-th alpha."""

    alphas: Array
    folds: int

    @property
    def size(self) -> int:
        """Fits."""
        return len(self.alphas) * self.folds

    def alpha_of(self, fits: Fits) -> Array:
        """Return their alphas."""
        return np.asarray(self.alphas[fits % len(self.alphas)])

    def fold_of(self, fits: Fits) -> Fits:
        """Return the folds that they leave out."""
        return np.asarray(fits // len(self.alphas))

    def fits_of(self, a: int) -> Fits:
        """Return the fits of one alpha, one for each fold."""
        return a + len(self.alphas) * np.arange(self.folds)

    def verdict(self, held: Array, weight_sum: float, n_rows: int) -> Verdict:
        """Judge the alphas by sums of losses and wrong rows (size, 2) over the folds that were left out."""
        loss, wrong = held.reshape(self.folds, len(self.alphas), 2).sum(axis=0).T
        return Verdict(loss / weight_sum, wrong / n_rows)


class PathMetric:
    """L Sigma + alpha P for any L and alpha, of several fits at once.

    Parameters
    ----------
    sigma : float64 array of shape (m, m)
        From `distls.solvers.least_squares.curvature.assemble`.
    intercept : bool
        The first column is the constant one, which alpha does not penalise.
    eps : float
        Relative rounding error of Sigma's elements. Where alpha is lost in it, a larger one takes its place, in the
        metric alone: that makes steps shorter along what the rows hardly vary in.
    """

    def __init__(self, sigma: Array, *, intercept: bool, eps: float) -> None:
        self._first = int(intercept)
        self._mean = sigma[:1, self._first :][: self._first]
        covariance = sigma[self._first :, self._first :] - self._mean.T @ self._mean
        self._shifted = Shifted(covariance, eps)

    def steps(self, gradients: Array, lipschitz: Array, alphas: Array) -> Array:
        """Return ``(L Sigma + alpha P)^-1 @ gradient`` for r fits.

        Parameters
        ----------
        gradients : float64 array of shape (m, r, k)
        lipschitz, alphas : float64 arrays of shape (r,)
        """
        m, r, k = gradients.shape
        first = gradients[: self._first]
        # the constant column is eliminated: what remains is L times the covariances, and alpha
        centred = gradients[self._first :] - np.tensordot(self._mean.T, first, 1)
        inner = self._shifted.inside(centred.reshape(m - self._first, r * k)).reshape(centred.shape)
        shifts = alphas / lipschitz
        for shift in np.unique(shifts):
            own = shifts == shift
            columns = inner[:, own]
            solved = self._shifted.solve_inside(columns.reshape(len(inner), -1), float(shift))
            inner[:, own] = solved.reshape(columns.shape)
        rest = self._shifted.outside(inner.reshape(len(inner), r * k)).reshape(inner.shape)
        scaled = np.concatenate([first - np.tensordot(self._mean, rest, 1), rest])
        return np.asarray(scaled / lipschitz[:, None])
