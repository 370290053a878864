"""The command that keeps a cluster running."""

from __future__ import annotations

import contextlib
import logging
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distls.cli.output import OK, say, show
from distls.cli.support import cli, debug_option, tls_options, worker_options

if TYPE_CHECKING:
    from distls.execution.dask.tls import Certificates


@cli.command(short_help="Run a scheduler and workers on this machine until Ctrl-C.")
@worker_options
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8786,
    show_default=True,
    help="Port to listen on; 0 for any free one.",
)
@click.option("--tls", is_flag=True, help="Encrypt with a certificate made for this cluster.")
@click.option("--tls-directory", type=click.Path(path_type=Path), help="Folder for the certificate that --tls makes.")
@tls_options
@click.option("--allow-anyone", is_flag=True, help="Accept other machines without TLS.")
@debug_option
def cluster(
    workers: int | None,
    threads_per_worker: int | None,
    memory_limit: int | None,
    host: str,
    port: int,
    tls: bool,
    tls_directory: Path | None,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    allow_anyone: bool,
    debug: bool,
) -> int:
    """Run a scheduler and workers on this machine until Ctrl-C or SIGTERM.

    When they are ready, prints the address, and on a second line the options for other commands.
    """
    from distls.execution import ClusterOptions
    from distls.execution.dask.standing_cluster import start_standing, temporary_certificates
    from distls.execution.dask.tls import certificates_of
    from distls.storage.errors import ParameterError

    own = certificates_of(tls_ca, tls_cert, tls_key)
    if tls and own is not None:
        raise ParameterError("--tls makes a certificate; drop it, or drop --tls-ca, --tls-cert and --tls-key")
    if tls_directory is not None and not tls:
        raise ParameterError("--tls-directory needs --tls")
    options = ClusterOptions(workers=workers, threads_per_worker=threads_per_worker, memory_limit=memory_limit)
    with contextlib.ExitStack() as ending:
        certificates = ending.enter_context(temporary_certificates(tls_directory)) if tls else own
        made = start_standing(
            options.budget(),
            host=host,
            port=port,
            certificates=certificates,
            anyone=allow_anyone,
            log_level=logging.WARNING if debug else logging.CRITICAL,
        )
        ending.callback(made.close)
        try:
            show([made.address, _options_for(made.address, certificates)], needed=False)
            made.wait()
            return say(f"the cluster at {made.address} was shut down by a client", OK)
        except KeyboardInterrupt:
            return say(f"the cluster at {made.address} ends", OK)


def _options_for(address: str, certificates: Certificates | None) -> str:
    """Return the options with which commands use the cluster."""
    words = ["--scheduler", address]
    if certificates is not None:
        words += ["--tls-ca", str(certificates.ca), "--tls-cert", str(certificates.cert)]
        words += ["--tls-key", str(certificates.key)]
    return shlex.join(words)
