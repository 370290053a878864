"""Reads of all rows of a data set, each exactly once."""

from collections.abc import Sequence
from typing import Any

from distls.execution.batch import reduced, run_alone
from distls.execution.executor import Executor
from distls.storage.dataset.dataset import Dataset
from distls.workers.rounds.lanes import DEFAULT_LANES, Lane, deal
from distls.workers.rounds.task import Task

# Largest number of lanes.
MOST_LANES = 4096
# Partitions of a lane at least, where there are many: 192 MiB of such that ingest makes by default.
_PARTITIONS_A_LANE = 12
# Rows of each of more than eight lanes at least: those of fewer, averaged, are behind after the same passes.
_ROWS_A_LANE = 2**15


def default_parallelism(dataset: Dataset) -> int:
    """Return how many threads are to work at the same time on a data set, on any cluster."""
    enough = max(dataset.meta.n_rows // _ROWS_A_LANE, DEFAULT_LANES)
    wanted = max(min(len(dataset) // _PARTITIONS_A_LANE, enough), 1)
    # a power of two: as many lanes for each of 2, 4, 8, ... threads, and no results that the tree leaves apart
    return min(1 << (wanted.bit_length() - 1), MOST_LANES)


def lanes_of(parallelism: int, n_blocks: int, least: int = DEFAULT_LANES) -> int:
    """Return how many lanes are made of so many blocks, where nobody has asked for a number."""
    return max(1, min(max(least, parallelism), n_blocks))


def reading_lanes(dataset: Dataset, parallelism: int | None = None) -> list[Lane]:
    """Return the lanes in which a dataset is read for a reduction; of a fit by its own parallelism."""
    n_lanes = lanes_of(parallelism or default_parallelism(dataset), len(dataset))
    return [Lane(i, blocks) for i, blocks in enumerate(deal(dataset.decoded_bytes, n_lanes))]


async def rows_reduced(
    dataset: Dataset, shared: Any, task: Task, lanes: Sequence[Lane] | None = None, only: Sequence[int] | None = None
) -> Any:
    """Reduce a task over all rows of a data set, or of some partitions, as a part of a fit.

    It is checked that each came exactly once.
    """
    work, n_rows = lanes or reading_lanes(dataset), dataset.meta.n_rows
    if only is not None:
        chosen, n_rows = frozenset(only), int(dataset.table.rows[list(only)].sum())
        work = [Lane(lane.index, tuple(block for block in lane.blocks if block in chosen)) for lane in work]
    total = await reduced(task, work, merge=task.merge, shared=shared)
    total.ledger.check_cover(range(len(dataset)) if only is None else only, n_rows)
    return total


def reduce_rows(executor: Executor, *read: Any) -> Any:
    """Do `rows_reduced` alone."""
    return run_alone(rows_reduced(*read), executor)
