"""Shared by the commands: the group that maps outcomes to exit codes, options, executors, output."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from distls import __version__
from distls.cli.interrupts import INTERRUPTED, Interrupts, forget_interrupts
from distls.cli.output import FAILED, OK, guard_streams, say, show, unwritten
from distls.cli.usage import meant, misled
from distls.request import OPTIONS, Option
from distls.storage.errors import DistlsError, ParameterError
from distls.storage.filesystem.atomic import finite_json
from distls.storage.filesystem.paths import Place, place_of

if TYPE_CHECKING:
    from distls.execution import ClusterOptions
    from distls.solvers.events import Callback

USAGE = 2


class Commands(click.Group):
    """A group whose commands end with an exit code and at most one line on stderr.

    The work is done in `invoke`, so that it holds under ``dask distls`` too.
    """

    def make_context(self, *given: Any, **options: Any) -> click.Context:
        """Parse the command line; before anything else is done the standard streams are made usable."""
        guard_streams()
        try:
            return super().make_context(*given, **options)
        except click.exceptions.Exit as end:  # --help and --version have printed
            raise click.exceptions.Exit(end.exit_code or unwritten()) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; its number, if it returns one, is the exit code."""
        with Interrupts():
            code = self._guarded(ctx)
        # otherwise the process may end by the signal instead of the exit code
        if code == INTERRUPTED:
            forget_interrupts()
        if code:
            raise click.exceptions.Exit(code)

    def _guarded(self, ctx: click.Context) -> int:
        try:
            return super().invoke(ctx) or OK
        except (KeyboardInterrupt, click.exceptions.Abort):
            return say("interrupted", INTERRUPTED)
        except click.exceptions.Exit as end:  # --help of a command, among others
            return end.exit_code or unwritten()
        except click.UsageError as error:
            raise meant(error) from None
        except (DistlsError, OSError, MemoryError) as error:
            if ctx.meta.get("distls.debug"):
                raise  # with its traceback
            code = USAGE if isinstance(error, ParameterError) else FAILED
            return say(f"distls: {str(error) or type(error).__name__}", code)
        except (ValueError, TypeError, LookupError, AttributeError, AssertionError) as error:
            library = misled(error)
            if library is None or ctx.meta.get("distls.debug"):
                raise
            why = f"{library} cannot be used as it is set ({' '.join(str(error).split())[:200]})"
            return say(f"distls: {why}; mend its environment variables or configuration files", USAGE)


def _note_debug(ctx: click.Context, _param: click.Parameter, value: bool) -> bool:
    # on the group's context, as that of the command is gone where errors are caught
    ctx.meta["distls.debug"] = value
    return value


@click.group("distls", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="distls")
def cli() -> None:
    """Train linear and multi-class models on data that does not fit in memory."""


debug_option = click.option(
    "--debug", is_flag=True, callback=_note_debug, help="Show tracebacks and the cluster's log."
)


class Written(click.ParamType[Any]):
    """A parameter parsed by a function whose module is imported on first use."""

    def __init__(self, name: str, parser: str) -> None:
        self.name, self._parser = name, parser

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse text; any other value is already parsed."""
        if not isinstance(value, str):
            return value
        module, _, function = self._parser.partition(":")
        try:
            return getattr(importlib.import_module(module), function)(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Size(Written):
    """A number of bytes such as 600MiB."""

    def __init__(self) -> None:
        super().__init__("size", "distls.execution.memory_budget:parse_bytes")


def worker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the number and the size of workers."""
    return _with(
        command,
        click.option("--workers", type=click.IntRange(1), help="Worker processes; default one per core."),
        click.option(
            "--threads-per-worker",
            "--threads",
            "threads_per_worker",
            type=click.IntRange(1),
            help="Threads of each worker; default 1.",
        ),
        click.option("--memory-limit", type=Size(), help="Memory limit of each worker, such as 600MiB."),
    )


def tls_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for TLS certificates."""
    file = click.Path(path_type=Path)
    return _with(
        command,
        click.option("--tls-ca", type=file, help="TLS: certificate of the authority (PEM)."),
        click.option("--tls-cert", type=file, help="TLS: your certificate (PEM)."),
        click.option("--tls-key", type=file, help="TLS: key of the certificate, without a passphrase."),
    )


class FormatName(click.Choice[str]):
    """The name of an input format; the formats are loaded when the choices are read."""

    def __init__(self) -> None:
        super().__init__(())

    @property
    def choices(self) -> tuple[str, ...]:
        """Names of the registered formats, and auto."""
        from distls.ingestion.formats.format_registry import format_names

        return ("auto", *format_names())

    @choices.setter
    def choices(self, names: tuple[str, ...]) -> None:
        """Ignore the base class's own assignment."""


class PlaceType(click.ParamType[Any]):
    """A path, or a URL of an object store."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        """Parse a path or URL."""
        return place_of(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Let the shell complete paths."""
        return [CompletionItem(incomplete, type="file")]


PLACE = PlaceType()


def request_options(*names: str) -> Callable[[Callable[..., Any]], Any]:
    """Add options of a fit's `Request`: all, or `names`."""
    options = [_request_option(option) for option in OPTIONS if option.name in names or not names]
    return lambda command: _with(command, *options)


def _request_option(option: Option) -> Callable[[Callable[..., Any]], Any]:
    kind: Any = PLACE if option.kind is Path else click.Choice(option.choices) if option.choices else option.kind
    if option.low is not None:
        ranges: Any = click.IntRange if option.kind is int else click.FloatRange
        kind = ranges(option.low, min_open=option.open)
    flag, metavar = option.kind is bool, option.unit if option.low is not None or kind is str else None
    return click.option(
        option.flag,
        option.name,
        type=kind,
        is_flag=flag,
        default=option.default,
        metavar=metavar,
        show_default=option.low == option.default,
        help=option.help,
    )


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of all commands that read source files, of whichever format."""
    return _with(
        command,
        click.option("--format", default="auto", type=FormatName(), show_default=True),
        click.option("--on-error", type=click.Choice(["stop", "skip"]), default="stop", show_default=True),
        click.option(
            "--unknown-features",
            type=click.Choice(["error", "ignore"]),
            default="error",
            show_default=True,
            help="Refuse features that training (--like) did not have, or leave them out.",
        ),
    )


def content_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say what is in source files to train on, of whichever format."""
    return _with(
        command,
        reading_options,
        click.option("--multilabel", is_flag=True, help="Labels are comma-separated lists."),
        click.option("--target", type=click.Choice(["auto", "class", "continuous"]), default="auto", show_default=True),
        click.option("--n-features", type=click.IntRange(1), help="Number of features; default the largest index."),
        click.option("--min-count", type=click.IntRange(1), help="Drop features that occur in fewer training rows."),
        click.option(
            "--dtype",
            type=click.Choice(["float32", "float64"]),
            default="float32",
            show_default=True,
            help="Type of the stored values.",
        ),
    )


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose where to run."""
    return _with(
        command,
        worker_options,
        click.option(
            "--scheduler",
            metavar="ADDRESS",
            envvar="DASK_SCHEDULER_ADDRESS",
            show_envvar=True,
            help="Address of a running Dask scheduler to use.",
        ),
        tls_options,
        click.option(
            "--executor",
            "executor_kind",
            type=click.Choice(["auto", "serial", "dask"]),
            default="auto",
            show_default=True,
            help="Run in this process, or on Dask workers; auto: by the size of the data.",
        ),
    )


def _with(
    command: Callable[..., Any], *options: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Callable[..., Any]:
    # decorators apply from the last to the first, and help lists the options in this order
    for option in reversed(options):
        command = option(command)
    return command


def common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --quiet and --debug."""
    quiet = click.option("--quiet", is_flag=True, callback=_note_quiet, help="Show no progress on stderr.")
    return debug_option(quiet(command))


def _note_quiet(_context: click.Context, _param: click.Parameter, value: bool) -> bool:
    if value:
        # workers inherit it
        os.environ["DISTLS_COMPILING_NOTICE"] = "0"
    return value


def cluster_of(options: dict[str, Any], debug: bool) -> ClusterOptions:
    """Pop the options that choose where to run."""
    from distls.execution import ClusterOptions

    own = ClusterOptions(
        executor=options.pop("executor_kind"),
        workers=options.pop("workers"),
        threads_per_worker=options.pop("threads_per_worker"),
        memory_limit=options.pop("memory_limit"),
    )
    # options on the command line take precedence over an address that only the environment sets
    source = click.get_current_context().get_parameter_source("scheduler")
    scheduler = options.pop("scheduler")
    if source is ParameterSource.ENVIRONMENT and own != ClusterOptions():
        scheduler = None
    files = [options.pop(name) for name in ("tls_ca", "tls_cert", "tls_key")]
    tls = importlib.import_module("distls.execution.dask.tls") if any(files) else None
    certificates = None if tls is None else tls.certificates_of(*files)
    return replace(own, scheduler=scheduler, certificates=certificates, debug=debug)


def watchers(quiet: bool) -> tuple[Callback, ...]:
    """Return the callbacks that show the progress of a fit."""
    from distls.cli.progress import fit_progress

    return () if quiet else (fit_progress(),)


def print_json(value: Any) -> None:
    """Print a JSON value on stdout, all control characters as its escapes, null for numbers that are not finite."""
    show(json.dumps(finite_json(value), indent=2, allow_nan=False).replace("\x7f", "\\u007f").split("\n"))


class Running:
    """Open an executor for a ``with`` block, closed however the block ends; say which one, unless `quiet`."""

    def __init__(self, options: ClusterOptions, n_bytes: float, quiet: bool = False) -> None:
        self._options = options.for_data(n_bytes)
        self._quiet = quiet or options.executor != "auto" or options.scheduler is not None

    def __enter__(self) -> tuple[Any, Any]:
        from distls.execution import open_executor

        if not self._quiet:
            say(_chosen_executor(self._options), OK)
        self._executor, budget = open_executor(self._options)
        return self._executor, budget

    def __exit__(self, *_: object) -> None:
        self._executor.close()


def _chosen_executor(options: ClusterOptions) -> str:
    if options.executor == "serial":
        return "the data are small: in this process, without workers (--workers N starts some)"
    budget = options.budget()
    threads = "" if budget.threads == 1 else f" of {budget.threads} threads"
    many = budget.workers > 1
    return (
        f"{budget.workers} worker process{'es' * many}{threads} on this machine, whose other users can reach "
        f"{'them' if many else 'it'} and run programs as you (--executor serial starts none)"
    )


# Scoring takes as long as a fit on an eighth of the bytes, parsing source files as long as one on four times theirs.
_SCORED, _PARSED = 8, 0.25


def scored_bytes(data: Sequence[Place]) -> float:
    """Return the bytes of data to be scored, in terms of those of a fit."""
    from distls.ingestion.adhoc_dataset import are_sources, check_there

    if are_sources(data):
        return source_bytes(data)
    check_there(data[0])
    return fitted_bytes(data[0]) / _SCORED


def fitted_bytes(dataset: Place) -> float:
    """Return the decoded bytes of a data set."""
    from distls.storage.dataset.dataset import open_dataset

    return float(open_dataset(dataset).decoded_bytes.sum())


def source_bytes(sources: Sequence[str | Place]) -> float:
    """Return the bytes of source files to be ingested, in terms of those of a fit; of absent ones, none."""
    return sum(file.stat().st_size for source in map(place_of, sources) for file in _files(source)) / _PARSED


def _files(source: Place) -> Sequence[Any]:
    if isinstance(source, Path) and source.is_dir():
        return [file for file in source.rglob("*") if file.is_file()]
    return [source] if isinstance(source, Path) and source.exists() else []
