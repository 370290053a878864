"""A client of a Dask scheduler that survives lost connections, and waits with a time limit.

Workers die with results that nobody has fetched yet, schedulers end and are restarted. Whatever is lost that way
raises `Lost`, for the caller to repeat; what does not return within `RETURN_SECONDS` raises `WorkerError`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import TimeoutError as NotYet
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import dask
from distributed import Client, Future, KilledWorker
from distributed.client import ClosedClientError, FutureCancelledError

from distls.storage.errors import DistlsError, WorkerError

__all__ = ["CUT", "SHORT_LOGS", "Connection", "Lost", "PlainClient", "release"]

Answer = TypeVar("Answer")

# A nanny restarts its worker within seconds; an operator, or whoever restarts a scheduler, needs longer.
RETURN_SECONDS = 120.0
# The log keeps messages too, which may hold weights: a thousand, Dask's default, are some 50 MiB per connection.
SHORT_LOGS: dict[str, Any] = {"distributed.admin.low-level-log-length": 50}
# Interval at which the scheduler is asked whether it still knows the tasks that are waited for.
CHECK_SECONDS = 5.0
_POLL_SECONDS = 0.25

# Exceptions of a lost connection, or of a worker that dies.
CUT = (FutureCancelledError, ClosedClientError, asyncio.CancelledError, OSError)
# States of a task that will end. One that the scheduler does not know, or believes to have reported, never will.
_UNDER_WAY = ("processing", "queued", "no-worker")


class Lost(Exception):
    """A result, or what a task needed, is gone with a worker or a connection."""


class PlainClient(Client):  # type: ignore[misc]
    """A client with short logs and without span metadata, which the scheduler would keep for ever."""

    def __init__(self, *given: Any, **options: Any) -> None:
        with dask.config.set(SHORT_LOGS):
            super().__init__(*given, **options)

    # Private hook of distributed: `submit` describes each task in span metadata, and no option turns that off.
    def _graph_to_futures(self, *graph: Any, **options: Any) -> Any:
        if "span_metadata" in options:
            options["span_metadata"] = {}
        return super()._graph_to_futures(*graph, **options)


class Connection:
    """A client that is reopened when its scheduler comes back.

    `reopen` returns a new client or raises OSError; without it a closed client is the end. `check` gets the client and
    the addresses of new workers, and raises WorkerError if one does not suit.
    """

    def __init__(
        self,
        client: Client,
        *,
        reopen: Callable[[], Client] | None = None,
        check: Callable[[Client, list[str]], None] = lambda client, workers: None,
    ) -> None:
        self.client = client
        self._reopen, self._check = reopen, check
        self._address = client.scheduler.address
        self._known: set[str] = set()
        self._kept: Future | None = None

    def threads(self) -> Mapping[str, int]:
        """Return the threads of each worker by address, after waiting for the scheduler and a first worker.

        Raises WorkerError if they do not come back, or a new worker does not suit.
        """
        deadline = time.monotonic() + RETURN_SECONDS
        while True:
            found, trouble = self._look()
            if found:
                self._check_new_workers(found)
                return dict(sorted(found.items()))
            if time.monotonic() > deadline:
                raise WorkerError(
                    f"{trouble} within {RETURN_SECONDS:.0f} s; once that is fixed, "
                    "`distls resume` continues the run"
                )
            time.sleep(_POLL_SECONDS)

    def _look(self) -> tuple[Mapping[str, int], str]:
        gone = f"the scheduler at {self._address} is gone and did not come back"
        try:
            if self.client.status == "closed":
                self._open_again()
            return self.client.nthreads(), "all workers are gone and none came back"
        except CUT:
            return {}, gone

    def _open_again(self) -> None:
        if self._reopen is None:
            raise WorkerError("the Dask client was closed; make a new one and `distls resume` the run")
        self.client = self._reopen()

    def _check_new_workers(self, workers: Collection[str]) -> None:
        """Check workers that are new since the last call; those that leave meanwhile, when they return."""
        new = [address for address in workers if address not in self._known]
        if new:
            with contextlib.suppress(*CUT):
                self._check(self.client, new)
                self._known = set(workers)

    def send(self, value: Any) -> Future:
        """Put `value` on one worker, from which the others fetch it; raise Lost if it or the scheduler is dying."""
        key = _key()
        with _as_lost():
            try:
                return self.client.scatter({key: value}, hash=False, broadcast=False)[key]
            except KeyError:
                # the scheduler's answer to a client that names a worker it has just removed
                raise Lost("the worker died that took it") from None

    def submit(self, token: str, *call: Any, worker: str | None = None) -> Future:
        """Start a task, on `worker` if it is alive."""
        where = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        with _as_lost():
            self._keep_group()
            return self.client.submit(*call, key=_key(token), pure=False, retries=0, **where)

    def _keep_group(self) -> None:
        """Hold one small result for the life of this connection."""
        if self._kept is None or self._kept.status in ("lost", "cancelled", "error"):
            # Dask forgets a task group without tasks, but its record of spans would grow with each new group
            self._kept = self.client.submit(_nothing, key=_key(), pure=False)

    def forget(self) -> None:
        """Release the result that is held on the scheduler."""
        self._kept = None

    def result(self, future: Future) -> Any:
        """Wait for a task and fetch its result; raise Lost if it must be repeated, WorkerError if workers die of it."""
        if future.client is not self.client:
            raise Lost("the scheduler was restarted")
        with _as_lost(future):
            fetching = asyncio.run_coroutine_threadsafe(_fetch(future), self.client.loop.asyncio_loop)
            try:
                return self._watched(fetching, future)
            finally:
                fetching.cancel()

    def _watched(self, fetching: Any, future: Future) -> Any:
        doubted: set[str] = set()
        while True:
            try:
                return fetching.result(CHECK_SECONDS)
            except NotYet:
                if fetching.done():
                    raise
            stranded = self._not_under_way([future])
            # messages cross: only a task that is found stranded twice is lost
            if stranded & doubted:
                raise Lost("its result was lost with the workers that held it")
            doubted = stranded

    def ended(self, futures: Iterable[Future]) -> Iterator[Future]:
        """Yield tasks as they end, and those that never will, for which `result` raises `Lost`."""
        waiting, doubted = set(futures), set[str]()
        finished: SimpleQueue[Future] = SimpleQueue()
        for future in waiting:
            future.add_done_callback(finished.put)
        while waiting:
            try:
                found = [finished.get(timeout=CHECK_SECONDS)]
            except Empty:
                stranded = self._not_under_way(waiting)
                found = [future for future in waiting if future.done() or future.key in stranded & doubted]
                doubted = stranded
            waiting.difference_update(found)
            yield from found

    def _not_under_way(self, futures: Iterable[Future]) -> set[str]:
        """Return the keys of tasks that have not ended here and that the scheduler is not working on."""
        keys = [future.key for future in futures if not future.done()]
        self.threads()
        with contextlib.suppress(*CUT):
            states = self.client.sync(self.client.scheduler.get_task_status, keys=keys)
            return {key for key in keys if states[key] not in _UNDER_WAY}
        return set(keys)

    def ask_each(self, function: Callable[[Any], Answer], item: Any) -> dict[str, Answer]:
        """Run a short function once in every worker process, leaving out those that die meanwhile.

        Raises Lost if the scheduler or every worker is gone.
        """
        self.threads()
        with _as_lost():
            answers = self.client.run(function, item, on_error="return")
        gone = {worker for worker, answer in answers.items() if isinstance(answer, OSError)}
        there = self.threads()
        for worker, answer in answers.items():
            if isinstance(answer, BaseException) and (worker not in gone or worker in there):
                raise answer
        kept = {worker: answer for worker, answer in answers.items() if worker not in gone}
        if not kept:
            raise Lost("every worker died when it was asked")
        return kept


def _key(token: str = "") -> str:
    """Return a new key; Dask puts all keys with the same prefix into one group of tasks."""
    return f"distls-{token or uuid.uuid4().hex[:8]}-{uuid.uuid4().hex[:8]}"


def _nothing() -> None:
    pass


async def _fetch(future: Future) -> Any:
    return await future.client.gather(future, asynchronous=True)


@contextlib.contextmanager
def _as_lost(future: Future | None = None) -> Iterator[None]:
    """Raise `Lost` for errors of a dying worker or scheduler; errors of the task itself pass."""
    try:
        yield
    except DistlsError:
        raise
    except KilledWorker as error:
        raise _killed(error) from None
    except CUT as error:
        if future is not None and _is_task_error(future):
            raise
        raise Lost(f"{type(error).__name__}: {error}") from None


def _is_task_error(future: Future) -> bool:
    """Return whether an OSError was raised by the task itself, not by a lost connection."""
    return future.status == "error" and not isinstance(future.exception(), FutureCancelledError)


def _killed(error: KilledWorker) -> WorkerError:
    worker = getattr(error.last_worker, "address", error.last_worker)
    return WorkerError(
        f"workers died again and again on the same task (last: {worker}); most often their memory limit is too "
        "low: compare `distls plan`, raise --memory-limit, or read the worker's log"
    )


def release(futures: Iterable[Future]) -> None:
    """Have the scheduler forget these tasks, running ones too.

    Going out of scope is not enough: a raised exception holds the frames that hold its future.
    """
    for future in futures:
        with contextlib.suppress(Exception):
            if not future.done():
                future.cancel()
            future.release()
