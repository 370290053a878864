"""Targets of a block of rows against scores: slopes, loss sums and errors, for every kind of target.

A row's target is a class (int32 codes), a set of labels (a `CsrRows` of codes) or numbers (float64, a column an
output). Classes and sets are predicted through their indicators: 1 at the row's class, or at each of its labels.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, DenseRows
from distls.workers.compilation.jit import kernel
from distls.workers.coordinate_descent.descent_kernels import LabelSets, set_slopes
from distls.workers.linear_algebra.score_kernels import row_weight
from distls.workers.losses.registry import LOSSES, SLOPES_IN_G, add_slopes, row_slopes

__all__ = [
    "RANKINGS",
    "THRESHOLDS",
    "Slopes",
    "indicators",
    "is_codes",
    "label_sets",
    "slice_rows",
    "slopes_of",
    "wrong_sets",
]

# A label is predicted where its score is greater: half-way between the indicator's values, or probability 1/2. Of a
# ranking, whose scores say nothing of how many labels there are, see `distls.workers.prediction.threshold_task`.
THRESHOLDS = {
    "squared": 0.5,
    "ovr_log": 0.0,
    "multiclass_squared_hinge": 0.0,
    "multitask_squared_hinge": 0.0,
}
# Losses of sets of labels that compare labels with each other.
RANKINGS = ("multiclass_squared_hinge",)


class Slopes(NamedTuple):
    """What a block's scores lead to.

    Attributes
    ----------
    values : float64 array of shape (n_rows, k)
        ``s_i * d loss_i / d score``.
    loss_sum, weight_sum : float
        Sums of s_i * loss_i and of s_i.
    errors : int
        Rows whose highest score is not their class's, or whose scores above the threshold are not just those of
        their labels (of a ranking: some label of which is not above all others); 0 for numbers, which are not right
        or wrong.
    """

    values: NDArray[np.float64]
    loss_sum: float
    weight_sum: float
    errors: int


def slopes_of(loss: str, scores: NDArray[Any], y: Any, weight: NDArray[np.float64]) -> Slopes:
    """Return slopes and sums at `scores` (n_rows, k).

    Parameters
    ----------
    loss : str
        Full loss name: any for classes, one of `THRESHOLDS` for sets of labels, ``squared`` for numbers.
    y : int32 array of shape (n_rows,), CsrRows of label codes, or float64 array of shape (n_rows, k)
    weight : float64 array of shape (n_rows,), or (0,) for all ones

    Raises
    ------
    ValueError
        The loss is for other targets.
    """
    if is_codes(y):
        out = np.zeros(scores.shape)
        return Slopes(out, *_class_slopes(scores, y, weight, LOSSES[loss], out))
    if isinstance(y, CsrRows):
        wanted = indicators(y, scores.shape[1])
        wrong = int(np.count_nonzero(wrong_sets(loss, scores, wanted)))
        return _weighted(*_set_slopes(loss, scores, y, wanted), weight, wrong)
    if loss != "squared":
        raise ValueError(f"{loss} is no loss of numbers")
    return _weighted(*_squared(scores, y), weight, 0)


def is_codes(y: Any) -> bool:
    """Tell whether targets are classes, one a row."""
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
    if loss not in RANKINGS:
        return np.asarray(((scores > THRESHOLDS[loss]) != wanted).any(axis=1))
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


Values = tuple[NDArray[np.float64], NDArray[np.float64]]


def _set_slopes(loss: str, scores: NDArray[Any], y: CsrRows, wanted: NDArray[np.bool_]) -> Values:
    """Return slopes (n, k) and losses (n,) of a loss of sets of labels."""
    if loss == "squared":
        return _squared(scores, wanted)
    if loss != "ovr_log":
        slopes, values = np.empty(scores.shape), np.empty(len(scores))
        set_slopes(np.ascontiguousarray(scores), label_sets(y), LOSSES[loss], slopes, values)
        return slopes, values
    z = scores.astype(np.float64)
    values = np.logaddexp(0.0, np.where(wanted, -z, z)).sum(axis=1)
    return np.exp(-np.logaddexp(0.0, -z)) - wanted, values


def _squared(scores: NDArray[Any], wanted: NDArray[Any]) -> Values:
    """Return slopes and losses of ``1/2 sum_c (z_c - wanted_c)^2``."""
    slopes = np.subtract(scores, wanted, dtype=np.float64)
    return slopes, 0.5 * np.square(slopes).sum(axis=1)


def _weighted(
    slopes: NDArray[np.float64], values: NDArray[np.float64], weight: NDArray[np.float64], errors: int
) -> Slopes:
    if not len(weight):
        return Slopes(slopes, float(values.sum()), float(len(values)), errors)
    slopes *= weight[:, None]
    return Slopes(slopes, float((weight * values).sum()), float(weight.sum()), errors)


@kernel
def _class_slopes(scores, y, weight, loss, out):
    g = np.empty(scores.shape[1], scores.dtype)
    loss_sum, weight_sum, wrong = 0.0, 0.0, 0
    for i in range(len(y)):
        s = row_weight(weight, i)
        value, rival, best = row_slopes(loss, scores[i], 1.0, np.intp(y[i]), g)
        loss_sum, weight_sum, wrong = loss_sum + s * value, weight_sum + s, wrong + (best != y[i])
        if rival == SLOPES_IN_G:
            for c in range(len(g)):
                out[i, c] = s * g[c]
        else:
            add_slopes(s, rival, np.intp(y[i]), g, out[i])
    return loss_sum, weight_sum, wrong
