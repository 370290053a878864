"""Calibration (Algorithm 2 of least squares revisited): basis functions of predictions, and projections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["basis", "calibrate", "project", "replay"]


def basis(values: NDArray[Any], powers: Sequence[int]) -> NDArray[Any]:
    """Return G(y): elementwise `powers` (increasing, > 0) of predictions (n, k), shape (n, len(powers) * k)."""
    n, k = values.shape
    out = np.empty((n, len(powers) * k), values.dtype)
    power, reached = values, 1
    for place, wanted in enumerate(powers):
        # products, not `pow`, whose last bits may depend on a value's address
        for _ in range(reached, wanted):
            power = power * values
        reached = wanted
        out[:, place * k : (place + 1) * k] = power
    return out


def project(values: NDArray[Any], onto: str) -> NDArray[Any]:
    """Return the Euclidean projection of each row of (n, k) values onto the simplex or the cube (Eq. 19's clip).

    Onto the simplex: max(v - u, 0), with the u for which that sums to one, found by sorting in O(k log k).
    """
    if onto == "cube":
        return np.clip(values, 0.0, 1.0)
    # shifting a row does not change its projection, and keeps the terms of the sums small
    shifted = values - values.max(axis=1, keepdims=True)
    descending = -np.sort(-shifted, axis=1)
    above = np.cumsum(descending, axis=1) - 1.0
    counts = np.arange(1, values.shape[1] + 1)
    kept = np.maximum((descending * counts > above).sum(axis=1), 1)
    shift = above[np.arange(len(values)), kept - 1] / kept
    return np.maximum(shifted - shift[:, None].astype(values.dtype), 0.0)


def calibrate(
    values: NDArray[np.float64], weights: NDArray[np.float64], powers: Sequence[int], onto: str
) -> NDArray[np.float64]:
    """Return the calibrated predictions ``clip(G(values) @ weights)`` (Eq. 19), shape (n, k).

    Values are float64 (n, k), weights float64 (len(powers) * k, k).
    """
    return project(basis(values, powers) @ weights, onto)


def replay(
    powers: Sequence[int], onto: str, calibration: NDArray[np.float64], fits: NDArray[Any]
) -> NDArray[np.float64]:
    """Return the predictions of calibrated least squares: all rounds, one after the other.

    `calibration` is float64 (n_rounds, len(powers) * k, k), `fits` (n, n_rounds * k): ``x @ W_t + b_t`` of each
    round, side by side.
    """
    k = calibration.shape[2]
    values = np.zeros((len(fits), k))
    for number, weights in enumerate(calibration):
        values = calibrate(values + fits[:, number * k : (number + 1) * k], weights, powers, onto)
    return values
