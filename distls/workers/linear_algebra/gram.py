"""Products of a block of rows with itself, with residuals and with weights: BLAS for dense rows, kernels for sparse.

All sums are float64, Gram matrices packed (`distls.workers.linear_algebra.packed_triangle`); a
dense block's product is made in its own type first. Call them with BLAS limited to one thread
(`distls.workers.runtime.process.single_threaded_blas`): with two its last bits may differ.
"""

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from distls.storage.dataset.chunks import BufferPool
from distls.storage.rows import CsrRows, DenseRows, Rows, n_rows_of
from distls.workers.linear_algebra.gram_kernels import add_cross_csr, add_gram_csr, add_upper, count_pairs, fill_dense
from distls.workers.linear_algebra.packed_triangle import order_of, packed_size
from distls.workers.linear_algebra.score_kernels import scores
from distls.workers.runtime.buffers import take

# Rows whose float32 products are summed in float32, and then in float64: part of the promise of equal bits.
_FLUSH_ROWS = 4096
# Cost of a product of two non-zeros of a sparse row, relative to one of a dense row, where the Gram matrix fits in a
# core's own cache and where it does not (benchmarks/speed/gram.py). The choice is by counts: the same on every machine.
_PAIR_COST = (160, 350)
_CACHE_BYTES = 2**21
# Rows that are made dense at a time, and rows that are converted to float64.
_DENSE_ROWS, _EXACT_ROWS = 512, 1024


class GramSum:
    """Accumulates a Gram matrix, and products with a few other columns such as residuals, until `flush` packs them.

    Parameters
    ----------
    gram : float64 array of shape (m * (m + 1) / 2,)
        Packed, added to; complete only after `flush`.
    width : int, optional
        Columns of the blocks, the first ones of the matrix; m by default.
    n_extra : int
        Other columns.
    dtype : dtype, optional
        Type of products of sparse rows that are made dense; the rows' own by default.
    space : (BufferPool, str), optional
        Pool of the dense square, and its name there.

    Attributes
    ----------
    extra : float64 array of shape (width, n_extra)
        Products of the blocks with the other columns; complete only after `flush`.
    """

    def __init__(
        self,
        gram: NDArray[np.float64],
        width: int | None = None,
        n_extra: int = 0,
        dtype: np.dtype[Any] | None = None,
        space: tuple[BufferPool, str] | None = None,
    ) -> None:
        self._gram, self._order, self._dtype = gram, order_of(gram), dtype
        self._space = space or (BufferPool(), "")
        self._width = self._order if width is None else width
        # float64, whatever the type of the rows: sums over many batches.
        self.extra = np.zeros((self._width, n_extra))
        # packing a product of few rows costs as much as computing it: dense products are summed here first
        self._product: NDArray[Any] = np.empty((0, 0), np.float32)
        self._rows = 0

    def add(self, block: Rows, weight: NDArray[np.float64] | None = None) -> None:
        """Add ``sum_i s_i x_i x_i^T``; `weight` is float64 (n_rows,), or None for all ones."""
        if isinstance(block, DenseRows):
            self._add_dense(block.values, weight)
        elif _few_pairs(block, self._width):
            s = np.empty(0) if weight is None else weight
            add_gram_csr(block.indptr, block.indices, block.data, s, self._order, self._gram)
        else:
            self._add_filled(block, weight)

    def add_padded(self, values: NDArray[Any], right: NDArray[np.float64], s: NDArray[np.float64]) -> None:
        """Add the products of a dense block with itself and with other columns in one call of BLAS.

        Values (n_rows, width + n_extra) are the block's columns, and padding, both overwritten; `right` float64
        (n_rows, n_extra) the other columns, times the weights; s, float64 (n_rows,) or (0,), the weights.
        """
        values[:, self._width :] = right
        # each factor of the products gets the root of the weight, which `right` already has in full
        if len(s):
            # Roots of weights on both sides keep the product symmetric.
            roots = np.sqrt(s)[:, None].astype(values.dtype)
            values[:, : self._width] *= roots
            # `right` carries the whole weight, so one root is taken out again.
            values[:, self._width :] /= np.where(roots > 0.0, roots, 1.0)
        self._add_dense(values, None)

    def flush(self) -> None:
        """Add the pending products to the packed matrix and to `extra`."""
        if self._rows:
            product = self._product[: self._width]
            add_upper(product[:, : self._width], 0, self._order, self._gram)
            if product.shape[1] > self._width:
                self.extra += product[:, self._width :]
        self._rows = 0

    def _add_dense(self, values: NDArray[Any], weight: NDArray[np.float64] | None) -> None:
        if weight is not None:
            values = values * np.sqrt(weight)[:, None].astype(values.dtype)
        # Allocated at the first dense block: sparse fits never need the square.
        if not self._product.size:
            self._product = take(*self._space, (values.shape[1],) * 2, values.dtype)
        # C-ordered rows are columns for Fortran, and its lower triangle is C's upper one
        blas = scipy.linalg.blas
        syrk = blas.ssyrk if values.dtype == np.float32 else blas.dsyrk
        # Half of the work of a full product, and exactly symmetric by construction.
        syrk(1.0, values.T, beta=float(self._rows > 0), c=self._product.T, overwrite_c=1, lower=1)
        self._rows += len(values)
        # float32 sums of more rows would lose digits; the number of rows is fixed, and so are the bits.
        if self._rows >= _FLUSH_ROWS and values.dtype == np.float32:
            self.flush()

    def _add_filled(self, block: CsrRows, weight: NDArray[np.float64] | None) -> None:
        n_rows = n_rows_of(block)
        values = np.empty((min(n_rows, _DENSE_ROWS), self._width), self._dtype or block.data.dtype)
        for first in range(0, n_rows, _DENSE_ROWS):
            batch = values[: n_rows - first]
            fill_dense(block.indptr, block.indices, block.data, first, batch)
            self._add_dense(batch, None if weight is None else weight[first : first + _DENSE_ROWS])


def _few_pairs(block: CsrRows, m: int) -> bool:
    """Return whether the products of a block's non-zeros cost less than those of its rows made dense."""
    # The threshold differs where the packed matrix no longer fits into a core's cache.
    cost = _PAIR_COST[8 * packed_size(m) > _CACHE_BYTES]
    return bool(count_pairs(block.indptr) * cost < n_rows_of(block) * m * m)


def gram_work_bytes(m: int, dtype: np.dtype[Any]) -> int:
    """Return the bytes that a `GramSum` of m columns holds in addition to the Gram matrix and a block."""
    # rows that are made dense, or weighted
    return dtype.itemsize * (m * m + 2 * _DENSE_ROWS * m)


def add_cross(block: Rows, residual: NDArray[Any], cross: NDArray[np.float64], n_first: int | None = None) -> None:
    """Add ``sum_i x_i r_i^T`` to `cross` (m, k); residuals (n_rows, k) carry the row weights already.

    The first `n_first` columns get the same bits as without the others: BLAS may round a column by how many are
    beside it.
    """
    if isinstance(block, DenseRows):
        # Two products: BLAS may choose other kernels, and so other last bits, by the number of columns.
        for columns in [slice(None)] if n_first is None else [slice(n_first), slice(n_first, None)]:
            right = np.ascontiguousarray(residual[:, columns], block.values.dtype)
            cross[:, columns] += block.values.T @ right
    else:
        add_cross_csr(block.indptr, block.indices, block.data, residual, cross)


def add_scores(block: Rows, weights: NDArray[Any], out: NDArray[Any]) -> None:
    """Add ``x_i @ weights`` to each row of `out` (n_rows, k), all of one type."""
    if isinstance(block, DenseRows):
        out += block.values.astype(weights.dtype, copy=False) @ weights
    else:
        out += scores(block, weights, np.zeros(weights.shape[1]), np.empty_like(out))


def column_sums(block: Rows, weight: NDArray[np.float64] | None, n_columns: int) -> NDArray[np.float64]:
    """Return ``sum_i s_i x_i``, shape (n_columns,)."""
    if isinstance(block, DenseRows):
        dtype = block.values.dtype
        ones = np.ones(len(block.values), dtype) if weight is None else weight.astype(dtype)
        return np.asarray(ones @ block.values, np.float64)
    # bincount adds in float64 in the order of the values.
    per_value = block.data.astype(np.float64)
    if weight is not None:
        per_value *= np.repeat(weight, np.diff(block.indptr))
    return np.asarray(np.bincount(block.indices, per_value, n_columns), np.float64)


def weighted_square(block: Rows, weight: NDArray[np.float64]) -> float:
    """Return ``sum_i s_i |x_i|^2``, in float64."""
    if isinstance(block, DenseRows):
        return float(weight @ np.einsum("ij,ij->i", block.values, block.values, dtype=np.float64))
    return float(np.square(block.data, dtype=np.float64) @ np.repeat(weight, np.diff(block.indptr)))


def exact_column_sums(block: Rows, weight: NDArray[np.float64] | None, n_columns: int) -> NDArray[np.float64]:
    """Return the same with dense rows in float64 from the start, some at a time so that the copies stay small."""
    if not isinstance(block, DenseRows):
        return column_sums(block, weight, n_columns)
    total = np.zeros(n_columns)
    # In pieces of fixed size: the sums do not depend on the memory at hand.
    for start in range(0, len(block.values), _EXACT_ROWS):
        rows = slice(start, start + _EXACT_ROWS)
        values = DenseRows(block.values[rows].astype(np.float64))
        total += column_sums(values, None if weight is None else weight[rows], n_columns)
    return total
