"""The transposition on workers: groups of partitions are written by columns, then bundles of shards from all groups.

A group is as many partitions, a bundle as many adjacent shards, as memory allows: a bundle reads one range of each
group, so fewer of both mean fewer and longer reads. The shards do not depend on either.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.chunks import BufferPool, KeptBuffers
from distls.storage.dataset.column_shards import write_shard
from distls.storage.dataset.dataset import Dataset
from distls.storage.dataset.metadata import DatasetMeta
from distls.storage.rows import Columns, CscColumns, CsrRows, DenseColumns, DenseRows, Rows, index_dtype, n_rows_of
from distls.storage.temporary.transpose_spill import SpillArea
from distls.workers.compilation.jit import kernel
from distls.workers.rounds.block_stream import DatasetRef, open_ref
from distls.workers.runtime.buffers import borrowed_buffers


@dataclass(frozen=True)
class RowGroup:
    """Partitions start, start + 1, ..., stop - 1."""

    number: int
    start: int
    stop: int


@dataclass(frozen=True)
class TransposeSpec:
    """Common input of all tasks."""

    data: DatasetRef
    groups: tuple[RowGroup, ...]  # all partitions, in order
    codec: str  # of the values in shards


@dataclass(frozen=True)
class Bundle:
    """Adjacent shards that are assembled at once."""

    first: int  # number of the first shard
    cuts: tuple[int, ...]  # shard first + k has the columns cuts[k] to cuts[k + 1] - 1


# -- groups of rows --------------------------------------------------------------------------------------


def turn_group(spec: TransposeSpec, group: RowGroup) -> None:
    """Write the rows of a group by columns, unless an earlier attempt did."""
    # file, sparse: column offsets (int64, n_features + 1), row numbers in the group, values; dense: values
    # (n_features, n_rows)
    dataset = open_ref(spec.data)
    spill = SpillArea(dataset.path, dataset.fingerprint)
    with spill.guard(), borrowed_buffers() as pool:
        # A file of the right size is whole: it appears by a rename.
        if spill.group_bytes(group.number) != _group_bytes(dataset, group):
            transposed = _transposed_dense if dataset.meta.layout == "dense" else _transposed_sparse
            blocks = [dataset.read(index, KeptBuffers(scratch=pool)).x for index in range(group.start, group.stop)]
            spill.write_group(group.number, *transposed(dataset, group, blocks, pool))


def _group_bytes(dataset: Dataset, group: RowGroup) -> int:
    nnz = int(dataset.table.nnz[group.start : group.stop].sum())
    value = np.dtype(dataset.meta.dtype).itemsize
    if dataset.meta.layout == "dense":
        return nnz * value
    return 8 * (dataset.meta.n_features + 1) + nnz * (value + index_dtype(_rows_of(dataset, group)).itemsize)


def _rows_of(dataset: Dataset, group: RowGroup) -> int:
    return int(dataset.first_rows[group.stop] - dataset.first_rows[group.start])


def _transposed_sparse(
    dataset: Dataset, group: RowGroup, blocks: Sequence[Rows], pool: BufferPool
) -> tuple[NDArray[Any], ...]:
    """Return column offsets, row numbers and values."""
    sparse = [x for x in blocks if isinstance(x, CsrRows)]
    indptr = np.zeros(dataset.meta.n_features + 1, dtype=np.int64)
    for x in sparse:
        # Offsets from 1 on: the running sum then gives the starts.
        count_values(x.indices, indptr[1:])
    np.cumsum(indptr, out=indptr)
    # A group has few rows: their numbers within it take half the bytes of those within all.
    rows, data = _pairs(dataset.meta, _rows_of(dataset, group), int(indptr[-1]), pool, "turned")
    place, first = indptr[:-1].copy(), 0
    for x in sparse:
        # In the order of the rows, so row numbers increase within each column.
        scatter_rows(x.indptr, x.indices, x.data, first, place, rows, data)
        first += n_rows_of(x)
    return indptr, rows, data


def _pairs(meta: DatasetMeta, n_rows: int, nnz: int, pool: BufferPool, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return buffers for numbers below `n_rows` and values."""
    rows = _taken(pool, f"{name}.rows", (nnz,), index_dtype(n_rows))
    return rows, _taken(pool, f"{name}.data", (nnz,), np.dtype(meta.dtype))


def _taken(pool: BufferPool, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    return pool.take(name, int(np.prod(shape, dtype=np.int64)) * dtype.itemsize).view(dtype).reshape(shape)


def _transposed_dense(
    dataset: Dataset, group: RowGroup, blocks: Sequence[Rows], pool: BufferPool
) -> tuple[NDArray[Any], ...]:
    """Return the transpose of the rows, shape (n_features, rows of the group)."""
    n_rows = _rows_of(dataset, group)
    out = _taken(pool, "turned.data", (dataset.meta.n_features, n_rows), np.dtype(dataset.meta.dtype))
    first = 0
    for x in blocks:
        assert isinstance(x, DenseRows)
        transpose_rows(x.values, out[:, first : first + len(x.values)])
        first += len(x.values)
    return (out,)


def column_counts_of(dataset: Dataset, groups: Sequence[RowGroup], start: int, stop: int) -> NDArray[np.int64]:
    """Count the values of columns start, ..., stop - 1 in all groups of sparse rows, shape (stop - start,)."""
    spill, counts = SpillArea(dataset.path, dataset.fingerprint), np.zeros(stop - start, dtype=np.int64)
    # Starts of the wanted columns only, of each group.
    starts = np.empty(stop - start + 1, dtype=np.int64)
    for group in groups:
        with spill.open_group(group.number) as read:
            read(8 * start, starts)
        lengths = np.diff(starts)
        nnz = int(dataset.table.nnz[group.start : group.stop].sum())
        # damaged offsets would lead kernels out of bounds
        if lengths.min(initial=0) < 0 or starts[0] < 0 or starts[-1] > nnz:
            raise spill.damaged()
        counts += lengths
    return counts


# -- bundles of shards -----------------------------------------------------------------------------------


def write_bundle(spec: TransposeSpec, bundle: Bundle) -> list[dict[str, Any]]:
    """Write the shards of a bundle, unless an earlier attempt did; return the fields of each `ShardRecord`."""
    dataset = open_ref(spec.data)
    spill = SpillArea(dataset.path, dataset.fingerprint)
    with spill.guard(), borrowed_buffers() as pool:
        finished = [spill.read_record(bundle.first + k) for k in range(len(bundle.cuts) - 1)]
        # All shards of the bundle or none: they come from the same read.
        if all(record is not None for record in finished):
            return [record for record in finished if record is not None]
        gathered = _gathered_dense if dataset.meta.layout == "dense" else _gathered_sparse
        x = gathered(dataset, spec.groups, bundle, pool)
        return [_write(spill, bundle, k, x, dataset.meta.n_rows, spec.codec) for k in range(len(bundle.cuts) - 1)]


def _write(spill: SpillArea, bundle: Bundle, k: int, x: Columns, n_rows: int, codec: str) -> dict[str, Any]:
    """Write the k-th shard of a bundle and its record."""
    start, stop = (cut - bundle.cuts[0] for cut in bundle.cuts[k : k + 2])
    # The record after the shard: a shard without it is written again.
    record = asdict(write_shard(spill.shards, bundle.first + k, _part(x, start, stop), n_rows, codec))
    spill.write_record(bundle.first + k, record)
    return record


def _part(x: Columns, start: int, stop: int) -> Columns:
    """Return columns start, ..., stop - 1 of a block."""
    if isinstance(x, DenseColumns):
        return DenseColumns(x.values[start:stop])
    begin, end = x.indptr[start], x.indptr[stop]
    # Offsets of a shard count from its own first value.
    return CscColumns(x.indptr[start : stop + 1] - begin, x.indices[begin:end], x.data[begin:end])


def _gathered_sparse(dataset: Dataset, groups: Sequence[RowGroup], bundle: Bundle, pool: BufferPool) -> CscColumns:
    """Return the columns of a bundle, each group's rows appended to those before."""
    spill, first = SpillArea(dataset.path, dataset.fingerprint), bundle.cuts[0]
    counts = column_counts_of(dataset, groups, first, bundle.cuts[-1])
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64, copy=False)
    rows, data = _pairs(dataset.meta, dataset.meta.n_rows, int(indptr[-1]), pool, "whole")
    place, starts = indptr[:-1].copy(), np.empty(len(indptr), dtype=np.int64)
    for group in groups:
        with spill.open_group(group.number) as read:
            read(8 * first, starts)
            nnz, n_rows = int(starts[-1] - starts[0]), _rows_of(dataset, group)
            some_rows, some_data = _pairs(dataset.meta, n_rows, nnz, pool, "turned")
            # Row numbers lie behind all column offsets in the file.
            rows_at = 8 * (dataset.meta.n_features + 1)
            data_at = rows_at + int(dataset.table.nnz[group.start : group.stop].sum()) * some_rows.itemsize
            read(rows_at + int(starts[0]) * some_rows.itemsize, some_rows)
            read(data_at + int(starts[0]) * data.itemsize, some_data)
        first_row = int(dataset.first_rows[group.start])
        append_columns(starts, some_rows, some_data, first_row, place, rows, data)
    return CscColumns(indptr, rows, data)


def _gathered_dense(dataset: Dataset, groups: Sequence[RowGroup], bundle: Bundle, pool: BufferPool) -> DenseColumns:
    """Return the columns of a bundle, shape (n_columns, n_rows)."""
    spill, dtype = SpillArea(dataset.path, dataset.fingerprint), np.dtype(dataset.meta.dtype)
    first, n_columns = bundle.cuts[0], bundle.cuts[-1] - bundle.cuts[0]
    values = _taken(pool, "whole.data", (n_columns, dataset.meta.n_rows), dtype)
    for group in groups:
        start, stop = int(dataset.first_rows[group.start]), int(dataset.first_rows[group.stop])
        some = _taken(pool, "turned.data", (n_columns, stop - start), dtype)
        with spill.open_group(group.number) as read:
            read(first * (stop - start) * dtype.itemsize, some)
        values[:, start:stop] = some
    return DenseColumns(values)


# -- kernels -------------------------------------------------------------------------------------------


_TILE = 32  # rows and columns of a tile both stay in the first-level cache


@kernel
def count_values(indices, counts):  # type: ignore[no-untyped-def]
    """Add the values of each column to `counts` (n_features,), in place."""
    for p in range(len(indices)):
        counts[indices[p]] += 1


@kernel
def scatter_rows(indptr, indices, data, first, place, out_rows, out_data):  # type: ignore[no-untyped-def]
    """Scatter the values of rows first, first + 1, ... of the group to their columns.

    `place` (n_features,), the position in `out_rows` and `out_data` of the next value of each column, is advanced.
    """
    for i in range(len(indptr) - 1):
        for p in range(indptr[i], indptr[i + 1]):
            at = place[indices[p]]
            out_rows[at] = first + i
            out_data[at] = data[p]
            place[indices[p]] = at + 1


@kernel
def append_columns(starts, rows, data, first, place, out_rows, out_data):  # type: ignore[no-untyped-def]
    """Append the values of a group of rows, whose numbers count from `first`, to their columns.

    `starts` (n_columns + 1,) bounds each column's values in `rows` and `data`, counted from starts[0]; `place`
    (n_columns,), the position of the next value of each column, is advanced.
    """
    for j in range(len(place)):
        at = place[j]
        begin = starts[j] - starts[0]
        n = starts[j + 1] - starts[j]
        # element by element: numba compiles much for slices (array_copy.py)
        for p in range(n):
            out_rows[at + p] = first + rows[begin + p]
            out_data[at + p] = data[begin + p]
        place[j] = at + n


@kernel
def transpose_rows(values, out):  # type: ignore[no-untyped-def]
    """Write `values` (n_rows, n_columns) transposed into `out` (n_columns, n_rows), tile by tile."""
    n, d = values.shape
    for top in range(0, n, _TILE):
        for left in range(0, d, _TILE):
            for j in range(left, min(left + _TILE, d)):
                for i in range(top, min(top + _TILE, n)):
                    out[j, i] = values[i, j]
