"""Where work runs: this process, or the workers of a Dask cluster."""

from __future__ import annotations

import atexit
import gc
import logging
import sys
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from distls.execution.dask.forkserver import start_fork_server, started
from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.execution.serial import SerialExecutor
from distls.storage.errors import ParameterError
from distls.storage.machine import available_cores, check_addresses

if TYPE_CHECKING:
    from distls.execution.dask.tls import Certificates

# Decoded bytes up to which a job stays in this process: there are two partitions of the usual size at most, so that two
# workers could do something at once, and starting them takes a second or two.
SMALL_BYTES = 32 * 2**20


@dataclass(frozen=True)
class ClusterOptions:
    """Where to run a job.

    Attributes
    ----------
    executor : {"auto", "serial", "dask"}
        auto: in this process where the data are small and no other option is given, see `for_data`; else dask.
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

    executor: str = "auto"
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
        check_addresses()
        if self.certificates is not None and self.scheduler is None:
            raise ParameterError(
                "--tls-ca, --tls-cert and --tls-key go with --scheduler; "
                "a cluster of this command's own listens on loopback only"
            )

    def for_data(self, n_bytes: float) -> ClusterOptions:
        """Return the options with "auto" decided by the size of the data: serial up to `SMALL_BYTES`."""
        if self.executor != "auto":
            return self
        asked = (self.workers, self.threads_per_worker, self.memory_limit, self.scheduler)
        # Any option about workers asks for workers.
        serial = n_bytes <= SMALL_BYTES and all(option is None for option in asked)
        return replace(self, executor="serial" if serial else "dask")

    def budget(self) -> MemoryBudget:
        """Return the workers' memory, as far as it is known without starting them."""
        serial = self.executor == "serial"
        workers = 1 if serial else self.workers or available_cores()
        return MemoryBudget(self.memory_limit, workers, 1 if serial else self.threads_per_worker or 1)


class OpenExecutor(NamedTuple):
    """An executor and the memory of its workers; a ``with`` block closes it."""

    executor: Executor
    budget: MemoryBudget

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.executor.close()


def open_executor(options: ClusterOptions) -> OpenExecutor:
    """Start or connect to the executor of a job, to be closed by the caller or by a ``with`` block.

    ``with open_executor(ClusterOptions(workers=4)) as (executor, budget): fit(..., executor=executor, memory=budget)``

    Raises ParameterError if options contradict each other, WorkerError if the scheduler cannot be reached.
    """
    # spares the interpreter 0.4 s of garbage collection over numba's and Dask's objects at exit
    atexit.register(gc.freeze)
    if options.scheduler is not None:
        return _connected(options, options.scheduler)
    if options.executor == "serial":
        if options.workers or options.threads_per_worker:
            raise ParameterError(
                "--executor serial has no workers; drop --workers and --threads-per-worker, or use --executor dask"
            )
        return OpenExecutor(SerialExecutor(), options.budget())
    budget = options.budget()

    def start() -> Executor:
        # before Dask is imported, so that both take place at the same time
        start_fork_server()
        from distls.execution.dask.local_cluster import start_local

        return start_local(budget.workers, budget.threads, options.memory_limit, log_level=_log_level(options))

    return OpenExecutor(started(start), budget)


def _connected(options: ClusterOptions, scheduler: str) -> OpenExecutor:
    asked = (options.memory_limit, options.workers, options.threads_per_worker)
    if options.executor == "serial" or any(option is not None for option in asked):
        raise ParameterError("--scheduler uses the cluster's own workers and limits; drop the other cluster options")
    from distls.execution.dask.remote_cluster import connect

    remote = connect(scheduler, certificates=options.certificates, log_level=_log_level(options))
    return OpenExecutor(remote, remote.budget())


def _log_level(options: ClusterOptions) -> int:
    return logging.WARNING if options.debug else logging.CRITICAL


def memory_of(executor: Executor) -> MemoryBudget:
    """Return the memory of an executor's workers: what they say themselves, else half of what is free here."""
    # Only workers of a cluster have limits of their own.
    own = getattr(executor, "budget", None)
    return MemoryBudget(workers=executor.slots) if own is None else own()


def executor_of(executor: Any = None, client: Any = None) -> Executor:
    """Return the executor that a call from Python asks for: an Executor, a Dask client (as either argument), or a word.

    auto, the default: the Dask client that is open in this process, else this process. A task of Dask stays in its
    own thread. dask: the open client, in a task its worker's, or an error; such a task leaves its thread to others.
    Raises ParameterError if both are given, one is not what it should be, or the client cannot be used here.
    """
    if executor is not None and client is not None:
        raise ParameterError("executor and client both say where to run; give one of them")
    given = client if client is not None else executor
    if given is None or isinstance(given, str):
        return _named_executor(given or "auto")
    # By its methods: executors of other packages need not inherit anything.
    if all(hasattr(given, name) for name in ("map", "reduce", "each_worker", "slots")):
        own: Executor = given
        return own
    from distls.execution.dask.remote_cluster import of_client

    return of_client(given)


def _named_executor(name: str) -> Executor:
    if name not in ("auto", "serial", "dask"):
        raise ParameterError(f"executor={name!r}: must be 'auto', 'serial' or 'dask', an executor or a Dask client")
    # Dask is not imported to find out: where nobody has, no client is open.
    if name != "serial" and "distributed" in sys.modules:
        from distls.execution.dask.remote_cluster import of_current_client

        if current := of_current_client(asked=name == "dask"):
            return current
    if name == "dask":
        raise ParameterError(
            "executor='dask': no Dask client is open in this process; open one, or use distls.execution.open_executor"
        )
    return SerialExecutor()
