"""The task that evaluates a model of numbers: sums of squared residuals, and how much the targets vary."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from distls.workers.prediction.predictor import LinearPredictor, score_pieces
from distls.workers.rounds.block_stream import DatasetRef, stream
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger

__all__ = ["ResidualSum", "merge_residuals", "residual_lane"]


@dataclass(frozen=True)
class ResidualSum:
    """Sums over rows, each weighing one."""

    squares: NDArray[np.float64]  # (n_targets,): ``sum_i (prediction_i - y_i)^2``
    mean: NDArray[np.float64]  # (n_targets,), of the targets
    spread: NDArray[np.float64]  # (n_targets,): ``sum_i (y_i - mean)^2``
    ledger: Ledger


def residual_lane(data: DatasetRef, predictor: LinearPredictor, lane: Lane) -> ResidualSum:
    """Compare the predictions for one lane's rows with their targets."""
    ledger, zero = Ledger(), np.zeros(len(predictor.intercept))
    total = ResidualSum(zero, zero, zero, Ledger())
    for index, part in stream(data, lane.blocks, ledger):
        pieces = (_compared(part.y[rows], values) for rows, values in score_pieces(predictor, part.x))
        total = reduce(merge_residuals, pieces, total)
        ledger.blocks.append(index)
    return replace(total, ledger=ledger.merge(total.ledger))


def _compared(y: NDArray[np.float64], predicted: NDArray[np.floating]) -> ResidualSum:
    squares = np.square(predicted - y).sum(axis=0)
    apart = y - y[0]  # targets that are all equal then vary by nothing at all
    mean = apart.mean(axis=0)
    spread = np.square(apart - mean).sum(axis=0)
    return ResidualSum(squares, y[0] + mean, spread, Ledger(n_rows=len(y)))


def merge_residuals(left: ResidualSum, right: ResidualSum) -> ResidualSum:
    """Add two sums; spreads about two means become one about the common mean (Chan, Golub, LeVeque 1979)."""
    ledger = left.ledger.merge(right.ledger)
    share = right.ledger.n_rows / ledger.n_rows if ledger.n_rows else 0.0
    apart = right.mean - left.mean
    return ResidualSum(
        left.squares + right.squares,
        left.mean + apart * share,
        left.spread + right.spread + np.square(apart) * (left.ledger.n_rows * share),
        ledger,
    )
