"""Names and metadata of dataset format v1. The specification is docs/format.md."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import FormatError
from distls.storage.filesystem.atomic import canonical_json

__all__ = [
    "FORMAT_VERSION",
    "DatasetMeta",
    "Label",
    "PartitionTable",
    "ShardTable",
    "TargetKind",
    "digest_of",
    "fingerprint_of",
    "is_label",
]

FORMAT_VERSION = 1

Label = int | float | str
TargetKind = Literal["class", "multilabel", "continuous", "none"]
Layout = Literal["csr", "dense"]


@dataclass(frozen=True)
class DatasetMeta:
    """What training checks before it reads a partition: `attributes.distls` of the dataset's group.

    Attributes
    ----------
    n_rows, n_features, nnz : int
        Shape, and the number of stored values (n_rows * n_features for dense data).
    layout : {"csr", "dense"}
    dtype : {"float32", "float64"}
        Of the stored values.
    target : {"class", "multilabel", "continuous", "none"}
    classes : list of int, float or str
        Sorted; code c in a partition means ``classes[c]``. Empty unless target is class or multilabel.
    label_counts : list of int
        Rows of each class.
    label_weights : list of float
        Sum of the sample weights of the rows of each class (equal to label_counts without weights).
    n_targets : int
        Columns of continuous targets, else 0.
    weighted : bool
        Whether partitions hold sample weights.
    weight_sum : float
        Sum of the sample weights over all rows (n_rows without weights).
    mean_square_norm : float
        Mean over rows of |x|^2, after transforms.
    transforms : list of dict
        Applied at ingest, in order, each {"name": ..., ...}; fitted arrays are in ``features/``.
    transforms_digest : str
        Of names, parameters and fitted arrays: equal when two datasets went through the same recipe.
    zero_based : bool or None
        Base of the feature numbers in the source text; None for sources without numbers.
    shuffle_seed : int or None
        None when rows were kept in source order.
    source : dict
        Format and files; ``recipe``, where the format has one: what is needed to read more of the same kind.
    codecs : dict
        Array name -> "none", "zstd" or "lz4".
    features : dict
        Array name in ``features/`` -> crc32c of its bytes; not stored when there are none.
    """

    n_rows: int
    n_features: int
    nnz: int
    layout: Layout
    dtype: str
    target: TargetKind
    classes: list[Label] = field(default_factory=list)
    label_counts: list[int] = field(default_factory=list)
    label_weights: list[float] = field(default_factory=list)
    n_targets: int = 0
    weighted: bool = False
    weight_sum: float = 0.0
    mean_square_norm: float = 0.0
    transforms: list[dict[str, Any]] = field(default_factory=list)
    transforms_digest: str = ""
    zero_based: bool | None = None
    shuffle_seed: int | None = None
    source: dict[str, Any] = field(default_factory=dict)
    codecs: dict[str, str] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION

    def to_json(self) -> dict[str, Any]:
        """Return the plain dictionary that is stored."""
        value = asdict(self)
        if not self.features:
            del value["features"]
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any], where: str) -> DatasetMeta:
        """Parse and validate stored metadata; `where` names the dataset in errors."""
        version = value.get("format_version")
        if version != FORMAT_VERSION:
            raise FormatError(
                f"{where}: dataset format version {version}, this distls reads version {FORMAT_VERSION}"
            )
        known = {f.name for f in fields(cls)}
        missing, unknown = sorted(known - {"features", *value}), sorted(value.keys() - known)
        if missing or unknown:
            named = ", ".join([f"no {name}" for name in missing] + [f"unknown {name}" for name in unknown])
            raise FormatError(f"{where}: not metadata of format version {FORMAT_VERSION} ({named})")
        meta = cls(**value)
        wrong = meta._wrong_field()
        if wrong:
            raise FormatError(
                f"{where}: metadata out of range or inconsistent ({wrong}); it was not written by distls"
            )
        return meta

    def _wrong_field(self) -> str | None:
        """Return the first field that no writer would have written, or None."""
        ill_typed = (name for name, sound in _SOUND.items() if not sound(getattr(self, name)))
        return next(ill_typed, None) or next(
            (name for name, sound in self._relations().items() if not sound), None
        )

    def _relations(self) -> dict[str, bool]:
        """Tell of each field that others determine whether it agrees with them."""
        coded = self.target in ("class", "multilabel")
        return {
            "nnz": self.layout == "csr" or self.nnz == self.n_rows * self.n_features,
            "classes": len(set(self.classes)) == len(self.classes) and (coded or not self.classes),
            "label_counts": len(self.label_counts) == len(self.classes)
            and (self.target != "class" or sum(self.label_counts) == self.n_rows),
            "label_weights": len(self.label_weights) == len(self.classes),
            "n_targets": (self.n_targets > 0) == (self.target == "continuous"),
        }


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_amount(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf


def is_label(value: Any) -> bool:
    """Tell whether a JSON value may be a class."""
    return type(value) in (int, str) or (type(value) is float and math.isfinite(value))


def _list_of(sound: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(sound, value))


def _table_of(sound: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(sound, value.values()))


def _one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: any(value is v or (isinstance(v, str) and value == v) for v in values)


# What each field of DatasetMeta may hold.
_SOUND: dict[str, Callable[[Any], bool]] = {
    "n_rows": _is_count,
    "n_features": lambda value: _is_count(value) and value <= 2**32,
    "nnz": _is_count,
    "layout": _one_of("csr", "dense"),
    "dtype": _one_of("float32", "float64"),
    "target": _one_of("class", "multilabel", "continuous", "none"),
    "classes": _list_of(is_label),
    "label_counts": _list_of(_is_count),
    "label_weights": _list_of(_is_amount),
    "n_targets": _is_count,
    "weighted": _one_of(True, False),
    "weight_sum": _is_amount,
    "mean_square_norm": _is_amount,
    "transforms": _list_of(lambda value: isinstance(value, dict)),
    "transforms_digest": lambda value: isinstance(value, str),
    "zero_based": _one_of(True, False, None),
    "shuffle_seed": lambda value: value is None or type(value) is int,
    "source": lambda value: isinstance(value, dict),
    "codecs": lambda value: (
        _table_of(_one_of("none", "zstd", "lz4"))(value) and value.get("y/indices", "none") == "none"
    ),
    "features": _table_of(lambda value: _is_count(value) and value < 2**32),
}


@dataclass(frozen=True)
class PartitionTable:
    """One entry a partition, read in one go when a dataset is opened: the group ``partitions/``.

    Attributes
    ----------
    rows, nnz : int64 arrays of shape (n_partitions,)
    sizes : dict of array name -> int64 array of shape (n_partitions,)
        Encoded bytes of each array of each partition (0: the array is empty and has no chunk).
    checksums : dict of array name -> uint32 array of shape (n_partitions,)
        crc32c of the encoded payload, the same number that ends the chunk.
    """

    rows: NDArray[np.int64]
    nnz: NDArray[np.int64]
    sizes: dict[str, NDArray[np.int64]]
    checksums: dict[str, NDArray[np.uint32]]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def stored_bytes(self) -> NDArray[np.int64]:
        """Encoded bytes of each partition, shape (n_partitions,)."""
        return np.sum(list(self.sizes.values()), axis=0, dtype=np.int64)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the stored arrays by name, sorted."""
        return _stored_table({"rows": self.rows, "nnz": self.nnz}, self.sizes, self.checksums)

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> PartitionTable:
        """Rebuild the table from its stored arrays.

        Raises
        ------
        KeyError, ValueError
            Arrays are missing, superfluous, or of wrong type or length.
        """
        return cls(arrays["rows"], arrays["nnz"], *_encoded_arrays(arrays, ("rows", "nnz")))


@dataclass(frozen=True)
class ShardTable:
    """One entry a column shard: the group ``columns/shards/``. Shards follow each other without a gap.

    Attributes
    ----------
    columns, nnz : int64 arrays of shape (n_shards,)
    sizes, checksums : dicts of array name -> array of shape (n_shards,)
        As in `PartitionTable`.
    """

    columns: NDArray[np.int64]
    nnz: NDArray[np.int64]
    sizes: dict[str, NDArray[np.int64]]
    checksums: dict[str, NDArray[np.uint32]]

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def first(self) -> NDArray[np.int64]:
        """First column of each shard, shape (n_shards,)."""
        return np.cumsum(self.columns) - self.columns

    @property
    def stored_bytes(self) -> NDArray[np.int64]:
        """Encoded bytes of each shard, shape (n_shards,)."""
        return np.sum([0 * self.nnz, *self.sizes.values()], axis=0, dtype=np.int64)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the stored arrays by name, sorted."""
        return _stored_table({"columns": self.columns, "nnz": self.nnz}, self.sizes, self.checksums)

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> ShardTable:
        """Rebuild the table from its stored arrays.

        Raises
        ------
        KeyError, ValueError
            Arrays are missing, superfluous, or of wrong type or length.
        """
        return cls(arrays["columns"], arrays["nnz"], *_encoded_arrays(arrays, ("columns", "nnz")))


def _stored_table(
    counts: dict[str, NDArray[Any]],
    sizes: dict[str, NDArray[np.int64]],
    checksums: dict[str, NDArray[np.uint32]],
) -> dict[str, NDArray[Any]]:
    arrays = dict(counts)
    for name in sizes:
        # a slash would make a group of its own
        stored = name.replace("/", ".")
        arrays |= {f"{stored}.size": sizes[name], f"{stored}.crc32c": checksums[name]}
    return dict(sorted(arrays.items()))


def _encoded_arrays(
    arrays: dict[str, NDArray[Any]], counts: tuple[str, ...]
) -> tuple[dict[str, NDArray[np.int64]], dict[str, NDArray[np.uint32]]]:
    """Return sizes and checksums of a stored table, by name, once its arrays are those of a table."""
    names = sorted(n.removesuffix(".size") for n in arrays if n.endswith(".size"))
    wanted = {*counts, *(f"{n}.size" for n in names), *(f"{n}.crc32c" for n in names)}
    if arrays.keys() - wanted:
        raise ValueError(f"unknown arrays {sorted(arrays.keys() - wanted)}")
    length = arrays[counts[0]].shape
    for name in wanted:
        dtype = np.uint32 if name.endswith(".crc32c") else np.int64
        if len(length) != 1 or arrays[name].shape != length or arrays[name].dtype != dtype:
            raise ValueError(f"{name}: {arrays[name].dtype} of shape {arrays[name].shape}")
    return (
        {n.replace(".", "/"): arrays[f"{n}.size"] for n in names},
        {n.replace(".", "/"): arrays[f"{n}.crc32c"] for n in names},
    )


def fingerprint_of(meta: DatasetMeta, table: PartitionTable) -> str:
    """Sha256 over the metadata and every partition's checksums: two datasets are the same when it is."""
    return digest_of(meta.to_json(), table.to_arrays())


def digest_of(attributes: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> str:
    """Sha256 over the canonical JSON of `attributes` and then each array's name and elements."""
    digest = hashlib.sha256(canonical_json(attributes).encode())
    for name, array in arrays.items():
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()
