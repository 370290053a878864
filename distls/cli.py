"""The command line. Results go to stdout, progress and errors to stderr; docs/cli.md lists the exit codes.

Imports of the machinery stand inside the commands: this module loads with every ``dask`` command.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from distls import __version__
from distls.storage.errors import DistlsError, ParameterError

if TYPE_CHECKING:
    from distls.callbacks import Callback
    from distls.execution import ClusterOptions
    from distls.fitting import FitResult

__all__ = ["cli", "main"]

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 3


class _Size(click.ParamType[int]):
    """Bytes, written like 600MiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from distls.memory import parse_bytes

        if isinstance(value, int):
            return value
        try:
            return parse_bytes(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    sys.exit(_guarded(sys.argv[1:]))


def _guarded(arguments: list[str]) -> int:
    """Turn every way a command can end into an exit code and at most one line on stderr."""
    debug = "--debug" in arguments
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return cli.main(arguments, prog_name="distls", standalone_mode=False) or OK
    except click.exceptions.Abort:
        return _say("interrupted", INTERRUPTED)
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return USAGE
    except ParameterError as error:
        if debug:
            raise
        return _say(f"distls: {error}", USAGE)
    except (DistlsError, OSError, MemoryError) as error:
        if debug:
            raise
        return _say(f"distls: {str(error) or type(error).__name__}", FAILED)
    except BrokenPipeError:
        return FAILED


def _say(text: str, code: int) -> int:
    click.echo(text.replace("\n", " "), err=True)
    return code


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        click.option("--workers", type=click.IntRange(1), help="Worker processes; default one a core."),
        click.option("--threads-per-worker", type=click.IntRange(1), default=1, show_default=True),
        click.option("--memory-limit", type=_Size(), help="Bytes a worker may use, like 600MiB."),
        click.option("--scheduler", metavar="ADDRESS", help="Use a running Dask scheduler."),
        click.option(
            "--executor",
            "executor_kind",
            type=click.Choice(["serial", "dask"]),
            default="dask",
            show_default=True,
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--debug", is_flag=True, help="Show tracebacks and the cluster's log."),
        click.option("--quiet", is_flag=True, help="No progress on stderr."),
    ):
        command = option(command)
    return command


def _cluster(options: dict[str, Any], debug: bool) -> ClusterOptions:
    from distls.execution import ClusterOptions

    return ClusterOptions(
        executor=options.pop("executor_kind"),
        workers=options.pop("workers"),
        threads_per_worker=options.pop("threads_per_worker"),
        memory_limit=options.pop("memory_limit"),
        scheduler=options.pop("scheduler"),
        debug=debug,
    )


def _watchers(quiet: bool) -> list[Callback]:
    from distls.progress import fit_progress

    return [] if quiet else [fit_progress()]


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, allow_nan=False))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="distls")
def cli() -> None:
    """Train linear and multi-class models on data that does not fit in memory."""


@cli.command()
@click.argument("sources", nargs=-1, required=True, metavar="SRC...")
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option(
    "--format", "format", default="auto", type=click.Choice(["auto", "svmlight", "npz", "npy", "idx"])
)
@click.option("--labels", type=click.Path(), help="Label file of idx, npy or npz data.")
@click.option("--unlabelled", is_flag=True, help="The text has no label column; rows keep their order.")
@click.option("--multilabel", is_flag=True, help="Labels are comma-separated lists.")
@click.option(
    "--target", type=click.Choice(["auto", "class", "continuous"]), default="auto", show_default=True
)
@click.option("--zero-based", type=click.Choice(["auto", "yes", "no"]), default="auto", show_default=True)
@click.option("--n-features", type=click.IntRange(1), help="Width; default the largest index.")
@click.option("--transform", help="In order: log1p, idf, l2norm, scale=X.")
@click.option("--like", type=click.Path(), help="Take classes, width and fitted transforms of a data set.")
@click.option(
    "--split", multiple=True, metavar="NAME=FRACTION", help="Hold out rows, stratified, as DATASET-NAME."
)
@click.option("--partition-size", type=_Size(), default="16MiB", show_default=True, help="Decoded bytes.")
@click.option(
    "--compress", type=click.Choice(["auto", "zstd", "lz4", "none"]), default="auto", show_default=True
)
@click.option("--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True)
@click.option("--shuffle/--no-shuffle", default=None, help="Shuffle rows on write; default yes with labels.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--on-error", type=click.Choice(["stop", "skip"]), default="stop", show_default=True)
@_cluster_options
@_common_options
def ingest(sources: tuple[str, ...], dataset: Path, quiet: bool, debug: bool, **options: Any) -> None:
    """Turn raw files into a data set: parsed, shuffled, compressed, checksummed.

    Run the same command again to resume one that was stopped.
    """
    from distls.ingestion import ingest as run_ingest
    from distls.progress import work_progress

    cluster = _cluster(options, debug)
    shuffle = options.pop("shuffle")
    transform = options.pop("transform")
    with _executor(cluster) as (executor, _), work_progress(quiet) as progress:
        report = run_ingest(
            list(sources),
            dataset,
            executor=executor,
            progress=progress,
            shuffle=not options["unlabelled"] if shuffle is None else shuffle,
            transform=tuple(filter(None, (transform or "").split(","))),
            **options,
        )
    for notice in report.notices:
        click.echo(f"note: {notice}", err=True)
    for path in report.paths:
        _describe_dataset(Path(path))


def _describe_dataset(path: Path) -> None:
    from distls.report import dataset_line
    from distls.storage.dataset import open_dataset

    click.echo(dataset_line(open_dataset(path)))


class _executor:
    """Open an executor for a ``with`` block, closed however the block ends."""

    def __init__(self, options: ClusterOptions) -> None:
        self._options = options

    def __enter__(self) -> tuple[Any, Any]:
        from distls.execution import open_executor

        self._executor, budget = open_executor(self._options)
        return self._executor, budget

    def __exit__(self, *_: object) -> None:
        self._executor.close()


@cli.command()
@click.argument("kind")
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option("--rows", type=click.IntRange(1), help="Training rows; default the paper's.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--partition-size", type=_Size(), default="16MiB", show_default=True)
@click.option(
    "--compress", type=click.Choice(["auto", "zstd", "lz4", "none"]), default="auto", show_default=True
)
@_cluster_options
@_common_options
def generate(kind: str, dataset: Path, quiet: bool, debug: bool, **options: Any) -> None:
    """Write a synthetic data set of a paper's shape, and its test set DATASET-test."""
    from distls.generation import generate as run_generate
    from distls.progress import work_progress
    from distls.workers.synthetic import kind_named

    kind_named(kind)
    cluster = _cluster(options, debug)
    with _executor(cluster) as (executor, _), work_progress(quiet) as progress:
        made = run_generate(kind, dataset, executor=executor, progress=progress, **options)
    for part in made:
        _describe_dataset(part.path)


@cli.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True)
@click.option("--debug", is_flag=True)
def info(path: Path, as_json: bool, debug: bool) -> None:
    """Describe a data set, a run or a model."""
    from distls.report import describe

    described = describe(path)
    if as_json:
        _print_json(described)
    else:
        for name, value in described.items():
            click.echo(f"{name:20} {value if isinstance(value, str) else json.dumps(value)[:200]}")


@cli.command()
@click.argument("method", required=False)
def methods(method: str | None) -> None:
    """List the methods, or one method's parameters."""
    from distls.methods import METHODS, method_named

    if method is None:
        for each in METHODS.values():
            click.echo(f"{each.name:12} {each.summary}")
        return
    chosen = method_named(method)
    click.echo(f"{chosen.name}: {chosen.summary}\npaper: {chosen.paper}\n")
    if chosen.aliases:
        click.echo("short loss names: " + ", ".join(f"{a} = {b}" for a, b in chosen.aliases.items()) + "\n")
    for parameter in chosen.parameters:
        default = "" if parameter.default is None else f" [{parameter.default}]"
        click.echo(f"  {parameter.name:14} {parameter.description}{default}")


@cli.command()
@click.argument("method")
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option("-p", "pairs", multiple=True, metavar="NAME=VALUE", help="A parameter of the method.")
@click.option("--passes", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True)
@click.option("--no-probe", is_flag=True, help="Metadata only: do not time a partition.")
@_cluster_options
@click.option("--debug", is_flag=True)
def plan(
    method: str,
    dataset: Path,
    pairs: tuple[str, ...],
    as_json: bool,
    no_probe: bool,
    debug: bool,
    **options: Any,
) -> None:
    """Say what a fit will cost in memory, bytes and seconds; refuse what cannot fit."""
    from distls.methods import parse_values
    from distls.probing import plan_fit
    from distls.report import plan_lines

    passes, seed = options.pop("passes"), options.pop("seed")
    cluster = _cluster(options, debug)
    made = plan_fit(
        method, dataset, parse_values(pairs), seed=seed, passes=passes, cluster=cluster, probe=not no_probe
    )
    if as_json:
        _print_json(made.to_json())
    else:
        click.echo("\n".join(plan_lines(made)))


@cli.command()
@click.argument("method")
@click.argument("dataset", type=click.Path(path_type=Path))
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "-p", "pairs", multiple=True, metavar="NAME=VALUE", help="A parameter; NAME=A,B,C with --select."
)
@click.option("--passes", type=click.FloatRange(0, min_open=True), help="Limit; default 10 without another.")
@click.option("--tol", type=float, help="Stop when the certificate is at most this.")
@click.option("--max-seconds", type=click.FloatRange(0, min_open=True), help="Of training.")
@click.option("--eval", "eval_data", type=click.Path(path_type=Path), help="A data set to score.")
@click.option("--eval-every", type=click.FloatRange(0), help="Passes between evaluations; 0 for none.")
@click.option(
    "--patience", type=click.IntRange(1), help="Stop after so many evaluations without a lower error."
)
@click.option("--select", type=click.Path(path_type=Path), help="Chooses among several settings.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--checkpoint-seconds", type=click.FloatRange(0), default=30.0, show_default=True)
@_cluster_options
@_common_options
def fit(
    method: str, dataset: Path, run: Path, pairs: tuple[str, ...], quiet: bool, debug: bool, **options: Any
) -> int:
    """Train METHOD on DATASET into the new folder RUN."""
    from distls.fitting import check_fit
    from distls.fitting import fit as run_fit
    from distls.methods import parse_values

    cluster = _cluster(options, debug)
    params = parse_values(pairs)
    # everything that metadata can refuse is refused before a cluster is started
    check_fit(method, dataset, run, params=params, cluster=cluster, **options)
    with _executor(cluster) as (executor, budget):
        result = run_fit(
            method,
            dataset,
            run,
            params=params,
            executor=executor,
            memory=budget,
            callbacks=_watchers(quiet),
            **options,
        )
    return _conclude(result, run)


@cli.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--checkpoint-seconds", type=click.FloatRange(0), default=30.0, show_default=True)
@_cluster_options
@_common_options
def resume(run: Path, quiet: bool, debug: bool, checkpoint_seconds: float, **options: Any) -> int:
    """Continue a fit that was interrupted or killed."""
    from distls.fitting import check_resume
    from distls.fitting import resume as run_resume

    cluster = _cluster(options, debug)
    check_resume(run)
    with _executor(cluster) as (executor, budget):
        result = run_resume(
            run,
            executor=executor,
            memory=budget,
            callbacks=_watchers(quiet),
            checkpoint_seconds=checkpoint_seconds,
        )
    return _conclude(result, run)


def _conclude(result: FitResult, run: Path) -> int:
    """Print how a fit ended; return the exit code."""
    from distls.report import result_lines
    from distls.solvers.base import Status

    if result.status == Status.INTERRUPTED:
        return _say(
            f"interrupted after {result.passes:g} passes; `distls resume {run}` continues", INTERRUPTED
        )
    if result.status == Status.DIVERGED:
        return _say(
            f"distls: {run}: the weights are no longer finite; try a larger alpha or t0, or scale the data",
            FAILED,
        )
    click.echo("\n".join(result_lines(result)))
    return OK


@cli.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True)
@click.option("--unknown-labels", type=click.Choice(["error", "count"]), default="error", show_default=True)
@_cluster_options
@click.option("--debug", is_flag=True)
def evaluate(
    run: Path, dataset: Path, as_json: bool, unknown_labels: str, debug: bool, **options: Any
) -> None:
    """Score a model on labelled data: error, log loss, classes, confusion."""
    from distls.evaluation import evaluate as run_evaluate
    from distls.report import evaluation_lines
    from distls.storage.model import load_model

    model = load_model(run)
    with _executor(_small(_cluster(options, debug), dataset)) as (executor, _):
        result = run_evaluate(model, dataset, unknown_labels=unknown_labels, executor=executor, name=str(run))
    if as_json:
        _print_json(result.to_json())
    else:
        click.echo("\n".join(evaluation_lines(result)))


def _small(options: ClusterOptions, dataset: Path) -> ClusterOptions:
    """Score little data in this process: starting a cluster would take longer."""
    from dataclasses import replace

    from distls.storage.dataset import open_dataset

    asked = options.scheduler is not None or options.workers is not None or options.memory_limit is not None
    little = int(open_dataset(dataset).decoded_bytes.sum()) < 256 * 2**20
    return replace(options, executor="serial") if little and not asked else options


@cli.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("dataset", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--top", type=click.IntRange(1), default=1, show_default=True, help="Best classes a row.")
@click.option("--proba", is_flag=True, help="Probabilities instead of scores.")
@_cluster_options
@_common_options
def predict(
    run: Path, dataset: Path, out: Path, top: int, proba: bool, quiet: bool, debug: bool, **options: Any
) -> None:
    """Write every row's best classes to OUT, a .csv or .zarr."""
    from distls.prediction import predict as run_predict
    from distls.progress import work_progress

    with (
        _executor(_small(_cluster(options, debug), dataset)) as (executor, _),
        work_progress(quiet) as progress,
    ):
        n_rows = run_predict(run, dataset, out, top=top, proba=proba, executor=executor, progress=progress)
    click.echo(f"{n_rows:,} rows predicted into {out}", err=True)


@cli.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--debug", is_flag=True)
def report(run: Path, debug: bool) -> None:
    """Show a run's rounds, costs and result."""
    from distls.report import run_lines

    click.echo("\n".join(run_lines(run)))


@cli.command()
@click.option("--rows", type=click.IntRange(1000), default=400_000, show_default=True)
@click.option(
    "--directory", type=click.Path(path_type=Path), help="Keep everything there; default a temporary folder."
)
@click.option("--workers", type=click.IntRange(1))
@click.option("--debug", is_flag=True)
def demo(rows: int, directory: Path | None, workers: int | None, debug: bool) -> int:
    """Generate, ingest, plan, train out of core on local processes, evaluate, report: about a minute."""
    from distls.demo import run_demo

    return run_demo(rows, directory, workers)
