"""Rows in memory to the rows that a model scores: hashing, categories, column names and transforms of its training."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from distls.facts import warn_caller
from distls.ingestion.formats.column_kinds import later_notices
from distls.ingestion.formats.documents import known_hashing
from distls.ingestion.formats.parquet import check_like_kinds
from distls.ingestion.formats.tables import is_table, like_columns, listed
from distls.ingestion.imputation_fit import stand_in_notice
from distls.ingestion.request.format_options import TableColumns
from distls.ingestion.request.like import known_stand_ins, like_model
from distls.ingestion.request.options import IngestOptions
from distls.storage.dataset.feature_names import unpack_names
from distls.storage.errors import BadInputError, FormatError, MismatchError
from distls.storage.model.model import LinearModel
from distls.storage.rows import CsrRows, DenseRows, Rows, dense_of, index_dtype
from distls.workers.ingestion.formats.arrays import row_ranges
from distls.workers.ingestion.formats.data_frames import (
    column_kinds,
    column_labels,
    is_frame,
    plain_numbers,
    record_batch,
)
from distls.workers.ingestion.formats.document_records import hashed_texts
from distls.workers.ingestion.formats.parquet import record_batch_rows
from distls.workers.ingestion.formats.parquet_files import SAMPLED
from distls.workers.ingestion.formats.table_columns import Feature, TableOptions, first_columns
from distls.workers.ingestion.parsing.rounding_kernels import EXACT
from distls.workers.ingestion.records.pack_records import checked_rows
from distls.workers.ingestion.records.record_batch import Progress, RowBlock
from distls.workers.ingestion.stand_ins import filled
from distls.workers.ingestion.transforms import apply_transforms, centres, in_type, needs_digits, source_width

_BLOCK_BYTES = 2**26  # of rows that are encoded and scored at a time
_BLOCK_TEXTS = 4096
_MOST_TABLES = 64  # orders of columns that are remembered
# Of each column its label, the first of its features, and the places of its categories; None: it has numbers.
_Singles = list[tuple[Any, int, dict[str, int] | None]]


class RowEncoder:
    """Encodes rows for one model, which messages call `name`; several threads may use it.

    With `float64` rows are stored as ``ingest --dtype float64`` does. Raises FormatError if the model's transforms or
    source cannot be applied to other data.
    """

    def __init__(self, model: LinearModel, name: str, float64: bool) -> None:
        self.name = name
        self.like = like_model(model, name)
        self.steps, self.fitted = model.transforms, model.features
        self.width = source_width(model.transforms, model.n_features)
        self.dtype = "float64" if float64 else "float32"
        # of columns that lacked no value in training
        self._stand_ins = known_stand_ins(self.like) if is_table(self.like) else None
        gaps = "fill" in self.fitted or self._stand_ins is not None
        self.wide = float64 or needs_digits(self.steps)
        self.as_stored = partial(checked_rows, n_features=self.width, float64=self.wide, gaps=gaps)
        self.source = model.source.get("format", "")
        self._description: Mapping[str, Any] = model.source.get("recipe", {})
        self._tables: dict[tuple[Any, ...], tuple[TableOptions, _Singles]] = {}
        # centred columns have no zeros
        self._fills = "mean" in self.fitted and not centres(self.steps)
        self._check_source()

    def _check_source(self) -> None:
        """Refuse a source of another width than that of the transforms: kernels trust the numbers of columns."""
        if self.is_text:
            found = known_hashing(self._description).n_features
        elif is_table(self.like):
            found = first_columns(self.features)[-1]
        else:
            return
        if found != self.width:
            raise FormatError(
                f"{self.name}: its source has {found} features, its transforms are of {self.width}; "
                "not written by distls"
            )

    @property
    def is_text(self) -> bool:
        """Whether the model's rows are hashed text."""
        return self.source == "text"

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """Columns of the training data with their features, empty if these have no names."""
        if is_table(self.like):
            return msgspec.convert(self._description["features"], tuple[Feature, ...])
        names = unpack_names(self.fitted, self.name)
        # names are those after min_count, which has left out others
        return tuple(map(Feature, names)) if names and len(names) == self.width else ()

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that a frame must have."""
        return tuple(name for f in self.features for name in (f.name, f.indices) if name)

    def blocks(self, x: Any) -> Iterator[Rows]:
        """Yield the rows of `x`, encoded and transformed, in blocks.

        Raises BadInputError or MismatchError, naming the row or column, if they are not rows of this model.
        """
        gaps: list[list[int]] = []
        for block in self._row_blocks(x):
            # hashed text is in order already
            rows = block if isinstance(block, CsrRows) else self.as_stored(block)
            if self._stand_ins is not None:
                rows, found = filled(rows, self._stand_ins)
                gaps += found
            yield in_type(apply_transforms(self._owned(rows, x), self.steps, self.fitted, "X"), self.dtype)
        if gaps and (notice := stand_in_notice(self.features, gaps)):
            warn_caller(f"{notice} ({self.name})")

    def _owned(self, rows: Rows, x: Any) -> Rows:
        """Return rows that transforms may overwrite, dense if they will be centred."""
        if not isinstance(rows, DenseRows):
            return DenseRows(dense_of(rows, self.width)) if self._fills else rows
        # kernels are compiled for arrays that can be written
        given = np.may_share_memory(rows.values, x) if isinstance(x, np.ndarray) else True
        if not rows.values.flags.writeable or (self.steps and given):
            return DenseRows(rows.values.copy())
        return rows

    # -- kinds of input ------------------------------------------------------------------------------------

    def _row_blocks(self, x: Any) -> Iterator[RowBlock] | Iterator[CsrRows]:
        if isinstance(x, (str, bytes)):
            raise BadInputError(f"X is one text; give {self.name} a list of rows")
        if hasattr(x, "collect") and not hasattr(x, "shape"):
            raise BadInputError("X is a lazy frame; give X.collect()")
        # of which all rows would be loaded
        if hasattr(x, "__dask_graph__"):
            raise BadInputError("X is a Dask collection; map this over its chunks")
        if hasattr(x, "tocsr"):
            return self._sparse_blocks(x)
        if isinstance(x, Mapping) and any(map(_is_value, x.values())):
            x = [x]
        if isinstance(x, Sequence) and x and isinstance(x[0], Mapping):
            x = _columns_of(x)
        if is_frame(x):
            return self._text_column(x) if self.is_text else self._frame_blocks(x)
        if self.is_text and getattr(x, "ndim", 1) == 1:
            return self._text_blocks(x)
        return self._array_blocks(x)

    def _sparse_blocks(self, x: Any) -> Iterator[RowBlock]:
        x = x.tocsr()
        self._check_width(x.shape)
        n_rows = x.shape[0]
        width = max(1, 3 * x.nnz // max(n_rows, 1))
        for first, stop in row_ranges(0, n_rows, width, _BLOCK_BYTES):
            part = x if stop - first == n_rows else x[first:stop]
            yield RowBlock(first, None, (part.indptr, part.indices, part.data), None)

    def _array_blocks(self, x: Any) -> Iterator[RowBlock]:
        values = np.asarray(x)
        if values.dtype.kind not in "fiub":
            values = self._as_numbers(values)
        self._check_width(values.shape)
        for first, stop in row_ranges(0, len(values), self.width, _BLOCK_BYTES):
            yield RowBlock(first, values[first:stop], None, None)

    def _as_numbers(self, values: NDArray[Any]) -> NDArray[np.float64]:
        try:
            if values.dtype.kind == "O":
                return values.astype(np.float64)
        except (TypeError, ValueError):
            pass
        needed = f"a frame with the columns {listed(self.columns)}" if self.features else "rows of numbers"
        raise BadInputError(f"X holds values of type {values.dtype}; {self.name} takes {needed}")

    def _check_width(self, shape: tuple[int, ...]) -> None:
        if len(shape) != 2:
            raise BadInputError(
                f"X has shape {shape}; {self.name} takes rows of {self.width} columns; X.reshape(1, -1) is one row"
            )
        if shape[1] != self.width:
            coded = " (a frame of the source's columns is encoded)" if self._is_coded else ""
            raise MismatchError(f"X has {shape[1]} columns, {self.name} takes {self.width} features a row{coded}")

    @property
    def _is_coded(self) -> bool:
        return any(feature.categories is not None for feature in self.features)

    # -- text ----------------------------------------------------------------------------------------------

    def _text_blocks(self, x: Any) -> Iterator[CsrRows]:
        texts = list(x)
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                raise BadInputError(f"X, row {row}: {type(text).__name__}; {self.name} takes texts")
        hashing = known_hashing(self._description)
        for first in range(0, len(texts), _BLOCK_TEXTS):
            part = texts[first : first + _BLOCK_TEXTS]
            dtype = np.dtype(np.float64 if self.wide else np.float32)
            indptr, indices, data = hashed_texts(hashing, part, dtype)
            yield CsrRows(indptr, indices.astype(index_dtype(self.width)), data)

    def _text_column(self, frame: Any) -> Iterator[CsrRows]:
        """Return the rows of the one column of a frame that holds the documents."""
        labels = column_labels(frame)
        known = self._description.get("text_column")
        found = known if known in labels else labels[0] if len(labels) == 1 else None
        if found is None:
            wanted = f' "{known}"' if known else ""
            raise MismatchError(
                f"X: no column{wanted} of documents for {self.name}; it has {listed([*map(str, labels)])}"
            )
        return self._text_blocks(frame[found])

    # -- frames --------------------------------------------------------------------------------------------

    def _frame_blocks(self, frame: Any) -> Iterator[RowBlock]:
        labels = column_labels(frame)
        if not self.features:
            yield from self._array_blocks(_unnamed(frame, labels))
            return
        table, singles = self._table_of(labels)
        one = _one_row(frame, singles) if singles and _n_rows(frame, labels) == 1 else None
        if one is not None:
            places, numbers = one
            csr = (np.array([0, len(places)]), np.array(places), np.array(numbers))
            yield RowBlock(0, np.array([numbers]) if table.dense else None, None if table.dense else csr, None)
            return
        plain = table.dense and not any(f.width or f.kind for f in table.features)
        if plain and not table.dialect.numbers:
            label_of = dict(zip(table.columns, labels, strict=True))
            values = plain_numbers(frame, [label_of[feature.name] for feature in table.features])
            if values is not None:
                yield RowBlock(0, values, None, None)
                return
        yield from self._arrow_blocks(record_batch(frame, labels, table), table)

    def _arrow_blocks(self, batch: Any, table: TableOptions) -> Iterator[RowBlock]:
        check_like_kinds(table, column_kinds(batch), "X", self.like)
        dates = {f.name: batch[f.name].slice(0, SAMPLED).to_pylist() for f in table.features if f.kind == "date"}
        for notice in later_notices(table.features, dates):
            warn_caller(f"{notice} ({self.name})")
        progress, width = (
            Progress(),
            max(1, first_columns(table.features)[-1] if table.dense else 4 * len(self.columns)),
        )
        for first, stop in row_ranges(0, batch.num_rows, width, _BLOCK_BYTES):
            part = batch.slice(first, stop - first)
            yield record_batch_rows(part, table, "X", progress, first)
        if progress.unseen and progress.unseen_first:
            row, value = progress.unseen_first
            warn_caller(
                f"{progress.unseen} value{'s' * (progress.unseen > 1)} of categories not seen in training "
                f"({self.name}), encoded as zeros; the first: X, row {row}: {value}"
            )

    def _table_of(self, labels: list[Any]) -> tuple[TableOptions, _Singles]:
        """Return how a frame of these columns is read, and how one row of it."""
        key = tuple(labels)
        found = self._tables.get(key)
        if found is None:
            table = self._matched([str(label) for label in labels])
            found = table, _singles(table, labels)
            if len(self._tables) < _MOST_TABLES:
                self._tables[key] = found
        return found

    def _matched(self, names: list[str]) -> TableOptions:
        if len(set(names)) < len(names):
            raise BadInputError("X: two columns have one name; rename one of them")
        options = IngestOptions(unlabelled=True, dtype="float64" if self.wide else "float32")
        if is_table(self.like):
            table = like_columns(names, True, "X", TableColumns(), options, self.like, remedy="leave it out")
            return replace(table, weight="", id_column="")
        if lacking := [name for name in self.columns if name not in names]:
            what = "which is a feature" if len(lacking) == 1 else "which are features"
            raise MismatchError(f"X: no column {listed(lacking)}, {what} of {self.name}")
        return TableOptions(columns=tuple(names), features=self.features, float64=self.wide)


def _is_value(value: Any) -> bool:
    """Return whether this is one value, not a column."""
    return isinstance(value, (str, bytes)) or not hasattr(value, "__iter__")


def _singles(table: TableOptions, labels: list[Any]) -> _Singles:
    """Return how one row of numbers and categories is read; nothing for other tables."""
    usual = all(not (f.width or f.kind or f.indices or f.style) for f in table.features)
    label_of, missing = dict(zip(table.columns, labels, strict=True)), table.dialect.missing
    return [
        (
            label_of[f.name],
            start,
            None
            if f.categories is None
            else {text: start + k for k, text in enumerate(f.categories) if text not in missing},
        )
        for f, start in zip(table.features, first_columns(table.features), strict=False)
        if usual and not table.dialect.numbers
    ]


def _n_rows(frame: Any, labels: list[Any]) -> int:
    """Return how many rows a frame has, 0 if that is not plain."""
    if not isinstance(frame, Mapping):
        return len(frame) if hasattr(frame, "__len__") else 0
    columns = [frame[label] for label in labels]
    plain = all(isinstance(c, (list, tuple)) or len(getattr(c, "shape", ())) == 1 for c in columns)
    sizes = {len(c) for c in columns} if plain else {0}
    return sizes.pop() if len(sizes) == 1 else 0


def _one_row(frame: Any, singles: _Singles) -> tuple[list[int], list[float]] | None:
    """Return features and values of a row of usual numbers and known categories, None for others.

    Arrow takes a millisecond to find the same.
    """
    places, numbers = [], []
    for label, first, categories in singles:
        column = frame[label]
        value = column.iat[0] if hasattr(column, "iat") else column[0]
        if categories is None:
            is_number = isinstance(value, (int, float, np.integer, np.floating))
            if not is_number or isinstance(value, (bool, np.timedelta64)):
                return None
            # of Python's whole numbers some are too large for a float
            if not abs(value if isinstance(value, int) else float(value)) < EXACT:
                return None
            number, place = float(value), first
        else:
            number, place = 1.0, categories.get(value, -1) if isinstance(value, str) else -1
        if place < 0:
            return None
        places.append(place)
        numbers.append(number)
    return places, numbers


def _columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the columns of rows given as mappings, None where one lacks a value."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _unnamed(frame: Any, labels: list[Any]) -> NDArray[Any]:
    """Return the columns of a frame side by side."""
    if isinstance(frame, Mapping):
        return np.column_stack([frame[label] for label in labels])
    return np.asarray(frame)
