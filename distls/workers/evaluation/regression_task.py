"""The task that evaluates regression models: sums of squared residuals, and of squared deviations of the targets.

Deviations are merged as Chan, Golub and LeVeque (1979) do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import Partition
from distls.workers.losses.loss_registry import loss_named
from distls.workers.prediction.predictor import score_pieces
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.ledger import Ledger, add_sums
from distls.workers.rounds.row_weights import row_weights
from distls.workers.rounds.task import Task


@dataclass(frozen=True)
class ResidualSum:
    """Weighted sums over rows."""

    weight: float
    squares: NDArray[np.float64]  # (n_targets,): ``sum_i s_i (prediction_i - y_i)^2``
    mean: NDArray[np.float64]  # (n_targets,), of the targets
    squared_deviations: NDArray[np.float64]  # (n_targets,): ``sum_i s_i (y_i - mean)^2``
    ledger: Ledger
    deviance: float = 0.0  # twice the loss of a link


@dataclass(eq=False)
class ResidualTask(Task):
    """Compares the predictions for rows with their targets."""

    data: DatasetRef
    loss: str
    weighted: bool = False  # rows count by their sample weights

    shares_reads = True

    def start(self) -> None:
        zero = np.zeros(len(self.shared.intercept))
        self.total = ResidualSum(0.0, zero, zero, zero, Ledger())

    def add(self, index: int, part: Partition) -> None:
        link, weight = loss_named(self.loss), row_weights(part, None) if self.weighted else np.empty(0)
        # In pieces: predictions of a whole partition are not held.
        for rows, values in score_pieces(self.shared, part.x):
            y, s = part.y[rows], weight[rows] if len(weight) else None
            found = _residual_sums(y, link.numbers(values), s)
            if not link.quadratic:
                halves = link.number_gradient(values, y)[1]
                found = replace(found, deviance=2.0 * float(halves.sum() if s is None else halves @ s))
            self.total = self.merge(self.total, found)

    @staticmethod
    def merge(left: ResidualSum, right: ResidualSum) -> ResidualSum:
        # spreads about two means become one about the common mean (Chan, Golub, LeVeque 1979)
        weight = left.weight + right.weight
        share = right.weight / weight if weight else 0.0
        difference = right.mean - left.mean
        squared_deviations = (
            left.squared_deviations + right.squared_deviations + np.square(difference) * (left.weight * share)
        )
        return add_sums(
            left,
            right,
            weight=weight,
            mean=left.mean + difference * share,
            squared_deviations=squared_deviations,
        )


def _residual_sums(
    y: NDArray[np.float64], predicted: NDArray[np.floating], weight: NDArray[np.float64] | None
) -> ResidualSum:
    squares = np.square(predicted - y)
    shifted = y - y[0]  # so that the squared_deviations of equal targets is exactly zero
    if weight is None:
        mean = shifted.mean(axis=0)
        squared_deviations = np.square(shifted - mean).sum(axis=0)
        return ResidualSum(float(len(y)), squares.sum(axis=0), y[0] + mean, squared_deviations, Ledger())
    total = float(weight.sum())
    by_row = weight[:, None]
    # Weights may all be zero.
    mean = (by_row * shifted).sum(axis=0) / (total or 1.0)
    squared_deviations = (by_row * np.square(shifted - mean)).sum(axis=0)
    return ResidualSum(total, (by_row * squares).sum(axis=0), y[0] + mean, squared_deviations, Ledger())
