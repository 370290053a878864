"""Tasks of generalized least squares: several weight matrices at one read, and the Gram matrix in another basis.

Reading and decoding cost more than products with a few more columns, so a round that needs the loss at one point and
the gradient at the next gets both from one read, and so do all points of a regularization path. The sums are those of
Algorithm 1 of least squares revisited.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from distls.storage.dataset.dataset import Dataset
from distls.storage.rows import DenseRows, Partition, Rows, n_rows_of
from distls.workers.features.design import PIECE_ROWS, Design, blocks
from distls.workers.least_squares.block_task import BlockSums, Moments, SumsTask, n_features_of
from distls.workers.linear_algebra.gram import GramSum, add_cross, add_scores
from distls.workers.linear_algebra.packed_triangle import unpacked
from distls.workers.linear_algebra.shifted_solve import Shifted
from distls.workers.losses.targets import ScoreGradients, moved_masses, score_gradients, slice_rows
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.row_weights import fold_of, row_weights

Array = NDArray[np.float64]

# scores of rows at all points that are computed at a time, in batches of at least PIECE_ROWS rows
SCORES = 2**21
# Largest share of nonzero rows of weights that are sent without the others.
_MOST_NONZERO = 0.25


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
        # Whole rows of zeros are common under sparse penalties.
        columns = np.flatnonzero(points.weights.any(axis=1))
        if len(columns) > _MOST_NONZERO * len(points.weights):
            return None
        return cls(columns, points.weights[columns], len(points.weights), points.intercept, points.losses_only)

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
    # (2,): of the last point, what `moved_masses` returns
    masses: NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))
    # (1 + n_features, n_classes) or (0, 0): ``sum_i s_i (1, x_i)`` over the rows of each class
    class_rows: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    # (folds,): ``sum_i s_i`` of each fold
    fold_weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))

    def add(self, other: Moments) -> None:
        """Add the sums over other rows."""
        assert isinstance(other, PointMoments)
        super().add(other)
        for name in ("losses", "held_losses", "wrong", "masses", "class_rows", "fold_weights"):
            getattr(self, name).__iadd__(getattr(other, name))


@dataclass(eq=False)
class OfPoints(SumsTask):
    """Base of tasks at several weights."""

    data: DatasetRef
    loss: str  # full loss name
    n_outputs: int
    dtype: str  # of features, products and scores
    class_weight: NDArray[np.float64] | None = None  # (n_classes,), as in `TrainTask`
    folds: int = 1  # consecutive slices of each partition's rows, of which a point may leave out one

    def zero(self, width: int) -> Moments:
        raise NotImplementedError

    def add_rows(self, part: Partition, weight: NDArray[np.float64], total: Moments) -> None:
        raise NotImplementedError

    def add(self, index: int, part: Partition) -> None:
        with self.ledger.in_kernels():
            if not self.total.folds:
                self.total.folds.append(self.zero(n_features_of(part.x, self.data)))
            self.add_rows(part, row_weights(part, self.class_weight), self.total.folds[0])


@dataclass(eq=False)
class PointTask(OfPoints):
    """Sums loss and gradient at all points, as `PointMoments`; shared are `StackedWeights` or `SparsePoints`."""

    with_masses: bool = False  # whether the masses that the gradients of the last point move are summed too
    class_rows: int = 0  # of how many classes the rows are

    @staticmethod
    def work_bytes(dataset: Dataset, dtype: np.dtype[Any], n_columns: int) -> int:
        """Return the bytes of a batch's scores and gradients at columns of weights, with the temporaries of both.

        Rows of another type than asked for are copied.
        """
        n_rows = int(dataset.table.rows.max(initial=0))
        copied = 2 * (dataset.meta.dtype != dtype.name) * int(dataset.decoded_bytes.max(initial=0))
        return 4 * 8 * min(n_columns * n_rows, max(SCORES, n_columns * PIECE_ROWS)) + copied

    def start(self) -> None:
        super().start()
        points = self.shared.stacked() if isinstance(self.shared, SparsePoints) else self.shared
        dtype = np.dtype(self.dtype)
        # Converted once a lane, not once a batch.
        self._points = points._replace(
            weights=points.weights.astype(dtype, copy=False), intercept=points.intercept.astype(dtype)
        )

    def zero(self, width: int) -> PointMoments:
        n_columns = self._points.weights.shape[1]
        p = n_columns // self.n_outputs
        # Points of losses only have no columns in the products.
        zero = Moments.zero(width, n_columns - self._points.losses_only * self.n_outputs, with_gram=False)
        own = {"losses": np.zeros(p), "held_losses": np.zeros(p), "wrong": np.zeros(p, np.int64)}
        own |= {"fold_weights": np.zeros(self.folds)}
        if self.class_rows:
            own["class_rows"] = np.zeros((1 + width, self.class_rows))
        return PointMoments(**vars(zero) | own)

    def add_rows(self, part: Partition, weight: NDArray[np.float64], total: Moments) -> None:
        for fold, rows in _batches(n_rows_of(part.x), self.folds, self._points.weights.shape[1]):
            x, y, s = slice_rows(part.x, rows), slice_rows(part.y, rows), weight[rows]
            for batch, features in blocks(Design(), x, np.dtype(self.dtype)):
                self._add_batch(fold, features, slice_rows(y, batch), s[batch], total)

    def _add_batch(self, fold: int, features: Rows, y: Any, weight: NDArray[np.float64], moments: Moments) -> None:
        """Add the sums of a batch: one product with all weights, gradients by point, one product with all gradients."""
        assert isinstance(moments, PointMoments)
        scores = np.tile(self._points.intercept, (n_rows_of(features), 1))
        add_scores(features, self._points.weights, scores)
        gradients = np.zeros((len(scores), len(moments.slopes)))
        for point in range(len(moments.losses)):
            own = slice(point * self.n_outputs, (point + 1) * self.n_outputs)
            here = score_gradients(self.loss, np.ascontiguousarray(scores[:, own]), y, weight)
            # A fold's rows judge the fits that have left it out, and do not move them.
            if self._points.held_out and self._points.held_out[point] == fold:
                moments.held_losses[point] += here.loss_sum
                moments.wrong[point] += here.errors
            else:
                place = (point - self._points.losses_only) * self.n_outputs
                if place >= 0:  # points before the first have losses alone
                    gradients[:, place : place + self.n_outputs] = here.values
                moments.losses[point] += here.loss_sum
            if self.with_masses and point == len(moments.losses) - 1:
                moments.masses += moved_masses(self.loss, here.values, weight)
            # Rows are counted once, not for each point.
            if point == 0:
                _add_totals(here, len(scores), moments)
                moments.fold_weights[fold] += here.weight_sum
        add_cross(features, gradients, moments.cross)
        moments.slopes += gradients.sum(axis=0)
        if self.class_rows:
            own_class = np.zeros((len(scores), self.class_rows))
            own_class[np.arange(len(y)), y] = weight if len(weight) else 1.0
            add_cross(features, own_class, moments.class_rows[1:])
            moments.class_rows[0] += own_class.sum(axis=0)


class BasisTask(OfPoints):
    """Sums the Gram matrix and the gradient in the points' basis, in float64 whatever `dtype` is."""

    def zero(self, width: int) -> Moments:
        zero = Moments.zero(len(self.shared.basis), self.n_outputs, with_gram=True)
        # Gram in another basis: float64, since what it resolves is below float32.
        self._grams = GramSum(zero.gram)
        return zero

    def add_rows(self, part: Partition, weight: NDArray[np.float64], total: Moments) -> None:
        points = self.shared
        for batch, rows in _transformed(part.x, points.basis, n_features_of(part.x, self.data)):
            s = weight[batch]
            # The same rows in both products, so that gradient and Sigma fit each other.
            found = score_gradients(self.loss, rows.values @ points.weights, slice_rows(part.y, batch), s)
            add_cross(rows, found.values, total.cross)
            self._grams.add(rows, s if len(s) else None)
            _add_totals(found, n_rows_of(rows), total)

    def result(self) -> BlockSums:
        if self.total.folds:
            self._grams.flush()
        return super().result()


class SigmaTask(OfPoints):
    """Sums the loss at the first point, and the rows times their products with all other columns of the weights.

    So the sums hold Sigma V for the columns V: ``cross`` is ``sum_i s_i x_i (x_i^T V + v_0)`` and ``slopes`` is
    ``sum_i s_i (x_i^T V + v_0)``, with v_0 the columns' intercepts.
    """

    def zero(self, width: int) -> Moments:
        return Moments.zero(width, self.shared.weights.shape[1] - self.n_outputs, with_gram=False)

    def add_rows(self, part: Partition, weight: NDArray[np.float64], total: Moments) -> None:
        points, k = self.shared, self.n_outputs
        for _, rows in _batches(n_rows_of(part.x), 1, points.weights.shape[1]):
            x, s = slice_rows(part.x, rows), weight[rows]
            # float64: a bound of the curvature must not be too small by rounding.
            for batch, features in blocks(Design(), x, np.dtype(np.float64)):
                scores = np.tile(points.intercept, (n_rows_of(features), 1))
                add_scores(features, points.weights, scores)
                y, own = slice_rows(slice_rows(part.y, rows), batch), s[batch]
                here = score_gradients(self.loss, np.ascontiguousarray(scores[:, :k]), y, own)
                _add_totals(here, len(scores), total)
                products = scores[:, k:] * own[:, None] if len(own) else np.ascontiguousarray(scores[:, k:])
                add_cross(features, products, total.cross)
                total.slopes += products.sum(axis=0)


def _batches(n_rows: int, folds: int, n_columns: int) -> Iterator[tuple[int, slice]]:
    """Yield (fold, rows) with about `SCORES` scores each."""
    # A multiple of the piece: batches begin at the same rows whatever the number of points.
    step = max(SCORES // (n_columns * PIECE_ROWS), 1) * PIECE_ROWS
    for fold in range(folds):
        rows = fold_of(n_rows, fold, folds)
        for first in range(rows.start, rows.stop, step):
            yield fold, slice(first, min(first + step, rows.stop))


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
        # The leading ones of the constant column.
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
        # Assignment suffices, as each row has an index once.
        out[np.repeat(np.arange(len(out)), np.diff(x.indptr)), x.indices] = x.data


class PathJob(NamedTuple):
    """The input that all folds share."""

    # at zero weights, where the gradient of the squared loss is the negative targets
    folds: Sequence[Moments]
    alphas: Array  # (n_alphas,), all > 0
    intercept: bool
    eps: float  # relative rounding error of the Gram matrices


def held_out(job: PathJob, number: int) -> Array:
    """Return the sum of squared residuals on one fold at each alpha, shape (n_alphas,), fitted to the others."""
    fold, n = job.folds[number], len(job.alphas)
    w, b = _fit_others(job, number)
    # sum_i s_i (y_i - W^T x_i - b)^2, expanded; the gradients at zero weights are -y
    own = unpacked(fold.gram, np.empty((len(w), len(w)))) @ w
    targets, products = np.tile(fold.slopes, n), np.tile(fold.cross, n)
    sums = np.tile(fold.squares, n) + np.einsum("ij,ij->j", w, own + 2.0 * products)
    sums += b * (2.0 * (targets + fold.sums @ w) + fold.weight_sum * b)
    return np.asarray(sums.reshape(n, -1).sum(axis=1))


def _fit_others(job: PathJob, number: int) -> tuple[Array, Array]:
    """Fit everything but one fold at all alphas: weights (d, n_alphas * k), intercepts (n_alphas * k,)."""
    others = Moments.over([fold for other, fold in enumerate(job.folds) if other != number])
    total, n = others.weight_sum, len(job.alphas)
    # Gradients at zero weights are minus the targets, hence the signs.
    mean, products, targets = others.sums / total, -others.cross / total, -others.slopes / total
    gram = unpacked(others.gram, np.empty((len(mean), len(mean))))
    gram /= total
    # Freed before the factorisation, which needs the memory.
    del others
    if job.intercept:
        # Centred, so the intercept is eliminated and not penalised.
        gram -= np.outer(mean, mean)
        products -= np.outer(mean, targets)
    shifted = Shifted(gram, job.eps)
    del gram
    # One reduction to a band serves every alpha.
    inner = shifted.inside(products)
    found = np.concatenate([shifted.solve_inside(inner, alpha) for alpha in job.alphas], axis=1)
    weights = shifted.outside(found)
    offsets = np.tile(targets, n) - mean @ weights
    return weights, offsets if job.intercept else np.zeros_like(offsets)


def held_out_bytes(d: int, n_columns: int) -> int:
    """Return the bytes that a task holds in addition to the job."""
    # matrices of d columns, and weights of all alphas and outputs
    return 8 * d * (5 * d + 5 * n_columns)
