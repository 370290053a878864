"""A model as weights of its source's columns: what all formats of other programs have in common."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.interchange.export_formats import EXPORT_FORMATS, ExportFormat
from distls.serving.fitted_model import FittedModel
from distls.storage.dataset.feature_names import prediction_names, unpack_names
from distls.storage.errors import ParameterError
from distls.workers.ingestion.transforms import source_width
from distls.workers.losses.links import BinaryLink, Link
from distls.workers.losses.loss_registry import loss_named
from distls.workers.prediction.probability_map import label_cuts

_LINEAR = ("min_count", "idf", "scale", "standardize")


class Folded(NamedTuple):
    """Weights and intercept for rows before transforms, float64."""

    weights: NDArray[np.float64]  # shape (n_columns, n_outputs)
    intercept: NDArray[np.float64]  # shape (n_outputs,)


def check_expressible(model: FittedModel, format: ExportFormat) -> None:
    """Raise ParameterError for a model whose scores are not linear in its features, or mean something else there."""
    to = format.name
    if "calibration" in model.recipe:
        raise ParameterError(f"{model.name}: calibrated least squares cannot be exported to {to}")
    if model.recipe:
        raise ParameterError(f"{model.name}: generated features (of {model.method}) cannot be exported to {to}")
    # in most programs gaps are filled, and words and numbers transformed, by nobody
    raw = format.is_after or format.has_columns
    if not raw and any(s["name"] == "impute" or "ranges" in s for s in model.transforms):
        raise ParameterError(
            f"{model.name}: missing values that are imputed, or transforms of some columns alone, cannot be exported "
            f"to {to}; --to weights has the weights by name, and distls.load_model predicts"
        )
    has_its = format.has_platt and model.calibration.get("kind") == "platt" and len(model.intercept) == 1
    if model.calibration and model.target == "class" and format.has_probabilities and not has_its:
        raise ParameterError(
            f"{model.name}: its probabilities are calibrated, which {to} would not have; --to npz has its scores"
        )
    if isinstance(loss_named(model.loss), (Link, BinaryLink)) and not format.has_any_link:
        having = " and ".join(each.name for each in EXPORT_FORMATS.values() if each.has_any_link)
        raise ParameterError(
            f"--to {to}: {model.name} predicts through link={model.loss}, which has no counterpart there; "
            f"{having} have its weights"
        )


def folded(model: FittedModel, to: str) -> Folded:
    """Return the weights with all transforms folded in; raise ParameterError if one is not linear."""
    for step in model.transforms:
        if step["name"] not in _LINEAR:
            raise ParameterError(
                f"{model.name}: the transform {step['name']} cannot be expressed in {to}; "
                "--to sklearn, onnx or npz includes it"
            )
    weights, intercept = model.weights.astype(np.float64), model.intercept.astype(np.float64)
    for step in reversed(model.transforms):
        if step["name"] == "scale":
            weights /= step["divisor"]
        elif step["name"] == "idf":
            weights *= model.features["idf"][:, None]
        elif step["name"] == "standardize":
            weights /= model.features["std"][:, None]
            if "mean" in model.features:
                intercept -= model.features["mean"] @ weights
        else:
            kept, weights = weights, np.zeros((step["columns"], weights.shape[1]))
            weights[model.features["kept"]] = kept
    return Folded(weights, intercept)


def column_names(model: FittedModel) -> list[str]:
    """Return the name of each column before transforms: its number where it has none."""
    width = source_width(model.transforms, model.n_features)
    names = [str(column) for column in range(width)]
    known = unpack_names(model.features, model.name)
    kept = model.features.get("kept", np.arange(width)).tolist()
    for column, name in zip(kept, known or (), strict=False):
        if column < width:  # features that say where values are missing come behind the columns
            names[column] = name
    return names


def output_names(model: FittedModel) -> list[str]:
    """Return the name of each output: class (of two the second), label, column, or ``prediction``, ``prediction_2``."""
    if model.classes:
        return [str(label) for label in model.classes[-len(model.intercept) :]]
    return prediction_names(model.source, model.n_outputs)


def label_threshold(model: FittedModel) -> NDArray[Any]:
    """Return the scores above which labels of a multi-label model are predicted: one of all, or one of each."""
    return label_cuts(model).astype(model.intercept.dtype)


def expected_rows(model: FittedModel, *, before: bool = True) -> str:
    """Say which rows of numbers an exported model expects."""
    width = source_width(model.transforms, model.n_features) if before else model.n_features
    steps = ",".join(step["name"] for step in model.transforms)
    kind = "hashes of words" if model.source.get("format") == "text" else "numbers"
    when = f", {'before' if before else 'after'} the transforms {steps}" if steps else ""
    coded = ", categories as indicators" if _coded(model) else ""
    if coded:  # nobody would know which number is which
        names = (None if before else unpack_names(model.features, model.name)) or column_names(model)
        coded += f" from {names[0]} to {names[-1]}, whose names `--to weights` lists"
    return f"rows of {width} {kind}{coded}{when}"


def _coded(model: FittedModel) -> bool:
    features: Sequence[dict[str, Any]] = model.source.get("recipe", {}).get("features", ())
    return any("categories" in feature for feature in features)


def has_one_output(model: FittedModel) -> bool:
    """Return whether two classes have opposite scores."""
    return bool(np.array_equal(model.weights[:, 0], -model.weights[:, 1]) and model.intercept[0] == -model.intercept[1])


def has_sigmoids(model: FittedModel) -> bool:
    """Return whether each output has a probability of its own, a sigmoid."""
    loss = loss_named(model.loss)
    return loss.logistic and loss.separable and not loss.one_output


def has_binary_sigmoid(model: FittedModel) -> bool:
    """Return whether the sigmoid of `binary_output` is the probability of the second of two classes."""
    return loss_named(model.loss).logistic and (not has_sigmoids(model) or has_one_output(model))


def binary_output(model: FittedModel, own: Folded) -> Folded:
    """Return the single output of two classes, positive for the second, whose sigmoid is its probability."""
    if len(own.intercept) == 1:
        return own
    # of an earlier version
    weights, intercept = own.weights[:, 1:], own.intercept[1:]
    # each of two opposite outputs has a sigmoid of its own
    if not (has_sigmoids(model) and has_one_output(model)):
        weights, intercept = weights - own.weights[:, :1], intercept - own.intercept[:1]
    return Folded(weights, intercept)


def class_array(model: FittedModel) -> NDArray[np.generic]:
    """Return the classes as an array of one type, words if some are."""
    words = any(isinstance(label, str) for label in model.classes)
    return np.array([str(label) for label in model.classes] if words else model.classes)
