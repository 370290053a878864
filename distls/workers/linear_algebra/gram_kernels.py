"""Products of sparse rows with themselves and with residuals, and sums of blocks of a packed triangle.

The upper triangle of a matrix of order m is kept row by row: (a, b) is at ``a m - a (a + 1) / 2 + b``.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import numpy as np

from distls.workers.compilation.jit import kernel


@kernel
def add_gram_csr(indptr, indices, data, weight, m, gram):
    """Add ``sum_i s_i x_i x_i^T`` to `gram`, packed, of order m; `weight` (n_rows,) or (0,) for ones."""
    for i in range(len(indptr) - 1):
        s = weight[i] if len(weight) else 1.0
        end = indptr[i + 1]
        for p in range(indptr[i], end):
            a = np.int64(indices[p])
            # A view that starts at the diagonal, so that the inner loop adds no offsets.
            row, value = gram[a * m - a * (a + 1) // 2 + a :], s * data[p]
            for q in range(p, end):  # columns increase within a row: these are the upper triangle
                row[indices[q] - a] += value * data[q]


@kernel
def count_pairs(indptr):
    """Return the number of products in `add_gram_csr`."""
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
            # Contiguous in the outputs.
            for c in range(residual.shape[1]):
                cross[a, c] += value * residual[i, c]


@kernel
def add_upper(block, first, m, gram):
    """Add the upper triangle of a block of columns from `first` on, and rows from 0 on, to `gram`, packed, of order m.

    The block has shape (rows, columns), rows <= first + columns.
    """
    for i in range(block.shape[0]):
        # Below the diagonal nothing is stored.
        skipped = max(i - first, 0)
        start = i * m - i * (i + 1) // 2 + first + skipped
        row, own = gram[start : start + block.shape[1] - skipped], block[i, skipped:]
        for j in range(len(own)):
            row[j] += own[j]


@kernel
def fill_dense(indptr, indices, data, first, out):
    """Set `out` (n, n_features) to the sparse rows from `first` on."""
    out[:] = 0
    for i in range(out.shape[0]):
        for p in range(indptr[first + i], indptr[first + i + 1]):
            out[i, indices[p]] = data[p]
