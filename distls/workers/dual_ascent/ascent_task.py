"""The task of dual coordinate ascent: a lane works through slices of its partitions' rows, lanes are added.

Lanes are added as in CoCoA+ (Ma et al. 2015); runs of neighbouring rows are the buckets of SySCD (Ioannou,
Mendler-Duenner, Parnell 2019, section 3.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import Partition, n_rows_of
from distls.workers.dual_ascent.ascent_kernels import AscentSettings, Totals, ascend_rows
from distls.workers.duals.stored_duals import DualPoint, numeric_targets, write_duals
from distls.workers.rounds.block_stream import DatasetRef, held
from distls.workers.rounds.ledger import Ledger, add_sums
from distls.workers.rounds.row_weights import row_weights
from distls.workers.rounds.task import Needs, Task
from distls.workers.runtime.rng import Purpose, rng

# Rows of a partition that are visited before those of the lane's next one: neighbours in a partition are met far
# apart, which takes a third of the passes that partition after partition takes (docs/decisions/0021).
_CHUNK_ROWS = 512
# Neighbouring rows that are visited one after the other: alone, each would wait for memory (twice as slow).
_RUN_ROWS = 16
# Beyond so many outputs, visits take most of a round.
_MANY_OUTPUTS = 8
_SQUARED_TOGETHER = 2**16
_CONJUGATES = [Totals().before, Totals().after]


@dataclass(frozen=True, eq=False)
class PrimalImage:
    """Where all lanes start from."""

    weights: NDArray[Any]  # shape (n_features, k)
    u: NDArray[Any]  # the same before shrinking, with l1; (0, k) without
    intercept: NDArray[np.float64]  # shape (k,)


@dataclass
class AscentResult:
    """One lane's round, or the sum of several."""

    change: NDArray[Any]  # of U, shape (n_features, k)
    up: NDArray[np.float64]  # of the sums over all rows, shape (k,), and the next
    down: NDArray[np.float64]
    totals: NDArray[np.float64]  # see `Totals`
    square: float  # sum over lanes of the squared norm of their changes of U
    ledger: Ledger


@dataclass(eq=False)
class AscentTask(Task):
    """Visits a slice of the rows of each partition, in an order that alternates between them, from a `PrimalImage`."""

    data: DatasetRef
    settings: AscentSettings  # of one lane
    sigma_prime: float  # by which the lanes' changes are magnified in `settings`
    class_weight: NDArray[np.float64] | None
    duals: DualPoint  # at which the round starts
    shuffle: bool  # visit rows in random order, else as stored
    seed: int
    mixing: tuple[int, int]  # two random numbers, of the pass
    round: int
    version: int  # under which the new duals are stored; 0: they are not
    part: int  # which slice of every partition's rows, of how many
    parts: int
    # further visits of the rows whose duals are inside their domain, of all that the lane holds: at most so many, and
    # with many outputs none once they were as many as the round's own rows
    active_sweeps: int

    @staticmethod
    def needs(shape: tuple[int, int], dtype: np.dtype[Any], *, shrinks: bool) -> Needs:
        """Return what it needs: its result has a lane's weights and its change; with l1 weights are kept twice."""
        one = shape[0] * shape[1] * dtype.itemsize
        return Needs(one * (1 + shrinks), one * (2 + 2 * shrinks))

    def start(self) -> None:
        self._works: list[_Work] = []

    def add(self, index: int, part: Partition) -> None:
        """Hold a partition, until all are there."""
        self._works.append(_Work.of(self, index, held(self.data, index, part)))

    def count(self, index: int, block: Partition) -> None:
        self.ledger.count(index, len(self._works[-1].order))

    def result(self) -> AscentResult:
        image, b = self.shared, self.shared.intercept.copy()
        # Copies: other lanes of this process start from the same arrays.
        w, u = image.weights.copy(), image.u.copy()
        up, down, totals = np.zeros(len(b)), np.zeros(len(b)), np.zeros(len(Totals()))

        def visit(orders: list[NDArray[np.int64]], sums: NDArray[np.float64]) -> None:
            """Visit rows of each partition, chunk by chunk."""
            # Chunks of the partitions in turn, in a fixed order: bitwise identical on any number of workers.
            for first in range(0, max(map(len, orders)), _CHUNK_ROWS):
                for work, order in zip(self._works, orders, strict=True):
                    chunk = order[first : first + _CHUNK_ROWS]
                    if len(chunk):
                        ascend_rows(
                            work.part.x, work.y, work.weight, chunk, w, u, b, work.duals, up, down, sums, self.settings
                        )

        with self.ledger.in_kernels():
            visit([work.order for work in self._works], totals)
            self._revisit(visit, totals)
        for work in self._works:
            # Under a new version: a task that is repeated does not find its own results.
            if self.version:
                write_duals(self.duals.folder, work.index, self.version, work.duals)
        change = (u if len(u) else w) - (image.u if len(u) else image.weights)
        # Magnified steps are undone, so that the changes of the lanes can be added (CoCoA+).
        change /= change.dtype.type(self.sigma_prime)
        return AscentResult(change, up, down, totals, square_sum(change), self.ledger)

    def _revisit(self, visit: Callable[..., None], totals: NDArray[np.float64]) -> None:
        """Visit the rows whose duals are inside their domain."""
        left = sum(len(work.order) for work in self._works)
        for sweep in range(self.active_sweeps):
            # With many outputs a visit costs as much as the read: then no more than one round's worth.
            if left <= 0 and self.duals.n_outputs > _MANY_OUTPUTS:
                break
            again, free = np.zeros(len(totals)), [work.free_rows(self, sweep) for work in self._works]
            # The gaps and losses of further visits are not counted, each row's first visit is.
            visit(free, again)
            totals[_CONJUGATES] += again[_CONJUGATES]
            left -= sum(map(len, free))

    @staticmethod
    def merge(left: AscentResult, right: AscentResult) -> AscentResult:
        """Add two results, reusing the memory of `left`."""
        # Dual changes are sums over rows, so lanes add up.
        return add_sums(left, right, "change")


def square_sum(values: NDArray[Any]) -> float:
    """Return the sum of squares: BLAS would add as its number of threads has it, a kernel for each type be compiled."""
    flat = values.reshape(-1)
    # a few at a time, as their squares are copies
    parts = (flat[at : at + _SQUARED_TOGETHER] for at in range(0, len(flat), _SQUARED_TOGETHER))
    with np.errstate(over="ignore", invalid="ignore"):  # weights that diverge
        return float(sum(np.square(part, dtype=np.float64).sum() for part in parts))


@dataclass(frozen=True, eq=False)
class _Work:
    """What a lane needs of one partition."""

    index: int
    part: Partition
    y: Any
    weight: NDArray[np.float64]
    duals: NDArray[Any]
    order: NDArray[np.int64]  # the rows to visit

    @classmethod
    def of(cls, job: AscentTask, index: int, part: Partition) -> _Work:
        count, k = n_rows_of(part.x), job.duals.n_outputs
        runs = runs_of(count, job, index)
        if job.shuffle:
            rng(job.seed, Purpose.ROWS, job.round, index).shuffle(runs)
        order = rows_of_runs(runs, count, job.parts)
        weight, duals = row_weights(part, job.class_weight), job.duals.read(index, count)
        if job.version and job.duals.mix[index] != 1.0:
            write_duals(job.duals.folder, index, job.version - 1, duals)  # the round may be taken in part too
        return cls(index, part, numeric_targets(part.y, k), weight, duals, order)

    def free_rows(self, job: AscentTask, sweep: int) -> NDArray[np.int64]:
        """Return the rows with duals strictly inside their domain, in random order."""
        # Zero and one are the ends of the domain; what is between still moves.
        rows = np.flatnonzero(((self.duals != 0.0) & (np.abs(self.duals) != 1.0)).any(axis=1))
        if job.shuffle:
            rng(job.seed, Purpose.ROWS, job.round, self.index, sweep + 1).shuffle(rows)
        return rows


def runs_of(n_rows: int, job: AscentTask, index: int) -> NDArray[np.int64]:
    """Return the runs of rows of a partition in the job's part of a pass: every run is in one part of each pass."""
    n_runs = -(-n_rows // _run_length(n_rows, job.parts))
    # a few numbers more than there are runs, if need be: with a divisor in common, the runs of a part would be the same
    # in every pass, and ascent would alternate between the same parts of the rows
    count = n_runs
    while math.gcd(count, job.parts) != 1:
        count += 1
    runs = np.arange((job.part + index) % job.parts, count, job.parts, dtype=np.int64)
    if job.parts > 1 and job.shuffle and n_runs:
        # others share a part in every pass, as in a random permutation, which would cost as much as the kernel
        factor, first = 2 * job.mixing[0] + 1, job.mixing[1] + index
        while math.gcd(factor, count) != 1:
            factor += 2
        runs = (factor % count * runs + first) % count
    return runs[runs < n_runs]


def rows_of_runs(runs: NDArray[np.int64], n_rows: int, parts: int) -> NDArray[np.int64]:
    """Return the rows of some runs, in their order."""
    length = _run_length(n_rows, parts)
    rows = (runs[:, None] * length + np.arange(length)).reshape(-1)
    return rows[rows < n_rows]


def _run_length(n_rows: int, parts: int) -> int:
    """Return how many rows a run has: fewer in small partitions, so that each part of a pass has some."""
    return max(1, min(_RUN_ROWS, n_rows // parts))
