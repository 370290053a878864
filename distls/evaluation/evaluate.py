"""Evaluation of a model on labelled data: a data set, or source files ingested for it."""

import csv
import math
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.evaluation.compatibility import check_model_scores, check_targets, class_codes
from distls.evaluation.evaluator import Evaluator
from distls.evaluation.metrics import AnyEvaluation
from distls.evaluation.scores import measure_classes, measure_labels, score_targets
from distls.evaluation.thresholds import without_threshold
from distls.execution import executor_of
from distls.execution.batch import run_alone
from distls.execution.executor import Executor
from distls.ingestion.adhoc_dataset import Notify, in_memory, opened_like, pass_on, source_options
from distls.long_calls import long_call
from distls.methods.method_registry import METHODS
from distls.model_check import check_model
from distls.problem import Problem
from distls.solvers.loop import relative_bound
from distls.solvers.solver import Fitted
from distls.storage.dataset.dataset import Dataset
from distls.storage.dataset.metadata import Label
from distls.storage.errors import BadInputError, MismatchError, ParameterError, StateLostError
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.model.model import LinearModel, load_model
from distls.workers.duals.stored_duals import published_duals
from distls.workers.evaluation.class_metrics_task import RANKED_CLASSES
from distls.workers.ingestion.formats.data_frames import is_frame
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.block_stream import DatasetRef


@long_call
def evaluate(
    model: str | Place | LinearModel,
    dataset: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    unknown_labels: str = "error",
    costs: str | Path | None = None,
    weighted: bool = False,
    beside: str | Place | None = None,
    executor: Any = None,
    client: Any = None,
    name: str | None = None,
    notify: Notify | None = None,
    **reading: Any,
) -> AnyEvaluation:
    """Score a model on labelled data.

    Parameters
    ----------
    model : run path, model path or LinearModel
    dataset : path or Dataset, paths of source files, data frame, or array or sparse matrix
        Source files, frames and arrays of shape (n_rows, n_features) are first ingested like the model's data, into a
        folder that is removed afterwards.
    y, sample_weight : array, optional
        Of an array, or of a frame without columns of them: labels or numbers, as for `distls.ingest`, and with
        `weighted` weights, both of shape (n_rows,).
    unknown_labels : {"error", "count"}
        Refuse labels the model does not know, or count their rows as errors.
    costs : path, optional
        CSV file with the cost of predicting each class (first line) in place of each (first column).
    weighted : bool
        Rows count by their sample weights, in all metrics, as with scikit-learn's ``sample_weight``. Default: each row
        counts one, also in a data set with weights.
    beside : path, optional
        Source files are ingested into a folder next to this one, which every worker must reach. Default: the run
        or model, or for a LinearModel the system's folder for temporary files.
    executor : Executor, Client or {"auto", "serial", "dask"}, optional
        Where to run. auto, the default: on the Dask client that is open, if there is one, else in this process.
    client : dask.distributed.Client, optional
        The same as a client for `executor`.
    name : str, optional
        Name of the model in error messages.
    notify : callable, optional
        Called with each notice about source files, one line of text. Default: they become a UserWarning each.
    **reading
        Options of `distls.ingest` by which source files are read, such as `format`, `label_column`, `separator` or
        `unknown_features`; default: as the training data were.

    Returns
    -------
    Evaluation, LabelEvaluation or RegressionEvaluation
        Of a model of classes, of sets of labels, of numbers: see `distls.evaluation.metrics`. On the training data of
        a run that has kept its duals also its objective and how far it is above the optimum at most, for which the
        data are read once more.

    Raises
    ------
    MismatchError
        Before any partition is read: widths, transforms or classes do not fit.
    BadInputError
        A source file cannot be read as asked.
    """
    path = None if isinstance(model, LinearModel) else str(model)
    name = name or path or "the model"
    fitted = check_model(model if isinstance(model, LinearModel) else load_model(model), name)
    reading = source_options(dataset, reading)
    runner = executor_of(executor, client)
    options = {**reading, "executor": runner, **_of_arrays(dataset, y, sample_weight)}
    place = place_of(beside or path or f"{tempfile.gettempdir()}/distls-evaluate")
    with opened_like(fitted, dataset, name=name, beside=place, **options) as (data, notices):
        check_model_scores(data, fitted, name)
        check_targets(data, fitted.target, fitted.n_outputs, name)
        remedy = "; --unknown-labels count counts them as errors"
        codes = class_codes(data, fitted.classes, name, unknown_labels, remedy)
        pass_on(notices, notify)
        found = run_alone(_measured(data, fitted, codes, costs, weighted), runner)
        try:
            return replace(found, **((path and prove(place_of(path), fitted, data, runner)) or {}))
        except StateLostError as error:
            pass_on([f"the objective and its bound are not recomputed: {error}"], notify)
            return found


def _of_arrays(data: Any, y: Any, sample_weight: Any) -> dict[str, Any]:
    """Return the targets and weights of an array; raise ParameterError where they are missing, or of other data."""
    given = {name: value for name, value in (("y", y), ("sample_weight", sample_weight)) if value is not None}
    if not in_memory(data) and given:
        raise ParameterError(f"{next(iter(given))} is of arrays; files and data sets have their own")
    if in_memory(data) and y is None and not is_frame(data):
        raise ParameterError("an array is evaluated with its targets: evaluate(model, X, y)")
    return given


async def _measured(
    data: Dataset, model: LinearModel, codes: NDArray[np.int32], costs: str | Path | None, weighted: bool
) -> AnyEvaluation:
    if weighted and not data.meta.weighted:
        raise MismatchError(f"{data.path} has no sample weights; leave out --weighted")
    if model.target == "class":
        table = None if costs is None else read_costs(costs, data.meta.classes, model.classes)
        return await measure_classes(data, model, codes, weighted=weighted, costs=table)
    if costs is not None:
        raise ParameterError(f"--costs are of classes; the model has {model.target} targets")
    if model.target == "multilabel":
        return await measure_labels(data, model, codes, weighted=weighted)
    predictor = LinearPredictor.of(model)
    return await score_targets(data, predictor, model.loss, model.classes, codes, weighted=weighted)


# -- the proof of a run's model --------------------------------------------------------------------------


def prove(run: Place, model: LinearModel, dataset: Dataset, executor: Executor) -> dict[str, Any] | None:
    """Return ``objective`` and ``certificate`` of a run's model, from its weights and duals in one read of the data.

    None if the data are not those the model was trained on, or its method keeps no duals; raise StateLostError if they
    cannot be read any more, or are not those of the weights.
    """
    method = METHODS.get(model.method)
    keeps = method is not None and method.proves and method.keeps_rows
    if method is None or not keeps or dataset.fingerprint != model.dataset_fingerprint:
        return None
    point = published_duals(str(run), model.dataset_fingerprint)
    if point is None:
        raise StateLostError(
            f"{run}: no duals of these weights are kept; those in a run are of its last round, and patience publishes "
            "an earlier one"
        )
    # a model of an earlier version has two columns, of which its duals are
    params = {**model.params, "two_columns": len(model.intercept) == len(model.classes) == 2}
    problem, model = Problem.of(dataset, params, 0, method.targets), without_threshold(model)
    evaluator = Evaluator(problem, DatasetRef.of(problem.dataset))
    if (own := problem.dataset.standardization) is not None:
        weights, intercept = own.of_seen_rows(model.weights, model.intercept)
        model = replace(model, weights=weights, intercept=intercept)
    found = run_alone(evaluator.objective(Fitted(LinearPredictor.of(model), duals=point)), executor)
    certificate = {**found["certificate"], "relative": relative_bound(found)}
    return {"objective": found["objective"], "certificate": certificate}


# -- costs of wrong predictions --------------------------------------------------------------------------

_SHAPE = "expected a first line with a blank and the predicted classes, then a line for each class with its costs"


def read_costs(path: str | Path, classes: Sequence[Label], predicted: Sequence[Label]) -> NDArray[np.float64]:
    """Return the costs of each class of the data (rows) where each of the model is predicted (columns).

    Raises ParameterError if there are too many classes or costs of a class are missing, BadInputError if the file is
    not such a table of finite numbers.
    """
    if max(len(classes), len(predicted)) > RANKED_CLASSES:
        raise ParameterError(f"--costs are for {RANKED_CLASSES} classes at most, not {len(predicted)}")
    columns, rows = _read(path)
    for names, wanted, where in ((columns, predicted, "first line"), (list(rows), classes, "first column")):
        missing = [str(label) for label in wanted if str(label) not in names]
        if missing:
            raise ParameterError(f'{path}: no class "{missing[0]}" in its {where}; {_SHAPE}')
    places = [columns.index(str(label)) for label in predicted]
    return np.array([[rows[str(label)][place] for place in places] for label in classes]).reshape(
        len(classes), len(predicted)
    )


def _read(path: str | Path) -> tuple[list[str], dict[str, list[float]]]:
    """Return the names of the columns, and the numbers of each row by its name."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            lines = [line for line in csv.reader(file) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInputError(f"{path}: cannot be read as a table of costs ({error})") from None
    if not lines:
        raise BadInputError(f"{path}: empty; {_SHAPE}")
    columns = [name.strip() for name in lines[0][1:]]
    rows: dict[str, list[float]] = {}
    for number, line in enumerate(lines[1:], 2):
        name, fields = line[0].strip(), line[1:]
        if len(fields) != len(columns) or name in rows:
            why = "twice" if name in rows else f"{len(fields)} costs of {len(columns)} classes"
            raise BadInputError(f'{path}, line {number}: class "{name}", {why}; {_SHAPE}')
        rows[name] = [_number(field, f"{path}, line {number}") for field in fields]
    return columns, rows


def _number(field: str, where: str) -> float:
    try:
        value = float(field)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadInputError(f'{where}: "{field}" is not a cost; expected a finite number')
    return value
