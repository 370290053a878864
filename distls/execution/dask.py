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
import pickle
import tempfile
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import dask
import distributed.utils
from distributed import Client, Future, KilledWorker, LocalCluster, Nanny, as_completed
from distributed.client import FutureCancelledError

from distls.execution.base import Group, Item, Result, group_items, move_groups, run_group
from distls.execution.forking import SINGLE_THREADED, Made, start_fork_server, started
from distls.memory import MemoryBudget
from distls.storage.errors import DistlsError, WorkerError
from distls.storage.private import NotPrivateError, private_folder, temporary_home
from distls.traffic import SMALL
from distls.workers.process import single_threaded_blas
from distls.workers.reduction import ReductionTree

__all__ = [
    "DaskExecutor",
    "PatientNanny",
    "PlainClient",
    "local_cluster",
    "set_log_level",
    "start_local",
    "started_as_suits",
]

# Lost data, closed connections and dead workers are redone this often before the job gives up.
_ATTEMPTS = 5
# A nanny starts its worker anew within seconds; an operator needs longer.
_RETURN_SECONDS = 120
# Workers that do not end by then are killed as this process ends.
_CLOSE_SECONDS = 10
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
    "distributed.comm.retry.count": 3,
    # Not MALLOC_TRIM_THRESHOLD_, Dask's default: it makes every large buffer a fresh run of page faults.
    "distributed.nanny.pre-spawn-environ": SINGLE_THREADED,
}

_LOST = (FutureCancelledError, asyncio.CancelledError, OSError)


class PlainClient(Client):  # type: ignore[misc]
    """A client that does not describe what it submits: the scheduler would keep every description for ever."""

    def _graph_to_futures(self, *graph: Any, **options: Any) -> Any:
        if "span_metadata" in options:
            options["span_metadata"] = {}
        return super()._graph_to_futures(*graph, **options)


class DaskExecutor:
    """Runs tasks on the workers of a Dask client.

    Parameters
    ----------
    client : distributed.Client
    cluster : LocalCluster, optional
        Closed with the executor.
    owns_client : bool
        Whether `close` closes the client too.
    """

    def __init__(
        self, client: Client, cluster: LocalCluster | None = None, *, owns_client: bool = True
    ) -> None:
        self.client = client
        self._cluster = cluster
        self._owns_client = owns_client
        self._kept: Future | None = None
        self._watch_loop(_report)

    def _watch_loop(self, handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]) -> None:
        """Have `handler` told what goes wrong in the client's and the local cluster's event loop."""
        if self._owns_client:
            self.client.loop.asyncio_loop.set_exception_handler(handler)

    @property
    def slots(self) -> int:
        """Threads of all workers."""
        return max(sum(self._threads().values()), 1)

    def _threads(self) -> Mapping[str, int]:
        return dict(sorted(self.client.nthreads().items()))

    def _places(self) -> list[str]:
        """Return one worker address for each thread, workers with several threads in turns."""
        threads = self._threads()
        if not threads:
            threads = self._wait_for_workers()
        turns = range(max(threads.values(), default=0))
        return [address for turn in turns for address, count in threads.items() if turn < count]

    def _wait_for_workers(self) -> Mapping[str, int]:
        try:
            self.client.wait_for_workers(1, timeout=_RETURN_SECONDS)
        except TimeoutError:
            raise WorkerError(
                f"all workers are gone and none came back within {_RETURN_SECONDS} s; start some and resume the run"
            ) from None
        return self._threads()

    def map(
        self, function: Callable[[Any, Item], Result], items: Sequence[Item], *, shared: Any = None
    ) -> Iterator[Result]:
        """See `Executor.map`."""
        waiting: deque[tuple[Item, Future, str | None]] = deque()
        source = iter(items)
        token = uuid.uuid4().hex[:8]
        try:
            sent = self._send(shared)
            while True:
                for item in itertools.islice(source, max(2 * self.slots - len(waiting), 0)):
                    worker = self._idlest(waiting) if isinstance(sent, Future) else None
                    future = self._submit(token, _call, function, sent, item, worker=worker)
                    waiting.append((item, future, worker))
                if not waiting:
                    return
                item, future, _ = waiting.popleft()

                def again(item: Item = item) -> Future:
                    return self._submit(token, _call, function, self._send(shared), item)

                yield self._result_of(future, again)
        except KeyboardInterrupt:
            self._end_restarts()
            raise
        finally:
            _release(future for _, future, _ in waiting)

    def _idlest(self, waiting: Iterable[tuple[Any, Future, str | None]]) -> str:
        """Return the worker with the fewest tasks a thread: left alone, Dask keeps them where `shared` already is."""
        busy = Counter(worker for _, future, worker in waiting if not future.done())
        threads = self._threads() or self._wait_for_workers()
        return min(threads, key=lambda worker: busy[worker] / threads[worker])

    def _send(self, shared: Any) -> Any:
        """Put `shared` on one worker, from where the others fetch it; without lineage, so nothing piles up.

        The worker may be dying: then another is tried, at last the scheduler's own choice. What is small goes
        with each task instead, which then waits for nobody.
        """
        if _pickled_bytes(shared) <= SMALL:
            return shared
        for attempt in range(_ATTEMPTS):
            direct = None if attempt < _ATTEMPTS - 1 else False
            key = _key()
            try:
                return self.client.scatter({key: shared}, hash=False, broadcast=False, direct=direct)[key]
            except _LOST as error:
                if attempt == _ATTEMPTS - 1:
                    raise _lost(error) from None
                time.sleep(0.25 * 2**attempt)
        raise AssertionError("unreachable")

    def _submit(self, token: str, *call: Any, worker: str | None = None) -> Future:
        self._keep_group()
        where = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        return self.client.submit(*call, key=_key(token), pure=False, retries=0, **where)

    def _keep_group(self) -> None:
        """Hold one small result as long as this executor lives.

        A task group without tasks is forgotten, but not what the scheduler's record of spans has of it; with each
        group that is made anew the record would grow.
        """
        if self._kept is None or self._kept.status in ("lost", "cancelled", "error"):
            self._kept = self.client.submit(_nothing, key=_key(), pure=False)

    def _result_of(self, future: Future, again: Callable[[], Future]) -> Any:
        for attempt in range(_ATTEMPTS):
            done = future
            try:
                return future.result()
            except DistlsError:
                raise
            except KilledWorker as error:
                raise _killed(error) from None
            except _LOST as error:
                if _is_task_error(future):
                    raise
                if attempt == _ATTEMPTS - 1:
                    raise _lost(error) from None
                future = again()
            finally:
                _release([done])
        raise AssertionError("unreachable")

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
        for attempt in range(_ATTEMPTS):
            groups, error = self._run_groups(groups, function, items, merge, shared, tree)
            if not groups:
                return tree.root()
            if attempt == _ATTEMPTS - 1:
                raise _lost(error)
            time.sleep(0.25 * 2**attempt)  # for the scheduler to notice who is gone
            groups = move_groups(groups, self._places())
        raise AssertionError("unreachable")

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
        lost: list[Group] = []
        cause: BaseException | None = None
        try:
            sent = self._send(shared)
            for group in groups:
                start, stop, worker = group
                call = (_call_group, function, sent, items[start:stop], start, len(items), merge)
                pending[self._submit(token, *call, worker=worker)] = group
            for future in as_completed(list(pending), loop=self.client.loop):
                try:
                    tree.add_all(future.result())
                except DistlsError:
                    raise
                except KilledWorker as error:
                    raise _killed(error) from None
                except _LOST as error:
                    if _is_task_error(future):
                        raise
                    cause = error
                    lost.append(pending[future])
        except KeyboardInterrupt:
            self._end_restarts()
            raise
        finally:
            _release(pending)
        return sorted(lost), cause

    def budget(self) -> MemoryBudget:
        """Return the workers' own memory limits (the smallest counts) and threads (the most)."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        limits = [worker["memory_limit"] for worker in workers if worker.get("memory_limit")]
        threads = max((worker["nthreads"] for worker in workers), default=1)
        return MemoryBudget(min(limits, default=None), max(len(workers), 1), threads, compiles=True)

    def each_worker(self, function: Callable[[Item], Result], item: Item) -> dict[str, Result]:
        """See `Executor.each_worker`."""
        return self.client.run(function, item)

    def close(self) -> None:
        """Close the client and the local cluster, if they are this executor's own; an interrupt cuts it short."""
        self._watch_loop(_ignore)
        self._end_restarts()
        self._kept = None
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


class PatientNanny(Nanny):  # type: ignore[misc]
    """Pauses before it starts a worker anew: what ended the worker may just have been sent to the driver too."""

    restarts = True

    async def _on_worker_exit(self, exitcode: int) -> None:
        await asyncio.sleep(_PAUSE_SECONDS)
        if self.restarts:
            await super()._on_worker_exit(exitcode)


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report what went wrong in nobody's call, except connections that an interrupt or `close` cut."""
    if not isinstance(context.get("exception"), _LOST):
        loop.default_exception_handler(context)


def _ignore(_loop: asyncio.AbstractEventLoop, _context: dict[str, Any]) -> None:
    pass


def _pickled_bytes(value: Any) -> int:
    """Return the size of `value` as it would be sent; arrays are not copied for it."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return len(head) + sum(buffer.raw().nbytes for buffer in buffers)


def _release(futures: Iterable[Future]) -> None:
    """Have the scheduler forget these tasks, running ones too.

    Going out of scope is not enough: a raised exception holds the frames that hold its future.
    """
    for future in futures:
        with contextlib.suppress(Exception):
            if not future.done():
                future.cancel()
            future.release()


def _key(token: str = "") -> str:
    """Return a new key; Dask counts all of them to one group of tasks, which is named by what precedes the digits."""
    return f"distls-{token or uuid.uuid4().hex[:8]}-{uuid.uuid4().hex[:8]}"


def _nothing() -> None:
    pass


def _call(function: Callable[[Any, Any], Any], shared: Any, item: Any) -> Any:
    with single_threaded_blas():
        return function(shared, item)


def _call_group(*call: Any) -> Any:
    with single_threaded_blas():
        return run_group(*call)


def _is_task_error(future: Future) -> bool:
    """Tell an OSError that the task itself raised from a lost connection."""
    return future.status == "error" and not isinstance(future.exception(), FutureCancelledError)


def _killed(error: KilledWorker) -> WorkerError:
    worker = getattr(error.last_worker, "address", error.last_worker)
    return WorkerError(
        f"workers died again and again on the same task (last: {worker}); most often their memory limit is too "
        "low: compare `distls plan`, raise --memory-limit, or read the worker's log"
    )


def _lost(error: BaseException | None) -> WorkerError:
    return WorkerError(
        f"workers were lost {_ATTEMPTS} times in a row ({type(error).__name__}: {error}); resume the run"
    )


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
        return DaskExecutor(client, cluster)

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
    }
    return LocalCluster(
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
    return [*dask.config.get("distributed.worker.preload"), "distls.workers.quiet"]


def set_log_level(level: int) -> None:
    """Let Dask's own messages of `level` and above through, and those of the event loop that it runs on."""
    for name in ("distributed", "tornado.application"):
        logging.getLogger(name).setLevel(level)
