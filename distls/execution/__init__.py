"""Where work runs: this process, or the workers of a Dask cluster."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
from dataclasses import dataclass

from distls.execution.dask.forkserver import start_fork_server, started
from distls.execution.dask.tls import Certificates
from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.execution.serial import SerialExecutor
from distls.storage.errors import ParameterError

__all__ = ["ClusterOptions", "current_dask_executor", "open_executor"]


@dataclass(frozen=True)
class ClusterOptions:
    """Where to run a job.

    Attributes
    ----------
    executor : {"serial", "dask"}
    workers : int or None
        Processes of a local cluster; default one a core.
    threads_per_worker : int or None
        Default 1.
    memory_limit : int or None
        Bytes a worker.
    scheduler : str or None
        Address of a running Dask scheduler, whose workers and limits are then used.
    certificates : Certificates or None
        With which to connect to it, encrypted; None leaves that to Dask's configuration.
    debug : bool
        Let a local cluster's own messages through.
    """

    executor: str = "dask"
    workers: int | None = None
    threads_per_worker: int | None = None
    memory_limit: int | None = None
    scheduler: str | None = None
    certificates: Certificates | None = None
    debug: bool = False

    def __post_init__(self) -> None:
        """Refuse certificates that nothing would use."""
        if self.certificates is not None and self.scheduler is None:
            raise ParameterError(
                "--tls-ca, --tls-cert and --tls-key go with --scheduler; "
                "a cluster of this command's own listens on loopback only"
            )

    def budget(self) -> MemoryBudget:
        """Return the workers' memory as far as it is known without starting them."""
        serial = self.executor == "serial"
        workers = 1 if serial else self.workers or os.cpu_count() or 1
        return MemoryBudget(self.memory_limit, workers, 1 if serial else self.threads_per_worker or 1)


def open_executor(options: ClusterOptions) -> tuple[Executor, MemoryBudget]:
    """Start or connect to what will run the job; close the executor when done.

    Raises
    ------
    ParameterError
        Options contradict each other.
    WorkerError
        The scheduler cannot be reached.
    """
    # at its end the interpreter would search all that numba and Dask hold for garbage, for 0.4 s
    atexit.register(gc.freeze)
    own = (options.workers, options.threads_per_worker)
    level = logging.WARNING if options.debug else logging.CRITICAL
    if options.scheduler is not None:
        if options.executor == "serial" or options.memory_limit is not None or any(own):
            raise ParameterError(
                "--scheduler uses the cluster's own workers and limits; drop the other cluster options"
            )
        from distls.execution.dask.remote_cluster import connect

        remote = connect(options.scheduler, certificates=options.certificates, log_level=level)
        return remote, remote.budget()
    if options.executor == "serial":
        if any(own):
            raise ParameterError(
                "--executor serial has no workers; drop --workers and --threads-per-worker, or use --executor dask"
            )
        return SerialExecutor(), options.budget()
    budget = options.budget()

    def start() -> Executor:
        # before Dask is imported, which takes as long as the server does
        start_fork_server()
        from distls.execution.dask.local_cluster import start_local

        return start_local(budget.workers, budget.threads, options.memory_limit, log_level=level)

    return started(start), budget


def current_dask_executor() -> Executor | None:
    """Return an executor on the Dask client that is active in this process, or None."""
    if "distributed" not in sys.modules:
        return None
    from distls.execution.dask.remote_cluster import of_current_client

    return of_current_client()
