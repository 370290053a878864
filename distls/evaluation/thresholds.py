"""The score above which the second of two classes is predicted: the best one by a metric on held-out rows.

A threshold moves the intercept, and the calibration of the probabilities back by as much. Whatever predicts by the sign
of a score, here or in another program, then honours it, and no probability changes.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import MismatchError, ParameterError
from distls.storage.model.model import LinearModel
from distls.workers.evaluation.calibration_task import Cuts, best_cut, f1_of
from distls.workers.evaluation.ranked_scores import RankedScores
from distls.workers.prediction.probability_map import calibrated

Floats = NDArray[np.float64]
_EXPECTED = "expected f1, recall=R or precision=P between 0 and 1, or cost=FP:FN"
# of kinds of calibration, those that are functions of the decision alone: they can be moved along it
_MOVABLE = ("platt", "isotonic")


def worth_by(metric: str) -> Callable[[Cuts], Floats]:
    """Return how good cuts are by a metric; -inf: not at all. Raises ParameterError for a metric that is none."""
    name, _, text = metric.partition("=")
    try:
        values = [float(each) for each in text.split(":")] if text else []
    except ValueError:
        values = [-1.0]
    if metric == "f1":
        return f1_of
    if name in ("recall", "precision") and len(values) == 1 and 0.0 < values[0] <= 1.0:
        (least,) = values
        if name == "recall":  # the fewest rows, of the cuts that find enough of the class
            return lambda cuts: np.where(cuts.right >= least * cuts.having, -cuts.predicted, -np.inf)
        return lambda cuts: np.where((cuts.right >= least * cuts.predicted) & (cuts.right > 0), cuts.right, -np.inf)
    if name == "cost" and len(values) == 2 and min(values) > 0.0 and max(values) < np.inf:
        wrong, missed = values
        return lambda cuts: -wrong * (cuts.predicted - cuts.right) - missed * (cuts.having - cuts.right)
    raise ParameterError(f"threshold_for={metric}: {_EXPECTED}")


def check_threshold(metric: str | None, target: str, n_classes: int, kind: str, name: str) -> None:
    """Raise ParameterError for a threshold that a calibration of this kind cannot have."""
    if metric is None:
        return
    worth_by(metric)
    if target != "class" or n_classes != 2:
        what = "sets of labels take the calibration micro-f1" if target == "multilabel" else "drop it"
        raise ParameterError(f"threshold_for={metric}: of two classes only, which {name} has not; {what}")
    if kind not in _MOVABLE:
        raise ParameterError(f"threshold_for={metric}: not with calibration {kind}; take platt or isotonic")


def with_threshold(model: LinearModel, rows: RankedScores, metric: str, name: str) -> LinearModel:
    """Return a calibrated model that predicts the second class above the score that is best for a metric.

    `rows` are held-out rows by the difference of their scores.
    """
    if "calibration" in model.recipe:
        raise ParameterError(f"threshold_for={metric}: {name} has shares of classes for scores, which cannot be moved")
    cut = best_cut(rows, model.weights.dtype, worth_by(metric))
    if cut is None:
        raise MismatchError(f"threshold_for={metric}: no score of the held-out rows reaches it; ask for less")
    intercept = model.intercept.copy()
    intercept[-1] -= intercept.dtype.type(cut)
    moved = float(model.intercept[-1]) - float(intercept[-1])  # as far as the type of the weights allows
    arrays = dict(model.calibration_arrays)
    if model.calibration["kind"] == "platt":
        arrays["offset"] = arrays["offset"] + arrays["scale"] * moved
    else:
        arrays["scores"] = arrays["scores"] - moved
    at_cut = calibrated(model.calibration["kind"], arrays, np.zeros((1, 2)))[0, 1]
    said: dict[str, Any] = {
        "threshold_for": metric, "threshold": moved, "probability": float(at_cut),
        "intercept": model.intercept.astype(np.float64).tolist(),
    }  # fmt: skip
    return replace(model, intercept=intercept, calibration={**model.calibration, **said}, calibration_arrays=arrays)


def without_threshold(model: LinearModel) -> LinearModel:
    """Return a model with the intercept that it was trained with."""
    before = model.calibration.get("intercept")
    if before is None:
        return model
    return replace(model, intercept=np.array(before, model.intercept.dtype))
