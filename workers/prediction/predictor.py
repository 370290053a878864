"""How scores come from rows: straight from the weights, or through features and calibrations that a method adds.

Everything that scores rows (evaluation, prediction, estimators) asks `linear_view` for an equivalent linear
problem, so that its kernels know linear models only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import FormatError
from distls.storage.rows import CsrRows, DenseRows, Rows, n_rows_of
from distls.workers.features.design import Design, blocks, design_of
from distls.workers.linear_algebra.column_selection import columns_of_csr
from distls.workers.linear_algebra.gram import add_scores
from distls.workers.linear_algebra.score_kernels import scores
from distls.workers.losses.targets import slice_rows
from distls.workers.prediction.calibration import replay

__all__ = ["PIECE_BYTES", "Readout", "linear_view", "score_pieces", "scored_as"]

# Scores of this many bytes at a time, whatever the number of outputs; with recipes that of the weights' columns.
PIECE_BYTES = 8 * 2**20


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
        design (see `distls.workers.features.design.design_of`), below those of the rows themselves with
        ``{"rows": True}`` beside. ``{"calibration": {"powers", "onto"}}``: columns are the
        residual fits of all rounds, replayed with the array ``calibration`` by
        `distls.workers.prediction.calibration.replay`; with ``features`` beside it they are fits of the
        one block that those have. JSON values only.
    arrays : dict of name -> array
        What the recipe needs besides.
    columns : int64 array of shape (n_columns,) or None
        Without a recipe: the features whose rows of weights these are, increasing; those of others are zero.
    """

    weights: NDArray[Any]
    intercept: NDArray[np.float64]
    recipe: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    columns: NDArray[np.int64] | None = None

    def used(self, x: Rows) -> Rows:
        """Return rows of the features that the weights are of."""
        if self.columns is None:
            return x
        if isinstance(x, CsrRows):
            return columns_of_csr(x, self.columns)
        return DenseRows(np.ascontiguousarray(x.values[:, self.columns]))


def scored_as(loss: str, recipe: Mapping[str, Any]) -> str:
    """Return what scores are evaluated as: "simplex" for a recipe whose scores are probabilities, else the loss.

    See `distls.workers.losses.registry.scorer`.
    """
    calibrated = recipe.get("calibration", {}).get("onto") == "simplex"
    return "simplex" if calibrated else loss


def linear_view(readout: Readout, x: Rows) -> tuple[Rows, NDArray[Any], NDArray[np.float64]]:
    """Return rows, weights and intercept whose linear scores are those of `x`.

    Of a plain model the weights are returned as they are; else the rows are the scores themselves, n_rows x n_outputs.
    """
    if not readout.recipe:
        return readout.used(x), readout.weights, readout.intercept
    pieces = [values for _, values in score_pieces(readout, x)]
    values = np.concatenate(pieces) if pieces else _scores(readout, x)
    k = values.shape[1]
    return DenseRows(values), np.eye(k, dtype=values.dtype), np.zeros(k)


def score_pieces(readout: Readout, x: Rows) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield (rows, their scores) for consecutive pieces of a block, so that few scores are held at a time."""
    dtype, x = readout.weights.dtype, readout.used(x)
    for rows in _row_pieces(n_rows_of(x), readout.weights.shape[1] * dtype.itemsize):
        if readout.recipe:
            yield rows, _scores(readout, slice_rows(x, rows))
        else:
            out = np.empty((rows.stop - rows.start, len(readout.intercept)), dtype)
            yield rows, scores(x, readout.weights, readout.intercept, out, rows.start)


def _row_pieces(n_rows: int, row_bytes: int) -> Iterator[slice]:
    """Yield consecutive rows whose columns fill a piece; what a model's columns are is no more than `row_bytes`."""
    step = max(1, PIECE_BYTES // row_bytes) if row_bytes else max(n_rows, 1)
    for first in range(0, n_rows, step):
        yield slice(first, min(first + step, n_rows))


def _scores(readout: Readout, x: Rows) -> NDArray[Any]:
    """Return the scores of rows that are few enough for all columns of the weights."""
    dtype = readout.weights.dtype
    values = np.tile(readout.intercept.astype(dtype), (n_rows_of(x), 1))
    first = 0
    for design in _designs(readout):
        width = design.width(readout.recipe.get("n_features", len(readout.weights)))
        weights = readout.weights[first : first + width]
        for rows, block in blocks(design, x, dtype):
            add_scores(block, weights, values[rows])
        first += width
    calibration = readout.recipe.get("calibration")
    if calibration is None:
        return values
    return replay(calibration["powers"], calibration["onto"], readout.arrays["calibration"], values)


def _designs(readout: Readout) -> list[Design]:
    """Return the features of the blocks that the weights stack.

    Raises
    ------
    FormatError
        Fits that are calibrated are of several blocks.
    """
    features, rows = readout.recipe.get("features"), readout.recipe.get("rows", False)
    if rows not in (True, False) or (rows and (features is None or "calibration" in readout.recipe)):
        raise FormatError("this model's recipe was not written by distls: rows beside no blocks of features")
    if features is None:
        return [Design()]
    designs = [Design()] * rows + design_of(features, readout.arrays)
    if "calibration" in readout.recipe and len(designs) != 1:
        raise FormatError(
            f"this model's recipe was not written by distls: a calibration of {len(designs)} blocks, not of one"
        )
    return designs
