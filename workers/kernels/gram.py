"""Products of sparse rows with themselves and with residuals, and float64 sums of float32 products."""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

from distls.workers.kernels._jit import kernel

__all__ = ["add_cross_csr", "add_gram_csr", "add_upper", "count_pairs"]


@kernel
def add_gram_csr(indptr, indices, data, weight, gram):
    """Add ``sum_i s_i x_i x_i^T`` to the upper triangle of `gram` (m, m); `weight` (n_rows,) or (0,) for ones.

    Columns increase within a row, so a value meets those after it only.
    """
    for i in range(len(indptr) - 1):
        s = weight[i] if len(weight) else 1.0
        end = indptr[i + 1]
        for p in range(indptr[i], end):
            row, value = gram[indices[p]], s * data[p]
            for q in range(p, end):
                row[indices[q]] += value * data[q]


@kernel
def count_pairs(indptr):
    """Return the products that `add_gram_csr` makes."""
    total = 0
    for i in range(len(indptr) - 1):
        n = indptr[i + 1] - indptr[i]
        total += n * (n + 1) // 2
    return total


@kernel
def add_cross_csr(indptr, indices, data, residual, cross):
    """Add ``sum_i x_i r_i^T`` to `cross` (m, k)."""
    for i in range(len(indptr) - 1):
        for p in range(indptr[i], indptr[i + 1]):
            a, value = indices[p], data[p]
            for c in range(residual.shape[1]):
                cross[a, c] += value * residual[i, c]


@kernel
def add_upper(product, gram):
    """Add the upper triangle of a float32 `product` (m, m) to that of `gram`."""
    for i in range(len(gram)):
        for j in range(i, len(gram)):
            gram[i, j] += product[i, j]
