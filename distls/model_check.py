"""Validates models from untrusted sources before rows are scored with them: see docs/security.md."""

from itertools import pairwise
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from distls.storage.dataset.metadata import Width
from distls.storage.errors import FormatError
from distls.storage.filesystem.safe_read import as_format_error, convert_json
from distls.storage.model.model import LinearModel
from distls.workers.features.design import Design
from distls.workers.features.design_recipe import design_of
from distls.workers.losses.binary_losses import BinaryShare
from distls.workers.losses.loss_registry import has_probabilities, is_binary, losses_with
from distls.workers.prediction.basis_functions import Basis, basis_function_names
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.prediction.probability_map import check_calibration, check_label_cuts

# A limit on the loops over a forged model's powers, far above any useful one.
_MOST_FUNCTIONS = 1000
_Power = Annotated[int, msgspec.Meta(gt=0, le=2**16)]


class _Calibration(msgspec.Struct, forbid_unknown_fields=True):
    """Powers and functions of the scores, and the set onto which their weighted sums are projected."""

    powers: Annotated[list[_Power], msgspec.Meta(min_length=1)]
    onto: Literal["cube", "simplex"]
    functions: Annotated[list[str], msgspec.Meta(max_length=_MOST_FUNCTIONS)] = []
    stage_rounds: _Power | None = None  # with several blocks: rounds on each


class _Recipe(msgspec.Struct, forbid_unknown_fields=True):
    """How scores are computed, for models that are not plain linear ones."""

    n_features: Width
    features: dict[str, Any] | None = None
    rows: bool = False
    calibration: _Calibration | None = None


def check_model(model: LinearModel, where: str) -> LinearModel:
    """Return the model; raise FormatError if its loss is unknown or its arrays do not match its recipe."""
    probable = model.target == "class" and has_probabilities(model.loss)
    known = probable or (model.target == "class" and is_binary(model.loss))
    if not known and model.loss not in losses_with(target=model.target):
        raise FormatError(
            f"{where}: no loss {model.loss!r} of {model.target} targets is known; one of another program has to be "
            "registered before (register_loss)"
        )
    with as_format_error(where):
        # A file may say anything: codes of classes index what is made of the scores.
        if is_binary(model.loss) and len(model.classes) != 2:
            raise ValueError(f"{model.loss} with {len(model.classes)} classes")
        if not model.recipe and len(model.intercept) != columns_of(model):
            raise ValueError("an intercept of another size")
    if model.recipe:
        with as_format_error(where):
            _check_weights(model, convert_json(model.recipe, _Recipe, "its recipe"))
    if model.calibration:
        with as_format_error(where):
            if model.target == "continuous":
                raise ValueError("a calibration of continuous targets")
            check = check_calibration if model.target == "class" else check_label_cuts
            check(model.calibration.get("kind"), model.calibration_arrays, model.n_outputs)
    return model


def predictor_of(model: LinearModel) -> LinearPredictor:
    """Return the predictor of a model, checked, as workers score rows with it."""
    return LinearPredictor.of(check_model(model, "the model")).compact()


def columns_of(model: LinearModel) -> int:
    """Return the columns of a model's scores."""
    return 1 if is_binary(model.loss) else model.n_outputs


def _check_weights(model: LinearModel, recipe: _Recipe) -> None:
    """Raise ValueError unless the weights match the feature blocks and the calibration of the recipe."""
    if recipe.rows and (recipe.features is None or recipe.calibration):
        raise ValueError("rows without blocks of features")
    designs = _designs(model, recipe)
    if recipe.calibration and recipe.calibration.stage_rounds is None and len(designs) != 1:
        raise ValueError(f"a calibration of {len(designs)} blocks")
    designs = [Design()] * recipe.rows + designs
    width = sum(design.width(model.n_features) for design in designs)
    columns = _calibrated_columns(model, recipe.calibration, len(designs)) if recipe.calibration else columns_of(model)
    if model.weights.shape != (width, columns) or not all(d.takes(model.n_features) for d in designs):
        raise ValueError("weights that do not fit the recipe")


def _designs(model: LinearModel, recipe: _Recipe) -> list[Design]:
    try:
        return [Design()] if recipe.features is None else design_of(recipe.features, model.arrays)
    except FormatError as error:  # its message lacks the model's path
        raise ValueError(str(error)) from None


def _calibrated_columns(model: LinearModel, calibration: _Calibration, n_blocks: int) -> int:
    """Return how many columns the weights of a calibrated model have."""
    array, powers, k = model.arrays.get("calibration"), calibration.powers, columns_of(model)
    cube = model.target == "multilabel" or model.loss == BinaryShare.name
    if calibration.onto != ("cube" if cube else "simplex"):
        raise ValueError(f"a calibration of {model.target} targets onto the {calibration.onto}")
    if array is None or any(one >= other for one, other in pairwise(powers)):
        raise ValueError("a calibration without weights, or with powers that do not increase")
    if array.dtype != np.float64 or array.ndim != 3 or array.shape[1:] != (_basis(calibration).width(k), k):
        raise ValueError("weights of a calibration of another shape")
    if calibration.stage_rounds is None:
        return len(array) * k
    intercepts = model.arrays.get("intercepts")
    if intercepts is None or intercepts.shape != (len(array), k) or intercepts.dtype != np.float64:
        raise ValueError("intercepts of a calibration of another shape")
    if -(-len(array) // calibration.stage_rounds) != n_blocks:
        raise ValueError(f"a calibration of {len(array)} rounds on {n_blocks} blocks")
    return calibration.stage_rounds * k


def _basis(calibration: _Calibration) -> Basis:
    """Return the basis of a calibration; raise ValueError for a function that is not known here."""
    known = basis_function_names()
    unknown = [name for name in calibration.functions if name not in known]
    if unknown:
        raise ValueError(
            f"no function {unknown[0]!r} of a basis is known; one of another program has to be registered before "
            "(register_basis_function)"
        )
    return Basis(tuple(calibration.powers), tuple(calibration.functions))
