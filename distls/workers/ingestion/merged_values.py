"""Different values of a column that its transforms, and the type in which they are stored, make one value."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distls.storage.errors import BadInputError
from distls.storage.rows import CsrRows, DenseRows, Rows, n_rows_of, take_rows
from distls.workers.ingestion.column_moments import columns_of
from distls.workers.ingestion.parsing.array_types import Array, Bools, Doubles, Ints
from distls.workers.ingestion.transforms import apply_transforms, has_step

# Whole numbers up to here stay apart when they are scaled, wherever among them their mean is.
_APART = 2.0**22
_LOGARITHMS_APART = 2.0**17  # and the logarithms of them
_WHOLE = 2.0**63  # beyond, no integer type has them
_ROWS = 256  # of a partition, that tell of numbers with a fraction
_SHARE = 8  # some fractions are always rounded to one: more than one of so many is a loss
_FEW = 8  # values that are compared with those of other partitions
_FIRST = 2**13  # values of a column that are compared before all are
_TOGETHER = 64  # rows

Steps = Sequence[Mapping[str, Any]]
# values of a column, increasing, each with what the steps make of it in float64
Values = list[tuple[float, float]]
Merged = list[tuple[int, Values]]  # by column


@dataclass(frozen=True)
class Merging:
    """The steps that treat each value by itself, and the type that is stored."""

    steps: Steps
    fitted: Mapping[str, Array]
    dtype: str

    def found(self, x: Rows) -> Merged:
        """Return the columns of rows in which different values become equal, each with two of them.

        All whole numbers of columns with large ones are compared, and others of some rows. Where none become equal,
        columns of few values with large ones among them are returned with these, as other rows may have others. No row
        is changed.
        """
        steps = self._own()
        if not steps:
            return []
        # of sparse rows the columns that are centred
        leading = max((int(step.get("dense", 0)) for step in self.steps), default=0)
        width = x.values.shape[1] if isinstance(x, DenseRows) else leading
        # how far from zero the means of these columns are, as far as they are centred
        means = np.abs(self.fitted["mean"][:width]) if "mean" in self.fitted else np.zeros(width)
        columns: dict[int, Values] = {}
        with np.errstate(all="ignore"):
            try:
                if width:
                    columns |= self._of_some_rows(_some_rows(x, width), steps)
                for column, values in _large_columns(x, means, self._apart()):
                    if column not in columns:
                        columns[column] = self._of_column(column, values, steps)
                if isinstance(x, CsrRows):
                    columns |= self._of_entries(x, width, steps)
            except BadInputError:
                return []  # who transforms all rows names the one that cannot be
        return [(column, values) for column, values in columns.items() if values]

    def _own(self) -> list[dict[str, Any]]:
        """Return the steps of numbers as they are applied to a column alone."""
        rowwise = (n for n, s in enumerate(self.steps) if s["name"] == "l2norm" and "ranges" not in s)
        own = (step for step in self.steps[: next(rowwise, len(self.steps))] if "ranges" not in step)
        return [{name: value for name, value in step.items() if name != "dense"} for step in own]

    def _apart(self) -> float:
        return _LOGARITHMS_APART if has_step(self.steps, "log1p") else _APART

    def _after(self, values: Array, first: int, steps: Steps) -> Array:
        """Return what becomes of values of the columns first, ...; shape (n_values, n_columns) as they have."""
        columns = slice(first, first + values.shape[1])
        fitted = {name: self.fitted[name][columns] for name in ("idf", "mean", "std") if name in self.fitted}
        x = apply_transforms(DenseRows(values.copy()), steps, fitted, "")
        assert isinstance(x, DenseRows)
        return x.values

    def _pair(self, values: Array, at: int, column: int, steps: Steps) -> Values:
        two = values[at : at + 2].astype(np.float64)
        return list(zip(two.tolist(), self._after(two[:, None], column, steps)[:, 0].tolist(), strict=True))

    def _of_some_rows(self, values: Array, steps: Steps) -> dict[int, Values]:
        values = np.sort(values, axis=0)
        stored = self._after(values, 0, steps).astype(self.dtype)
        differs = values[1:] != values[:-1]
        equal = differs & (stored[1:] == stored[:-1])
        many = equal.sum(axis=0) * _SHARE > differs.sum(axis=0)
        found = equal & (many | _whole_pairs(values))
        return {
            int(c): self._pair(values[:, c], int(np.flatnonzero(found[:, c])[0]), int(c), steps)
            for c in np.flatnonzero(found.any(axis=0))
        }

    def _of_column(self, column: int, values: Array, steps: Steps) -> Values:
        for some in (values[:_FIRST], values):
            different = np.sort(some)
            different = different[np.concatenate([[True], different[1:] != different[:-1]])]
            stored = self._after(different[:, None], column, steps)[:, 0].astype(self.dtype)
            equal = np.flatnonzero((stored[1:] == stored[:-1]) & _whole_pairs(different))
            if len(equal):
                return self._pair(different, int(equal[0]), column, steps)
        if len(different) > _FEW:
            return []
        after = self._after(different[:, None].astype(np.float64), column, steps)[:, 0]
        return list(zip(different.astype(np.float64).tolist(), after.tolist(), strict=True))

    def _of_entries(self, x: CsrRows, width: int, steps: Steps) -> dict[int, Values]:
        """Compare large values of sparse columns, which are divided, so that only near ones become equal."""
        own = _large(x.data, self._apart())
        own = own[x.indices[own] >= width]
        own = own[np.lexsort((x.data[own], x.indices[own]))]
        columns, values = x.indices[own], x.data[own]
        rows = CsrRows(np.array([0, len(own)]), columns.copy(), values.copy())
        stored = apply_transforms(rows, steps, self.fitted, "")
        assert isinstance(stored, CsrRows)
        after = stored.data.astype(self.dtype)
        equal = (columns[1:] == columns[:-1]) & (values[1:] != values[:-1]) & (after[1:] == after[:-1])
        found = np.flatnonzero(equal & _whole_pairs(values))[::-1]
        return {int(columns[at]): self._pair(values, int(at), int(columns[at]), steps) for at in found}


def _whole_pairs(values: Array) -> Bools:
    """Return where two consecutive values are whole numbers; shape that of differences along the first axis."""
    whole = (values == np.floor(values)) & (np.abs(values) < _WHOLE)
    return whole[1:] & whole[:-1]


def _some_rows(x: Rows, width: int) -> Array:
    """Return the first `width` values of rows here and there."""
    n_rows = n_rows_of(x)
    rows = np.arange(0, n_rows, max(1, n_rows // _ROWS))[:_ROWS]
    return columns_of(take_rows(x, rows), np.arange(width))


def _large(values: Array, apart: float) -> Ints:
    if not len(values) or max(values.max(), -values.min()) <= apart:  # the usual case, without a temporary
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(np.abs(values) > apart)


def _sizes(values: Array) -> Array:
    """Return the largest magnitude of each column of some rows."""
    n_rows, width = values.shape
    # many rows side by side, as a loop over the few values of one costs more
    rest = n_rows % _TOGETHER if n_rows > _TOGETHER else n_rows
    parts = [values[:rest]] if rest else []
    if rest < n_rows:
        wide = values[rest:].reshape(-1, _TOGETHER * width)
        parts += [each.reshape(_TOGETHER, width) for each in (wide.max(axis=0), wide.min(axis=0))]
    return np.maximum.reduce([np.abs(part).max(axis=0) for part in parts])


def _large_columns(x: Rows, means: Doubles, apart: float) -> Iterator[tuple[int, Array]]:
    """Yield each of the first columns with values beyond `apart`, or whose mean is, and all of its values.

    Of one without a large value here the largest may be in other rows. `means` has sizes, shape (n_columns,).
    """
    if isinstance(x, DenseRows):
        if len(x.values):
            sizes = np.maximum(_sizes(x.values), means)
            yield from ((int(c), x.values[:, c]) for c in np.flatnonzero(sizes > apart))
        return
    large = x.indices[_large(x.data, apart)]
    columns = np.union1d(large[large < len(means)], np.flatnonzero(means > apart))
    if not len(columns):
        return
    own = np.flatnonzero(np.isin(x.indices, columns))
    own = own[np.argsort(x.indices[own], kind="stable")]
    ends = np.searchsorted(x.indices[own], columns, side="right")
    for column, entries in zip(columns.tolist(), np.split(own, ends[:-1]), strict=True):
        values = x.data[entries]
        # what is not stored is zero
        yield column, values if len(values) == len(x.indptr) - 1 else np.append(values, values.dtype.type(0))
