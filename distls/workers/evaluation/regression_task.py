"""The task that evaluates regression models: sums of squared residuals, and of squared deviations of the targets."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import Partition, n_rows_of
from distls.workers.losses.loss_registry import loss_named
from distls.workers.prediction.predictor import LinearPredictor, score_pieces
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger, add_sums
from distls.workers.rounds.row_weights import row_weights
from distls.workers.rounds.shared_reads import done_by, read_alone


@dataclass(frozen=True)
class ResidualSum:
    """Weighted sums over rows."""

    weight: float
    squares: NDArray[np.float64]  # (n_targets,): ``sum_i s_i (prediction_i - y_i)^2``
    mean: NDArray[np.float64]  # (n_targets,), of the targets
    spread: NDArray[np.float64]  # (n_targets,): ``sum_i s_i (y_i - mean)^2``
    ledger: Ledger
    deviance: float = 0.0  # twice the loss of a link


class Residuals:
    """Compares the predictions for one lane's rows with their targets."""

    def __init__(
        self,
        data: DatasetRef,
        predictor: LinearPredictor,
        lane: Lane,
        *,
        loss: str,
        weighted: bool = False,
    ) -> None:
        self._predictor, self._weighted = predictor, weighted
        self._link, self._has_deviance = loss_named(loss), not loss_named(loss).quadratic
        self.data, self.blocks, self.ledger = data, lane.blocks, Ledger()
        zero = np.zeros(len(predictor.intercept))
        self._total = ResidualSum(0.0, zero, zero, zero, Ledger())

    def take(self, index: int, part: Partition) -> None:
        """Compare a partition's rows."""
        weight = row_weights(part, None) if self._weighted else np.empty(0)
        for rows, values in score_pieces(self._predictor, part.x):
            y, s = part.y[rows], weight[rows] if len(weight) else None
            found = _residual_sums(y, self._link.numbers(values), s)
            if self._has_deviance:
                halves = self._link.number_gradient(values, y)[1]
                found = replace(found, deviance=2.0 * float(halves.sum() if s is None else halves @ s))
            self._total = merge_residuals(self._total, found)
        self.ledger.count(index, n_rows_of(part.x))

    def result(self) -> ResidualSum:
        """Return the sums over all rows."""
        return replace(self._total, ledger=self.ledger)


@done_by(Residuals)
def residual_lane(
    data: DatasetRef, predictor: LinearPredictor, lane: Lane, *, loss: str, weighted: bool = False
) -> ResidualSum:
    """Compare the predictions for one lane's rows with their targets; `weighted` by their sample weights."""
    total: ResidualSum = read_alone(Residuals(data, predictor, lane, loss=loss, weighted=weighted))
    return total


def _residual_sums(
    y: NDArray[np.float64], predicted: NDArray[np.floating], weight: NDArray[np.float64] | None
) -> ResidualSum:
    squares = np.square(predicted - y)
    shifted = y - y[0]  # so that the spread of equal targets is exactly zero
    if weight is None:
        mean = shifted.mean(axis=0)
        spread = np.square(shifted - mean).sum(axis=0)
        return ResidualSum(float(len(y)), squares.sum(axis=0), y[0] + mean, spread, Ledger())
    total = float(weight.sum())
    by_row = weight[:, None]
    mean = (by_row * shifted).sum(axis=0) / (total or 1.0)
    spread = (by_row * np.square(shifted - mean)).sum(axis=0)
    return ResidualSum(total, (by_row * squares).sum(axis=0), y[0] + mean, spread, Ledger())


def merge_residuals(left: ResidualSum, right: ResidualSum) -> ResidualSum:
    """Add two sums."""
    # spreads about two means become one about the common mean (Chan, Golub, LeVeque 1979)
    weight = left.weight + right.weight
    share = right.weight / weight if weight else 0.0
    difference = right.mean - left.mean
    spread = left.spread + right.spread + np.square(difference) * (left.weight * share)
    return add_sums(left, right, weight=weight, mean=left.mean + difference * share, spread=spread)
