"""The objective, its scaling and all shapes: written here once, referred to everywhere.

Objective::

    F(W, b) = (1 / sum_i s_i) * sum_i s_i * loss(y_i, W.T x_i + b) + alpha * R(W)

with the mean loss over rows, ``alpha`` > 0 the papers' lambda, ``R(W) = 1/2 ||W||_F^2`` for ``l2``, and row
weights ``s_i`` = sample weight times class weight (1 where none are given). The intercept ``b`` is not penalised.

Shapes: ``X`` (n_rows, n_features); ``W`` (n_features, n_outputs), C-ordered, so that a row of X touches
contiguous rows of W; ``b`` (n_outputs,); scores ``X @ W + b`` (n_rows, n_outputs). Class code c is column c.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset import Dataset
from distls.storage.errors import MismatchError, ParameterError

__all__ = ["Problem", "class_weights", "loss_of"]

# The losses whose slopes the links and inner updates of the least-squares methods have.
_LOSSES = {
    "identity": "squared",
    "logit": "ovr_log",
    "softmax": "softmax",
    "linear": "squared",
    "calibrated": "squared",
    "logistic": "softmax",
}


def loss_of(params: Mapping[str, Any]) -> str:
    """Return the full name of the loss that a setting trains with."""
    if "loss" in params:
        return str(params["loss"])
    return _LOSSES[params.get("link") or params.get("inner") or "identity"]


@dataclass(frozen=True)
class Problem:
    """What is minimised, over which data; validated before any partition is read.

    Attributes
    ----------
    dataset : Dataset
    loss : str
        Full loss name.
    alpha : float
    fit_intercept : bool
    class_weight : float64 array of shape (n_classes,)
        Multiplies the sample weights.
    weight_scale : float
        n_rows / sum_i s_i: row weights times this have mean one.
    dtype : numpy dtype of the weights
    seed : int
    """

    dataset: Dataset
    loss: str
    alpha: float
    fit_intercept: bool
    class_weight: NDArray[np.float64]
    weight_scale: float
    dtype: np.dtype[Any]
    seed: int

    @classmethod
    def of(cls, dataset: Dataset, params: dict[str, Any], seed: int, targets: tuple[str, ...]) -> Problem:
        """Check that the data suit the method and build the problem.

        Raises
        ------
        MismatchError
            The data have another kind of target, or no rows, or fewer than two classes.
        """
        meta = dataset.meta
        if meta.target not in targets:
            kind = {"none": "no labels"}.get(meta.target, f"{meta.target} targets")
            raise MismatchError(
                f"{dataset.path} has {kind}; this method needs {' or '.join(targets)} targets"
            )
        if meta.n_rows == 0:
            raise MismatchError(f"{dataset.path} has no rows")
        if meta.target == "class" and sum(count > 0 for count in meta.label_counts) < 2:
            raise MismatchError(
                f"{dataset.path} has rows of only one class; at least two are needed to learn from"
            )
        weight = class_weights(params.get("class_weight"), dataset)
        total = float(np.dot(weight, meta.label_weights))
        if not total > 0:
            raise ParameterError("the row weights sum to zero; give at least one class a positive weight")
        return cls(
            dataset=dataset,
            loss=loss_of(params),
            alpha=params["alpha"],
            fit_intercept=params["fit_intercept"],
            class_weight=weight,
            weight_scale=meta.n_rows / total,
            dtype=np.dtype(params["dtype"]),
            seed=seed,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the weights, (n_features, n_outputs)."""
        return self.dataset.meta.n_features, len(self.dataset.meta.classes)

    @property
    def row_weight_by_class(self) -> NDArray[np.float64]:
        """Normalised weight of a row of each class with sample weight one, shape (n_classes,)."""
        return self.class_weight * self.weight_scale


def class_weights(given: Any, dataset: Dataset) -> NDArray[np.float64]:
    """Return one weight a class.

    Parameters
    ----------
    given : None, "balanced" or dict of label text -> weight
        ``balanced`` is sum_i w_i / (n_classes * w_c) with w_c the sample weight of class c, scikit-learn's rule.

    Raises
    ------
    ParameterError
        A label is not a class of the dataset.
    """
    meta = dataset.meta
    counts = np.array(meta.label_weights, dtype=np.float64)
    if given is None:
        return np.ones(len(meta.classes))
    if given == "balanced":
        present = counts > 0
        balanced = counts.sum() / (present.sum() * np.where(present, counts, 1.0))
        return np.where(present, balanced, 1.0)
    codes = {str(label): code for code, label in enumerate(meta.classes)}
    weights = np.ones(len(meta.classes))
    for label, weight in given.items():
        if label not in codes:
            raise ParameterError(f"class_weight: {label!r} is not a class of {dataset.path}")
        weights[codes[label]] = weight
    return weights
