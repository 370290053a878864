"""Calibration (Algorithm 2 of least squares revisited): weighted columns of a basis, projected."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.workers.prediction.basis_functions import Basis


def project(values: NDArray[Any], onto: str) -> NDArray[Any]:
    """Return the Euclidean projection of each row of (n, k) values onto the simplex or the cube (Eq. 19's clip).

    Onto the simplex: max(v - u, 0), with the u for which that sums to one, found by sorting in O(k log k) (Duchi,
    Shalev-Shwartz, Singer, Chandra 2008).
    """
    if onto == "cube":
        return np.clip(values, 0.0, 1.0)
    # shifting a row does not change its projection, and keeps the terms of the sums small
    shifted = values - values.max(axis=1, keepdims=True)
    descending = -np.sort(-shifted, axis=1)
    above = np.cumsum(descending, axis=1) - 1.0
    counts = np.arange(1, values.shape[1] + 1)
    # As many as are above the threshold that they themselves give; the largest always is.
    kept = np.maximum((descending * counts > above).sum(axis=1), 1)
    shift = above[np.arange(len(values)), kept - 1] / kept
    return np.maximum(shifted - shift[:, None].astype(values.dtype), 0.0)


def calibrate(
    values: NDArray[np.float64], weights: NDArray[np.float64], basis: Basis, onto: str
) -> NDArray[np.float64]:
    """Return the calibrated predictions ``clip(G(values) @ weights)`` (Eq. 19), shape (n, k).

    Parameters
    ----------
    values : float64 array of shape (n, k)
    weights : float64 array of shape (basis.width(k), k)
    """
    return project(basis.columns(values) @ weights, onto)


def replay(
    basis: Basis,
    onto: str,
    calibration: NDArray[np.float64],
    fits: NDArray[Any],
    start: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Return the predictions of calibrated least squares: all rounds, one after the other.

    Parameters
    ----------
    calibration : float64 array of shape (n_rounds, basis.width(k), k)
        The calibration weights of each round.
    fits : array of shape (n, n_rounds * k)
        ``x @ W_t + b_t`` of each round, side by side.
    start : array of shape (n, k), optional
        Predictions before the first round; zero by default.
    """
    # Fits are those of the rounds; each is projected before the next is added.
    k = calibration.shape[2]
    values = np.zeros((len(fits), k)) if start is None else start
    for number, weights in enumerate(calibration):
        values = calibrate(values + fits[:, number * k : (number + 1) * k], weights, basis, onto)
    return values
