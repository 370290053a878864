"""The task that evaluates a model of sets of labels: which sets are right, and how each label does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows
from distls.workers.losses.registry import loss_named
from distls.workers.losses.targets import indicators, slice_rows, slopes_of
from distls.workers.prediction.predictor import Readout, score_pieces
from distls.workers.rounds.block_stream import DatasetRef, ReadStats, stream
from distls.workers.rounds.lanes import Lane

__all__ = ["LabelJob", "LabelSum", "label_lane", "merge_labels"]


@dataclass(frozen=True)
class LabelJob:
    """Evaluate a model on rows with sets of labels, each row weighing one.

    Attributes
    ----------
    data : DatasetRef
    loss : str
    codes : int32 array of shape (n_classes of the data,)
        Place of each label of the data among all labels: first the model's, then those it does not know.
    n_labels : int
        All labels.
    """

    data: DatasetRef
    loss: str
    codes: NDArray[np.int32]
    n_labels: int


@dataclass(frozen=True)
class LabelSum:
    """Sums over rows.

    Attributes
    ----------
    n_rows, errors : int
        Rows, and those whose predicted set is not their set of labels.
    known : int
        Rows whose labels are all known to the model.
    loss_sum : float
        Over those rows.
    counts : int64 array of shape (n_labels, 3)
        Rows that have a label, that are predicted to, and of both.
    blocks : list of int
    reads : ReadStats
    """

    n_rows: int
    errors: int
    known: int
    loss_sum: float
    counts: NDArray[np.int64]
    blocks: list[int]
    reads: ReadStats


def label_lane(job: LabelJob, readout: Readout, lane: Lane) -> LabelSum:
    """Compare the sets predicted for one lane's rows with their labels."""
    reads = ReadStats()
    total = LabelSum(0, 0, 0, 0.0, np.zeros((job.n_labels, 3), np.int64), [], ReadStats())
    for index, part in stream(job.data, lane.blocks, reads):
        pieces = (
            _compared(job, slice_rows(part.y, rows), values) for rows, values in score_pieces(readout, part.x)
        )
        total = replace(reduce(merge_labels, pieces, total), blocks=[*total.blocks, index])
    return replace(total, reads=reads)


def _compared(job: LabelJob, y: CsrRows, scores: NDArray[Any]) -> LabelSum:
    n_rows, k = scores.shape
    codes = job.codes[y.indices]
    strange = codes >= k
    row = np.repeat(np.arange(n_rows), np.diff(y.indptr))
    known = np.ones(n_rows, dtype=bool)
    known[row[strange]] = False
    wanted = indicators(_only(y, codes, ~strange), k)
    chosen = scores > loss_named(job.loss).threshold
    wrong = (wanted != chosen).any(axis=1) | ~known
    counts = np.zeros((job.n_labels, 3), np.int64)
    counts[:, 0] = np.bincount(codes, minlength=job.n_labels)
    counts[:k, 1] = chosen.sum(axis=0)
    counts[:k, 2] = (chosen & wanted).sum(axis=0)
    loss_sum = slopes_of(job.loss, scores, _only(y, codes, ~strange), known.astype(np.float64)).loss_sum
    return LabelSum(n_rows, int(wrong.sum()), int(known.sum()), loss_sum, counts, [], ReadStats())


def _only(y: CsrRows, codes: NDArray[np.int32], kept: NDArray[np.bool_]) -> CsrRows:
    """Return the sets of labels with other codes, and without those that are not kept."""
    before = np.concatenate([[0], np.cumsum(kept)])
    return CsrRows(before[y.indptr], codes[kept], y.data[kept])


def merge_labels(left: LabelSum, right: LabelSum) -> LabelSum:
    """Add two sums."""
    return LabelSum(
        left.n_rows + right.n_rows,
        left.errors + right.errors,
        left.known + right.known,
        left.loss_sum + right.loss_sum,
        left.counts + right.counts,
        left.blocks + right.blocks,
        left.reads.merge(right.reads),
    )
