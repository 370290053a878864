"""The executor on a Dask cluster, whoever started it.

A call owns (items, shared value), never a worker's address: workers may join, leave or die within and between
calls. `shared` is scattered by the driver for each call, so that the scheduler never keeps a chain of rounds;
when its only holder dies, it is scattered again and what is missing is redone.
"""

import contextlib
import itertools
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import dask
from distributed import Client, Future, LocalCluster

from distls.execution.dask.connection import Answer, Connection, Lost, release
from distls.execution.dask.error_logs import ignore_defects, watch_loop
from distls.execution.dask.private_hooks import is_inherited
from distls.execution.dask.reduction_tasks import Size, call_group, cut, merge_parts
from distls.execution.executor import Group, Item, Result, group_items, move_groups
from distls.execution.memory_budget import SAFE_FRACTION, MemoryBudget, WorkerMemory, budget_of_workers
from distls.execution.network import FEW, FEW_HERE, SMALL, joined, merge_levels, slices_of
from distls.storage.errors import WorkerError
from distls.storage.machine import available_memory
from distls.workers.rounds.reduction_tree import ReductionTree
from distls.workers.runtime.process import process_name, task_settings

# Attempts after lost data, closed connections and dead workers before the job gives up.
_ATTEMPTS = 5
# Workers that take longer to end are killed as this process ends.
_CLOSE_SECONDS = 10


class DaskExecutor:
    """Runs tasks on the workers of a Dask client; closes the cluster, if given, and the client if it owns it."""

    def __init__(
        self, connection: Connection, cluster: LocalCluster | None = None, *, owns_client: bool = True
    ) -> None:
        self._connection = connection
        self._cluster = cluster
        self._owns_client = owns_client

    @property
    def client(self) -> Client:
        """The current client; it changes when the scheduler is restarted."""
        return self._connection.client

    @property
    def slots(self) -> int:
        """Threads of all workers."""
        return max(sum(self._connection.threads().values()), 1)

    def _places(self) -> list[str]:
        """Return one worker address per thread, alternating between workers."""
        threads = self._connection.threads()
        # Alternating: neighbouring groups go to different workers, which evens out their load.
        turns = range(max(threads.values()))
        return [address for turn in turns for address, count in threads.items() if turn < count]

    def map(
        self, function: Callable[[Any, Item], Result], items: Sequence[Item], *, shared: Any = None
    ) -> Iterator[Result]:
        """See `Executor.map`."""
        waiting: deque[tuple[Item, Future, str | None]] = deque()
        source = iter(items)
        token = uuid.uuid4().hex[:8]

        def start(item: Item) -> tuple[Item, Future, str | None]:
            worker = self._idlest(waiting) if isinstance(sent, Future) else None
            return item, self._connection.submit(token, _call, function, sent, item, worker=worker), worker

        def again(item: Item) -> Future:
            return self._connection.submit(token, _call, function, self._sent(shared), item)

        try:
            sent = self._persistently(lambda: self._sent(shared))
            while True:
                # Two tasks a thread: one at work and one that waits.
                for item in itertools.islice(source, max(2 * self.slots - len(waiting), 0)):
                    waiting.append(self._persistently(partial(start, item)))
                if not waiting:
                    return
                item, future, _ = waiting.popleft()
                yield self._result_of(future, partial(again, item))
        except KeyboardInterrupt:
            self._end_restarts()
            raise
        finally:
            release(future for _, future, _ in waiting)

    def _idlest(self, waiting: Iterable[tuple[Any, Future, str | None]]) -> str:
        """Return the worker with the fewest tasks per thread: Dask would keep all where `shared` already is."""
        busy = Counter(worker for _, future, worker in waiting if not future.done())
        # Per thread, as workers may have several.
        threads = self._connection.threads()
        return min(threads, key=lambda worker: busy[worker] / threads[worker])

    def _sent(self, shared: Any, places: Iterable[str] = ()) -> Any:
        """Return `shared` as an argument of tasks: itself if small, else a future of it on a worker.

        Tasks at many places are given slices of a very large one, each a future on another worker.
        """
        size = Size.of(shared)
        # A small value travels with each task, which is one message less.
        if size.head + size.arrays <= SMALL:
            return shared
        holders, count = set(places), 1
        if size.head <= SMALL and slices_of(size.arrays, len(holders)) > 1:
            # A worker that has paused takes nothing.
            holders &= self._connection.running()
            count = slices_of(size.arrays, len(holders))
        if count == 1:
            return self._connection.send([shared])[0]
        head, slices = cut(shared, count)
        # Distinct workers, whose links are used side by side.
        return [*head, *self._connection.send(slices, sorted(holders)[:count])]

    def _persistently(self, action: Callable[[], Answer]) -> Answer:
        """Repeat an action until its result is not lost with a worker or the scheduler."""
        for attempt in range(_ATTEMPTS):
            try:
                return action()
            except Lost as error:
                self._after(error, attempt)
        raise AssertionError("unreachable")

    def _after(self, error: BaseException | None, attempt: int) -> None:
        """Give the scheduler time to notice lost workers, and wait for new ones; or give up."""
        if attempt == _ATTEMPTS - 1:
            raise WorkerError(f"workers were lost {_ATTEMPTS} times in a row ({error}); resume the run")
        # Doubled waits: a scheduler needs heartbeats to notice that a worker is gone.
        time.sleep(0.25 * 2**attempt)
        self._connection.threads()

    def _result_of(self, future: Future | None, again: Callable[[], Future]) -> Any:
        def fetch() -> Any:
            # after a loss the task is submitted again
            nonlocal future
            running, future = future or again(), None
            try:
                return self._connection.result(running)
            finally:
                release([running])

        return self._persistently(fetch)

    def reduce(
        self,
        function: Callable[[Any, Item], Result],
        items: Sequence[Item],
        *,
        merge: Callable[[Result, Result], Result],
        shared: Any = None,
    ) -> Result:
        """See `Executor.reduce`."""
        # The tree is the same whatever groups are repeated, so the result is too.
        tree: ReductionTree[Result] = ReductionTree(len(items), merge)
        groups = group_items(len(items), self._places())
        attempt = -1
        while groups:
            before = len(groups)
            groups, error = self._run_groups(groups, function, items, merge, shared, tree)
            if groups:
                # only losses without any progress count as in a row
                attempt = attempt + 1 if len(groups) == before else 0
                self._after(error, attempt)
                # To other places: the same worker may die of the same task again.
                groups = move_groups(groups, self._places())
        return tree.root()

    def _run_groups(
        self,
        groups: list[Group],
        function: Callable[[Any, Item], Result],
        items: Sequence[Item],
        merge: Callable[[Result, Result], Result],
        shared: Any,
        tree: ReductionTree[Result],
    ) -> tuple[list[Group], BaseException | None]:
        """Run one task per group; return the groups whose workers or inputs were lost, to be repeated."""
        # Keys of one call share a prefix: one group of tasks in Dask's records.
        token = uuid.uuid4().hex[:8]
        pending: dict[Future, list[Group]] = {}
        missing, n_items = set(groups), len(items)
        cause: BaseException | None = None
        try:
            # On one machine all have the same memory, and no links.
            sent = self._sent(shared, (place for *_, place in groups) if self._cluster is None else ())
            few = len(groups) <= (FEW if self._cluster is None else FEW_HERE)
            start = partial(self._connection.submit_each, token)
            calls = [(few, function, sent, items[a:b], a, n_items, merge) for a, b, _ in groups]
            futures = start(call_group, calls, [place for *_, place in groups])
            pending = {future: [group] for future, group in zip(futures, groups, strict=True)}
            merged = partial(start, partial(merge_parts, n_items, merge))
            for future, lost in self._to_fetch(pending, n_items, merged):
                try:
                    if lost is not None:
                        raise lost
                    tree.add_all(self._connection.result(future))
                    # `add_all` raises for a result that came twice.
                    missing.difference_update(pending[future])
                except Lost as error:
                    cause = error
        except Lost as error:
            cause = error
        except KeyboardInterrupt:
            self._end_restarts()
            raise
        finally:
            release(pending)
        # In order, as groups are numbered by their items.
        return sorted(missing), cause

    def _to_fetch(
        self, tasks: dict[Future, list[Group]], n_items: int, merged: Callable[..., list[Future]]
    ) -> Iterator[tuple[Future, Lost | None]]:
        """Yield the tasks whose results the driver fetches, as they end; many large results are merged first.

        `merged` starts tasks that merge results of others; such tasks are added to `tasks`.
        """
        left = dict(tasks)
        for future, lost in self._connection.ended(left.copy()):
            # The type has come with the message that the task has ended.
            fan = getattr(future.type, "fan", 0)
            if fan and lost is None:
                break
            del left[future]
            yield future, lost
        else:
            return
        parts = {group: future for future, (group,) in left.items()}
        merges = _start_merges(parts, merge_levels(sorted(parts), fan, n_items), merged)
        root = [*left, *merges][-1]
        tasks |= {each: [group for (group,) in left.values()] for each in (*merges, root)}
        for future, lost in self._connection.ended([*left, *merges]):
            if future is root or lost is not None:
                yield root, lost
                return
            # A worker keeps it while it is needed, and the scheduler what it takes to make it again.
            future.release()

    def budget(self) -> MemoryBudget:
        """Return the memory of the workers that are there, as they say themselves."""
        return budget_of_workers(self.each_worker(_memory, None).values())

    def each_worker(self, function: Callable[[Item], Result], item: Item) -> dict[str, Result]:
        """See `Executor.each_worker`."""
        return self._persistently(lambda: self._connection.ask_each(function, item))

    def close(self) -> None:
        """Close the client and the local cluster, if they are this executor's own; an interrupt cuts it short."""
        if is_inherited(self.client):
            return
        if self._owns_client:
            # The loop goes on for a moment while connections close.
            watch_loop(self.client, ignore_defects)
        self._end_restarts()
        self._connection.forget()
        mine = (self.client if self._owns_client else None, self._cluster)
        with contextlib.suppress(KeyboardInterrupt):
            for each in mine:
                with contextlib.suppress(Exception):
                    if each is not None:
                        each.close(timeout=_CLOSE_SECONDS)
        if self._cluster is not None:
            # otherwise Dask would wait again when the process ends
            self._cluster.shutdown_on_close = False

    def _end_restarts(self) -> None:
        """Prevent restarts of workers: `close` would have to wait for them."""
        workers = {} if self._cluster is None else self._cluster.workers
        for nanny in workers.values():
            nanny.restarts = False


def _memory(_item: object, dask_worker: Any = None) -> WorkerMemory:
    manager, threads = dask_worker.memory_manager, dask_worker.state.nthreads
    killed = dask_worker.nanny and dask.config.get("distributed.worker.memory.terminate")
    known = [killed, manager.memory_pause_fraction, manager.memory_spill_fraction]
    # A little below them: memory is measured now and then. Without a limit nothing happens at any.
    parts = [min(((manager.memory_limit and part) or 1.0) - 0.03, SAFE_FRACTION) for part in known]
    limit, free = manager.memory_limit, available_memory()
    return WorkerMemory(process_name(), threads, limit, free, parts[0], min(parts))


def _call(function: Callable[[Any, Any], Any], shared: Any, item: Any) -> Any:
    with task_settings():
        return function(shared, item)


def _start_merges(
    parts: dict[Group, Future], levels: Iterable[list[list[Group]]], merged: Callable[..., list[Future]]
) -> list[Future]:
    """Start the merges of neighbouring groups' results, level by level; the last one gives that of all."""
    merges: list[Future] = []
    for level in levels:
        # one that is left over is merged with others of the next level
        found = [some for some in level if len(some) > 1]
        whole = [joined(some) for some in found]
        merges += merged([([parts[part] for part in some],) for some in found], [place for *_, place in whole])
        parts.update(zip(whole, merges[-len(whole) :], strict=True))
    return merges
