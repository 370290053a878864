"""The scores and slopes of all rows as one array each, which rounds by working sets keep.

They are in RUN/state, or in memory where one process does all tasks.

The scores are a function of the weights alone, as they are added up over the columns with weights in their order:
whether a round has left them or a new process makes them, they have the same bits.
"""

import functools
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from os import register_at_fork, sched_getaffinity
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import StateLostError
from distls.storage.temporary.row_state import RowState
from distls.workers.coordinate_descent.row_scores_task import Margins, RowScores, SparseWeights, with_rows, wrong_rows
from distls.workers.coordinate_descent.working_set_kernels import row_derivatives
from distls.workers.losses.loss import LabelSets
from distls.workers.losses.loss_registry import loss_named
from distls.workers.rounds.block_stream import DatasetRef, open_ref
from distls.workers.runtime.buffers import job_memory

Array = NDArray[np.float64]

NO_PARTS = np.empty((0, 1), np.float32)  # second derivatives of no rows
# Parts of the rows, whose sums are added in their order: the bits do not depend on the threads that do them.
_CHUNKS = 8
_LEAST_SCORES = 2**15  # with fewer in a part, threads would cost more than they save
# Threads of a task while other tasks wait for it.
THREADS = min(4, len(sched_getaffinity(0)))


@dataclass
class RowSums:
    """What the scores of all rows say of the weights."""

    loss: float  # the mean loss
    rest: float  # sum of the sizes of the intercept's gradient
    errors: int  # rows that are predicted wrong


class _Newest(NamedTuple):
    """What this process has stored last, under a version, and the weights of which scores are a function."""

    state: str
    version: int
    z: Array
    slopes: Array
    data: DatasetRef
    weights: SparseWeights


def read_all_scores(job: RowScores, k: int) -> Margins:
    """Read the scores under the version of `job`, with targets and weights; the caller may overwrite the scores.

    Raises StateLostError if some of it is missing, or not as it was written.
    """
    shape = open_ref(job.data).meta.n_rows, k
    z = _newest(job).z.copy() if job.alone else _kept(job, "all_scores").read(0, job.version, shape, np.float64)
    return with_rows(job, z)


def read_slopes(job: RowScores, k: int) -> Array:
    """Read the slopes that belong to the scores, which nobody may change; errors likewise."""
    if job.alone:
        return _newest(job).slopes
    shape = open_ref(job.data).meta.n_rows, k
    return _kept(job, "all_slopes").read(0, job.version, shape, np.float64)


def store_all(job: RowScores, version: int, margins: Margins, scale: float, weights: SparseWeights) -> RowSums:
    """Store the scores that weights have, and slopes, under a version."""
    slopes = np.empty_like(margins.z)
    mean = derivatives(margins, job.loss, scale, slopes)
    if job.alone:
        data = job.data.whole.uncached()
        job_memory["rows"] = _Newest(job.state, version, margins.z, slopes, data, weights)
    else:
        for kind, array in (("all_scores", margins.z), ("all_slopes", slopes)):
            _kept(job, kind).write(0, version, array)
    return RowSums(mean, float(np.abs(slopes.sum(axis=0)).sum()), wrong_rows(job.loss, margins.z, margins.y))


def known_scores(job: RowScores, weights: SparseWeights) -> Array | None:
    """Return the scores that weights have, where this process has them: a strength begins where one has ended."""
    newest: _Newest | None = job_memory.get("rows") if job.alone else None
    if newest is None or newest.data != job.data.whole.uncached():
        return None
    same = all(np.array_equal(old, new) for old, new in zip(newest.weights, weights, strict=True))
    return newest.z if same else None


def _newest(job: RowScores) -> _Newest:
    newest: _Newest | None = job_memory.get("rows")
    if newest is None or (newest.state, newest.version) != (job.state, job.version):
        raise StateLostError(f"{job.state}: scores of version {job.version} are not in memory")
    return newest


def _kept(job: RowScores, kind: str) -> RowState:
    return RowState(job.state, kind)


def derivatives(margins: Margins, loss: str, scale: float, slopes: Array, h: NDArray[np.float32] = NO_PARTS) -> float:
    """Set `slopes` and `h`, see `row_derivatives`, and return the sum of the losses; in threads."""
    z, y, weight = margins
    starts = range(0, len(z), max(-(-_LEAST_SCORES // z.shape[1]), -(-len(z) // _CHUNKS)))

    def part(start: int) -> float:
        rows = slice(start, start + starts.step)
        # offsets are into the labels of all rows
        own = LabelSets(y[0][start : rows.stop + 1], y[1]) if isinstance(y, LabelSets) else y[rows]
        return float(row_derivatives(z[rows], own, weight[rows], loss_named(loss), scale, slopes[rows], h[rows]))

    return sum(in_threads(part, starts))


def in_threads(function: Any, items: Any) -> list[Any]:
    """Return the results of a function that spends its time in kernels, in the order of the items."""
    if len(items) < 2 or THREADS < 2:
        return [function(item) for item in items]
    results, places = [None] * len(items), iter(range(len(items)))

    def work() -> None:
        # each place is taken once, by whatever thread is free
        for place in places:
            results[place] = function(items[place])

    others = [_pool().submit(work) for _ in range(min(THREADS, len(items)) - 1)]
    try:
        work()
    finally:
        # Of a busy machine other threads may not have begun when all is done: nobody waits for these.
        wait([other for other in others if not other.cancel()])
    for other in others:
        if not other.cancelled():
            other.result()
    return results


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """Return the threads beside the caller's, which stay: to start them takes longer than a small product."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="distls-rows")


# a child of a fork has none of them
register_at_fork(after_in_child=_pool.cache_clear)
