"""Mean and variance of each column, partition by partition, for the transform ``standardize``."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from distls.storage.errors import BadInputError
from distls.storage.rows import CsrRows, DenseRows, Rows
from distls.workers.compilation.jit import kernel
from distls.workers.ingestion.parsing.array_types import Array, Doubles, Ints

_BLOCK_BYTES = 2**20


@dataclass(frozen=True)
class Moments:
    """Sufficient statistics of the columns of some rows."""

    n_rows: int
    mean: Doubles  # shape (n_features,)
    squares: Doubles  # shape (n_features,); sum of squared distances from the mean


def moments_of(x: Rows, n_features: int) -> Moments:
    """Return the moments of rows, absent values counted as zeros."""
    return _of_sparse(x, n_features) if isinstance(x, CsrRows) else _of_dense(x)


def row_blocks(values: Array) -> Iterator[Array]:
    """Yield views of consecutive rows, small because they are copied to float64."""
    # float64 copies of a megabyte stay in the cache.
    step = max(1, _BLOCK_BYTES // (8 * max(values.shape[1], 1)))
    for start in range(0, len(values), step):
        yield values[start : start + step]


def columns_of(x: Rows, columns: Ints) -> Array:
    """Return some columns of rows, what is not stored as zeros, shape (n_rows, n_columns)."""
    if isinstance(x, DenseRows):
        return x.values[:, columns]
    # a table of all columns up to the last, in which most are none of these
    place = np.full(int(max(columns.max(initial=-1), x.indices.max(initial=0))) + 1, -1)
    place[columns] = np.arange(len(columns))
    values = np.zeros((len(x.indptr) - 1, len(columns)), x.data.dtype)
    found = place[x.indices]
    rows = np.repeat(np.arange(len(values)), np.diff(x.indptr))
    values[rows[found >= 0], found[found >= 0]] = x.data[found >= 0]
    return values


def _of_dense(x: DenseRows) -> Moments:
    n_rows, n_features = x.values.shape
    sums, squares = np.zeros(n_features), np.zeros(n_features)
    if not n_rows:
        return Moments(0, sums, squares)
    # distances from the first row: exact for a constant column, small for one far from zero
    shift = x.values[0].astype(np.float64)
    # Two passes: the sum of squares minus the squared mean would cancel.
    for block in row_blocks(x.values):
        sums += (block - shift).sum(axis=0)
    distance = sums / n_rows
    with np.errstate(over="ignore"):  # refused by scale_of
        for block in row_blocks(x.values):
            squares += np.square(block - shift - distance).sum(axis=0)
    return Moments(n_rows, shift + distance, squares)


def _of_sparse(x: CsrRows, n_features: int) -> Moments:
    n_rows = len(x.indptr) - 1
    sums, squares, counts = np.zeros(n_features), np.zeros(n_features), np.zeros(n_features, dtype=np.int64)
    add_columns(x.indices, x.data, sums, counts)
    # At least 1: an empty partition has means of zero.
    mean = sums / max(n_rows, 1)
    add_deviations(x.indices, x.data, mean, squares)
    # The zeros that are not stored are as far from the mean as the mean is large.
    squares += (n_rows - counts) * np.square(mean)
    return Moments(n_rows, mean, squares)


def merge_moments(a: Moments, b: Moments) -> Moments:
    """Return the moments of the rows of both (Chan, Golub and LeVeque 1979)."""
    # An empty side has no mean to weigh.
    if not a.n_rows or not b.n_rows:
        return a if a.n_rows else b
    n_rows = a.n_rows + b.n_rows
    distance = b.mean - a.mean
    squares = a.squares + b.squares + np.square(distance) * (a.n_rows * (b.n_rows / n_rows))
    return Moments(n_rows, a.mean + distance * (b.n_rows / n_rows), squares)


def scale_of(moments: Moments) -> Doubles:
    """Return the population standard deviation of each column, 1 if it is constant, shape (n_features,)."""
    n, eps = moments.n_rows, np.finfo(np.float64).eps
    # The population's variance, as scikit-learn's StandardScaler has it.
    variance = moments.squares / n
    if not np.isfinite(variance).all():  # squares that overflowed
        column = int(np.flatnonzero(~np.isfinite(variance))[0])
        raise BadInputError(f"standardize: the variance of column {column} is beyond float64; scale the data")
    # constant up to rounding, by the criterion of scikit-learn's StandardScaler
    constant = variance <= n * eps * variance + np.square(n * moments.mean * eps)
    return np.where(constant, 1.0, np.sqrt(variance))


@kernel
def add_columns(indices: Array, data: Array, sums: Doubles, counts: Ints) -> None:
    """Add each value to the sum of its column (shape (n_features,)) and 1 to its count."""
    for k in range(len(data)):
        column = indices[k]
        # float64, since a column may have millions of float32 values.
        sums[column] += np.float64(data[k])
        counts[column] += 1


@kernel
def add_deviations(indices: Array, data: Array, mean: Doubles, squares: Doubles) -> None:
    """Add the square of each value's distance from the mean of its column; shapes (n_features,)."""
    for k in range(len(data)):
        column = indices[k]
        # From the final mean: distances from a running one would depend on the order.
        distance = np.float64(data[k]) - mean[column]
        squares[column] += distance * distance
