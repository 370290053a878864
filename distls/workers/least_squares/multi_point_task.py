"""Tasks of generalized least squares: several weight matrices at one read, and the Gram matrix in another basis.

Reading and decoding cost more than products with a few more columns, so a round that needs the loss at one point and
the gradient at the next gets both from one read, and so do all points of a regularization path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from distls.storage.rows import DenseRows, Partition, Rows, n_rows_of
from distls.workers.evaluation.loss_sums import add_gradient, evaluate_rows
from distls.workers.features.design import PIECE_ROWS, Design, blocks
from distls.workers.least_squares.block_task import BlockSums, Moments, n_features_of
from distls.workers.linear_algebra.gram import GramSum, add_cross, add_scores
from distls.workers.losses.loss_registry import LOSSES
from distls.workers.losses.targets import NO_CLASSES, ScoreGradients, score_gradients, slice_rows
from distls.workers.rounds.block_stream import DatasetRef, stream
from distls.workers.rounds.kernel_types import KernelTypes, one_row
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.row_weights import fold_of, row_weights

# scores of rows at all points that are computed at a time, in batches of at least PIECE_ROWS rows
SCORES = 2**21
# Largest share of nonzero rows of weights that are sent without the others.
_MOST_NONZERO = 0.25


@dataclass(frozen=True)
class PointJob:
    """The part of a round's input that all lanes share, except for weights."""

    data: DatasetRef
    loss: str  # full loss name
    n_outputs: int
    dtype: str  # of features, products and scores
    class_weight: NDArray[np.float64] | None = None  # (n_classes,), as in `StochasticJob`
    folds: int = 1  # consecutive slices of each partition's rows, of which a point may leave out one


class StackedWeights(NamedTuple):
    """Weight matrices, side by side."""

    # (n_features, p * k); with a basis (m, k), the constant column's weights first if there is one
    weights: NDArray[np.float64]
    intercept: NDArray[np.float64]  # (p * k,); zero with a basis
    # (m, m), upper triangular: rows, with a leading one if m is n_features + 1, are multiplied by its inverse
    basis: NDArray[np.float64] | None = None
    # for each point the fold that is left out of loss and gradient and scores the point; -1: none
    held_out: tuple[int, ...] = ()
    losses_only: int = 0  # for the first `losses_only` points only losses are summed, no products


class SparsePoints(NamedTuple):
    """`StackedWeights` with few nonzero rows, as a round sends them."""

    columns: NDArray[np.int64]  # (c,): the rows that are not zero
    values: NDArray[np.float64]  # (c, p * k)
    n_features: int
    intercept: NDArray[np.float64]
    losses_only: int

    @classmethod
    def of(cls, points: StackedWeights) -> SparsePoints | None:
        """Return the same points, or None if too many rows are nonzero for this to be worth a copy in each task."""
        columns = np.flatnonzero(points.weights.any(axis=1))
        if len(columns) > _MOST_NONZERO * len(points.weights):
            return None
        return cls(
            columns, points.weights[columns], len(points.weights), points.intercept, points.losses_only
        )

    def stacked(self) -> StackedWeights:
        """Return all rows."""
        weights = np.zeros((self.n_features, self.values.shape[1]))
        weights[self.columns] = self.values
        return StackedWeights(weights, self.intercept, losses_only=self.losses_only)


@dataclass
class PointMoments(Moments):
    """Sums at p points: products and gradients of all of them side by side; rows, errors and loss of the first."""

    # (p,): ``sum_i s_i loss_i`` at each point, without its held-out fold
    losses: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    # (p,): the same over the held-out fold
    held_losses: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    # (p,): rows of the held-out fold that are predicted wrong
    wrong: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    # (folds,): ``sum_i s_i`` of each fold
    fold_weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))

    def add(self, other: Moments) -> None:
        """Add the sums over other rows."""
        assert isinstance(other, PointMoments)
        super().add(other)
        for name in ("losses", "held_losses", "wrong", "fold_weights"):
            getattr(self, name).__iadd__(getattr(other, name))


def point_lane(job: PointJob, given: StackedWeights | SparsePoints, lane: Lane) -> BlockSums:
    """Sum loss and gradient at all points over one lane's partitions, as `PointMoments`."""
    points = given.stacked() if isinstance(given, SparsePoints) else given

    def start(width: int) -> list[Moments]:
        return [_zero_points(width, points, job)]

    dtype = np.dtype(job.dtype)
    sent = points._replace(
        weights=points.weights.astype(dtype, copy=False), intercept=points.intercept.astype(dtype)
    )

    def add(part: Partition, weight: NDArray[np.float64], total: list[Moments]) -> None:
        for fold, rows in _batches(n_rows_of(part.x), job.folds, points.weights.shape[1]):
            x, y, s = slice_rows(part.x, rows), slice_rows(part.y, rows), weight[rows]
            for batch, features in blocks(Design(), x, dtype):
                _add_points(job, sent, fold, features, slice_rows(y, batch), s[batch], total[0])

    return _reduced(job, lane, start, add)


def _batches(n_rows: int, folds: int, n_columns: int) -> Iterator[tuple[int, slice]]:
    """Yield (fold, rows) with about `SCORES` scores each."""
    step = max(SCORES // (n_columns * PIECE_ROWS), 1) * PIECE_ROWS
    for fold in range(folds):
        rows = fold_of(n_rows, fold, folds)
        for first in range(rows.start, rows.stop, step):
            yield fold, slice(first, min(first + step, rows.stop))


def basis_lane(job: PointJob, points: StackedWeights, lane: Lane) -> BlockSums:
    """Sum the Gram matrix and the gradient in the points' basis, in float64 whatever `dtype` is."""
    assert points.basis is not None
    basis, zero = points.basis, Moments.zero(len(points.basis), job.n_outputs, with_gram=True)
    grams = GramSum(zero.gram)

    def start(width: int) -> list[Moments]:
        return [zero]

    def add(part: Partition, weight: NDArray[np.float64], total: list[Moments]) -> None:
        for batch, rows in _transformed(part.x, basis, n_features_of(part.x, job.data)):
            s, (moments,) = weight[batch], total
            found = score_gradients(job.loss, rows.values @ points.weights, slice_rows(part.y, batch), s)
            add_cross(rows, found.values, moments.cross)
            grams.add(rows, s if len(s) else None)
            _add_totals(found, n_rows_of(rows), moments)

    sums = _reduced(job, lane, start, add)
    grams.flush()
    return sums


def sigma_lane(job: PointJob, points: StackedWeights, lane: Lane) -> BlockSums:
    """Sum the loss at the first point, and the rows times their products with all other columns of the weights.

    So the sums hold Sigma V for the columns V: ``cross`` is ``sum_i s_i x_i (x_i^T V + v_0)`` and ``slopes`` is
    ``sum_i s_i (x_i^T V + v_0)``, with v_0 the columns' intercepts.
    """
    k = job.n_outputs

    def start(width: int) -> list[Moments]:
        return [Moments.zero(width, points.weights.shape[1] - k, with_gram=False)]

    def add(part: Partition, weight: NDArray[np.float64], total: list[Moments]) -> None:
        (moments,) = total
        for _, rows in _batches(n_rows_of(part.x), 1, points.weights.shape[1]):
            x, s = slice_rows(part.x, rows), weight[rows]
            for batch, features in blocks(Design(), x, np.dtype(np.float64)):
                scores = np.tile(points.intercept, (n_rows_of(features), 1))
                add_scores(features, points.weights, scores)
                y, own = slice_rows(slice_rows(part.y, rows), batch), s[batch]
                here = score_gradients(job.loss, np.ascontiguousarray(scores[:, :k]), y, own)
                _add_totals(here, len(scores), moments)
                products = scores[:, k:] * own[:, None] if len(own) else np.ascontiguousarray(scores[:, k:])
                add_cross(features, products, moments.cross)
                moments.slopes += products.sum(axis=0)

    return _reduced(job, lane, start, add)


def _reduced(
    job: PointJob,
    lane: Lane,
    start: Callable[[int], list[Moments]],
    add: Callable[[Partition, NDArray[np.float64], list[Moments]], None],
) -> BlockSums:
    """Read a lane's partitions once and add each to the sums that `start` makes for rows of a width."""
    total: list[Moments] = []
    with Ledger.of_task() as ledger:
        for _, part in stream(job.data, lane.blocks, ledger):
            with ledger.in_kernels():
                total = total or start(n_features_of(part.x, job.data))
                add(part, row_weights(part, job.class_weight), total)
        return BlockSums.of(total, lane, ledger)


def _zero_points(width: int, points: StackedWeights, job: PointJob) -> PointMoments:
    n_columns = points.weights.shape[1]
    p = n_columns // job.n_outputs
    zero = Moments.zero(width, n_columns - points.losses_only * job.n_outputs, with_gram=False)
    own = {"losses": np.zeros(p), "held_losses": np.zeros(p), "wrong": np.zeros(p, np.int64)}
    return PointMoments(**vars(zero) | own | {"fold_weights": np.zeros(job.folds)})


def _add_points(
    job: PointJob,
    points: StackedWeights,
    fold: int,
    features: Rows,
    y: Any,
    weight: NDArray[np.float64],
    moments: Moments,
) -> None:
    """Add the sums of a batch: one product with all weights, gradients by point, one product with all gradients."""
    assert isinstance(moments, PointMoments)
    scores = np.tile(points.intercept, (n_rows_of(features), 1))
    add_scores(features, points.weights, scores)
    gradients = np.zeros((len(scores), len(moments.slopes)))
    for point in range(len(moments.losses)):
        own = slice(point * job.n_outputs, (point + 1) * job.n_outputs)
        here = score_gradients(job.loss, np.ascontiguousarray(scores[:, own]), y, weight)
        if points.held_out and points.held_out[point] == fold:
            moments.held_losses[point] += here.loss_sum
            moments.wrong[point] += here.errors
        else:
            place = (point - points.losses_only) * job.n_outputs
            if place >= 0:  # points before the first have losses alone
                gradients[:, place : place + job.n_outputs] = here.values
            moments.losses[point] += here.loss_sum
        if point == 0:
            _add_totals(here, len(scores), moments)
            moments.fold_weights[fold] += here.weight_sum
    add_cross(features, gradients, moments.cross)
    moments.slopes += gradients.sum(axis=0)


def _add_totals(found: ScoreGradients, n_rows: int, moments: Moments) -> None:
    moments.loss_sum += found.loss_sum
    moments.weight_sum += found.weight_sum
    moments.errors += found.errors
    moments.n_rows += n_rows


def _transformed(x: Rows, basis: NDArray[np.float64], n_features: int) -> Iterator[tuple[slice, DenseRows]]:
    """Yield batches of rows times the basis's inverse, with a leading one if the basis is wider than they are."""
    for first in range(0, n_rows_of(x), PIECE_ROWS):
        batch = slice(first, min(first + PIECE_ROWS, n_rows_of(x)))
        rows = np.zeros((batch.stop - batch.start, len(basis)))
        rows[:, : len(basis) - n_features] = 1.0
        _copy(slice_rows(x, batch), rows[:, len(basis) - n_features :])
        # q = B^-T z for each row z; LAPACK sees C-ordered rows as the transpose, so that it solves in place
        solved = solve_triangular(basis, rows.T, trans="T", overwrite_b=True, check_finite=False)
        yield batch, DenseRows(np.ascontiguousarray(solved.T))


def _copy(x: Rows, out: NDArray[np.float64]) -> None:
    """Write rows to zeros of shape (n_rows, n_features)."""
    if isinstance(x, DenseRows):
        out[...] = x.values
    else:
        out[np.repeat(np.arange(len(out)), np.diff(x.indptr)), x.indices] = x.data


def warm_up_products(types: KernelTypes) -> None:
    """Compile the kernels of a job, or load them from the disk cache, on a single row; `weights` types features too."""
    dtype = np.dtype(types.weights)
    x = one_row(types.layout, types.data, types.indices)
    y, weights, none = np.zeros(1, np.int32), np.zeros((1, 2), dtype), np.empty(0)
    for _, features in blocks(Design(), x, dtype):
        scores = np.zeros((1, 2), dtype)
        add_scores(features, weights, scores)
        add_cross(features, score_gradients(types.loss, scores, y, none).values, np.zeros((1, 2)))
        grams = GramSum(np.zeros(1))
        grams.add(features, np.ones(1))
        grams.flush()
    score_gradients(types.loss, np.zeros((1, 2)), y, np.ones(1))
    given = x, y, np.ones(1), LOSSES[types.loss], weights, np.zeros(2)
    add_gradient(*given, np.zeros((1, 2)), np.zeros(2))
    evaluate_rows(*given, NO_CLASSES)
