"""Some columns of sparse rows, and rows of sparse columns."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, index_dtype
from distls.workers.compilation.jit import kernel

_FEW = 16  # columns for each value, where values are looked up one by one


def places_of(indices: NDArray[np.integer], columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of each index in `columns` (increasing), -1 for those that are not there."""
    found = np.searchsorted(columns, indices)
    return np.where(columns.take(found, mode="clip") == indices, found, -1) if len(columns) else found - 1


def columns_of_csr(x: CsrRows, columns: NDArray[np.int64]) -> CsrRows:
    """Return rows with the given columns only (increasing), numbered by their place in `columns`."""
    width, source = int(columns[-1]) + 1 if len(columns) else 0, x.indices
    # By counts alone, so that the choice is the same on every machine.
    if len(source) < min(width // _FEW, 2**16):
        # a few rows: a table of all columns would cost more than the rest; values stand for columns
        place = places_of(source, columns)
        source = np.arange(len(source), dtype=source.dtype)
    else:
        place = np.full(width, -1, np.int64)
        place[columns] = np.arange(len(columns))
    indptr = np.zeros(len(x.indptr), np.int64)
    # Two passes: counts first, so that the output is allocated once.
    _count(x.indptr, source, place, indptr)
    np.cumsum(indptr, out=indptr)
    indices = np.empty(indptr[-1], index_dtype(len(columns)))
    data = np.empty(indptr[-1], x.data.dtype)
    _select(x.indptr, source, x.data, place, indptr, indices, data)
    return CsrRows(indptr, indices, data)


@kernel
def _count(indptr, source, place, counts):
    for i in range(len(indptr) - 1):
        found = 0
        for p in range(indptr[i], indptr[i + 1]):
            # Columns beyond the table are not wanted.
            found += source[p] < len(place) and place[source[p]] >= 0
        counts[i + 1] = found


@kernel
def _select(indptr, source, values, place, out_indptr, indices, data):
    for i in range(len(indptr) - 1):
        q = out_indptr[i]
        for p in range(indptr[i], indptr[i + 1]):
            at = place[source[p]] if source[p] < len(place) else -1
            if at >= 0:
                indices[q] = at
                data[q] = values[p]
                q += 1


@kernel
def count_by_row(indices, shift, out):
    """Add to out[i + 1] the non-zeros of every 2^shift-th row i, from those of columns."""
    skipped = (1 << shift) - 1
    for p in range(len(indices)):
        i = np.intp(indices[p])
        if not i & skipped:
            out[(i >> shift) + 1] += 1


@kernel
def fill_by_row(indptr, indices, data, shift, places, to_indices, to_data):
    """Put the non-zeros of columns into these rows, whose next `places` are moved on."""
    skipped = (1 << shift) - 1
    for j in range(len(indptr) - 1):
        for p in range(np.uintp(indptr[j]), np.uintp(indptr[j + 1])):
            i = np.intp(indices[p])
            if not i & skipped:
                at = places[i >> shift]
                to_indices[at], to_data[at] = j, data[p]
                places[i >> shift] = at + 1
