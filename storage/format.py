"""Names and metadata of dataset format v1. The specification is docs/format.md."""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from distls.storage.atomic import canonical_json
from distls.storage.errors import FormatError

__all__ = ["FORMAT_VERSION", "DatasetMeta", "Label", "PartitionTable", "TargetKind", "fingerprint_of"]

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
        Format and files, for the reader's information only.
    codecs : dict
        Array name -> "none", "zstd" or "lz4".
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
    format_version: int = FORMAT_VERSION

    def to_json(self) -> dict[str, Any]:
        """Return the plain dictionary that is stored."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any], where: str) -> DatasetMeta:
        """Parse and validate stored metadata; `where` names the dataset in errors."""
        version = value.get("format_version")
        if version != FORMAT_VERSION:
            raise FormatError(
                f"{where}: dataset format version {version}, this distls reads version {FORMAT_VERSION}"
            )
        known = {f.name for f in fields(cls)}
        try:
            meta = cls(**{name: item for name, item in value.items() if name in known})
        except TypeError as error:
            raise FormatError(f"{where}: incomplete metadata ({error})") from None
        meta._validate(where)
        return meta

    def _validate(self, where: str) -> None:
        counts = (self.n_rows, self.n_features, self.nnz, self.n_targets)
        sound = (
            all(isinstance(n, int) and 0 <= n < 2**63 for n in counts)
            and self.n_features <= 2**32
            and self.layout in ("csr", "dense")
            and self.dtype in ("float32", "float64")
            and self.target in ("class", "multilabel", "continuous", "none")
            and len(self.classes) == len(self.label_counts) == len(self.label_weights)
            and math.isfinite(self.weight_sum)
        )
        if not sound:
            raise FormatError(f"{where}: metadata out of range or inconsistent; the file was not written by distls")


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
        arrays: dict[str, NDArray[Any]] = {"rows": self.rows, "nnz": self.nnz}
        arrays |= {f"{name}.size": size for name, size in self.sizes.items()}
        arrays |= {f"{name}.crc32c": checksum for name, checksum in self.checksums.items()}
        return dict(sorted(arrays.items()))

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> PartitionTable:
        """Rebuild the table from its stored arrays."""
        names = sorted(n.removesuffix(".size") for n in arrays if n.endswith(".size"))
        return cls(
            arrays["rows"],
            arrays["nnz"],
            {n: arrays[f"{n}.size"] for n in names},
            {n: arrays[f"{n}.crc32c"] for n in names},
        )


def fingerprint_of(meta: DatasetMeta, table: PartitionTable) -> str:
    """Sha256 over the metadata and every partition's checksums: two datasets are the same when it is."""
    digest = hashlib.sha256(canonical_json(meta.to_json()).encode())
    for name, array in table.to_arrays().items():
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()
