"""From the scores of a model of classes to probabilities: those of its loss, or calibrated ones; thresholds of labels.

This is the one place where it is done: predictions, evaluation and estimators all come here. Temperature and vector
scaling are those of Guo et al. (2017), the sigmoids those of Platt (1999), isotonic regression that of Zadrozny and
Elkan (2002).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from distls.storage.model.model import LinearModel
from distls.workers.losses.binary_losses import BinaryShare
from distls.workers.losses.loss import Loss
from distls.workers.losses.loss_registry import class_scores, has_probabilities, loss_named, probabilities
from distls.workers.losses.ovr_log import OvrLog
from distls.workers.losses.softmax import Softmax
from distls.workers.prediction.predictor import scored_as

CalibrationKind = Literal["temperature", "vector", "platt", "isotonic"]
CALIBRATIONS: tuple[CalibrationKind, ...] = get_args(CalibrationKind)
_PROJECTED = "simplex", BinaryShare.name  # scores that are probabilities themselves
_LEAST = 1e-300, 1e-12  # probabilities of which a logarithm is taken, and those that a projection makes zero


@dataclass(frozen=True, eq=False)
class ProbabilityMap:
    """Turns scores into probabilities.

    Attributes
    ----------
    scored : str
        The loss of the scores as `scored_as` returns it.
    kind : str
        "natural", the probabilities of the loss, or a kind of calibration.
    arrays : dict of name -> float64 array
        Of a calibration, of `margins` z. "temperature": ``scale`` (1,), ``softmax(scale * z)``. "vector": ``scale``
        and ``offset`` (k,), ``softmax(scale * z + offset)``. "platt": the same (k,), the sigmoids of ``scale * z +
        offset`` over their sum, or (1,) for two classes, the sigmoid of ``scale * (z_1 - z_0) + offset``. "isotonic":
        ``scores`` and ``probabilities`` (m,), both increasing, between which those of class 1 are interpolated at
        z_1 - z_0.
    """

    scored: str
    kind: str = "natural"
    arrays: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    @classmethod
    def of(cls, model: LinearModel, *, natural: bool = False) -> ProbabilityMap | None:
        """Return the map of a model of classes, with `natural` without its calibration; None: it has none."""
        scored = scored_as(model.loss, model.recipe)
        # A calibration replaces the probabilities of the loss.
        if model.calibration and not natural:
            return cls(scored, model.calibration["kind"], model.calibration_arrays)
        return cls(scored) if has_probabilities(scored) else None

    def __call__(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Return the probabilities of rows, shape (n_rows, k); may overwrite the scores."""
        if self.kind == "natural":
            return probabilities(self.scored, scores)
        return calibrated(self.kind, self.arrays, margins(self.scored, self.kind, scores))


def model_probabilities(model: LinearModel, scores: NDArray[Any]) -> NDArray[Any]:
    """Return the class probabilities of scores (n_rows, k) of a model, calibrated if it is; may overwrite them.

    Raises ValueError if the model has none.
    """
    found = ProbabilityMap.of(model)
    if found is None:
        raise ValueError(f"{model.loss} has no probabilities, and the model is not calibrated")
    return found(scores)


def margins(scored: str, kind: str, scores: NDArray[Any]) -> NDArray[np.float64]:
    """Return what a calibration takes as scores: those of the model, or logarithms of its probabilities.

    Logarithms where the scores are probabilities themselves; and for a softmax ("temperature", "vector") of a loss with
    other probabilities, so that a scale of 1 leaves these as they are.
    """
    values = scores.astype(np.float64)
    other = kind in ("temperature", "vector") and scored != Softmax.name and has_probabilities(scored)
    projected = scored in _PROJECTED
    if not other and not projected:
        return np.asarray(class_scores(scored, values))
    # Zero probabilities come from projections only, and must stay finite as logarithms.
    return np.log(np.maximum(probabilities(scored, values), _LEAST[projected]))


def calibrated(
    kind: str, arrays: Mapping[str, NDArray[np.float64]], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the calibrated probabilities of `margins`, shape (n_rows, k)."""
    if kind in ("temperature", "vector"):
        return _rows_of_one(Softmax(), arrays["scale"] * values + arrays.get("offset", 0.0))
    if kind == "platt" and values.shape[1] > 2:
        return _rows_of_one(OvrLog(), arrays["scale"] * values + arrays["offset"])
    # Two classes have one margin.
    difference = values[:, 1] - values[:, 0]
    if kind == "platt":
        own = arrays["scale"] * difference + arrays["offset"]
        return np.exp(-np.logaddexp(0.0, np.stack([own, -own], axis=1)))
    second = np.interp(difference, arrays["scores"], arrays["probabilities"])
    # The first class gets the rest, so that both sum to one.
    return np.stack([1.0 - second, second], axis=1)


def _rows_of_one(loss: Loss, values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(loss.probabilities(values), np.float64)


def check_calibration(kind: Any, arrays: Mapping[str, NDArray[Any]], k: int) -> None:
    """Raise ValueError unless arrays are those of a calibration of k classes."""
    if kind not in CALIBRATIONS:
        raise ValueError(f"a calibration {kind!r}, which is none of {', '.join(CALIBRATIONS)}")
    sizes = {"temperature": {"scale": 1}, "isotonic": {"scores": 0, "probabilities": 0}}
    of_classes = {"scale": k, "offset": k} if kind == "vector" or k > 2 else {"scale": 1, "offset": 1}
    wanted = sizes.get(kind, of_classes)
    if arrays.keys() != wanted.keys() or (kind == "isotonic" and k != 2):
        raise ValueError(f"a calibration {kind} of {k} classes with other arrays than its own")
    for name, size in wanted.items():
        array = arrays[name]
        fits = array.dtype == np.float64 and array.ndim == 1 and len(array) == (size or len(arrays["scores"]))
        if not fits or not len(array) or not np.isfinite(array).all():
            raise ValueError(f"a calibration {kind} whose {name} are not its own")
    if kind == "isotonic":
        steps, values = (np.diff(arrays[name]) for name in ("scores", "probabilities"))
        ends = arrays["probabilities"][[0, -1]]
        if (steps <= 0).any() or (values < 0).any() or ends.min() < 0.0 or ends.max() > 1.0:
            raise ValueError("a calibration isotonic that does not increase from 0 to 1")


LabelCalibration = Literal["micro-f1", "macro-f1"]  # one threshold of all labels, and one of each
LABEL_CALIBRATIONS: tuple[LabelCalibration, ...] = get_args(LabelCalibration)


def label_cuts(model: LinearModel) -> NDArray[np.float64]:
    """Return the threshold of all labels, shape (1,), or of each, shape (n_labels,)."""
    # Fitted thresholds take the place of the loss's.
    if model.target == "multilabel" and model.calibration:
        return model.calibration_arrays["threshold"]
    return np.full(1, float(loss_named(model.loss).threshold))


def check_label_cuts(kind: Any, arrays: Mapping[str, NDArray[Any]], k: int) -> None:
    """Raise ValueError unless arrays are those of fitted thresholds of k labels."""
    if kind not in LABEL_CALIBRATIONS:
        raise ValueError(f"a calibration {kind!r} of labels, which is none of {', '.join(LABEL_CALIBRATIONS)}")
    if arrays.keys() != {"threshold"}:
        raise ValueError(f"a calibration {kind} with other arrays than its own")
    found, size = arrays["threshold"], 1 if kind == "micro-f1" else k
    if found.dtype != np.float64 or found.shape != (size,) or not np.isfinite(found).all():
        raise ValueError(f"a calibration {kind} whose threshold is not its own")
