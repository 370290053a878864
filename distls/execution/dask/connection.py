"""A client of a Dask scheduler that survives lost connections, and waits with a time limit.

Workers die with results that nobody has fetched yet, schedulers end and are restarted. Whatever is lost that way
raises `Lost`, for the caller to repeat; what does not return within `RETURN_SECONDS` raises `WorkerError`.
"""

import asyncio
import contextlib
import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as NotYet
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import dask
from distributed import Client, Future, KilledWorker
from distributed.client import ClosedClientError, FutureCancelledError, done_callback
from distributed.scheduler import NoValidWorkerError, NoWorkerError

from distls.execution.dask.private_hooks import client_errors, is_inherited
from distls.execution.dask.worker_watch import Silence, WorkerWatch
from distls.storage.errors import DistlsError, WorkerError

Answer = TypeVar("Answer")

# A nanny restarts its worker within seconds; an operator, or whoever restarts a scheduler, needs longer.
RETURN_SECONDS = 120.0
# The log keeps messages too, which may hold weights: a thousand, Dask's default, are some 50 MiB per connection.
SHORT_LOGS: dict[str, Any] = {"distributed.admin.low-level-log-length": 50}
# Interval at which the scheduler is asked whether it still knows the tasks that are waited for, and how often in a row
# it must not.
CHECK_SECONDS = 2.0
_SIGHTINGS = 3
_POLL_SECONDS = 0.25
# How long workers may be away before it is said that they are waited for, and one may take to answer whether it does.
PATIENCE_SECONDS, REACH_SECONDS = 30.0, 3.0
# Workers that may die of a task, as Dask has it: a scheduler that allows fewer is not the judge of what kills them.
_FAILURES = 3

# Exceptions of a lost connection, or of a worker that dies.
CUT = (CancelledError, ClosedClientError, asyncio.CancelledError, OSError)
# States of a task that will end. One that the scheduler does not know, or believes to have reported, never will.
_UNDER_WAY = ("processing", "queued", "no-worker")
# Of a task that needs others, and will end if one of them will.
_WAITING = "waiting"
# Of a task that was meant for a worker which died as the last one: it stays without a worker, whoever joins.
_UNPLACED = "no-worker"
_RESUME = "once that is fixed, `distls resume` continues the run"
_GONE = "its result was lost with the workers that held it or were to answer, or none of them may run it"

_LOG = logging.getLogger(__name__)


class Lost(Exception):
    """A result, or what a task needed, is gone with a worker or a connection."""


class Connection:
    """A client that is reopened when its scheduler comes back.

    `reopen` returns a new client or raises OSError; without it a closed client is the end. `check` gets the client and
    the addresses of new workers, and raises WorkerError if one does not suit. `hopeless` tells whether nobody is left
    to start workers.
    """

    def __init__(
        self,
        client: Client,
        *,
        reopen: Callable[[], Client] | None = None,
        check: Callable[[Client, list[str]], None] = lambda client, workers: None,
        hopeless: Callable[[], bool] = lambda: False,
    ) -> None:
        self.client = client
        self._reopen, self._check, self._hopeless = reopen, check, hopeless
        self._address = client.scheduler.address
        self._known: set[str] = set()
        self._kept: Future | None = None
        # Whether this process reaches workers; otherwise all goes through the scheduler. None: not known yet
        self._direct: bool | None = client.direct_to_workers
        self._watch = WorkerWatch(self._of_scheduler)

    def threads(self) -> Mapping[str, int]:
        """Return the threads of each worker by address, after waiting for the scheduler and a first worker.

        Raises WorkerError if they do not come back, or a new worker does not suit.
        """
        if is_inherited(self.client):
            raise WorkerError("this executor is of a process whose child this one is; open another here")
        # Measured from the first look, however long earlier ones took.
        start = told = time.monotonic()
        while True:
            found, trouble = self._look()
            if found:
                self._check_new_workers(found)
                return dict(sorted(found.items()))
            if self._hopeless():
                raise WorkerError(f"all workers have died and cannot be started again; {_RESUME}")
            now = time.monotonic()
            if now > start + RETURN_SECONDS:
                raise WorkerError(f"{trouble} within {RETURN_SECONDS:.0f} s; {_RESUME}")
            if now > told + PATIENCE_SECONDS:
                told = start + RETURN_SECONDS
                _LOG.warning("%s yet: waiting for at most %.0f s", trouble, RETURN_SECONDS)
            self.ask_for_workers()
            time.sleep(_POLL_SECONDS)

    def ask_for_workers(self) -> None:
        """Queue a small task: a cluster that adapts starts workers when some wait for them."""
        with contextlib.suppress(*CUT), client_errors(self.client):
            self._keep_group()

    def _look(self) -> tuple[Mapping[str, int], str]:
        gone = f"the scheduler at {self._address} is gone and did not come back"
        try:
            if self.client.status == "closed":
                self._open_again()
            return self._of_scheduler("ncores"), "all workers are gone and none came back"
        except CUT:
            return {}, gone

    def _of_scheduler(self, question: str, **given: Any) -> Any:
        """Return the scheduler's answer; one that is stopped keeps its connections, and gives none."""
        with client_errors(self.client):
            asked = getattr(self.client.scheduler, question)
            return self.client.sync(asked, callback_timeout=RETURN_SECONDS, **given)

    def _open_again(self) -> None:
        if self._reopen is None:
            raise WorkerError("the Dask client was closed; make a new one and `distls resume` the run")
        self.client = self._reopen()

    def _check_new_workers(self, workers: Collection[str]) -> None:
        """Check workers that are new since the last call; those that leave meanwhile, when they return."""
        # Workers of other versions would compute other bits, so each new one is checked.
        new = [address for address in workers if address not in self._known]
        with contextlib.suppress(*CUT), client_errors(self.client):
            # one that takes the place of another: why that has ended is known by now
            self._watch.look(again=bool(new))
            if new:
                self._check(self.client, new)
                if self._direct is None:
                    # otherwise Dask would relay all weights and results through the scheduler
                    self._direct = self.client.sync(reaches, self.client, new[0])
                self._known = set(workers)

    def send(self, values: Sequence[Any], workers: Sequence[str] | None = None) -> list[Future]:
        """Put each value on one worker, by turns, from which the others fetch it; side by side, in one call.

        Raises Lost if a worker or the scheduler is dying.
        """
        given = {_key(): value for value in values}
        with _as_lost(self.client):
            try:
                scatter = partial(self.client.scatter, given, workers, hash=False, broadcast=False)
                found = self._asked(partial(scatter, direct=self._direct))
                return [found[key] for key in given]
            except KeyError:
                # the scheduler's answer to a client that names a worker it has just removed
                raise Lost("the worker died that took it") from None

    def _asked(self, call: Callable[..., Any]) -> Any:
        """Return the answer of workers to a call of the client; raise Lost if one of them leaves meanwhile.

        One that is stopped never answers: the scheduler drops it when it misses its heartbeat.
        """
        there = set(self.threads())
        # A worker that leaves may be the one whose answer is waited for.
        return self._watched(_answer(call), self.client, lambda: bool(there - set(self.threads())), set())

    def submit(self, token: str, function: Any, *given: Any, worker: str | None = None) -> Any:
        """Start a task, on `worker` if it is alive."""
        return self.submit_each(token, function, [given], [worker])[0]

    def submit_each(self, token: str, function: Any, calls: Sequence[Any], workers: Sequence[Any]) -> Any:
        """Start a task for each call, on its worker if alive; in one message, which costs the scheduler less."""
        keys = [_key(token) for _ in calls]
        # Dask would place them there without the resources that their caller wants, and fail: then it chooses itself.
        free = workers[0] is None or "resources" in dask.get_annotations()
        places = {"workers": dict(zip(keys, workers, strict=True)).get, "allow_other_workers": True}
        with _as_lost(self.client):
            self._keep_group()
            with dask.annotate(**({} if free else places)):
                # No retries by Dask: a task that failed is repeated by the caller, who knows what is left to do.
                return self.client.map(function, *zip(*calls, strict=True), key=keys, pure=False, retries=0)

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
        # Its key is unknown to the new scheduler.
        if future.client is not self.client:
            raise Lost("the scheduler was restarted")
        sightings = Counter[str]()
        with _as_lost(self.client, future):
            answer, lost = _fetch(future, self._direct), partial(self._lost_among, [future], sightings)
            return self._watched(answer, future.client, lost, {future.key})

    def _watched(
        self, answer: Coroutine[Any, Any, Any], client: Client, lost: Callable[[], object], keys: set[str]
    ) -> Any:
        """Wait for an answer, of tasks of these keys if any, asking now and then whether it is lost."""
        # In the client's event loop, so that this thread can look up now and then.
        waiting, silence = asyncio.run_coroutine_threadsafe(answer, client.loop.asyncio_loop), Silence()
        try:
            while True:
                try:
                    return waiting.result(CHECK_SECONDS)
                except NotYet:
                    if waiting.done():
                        raise
                self._note(silence, keys)
                # looking may have opened another client
                if lost() or client is not self.client:
                    raise Lost(_GONE)
        finally:
            waiting.cancel()

    def ended(self, futures: Iterable[Future]) -> Iterator[tuple[Future, Lost | None]]:
        """Yield each task once: as it ends, or with `Lost` if it never will.

        What some of them need may be among them, and may be released once it has ended.
        """
        waiting, sightings, silence = set(futures), Counter[str](), Silence()
        needed = {future.key for future in waiting}
        finished: SimpleQueue[Future] = SimpleQueue()
        # A queue instead of `as_completed`, which never ends where a task is lost. Filled in the loop, not by the one
        # thread of all callbacks, which a user's may hold: a fit in one would wait for itself.
        for future in waiting:
            future.client.loop.add_callback(done_callback, future, finished.put)
        while waiting:
            try:
                # one that ended after it was given up is dropped
                found = {finished.get(timeout=CHECK_SECONDS)} & waiting
                lost = set[str]()
                silence = Silence()
            except Empty:
                self._note(silence, {future.key for future in waiting})
                lost = self._lost_among(waiting, sightings, needed)
                found = {future for future in waiting if future.key in lost}
            waiting -= found
            for future in found:
                yield future, Lost(_GONE) if future.key in lost else None

    def _note(self, silence: Silence, keys: set[str]) -> None:
        with contextlib.suppress(*CUT):
            silence.note(max(len(keys), 1), len(self.threads()), partial(self._watch.troubles, keys))

    def _lost_among(self, futures: Iterable[Future], sightings: Counter[str], needed: Collection[str] = ()) -> set[str]:
        """Return the keys of tasks that will not end; `sightings` are those that earlier calls found stranded.

        They may wait for the tasks that are `needed`, of which one that was lost is made again by the scheduler.
        """
        # Done on this side is done, whatever the scheduler says.
        keys = {future.key for future in futures if not future.done()}
        self.threads()
        states = self._states({*keys, *needed})
        alive = {key for key, state in states.items() if state in _UNDER_WAY}
        stranded = {key for key in keys - alive if not (alive and states.get(key) == _WAITING)}
        # In a row: a task that was seen again starts from zero.
        for key in list(sightings):
            if key not in stranded:
                del sightings[key]
        sightings.update(stranded)
        # messages cross: a task that is found stranded once may have ended
        lost = {key for key in stranded if sightings[key] >= _SIGHTINGS}
        unplaced = self._unplaced({key for key in alive if states.get(key) == _UNPLACED})
        # whoever waits may wait for them
        return lost | (keys if unplaced - keys else unplaced)

    def _unplaced(self, keys: set[str]) -> set[str]:
        """Return those of the tasks without a worker that no worker will be given."""
        # all may have paused: Dask gives no task to workers whose memory is full
        if keys and self.running():
            # Asked twice: a task may have been placed between both questions.
            states = self._states(keys)
            return {key for key in keys if states.get(key) == _UNPLACED}
        return set()

    def running(self) -> set[str]:
        """Return the workers that take tasks and data; none if the scheduler cannot be asked."""
        with contextlib.suppress(*CUT):
            return set(self._of_scheduler("ncores_running"))
        return set()

    def _states(self, keys: Collection[str]) -> dict[str, str | None]:
        """Return what the scheduler knows of tasks; nothing if it cannot be asked."""
        states: dict[str, str | None] = {}
        with contextlib.suppress(*CUT):
            states = self._of_scheduler("get_task_status", keys=list(keys))
        return states

    def ask_each(self, function: Callable[[Any], Answer], item: Any) -> dict[str, Answer]:
        """Run a short function once in every worker process, leaving out those that die meanwhile.

        Raises Lost if the scheduler or every worker is gone, or if the connection to a worker is whose death the
        scheduler has not noticed yet.
        """
        with _as_lost(self.client):
            answers = self._asked(partial(self.client.run, function, item, on_error="return"))
        gone = {worker for worker, answer in answers.items() if isinstance(answer, OSError)}
        there = self.threads()
        for worker, answer in answers.items():
            # An error of a worker that has left is no answer; that of one that is there is.
            if isinstance(answer, BaseException) and (worker not in gone or worker in there):
                # that of a connection: the system's own errors, which a task can have, have a number
                if isinstance(answer, OSError) and answer.errno is None:
                    raise Lost(f"{worker}: {answer}")
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


async def _fetch(future: Future, direct: bool | None) -> Any:
    return await future.client.gather(future, direct=direct, asynchronous=True)


async def reaches(client: Client, worker: str) -> bool:
    """Return whether a worker answers this process, which may be outside the workers' network."""
    try:
        await asyncio.wait_for(client.rpc(worker).identity(), REACH_SECONDS)
    except (OSError, TimeoutError):
        return False
    return True


async def _answer(call: Callable[..., Any]) -> Any:
    return await call()


@contextlib.contextmanager
def _as_lost(client: Client, future: Future | None = None) -> Iterator[None]:
    """Raise `Lost` for errors of a dying worker or scheduler; errors of the task itself pass."""
    try:
        with client_errors(client):
            yield
    except DistlsError:
        raise
    except KilledWorker as error:
        if error.allowed_failures < _FAILURES:
            raise Lost(str(error)) from None
        raise _killed(error) from None
    except (NoValidWorkerError, NoWorkerError) as error:
        raise Lost(str(error)) from None
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
                # A failed cancellation must not hide the error that led here.
                future.cancel()
            future.release()
