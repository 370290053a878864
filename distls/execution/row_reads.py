"""Reads of all rows of a data set, each exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distls.execution.batch import reduced, run_alone
from distls.execution.executor import Executor
from distls.storage.dataset.dataset import Dataset
from distls.workers.rounds.lanes import DEFAULT_LANES, Lane, deal
from distls.workers.rounds.task import Task


def reading_lanes(dataset: Dataset) -> list[Lane]:
    """Return the lanes in which a dataset is read for a reduction."""
    n_lanes = max(1, min(DEFAULT_LANES, len(dataset)))
    return [Lane(i, blocks) for i, blocks in enumerate(deal(dataset.decoded_bytes, n_lanes))]


async def rows_reduced(dataset: Dataset, shared: Any, task: Task, lanes: Sequence[Lane] | None = None) -> Any:
    """Reduce a task over all rows of a data set and check that each came exactly once, as a part of a fit."""
    total = await reduced(task, lanes or reading_lanes(dataset), merge=task.merge, shared=shared)
    total.ledger.check_cover(range(len(dataset)), dataset.meta.n_rows)
    return total


def reduce_rows(executor: Executor, *read: Any) -> Any:
    """Do `rows_reduced` alone."""
    return run_alone(rows_reduced(*read), executor)
