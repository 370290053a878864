"""The task that sums the exact objective over rows, with its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import DenseRows, Partition, Rows
from distls.workers.evaluation.loss_sums import add_gradient, add_gradients, evaluate_rows
from distls.workers.linear_algebra.gram import add_cross, exact_column_sums
from distls.workers.linear_algebra.row_vectors import most_paired
from distls.workers.losses.loss import Loss
from distls.workers.losses.loss_registry import loss_named
from distls.workers.losses.targets import NO_CLASSES, is_codes, score_gradients, slice_rows
from distls.workers.prediction.predictor import LinearPredictor, linear_view, score_pieces
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.ledger import Ledger, add_sums
from distls.workers.rounds.row_weights import row_weights
from distls.workers.rounds.task import Task

_PRODUCT_ROWS = 1024  # dense rows that are copied to float64 at a time


@dataclass
class GradientSum:
    """Sums over rows of s_i * loss_i, s_i and s_i * gradient_i."""

    loss_sum: float
    weight_sum: float
    gradient: NDArray[np.float64]  # (n_features, n_outputs), or (0, n_outputs) without gradient
    intercept_gradient: NDArray[np.float64]  # (n_outputs,)
    ledger: Ledger = field(default_factory=Ledger)
    # (n_features,), of s_i * x_i, or (0,)
    rows: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))


@dataclass(eq=False)
class GradientTask(Task):
    """The training objective's data term at given weights; its gradient only for a plain linear model."""

    data: DatasetRef
    loss: str
    class_weight: NDArray[np.float64] | None  # as in `TrainTask`
    with_gradient: bool  # False: the loss alone
    with_rows: bool = False  # whether rows are added up too

    shares_reads = True

    def start(self) -> None:
        self._together: tuple[_GradientsTogether, int] | None = None
        shape = self.shared.coefficients.shape
        gradient = np.zeros(shape if self.with_gradient else (0, shape[1]))
        rows = np.zeros(shape[0] if self.with_rows else 0)
        self.total = GradientSum(0.0, 0.0, gradient, np.zeros(shape[1]), self.ledger, rows)

    def _kind(self) -> tuple[Any, ...] | None:
        """Return what tasks must have in common to be done together; None where this one cannot be."""
        shape, dtype = self.shared.coefficients.shape, self.shared.coefficients.dtype
        # Only rows of equal shape, type and data can be summed in one kernel, with the bits that each has alone.
        if self.shared.recipe or not self.with_gradient or not 2 <= shape[1] <= most_paired(dtype):
            return None
        by_class = None if self.class_weight is None else self.class_weight.tobytes()
        return self.data, self.loss, by_class, dtype, shape

    def add(self, index: int, part: Partition) -> None:
        total, weight = self.total, row_weights(part, self.class_weight)
        # The first reading that is given a partition sums for all; the others look the result up.
        if self._together is not None and is_codes(part.y):
            group, number = self._together
            loss_sum, weight_sum = group.sums(index, part, weight)[number]
        else:
            add = self._add_classes if is_codes(part.y) else self._add_others
            loss_sum, weight_sum = add(part, weight)
        total.loss_sum += loss_sum
        total.weight_sum += weight_sum
        if self.with_rows:
            given = weight if len(weight) else None
            total.rows += exact_column_sums(part.x, given, len(total.rows))

    def _add_classes(self, part: Partition, weight: NDArray[np.float64]) -> tuple[float, float]:
        """Add the gradient of rows with classes if asked for; return the sums of losses and of weights."""
        x, weights, intercept = linear_view(self.shared, part.x)
        given = x, part.y, weight, loss_named(self.loss), weights, intercept
        if self.with_gradient:
            return add_gradient(*given, self.total.gradient, self.total.intercept_gradient)[:2]
        return evaluate_rows(*given, NO_CLASSES)[:2]

    def _add_others(self, part: Partition, weight: NDArray[np.float64]) -> tuple[float, float]:
        """Do the same for rows with sets of labels or with numbers, batch by batch."""
        loss_sum, weight_sum = 0.0, 0.0
        for rows, values in score_pieces(self.shared, part.x):
            found = score_gradients(self.loss, values, slice_rows(part.y, rows), weight[rows])
            loss_sum += found.loss_sum
            weight_sum += found.weight_sum
            if self.with_gradient:
                _add_products(slice_rows(part.x, rows), found.values, self.total.gradient)
                self.total.intercept_gradient += found.values.sum(axis=0)
        return loss_sum, weight_sum

    def result(self) -> GradientSum:
        total: GradientSum = self.total
        if self._together is not None:
            group, number = self._together
            total.gradient += group.gradient(number)
            total.intercept_gradient += group.intercept_gradient[number]
        return total

    @classmethod
    def introduce(cls, tasks: Sequence[GradientTask]) -> None:
        """Have tasks that differ in their weights alone share the work on every row."""
        groups: dict[Any, list[GradientTask]] = {}
        for task in tasks:
            kind = task._kind()
            if kind is not None:
                groups.setdefault(kind, []).append(task)
        for group in groups.values():
            # One model alone has its own kernel.
            if len(group) > 1:
                together = _GradientsTogether(loss_named(group[0].loss), [task.shared for task in group])
                for number, task in enumerate(group):
                    task._together = together, number

    @staticmethod
    def merge(left: GradientSum, right: GradientSum) -> GradientSum:
        """Add two sums, reusing the memory of `left`."""
        return add_sums(left, right, "gradient", "intercept_gradient")


class _GradientsTogether:
    """Sums of models side by side, which the first to be given a partition adds for all."""

    def __init__(self, loss: Loss, predictors: Sequence[LinearPredictor]) -> None:
        self._loss, self._k = loss, len(predictors[0].intercept)
        self._weights = np.concatenate([predictor.coefficients for predictor in predictors], axis=1)
        self._intercept = np.stack([predictor.intercept for predictor in predictors])
        self._gradient = np.zeros(self._weights.shape)
        self.intercept_gradient = np.zeros(self._intercept.shape)
        self._index, self._sums = -1, list[tuple[float, float]]()

    def sums(self, index: int, part: Partition, weight: NDArray[np.float64]) -> list[tuple[float, float]]:
        """Return each model's sums of losses and of weights over a partition."""
        # All readings are given the same partition before the next one.
        if index != self._index:
            arrays = self._weights, self._intercept, self._gradient, self.intercept_gradient
            sums = add_gradients(part.x, part.y, weight, self._loss, *arrays)
            self._index, self._sums = index, [each[:2] for each in sums]
        return self._sums

    def gradient(self, number: int) -> NDArray[np.float64]:
        """Return the gradient of a model."""
        return self._gradient[:, number * self._k : (number + 1) * self._k]


def joint_gradient_bytes(shape: tuple[int, int], dtype: np.dtype[Any], models: int) -> int:
    """Return the bytes that gradients of so many models together take beside the result of each."""
    if models < 2 or not 2 <= shape[1] <= most_paired(dtype):
        return 0
    # weights and gradients of all, and where each feature's values of a batch end
    return shape[0] * (models * shape[1] * (dtype.itemsize + 8) + 4)


def _add_products(x: Rows, residual: NDArray[np.float64], gradient: NDArray[np.float64]) -> None:
    """Add ``sum_i x_i g_i^T`` to `gradient`, the rows g_i of `residual` times their weights."""
    if not isinstance(x, DenseRows):
        add_cross(x, residual, gradient)
        return
    for first in range(0, len(x.values), _PRODUCT_ROWS):  # in float64: near the optimum the products cancel
        rows = slice(first, first + _PRODUCT_ROWS)
        add_cross(DenseRows(x.values[rows].astype(np.float64, copy=False)), residual[rows], gradient)
