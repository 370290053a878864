"""Transforms of mixed tables: missing values, ranges of columns with documents, and numbers centred in sparse rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, DenseRows, Rows, index_dtype
from distls.workers.ingestion.parsing.array_types import Doubles, Ints

Ranges = Sequence[Sequence[int]]  # first column and last + 1


def impute(x: Rows, step: Mapping[str, Any], fitted: Mapping[str, NDArray[Any]], where: str) -> Rows:
    """Fill in missing values, and add a feature for each column of ``indicators``: 1 where it lacks one."""
    fill, marked = fitted["fill"], np.array(step["indicators"], dtype=np.int64)
    width = step["columns"]
    # indicators come last, so that the columns of the source keep their numbers
    if isinstance(x, DenseRows):
        gaps = np.isnan(x.values)
        filled = np.where(gaps, fill[:width], x.values).astype(x.values.dtype)
        return DenseRows(np.hstack([filled, gaps[:, marked].astype(x.values.dtype)]))
    return _imputed_sparse(x, step, fill, marked)


def _imputed_sparse(x: CsrRows, step: Mapping[str, Any], fill: Doubles, marked: Ints) -> CsrRows:
    n_rows, width = len(x.indptr) - 1, step["columns"]
    indices = x.indices.astype(index_dtype(width + len(marked)))
    for category, other in step.get("moved", ()):  # within its column, so that the order stays
        indices[indices == category] = other
    # NaN is stored as any number that is not zero, so that nothing else has to be looked up
    gaps = np.isnan(x.data)
    data = np.where(gaps, fill[indices], x.data).astype(x.data.dtype)
    rows = np.repeat(np.arange(n_rows), np.diff(x.indptr))
    place = np.full(width + 1, -1)
    place[marked] = np.arange(len(marked))
    own = gaps & (place[indices] >= 0)
    # behind the row's others, as their numbers are larger than all of these
    # what was filled in with zero is not stored
    kept = np.flatnonzero(data != 0.0)
    added = rows[own]
    counts = np.bincount(rows[kept], minlength=n_rows) + np.bincount(added, minlength=n_rows)
    order = np.argsort(np.concatenate([rows[kept], added]), kind="stable")
    indices = np.concatenate([indices[kept], (width + place[indices[own]]).astype(indices.dtype)])[order]
    data = np.concatenate([data[kept], np.ones(len(added), data.dtype)])[order]
    return CsrRows(np.concatenate([[0], np.cumsum(counts)]), indices, data)


# -- columns of documents --------------------------------------------------------------------------------


def normalise_ranges(x: Rows, ranges: Ranges) -> None:
    """Divide the values of each row by their Euclidean norm, in place, those of each range by their own."""
    for first, stop in ranges:
        if isinstance(x, DenseRows):
            part = x.values[:, first:stop]
            norms = np.sqrt(np.square(part, dtype=np.float64).sum(axis=1))
            part /= np.where(norms == 0.0, 1.0, norms)[:, None].astype(part.dtype)
            continue
        # without a kernel: partitions have few ranges, and numpy takes a small part of the time of hashing
        own = (x.indices >= first) & (x.indices < stop)
        rows = np.repeat(np.arange(len(x.indptr) - 1), np.diff(x.indptr))[own]
        # summed in the order of the columns, so that a row alone has the same bits
        squares = np.bincount(rows, np.square(x.data[own], dtype=np.float64), len(x.indptr) - 1)
        x.data[own] = (x.data[own] / np.sqrt(squares)[rows]).astype(x.data.dtype)


def in_ranges(x: Rows, ranges: Ranges) -> Any:
    """Return where the values of rows are in some range: a mask of those stored, or of columns."""
    columns = x.indices if isinstance(x, CsrRows) else np.arange(x.values.shape[1])
    found = np.zeros(len(columns), dtype=bool)
    for first, stop in ranges:
        found |= (columns >= first) & (columns < stop)
    return found if isinstance(x, CsrRows) else (slice(None), found)


# -- numbers beside sparse columns -----------------------------------------------------------------------


def centre_leading(x: CsrRows, width: int, mean: Doubles, std: Doubles) -> CsrRows:
    """Return rows whose first `width` columns are centred and divided by their deviations; zeros are not stored."""
    n_rows = len(x.indptr) - 1
    rows, own = np.repeat(np.arange(n_rows), np.diff(x.indptr)), x.indices < width
    # what is not stored is zero, which is as far from the mean as the mean is large
    values = np.zeros((n_rows, width))
    values[rows[own], x.indices[own]] = x.data[own]
    values = ((values - mean[:width]) / std[:width]).astype(x.data.dtype)
    # each row: its numbers, then what it had behind them, which is in order
    leading = np.bincount(rows[own], minlength=n_rows)
    starts = np.asarray(x.indptr[:-1]) - np.cumsum(leading) + leading + width * np.arange(n_rows)
    shift = starts + width - x.indptr[:-1] - leading
    indices = np.empty(n_rows * width + int((~own).sum()), x.indices.dtype)
    data = np.empty(len(indices), x.data.dtype)
    places = (starts[:, None] + np.arange(width)).reshape(-1)
    indices[places], data[places] = np.tile(np.arange(width), n_rows), values.reshape(-1)
    others = np.flatnonzero(~own) + shift[rows[~own]]
    indices[others], data[others] = x.indices[~own], x.data[~own]
    ends = np.concatenate([starts, [len(data)]])
    # a value that is the mean
    kept = data != 0.0
    before = np.concatenate([[0], np.cumsum(kept)])
    return CsrRows(before[ends], indices[kept], data[kept])
