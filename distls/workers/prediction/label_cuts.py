"""The scores above which a multi-label model predicts its labels: that of its loss, or fitted ones."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from distls.storage.model.model import LinearModel
from distls.workers.losses.loss_registry import loss_named

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
        raise ValueError(
            f"a calibration {kind!r} of labels, which is none of {', '.join(LABEL_CALIBRATIONS)}"
        )
    if arrays.keys() != {"threshold"}:
        raise ValueError(f"a calibration {kind} with other arrays than its own")
    found, size = arrays["threshold"], 1 if kind == "micro-f1" else k
    if found.dtype != np.float64 or found.shape != (size,) or not np.isfinite(found).all():
        raise ValueError(f"a calibration {kind} whose threshold is not its own")
