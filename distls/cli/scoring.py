"""Commands that use a model."""

import contextlib
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from distls.cli.data import ScoreCommand
from distls.cli.output import OK, check_stdout, note, say, show, show_table, silent
from distls.cli.support import (
    PLACE,
    Running,
    cli,
    cluster_of,
    cluster_options,
    common_options,
    debug_option,
    print_json,
    reading_options,
    request_options,
    scored_bytes,
)
from distls.facts import counted
from distls.interchange.export_formats import EXPORT_FORMATS
from distls.storage.errors import BadInputError, DistlsError
from distls.storage.filesystem.atomic import unsynced
from distls.storage.filesystem.memory_folder import temporary_folder
from distls.storage.filesystem.paths import Place, place_of

STREAM = "-"  # in place of a file

data_argument = click.argument("data", nargs=-1, required=True, type=PLACE, metavar="DATASET|SRC...")


@cli.command(cls=ScoreCommand, short_help="Score a model on labelled data.")
@click.argument("run", type=PLACE)
@data_argument
@click.option("--json", "as_json", is_flag=True)
@click.option("--all", "every", is_flag=True, help="Show all classes, however many; not the ten worst.")
@click.option("--costs", type=click.Path(path_type=Path), help="CSV file of costs by class and predicted class.")
@click.option("--weighted", is_flag=True, help="Count rows by their sample weights.")
@click.option("--unknown-labels", type=click.Choice(["error", "count"]), default="error", show_default=True)
@reading_options
@cluster_options
@common_options
def evaluate(
    run: Place, data: tuple[Place, ...], as_json: bool, every: bool, quiet: bool, debug: bool, **options: Any
) -> None:
    """Score a model on labelled data: error, F1, ROC AUC, quality of probabilities, confusion; for numbers, mse and r2.

    On the training data of a run that has kept its duals (sdca), also the objective and a bound on its distance
    from the optimum. Source files are first ingested like the model's data, into a folder that is removed afterwards.
    """
    from distls.cli.evaluation_text import evaluation_lines
    from distls.cli.report import objective_line
    from distls.evaluation.evaluate import evaluate as run_evaluate
    from distls.storage.model.model import load_model

    load_model(run)  # refused before workers are started

    with from_stdin(data) as data, Running(cluster_of(options, debug), scored_bytes(data), quiet=True) as (executor, _):
        notify = silent if quiet else note
        result = run_evaluate(run, data, executor=executor, notify=notify, **options)
    if as_json:
        print_json(result.to_json())
    else:
        lines = evaluation_lines(result, every=every)
        if result.objective is not None:
            lines.append(objective_line({"objective": result.objective, "certificate": result.certificate}))
        show(lines)


@cli.command(cls=ScoreCommand, short_help="Calibrate the probabilities of a model on held-out rows.")
@click.argument("run", type=PLACE)
@data_argument
@request_options("calibration", "threshold_for")
@reading_options
@cluster_options
@common_options
def calibrate(
    run: Place, data: tuple[Place, ...], calibration: str | None, quiet: bool, debug: bool, **options: Any
) -> None:
    """Calibrate the probabilities of a model, or the thresholds of its labels, on rows it was not trained on.

    It is stored with the model; weights stay as they are, and without --threshold-for predicted classes. `distls
    predict --proba` and `distls evaluate` then use calibrated probabilities, also of models whose loss has none. A
    multi-label model then predicts the labels whose scores are above thresholds that have the highest F1 on these rows.
    Repeat the command to replace a calibration.
    """
    from distls.cli.evaluation_text import calibration_lines
    from distls.evaluation.calibrate import calibrate as run_calibrate
    from distls.storage.model.model import load_model

    load_model(run)  # refused before workers are started
    with Running(cluster_of(options, debug), scored_bytes(data), quiet=True) as (executor, _):
        notify = silent if quiet else note
        found = run_calibrate(run, data, calibration, executor=executor, notify=notify, **options)
    show(calibration_lines(found.evaluation, found.before), needed=False)


@cli.command(cls=ScoreCommand, short_help="Predict rows: the best classes, labels or numbers.")
@click.argument("run", type=PLACE)
@click.argument("paths", nargs=-1, required=True, type=PLACE, metavar="DATASET|SRC... [OUT]")
@click.option(
    "--top", type=click.IntRange(1), default=1, show_default=True, help="Number of best classes or labels per row."
)
@click.option("--proba", is_flag=True, help="Write probabilities instead of scores.")
@reading_options
@click.option("--labelled", is_flag=True, help="The source files have labels, which are not used.")
@click.option("--overwrite", is_flag=True, help="Replace an existing OUT once the predictions are complete.")
@cluster_options
@common_options
def predict(run: Place, paths: tuple[Place, ...], quiet: bool, debug: bool, **options: Any) -> None:
    """Write each row's best classes, set of labels or predicted numbers to OUT, a .csv or .zarr.

    Without OUT, or with - for it, they are written to stdout as CSV; - as SRC is stdin. Source files are first
    ingested like the model's data, into a folder next to OUT that is removed afterwards.
    """
    from distls.cli.progress import work_progress
    from distls.prediction.predict import predict as run_predict

    given, out = (paths[:-1], paths[-1]) if len(paths) > 1 else (paths, place_of(STREAM))
    with (
        from_stdin(given) as data,
        to_stdout(out) as written,
        Running(cluster_of(options, debug), scored_bytes(data), quiet=True) as (executor, _),
        work_progress(quiet) as progress,
    ):
        n_rows = run_predict(
            run, data, written, executor=executor, progress=progress, notify=silent if quiet else note, **options
        )
    if not quiet and written == out:
        say(f"{counted(n_rows, 'row')} predicted into {out}", OK)


@cli.command(short_help="Write a model in the format of another program.")
@click.argument("run", type=PLACE)
@click.argument("out", type=PLACE)
@click.option(
    "--to",
    required=True,
    type=click.Choice(list(EXPORT_FORMATS)),
    help="Format of OUT; sklearn: a pipeline in the format of skops.",
)
@debug_option
def export(run: Place, out: Place, to: str, debug: bool) -> None:
    """Write the model of a run to OUT in the format of another program, with the same predictions.

    A line says which rows the exported model takes: transforms are included where the format can express them.
    """
    from distls.interchange.export import export as run_export

    done = run_export(run, out, to=to)
    note(f"{done.path} takes {done.expects}")


@cli.command("import", short_help="Make a model of another program's, for predict and warm starts.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.argument("model", type=PLACE)
@click.option(
    "--from", "source", required=True, type=click.Choice(["liblinear", "vw"]), help="Program that wrote FILE."
)
@debug_option
def import_(file: str, model: Place, source: str, debug: bool) -> None:
    """Make a model folder of another program's model, to predict with or to start a fit from (-p init=MODEL)."""
    from distls.interchange.import_model import import_model

    note(f"{model}: {import_model(file, model, source=source)}")


# -- standard input and output in place of files ---------------------------------------------------------


@contextlib.contextmanager
def from_stdin(data: Sequence[Place]) -> Iterator[tuple[Place, ...]]:
    """Yield `data` with a temporary copy of standard input in place of ``-``, which messages call stdin."""
    if not any(str(path) == STREAM for path in data):
        yield tuple(data)
        return
    with temporary_folder("distls-stdin-", None) as folder:
        copy = folder / "stdin"
        # recognised like any file: it is read more than once
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        if not copy.stat().st_size:
            raise BadInputError("stdin: no data")
        try:
            yield tuple(copy if str(path) == STREAM else path for path in data)
        except DistlsError as error:
            if str(copy) not in str(error):
                raise
            raise type(error)(str(error).replace(str(copy), "stdin")) from None


@contextlib.contextmanager
def to_stdout(out: Place) -> Iterator[Place]:
    """Yield `out`, or in place of ``-`` a temporary CSV file that is copied to standard output at the end."""
    if str(out) != STREAM:
        yield out
        return
    check_stdout()
    with temporary_folder("distls-stdout-", None) as folder, unsynced():
        copy = folder / "predictions.csv"
        yield copy
        show_table(copy)
