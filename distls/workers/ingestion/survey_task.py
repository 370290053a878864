"""Stage 0 of an ingest of tables, on workers: columns of an item that are not numeric, and their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distls.storage.errors import BadInputError
from distls.storage.temporary.ingest_staging import StagingArea
from distls.workers.ingestion.formats.csv import RowReader
from distls.workers.ingestion.formats.parquet_files import ParquetItem
from distls.workers.ingestion.formats.plain_rows import plain_blocks
from distls.workers.ingestion.formats.table_columns import TableOptions
from distls.workers.ingestion.parsing.array_types import Bytes
from distls.workers.ingestion.parsing.csv_field_kernels import CODED, Kind, Mode, State
from distls.workers.ingestion.parsing.text_blocks import TextItem, line_locator, text_blocks
from distls.workers.ingestion.records.messages import ENCODED, lacks_label, quoted
from distls.workers.ingestion.records.reader import SourceItem, refusals_together
from distls.workers.ingestion.records.record_batch import Progress
from distls.workers.ingestion.table_survey import survey_columns
from distls.workers.runtime.buffers import borrowed_buffers


@dataclass(frozen=True)
class SurveySpec:
    """Common input of all survey tasks."""

    staging: StagingArea
    name: str  # distinguishes the surveys of an ingest
    # the part of the format: surveys the columns of an item
    survey: Callable[[Any, SurveySpec], dict[str, Any]]
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
            found = spec.survey(item, spec)
            spec.staging.write_document(name, found)
        return dict(found)


def survey_records(item: ParquetItem | TextItem, spec: SurveySpec) -> dict[str, Any]:
    """Survey the columns of a Parquet row group, or of records of text; see `survey_item`."""
    plain = (
        _survey_text(item, spec, plain=True)
        if spec.read.source == "csv" and isinstance(item, TextItem)
        else {}
    )
    return (
        plain if "lines" in plain else {**survey_columns(item, spec.read, spec.limits, spec.checked), **plain}
    )


def survey_delimited(item: TextItem, spec: SurveySpec) -> dict[str, Any]:
    """Survey the columns of separated text; see `survey_item`."""
    return _survey_text(item, spec)


def _survey_text(item: TextItem, spec: SurveySpec, plain: bool = False) -> dict[str, Any]:
    """Survey text by the kernel; of records that it does not read return what it met: columns with codes."""
    own = item.own(spec.read)
    place = {name: c for c, name in enumerate(own.columns)}
    # numbers of columns are those of the table, which this file may have in another order
    there = [place[name] for name in spec.read.columns]
    limits = {there[c]: limit for c, limit in spec.limits.items()}
    asked = replace(spec, read=own, limits=limits, checked=tuple(there[c] for c in spec.checked))
    reader = _ColumnReader(asked, line_locator(item))
    whole = reader.read_plain(item) if plain else reader.read(item, spec)
    here = np.argsort(there).tolist()
    found = reader.result()
    entries = {name: [[here[c], *rest] for c, *rest in found[name]] for name in ("words", "values")}
    found |= {**entries, **{name: [here[c] for c in found[name]] for name in ("unique", "codes")}}
    return found if whole else {"codes": found["codes"]}


class _ColumnReader(RowReader):
    """Reads rows only to survey the columns."""

    def __init__(self, spec: SurveySpec, locate: Callable[[int], str]) -> None:
        kinds = np.full(len(spec.read.columns), Kind.SKIP)
        kinds[list(spec.checked)] = Kind.CHECK
        kinds[list(spec.limits)] = Kind.COLLECT
        if spec.read.label and spec.checked:
            kinds[spec.read.columns.index(spec.read.label)] = Kind.CHECK_LABEL
        columns = np.zeros((len(kinds), 3), dtype=np.int64)
        columns[:, 0] = kinds
        super().__init__(replace(spec.read, skip_errors=True), columns, Mode.SURVEY, Progress(), locate)
        self.kinds = kinds.tolist()
        self.asked = tuple(spec.limits)
        self.limits = dict(spec.limits)
        self.words: dict[int, tuple[int, str]] = {}
        self.unique: set[int] = set()

    def read(self, item: TextItem, spec: SurveySpec) -> bool:
        """Read all rows, and return that; raise BadInputError for those that cannot be read."""
        together = refusals_together(item, self.progress, spec.read.skip_errors)
        with together, borrowed_buffers() as pool:
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

    def refuse(self, text: Bytes, reason: str, may_skip: bool = True) -> None:
        """Stop at the offending row, or undo what was recorded of it."""
        line = int(self.state[State.LINE])
        super().refuse(text, reason, may_skip)
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
            where = self.locate(int(self.table.words.lines[entry]))
            name, shown = quoted(self.options.columns[column].encode()), quoted(self.table.raw(entry))
            raise BadInputError(
                f"{where}: column {name}: {shown}: a category must be UTF-8 text; {ENCODED}"
            ) from None

    def _values(self, column: int, entries: Iterable[int]) -> list[str]:
        values = {self._text(column, entry) for entry in entries}
        # a missing value is read as na, which may be a category, or is one of its own
        return sorted(values | {self.options.na} if self.columns[column, 2] else values)

    def result(self) -> dict[str, Any]:
        """Return what `survey_item` returns."""
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
