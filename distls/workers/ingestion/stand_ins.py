"""What stands for missing values of columns that lack none in training, as the recipe of a table has it."""

import math
from collections.abc import Sequence

import numpy as np

from distls.storage.rows import CsrRows, DenseRows, Rows
from distls.workers.ingestion.formats.table_columns import USUAL, Feature, first_columns
from distls.workers.ingestion.parsing.array_types import Bools, Doubles, Ints
from distls.workers.ingestion.transforms import impute


def recorded(feature: Feature, values: Sequence[float]) -> str:
    """Return what a recipe says of a column without gaps, whose values (of a category its place) stand for one."""
    if feature.categories is not None:
        return f"{USUAL}{feature.categories[int(values[0])]}"
    strategy = feature.impute.removesuffix("+indicator").partition(":")[0]
    return f"{strategy}:{','.join(repr(float(value)) for value in values)}"


def stand_ins(features: Sequence[Feature]) -> Doubles | None:
    """Return what stands for a missing value in each feature, NaN where another transform says so; None without any.

    Raises ValueError for other values than a column has features, or a category that is none of them.
    """
    found = np.full(first_columns(features)[-1], math.nan)
    for feature, start in zip(features, first_columns(features), strict=False):
        _, mark, text = feature.impute.partition(":")
        if not mark or text.endswith("+indicator"):
            continue
        if feature.is_dense:
            values = np.array([float(number) for number in text.split(",")])
            if len(values) not in (1, feature.size) or not np.isfinite(values).all():
                raise ValueError(f"{feature.impute} does not fill {feature.size} features")
            found[start : start + feature.size] = values
        elif feature.impute.startswith(USUAL):
            found[start + (feature.categories or ()).index(text)] = 1.0
    return None if np.isnan(found).all() else found


def filled(x: Rows, fill: Doubles) -> tuple[Rows, list[list[int]]]:
    """Return rows in which missing values are filled in, and columns with their numbers of these."""
    missing = np.isnan(x.data if isinstance(x, CsrRows) else x.values)
    if not missing.any():
        return x, []
    counts = _counts(x, missing, len(fill)) * ~np.isnan(fill)
    rows = impute(x, {"columns": len(fill), "indicators": []}, {"fill": fill}, "")
    return rows, [[c, int(counts[c])] for c in np.flatnonzero(counts).tolist()]


def _counts(x: Rows, missing: Bools, width: int) -> Ints:
    if isinstance(x, DenseRows):
        return missing.sum(axis=0)
    return np.bincount(x.indices[missing], minlength=width)
