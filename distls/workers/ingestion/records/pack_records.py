"""Convert blocks of an array source to batches of row records, and check them."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from distls.storage.dataset.row_origins import pack_ids
from distls.storage.errors import BadInputError
from distls.storage.rows import CsrRows, DenseRows, Rows, index_dtype
from distls.workers.ingestion.parsing import rounding_kernels
from distls.workers.ingestion.parsing.array_types import Array, Bools, Doubles, Ints, UInts
from distls.workers.ingestion.parsing.record_kernels import pack_pairs
from distls.workers.ingestion.records.labels import label_fault, value_labels, whole_labels
from distls.workers.ingestion.records.messages import NO_LABEL
from distls.workers.ingestion.records.record_batch import Csr, ReadRun, RecordBatch, RowBlock


def pack_blocks(blocks: Iterable[RowBlock], run: ReadRun[Any]) -> Iterator[RecordBatch]:
    """Yield the records of each block; `run.progress.lines` and `.offset` count rows.

    Rows are refused if a value or label is not finite or does not fit, or a column number is out of range.
    """
    progress, options = run.progress, run.options
    for block in blocks:
        dense, n_rows = block.values is not None, _n_rows(block)
        numbers = np.arange(progress.offset, progress.offset + n_rows)
        rows = (numbers if block.lines is None else block.lines).astype(np.int32)
        rounded = [*block.rounded, *_rounded(block, options.float64)]
        # Converted first: a value may become infinite by it.
        block = _converted(block, run.n_features, options.float64)
        if bad := _refused_rows(block, run.n_features, options.gaps):
            for row, reason in bad.items():
                progress.skip(int(rows[row]), reason)
            # The other rows go on, with their own numbers.
            keep = np.setdiff1d(np.arange(n_rows), list(bad))
            block, rows = _take(block, keep), rows[keep]
        progress.offset += n_rows
        progress.lines = progress.offset
        if len(rows):
            block, label_words = _with_label_values(block, options.continuous)
            words, row_at = (_pack_dense if dense else _pack_sparse)(block, run.n_extra)
            ids = None if block.ids is None else pack_ids(block.ids)
            yield RecordBatch(words, row_at, rows, block.weights, label_words, ids, rounded=rounded)


def _rounded(block: RowBlock, float64: bool) -> list[rounding_kernels.Rounded]:
    """Return the columns of a block whose values are not kept apart."""
    values = block.values if block.csr is None else block.csr[2]
    assert values is not None
    # float32 has all values of the smaller types, float64 those of others than the largest
    if values.dtype.itemsize < 4 or values.dtype == np.float32:
        return []
    if float64 and (values.dtype.itemsize < 8 or values.dtype == np.float64):
        return []
    numbers = np.ascontiguousarray(values, dtype=np.float64)
    # kernels are compiled for arrays that can be written
    numbers = numbers if numbers.flags.writeable else numbers.copy()
    inexact = _inexact(values, numbers, None if block.csr is None else block.csr[1])
    if float64:
        return inexact
    if block.csr is None:
        rounding = rounding_kernels.no_rounding(numbers.shape[1])
        rounding_kernels.note_rows(numbers, rounding)
        return [*rounding_kernels.take_rounded(rounding), *inexact]
    if not np.abs(numbers).max(initial=0.0) > rounding_kernels.KEPT:
        return []
    columns, places = np.unique(block.csr[1], return_inverse=True)
    rounding = rounding_kernels.no_rounding(len(columns))
    rounding_kernels.note_pairs(places, numbers, rounding)
    return [*((int(columns[found[0]]), *found[1:]) for found in rounding_kernels.take_rounded(rounding)), *inexact]


def _inexact(values: Array, numbers: Doubles, columns: Array | None) -> list[rounding_kernels.Rounded]:
    """Return the columns of whole numbers that float64 does not keep, though float32 may have what it makes of them.

    `columns` has those of the values of sparse rows.
    """
    large = np.abs(numbers) >= rounding_kernels.EXACT if values.dtype != np.float64 else np.zeros(0, dtype=bool)
    if not large.any():
        return []
    with np.errstate(invalid="ignore"):  # 2**63 is no int64, and so not kept
        places = np.nonzero(large & (numbers.astype(values.dtype) != values))
    own = places[1] if columns is None else columns[places[0]]
    first = dict(zip(own.tolist(), numbers[places].tolist(), strict=True))
    return [(column, value, value, 2) for column, value in first.items()]


def checked_rows(block: RowBlock, n_features: int, float64: bool, gaps: bool) -> Rows:
    """Return the rows of a block as records hold them, without its labels; they may share memory with the block.

    With `gaps` values may be missing. Raises BadInputError for the first row that `pack_blocks` would refuse.
    """
    block = _converted(block, n_features, float64)
    # The first one only: nothing is skipped here.
    if bad := _refused_rows(block, n_features, gaps):
        row = next(iter(bad))
        raise BadInputError(f"X, row {block.first_row + row}: {bad[row]}")
    if block.values is not None:
        return DenseRows(block.values)
    assert block.csr is not None
    indptr, indices, data = block.csr
    return CsrRows(indptr, indices.astype(index_dtype(n_features)), data)


def _n_rows(block: RowBlock) -> int:
    if block.values is not None:
        return len(block.values)
    assert block.csr is not None
    return len(block.csr[0]) - 1


def _converted(block: RowBlock, n_features: int, float64: bool) -> RowBlock:
    """Return the block with values of the stored type; sparse rows are sorted, duplicates summed, zeros dropped."""
    dtype = np.float64 if float64 else np.float32
    # values too large for float32 become infinite, and _refused_rows names their row
    with np.errstate(over="ignore"):
        if block.values is not None:
            return replace(block, values=np.ascontiguousarray(block.values, dtype=dtype))
        # SciPy's matrices may be slices of larger ones.
        assert block.csr is not None
        indptr, indices, data = block.csr
        first = int(indptr[0])
        indptr = np.asarray(indptr, dtype=np.int64) - first
        stop = first + int(indptr[-1])
        indices, data = np.asarray(indices[first:stop]), np.asarray(data[first:stop], dtype=np.float64)
        # Out of range: the row is refused below, and a sparse matrix of that width is not made.
        if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= n_features):
            return replace(block, csr=(indptr, indices, data.astype(dtype)))
        from scipy.sparse import csr_array  # takes a fifth of a second, which workers on text save

        shape = len(indptr) - 1, n_features
        matrix = csr_array((data, indices.astype(np.int64), indptr), shape=shape, copy=True)
        # Summed in float64, then rounded once.
        matrix.sum_duplicates()
        matrix.data = matrix.data.astype(dtype)
        matrix.eliminate_zeros()
        return replace(block, csr=(np.asarray(matrix.indptr, np.int64), matrix.indices, matrix.data))


def _refused_rows(block: RowBlock, n_features: int, gaps: bool) -> dict[int, str]:
    """Return the rows of a converted block that cannot be stored, and why."""
    # of several faults of a row the last one is reported, so the reader's own if there is one
    bad: dict[int, str] = {}
    if block.values is not None:
        data = block.values
        finite = (np.isfinite(data) | (gaps & np.isnan(data))).all(axis=1)
    else:
        assert block.csr is not None
        indptr, indices, data = block.csr
        finite = _rows_without(indptr, ~(np.isfinite(data) | (gaps & np.isnan(data))))
        inside = _rows_without(indptr, (indices < 0) | (indices >= n_features))
        bad |= dict.fromkeys(np.flatnonzero(~inside).tolist(), f"a column is outside 0..{n_features - 1}")
    bad |= dict.fromkeys(np.flatnonzero(~finite).tolist(), f"a value is not finite in {data.dtype}")
    if block.labels is not None and block.label_ends is None:
        bad |= _faulty_labels(block.labels)
    if block.weights is not None:
        wrong = ~(np.isfinite(block.weights) & (block.weights >= 0))
        bad |= dict.fromkeys(np.flatnonzero(wrong).tolist(), "the sample weight is negative or not finite")
    bad |= block.faults
    return dict(sorted(bad.items()))


def _faulty_labels(labels: Array) -> dict[int, str]:
    if labels.dtype.kind in "fiub":
        infinite, missing = np.isinf(labels).any(axis=1), np.isnan(labels).any(axis=1)
        faults = dict.fromkeys(np.flatnonzero(infinite).tolist(), "the label is not finite")
        return faults | dict.fromkeys(np.flatnonzero(missing).tolist(), NO_LABEL)
    fault_of = {label: label_fault(label) for label in set(labels.flat)}
    return {row: fault_of[label] for row, label in enumerate(labels[:, 0].tolist()) if fault_of[label]}


def _with_label_values(block: RowBlock, continuous: bool) -> tuple[RowBlock, dict[float, str]]:
    """Return the block with numbers as labels, and the words among them by value."""
    if block.labels is None or block.labels.dtype.kind in "fb":
        return block, {}
    if block.labels.dtype.kind in "iu":
        several = continuous or block.labels.shape[1] > 1
        values, words = (block.labels.astype(np.float64), {}) if several else whole_labels(block.labels)
        return replace(block, labels=values), words
    values, words = value_labels(block.labels[:, 0].tolist())
    return replace(block, labels=values[:, None]), words


def _rows_without(indptr: Ints, flagged: Bools) -> Bools:
    """Return which rows have no flagged value, shape (n_rows,)."""
    good = np.ones(len(indptr) - 1, dtype=bool)
    # The row of a value is the last one that begins at or before it.
    good[np.searchsorted(indptr, np.flatnonzero(flagged), side="right") - 1] = False
    return good


def _take(block: RowBlock, keep: Ints) -> RowBlock:
    labels, label_ends = _labels_of(block, keep)
    weights = None if block.weights is None else block.weights[keep]
    ids = None if block.ids is None else [block.ids[row] for row in keep.tolist()]
    block = replace(block, labels=labels, label_ends=label_ends, weights=weights, ids=ids)
    if block.values is not None:
        return replace(block, values=block.values[keep])
    assert block.csr is not None
    indptr, indices, data = block.csr
    counts = np.diff(indptr)[keep]
    ends = np.concatenate([[0], np.cumsum(counts)])
    # One gather for all values of the kept rows.
    source = np.repeat(indptr[:-1][keep] - ends[:-1], counts) + np.arange(ends[-1])
    return replace(block, csr=(ends, indices[source], data[source]))


def _labels_of(block: RowBlock, keep: Ints) -> tuple[Array | None, Ints | None]:
    if block.labels is None or block.label_ends is None:
        return None if block.labels is None else block.labels[keep], None
    counts = np.diff(block.label_ends)
    kept = np.isin(np.repeat(np.arange(len(counts)), counts), keep)
    return block.labels[kept], np.concatenate([[0], np.cumsum(counts[keep])])


def _pack_dense(block: RowBlock, n_extra: int) -> tuple[UInts, Ints]:
    values, labels = block.values, block.labels
    assert values is not None
    if block.label_ends is not None:
        return _pack_sets(values, block, n_extra)
    n_rows, n_labels = len(values), 0 if labels is None else labels.shape[1]
    values_at = 2 + n_extra + 2 * n_labels
    # Words of values: one of float32, two of float64.
    width = values_at + values.view(np.uint32).shape[1]
    words = np.empty((n_rows, width), dtype=np.uint32)
    words[:, 0], words[:, 1] = values.shape[1], n_labels
    # labels + 0.0: minus zero is zero
    if labels is not None:
        words[:, values_at - 2 * n_labels : values_at] = np.ascontiguousarray(labels + 0.0).view(np.uint32)
    words[:, values_at:] = values.view(np.uint32)
    return words.reshape(-1), np.arange(n_rows + 1, dtype=np.int64) * width


def _pack_sets(values: Array, block: RowBlock, n_extra: int) -> tuple[UInts, Ints]:
    """Return the records of dense rows with any number of labels."""
    assert block.labels is not None
    assert block.label_ends is not None
    counts, own = np.diff(block.label_ends), values.view(np.uint32)
    row_at = np.concatenate([[0], np.cumsum(2 + n_extra + 2 * counts + own.shape[1])])
    words = np.zeros(int(row_at[-1]), dtype=np.uint32)
    words[row_at[:-1]], words[row_at[:-1] + 1] = values.shape[1], counts
    first = row_at[:-1] + 2 + n_extra - 2 * block.label_ends[:-1]
    places = np.repeat(first, counts) + 2 * np.arange(len(block.labels))
    labels = np.ascontiguousarray(block.labels[:, 0] + 0.0).view(np.uint32).reshape(-1, 2)
    words[places], words[places + 1] = labels[:, 0], labels[:, 1]
    words[(row_at[1:] - own.shape[1])[:, None] + np.arange(own.shape[1])] = own
    return words, row_at


def _pack_sparse(block: RowBlock, n_extra: int) -> tuple[UInts, Ints]:
    assert block.csr is not None
    labels = np.empty((len(block.csr[0]) - 1, 0)) if block.labels is None else block.labels + 0.0
    offsets = np.arange(len(block.csr[0]), dtype=np.int64) * labels.shape[1]
    offsets = offsets if block.label_ends is None else block.label_ends
    return pack_sparse(block.csr, labels.reshape(-1), offsets, n_extra)


def pack_sparse(csr: Csr, labels: Doubles, offsets: Ints, n_extra: int) -> tuple[UInts, Ints]:
    """Return the records of sparse rows and the first word of each, shape (n_rows + 1,).

    `csr` is sorted, without duplicates, its data of the stored type; row r has labels[offsets[r]:offsets[r + 1]];
    each record has `n_extra` reserved words.
    """
    indptr, indices, data = csr
    # A pair is an index and one or two words of value.
    n_rows, stride = len(indptr) - 1, 1 + data.itemsize // 4
    words = np.empty(n_rows * (2 + n_extra) + 2 * len(labels) + stride * len(data), dtype=np.uint32)
    row_at = np.empty(n_rows + 1, dtype=np.int64)
    indices = indices.astype(np.int64, copy=False)
    pack_pairs(indptr, indices, data, offsets, labels, n_extra, words, row_at)
    return words, row_at
