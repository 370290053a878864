"""What a fit takes for parameters that are not given, by the data: the loss, the strength, the scales of columns."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from distls.methods.method import Method, Params
from distls.methods.parameters import BLOCK_SIZE, STANDARDIZE
from distls.problem import has_plain_rows, loss_of
from distls.storage.dataset.dataset import Dataset
from distls.storage.errors import ParameterError
from distls.storage.model.model import load_model
from distls.workers.losses.loss_registry import loss_named


def loss_for(method: Method, params: Mapping[str, Any], data: Dataset) -> str:
    """Return the default loss (docs/decisions/0018)."""
    # the initial model's loss if there is one, else that of the lowest error on data of this shape, as measured
    if params.get("init") is not None:
        initial = load_model(params["init"])
        # of two classes the model's own is the binary form of the one asked for
        loss = initial.params.get("loss") or initial.loss
        with suppress(ParameterError):  # a loss that the method does not have
            return str(method.resolve({"loss": loss})["loss"])
    if "wide" in method.losses:
        generated = params["features"] != "none"
        width = (params["block_size"] or BLOCK_SIZE) if generated else data.meta.n_features
        # More features than rows: separable data, on which another loss was measured to be better.
        if width > data.meta.n_rows:
            return method.losses["wide"]
    return method.losses.get(data.meta.target, method.losses["class"])


def can_be_standardized(method: Method, params: Params) -> bool:
    """Return whether a fit of least squares may see its rows standardized."""
    known = any(each.name == STANDARDIZE.name for each in method.parameters)
    plain = params["fit_intercept"] and params.get("intercept_scaling") is None
    return known and plain and has_plain_rows(params) and loss_named(loss_of(params)).quadratic


def suited(data: Dataset) -> Dataset:
    """Return data whose strengths are of use where none is given: numbers and dense columns of any scales standardized.

    The scales are those of the first partition, which is read for it.
    """
    meta = data.meta
    if meta.target != "continuous" or meta.layout != "dense" or meta.transforms:
        return data
    found = data.standardized
    assert found.standardization is not None
    return found if found.standardization.is_far else data


def alpha_by_rows(data: Dataset) -> float:
    """Return a strength that few rows need: its optimum takes tens of passes, and shrinks no usual column."""
    # A pass gains a part alpha n / (L mean |x|^2 + alpha n) of what is left. L is at most 1/2 of classes, which need no
    # less than C = 1, and rows of length one, as those of texts, a twentieth of that.
    square, most, share = data.meta.mean_square_norm, 1.0, 0.05
    if data.meta.target == "continuous":
        most, share = 2.0 * max(1.0, square / data.meta.n_features), 0.2
    return float(f"{min(most, share * square) / max(data.meta.n_rows, 1):.6g}")
