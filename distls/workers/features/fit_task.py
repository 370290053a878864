"""Tasks that fit features to the data: second moments of rows, counts of columns, and a fixed sample of rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, Rows, n_rows_of, take_rows
from distls.workers.features.design import Design, blocks
from distls.workers.linear_algebra.gram import GramSum, column_sums
from distls.workers.linear_algebra.packed_triangle import packed_size
from distls.workers.rounds.block_stream import DatasetRef, open_ref, stream
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.row_weights import row_weights
from distls.workers.runtime.rng import Purpose, rng

_Floats = NDArray[np.float64]


@dataclass
class RowMoments:
    """Sums over rows, each times its weight."""

    gram: _Floats  # (m (m + 1) / 2,), packed
    sums: _Floats  # (m,)
    weight_sum: float = 0.0
    ledger: Ledger = field(default_factory=Ledger)


@dataclass(frozen=True)
class MomentsJob:
    """The rows to sum, and the feature map that is applied to them."""

    data: DatasetRef
    design: Design
    class_weight: _Floats | None = None  # (n_classes,), as in `StochasticJob`


def moments_lane(job: MomentsJob, _: None, lane: Lane) -> RowMoments:
    """Sum one lane's rows and their products."""
    # in float64: subtracting the mean from the Gram matrix afterwards cancels digits
    m = job.design.width(open_ref(job.data).meta.n_features)
    total = RowMoments(np.zeros(packed_size(m)), np.zeros(m))
    pending = GramSum(total.gram, dtype=np.dtype(np.float64))
    for index, part in stream(job.data, lane.blocks, total.ledger):
        weight = row_weights(part, job.class_weight)
        for rows, features in blocks(job.design, part.x, np.dtype(np.float64)):
            own = weight[rows] if len(weight) else None
            pending.add(features, own)
            total.sums += column_sums(features, own, m)
        total.weight_sum += weight.sum() if len(weight) else n_rows_of(part.x)
        total.ledger.count(index, n_rows_of(part.x))
    pending.flush()
    return total


def merge_moments(left: RowMoments, right: RowMoments) -> RowMoments:
    """Add two results; reuses the memory of `left`."""
    left.gram += right.gram
    left.sums += right.sums
    weight_sum = left.weight_sum + right.weight_sum
    return RowMoments(left.gram, left.sums, weight_sum, left.ledger.merge(right.ledger))


def count_lane(data: DatasetRef, _: None, lane: Lane) -> NDArray[np.int64]:
    """Return the number of one lane's rows that are not zero in each column, shape (n_features,)."""
    total = np.zeros(open_ref(data).meta.n_features, np.int64)
    for _index, part in stream(data, lane.blocks):
        total += _counts(part.x, len(total))
    return total


def _counts(x: Rows, n_features: int) -> NDArray[np.int64]:
    if isinstance(x, CsrRows):
        return np.bincount(x.indices, minlength=n_features)
    return np.count_nonzero(x.values, axis=0)


@dataclass(frozen=True)
class SampleJob:
    """A sample of `n_rows` random rows from as few random partitions as hold them."""

    data: DatasetRef
    n_rows: int
    seed: int


def shares(job: SampleJob, rows: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the sampled partitions with the number of rows to take from each; `rows` are those of all partitions."""
    shares, wanted = [], job.n_rows
    for index in rng(job.seed, Purpose.PREPARE, 0).permutation(len(rows)):
        share = min(wanted, int(rows[index]))
        if share:
            shares.append((int(index), share))
        wanted -= share
    return shares


def sampled_rows(job: SampleJob, _: None, share: tuple[int, int]) -> Rows:
    """Return the sampled rows of one partition."""
    index, count = share
    generator = rng(job.seed, Purpose.PREPARE, 1, index)
    ((_index, part),) = stream(job.data, [index])
    chosen = np.sort(generator.choice(n_rows_of(part.x), count, replace=False))
    return take_rows(part.x, chosen)
