"""Descent on a working set: the columns that all lanes have stored, in memory, until their own gap is small.

By Newton's method (`prox_newton.py`) where it is sooner, otherwise by sweeps of block coordinate descent, which every
few are extrapolated to where they lead (`extrapolated_sweeps.py`).
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.chunks import BufferPool
from distls.storage.dataset.partitions import are_below, are_offsets
from distls.storage.errors import StateLostError
from distls.storage.rows import CsrRows, DenseRows, concatenate_rows, index_dtype, n_rows_of
from distls.storage.temporary.row_state import RowState
from distls.workers.coordinate_descent.active_columns import WORKING, Active, read_active
from distls.workers.coordinate_descent.all_rows import RowSums, read_all_scores, store_all
from distls.workers.coordinate_descent.extrapolated_sweeps import sweep_until
from distls.workers.coordinate_descent.kept_gram import rows_of
from distls.workers.coordinate_descent.prox_newton import ProxNewton
from distls.workers.coordinate_descent.quadratic_model import parts_of
from distls.workers.coordinate_descent.row_scores_task import RowScores, SparseWeights, with_rows
from distls.workers.coordinate_descent.sweep_task import ColumnTask
from distls.workers.coordinate_descent.working_columns import WorkingColumns
from distls.workers.coordinate_descent.working_set_kernels import add_products
from distls.workers.losses.loss import LabelSets
from distls.workers.losses.loss_registry import loss_named
from distls.workers.rounds.block_stream import open_columns_of, open_ref
from distls.workers.rounds.ledger import Ledger
from distls.workers.runtime.buffers import borrowed_buffers, take
from distls.workers.runtime.process import single_threaded_blas


@dataclass
class Descended:
    """What the task finds."""

    weights: SparseWeights  # of all columns with weights, and the intercept
    columns: int  # worked on
    rows: RowSums  # at the new weights
    ledger: Ledger = field(default_factory=Ledger)


@dataclass(eq=False)
class WorkingSetTask(ColumnTask):
    """Minimises over the columns that the lanes before its own, `item.index` in number, have stored."""

    target: float = 0.0  # the gap, of these columns alone, at which it ends
    gram_bytes: int = 0  # of the largest Gram
    near: bool = False  # it begins near the optimum, and is to lead no further than was asked for

    def start(self) -> None:
        """See `Task.start`."""
        intercept = self.shared.intercept
        self.begin(read_all_scores(self.scores, len(intercept)), self.item.index, intercept)

    def result(self) -> Descended:
        """Descend, store the scores of all rows at the new weights, and return these."""
        state, version, meta = self.scores.state, self.scores.version, open_ref(self.data).meta
        found = [
            active
            for lane in range(self.item.index)
            for active in read_active(state, version, lane, meta, WORKING, alone=self.scores.alone)
        ]
        # borrowed, as new memory for every descent would take as long as a few cycles
        with borrowed_buffers("working") as buffers:
            held = _in_order(found, open_columns_of(self.data).first, buffers)
            del found  # copied
            return self._descended(held)

    def _descended(self, held: Active) -> Descended:
        """Descend on columns, and store the scores."""
        version, meta = self.scores.version, open_ref(self.data).meta
        w = self.shared.dense(meta.n_features)[held.columns].astype(np.float64)
        with single_threaded_blas():
            self._descend(WorkingColumns(self, held, w))
            # Rounded to the type of the state, of which scores are a function.
            values = w.astype(self.scores.dtype)
            intercept = self._settle(held, values.astype(np.float64))
        used = np.flatnonzero(values.any(axis=1))
        weights = SparseWeights(held.columns[used], values[used], intercept)
        rows = store_all(self.scores, version + 1, self.margins, self.step.scale, weights)
        return Descended(weights, len(w), rows, self.ledger)

    def _descend(self, columns: WorkingColumns) -> None:
        k, sets = columns.w.shape[1], isinstance(self.margins.y, LabelSets)
        parts = parts_of(loss_named(self.scores.loss), k, sets=sets)
        # No column violates the conditions: the weights are zero, and stay so.
        if not len(columns.w):
            return
        # Which columns are to be zero is known at the best intercept only.
        if not columns.w.any():
            self.optimise_intercept(counted=False)
        newton = ProxNewton(columns, parts, self.gram_bytes, self.near)
        if newton.serves() and newton.run(self.target):
            return
        if not sweep_until(columns, self.target, newton):
            newton.run_again(self.target)

    def _settle(self, held: Active, w: NDArray[np.float64]) -> NDArray[np.float64]:
        """Make the intercept optimal at the weights; compute the scores as `ScoresOfColumns` would, to the last bit."""
        z, intercept = self.margins.z, self.b + self.shift
        # After the weights are rounded: duals are a bound only where they sum to zero.
        if self.fit_intercept:
            z[:] = 0.0
            add_products(held.x, w, z)
            z += intercept
            self.b, self.shift = intercept, np.zeros(w.shape[1])
            self.optimise_intercept(counted=False)
            intercept = self.b
        z[:] = intercept
        add_products(held.x, w, z)
        return intercept

    @staticmethod
    def merge(left: Any, right: Any) -> Any:
        """Return the one result."""
        return left


@dataclass(eq=False)
class GatheredSetTask(WorkingSetTask):
    """Minimises over columns that `GatherTask` has stored, partition by partition; all with weights are among them."""

    columns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def start(self) -> None:
        """See `Task.start`: scores are those of the columns."""
        meta, intercept = open_ref(self.data).meta, self.shared.intercept
        self._held = _gathered(self.scores, self.columns)
        z = np.tile(intercept, (meta.n_rows, 1))
        w = self.shared.dense(meta.n_features)[self.columns].astype(np.float64)
        add_products(self._held.x, w, z)
        self.begin(with_rows(self.scores, z), self.item.index, intercept)

    def result(self) -> Descended:
        """See `WorkingSetTask.result`."""
        return self._descended(self._held)


def _gathered(job: RowScores, columns: NDArray[np.int64]) -> Active:
    """Return the columns of all rows; raise StateLostError if they are missing, or not within the data."""
    dataset, folder, blocks = open_ref(job.data), RowState(job.state, WORKING), []
    for index, n in enumerate(np.diff(dataset.first_rows).tolist()):
        first = folder.read(3 * index, job.version)
        x: CsrRows | DenseRows = DenseRows(first)
        if first.ndim == 1:
            x = CsrRows(first, *(folder.read(3 * index + place, job.version) for place in (1, 2)))
            # kernels index by them without a check of bounds
            sound = are_offsets(first, len(x.data), len(columns)) and len(x.indices) == len(x.data)
            sound = sound and are_below(x.indices, len(columns))
        else:
            sound = first.shape[1] == len(columns)
        if not sound or n_rows_of(x) != n:
            raise StateLostError(f"{folder.folder}: columns of partition {index} do not fit the data")
        blocks.append(x)
    x = concatenate_rows(blocks)
    del blocks
    if isinstance(x, DenseRows):
        return Active(columns, DenseRows(np.ascontiguousarray(x.values.T)))
    turned = rows_of(x, len(columns), 0, ones=False)
    assert isinstance(turned, CsrRows)
    # of the type of column shards, for which kernels are compiled
    numbers = turned.indices.astype(index_dtype(dataset.meta.n_rows))
    return Active(columns, turned._replace(indices=numbers))


def _in_order(found: list[Active], first: NDArray[np.int64], buffers: BufferPool) -> Active:
    """Return the columns of all lanes in the order of their numbers; `first` are the first columns of shards.

    Dense ones are in one of the buffers.
    """
    # A lane has some shards, so its columns are runs of whole shards' columns.
    runs = []
    for active in found:
        cuts = np.unique(np.searchsorted(active.columns, first)).tolist()
        runs += [(active, a, b) for a, b in pairwise(cuts)]
    runs.sort(key=lambda run: int(run[0].columns[run[1]]))
    if not runs:
        return found[0].part(0, 0)
    columns = np.concatenate([active.columns[a:b] for active, a, b in runs])
    dense = [active.x.values for active, _, _ in runs if isinstance(active.x, DenseRows)]
    if not dense:
        return Active(columns, concatenate_rows([active.part(a, b).x for active, a, b in runs]))
    whole, start = take(buffers, "columns", (len(columns), dense[0].shape[1]), dense[0].dtype), 0
    for (active, a, b), values in zip(runs, dense, strict=True):
        whole[start : start + b - a] = values[slice(a, b) if active.places is None else active.places[a:b]]
        start += b - a
    return Active(columns, DenseRows(whole))
