"""Stage 0 of an ingest of tables, on workers: columns of an item that are not numeric, and their values."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distls.storage.dataset.chunks import BufferPool
from distls.storage.errors import BadInputError
from distls.storage.temporary.ingest_staging import StagingArea
from distls.workers.ingestion.formats.csv import RowReader
from distls.workers.ingestion.formats.mixed_columns import members
from distls.workers.ingestion.formats.parquet_files import (
    ParquetItem,
    as_text,
    kind_of_column,
    load_arrow,
    without_markers,
)
from distls.workers.ingestion.formats.plain_rows import plain_blocks
from distls.workers.ingestion.formats.table_columns import TableOptions
from distls.workers.ingestion.formats.table_records import table_batches
from distls.workers.ingestion.parsing.array_types import Bytes, Ints
from distls.workers.ingestion.parsing.csv_field_kernels import CODED, Kind, Mode, State
from distls.workers.ingestion.parsing.csv_kernels import FEATURES
from distls.workers.ingestion.parsing.text_blocks import TextItem, text_blocks
from distls.workers.ingestion.records.labels import value_labels
from distls.workers.ingestion.records.messages import ENCODED, lacks_label, quoted
from distls.workers.ingestion.records.reader import SourceItem, refusals_together
from distls.workers.ingestion.records.record_batch import Progress, ReadRun, RowError
from distls.workers.runtime.buffers import borrowed_buffers


@dataclass(frozen=True)
class SurveySpec:
    """Common input of all survey tasks."""

    staging: StagingArea
    name: str  # distinguishes the surveys of an ingest
    read: TableOptions
    limits: dict[int, int]  # column to collect -> most distinct values
    checked: tuple[int, ...]  # columns that should be numbers
    block_bytes: int


def survey_item(spec: SurveySpec, item: SourceItem) -> dict[str, Any]:
    """Survey the columns of one item.

    Return its number of ``lines``; ``words``: (column, line, text) of the first value of a column that is not a
    number; ``values``: (column, its distinct values, sorted) of each column to collect, None for more than its limit;
    ``unique``: those of them in which no value occurred twice until then.
    """
    name = f"{spec.name}-{item.number:06d}"
    with spec.staging.guard():
        found = spec.staging.read_document(name)
        if found is None:
            found = survey_table(item, spec)
            spec.staging.write_document(name, found)
        return dict(found)


def survey_table(item: Any, spec: SurveySpec) -> dict[str, Any]:
    """Survey the columns of a row group, or of text by the kernel as far as that reads it; see `survey_item`."""
    if isinstance(item, TextItem) and not spec.read.source:
        return _survey_text(item, spec)
    found = _survey_text(item, spec, plain=True) if spec.read.source == "csv" else {}
    return found if "lines" in found else survey_columns(item, spec.read, spec.limits, spec.checked) | found


def _survey_text(item: TextItem, spec: SurveySpec, plain: bool = False) -> dict[str, Any]:
    """Survey text by the kernel; of records that it does not read return what it met: columns with codes."""
    own = item.own(spec.read)
    place = {name: c for c, name in enumerate(own.columns)}
    # numbers of columns are those of the table, which this file may have in another order
    there = [place[name] for name in spec.read.columns]
    limits = {there[c]: limit for c, limit in spec.limits.items()}
    asked = replace(spec, read=own, limits=limits, checked=tuple(there[c] for c in spec.checked))
    reader = _ColumnReader(asked)
    # rows that this refuses of plain text are left to who reads records
    refused = Progress() if plain else reader.progress
    with refusals_together(item, refused, spec.read.skip_errors):
        whole = reader.read_plain(item) if plain else reader.read(item, spec)
        found = reader.result()
    here = np.argsort(there).tolist()
    entries = {name: [[here[c], *rest] for c, *rest in found[name]] for name in ("words", "values")}
    found |= {**entries, **{name: [here[c] for c in found[name]] for name in ("unique", "codes")}}
    return found if whole else {"codes": found["codes"]}


class _ColumnReader(RowReader):
    """Reads rows only to survey the columns."""

    def __init__(self, spec: SurveySpec) -> None:
        kinds = np.full(len(spec.read.columns), Kind.SKIP)
        kinds[list(spec.checked)] = Kind.CHECK
        kinds[list(spec.limits)] = Kind.COLLECT
        if spec.read.label and spec.checked:
            kinds[spec.read.columns.index(spec.read.label)] = Kind.CHECK_LABEL
        columns = np.zeros((len(kinds), 3), dtype=np.int64)
        columns[:, 0] = kinds
        run = ReadRun(spec.read, Progress(), 0, 0, spec.block_bytes, BufferPool())
        super().__init__(run, columns, Mode.SURVEY, FEATURES, 64)
        self.kinds = kinds.tolist()
        self.asked = tuple(spec.limits)
        self.limits = dict(spec.limits)
        self.words: dict[int, tuple[int, str]] = {}
        self.unique: set[int] = set()

    def read(self, item: TextItem, spec: SurveySpec) -> bool:
        """Read all rows, and return that; raise BadInputError for those that cannot be read."""
        with borrowed_buffers() as pool:
            for block in text_blocks(item, 0, spec.block_bytes, 0, pool):
                self.begin(block)
                self.run(block)
                self.progress.lines = int(self.state[State.LINE])
            # rows that lack nothing but a label may be left out where they are staged
            if all(lacks_label(reason) for _, reason in self.progress.skipped_first):
                self.progress.skipped_first.clear()
        return True

    def read_plain(self, item: TextItem) -> bool:
        """Read rows as long as they are read by records in the same way; return whether these were all."""
        first = None
        for line, block in plain_blocks(item, self.options):
            first = line if first is None else first
            # a line of blanks is no row here
            if self.progress.skipped or self.state[State.ROWS] != line - first:
                break
            if block is None:
                return True
            self.state[State.LINE] = line
            self.begin(block)
            self.run(block)
        return False

    def answer(self, token: bytes) -> float:
        """Record the first word of a column, whose other values are then skipped."""
        column, line = self.state[[State.COLUMN, State.LINE]].tolist()
        text = token.decode("utf-8", "backslashreplace")
        if self.dialect.is_word(text) or self.options.columns[column] == self.options.label:
            self.words[column] = (line, text)
            self.columns[column, 0] = Kind.SKIP
        return 0.0

    def refuse(self, text: Bytes, reason: str) -> None:
        """Go to the next line, and undo what was recorded of the refused row."""
        line = int(self.state[State.LINE])
        super().refuse(text, reason)
        self.table.forget_line(line)
        for column in [column for column, (first, _) in self.words.items() if first == line]:
            self.columns[column, 0] = self.kinds[column]
            del self.words[column]

    def make_room(self) -> None:
        """Stop collecting the values of columns that have too many, or enlarge the table."""
        entries = self.table.by_column()
        for column in [c for c, limit in self.limits.items() if len(entries.get(c, ())) > limit]:
            self._note_word(column, entries[column])
            self._note_unique(column, len(entries[column]))
            # from here on, only its first word matters
            self.columns[column, 0] = Kind.SKIP if column in self.words else Kind.CHECK
            self.columns[column, 2] = 0
            del self.limits[column]
        super().make_room()

    def _note_word(self, column: int, entries: Iterable[int]) -> None:
        for entry in entries:
            text = self._text(column, entry)
            if self.dialect.is_word(text):
                self.words[column] = (int(self.table.words.lines[entry]), text)
                return

    def _note_unique(self, column: int, n_values: int) -> None:
        # the row that is being read is not counted yet
        if n_values >= self.state[State.ROWS] > 1:
            self.unique.add(column)

    def _text(self, column: int, entry: int) -> str:
        try:
            return self.table.text(entry)
        except UnicodeDecodeError:
            name, shown = quoted(self.options.columns[column].encode()), quoted(self.table.raw(entry))
            reason = f"column {name}: {shown}: a category must be UTF-8 text; {ENCODED}"
            raise RowError(int(self.table.words.lines[entry]), reason) from None

    def _values(self, column: int, entries: Iterable[int]) -> list[str]:
        values = {self._text(column, entry) for entry in entries}
        # a missing value is read as na, which may be a category, or is one of its own
        return sorted(values | {self.options.na} if self.columns[column, 2] else values)

    def result(self) -> dict[str, Any]:
        entries = self.table.by_column()
        collected = np.flatnonzero(self.columns[:, 0] == Kind.COLLECT).tolist()
        for column in collected:
            self._note_word(column, entries.get(column, ()))
            self._note_unique(column, len(entries.get(column, ())))
        values = {column: self._values(column, entries.get(column, ())) for column in collected}
        # of the others the collection was stopped
        stopped = [[column, None] for column in self.asked if column not in values]
        return {
            "lines": int(self.state[State.LINE]),
            "words": [[column, *self.words[column]] for column in sorted(self.words)],
            "unique": sorted(self.unique),
            "codes": np.flatnonzero(self.columns[:, 2] == CODED).tolist(),
            "values": [[c, v if len(v) <= self.limits[c] else None] for c, v in values.items()] + stopped,
        }


_LARGEST_BATCH = 2**17
_MOST_FEATURES = 2**32


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
                texts = _texts(item.file.path, names[column], batch, text, arrow)
                if names[column] in styles:
                    style = styles[names[column]]
                    known.update(m for value in texts.to_pylist() for m in members(value, style))
                    continue
                seen[column] = seen.get(column, 0) + len(texts) - texts.null_count
                _note_word(words, column, texts, text, where, arrow)
                _collect(known, texts, text, arrow)
        # columns of types need no check: their type says that they are numbers
        for column in checked:
            if column not in words and isinstance(item, TextItem):
                texts = _texts(item.file.path, names[column], batch, text, arrow)
                _note_word(words, column, texts, text, where, arrow)
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


def _texts(path: str, name: str, batch: Any, options: TableOptions, arrow: Any) -> Any:
    """Return a column as texts, null for those that stand for no value; lists as they are."""
    column = batch[name]
    if hasattr(column.type, "value_field"):  # a list
        return column
    # by their text, whatever their type: files of other formats have to find the same values
    return without_markers(as_text(path, name, column, arrow), options, arrow)


def _note_word(
    words: dict[int, tuple[int, str]], column: int, texts: Any, options: TableOptions, lines: Ints, arrow: Any
) -> None:
    """Record the first text of a column that is no number, or of labels no label by its value."""
    if column in words or kind_of_column(arrow.types, texts.type) != "text" or not options.source:
        return
    is_label = options.columns[column] == options.label
    if not is_label and options.dialect.decimal == "." and _are_numbers(texts, arrow):
        return
    # different texts only: a column has fewer of them than rows
    for text in filter(None, arrow.compute.unique(texts).to_pylist()):
        if value_labels([text])[1] if is_label else options.dialect.is_word(text):
            words[column] = (int(lines[arrow.compute.index(texts, text).as_py()]), text)
            return


def _are_numbers(texts: Any, arrow: Any) -> bool:
    """Return whether all texts are numbers for Arrow, which sees that many times as fast."""
    with contextlib.suppress(arrow.ArrowInvalid):
        values = arrow.compute.cast(texts, arrow.float64())
        return not arrow.compute.any(arrow.compute.is_nan(values)).as_py()
    return False


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
        why = f"an index must be a whole number from 0 to {_MOST_FEATURES - 1}"
        raise BadInputError(f"{item.where(row)}: column {quoted(name.encode())}: {largest}: {why}")
    return int(largest)
