"""Gradients and scores of a few columns, on the scores of all rows (`near_optimum_task.py`)."""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import numpy as np

from distls.workers.compilation.array_copy import copy_vector
from distls.workers.compilation.jit import elementwise
from distls.workers.coordinate_descent.descent_kernels import block_gradient
from distls.workers.linear_algebra.score_kernels import row_arrays, row_span
from distls.workers.simd.vectors import padded


@elementwise
def column_gradients(x, z, y, weight, loss, out):
    """Set row j of `out` (n_columns, k), float64, to the gradient of block j times sum_i s_i.

    The other parameters are as of `column_sweep`.
    """
    indices, data = row_arrays(x)
    # As wide as whole vectors: the kernels of a row read and write past k.
    k = out.shape[1]
    width = padded(k)
    g, own, scratch = np.zeros(width), np.zeros(k), np.zeros(k)
    for j in range(len(out)):
        start, stop = row_span(x, j, indices, data)
        out[j] = 0.0
        # An empty column keeps the zeros above.
        if start < stop:
            block_gradient(loss, indices, data, start, stop, z, y, weight, g, own, scratch)
            copy_vector(g, out[j])


@elementwise
def add_products(x, w, z):
    """Add ``sum_j x_ij w_j`` to the scores of all rows."""
    indices, data = row_arrays(x)
    for j in range(len(w)):
        start, stop = row_span(x, j, indices, data)
        for p in range(start, stop):
            # In the order of the columns: the same bits in every process.
            i, factor = np.intp(indices[p]), np.float64(data[p])
            for r in range(w.shape[1]):
                z[i, r] += factor * w[j, r]
