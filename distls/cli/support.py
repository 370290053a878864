"""What the commands share: the group that turns every end into an exit code, options, executors, output."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from distls import __version__
from distls.cli.interrupts import INTERRUPTED, Interrupts, forget_interrupts
from distls.storage.errors import DistlsError, ParameterError
from distls.storage.filesystem.paths import Place, place_of

if TYPE_CHECKING:
    from distls.execution import ClusterOptions
    from distls.solvers.events import Callback

OK, FAILED, USAGE = 0, 1, 2


class Commands(click.Group):
    """A group whose commands end with an exit code and at most one line on stderr.

    The work is done in `invoke`, so that it holds under ``dask distls`` too.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; its number, if it returns one, is the exit code."""
        with Interrupts():
            code = self._guarded(ctx)
        if code == INTERRUPTED:
            forget_interrupts()
        if code:
            raise click.exceptions.Exit(code)

    def _guarded(self, ctx: click.Context) -> int:
        try:
            return super().invoke(ctx) or OK
        except (KeyboardInterrupt, click.exceptions.Abort):
            return say("interrupted", INTERRUPTED)
        except BrokenPipeError:
            return FAILED
        except (DistlsError, OSError, MemoryError) as error:
            if _debugging(ctx):
                raise
            code = USAGE if isinstance(error, ParameterError) else FAILED
            return say(f"distls: {str(error) or type(error).__name__}", code)


def _debugging(ctx: click.Context) -> bool:
    # the context of the command is gone by now; its flag was noted on the group's
    return bool(ctx.meta.get("distls.debug"))


def _note_debug(ctx: click.Context, _param: click.Parameter, value: bool) -> bool:
    ctx.meta["distls.debug"] = value
    return value


def say(text: str, code: int) -> int:
    """Print one line on stderr and return `code`."""
    click.echo(printable(text.replace("\n", " ")), err=True)
    return code


def printable(text: str) -> str:
    """Return lines of text that do nothing to a terminal, whoever chose the names in them."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def note(text: str) -> None:
    """Print a notice on stderr."""
    click.echo(printable(f"note: {text}"), err=True)


def silent(_text: str) -> None:
    """Print nothing."""


@click.group("distls", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="distls")
def cli() -> None:
    """Train linear and multi-class models on data that does not fit in memory."""


debug_option = click.option(
    "--debug", is_flag=True, callback=_note_debug, help="Show tracebacks and the cluster's log."
)


class Written(click.ParamType[Any]):
    """What a function of a module, imported when it is used, parses."""

    def __init__(self, name: str, parser: str) -> None:
        self.name, self._parser = name, parser

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse text; what is none was parsed before."""
        if not isinstance(value, str):
            return value
        module, _, function = self._parser.partition(":")
        try:
            return getattr(importlib.import_module(module), function)(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Size(Written):
    """Bytes, written like 600MiB."""

    def __init__(self) -> None:
        super().__init__("size", "distls.execution.memory_budget:parse_bytes")


def worker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how many workers there are, and how large."""
    return _with(
        command,
        click.option("--workers", type=click.IntRange(1), help="Worker processes; default one a core."),
        click.option("--threads-per-worker", type=click.IntRange(1), help="Default 1."),
        click.option("--memory-limit", type=Size(), help="Bytes a worker may use, like 600MiB."),
    )


def tls_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name certificates."""
    file = click.Path(path_type=Path)
    return _with(
        command,
        click.option("--tls-ca", type=file, help="TLS: the certificate of the authority."),
        click.option("--tls-cert", type=file, help="TLS: the own certificate."),
        click.option("--tls-key", type=file, help="TLS: its key."),
    )


class FormatName(click.Choice[str]):
    """The name of an input format; the list of them is loaded when it is looked at."""

    def __init__(self) -> None:
        super().__init__(())

    @property
    def choices(self) -> tuple[str, ...]:
        """The names."""
        from distls.ingestion.formats.registry import format_names

        return ("auto", *format_names())

    @choices.setter
    def choices(self, names: tuple[str, ...]) -> None:
        """Take no names: the base class sets what it is made with."""


class PlaceType(click.ParamType[Any]):
    """A path, or a URL of an object store."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        """Return the place that a text means."""
        return place_of(value)


PLACE = PlaceType()


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where to run."""
    return _with(
        command,
        worker_options,
        click.option(
            "--scheduler",
            metavar="ADDRESS",
            envvar="DASK_SCHEDULER_ADDRESS",
            show_envvar=True,
            help="Use a running Dask scheduler.",
        ),
        tls_options,
        click.option(
            "--executor",
            "executor_kind",
            type=click.Choice(["serial", "dask"]),
            default="dask",
            show_default=True,
        ),
    )


def _with(
    command: Callable[..., Any], *options: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


def common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --quiet and --debug."""
    return debug_option(click.option("--quiet", is_flag=True, help="No progress on stderr.")(command))


def cluster_of(options: dict[str, Any], debug: bool) -> ClusterOptions:
    """Take the options that say where to run out of `options`."""
    from distls.execution import ClusterOptions
    from distls.execution.dask.tls import certificates_of

    own = ClusterOptions(
        executor=options.pop("executor_kind"),
        workers=options.pop("workers"),
        threads_per_worker=options.pop("threads_per_worker"),
        memory_limit=options.pop("memory_limit"),
    )
    # an address that is only in the environment gives way to what the command line asks for
    source = click.get_current_context().get_parameter_source("scheduler")
    scheduler = options.pop("scheduler")
    if source is ParameterSource.ENVIRONMENT and own != ClusterOptions():
        scheduler = None
    certificates = certificates_of(*(options.pop(name) for name in ("tls_ca", "tls_cert", "tls_key")))
    return replace(own, scheduler=scheduler, certificates=certificates, debug=debug)


def watchers(quiet: bool) -> list[Callback]:
    """Return what shows a fit's progress."""
    from distls.cli.progress import fit_progress

    return [] if quiet else [fit_progress()]


def print_json(value: Any) -> None:
    """Print a JSON value on stdout."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


class Running:
    """Open an executor for a ``with`` block, closed however the block ends."""

    def __init__(self, options: ClusterOptions) -> None:
        self._options = options

    def __enter__(self) -> tuple[Any, Any]:
        from distls.execution import open_executor

        self._executor, budget = open_executor(self._options)
        return self._executor, budget

    def __exit__(self, *_: object) -> None:
        self._executor.close()


def in_process_if_small(options: ClusterOptions, data: Sequence[Place]) -> ClusterOptions:
    """Score little data in this process: starting a cluster would take longer."""
    chosen = (options.scheduler, options.workers, options.memory_limit, options.threads_per_worker)
    asked = any(option is not None for option in chosen)
    return replace(options, executor="serial") if _are_little(data) and not asked else options


def _are_little(data: Sequence[Place]) -> bool:
    """Tell whether a data set, or source files, take less time than the start of a cluster."""
    from distls.ingestion.adhoc_dataset import are_sources
    from distls.storage.dataset.dataset import open_dataset

    if are_sources(data):
        return sum(path.stat().st_size for path in data if path.exists()) < 8 * 2**20
    return int(open_dataset(data[0]).decoded_bytes.sum()) < 256 * 2**20
