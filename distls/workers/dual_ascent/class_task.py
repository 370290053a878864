"""The task that trains a block of classes from the first sweep to the last: one worker, no exchange with others.

Each class is trained by SDCA (Shalev-Shwartz and Zhang 2013).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.filesystem.paths import place_of
from distls.storage.model.bundle import write_bundle
from distls.storage.model.sparse_blocks import ARRAYS
from distls.storage.rows import Partition, n_rows_of
from distls.storage.temporary.row_state import owner_of
from distls.workers.dual_ascent.ascent_task import square_sum
from distls.workers.dual_ascent.class_kernels import GAP, LOSS, NORM, ClassSettings, ascend_classes, judge_classes
from distls.workers.losses.targets import is_codes
from distls.workers.rounds.block_stream import DatasetRef, open_ref, stream
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.row_weights import row_weights
from distls.workers.rounds.task import Task
from distls.workers.runtime.rng import Purpose, rng

# What is known of a block's classes, added up: objective and gap, sweeps, classes whose gap is above the tolerance,
# stored weights, and losses without the penalty.
SUMS = ("objective", "gap", "sweeps", "open", "nnz", "loss")
_WIDTH = 16  # the columns of a block are a multiple of this: whole vectors in whole cache lines
_KEPT = 0.75  # trained classes are taken out of the arrays once no more than this part of the columns is left


@dataclass(eq=False)
class ClassTask(Task):
    """Trains classes ``first`` to ``stop - 1``, which are an item, and writes their weights."""

    data: DatasetRef
    settings: ClassSettings
    alpha: float
    class_weight: NDArray[np.float64] | None
    n_features: int
    n_classes: int
    n_rows: int
    dtype: str
    sweeps: int  # at most
    tol: float  # relative gap at which a class ends
    prune: float  # weights smaller than this are not stored
    shuffle: bool
    seed: int
    folder: str  # where blocks are written

    @staticmethod
    def class_bytes(n_features: int, n_rows: int, dtype: np.dtype[Any]) -> int:
        """Return the bytes of a class: duals, weights and a copy, and at the end as many features and values."""
        return n_features * (2 * dtype.itemsize + 4 + dtype.itemsize) + n_rows * dtype.itemsize

    def reads(self, item: tuple[int, int]) -> tuple[int, ...]:
        """Return nothing: all partitions are read in every sweep."""
        return ()

    def result(self) -> BlockResult:
        first, stop = self.item
        return BlockResult(first, stop, trained(self, self.ledger, self.item).written(), self.ledger)


@dataclass
class BlockResult:
    """What the driver needs to know of a block."""

    first: int
    stop: int
    sums: NDArray[np.float64]  # see SUMS
    ledger: Ledger


def block_name(first: int, stop: int) -> str:
    """Return the name of the bundle of a trained block."""
    return f"classes-{first:08d}-{stop:08d}"


def block_kind(folder: str, name: str) -> str:
    """Return the kind of the bundle of a trained block, which no block of another fit, or of other classes, has."""
    owner = owner_of(folder)
    return f"{name} of {owner}" if owner else "classes"  # the latter in runs of earlier versions


def trained(job: ClassTask, ledger: Ledger, span: tuple[int, int]) -> Block:
    """Return the trained block of classes ``first`` to ``stop - 1``."""
    block = Block(job, *span, ledger)
    for sweep in range(job.sweeps):
        block.sweep(sweep)
        block.judge(last=sweep == job.sweeps - 1)
        if not block.active.any():
            break
    return block


class Block:
    """The classes of a block under training; arrays have a column for each, and for those that fill up the width."""

    def __init__(self, job: ClassTask, first: int, stop: int, ledger: Ledger) -> None:
        self._job, self._first, self._stop, self._ledger = job, first, stop, ledger
        # Whole vectors, so that no kernel has a remainder.
        width = -(-(stop - first) // _WIDTH) * _WIDTH
        self._codes = np.full(width, -1, np.int64)  # the class of each column
        self._codes[: stop - first] = np.arange(first, stop)
        self.active = self._codes >= 0
        self._w, self._b = np.zeros((job.n_features, width), job.dtype), np.zeros(width)
        self._blocks = range(len(open_ref(job.data)))
        self._duals: dict[int, NDArray[Any]] = {}
        self._running = np.zeros((3, width))
        self._sweeps = 0
        self._found: dict[int, tuple[NDArray[np.uint32], NDArray[Any], float]] = {}
        self._sums = np.zeros(len(SUMS))

    def sweep(self, number: int, blocks: range | None = None) -> None:
        """Visit all rows once, or those of some partitions."""
        job, order = self._job, np.array(self._blocks if blocks is None else blocks)
        if job.shuffle:
            # By the number of the sweep alone: all blocks see the same orders, so classes do not depend on
            # their block.
            rng(job.seed, Purpose.ORDER, number).shuffle(order)
        self._running = np.zeros((3, len(self._codes)))
        self._sweeps += 1
        for index, part in stream(job.data, order.tolist(), self._ledger):
            count = n_rows_of(part.x)
            if index not in self._duals:
                self._duals[index] = np.zeros((count, len(self._codes)), job.dtype)
            rows = np.arange(count)
            if job.shuffle:
                rng(job.seed, Purpose.ROWS, number, index).shuffle(rows)
            with self._ledger.in_kernels():
                ascend_classes(
                    part.x,
                    *self._labels(part),
                    row_weights(part, job.class_weight),
                    rows,
                    self._w,
                    self._b,
                    self._duals[index],
                    self.active,
                    self._running,
                    job.settings,
                )
            self._ledger.count(index, count)

    def _labels(self, part: Partition) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the columns of each row's classes, -1 for those of other blocks."""
        columns = np.full(self._job.n_classes, -1, np.int32)
        if self._job.n_classes == 1:  # of two classes, the second
            return np.arange(len(part.y) + 1), np.where(part.y == 1, 0, -1).astype(np.int32)
        known = self._codes >= 0
        columns[self._codes[known]] = np.flatnonzero(known)
        if is_codes(part.y):
            return np.arange(len(part.y) + 1), columns[part.y]
        return part.y.indptr.astype(np.int64, copy=False), columns[part.y.indices]

    def judge(self, *, last: bool) -> None:
        """End the training of the classes that are near their optimum."""
        job = self._job
        # the sums at the visits estimate the gap: what is not near is not worth another read
        # At the optimum the scores times duals are alpha n |w|^2: half of that is the penalty.
        near = self._running[GAP] <= job.tol * (self._running[LOSS] + 0.5 * self._running[NORM])
        columns = np.flatnonzero(self.active & (near | last))
        # some at a time: their weights are copied twice
        step = max(len(self._codes) // 2, 1)
        for first in range(0, len(columns), step):
            self._judge(columns[first : first + step], last=last)
        self._make_room()

    def _judge(self, columns: NDArray[np.int64], *, last: bool) -> None:
        job = self._job
        w, b = np.take(self._w, columns, axis=1), self._b[columns]
        # Contiguous by class, for norms and for what is stored.
        by_class = np.ascontiguousarray(w.T)
        norms, (losses, products, gaps) = self._norms(by_class, b), self._judged(w, b, columns)
        objective = losses / job.n_rows + 0.5 * norms
        gap = (gaps - products) / job.n_rows + norms
        # The true gap at fixed weights decides, not the estimate.
        ended = (gap <= job.tol * objective) | last
        if not ended.any():
            return
        self._sums[SUMS.index("open")] += np.count_nonzero(ended & (gap > job.tol * objective))
        if job.prune > 0.0:
            # objective and gap are those of the weights that are stored
            for array in (w, by_class):
                _prune(array, job.prune)
            losses = self._judged(w, b, columns)[0]
            pruned = losses / job.n_rows + 0.5 * self._norms(by_class, b)
            # Pruning raises the objective; the bound of the dual stays where it is.
            objective, gap = pruned, gap + pruned - objective
        for name, values in (("objective", objective), ("gap", gap), ("loss", losses / job.n_rows)):
            self._sums[SUMS.index(name)] += values[ended].sum()
        for c in np.flatnonzero(ended).tolist():
            self._keep(int(columns[c]), by_class[c], float(b[c]))

    def _judged(self, w: NDArray[Any], b: NDArray[np.float64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the sums over all rows, shape (3, n_columns), at weights of some columns."""
        job, sums = self._job, np.zeros((3, len(columns)))
        for index, part in stream(job.data, list(self._blocks), self._ledger):
            with self._ledger.in_kernels():
                judge_classes(
                    part.x,
                    *self._labels(part),
                    row_weights(part, job.class_weight),
                    w,
                    b,
                    self._duals[index],
                    columns,
                    sums,
                    job.settings,
                )
        return sums

    def _norms(self, by_class: NDArray[Any], b: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return alpha times the squared norm of each class's weights, the intercept's among them."""
        own = (
            np.square(b) / self._job.settings.intercept_square
            if self._job.settings.intercept_square
            else np.zeros(len(b))
        )
        return np.asarray(self._job.alpha * (np.array([square_sum(w) for w in by_class]) + own))

    def _keep(self, column: int, w: NDArray[Any], b: float) -> None:
        """Take note of a class that has ended."""
        used = np.flatnonzero(w)
        self._found[int(self._codes[column])] = used.astype(np.uint32), w[used], b
        self._sums[SUMS.index("nnz")] += len(used)
        self._sums[SUMS.index("sweeps")] += self._sweeps
        # Inactive, its column is dead weight until room is made.
        self.active[column] = False

    def _make_room(self) -> None:
        """Make the arrays smaller if few classes are left."""
        left = np.flatnonzero(self.active)
        width = -(-len(left) // _WIDTH) * _WIDTH
        # Not at every class that ends: all arrays are copied.
        if 0 < width <= _KEPT * len(self._codes):
            self._take(left, width)

    def _take(self, left: NDArray[np.int64], width: int) -> None:
        """Copy the columns of the classes that are left into arrays of another width."""

        def taken(array: NDArray[Any]) -> NDArray[Any]:
            made = np.zeros((len(array), width), array.dtype)
            # In pieces: a copy of the whole array would double the memory of the block.
            for first in range(0, len(array), 4096):  # indexing makes a copy of what it takes
                rows = slice(first, first + 4096)
                made[rows, : len(left)] = array[rows][:, left]
            return made

        codes, b = np.full(width, -1, np.int64), np.zeros(width)
        codes[: len(left)], b[: len(left)] = self._codes[left], self._b[left]
        self._codes, self._b, self.active = codes, b, codes >= 0
        self._w = taken(self._w)
        for index, duals in self._duals.items():
            self._duals[index] = taken(duals)

    def written(self) -> NDArray[np.float64]:
        """Write the weights of all classes, and return the sums."""
        job, codes = self._job, range(self._first, self._stop)
        found = [self._found[code] for code in codes]
        small = {
            "indptr": np.concatenate([[0], np.cumsum([len(used) for used, _, _ in found])]).astype(np.int64),
            "intercept": np.array([b for _, _, b in found]),
            "sums": self._sums,
        }
        # One array after the other: all at once would be a second copy of the block.
        large = ((name, np.concatenate([each[k] for each in found])) for k, name in enumerate(ARRAYS[1:]))
        name = block_name(self._first, self._stop)
        write_bundle(place_of(job.folder) / name, block_kind(job.folder, name), {}, small, large)
        return self._sums


def _prune(weights: NDArray[Any], threshold: float) -> None:
    """Set weights below the threshold to zero, a few rows at a time."""
    for first in range(0, len(weights), 1024):
        rows = weights[first : first + 1024]
        rows[np.abs(rows) < weights.dtype.type(threshold)] = 0.0


def visit_block(job: ClassTask, index: int, span: tuple[int, int]) -> None:
    """Visit the rows of one partition once for a block of classes, and forget it."""
    Block(replace(job, shuffle=False), *span, Ledger()).sweep(0, range(index, index + 1))
