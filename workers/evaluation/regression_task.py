"""The task that evaluates regression models: sums of squared residuals, and of squared deviations of the targets."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from distls.workers.losses.registry import loss_named
from distls.workers.prediction.predictor import LinearPredictor, score_pieces
from distls.workers.rounds.block_stream import DatasetRef, stream
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.row_weights import row_weights

__all__ = ["ResidualSum", "merge_residuals", "residual_lane"]


@dataclass(frozen=True)
class ResidualSum:
    """Weighted sums over rows."""

    weight: float
    squares: NDArray[np.float64]  # (n_targets,): ``sum_i s_i (prediction_i - y_i)^2``
    mean: NDArray[np.float64]  # (n_targets,), of the targets
    spread: NDArray[np.float64]  # (n_targets,): ``sum_i s_i (y_i - mean)^2``
    ledger: Ledger
    deviance: float = 0.0  # twice the loss of a link


def residual_lane(
    data: DatasetRef, predictor: LinearPredictor, lane: Lane, *, loss: str = "squared", weighted: bool = False
) -> ResidualSum:
    """Compare the predictions for one lane's rows with their targets; `weighted` by their sample weights."""
    link = loss_named(loss)
    ledger, zero = Ledger(), np.zeros(len(predictor.intercept))
    total = ResidualSum(0.0, zero, zero, zero, Ledger())
    for index, part in stream(data, lane.blocks, ledger):
        weight = row_weights(part, None) if weighted else np.empty(0)
        for rows, values in score_pieces(predictor, part.x):
            y, s = part.y[rows], weight[rows] if len(weight) else None
            found = _residual_sums(y, link.numbers(values), s)
            if loss != "squared":
                halves = link.number_gradient(values, y)[1]
                found = replace(found, deviance=2.0 * float(halves.sum() if s is None else halves @ s))
            total = merge_residuals(total, found)
        ledger.blocks.append(index)
    return replace(total, ledger=ledger.merge(total.ledger))


def _residual_sums(
    y: NDArray[np.float64], predicted: NDArray[np.floating], weight: NDArray[np.float64] | None
) -> ResidualSum:
    squares = np.square(predicted - y)
    shifted = y - y[0]  # so that the spread of equal targets is exactly zero
    if weight is None:
        mean = shifted.mean(axis=0)
        spread = np.square(shifted - mean).sum(axis=0)
        return ResidualSum(float(len(y)), squares.sum(axis=0), y[0] + mean, spread, Ledger(n_rows=len(y)))
    total = float(weight.sum())
    by_row = weight[:, None]
    mean = (by_row * shifted).sum(axis=0) / (total or 1.0)
    spread = (by_row * np.square(shifted - mean)).sum(axis=0)
    return ResidualSum(total, (by_row * squares).sum(axis=0), y[0] + mean, spread, Ledger(n_rows=len(y)))


def merge_residuals(left: ResidualSum, right: ResidualSum) -> ResidualSum:
    """Add two sums."""
    # spreads about two means become one about the common mean (Chan, Golub, LeVeque 1979)
    weight = left.weight + right.weight
    share = right.weight / weight if weight else 0.0
    difference = right.mean - left.mean
    return ResidualSum(
        weight,
        left.squares + right.squares,
        left.mean + difference * share,
        left.spread + right.spread + np.square(difference) * (left.weight * share),
        left.ledger.merge(right.ledger),
        left.deviance + right.deviance,
    )
