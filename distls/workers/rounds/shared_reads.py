"""Tasks that take the partitions of a lane one after the other, and several such tasks at one read of them.

A task is a `Reading`, which is given every partition of its lane and has a result at the end. Alone it streams the
partitions itself; together with others, of fits side by side, it shares what is read and decoded, and has the bits
that it would have alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from distls.storage.rows import Partition
from distls.workers.rounds.block_stream import DatasetRef, stream
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.row_weights import seen_in_fold
from distls.workers.runtime.process import peak_rss, process_name

Task = TypeVar("Task", bound=Callable[..., Any])


class Reading(Protocol):
    """The work of a task on the partitions that it is given, in the order of `blocks`."""

    @property
    def data(self) -> DatasetRef:
        """The data it reads."""

    @property
    def blocks(self) -> tuple[int, ...]:
        """The partitions it is given."""

    @property
    def ledger(self) -> Ledger:
        """The ledger of its result."""

    def take(self, index: int, part: Partition) -> None:
        """Work on a partition, whose arrays are valid until the next one."""

    def result(self) -> Any:
        """Return the result; the last call."""


# What makes the reading of each task: called as the task is, (job, shared, item).
_STARTS: dict[Callable[..., Any], Callable[..., Reading]] = {}
# What is called with the readings of a task that share a read, before the first partition.
_INTRODUCE: dict[Callable[..., Any], Callable[[Sequence[Any]], None]] = {}


def done_by(
    start: Callable[..., Reading], introduce: Callable[[Sequence[Any]], None] | None = None
) -> Callable[[Task], Task]:
    """Return a decorator of tasks that are one `Reading`, so that several of them can share a read.

    `introduce` is called with all readings before they share one: they may then do some of their work together.
    """

    def remember(task: Task) -> Task:
        _STARTS[task] = start
        if introduce is not None:
            _INTRODUCE[task] = introduce
        return task

    return remember


def read_alone(reading: Reading) -> Any:
    """Give a reading its partitions; return its result."""
    return _read([reading])[0]


def read_key(function: Any, items: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return what calls of an executor must have in common to be done at one read; None where none can be."""
    if not isinstance(function, partial) or function.func not in _STARTS:
        return None
    data = getattr(function.args[0], "data", function.args[0])  # of a job, or without any
    # fits to the rows of other folds read the same partitions
    return function.func, replace(data, fold=None), tuple(item.reads for item in items)


@dataclass(frozen=True)
class ReadTogether:
    """The tasks of several calls as one: items are tuples of (number of the call, its item)."""

    tasks: tuple[Any, ...]  # partials of one task under `done_by`

    def __call__(self, shared: tuple[Any, ...], items: tuple[tuple[int, Any], ...]) -> tuple[Any, ...]:
        """Return the result of every item; `shared` has that of each call."""
        readings = []
        for number, item in items:
            task = self.tasks[number]
            readings.append(_STARTS[task.func](*task.args, shared[number], item, **task.keywords))
        if self.tasks[0].func in _INTRODUCE:  # all are of one task, see `read_key`
            _INTRODUCE[self.tasks[0].func](readings)
        return tuple(_read(readings))


@dataclass(frozen=True)
class MergeEach:
    """Merges the results of `ReadTogether`, each with its own kind."""

    merge: Callable[[Any, Any], Any]

    def __call__(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the merged results."""
        return tuple(self.merge(a, b) for a, b in zip(left, right, strict=True))


def _read(readings: Sequence[Reading]) -> list[Any]:
    """Give the readings every partition; the costs of reading are those of the first."""
    first, entered = readings[0], time.perf_counter()
    spent = [0.0] * len(readings)
    for index, part in stream(replace(first.data, fold=None), first.blocks, first.ledger):
        for place, reading in enumerate(readings):
            began, fold = time.perf_counter(), reading.data.fold
            reading.take(index, part if fold is None else seen_in_fold(part, fold))
            spent[place] += time.perf_counter() - began
    results = []
    for place, reading in enumerate(readings):
        began = time.perf_counter()
        results.append(reading.result())
        spent[place] += time.perf_counter() - began
    spent[0] += time.perf_counter() - entered - sum(spent)
    for reading, seconds in zip(readings, spent, strict=True):
        reading.ledger.charge(seconds)
        reading.ledger.worker_peaks[process_name()] = peak_rss()
    return results
