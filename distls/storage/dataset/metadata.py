"""Names and metadata of dataset format v1. The specification is docs/format.md."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import FormatError
from distls.storage.filesystem.atomic import canonical_json
from distls.storage.filesystem.checksums import little_endian
from distls.storage.filesystem.safe_read import convert_json

FORMAT_VERSION = 1
# Bound on rows and values of a part, so that products of sizes cannot overflow.
_MOST_ENTRIES = 2**40

_LARGEST = sys.float_info.max

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Width = Annotated[int, msgspec.Meta(ge=0, le=2**32)]
# Integers stay integers, since the fingerprint is of the text, where 1 is not 1.0.
Amount = Annotated[int, msgspec.Meta(ge=0)] | Annotated[float, msgspec.Meta(ge=0, le=_LARGEST)]
Positive = Annotated[int, msgspec.Meta(gt=0)] | Annotated[float, msgspec.Meta(gt=0, le=_LARGEST)]
Label = int | Annotated[float, msgspec.Meta(ge=-_LARGEST, le=_LARGEST)] | str
Codec = Annotated[str, msgspec.Meta(pattern=r"\A(none|zstd|lz4)\Z")]
TargetKind = Literal["class", "multilabel", "continuous", "none"]
Layout = Literal["csr", "dense"]
Checksum = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class DatasetMeta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Metadata of a dataset: `attributes.distls` of its group."""

    n_rows: Count
    n_features: Width
    nnz: Count  # stored values: n_rows * n_features for dense data
    layout: Layout
    # of the stored values
    dtype: Annotated[str, msgspec.Meta(pattern=r"\Afloat(32|64)\Z")]
    target: TargetKind
    # sorted; code c in a partition means ``classes[c]``. Empty unless target is class or multilabel.
    classes: list[Label] = []
    label_counts: list[Count] = []  # rows of each class
    label_weights: list[Amount] = []  # sums of sample weights of each class (label_counts without weights)
    n_targets: Count = 0  # columns of continuous targets, else 0
    weighted: bool = False  # whether partitions hold sample weights
    weight_sum: Amount = 0.0  # sum of the sample weights over all rows (n_rows without weights)
    mean_square_norm: Amount = 0.0  # mean over rows of |x|^2, after transforms
    # applied at ingest, in order, each {"name": ..., ...}; fitted arrays are in ``features/``
    transforms: list[dict[str, Any]] = []
    # of names, parameters and fitted arrays: equal when two datasets went through the same recipe
    transforms_digest: str = ""
    zero_based: bool | None = None  # base of the feature numbers in the source; None without numbers
    shuffle_seed: int | None = None  # None when rows were kept in source order
    # format and files; ``recipe``, where the format has one: what is needed to read more of the same kind
    source: dict[str, Any] = {}
    codecs: dict[str, Codec] = {}  # array name -> "none", "zstd" or "lz4"
    # array name in ``features/`` -> crc32c of its bytes; not stored when there are none
    features: dict[str, Checksum] = {}
    format_version: int = FORMAT_VERSION

    def to_json(self) -> dict[str, Any]:
        """Return the plain dictionary that is stored."""
        value = msgspec.structs.asdict(self)
        if not self.features:
            del value["features"]
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any], where: str) -> DatasetMeta:
        """Validate stored metadata or raise FormatError; `where` names the dataset."""
        version = value.get("format_version")
        if version != FORMAT_VERSION:
            raise FormatError(f"{where}: dataset format version {version}, this distls reads version {FORMAT_VERSION}")
        # a writer may leave fields to their defaults, a stored file has them all
        # Additions would change fingerprints without a new version, so nothing unknown is accepted.
        known = set(cls.__struct_fields__)
        missing, unknown = sorted(known - {"features", *value}), sorted(value.keys() - known)
        if missing or unknown:
            named = ", ".join([f"no {name}" for name in missing] + [f"unknown {name}" for name in unknown])
            raise FormatError(f"{where}: not metadata of format version {FORMAT_VERSION} ({named})")
        try:
            meta = convert_json(value, cls)
            meta._check_relations()
        except ValueError as error:
            raise FormatError(
                f"{where}: metadata out of range or inconsistent ({error}); it was not written by distls"
            ) from None
        return meta

    def _check_relations(self) -> None:
        """Refuse fields that contradict those that determine them."""
        coded = self.target in ("class", "multilabel")
        agree = {
            "nnz": self.layout == "csr" or self.nnz == self.n_rows * self.n_features,
            "classes": len(set(self.classes)) == len(self.classes) and (coded or not self.classes),
            "label_counts": len(self.label_counts) == len(self.classes)
            and (self.target != "class" or sum(self.label_counts) == self.n_rows),
            "label_weights": len(self.label_weights) == len(self.classes),
            "n_targets": (self.n_targets > 0) == (self.target == "continuous"),
            "codecs": self.codecs.get("y/indices", "none") == "none",
        }
        if not all(agree.values()):
            raise ValueError(next(name for name, sound in agree.items() if not sound))


@dataclass(frozen=True)
class _StoredTable:
    """Arrays with an element for each part of a data set, in order: counts of its rows or columns, and its chunks."""

    counts: NDArray[np.int64]
    nnz: NDArray[np.int64]
    sizes: dict[str, NDArray[np.int64]]  # encoded bytes by array name; 0: the array is empty and has no chunk
    checksums: dict[str, NDArray[np.uint32]]  # crc32c of the encoded payload, which also ends the chunk

    counted: ClassVar[str]  # name of the array `counts`, and of the field of a record
    stored_values: ClassVar[bool] = True  # whether `nnz` is stored, else it is zero

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def stored_bytes(self) -> NDArray[np.int64]:
        """Encoded bytes of each part, shape (n_parts,)."""
        # The zeros give the shape where there are no arrays.
        return np.sum([0 * self.nnz, *self.sizes.values()], axis=0, dtype=np.int64)

    def reported(self, index: int) -> tuple[dict[str, int], dict[str, int]]:
        """Return the encoded bytes and the checksums of a part's arrays, as its writer has reported them."""
        sizes, checksums = (
            {name: int(each[index]) for name, each in of.items()} for of in (self.sizes, self.checksums)
        )
        return sizes, checksums

    def describes(self, names: set[str], total: int, nnz: int, width: int | None) -> bool:
        """Return whether parts have these arrays and add up to so many rows or columns, and stored values.

        Of dense parts each row or column has `width` values; None: sparse ones have any number.
        """
        # Python integers: sums of untrusted numbers cannot overflow
        counts, stored = ([int(n) for n in each] for each in (self.counts, self.nnz))
        return (
            set(self.sizes) == (names if len(self) else set())
            and all(0 <= n <= _MOST_ENTRIES for n in counts + stored)
            and all(size.min() >= 0 for size in self.sizes.values())
            # Totals must agree with the metadata, or fits would skip rows.
            and (sum(counts), sum(stored)) == (total, nnz)
            and (width is None or all(n == c * width for c, n in zip(counts, stored, strict=True)))
        )

    @classmethod
    def of(cls, records: Sequence[Any]) -> Self:
        """Return the table of records with the fields `counted`, nnz, sizes and checksums, one a part in order."""
        # Sorted names: the digest goes over them in this order.
        names = sorted(records[0].sizes) if records else []
        return cls(
            np.array([getattr(r, cls.counted) for r in records], dtype=np.int64),
            np.array([r.nnz if cls.stored_values else 0 for r in records], dtype=np.int64),
            {n: np.array([r.sizes[n] for r in records], dtype=np.int64) for n in names},
            {n: np.array([r.checksums[n] for r in records], dtype=np.uint32) for n in names},
        )

    @classmethod
    def joined(cls, tables: Sequence[Self]) -> Self:
        """Return the table of the parts of all tables, which have the same arrays."""
        columns = [table.to_arrays() for table in tables if len(table)]
        return cls.from_arrays({name: np.concatenate([each[name] for each in columns]) for name in columns[0]})

    def part(self, start: int, stop: int | None) -> Self:
        """Return the table of the parts from `start` to `stop`."""
        return type(self).from_arrays({name: array[start:stop] for name, array in self.to_arrays().items()})

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the stored arrays by name, sorted."""
        arrays: dict[str, NDArray[Any]] = {self.counted: self.counts}
        arrays |= {"nnz": self.nnz} if self.stored_values else {}
        for name in self.sizes:
            # a slash would make a group of its own
            stored = name.replace("/", ".")
            arrays |= {f"{stored}.size": self.sizes[name], f"{stored}.crc32c": self.checksums[name]}
        return dict(sorted(arrays.items()))

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild the table from its stored arrays; raise KeyError or ValueError if they are not those."""
        names = sorted(n.removesuffix(".size") for n in arrays if n.endswith(".size"))
        wanted = {cls.counted, *(f"{n}.{kind}" for n in names for kind in ("size", "crc32c"))}
        wanted |= {"nnz"} if cls.stored_values else set()
        if arrays.keys() - wanted:
            raise ValueError(f"unknown arrays {sorted(arrays.keys() - wanted)}")
        length = arrays[cls.counted].shape
        for name in wanted:
            # Exact types, since the digest is over bytes.
            dtype = np.uint32 if name.endswith(".crc32c") else np.int64
            if len(length) != 1 or arrays[name].shape != length or arrays[name].dtype != dtype:
                raise ValueError(f"{name}: {arrays[name].dtype} of shape {arrays[name].shape}")
        sizes, checksums = ({n.replace(".", "/"): arrays[f"{n}.{kind}"] for n in names} for kind in ("size", "crc32c"))
        counts = arrays[cls.counted]
        return cls(counts, arrays["nnz"] if cls.stored_values else np.zeros_like(counts), sizes, checksums)


class PartitionTable(_StoredTable):
    """The group ``partitions/``: arrays of shape (n_partitions,), read when a dataset is opened."""

    counted = "rows"

    @property
    def rows(self) -> NDArray[np.int64]:
        """Rows of each partition."""
        return self.counts


class ShardTable(_StoredTable):
    """The group ``columns/shards/``: arrays of shape (n_shards,) of adjacent shards."""

    counted = "columns"

    @property
    def columns(self) -> NDArray[np.int64]:
        """Columns of each shard."""
        return self.counts

    @property
    def first(self) -> NDArray[np.int64]:
        """First column of each shard, shape (n_shards,)."""
        return np.cumsum(self.counts) - self.counts


class OriginTable(_StoredTable):
    """The group ``origins/table/``: arrays of shape (n_partitions,)."""

    counted = "id_bytes"
    stored_values = False


def fingerprint_of(meta: DatasetMeta, table: PartitionTable) -> str:
    """Return the sha256 of the metadata and every partition's checksums, which identifies a dataset."""
    return digest_of(meta.to_json(), table.to_arrays())


def digest_of(attributes: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> str:
    """Return the sha256 of the canonical JSON of `attributes` and then each array's name and elements."""
    # Canonical text: the same values have the same digest everywhere.
    digest = hashlib.sha256(canonical_json(attributes).encode())
    for name, array in arrays.items():
        digest.update(name.encode())
        digest.update(little_endian(array).data)
    return digest.hexdigest()
