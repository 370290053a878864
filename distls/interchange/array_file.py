"""Models as a file of NumPy arrays, with all that is needed to score rows by hand."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np

from distls.interchange.linear_form import class_array, expected_rows
from distls.serving.fitted_model import FittedModel
from distls.storage.dataset.feature_names import unpack_names
from distls.workers.ingestion.transforms import FITTED

__all__ = ["to_npz"]


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
