"""`distls train`: ingest, fit and evaluate in one command."""

from typing import Any

import click

from distls.cli.data import TRANSFORMS, IngestCommand
from distls.cli.method_names import METHOD, START, MethodCommand, parameter_option, started_from
from distls.cli.output import note, show, silent
from distls.cli.support import (
    PLACE,
    Running,
    cli,
    cluster_of,
    cluster_options,
    common_options,
    content_options,
    request_options,
    source_bytes,
    watchers,
)
from distls.cli.training import conclude
from distls.request import ALONE
from distls.storage.filesystem.paths import Place


class TrainCommand(IngestCommand, MethodCommand):
    """A command with the options of all input formats, whose help lists the methods."""


@cli.command(cls=TrainCommand, short_help="Train a model on files: ingest, fit, evaluate.")
@click.argument("sources", nargs=-1, required=True, type=PLACE, metavar="FILE...")
@click.argument("model", type=PLACE)
@click.option("--test", multiple=True, type=PLACE, metavar="FILE", help="Evaluate on this file at the end.")
@click.option("--test-labels", type=click.Path(), help="File with the labels of the test files, as --labels.")
@click.option(
    "--method",
    default="auto",
    type=METHOD,
    show_default=True,
    help="See `distls methods`; auto takes the one that suits the data.",
)
@parameter_option("Set a parameter of the method.")
@START
@request_options(*ALONE, "threshold_for")
@click.option("--dataset", type=PLACE, help="Ingest into this folder; default MODEL-data.")
@click.option("--discard-dataset", is_flag=True, help="Remove that folder once the model is trained.")
@content_options
@click.option("--transform", help=f"{TRANSFORMS} Default auto, with --as-published none.")
@click.option("--columns", is_flag=True, default=None, help="Add column shards too, as --method bcd does.")
@cluster_options
@common_options
def train(
    sources: tuple[Place, ...],
    model: Place,
    quiet: bool,
    debug: bool,
    pairs: tuple[str, ...],
    init: Place | None,
    **options: Any,
) -> int:
    """Train a model on files: ingest them, fit, and evaluate on the --test files.

    Name the label column of a table with --label-column unless it has one of the usual names.
    `distls predict MODEL FILE` then predicts.
    """
    from distls.cli.evaluation_text import evaluation_lines
    from distls.cli.progress import work_progress
    from distls.execution.serial import SerialExecutor
    from distls.methods.method_registry import parse_values
    from distls.training.from_files import train as run_train
    from distls.workers.ingestion.compile_beside import compiled_beside

    cluster, params = cluster_of(options, debug), parse_values(pairs)
    params |= started_from(init, "init" in params)
    keep = not options.pop("discard_dataset")
    given = {name: value for name, value in options.items() if value is not None}
    with (
        Running(cluster, source_bytes(sources), quiet) as (executor, budget),
        compiled_beside(isinstance(executor, SerialExecutor)),
        work_progress(quiet) as progress,
    ):
        found = run_train(
            sources,
            model,
            params=params,
            executor=executor,
            memory=budget,
            callbacks=watchers(quiet),
            progress=progress,
            notify=silent if quiet else note,
            keep_dataset=keep,
            **given,
        )
    code = conclude(found.fit, model, quiet)
    if found.dataset is not None:
        show([f"data set in {found.dataset}"], needed=False)
    if found.evaluation is not None:
        show(evaluation_lines(found.evaluation), needed=False)
    return code
