"""The task that evaluates regression models: sums of squared residuals, and of squared deviations of the targets."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from distls.workers.prediction.predictor import LinearPredictor, score_pieces
from distls.workers.rounds.block_stream import DatasetRef, stream
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger

__all__ = ["ResidualSum", "merge_residuals", "residual_lane"]


@dataclass(frozen=True)
class ResidualSum:
    """Sums over rows, each with weight one."""

    squares: NDArray[np.float64]  # (n_targets,): ``sum_i (prediction_i - y_i)^2``
    mean: NDArray[np.float64]  # (n_targets,), of the targets
    spread: NDArray[np.float64]  # (n_targets,): ``sum_i (y_i - mean)^2``
    ledger: Ledger


def residual_lane(data: DatasetRef, predictor: LinearPredictor, lane: Lane) -> ResidualSum:
    """Compare the predictions for one lane's rows with their targets."""
    ledger, zero = Ledger(), np.zeros(len(predictor.intercept))
    total = ResidualSum(zero, zero, zero, Ledger())
    for index, part in stream(data, lane.blocks, ledger):
        for rows, values in score_pieces(predictor, part.x):
            total = merge_residuals(total, _residual_sums(part.y[rows], values))
        ledger.blocks.append(index)
    return replace(total, ledger=ledger.merge(total.ledger))


def _residual_sums(y: NDArray[np.float64], predicted: NDArray[np.floating]) -> ResidualSum:
    squares = np.square(predicted - y).sum(axis=0)
    shifted = y - y[0]  # so that the spread of equal targets is exactly zero
    mean = shifted.mean(axis=0)
    spread = np.square(shifted - mean).sum(axis=0)
    return ResidualSum(squares, y[0] + mean, spread, Ledger(n_rows=len(y)))


def merge_residuals(left: ResidualSum, right: ResidualSum) -> ResidualSum:
    """Add two sums."""
    # spreads about two means become one about the common mean (Chan, Golub, LeVeque 1979)
    ledger = left.ledger.merge(right.ledger)
    share = right.ledger.n_rows / ledger.n_rows if ledger.n_rows else 0.0
    difference = right.mean - left.mean
    return ResidualSum(
        left.squares + right.squares,
        left.mean + difference * share,
        left.spread + right.spread + np.square(difference) * (left.ledger.n_rows * share),
        ledger,
    )
