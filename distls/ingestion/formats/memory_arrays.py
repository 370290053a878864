"""Arrays in memory and dask arrays as sources."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Set
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from distls.ingestion.request import source_plan
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan, shared_options
from distls.storage.errors import BadInputError, ParameterError
from distls.workers.ingestion.formats.memory_arrays import COMPUTED_READER, MEMORY_READER, ComputedItem, MemoryItem
from distls.workers.ingestion.parsing.array_types import Array, Bools
from distls.workers.ingestion.records.labels import LabelSets, label_sets
from distls.workers.ingestion.records.record_batch import ArrayHeader, ReadOptions

if TYPE_CHECKING:
    from distls.ingestion.formats.dask_arrays import RowChunks
    from distls.ingestion.formats.format_registry import ReadRequest

_CHUNK_BYTES = 2**27
_EXACT = 2**53  # whole numbers below are kept by float64
_NAMELESS = ("nan", "NaN", "None", "<NA>", "NaT")
_EXPECTED = "expected an array, a sparse matrix, a DataFrame or a dask array of numbers"


def plan_arrays(x: Any, y: Any, sample_weight: Any, options: IngestOptions) -> SourcePlan:
    """Check arrays in memory and cut them into items.

    Raises BadInputError if shapes do not match, or the arrays do not hold real numbers.
    """
    x = unwrapped("X", x)
    y, sample_weight = (
        value if value is None else unwrapped(name, value)
        for name, value in (("y", y), ("sample_weight", sample_weight))
    )
    if hasattr(x, "__dask_graph__"):
        return _plan_chunks(x, y, sample_weight, options)
    from scipy.sparse import csr_array, issparse  # slow to import, and files do not need it

    sparse = issparse(x)
    x = csr_array(x) if sparse else np.asarray(x)
    if x.ndim != 2 or x.dtype.kind not in "fiub":
        remedy = "rows of real numbers are needed"
        raise BadInputError(f"X: an array of shape {x.shape} and type {x.dtype}; {remedy}")
    y = _row_values("y", y, x.shape[0])
    weight = _row_values("sample_weight", sample_weight, x.shape[0])
    _check_labelled(y, options)
    row_bytes = 8 * x.nnz // max(x.shape[0], 1) if sparse else 4 * x.shape[1]
    step = max(1, source_plan.RANGE_BYTES // max(row_bytes, 16))
    ranges = [(start, min(start + step, x.shape[0])) for start in range(0, x.shape[0], step)]
    n_bytes = (12 * x.nnz if sparse else 4 * x.size) + 8 * x.shape[0]
    return SourcePlan(
        "memory",
        MEMORY_READER,
        (),
        tuple(MemoryItem(n, x, y, weight, start, stop) for n, (start, stop) in enumerate(ranges)),
        tuple((stop - start) * max(n_bytes // max(x.shape[0], 1), 1) for start, stop in ranges),
        ReadOptions(**shared_options(options)),
        (ArrayHeader(x.shape[0], x.shape[1], sparse),),
        labelled=y is not None,
        weighted=weight is not None,
        notices=_doubtful_words(y),
        labels=y.known if isinstance(y, LabelSets) else (),
        estimate=float(n_bytes),
        in_process=True,
        facts=_memory_identity(x, y, weight),
    )


def _check_labelled(y: Any, options: IngestOptions) -> None:
    if y is None and not options.unlabelled:
        raise BadInputError("y: no labels; give them, or unlabelled=True")


def _plan_chunks(x: Any, y: Any, sample_weight: Any, options: IngestOptions) -> SourcePlan:
    """Plan a dask array: an item is a row chunk."""
    from distls.ingestion.formats.dask_arrays import RowChunks  # loads Dask, which is there with a dask array

    _check_labelled(y, options)
    chunks = RowChunks(x, y, sample_weight)
    rows, sets = chunks.rows, options.multilabel
    starts = [0] * len(chunks) if rows is None else np.cumsum([0, *rows[:-1]]).tolist()
    items = tuple(
        ComputedItem(n, "X" if rows else f"X, chunk {n}", start, partial(_computed, chunks, n, sets))
        for n, start in enumerate(starts)
    )
    row_bytes = chunks.n_features * (8 if options.float64 else 4)
    # sparse chunks, or those of unknown size, are hardly larger than Dask recommends
    estimate = min(sum(rows or [2**31]) * row_bytes, len(chunks) * _CHUNK_BYTES)
    return SourcePlan(
        "memory",
        COMPUTED_READER,
        (),
        items,
        tuple(rows or [1] * len(chunks)),
        ReadOptions(**shared_options(options)),
        (ArrayHeader(-1, chunks.n_features, chunks.sparse),),
        labelled=y is not None,
        weighted=sample_weight is not None,
        estimate=float(estimate),
        in_process=True,
        facts={"path": "dask arrays", "chunks": len(chunks), "names": chunks.names},
    )


def _computed(chunks: RowChunks, number: int, multilabel: bool) -> tuple[Any, Any, Any]:
    from scipy.sparse import csr_array

    x, y, weight = chunks.compute(number)
    # the layout was decided by the declared type of the blocks
    if hasattr(x, "tocsr") != chunks.sparse:
        raise BadInputError(
            f"X, chunk {number}: a {type(x).__name__}, but its meta is a {type(chunks.x._meta).__name__}; "
            "declare it, as in map_blocks(..., meta=scipy.sparse.csr_matrix((0, 0)))"
        )
    x = csr_array(x.tocsr()) if chunks.sparse else np.asarray(x)
    try:
        y = label_sets(y, True) if multilabel else y
        return x, _row_values("y", y, x.shape[0]), _row_values("sample_weight", weight, x.shape[0])
    except BadInputError as error:  # name the chunk
        raise BadInputError(f"X, chunk {number}: {error}") from None


def _row_values(name: str, values: Any, n_rows: int) -> Any:
    if values is None:
        return None
    if isinstance(values, LabelSets) and len(values) == n_rows:
        return values
    values = _plain_values(values) if not isinstance(values, LabelSets) else np.empty(len(values))
    if len(values) != n_rows or values.ndim not in ((1, 2) if name == "y" else (1,)):
        raise BadInputError(f"{name}: shape {values.shape} does not go with the {n_rows} rows of X")
    if name == "y" and _are_words(values):
        if values.ndim > 1:
            raise BadInputError(f"y: string labels must be one-dimensional, got shape {values.shape}")
        return values.astype(str)
    if values.dtype.kind not in "fiub":
        wanted = "real numbers or words" if name == "y" else "real numbers"
        raise BadInputError(f"{name}: values of type {values.dtype}; {wanted} are needed")
    return values


def _are_words(values: Array) -> bool:
    return values.dtype.kind in "UT" or (
        values.dtype.kind == "O" and all(isinstance(value, str) for value in values.flat)
    )


def _plain_values(given: Any) -> Array:
    """Return objects as numbers or words if they are some, those that are missing as NaN or an empty text."""
    values = np.asarray(given)
    if isinstance(given, (list, tuple)) and values.dtype.kind == "U":  # in which a NaN has become a word
        values[are_missing(np.array(given, dtype=object))] = ""
    if values.dtype.kind != "O":
        return values
    missing = are_missing(values)
    there = [each.item() if isinstance(each, np.generic) else each for each in values[~missing]]
    if all(isinstance(value, (bool, int, float)) for value in there) and there:
        found = np.array(there)
        whole = found.dtype.kind != "f"
        if not missing.any() and found.dtype.kind != "O":
            return found.reshape(values.shape)
        # whole numbers that float64 does not keep are words
        if not whole or max(map(abs, there)) < _EXACT:
            values = np.full(values.shape, np.nan)
            values[~missing] = found
            return values
        there = [str(value) for value in there]
    elif not all(isinstance(value, str) for value in there):
        return values
    values = np.full(values.shape, "", dtype=object)
    values[~missing] = there
    return values


def are_missing(values: Array) -> Bools:
    """Return which objects stand for no value: None, NaN, and those of pandas."""
    found = [
        value is None or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, (float, np.floating)) and value != value)
        for value in values.flat
    ]  # fmt: skip
    return np.array(found, dtype=bool).reshape(values.shape)


def _doubtful_words(y: Any) -> tuple[str, ...]:
    """Return a notice of classes whose names are those of missing values as texts."""
    names = [name for name in _NAMELESS if isinstance(y, np.ndarray) and y.dtype.kind == "U" and name in y]
    said = ", ".join(f'"{name}"' for name in names)
    remedy = "give None in their place, and --drop unknown leaves their rows out"
    return (f"y: {said} is a class, though missing labels become that as texts: {remedy}",) * bool(names)


def _memory_identity(x: Any, y: Any, weight: Any) -> dict[str, Any]:
    # arrays have no name or time by which a change would be noticed: their content is compared
    parts = [x] if isinstance(x, np.ndarray) else [x.indptr, x.indices, x.data]
    crc = 0
    for array in (*parts, *((y.ends, y.labels) if isinstance(y, LabelSets) else (y,)), weight):
        if array is not None:
            crc = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"", crc)
    return {"path": "arrays in memory", "size": int(x.shape[0]), "crc32": crc}


def own_columns(x: Any, y: Any, weight: Any, request: ReadRequest) -> tuple[Any, Any, Any, ReadRequest]:
    """Return labels and weights that are columns of ``obs`` of an AnnData object, as they may be of one in a file."""
    if not hasattr(x, "obs") or not hasattr(x, "X"):
        return x, y, weight, request
    request, columns = request.without("label_column", "weight_column")
    for name in filter(None, columns):
        if name not in x.obs:
            raise ParameterError(f'X: no column "{name}" of obs; it has {", ".join(map(str, x.obs))}')
    label, weights = (None if name is None else np.asarray(x.obs[name]) for name in columns)
    if any(given is not None and own is not None for given, own in ((y, label), (weight, weights))):
        raise ParameterError("labels and weights are given as arrays or as columns of obs, not both")
    return x, y if label is None else label, weight if weights is None else weights, request


def unwrapped(name: str, value: Any) -> Any:
    """Return the array in an xarray DataArray or an AnnData object, any other value as it is.

    Masked values are missing ones, NaN or None.

    Raises BadInputError if the value, which messages call `name`, holds several arrays or is nothing like an array.
    """
    if hasattr(value, "tocsr"):  # some sparse matrices are mappings too
        return value
    if isinstance(value, np.ma.MaskedArray):
        if not np.ma.is_masked(value):
            return value.data
        numbers = value.dtype.kind == "f" or (name != "y" and value.dtype.kind in "biu")
        own = value.dtype if value.dtype.kind == "f" else np.float64
        whole = value.data.astype(own if numbers else object)
        whole[np.ma.getmaskarray(value)] = np.nan if numbers else None
        return whole
    kind, home = type(value).__name__, type(value).__module__.partition(".")[0]
    if home == "xarray":
        if kind != "DataArray":
            remedy = f"give one of them, as in {name}['name']"
            raise BadInputError(f"{name}: an xarray {kind} of several arrays; {remedy}")
        return value.data
    if home == "anndata":
        if getattr(value, "X", None) is None:
            remedy = f"give a layer, as in {name}.layers['raw']"
            raise BadInputError(f"{name}: an AnnData object without X; {remedy}")
        return value.X
    if value is None or isinstance(value, (Mapping, Set, Iterator, bytes)):
        raise BadInputError(f"{name}: {_EXPECTED}, not {'None' if value is None else f'a {kind}'}")
    return value
