"""A cluster on this machine that outlives the commands that use it: `distls cluster`."""

import contextlib
import ipaddress
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distributed import LocalCluster
from distributed.core import Status
from distributed.security import Security

from distls.execution.dask.error_logs import set_log_level
from distls.execution.dask.local_cluster import PatientNanny, first_cause, local_cluster, started_as_suits
from distls.execution.dask.remote_cluster import security_of
from distls.execution.dask.tls import Certificates, private_files
from distls.execution.memory_budget import MemoryBudget
from distls.storage.errors import ParameterError, WorkerError

_POLL_SECONDS = 0.2
_CLOSE_SECONDS = 10


class StandingCluster:
    """A scheduler and workers, started and to be closed."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    @property
    def address(self) -> str:
        """Where the scheduler listens."""
        return str(self._cluster.scheduler_address)

    def wait(self) -> None:
        """Return when a client has shut the cluster down."""
        # A client can shut it down, so the process looks now and then.
        while self._cluster.scheduler.status == Status.running:
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """End the workers and the scheduler; an interrupt cuts it short."""
        # Workers end on their own otherwise, and nannies would start new ones.
        for nanny in self._cluster.workers.values():
            nanny.restarts = False
        with contextlib.suppress(KeyboardInterrupt, Exception):
            self._cluster.close(timeout=_CLOSE_SECONDS)
        # otherwise Dask would wait again when the process ends
        self._cluster.shutdown_on_close = False


class _InwardNanny(PatientNanny):
    """Starts workers whose dashboards, unlike their work, are on loopback only."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options | {"dashboard_address": "127.0.0.1:0", "dashboard": False})


def start_standing(
    budget: MemoryBudget,  # number, threads and memory of the workers
    *,
    host: str,  # name or address of this machine at which they listen
    port: int,  # of the scheduler; 0 for any
    certificates: Certificates | None = None,
    anyone: bool = False,  # listen for other machines without TLS
    log_level: int = logging.CRITICAL,  # see `distls.execution.dask.local_cluster.start_local`
) -> StandingCluster:
    """Start a scheduler and workers on this machine, their dashboards on loopback.

    With `certificates`, only holders of a certificate of their authority can connect; without, Dask's configuration
    decides. Raises ParameterError if `host` is not of this machine, or open to others and neither encrypted nor
    `anyone`; WorkerError if the port is taken or the cluster does not start.
    """
    security = Security() if certificates is None else security_of(certificates)
    _check_host(host, encrypted=security.require_encryption, anyone=anyone)
    set_log_level(log_level)

    def start() -> StandingCluster:
        made = local_cluster(
            budget.workers,
            budget.threads,
            budget.worker_limit,
            log_level=log_level,
            # An address of IPv6 has colons of its own.
            host=f"[{host}]" if ":" in host else host,
            scheduler_port=port,
            security=security,
            worker_class=_InwardNanny,
        )
        return StandingCluster(made)

    try:
        return started_as_suits(start)
    except (OSError, RuntimeError) as error:
        raise WorkerError(f"no cluster on {host}, port {port}: {first_cause(error)}") from None


def _check_host(host: str, *, encrypted: bool, anyone: bool) -> None:
    if not _is_loopback(host):
        if not encrypted and not anyone:
            raise ParameterError(
                f"--host {host}: who reaches it could run programs as this user; add --tls or certificates, or "
                "--allow-anyone on a network that is nobody else's"
            )
    elif anyone:
        raise ParameterError(f"--allow-anyone: nobody else reaches {host}; drop it")
    if anyone and encrypted:
        raise ParameterError("--allow-anyone: TLS lets holders of a certificate in only; drop one of the two")


def _is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`."""
    try:
        # an empty name means all addresses
        found = socket.getaddrinfo(host or "0.0.0.0", None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ParameterError(f"--host {host}: not a name or address ({error.strerror})") from None
    # A name may have several addresses: all have to be loopback.
    return all(ipaddress.ip_address(entry[4][0]).is_loopback for entry in found)


@contextlib.contextmanager
def temporary_certificates(folder: Path | None) -> Iterator[Certificates]:
    """Yield a new certificate that is its own authority, removed at the end; see `private_files`.

    Raises ParameterError if the package that makes certificates is missing, or the folder cannot be used.
    """
    try:
        made = Security.temporary()
    except ImportError:
        raise ParameterError(
            "--tls needs the package cryptography to make a certificate: pip install 'distls[tls]', or give "
            "--tls-ca, --tls-cert and --tls-key"
        ) from None
    contents = {"ca.pem": made.tls_ca_file, "cert.pem": made.tls_client_cert, "key.pem": made.tls_client_key}
    # Files, since workers read their certificates from paths.
    with private_files(folder, contents) as paths:
        yield Certificates(*paths.values())
