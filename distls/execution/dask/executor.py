"""The Dask executor, and clusters on this machine: with `remote.py` all that knows Dask.

A call owns (items, shared value), never a worker's address: workers may join, leave or die within and between
calls. `shared` is scattered by the driver for each call, so that the scheduler never keeps a chain of rounds;
when its only holder dies, it is scattered again and what is missing is redone.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import pickle
import tempfile
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import dask
import distributed.utils
from distributed import Client, Future, LocalCluster, Nanny, SpecCluster

from distls.execution.dask.connection import CUT, SHORT_LOGS, Answer, Connection, Lost, PlainClient, release
from distls.execution.dask.forkserver import SINGLE_THREADED, Made, start_fork_server, started
from distls.execution.executor import Group, Item, Result, group_items, move_groups, run_group
from distls.execution.memory_budget import MemoryBudget
from distls.execution.network import SMALL
from distls.storage.errors import WorkerError
from distls.storage.filesystem.private_folder import NotPrivateError, private_folder, temporary_home
from distls.workers.rounds.reduction_tree import ReductionTree
from distls.workers.runtime.process import single_threaded_blas

__all__ = [
    "DaskExecutor",
    "PatientNanny",
    "local_cluster",
    "report_defects",
    "set_log_level",
    "start_local",
    "started_as_suits",
    "watch_loop",
]

# Lost data, closed connections and dead workers are redone this often before the job gives up.
_ATTEMPTS = 5
# Workers that do not end by then are killed as this process ends.
_CLOSE_SECONDS = 10
# Variables of the environment that stores are reached by.
_OF_STORES = ("AWS_", "AZURE_", "GOOGLE_", "DISTLS_")
# Between the death of a worker and the start of its successor.
_PAUSE_SECONDS = 0.5

# Decoded partitions are not Dask data, so Dask must not spill, pause early or move work away from warm caches.
_CONFIG: dict[str, Any] = {
    "distributed.worker.multiprocessing-method": "forkserver",
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-saturation": "inf",
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 0.99,
    "distributed.worker.profile.enabled": False,
    **SHORT_LOGS,
    "distributed.comm.retry.count": 3,
    # Not MALLOC_TRIM_THRESHOLD_, Dask's default: it makes every large buffer a fresh run of page faults.
    "distributed.nanny.pre-spawn-environ": SINGLE_THREADED,
}


class DaskExecutor:
    """Runs tasks on the workers of a Dask client.

    Parameters
    ----------
    connection : Connection
    cluster : LocalCluster, optional
        Closed with the executor.
    owns_client : bool
        Whether `close` closes the client too.
    """

    def __init__(
        self, connection: Connection, cluster: LocalCluster | None = None, *, owns_client: bool = True
    ) -> None:
        self._connection = connection
        self._cluster = cluster
        self._owns_client = owns_client

    @property
    def client(self) -> Client:
        """The client in use; another one after the scheduler was started anew."""
        return self._connection.client

    @property
    def slots(self) -> int:
        """Threads of all workers."""
        return max(sum(self._connection.threads().values()), 1)

    def _places(self) -> list[str]:
        """Return one worker address for each thread, workers with several threads in turns."""
        threads = self._connection.threads()
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
        """Return the worker with the fewest tasks a thread: left alone, Dask keeps them where `shared` already is."""
        busy = Counter(worker for _, future, worker in waiting if not future.done())
        threads = self._connection.threads()
        return min(threads, key=lambda worker: busy[worker] / threads[worker])

    def _sent(self, shared: Any) -> Any:
        """Return `shared` as a task takes it: what is small goes with each task and waits for nobody."""
        return shared if _pickled_bytes(shared) <= SMALL else self._connection.send(shared)

    def _persistently(self, action: Callable[[], Answer]) -> Answer:
        """Do something until it is not lost with a worker or the scheduler."""
        for attempt in range(_ATTEMPTS):
            try:
                return action()
            except Lost as error:
                self._after(error, attempt)
        raise AssertionError("unreachable")

    def _after(self, error: BaseException | None, attempt: int) -> None:
        """Give the scheduler time to notice who is gone, wait for those who come back; or give up."""
        if attempt == _ATTEMPTS - 1:
            raise WorkerError(f"workers were lost {_ATTEMPTS} times in a row ({error}); resume the run")
        time.sleep(0.25 * 2**attempt)
        self._connection.threads()

    def _result_of(self, future: Future | None, again: Callable[[], Future]) -> Any:
        def fetch() -> Any:
            # after a loss the task is started anew
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
        """Run one task a group; return the groups whose workers or inputs were lost, to be redone."""
        token = uuid.uuid4().hex[:8]
        pending: dict[Future, Group] = {}
        missing = set(groups)
        cause: BaseException | None = None
        try:
            sent = self._sent(shared)
            for group in groups:
                start, stop, worker = group
                call = (_call_group, function, sent, items[start:stop], start, len(items), merge)
                pending[self._connection.submit(token, *call, worker=worker)] = group
            for future in self._connection.ended(pending):
                try:
                    tree.add_all(self._connection.result(future))
                    missing.discard(pending[future])
                except Lost as error:
                    cause = error
        except Lost as error:
            cause = error
        except KeyboardInterrupt:
            self._end_restarts()
            raise
        finally:
            release(pending)
        return sorted(missing), cause

    def budget(self) -> MemoryBudget:
        """Return the workers' own memory limits (the smallest counts) and threads (the most)."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        limits = [worker["memory_limit"] for worker in workers if worker.get("memory_limit")]
        threads = max((worker["nthreads"] for worker in workers), default=1)
        return MemoryBudget(min(limits, default=None), max(len(workers), 1), threads, compiles=True)

    def each_worker(self, function: Callable[[Item], Result], item: Item) -> dict[str, Result]:
        """See `Executor.each_worker`."""
        return self._persistently(lambda: self._connection.ask_each(function, item))

    def close(self) -> None:
        """Close the client and the local cluster, if they are this executor's own; an interrupt cuts it short."""
        if self._owns_client:
            watch_loop(self.client, _ignore)
        self._end_restarts()
        self._connection.forget()
        mine = (self.client if self._owns_client else None, self._cluster)
        with contextlib.suppress(KeyboardInterrupt):
            for each in mine:
                with contextlib.suppress(Exception):
                    if each is not None:
                        each.close(timeout=_CLOSE_SECONDS)
        if self._cluster is not None:
            # or Dask would wait once more when the process ends
            self._cluster.shutdown_on_close = False

    def _end_restarts(self) -> None:
        """Start no worker anew: `close` would have to wait for it."""
        workers = {} if self._cluster is None else self._cluster.workers
        for nanny in workers.values():
            nanny.restarts = False


class _PatientCluster(LocalCluster):  # type: ignore[misc]
    """Keeps the nanny of a worker that is away: Dask would close it for good if it is not back in 15 s."""

    def _update_worker_status(self, op: str, message: Any) -> None:
        super(SpecCluster, self)._update_worker_status(op, message)


class PatientNanny(Nanny):  # type: ignore[misc]
    """Pauses before it starts a worker anew: what ended the worker may just have been sent to the driver too."""

    restarts = True

    async def _on_worker_exit(self, exitcode: int) -> None:
        await asyncio.sleep(_PAUSE_SECONDS)
        if self.restarts:
            await super()._on_worker_exit(exitcode)


def watch_loop(client: Client, handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]) -> None:
    """Have `handler` told what goes wrong in the event loop of a client, and of a local cluster."""
    client.loop.asyncio_loop.set_exception_handler(handler)


def report_defects(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report what went wrong in nobody's call, except connections that an interrupt or `close` cut."""
    if not isinstance(context.get("exception"), CUT):
        loop.default_exception_handler(context)


def _ignore(_loop: asyncio.AbstractEventLoop, _context: dict[str, Any]) -> None:
    pass


def _pickled_bytes(value: Any) -> int:
    """Return the size of `value` as it would be sent; arrays are not copied for it."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return len(head) + sum(buffer.raw().nbytes for buffer in buffers)


def _call(function: Callable[[Any, Any], Any], shared: Any, item: Any) -> Any:
    with single_threaded_blas():
        return function(shared, item)


def _call_group(*call: Any) -> Any:
    with single_threaded_blas():
        return run_group(*call)


def start_local(
    n_workers: int,
    threads_per_worker: int = 1,
    memory_limit: int | None = None,
    *,
    processes: bool = True,
    log_level: int = logging.CRITICAL,
) -> DaskExecutor:
    """Start a cluster on this machine, its dashboard on loopback, and connect to it.

    Parameters
    ----------
    memory_limit : int or None
        Bytes a worker; None for no limit.
    log_level : int
        Of the cluster's own messages: workers that die or restart are this module's to report.
    """
    set_log_level(log_level)

    def start() -> DaskExecutor:
        cluster = local_cluster(
            n_workers, threads_per_worker, memory_limit, processes=processes, log_level=log_level
        )
        # weights go straight between this process and the workers, not through the scheduler
        client = PlainClient(cluster, set_as_default=False, direct_to_workers=processes)
        watch_loop(client, report_defects)
        return DaskExecutor(Connection(client), cluster)

    return started_as_suits(start, processes=processes)


def started_as_suits(start: Callable[[], Made], *, processes: bool = True) -> Made:
    """Return the cluster that `start` starts, with settings of Dask that suit distls."""
    if processes:
        start_fork_server()
        # or Dask would have this process import pandas, only to have the fork server import it too
        distributed.utils._forkserver_preload_set = True
    with dask.config.set(_CONFIG | {"temporary-directory": _scratch()}):
        return started(start)


def local_cluster(
    n_workers: int,
    threads_per_worker: int,
    memory_limit: int | None,
    *,
    processes: bool = True,
    log_level: int,
    **options: Any,
) -> LocalCluster:
    """Start a scheduler and workers on this machine, on loopback unless `options` say otherwise."""
    processes_only = {
        "worker_class": PatientNanny,
        "host": "127.0.0.1",
        "preload": _preloads() if log_level > logging.WARNING else None,
        # the process that workers are forked from may be older than the credentials of a store
        "env": {name: value for name, value in os.environ.items() if name.startswith(_OF_STORES)},
    }
    return _PatientCluster(
        n_workers=n_workers,
        threads_per_worker=threads_per_worker,
        memory_limit=memory_limit or 0,
        processes=processes,
        dashboard_address="127.0.0.1:0",
        silence_logs=log_level,
        **(processes_only if processes else {}) | options,
    )


def _scratch() -> str:
    """Return where Dask keeps files: its processes import from there too, so it must be this user's own."""
    configured = dask.config.get("temporary-directory")
    if configured:
        return str(configured)
    try:
        return str(private_folder(temporary_home()))
    except NotPrivateError:
        return tempfile.mkdtemp(prefix="distls-")


def _preloads() -> list[str]:
    return [*dask.config.get("distributed.worker.preload"), "distls.workers.dask_log_preload"]


def set_log_level(level: int) -> None:
    """Let Dask's own messages of `level` and above through, and those of the event loop that it runs on."""
    for name in ("distributed", "tornado.application"):
        logging.getLogger(name).setLevel(level)
