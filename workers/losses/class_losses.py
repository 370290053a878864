"""Losses, errors and gradients of rows with classes, from their scores: the loss-dependent part of an evaluation."""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import kernel
from distls.workers.linear_algebra.score_kernels import row_weight
from distls.workers.losses.loss import Loss
from distls.workers.losses.row_functions import GRADIENT_IN_G, has_row_function, row_gradient

__all__ = ["NO_CLASSES", "LossSums", "class_losses", "weigh_gradients"]

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
    known, own, best = y >= 0, np.maximum(y, 0), scores.argmax(axis=1)
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
        value, runner_up, best = row_gradient(loss, scores[i], 1.0, max(np.intp(y[i]), 0), g)
        wrong += best != y[i]
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


@kernel
def weigh_gradients(runner_ups, y, weight, out):
    """Multiply gradients by the weights of their rows, and write those that are a pair into rows of zeros."""
    for i in range(len(runner_ups)):
        s = row_weight(weight, i)
        if runner_ups[i] == GRADIENT_IN_G:
            for c in range(out.shape[1]):
                out[i, c] = s * out[i, c]
        elif runner_ups[i] != y[i]:
            out[i, runner_ups[i]] += s
            out[i, y[i]] -= s
