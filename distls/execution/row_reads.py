"""Reads of all rows of a data set, each exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distls.execution.executor import Executor
from distls.storage.dataset.dataset import Dataset
from distls.workers.rounds.lanes import DEFAULT_LANES, Lane, deal
from distls.workers.rounds.task import Task


def reading_lanes(dataset: Dataset) -> list[Lane]:
    """Return the lanes in which a dataset is read for a reduction."""
    n_lanes = max(1, min(DEFAULT_LANES, len(dataset)))
    return [Lane(i, blocks) for i, blocks in enumerate(deal(dataset.decoded_bytes, n_lanes))]


def reduce_rows(
    executor: Executor, dataset: Dataset, shared: Any, task: Task, lanes: Sequence[Lane] | None = None
) -> Any:
    """Reduce a task over all rows of a data set and check that each came exactly once."""
    total = executor.reduce(task, lanes or reading_lanes(dataset), merge=task.merge, shared=shared)
    total.ledger.check_cover(range(len(dataset)), dataset.meta.n_rows)
    return total
