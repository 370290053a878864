"""The task of the least-squares methods: one read of a lane's partitions, reduced to sufficient statistics.

A round may first add the block fitted in the round before to the stored predictions of each row, and then sums, for
the current block, its Gram matrix, its products with the gradient of the loss, and the features themselves: the sums
of Algorithms 1 and 3 of least squares revisited.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg  # noqa: F401 - its BLAS is limited to one thread only once it is loaded
from numpy.typing import NDArray

from distls.storage.dataset.chunks import BufferPool
from distls.storage.rows import DenseRows, Partition, Rows, n_rows_of
from distls.storage.temporary.row_state import RowState
from distls.workers.features.design import Design, blocks, can_pad, project, shared_projection
from distls.workers.linear_algebra.gram import GramSum, add_cross, add_scores
from distls.workers.linear_algebra.gram_kernels import add_upper
from distls.workers.linear_algebra.packed_triangle import packed, packed_size
from distls.workers.losses.targets import score_gradients, slice_rows
from distls.workers.rounds.block_stream import DatasetRef, Form, open_ref, stream
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.row_weights import fold_of, row_weights
from distls.workers.rounds.task import Task
from distls.workers.runtime.buffers import borrowed_buffers


class Block(NamedTuple):
    """Weights on one block of features."""

    design: Design
    # (m, k): m is the feature map's width, plus k where earlier predictions are columns of the block too
    weights: NDArray[Any]
    intercept: NDArray[np.float64]  # (k,)


@dataclass
class Moments:
    """Sums over the rows of one fold."""

    gram: NDArray[np.float64]  # (m (m + 1) / 2,) or (0,): ``sum_i s_i x_i x_i^T``, packed
    sums: NDArray[np.float64]  # (m,): ``sum_i s_i x_i``; zero without the Gram matrix
    cross: NDArray[np.float64]  # (m, k): ``sum_i s_i x_i g_i^T``, g the gradient with respect to the scores
    slopes: NDArray[np.float64]  # (k,): ``sum_i s_i g_i``
    squares: NDArray[np.float64]  # (k,): ``sum_i s_i g_i^2``
    loss_sum: float = 0.0
    weight_sum: float = 0.0
    errors: int = 0  # rows predicted wrong, counted as in `ScoreGradients`
    n_rows: int = 0

    @classmethod
    def zero(cls, m: int, k: int, *, with_gram: bool) -> Moments:
        gram = np.zeros(packed_size(m) if with_gram else 0)
        return cls(gram, np.zeros(m), np.zeros((m, k)), np.zeros(k), np.zeros(k))

    @classmethod
    def over(cls, folds: Sequence[Moments]) -> Moments:
        """Return the sums over the rows of several folds."""
        total = cls.zero(*folds[0].cross.shape, with_gram=folds[0].gram.size > 0)
        # Added in the order of folds, so that the rounding is always the same.
        for fold in folds:
            total.add(fold)
        return total

    def add(self, other: Moments) -> None:
        """Add the sums over other rows."""
        # In place: Gram matrices are the largest arrays of a worker.
        for name in ("gram", "sums", "cross", "slopes", "squares"):
            getattr(self, name).__iadd__(getattr(other, name))
        self.loss_sum += other.loss_sum
        self.weight_sum += other.weight_sum
        self.errors += other.errors
        self.n_rows += other.n_rows


def moment_bytes(m: int, k: int) -> int:
    """Return the bytes of the `Moments` of m features and k outputs, with their Gram matrix."""
    return 8 * (packed_size(m) + m * (k + 1))


@dataclass
class BlockSums:
    """One lane's round, or the merged result of several."""

    folds: list[Moments]
    ledger: Ledger


class SumsTask(Task):
    """Base of tasks that sum `BlockSums`."""

    def start(self) -> None:
        self.total = BlockSums([], self.ledger)

    def count(self, index: int, block: Partition) -> None:
        """Leave it to the sums: a row that no fold has taken would be missed by the check of cover."""
        self.ledger.blocks.append(index)

    def result(self) -> BlockSums:
        self.ledger.n_rows = sum(fold.n_rows for fold in self.total.folds)
        found: BlockSums = self.total
        return found

    @staticmethod
    def merge(left: BlockSums, right: BlockSums) -> BlockSums:
        """Add two results; reuses the memory of `left`."""
        for mine, other in zip(left.folds, right.folds, strict=True):
            mine.add(other)
        return BlockSums(left.folds, left.ledger.merge(right.ledger))


@dataclass(eq=False)
class BlockTask(SumsTask):
    """Sums statistics of rows in one read, after it has brought their predictions up to date.

    Shared are a fitted block to be added to the predictions, which are then stored as version + 1, or None; and the
    weights of the current block at which the gradient is taken (None: zero).
    """

    data: DatasetRef
    loss: str  # full name; its gradient at the predictions is multiplied with the features
    design: Design  # of the current block
    n_outputs: int
    dtype: str  # of features, products and predictions
    class_weight: NDArray[np.float64] | None = None  # (n_classes,), as in `TrainTask`
    with_gram: bool = True  # sum the Gram matrix too
    # take the other sums from one product with the Gram matrix, where features have padding. The last bits differ:
    # not for sums that a resumed fit may make with that matrix and another without
    joint: bool = False
    # earlier predictions are k more columns of the block (stagewise calibration)
    with_predictions: bool = False
    folds: int = 1  # consecutive slices of each partition's rows, each with its own sums
    state: str | None = None  # folder of the predictions; None: they are all zero
    version: int = 0  # of the predictions to read; 0: they are all zero
    # restart from zero predictions instead of reading them, and store the new ones as version + 1
    from_zero: bool = False

    def start(self) -> None:
        super().start()
        # the dense squares of one lane are reused by the next
        self._open = contextlib.ExitStack()
        self._buffers = self._open.enter_context(borrowed_buffers("squares"))
        self._pending: list[GramSum] = []
        # Projected rows are cached in place of the partitions.
        self._own, self._added, self._form = _on_projected_rows(self, self.shared[0])

    def stream(self, blocks: tuple[int, ...]) -> Iterator[tuple[int, Partition]]:
        return stream(self.data.whole, blocks, self.ledger, self._form)

    def add(self, index: int, part: Partition) -> None:
        with self.ledger.in_kernels():
            predictions, folds = _predictions(self._own, self._added, index, part), self.total.folds
            if not folds:
                width = self.design.width(n_features_of(part.x, self.data))
                m = width + self.with_predictions * self.n_outputs
                for fold in range(self.folds):
                    folds.append(Moments.zero(m, self.n_outputs, with_gram=self.with_gram))
                    self._pending.append(gram_sum(self, folds[-1], width, (self._buffers, f"fold {fold}")))
            weight = row_weights(part, self.class_weight)
            for fold, moments in enumerate(folds):
                # Folds are slices of each partition, so every partition is read once for all of them.
                rows = fold_of(n_rows_of(part.x), fold, self.folds)
                own = _slice(part, rows), weight[rows], predictions[rows], moments, self._pending[fold]
                add_rows(self._own, self.shared[1], *own)

    def result(self) -> BlockSums:
        for moments, grams in zip(self.total.folds, self._pending, strict=True):
            # Pending products are added once: the dense square is unpacked and added at the end.
            finish_rows(self, moments, grams)
        self._open.close()
        return super().result()


def _on_projected_rows(job: BlockTask, added: Block | None) -> tuple[BlockTask, Block | None, Form | None]:
    """Return job and added block for rows that are already projected, and the form of such partitions."""
    # the projected rows are far smaller than the partitions, and cached instead of them
    designs = [job.design] if added is None else [job.design, added.design]
    projection, rest = shared_projection(designs)
    if projection is None or projection.projection is None:
        return job, added, None
    form = Form(f"{projection.projection.digest} {job.dtype}", partial(_projected, projection, np.dtype(job.dtype)))
    return replace(job, design=rest[0]), added and added._replace(design=rest[1]), form


def _projected(projection: Design, dtype: np.dtype[Any], part: Partition) -> Partition:
    """Return a partition with projected rows; its targets are copied."""
    y = part.y
    # Copied, or a view would keep the whole partition alive in the cache.
    y = type(y)(*(array.copy() for array in y)) if isinstance(y, tuple) else y.copy()
    weight = None if part.sample_weight is None else part.sample_weight.copy()
    return Partition(project(projection, part.x, dtype), y, weight)


def n_features_of(x: Rows, data: DatasetRef) -> int:
    """Return the width of rows, which sparse ones do not store."""
    return x.values.shape[1] if isinstance(x, DenseRows) else open_ref(data).meta.n_features


def _slice(part: Partition, rows: slice) -> Partition:
    return Partition(slice_rows(part.x, rows), slice_rows(part.y, rows))


def _predictions(job: BlockTask, added: Block | None, index: int, part: Partition) -> NDArray[Any]:
    """Return the predictions of a partition's rows, after adding the fitted block and storing the sum."""
    stored = RowState(job.state) if job.state is not None else None
    # Zeros without a file: version 0 was never stored.
    values = np.zeros((n_rows_of(part.x), job.n_outputs), job.dtype)
    if stored is not None and job.version and not job.from_zero:
        values = stored.read(index, job.version, values.shape, values.dtype)
    if added is not None:
        values = predict_block(added, part.x, values, n_features_of(part.x, job.data))
    if stored is not None and (added is not None or job.from_zero):
        # Stored under the next version, so that a repeated task reads what the first one has read.
        stored.write(index, job.version + 1, values)
    return values


def predict_block(block: Block, x: Rows, before: NDArray[Any], n_features: int) -> NDArray[Any]:
    """Return the predictions `before` plus those of a block."""
    values = before + block.intercept.astype(before.dtype)
    width = block.design.width(n_features)
    weights = block.weights.astype(before.dtype, copy=False)
    for rows, features in blocks(block.design, x, before.dtype):
        add_scores(features, weights[:width], values[rows])
    if width < len(weights):  # stagewise calibration: the last weights are those of the earlier predictions
        # Calibration acts on the predictions before the block, so `before` and not `values`.
        values += before @ weights[width:]
    return values


@dataclass(eq=False)
class ReplayTask(Task):
    """Recomputes lost predictions from all fitted blocks, which are shared; returns of how many partitions."""

    block: BlockTask  # whose stored predictions they are

    def __post_init__(self) -> None:
        self.data = self.block.data

    def reads(self, item: Lane) -> tuple[int, ...]:
        stored = RowState(self.block.state or "")
        # What is still there has the same bits, and is not recomputed.
        return tuple(index for index in item.blocks if not stored.holds(index, self.block.version))

    def add(self, index: int, part: Partition) -> None:
        zero = np.zeros((n_rows_of(part.x), self.block.n_outputs), self.block.dtype)
        RowState(self.block.state or "").write(index, self.block.version, self.replayed(part, zero))

    def replayed(self, part: Partition, values: NDArray[Any]) -> NDArray[Any]:
        """Return the predictions of a partition's rows, from zeros on."""
        for block in self.shared:  # in the order of the rounds: the same additions, the same bits
            values = predict_block(block, part.x, values, n_features_of(part.x, self.data))
        return values

    def result(self) -> int:
        return len(self.ledger.blocks)

    @staticmethod
    def merge(left: int, right: int) -> int:
        return left + right


def add_rows(
    job: BlockTask,
    current: Block | None,
    part: Partition,
    weight: NDArray[np.float64],
    predictions: NDArray[Any],
    moments: Moments,
    grams: GramSum,
) -> None:
    """Add the sums of some rows to a fold, with the gradient at `predictions` plus those of `current`.

    `grams` is from `gram_sum` and pending until `finish_rows`.
    """
    # All right-hand sides ride on one product with the features.
    dtype, (width, n_extra) = np.dtype(job.dtype), grams.extra.shape
    joint = job.joint and job.with_gram and can_pad(job.design, part.x)
    for rows, batch in blocks(job.design, part.x, dtype, n_extra * joint):
        features = DenseRows(batch.values[:, :width]) if joint and isinstance(batch, DenseRows) else batch
        values = predictions[rows]
        # The gradient is at kept predictions plus the current block's own.
        if current is not None:
            values = values + current.intercept.astype(dtype)
            add_scores(features, current.weights.astype(dtype, copy=False), values)
        s = weight[rows]
        found = score_gradients(job.loss, values, slice_rows(part.y, rows), s)
        columns = predictions[rows].astype(np.float64) if job.with_predictions else None
        right = _right_hand_sides(job, found.values, columns, s)
        if joint and isinstance(batch, DenseRows):
            grams.add_padded(batch.values, right, s)
        else:
            # a resumed fit reads the Gram matrix in another round, and needs the same products with gradients
            add_cross(features, right, grams.extra, job.n_outputs if job.with_gram else None)
            if job.with_gram:
                grams.add(features, s if len(s) else None)
        if columns is not None:
            _add_columns(job, columns, found.values, s, moments)
        moments.slopes += found.values.sum(axis=0)
        # s_i g_i^2 from s_i g_i: the weights are divided out once.
        moments.squares += _weighted_squares(found.values, s)
        moments.loss_sum += found.loss_sum
        moments.weight_sum += found.weight_sum
        moments.errors += found.errors
        moments.n_rows += len(values)


def gram_sum(job: BlockTask, moments: Moments, width: int, space: tuple[BufferPool, str] | None = None) -> GramSum:
    """Return the accumulator of products of `width` features with each other and with `_right_hand_sides`."""
    n_extra = job.n_outputs + job.with_gram * (1 + job.with_predictions * job.n_outputs)
    return GramSum(moments.gram, width, n_extra, np.dtype(job.dtype), space)


def finish_rows(job: BlockTask, moments: Moments, grams: GramSum) -> None:
    """Add the pending products of all rows to a fold's moments."""
    grams.flush()
    k, (width, _) = job.n_outputs, grams.extra.shape
    # The first k extra columns are gradients, then the weights themselves, then predictions.
    moments.cross[:width] += grams.extra[:, :k]
    if job.with_gram:
        moments.sums[:width] += grams.extra[:, k]
        add_upper(grams.extra[:, k + 1 :], width, len(moments.cross), moments.gram)


def _right_hand_sides(
    job: BlockTask, gradients: NDArray[np.float64], columns: NDArray[np.float64] | None, weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return all columns that features are multiplied with, side by side: the gradients first."""
    if not job.with_gram:
        return gradients
    # The column of weights gives sum s_i x_i from the same product.
    s = weight[:, None] if len(weight) else np.ones((len(gradients), 1))
    return np.concatenate([gradients, s] if columns is None else [gradients, s, columns * s], axis=1)


def _add_columns(
    job: BlockTask,
    columns: NDArray[np.float64],
    gradients: NDArray[np.float64],
    weight: NDArray[np.float64],
    moments: Moments,
) -> None:
    """Add the products of predictions, the last columns of the block, with themselves and with the gradients."""
    width = len(moments.cross) - columns.shape[1]
    moments.cross[width:] += columns.T @ gradients
    if job.with_gram:
        weighted = columns * weight[:, None] if len(weight) else columns
        # the last rows of a packed triangle are themselves a packed triangle
        moments.gram[-packed_size(columns.shape[1]) :] += packed(columns.T @ weighted)
        moments.sums[width:] += weighted.sum(axis=0)


def _weighted_squares(gradients: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``sum_i s_i g_i^2`` from the values ``s_i g_i``."""
    if not len(weight):
        return np.square(gradients).sum(axis=0)
    # Where the weight is zero the product is zero too.
    positive = np.where(weight > 0.0, weight, 1.0)
    return (np.square(gradients) / positive[:, None]).sum(axis=0)
