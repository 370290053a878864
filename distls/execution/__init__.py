"""Where work runs: this process, or the workers of a Dask cluster."""

from __future__ import annotations

import atexit
import gc
import logging
import resource
import sys
from dataclasses import dataclass

from distls.execution.dask.forkserver import start_fork_server, started
from distls.execution.dask.tls import Certificates
from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget, human
from distls.execution.serial import SerialExecutor
from distls.storage.errors import ParameterError, WorkerError
from distls.storage.machine import available_cores

__all__ = ["ClusterOptions", "current_dask_executor", "open_executor"]


# Bytes of addresses, most of them never used, that numba, Dask and BLAS reserve.
_ADDRESSES = 2 * 2**30


@dataclass(frozen=True)
class ClusterOptions:
    """Where to run a job.

    Attributes
    ----------
    executor : {"serial", "dask"}
    workers : int or None
        Processes of a local cluster; default one per core.
    threads_per_worker : int or None
        Threads of each worker; default 1.
    memory_limit : int or None
        Memory limit of each worker in bytes.
    scheduler : str or None
        Address of a running Dask scheduler, whose workers and limits are then used.
    certificates : Certificates or None
        TLS certificates for that connection; None leaves TLS to Dask's configuration.
    debug : bool
        Show a local cluster's own messages.
    """

    executor: str = "dask"
    workers: int | None = None
    threads_per_worker: int | None = None
    memory_limit: int | None = None
    scheduler: str | None = None
    certificates: Certificates | None = None
    debug: bool = False

    def __post_init__(self) -> None:
        """Raise ParameterError for certificates without a scheduler to use them with.

        Raises WorkerError if this process may not use enough addresses.
        """
        _check_addresses()
        if self.certificates is not None and self.scheduler is None:
            raise ParameterError(
                "--tls-ca, --tls-cert and --tls-key go with --scheduler; "
                "a cluster of this command's own listens on loopback only"
            )

    def budget(self) -> MemoryBudget:
        """Return the workers' memory, as far as it is known without starting them."""
        serial = self.executor == "serial"
        workers = 1 if serial else self.workers or available_cores()
        return MemoryBudget(self.memory_limit, workers, 1 if serial else self.threads_per_worker or 1)


def open_executor(options: ClusterOptions) -> tuple[Executor, MemoryBudget]:
    """Start or connect to the executor of a job, to be closed by the caller.

    Raises ParameterError if options contradict each other, WorkerError if the scheduler cannot be reached.
    """
    # spares the interpreter 0.4 s of garbage collection over numba's and Dask's objects at exit
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
        # before Dask is imported, so that both take place at the same time
        start_fork_server()
        from distls.execution.dask.local_cluster import start_local

        return start_local(budget.workers, budget.threads, options.memory_limit, log_level=level)

    return started(start), budget


def _check_addresses() -> None:
    """Raise WorkerError if a limit on addresses is too low: OpenBLAS would try for ever to get some."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _ADDRESSES:
        raise WorkerError(
            f"this process may use {human(limit)} of addresses (ulimit -v), and libraries reserve more than that: "
            f"allow {human(_ADDRESSES)}, and limit memory with --memory-limit"
        )


def current_dask_executor() -> Executor | None:
    """Return an executor on the Dask client that is active in this process, or None."""
    if "distributed" not in sys.modules:
        return None
    from distls.execution.dask.remote_cluster import of_current_client

    return of_current_client()
