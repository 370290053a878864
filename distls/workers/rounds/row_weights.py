"""The weight of each row of a partition in the objective."""

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.dataset import Fold
from distls.storage.rows import Partition, n_rows_of
from distls.workers.losses.targets import is_codes, slice_rows


def row_weights(part: Partition, class_weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return the normalised weight of each row, shape (n_rows,), or an empty array for all ones.

    `class_weight` is float64 (n_classes,), or (1,) where targets are not classes, or None (ones).
    """
    if class_weight is None:
        return np.empty(0) if part.sample_weight is None else part.sample_weight.astype(np.float64)
    by_class = class_weight[part.y] if is_codes(part.y) else np.full(n_rows_of(part.x), class_weight[0])
    # Class weights are normalised for the product with the sample weights.
    return by_class if part.sample_weight is None else by_class * part.sample_weight


def fold_of(n_rows: int, fold: int, folds: int) -> slice:
    """Return the rows of a partition that are in a fold."""
    # consecutive rows are a random sample: ingestion has shuffled them
    return slice(n_rows * fold // folds, n_rows * (fold + 1) // folds)


def seen_in_fold(part: Partition, fold: Fold) -> Partition:
    """Return the rows of a fold, or all rows with those of the fold at weight zero; both share the rows' memory."""
    n_rows = n_rows_of(part.x)
    rows = fold_of(n_rows, fold.number, fold.folds)
    if fold.alone:
        weight = None if part.sample_weight is None else part.sample_weight[rows]
        return Partition(slice_rows(part.x, rows), slice_rows(part.y, rows), weight)
    # A copy, as the rows' own weights are shared with other folds.
    kept = np.ones(n_rows, np.float32) if part.sample_weight is None else part.sample_weight.copy()
    kept[rows] = 0.0
    return part._replace(sample_weight=kept)
