"""Targets of a block of rows against scores: gradients, loss sums and errors, for every kind of target.

A row's target is a class (int32 codes), a set of labels (a `CsrRows` of codes) or numbers (float64, a column an
output). Classes and sets are predicted through their indicators: 1 at the row's class, or at each of its labels.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, DenseRows
from distls.workers.compilation.jit import kernel
from distls.workers.linear_algebra.score_kernels import row_weight
from distls.workers.losses.loss import GRADIENT_IN_G, LabelSets, Loss
from distls.workers.losses.loss_registry import loss_named
from distls.workers.losses.row_functions import has_row_function, row_gradient


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
        _weigh_gradients(runner_ups, y, weight, out)
        return ScoreGradients(out, *sums.totals())
    if isinstance(y, CsrRows):
        wanted = indicators(y, scores.shape[1])
        wrong = int(np.count_nonzero(wrong_sets(loss, scores, wanted)))
        return _weighted(*loss_named(loss).label_gradient(scores, label_sets(y), wanted), weight, wrong)
    return _weighted(*loss_named(loss).number_gradient(scores, y), weight, 0)


def moved_masses(loss: str, gradients: NDArray[Any], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums over rows of ``s m`` and of ``s (m + (1 - m) log(1 - m))``; zeros unless the loss is logistic.

    m is the probability mass that a gradient moves away from the row's class, of a sum over the outputs in each of
    them. Gradients (n_rows, k) are times the weights s, which are (0,) for all ones.
    """
    kind = loss_named(loss)
    if not kind.logistic:
        return np.zeros(2)
    sizes = np.abs(gradients)
    # what the class loses the others gain
    moved = sizes if kind.separable or kind.one_output else 0.5 * sizes.sum(axis=1, keepdims=True)
    own = weight[:, None] if len(weight) else np.ones((1, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        m = np.where(own > 0.0, moved / own, 0.0)
        # by rounding less than zero, where others have all mass
        curved = own * (m + np.where(m < 1.0, (1.0 - m) * np.log1p(-m), 0.0))
    return np.array([moved.sum(), curved.sum()])


def is_codes(y: Any) -> bool:
    """Return whether targets are classes, one a row."""
    return isinstance(y, np.ndarray) and y.ndim == 1


def indicators(y: CsrRows, k: int) -> NDArray[np.bool_]:
    """Return whether row i has label c, shape (n_rows, k)."""
    # Dense indicators: scores are dense too.
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
    # A ranking is right if the lowest own label is above the highest other.
    lowest = np.where(wanted, scores, np.inf).min(axis=1)
    return np.asarray(lowest <= np.where(wanted, -np.inf, scores).max(axis=1))


def slice_rows(block: Any, rows: slice) -> Any:
    """Return consecutive rows of a block of features or of targets, sharing its memory."""
    if isinstance(block, CsrRows):
        start, stop = rows.start, rows.stop
        first, last = block.indptr[start], block.indptr[stop]
        return CsrRows(block.indptr[start : stop + 1] - first, block.indices[first:last], block.data[first:last])
    return DenseRows(block.values[rows]) if isinstance(block, DenseRows) else block[rows]


def _weighted(
    gradients: NDArray[np.float64], values: NDArray[np.float64], weight: NDArray[np.float64], errors: int
) -> ScoreGradients:
    if not len(weight):
        return ScoreGradients(gradients, float(values.sum()), float(len(values)), errors)
    gradients *= weight[:, None]
    return ScoreGradients(gradients, float((weight * values).sum()), float(weight.sum()), errors)


# -- losses and errors of rows with classes -------------------------------------------------------------


NO_CLASSES = np.empty(0, np.int32)


class LossSums:
    """Sums over rows with classes, of one block or several."""

    def __init__(self) -> None:
        # sum_i s_i * loss_i and sum_i s_i over the rows whose class is known, and the rows predicted wrong
        self.values = np.zeros(3)

    def totals(self) -> tuple[float, float, int]:
        """Return the three sums."""
        return float(self.values[0]), float(self.values[1]), int(self.values[2])


def class_losses(
    loss: Loss,
    scores: NDArray[Any],
    y: NDArray[np.int32],
    weight: NDArray[np.float64],
    sums: LossSums,
    *,
    predicted: NDArray[np.int32] = NO_CLASSES,
    runner_ups: NDArray[np.int32] = NO_CLASSES,
    gradients: NDArray[np.float64] | None = None,
) -> None:
    """Add losses and errors of rows to `sums`.

    Parameters
    ----------
    scores : array of shape (n_rows, k)
    y : int32 array of shape (n_rows,)
        A negative code (a label unknown to the model) counts as an error and has no loss.
    weight : float64 array of shape (n_rows,), or (0,) for all ones
    predicted : int32 array of shape (n_rows,), filled with the class of the highest score; or (0,)
    runner_ups : int32 array of shape (n_rows,), filled with where each row's gradient is (see `row_gradient`); or (0,)
    gradients : float64 array of shape (n_rows, k), with `runner_ups`
        Filled with the unweighted gradients where the runner-up is `GRADIENT_IN_G`; other rows are left alone.
    """
    out = np.empty((0, scores.shape[1])) if gradients is None else gradients
    if not has_row_function(loss, "row_gradient"):
        _losses_by_arrays(loss, scores, y, weight, sums, predicted, runner_ups, out)
        return
    _class_losses(scores, y, weight, loss, sums.values, predicted, runner_ups, out)


def _losses_by_arrays(
    loss: Loss,
    scores: NDArray[Any],
    y: NDArray[np.int32],
    weight: NDArray[np.float64],
    sums: LossSums,
    predicted: NDArray[np.int32],
    runner_ups: NDArray[np.int32],
    gradients: NDArray[np.float64],
) -> None:
    """Do the same with the NumPy form of a loss that has no row function."""
    known, own = y >= 0, np.maximum(y, 0)
    best = scores.argmax(axis=1) if scores.shape[1] > 1 else scores[:, 0] > loss.threshold
    s = weight if len(weight) else np.ones(len(y))
    terms = np.where(known, s * loss.values(scores, own), 0.0)
    # one by one: the sum must not depend on where batches end
    sums.values[0] = np.add.accumulate(np.append(sums.values[0], terms))[-1]
    sums.values[1] = np.add.accumulate(np.append(sums.values[1], np.where(known, s, 0.0)))[-1]
    sums.values[2] += np.count_nonzero(best != y)
    if len(predicted):
        predicted[:] = best
    if len(runner_ups):
        runner_ups[:] = GRADIENT_IN_G
        gradients[: len(y)] = loss.gradient(scores, own)


@kernel
def _class_losses(scores, y, weight, loss, sums, predicted, runner_ups, gradients):
    g = np.empty(scores.shape[1], scores.dtype)
    loss_sum, weight_sum, wrong = sums[0], sums[1], 0
    for i in range(len(y)):
        # An unknown class is scored as class 0, and counted as an error below.
        value, runner_up, best = row_gradient(loss, scores[i], 1.0, max(np.intp(y[i]), 0), g)
        wrong += best != y[i]
        # Codes below zero are labels that the model does not know: no loss is defined.
        if y[i] >= 0:
            s = row_weight(weight, i)
            loss_sum += s * value
            weight_sum += s
        if len(predicted):
            predicted[i] = best
        if len(runner_ups):
            runner_ups[i] = runner_up
            if runner_up == GRADIENT_IN_G:
                for c in range(len(g)):
                    gradients[i, c] = g[c]
    sums[0], sums[1] = loss_sum, weight_sum
    sums[2] += wrong


def _weigh_gradients(
    runner_ups: NDArray[np.int32], y: NDArray[np.int32], weight: NDArray[np.float64], out: NDArray[np.float64]
) -> None:
    """Multiply gradients by the weights of their rows, and write those that are a pair into rows of zeros."""
    # Not a kernel: it would be compiled for what NumPy does as soon, beside the scores.
    pairs = np.flatnonzero((runner_ups != GRADIENT_IN_G) & (runner_ups != y))
    out[pairs, runner_ups[pairs]] = 1.0
    out[pairs, y[pairs]] = -1.0
    if len(weight):
        out *= weight[:, None]
