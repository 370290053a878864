"""The tasks of calibrated least squares (Algorithm 2 of least squares revisited): two reads of the data a round.

The state of each row is ``ytilde`` of Eq. 18, the fit before its calibration: the calibration needs sums over all rows,
so it is known only after the read that computed them, and applied by the next read. A round is

1. `ResidualFit`: calibrate the state, and sum the products of the features with the residuals;
2. `CalibrationFit`: calibrate the state, add the residual fit to it, store the sum, and sum the products of its
   basis G with itself and with the remaining residuals.

The driver fits in between and after. `Rebuild` recomputes lost state, with the same bits.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import DenseRows, Partition, n_rows_of
from distls.storage.temporary.row_state import RowState
from distls.workers.features.design import PIECE_ROWS, Design, blocks
from distls.workers.least_squares.block_task import (
    Block,
    BlockSums,
    BlockTask,
    Moments,
    ReplayTask,
    SumsTask,
    add_rows,
    finish_rows,
    gram_sum,
    n_features_of,
)
from distls.workers.linear_algebra.gram import GramSum, add_scores
from distls.workers.losses.targets import slice_rows
from distls.workers.prediction.basis_functions import Basis
from distls.workers.prediction.calibration import calibrate
from distls.workers.rounds.row_weights import row_weights
from distls.workers.rounds.task import Task

_Floats = NDArray[np.float64]


class FittedRound(NamedTuple):
    """The fit of a round."""

    fit: Block  # of the residuals, Eq. 18
    calibration: _Floats | None  # (basis.width(k), k), Eq. 19; None before it is known


@dataclass(eq=False)
class CalibratedTask(Task):
    """Base of the tasks of a round."""

    block: BlockTask  # the features, and the stored predictions; its `version` counts the rounds added to them
    basis: Basis  # G
    onto: str  # "simplex" or "cube": the set that a row's predictions lie in

    def __post_init__(self) -> None:
        self.data = self.block.data

    def _stored_fits(self, index: int, part: Partition) -> _Floats:
        """Return a partition's stored fits, float64 of shape (n_rows, k): zeros before the first round."""
        shape = n_rows_of(part.x), self.block.n_outputs
        if not self.block.version:
            return np.zeros(shape)
        return RowState(self.block.state or "").read(index, self.block.version, shape, np.float64)

    def _calibrated(self, values: _Floats, calibration: _Floats | None) -> _Floats:
        return values if calibration is None else calibrate(values, calibration, self.basis, self.onto)

    def _advance(self, start: FittedRound, part: Partition, values: _Floats) -> None:
        """Overwrite the fit of a round by that of the next one: calibrated, plus the fit of its residuals (Eq. 18)."""
        for rows, batch in _batches(part):
            # In batches of fixed size, so products do not depend on the partition's length.
            before = self._calibrated(values[rows], start.calibration)
            np.add(before, start.fit.intercept, out=values[rows])
            for some, features in blocks(start.fit.design, batch.x, start.fit.weights.dtype):
                product = np.zeros((n_rows_of(features), self.block.n_outputs), start.fit.weights.dtype)
                add_scores(features, start.fit.weights, product)
                values[rows][some] += product


class _Fit(SumsTask, CalibratedTask):
    def _begin(self, summed: BlockTask, width: int) -> GramSum:
        """Return the pending sums of rows of a width, as `summed` says."""
        if not self.total.folds:
            total = Moments.zero(width, self.block.n_outputs, with_gram=summed.with_gram)
            self.total.folds.append(total)
            self._summed, self._grams = summed, gram_sum(summed, total, width)
        return self._grams

    def result(self) -> BlockSums:
        for total in self.total.folds:
            finish_rows(self._summed, total, self._grams)
        return super().result()


class ResidualFit(_Fit):
    """Sums the products of the features with the residuals ``yhat - y``, and with each other if asked.

    Shared is the calibration of the round before; None in the first one, whose predictions are zero.
    """

    def add(self, index: int, part: Partition) -> None:
        with self.ledger.in_kernels():
            grams = self._begin(self.block, self.block.design.width(n_features_of(part.x, self.data)))
            weight, fits = row_weights(part, self.block.class_weight), self._stored_fits(index, part)
            for rows, batch in _batches(part):
                values = self._calibrated(fits[rows], self.shared)
                add_rows(self.block, None, batch, weight[rows], values, self.total.folds[0], grams)


class CalibrationFit(_Fit):
    """Adds a residual fit to the predictions, stores them, and sums the products of their basis.

    Shared is a `FittedRound`: this round's fit, and the calibration of the round before.
    """

    def add(self, index: int, part: Partition) -> None:
        with self.ledger.in_kernels():
            # the basis takes the place of the features
            of_basis = replace(self.block, design=Design(), dtype="float64", with_gram=True)
            grams = self._begin(of_basis, self.basis.width(self.block.n_outputs))
            weight, fits = row_weights(part, self.block.class_weight), self._stored_fits(index, part)
            self._advance(self.shared, part, fits)
            RowState(self.block.state or "").write(index, self.block.version + 1, fits)
            for rows, batch in _batches(part):
                columns = Partition(DenseRows(self.basis.columns(fits[rows])), batch.y)
                add_rows(of_basis, None, columns, weight[rows], fits[rows], self.total.folds[0], grams)


class Rebuild(CalibratedTask, ReplayTask):
    """Recomputes lost predictions as `CalibrationFit` made them.

    Shared are all rounds whose fits are in the predictions, each with the calibration of the round before it.
    """

    def replayed(self, part: Partition, values: NDArray[Any]) -> _Floats:
        """See `ReplayTask.replayed`; what is kept is float64 whatever the features are."""
        values = values.astype(np.float64)
        for fitted in self.shared:
            self._advance(fitted, part, values)
        return values


def _batches(part: Partition) -> Iterator[tuple[slice, Partition]]:
    """Yield (rows, their part of a partition), a fixed number of rows at a time."""
    n_rows = n_rows_of(part.x)
    # The calibration is applied to a few rows at a time: basis functions are several times as wide.
    for first in range(0, n_rows, PIECE_ROWS):
        rows = slice(first, min(first + PIECE_ROWS, n_rows))
        yield rows, Partition(slice_rows(part.x, rows), slice_rows(part.y, rows))
