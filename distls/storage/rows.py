"""In-memory blocks, the decoded form of partitions and column shards.

Rows and columns, sparse and dense, are NamedTuples of arrays, which numba accepts as arguments and dispatches on.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray


class CsrRows(NamedTuple):
    """Sparse rows: row i holds ``data[indptr[i]:indptr[i+1]]`` at columns ``indices[...]``."""

    indptr: NDArray[np.int64]  # shape (n_rows + 1,)
    # uint16 (n_features <= 65,536) or uint32 array of shape (nnz,), increasing within a row
    indices: NDArray[Any]
    data: NDArray[Any]  # float32 or float64 array of shape (nnz,), without explicit zeros


class DenseRows(NamedTuple):
    """Dense rows, C-ordered."""

    values: NDArray[Any]  # float32 or float64 array of shape (n_rows, n_features)


Rows = CsrRows | DenseRows


class Partition(NamedTuple):
    """One stored block of rows with its targets."""

    x: Rows
    # int32 class codes (n_rows,), float64 targets (n_rows, n_targets), a CsrRows of label codes (multi-label; data
    # all ones), or None (unlabelled)
    y: Any
    sample_weight: NDArray[np.float32] | None = None  # shape (n_rows,), or None (all ones)


class CscColumns(NamedTuple):
    """Sparse columns over all rows: column j holds ``data[indptr[j]:indptr[j+1]]`` in rows ``indices[...]``."""

    indptr: NDArray[np.int64]  # shape (n_columns + 1,)
    # uint16 (n_rows <= 65,536) or uint32 array of shape (nnz,), increasing within a column
    indices: NDArray[Any]
    data: NDArray[Any]  # float32 or float64 array of shape (nnz,), without explicit zeros


class DenseColumns(NamedTuple):
    """Dense columns over all rows, each contiguous."""

    values: NDArray[Any]  # float32 or float64 array of shape (n_columns, n_rows), C-ordered


Columns = CscColumns | DenseColumns


class ColumnShard(NamedTuple):
    """One stored block of columns."""

    first: int  # number of its first column among all features
    x: Columns

    @property
    def n_columns(self) -> int:
        """Columns of the shard: `first`, `first` + 1, ..."""
        return n_columns_of(self.x)


# Values of a row, on average, from which copies of whole rows are faster than one of values by their places.
_LONG_ROWS = 64


def index_dtype(n_features: int) -> np.dtype[Any]:
    """Return the smallest unsigned type that numbers `n_features` columns, or rows: uint16 or uint32."""
    return np.dtype(np.uint16 if n_features <= 65_536 else np.uint32)


def n_columns_of(x: Columns) -> int:
    """Return the number of columns of a block."""
    return len(x.indptr) - 1 if isinstance(x, CscColumns) else len(x.values)


def n_rows_of(x: Rows) -> int:
    """Return the number of rows of a block."""
    return len(x.indptr) - 1 if isinstance(x, CsrRows) else len(x.values)


def dense_of(x: Rows, n_features: int, dtype: Any = None) -> NDArray[Any]:
    """Copy rows into an array of shape (n_rows, n_features), of their own type unless told."""
    if isinstance(x, DenseRows):
        return x.values.astype(dtype or x.values.dtype)
    out = np.zeros((n_rows_of(x), n_features), dtype or x.data.dtype)
    # Assignment suffices, as each row has an index once.
    out[np.repeat(np.arange(len(out)), np.diff(x.indptr)), x.indices] = x.data
    return out


def take_rows(x: Any, order: NDArray[np.integer[Any]]) -> Any:
    """Copy the rows `order` (any subset, any order) of a block of features or of targets into a new one."""
    if not isinstance(x, CsrRows):
        return DenseRows(x.values[order]) if isinstance(x, DenseRows) else x[order]
    counts = np.diff(x.indptr)[order]
    indptr = np.zeros(len(order) + 1, dtype=np.int64)
    np.cumsum(counts, out=indptr[1:])
    if indptr[-1] > _LONG_ROWS * len(order):
        spans = [slice(a, b) for a, b in zip(x.indptr[order].tolist(), x.indptr[order + 1].tolist(), strict=True)]
        return CsrRows(indptr, *(np.concatenate([values[span] for span in spans]) for values in x[1:]))
    # position of every value: its row's start in the source plus its rank within the row
    source = np.repeat(x.indptr[:-1][order] - indptr[:-1], counts) + np.arange(indptr[-1])
    return CsrRows(indptr, x.indices[source], x.data[source])


def concatenate_rows(blocks: Sequence[Any]) -> Any:
    """Copy consecutive blocks of features, or of targets, of one layout into one."""
    if isinstance(blocks[0], DenseRows):
        return DenseRows(np.concatenate([block.values for block in blocks]))
    if not isinstance(blocks[0], CsrRows):
        return np.concatenate(blocks)
    lengths = np.concatenate([np.diff(x.indptr) for x in blocks])
    return CsrRows(
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64, copy=False),
        np.concatenate([x.indices for x in blocks]),
        np.concatenate([x.data for x in blocks]),
    )


def concatenate_partitions(parts: Sequence[Partition]) -> Partition:
    """Copy consecutive partitions of one kind into one."""
    # what the first has not, none has
    x, y, weight = (None if each[0] is None else concatenate_rows(each) for each in zip(*parts, strict=True))
    return Partition(cast(Rows, x), y, weight)
