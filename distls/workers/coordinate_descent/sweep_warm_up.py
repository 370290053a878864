"""Before the first round of block coordinate descent: compile kernels, and time a shard."""

from __future__ import annotations

import numpy as np

from distls.storage.rows import DenseRows, index_dtype, n_rows_of
from distls.workers.coordinate_descent.descent_kernels import N_TOTALS, Step, column_sweep, loss_of_scores
from distls.workers.coordinate_descent.intercept import Intercept
from distls.workers.coordinate_descent.row_scores_task import Margins, no_targets
from distls.workers.coordinate_descent.sweep_task import Sweeper, SweepJob
from distls.workers.linear_algebra.score_kernels import scores
from distls.workers.losses.loss_registry import loss_named
from distls.workers.rounds.block_stream import DatasetRef, open_ref, stream
from distls.workers.rounds.kernel_types import one_row
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger


def warm_up(data: DatasetRef, loss: str, dtype: str, *, fit_intercept: bool = False) -> None:
    """Compile the kernels of a job, or load them from the disk cache, on a single row."""
    meta = open_ref(data).meta
    x = one_row(meta.layout, meta.dtype, index_dtype(meta.n_rows).name)
    z, weight, y = np.zeros((1, 2), dtype), np.empty(0), no_targets(meta, 1)
    order, step, totals = np.zeros(1, np.int64), Step(1.0, 0.0, 1.0, False), np.zeros(N_TOTALS)
    unmarked = np.empty(0, np.bool_)
    # columns that move with the intercept are dense, and float64 once their means are taken away
    shards = {type(x): x} | ({"centred": DenseRows(np.zeros((1, 1)))} if fit_intercept else {})
    for shard in shards.values():
        column_sweep(
            shard, order, np.zeros((1, 2)), z, y, weight, loss_named(loss), 0, step, totals, unmarked, 0.0
        )
    if fit_intercept:
        Intercept(Margins(z, y, weight), loss, step).step(np.zeros(2), totals)
    loss_of_scores(z, z, 0.0, y, weight, loss_named(loss))
    rows = one_row(meta.layout, meta.dtype, index_dtype(meta.n_features).name)
    scores(rows, np.zeros((2, 2), dtype), np.zeros(2), z)


def probe_sweep(job: SweepJob, k: int, block: int, shard: int) -> None:
    """Score one partition and sweep one shard from zero weights, and store nothing."""
    meta = open_ref(job.margins.data).meta
    for _, part in stream(job.margins.data, [block]):
        scores(part.x, np.zeros((meta.n_features, k), job.margins.dtype), np.zeros(k),
               np.empty((n_rows_of(part.x), k), job.margins.dtype))  # fmt: skip
    y, z = no_targets(meta, meta.n_rows), np.zeros((meta.n_rows, k), job.margins.dtype)
    sweeper = Sweeper(job, Margins(z, y, np.empty(0)), 0, Ledger(), np.zeros(k))
    for each in sweeper.shards(Lane(0, (shard,))):
        n = n_rows_of(each.x)
        sweeper.sweep(each, np.zeros((n, k)), np.arange(n))
