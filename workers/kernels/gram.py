"""Products of sparse rows with themselves and with residuals."""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

from distls.workers.kernels._jit import kernel

__all__ = ["add_cross_csr", "add_gram_csr"]


@kernel
def add_gram_csr(indptr, indices, data, weight, gram):
    """Add ``sum_i s_i x_i x_i^T`` to the upper triangle of `gram` (m, m); `weight` (n_rows,) or (0,) for ones."""
    for i in range(len(indptr) - 1):
        s = weight[i] if len(weight) else 1.0
        for p in range(indptr[i], indptr[i + 1]):
            a, value = indices[p], s * data[p]
            for q in range(indptr[i], indptr[i + 1]):
                b = indices[q]
                if b >= a:
                    gram[a, b] += value * data[q]


@kernel
def add_cross_csr(indptr, indices, data, residual, cross):
    """Add ``sum_i x_i r_i^T`` to `cross` (m, k)."""
    for i in range(len(indptr) - 1):
        for p in range(indptr[i], indptr[i + 1]):
            a, value = indices[p], data[p]
            for c in range(residual.shape[1]):
                cross[a, c] += value * residual[i, c]
