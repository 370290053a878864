"""Kernels of linear models on blocks of rows: scores, and the row helpers of all other kernels.

The same code serves CSR and dense rows: `row_arrays` and `row_span` give a row as (index, value) pairs, for dense
rows by gathering the non-zeros into a scratch row. Several classes are read in vectors (`row_vectors`).

Shapes: w (n_features, k) C-ordered, b (k,), y int32 (n_rows,), weight float64 (n_rows,) or (0,) for all ones.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from typing import Any

import numpy as np
from numba.core import errors
from numba.extending import overload
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, DenseRows, Rows
from distls.workers.compilation.jit import helper, kernel
from distls.workers.linear_algebra.row_vectors import row_add, row_dot
from distls.workers.simd.vectors import fused, gathered, like, load_as, splat_lanes, sum_of_lanes

Floats = NDArray[np.floating[Any]]

# Sums of products in which a score adds up; lanes of each of two vectors, where one would be AVX-512's longest.
_SUMS, _LANES = 8, 4


def row_arrays(rows):
    """Return (indices, data), once for a block: the CSR arrays, or scratch for one dense row."""


def row_span(rows, i, indices, data):
    """Return (start, stop) of row i in (indices, data); a dense row is gathered there first."""


def is_csr(rows: Any) -> bool:
    """Return whether a numba type of rows is `CsrRows`."""
    if rows.instance_class not in (CsrRows, DenseRows):
        raise errors.TypingError(f"rows are CsrRows or DenseRows, not {rows}")
    return rows.instance_class is CsrRows


@overload(row_arrays)
def _row_arrays(rows):
    def dense(rows):
        d = rows.values.shape[1]
        # Scratch of one row: dense rows are gathered without their zeros.
        return np.empty(d, np.uint32), np.empty(d, rows.values.dtype)

    return (lambda rows: (rows.indices, rows.data)) if is_csr(rows) else dense


@overload(row_span)
def _row_span(rows, i, indices, data):
    def dense(rows, i, indices, data):
        found = 0
        for j in range(rows.values.shape[1]):
            # written always, kept if not zero: no branch to mispredict
            indices[found] = j
            data[found] = rows.values[i, j]
            found += rows.values[i, j] != 0
        return 0, found

    return (lambda rows, i, indices, data: (rows.indptr[i], rows.indptr[i + 1])) if is_csr(rows) else dense


def column_of(rows, p):
    """Return the column of the non-zero at place p of `places`; of a dense row p itself."""


def value_of(rows, i, p):
    """Return the value of row i at place p."""


def places(rows, i):
    """Return (first, end) of row i's places, without gathering anything: for a dense row all columns."""
    # unsigned: numba lets signed indices count from the end, and LLVM then gathers what is contiguous


@overload(column_of, inline="always")
def _column_of(rows, p):
    return (lambda rows, p: np.intp(rows.indices[p])) if is_csr(rows) else (lambda rows, p: p)


@overload(value_of, inline="always")
def _value_of(rows, i, p):
    return (lambda rows, i, p: rows.data[p]) if is_csr(rows) else (lambda rows, i, p: rows.values[i, p])


@overload(places, inline="always")
def _places(rows, i):
    if is_csr(rows):
        return lambda rows, i: (np.uintp(rows.indptr[i]), np.uintp(rows.indptr[i + 1]))
    return lambda rows, i: (np.uintp(0), np.uintp(rows.values.shape[1]))


def single_score(rows, i, w):
    """Return the score of row i in the only output, w (n_features,); a dense row is read in place (kernels only)."""


@overload(single_score, inline="always")
def _single_score(rows, i, w):
    if is_csr(rows):
        return lambda rows, i, w: _dot_one(rows.indices, rows.data, rows.indptr[i], rows.indptr[i + 1], w)
    return lambda rows, i, w: _dense_dot(rows.values[i], w, 0, len(w), w.dtype.type(0.0))


@helper
def single_axpy(rows, i, step, w):
    """Add ``step * x_i`` to the weights of the only output, w (n_features,), likewise."""
    start, stop = places(rows, i)
    for p in range(start, stop):
        j = column_of(rows, p)
        w[j] = fused(step, w.dtype.type(value_of(rows, i, p)), w[j])


def square_norm(rows, i):
    """Square of the l2 norm of row `i`, float64: the square of a float32 value may underflow (kernels only)."""


@overload(square_norm, inline="always")
def _square_norm(rows, i):
    if is_csr(rows):
        return lambda rows, i: _dense_dot(rows.data, rows.data, rows.indptr[i], rows.indptr[i + 1], 0.0)
    return lambda rows, i: _dense_dot(rows.values[i], rows.values[i], 0, rows.values.shape[1], 0.0)


@helper
def _dense_dot(a, b, start, stop, zero):
    """Return the sum of products in the type of `zero`."""
    even, whole = splat_lanes(zero, _LANES), start + (stop - start) // _SUMS * _SUMS
    odd, last = even, zero
    for p in range(start, whole, _SUMS):
        q = p + _LANES
        even = fused(load_as(a, p, 0, even), load_as(b, p, 0, even), even)
        odd = fused(load_as(a, q, 0, odd), load_as(b, q, 0, odd), odd)
    if start < whole < stop:
        # The last ones again have numbers of those before, as zeros: a loop over the rest would wait at each.
        p, q, seen = stop - _SUMS, stop - _LANES, whole - stop + _SUMS
        even = fused(load_as(a, p, seen, even), load_as(b, p, seen, even), even)
        odd = fused(load_as(a, q, seen - _LANES, odd), load_as(b, q, seen - _LANES, odd), odd)
    else:
        for p in range(np.uintp(whole), np.uintp(stop)):  # unsigned: see `places`
            last = fused(like(zero, a[p]), like(zero, b[p]), last)
    return last + sum_of_lanes(even + odd)


@helper
def row_scores(indices, data, start, stop, w, z):
    """Set ``z = W^T x`` for the row (indices, data)[start:stop]: O(nnz k)."""
    if len(z) == 1:
        z[0] = _dot_one(indices, data, start, stop, w)
    else:
        row_dot(indices, data, start, stop, w, z)


@helper
def _dot_one(indices, data, start, stop, w):
    # Float32 scores are sums in float32: as exact as the weights are. Summed as in `_dense_dot`.
    last = w.dtype.type(0.0)
    sums, whole = splat_lanes(last, _SUMS), start + (stop - start) // _SUMS * _SUMS
    for p in range(start, whole, _SUMS):
        sums = fused(load_as(data, p, 0, sums), gathered(w, indices, p, sums), sums)
    if start < whole < stop:
        p, seen = stop - _SUMS, whole - stop + _SUMS
        sums = fused(load_as(data, p, seen, sums), gathered(w, indices, p, sums), sums)
    else:
        for p in range(np.uintp(whole), np.uintp(stop)):
            last = fused(w.dtype.type(data[p]), _only(w, np.intp(indices[p])), last)
    return last + sum_of_lanes(sums)


def _only(w, j):
    """Return the only weight of feature j."""


@overload(_only, inline="always")
def _only_overload(w, j):
    return (lambda w, j: w[j]) if w.ndim == 1 else (lambda w, j: w[j, 0])


@helper
def row_axpy(indices, data, start, stop, factor, g, w):
    """Add ``factor * x (x) g`` to w; g (k,) has the type of w."""
    if len(g) == 1:
        # One output: a single product a row, no vectors.
        step = w.dtype.type(factor) * g[0]
        for p in range(np.uintp(start), np.uintp(stop)):
            j = np.intp(indices[p])
            w[j, 0] = fused(step, w.dtype.type(data[p]), w[j, 0])
    else:
        row_add(indices, data, start, stop, w, g, w.dtype.type(factor))


@helper
def row_axpy_pair(indices, data, start, stop, factor, up, down, w):
    """Add ``factor * x`` to column `up` of w and take it from column `down`: O(2 nnz)."""
    factor = w.dtype.type(factor)
    for p in range(start, stop):
        j = np.intp(indices[p])
        # One product for both columns, so that they stay each other's negative.
        change = factor * w.dtype.type(data[p])
        w[j, up] += change
        w[j, down] -= change


@helper
def check_widths(w, b):
    """Refuse weights of another width than the k classes of b."""
    if w.shape[1] != len(b):  # kernels would write out of bounds
        raise ValueError("the weights and the intercept have different numbers of classes")


@helper
def row_weight(weight, i):
    """Return s_i; an empty array stands for ones."""
    return weight[i] if len(weight) else 1.0


# ---------------------------------------------------------------- whole blocks


@kernel
def _scores(rows, w, b, out, start):
    # Scratch once a block.
    indices, data = row_arrays(rows)
    for i in range(len(out)):
        first, last = row_span(rows, start + i, indices, data)
        z = out[i]
        row_scores(indices, data, first, last, w, z)
        for c in range(len(b)):
            z[c] += b[c]


def scores(rows: Rows, w: Floats, b: Floats, out: Floats, start: int = 0) -> Floats:
    """Fill ``out[i] = W^T x_(start + i) + b`` for the rows that `out` (m, k) has room for; return it."""
    if not (out.shape[1] == w.shape[1] == len(b)) or out.dtype != w.dtype:
        raise ValueError(f"w {w.shape} {w.dtype}, b {b.shape} and out {out.shape} {out.dtype} do not fit")
    n = len(rows.indptr) - 1 if isinstance(rows, CsrRows) else len(rows.values)
    if start < 0 or start + len(out) > n:
        # Checked here, where an exception can be raised: the kernel would read out of bounds.
        raise ValueError(f"rows {start} to {start + len(out)} of a block of {n}")
    _scores(rows, w, b, out, start)
    return out
