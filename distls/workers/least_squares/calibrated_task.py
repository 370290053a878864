"""The tasks of calibrated least squares (Algorithm 2 of least squares revisited): two reads of the data a round.

The state of each row is ``ytilde`` of Eq. 18, the fit before its calibration: the calibration needs sums over all rows,
so it is known only after the read that computed them, and applied by the next read. A round is

1. `residual_lane`: calibrate the state, and sum the products of the features with the residuals;
2. `calibration_lane`: calibrate the state, add the residual fit to it, store the sum, and sum the products of its
   basis G with itself and with the remaining residuals.

The driver fits in between and after. `rebuild_lane` recomputes lost state, with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import DenseRows, Partition, n_rows_of
from distls.storage.temporary.row_state import RowState
from distls.workers.features.design import PIECE_ROWS, Design, blocks
from distls.workers.least_squares.block_task import (
    Block,
    BlockJob,
    BlockSums,
    Moments,
    add_rows,
    finish_rows,
    gram_sum,
    n_features_of,
)
from distls.workers.linear_algebra.gram import GramSum, add_scores
from distls.workers.linear_algebra.score_kernels import scores
from distls.workers.losses.targets import slice_rows
from distls.workers.prediction.basis_functions import Basis
from distls.workers.prediction.calibration import calibrate
from distls.workers.rounds.block_stream import stream
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.row_weights import row_weights

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CalibratedJob:
    """The part of a read's input that all lanes share, except for weights."""

    block: BlockJob  # the features, and the stored predictions; its `version` counts the rounds added to them
    basis: Basis  # G
    onto: str  # "simplex" or "cube": the set that a row's predictions lie in


class FittedRound(NamedTuple):
    """The fit of a round."""

    fit: Block  # of the residuals, Eq. 18
    calibration: _Floats | None  # (basis.width(k), k), Eq. 19; None before it is known


def residual_lane(job: CalibratedJob, calibration: _Floats | None, lane: Lane) -> BlockSums:
    """Sum the products of the features with the residuals ``yhat - y``, and with each other if asked, over a lane.

    `calibration` is that of the round before; None in the first one, whose predictions are zero.
    """

    def add(index: int, part: Partition, weight: _Floats, total: Moments, grams: GramSum) -> None:
        fits = _stored_fits(job, index, part)
        for rows, batch in _batches(part):
            values = _calibrated(job, fits[rows], calibration)
            add_rows(job.block, None, batch, weight[rows], values, total, grams)

    def zero(part: Partition) -> Moments:
        width = job.block.design.width(n_features_of(part.x, job.block.data))
        return Moments.zero(width, job.block.n_outputs, with_gram=job.block.with_gram)

    return _sum_lane(job, job.block, lane, zero, add)


def calibration_lane(job: CalibratedJob, start: FittedRound, lane: Lane) -> BlockSums:
    """Add a residual fit to the predictions of a lane, store them, and sum the products of their basis.

    `start` has this round's fit, and the calibration of the round before.
    """
    # the basis takes the place of the features
    of_basis = replace(job.block, design=Design(), dtype="float64", with_gram=True)

    def add(index: int, part: Partition, weight: _Floats, total: Moments, grams: GramSum) -> None:
        fits = _stored_fits(job, index, part)
        _advance(job, start, part, fits)
        RowState(str(job.block.state)).write(index, job.block.version + 1, fits)
        for rows, batch in _batches(part):
            columns = Partition(DenseRows(job.basis.columns(fits[rows])), batch.y)
            add_rows(of_basis, None, columns, weight[rows], fits[rows], total, grams)

    def zero(part: Partition) -> Moments:
        return Moments.zero(job.basis.width(job.block.n_outputs), job.block.n_outputs, with_gram=True)

    return _sum_lane(job, of_basis, lane, zero, add)


def rebuild_lane(job: CalibratedJob, rounds: list[FittedRound], lane: Lane) -> int:
    """Recompute the lost state of a lane as `calibration_lane` did; return the number of lost partitions.

    `rounds` are all whose fits are in the predictions, each with the calibration of the round before it.
    """
    stored = RowState(str(job.block.state))
    lost = [index for index in lane.blocks if not stored.holds(index, job.block.version)]
    for index, part in stream(job.block.data, lost):
        values = _zeros(job, part)
        for fitted in rounds:
            _advance(job, fitted, part, values)
        stored.write(index, job.block.version, values)
    return len(lost)


def _stored_fits(job: CalibratedJob, index: int, part: Partition) -> _Floats:
    """Return the stored fits of a partition's rows, float64 of shape (n_rows, k): zeros before the first round."""
    if not job.block.version:
        return _zeros(job, part)
    shape = n_rows_of(part.x), job.block.n_outputs
    return RowState(str(job.block.state)).read(index, job.block.version, shape, np.float64)


def _zeros(job: CalibratedJob, part: Partition) -> _Floats:
    return np.zeros((n_rows_of(part.x), job.block.n_outputs))


def _calibrated(job: CalibratedJob, values: _Floats, calibration: _Floats | None) -> _Floats:
    return values if calibration is None else calibrate(values, calibration, job.basis, job.onto)


def _advance(job: CalibratedJob, start: FittedRound, part: Partition, values: _Floats) -> None:
    """Overwrite the fit of a round by that of the next one: calibrated, plus the fit of its residuals (Eq. 18)."""
    for rows, batch in _batches(part):
        before = _calibrated(job, values[rows], start.calibration)
        np.add(before, start.fit.intercept, out=values[rows])
        for some, features in blocks(start.fit.design, batch.x, start.fit.weights.dtype):
            product = np.zeros((n_rows_of(features), job.block.n_outputs), start.fit.weights.dtype)
            add_scores(features, start.fit.weights, product)
            values[rows][some] += product


def _batches(part: Partition) -> Iterator[tuple[slice, Partition]]:
    """Yield (rows, their part of a partition), a fixed number of rows at a time."""
    n_rows = n_rows_of(part.x)
    for first in range(0, n_rows, PIECE_ROWS):
        rows = slice(first, min(first + PIECE_ROWS, n_rows))
        yield rows, Partition(slice_rows(part.x, rows), slice_rows(part.y, rows))


def _sum_lane(
    job: CalibratedJob,
    summed: BlockJob,
    lane: Lane,
    zero: Callable[[Partition], Moments],
    add: Callable[[int, Partition, _Floats, Moments, GramSum], None],
) -> BlockSums:
    """Sum a lane's partitions: `add`, whose job is `summed`, adds one to moments that start as `zero`."""
    total: list[Moments] = []
    grams: list[GramSum] = []
    with Ledger.of_task() as ledger:
        for index, part in stream(job.block.data, lane.blocks, ledger):
            with ledger.in_kernels():
                if not total:
                    total = [zero(part)]
                    grams = [gram_sum(summed, total[0], len(total[0].cross))]
                add(index, part, row_weights(part, job.block.class_weight), total[0], grams[0])
        for moments, pending in zip(total, grams, strict=True):
            finish_rows(summed, moments, pending)
        return BlockSums.of(total, lane, ledger)


def warm_up_powers(dtype: str) -> None:
    """Compile the kernel of the products of powers, or load it from the disk cache, on a single row."""
    scores(DenseRows(np.zeros((1, 1), dtype)), np.zeros((1, 2), dtype), np.zeros(2), np.zeros((1, 2), dtype))
