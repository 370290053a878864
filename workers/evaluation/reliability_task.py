"""The task of a reliability curve: how often the predicted class is right, by the probability it is given."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import n_rows_of
from distls.workers.losses.registry import probabilities
from distls.workers.prediction.predictor import LinearPredictor, score_pieces
from distls.workers.rounds.block_stream import DatasetRef, stream
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger

__all__ = ["ReliabilityJob", "ReliabilitySum", "merge_reliability", "reliability_lane"]


@dataclass(frozen=True)
class ReliabilityJob:
    """Compare the probabilities of predicted classes with how often these are right."""

    data: DatasetRef
    loss: str  # as `scored_as` names it; one with probabilities
    codes: NDArray[np.int32]  # the model's code of each class of the data, -1 for an unknown label
    n_bins: int


@dataclass
class ReliabilitySum:
    """Sums over the rows of each bin of probabilities, arrays of shape (n_bins,)."""

    counts: NDArray[np.int64]
    right: NDArray[np.int64]
    probability: NDArray[np.float64]
    ledger: Ledger = field(default_factory=Ledger)


def reliability_lane(job: ReliabilityJob, predictor: LinearPredictor, lane: Lane) -> ReliabilitySum:
    """Sum over one lane's rows; bins have equal widths between 0 and 1."""
    empty = np.zeros(job.n_bins, np.int64)
    total = ReliabilitySum(empty, empty.copy(), np.zeros(job.n_bins))
    ledger = Ledger()
    for index, part in stream(job.data, lane.blocks, ledger):
        truth = job.codes[part.y]
        for rows, scores in score_pieces(predictor, part.x):
            probabilities(job.loss, scores)
            predicted = scores.argmax(axis=1)
            given = np.take_along_axis(scores, predicted[:, None], axis=1)[:, 0].astype(np.float64)
            # a probability of exactly 1 belongs to the last bin
            bins = np.minimum((given * job.n_bins).astype(np.int64), job.n_bins - 1)
            total.counts += np.bincount(bins, minlength=job.n_bins)
            total.right += np.bincount(bins[predicted == truth[rows]], minlength=job.n_bins)
            total.probability += np.bincount(bins, weights=given, minlength=job.n_bins)
        ledger.count(index, n_rows_of(part.x))
    return replace(total, ledger=ledger)


def merge_reliability(left: ReliabilitySum, right: ReliabilitySum) -> ReliabilitySum:
    """Add two sums."""
    return ReliabilitySum(
        left.counts + right.counts,
        left.right + right.right,
        left.probability + right.probability,
        left.ledger.merge(right.ledger),
    )
