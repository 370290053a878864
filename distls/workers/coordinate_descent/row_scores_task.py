"""Scores of all rows, for block coordinate descent: computed by partition, stored in RUN/state, read whole by lanes.

They are a pure function of the weights: every round recomputes them, so that nothing that a crash could lose is needed
to continue with the same bits (docs/decisions/0014). The rows' targets and weights, which column shards do not have,
are stored with them once.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.metadata import DatasetMeta
from distls.storage.dataset.partitions import are_below
from distls.storage.errors import StateLostError
from distls.storage.rows import Partition, n_rows_of
from distls.storage.temporary.row_state import RowState
from distls.workers.coordinate_descent.descent_kernels import loss_of_scores
from distls.workers.linear_algebra.score_kernels import scores
from distls.workers.losses.loss import LabelSets
from distls.workers.losses.loss_registry import loss_named
from distls.workers.losses.targets import indicators, is_codes, label_sets, wrong_sets
from distls.workers.rounds.block_stream import DatasetRef, open_ref, stream
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.row_weights import row_weights


class SparseWeights(NamedTuple):
    """The rows of weights that are not zero, and the intercept, as a round sends them."""

    columns: NDArray[np.int64]  # (c,)
    values: NDArray[Any]  # (c, k)
    intercept: NDArray[np.float64]  # (k,)

    @classmethod
    def of(cls, weights: NDArray[Any], intercept: NDArray[np.float64]) -> SparseWeights:
        """Return the rows of (n_features, k) weights that are not zero."""
        columns = np.flatnonzero(weights.any(axis=1))
        return cls(columns, weights[columns], intercept)

    def dense(self, n_features: int) -> NDArray[Any]:
        """Return weights of shape (n_features, k)."""
        out = np.zeros((n_features, self.values.shape[1]), self.values.dtype)
        out[self.columns] = self.values
        return out


@dataclass(frozen=True)
class MarginJob:
    """The scores to compute or to read."""

    data: DatasetRef
    loss: str  # full loss name
    dtype: str  # of weights and scores
    class_weight: NDArray[np.float64] | None  # (n_classes,), as in `StochasticJob`
    state: str  # folder of the stored scores
    version: int  # under which they are stored

    @property
    def scores(self) -> RowState:
        """Scores of each partition, (n_rows, k)."""
        return RowState(self.state)

    @property
    def classes(self) -> RowState:
        """Class codes of each partition, or the label codes of its rows one after the other, int32."""
        return RowState(self.state, "classes")

    @property
    def counts(self) -> RowState:
        """Number of labels of each row of a partition, int64; only of sets of labels."""
        return RowState(self.state, "counts")

    @property
    def weights(self) -> RowState:
        """Row weights of each partition, float64; empty where all are one."""
        return RowState(self.state, "weights")


class Margins(NamedTuple):
    """The input of a lane: scores (n_rows, k), targets and weights (n_rows,) or (0,) of all rows."""

    z: NDArray[Any]
    y: NDArray[np.int32] | LabelSets
    weight: NDArray[np.float64]


@dataclass
class MarginSums:
    """Sums over the rows of one lane, or of several."""

    losses: NDArray[np.float64]  # (n_sizes,): ``sum_i s_i loss_i`` at each size of the step
    errors: int = 0  # rows predicted wrong at the first size, counted as by `score_gradients`
    ledger: Ledger = field(default_factory=Ledger)


def margin_lane(job: MarginJob, weights: SparseWeights, lane: Lane) -> MarginSums:
    """Compute and store the scores of one lane's rows; return their loss."""
    with Ledger.of_task() as ledger:
        total, w = MarginSums(np.zeros(1), 0, ledger), weights.dense(open_ref(job.data).meta.n_features)
        for index, part in stream(job.data, lane.blocks, ledger):
            z = _scores(part, w, weights.intercept)
            weight = _store_rows(job, index, part)
            job.scores.write(index, job.version, z)
            _count(job, total, part, index, (z, z, weight), np.zeros(1))
        return total


class Change(NamedTuple):
    """A change of the weights, and sizes of which one is to be chosen."""

    weights: SparseWeights
    sizes: NDArray[np.float64]
    intercept: NDArray[np.float64]  # (k,): a change of the intercept as a whole, whatever the size


def change_lane(job: MarginJob, shared: Change, lane: Lane) -> MarginSums:
    """Return the losses of one lane's rows at the sizes of a change of the weights."""
    change, sizes, shift = shared
    w = change.dense(open_ref(job.data).meta.n_features)
    with Ledger.of_task() as ledger:
        total = MarginSums(np.zeros(len(sizes)), 0, ledger)
        for index, part in stream(job.data, lane.blocks, ledger):
            z = job.scores.read(index, job.version, (n_rows_of(part.x), w.shape[1]), job.dtype)
            if shift.any():
                z += shift
            weight = row_weights(part, job.class_weight)
            _count(job, total, part, index, (z, _scores(part, w, change.intercept), weight), sizes)
        return total


def _scores(part: Partition, w: NDArray[Any], intercept: NDArray[np.float64]) -> NDArray[Any]:
    return scores(part.x, w, intercept, np.empty((n_rows_of(part.x), w.shape[1]), w.dtype))


def _store_rows(job: MarginJob, index: int, part: Partition) -> NDArray[np.float64]:
    """Store targets and weights of a partition unless they are stored already; return the weights."""
    weight = row_weights(part, job.class_weight)
    targets: Any = part.y
    kept = [(job.classes, targets), (job.weights, weight)]
    if not is_codes(targets):
        counts = np.diff(targets.indptr).astype(np.int64)
        kept = [(job.classes, label_sets(targets).indices), (job.counts, counts), (job.weights, weight)]
    for state, values in kept:
        if not state.holds(index, 0, values.shape, values.dtype):
            state.write(index, 0, values)
    return weight


def _count(
    job: MarginJob,
    total: MarginSums,
    part: Partition,
    index: int,
    margins: tuple[NDArray[Any], NDArray[Any], NDArray[np.float64]],
    sizes: NDArray[np.float64],
) -> None:
    """Add the losses of one partition's rows."""
    z, change, weight = margins
    y = part.y if is_codes(part.y) else label_sets(part.y)
    with total.ledger.in_kernels():
        for place, size in enumerate(sizes):
            total.losses[place] += loss_of_scores(z, change, size, y, weight, loss_named(job.loss))
        own = is_codes(y)
        wrong = z.argmax(axis=1) != y if own else wrong_sets(job.loss, z, indicators(part.y, z.shape[1]))
    total.errors += int(np.count_nonzero(wrong))
    total.ledger.count(index, len(z))


def read_margins(job: MarginJob, k: int) -> Margins:
    """Read the stored state of all rows; the caller may overwrite the scores.

    Raises StateLostError if some of it is missing, or not as it was written.
    """
    dataset = open_ref(job.data)
    z = np.empty((dataset.meta.n_rows, k), job.dtype)
    for index, (start, stop) in enumerate(zip(dataset.first_rows, dataset.first_rows[1:], strict=False)):
        z[start:stop] = job.scores.read(index, job.version, (int(stop - start), k))
    own = b"" if job.class_weight is None else job.class_weight.tobytes()
    sets = dataset.meta.target == "multilabel"
    codes, counts, weight = _stored_rows(job.state, job.data.fingerprint, own, len(dataset), sets)
    # kernels index by them without a check of bounds
    fits = len(counts) == len(z) and are_below(counts, k + 1) and int(counts.sum()) == len(codes)
    if not (fits if sets else codes.shape == (len(z),)) or weight.shape not in ((len(z),), (0,)):
        _stored_rows.cache_clear()  # they are stored anew
        raise StateLostError(f"{job.state}: targets or weights of other rows")
    if not are_below(codes, k):
        _stored_rows.cache_clear()
        raise StateLostError(f"{job.state}: targets of other classes")
    y = LabelSets(np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), codes) if sets else codes
    return Margins(z, y, weight)


@functools.lru_cache(maxsize=1)
def _stored_rows(
    state: str, fingerprint: str, _class_weight: bytes, n_blocks: int, sets: bool
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.float64]]:
    """Read codes, the number of each row's labels and the weights of all rows, once a process and fit."""
    job = MarginJob(DatasetRef("", fingerprint), "", "", None, state, 0)

    def all_of(kept: RowState, dtype: Any) -> NDArray[Any]:
        return np.concatenate([kept.read(index, 0, dtype=dtype) for index in range(n_blocks)])

    counts = all_of(job.counts, np.int64) if sets else np.empty(0, np.int64)
    return all_of(job.classes, np.int32), counts, all_of(job.weights, np.float64)


def no_targets(meta: DatasetMeta, n_rows: int) -> NDArray[np.int32] | LabelSets:
    """Return placeholder targets of rows: the first class, or its label."""
    codes = np.zeros(n_rows, np.int32)
    return LabelSets(np.arange(n_rows + 1), codes) if meta.target == "multilabel" else codes
