"""Tasks: what a worker does to a stream of blocks; several at one read; and before a fit, on one row.

A task is a dataclass of what all items share, small enough to be sent with each. An executor calls it as
``task(shared, item)``. A worker then does the work in a copy of it, which is started, given every block of the item and
asked for its result.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from distls.storage.rows import Partition, n_rows_of
from distls.workers.rounds.block_stream import DatasetRef, stream
from distls.workers.rounds.ledger import Ledger, add_sums
from distls.workers.rounds.row_weights import seen_in_fold
from distls.workers.runtime.process import peak_rss, process_name, task_settings


class Needs(NamedTuple):
    """The bytes that a task needs beside the blocks that it reads, as its class declares them; a plan adds them up."""

    shared: int  # of what a worker is sent for all items
    result: float  # of an item's result
    work: int = 0  # of what it holds while it is at work, and of a chunk of its rows


class Task:
    """Base of tasks; a subclass has `start`, `add`, and `result` where that is not `total`."""

    data: DatasetRef  # what is read
    # whether such tasks, of fits side by side, are done at one read, each with the bits that it has alone
    shares_reads: ClassVar[bool] = False

    # of a copy at work
    shared: Any
    item: Any
    ledger: Ledger
    total: Any

    def reads(self, item: Any) -> tuple[int, ...]:
        """Return the blocks of an item, a lane or the number of a block, in the order in which they are read."""
        return (item,) if isinstance(item, int) else tuple(item.blocks)

    def start(self) -> None:
        """Begin to work on `item`, with what is `shared`."""

    def add(self, index: int, block: Any) -> None:
        """Work on a block, whose arrays are valid until the next one."""
        raise NotImplementedError

    def result(self) -> Any:
        """Return the result; the last call."""
        return replace(self.total, ledger=self.ledger) if hasattr(self.total, "ledger") else self.total

    @staticmethod
    def merge(left: Any, right: Any) -> Any:
        """Return the merged results of two items, which may use the memory of `left`."""
        return add_sums(left, right)

    def count(self, index: int, block: Any) -> None:
        """Enter a block that was worked on into the ledger."""
        self.ledger.count(index, n_rows_of(block.x))

    def stream(self, blocks: tuple[int, ...]) -> Iterator[tuple[int, Any]]:
        """Yield the blocks; all rows of partitions, whatever the fold."""
        return stream(self.data.whole, blocks, self.ledger)

    @classmethod
    def introduce(cls, tasks: Sequence[Any]) -> None:
        """Let tasks that share a read do some of their work together."""

    def __call__(self, shared: Any, item: Any) -> Any:
        """Return the result of an item."""
        return _read([self.started(shared, item)])[0]

    def started(self, shared: Any, item: Any) -> Any:
        """Return a copy at work."""
        own = copy.copy(self)
        own.shared, own.item, own.ledger = shared, item, Ledger()
        own.start()
        return own


def read_key(task: Any, items: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return what calls of an executor must have in common to be done at one read; None where none can be."""
    if not isinstance(task, Task) or not task.shares_reads:
        return None
    # fits to the rows of other folds read the same partitions
    return type(task), task.data.whole, tuple(task.reads(item) for item in items)


@dataclass(frozen=True)
class ReadTogether:
    """The tasks of several calls as one: items are tuples of (number of the call, its item)."""

    tasks: tuple[Task, ...]  # of one class, which shares reads

    def __call__(self, shared: tuple[Any, ...], items: tuple[tuple[int, Any], ...]) -> tuple[Any, ...]:
        """Return the result of every item; `shared` has that of each call."""
        started = [self.tasks[number].started(shared[number], item) for number, item in items]
        if len(started) > 1:
            self.tasks[0].introduce(started)
        return tuple(_read(started))

    @property
    def merge(self) -> MergeEach:
        """What merges two results."""
        return MergeEach(self.tasks[0].merge)


@dataclass(frozen=True)
class MergeEach:
    """Merges the results of `ReadTogether`, each with its own kind."""

    one: Callable[[Any, Any], Any]

    def __call__(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the merged results."""
        return tuple(self.one(a, b) for a, b in zip(left, right, strict=True))


def _read(tasks: Sequence[Task]) -> list[Any]:
    """Give started tasks every block; the costs of reading are those of the first."""
    first, entered = tasks[0], time.perf_counter()
    spent = [0.0] * len(tasks)
    for index, block in first.stream(first.reads(first.item)):
        for place, task in enumerate(tasks):
            began, fold = time.perf_counter(), task.data.fold
            # Column shards have all rows, whose weights are read with their targets.
            seen = seen_in_fold(block, fold) if fold is not None and isinstance(block, Partition) else block
            task.add(index, seen)
            task.count(index, seen)
            spent[place] += time.perf_counter() - began
    results = []
    for place, task in enumerate(tasks):
        began = time.perf_counter()
        results.append(task.result())
        spent[place] += time.perf_counter() - began
    # Reading is done once for all, and charged once.
    spent[0] += time.perf_counter() - entered - sum(spent)
    for task, seconds in zip(tasks, spent, strict=True):
        task.ledger.charge(seconds)
        task.ledger.worker_peaks[process_name()] = peak_rss()
    return results


class Call(NamedTuple):
    """A task, as an executor calls it."""

    task: Callable[[Any, Any], Any]
    shared: Any
    item: Any
    merged: bool = True  # whether there is ever more than one result


_REHEARSED: set[Hashable] = set()


def rehearse(given: tuple[Hashable, Sequence[Call]]) -> None:
    """Do tasks in their order, merge what they give, and forget it: this process then has their kernels.

    They are given with what tells kernels apart: this is done once for each in a process.
    """
    kind, calls = given
    if kind in _REHEARSED:
        return
    _REHEARSED.add(kind)
    with task_settings():
        for task, shared, item, merged in calls:
            result, merge = task(shared, item), getattr(task, "merge", None)
            if merged and merge is not None:
                merge(result, copy.deepcopy(result))
