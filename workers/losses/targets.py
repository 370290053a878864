"""Targets of a block of rows against scores: gradients, loss sums and errors, for every kind of target.

A row's target is a class (int32 codes), a set of labels (a `CsrRows` of codes) or numbers (float64, a column an
output). Classes and sets are predicted through their indicators: 1 at the row's class, or at each of its labels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, DenseRows
from distls.workers.losses.class_losses import LossSums, class_losses, weigh_gradients
from distls.workers.losses.loss import LabelSets
from distls.workers.losses.loss_registry import loss_named

__all__ = [
    "ScoreGradients",
    "indicators",
    "is_codes",
    "label_sets",
    "score_gradients",
    "slice_rows",
    "wrong_sets",
]


class ScoreGradients(NamedTuple):
    """Gradients of rows with respect to their scores, and sums over these rows."""

    values: NDArray[np.float64]  # (n_rows, k): ``s_i * d loss_i / d score``
    loss_sum: float  # sum of s_i * loss_i
    weight_sum: float  # sum of s_i
    # rows whose highest score is not their class's, or whose scores above the threshold are not just those of their
    # labels (of a ranking: some label of which is not above all others); 0 for numbers
    errors: int


def score_gradients(loss: str, scores: NDArray[Any], y: Any, weight: NDArray[np.float64]) -> ScoreGradients:
    """Return gradients and sums at `scores` (n_rows, k); raise ValueError if the loss is for other targets.

    y are int32 codes (n_rows,), CsrRows of label codes, or float64 (n_rows, k); weights float64 (n_rows,), or (0,)
    for all ones.
    """
    if is_codes(y):
        sums, runner_ups, out = LossSums(), np.empty(len(y), np.int32), np.zeros(scores.shape)
        class_losses(loss_named(loss), scores, y, weight, sums, runner_ups=runner_ups, gradients=out)
        weigh_gradients(runner_ups, y, weight, out)
        return ScoreGradients(out, *sums.totals())
    if isinstance(y, CsrRows):
        wanted = indicators(y, scores.shape[1])
        wrong = int(np.count_nonzero(wrong_sets(loss, scores, wanted)))
        return _weighted(*loss_named(loss).label_gradient(scores, label_sets(y), wanted), weight, wrong)
    return _weighted(*loss_named(loss).number_gradient(scores, y), weight, 0)


def is_codes(y: Any) -> bool:
    """Return whether targets are classes, one a row."""
    return isinstance(y, np.ndarray) and y.ndim == 1


def indicators(y: CsrRows, k: int) -> NDArray[np.bool_]:
    """Return whether row i has label c, shape (n_rows, k)."""
    out = np.zeros((len(y.indptr) - 1, k), dtype=bool)
    out[np.repeat(np.arange(len(out)), np.diff(y.indptr)), y.indices] = True
    return out


def label_sets(y: CsrRows) -> LabelSets:
    """Return sets of labels as kernels take them."""
    return LabelSets(y.indptr.astype(np.int64, copy=False), y.indices.astype(np.int32))


def wrong_sets(loss: str, scores: NDArray[Any], wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which rows have not just their labels above the threshold; in a ranking, all of them above the others."""
    if not loss_named(loss).ranks:
        return np.asarray(((scores > loss_named(loss).threshold) != wanted).any(axis=1))
    lowest = np.where(wanted, scores, np.inf).min(axis=1)
    return np.asarray(lowest <= np.where(wanted, -np.inf, scores).max(axis=1))


def slice_rows(block: Any, rows: slice) -> Any:
    """Return consecutive rows of a block of features or of targets, sharing its memory."""
    if isinstance(block, CsrRows):
        start, stop = rows.start, rows.stop
        first, last = block.indptr[start], block.indptr[stop]
        return CsrRows(
            block.indptr[start : stop + 1] - first, block.indices[first:last], block.data[first:last]
        )
    return DenseRows(block.values[rows]) if isinstance(block, DenseRows) else block[rows]


def _weighted(
    gradients: NDArray[np.float64], values: NDArray[np.float64], weight: NDArray[np.float64], errors: int
) -> ScoreGradients:
    if not len(weight):
        return ScoreGradients(gradients, float(values.sum()), float(len(values)), errors)
    gradients *= weight[:, None]
    return ScoreGradients(gradients, float((weight * values).sum()), float(weight.sum()), errors)
