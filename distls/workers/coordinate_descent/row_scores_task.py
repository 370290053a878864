"""Scores of all rows, for block coordinate descent: computed by partition, stored in RUN/state, read whole by lanes.

They are a pure function of the weights: every round recomputes them, so that nothing that a crash could lose is needed
to continue with the same bits (docs/decisions/0014). The rows' targets and weights, which column shards do not have,
are read from the partitions, once in each process.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.metadata import DatasetMeta
from distls.storage.rows import CsrRows, Partition, n_rows_of
from distls.storage.temporary.row_state import RowState
from distls.workers.coordinate_descent.working_set_kernels import loss_of_scores
from distls.workers.linear_algebra.score_kernels import scores
from distls.workers.losses.loss import LabelSets
from distls.workers.losses.loss_registry import class_scores, loss_named
from distls.workers.losses.targets import indicators, is_codes, label_sets, wrong_sets
from distls.workers.rounds.block_stream import DatasetRef, open_ref
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.row_weights import row_weights, seen_in_fold
from distls.workers.rounds.task import Task


class SparseWeights(NamedTuple):
    """The rows of weights that are not zero, and the intercept, as a round sends them."""

    columns: NDArray[np.int64]  # (c,)
    values: NDArray[Any]  # (c, k)
    intercept: NDArray[np.float64]  # (k,)

    @classmethod
    def of(cls, weights: NDArray[Any], intercept: NDArray[np.float64]) -> SparseWeights:
        """Return the rows of (n_features, k) weights that are not zero."""
        # Row by row: a penalty of rows makes whole rows zero.
        columns = np.flatnonzero(weights.any(axis=1))
        return cls(columns, weights[columns], intercept)

    def dense(self, n_features: int) -> NDArray[Any]:
        """Return weights of shape (n_features, k)."""
        out = np.zeros((n_features, self.values.shape[1]), self.values.dtype)
        out[self.columns] = self.values
        return out


class Margins(NamedTuple):
    """The input of a lane: scores (n_rows, k), targets and weights (n_rows,) or (0,) of all rows."""

    z: NDArray[Any]
    y: NDArray[Any] | LabelSets  # int32 codes, or float64 numbers (n_rows, k)
    weight: NDArray[np.float64]


@dataclass
class MarginSums:
    """Sums over the rows of one lane, or of several."""

    losses: NDArray[np.float64]  # (n_sizes,): ``sum_i s_i loss_i`` at each size of the step
    errors: int = 0  # rows predicted wrong at the first size, counted as by `score_gradients`
    ledger: Ledger = field(default_factory=Ledger)


@dataclass(eq=False)
class RowScores(Task):
    """Computes and stores the scores of rows, and sums their losses; shared are `SparseWeights`."""

    data: DatasetRef
    loss: str  # full loss name
    dtype: str  # of weights and scores
    class_weight: NDArray[np.float64] | None  # (n_classes,), as in `TrainTask`
    state: str  # folder of the stored scores
    version: int  # under which they are stored
    alone: bool = False  # one process does all tasks: what working sets keep is in its memory

    @property
    def scores(self) -> RowState:
        """Scores of each partition, (n_rows, k)."""
        return RowState(self.state)

    def start(self) -> None:
        """See `Task.start`."""
        self.total = MarginSums(np.zeros(1))
        self._w = self.shared.dense(open_ref(self.data).meta.n_features)

    def add(self, index: int, part: Partition) -> None:
        """Score a partition's rows."""
        z = _scores(part, self._w, self.shared.intercept)
        weight = row_weights(part, self.class_weight)
        # Stored under the version of the round, so that a repeated task writes the same bytes.
        self.scores.write(index, self.version, z)
        self._sum(part, (z, z, weight), np.zeros(1))

    def _sum(
        self,
        part: Partition,
        margins: tuple[NDArray[Any], NDArray[Any], NDArray[np.float64]],
        sizes: NDArray[np.float64],
    ) -> None:
        """Add the losses of one partition's rows."""
        z, change, weight = margins
        y, loss = label_sets(part.y) if isinstance(part.y, CsrRows) else part.y, loss_named(self.loss)
        with self.ledger.in_kernels():
            for place, size in enumerate(sizes):
                # A fixed order of rows and of partitions: losses of different sizes round alike.
                self.total.losses[place] += loss_of_scores(z, change, size, y, weight, loss)
            self.total.errors += wrong_rows(self.loss, z, y)


class Change(NamedTuple):
    """A change of the weights, and sizes of which one is to be chosen."""

    weights: SparseWeights
    sizes: NDArray[np.float64]
    intercept: NDArray[np.float64]  # (k,): a change of the intercept as a whole, whatever the size


class ChangedScores(RowScores):
    """Sums the losses of rows at the sizes of a `Change` of the weights of the stored scores."""

    def start(self) -> None:
        """See `Task.start`."""
        self.total = MarginSums(np.zeros(len(self.shared.sizes)))
        self._w = self.shared.weights.dense(open_ref(self.data).meta.n_features)

    def add(self, index: int, part: Partition) -> None:
        """Sum a partition's losses."""
        change, sizes, shift = self.shared
        z = self.scores.read(index, self.version, (n_rows_of(part.x), self._w.shape[1]), self.dtype)
        if shift.any():
            # The intercept's own step is taken whole, only the columns' changes are scaled.
            z += shift
        weight = row_weights(part, self.class_weight)
        self._sum(part, (z, _scores(part, self._w, change.intercept), weight), sizes)


def _scores(part: Partition, w: NDArray[Any], intercept: NDArray[np.float64]) -> NDArray[Any]:
    return scores(part.x, w, intercept, np.empty((n_rows_of(part.x), w.shape[1]), w.dtype))


def read_row_scores(job: RowScores, k: int) -> Margins:
    """Read the stored state of all rows; the caller may overwrite the scores.

    Raises StateLostError if some of it is missing, or not as it was written.
    """
    dataset = open_ref(job.data)
    # Read whole: columns meet all rows.
    z = np.empty((dataset.meta.n_rows, k), job.dtype)
    for index, (start, stop) in enumerate(zip(dataset.first_rows, dataset.first_rows[1:], strict=False)):
        z[start:stop] = job.scores.read(index, job.version, (int(stop - start), k))
    return with_rows(job, z)


def with_rows(job: RowScores, z: NDArray[Any]) -> Margins:
    """Return scores with the targets and weights of their rows."""
    own = b"" if job.class_weight is None else job.class_weight.tobytes()
    # Threads that begin together would each read and keep them.
    with _READING:
        return Margins(z, *_targets_of(job.data.uncached(), own))


_READING = threading.Lock()


@functools.lru_cache(maxsize=1)
def _targets_of(data: DatasetRef, class_weight: bytes) -> tuple[Any, NDArray[np.float64]]:
    """Read codes, sets of labels or numbers, and weights of all rows: once a process, also of the fits of a path."""
    dataset = open_ref(data)
    parts = [dataset.read_targets(index) for index in range(len(dataset))]
    if data.fold is not None:
        parts = [seen_in_fold(part, data.fold) for part in parts]
    by_class = np.frombuffer(class_weight) if class_weight else None
    weight = np.concatenate([row_weights(part, by_class) for part in parts])
    if not isinstance(parts[0].y, CsrRows):
        return np.concatenate([part.y for part in parts]), weight
    sets = [label_sets(part.y) for part in parts]
    counts = np.concatenate([np.diff(each.indptr) for each in sets])
    codes = np.concatenate([each.indices for each in sets])
    return LabelSets(np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), codes), weight


def wrong_rows(loss: str, z: NDArray[Any], y: NDArray[Any] | LabelSets) -> int:
    """Return how many rows are predicted wrong; none of numbers."""
    if isinstance(y, LabelSets):
        wanted = indicators(CsrRows(*y, np.empty(0)), z.shape[1])
        return int(np.count_nonzero(wrong_sets(loss, z, wanted)))
    return int(np.count_nonzero(class_scores(loss, z).argmax(axis=1) != y)) if is_codes(y) else 0


def no_targets(meta: DatasetMeta, n_rows: int) -> NDArray[Any] | LabelSets:
    """Return placeholder targets of rows: the first class, its label, or zeros."""
    if meta.target == "continuous":
        return np.zeros((n_rows, meta.n_targets))
    codes = np.zeros(n_rows, np.int32)
    return LabelSets(np.arange(n_rows + 1), codes) if meta.target == "multilabel" else codes
