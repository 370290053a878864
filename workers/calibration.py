"""Calibration (Algorithm 2 of least squares revisited): a basis of functions of predictions, and projections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["basis", "project", "replay"]


def basis(values: NDArray[Any], powers: Sequence[float]) -> NDArray[Any]:
    """Return G(y): the elementwise powers of predictions (n, k), side by side, shape (n, len(powers) * k)."""
    return np.concatenate([values**power if power != 1 else values for power in powers], axis=1)


def project(values: NDArray[Any], onto: str) -> NDArray[Any]:
    """Return the Euclidean projection of each row onto the probability simplex or the unit cube (Eq. 19's clip).

    Parameters
    ----------
    values : array of shape (n, k)
    onto : {"simplex", "cube"}

    Notes
    -----
    Sort-based, O(k log k): Duchi et al. 2008, Figure 1.
    """
    if onto == "cube":
        return np.clip(values, 0.0, 1.0)
    descending = -np.sort(-values, axis=1)
    above = np.cumsum(descending, axis=1) - 1.0
    counts = np.arange(1, values.shape[1] + 1)
    kept = (descending - above / counts > 0.0).sum(axis=1)
    shift = above[np.arange(len(values)), kept - 1] / kept
    return np.maximum(values - shift[:, None].astype(values.dtype), 0.0)


def replay(recipe: dict[str, Any], calibration: NDArray[Any], fits: NDArray[Any]) -> NDArray[Any]:
    """Return the predictions of calibrated least squares.

    Parameters
    ----------
    recipe : {"powers": list, "onto": str}
    calibration : array of shape (n_rounds, len(powers) * k, k)
        The calibration weights of each round.
    fits : array of shape (n, n_rounds * k)
        ``x @ W_t + b_t`` of each round, side by side.
    """
    k = calibration.shape[2]
    values = np.zeros((len(fits), k), fits.dtype)
    for number, weights in enumerate(calibration):
        values = values + fits[:, number * k : (number + 1) * k]
        values = project(basis(values, recipe["powers"]) @ weights.astype(fits.dtype), recipe["onto"])
    return values
