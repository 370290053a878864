"""Kernels of the transposition."""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

from distls.workers.compilation.jit import kernel

__all__ = ["append_columns", "count_values", "scatter_rows", "transpose_rows"]

_TILE = 32  # rows and columns of a tile both stay in the first-level cache


@kernel
def count_values(indices, counts):
    """Add the values of each column to `counts` (n_features,), in place."""
    for p in range(len(indices)):
        counts[indices[p]] += 1


@kernel
def scatter_rows(indptr, indices, data, first, place, out_rows, out_data):
    """Scatter the values of rows first, first + 1, ... to their columns.

    `place` (n_features,), the position in `out_rows` and `out_data` of the next value of each column, is advanced.
    """
    for i in range(len(indptr) - 1):
        for p in range(indptr[i], indptr[i + 1]):
            at = place[indices[p]]
            out_rows[at] = first + i
            out_data[at] = data[p]
            place[indices[p]] = at + 1


@kernel
def append_columns(starts, rows, data, place, out_rows, out_data):
    """Append the values of a group of rows to their columns.

    `starts` (n_columns + 1,) bounds each column's values in `rows` and `data`, counted from starts[0]; `place`
    (n_columns,), the position of the next value of each column, is advanced.
    """
    for j in range(len(place)):
        at = place[j]
        begin = starts[j] - starts[0]
        n = starts[j + 1] - starts[j]
        out_rows[at : at + n] = rows[begin : begin + n]
        out_data[at : at + n] = data[begin : begin + n]
        place[j] = at + n


@kernel
def transpose_rows(values, out):
    """Write `values` (n_rows, n_columns) transposed into `out` (n_columns, n_rows), tile by tile."""
    n, d = values.shape
    for top in range(0, n, _TILE):
        for left in range(0, d, _TILE):
            for j in range(left, min(left + _TILE, d)):
                for i in range(top, min(top + _TILE, n)):
                    out[j, i] = values[i, j]
