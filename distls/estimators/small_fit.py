"""Fits of few dense rows in memory, without a data set: models as those of a dual ascent that has met its tolerance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.estimators.small_optimum import Optimum, SmallProblem, find_optimum, is_small
from distls.problem import balanced_weights
from distls.storage.model.model import LinearModel
from distls.training.fit_warnings import guessing_warning
from distls.workers.losses.loss import Loss
from distls.workers.losses.loss_registry import loss_named


class SmallFit(NamedTuple):
    """A model at the optimum."""

    model: LinearModel
    gap: float  # to the optimum, at most
    reads: int  # of the rows
    warning: str | None


def fit_small(
    x: NDArray[Any],
    codes: NDArray[np.integer[Any]],
    sample_weight: Any,
    params: Mapping[str, Any],  # of the method, resolved
    tol: float,  # relative to the objective
    strength: Callable[[float], float],  # alpha, from the sum of the rows' weights
) -> SmallFit | None:
    """Return the optimum of a classifier with an l2 penalty; None where dual ascent has to find it, or to refuse."""
    loss, n_classes = loss_named(params["loss"]), int(codes.max()) + 1
    sample = _checked_weights(sample_weight, len(x))
    if not loss.smooth or sample is None or not is_small(x, n_classes):
        return None
    sums = np.asarray(np.bincount(codes, sample), np.float64)
    by_class = _class_weights(params["class_weight"], sums)
    total = float(by_class @ sums)
    if not (by_class * sums > 0.0).all() or not np.isfinite(total):
        return None
    alpha, binary = strength(total), loss.binary if n_classes == 2 else None
    if not alpha > 0.0:
        return None
    problem = SmallProblem(
        x=np.asarray(x, np.float64),
        y=codes.astype(np.int32),
        weight=by_class[codes] * sample * (len(x) / total),
        loss=loss if binary is None else binary.loss,
        n_outputs=n_classes if binary is None else 1,
        alpha=alpha if binary is None else alpha * binary.split,
        fit_intercept=params["fit_intercept"],
    )
    found = find_optimum(problem, tol)
    if found is None:
        return None
    # the objective of two outputs is this multiple of that of one
    gap = found.gap if binary is None else 2.0 * binary.split * found.gap
    model = _model(found, loss, {**params, "alpha": alpha}, n_classes)
    warning = None if sample_weight is not None else _warning(model, problem.x, codes)
    return SmallFit(model, gap, found.reads, warning)


def _checked_weights(sample_weight: Any, n_rows: int) -> NDArray[np.float64] | None:
    """Return a weight for each row, None if they have to be refused."""
    if sample_weight is None:
        return np.ones(n_rows)
    given = np.asarray(sample_weight)
    valid = given.shape == (n_rows,) and given.dtype.kind in "fiub"
    return given.astype(np.float64) if valid and np.isfinite(given).all() and (given >= 0).all() else None


def _class_weights(given: Any, sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weight of each class; given are None, "balanced" or weights by the text of codes."""
    if given is None:
        return np.ones(len(sums))
    if given == "balanced":
        return balanced_weights(sums)
    return np.array([float(given[str(code)]) for code in range(len(sums))])


def _model(found: Optimum, loss: Loss, params: dict[str, Any], n_classes: int) -> LinearModel:
    weights, intercept = found.weights, found.intercept
    if loss.binary is not None and n_classes == 2:
        split = loss.binary.split
        weights, intercept = (
            np.hstack([-split * weights, split * weights]),
            np.hstack([-intercept, intercept]),
        )
        intercept = split * intercept
    return LinearModel(
        np.ascontiguousarray(weights), intercept, classes=list(range(n_classes)), method="sdca", loss=loss.name,
        params=params, transforms=[], transforms_digest="", dataset_fingerprint="",
        source={"format": "memory", "files": []},
    )  # fmt: skip


def _warning(model: LinearModel, x: NDArray[np.float64], codes: NDArray[np.integer[Any]]) -> str | None:
    """Judge a fit without weights of rows as `distls.fit` does."""
    counts = np.bincount(codes)
    error = float((np.argmax(x @ model.weights + model.intercept, axis=1) != codes).mean())
    guessed = float(len(codes) - counts.max()) / len(codes)
    return guessing_warning(error, guessed, "training rows", int(counts.argmax()))
