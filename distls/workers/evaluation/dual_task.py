"""The task that evaluates a dual point: its conjugates, and the rows times its duals, from which the dual follows.

The dual is that of SDCA (Shalev-Shwartz and Zhang 2013), as `distls.dual_problem` has it.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, DenseRows, Partition, Rows, n_rows_of
from distls.workers.duals.dual_domains import Balance, feasible
from distls.workers.duals.stored_duals import DualPoint, numeric_targets, write_duals
from distls.workers.evaluation.loss_sums import evaluate_rows
from distls.workers.linear_algebra.gram import add_cross
from distls.workers.losses.loss import Loss
from distls.workers.losses.loss_registry import loss_named
from distls.workers.losses.targets import NO_CLASSES, indicators, is_codes, label_sets, score_gradients, slice_rows
from distls.workers.prediction.predictor import LinearPredictor, linear_view, score_pieces
from distls.workers.rounds.block_stream import DatasetRef, open_ref
from distls.workers.rounds.ledger import Ledger, add_sums
from distls.workers.rounds.row_weights import row_weights
from distls.workers.rounds.task import Task
from distls.workers.runtime.process import single_threaded_blas

_PIECE_ROWS = 1024  # rows whose duals are worked on at a time


@dataclass(frozen=True, eq=False)
class DualStart:
    """Weights that a read of the data takes."""

    judged: LinearPredictor | None = None  # whose losses are summed
    at: LinearPredictor | None = None  # with an output for each dual, from which duals are made anew


@dataclass
class DualSum:
    """Sums over rows."""

    image: NDArray[np.float64]  # of s_i x_i a_i^T, shape (n_features, k)
    up: NDArray[np.float64]  # of s_i max(a_i, 0), shape (k,), and of s_i max(-a_i, 0)
    down: NDArray[np.float64]
    conjugate_sum: float = 0.0  # of s_i * conjugate_i
    loss_sum: float = 0.0  # of s_i * loss_i of the judged predictor
    weight_sum: float = 0.0
    ledger: Ledger = field(default_factory=Ledger)
    shared_sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # of `DualTask.shares`


@dataclass(eq=False)
class DualTask(Task):
    """Evaluates a dual point, from a `DualStart`; new duals are stored as the point's version of their partition."""

    data: DatasetRef
    class_weight: NDArray[np.float64] | None
    duals: DualPoint
    balance: Balance | None = None  # applied to the duals before they are summed
    # partitions whose duals are made and stored: those of `source`, or the negative gradients at `DualStart.at`
    renewed: frozenset[int] = frozenset()
    source: DualPoint | None = None
    shares: tuple[float, ...] = ()  # multiples of the duals whose conjugates are summed too

    def start(self) -> None:
        # The image in float64: rows times duals cancel near the optimum.
        width, k = open_ref(self.data).meta.n_features, self.duals.n_outputs
        self.total = DualSum(np.zeros((width, k)), np.zeros(k), np.zeros(k))
        self.total.shared_sums = np.zeros(len(self.shares))

    def add(self, index: int, part: Partition) -> None:
        weight, judged = row_weights(part, self.class_weight), self.shared.judged
        self.total.weight_sum += float(weight.sum()) if len(weight) else n_rows_of(part.x)
        with single_threaded_blas():
            if judged is not None:
                self.total.loss_sum += _losses(self.duals.loss, judged, part, weight)
            self._add_duals(part, weight, self._duals_of(index, part))

    def _duals_of(self, index: int, part: Partition) -> NDArray[Any]:
        """Return a partition's stored duals, or make and store them."""
        if index not in self.renewed:
            return self.duals.read(index, n_rows_of(part.x))
        if self.source is not None:
            made = self.source.read(index, n_rows_of(part.x))
        else:
            made = _from_gradients(self.duals, self.shared.at, part)
        # Stored at once: a later round reads them as if they had come from a round.
        write_duals(self.duals.folder, index, int(self.duals.versions[index]), made)
        return made

    def _add_duals(self, part: Partition, weight: NDArray[np.float64], stored: NDArray[Any]) -> None:
        """Add the conjugates of a partition's rows at their duals, and the rows times these."""
        total, form, targets = self.total, self.duals.form, numeric_targets(part.y, self.duals.n_outputs)
        # Pieces of fixed size: sums round alike on every worker.
        for first in range(0, len(stored), _PIECE_ROWS):
            rows = slice(first, min(first + _PIECE_ROWS, len(stored)))
            y = targets[rows]
            # Stored duals are rounded, and may be outside of the domain by that much.
            duals = feasible(form.dual_domain, stored[rows], y)
            if self.balance is not None:
                duals = self.balance(duals, y)
            values = form.conjugate(duals, y)
            for place, share in enumerate(self.shares):
                smaller = form.conjugate(duals * share, y)
                total.shared_sums[place] += float((smaller * weight[rows] if len(weight) else smaller).sum())
            if len(weight):
                # Weighted once, for all of the sums that follow.
                values, duals = values * weight[rows], duals * weight[rows][:, None]
            total.conjugate_sum += float(values.sum())
            # Both sides apart, since balancing scales them separately.
            total.up += np.maximum(duals, 0.0).sum(axis=0)
            total.down += np.maximum(-duals, 0.0).sum(axis=0)
            add_cross(in_float64(slice_rows(part.x, rows)), duals, total.image)

    @staticmethod
    def merge(left: DualSum, right: DualSum) -> DualSum:
        """Add two sums, reusing the memory of `left`."""
        return add_sums(left, right, "image")


def _losses(loss: str, predictor: LinearPredictor, part: Partition, weight: NDArray[np.float64]) -> float:
    if is_codes(part.y):
        x, weights, intercept = linear_view(predictor, part.x)
        # Scores and losses in one kernel, without holding the scores.
        return evaluate_rows(x, part.y, weight, loss_named(loss), weights, intercept, NO_CLASSES)[0]
    pieces = score_pieces(predictor, part.x)
    return sum(score_gradients(loss, z, slice_rows(part.y, rows), weight[rows]).loss_sum for rows, z in pieces)


def _from_gradients(point: DualPoint, at: LinearPredictor | None, part: Partition) -> NDArray[Any]:
    """Return the negative gradients of a partition's rows, which are in the domain of duals."""
    assert at is not None
    made = np.empty((n_rows_of(part.x), point.n_outputs), point.dtype)
    for rows, z in score_pieces(at, part.x):
        # In float64, so that the gradients are exactly in the domain after `feasible`.
        made[rows] = -slopes_of(point.form, z.astype(np.float64), slice_rows(part.y, rows))[0]
    return made


def slopes_of(form: Loss, z: NDArray[np.float64], y: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the gradients (n, k) in the scores, and the losses (n,), of rows with targets of any kind."""
    if is_codes(y):
        return np.asarray(form.gradient(z, y), np.float64), np.asarray(form.values(z, y), np.float64)
    if isinstance(y, CsrRows):
        return form.label_gradient(z, label_sets(y), indicators(y, z.shape[1]))
    return form.number_gradient(z, y)


def in_float64(x: Rows) -> Rows:
    """Return dense rows in float64: their products with duals cancel near the optimum."""
    return x if isinstance(x, CsrRows) else DenseRows(x.values.astype(np.float64, copy=False))
