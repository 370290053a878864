"""The weight of each row of a partition in the objective."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import Partition, n_rows_of
from distls.workers.losses.targets import is_codes

__all__ = ["row_weights"]


def row_weights(part: Partition, class_weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return the normalised weight of each row, shape (n_rows,), or an empty array for all ones.

    `class_weight` is float64 (n_classes,), or (1,) where targets are not classes, or None (ones).
    """
    if class_weight is None:
        return np.empty(0) if part.sample_weight is None else part.sample_weight.astype(np.float64)
    by_class = class_weight[part.y] if is_codes(part.y) else np.full(n_rows_of(part.x), class_weight[0])
    return by_class if part.sample_weight is None else by_class * part.sample_weight
