"""Sums over the columns of CSR values. Float64, one value after another, in row order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import kernel

__all__ = ["add_columns", "add_deviations"]


@kernel
def add_columns(
    indices: NDArray[Any], data: NDArray[Any], sums: NDArray[np.float64], counts: NDArray[np.int64]
) -> None:
    """Add each value to the sum of its column (shape (n_features,)) and 1 to its count."""
    for k in range(len(data)):
        column = indices[k]
        sums[column] += np.float64(data[k])
        counts[column] += 1


@kernel
def add_deviations(
    indices: NDArray[Any], data: NDArray[Any], mean: NDArray[np.float64], squares: NDArray[np.float64]
) -> None:
    """Add the square of each value's distance from the mean of its column; shapes (n_features,)."""
    for k in range(len(data)):
        column = indices[k]
        distance = np.float64(data[k]) - mean[column]
        squares[column] += distance * distance
