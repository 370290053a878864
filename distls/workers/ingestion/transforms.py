"""Transforms of the features at ingest: steps, fitted arrays, application to rows in memory.

Steps are plain dictionaries in order, ``{"name": "scale", "divisor": 255.0}``, stored with the dataset, so that
``--like`` applies to a test set exactly the transforms of its training set.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from distls.storage.errors import BadInputError, ParameterError
from distls.storage.filesystem.atomic import canonical_json
from distls.storage.rows import CsrRows, DenseRows, Rows, index_dtype
from distls.workers.compilation.jit import kernel
from distls.workers.ingestion.column_moments import row_blocks
from distls.workers.ingestion.parsing.array_types import Array, Doubles, Ints
from distls.workers.linear_algebra.column_selection import places_of

Ranges = Sequence[Sequence[int]]  # first column and last + 1


def impute(x: Rows, step: Mapping[str, Any], fitted: Mapping[str, Array], where: str) -> Rows:
    """Fill in missing values, and add a feature for each column of ``indicators``: 1 where it lacks one."""
    fill, marked = fitted["fill"], np.array(step["indicators"], dtype=np.int64)
    width = step["columns"]
    # indicators come last, so that the columns of the source keep their numbers
    if isinstance(x, DenseRows):
        gaps = np.isnan(x.values)
        filled = np.where(gaps, fill[:width], x.values).astype(x.values.dtype)
        return DenseRows(np.hstack([filled, gaps[:, marked].astype(x.values.dtype)]))
    return _imputed_sparse(x, step, fill, marked)


def _imputed_sparse(x: CsrRows, step: Mapping[str, Any], fill: Doubles, marked: Ints) -> CsrRows:
    n_rows, width = len(x.indptr) - 1, step["columns"]
    indices = x.indices.astype(index_dtype(width + len(marked)))
    for category, other in step.get("moved", ()):  # within its column, so that the order stays
        indices[indices == category] = other
    # NaN is stored as any number that is not zero, so that nothing else has to be looked up
    gaps = np.isnan(x.data)
    data = np.where(gaps, fill[indices], x.data).astype(x.data.dtype)
    rows = np.repeat(np.arange(n_rows), np.diff(x.indptr))
    place = np.full(width + 1, -1)
    place[marked] = np.arange(len(marked))
    own = gaps & (place[indices] >= 0)
    # behind the row's others, as their numbers are larger than all of these
    # what was filled in with zero is not stored
    kept = np.flatnonzero(data != 0.0)
    added = rows[own]
    counts = np.bincount(rows[kept], minlength=n_rows) + np.bincount(added, minlength=n_rows)
    order = np.argsort(np.concatenate([rows[kept], added]), kind="stable")
    indices = np.concatenate([indices[kept], (width + place[indices[own]]).astype(indices.dtype)])[order]
    data = np.concatenate([data[kept], np.ones(len(added), data.dtype)])[order]
    return CsrRows(np.concatenate([[0], np.cumsum(counts)]), indices, data)


def normalise_ranges(x: Rows, ranges: Ranges) -> None:
    """Divide the values of each row by their Euclidean norm, in place, those of each range by their own."""
    for first, stop in ranges:
        if isinstance(x, DenseRows):
            part = x.values[:, first:stop]
            norms = np.sqrt(np.square(part, dtype=np.float64).sum(axis=1))
            part /= np.where(norms == 0.0, 1.0, norms)[:, None].astype(part.dtype)
            continue
        # without a kernel: partitions have few ranges, and numpy takes a small part of the time of hashing
        own = (x.indices >= first) & (x.indices < stop)
        rows = np.repeat(np.arange(len(x.indptr) - 1), np.diff(x.indptr))[own]
        # summed in the order of the columns, so that a row alone has the same bits
        squares = np.bincount(rows, np.square(x.data[own], dtype=np.float64), len(x.indptr) - 1)
        x.data[own] = (x.data[own] / np.sqrt(squares)[rows]).astype(x.data.dtype)


def in_ranges(x: Rows, ranges: Ranges) -> Any:
    """Return where the values of rows are in some range: a mask of those stored, or of columns."""
    columns = x.indices if isinstance(x, CsrRows) else np.arange(x.values.shape[1])
    found = np.zeros(len(columns), dtype=bool)
    for first, stop in ranges:
        found |= (columns >= first) & (columns < stop)
    return found if isinstance(x, CsrRows) else (slice(None), found)


def centre_leading(x: CsrRows, width: int, mean: Doubles, std: Doubles) -> CsrRows:
    """Return rows whose first `width` columns are centred and divided by their deviations; zeros are not stored."""
    n_rows = len(x.indptr) - 1
    rows, own = np.repeat(np.arange(n_rows), np.diff(x.indptr)), x.indices < width
    # what is not stored is zero, which is as far from the mean as the mean is large
    values = np.zeros((n_rows, width))
    values[rows[own], x.indices[own]] = x.data[own]
    values = ((values - mean[:width]) / std[:width]).astype(x.data.dtype)
    # each row: its numbers, then what it had behind them, which is in order
    leading = np.bincount(rows[own], minlength=n_rows)
    starts = np.asarray(x.indptr[:-1]) - np.cumsum(leading) + leading + width * np.arange(n_rows)
    shift = starts + width - x.indptr[:-1] - leading
    indices = np.empty(n_rows * width + int((~own).sum()), x.indices.dtype)
    data = np.empty(len(indices), x.data.dtype)
    places = (starts[:, None] + np.arange(width)).reshape(-1)
    indices[places], data[places] = np.tile(np.arange(width), n_rows), values.reshape(-1)
    others = np.flatnonzero(~own) + shift[rows[~own]]
    indices[others], data[others] = x.indices[~own], x.data[~own]
    ends = np.concatenate([starts, [len(data)]])
    # a value that is the mean
    kept = data != 0.0
    before = np.concatenate([[0], np.cumsum(kept)])
    return CsrRows(before[ends], indices[kept], data[kept])


NAMES = ("log1p", "idf", "l2norm", "scale", "standardize")
AUTO = "auto"  # which of them is decided when all rows were read
# Arrays that are fitted: the columns that min_count keeps, idf weights, mean and standard deviation, and what stands
# for missing values.
FITTED = ("kept", "idf", "mean", "std", "fill")

_LARGEST_SQUARED = 1e150
_FEW = 16  # columns for each value, where values are looked up one by one

Steps = Sequence[Mapping[str, Any]]
Fitted = Mapping[str, Array]


def parse_transforms(names: str | Sequence[str]) -> tuple[dict[str, Any], ...]:
    """Turn ``"log1p,idf"``, ``["log1p", "scale=255"]`` or ``"none"`` into steps, or raise ParameterError."""
    given = [name.strip() for name in (names.split(",") if isinstance(names, str) else names) if name.strip()]
    if len(given) > 1 and "none" in given:
        raise ParameterError("transform none leaves the values as they are; give it alone")
    steps = tuple(_parse_transform(name) for name in given if name != "none")
    if len(steps) > 1 and has_step(steps, AUTO):
        raise ParameterError("transform auto chooses all transforms; give it alone")
    if sum(step["name"] == "idf" for step in steps) > 1:
        remedy = "its weights are fitted once, on the source values"
        raise ParameterError(f"transform idf is given twice; {remedy}")
    if sum(step["name"] == "standardize" for step in steps) > 1:
        raise ParameterError("transform standardize is given twice; it is fitted once")
    return steps


def _parse_transform(text: str) -> dict[str, Any]:
    name, equals, value = text.partition("=")
    if name not in (*NAMES, AUTO):
        raise ParameterError(f"unknown transform {name!r}; there are {', '.join((*NAMES, AUTO, 'none'))}")
    if name != "scale":
        if equals:
            raise ParameterError(f"transform {name} takes no value, {text!r} was given")
        return {"name": name}
    try:
        divisor = float(value)
    except ValueError:
        divisor = 0.0
    if not 0.0 < divisor < np.inf:
        raise ParameterError(f"transform scale needs a positive divisor, as in scale=255; {text!r} was given")
    return {"name": name, "divisor": divisor}


def has_step(steps: Steps, *names: str) -> bool:
    """Return whether some step has one of these names."""
    return any(step["name"] in names for step in steps)


def needs_digits(steps: Steps) -> bool:
    """Return whether rows are float64 until they are transformed, as float32 would not tell their values apart."""
    return any(step.get("float64", False) for step in steps)


def in_type(x: Rows, dtype: str) -> Rows:
    """Return rows with values of a type."""
    if isinstance(x, CsrRows):
        return CsrRows(x.indptr, x.indices, x.data.astype(dtype, copy=False))
    return DenseRows(x.values.astype(dtype, copy=False))


def centres(steps: Steps) -> bool:
    """Return whether numbers beside sparse columns are centred."""
    return any("dense" in step for step in steps)


def idf_weights(counts: Ints, n_rows: int) -> Doubles:
    """Return scikit-learn's smooth idf, ``ln((1 + n) / (1 + df)) + 1``, from document counts, shape (n_features,)."""
    return np.log((1.0 + n_rows) / (1.0 + counts)) + 1.0


def source_width(steps: Steps, n_features: int) -> int:
    """Return the number of source columns of rows that have `n_features` after the steps."""
    return next((step["columns"] for step in steps if "columns" in step), n_features)


def stored_width(steps: Steps, n_columns: int) -> int:
    """Return the number of columns after the steps of rows that have `n_columns` before."""
    return next((step["kept"] for step in reversed(steps) if "kept" in step), n_columns)


def transforms_digest(steps: Steps, fitted: Fitted) -> str:
    """Return a sha256 of names, parameters and fitted arrays; empty without steps."""
    if not steps:
        return ""
    digest = hashlib.sha256(canonical_json([dict(step) for step in steps]).encode())
    for name in sorted(fitted.keys() & set(FITTED)):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(fitted[name], dtype="<f8").tobytes())
    return digest.hexdigest()


def apply_transforms(x: Rows, steps: Steps, fitted: Fitted, where: str) -> Rows:
    """Apply steps to rows, in place unless their width changes, and return them; messages call the rows `where`.

    `fitted` has ``kept``, the columns that min_count keeps, increasing, and ``idf``, ``mean``, ``std`` (n_features,).
    Raises BadInputError, with the row's number in the block, for log1p of a value <= -1 and results that are not
    finite.
    """
    for step in steps:
        x = _APPLY[step["name"]](x, step, fitted, where)
    values = _values(x)
    # one pass without a temporary in the usual case; a sum may also overflow, so look for the value
    if steps and not np.isfinite(values.sum(dtype=np.float64)):
        bad = np.flatnonzero(~np.isfinite(values.reshape(-1)))
        if len(bad):
            row = _row_of(x, int(bad[0]))
            raise BadInputError(f"{where}, row {row}: a value is not finite after the transforms")
    return x


def _values(x: Rows) -> Array:
    return x.data if isinstance(x, CsrRows) else x.values


def _row_of(x: Rows, position: int) -> int:
    """Return the row that holds the value at a flat position."""
    if isinstance(x, DenseRows):
        return position // x.values.shape[1]
    return int(np.searchsorted(x.indptr, position, side="right")) - 1


def _min_count(x: Rows, step: Mapping[str, Any], fitted: Fitted, where: str) -> Rows:
    kept = fitted["kept"]
    if isinstance(x, DenseRows):
        return DenseRows(np.ascontiguousarray(x.values[:, kept]))
    if len(x.indices) < min(step["columns"] // _FEW, 2**16):
        # a row or two to be served: a table of all columns would cost more than the rest; values stand for columns
        place = places_of(x.indices, kept)
        x.indices[:] = np.arange(len(x.indices))
    else:
        place = np.full(step["columns"], -1, dtype=np.int64)
        place[kept] = np.arange(len(kept))
    keep_columns(x.indptr, x.indices, x.data, place)
    nnz = int(x.indptr[-1])
    return CsrRows(x.indptr, x.indices[:nnz].astype(index_dtype(len(kept))), x.data[:nnz])


def _log1p(x: Rows, step: Mapping[str, Any], fitted: Fitted, where: str) -> Rows:
    values = _values(x)
    own = in_ranges(x, step["ranges"]) if "ranges" in step else ...
    if values.size and values[own].min(initial=0.0) <= -1:
        wrong = np.zeros(values.shape, dtype=bool)
        wrong[own] = values[own] <= -1
        position = int(np.flatnonzero(wrong.reshape(-1))[0])
        value = float(values.reshape(-1)[position])
        remedy = "values must be above -1"
        raise BadInputError(f"{where}, row {_row_of(x, position)}: log1p of {value:g}; {remedy}")
    if own is ...:
        np.log1p(values, out=values)
    else:
        values[own] = np.log1p(values[own])
    return x


def _idf(x: Rows, step: Mapping[str, Any], fitted: Fitted, where: str) -> Rows:
    if isinstance(x, CsrRows):
        scale_columns(x.indices, x.data, np.asarray(fitted["idf"], dtype=np.float64))
    else:
        np.multiply(x.values, fitted["idf"], out=x.values, casting="same_kind")
    return x


def _l2norm(x: Rows, step: Mapping[str, Any], fitted: Fitted, where: str) -> Rows:
    if "ranges" in step:
        normalise_ranges(x, step["ranges"])
        return x
    values = _values(x)
    if values.dtype == np.float64 and values.size and (largest := np.abs(values).max()) > _LARGEST_SQUARED:
        raise BadInputError(
            f"{where}: l2norm of values up to {largest:g}: their squares are beyond float64; divide first: "
            f"ingest with --transform scale={largest:.0e},l2norm"
        )
    if isinstance(x, CsrRows):
        normalise_rows(x.indptr, x.data)
        return x
    norms = np.sqrt(np.einsum("ij,ij->i", x.values, x.values, dtype=np.float64))
    norms[norms == 0.0] = 1.0
    np.divide(x.values, norms[:, None], out=x.values, casting="same_kind")
    return x


def _scale(x: Rows, step: Mapping[str, Any], fitted: Fitted, where: str) -> Rows:
    values = _values(x)
    np.divide(values, step["divisor"], out=values, casting="same_kind")
    return x


def _standardize(x: Rows, step: Mapping[str, Any], fitted: Fitted, where: str) -> Rows:
    std = np.asarray(fitted["std"], dtype=np.float64)
    if isinstance(x, CsrRows) and "dense" in step:
        return centre_leading(x, step["dense"], fitted["mean"], std)
    if isinstance(x, CsrRows):
        # centring would make the rows dense
        scale_columns(x.indices, x.data, 1.0 / std)
        return x
    for block in row_blocks(x.values):
        # without a mean, if this was fitted on sparse rows: dense ones are not centred either
        np.divide(block - fitted.get("mean", 0.0), std, out=block, casting="same_kind")
    return x


_APPLY: dict[str, Callable[[Rows, Mapping[str, Any], Fitted, str], Rows]] = {
    "impute": impute,
    "min_count": _min_count,
    "log1p": _log1p,
    "idf": _idf,
    "l2norm": _l2norm,
    "scale": _scale,
    "standardize": _standardize,
}


@kernel
def normalise_rows(indptr: Ints, data: Array) -> None:
    """Divide each row by its Euclidean norm, in place; rows of zeros stay."""
    for r in range(len(indptr) - 1):
        square = 0.0
        for k in range(indptr[r], indptr[r + 1]):
            square += np.float64(data[k]) * np.float64(data[k])
        if square > 0.0:
            norm = np.sqrt(square)
            for k in range(indptr[r], indptr[r + 1]):
                data[k] = data[k] / norm


@kernel
def keep_columns(indptr: Ints, indices: Array, data: Array, place: Ints) -> None:
    """Renumber column c to place[c], or drop it if that is negative, in place; `indptr` is updated."""
    kept, start = 0, indptr[0]
    for r in range(len(indptr) - 1):
        stop = indptr[r + 1]
        for k in range(start, stop):
            column = place[indices[k]]
            if column >= 0:
                indices[kept] = column
                data[kept] = data[k]
                kept += 1
        start, indptr[r + 1] = stop, kept


@kernel
def scale_columns(indices: Array, data: Array, weights: Doubles) -> None:
    """Multiply each value by the weight (shape (n_features,)) of its column, in place."""
    for k in range(len(data)):
        data[k] = data[k] * weights[indices[k]]
