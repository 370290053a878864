"""Commands that make and describe data sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from distls.cli.output import note, show
from distls.cli.support import (
    PLACE,
    Running,
    Size,
    cli,
    cluster_of,
    cluster_options,
    common_options,
    content_options,
    debug_option,
    fitted_bytes,
    print_json,
    reading_options,
    source_bytes,
)
from distls.facts import counted
from distls.storage.filesystem.paths import Place

if TYPE_CHECKING:
    from distls.ingestion.request.format_options import OptionInfo
    from distls.storage.dataset.column_shards import ColumnShards
    from distls.storage.dataset.dataset import Dataset

TRANSFORMS = "In order, with commas: log1p, idf, l2norm, scale=X, standardize; or none, or auto: what suits the data."


class IngestCommand(click.Command):
    """A command with the options of all input formats, which are loaded when its parameters are read."""

    fits = True  # also those that make the features

    @property
    def params(self) -> list[click.Parameter]:
        """The command's own parameters, then the options of formats."""
        from distls.ingestion.formats.format_registry import option_infos

        known = {parameter.name for parameter in self._params}
        # always the same list: click modifies it in place
        infos = {name: info for name, info in option_infos().items() if self.fits or not info.fitted}
        self._params += [_format_option(*each) for each in infos.items() if each[0] not in known]
        return self._params

    @params.setter
    def params(self, own: list[click.Parameter]) -> None:
        self._params = own


class ScoreCommand(IngestCommand):
    """A command that reads source files like those of a model's training, with the options to read them otherwise."""

    fits = False


def _format_option(name: str, info: OptionInfo) -> click.Option:
    spelling = info.flag or f"--{name.replace('_', '-')}"
    if info.flag:
        return click.Option([spelling], is_flag=True, default=None, help=info.help)
    kind = click.Choice(info.choices) if info.choices else click.IntRange(*info.bounds) if info.bounds else str
    return click.Option([spelling], type=kind, metavar=info.metavar or None, help=info.help, multiple=info.repeated)


@cli.command(cls=IngestCommand, short_help="Turn files into a data set: parsed, shuffled, compressed.")
@click.argument("sources", nargs=-1, required=True, metavar="SRC...")
@click.argument("dataset", type=PLACE)
@content_options
@click.option("--unlabelled", is_flag=True, help="The sources have no label column; rows keep their order.")
@click.option("--transform", help=TRANSFORMS)
@click.option("--like", type=click.Path(), help="Use the classes, width and transforms of a data set or run.")
@click.option(
    "--split",
    multiple=True,
    metavar="NAME=FRACTION",
    help="Hold out a stratified fraction of the rows as DATASET-NAME.",
)
@click.option("--partition-size", type=Size(), default="16MiB", show_default=True, help="Decoded bytes of a partition.")
@click.option("--compress", type=click.Choice(["auto", "zstd", "lz4", "none"]), default="auto", show_default=True)
@click.option(
    "--shuffle/--no-shuffle", default=None, help="Shuffle rows when writing; default yes if they have labels."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--columns", is_flag=True, help="Add column shards too, as `distls columns` does.")
@click.option(
    "--row-numbers/--no-row-numbers",
    default=True,
    help="Keep file and number of each row, to join predictions to; default yes.",
)
@cluster_options
@common_options
def ingest(sources: tuple[str, ...], dataset: Place, quiet: bool, debug: bool, **options: Any) -> None:
    """Turn raw files into a data set: parsed, shuffled, compressed, checksummed.

    Run the same command again to resume one that was stopped.
    """
    from distls.cli.progress import work_progress
    from distls.ingestion.ingest import ingest as run_ingest

    cluster = cluster_of(options, debug)
    transform = options.pop("transform")
    # each format accepts only its own options, so those that were not given must not be passed on
    options = {name: value for name, value in options.items() if value is not None}
    running = Running(cluster, source_bytes(sources), quiet)
    with running as (executor, budget), work_progress(quiet) as progress:
        report = run_ingest(
            list(sources),
            dataset,
            executor=executor,
            memory=budget,
            progress=progress,
            transform=tuple(filter(None, (transform or "").split(","))),
            **options,
        )
    for notice in report.notices:
        note(notice)
    for path in report.paths:
        _describe_dataset(path)


def _describe_dataset(path: Place) -> None:
    from distls.storage.dataset.dataset import open_dataset

    show([dataset_line(open_dataset(path))], needed=False)


@cli.command(cls=ScoreCommand, short_help="Add the rows of files to a data set.")
@click.argument("dataset", type=PLACE)
@click.argument("sources", nargs=-1, required=True, metavar="SRC...")
@reading_options
@click.option("--partition-size", type=Size(), default="16MiB", show_default=True, help="Decoded bytes of a partition.")
@click.option("--shuffle/--no-shuffle", default=None, help="Shuffle the new rows; default if those of DATASET are.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--again", is_flag=True, help="Add rows that the data set has already.")
@cluster_options
@common_options
def append(dataset: Place, sources: tuple[str, ...], quiet: bool, debug: bool, **options: Any) -> None:
    """Add the rows of files to a data set, behind those that it has, read and transformed as those were.

    Until the end the data set is the one from before. Run the same command again to resume one that was stopped.
    """
    from distls.cli.progress import work_progress
    from distls.ingestion.append import append as run_append

    cluster = cluster_of(options, debug)
    options = {name: value for name, value in options.items() if value is not None}
    running = Running(cluster, source_bytes(sources), quiet)
    with running as (executor, _), work_progress(quiet) as progress:
        report = run_append(dataset, list(sources), executor=executor, progress=progress, **options)
    for notice in report.notices:
        note(notice)
    _describe_dataset(dataset)


@cli.command(short_help="Write a synthetic data set and its test rows.")
@click.argument("kind")
@click.argument("dataset", type=PLACE)
@click.option("--rows", type=click.IntRange(1), help="Number of training rows; default the paper's.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--partition-size", type=Size(), default="16MiB", show_default=True)
@click.option("--compress", type=click.Choice(["auto", "zstd", "lz4", "none"]), default="auto", show_default=True)
@click.option("--columns", is_flag=True, help="Add column shards to the training set.")
@cluster_options
@common_options
def generate(kind: str, dataset: Place, quiet: bool, debug: bool, **options: Any) -> None:
    """Write a synthetic data set of a paper's shape, and its test set DATASET-test."""
    from distls.cli.progress import work_progress
    from distls.synthetic.generation import generate as run_generate
    from distls.workers.synthetic.kinds import kind_named

    kind_named(kind)
    cluster = cluster_of(options, debug)
    # how much is made depends on the kind: the paper's sizes are large
    running = Running(cluster, float("inf"), quiet)
    with running as (executor, budget), work_progress(quiet) as progress:
        made = run_generate(kind, dataset, executor=executor, memory=budget, progress=progress, **options)
    for part in made:
        _describe_dataset(part.path)


@cli.command(short_help="Add column shards to a data set, for coordinate descent.")
@click.argument("dataset", type=PLACE)
@click.option(
    "--shard-size", type=Size(), help="Decoded bytes of a shard; default that of existing shards, else 16MiB."
)
@cluster_options
@common_options
def columns(dataset: Place, shard_size: int | None, quiet: bool, debug: bool, **options: Any) -> None:
    """Add column shards to a data set: its columns in blocks, for coordinate descent.

    Run the same command again to resume one that was stopped.
    """
    from distls.cli.progress import work_progress
    from distls.columns.sharding import add_columns, check_columns
    from distls.storage.dataset.dataset import open_dataset

    cluster = cluster_of(options, debug)
    n_bytes = fitted_bytes(dataset)
    budget = None if cluster.scheduler else cluster.for_data(n_bytes).budget()
    there = check_columns(open_dataset(dataset), shard_size, budget)
    if there is not None:
        show([f"{columns_line(there)}, there already"], needed=False)
        return
    with Running(cluster, n_bytes, quiet) as (executor, budget), work_progress(quiet) as progress:
        made = add_columns(dataset, shard_size=shard_size, executor=executor, memory=budget, progress=progress).columns
    assert made is not None
    show([columns_line(made)], needed=False)


@cli.command()
@click.argument("path", type=PLACE)
@click.option("--json", "as_json", is_flag=True)
@click.option("--all", "every", is_flag=True, help="Show the strongest features of every class.")
@debug_option
def info(path: Place, as_json: bool, every: bool, debug: bool) -> None:
    """Describe a data set, a run or a model."""
    from distls.reporting.describe import MOST_CLASSES, SHOWN_CLASSES, describe, info_lines

    described = describe(path, None if every else MOST_CLASSES if as_json else SHOWN_CLASSES)
    if as_json:
        print_json(described)
    else:
        show(info_lines(described))


def dataset_line(dataset: Dataset) -> str:
    """Return a dataset's size on one line."""
    from distls.execution.memory_budget import human

    meta = dataset.meta
    density = f", {meta.nnz / max(meta.n_rows, 1):.1f} non-zeros a row" if meta.layout == "csr" else ""
    what = "labels" if meta.target == "multilabel" else "classes"
    kind = f"{len(meta.classes)} {what}" if meta.classes else {"none": "no labels"}.get(meta.target, meta.target)
    return (
        f"{dataset.path}: {counted(meta.n_rows, 'row')} x {counted(meta.n_features, 'feature')}{density}, {kind}, "
        f"{counted(len(dataset), 'partition')}, {human(int(dataset.stored_bytes.sum()))} stored"
    )


def columns_line(shards: ColumnShards) -> str:
    """Return the number and sizes of a dataset's column shards, on one line."""
    from distls.execution.memory_budget import human

    return (
        f"{shards.path}: {len(shards)} column shards of at most {human(int(shards.decoded_bytes.max(initial=0)))}, "
        f"{human(int(shards.stored_bytes.sum()))} stored"
    )
