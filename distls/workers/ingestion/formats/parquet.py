"""Row groups of Parquet files to blocks of rows: numbers, texts as categories, lists as sparse or dense rows."""

import contextlib
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np

from distls.workers.ingestion.formats import mixed_columns, table_columns
from distls.workers.ingestion.formats.parquet_files import (
    ParquetItem,
    as_text,
    decoded,
    kind_of_column,
    load_arrow,
    without_markers,
)
from distls.workers.ingestion.formats.table_columns import Feature, TableOptions
from distls.workers.ingestion.formats.table_records import table_batches
from distls.workers.ingestion.parsing.array_types import Array, Bools, Doubles, Ints
from distls.workers.ingestion.parsing.rounding_kernels import EXACT, Rounded
from distls.workers.ingestion.parsing.text_blocks import TextItem
from distls.workers.ingestion.records.messages import MISSING_VALUE, NO_LABEL, quoted
from distls.workers.ingestion.records.reader import BlockReader
from distls.workers.ingestion.records.record_batch import Csr, Progress, RowBlock

_LARGEST_BATCH = 2**17
_LOOKED_AT = 64  # decimal numbers of a batch that show whether float64 keeps those of their column


def parquet_blocks(
    item: ParquetItem | TextItem, options: TableOptions, progress: Progress, block_bytes: int
) -> Iterator[RowBlock]:
    """Yield the item's rows from the `progress.offset`-th on, in blocks of about `block_bytes`."""
    lists = [feature.indices for feature in options.features if feature.indices]
    wanted = [feature.name for feature in options.features] + lists
    others = (*(options.labels if options.labelled else ()), options.weight, options.id_column)
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


def record_batch_rows(batch: Any, options: TableOptions, path: str, progress: Progress, first_row: int) -> RowBlock:
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
    rounded: list[Rounded] = field(default_factory=list)  # as `RowBlock` has it

    def __post_init__(self) -> None:
        self.arrow = load_arrow(self.path)
        self.na = float(self.options.na) if self.options.na else None
        self.numbers = self.options.dialect.numbers

    def rows(self, first_row: int) -> RowBlock:
        """Return the rows; `first_row` is the number of the first in the item."""
        options = self.options
        values, csr = (self._dense(), None) if options.dense else (None, self._sparse(first_row))
        labels = self._labels() if options.labelled else None
        weights = self._plain(options.weight).astype(np.float32) if options.weight else None
        ids = self._ids() if options.id_column else None
        own: dict[str, Any] = {"faults": self.faults, "lines": self.lines, "rounded": self.rounded}
        return RowBlock(first_row, values, csr, labels, weights, ids, **own)

    def _dense(self) -> Doubles:
        starts = table_columns.first_columns(self.options.features)
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
        # By hand: making matrices of them is half of the time of one row.
        counts = [np.diff(part[0]) for part in parts]
        indptr = np.concatenate([[0], np.cumsum(sum(counts))]).astype(np.int64)
        indices, data = np.empty(indptr[-1], np.int64), np.empty(indptr[-1])
        free = indptr[:-1].copy()  # where the next value of each row goes
        for part, count, first in zip(parts, counts, table_columns.first_columns(self.options.features), strict=False):
            places = np.repeat(free - part[0][:-1], count) + np.arange(len(part[1]))
            indices[places], data[places] = part[1] + first, part[2]
            free += count
        return indptr, indices, data

    def _part(self, feature: Feature, first_row: int) -> Csr:
        if feature.kind == "set":
            sets = self.batch[feature.name]
            # joined, or a text that stands for no value
            if kind_of_column(self.arrow.types, sets.type) == "text":
                sets = self._text(feature.name)
            return mixed_columns.set_rows(
                sets.to_pylist(), feature, partial(self._unseen_member, feature.name, first_row)
            )
        if feature.categories is not None:
            return self._categories(feature, first_row)
        if feature.indices:
            return self._pairs(feature)
        if not feature.is_dense:
            texts = self._category_text(feature).to_pylist()
            return (mixed_columns.document_rows if feature.kind == "text" else mixed_columns.hashed_rows)(
                texts, feature
            )
        values = self._numbers(feature)
        n_rows, width = values.shape
        # Dense numbers as sparse rows: every row has all of its columns.
        indptr = np.arange(n_rows + 1, dtype=np.int64) * width
        return indptr, np.tile(np.arange(width), n_rows), values.reshape(-1)

    def _text(self, name: str) -> Any:
        text = as_text(self.path, name, self.batch[name], self.arrow)
        return text if name == self.options.id_column else without_markers(text, self.options, self.arrow)

    def _plain(self, name: str, marked: bool = False, decimal: str = "") -> Doubles:
        """Return a column of numbers, which may be written as text, NaN where one is missing, shape (n_rows,).

        `decimal` is the mark of this column, if it has one of its own.
        """
        column = decoded(self.path, self.batch[name], self.arrow)
        if kind_of_column(self.arrow.types, column.type) != "text":
            return self._as_numbers(column)
        texts, dialect = self._text(name), table_columns.in_decimals(self.options.dialect, decimal)
        if name in self.options.guessed:
            self._note_codes(name, texts)
        if not marked and dialect.decimal == ".":
            with contextlib.suppress(self.arrow.ArrowInvalid):
                return self._as_numbers(texts)
        values = mixed_columns.text_numbers(texts.to_pylist(), dialect, marked, partial(self._fault, name))
        return self._without_numbers(values)

    def _note_codes(self, name: str, texts: Any) -> None:
        # of separated text some rows, as its kernel does; elsewhere few numbers are written as text
        looked_at = texts.take(np.arange(0, len(texts), 16)) if self.options.source == "csv" else texts
        matches = self.arrow.compute.match_substring_regex(looked_at, "^0[0-9]+$")
        if name not in self.progress.codes and self.arrow.compute.any(matches).as_py():
            self.progress.codes.append(name)

    def _without_numbers(self, values: Doubles) -> Doubles:
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
            # many rows have one date: each is read once
            dates = self._text(feature.name).dictionary_encode(null_encoding="encode")
            texts, rows = dates.dictionary.to_pylist(), dates.indices.to_numpy()
            values = mixed_columns.date_numbers(texts, rows, feature, partial(self._fault, feature.name))
            timed = feature.width == len(table_columns.DATE_PARTS) - 2 and np.nansum(values[:, 0] % 1.0) > 0.0
            if timed and feature.name not in self.progress.codes:
                self.progress.codes.append(feature.name)
        elif feature.width:
            values = self._vectors(feature)
        else:
            values = self._plain(feature.name, feature.kind == "marked", feature.style)[:, None]
            self._note_inexact(feature, values[:, 0], self.batch[feature.name])
        self._check(feature.name, values, np.arange(len(values)), bool(feature.impute))
        return values

    def _note_inexact(self, feature: Feature, values: Doubles, column: Any) -> None:
        """Note the first number of a column, or of its lists, that float64 does not keep."""
        dialect = table_columns.in_decimals(self.options.dialect, feature.style)
        rows = np.flatnonzero((np.abs(values) >= EXACT) & np.isfinite(values)).tolist()
        if self.arrow.types.is_decimal(column.type) and column.type.precision > sys.float_info.dig:
            rows += np.flatnonzero(~np.isnan(values[:_LOOKED_AT])).tolist()
        for row in rows:
            value, number = column[row].as_py(), float(values[row])
            if isinstance(value, str):
                plain = dialect.plain(mixed_columns.unmarked(value, dialect))
                # a number with an exponent was rounded by who wrote it
                value = number if "e" in plain.lower() else Decimal(plain)
            if mixed_columns.is_rounded(value) if isinstance(value, Decimal) else value != number:
                features = self.options.features
                place = table_columns.first_columns(features)[features.index(feature)]
                self.rounded.append((place, number, number, 2))
                return

    def _vectors(self, feature: Feature) -> Doubles:
        lengths, flat = self._lists(feature.name)
        self._note_inexact(feature, flat, self.arrow.compute.list_flatten(self.batch[feature.name]))
        values = np.zeros((len(lengths), feature.width))
        fitting = lengths == feature.width
        # Rows of another length keep zeros, and are refused.
        values[fitting] = flat[np.repeat(fitting, lengths)].reshape(-1, feature.width)
        for row in np.flatnonzero(~fitting).tolist():
            self._fault(feature.name, row, f"{lengths[row]} numbers where there should be {feature.width}")
        return values

    def _lists(self, name: str) -> tuple[Ints, Doubles]:
        """Return the lengths of a column's lists, and all their numbers; missing lists are refused."""
        column, compute = self.batch[name], self.arrow.compute
        for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            self._fault(name, row, "the list is missing")
        lengths = compute.fill_null(compute.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        return lengths.astype(np.int64), self._as_numbers(compute.list_flatten(column))

    def _pairs(self, feature: Feature) -> Csr:
        lengths, values = self._lists(feature.name)
        others, indices = self._lists(feature.indices)
        for row in np.flatnonzero(lengths != others).tolist():
            self._fault(feature.indices, row, f"{others[row]} indices for {lengths[row]} values")
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
            self._fault(feature.indices, int(rows[k]), rule)
        indices[outside] = 0  # of refused rows: only to be convertible to int
        return np.concatenate([[0], np.cumsum(lengths)]), indices.astype(np.int64), values

    def _category_text(self, feature: Feature) -> Any:
        """Return a column as texts, booleans spelled as the categories are: they may come from a CSV file."""
        column = decoded(self.path, self.batch[feature.name], self.arrow)
        if not self.arrow.types.is_boolean(column.type):
            return self._text(feature.name)
        false, true = table_columns.spelled_truths(feature.categories or ())
        return self.arrow.compute.if_else(column, true, false)

    def _categories(self, feature: Feature, first_row: int) -> Csr:
        assert feature.categories is not None
        column = self._category_text(feature)
        missing = column.is_null().to_numpy(zero_copy_only=False)
        stand_in = table_columns.missing_category(feature, self.options.na)
        self.progress.gaps += int(missing.sum())
        if stand_in is not None:
            column = self.arrow.compute.fill_null(column, stand_in)
        else:
            for row in np.flatnonzero(missing).tolist():
                self._fault(feature.name, row, MISSING_VALUE)
        twins = table_columns.whole_twins(feature.categories)
        known = self.arrow.array([*feature.categories, *twins], self.arrow.string())
        # A value that no category has gives no feature.
        found = self.arrow.compute.index_in(column, value_set=known)
        codes = self.arrow.compute.fill_null(found, -1).to_numpy(zero_copy_only=False)
        self._note_unseen(feature.name, column, (codes < 0) & ~(missing & (stand_in is None)), first_row)
        seen = codes >= 0
        places = np.array([*range(len(feature.categories)), *twins.values()], dtype=np.int64)
        told = missing[seen] & table_columns.fills_usual(feature, self.options.na)
        data = np.where(told, math.nan, 1.0)
        return np.concatenate([[0], np.cumsum(seen)]), places[codes[seen]], data

    def _note_unseen(self, name: str, column: Any, unseen: Bools, first_row: int) -> None:
        rows = np.flatnonzero(unseen)
        if len(rows):
            self.progress.unseen += len(rows) - 1
            self._unseen_member(name, first_row, int(rows[0]), column[int(rows[0])].as_py())

    def _unseen_member(self, name: str, first_row: int, row: int, text: str) -> None:
        self.progress.unseen += 1
        if self.progress.unseen_first is None:
            shown = f"column {quoted(name.encode())}: {quoted(text.encode())}"
            line = first_row + row if self.lines is None else int(self.lines[row])
            self.progress.unseen_first = (line, shown)

    def _ids(self) -> list[str]:
        ids = self._text(self.options.id_column).to_pylist()
        # An id that is missing cannot be joined to anything.
        for row in [row for row, text in enumerate(ids) if text is None]:
            self._fault(self.options.id_column, row, "the row has no id")
        return [text or "" for text in ids]

    def _labels(self) -> Array:
        """Return the labels, shape (n_rows, n_targets)."""
        name = self.options.label
        if self.options.more_labels:
            targets = np.column_stack([self._plain(name) for name in self.options.labels])
            for row, k in np.argwhere(np.isnan(targets)).tolist():
                self._fault(self.options.labels[k], row, NO_LABEL)
            return targets
        written = self.options.source == "csv" and not self.options.label_words
        if kind_of_column(self.arrow.types, self.batch[name].type) == "text" and not written:
            texts = [label if label is not None else "" for label in self._text(name).to_pylist()]
            labels: Array = np.array(texts, dtype=str)
            empty = labels == ""
        else:
            labels, empty = self._label_numbers(decoded(self.path, self.batch[name], self.arrow))
        for row in np.flatnonzero(empty).tolist():
            self._fault(name, row, NO_LABEL)
        return labels[:, None]

    def _label_numbers(self, column: Any) -> tuple[Array, Bools]:
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
                self._fault(name, int(rows[place[0]]), MISSING_VALUE)
        largest = np.finfo(np.float64 if self.options.float64 else np.float32).max
        for place in np.argwhere(np.abs(values) > largest).tolist():
            value = values[tuple(place)]
            rule = "the value does not fit into float32" if np.isfinite(value) else "a value must be finite"
            self._fault(name, int(rows[place[0]]), f"{value:g}: {rule}")

    def _fault(self, name: str, row: int, rule: str) -> None:
        # The first fault of a row is the one that is told.
        self.faults.setdefault(row, f"column {quoted(name.encode())}: {rule}")


PARQUET_READER = BlockReader(parquet_blocks)
