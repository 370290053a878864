"""The task of dual coordinate ascent: a lane works through slices of its partitions' rows, lanes are added."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import Partition, Rows, n_rows_of
from distls.workers.dual_ascent.ascent_kernels import AscentSettings, Totals, ascend_rows, sum_squares
from distls.workers.duals.stored_duals import DualPoint, numeric_targets, write_duals
from distls.workers.evaluation.loss_sums import add_gradient
from distls.workers.evaluation.sample import evaluate_targets
from distls.workers.linear_algebra.gram import add_cross
from distls.workers.losses.loss import Loss
from distls.workers.losses.loss_registry import LOSSES
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.block_stream import DatasetRef, hold
from distls.workers.rounds.kernel_types import KernelTypes, one_row
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.row_weights import row_weights
from distls.workers.runtime.rng import Purpose, rng

# Rows of a partition that are visited before those of the lane's next one: neighbours in a partition are met far
# apart, which takes a third of the passes that partition after partition takes (docs/decisions/0021).
_CHUNK_ROWS = 512
# Neighbouring rows that are visited one after the other: alone, each would wait for memory (twice as slow).
_RUN_ROWS = 16
# Beyond so many outputs, visits take most of a round.
_MANY_OUTPUTS = 8
_CONJUGATES = [Totals().before, Totals().after]


@dataclass(frozen=True, eq=False)
class Image:
    """Where all lanes start from."""

    weights: NDArray[Any]  # shape (n_features, k)
    u: NDArray[Any]  # the same before shrinking, with l1; (0, k) without
    intercept: NDArray[np.float64]  # shape (k,)


@dataclass(frozen=True)
class AscentJob:
    """The part of a round's input that all lanes share, except for the weights."""

    data: DatasetRef
    settings: AscentSettings  # of one lane
    spread: float  # by which the lanes' changes are magnified in `settings`
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


@dataclass
class AscentResult:
    """One lane's round, or the sum of several."""

    change: NDArray[Any]  # of U, shape (n_features, k)
    up: NDArray[np.float64]  # of the sums over all rows, shape (k,), and the next
    down: NDArray[np.float64]
    totals: NDArray[np.float64]  # see `Totals`
    square: float  # sum over lanes of the squared norm of their changes of U
    ledger: Ledger


def ascend_lane(job: AscentJob, image: Image, lane: Lane) -> AscentResult:
    """Visit a slice of the rows of each partition of a lane, in an order that alternates between partitions."""
    with Ledger.of_task() as ledger:
        return _ascend(job, image, lane, ledger)


def _ascend(job: AscentJob, image: Image, lane: Lane, ledger: Ledger) -> AscentResult:
    held = hold(job.data, lane.blocks, ledger)
    works = [_Work.of(job, index, part) for index, part in held.items()]
    w, u, b = image.weights.copy(), image.u.copy(), image.intercept.copy()
    up, down, totals = np.zeros(len(b)), np.zeros(len(b)), np.zeros(len(Totals()))

    def visit(orders: list[NDArray[np.int64]], sums: NDArray[np.float64]) -> None:
        """Visit rows of each partition, chunk by chunk."""
        for first in range(0, max(map(len, orders)), _CHUNK_ROWS):
            for work, order in zip(works, orders, strict=True):
                chunk = order[first : first + _CHUNK_ROWS]
                if len(chunk):
                    ascend_rows(
                        work.part.x, work.y, work.weight, chunk, w, u, b, work.duals, up, down, sums, job.settings
                    )  # fmt: skip

    with ledger.in_kernels():
        visit([work.order for work in works], totals)
        left = sum(len(work.order) for work in works)
        for sweep in range(job.active_sweeps):
            if left <= 0 and len(b) > _MANY_OUTPUTS:
                break
            again, free = np.zeros(len(totals)), [work.free_rows(job, sweep) for work in works]
            visit(free, again)
            totals[_CONJUGATES] += again[_CONJUGATES]
            left -= sum(map(len, free))
    for work in works:
        if job.version:
            write_duals(job.duals.folder, work.index, job.version, work.duals)
        ledger.count(work.index, len(work.order))
    change = (u if len(u) else w) - (image.u if len(u) else image.weights)
    change /= change.dtype.type(job.spread)
    return AscentResult(change, up, down, totals, square_sum(change), ledger)


def square_sum(values: NDArray[Any]) -> float:
    """Return the sum of squares: BLAS would add as its number of threads has it."""
    return float(sum_squares(values.reshape(-1)))


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
    def of(cls, job: AscentJob, index: int, part: Partition) -> _Work:
        count, k = n_rows_of(part.x), job.duals.n_outputs
        runs = runs_of(count, job, index)
        if job.shuffle:
            rng(job.seed, Purpose.ROWS, job.round, index).shuffle(runs)
        order = rows_of_runs(runs, count, job.parts)
        weight, duals = row_weights(part, job.class_weight), job.duals.read(index, count)
        if job.version and job.duals.mix[index] != 1.0:
            write_duals(job.duals.folder, index, job.version - 1, duals)  # the round may be taken in part too
        return cls(index, part, numeric_targets(part.y, k), weight, duals, order)

    def free_rows(self, job: AscentJob, sweep: int) -> NDArray[np.int64]:
        """Return the rows with duals strictly inside their domain, in random order."""
        rows = np.flatnonzero(((self.duals != 0.0) & (np.abs(self.duals) != 1.0)).any(axis=1))
        if job.shuffle:
            rng(job.seed, Purpose.ROWS, job.round, self.index, sweep + 1).shuffle(rows)
        return rows


def runs_of(n_rows: int, job: AscentJob, index: int) -> NDArray[np.int64]:
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


def merge_ascents(left: AscentResult, right: AscentResult) -> AscentResult:
    """Add two results, reusing the memory of `left`."""
    left.change += right.change
    return replace(
        left,
        up=left.up + right.up,
        down=left.down + right.down,
        totals=left.totals + right.totals,
        square=left.square + right.square,
        ledger=left.ledger.merge(right.ledger),
    )


def warm_up(types: KernelTypes, form: Loss, l1: float) -> None:
    """Compile the kernel of a job, or load it from the disk cache, on a single row."""
    x, k = one_row(types.layout, types.data, types.indices), 1
    numbers = types.target != "class"
    y: NDArray[Any] = np.zeros((1, k)) if numbers else np.zeros(1, np.int32)
    w = np.zeros((1, k), types.weights)
    ascend_rows(
        x, y, np.empty(0), np.zeros(1, np.int64), w, np.zeros((int(l1 > 0.0), k), types.weights), np.zeros(k),
        np.zeros((1, k), types.weights), np.zeros(k), np.zeros(k), np.zeros(len(Totals())),
        AscentSettings(1.0, float(l1), 0.0, form),
    )  # fmt: skip
    square_sum(w)
    square_sum(np.zeros((1, k)))
    _warm_up_certificate(types, x)


def _warm_up_certificate(types: KernelTypes, x: Rows) -> None:
    """Compile the kernels of the primal objective and its gradient."""
    loss, weights, none = LOSSES[types.loss], np.zeros((1, 2), types.weights), np.empty(0)
    if types.target != "class" or loss.certificate == "none":
        return
    y, intercept = np.zeros(1, np.int32), np.zeros(2)
    evaluate_targets(x, y, none, types.loss, LinearPredictor(weights, intercept))
    add_gradient(x, y, none, loss, weights, intercept, np.zeros((1, 2)), np.zeros(2))
    add_cross(x, np.zeros((1, 2)), np.zeros((1, 2)))
