"""What is used of distributed beside its interface: each hook with its reason, and a test that names it when it breaks.

Changes of a version of distributed meet this file alone.
"""

import contextlib
import os
import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import distributed.utils
from distributed import Client, LocalCluster, Nanny, SchedulerPlugin, SpecCluster
from distributed.client import ClosedClientError

from distls.storage.errors import WorkerError

# At least between two messages of one connection.
MESSAGE_SECONDS = 0.001


def _hasten(stream: Any) -> None:
    """Let a `BatchedSend` send sooner after its last message: a round of tasks is a few messages, in turns."""
    if stream is not None:
        stream.interval = MESSAGE_SECONDS


class PromptClient(Client):  # type: ignore[misc]
    """A client whose messages do not wait, without span metadata, which the scheduler would keep for ever."""

    # Private hook of distributed: `submit` describes each task in span metadata, and no option turns that off.
    def _graph_to_futures(self, *graph: Any, **options: Any) -> Any:
        if "span_metadata" in options:
            options["span_metadata"] = {}
        return super()._graph_to_futures(*graph, **options)

    # Private hook of distributed: messages wait until 10 ms after the last one, and no option shortens that.
    async def _ensure_connected(self, timeout: Any = None) -> None:
        await super()._ensure_connected(timeout=timeout)
        _hasten(self.scheduler_comm)


class PromptMessages(SchedulerPlugin):  # type: ignore[misc]
    """Has the scheduler's messages reach workers at once."""

    # Private hook of distributed: they wait until 5 ms after the last one, and no option shortens that.
    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Shorten the wait of the connection to a new worker."""
        _hasten(scheduler.stream_comms.get(worker))


class PatientCluster(LocalCluster):  # type: ignore[misc]
    """Keeps the nanny of a lost worker, which Dask would close for good after 15 s."""

    # Private hook of distributed: SpecCluster's version closes the nanny, Cluster's only notes that the worker went.
    def _update_worker_status(self, op: str, message: Any) -> None:
        super(SpecCluster, self)._update_worker_status(op, message)


class AskingNanny(Nanny):  # type: ignore[misc]
    """Asks whether it should restart its worker."""

    async def may_restart(self) -> bool:
        """Return whether to restart a worker that has ended."""
        raise NotImplementedError

    # Private hook of distributed: Nanny has no public way to delay or prevent a restart.
    async def _on_worker_exit(self, exitcode: int) -> None:
        if await self.may_restart():
            await super()._on_worker_exit(exitcode)


def keep_preload() -> None:
    """Keep the preload of the fork server."""
    # Private hook of distributed: Nanny would set one of its own, for which this process would import pandas.
    distributed.utils._forkserver_preload_set = True


def is_inherited(client: Client) -> bool:
    """Return whether a client was opened before this process was forked: the threads that it needs are not here."""
    # Private hook of distributed: a client does not say whose it is, but its id ends in a UUID made with the process's.
    return uuid.UUID(client.id[-36:]).clock_seq != os.getpid() % 2**14


# What Dask says of a call that a configuration blocks: which, and whose.
REFUSED = re.compile(r"'([\w-]+)' handler has been explicitly disallowed in (\w+)")


def raise_refused(error: Exception) -> None:
    """Raise WorkerError if an error of Dask says that a call is blocked."""
    refused = REFUSED.search(str(error))
    if refused:
        call, whose = refused[1], refused[2].lower()
        raise WorkerError(
            f"the configuration of the {whose} blocks {call!r}, which distls needs; take it out of "
            f"distributed.{whose}.blocked-handlers there"
        ) from None


@contextlib.contextmanager
def client_errors(client: Client) -> Iterator[None]:
    """Raise ClosedClientError for whatever Dask raises while another thread closes its client.

    WorkerError for a call that scheduler or workers refuse.
    """
    # Private hook of distributed: parts of a client that are closed before it say so in errors of their own, and calls
    # that are refused in errors of any type.
    try:
        yield
    except Exception as error:
        raise_refused(error)
        if not isinstance(error, AttributeError | RuntimeError) or client.status not in ("closing", "closed"):
            raise
        raise ClosedClientError(str(error)) from None


def ask_workers(client: Client, function: Callable[[], Any], workers: list[str], seconds: float) -> dict[str, Any]:
    """Return each worker's answer; raise TimeoutError if one does not answer in time."""
    # Private hook of distributed: `run` has no time limit.
    with client_errors(client):
        answers: dict[str, Any] = client.sync(client._run, function, workers=workers, callback_timeout=seconds)
    return answers
