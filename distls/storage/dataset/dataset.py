"""A dataset: one zarr group, written by ingest and then read-only."""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from distls.facts import Fact, Shown, counted
from distls.storage.dataset.chunks import BufferPool, read_arrays, write_arrays
from distls.storage.dataset.column_shards import ColumnShards, open_columns
from distls.storage.dataset.exchangeability import Exchangeability, label_deviation, largest_deviation
from distls.storage.dataset.feature_names import NAME_ARRAYS, unpack_names
from distls.storage.dataset.metadata import DatasetMeta, PartitionTable, fingerprint_of
from distls.storage.dataset.partitions import PartitionRecord, check_table, decoded_bytes, read_partition
from distls.storage.dataset.parts import as_damage
from distls.storage.dataset.row_origins import (
    ORIGINS,
    OriginFacts,
    OriginRecord,
    RowOrigins,
    open_origins,
    publish_origins,
)
from distls.storage.dataset.standardization import Standardization
from distls.storage.errors import CorruptDataError, FormatError, IncompleteError, MismatchError, StorageError
from distls.storage.filesystem.atomic import remove_tree, sweep, write_json
from distls.storage.filesystem.checksums import crc32c, little_endian
from distls.storage.filesystem.paths import Place, StorePath, place_of
from distls.storage.filesystem.safe_read import convert_json, read_json, read_with_retries
from distls.storage.rows import Partition

STAGING = ".ingest"
# Of what is small and may be whole elsewhere, while the rows are probably sound.
_REMEDY = "keep it, check the disk or the store and copy it again; if no copy is whole, ingest the data set again"


class _Attributes(msgspec.Struct):
    distls: dict[str, Any]
    exchangeability: Any = None  # absent where there is nothing to compare
    appended: list[str] = []  # digests of the rows of each `append`, and of those that were there before


class _Group(msgspec.Struct):
    attributes: _Attributes


class Fold(NamedTuple):
    """Which rows of a data set are seen: those of a fold, or all with those of the fold at weight zero."""

    number: int
    folds: int
    alone: bool  # the rows of the fold, else the others


@dataclass(frozen=True, repr=False)
class Dataset(Shown):
    """An open dataset: metadata only; partitions are read on demand.

    Attributes
    ----------
    path : Place
    meta : DatasetMeta
    table : PartitionTable
    fingerprint : str
        Sha256 of metadata and partition checksums.
    fold : Fold or None
        Of a view for cross-validation, which `meta` describes; `read` returns all rows even then.
    exchangeability : Exchangeability or None
        Whether the rows are in random order; None if that was not measured.
    appended : tuple of str
        Digests of the rows that were appended one after the other.
    standardization : Standardization or None
        Of the view that `standardized` returns, whose `read` gives rows and targets in other units.
    """

    path: Place
    meta: DatasetMeta
    table: PartitionTable
    fingerprint: str
    fold: Fold | None = None
    exchangeability: Exchangeability | None = None
    appended: tuple[str, ...] = ()
    standardization: Standardization | None = field(default=None, compare=False)

    def __len__(self) -> int:
        """Return the number of row partitions."""
        return len(self.table)

    def __repr__(self) -> str:
        size = f"{self.meta.n_rows:,} rows x {self.meta.n_features:,} features"
        return f"<Dataset {self.path}: {size}, {self._targets()}, {counted(len(self), 'partition')}>"

    def facts(self) -> list[Fact]:
        """Return what a reader wants to know first."""
        meta = self.meta
        names = ", ".join(str(label) for label in meta.classes[:10]) + ("" if len(meta.classes) <= 10 else ", ...")
        filled = 100 * meta.nnz / max(meta.n_rows * meta.n_features, 1)
        return [
            Fact("path", self.path, str), Fact("rows", meta.n_rows, ","), Fact("features", meta.n_features, ","),
            Fact("targets", f"{self._targets()}{f': {names}' if names else ''}"),
            Fact("layout", f"{meta.layout}, {meta.dtype}, {filled:.3g} % non-zero"),
            Fact("partitions", f"{len(self):,}, {int(self.stored_bytes.sum()) / 2**20:,.1f} MiB stored"),
            Fact("transforms", ", ".join(str(t.get("name")) for t in meta.transforms) or "none"),
            Fact("fingerprint", self.fingerprint[:16]),
        ]  # fmt: skip

    def _targets(self) -> str:
        """Return what the targets are, in words."""
        kinds = {"class": "classes", "multilabel": "labels"}
        if self.meta.target in kinds:
            return f"{len(self.meta.classes):,} {kinds[self.meta.target]}"
        return {"none": "no labels", "continuous": "numbers to predict"}.get(self.meta.target, self.meta.target)

    def read(self, index: int, pool: BufferPool | None = None) -> Partition:
        """Read row partition `index`, verified; its arrays live in `pool` (default: fresh buffers)."""
        if not 0 <= index < len(self):
            raise IndexError(f"{self.path}: partition {index} of {len(self)}")
        return self._seen(read_partition(self.path, self.meta, self.table, index, pool or BufferPool()))

    def read_targets(self, index: int) -> Partition:
        """Read the targets and weights of row partition `index` alone, verified; its rows have no features."""
        part = read_partition(self.path, self.meta, self.table, index, BufferPool(), features=False)
        return self._seen(part)

    def _seen(self, part: Partition) -> Partition:
        return part if self.standardization is None else self.standardization.seen(part)

    @cached_property
    def standardized(self) -> Self:
        """The view with columns of mean zero and deviation one and numbers of mean zero, as of the first partition."""
        if self.standardization is not None:
            return self
        found = _of_first_rows(self.path, self.fingerprint)
        meta = msgspec.structs.replace(self.meta, mean_square_norm=float(self.meta.n_features))
        return replace(self, meta=meta, standardization=found)

    @cached_property
    def decoded_bytes(self) -> NDArray[np.int64]:
        """Bytes of each partition in memory, shape (n_partitions,)."""
        return np.asarray(decoded_bytes(self.meta, self.table))

    @cached_property
    def stored_bytes(self) -> NDArray[np.int64]:
        """Bytes of each partition on disk, shape (n_partitions,)."""
        return self.table.stored_bytes

    @cached_property
    def first_rows(self) -> NDArray[np.int64]:
        """Number of the first row of each partition among all rows, and of all rows, shape (n_partitions + 1,)."""
        return np.concatenate([[0], np.cumsum(self.table.rows)]).astype(np.int64, copy=False)

    @cached_property
    def columns(self) -> ColumnShards | None:
        """The column shards, None if there are none or they are unfinished; raises as `open_columns`."""
        return open_columns(self.path, self.meta, self.fingerprint)

    @cached_property
    def origins(self) -> RowOrigins | None:
        """File, number and id of each row in its source; None if they were not kept; raises as `open_origins`."""
        return open_origins(self.path, self.table.rows, self.fingerprint)

    def features(self) -> dict[str, NDArray[Any]]:
        """Read the arrays of ``features/``: fitted transforms, column counts and the like."""
        return read_features(self.path, self.meta.features)

    def feature_names(self) -> list[str] | None:
        """Read the names of the features; None when the source had none."""
        named = set(NAME_ARRAYS) <= self.meta.features.keys()
        return unpack_names(self.features(), str(self.path)) if named else None

    def check_names(self, known: Sequence[str] | None, known_by: str) -> None:
        """Raise MismatchError for columns of another order, or other categories, if both sides have names."""
        if self.meta.source.get("format") == "text":
            return  # columns are hashes, and their names only examples of the words in them
        names = self.feature_names() if known is not None else None
        for number, (name, other) in enumerate(zip(names or (), known or (), strict=False)):
            if name != other:
                raise MismatchError(
                    f'feature {number} of {self.path} is "{name}", but "{other}" in {known_by}; '
                    "ingest it with --like the training data"
                )


def is_dataset(path: Place) -> bool:
    """Return whether `path` holds a finished dataset (of any version)."""
    try:
        read_json(path / "zarr.json", _Group, path)
    except StorageError:  # an object store that fails says nothing about the dataset
        raise
    except (OSError, ValueError):
        return False
    return True


@lru_cache(maxsize=4)
def _of_first_rows(path: Place, fingerprint: str) -> Standardization:
    """Measure the first partition, once for all folds, whose own weights are not stored."""
    whole = open_dataset(path)
    return Standardization.of(whole.read(0), numbers=whole.meta.target == "continuous")


def open_dataset(path: str | Place) -> Dataset:
    """Open a dataset and check its metadata; no partition is read.

    Raises
    ------
    FormatError
        `path` is not a dataset, or of another format version.
    IncompleteError
        An ingest into `path` did not finish.
    CorruptDataError
        The metadata does not match its fingerprint.
    """
    root = place_of(path)
    # An object store may list an object before its content is there.
    dataset = read_with_retries(lambda: _open(root), root, of_store=isinstance(root, StorePath))
    check_table(dataset.meta, dataset.table, str(root))
    return dataset


def _open(root: Place) -> Dataset:
    attributes = _attributes(root)
    stored = attributes.distls
    # The fingerprint cannot be part of what it is computed from.
    recorded = stored.pop("fingerprint", None)
    meta = DatasetMeta.from_json(stored, str(root))
    with as_damage(root, "the partition table", _REMEDY):
        table = PartitionTable.from_arrays(read_arrays(root / "partitions", root))
        fingerprint = fingerprint_of(meta, table)
    # Everything that a fit depends on is in the fingerprint.
    if fingerprint != recorded:
        raise CorruptDataError(f"{root}: metadata and fingerprint do not match; {_REMEDY}")
    measured = _measured(attributes.exchangeability)
    return Dataset(root, meta, table, fingerprint, None, measured, tuple(attributes.appended))


def _measured(stored: Any) -> Exchangeability | None:
    # advice, which no fingerprint covers: what is not understood is not there
    with contextlib.suppress(ValueError):
        return convert_json(stored, Exchangeability)
    return None


def _attributes(root: Place) -> _Attributes:
    try:
        return read_json(root / "zarr.json", _Group, root).attributes
    except (FormatError, StorageError):
        raise
    except FileNotFoundError:
        # Staged files tell an interrupted ingest from a folder of something else.
        if (root / STAGING).exists():
            raise IncompleteError(
                f"{root}: an ingest into it did not finish; run the same ingest again to resume it, or remove it"
            ) from None
        if (root / "rows").exists():
            # a split, whose staged files are elsewhere, or a generated data set
            raise IncompleteError(
                f"{root}: writing it did not finish; run the same ingest again, or remove it and generate it again"
            ) from None
        if root.exists():
            found = "a run, not a data set" if (root / "config.json").exists() else "not a distls data set"
            raise FormatError(f"{root}: {found} (no zarr.json)") from None
        raise FormatError(f"{root}: no such data set") from None
    except NotADirectoryError:
        raise FormatError(
            f"{root}: a file, not a distls data set; ingest it first, or let `distls train` do both"
        ) from None
    except PermissionError:
        raise FormatError(f"{root}: permission denied") from None
    except OSError as error:
        raise FormatError(f"{root}: zarr.json cannot be read ({error.strerror})") from None
    except ValueError:
        raise FormatError(f"{root}: not a distls data set (zarr.json has no distls metadata)") from None


def read_features(root: Place, checksums: dict[str, int]) -> dict[str, NDArray[Any]]:
    """Read the arrays of a dataset's ``features/`` group, verified; empty when it has none.

    Raises CorruptDataError if an array is missing or changed, or one is there that the metadata does not list.
    """
    folder = root / "features"
    with as_damage(root, "features", "ingest the data set again"):
        arrays = read_arrays(folder, root) if folder.exists() else {}
    found = _checksums_of(arrays)
    # Sorted, so that the same array is named on every machine.
    for name in sorted(found.keys() | checksums.keys()):
        if found.get(name) != checksums.get(name):
            why = "its checksum does not match the metadata" if name in found else "it is missing"
            raise CorruptDataError(f"{root}: features, array {name}: {why}; ingest the data set again")
    return arrays


def _checksums_of(arrays: dict[str, NDArray[Any]]) -> dict[str, int]:
    return {name: crc32c(little_endian(array).tobytes()) for name, array in arrays.items()}


def publish(
    root: Place,
    meta: DatasetMeta,
    records: Iterable[PartitionRecord],
    features: dict[str, NDArray[Any]],
    origins: tuple[OriginFacts, Sequence[OriginRecord]] | None = None,
) -> Dataset:
    """Write the partition table, the features and the metadata, whose counts are set from the records.

    There is a record for each partition 0, 1, ..., in any order. `features` has fitted transforms and column
    statistics; `origins` those of the rows, one record a partition in its order, as `write_origins` returned them.
    """
    ordered = sorted(records, key=lambda record: record.index)
    # A missing partition would shift all that follow.
    if [record.index for record in ordered] != list(range(len(ordered))):
        raise IncompleteError(f"{root}: partitions are missing; run the same ingest again")
    meta = msgspec.structs.replace(with_counts(meta, ordered), features=_checksums_of(features))
    # an earlier attempt may have written others, or been killed
    remove_tree(root / "features")
    for folder in (root, root / "rows", root / ORIGINS):
        sweep(folder)
    if features:
        write_arrays(root / "features", features)
    return complete(root, meta, PartitionTable.of(ordered), origins, _exchangeability(meta, ordered))


def complete(
    root: Place,
    meta: DatasetMeta,
    table: PartitionTable,
    origins: tuple[OriginFacts, Sequence[OriginRecord]] | None,
    measured: Exchangeability | None,
    appended: Sequence[str] = (),
) -> Dataset:
    """Write what makes a folder of partitions and features a dataset: the table, the origins, the metadata."""
    write_arrays(root / "partitions", table.to_arrays())
    fingerprint = fingerprint_of(meta, table)
    if origins is not None:
        # Origins name the fingerprint, so they are written after it is known.
        publish_origins(root, *origins, dataset_fingerprint=fingerprint)
    attributes: dict[str, Any] = {"distls": {**meta.to_json(), "fingerprint": fingerprint}}
    if measured is not None:
        attributes["exchangeability"] = msgspec.to_builtins(measured)
    if appended:
        attributes["appended"] = list(appended)
    group = {"zarr_format": 3, "node_type": "group"}
    if len(table):
        # Of no use here: zarr walks over groups that have metadata.
        write_json(root / "rows" / "zarr.json", {**group, "attributes": {}})
    # last: it makes the dataset complete
    write_json(root / "zarr.json", {**group, "attributes": attributes})
    # Only after the metadata: a crash in between leaves the ingest to be resumed.
    remove_tree(root / STAGING)
    return Dataset(root, meta, table, fingerprint, None, measured, tuple(appended))


def _exchangeability(meta: DatasetMeta, records: list[PartitionRecord]) -> Exchangeability | None:
    """Compare the partitions; None if there is nothing to compare."""
    if meta.target == "continuous":
        labels = largest_deviation([r.targets for r in records])
    else:
        labels = label_deviation([r.label_counts for r in records], [r.rows for r in records])
    features = largest_deviation([r.features for r in records])
    return None if labels is None and features is None else Exchangeability(labels, features)


def with_counts(meta: DatasetMeta, records: list[PartitionRecord]) -> DatasetMeta:
    """Return the metadata with the counts of these partitions' rows."""
    n_rows = sum(r.rows for r in records)
    return msgspec.structs.replace(
        meta,
        n_rows=n_rows,
        nnz=sum(r.nnz for r in records),
        label_counts=_column_sums([r.label_counts for r in records], len(meta.classes), int),
        label_weights=_column_sums([r.label_weights for r in records], len(meta.classes), float),
        weight_sum=float(sum(r.weight_sum for r in records)),
        # Over rows, not over weights: it is a fact about the data.
        mean_square_norm=sum(r.square_norm for r in records) / max(n_rows, 1),
    )


def _column_sums(rows: list[list[Any]], width: int, kind: type) -> list[Any]:
    totals = np.zeros(width, dtype=np.float64 if kind is float else np.int64)
    for row in rows:
        totals += np.asarray(row, dtype=totals.dtype)
    return [kind(total) for total in totals]
