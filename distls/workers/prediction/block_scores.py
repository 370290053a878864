"""Scores of rows from weights that are stored by blocks of classes: one block in memory at a time.

The rows of a batch are sorted by column once; a class then adds up its own few weights, each times the values of one
column: what is zero in rows or weights costs nothing.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.model.sparse_blocks import ClassBlock, ClassBlocks
from distls.storage.rows import CsrRows, Rows, n_rows_of
from distls.workers.compilation.jit import kernel
from distls.workers.losses.targets import slice_rows

# Bytes of the scores of a batch: every batch reads all blocks, so it should have many rows.
_BATCH_BYTES = 64 * 2**20
# Features of which a table fits well into memory; of more, those of the batch are looked up.
_LARGEST_TABLE = 2**25


class _Columns(NamedTuple):
    """A batch of rows, column after column."""

    features: NDArray[np.int64] | None  # which columns these are, increasing; None: all, by their numbers
    starts: NDArray[np.int64]  # (n_columns + 1,)
    rows: NDArray[np.int32]  # (nnz,)
    values: NDArray[Any]  # (nnz,)


def block_score_pieces(
    x: Rows, weights: ClassBlocks, intercept: NDArray[np.float64]
) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield (rows, their scores of shape (n, k)) for consecutive batches of rows."""
    n_rows, k = n_rows_of(x), weights.shape[1]
    step = max(1, _BATCH_BYTES // max(k * weights.itemsize, 1))
    for first in range(0, n_rows, step):
        rows = slice(first, min(first + step, n_rows))
        columns = _by_column(slice_rows(x, rows), weights.shape[0])
        out = np.empty((rows.stop - rows.start, k), weights.dtype)
        out[:] = intercept.astype(weights.dtype)
        for block in weights.read():
            _add(block, columns, out)
        yield rows, out


def _by_column(x: Rows, n_features: int) -> _Columns:
    if isinstance(x, CsrRows):
        rows = np.repeat(np.arange(len(x.indptr) - 1, dtype=np.int32), np.diff(x.indptr))
        indices, values = x.indices.astype(np.int64), x.data
    else:
        found, indices = np.nonzero(x.values)
        rows, values = found.astype(np.int32), x.values[found, indices]
    features = None
    if n_features > _LARGEST_TABLE:
        features, indices = np.unique(indices, return_inverse=True)
    counts = np.bincount(indices, minlength=n_features if features is None else len(features))
    order = np.argsort(indices, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return _Columns(features, starts, rows[order], values[order])


def _add(block: ClassBlock, columns: _Columns, out: NDArray[Any]) -> None:
    """Add the scores of a block's classes."""
    indptr, indices, values = block.indptr, block.indices.astype(np.int64), block.values
    if columns.features is not None:
        places = np.searchsorted(columns.features, indices)
        found = places < len(columns.features)
        found[found] = columns.features[places[found]] == indices[found]
        counts = np.concatenate([[0], np.cumsum(found)])
        indptr, indices, values = counts[indptr], places[found], values[found]
    _add_scores(indptr, indices, values, columns.starts, columns.rows, columns.values, block.first, out)


@kernel
def _add_scores(indptr, indices, values, starts, rows, x, first, out):
    """Add ``sum_j x_ij w_jc`` to ``out[i, first + c]`` for all rows i of the batch and all classes c of the block."""
    n_rows, kind = len(out), out.dtype.type
    total = np.empty(n_rows, out.dtype)
    for c in range(len(indptr) - 1):
        total[:] = kind(0.0)
        for p in range(indptr[c], indptr[c + 1]):
            w = values[p]
            for q in range(starts[indices[p]], starts[indices[p] + 1]):
                total[rows[q]] += w * kind(x[q])
        for i in range(n_rows):
            out[i, first + c] += total[i]
