"""Tasks that fit features to the data: second moments of rows, counts of columns, and a fixed sample of rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, Partition, n_rows_of, take_rows
from distls.workers.features.design import Design, blocks
from distls.workers.linear_algebra.gram import GramSum, column_sums
from distls.workers.linear_algebra.packed_triangle import packed_size
from distls.workers.rounds.block_stream import DatasetRef, open_ref
from distls.workers.rounds.ledger import Ledger, add_sums
from distls.workers.rounds.row_weights import row_weights
from distls.workers.rounds.task import Task
from distls.workers.runtime.rng import Purpose, rng

_Floats = NDArray[np.float64]


@dataclass
class RowMoments:
    """Sums over rows, each times its weight."""

    gram: _Floats  # (m (m + 1) / 2,), packed
    sums: _Floats  # (m,)
    weight_sum: float = 0.0
    ledger: Ledger = field(default_factory=Ledger)


@dataclass(eq=False)
class MomentsTask(Task):
    """Sums rows and their products."""

    data: DatasetRef
    design: Design  # the feature map that is applied to rows
    class_weight: _Floats | None = None  # (n_classes,), as in `TrainTask`

    def start(self) -> None:
        # in float64: subtracting the mean from the Gram matrix afterwards cancels digits
        m = self.design.width(open_ref(self.data).meta.n_features)
        self.total = RowMoments(np.zeros(packed_size(m)), np.zeros(m))
        self._pending = GramSum(self.total.gram, dtype=np.dtype(np.float64))

    def add(self, index: int, part: Partition) -> None:
        weight, total = row_weights(part, self.class_weight), self.total
        for rows, features in blocks(self.design, part.x, np.dtype(np.float64)):
            own = weight[rows] if len(weight) else None
            self._pending.add(features, own)
            total.sums += column_sums(features, own, len(total.sums))
        # Weighted moments: principal components are those of the weighted rows.
        total.weight_sum += weight.sum() if len(weight) else n_rows_of(part.x)

    def result(self) -> RowMoments:
        self._pending.flush()
        return replace(self.total, ledger=self.ledger)

    @staticmethod
    def merge(left: RowMoments, right: RowMoments) -> RowMoments:
        """Add two results; reuses the memory of `left`."""
        return add_sums(left, right, "gram", "sums")


@dataclass(eq=False)
class CountTask(Task):
    """Counts the rows that are not zero in each column; the result is of shape (n_features,)."""

    data: DatasetRef

    def start(self) -> None:
        self.total = np.zeros(open_ref(self.data).meta.n_features, np.int64)

    def add(self, index: int, part: Partition) -> None:
        if isinstance(part.x, CsrRows):
            self.total += np.bincount(part.x.indices, minlength=len(self.total))
        else:
            self.total += np.count_nonzero(part.x.values, axis=0)

    @staticmethod
    def merge(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
        return left + right


@dataclass(eq=False)
class SampleTask(Task):
    """Takes random rows of a partition; items are those of `shares`."""

    data: DatasetRef
    n_rows: int  # of all partitions together, as few as hold them
    seed: int

    def reads(self, item: tuple[int, int]) -> tuple[int, ...]:
        return item[:1]

    def add(self, index: int, part: Partition) -> None:
        generator = rng(self.seed, Purpose.PREPARE, 1, index)
        chosen = np.sort(generator.choice(n_rows_of(part.x), self.item[1], replace=False))
        self.total = take_rows(part.x, chosen)


def shares(job: SampleTask, rows: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the sampled partitions with the number of rows to take from each; `rows` are those of all partitions."""
    shares, wanted = [], job.n_rows
    # Random partitions first: rows within a partition are already a random sample.
    for index in rng(job.seed, Purpose.PREPARE, 0).permutation(len(rows)):
        share = min(wanted, int(rows[index]))
        if share:
            shares.append((int(index), share))
        wanted -= share
    return shares
