"""Clusters on this machine: a scheduler, workers forked from one process, and Dask settings that suit distls."""

import asyncio
import contextlib
import copy
import logging
import os
import resource
import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal

import dask
from dask.utils import parse_timedelta
from distributed import LocalCluster, Status

from distls.execution.dask.connection import SHORT_LOGS, Connection
from distls.execution.dask.dask_executor import DaskExecutor
from distls.execution.dask.error_logs import report_defects, set_log_level, watch_loop
from distls.execution.dask.forkserver import SINGLE_THREADED, Made, start_fork_server, started, unguarded_script
from distls.execution.dask.private_hooks import AskingNanny, PatientCluster, PromptClient, PromptMessages, keep_preload
from distls.storage.errors import WorkerError
from distls.storage.filesystem.private_folder import NotPrivateError, private_folder, temporary_home

# Files that the process of a scheduler has open, besides those of the data, and more of them for each worker.
_OPEN_FILES, _OF_EACH_WORKER = 44, 10
_LOG = logging.getLogger(__name__)
_REACHABLE = (
    "the cluster listens on loopback, where other users of this machine could run programs as this user: on a shared "
    "machine use `distls cluster --tls`, or --executor serial"
)
# Prefixes of environment variables that hold credentials and addresses of stores.
_OF_STORES = ("AWS_", "AZURE_", "GOOGLE_", "DISTLS_")
# Between the death of a worker and the start of its successor.
PAUSE_SECONDS = 0.5
# Attempts to start a successor: the process that forks it may be killed meanwhile.
_ATTEMPTS = 5


_RETRIES = 3  # of a message
_METHOD = "distributed.worker.multiprocessing-method"
# Decoded partitions are not Dask data, so Dask must not spill, pause early or move work away from warm caches.
_CONFIG: dict[str, Any] = {
    _METHOD: "forkserver",
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-saturation": "inf",
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 0.99,
    "distributed.worker.profile.enabled": False,
    **SHORT_LOGS,
    "distributed.comm.retry.count": _RETRIES,
    # Not MALLOC_TRIM_THRESHOLD_, Dask's default: it makes every large buffer a fresh run of page faults.
    "distributed.nanny.pre-spawn-environ": SINGLE_THREADED,
}


# What a user sets for this cluster too, and what of that may keep it from starting.
_BLAMED = ("temporary-directory", "distributed.comm.require-encryption", "distributed.worker.preload")
_OTHERS = ("comm.tls", "nanny.environ", "scheduler.worker-ttl", "worker.preload-argv")
_KEPT = (*_BLAMED, *(f"distributed.{name}" for name in _OTHERS))


def _settings() -> dict[str, Any]:
    """Return Dask's defaults with what suits distls: the user's are for other clusters, and might end this one."""
    own = dask.config.merge(*dask.config.defaults)["distributed"]
    kept = {name: dask.config.get(name) for name in _KEPT}
    return {f"distributed.{name}": value for name, value in own.items()} | kept | _CONFIG


class _Forked:
    """The settings of this cluster, for as long as any nanny is within: they start workers at once."""

    def __init__(self) -> None:
        self._inside, self._undo, self._lock = 0, contextlib.ExitStack(), threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._undo.enter_context(dask.config.set(_settings()))
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._undo.close()


_FORKED = _Forked()


class PatientNanny(AskingNanny):
    """Pauses before it restarts a worker: the signal that ended it may be on its way to the driver too."""

    restarts = True
    config: dict[str, Any]
    _attempts = 1  # to start a worker

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Dask's copy shares what is nested, which has its defaults again when the cluster has started: the successor
        # of a lost worker would pause for ever near its limit
        self.config = copy.deepcopy(self.config)

    async def instantiate(self) -> Status:
        """Fork the worker, a later one too: spawned ones import and load for seconds what all of them share."""
        way: AbstractContextManager[None] = _FORKED
        while True:
            self._attempts -= 1
            try:
                start_fork_server()  # it may have ended
                with way:
                    return await super().instantiate()
            except Exception:
                if not self._goes_on():
                    raise
            # that server was killed before it had forked: a process that is spawned does not need it
            self.process, way = None, contextlib.nullcontext()
            await asyncio.sleep(PAUSE_SECONDS)

    def _goes_on(self) -> bool:
        return self.restarts and self._attempts > 0 and self.status == Status.running

    async def close(self, timeout: float = 5, reason: str = "nanny-close") -> Literal["OK"]:
        """End the worker and this nanny, but for a start that is tried again."""
        if reason == "nanny-instantiate-failed" and self._goes_on():
            return "OK"
        return await super().close(timeout, reason)

    async def may_restart(self) -> bool:
        """Return whether to restart the worker, after a pause."""
        await asyncio.sleep(PAUSE_SECONDS)
        self._attempts = _ATTEMPTS
        return self.restarts


def start_local(
    n_workers: int,
    threads_per_worker: int = 1,
    memory_limit: int | None = None,  # bytes a worker; None for no limit
    *,
    processes: bool = True,
    log_level: int = logging.CRITICAL,
) -> DaskExecutor:
    """Start a cluster on this machine, its dashboard on loopback, and connect to it.

    `log_level` is that of the cluster's own messages: workers that die or restart are reported by this module. Raises
    WorkerError if it does not start.
    """
    set_log_level(log_level)

    def start() -> DaskExecutor:
        cluster = local_cluster(n_workers, threads_per_worker, memory_limit, processes=processes, log_level=log_level)
        # weights go straight between this process and the workers, not through the scheduler
        client = PromptClient(cluster, set_as_default=False, direct_to_workers=processes)
        watch_loop(client, report_defects)
        _LOG.info(_REACHABLE)
        return DaskExecutor(Connection(client, hopeless=lambda: _all_closed(cluster)), cluster)

    try:
        return started_as_suits(start, processes=processes)
    except (OSError, RuntimeError) as error:
        script = unguarded_script()
        if script is not None:
            raise WorkerError(
                f"{script}: workers import a script, and this one starts workers again; put what it does below a line "
                'if __name__ == "__main__":'
            ) from None
        raise WorkerError(
            f"the workers on this machine ({n_workers}) did not start: {first_cause(error)}; use fewer --workers, or "
            "--executor serial"
        ) from None


def first_cause(error: BaseException) -> str:
    """Return what the error says that led to this one, and settings of the user's that may be behind it."""
    while error.__cause__ is not None:
        error = error.__cause__
    found = {name: dask.config.get(name) for name in _BLAMED}
    mine = "".join(f"; mend {name} ({value}) of Dask's configuration" for name, value in found.items() if value)
    return (str(error) or type(error).__name__) + mine


def _all_closed(cluster: LocalCluster) -> bool:
    """Return whether no worker is there any more, nor a nanny that would start one: they close if they cannot."""
    return all(worker.status in (Status.closed, Status.failed) for worker in list(cluster.workers.values()))


def started_as_suits(start: Callable[[], Made], *, processes: bool = True) -> Made:
    """Return the cluster that `start` starts, with settings of Dask that suit distls."""
    if processes:
        start_fork_server()
        keep_preload()
    # as workers read the user's configuration: what is wrong with it is said here
    dask.config.refresh(config={})
    settings = _settings()
    with dask.config.set(settings | {"temporary-directory": _scratch()}):
        made = started(start)
    # This process makes connections later too: too short a time for them would cut those of its own cluster.
    if not _is_readable(dask.config.get("distributed.comm.retry")):
        dask.config.set({"distributed.comm.retry": {**settings["distributed.comm"]["retry"], "count": _RETRIES}})
    for name, least in settings["distributed.comm"]["timeouts"].items():
        key = f"distributed.comm.timeouts.{name}"
        dask.config.set({key: max(dask.config.get(key) or least, least, key=parse_timedelta)})
    return made


def _is_readable(retry: Any) -> bool:
    """Return whether Dask can read what a user has set of repeated messages."""
    try:
        delays = [parse_timedelta(retry["delay"][name]) for name in ("min", "max")]
        return int(retry["count"]) >= 0 and min(delays) >= 0
    except (KeyError, TypeError, ValueError):
        return False


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
    _allow_open_files(_OPEN_FILES + _OF_EACH_WORKER * n_workers)
    processes_only = {
        "worker_class": PatientNanny,
        "host": "127.0.0.1",
        "preload": [*dask.config.get("distributed.worker.preload"), "distls.workers.dask_log_preload"]
        if log_level > logging.WARNING
        else None,
        # the fork server may have been started before the credentials of a store were set
        "env": {name: value for name, value in os.environ.items() if name.startswith(_OF_STORES)},
    }
    return PatientCluster(
        n_workers=n_workers,
        threads_per_worker=threads_per_worker,
        memory_limit=memory_limit or 0,
        processes=processes,
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"plugins": [PromptMessages()]},
        silence_logs=log_level,
        **(processes_only if processes else {}) | options,
    )


def _allow_open_files(number: int) -> None:
    """Let this process open this many files; raise WorkerError if it may not: its event loop would fail for ever."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= number:
        return
    if hard != resource.RLIM_INFINITY and hard < number:
        raise WorkerError(
            f"at most {hard} files may be open here (ulimit -n), and these workers need {number}; raise the limit, use "
            "fewer --workers, or --executor serial"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))


def _scratch() -> str:
    """Return the folder of Dask's files; processes import from there too, so it must be this user's own."""
    configured = dask.config.get("temporary-directory")
    if configured:
        return str(configured)
    try:
        return str(private_folder(temporary_home()))
    except NotPrivateError:
        return tempfile.mkdtemp(prefix="distls-")
