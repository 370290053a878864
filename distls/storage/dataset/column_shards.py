"""Column shards on disk: the group ``columns/``, one zarr group a shard, a valid AnnData `csc_matrix` when sparse.

They are redundant with the partitions, and not part of the dataset's fingerprint. The group carries that fingerprint
and a digest of its own; it appears by a single rename, so it is whole or absent.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.chunks import BufferPool, decoded_by
from distls.storage.dataset.metadata import Codec, DatasetMeta, ShardTable
from distls.storage.dataset.partitions import WORTHWHILE_RATIO, are_below, are_offsets
from distls.storage.dataset.parts import as_damage, read_description, read_part, read_table, write_described, write_part
from distls.storage.errors import CorruptDataError, IncompleteError, MismatchError
from distls.storage.filesystem.atomic import replace_directory, sweep
from distls.storage.filesystem.paths import Place
from distls.storage.filesystem.safe_read import convert_json
from distls.storage.rows import (
    Columns,
    ColumnShard,
    CscColumns,
    DenseColumns,
    DenseRows,
    Rows,
    index_dtype,
    n_columns_of,
)

COLUMNS = "columns"
COLUMNS_VERSION = 1

_SAMPLE = 2**20
_VALUES = ("data", "XT")  # the arrays that are compressed


class _Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The attribute of the group that describes the shards."""

    format_version: int
    dataset_fingerprint: str
    shard_size: Annotated[int, msgspec.Meta(gt=0)]
    codec: Codec
    digest: str


@dataclass(frozen=True)
class ShardRecord:
    """A row of the shard table, as reported by the writer of the shard."""

    index: int
    columns: int
    nnz: int
    sizes: dict[str, int]
    checksums: dict[str, int]


@dataclass(frozen=True)
class ColumnShards:
    """The open column shards of a dataset; shards are read on demand."""

    path: Place  # of the dataset
    meta: DatasetMeta  # of the dataset
    shard_size: int  # requested decoded bytes of a shard
    codec: str  # of the values
    table: ShardTable
    digest: str  # sha256 of the description of the shards, with their checksums

    def __len__(self) -> int:
        """Return the number of shards."""
        return len(self.table)

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """First column of each shard, and the number of columns, shape (n_shards + 1,)."""
        return np.concatenate([self.table.first, [self.meta.n_features]]).astype(np.int64, copy=False)

    @cached_property
    def decoded_bytes(self) -> NDArray[np.int64]:
        """Bytes of each shard in memory, shape (n_shards,)."""
        columns, nnz = self.table.columns, self.table.nnz
        itemsize = np.dtype(self.meta.dtype).itemsize
        if self.meta.layout == "dense":
            return nnz * itemsize
        return nnz * (itemsize + index_dtype(self.meta.n_rows).itemsize) + 8 * (columns + 1)

    @cached_property
    def stored_bytes(self) -> NDArray[np.int64]:
        """Bytes of each shard on disk, shape (n_shards,)."""
        return self.table.stored_bytes

    def read(self, index: int, pool: BufferPool | None = None) -> ColumnShard:
        """Read shard `index`, verified; its arrays live in `pool` (default: fresh buffers).

        Raises CorruptDataError, naming shard and array, if one is missing, truncated, changed or inconsistent.
        """
        # Negative numbers would count from the end.
        if not 0 <= index < len(self):
            raise IndexError(f"{self.path}: column shard {index} of {len(self)}")
        where, table = f"{self.path}: column shard {index}", self.table
        layout = _layout(self.meta, int(table.columns[index]), int(table.nnz[index]))
        arrays = read_part(
            shard_folder(self.path / COLUMNS, index),
            layout,
            dict.fromkeys(_VALUES, self.codec),
            table.reported(index),
            pool or BufferPool(),
            where,
            _remedy(self.path),
            self.path,
        )
        if "XT" in arrays:
            return ColumnShard(int(table.first[index]), DenseColumns(arrays["XT"]))
        x = CscColumns(arrays["indptr"], arrays["indices"], arrays["data"])
        _check_structure(x, self.meta.n_rows, where, _remedy(self.path))
        return ColumnShard(int(table.first[index]), x)


def _remedy(root: Place) -> str:
    return f"remove {root / COLUMNS} and run `distls columns {root}`"


def _check_structure(x: CscColumns, n_rows: int, where: str, remedy: str) -> None:
    """Refuse offsets and row numbers that would lead a kernel out of bounds."""
    # Kernels index without checks, so structure is proven here.
    if not are_offsets(x.indptr, len(x.data), n_rows):
        raise CorruptDataError(f"{where}, array indptr: column offsets are inconsistent; {remedy}")
    if not are_below(x.indices, n_rows):
        raise CorruptDataError(f"{where}, array indices: row numbers out of range; {remedy}")


def shard_folder(folder: Place, index: int) -> Place:
    """Return the group of shard `index` in the group `folder` of all."""
    return folder / f"{index:08d}"


def _layout(meta: DatasetMeta, columns: int, nnz: int) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Return array name -> (shape, dtype) of a shard."""
    dtype = np.dtype(meta.dtype)
    if meta.layout == "dense":
        return {"XT": ((columns, meta.n_rows), dtype)}
    return {
        "data": ((nnz,), dtype),
        "indices": ((nnz,), index_dtype(meta.n_rows)),
        "indptr": ((columns + 1,), np.dtype(np.int64)),
    }


def write_shard(folder: Place, index: int, x: Columns, n_rows: int, codec: str) -> ShardRecord:
    """Write one shard to the group `folder` atomically, replacing an earlier attempt; `codec` is that of the values."""
    n_columns = n_columns_of(x)
    if isinstance(x, DenseColumns):
        arrays, attributes = {"XT": x.values}, {}
    else:
        arrays = {"data": x.data, "indices": x.indices, "indptr": x.indptr}
        shape = [n_rows, n_columns]
        attributes = {"encoding-type": "csc_matrix", "encoding-version": "0.1.0", "shape": shape}
    codecs = dict.fromkeys(_VALUES, codec)
    reported = write_part(shard_folder(folder, index), arrays, codecs, attributes, {})
    nnz = x.values.size if isinstance(x, DenseColumns) else len(x.data)
    return ShardRecord(index, n_columns, nnz, *reported)


def choose_codec(x: Rows, codec: str) -> str:
    """Return the `codec` of the rows if it shrinks the first values of `x` by columns at least twofold, else "none"."""
    # equal values of a row, as of scaled counts, are not adjacent in columns
    if isinstance(x, DenseRows):
        tried = x.values[: max(_SAMPLE // max(x.values.shape[1], 1), 1)].T.reshape(-1)
    else:
        tried = x.data[:_SAMPLE][np.argsort(x.indices[:_SAMPLE], kind="stable")]
    return codec if codec != "none" and decoded_by(codec, tried) >= WORTHWHILE_RATIO else "none"


def publish_columns(
    root: Place, folder: Place, records: Iterable[ShardRecord], *, dataset_fingerprint: str, shard_size: int, codec: str
) -> None:
    """Complete the group of shards in `folder` and make it the dataset's column shards, atomically."""
    ordered = sorted(records, key=lambda record: record.index)
    if [record.index for record in ordered] != list(range(len(ordered))):
        raise IncompleteError(f"{root}: column shards are missing; run `distls columns {root}` again")
    sweep(folder)
    described = {
        "format_version": COLUMNS_VERSION,
        "dataset_fingerprint": dataset_fingerprint,
        "shard_size": shard_size,
        "codec": codec,
    }
    write_described(folder, "distls_columns", described, "shards", ShardTable.of(ordered).to_arrays())
    # One rename: readers see the old shards or the new ones.
    replace_directory(folder, root / COLUMNS)


def open_columns(root: Place, meta: DatasetMeta, fingerprint: str) -> ColumnShards | None:
    """Open the column shards of a dataset; None if there are none or they are unfinished.

    Raises FormatError for another format version, CorruptDataError for a damaged table, MismatchError for shards of a
    dataset with another fingerprint.
    """
    folder = root / COLUMNS
    with as_damage(root, "the column shards", _remedy(root)):
        try:
            described = read_description(folder, "distls_columns", root, COLUMNS_VERSION, "column shards")
        except (FileNotFoundError, NotADirectoryError):
            return None  # unfinished shards are no error: they are written by a second command
        own = convert_json(described, _Description)
        if own.dataset_fingerprint != fingerprint:
            raise MismatchError(
                f"{root}: its column shards are those of a data set with fingerprint "
                f"{own.dataset_fingerprint[:12]}, its own is {fingerprint[:12]}; run `distls columns {root}` to write "
                "them again"
            )
        table = ShardTable.from_arrays(read_table(folder / "shards", root, described))
        # A table that fits its digest may still be one of other data.
        _check_table(meta, table)
        return ColumnShards(root, meta, own.shard_size, own.codec, table, own.digest)


def _check_table(meta: DatasetMeta, table: ShardTable) -> None:
    """Refuse a shard table that does not describe the columns of `meta`."""
    width = None if meta.layout == "csr" else meta.n_rows
    whole = table.describes(set(_layout(meta, 0, 0)), meta.n_features, meta.nnz, width)
    if not whole or not all(n > 0 for n in table.columns):
        raise ValueError("their table does not fit the metadata")
