"""Row groups of Parquet files to blocks of rows: numbers, texts as categories, lists as sparse or dense rows."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import BadInputError
from distls.workers.ingestion.formats.mixed_columns import (
    date_numbers,
    document_rows,
    hashed_rows,
    members,
    set_rows,
    text_numbers,
)
from distls.workers.ingestion.formats.parquet_files import (
    ParquetItem,
    damage_described,
    kind_of_column,
    load_arrow,
)
from distls.workers.ingestion.formats.table_columns import (
    Feature,
    TableOptions,
    first_columns,
    missing_category,
    spelled_truths,
)
from distls.workers.ingestion.formats.table_records import table_batches
from distls.workers.ingestion.parsing.array_types import Doubles, Ints
from distls.workers.ingestion.parsing.text_blocks import TextItem
from distls.workers.ingestion.records.labels import value_labels
from distls.workers.ingestion.records.messages import quoted
from distls.workers.ingestion.records.reader import BlockReader
from distls.workers.ingestion.records.record_batch import Progress
from distls.workers.ingestion.records.row_block import Csr, RowBlock

_LARGEST_BATCH = 2**17
_MOST_FEATURES = 2**32


# -- survey ----------------------------------------------------------------------------------------------


def survey_columns(
    item: ParquetItem | TextItem, text: TableOptions, limits: dict[int, int], checked: Sequence[int] = ()
) -> dict[str, Any]:
    """Survey the columns of one row group, or of a file of text, that are categories, indices, or to be `checked`.

    The result is as of `survey_item`, and ``largest``: (column, largest index) of each column of indices.
    """
    names, arrow, n_rows = text.columns, load_arrow(item.file.path), 0
    values: dict[int, set[str]] = {column: set() for column in limits}
    largest = {names.index(f.indices): -1 for f in text.features if f.indices}
    words: dict[int, tuple[int, str]] = {}
    styles = {f.name: f.style for f in text.features if f.kind == "set"}
    seen: dict[int, int] = {}  # rows with a value, while it is collected
    wanted = [names[column] for column in dict.fromkeys((*values, *largest, *checked))]
    for batch, lines, _ in table_batches(item, text, wanted, _LARGEST_BATCH):
        where = np.arange(n_rows, n_rows + batch.num_rows) if lines is None else lines
        for column, known in values.items():
            # Too many values are no categories: collecting stops there.
            if len(known) <= limits[column]:
                found = batch[names[column]]
                if names[column] in styles:
                    style = styles[names[column]]
                    known.update(m for value in found.to_pylist() for m in members(value, style))
                    continue
                texts = _as_text(item.file.path, names[column], found, arrow)
                texts = _without_markers(texts, text, arrow)
                seen[column] = seen.get(column, 0) + len(texts) - texts.null_count
                _note_word(words, column, texts, text, where, arrow)
                _collect(known, texts, text, arrow)
        for column in checked:
            if column not in words and isinstance(item, TextItem):
                texts = _as_text(item.file.path, names[column], batch[names[column]], arrow)
                _note_word(words, column, _without_markers(texts, text, arrow), text, where, arrow)
        for column in largest:
            found = _largest(item, n_rows, names[column], batch[names[column]], arrow)
            largest[column] = max(largest[column], found)
        n_rows += batch.num_rows
    return {
        "lines": n_rows,
        "words": [[column, *words[column]] for column in sorted(words)],
        "values": [[c, sorted(v) if len(v) <= limits[c] else None] for c, v in values.items()],
        "unique": [c for c, count in seen.items() if 1 < count == len(values[c] - {text.na, ""})],
        "largest": [[c, index] for c, index in largest.items()],
    }


def _note_word(
    words: dict[int, tuple[int, str]],
    column: int,
    texts: Any,
    options: TableOptions,
    lines: Ints,
    arrow: Any,
) -> None:
    """Record the first text of a column that is no number, or of labels no label by its value."""
    if column in words or kind_of_column(arrow.types, texts.type) != "text" or not options.source:
        return
    is_label = options.columns[column] == options.label
    for text in filter(None, arrow.compute.unique(texts).to_pylist()):
        if value_labels([text])[1] if is_label else options.dialect.is_word(text):
            words[column] = (int(lines[arrow.compute.index(texts, text).as_py()]), text)
            return


def _collect(known: set[str], column: Any, text: TableOptions, arrow: Any) -> None:
    found = arrow.compute.unique(column).to_pylist()
    # a missing value is read as na, which may be a category, or is a category of its own
    missing = bool(text.na) or text.gaps
    known.update(text.na if value is None else value for value in found if value is not None or missing)


def _largest(item: ParquetItem | TextItem, first: int, name: str, column: Any, arrow: Any) -> int:
    """Return the largest index of a column, -1 without any; `first` is the number of the batch's first row."""
    flat = arrow.compute.list_flatten(column)
    largest = arrow.compute.max(flat).as_py()
    # An empty column, or one without numbers.
    if largest is None or math.isnan(largest):  # rows without numbers are refused when they are read
        return -1
    if largest >= _MOST_FEATURES:
        # The row of the largest index, for the message.
        place = arrow.compute.index(flat, largest).as_py()
        row = first + arrow.compute.list_parent_indices(column)[place].as_py()
        raise BadInputError(
            f"{item.where(row)}: column {quoted(name.encode())}: {largest}: an index must be a whole number from 0 "
            f"to {_MOST_FEATURES - 1}"
        )
    return int(largest)


def _as_text(path: str, name: str, column: Any, arrow: Any) -> Any:
    """Return a column as valid UTF-8 strings."""
    text = arrow.compute.cast(_decoded(path, column, arrow), arrow.string())
    try:  # Arrow does not check the strings it reads
        text.validate(full=True)
    except arrow.ArrowInvalid:
        raise BadInputError(f"{path}: column {quoted(name.encode())} is not UTF-8 text") from None
    return text


def _without_markers(column: Any, options: TableOptions, arrow: Any) -> Any:
    """Return texts with nulls in place of those that stand for no value."""
    if not options.dialect.missing:
        return column
    unknown = arrow.compute.is_in(column, value_set=arrow.array(options.dialect.missing, arrow.string()))
    return arrow.compute.if_else(unknown, arrow.scalar(None, arrow.string()), column)


def _decoded(path: str, column: Any, arrow: Any) -> Any:
    if not arrow.types.is_dictionary(column.type):
        return column
    with damage_described(path):  # Arrow does not check on reading that codes have values
        return column.dictionary_decode()


# -- rows ------------------------------------------------------------------------------------------------


def parquet_blocks(
    item: ParquetItem | TextItem, options: TableOptions, progress: Progress, block_bytes: int
) -> Iterator[RowBlock]:
    """Yield the item's rows from the `progress.offset`-th on, in blocks of about `block_bytes`."""
    lists = [feature.indices for feature in options.features if feature.indices]
    wanted = [feature.name for feature in options.features] + lists
    others = (options.label if options.labelled else "", options.weight, options.id_column)
    wanted += [name for name in others if name and name not in wanted]
    width = sum(feature.size for feature in options.features if feature.is_dense or feature.categories)
    n_bytes = item.n_bytes if isinstance(item, ParquetItem) else item.file.size
    # the stored size of a row, or that of its dense features if that is larger
    stored = n_bytes // max(item.stop - item.start, 1) if isinstance(item, ParquetItem) else 0
    row_bytes = max(stored, 4 * width, 1)
    # At least one row, and no batch that Arrow would not make.
    n_rows = max(1, min(block_bytes // row_bytes, _LARGEST_BATCH))
    first, skip = 0, progress.offset
    for batch, lines, faults in table_batches(item, options, wanted, n_rows):
        inside = max(skip - first, 0)  # rows done, if resumed within a batch
        first += batch.num_rows
        # Batches that an earlier attempt has staged are passed over.
        if first > skip:
            start = first - len(batch) + inside
            later = {row - inside: why for row, why in faults.items() if row >= inside}
            own = lines if lines is None else lines[inside:]
            part = batch.slice(inside)
            yield _Block(part, options, item.file.path, progress, later, own).rows(start)


def record_batch_rows(
    batch: Any, options: TableOptions, path: str, progress: Progress, first_row: int
) -> RowBlock:
    """Return the rows of an Arrow record batch of the source `path`; `first_row` is the number of the first."""
    return _Block(batch, options, path, progress).rows(first_row)


@dataclass
class _Block:
    """The conversion of a record batch to rows."""

    batch: Any
    options: TableOptions
    path: str  # of the source, for messages
    progress: Progress
    faults: dict[int, str] = field(default_factory=dict)  # refused rows, and why
    lines: Ints | None = None  # of the rows, where they are not their numbers

    def __post_init__(self) -> None:
        self.arrow = load_arrow(self.path)
        self.na = float(self.options.na) if self.options.na else None
        self.numbers = self.options.dialect.numbers

    def rows(self, first_row: int) -> RowBlock:
        """Return the rows; `first_row` is the number of the first in the item."""
        options, n_rows = self.options, self.batch.num_rows
        values, csr = (self._dense(), None) if options.dense else (None, self._sparse(first_row))
        labels = self._labels() if options.labelled else None
        weights = None
        if options.weight:
            weights = self._plain(options.weight).astype(np.float32)
        assert n_rows == (
            # Every row of the batch has to be in the result: rows are refused later.
            len(values) if csr is None and values is not None else len(csr[0]) - 1 if csr else 0
        )
        ids = self._ids() if options.id_column else None
        return RowBlock(first_row, values, csr, labels, weights, ids, self.faults, lines=self.lines)

    # -- features ----------------------------------------------------------------------------------------

    def _dense(self) -> Doubles:
        starts = first_columns(self.options.features)
        values = np.empty((self.batch.num_rows, starts[-1]))
        for feature, start in zip(self.options.features, starts, strict=False):
            values[:, start : start + feature.size] = self._numbers(feature)
        # Features are written to their places, without a list of parts.
        return values

    def _sparse(self, first_row: int) -> Csr:
        parts = [self._part(feature, first_row) for feature in self.options.features]
        # One feature needs no joining, which is the common case.
        if len(parts) == 1:
            return parts[0]
        from scipy.sparse import csr_array, hstack

        sizes = [feature.size for feature in self.options.features]
        shaped = [
            csr_array((data, indices, indptr), shape=(len(indptr) - 1, size))
            for (indptr, indices, data), size in zip(parts, sizes, strict=True)
        ]
        joined = hstack(shaped, format="csr")
        return joined.indptr, joined.indices, joined.data

    def _part(self, feature: Feature, first_row: int) -> Csr:
        if feature.kind == "set":
            sets = self.batch[feature.name].to_pylist()
            return set_rows(sets, feature, partial(self._unseen_member, feature.name, first_row))
        if feature.categories is not None:
            return self._categories(feature, first_row)
        if feature.indices:
            return self._pairs(feature)
        if not feature.is_dense:
            texts = self._category_text(feature).to_pylist()
            return (document_rows if feature.kind == "text" else hashed_rows)(texts, feature)
        values = self._numbers(feature)
        n_rows, width = values.shape
        # Dense numbers as sparse rows: every row has all of its columns.
        indptr = np.arange(n_rows + 1, dtype=np.int64) * width
        return indptr, np.tile(np.arange(width), n_rows), values.reshape(-1)

    def _text(self, name: str) -> Any:
        text = _as_text(self.path, name, self.batch[name], self.arrow)
        return text if name == self.options.id_column else _without_markers(text, self.options, self.arrow)

    def _plain(self, name: str, marked: bool = False) -> Doubles:
        """Return a column of numbers, which may be written as text, NaN where one is missing, shape (n_rows,)."""
        column = _decoded(self.path, self.batch[name], self.arrow)
        if kind_of_column(self.arrow.types, column.type) != "text":
            return self._as_numbers(column)
        texts, dialect = self._text(name), self.options.dialect
        if not marked and dialect.decimal == ".":
            with contextlib.suppress(self.arrow.ArrowInvalid):
                return self._as_numbers(texts)
        values = text_numbers(texts.to_pylist(), dialect, marked, partial(self._fault_of, name))
        return self._without_numbers(values)

    def _without_numbers(self, values: Doubles) -> Doubles:
        """Return values with NaN for those that stand for none."""
        if self.numbers:
            values[np.isin(values, self.numbers)] = math.nan
        return values

    def _as_numbers(self, column: Any) -> Doubles:
        # Unsafe casts turn what does not fit into infinity or NaN, which is refused with its row.
        cast = self.arrow.compute.cast(column, self.arrow.float64(), safe=False)
        return self._without_numbers(np.array(cast.to_numpy(zero_copy_only=False)))

    def _numbers(self, feature: Feature) -> Doubles:
        """Return a column's numbers, shape (n_rows, size)."""
        if feature.kind == "date":
            texts = self._text(feature.name).to_pylist()
            values = date_numbers(texts, feature, partial(self._fault_of, feature.name))
        elif feature.width:
            values = self._vectors(feature)
        else:
            values = self._plain(feature.name, feature.kind == "marked")[:, None]
        self._check(feature.name, values, np.arange(len(values)), bool(feature.impute))
        return values

    def _vectors(self, feature: Feature) -> Doubles:
        lengths, flat = self._lists(feature.name)
        values = np.zeros((len(lengths), feature.width))
        fitting = lengths == feature.width
        # Rows of another length keep zeros, and are refused.
        values[fitting] = flat[np.repeat(fitting, lengths)].reshape(-1, feature.width)
        for row in np.flatnonzero(~fitting).tolist():
            self._fault(row, feature.name, f"{lengths[row]} numbers where there should be {feature.width}")
        return values

    def _lists(self, name: str) -> tuple[Ints, Doubles]:
        """Return the lengths of a column's lists, and all their numbers; missing lists are refused."""
        column, compute = self.batch[name], self.arrow.compute
        for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            self._fault(row, name, "the list is missing")
        lengths = compute.fill_null(compute.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        return lengths.astype(np.int64), self._as_numbers(compute.list_flatten(column))

    def _pairs(self, feature: Feature) -> Csr:
        lengths, values = self._lists(feature.name)
        others, indices = self._lists(feature.indices)
        for row in np.flatnonzero(lengths != others).tolist():
            self._fault(row, feature.indices, f"{others[row]} indices for {lengths[row]} values")
        # refused rows become empty, so that the other rows keep their places
        if np.any(lengths != others):
            equal = lengths == others
            values, indices = values[np.repeat(equal, lengths)], indices[np.repeat(equal, others)]
            lengths = np.where(equal, lengths, 0)
        rows = np.repeat(np.arange(len(lengths)), lengths)
        self._check(feature.name, values, rows)
        # Indices may come as floats.
        outside = ~((indices >= 0) & (indices < feature.width) & (indices == np.floor(indices)))
        for k in np.flatnonzero(outside).tolist():
            rule = f"{indices[k]:g}: an index must be a whole number from 0 to {feature.width - 1}"
            self._fault(int(rows[k]), feature.indices, rule)
        indices[outside] = 0  # of refused rows: only to be convertible to int
        return np.concatenate([[0], np.cumsum(lengths)]), indices.astype(np.int64), values

    def _category_text(self, feature: Feature) -> Any:
        """Return a column as texts, booleans spelled as the categories are: they may come from a CSV file."""
        column = _decoded(self.path, self.batch[feature.name], self.arrow)
        if not self.arrow.types.is_boolean(column.type):
            return self._text(feature.name)
        false, true = spelled_truths(feature.categories or ())
        return self.arrow.compute.if_else(column, true, false)

    def _categories(self, feature: Feature, first_row: int) -> Csr:
        assert feature.categories is not None
        column = self._category_text(feature)
        missing = column.is_null().to_numpy(zero_copy_only=False)
        stand_in = missing_category(feature, self.options.na)
        self.progress.gaps += int(missing.sum())
        if stand_in is not None:
            column = self.arrow.compute.fill_null(column, stand_in)
        else:
            for row in np.flatnonzero(missing).tolist():
                self._fault(row, feature.name, _MISSING)
        known = self.arrow.array(feature.categories, self.arrow.string())
        # A value that no category has gives no feature.
        found = self.arrow.compute.index_in(column, value_set=known)
        codes = self.arrow.compute.fill_null(found, -1).to_numpy(zero_copy_only=False)
        self._note_unseen(feature.name, column, (codes < 0) & ~(missing & (stand_in is None)), first_row)
        seen = codes >= 0
        return np.concatenate([[0], np.cumsum(seen)]), codes[seen].astype(np.int64), np.ones(int(seen.sum()))

    def _note_unseen(self, name: str, column: Any, unseen: NDArray[np.bool_], first_row: int) -> None:
        rows = np.flatnonzero(unseen)
        self.progress.unseen += len(rows)
        if len(rows) and self.progress.unseen_first is None:
            text = quoted(column[int(rows[0])].as_py().encode())
            self.progress.unseen_first = (first_row + int(rows[0]), f"column {quoted(name.encode())}: {text}")

    def _unseen_member(self, name: str, first_row: int, row: int, text: str) -> None:
        self.progress.unseen += 1
        if self.progress.unseen_first is None:
            shown = f"column {quoted(name.encode())}: {quoted(text.encode())}"
            self.progress.unseen_first = (first_row + row, shown)

    def _ids(self) -> list[str]:
        ids = self._text(self.options.id_column).to_pylist()
        # An id that is missing cannot be joined to anything.
        for row in [row for row, text in enumerate(ids) if text is None]:
            self._fault(row, self.options.id_column, "the row has no id")
        return [text or "" for text in ids]

    # -- labels and refusals -----------------------------------------------------------------------------

    def _labels(self) -> NDArray[Any]:
        name = self.options.label
        written = self.options.source == "csv" and not self.options.label_words
        if kind_of_column(self.arrow.types, self.batch[name].type) == "text" and not written:
            texts = [label if label is not None else "" for label in self._text(name).to_pylist()]
            labels: NDArray[Any] = np.array(texts, dtype=str)
            empty = labels == ""
        else:
            labels, empty = self._label_numbers(_decoded(self.path, self.batch[name], self.arrow))
        for row in np.flatnonzero(empty).tolist():
            self._fault(row, name, "the row has no label")
        return labels[:, None]

    def _label_numbers(self, column: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return labels, whole numbers as such, and which are missing."""
        if not self.arrow.types.is_integer(column.type):
            numbers = self._plain(self.options.label)
            return numbers, np.isnan(numbers)
        missing = column.is_null().to_numpy(zero_copy_only=False)
        return self.arrow.compute.fill_null(column, 0).to_numpy(zero_copy_only=False), missing

    def _check(self, name: str, values: Doubles, rows: Ints, imputed: bool = False) -> None:
        """Replace missing values and record those that cannot be stored; `rows` has the row of each."""
        # In place: NaN of a refused row does not matter.
        missing = np.isnan(values)
        self.progress.gaps += int(missing.sum())
        if self.na is not None:
            values[missing] = self.na
        elif not imputed:
            for place in np.argwhere(missing).tolist():
                self._fault(int(rows[place[0]]), name, _MISSING)
        largest = np.finfo(np.float64 if self.options.float64 else np.float32).max
        for place in np.argwhere(np.abs(values) > largest).tolist():
            value = values[tuple(place)]
            rule = "the value does not fit into float32" if np.isfinite(value) else "a value must be finite"
            self._fault(int(rows[place[0]]), name, f"{value:g}: {rule}")

    def _fault_of(self, name: str, row: int, rule: str) -> None:
        self._fault(row, name, rule)

    def _fault(self, row: int, name: str, rule: str) -> None:
        # The first fault of a row is the one that is told.
        self.faults.setdefault(row, f"column {quoted(name.encode())}: {rule}")


_MISSING = "the value is missing; --na VALUE says what to read in its place"


PARQUET_READER = BlockReader(parquet_blocks)
