"""The tasks of block coordinate descent: a lane's pass over its column shards, and passes over non-zero rows of W.

A lane has a private copy of the scores of all rows, and returns only its new weights, from which scores are recomputed
(`distls.workers.coordinate_descent.row_scores_task`). While a shard is in memory, its columns with non-zero weights
(the *active* ones) are copied, so that many passes over them need no other read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.partitions import are_below, are_offsets
from distls.storage.errors import StateLostError
from distls.storage.rows import (
    ColumnShard,
    CscColumns,
    CsrRows,
    DenseRows,
    Rows,
    concatenate_rows,
    index_dtype,
    n_rows_of,
    take_rows,
)
from distls.storage.temporary.row_state import RowState
from distls.workers.coordinate_descent.descent_kernels import (
    N_TOTALS,
    Step,
    Totals,
    column_sweep,
)
from distls.workers.coordinate_descent.intercept import Intercept, centred, leaning_columns
from distls.workers.coordinate_descent.row_scores_task import (
    MarginJob,
    Margins,
    SparseWeights,
    read_margins,
)
from distls.workers.losses.loss_registry import loss_named
from distls.workers.penalties.penalty import recentre_rows
from distls.workers.penalties.penalty_registry import penalty_named
from distls.workers.penalties.row_kernels import kernel_argument
from distls.workers.rounds.block_stream import open_ref, stream_columns
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger
from distls.workers.runtime.rng import Purpose, rng

_T = Totals()
_NONE = np.empty(0)
_UNMARKED = np.empty(0, np.bool_)


@dataclass(frozen=True)
class SweepJob:
    """The part of a round's input that all lanes share, except for weights."""

    margins: MarginJob
    penalty: str
    step: Step
    seed: int
    round: int
    # (n_shards,): columns are drawn, so many of each shard, and not permuted (the paper's randomised selection)
    draws: NDArray[np.int64] | None
    fit_intercept: bool  # an unpenalised block of ones, made optimal by every lane before it sweeps
    sweeps: int  # over the active columns, after the sweep over all
    keep: bool  # store the active columns in RUN/state for `active_sweeps` instead
    active_bytes: int  # a lane with more bytes of active columns neither sweeps nor keeps them
    recentre: bool = False  # subtract from each row of weights the constant that is best for its penalty
    given_only: bool = False  # sweep only the columns whose weights are sent
    skipped: bytes = b""  # columns that are not swept, packed bits; empty: none
    below: float = (
        0.0  # strength at which a zero column has to stay zero to be skipped from now on; 0: none is
    )


@dataclass
class LaneSweeps:
    """The result of one lane, or the merged one of several."""

    weights: list[SparseWeights]  # new values of the rows that were or became non-zero, without intercepts
    totals: NDArray[np.float64]  # (N_TOTALS,), of the sweeps over all columns
    intercept: NDArray[np.float64]  # (k,), by its own steps, which are the same in each lane
    shift: NDArray[np.float64]  # (k,), to be added: by the changes of the lane's columns
    change: float = 0.0  # of the objective, in all sweeps
    active_bytes: int = 0  # of the active columns; -1 where a lane has too many
    swept_bytes: int = 0  # bytes of active columns times sweeps
    idle: list[NDArray[np.int64]] = field(default_factory=list)  # columns that may be skipped from now on
    ledger: Ledger = field(default_factory=Ledger)  # its blocks are column shards


def merge_sweeps(left: LaneSweeps, right: LaneSweeps) -> LaneSweeps:
    """Merge the results of two lanes."""
    totals = left.totals + right.totals
    totals[_T.largest] = max(left.totals[_T.largest], right.totals[_T.largest])
    too_many = min(left.active_bytes, right.active_bytes) < 0
    return LaneSweeps(
        left.weights + right.weights,
        totals,
        left.intercept,
        left.shift + right.shift,
        left.change + right.change,
        -1 if too_many else left.active_bytes + right.active_bytes,
        left.swept_bytes + right.swept_bytes,
        left.idle + right.idle,
        left.ledger.merge(right.ledger),
    )


class _Active(NamedTuple):
    """Columns with non-zero weights: their numbers, and the columns as rows of X^T."""

    columns: NDArray[np.int64]
    x: Rows


def sweep_lane(job: SweepJob, weights: SparseWeights, lane: Lane) -> LaneSweeps:
    """Sweep one lane's shards from the weights that all lanes start from, those of the stored scores.

    Raises StateLostError if the scores are not there.
    """
    with Ledger.of_task() as ledger:
        b = weights.intercept
        sweeper = Sweeper(job, read_margins(job.margins, len(b)), lane.index, ledger, b)
        return sweeper.result(_sweep_shards(sweeper, weights, lane))


def _sweep_shards(sweeper: Sweeper, weights: SparseWeights, lane: Lane) -> list[SparseWeights]:
    """Sweep all shards of a lane, then sweep its active columns or store them; return the new values."""
    job = sweeper.job
    found: list[_Active] = []
    values: list[SparseWeights] = []
    # every lane's columns are to be judged at the optimal intercept; all find the same bits
    sweeper.optimise_intercept(counted=lane.index == 0)
    for shard in sweeper.shards(lane):
        given, w = _given(weights, shard)
        before = w.any(axis=1)
        sweeper.sweep(shard, w, given if job.given_only else _unskipped(job, shard.first, len(w)))
        used = np.flatnonzero(before | w.any(axis=1))
        values.append(SparseWeights(shard.first + used, w[used], _NONE))
        if sweeper.active_bytes >= 0 and (job.sweeps or job.keep):
            found.append(_Active(shard.first + used, take_rows(shard.x, used)))
            sweeper.count_active(found)
    if sweeper.active_bytes >= 0 and job.keep:
        _store_active(job, lane.index, found)
    elif sweeper.active_bytes >= 0 and job.sweeps and found:
        values = [_swept(sweeper, found, values)]
    return values


def active_sweeps(job: SweepJob, weights: SparseWeights, n_lanes: int) -> LaneSweeps:
    """Sweep the active columns that all lanes have stored, in one lane, so that zeros become exact."""
    with Ledger.of_task() as ledger:
        b = weights.intercept
        sweeper = Sweeper(job, read_margins(job.margins, len(b)), n_lanes, ledger, b)
        found = [_read_active(job, lane) for lane in range(n_lanes)]
        columns = np.concatenate([each.columns for each in found])
        w = weights.dense(open_ref(job.margins.data).meta.n_features)[columns].astype(np.float64)
        return sweeper.result([_swept(sweeper, found, [SparseWeights(columns, w, _NONE)])])


def intercept_alone(job: SweepJob, weights: SparseWeights, lane: int) -> LaneSweeps:
    """Return the intercept that is optimal for the stored scores, those of `weights`."""
    with Ledger.of_task() as ledger:
        b = weights.intercept
        sweeper = Sweeper(job, read_margins(job.margins, len(b)), lane, ledger, b)
        sweeper.optimise_intercept(counted=False)
        return sweeper.result([])


def _swept(sweeper: Sweeper, found: list[_Active], values: list[SparseWeights]) -> SparseWeights:
    """Sweep active columns as often as the job says, with steps of the intercept before, between and after."""
    x = concatenate_rows([each.x for each in found])
    w, means = np.concatenate([each.values for each in values]), sweeper.leaning(x)
    for number in range(1, sweeper.job.sweeps + 1):
        sweeper.step_intercept()
        sweeper.sweep_active(x, w, number, means)
    sweeper.step_intercept()
    return SparseWeights(np.concatenate([each.columns for each in values]), w, _NONE)


class Shard(NamedTuple):
    """A column shard as kernels read it: its first column, and its columns as rows of X^T."""

    first: int
    x: Rows
    number: int  # among the shards


def _transposed(shard: ColumnShard, index: int) -> Shard:
    x = shard.x
    return Shard(shard.first, CsrRows(*x) if isinstance(x, CscColumns) else DenseRows(x.values), index)


def _given(weights: SparseWeights, shard: Shard) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the columns of a shard that have weights in `weights`, and the weights of all its columns, float64."""
    n_columns = n_rows_of(shard.x)
    first, stop = np.searchsorted(weights.columns, [shard.first, shard.first + n_columns])
    given = weights.columns[first:stop] - shard.first
    out = np.zeros((n_columns, weights.values.shape[1]))
    out[given] = weights.values[first:stop]
    return given, out


def _unskipped(job: SweepJob, first: int, n_columns: int) -> NDArray[np.int64]:
    """Return the columns of a shard that are swept."""
    if not job.skipped:
        return np.arange(n_columns)
    packed = np.frombuffer(job.skipped, np.uint8)
    start = first // 8
    skipped = np.unpackbits(packed[start : (first + n_columns + 7) // 8])[first - 8 * start :][:n_columns]
    return np.flatnonzero(skipped == 0)


class Sweeper:
    """A lane at work: its scores, its random orders, its totals."""

    def __init__(
        self, job: SweepJob, margins: Margins, lane: int, ledger: Ledger, intercept: NDArray[np.float64]
    ) -> None:
        self.job, self.margins, self._lane, self._ledger = job, margins, lane, ledger
        own = Intercept(margins, job.margins.loss, job.step) if job.fit_intercept else None
        # by its own steps, and by what centred columns have changed it
        self._intercept, self.b, self.shift = own, intercept.copy(), np.zeros(len(intercept))
        self.active_bytes = self._swept_bytes = 0
        # active passes and the intercept count towards the change of F alone, not towards the violations
        self._totals, self._others = np.zeros(N_TOTALS), np.zeros(N_TOTALS)
        self._penalty = kernel_argument(penalty_named(job.penalty))
        self._idle: list[NDArray[np.int64]] = []

    def shards(self, lane: Lane) -> Iterator[Shard]:
        """Yield the lane's shards in the order of the round."""
        order = self._rng(0).permutation(len(lane.blocks))
        shards = [lane.blocks[i] for i in order]
        for index, shard in stream_columns(self.job.margins.data, shards, self._ledger):
            yield _transposed(shard, index)
            self._ledger.blocks.append(index)

    def _rng(self, sweep: int, *key: int) -> np.random.Generator:
        return rng(self.job.seed, Purpose.BLOCKS, self.job.round, self._lane, sweep, *key)

    def sweep(self, shard: Shard, w: NDArray[np.float64], columns: NDArray[np.int64]) -> None:
        """Sweep those columns of a shard, or as many draws of them as the round has for it."""
        (first, x, number), n, draws = shard, len(columns), self.job.draws
        generator = self._rng(0, first)
        order = (
            generator.permutation(n)
            if draws is None
            else generator.integers(n, size=draws[number] if n else 0)
        )
        idle = np.zeros(len(w) if self.job.below > 0.0 else 0, np.bool_)
        self.run(x, columns[order], w, self._totals, self.leaning(x), idle)
        self._idle.append(
            first + np.flatnonzero(idle & ~w.any(axis=1)) if len(idle) else np.empty(0, np.int64)
        )

    def sweep_active(self, x: Rows, w: NDArray[np.float64], number: int, means: dict[int, float]) -> None:
        """Sweep the columns with non-zero weights, some of them less their `means`."""
        order = self._rng(number).permutation(np.flatnonzero(w.any(axis=1)))
        self.run(x, order, w, self._others, means)
        self._swept_bytes += _bytes_of(x) * len(order) // max(len(w), 1)

    def optimise_intercept(self, *, counted: bool) -> None:
        """Make the intercept optimal for the scores; count its violation where it was, if `counted`."""
        if self._intercept is not None:
            with self._ledger.in_kernels():
                violation = self._intercept.optimise(self.b, self._others)
            if counted:
                self._totals[_T.violation] += violation
                self._totals[_T.largest] = max(self._totals[_T.largest], violation)

    def step_intercept(self) -> None:
        """Do one step of the intercept."""
        if self._intercept is not None:
            with self._ledger.in_kernels():
                self._intercept.step(self.b, self._others)

    def leaning(self, x: Rows) -> dict[int, float]:
        """Return the means of the columns that are swept less their mean."""
        if self._intercept is None:
            return {}
        return leaning_columns(x, self.margins.weight, len(self.margins.z))

    def run(
        self,
        x: Rows,
        order: NDArray[np.int64],
        w: NDArray[np.float64],
        totals: NDArray[np.float64],
        means: dict[int, float],
        idle: NDArray[np.bool_] = _UNMARKED,
    ) -> None:
        """Sweep columns in this order, some less their `means`, and mark those without weights that are `idle`."""
        start = 0
        for place in np.flatnonzero(np.isin(order, list(means))).tolist() if means else ():
            self._sweep_columns(x, order[start:place], w, totals, idle)
            j, start = int(order[place]), place + 1
            before, column = w[j].copy(), centred(x, j, means[j], len(self.margins.z))
            self._sweep_columns(column, np.zeros(1, np.int64), w[j : j + 1], totals)
            self.shift -= means[j] * (w[j] - before)
        self._sweep_columns(x, order[start:], w, totals, idle)
        if self.job.recentre:  # the loss ignores constants, and so do the other columns
            penalty, step = penalty_named(self.job.penalty), self.job.step
            totals[_T.change] += step.alpha * recentre_rows(penalty, w, np.unique(order), step.rho)

    def _sweep_columns(
        self,
        x: Rows,
        order: NDArray[np.int64],
        w: NDArray[np.float64],
        totals: NDArray[np.float64],
        idle: NDArray[np.bool_] = _UNMARKED,
    ) -> None:
        z, y, weight = self.margins
        loss = loss_named(self.job.margins.loss)
        with self._ledger.in_kernels():
            order = np.ascontiguousarray(order)  # strided, it would be compiled for anew, by each worker
            step, below = self.job.step, self.job.below
            column_sweep(x, order, w, z, y, weight, loss, self._penalty, step, totals, idle, below)

    def count_active(self, found: list[_Active]) -> None:
        """Count the bytes of the newest of `found`; drop all if they exceed the job's limit."""
        self.active_bytes += _bytes_of(found[-1].x)
        if self.active_bytes > self.job.active_bytes:
            self.active_bytes = -1
            found.clear()

    def result(self, values: list[SparseWeights]) -> LaneSweeps:
        """Return the result of the lane."""
        return LaneSweeps(
            values,
            self._totals,
            self.b,
            self.shift,
            float(self._totals[_T.change] + self._others[_T.change]),
            self.active_bytes,
            self._swept_bytes,
            self._idle,
            self._ledger,
        )


def _bytes_of(x: Rows) -> int:
    return sum(array.nbytes for array in x)


def _folder(job: SweepJob) -> RowState:
    """Return where lanes store their active columns, for one lane to sweep them all."""
    return RowState(job.margins.state, "active")


def _store_active(job: SweepJob, lane: int, found: Sequence[_Active]) -> None:
    """Store a lane's active columns, each array under a number of its own."""
    columns = np.concatenate([each.columns for each in found])
    x = concatenate_rows([each.x for each in found])
    for place, array in enumerate((columns, *x)):
        _folder(job).write(4 * lane + place, job.round, array)


def _read_active(job: SweepJob, lane: int) -> _Active:
    folder, round_ = _folder(job), job.round
    columns, *arrays = [folder.read(4 * lane + place, round_) for place in range(2)]
    x: Rows = DenseRows(arrays[0])
    if arrays[0].ndim == 1:
        x = CsrRows(arrays[0], *(folder.read(4 * lane + place, round_) for place in (2, 3)))
    if n_rows_of(x) != len(columns) or not _is_sound(columns, x, job):
        raise StateLostError(f"{folder.folder}: active columns of lane {lane} do not fit each other")
    return _Active(columns, x)


def _is_sound(columns: NDArray[Any], x: Rows, job: SweepJob) -> bool:
    """Return whether columns and rows are within the data."""
    # kernels index by them without a check of bounds
    meta = open_ref(job.margins.data).meta
    if columns.dtype != np.int64 or not are_below(columns, meta.n_features):
        return False
    if isinstance(x, DenseRows):
        return x.values.ndim == 2 and x.values.shape[1] == meta.n_rows and x.values.dtype.kind == "f"
    typed = x.indptr.dtype == np.int64 and x.indices.dtype == index_dtype(meta.n_rows)
    fits = typed and x.data.dtype.kind == "f" and x.data.shape == x.indices.shape
    return fits and are_offsets(x.indptr, len(x.data), meta.n_rows) and are_below(x.indices, meta.n_rows)
