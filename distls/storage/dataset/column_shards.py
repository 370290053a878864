"""Column shards on disk: the group ``columns/``, one zarr group a shard, a valid AnnData `csc_matrix` when sparse.

They are redundant with the partitions, and not part of the dataset's fingerprint. The group carries that fingerprint
and a digest of its own; it appears by a single rename, so it is whole or absent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.chunks import (
    BufferPool,
    decoded_by,
    read_array,
    read_arrays,
    write_array,
    write_arrays,
    write_group,
)
from distls.storage.dataset.metadata import Codec, DatasetMeta, ShardTable, digest_of
from distls.storage.dataset.partitions import WORTHWHILE_RATIO, are_below, are_offsets
from distls.storage.errors import CorruptDataError, FormatError, IncompleteError, MismatchError, StorageError
from distls.storage.filesystem.atomic import (
    atomic_directory,
    replace_directory,
    sweep,
    write_json,
)
from distls.storage.filesystem.paths import Place
from distls.storage.filesystem.safe_read import convert_json, read_json
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


class _Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The attribute of the group that describes the shards."""

    format_version: int
    dataset_fingerprint: str
    shard_size: Annotated[int, msgspec.Meta(gt=0)]
    codec: Codec
    digest: str


class _Attributes(msgspec.Struct):
    distls_columns: dict[str, Any]


class _Group(msgspec.Struct):
    attributes: _Attributes


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
        pool = pool or BufferPool()
        arrays = {
            name: read_array(
                shard_folder(self.path / COLUMNS, index),
                name,
                shape,
                dtype,
                self.codec if name in ("data", "XT") else "none",
                (int(table.sizes[name][index]), int(table.checksums[name][index])),
                pool,
                where,
                _remedy(self.path),
                self.path,
            )
            for name, (shape, dtype) in layout.items()
        }
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
        attributes = {
            "encoding-type": "csc_matrix",
            "encoding-version": "0.1.0",
            "shape": [n_rows, n_columns],
        }
    # Synced once, when the whole group is published.
    with atomic_directory(shard_folder(folder, index), sync=False) as group:
        write_group(group, attributes)
        written = {
            name: write_array(group / name, array, codec if name in ("data", "XT") else "none")
            for name, array in arrays.items()
        }
    return ShardRecord(
        index=index,
        columns=n_columns,
        nnz=x.values.size if isinstance(x, DenseColumns) else len(x.data),
        sizes={name: size for name, (size, _) in written.items()},
        checksums={name: checksum for name, (_, checksum) in written.items()},
    )


def choose_codec(x: Rows, codec: str) -> str:
    """Return the `codec` of the rows if it shrinks the first values of `x` by columns at least twofold, else "none"."""
    # equal values of a row, as of scaled counts, are not adjacent in columns
    if isinstance(x, DenseRows):
        tried = x.values[: max(_SAMPLE // max(x.values.shape[1], 1), 1)].T.reshape(-1)
    else:
        tried = x.data[:_SAMPLE][np.argsort(x.indices[:_SAMPLE], kind="stable")]
    return codec if codec != "none" and decoded_by(codec, tried) >= WORTHWHILE_RATIO else "none"


def publish_columns(
    root: Place,
    folder: Place,
    records: Iterable[ShardRecord],
    *,
    dataset_fingerprint: str,
    shard_size: int,
    codec: str,
) -> None:
    """Complete the group of shards in `folder` and make it the dataset's column shards, atomically."""
    ordered = sorted(records, key=lambda record: record.index)
    if [record.index for record in ordered] != list(range(len(ordered))):
        raise IncompleteError(f"{root}: column shards are missing; run `distls columns {root}` again")
    sweep(folder)
    arrays = ShardTable.of(ordered).to_arrays()
    write_arrays(folder / "shards", arrays)
    attributes = {
        "format_version": COLUMNS_VERSION,
        "dataset_fingerprint": dataset_fingerprint,
        "shard_size": shard_size,
        "codec": codec,
    }
    # Of attributes and table, and added last, since it cannot be of itself.
    attributes["digest"] = digest_of(attributes, arrays)
    group = {"zarr_format": 3, "node_type": "group", "attributes": {"distls_columns": attributes}}
    write_json(folder / "zarr.json", group)
    # One rename: readers see the old shards or the new ones.
    replace_directory(folder, root / COLUMNS)


def open_columns(root: Place, meta: DatasetMeta, fingerprint: str) -> ColumnShards | None:
    """Open the column shards of a dataset; None if there are none or they are unfinished.

    Raises FormatError for another format version, CorruptDataError for a damaged table, MismatchError for shards of a
    dataset with another fingerprint.
    """
    folder = root / COLUMNS
    try:
        attributes = read_json(folder / "zarr.json", _Group, root).attributes.distls_columns
        own = _described(root, attributes, fingerprint)
        table = ShardTable.from_arrays(read_arrays(folder / "shards", root))
        # the digest is of the other attributes
        del attributes["digest"]
        if own.digest != digest_of(attributes, table.to_arrays()):
            # A table that fits its digest may still be one of other data.
            raise ValueError("their table and its digest do not match")
        _check_table(meta, table)
        return ColumnShards(root, meta, own.shard_size, own.codec, table, own.digest)
    except (FileNotFoundError, NotADirectoryError) as error:
        # Unfinished shards are no error: they are written by a second command.
        if not (folder / "zarr.json").exists():
            return None
        raise _unreadable(root, error) from None
    except (FormatError, MismatchError, StorageError):
        raise
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise _unreadable(root, error) from None


def _unreadable(root: Place, error: Exception) -> CorruptDataError:
    why = " ".join(str(error).split())
    return CorruptDataError(f"{root}: the column shards cannot be read ({why}); {_remedy(root)}")


def _described(root: Place, attributes: dict[str, Any], fingerprint: str) -> _Description:
    version = attributes.get("format_version")
    if version != COLUMNS_VERSION:
        raise FormatError(
            f"{root}: column shards of format version {version}, this distls reads version {COLUMNS_VERSION}"
        )
    own = convert_json(attributes, _Description)
    if own.dataset_fingerprint != fingerprint:
        raise MismatchError(
            f"{root}: its column shards are those of a data set with fingerprint {own.dataset_fingerprint[:12]}, "
            f"its own is {fingerprint[:12]}; run `distls columns {root}` to write them again"
        )
    return own


def _check_table(meta: DatasetMeta, table: ShardTable) -> None:
    """Refuse a shard table that does not describe the columns of `meta`."""
    columns, nnz = ([int(n) for n in counts] for counts in (table.columns, table.nnz))
    names = set(_layout(meta, 0, 0)) if len(table) else set()
    sound = (
        set(table.sizes) == names
        and all(n > 0 for n in columns)
        and all(n >= 0 for n in nnz)
        and all(size.min() >= 0 for size in table.sizes.values())
        and (sum(columns), sum(nnz)) == (meta.n_features, meta.nnz)
        and (meta.layout == "csr" or all(n == c * meta.n_rows for c, n in zip(columns, nnz, strict=True)))
    )
    if not sound:
        raise ValueError("their table does not fit the metadata")
