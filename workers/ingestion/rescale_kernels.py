"""In-place changes of CSR values by row or column."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import kernel

__all__ = ["keep_columns", "normalise_rows", "scale_columns"]


@kernel
def normalise_rows(indptr: NDArray[np.int64], data: NDArray[Any]) -> None:
    """Divide each row by its Euclidean norm, in place; rows of zeros stay."""
    for r in range(len(indptr) - 1):
        square = 0.0
        for k in range(indptr[r], indptr[r + 1]):
            square += np.float64(data[k]) * np.float64(data[k])
        if square > 0.0:
            norm = np.sqrt(square)
            for k in range(indptr[r], indptr[r + 1]):
                data[k] = data[k] / norm


@kernel
def keep_columns(
    indptr: NDArray[np.int64], indices: NDArray[Any], data: NDArray[Any], place: NDArray[np.int64]
) -> None:
    """Renumber column c to place[c], or drop it if that is negative, in place; `indptr` is updated."""
    kept, start = 0, indptr[0]
    for r in range(len(indptr) - 1):
        stop = indptr[r + 1]
        for k in range(start, stop):
            column = place[indices[k]]
            if column >= 0:
                indices[kept] = column
                data[kept] = data[k]
                kept += 1
        start, indptr[r + 1] = stop, kept


@kernel
def scale_columns(indices: NDArray[Any], data: NDArray[Any], weights: NDArray[np.float64]) -> None:
    """Multiply each value by the weight (shape (n_features,)) of its column, in place."""
    for k in range(len(data)):
        data[k] = data[k] * weights[indices[k]]
