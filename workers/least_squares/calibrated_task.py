"""The tasks of calibrated least squares (Algorithm 2 of least squares revisited): two reads of the data a round.

What is kept for each row is ``ytilde`` of Eq. 18, the fit before its calibration: the calibration needs sums over
all rows, so that it is known only after the read that made them, and is applied by the next read. A round is

1. `residual_lane`: calibrate what is kept, and sum the products of the features with the residuals;
2. `calibration_lane`: calibrate what is kept, add the residual fit to it, keep that, and sum the products of its
   basis G with itself and with what is then left of the residuals.

The driver fits in between and after. `rebuild_lane` makes what is kept anew, with the same bits.
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
from distls.workers.losses.targets import slice_rows
from distls.workers.prediction.calibration import basis, calibrate
from distls.workers.rounds.block_stream import stream
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.row_weights import row_weights

__all__ = ["CalibratedJob", "FittedRound", "calibration_lane", "rebuild_lane", "residual_lane"]

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CalibratedJob:
    """What all lanes of a read share, but for weights."""

    block: BlockJob  # the features, and the stored predictions; its `version` counts the rounds added to them
    powers: tuple[int, ...]  # the basis G
    onto: str  # "simplex" or "cube": the set that a row's predictions lie in


class FittedRound(NamedTuple):
    """What a round has fitted."""

    fit: Block  # of the residuals, Eq. 18
    calibration: _Floats | None  # (len(powers) * k, k), Eq. 19; None before it is known


def residual_lane(job: CalibratedJob, calibration: _Floats | None, lane: Lane) -> BlockSums:
    """Sum the features' products, with each other if asked and with the slopes ``yhat - y``, over a lane.

    Parameters
    ----------
    calibration : float64 array or None
        Of the round before; None in the first one, whose predictions are zero.
    """

    def add(index: int, part: Partition, weight: _Floats, total: Moments, grams: GramSum) -> None:
        kept = _kept(job, index, part)
        for rows, piece in _pieces(part):
            values = _calibrated(job, kept[rows], calibration)
            add_rows(job.block, None, piece, weight[rows], values, total, grams)

    def zero(part: Partition) -> Moments:
        width = job.block.design.width(n_features_of(part.x, job.block.data))
        return Moments.zero(width, job.block.n_outputs, with_gram=job.block.with_gram)

    return _sum_lane(job, job.block, lane, zero, add)


def calibration_lane(job: CalibratedJob, start: FittedRound, lane: Lane) -> BlockSums:
    """Add a residual fit to the predictions of a lane, keep them, and sum the products of their basis.

    Parameters
    ----------
    start : FittedRound
        This round's fit, and the calibration of the round before.
    """
    # the basis takes the place of the features
    of_basis = replace(job.block, design=Design(), dtype="float64", with_gram=True)

    def add(index: int, part: Partition, weight: _Floats, total: Moments, grams: GramSum) -> None:
        kept = _kept(job, index, part)
        _advance(job, start, part, kept)
        RowState(str(job.block.state)).write(index, job.block.version + 1, kept)
        for rows, piece in _pieces(part):
            columns = Partition(DenseRows(basis(kept[rows], job.powers)), piece.y)
            add_rows(of_basis, None, columns, weight[rows], kept[rows], total, grams)

    def zero(part: Partition) -> Moments:
        return Moments.zero(len(job.powers) * job.block.n_outputs, job.block.n_outputs, with_gram=True)

    return _sum_lane(job, of_basis, lane, zero, add)


def rebuild_lane(job: CalibratedJob, rounds: list[FittedRound], lane: Lane) -> int:
    """Make what is kept for a lane anew where it is lost, as `calibration_lane` did; return how many were lost.

    Parameters
    ----------
    rounds : list of FittedRound
        All whose fits are in the predictions, each with the calibration of the round before it.
    """
    kept = RowState(str(job.block.state))
    lost = [index for index in lane.blocks if not kept.holds(index, job.block.version)]
    for index, part in stream(job.block.data, lost):
        values = _zeros(job, part)
        for fitted in rounds:
            _advance(job, fitted, part, values)
        kept.write(index, job.block.version, values)
    return len(lost)


def _kept(job: CalibratedJob, index: int, part: Partition) -> _Floats:
    """Return what is kept for a partition's rows, float64 of shape (n_rows, k): zeros before the first round."""
    if not job.block.version:
        return _zeros(job, part)
    shape = n_rows_of(part.x), job.block.n_outputs
    return RowState(str(job.block.state)).read(index, job.block.version, shape, np.float64)


def _zeros(job: CalibratedJob, part: Partition) -> _Floats:
    return np.zeros((n_rows_of(part.x), job.block.n_outputs))


def _calibrated(job: CalibratedJob, values: _Floats, calibration: _Floats | None) -> _Floats:
    return values if calibration is None else calibrate(values, calibration, job.powers, job.onto)


def _advance(job: CalibratedJob, start: FittedRound, part: Partition, values: _Floats) -> None:
    """Overwrite the fit of a round by that of the next one: calibrated, plus the fit of its residuals (Eq. 18)."""
    for rows, piece in _pieces(part):
        before = _calibrated(job, values[rows], start.calibration)
        np.add(before, start.fit.intercept, out=values[rows])
        for some, features in blocks(start.fit.design, piece.x, start.fit.weights.dtype):
            product = np.zeros((n_rows_of(features), job.block.n_outputs), start.fit.weights.dtype)
            add_scores(features, start.fit.weights, product)
            values[rows][some] += product


def _pieces(part: Partition) -> Iterator[tuple[slice, Partition]]:
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
    """Go through a lane's partitions; `add` adds one, with its row weights, to moments that start as `zero`.

    Parameters
    ----------
    summed : BlockJob
        Of what `add` adds.
    """
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
