"""Models as LIBLINEAR's model file, tables of weights, or a file of NumPy arrays."""

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from distls.interchange.linear_form import (
    Folded,
    binary_output,
    class_array,
    column_names,
    expected_rows,
    folded,
    has_binary_sigmoid,
    has_sigmoids,
    label_threshold,
    output_names,
)
from distls.serving.fitted_model import FittedModel
from distls.storage.dataset.feature_names import unpack_names
from distls.storage.errors import ParameterError
from distls.workers.ingestion.transforms import FITTED


def to_csv(model: FittedModel) -> tuple[bytes, str]:
    """Return the weights of the used columns as a table, the intercept first, and what rows it is for."""
    weights, intercept = folded(model, "csv")
    if model.target == "multilabel":
        intercept = intercept - label_threshold(model)
    return _table("column", column_names(model), weights, intercept, model), expected_rows(model)


def to_weights(model: FittedModel) -> tuple[bytes, str]:
    """Return the weights of the used features as they are scored, after all transforms, and what rows they are for."""
    names = unpack_names(model.features, model.name) or list(map(str, range(model.n_features)))
    weights, intercept = model.weights, model.intercept
    if model.target == "multilabel":
        intercept = intercept - label_threshold(model)
    return _table("feature", names, weights, intercept, model), expected_rows(model, before=False)


def _table(what: str, names: Sequence[str], weights: Any, intercept: Any, model: FittedModel) -> bytes:
    """Return weights by name as CSV, the intercept first."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([what, "name", *output_names(model)])
    writer.writerow(["", "(intercept)", *map(repr, intercept.tolist())])
    for place in np.flatnonzero(weights.any(axis=1)).tolist():
        writer.writerow([place, names[place], *map(repr, weights[place].tolist())])
    return buffer.getvalue().encode()


def to_liblinear(model: FittedModel) -> tuple[bytes, str]:
    """Return the model file of LIBLINEAR, and what rows it is for.

    Raises ParameterError for sets of labels, several numbers as output, or transforms that are not linear.
    """
    if model.target == "multilabel" or (model.target == "continuous" and model.n_outputs > 1):
        what = "sets of labels" if model.target == "multilabel" else f"{model.n_outputs} numbers a row"
        raise ParameterError(f"{model.name}: a LIBLINEAR model cannot predict {what}")
    solver, outputs = _as_solver(model, folded(model, "a LIBLINEAR model"))
    lines = [f"solver_type {solver}", f"nr_class {max(model.n_outputs, 2)}"]
    rows = expected_rows(model) + "; column j of an array is index j + 1 of a file"
    if model.classes:
        codes = _whole_labels(model)
        # of two classes the file has the weights of its first
        order = [1, 0] if len(codes) == 2 else range(len(codes))
        lines.append("label " + " ".join(str(codes[k]) for k in order))
        if codes != model.classes:
            rows += f"; labels are the numbers of the classes, from 0 for {model.classes[0]}"
    table = np.vstack([outputs.weights, outputs.intercept])
    lines += [f"nr_feature {len(outputs.weights)}", "bias 1", "w"]
    lines += [" ".join(map(repr, row)) + " " for row in table.tolist()]
    return ("\n".join(lines) + "\n").encode(), rows


def _as_solver(model: FittedModel, own: Folded) -> tuple[str, Folded]:
    """Return the name of the solver whose predictions are ours, and its weights."""
    if model.target == "continuous":
        return "L2R_L2LOSS_SVR", own
    if len(model.classes) > 2:
        # the sigmoids over their sum, as LIBLINEAR has probabilities of many classes
        return ("L2R_LR" if has_sigmoids(model) else "MCSVM_CS"), own
    one = binary_output(model, own)
    return ("L2R_LR" if has_binary_sigmoid(model) else "L2R_L2LOSS_SVC_DUAL"), one


def _whole_labels(model: FittedModel) -> list[int]:
    """Return the classes as LIBLINEAR has them, whole numbers."""
    whole = all(isinstance(label, int) and abs(label) < 2**31 for label in model.classes)
    return [int(label) for label in model.classes] if whole else list(range(len(model.classes)))


def to_npz(model: FittedModel) -> tuple[bytes, str]:
    """Return an npz file without objects, and what rows it is for: docs/serving.md describes its arrays."""
    arrays: dict[str, Any] = {name: model.features[name] for name in FITTED if name in model.features}
    names = unpack_names(model.features, model.name)
    if names is not None:
        arrays["names"] = np.array(names)
    if model.classes:
        arrays["classes"] = class_array(model)
    arrays |= {name: np.array(getattr(model, name)) for name in ("target", "method", "loss")}
    arrays |= {name: np.array(json.dumps(getattr(model, name))) for name in ("transforms", "source")}
    arrays |= {"weights": model.weights, "intercept": model.intercept}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue(), expected_rows(model)
