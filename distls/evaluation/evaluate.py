"""Evaluation of a model on labelled data: a data set, or source files ingested for it."""

from __future__ import annotations

import tempfile
from dataclasses import replace

from distls.evaluation.compatibility import check_model_scores, check_targets, class_codes
from distls.evaluation.metrics import AnyEvaluation
from distls.evaluation.proof import prove
from distls.evaluation.scores import score_targets
from distls.execution.executor import Executor
from distls.execution.serial import SerialExecutor
from distls.ingestion.adhoc_dataset import Notify, Scorable, check_source_options, opened_like, pass_on
from distls.model_check import check_model
from distls.storage.errors import StateLostError
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.model.model import LinearModel, load_model
from distls.workers.prediction.predictor import LinearPredictor

__all__ = ["evaluate"]


def evaluate(
    model: str | Place | LinearModel,
    dataset: Scorable,
    *,
    unknown_labels: str = "error",
    format: str = "auto",
    labels: str | Place | None = None,
    unknown_features: str = "error",
    beside: str | Place | None = None,
    executor: Executor | None = None,
    name: str | None = None,
    notify: Notify | None = None,
) -> AnyEvaluation:
    """Score a model on labelled data.

    Parameters
    ----------
    model : run path, model path or LinearModel
    dataset : path or Dataset, or paths of source files
        Source files are first ingested like the model's data, into a folder that is removed afterwards.
    unknown_labels : {"error", "count"}
        Refuse labels the model does not know, or count their rows as errors.
    format, labels, unknown_features : str
        Of the source files; see `distls.ingest`.
    beside : path, optional
        Source files are ingested into a folder next to this one, which every worker must reach. Default: the run
        or model, or for a LinearModel the system's folder for temporary files.
    executor : Executor, optional
        Default: this process.
    name : str, optional
        Name of the model in error messages.
    notify : callable, optional
        Called with each notice about source files, one line of text. Default: they become a UserWarning each.

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
    given = {"format": format != "auto", "labels": labels is not None}
    check_source_options(dataset, given | {"unknown_features": unknown_features != "error"})
    reading = {"format": format, "labels": labels, "unknown_features": unknown_features}
    options = {**reading, "executor": executor}
    place = place_of(beside or path or f"{tempfile.gettempdir()}/distls-evaluate")
    with opened_like(fitted, dataset, name=name, beside=place, **options) as (data, notices):
        check_model_scores(data, fitted, name)
        check_targets(data, fitted.target, fitted.n_outputs, name)
        codes = class_codes(data, fitted.classes, name, unknown_labels)
        pass_on(notices, notify)
        runner, predictor = executor or SerialExecutor(), LinearPredictor.of(fitted)
        found = score_targets(runner, data, predictor, fitted.loss, fitted.classes, codes)
        try:
            return replace(found, **((path and prove(place_of(path), fitted, data, runner)) or {}))
        except StateLostError as error:
            pass_on([f"the objective and its bound are not computed anew: {error}"], notify)
            return found
