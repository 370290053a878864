"""What a model or a dataset says of itself, checked before anything is done with it: see docs/security.md.

`distls.storage` checks that arrays are what their descriptions say and that these have the right types. Here is what
takes knowledge of methods: recipes of features, fitted transforms, how sources are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.feature_names import NAME_ARRAYS
from distls.storage.errors import FormatError
from distls.storage.filesystem.safe_read import making_sense
from distls.storage.model.model import LinearModel
from distls.workers.features.design import Design, design_of
from distls.workers.ingestion.transforms import NAMES
from distls.workers.losses.registry import has_probabilities, losses_with

__all__ = ["check_features", "check_model", "check_source", "takes"]

Arrays = Mapping[str, NDArray[Any]]

_MOST_FEATURES = 2**32
# Blocks of a model, powers of a basis, words of an n-gram, factors of a polynomial: far more than anybody has asked
# for, and few enough to be counted through.
_MANY = 2**16


def _refuse(where: str, what: str) -> FormatError:
    return FormatError(f"{where}: not written by distls ({what})")


def _is_size(value: Any, most: int = _MOST_FEATURES) -> bool:
    return type(value) is int and 0 <= value <= most


# -- models ----------------------------------------------------------------------------------------------


def check_model(model: LinearModel, where: str) -> LinearModel:
    """Return a model whose scores can be computed.

    Raises
    ------
    FormatError
        Its loss is unknown, or weights and arrays are not those of its recipe.
    """
    probable = model.target == "class" and has_probabilities(model.loss)
    if not probable and model.loss not in losses_with(target=model.target):
        raise _refuse(where, f"loss {model.loss!r} of {model.target} targets")
    with making_sense(where):
        fits = not model.recipe or _fits(model, where)
    if not fits:
        raise _refuse(where, "weights that do not fit the recipe")
    return model


def _fits(model: LinearModel, where: str) -> bool:
    """Tell whether the weights of a recipe are as many as its blocks and its calibration need."""
    recipe, calibration = model.recipe, model.recipe.get("calibration")
    if recipe.keys() - {"n_features", "features", "rows", "calibration"}:
        raise _refuse(where, f"a recipe of {', '.join(sorted(recipe))}")
    designs = _designs(model, where)
    columns = model.n_outputs if calibration is None else _calibrated_columns(calibration, model, where)
    widths = sum(design.width(model.n_features) for design in designs)
    return model.weights.shape == (widths, columns) and all(
        takes(design, model.n_features) for design in designs
    )


def _designs(model: LinearModel, where: str) -> list[Design]:
    features, rows = model.recipe.get("features"), model.recipe.get("rows", False)
    if type(rows) is not bool or (rows and features is None) or (rows and "calibration" in model.recipe):
        raise _refuse(where, "rows beside no blocks of features")
    if features is None:
        return [Design()]
    if not isinstance(features, dict):
        raise _refuse(where, "features that are no object")
    # one by one they would fill the memory
    numbers = ("n_stages", "degree", "first_stage")
    if not all(_is_size(features.get(name), _MANY) for name in numbers) or not _is_size(features.get("size")):
        raise _refuse(where, "features of sizes that nobody fits")
    designs = [Design()] * rows + design_of(features, dict(model.arrays))
    if "calibration" in model.recipe and len(designs) != 1:
        raise _refuse(where, f"a calibration of {len(designs)} blocks")
    return designs


def takes(design: Design, n_features: int) -> bool:
    """Tell whether a design is of rows of this width."""
    width = n_features
    if design.n_features not in (0, n_features):
        return False
    if design.convolution is not None:
        if math.prod(design.convolution.shape) != width:
            return False
        width = design.convolution.width
    if design.projection is not None:
        if len(design.projection.mean) != width:
            return False
        width = design.projection.components.shape[1]
    return design.columns is None or int(design.columns.max(initial=-1)) < width


def _calibrated_columns(calibration: dict[str, Any], model: LinearModel, where: str) -> int:
    """Return how many columns the weights of a calibrated model have."""
    powers, array, k = calibration.get("powers"), model.arrays.get("calibration"), model.n_outputs
    sound = (
        calibration.keys() == {"powers", "onto"}
        and calibration["onto"] == ("cube" if model.target == "multilabel" else "simplex")
        and isinstance(powers, list)
        and bool(powers)
        and all(_is_size(power, _MANY) for power in powers)
        and all(one < other for one, other in pairwise([0, *powers]))
    )
    if not sound or array is None or powers is None:
        raise _refuse(where, "a calibration without powers or weights")
    if array.dtype != np.float64 or array.ndim != 3 or array.shape[1:] != (len(powers) * k, k):
        raise _refuse(where, "weights of a calibration of another shape")
    return len(array) * k


# -- transforms ------------------------------------------------------------------------------------------


def check_features(transforms: Sequence[Any], features: Arrays, n_features: int, where: str) -> None:
    """Refuse transforms, fitted arrays or names of features that are not those of rows of `n_features`.

    Raises
    ------
    FormatError
    """
    names = [step.get("name") for step in transforms if isinstance(step, dict)]
    known = len(names) == len(transforms) and set(names) <= {"min_count", *NAMES}
    if not known or any(names.count(name) > 1 for name in ("min_count", "idf", "standardize")):
        raise _refuse(where, "unknown transforms")
    for step in transforms:
        if step["name"] == "scale" and not _is_positive(step.get("divisor")):
            raise _refuse(where, f"transform scale by {step.get('divisor')!r}")
        if step["name"] == "min_count":
            _check_kept(step, features.get("kept"), n_features, where)
    needed = {"idf": "idf", "standardize": "std"}
    for name in {needed[step] for step in names if step in needed} | ({"mean"} & features.keys()):
        array = features.get(name)
        if array is None or array.shape != (n_features,) or array.dtype.kind != "f":
            raise _refuse(where, f"fitted array {name} of another shape than its {n_features} features")
    ends = features.get(NAME_ARRAYS[1])
    if ends is not None and (ends.shape != (n_features,) or ends.dtype.kind not in "iu"):
        raise _refuse(where, f"names of other than its {n_features} features")


def _is_positive(value: Any) -> bool:
    return type(value) in (int, float) and 0.0 < value < math.inf


def _check_kept(step: Mapping[str, Any], kept: NDArray[Any] | None, n_features: int, where: str) -> None:
    columns = step.get("columns")
    sound = kept is not None and kept.dtype == np.int64 and kept.shape == (n_features,) == (step.get("kept"),)
    if kept is None or not sound or not isinstance(columns, int) or not _is_size(columns):
        raise _refuse(where, "min_count keeps other columns")
    if np.any(np.diff(kept, prepend=-1) <= 0) or int(kept.max(initial=-1)) >= columns:
        raise _refuse(where, "min_count keeps columns that are not there")


# -- sources ---------------------------------------------------------------------------------------------


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _is_range(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(_is_size(n, _MANY) for n in value)
        and 1 <= value[0] <= value[1]
    )


def _are_columns(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) and _is_column(each) for each in value)


def _is_column(value: Mapping[str, Any]) -> bool:
    return (
        _is_text(value.get("name"))
        and ("categories" not in value or _are_texts(value["categories"]))
        and _is_size(value.get("width", 0))
        and _is_text(value.get("indices", ""))
    )


_Sound = Callable[[Any], bool]
_TABLE: dict[str, _Sound] = {
    "columns": _are_texts, "label": _is_text, "weight": _is_text, "na": _is_text, "features": _are_columns
}  # fmt: skip
# By format: members of ``source.recipe`` in docs/format.md that a reader needs.
_RECIPES: dict[str, dict[str, _Sound]] = {
    "vw": {
        "hash_bits": lambda value: value is None or (_is_size(value, 32) and value > 0),
        "namespace": _is_text,
    },
    "text": {
        "n_features": lambda value: _is_size(value) and value > 0,
        "analyzer": lambda value: value in ("word", "char", "char_wb"),
        "lowercase": _is_flag,
        "alternate_sign": _is_flag,
        "binary": _is_flag,
        "ngrams": _is_range,
        "text_column": _is_text,
        "label_column": _is_text,
        "weight_column": _is_text,
    },
    "csv": _TABLE,
    "parquet": _TABLE,
    "anndata": {"label": _is_text, "weight": _is_text},
}


def check_source(source: Mapping[str, Any], where: str) -> None:
    """Refuse a description of source files that others cannot be read by.

    Raises
    ------
    FormatError
    """
    name = source.get("format")
    recipe = source.get("recipe", {})
    if not isinstance(recipe, dict):
        raise _refuse(where, "a source recipe that is no object")
    wanted = _RECIPES.get(name, {}) if isinstance(name, str) else {}
    # what has features of its own is read as a table, whatever it calls itself
    for member, sound in (_TABLE if "features" in recipe else wanted).items():
        if member not in recipe or not sound(recipe[member]):
            raise _refuse(where, f"{member} of its source recipe")
