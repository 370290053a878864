"""The Gram of a working set, which is kept for the next one: the columns of these are for the most part the same.

At the next strength of a path, in the next round and at the next step of Newton's method the second derivatives of a
quadratic loss are what they were, and only the products of new columns are missing. A product is a function of its two
columns, to the last bit, so that no result depends on what is known (docs/decisions/0037).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, DenseRows, Rows
from distls.workers.coordinate_descent.all_rows import THREADS, in_threads
from distls.workers.coordinate_descent.working_set_kernels import (
    add_gram,
    complete_gram,
    copy_products,
    count_pairs,
    gram_products,
)
from distls.workers.linear_algebra.column_selection import count_by_row, fill_by_row
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.runtime.buffers import job_memory

Single = NDArray[np.float32]

_TOGETHER = 256  # new columns whose products with all others are computed by one call


class _Kept(NamedTuple):
    """A Gram and what it is of: the data, second derivatives (n_rows, parts), and numbers of columns, increasing."""

    data: DatasetRef
    h: Single
    numbers: NDArray[np.int64]
    gram: Single


def gram_of(
    rows: CsrRows | DenseRows, h: Single, numbers: NDArray[np.int64], data: DatasetRef, most_bytes: int
) -> Single:
    """Return the Gram of columns (m, parts, m), which nobody may change if it is kept.

    Parameters
    ----------
    rows : CsrRows or DenseRows
        Sparse columns row by row of X, dense ones as rows of X^T.
    h : float32 (n_rows, parts)
    numbers : int64 (m,)
        Which columns these are, increasing.
    data : DatasetRef
    most_bytes : int
        Of the Gram and the one before it together; 0 if none is to be kept.
    """
    if isinstance(rows, CsrRows):
        return _of_sparse(rows, h, len(numbers))
    own, n_bytes = data.whole.uncached(), 4 * h.shape[1] * len(numbers) ** 2
    # What is not kept may be changed by who asked for it.
    kept: _Kept | None = job_memory.get("gram") if most_bytes else None
    if kept is not None and not (kept.data == own and np.array_equal(kept.h, h)):
        kept = None
    if kept is not None and np.array_equal(kept.numbers, numbers):
        return kept.gram
    if kept is None or kept.gram.nbytes + n_bytes > most_bytes:
        # Released before the new one is made.
        kept = None
        job_memory.pop("gram", None)
    gram = _of_dense(rows.values, h, numbers, kept)
    if 2 * n_bytes <= most_bytes and not data.one_row:
        job_memory["gram"] = _Kept(own, h.copy(), numbers, gram)
    return gram


def _of_dense(x: NDArray[np.floating], h: Single, numbers: NDArray[np.int64], kept: _Kept | None) -> Single:
    """Return the Gram of dense columns, rows of X^T; products that are kept are copied."""
    m, parts = len(numbers), h.shape[1]
    gram, is_new = np.empty((m, parts, m), np.float32), np.ones(m, bool)
    if kept is not None:
        _, old, places = np.intersect1d(numbers, kept.numbers, assume_unique=True, return_indices=True)
        is_new[old] = False
        copy_products(kept.gram, places, gram, old)
    # New columns first: each is multiplied with those after it.
    order = np.concatenate([np.flatnonzero(is_new), np.flatnonzero(~is_new)])
    for part in range(parts):
        # The root on both sides, so that products are symmetric; those of a part have one sign.
        root, n = np.sqrt(np.abs(h[:, part])), x.shape[1]
        scaled = np.zeros((-(-m // 4) * 4, -(-n // 8) * 8), np.float32)
        for place, column in enumerate(order.tolist()):
            np.multiply(x[column], root, out=scaled[place, :n], casting="same_kind")
        sign = np.float32(-1.0 if (h[:, part] < 0.0).any() else 1.0)
        _multiply(scaled, order, int(is_new.sum()), sign, gram[:, part])
    return gram


def _multiply(scaled: Single, order: NDArray[np.int64], new: int, sign: np.float32, gram: Single) -> None:
    """Fill a part of the Gram by the products of the first `new` columns, whose places are `order`, with all."""

    def fill(first: int) -> None:
        stop = min(new, first + _TOGETHER)
        left, right = scaled[first : first + -(-(stop - first) // 4) * 4], scaled[first:]
        out = np.empty((len(left), len(right)), np.float32)
        gram_products(left, right, out)
        rows, columns = order[first:stop], order[first:]
        out = sign * out[: len(rows), : len(columns)]
        gram[rows[:, None], columns] = out
        gram[columns[:, None], rows] = out.T

    in_threads(fill, range(0, new, _TOGETHER))


def _of_sparse(rows: CsrRows, h: Single, m: int) -> Single:
    """Return the Gram of sparse columns."""
    parts = h.shape[1]
    gram, work = np.zeros((m, m, parts), np.float32), np.zeros(m, np.int64)
    count_pairs(rows.indptr, rows.indices, work)
    # Each thread has columns of its own, so that no sum depends on their number.
    cuts = np.searchsorted(np.cumsum(work), work.sum() * np.arange(1, THREADS) // THREADS).tolist()
    spans = list(zip([0, *cuts], [*cuts, m], strict=True))
    in_threads(lambda span: add_gram(*rows, h, gram, *span), spans)
    complete_gram(gram, np.empty(m * parts if parts > 1 else 0, np.float32))
    return gram.reshape(m, parts, m)


def rows_of(x: Rows, n_rows: int, shift: int, *, ones: bool) -> Rows:
    """Return every 2^shift-th row of columns, row by row of X, with one of ones as the last; dense ones as columns."""
    if isinstance(x, DenseRows):
        values = x.values[:, :: 1 << shift]
        return DenseRows(np.concatenate([values, np.ones((1, n_rows), values.dtype)]) if ones else values)
    indptr = np.zeros(n_rows + 1, np.int64)
    count_by_row(x.indices, shift, indptr)
    indptr = np.cumsum(indptr) + ones * np.arange(n_rows + 1)
    indices, data = np.full(indptr[-1], len(x.indptr) - 1, np.uint32), np.ones(indptr[-1], x.data.dtype)
    fill_by_row(x.indptr, x.indices, x.data, shift, indptr[:-1].copy(), indices, data)
    return CsrRows(indptr, indices, data)
