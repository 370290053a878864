"""How scores come from rows: straight from the weights, or through features and calibrations that a method adds.

Everything that scores rows (evaluation, prediction, estimators) asks `linear_view` for an equivalent linear
problem, so that its kernels know linear models only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import DenseRows, Rows
from distls.workers.calibration import replay
from distls.workers.features import Design, blocks, design_of
from distls.workers.products import add_scores

__all__ = ["Readout", "linear_view"]


@dataclass(frozen=True, eq=False)
class Readout:
    """What turns rows into scores; sent to workers.

    Attributes
    ----------
    weights : array of shape (n_features or n_generated, n_columns)
    intercept : float64 array of shape (n_columns,)
    recipe : dict
        ``{}``: scores are ``x @ weights + intercept``. Else with ``n_features``, the width of rows, and
        ``{"features": ...}``: `weights` stack the blocks of a
        design (see `distls.workers.features.design_of`). ``{"calibration": ...}``: columns are the residual fits
        of all rounds, replayed by `distls.workers.calibration.replay`. JSON values only.
    arrays : dict of name -> array
        What the recipe needs besides.
    """

    weights: NDArray[Any]
    intercept: NDArray[np.float64]
    recipe: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)


def linear_view(readout: Readout, x: Rows) -> tuple[Rows, NDArray[Any], NDArray[np.float64]]:
    """Return rows, weights and intercept whose linear scores are those of `x`.

    A plain model is returned as it is; else the rows are the scores themselves, n_rows x n_outputs.
    """
    if not readout.recipe:
        return x, readout.weights, readout.intercept
    values = _scores(readout, x)
    k = values.shape[1]
    return DenseRows(values), np.eye(k, dtype=values.dtype), np.zeros(k)


def _scores(readout: Readout, x: Rows) -> NDArray[Any]:
    n_rows = len(x.indptr) - 1 if not isinstance(x, DenseRows) else len(x.values)
    dtype = readout.weights.dtype
    values = np.tile(readout.intercept.astype(dtype), (n_rows, 1))
    features = readout.recipe.get("features")
    designs = [Design()] if features is None else design_of(features, readout.arrays)
    first = 0
    for design in designs:
        width = design.width(len(readout.weights))
        weights = readout.weights[first : first + width]
        for rows, block in blocks(design, x, dtype):
            add_scores(block, weights, values[rows])
        first += width
    calibration = readout.recipe.get("calibration")
    return values if calibration is None else replay(calibration, readout.arrays["calibration"], values)
