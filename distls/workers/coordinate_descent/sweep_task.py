"""The tasks of block coordinate descent: a lane's pass over its column shards, and passes over non-zero rows of W.

A lane has a private copy of the scores of all rows, and returns only its new weights, from which scores are recomputed
(`distls.workers.coordinate_descent.row_scores_task`). While a shard is in memory, its columns with non-zero weights
(the *active* ones) are copied, so that many passes over them need no other read.

A lane's pass is the loop of Algorithm 1 of the paper of block coordinate descent.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import (
    ColumnShard,
    CscColumns,
    CsrRows,
    DenseRows,
    Rows,
    concatenate_rows,
    n_rows_of,
    take_rows,
)
from distls.workers.coordinate_descent.active_columns import Active, bytes_of, read_active, store_active
from distls.workers.coordinate_descent.descent_kernels import N_TOTALS, Step, Totals, column_sweep
from distls.workers.coordinate_descent.intercept import Intercept, centred, uncentred_columns
from distls.workers.coordinate_descent.row_scores_task import (
    Margins,
    RowScores,
    SparseWeights,
    no_targets,
    read_row_scores,
)
from distls.workers.linear_algebra.score_kernels import scores
from distls.workers.losses.loss_registry import loss_named
from distls.workers.penalties.penalty import recentre_rows
from distls.workers.penalties.penalty_registry import penalty_named
from distls.workers.penalties.row_kernels import kernel_argument
from distls.workers.rounds.block_stream import open_ref, stream, stream_columns
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.task import Task
from distls.workers.runtime.rng import Purpose, rng

_T = Totals()
_NONE = np.empty(0)
_UNMARKED = np.empty(0, np.bool_)


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


@dataclass(eq=False)
class ColumnTask(Task):
    """Base of tasks on the weights of the stored scores, which are shared as `SparseWeights`.

    Raises StateLostError if the scores are not there.
    """

    scores: RowScores
    penalty: str
    step: Step
    seed: int
    round: int
    # (n_shards,): columns are drawn, so many of each shard, and not permuted (the paper's randomised selection)
    draws: NDArray[np.int64] | None
    fit_intercept: bool  # an unpenalised block of ones, made optimal by every lane before it sweeps
    sweeps: int  # over the active columns, after the sweep over all
    keep: bool  # store the active columns in RUN/state for `ActiveSweeps` instead
    active_bytes: int  # a lane with more bytes of active columns neither sweeps nor keeps them
    recentre: bool = False  # subtract from each row of weights the constant that is best for its penalty
    given_only: bool = False  # sweep only the columns whose weights are sent
    skipped: bytes = b""  # columns that are not swept, packed bits; empty: none
    in_order: bool = False  # as printed: columns 1, ..., d, or drawn one after the other from all of a lane's
    below: float = 0.0  # strength at which a zero column has to stay zero to be skipped from now on; 0: none is

    def __post_init__(self) -> None:
        """Read the data of the scores."""
        self.data = self.scores.data

    def start(self) -> None:
        """See `Task.start`."""
        b = self.shared.intercept
        self.begin(read_row_scores(self.scores, len(b)), self.item.index, b)

    def begin(self, margins: Margins, lane: int, intercept: NDArray[np.float64]) -> None:
        """Begin at some scores: with the random orders of a lane, and with no totals yet."""
        self.margins, self._lane = margins, lane
        own = Intercept(margins, self.scores.loss, self.step) if self.fit_intercept else None
        # by its own steps, and by what centred columns have changed it
        self._intercept, self.b, self.shift = own, intercept.copy(), np.zeros(len(intercept))
        self.kept_bytes = self._swept_bytes = 0
        # active passes and the intercept count towards the change of F alone, not towards the violations
        self._totals, self._others = np.zeros(N_TOTALS), np.zeros(N_TOTALS)
        self._penalty = kernel_argument(penalty_named(self.penalty))
        self._idle: list[NDArray[np.int64]] = []

    @staticmethod
    def merge(left: LaneSweeps, right: LaneSweeps) -> LaneSweeps:
        """Merge the results of two lanes."""
        totals = left.totals + right.totals
        # The largest of all lanes; all other totals add up.
        totals[_T.largest] = max(left.totals[_T.largest], right.totals[_T.largest])
        too_many = min(left.active_bytes, right.active_bytes) < 0
        return LaneSweeps(
            left.weights + right.weights,
            totals,
            # Every lane has made the same intercept steps from the same scores, so any of theirs will do.
            left.intercept,
            left.shift + right.shift,
            left.change + right.change,
            -1 if too_many else left.active_bytes + right.active_bytes,
            left.swept_bytes + right.swept_bytes,
            left.idle + right.idle,
            left.ledger.merge(right.ledger),
        )

    def shards(self, blocks: tuple[int, ...]) -> Iterator[Shard]:
        """Yield shards in the order of the round."""
        # Another order in every round: fixed cyclic orders need many more passes (docs/papers.md).
        order = np.arange(len(blocks)) if self.in_order else self._rng(0).permutation(len(blocks))
        shards = [blocks[i] for i in order]
        for index, shard in stream_columns(self.data, shards, self.ledger):
            yield transposed(shard, index)

    def _rng(self, sweep: int, *key: int) -> np.random.Generator:
        # A key of its own for every lane, sweep and shard: no stream of random numbers depends on another.
        return rng(self.seed, Purpose.BLOCKS, self.round, self._lane, sweep, *key)

    def order(self, sweep: int, n_columns: int) -> NDArray[np.int64]:
        """Return the random order of columns in a sweep."""
        return self._rng(sweep).permutation(n_columns)

    def sweep(self, shard: Shard, w: NDArray[np.float64], columns: NDArray[np.int64]) -> None:
        """Sweep those columns of a shard, or as many draws of them as the round has for it."""
        (first, x, number), n, draws = shard, len(columns), self.draws
        generator = self._rng(0, first)
        order = (
            (np.arange(n) if self.in_order else generator.permutation(n))
            if draws is None
            else generator.integers(n, size=draws[number] if n else 0)
        )
        idle = np.zeros(len(w) if self.below > 0.0 else 0, np.bool_)
        self.run(x, columns[order], w, self._totals, self.leaning(x), idle)
        self._idle.append(
            # Weights that a later draw has given to the column count.
            first + np.flatnonzero(idle & ~w.any(axis=1)) if len(idle) else np.empty(0, np.int64)
        )

    def sweep_active(self, x: Rows, w: NDArray[np.float64], number: int, means: dict[int, float]) -> None:
        """Sweep the columns with non-zero weights, some of them less their `means`."""
        order = self._rng(number).permutation(np.flatnonzero(w.any(axis=1)))
        self.run(x, order, w, self._others, means)
        self._swept_bytes += bytes_of(x) * len(order) // max(len(w), 1)

    def optimise_intercept(self, *, counted: bool) -> None:
        """Make the intercept optimal for the scores; count its violation where it was, if `counted`."""
        if self._intercept is not None:
            with self.ledger.in_kernels():
                violation = self._intercept.optimise(self.b, self._others)
            if counted:
                self._totals[_T.violation] += violation
                self._totals[_T.largest] = max(self._totals[_T.largest], violation)

    def step_intercept(self) -> None:
        """Do one step of the intercept."""
        if self._intercept is not None:
            with self.ledger.in_kernels():
                self._intercept.step(self.b, self._others)

    def leaning(self, x: Rows) -> dict[int, float]:
        """Return the means of the columns that are swept less their mean."""
        if self._intercept is None:
            return {}
        return uncentred_columns(x, self.margins.weight, len(self.margins.z))

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
        # Centred columns are other columns, so the sweep is cut at each of them.
        for place in np.flatnonzero(np.isin(order, list(means))).tolist() if means else ():
            self._sweep_columns(x, order[start:place], w, totals, idle)
            j, start = int(order[place]), place + 1
            before, column = w[j].copy(), centred(x, j, means[j], len(self.margins.z))
            self._sweep_columns(column, np.zeros(1, np.int64), w[j : j + 1], totals)
            # A change d of the weights moves the intercept by -mean d.
            self.shift -= means[j] * (w[j] - before)
        self._sweep_columns(x, order[start:], w, totals, idle)
        if self.recentre:  # the loss ignores constants, and so do the other columns
            penalty, step = penalty_named(self.penalty), self.step
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
        loss = loss_named(self.scores.loss)
        with self.ledger.in_kernels():
            order = np.ascontiguousarray(order)  # strided, it would be compiled for anew, by each worker
            step, below = self.step, self.below
            column_sweep(x, order, w, z, y, weight, loss, self._penalty, step, totals, idle, below)

    def count_active(self, found: list[Active]) -> None:
        """Count the bytes of the newest of `found`; drop all if they exceed the job's limit."""
        self.kept_bytes += bytes_of(found[-1].x)
        if self.kept_bytes > self.active_bytes:
            self.kept_bytes = -1
            found.clear()

    def swept(self, values: list[SparseWeights]) -> LaneSweeps:
        """Return the result of the lane."""
        return LaneSweeps(
            values,
            self._totals,
            self.b,
            self.shift,
            float(self._totals[_T.change] + self._others[_T.change]),
            self.kept_bytes,
            self._swept_bytes,
            self._idle,
            self.ledger,
        )


class SweepTask(ColumnTask):
    """Sweeps a lane's shards, of which there may be none."""

    @staticmethod
    def result_bytes(n_features: int, k: int, skipping: float) -> float:
        """Return the bytes of all lanes' results; `skipping` says which columns, in units of weights."""
        # float64 arrays of a lane's own columns: new weights, a copy while they are joined, indices
        return (3 + skipping) * 8 * n_features * k

    def start(self) -> None:
        """See `Task.start`."""
        super().start()
        self._found: list[Active] = []
        self._values: list[SparseWeights] = []
        # every lane's columns are to be judged at the optimal intercept; all find the same bits
        self.optimise_intercept(counted=self.item.index == 0)

    def stream(self, blocks: tuple[int, ...]) -> Iterator[tuple[int, Shard]]:
        """See `Task.stream`: shards, in the order of the round."""
        return ((shard.number, shard) for shard in self.shards(blocks))

    def count(self, index: int, block: Shard) -> None:
        """Enter a shard."""
        self.ledger.blocks.append(index)

    @property
    def holds(self) -> bool:
        """Whether columns are drawn one after the other from all of a lane's; in a refit from those that it has."""
        return self.in_order and self.draws is not None and not self.given_only

    def add(self, index: int, shard: Shard) -> None:
        """Sweep a shard, and keep its active columns."""
        given, w = given_weights(self.shared, shard.first, n_rows_of(shard.x))
        if self.holds:  # until all shards are there to be drawn from
            self._found.append(Active(shard.first + np.arange(len(w)), take_rows(shard.x, np.arange(len(w)))))
            self._values.append(SparseWeights(self._found[-1].columns, w, _NONE))
            return
        # Before the sweep: columns that become zero are returned too, as zeros.
        before = w.any(axis=1)
        self.sweep(shard, w, given if self.given_only else _unskipped(self, shard.first, len(w)))
        used = np.flatnonzero(before | w.any(axis=1))
        self._values.append(SparseWeights(shard.first + used, w[used], _NONE))
        if self.kept_bytes >= 0 and (self.sweeps or self.keep):
            self._found.append(Active(shard.first + used, take_rows(shard.x, used)))
            self.count_active(self._found)

    def result(self) -> LaneSweeps:
        """Sweep the active columns, or store them, or draws from all; return the new values."""
        if self.holds and self._found:
            x, w = (
                concatenate_rows([each.x for each in self._found]),
                np.concatenate([v.values for v in self._values]),
            )
            order = self._rng(0).integers(len(w), size=len(w))
            self.run(x, order, w, self._totals, {})
            return self.swept([SparseWeights(np.concatenate([v.columns for v in self._values]), w, _NONE)])
        if self.kept_bytes >= 0 and self.keep:
            store_active(self.scores.state, self.round, self.item.index, self._found)
        elif self.kept_bytes >= 0 and self.sweeps and self._found:
            self._values = [_swept(self, self._found, self._values)]
        return self.swept(self._values)


class ActiveSweeps(ColumnTask):
    """Sweeps the active columns that all lanes have stored, so that zeros become exact; the item is of no blocks."""

    def result(self) -> LaneSweeps:
        """Sweep the columns."""
        state, meta, n_lanes = self.scores.state, open_ref(self.data).meta, self.item.index
        found = [each for lane in range(n_lanes) for each in read_active(state, self.round, lane, meta)]
        columns = np.concatenate([each.columns for each in found])
        # In float64, whatever the type of the weights: many passes add up.
        w = self.shared.dense(meta.n_features)[columns].astype(np.float64)
        return self.swept([_swept(self, found, [SparseWeights(columns, w, _NONE)])])


def _swept(task: ColumnTask, found: list[Active], values: list[SparseWeights]) -> SparseWeights:
    """Sweep active columns as often as the task says, with steps of the intercept before, between and after."""
    x = concatenate_rows([each.x for each in found])
    w, means = np.concatenate([each.values for each in values]), task.leaning(x)
    for number in range(1, task.sweeps + 1):
        task.step_intercept()
        task.sweep_active(x, w, number, means)
    task.step_intercept()
    return SparseWeights(np.concatenate([each.columns for each in values]), w, _NONE)


class Shard(NamedTuple):
    """A column shard as kernels read it: its first column, and its columns as rows of X^T."""

    first: int
    x: Rows
    number: int  # among the shards


def transposed(shard: ColumnShard, index: int) -> Shard:
    """Return a column shard as kernels read it."""
    x = shard.x
    return Shard(shard.first, CsrRows(*x) if isinstance(x, CscColumns) else DenseRows(x.values), index)


def given_weights(weights: SparseWeights, start: int, n_columns: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return which of a shard's columns have weights in `weights`, and the weights of all of them, float64."""
    first, stop = np.searchsorted(weights.columns, [start, start + n_columns])
    given = weights.columns[first:stop] - start
    out = np.zeros((n_columns, weights.values.shape[1]))
    out[given] = weights.values[first:stop]
    return given, out


def _unskipped(task: ColumnTask, first: int, n_columns: int) -> NDArray[np.int64]:
    """Return the columns of a shard that are swept."""
    if not task.skipped:
        return np.arange(n_columns)
    # Packed bits in bytes: a shard need not begin at a byte.
    packed = np.frombuffer(task.skipped, np.uint8)
    start = first // 8
    skipped = np.unpackbits(packed[start : (first + n_columns + 7) // 8])[first - 8 * start :][:n_columns]
    return np.flatnonzero(skipped == 0)


def probe_sweep(task: ColumnTask, block: int, shard: int) -> None:
    """Score one partition and sweep one shard from zero weights, and store nothing."""
    task, meta, dtype = copy.copy(task), open_ref(task.data).meta, task.scores.dtype
    # As many outputs as the problem has, of which the task knows the loss alone.
    k = 1 if loss_named(task.scores.loss).one_output else len(meta.classes) or meta.n_targets
    for _, part in stream(task.data, [block]):
        out = np.empty((n_rows_of(part.x), k), dtype)
        scores(part.x, np.zeros((meta.n_features, k), dtype), np.zeros(k), out)
    task.ledger = Ledger()
    none = Margins(np.zeros((meta.n_rows, k), dtype), no_targets(meta, meta.n_rows), np.empty(0))
    task.begin(none, 0, np.zeros(k))
    for each in task.shards((shard,)):
        n = n_rows_of(each.x)
        task.sweep(each, np.zeros((n, k)), np.arange(n))
