"""Scores of rows: directly from the weights, or through the feature maps and calibrations of a method.

Evaluation, prediction and estimators use the equivalent linear problem of `linear_view`, so that kernels need to handle
linear models only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import FormatError
from distls.storage.model.model import LinearModel, used_rows
from distls.storage.model.sparse_blocks import ClassBlocks
from distls.storage.rows import CsrRows, DenseRows, Rows, n_rows_of
from distls.workers.features.design import Design, blocks
from distls.workers.features.design_recipe import design_of
from distls.workers.linear_algebra.column_selection import columns_of_csr
from distls.workers.linear_algebra.gram import add_scores
from distls.workers.linear_algebra.score_kernels import scores
from distls.workers.losses.targets import slice_rows
from distls.workers.prediction.basis_functions import Basis
from distls.workers.prediction.calibration import replay
from distls.workers.prediction.class_block_scores import block_score_pieces

# bytes of scores (with recipes, of products with all columns of the weights) that are computed at a time
PIECE_BYTES = 8 * 2**20


class StoredPredictor(TypedDict):
    """The fields of a `LinearModel` that hold its predictor."""

    weights: NDArray[Any]
    intercept: NDArray[Any]
    recipe: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class LinearPredictor:
    """Scores of rows from coefficients: what solvers return, workers score with, and a model stores.

    Attributes
    ----------
    coefficients : float32 or float64 array of shape (n_features, n_outputs), C-ordered
        Another shape where `recipe` says so. Of very many classes `ClassBlocks`, which scoring reads block by block.
    intercept : float64 array of shape (n_outputs,)
    recipe : dict
        The feature map, JSON values only. ``{}``: scores are ``x @ coefficients + intercept``. Else with
        ``n_features``, the width of rows, and ``{"features": ...}``: `coefficients` stack the blocks of a design (see
        `distls.workers.features.design_recipe.design_of`), below those of the rows themselves with ``{"rows": True}``.
        ``{"calibration": {"powers", "functions", "onto"}}``: columns are the residual fits of all rounds, replayed
        with the array ``calibration`` by `distls.workers.prediction.calibration.replay`; with ``features`` they are
        fits of that one block, with ``stage_rounds`` so many of each block in turn, whose array is ``intercepts``.
    arrays : dict of name -> array
        Arrays of the feature map.
    columns : int64 array of shape (n_columns,) or None
        Without a recipe: the features that these rows of coefficients belong to, increasing; those of others are zero.
    """

    coefficients: NDArray[Any]
    intercept: NDArray[np.float64]
    recipe: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    columns: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, model: LinearModel) -> LinearPredictor:
        """Return the predictor of a stored model."""
        return cls(model.weights, model.intercept.astype(np.float64), model.recipe, model.arrays)

    def stored(self) -> StoredPredictor:
        """Return the fields of a model that stores this predictor, which must have all its coefficients."""
        assert self.columns is None
        # A model has one type of numbers.
        intercept = self.intercept.astype(self.coefficients.dtype)
        return StoredPredictor(weights=self.coefficients, intercept=intercept, recipe=self.recipe, arrays=self.arrays)

    def compact(self) -> LinearPredictor:
        """Return a predictor of the same scores, without features of zero coefficients if these are the majority."""
        if self.recipe or self.columns is not None or isinstance(self.coefficients, ClassBlocks):
            return self
        rows = used_rows(self.coefficients)
        # Gathering columns costs more than multiplying by zeros where most are used.
        if len(rows) > len(self.coefficients) // 2:
            return self
        return LinearPredictor(self.coefficients[rows], self.intercept, columns=rows)

    def used(self, x: Rows) -> Rows:
        """Return rows with only the features that have coefficients."""
        if self.columns is None:
            return x
        if isinstance(x, CsrRows):
            return columns_of_csr(x, self.columns)
        return DenseRows(np.ascontiguousarray(x.values[:, self.columns]))


def scored_as(loss: str, recipe: Mapping[str, Any]) -> str:
    """Return the name for `scorer`: "simplex" for a recipe whose scores are probabilities, else the loss."""
    calibrated = recipe.get("calibration", {}).get("onto") == "simplex"
    return "simplex" if calibrated else loss


def linear_view(predictor: LinearPredictor, x: Rows) -> tuple[Rows, NDArray[Any], NDArray[np.float64]]:
    """Return rows, weights and intercept whose linear scores are those of `x`.

    For a plain model these are its own weights; else the rows are the scores themselves, n_rows x n_outputs.
    """
    # Kernels evaluate linear models only, so the scores of others become rows.
    if not predictor.recipe:
        return predictor.used(x), predictor.coefficients, predictor.intercept
    pieces = [values for _, values in score_pieces(predictor, x)]
    values = np.concatenate(pieces) if pieces else _scores(predictor, x)
    k = values.shape[1]
    # The identity as weights: the scores of these rows are the rows.
    return DenseRows(values), np.eye(k, dtype=values.dtype), np.zeros(k)


def score_pieces(predictor: LinearPredictor, x: Rows) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield (rows, their scores) for consecutive batches of a block, so that few scores are held at a time."""
    if isinstance(predictor.coefficients, ClassBlocks):
        yield from block_score_pieces(x, predictor.coefficients, predictor.intercept)
        return
    dtype, x = predictor.coefficients.dtype, predictor.used(x)
    for rows in _row_batches(n_rows_of(x), predictor.coefficients.shape[1] * dtype.itemsize):
        if predictor.recipe:
            yield rows, _scores(predictor, slice_rows(x, rows))
        else:
            out = np.empty((rows.stop - rows.start, len(predictor.intercept)), dtype)
            yield rows, scores(x, predictor.coefficients, predictor.intercept, out, rows.start)


def _row_batches(n_rows: int, row_bytes: int) -> Iterator[slice]:
    """Yield slices of consecutive rows, with scores of at most PIECE_BYTES each; `row_bytes` is for one row."""
    # At least one row, however many outputs it has.
    step = max(1, PIECE_BYTES // row_bytes) if row_bytes else max(n_rows, 1)
    for first in range(0, n_rows, step):
        yield slice(first, min(first + step, n_rows))


def _scores(predictor: LinearPredictor, x: Rows) -> NDArray[Any]:
    calibration = predictor.recipe.get("calibration")
    if calibration is not None and calibration.get("stage_rounds"):
        return _staged_scores(predictor, x)
    dtype = predictor.coefficients.dtype
    values = np.tile(predictor.intercept.astype(dtype), (n_rows_of(x), 1))
    # Blocks of weights follow each other in the order of their designs.
    first = 0
    for design in _designs(predictor):
        width = design.width(predictor.recipe.get("n_features", len(predictor.coefficients)))
        weights = predictor.coefficients[first : first + width]
        for rows, block in blocks(design, x, dtype):
            add_scores(block, weights, values[rows])
        first += width
    if calibration is None:
        return values
    return replay(Basis.of_recipe(calibration), calibration["onto"], predictor.arrays["calibration"], values)


def _staged_scores(predictor: LinearPredictor, x: Rows) -> NDArray[Any]:
    """Return the scores of a batch of rows from blocks that are calibrated one after another."""
    weights, calibration = predictor.coefficients, predictor.recipe["calibration"]
    arrays, rounds = predictor.arrays, calibration["stage_rounds"]
    values, first = np.zeros((n_rows_of(x), arrays["intercepts"].shape[1])), 0
    for stage, design in enumerate(_designs(predictor)):
        width = design.width(predictor.recipe["n_features"])
        # Columns of a stage: one fit for each of its rounds.
        fits = np.zeros((len(values), weights.shape[1]), weights.dtype)
        for rows, block in blocks(design, x, weights.dtype):
            add_scores(block, weights[first : first + width], fits[rows])
        own = slice(stage * rounds, (stage + 1) * rounds)
        constants = arrays["intercepts"][own].ravel()
        # An interrupted stage has fewer rounds, and fewer intercepts.
        done = fits[:, : len(constants)] + constants
        values = replay(Basis.of_recipe(calibration), calibration["onto"], arrays["calibration"][own], done, values)
        first += width
    return values


def _designs(predictor: LinearPredictor) -> list[Design]:
    """Return the feature maps of the blocks that the weights stack; raise FormatError for a recipe that is not ours."""
    features, rows = predictor.recipe.get("features"), predictor.recipe.get("rows", False)
    if rows not in (True, False) or (rows and (features is None or "calibration" in predictor.recipe)):
        raise FormatError("this model's recipe was not written by distls: rows without blocks of features")
    if features is None:
        return [Design()]
    designs = [Design()] * rows + design_of(features, predictor.arrays)
    if len(designs) != 1 and not predictor.recipe.get("calibration", {"stage_rounds": 1}).get("stage_rounds"):
        raise FormatError(
            f"this model's recipe was not written by distls: a calibration of {len(designs)} blocks, not of one"
        )
    return designs
