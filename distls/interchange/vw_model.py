"""Models of Vowpal Wabbit: its binary format, written by its own Python package."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.interchange.linear_form import Folded, expected_rows, folded, label_threshold
from distls.interchange.vw_text import CONSTANT as _CONSTANT
from distls.serving.fitted_model import FittedModel
from distls.storage.errors import ParameterError

_MOST_BITS = 31
# vw clips predictions to the labels it was trained on, and here it was trained on none
_OPTIONS = "--quiet --sgd --min_prediction=-1e30 --max_prediction=1e30"


def to_vw(model: FittedModel) -> tuple[bytes, str]:
    """Return a model file for ``vw -t -i``, and what rows it is for.

    Raises ParameterError if vw has no such model, its table of weights would be too large, or vowpalwabbit is not
    installed.
    """
    if model.target == "continuous" and model.n_outputs > 1:
        raise ParameterError(
            f"{model.name}: a model of Vowpal Wabbit as written here cannot predict {model.n_outputs} numbers a row"
        )
    own = folded(model, "a model of Vowpal Wabbit")
    reduction, labels = "", ""
    if model.target == "class" and len(model.classes) == 2:
        own = Folded(own.weights[:, 1:] - own.weights[:, :1], own.intercept[1:] - own.intercept[:1])
        reduction, labels = (
            "--binary",
            f"; predictions are -1 for {model.classes[0]} and 1 for {model.classes[1]}",
        )
    elif model.target == "multilabel":
        # vw predicts the labels of positive scores
        own = Folded(own.weights, own.intercept - label_threshold(model))
        reduction = f"--multilabel_oaa {len(model.classes)}"
        labels = f"; predictions are the numbers of the labels, from 0 for {model.classes[0]}"
    elif model.target == "class":
        reduction = f"--oaa {len(model.classes)}"
        labels = f"; predictions are the numbers of the classes, from 1 for {model.classes[0]}"
    names, bits = _names_and_bits(model, own)
    # weights of one feature are neighbours, in groups of a power of two
    shift = (own.weights.shape[1] - 1).bit_length()
    if bits + shift > _MOST_BITS:
        raise ParameterError(
            f"{model.name}: {own.weights.size} weights are too many for a table of Vowpal Wabbit"
        )
    return _saved(own, f"{reduction} -b {bits + shift}", 2**bits, shift), expected_rows(
        model
    ) + names + labels


def _names_and_bits(model: FittedModel, own: Folded) -> tuple[str, int]:
    """Return how features are named, and the bits that number them and the intercept."""
    n_columns, recipe = len(own.weights), model.source.get("recipe", {})
    bits = recipe.get("hash_bits") if model.source.get("format") == "vw" else None
    if bits is None:
        bits = max(1, (n_columns - 1).bit_length())
        while _CONSTANT % 2**bits < n_columns:
            bits += 1
        return "; column j of an array is the feature named j, without a namespace", bits
    if own.intercept.any() and own.weights[_CONSTANT % 2**bits].any():
        raise ParameterError(
            f"{model.name}: a feature has the number of Vowpal Wabbit's constant; train without an intercept"
        )
    return "; text of Vowpal Wabbit with the names of training", bits


def _saved(own: Folded, options: str, size: int, shift: int) -> bytes:
    """Return the bytes of a model with these weights, made by vw itself."""
    workspace = _workspace()
    with tempfile.TemporaryDirectory(prefix="distls-export-") as folder:
        path = Path(folder) / "model"
        constant = "" if own.intercept.any() else "--noconstant "
        made = workspace(f"{_OPTIONS} {constant}{options} -f {path}")
        _set_weights(made, own.weights, 0, shift)
        _set_weights(made, own.intercept[None, :], _CONSTANT % size, shift)
        made.finish()
        return path.read_bytes()


def _workspace() -> Any:
    try:
        from vowpalwabbit import Workspace
    except ImportError:
        raise ParameterError("--to vw needs the package vowpalwabbit; pip install 'distls[vw]'") from None
    return Workspace


def _set_weights(made: Any, weights: NDArray[np.float64], first: int, shift: int) -> None:
    """Set the weights of features first, first + 1, ..."""
    for row, output in zip(*(places.tolist() for places in np.nonzero(weights)), strict=True):
        made.set_weight(((first + row) << shift) + output, 0, float(weights[row, output]))
