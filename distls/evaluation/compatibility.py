"""Whether a model can score a data set: widths, transforms, names, kinds of targets, classes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from distls.problem import Problem
from distls.storage.dataset.dataset import Dataset
from distls.storage.dataset.feature_names import unpack_names
from distls.storage.dataset.metadata import Label, TargetKind
from distls.storage.errors import MismatchError, ParameterError
from distls.storage.model.model import LinearModel
from distls.workers.losses.loss_registry import has_probabilities, losses_with
from distls.workers.prediction.predictor import scored_as


def check_model_scores(dataset: Dataset, model: LinearModel | Dataset, model_name: str) -> None:
    """Raise MismatchError unless rows of `dataset` mean the same as those of a model, or of its training data.

    They must not be wider, or dense and narrower, and must have the same transforms and names of features.
    """
    meta, known = dataset.meta, model.meta if isinstance(model, Dataset) else model
    # sparse rows may be narrower: features that do not occur are zero
    if meta.n_features > known.n_features or (meta.layout == "dense" and meta.n_features != known.n_features):
        raise MismatchError(
            f"{dataset.path} has {meta.n_features} features, {model_name} {known.n_features}; "
            "ingest it with --like the training data"
        )
    # the digest covers fitted parameters too: the same transforms fitted on other data give other features
    if meta.transforms_digest != known.transforms_digest:
        mine, theirs = (",".join(t["name"] for t in each.transforms) or "none" for each in (meta, known))
        own = f"{mine}, {model_name} {theirs}" if mine != theirs else "fitted on other data"
        raise MismatchError(f"{dataset.path} has transforms {own}; ingest it with --like the training data")
    features = model.features() if isinstance(model, Dataset) else model.features
    dataset.check_names(unpack_names(features, model_name), model_name)


def check_probabilities(model: LinearModel, model_name: str, asked: str) -> None:
    """Raise ParameterError unless the scores of a model give probabilities; `asked` names what was asked for."""
    calibrated = model.target == "class" and model.calibration
    if calibrated or has_probabilities(scored_as(model.loss, model.recipe)):
        return
    probable = " or ".join(losses_with(target=model.target, probabilities=True, stochastic=True))
    remedy = f"train with {'-p loss=' * (model.target == 'multilabel')}{probable}"
    if model.target == "class":
        run = "RUN" if model_name == "the model" else model_name
        remedy += f" (loss=log), or calibrate it on held-out rows: `distls calibrate {run} DATASET`"
    raise ParameterError(
        f"{asked}: {model_name} was trained with loss {model.loss}, which has no probabilities; {remedy}"
    )


# Predictions of a model by its kind of target, for messages.
_PREDICTED = {"class": "classes", "multilabel": "sets of labels", "continuous": "numbers"}


def check_targets(dataset: Dataset, target: TargetKind, n_outputs: int, model_name: str) -> None:
    """Raise MismatchError unless predictions can be compared with the targets of `dataset`."""
    meta = dataset.meta
    if meta.target != target:
        kind = {"none": "no labels"}.get(meta.target, f"{meta.target} targets")
        raise MismatchError(f"{dataset.path} has {kind}, {model_name} predicts {_PREDICTED[target]}")
    if target == "continuous" and meta.n_targets != n_outputs:
        raise MismatchError(f"{dataset.path} has {meta.n_targets} targets a row, {model_name} predicts {n_outputs}")
    if not meta.n_rows:
        raise MismatchError(f"{dataset.path} has no rows to score")


def class_codes(
    dataset: Dataset, classes: Sequence[Label], model_name: str, unknown: str, remedy: str = ""
) -> NDArray[np.int32]:
    """Return the model's code of each class or label of the data, -1 for unknown ones.

    Raises MismatchError, which names the `remedy`, if rows have unknown labels and `unknown` is "error".
    """
    meta = dataset.meta
    place = {label: code for code, label in enumerate(classes)}
    codes = np.array([place.get(label, -1) for label in meta.classes], dtype=np.int32)
    unknown_labels = [
        (label, count)
        for label, count, code in zip(meta.classes, meta.label_counts, codes, strict=True)
        if code < 0 and count
    ]
    if unknown_labels and unknown == "error":
        named = ", ".join(str(label) for label, _ in unknown_labels[:5]) + (", ..." if len(unknown_labels) > 5 else "")
        uses = sum(count for _, count in unknown_labels)
        one, many, use = ("class", "classes", "row") if meta.target == "class" else ("label", "labels", "use")
        what, are = (one, "is") if len(unknown_labels) == 1 else (many, "are")
        often = use + "s" * (uses != 1)
        raise MismatchError(
            f"{dataset.path} has {len(unknown_labels)} {what} ({named}; {uses} {often}) that {are} not among the "
            f"{len(classes)} of {model_name}{remedy}"
        )
    return codes


def check_evaluable(problem: Problem, dataset: Dataset) -> NDArray[np.int32]:
    """Return the model's code of each class of `dataset`; raise MismatchError if the model cannot score it."""
    meta, name = problem.dataset.meta, str(problem.dataset.path)
    check_model_scores(dataset, problem.dataset, name)
    check_targets(dataset, meta.target, problem.shape[1], name)
    return class_codes(dataset, meta.classes, name, "error")
