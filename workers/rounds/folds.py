"""Folds of cross-validation: equal slices of each partition's rows, left out of fits by weight zero."""

from __future__ import annotations

import numpy as np

from distls.storage.dataset.dataset import Fold
from distls.storage.rows import Partition, n_rows_of
from distls.workers.losses.targets import slice_rows

__all__ = ["fold_of", "seen_in_fold"]


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
    kept = np.ones(n_rows, np.float32) if part.sample_weight is None else part.sample_weight.copy()
    kept[rows] = 0.0
    return part._replace(sample_weight=kept)
