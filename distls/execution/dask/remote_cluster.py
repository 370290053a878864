"""Running clusters: the one that is active in this process, and others to connect to."""

import contextlib
import logging
import re
import weakref
from typing import Any

import dask
from distributed import Client, get_client, get_worker, secede
from distributed.security import Security

from distls.execution.dask.connection import CUT, SHORT_LOGS, Connection
from distls.execution.dask.dask_executor import DaskExecutor
from distls.execution.dask.error_logs import report_defects, set_log_level, watch_loop
from distls.execution.dask.private_hooks import PromptClient, ask_workers, is_inherited, raise_refused
from distls.execution.dask.tls import Certificates, why_refused
from distls.storage.errors import ParameterError, WorkerError
from distls.workers.compilation.processor import processor

_LOG = logging.getLogger(__name__)

CONNECT_SECONDS = 20
ANSWER_SECONDS = 60
_ADDRESS = re.compile(r"([a-z]+://)?[^/\s]+:\d+/?|(inproc|ucx)://\S+")


# Clients of which it was said that they are used.
_TOLD: weakref.WeakSet[Client] = weakref.WeakSet()


def of_current_client(*, asked: bool = False) -> DaskExecutor | None:
    """Return an executor on the client that is active in this process, which stays open; or None.

    None in a task too, unless `asked` for: other fits beside it would all wait for threads that they hold themselves.
    """
    if _in_task() and not asked:
        return None
    try:
        client = get_client()
    except ValueError:
        return None
    if is_inherited(client):
        return None
    made = of_client(client)
    if client not in _TOLD:
        _TOLD.add(client)
        _LOG.warning(
            "runs on the Dask client that is open, %s; executor='serial' stays in this process",
            client.scheduler.address,
        )
    return made


def _in_task() -> bool:
    try:
        get_worker()
    except ValueError:
        return False
    return True


def of_client(client: Any) -> DaskExecutor:
    """Return an executor on a client, which stays open; raise ParameterError for one that cannot be used here."""
    if not isinstance(client, Client):
        raise ParameterError(
            f"a {type(client).__name__} is neither an executor nor a dask.distributed Client; see docs/cluster.md"
        )
    if client.asynchronous:
        raise ParameterError(
            "this Dask client is asynchronous, and a fit waits for its workers: open one with asynchronous=False, or "
            "give executor='serial'"
        )
    if is_inherited(client):
        raise ParameterError("this Dask client is of a process whose child this one is; open another here")
    if client.status in ("closed", "closing") or client.scheduler is None:
        raise ParameterError("this Dask client is closed; open a new one, or give executor='serial'")
    if _in_task():
        # Its thread is free for the tasks that it waits for; in a thread of its own, or again, there is none to leave.
        with contextlib.suppress(KeyError, AttributeError):
            secede()
    return DaskExecutor(Connection(client, check=_NewWorkers()), owns_client=False)


def connect(
    address: str,
    *,
    certificates: Certificates | None = None,
    min_workers: int = 1,  # to wait for
    log_level: int = logging.CRITICAL,  # see `distls.execution.dask.local_cluster.start_local`
) -> DaskExecutor:
    """Connect to a running scheduler, with `certificates` by TLS only, else as Dask's configuration says.

    Raises ParameterError for an address that is none or contradicts `certificates`; WorkerError if it cannot be reached
    within 20 s, has no workers, or runs other versions of the libraries.
    """
    if not _ADDRESS.fullmatch(address):
        raise ParameterError(f"--scheduler {address}: expected an address like tcp://host:8786")
    set_log_level(log_level)
    address = _encrypted(address, certificates)
    security = None if certificates is None else security_of(certificates)
    try:
        client = _client(address, security)
    except (OSError, TimeoutError, ValueError) as error:
        raise_refused(error)
        scheme = "" if "://" in address else f"{dask.config.get('distributed.comm.default-scheme')}://"
        why = why_refused(scheme + address, certificates)
        raise WorkerError(
            f"no Dask scheduler at {address}: {why or f'{error}; is it running, is the address right?'}"
        ) from None
    try:
        connection = Connection(client, reopen=lambda: _client(address, security), check=_NewWorkers())
        connection.ask_for_workers()
        client.wait_for_workers(min_workers, timeout=CONNECT_SECONDS)
        connection.threads()
    except TimeoutError:
        client.close()
        raise WorkerError(
            f"the scheduler at {address} has no workers; start some with `dask worker {address}`"
        ) from None
    except WorkerError:
        client.close()
        raise
    return DaskExecutor(connection)


def _client(address: str, security: Security | None) -> Client:
    with dask.config.set(SHORT_LOGS):
        client = PromptClient(address, timeout=CONNECT_SECONDS, security=security, set_as_default=False)
    watch_loop(client, report_defects)
    return client


def security_of(certificates: Certificates) -> Security:
    """Return Dask's form of `certificates`, the same for every role; encryption is required."""
    roles = ("client", "scheduler", "worker")
    return Security(
        require_encryption=True,
        tls_ca_file=str(certificates.ca),
        **{f"tls_{role}_cert": str(certificates.cert) for role in roles},
        **{f"tls_{role}_key": str(certificates.key) for role in roles},
    )


def _encrypted(address: str, certificates: Certificates | None) -> str:
    """Return the address to connect to; raise ParameterError if it contradicts `certificates`."""
    if certificates is None:
        if address.startswith("tls:"):
            _check_configuration(address)
        return address
    if "://" not in address:
        return f"tls://{address}"
    if not address.startswith("tls://"):
        raise ParameterError(
            f"--scheduler {address}: not encrypted, and --tls-ca, --tls-cert and --tls-key ask for encryption; "
            "use an address of tls://"
        )
    return address


def _check_configuration(address: str) -> None:
    """Raise ParameterError if Dask's own configuration has no certificates for TLS."""
    try:
        context = Security().get_connection_args("client").get("ssl_context")
    except OSError as error:
        raise ParameterError(
            f"--scheduler {address}: the TLS files of Dask's configuration cannot be used: {error}"
        ) from None
    if context is None:
        raise ParameterError(
            f"--scheduler {address}: TLS needs certificates: give --tls-ca, --tls-cert and --tls-key, or name "
            "them in Dask's configuration"
        )


class _NewWorkers:
    """Checks the workers that join."""

    def __init__(self) -> None:
        # processor -> a worker that has it
        self._processors: dict[str, str] = {}

    def __call__(self, client: Client, workers: list[str]) -> None:
        """Say so if a worker has a processor that no other has; raise WorkerError for one of other versions."""
        here, _ = _facts()
        for worker, (there, kind) in sorted(_asked(client, workers).items()):
            others = [name for name in here if here[name] != there[name]]
            if others:
                text = ", ".join(f"{name} {here[name]} here and {there[name]} there" for name in others)
                raise WorkerError(f"worker {worker} runs other versions: {text}; install the same ones")
            if self._processors and kind not in self._processors:
                other, its = next(iter(self._processors.items()))
                _LOG.warning(
                    "worker %s has the processor %s, worker %s %s: what NumPy and BLAS compute for gls, cls, "
                    "stagewise, newton, bcd, fista, sparsa, generated features and sdca with init may differ in its "
                    "last bits from a cluster of one kind",
                    *(worker, kind, its, other),
                )
            self._processors.setdefault(kind, worker)


def _asked(client: Client, workers: list[str]) -> dict[str, tuple[dict[str, str], str]]:
    """Return each worker's versions and processor; raise WorkerError if one does not answer in time, or cannot."""
    try:
        return ask_workers(client, _facts, workers, ANSWER_SECONDS)
    except TimeoutError:
        why = f"does not answer within {ANSWER_SECONDS} s; end or restart it"
    except (ImportError, AttributeError) as error:
        why = f"has not the same distls ({error}); install it"
    except (*CUT, WorkerError):
        raise
    except Exception as error:
        why = f"cannot be asked for its versions ({error}); distls needs `Client.run`"
    raise WorkerError(f"one of the workers {', '.join(workers)} {why}") from None


def _facts(dask_worker: Any = None) -> tuple[dict[str, str], str]:
    """Return the versions that decide the bits of results, and the processor that kernels are compiled for."""
    import platform
    from importlib.metadata import version

    # Dask would ask for results that a worker refuses again and again, for ever
    if dask_worker is not None and "get_data" in dask_worker.blocked_handlers:
        raise ValueError("the 'get_data' handler has been explicitly disallowed in Worker")
    names = ("distributed", "numpy", "numba", "zarr", "distls")
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python, **{name: version(name) for name in names}}, processor()
