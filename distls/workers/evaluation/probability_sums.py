"""Sums over rows that say how good probabilities are: log loss, Brier (1950) score, calibration (Guo et al. 2017)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.workers.rounds.ledger import add_sums

BINS = 15  # of equal width over 0 to 1, as Guo et al. (2017)


@dataclass(frozen=True)
class ProbabilitySums:
    """Weighted sums over rows whose class the model knows."""

    weight: float = 0.0
    log_loss: float = 0.0
    brier: float = 0.0  # squared distances from the indicators
    # (BINS, 3), by the probability of the most probable class: rows, their probabilities, and rows predicted right
    bins: NDArray[np.float64] | None = None


def sum_probabilities(
    values: NDArray[np.float64], y: NDArray[np.int32], weight: NDArray[np.float64]
) -> ProbabilitySums:
    """Sum over rows with probabilities (n_rows, k), codes of classes y (n_rows,) and weights (n_rows,)."""
    rows = np.arange(len(y))
    with np.errstate(divide="ignore"):
        losses = -np.log(values[rows, y])
    # |p - e_y|^2 expanded, which needs no indicators.
    distances = np.square(values).sum(axis=1) - 2.0 * values[rows, y] + 1.0
    best = values.argmax(axis=1)
    confidence = values[rows, best]
    # Bins are open below and closed above, so that a confidence of one is in the last.
    place = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
    summed = [weight, weight * confidence, weight * (best == y)]
    bins = np.stack([sum_at(place, column, BINS) for column in summed], axis=1)
    # a row of weight zero has no loss, even an infinite one
    losses[weight == 0.0] = 0.0
    return ProbabilitySums(float(weight.sum()), float((weight * losses).sum()), float((weight * distances).sum()), bins)


def sum_at(places: NDArray[np.integer], values: NDArray[Any], size: int) -> NDArray[np.float64]:
    """Return the sum of the values at each of `size` places."""
    return np.asarray(np.bincount(places, values, minlength=size), np.float64)


def merge_probabilities(left: ProbabilitySums, right: ProbabilitySums) -> ProbabilitySums:
    """Add two sums."""
    # A side without rows has no bins to add.
    if left.bins is None or right.bins is None:
        return right if left.bins is None else left
    return add_sums(left, right)
