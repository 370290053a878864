"""Scores of rows: directly from the weights, or through the feature maps and calibrations of a method.

Evaluation, prediction and estimators use the equivalent linear problem of `linear_view`, so that kernels need to handle
linear models only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import FormatError
from distls.storage.model.model import LinearModel, used_rows
from distls.storage.model.sparse_blocks import ClassBlocks
from distls.storage.rows import CsrRows, DenseRows, Rows, n_rows_of
from distls.workers.compilation.jit import kernel
from distls.workers.features.design import Design, blocks
from distls.workers.features.design_recipe import design_of
from distls.workers.linear_algebra.column_selection import columns_of_csr
from distls.workers.linear_algebra.gram import add_scores
from distls.workers.linear_algebra.score_kernels import scores
from distls.workers.losses.targets import slice_rows
from distls.workers.prediction.basis_functions import Basis
from distls.workers.prediction.calibration import replay

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
        return StoredPredictor(
            weights=self.coefficients, intercept=intercept, recipe=self.recipe, arrays=self.arrays
        )

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
    """Return the scores of a batch of rows."""
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
        values = replay(
            Basis.of_recipe(calibration), calibration["onto"], arrays["calibration"][own], done, values
        )
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


# -- weights that are stored by blocks of classes, one in memory at a time -------------------------------

# Bytes of the scores of a batch: every batch reads all blocks, so it should have many rows.
_BATCH_BYTES = 64 * 2**20
# Features of which a table fits well into memory; of more, those of the batch are looked up.
_LARGEST_TABLE = 2**25
# A feature with weights for more than one in so many classes of a block is added to all of them, in vectors.
_FULL_SHARE = 16


class _Batch(NamedTuple):
    """A batch of rows, whose features are numbered by their order among those that it has."""

    features: NDArray[np.int64]  # increasing
    # the numbers of all features, -1 of those it lacks; None: they are looked up
    places: NDArray[np.int32] | None
    indptr: NDArray[np.int64]  # (n_rows + 1,)
    numbers: NDArray[np.int32]  # (nnz,)
    values: NDArray[Any]  # (nnz,)

    @classmethod
    def of(cls, x: Rows, n_features: int) -> _Batch:
        """Number the features of some rows."""
        if isinstance(x, CsrRows):
            indptr, indices, values = x.indptr, x.indices, x.data
        else:
            rows, indices = np.nonzero(x.values)
            counts, values = np.bincount(rows, minlength=len(x.values)), x.values[rows, indices]
            indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        features, numbers = np.unique(indices.astype(np.int64), return_inverse=True)
        places = None
        if n_features <= _LARGEST_TABLE:
            places = np.full(n_features, -1, np.int32)
            places[features] = np.arange(len(features), dtype=np.int32)
        return cls(features, places, indptr, numbers.astype(np.int32), values)

    def find(self, indices: NDArray[np.uint32]) -> NDArray[np.int32]:
        """Return the numbers of features, -1 of those the batch lacks."""
        if self.places is not None:
            return self.places[indices]
        found = np.searchsorted(self.features, indices).astype(np.int32)
        # A search may end beyond the last feature.
        same = np.append(self.features, -1)[found] == indices
        return np.where(same, found, np.int32(-1))


def block_score_pieces(
    x: Rows, weights: ClassBlocks, intercept: NDArray[np.float64]
) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield (rows, their scores of shape (n, k)) for consecutive batches of rows."""
    n_rows, k = n_rows_of(x), weights.shape[1]
    step = max(1, _BATCH_BYTES // max(k * weights.itemsize, 1))
    for first in range(0, n_rows, step):
        rows = slice(first, min(first + step, n_rows))
        batch = _Batch.of(slice_rows(x, rows), weights.shape[0])
        out = np.empty((rows.stop - rows.start, k), weights.dtype)
        out[:] = intercept.astype(weights.dtype)
        # Every block is read once a batch, which is why batches are large.
        for block in weights.read():
            own = _by_feature(block.indptr, batch.find(block.indices), block.values, len(batch.features))
            _add_scores(batch.indptr, batch.numbers, batch.values, own, block.first, out)
        yield rows, out


@kernel
def _by_feature(indptr: Any, places: Any, values: Any, n: int) -> Any:
    """Return a block's weights feature by feature: (starts, classes, weights) of few classes, else (slots, table)."""
    width, starts = len(indptr) - 1, np.zeros(n + 2, np.int64)
    for place in places:
        if place >= 0:
            starts[place + 2] += 1
    slots, full = np.full(n, -1, np.int32), 0
    for j in range(n):
        if starts[j + 2] > width // _FULL_SHARE:
            slots[j], starts[j + 2] = full, 0
            full += 1
        starts[j + 2] += starts[j + 1]
    classes, weights = np.empty(starts[n + 1], np.int32), np.empty(starts[n + 1], values.dtype)
    table = np.zeros((full, width), values.dtype)
    for c in range(width):
        for p in range(indptr[c], indptr[c + 1]):
            j = places[p]
            if j >= 0 and slots[j] >= 0:
                table[slots[j], c] = values[p]
            elif j >= 0:
                # the end so far, which becomes the start of the next feature
                q = starts[j + 1]
                classes[q], weights[q], starts[j + 1] = c, values[p], q + 1
    return starts, classes, weights, slots, table


@kernel
def _add_scores(indptr: Any, numbers: Any, x: Any, block: Any, first: int, out: Any) -> None:
    """Add ``sum_j x_ij w_jc`` to ``out[i, first + c]`` for all rows i of the batch and all classes c of the block."""
    starts, classes, weights, slots, table = block
    kind, width = out.dtype.type, table.shape[1]
    # Totals of their own: the intercept is added once, and sums do not depend on blocks.
    total = np.empty(width, out.dtype)
    for i in range(len(out)):
        total[:] = kind(0.0)
        # features in order, whatever is full: a class has the sum that it would have alone
        for p in range(indptr[i], indptr[i + 1]):
            j, value = numbers[p], kind(x[p])
            if slots[j] >= 0:
                row = table[slots[j]]
                if np.isfinite(value):
                    for c in range(width):
                        total[c] += row[c] * value
                else:
                    # no NaN of the zeros that stand for no weight
                    for c in range(width):
                        total[c] += row[c] * value if row[c] != 0 else kind(0.0)
            else:
                for q in range(starts[j], starts[j + 1]):
                    total[classes[q]] += weights[q] * value
        for c in range(width):
            out[i, first + c] += total[c]
