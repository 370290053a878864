"""GEN of Algorithm 3 (least squares revisited): blocks of features, pure functions of a row and of (seed, stage).

Random features are drawn anew wherever they are needed, never stored and never sent. A block is handed out in
pieces of a fixed number of rows, so that products over it are the same everywhere and fit in the processor's cache.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, DenseRows, Rows, n_rows_of
from distls.workers.kernels.columns import columns_of_csr
from distls.workers.seeds import Purpose, rng

__all__ = ["PIECE_ROWS", "Design", "Projection", "blocks", "design_of", "recipe_of"]

# Rows of a piece: part of the promise of equal bits, because sums in another order have other last bits.
PIECE_ROWS = 4096


@dataclass(frozen=True, eq=False)
class Projection:
    """Principal components.

    Attributes
    ----------
    mean : float64 array of shape (n_features,)
    components : float64 array of shape (n_features, n_components)
    """

    mean: NDArray[np.float64]
    components: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Design:
    """One block of features.

    Attributes
    ----------
    kind : {"all", "columns", "fourier", "logits"}
        The row itself, some of its columns, or random features.
    size : int
        Features of the block; not used by "all".
    seed, stage : int
        Random features are drawn from (FEATURES, stage).
    bandwidth : float
        The s of the Gaussian kernel exp(-|x - x'|^2 / s) that "fourier" approximates; "logits" use the same scale.
    columns : int64 array of shape (size,) or None
        Of "columns".
    projection : Projection or None
        Applied before random features are.
    """

    kind: str = "all"
    size: int = 0
    seed: int = 0
    stage: int = 0
    bandwidth: float = 1.0
    columns: NDArray[np.int64] | None = None
    projection: Projection | None = None

    def width(self, n_features: int) -> int:
        """Return the features of the block, for rows of `n_features`."""
        return n_features if self.kind == "all" else self.size


def recipe_of(design: Design, n_stages: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return JSON values and arrays from which `design_of` makes the designs of stages 0 to n_stages - 1."""
    recipe = {
        "kind": design.kind,
        "size": design.size,
        "seed": design.seed,
        "bandwidth": design.bandwidth,
        "n_stages": n_stages,
    }
    if design.projection is None:
        return recipe, {}
    return recipe, {"pca_mean": design.projection.mean, "pca_components": design.projection.components}


def design_of(recipe: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> list[Design]:
    """Return the designs of a model, in the order of its blocks of weights."""
    projection = None
    if "pca_mean" in arrays:
        projection = Projection(arrays["pca_mean"], arrays["pca_components"])
    given = {name: value for name, value in recipe.items() if name != "n_stages"}
    first = Design(**given, projection=projection)
    return [replace(first, stage=stage) for stage in range(recipe["n_stages"])]


def blocks(design: Design, x: Rows, dtype: np.dtype[Any]) -> Iterator[tuple[slice, Rows]]:
    """Yield (rows, their features): `DenseRows` of `dtype` and at most PIECE_ROWS rows, or all sparse rows at once.

    A piece's memory is used again for the next one.
    """
    if design.kind == "columns":
        assert design.columns is not None
        if isinstance(x, CsrRows):
            yield slice(0, n_rows_of(x)), columns_of_csr(x, design.columns)
            return
        x = DenseRows(x.values[:, design.columns])
    if isinstance(x, CsrRows) and design.kind == "all":
        yield slice(0, n_rows_of(x)), x
        return
    for first in range(0, n_rows_of(x), PIECE_ROWS):
        rows = slice(first, min(first + PIECE_ROWS, n_rows_of(x)))
        yield rows, DenseRows(_piece(design, x, rows, dtype))


def _piece(design: Design, x: Rows, rows: slice, dtype: np.dtype[Any]) -> NDArray[Any]:
    assert isinstance(x, DenseRows)
    values = x.values[rows].astype(dtype, copy=False)
    if design.kind in ("all", "columns"):
        return values
    if design.projection is not None:
        mean, components = (
            array.astype(dtype, copy=False)
            for array in (design.projection.mean, design.projection.components)
        )
        values = (values - mean) @ components
    directions, offsets = _draw(design.kind, design.seed, design.stage, values.shape[1], design.size,
                                design.bandwidth, np.dtype(dtype).name)  # fmt: skip
    out = values @ directions
    out += offsets
    if design.kind == "fourier":
        np.cos(out, out=out)
        out *= out.dtype.type(math.sqrt(2.0))
    else:
        out = 1.0 / (1.0 + np.exp(-out))
    return out


@functools.lru_cache(maxsize=4)
def _draw(
    kind: str, seed: int, stage: int, n_inputs: int, size: int, bandwidth: float, dtype: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return directions (n_inputs, size) ~ N(0, 2/s) and offsets (size,)."""
    generator = rng(seed, Purpose.FEATURES, stage)
    directions = generator.standard_normal((n_inputs, size)) * math.sqrt(2.0 / bandwidth)
    offsets = (
        generator.uniform(0.0, 2.0 * math.pi, size) if kind == "fourier" else generator.normal(0, 1, size)
    )
    return directions.astype(dtype), offsets.astype(dtype)
