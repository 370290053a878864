"""The task that evaluates multi-label models: exact sets, and counts for each label."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows
from distls.workers.losses.registry import loss_named
from distls.workers.losses.targets import indicators, score_gradients, slice_rows
from distls.workers.prediction.predictor import LinearPredictor, score_pieces
from distls.workers.rounds.block_stream import DatasetRef, stream
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger

__all__ = ["LabelJob", "LabelSum", "label_lane", "merge_labels"]


@dataclass(frozen=True)
class LabelJob:
    """Evaluate a model on rows with sets of labels, each with weight one."""

    data: DatasetRef
    loss: str
    # place of each of the data's labels among all labels: first the model's, then those unknown to it
    codes: NDArray[np.int32]
    n_labels: int  # number of all labels


@dataclass(frozen=True)
class LabelSum:
    """Sums over rows."""

    errors: int  # rows whose predicted set is not their set of labels
    known: int  # rows whose labels are all known to the model
    loss_sum: float  # over those rows
    counts: NDArray[np.int64]  # (n_labels, 3): rows that have a label, are predicted to have it, and both
    ledger: Ledger


def label_lane(job: LabelJob, predictor: LinearPredictor, lane: Lane) -> LabelSum:
    """Compare the predicted sets of one lane's rows with their labels."""
    ledger = Ledger()
    total = LabelSum(0, 0, 0.0, np.zeros((job.n_labels, 3), np.int64), Ledger())
    for index, part in stream(job.data, lane.blocks, ledger):
        for rows, values in score_pieces(predictor, part.x):
            total = merge_labels(total, _label_sums(job, slice_rows(part.y, rows), values))
        ledger.blocks.append(index)
    return replace(total, ledger=ledger.merge(total.ledger))


def _label_sums(job: LabelJob, y: CsrRows, scores: NDArray[Any]) -> LabelSum:
    n_rows, k = scores.shape
    codes = job.codes[y.indices]
    unknown = codes >= k
    row = np.repeat(np.arange(n_rows), np.diff(y.indptr))
    known = np.ones(n_rows, dtype=bool)
    known[row[unknown]] = False
    known_labels = _filter_labels(y, codes, ~unknown)
    wanted = indicators(known_labels, k)
    chosen = scores > loss_named(job.loss).threshold
    wrong = (wanted != chosen).any(axis=1) | ~known
    counts = np.zeros((job.n_labels, 3), np.int64)
    counts[:, 0] = np.bincount(codes, minlength=job.n_labels)
    counts[:k, 1] = chosen.sum(axis=0)
    counts[:k, 2] = (chosen & wanted).sum(axis=0)
    # a row with an unknown label has no loss: its weight is zero
    loss_sum = score_gradients(job.loss, scores, known_labels, known.astype(np.float64)).loss_sum
    return LabelSum(int(wrong.sum()), int(known.sum()), loss_sum, counts, Ledger(n_rows=n_rows))


def _filter_labels(y: CsrRows, codes: NDArray[np.int32], kept: NDArray[np.bool_]) -> CsrRows:
    """Return the sets of labels with other codes, restricted to the labels `kept`."""
    before = np.concatenate([[0], np.cumsum(kept)])
    return CsrRows(before[y.indptr], codes[kept], y.data[kept])


def merge_labels(left: LabelSum, right: LabelSum) -> LabelSum:
    """Add two sums."""
    return LabelSum(
        left.errors + right.errors,
        left.known + right.known,
        left.loss_sum + right.loss_sum,
        left.counts + right.counts,
        left.ledger.merge(right.ledger),
    )
