"""The task that evaluates a model of numbers: sums of squared residuals, and how much the targets vary."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from distls.workers.prediction.predictor import Readout, score_pieces
from distls.workers.rounds.block_stream import DatasetRef, ReadStats, stream
from distls.workers.rounds.lanes import Lane

__all__ = ["ResidualSum", "merge_residuals", "residual_lane"]


@dataclass(frozen=True)
class ResidualSum:
    """Sums over rows, each weighing one.

    Attributes
    ----------
    n_rows : int
    squares : float64 array of shape (n_targets,)
        ``sum_i (prediction_i - y_i)^2``.
    mean, spread : float64 arrays of shape (n_targets,)
        Mean of the targets, and ``sum_i (y_i - mean)^2``.
    blocks : list of int
    reads : ReadStats
    """

    n_rows: int
    squares: NDArray[np.float64]
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]
    blocks: list[int]
    reads: ReadStats


def residual_lane(data: DatasetRef, readout: Readout, lane: Lane) -> ResidualSum:
    """Compare the predictions for one lane's rows with their targets."""
    reads, zero = ReadStats(), np.zeros(len(readout.intercept))
    total = ResidualSum(0, zero, zero, zero, [], ReadStats())
    for index, part in stream(data, lane.blocks, reads):
        pieces = (_compared(part.y[rows], values) for rows, values in score_pieces(readout, part.x))
        total = replace(reduce(merge_residuals, pieces, total), blocks=[*total.blocks, index])
    return replace(total, reads=reads)


def _compared(y: NDArray[np.float64], predicted: NDArray[np.floating]) -> ResidualSum:
    squares = np.square(predicted - y).sum(axis=0)
    apart = y - y[0]  # targets that are all equal then vary by nothing at all
    mean = apart.mean(axis=0)
    return ResidualSum(len(y), squares, y[0] + mean, np.square(apart - mean).sum(axis=0), [], ReadStats())


def merge_residuals(left: ResidualSum, right: ResidualSum) -> ResidualSum:
    """Add two sums; spreads about two means become one about the common mean (Chan, Golub, LeVeque 1979)."""
    n_rows = left.n_rows + right.n_rows
    share = right.n_rows / n_rows if n_rows else 0.0
    apart = right.mean - left.mean
    return ResidualSum(
        n_rows,
        left.squares + right.squares,
        left.mean + apart * share,
        left.spread + right.spread + np.square(apart) * (left.n_rows * share),
        left.blocks + right.blocks,
        left.reads.merge(right.reads),
    )
