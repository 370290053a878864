"""Row partitions on disk: one zarr group each, a valid AnnData `csr_matrix` when sparse."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.chunks import BufferPool, decoded_by
from distls.storage.dataset.exchangeability import feature_moments, moments
from distls.storage.dataset.metadata import DatasetMeta, PartitionTable
from distls.storage.dataset.parts import Reported, read_part, write_part
from distls.storage.errors import BadInputError, CorruptDataError
from distls.storage.filesystem.paths import Place
from distls.storage.rows import CsrRows, DenseRows, Partition, Rows, index_dtype, n_rows_of

# Below this ratio decoding costs more than it saves in reading. Log-tf text shrinks tenfold, tf-idf hardly at all.
WORTHWHILE_RATIO = 2.0
_SAMPLE = 2**16
_TARGETS = 32  # whose means are compared between partitions
_LARGEST_NORM = 1e300  # of a partition: the sum over all must be finite

_REMEDY = "ingest the data set again"


@dataclass(frozen=True)
class PartitionRecord:
    """A row of the partition table, as reported by the writer of the partition."""

    index: int
    rows: int
    nnz: int
    sizes: dict[str, int]
    checksums: dict[str, int]
    square_norm: float  # sum over rows of |x|^2
    label_counts: list[int]  # rows of each class; empty unless class or multi-label targets
    label_weights: list[float]  # sums of sample weights of each class
    weight_sum: float
    # `moments` of sums of features and of continuous targets; empty where there are none
    features: dict[str, Any] = field(default_factory=dict)
    targets: dict[str, Any] = field(default_factory=dict)


_FEATURES = ("X", "data", "indices", "indptr")  # arrays of a partition that are neither targets nor weights


def partition_folder(root: Place, index: int) -> Place:
    """Return the group of row partition `index`."""
    return root / "rows" / f"{index:08d}"


def _arrays_of(partition: Partition, n_features: int) -> dict[str, NDArray[Any]]:
    """Return the stored arrays by name, in the order they are written."""
    x, y, weight = partition
    arrays: dict[str, NDArray[Any]] = {}
    if isinstance(x, DenseRows):
        arrays["X"] = x.values
    else:
        arrays |= {"data": x.data, "indices": x.indices.astype(index_dtype(n_features), copy=False)}
        arrays["indptr"] = x.indptr.astype(np.int64, copy=False)
    if isinstance(y, CsrRows):
        arrays["y/data"] = y.data.astype(np.float32, copy=False)
        arrays["y/indices"] = y.indices.astype(np.uint32, copy=False)
        arrays["y/indptr"] = y.indptr.astype(np.int64, copy=False)
    elif y is not None:
        arrays["y"] = y
    if weight is not None:
        arrays["sample_weight"] = weight.astype(np.float32, copy=False)
    return arrays


def choose_codecs(partition: Partition, compress: str, *, sample: bool = False) -> dict[str, str]:
    """Return the codec of each array: `compress` for the values, none for the rest.

    ``auto`` is zstd if it shrinks this partition's values (`sample`: the first of them) at least twofold.
    """
    arrays = _arrays_of(partition, 1)
    values = "data" if "data" in arrays else "X"
    # A sample of the first values, which are shuffled rows, stands for all.
    if compress == "auto":
        tried = arrays[values].reshape(-1)[: _SAMPLE if sample else None]
        compress = "zstd" if decoded_by("zstd", tried) >= WORTHWHILE_RATIO else "none"
    return {name: compress if name == values else "none" for name in arrays}


def _sparse_attributes(n_rows: int, n_columns: int) -> dict[str, Any]:
    return {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [n_rows, n_columns]}


def write_partition(
    root: Place, index: int, partition: Partition, n_features: int, n_classes: int, codecs: dict[str, str]
) -> PartitionRecord:
    """Write one partition of the dataset `root` atomically, replacing an earlier attempt.

    `n_classes` is the length of the class list, 0 for continuous targets and unlabelled rows.
    """
    n_rows = n_rows_of(partition.x)
    sparse = isinstance(partition.x, CsrRows)
    square_norm = _square_norm(partition.x, f"{root}: partition {index}")
    attributes = _sparse_attributes(n_rows, n_features) if sparse else {}
    sets = {"y": _sparse_attributes(n_rows, n_classes)} if isinstance(partition.y, CsrRows) else {}
    arrays = _arrays_of(partition, n_features)
    reported = write_part(partition_folder(root, index), arrays, codecs, attributes, sets)
    return _record(index, partition, n_classes, square_norm, reported)


def _record(
    index: int, partition: Partition, n_classes: int, square_norm: float, reported: Reported
) -> PartitionRecord:
    x, y, weight = partition
    n_rows = n_rows_of(x)
    counts, weights = _label_sums(y, weight, n_classes)
    return PartitionRecord(
        index,
        n_rows,
        (x.data if isinstance(x, CsrRows) else x.values).size,
        *reported,
        square_norm=square_norm,
        label_counts=[int(c) for c in counts],
        label_weights=[float(w) for w in weights],
        # float64, as millions of float32 weights lose digits.
        weight_sum=float(n_rows if weight is None else weight.sum(dtype=np.float64)),
        features=feature_moments(x),
        targets=moments(y[:, :_TARGETS]) if isinstance(y, np.ndarray) and y.ndim == 2 else {},
    )


def _square_norm(x: Rows, where: str) -> float:
    """Return the sum of the squares of all values; raise BadInputError if it is beyond float64."""
    values = x.data if isinstance(x, CsrRows) else x.values
    if not values.size:
        return 0.0
    with np.errstate(over="ignore"):
        norm = float(np.square(values, dtype=np.float64).sum())
    if norm > _LARGEST_NORM:
        raise BadInputError(
            f"{where}: values up to {np.abs(values).max():g}: the sum of their squares is beyond float64; divide "
            f"them: ingest with --transform scale={np.abs(values).max():.0e}"
        )
    return norm


def _label_sums(y: Any, weight: NDArray[np.float32] | None, n_classes: int) -> tuple[Any, Any]:
    if not n_classes:
        return [], []
    if isinstance(y, CsrRows):
        codes = y.indices
        weight = None if weight is None else np.repeat(weight, np.diff(y.indptr))
    else:
        codes = y
    counts = np.bincount(codes, minlength=n_classes)
    return counts, counts if weight is None else np.bincount(codes, weight, minlength=n_classes)


def decoded_bytes(meta: DatasetMeta, table: PartitionTable) -> NDArray[np.int64]:
    """Return the bytes of each partition in memory, shape (n_partitions,)."""
    if not len(table):
        return np.zeros(0, dtype=np.int64)
    # The layout on arrays of rows gives the sizes of all partitions at once.
    return sum(
        (
            (np.prod(shape, axis=0, dtype=np.int64) if len(shape) > 1 else shape[0]) * dtype.itemsize
            for shape, dtype in _layout(meta, table.rows, table.nnz, table.sizes).values()
        ),
        start=np.zeros(len(table), dtype=np.int64),
    )


def _layout(meta: DatasetMeta, rows: Any, nnz: Any, stored: Mapping[str, Any]) -> dict[str, tuple[Any, np.dtype[Any]]]:
    """Return array name -> (shape, dtype) for given numbers of rows, non-zeros and bytes (numbers or arrays)."""
    dtype = np.dtype(meta.dtype)
    layout: dict[str, tuple[Any, np.dtype[Any]]] = {}
    if meta.layout == "dense":
        layout["X"] = ((rows, rows * 0 + meta.n_features), dtype)
    else:
        layout["data"] = ((nnz,), dtype)
        layout["indices"] = ((nnz,), index_dtype(meta.n_features))
        layout["indptr"] = ((rows + 1,), np.dtype(np.int64))
    if meta.target == "class":
        layout["y"] = ((rows,), np.dtype(np.int32))
    elif meta.target == "continuous":
        layout["y"] = ((rows, rows * 0 + meta.n_targets), np.dtype(np.float64))
    elif meta.target == "multilabel":
        # the number of labels follows from the size of their codes, which are stored raw: uint32 and a checksum
        n_labels = np.maximum(stored["y/indices"] - 4, 0) // 4
        # Labels per partition are not in the table.
        layout["y/data"] = ((n_labels,), np.dtype(np.float32))
        layout["y/indices"] = ((n_labels,), np.dtype(np.uint32))
        layout["y/indptr"] = ((rows + 1,), np.dtype(np.int64))
    if meta.weighted:
        layout["sample_weight"] = ((rows,), np.dtype(np.float32))
    return layout


def check_table(meta: DatasetMeta, table: PartitionTable, where: str) -> None:
    """Raise CorruptDataError for a partition table that does not describe the dataset of `meta`."""
    try:
        names = set(_layout(meta, table.rows, table.nnz, table.sizes)) if len(table) else set()
    except KeyError:
        names = set()
    width = None if meta.layout == "csr" else meta.n_features
    if not table.describes(names, meta.n_rows, meta.nnz, width):
        raise CorruptDataError(f"{where}: the partition table does not fit the metadata; {_REMEDY}")


def read_partition(
    root: Place, meta: DatasetMeta, table: PartitionTable, index: int, pool: BufferPool, *, features: bool = True
) -> Partition:
    """Read, verify and decode one partition into the pool's buffers, valid until the pool is used again.

    Without `features` its rows are empty, and only targets and weights are read.

    Raises CorruptDataError, naming partition and array, if one is missing, truncated, changed or inconsistent.
    """
    where, reported, n_rows = f"{root}: partition {index}", table.reported(index), int(table.rows[index])
    # shapes and types come from the dataset's metadata; of the partition's folder only the chunks are read
    layout = _layout(meta, n_rows, int(table.nnz[index]), reported[0])
    wanted = {name: form for name, form in layout.items() if features or name not in _FEATURES}
    folder = partition_folder(root, index)
    arrays = read_part(folder, wanted, meta.codecs, reported, pool, where, _REMEDY, root)
    _check_structure(arrays, meta, where)
    return Partition(_rows_from(arrays, n_rows), _targets_from(arrays), arrays.get("sample_weight"))


def _rows_from(arrays: dict[str, NDArray[Any]], n_rows: int) -> Rows:
    if "X" in arrays:
        return DenseRows(arrays["X"])
    if "indptr" not in arrays:
        return CsrRows(np.zeros(n_rows + 1, np.int64), np.empty(0, np.uint16), np.empty(0, np.float32))
    return CsrRows(arrays["indptr"], arrays["indices"], arrays["data"])


def _targets_from(arrays: dict[str, NDArray[Any]]) -> Any:
    if "y/indptr" in arrays:
        return CsrRows(arrays["y/indptr"], arrays["y/indices"], arrays["y/data"])
    return arrays.get("y")


def are_offsets(indptr: NDArray[np.int64], n_values: int, width: int) -> bool:
    """Return whether `indptr` cuts `n_values` into rows of at most `width` values, as kernels rely on."""
    if indptr[0] != 0 or indptr[-1] != n_values:
        return False
    # compared before subtracting, as differences of arbitrary offsets could overflow
    return bool(np.all(indptr[1:] >= indptr[:-1])) and int(np.diff(indptr).max(initial=0)) <= width


def are_below(numbers: NDArray[Any], n: int) -> bool:
    """Return whether all numbers are 0, ..., n - 1; costs a tenth of their checksum."""
    info = np.iinfo(numbers.dtype)
    # The type alone may prove the bound.
    if not len(numbers) or (info.min == 0 and info.max < n):
        return True
    return bool(numbers.max() < n and (info.min == 0 or numbers.min() >= 0))


def _check_structure(arrays: dict[str, NDArray[Any]], meta: DatasetMeta, where: str) -> None:
    """Refuse offsets and indices that would lead a kernel out of bounds: checksums do not prove them valid."""
    for name, width in (("indptr", meta.n_features), ("y/indptr", len(meta.classes))):
        if name not in arrays:
            continue
        if not are_offsets(arrays[name], len(arrays[name.replace("indptr", "indices")]), width):
            raise CorruptDataError(f"{where}, array {name}: row offsets are inconsistent; {_REMEDY}")
    if "indices" in arrays and not are_below(arrays["indices"], meta.n_features):
        raise CorruptDataError(f"{where}, array indices: column numbers out of range; {_REMEDY}")
    for name in {"class": ("y",), "multilabel": ("y/indices",)}.get(meta.target, ()):
        if not are_below(arrays[name], len(meta.classes)):
            raise CorruptDataError(f"{where}, array {name}: class codes out of range; {_REMEDY}")
