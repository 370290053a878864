"""Commands that make and describe data sets."""

from __future__ import annotations

import json
from typing import Any

import click

from distls.cli.support import (
    FORMATS,
    PLACE,
    Running,
    Size,
    cli,
    cluster_of,
    cluster_options,
    common_options,
    debug_option,
    note,
    print_json,
    printable,
)
from distls.storage.filesystem.paths import Place


@cli.command()
@click.argument("sources", nargs=-1, required=True, metavar="SRC...")
@click.argument("dataset", type=PLACE)
@click.option("--format", default="auto", type=click.Choice(FORMATS), show_default=True)
@click.option("--labels", type=click.Path(), help="Label file of idx, npy or npz data.")
@click.option("--label-column", metavar="COLUMN", help="Name, position or last; JSON: default label, ...")
@click.option("--text-column", metavar="FIELD", help="Of JSON lines; default text, document, ...")
@click.option("--weight-column", metavar="COLUMN", help="The sample weight.")
@click.option("--ignore-columns", default="", metavar="A,B,...", help="Columns of a table to leave out.")
@click.option("--categorical", default="", metavar="A,B,...", help="Columns to take as categories.")
@click.option("--na", metavar="VALUE", help="The number that missing values stand for; default refused.")
@click.option("--separator", help="csv: a character, tab or space; default found out.")
@click.option(
    "--header", type=click.Choice(["yes", "no"]), help="csv: first line names columns; default found out."
)
@click.option(
    "--list-columns", metavar="INDICES,VALUES", help="parquet: sparse rows; default indices,values."
)
@click.option("--ngrams", metavar="MIN,MAX", help="Raw text: runs of words or characters; default 1,1.")
@click.option("--analyzer", type=click.Choice(["word", "char", "char_wb"]), help="Raw text; default word.")
@click.option("--lowercase/--no-lowercase", default=None, help="Raw text; default yes.")
@click.option("--alternate-sign", is_flag=True, default=None, help="Half of the columns count downwards.")
@click.option("--binary", is_flag=True, default=None, help="Raw text: ones instead of counts.")
@click.option("--unlabelled", is_flag=True, help="The text has no label column; rows keep their order.")
@click.option("--multilabel", is_flag=True, help="Labels are comma-separated lists.")
@click.option(
    "--target", type=click.Choice(["auto", "class", "continuous"]), default="auto", show_default=True
)
@click.option("--zero-based", type=click.Choice(["auto", "yes", "no"]), default="auto", show_default=True)
@click.option("--n-features", type=click.IntRange(1), help="Width; default the largest index.")
@click.option("--min-count", type=click.IntRange(1), help="Drop features of fewer training rows.")
@click.option("--hash-bits", type=click.IntRange(1, 31), help="vw: hash names into 2**B columns.")
@click.option("--transform", help="In order: log1p, idf, l2norm, scale=X, standardize.")
@click.option("--like", type=click.Path(), help="Take classes, width, transforms of a data set or run.")
@click.option(
    "--split", multiple=True, metavar="NAME=FRACTION", help="Hold out rows, stratified, as DATASET-NAME."
)
@click.option("--partition-size", type=Size(), default="16MiB", show_default=True, help="Decoded bytes.")
@click.option(
    "--compress", type=click.Choice(["auto", "zstd", "lz4", "none"]), default="auto", show_default=True
)
@click.option("--dtype", type=click.Choice(["float32", "float64"]), default="float32", show_default=True)
@click.option("--shuffle/--no-shuffle", default=None, help="Shuffle rows on write; default yes with labels.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--on-error", type=click.Choice(["stop", "skip"]), default="stop", show_default=True)
@click.option("--columns", is_flag=True, help="Add column shards too, as `distls columns` does.")
@cluster_options
@common_options
def ingest(sources: tuple[str, ...], dataset: Place, quiet: bool, debug: bool, **options: Any) -> None:
    """Turn raw files into a data set: parsed, shuffled, compressed, checksummed.

    Run the same command again to resume one that was stopped.
    """
    from distls.cli.progress import work_progress
    from distls.ingestion import ingest as run_ingest

    cluster = cluster_of(options, debug)
    transform = options.pop("transform")
    with Running(cluster) as (executor, budget), work_progress(quiet) as progress:
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
    from distls.cli.report import dataset_line
    from distls.storage.dataset.dataset import open_dataset

    click.echo(dataset_line(open_dataset(path)))


@cli.command()
@click.argument("kind")
@click.argument("dataset", type=PLACE)
@click.option("--rows", type=click.IntRange(1), help="Training rows; default the paper's.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--partition-size", type=Size(), default="16MiB", show_default=True)
@click.option(
    "--compress", type=click.Choice(["auto", "zstd", "lz4", "none"]), default="auto", show_default=True
)
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
    with Running(cluster) as (executor, budget), work_progress(quiet) as progress:
        made = run_generate(kind, dataset, executor=executor, memory=budget, progress=progress, **options)
    for part in made:
        _describe_dataset(part.path)


@cli.command()
@click.argument("dataset", type=PLACE)
@click.option("--shard-size", type=Size(), help="Decoded bytes; default as they are, else 16MiB.")
@cluster_options
@common_options
def columns(dataset: Place, shard_size: int | None, quiet: bool, debug: bool, **options: Any) -> None:
    """Add column shards to a data set: its columns in blocks, for coordinate descent.

    Run the same command again to resume one that was stopped.
    """
    from distls.cli.progress import work_progress
    from distls.cli.report import columns_line
    from distls.columns.sharding import add_columns, check_columns
    from distls.storage.dataset.dataset import open_dataset

    cluster = cluster_of(options, debug)
    budget = None if cluster.scheduler else cluster.budget()
    there = check_columns(open_dataset(dataset), shard_size, budget)
    if there is not None:
        click.echo(f"{columns_line(there)}, there already")
        return
    with Running(cluster) as (executor, budget), work_progress(quiet) as progress:
        made = add_columns(
            dataset, shard_size=shard_size, executor=executor, memory=budget, progress=progress
        ).columns
    assert made is not None
    click.echo(columns_line(made))


@cli.command()
@click.argument("path", type=PLACE)
@click.option("--json", "as_json", is_flag=True)
@debug_option
def info(path: Place, as_json: bool, debug: bool) -> None:
    """Describe a data set, a run or a model."""
    from distls.cli.describe import describe

    described = describe(path)
    if as_json:
        print_json(described)
    else:
        for name, value in described.items():
            shown = value if isinstance(value, str) else json.dumps(value)[:200]
            click.echo(printable(f"{name:20} {shown}"))
