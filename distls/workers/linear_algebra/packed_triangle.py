"""Symmetric matrices as packed upper triangles, row by row: half the memory, and half the traffic to the driver."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def packed_size(d: int) -> int:
    """Return the elements of the upper triangle of a (d, d) matrix."""
    return d * (d + 1) // 2


def order_of(triangle: Array) -> int:
    """Return the order d of a packed triangle."""
    # The integer root is exact; a float64 one is not for large matrices.
    return (math.isqrt(8 * len(triangle) + 1) - 1) // 2


def _starts(d: int) -> NDArray[np.int64]:
    """Return the offsets (d + 1,) of the rows of a packed triangle; each row starts at its diagonal."""
    rows = np.arange(d + 1)
    return rows * d - rows * (rows - 1) // 2


def packed(matrix: Array) -> Array:
    """Return the upper triangle of a (d, d) matrix: shape (d (d + 1) / 2,)."""
    return np.concatenate([matrix[row, row:] for row in range(len(matrix))] or [np.empty(0)])


def unpacked(triangle: Array, out: NDArray[Any]) -> NDArray[Any]:
    """Write a packed triangle, mirrored, to the square matrix `out`, of any strides, and return that."""
    # One slice a row is as fast as the memory.
    starts = _starts(len(out))
    for row in range(len(out)):
        out[row, row:] = triangle[starts[row] : starts[row + 1]]
    return mirrored(out)


def mirrored(matrix: NDArray[Any]) -> NDArray[Any]:
    """Copy the upper triangle of a square matrix to its lower one, in place."""
    d = len(matrix)
    for first in range(0, d, _TILE):  # tile by tile: columns of a whole matrix would miss the cache
        rows = slice(first, first + _TILE)
        own = matrix[rows, rows]
        own[:] = np.triu(own) + np.triu(own, 1).T
        for below in range(first + _TILE, d, _TILE):
            matrix[below : below + _TILE, rows] = matrix[rows, below : below + _TILE].T
    return matrix


_TILE = 128  # rows and columns that stay in a core's cache while they are transposed


def diagonal(triangle: Array) -> Array:
    """Return the diagonal of a packed triangle, shape (d,)."""
    return np.asarray(triangle[_starts(order_of(triangle))[:-1]])
