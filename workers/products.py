"""Products of a block of rows with itself, with residuals and with weights: BLAS for dense rows, kernels for sparse.

All sums are float64; a dense block's product is made in the block's own type first. Call them with BLAS limited to
one thread (`distls.workers.process.single_threaded_blas`): with two its last bits may differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from distls.storage.rows import DenseRows, Rows
from distls.workers.kernels.gram import add_cross_csr, add_gram_csr
from distls.workers.kernels.linear import scores

__all__ = ["add_cross", "add_gram", "add_scores", "column_sums"]


def add_gram(block: Rows, weight: NDArray[np.float64] | None, gram: NDArray[np.float64]) -> None:
    """Add ``sum_i s_i x_i x_i^T`` to `gram`, its upper triangle only.

    Parameters
    ----------
    weight : float64 array of shape (n_rows,) or None (all ones)
    gram : float64 array of shape (m, m), C-ordered
    """
    if not isinstance(block, DenseRows):
        add_gram_csr(block.indptr, block.indices, block.data, np.empty(0) if weight is None else weight, gram)
        return
    values = (
        block.values if weight is None else block.values * np.sqrt(weight)[:, None].astype(block.values.dtype)
    )
    syrk = blas.ssyrk if values.dtype == np.float32 else blas.dsyrk
    # in Fortran's eyes C-ordered rows are columns; its lower triangle is C's upper one
    gram += syrk(1.0, values.T, lower=1).T


def add_cross(block: Rows, residual: NDArray[Any], cross: NDArray[np.float64]) -> None:
    """Add ``sum_i x_i r_i^T`` to `cross` (m, k); residuals (n_rows, k) carry the row weights already."""
    if isinstance(block, DenseRows):
        cross += block.values.T @ residual.astype(block.values.dtype, copy=False)
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
        ones = np.ones(len(block.values)) if weight is None else weight
        return ones @ block.values
    per_value = block.data.astype(np.float64)
    if weight is not None:
        per_value *= np.repeat(weight, np.diff(block.indptr))
    return np.asarray(np.bincount(block.indices, per_value, n_columns), np.float64)
