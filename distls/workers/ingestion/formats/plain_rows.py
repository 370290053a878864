"""Plain separated text of numbers, categories and dates, read by the kernel of separated text.

It is several times as fast as batches of Arrow, which read what the kernel leaves: any other text. The kernel takes
seconds to compile, so that small files are left to them too.
"""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distls.storage.errors import BadInputError
from distls.workers.ingestion.formats.csv import DelimitedParser
from distls.workers.ingestion.formats.mixed_columns import date_parts
from distls.workers.ingestion.formats.parquet import parquet_blocks
from distls.workers.ingestion.formats.plain_csv import ASCII_BLANKS, plain_pieces
from distls.workers.ingestion.formats.table_columns import DATE_PARTS, Feature, TableOptions
from distls.workers.ingestion.parsing.array_types import Bytes
from distls.workers.ingestion.parsing.csv_field_kernels import KIND, NA, Kind, State
from distls.workers.ingestion.parsing.row_cuts import Lines, Seen
from distls.workers.ingestion.parsing.text_blocks import TextBlock, TextItem
from distls.workers.ingestion.records.reader import BlockLines, BlockReader, fields_of
from distls.workers.ingestion.records.record_batch import Progress, ReadRun, RecordBatch

_SMALL = 4 * 2**20  # bytes
_FEW_DATES, _REPEATS = 4096, 16  # an item may have so many dates, and one more for so many rows
# blanks that the kernel keeps: those that are neither a space nor a tab, and any within quotes
_KEPT = [blank for blank in ASCII_BLANKS if blank not in (b" ", b"\t")]
_KEPT_IN_QUOTES = (b'" ', b' "', b'"\t', b'\t"')
_WIDE_BLANK = re.compile(r"[^\S\x00-\x7f]")


def plain_blocks(item: TextItem, options: TableOptions) -> Iterator[tuple[int, TextBlock | None]]:
    """Yield (0-based line of the first row, whole lines) as long as the kernel reads as Arrow does; None at their end.

    Nothing is yielded of a small file, or of columns that the kernel does not know.
    """
    options = item.own(options)
    known = all(f.kind == "date" or not (f.kind or f.style) for f in options.features)
    if options.source != "csv" or options.more_labels or not known:
        return
    for number, (line, piece) in enumerate(plain_pieces(item, options)):
        if piece is None:
            yield line, None
        elif (number == 0 and piece.size < _SMALL) or _has_kept_blanks(piece):
            return
        else:
            yield line, TextBlock(piece.text, piece.size)


def _has_kept_blanks(lines: Lines) -> bool:
    """Return whether text may have blanks around values that the kernel takes for a part of them, or is not UTF-8."""
    if not lines.seen & (Seen.QUOTE | Seen.CONTROL | Seen.HIGH):
        return False
    piece = lines.content
    quoted = b'"' in piece and any(blank in piece for blank in _KEPT_IN_QUOTES)
    if quoted or any(blank in piece for blank in _KEPT):
        return True
    try:
        return not piece.isascii() and _WIDE_BLANK.search(piece.decode()) is not None
    except UnicodeDecodeError:
        return True


class _UpToRefusal(Progress):
    """Counts up to the first refused row, which batches of Arrow are to read."""

    def skip(self, line: int, reason: str) -> None:
        raise BadInputError(reason)


class _DateParser(DelimitedParser):
    """Parses numbers, categories and dates, each of which is read once."""

    def __init__(self, run: ReadRun[TableOptions]) -> None:
        super().__init__(run)
        options = run.options
        self._n_dates = self._at = 0
        self._features = {options.columns.index(f.name): f for f in options.features if f.kind == "date"}
        for column, feature in self._features.items():
            if options.na or feature.impute:
                self.columns[column, NA] = self._add_date((self.rules.na,) * feature.width)

    @property
    def n_rows(self) -> int:
        return int(self.state[State.ROWS])

    def go_back(self, n_rows: int, progress: Progress) -> None:
        """Forget the rows behind the first `n_rows`, and what was counted in them."""
        if n_rows < self.n_rows:
            self.state[[State.ROWS, State.WORDS]] = n_rows, self.records.row_at[n_rows]
        self.progress = progress

    def take_counts(self) -> Progress:
        counts, self.progress = self.progress, _UpToRefusal()
        return counts

    def _add_date(self, parts: tuple[float, ...]) -> int:
        at, self._at = self._at, self._at + 1 + len(parts)
        if self._at > len(self.slots.dates):
            self.slots = self.slots._replace(dates=np.resize(self.slots.dates, 2 * self._at))
        self.slots.dates[at : self._at] = len(parts), *parts
        self._n_dates += 1
        return at

    def _name_words(self, text: Bytes) -> None:
        feature = self._features.get(int(self.state[State.COLUMN]))
        if feature is None:
            super()._name_words(text)
            return
        entry = len(self.table) - 1
        parts = date_parts(self.table.text(entry), feature.style)
        often = self._n_dates < _FEW_DATES + self.state[State.LINE] // _REPEATS
        own = self.columns[self.state[State.COLUMN]]
        if not often and own[KIND] == Kind.DATE:
            # from here on the kernel reads most itself, which costs more than to look a few up
            own[KIND] = _direct_kind(feature)
            often = own[KIND] != Kind.DATE
        if not often or parts is None or max(map(abs, parts)) > np.finfo(np.float32).max:
            self.refuse(text, f"{self._field(text)}: a date for batches of Arrow")
        else:
            self.table.words.values[entry] = self._add_date(parts[: feature.width])
            if feature.width == len(DATE_PARTS) - 2 and parts[0] % 1.0 and feature.name not in self.progress.codes:
                self.progress.codes.append(feature.name)


def _direct_kind(feature: Feature) -> Kind:
    """Return the kind of a column of dates of which those of fixed width are read where they are."""
    if feature.style in ("time", "duration"):
        return Kind.TIME if feature.style == "time" and feature.width == 2 else Kind.DATE
    whole = len(DATE_PARTS)
    return {whole: Kind.TIMESTAMP, whole - 2: Kind.DAY_TIMESTAMP}.get(feature.width, Kind.DATE)


@dataclass(frozen=True)
class TableReader(BlockReader[Any, TableOptions]):
    """Reads rows by the kernel as far as it can, the others as `blocks` has them; the progress counts rows."""

    def batches(self, item: Any, run: ReadRun[TableOptions]) -> Iterator[RecordBatch]:
        n_rows, progress, skip = 0, run.progress, run.progress.offset
        for batch, counts in _kernel_batches(item, run):
            if batch is None:
                return
            n_rows += len(batch.row_line)
            # what an earlier attempt has staged is read again, so that batches end at the same rows
            if n_rows > skip:
                progress.offset = progress.lines = n_rows
                progress.gaps, progress.unseen = progress.gaps + counts.gaps, progress.unseen + counts.unseen
                progress.codes += [name for name in counts.codes if name not in progress.codes]
                progress.unseen_first = progress.unseen_first or counts.unseen_first
                yield batch
        yield from super().batches(item, run)


def _kernel_batches(item: TextItem, run: ReadRun[TableOptions]) -> Iterator[tuple[RecordBatch | None, Progress]]:
    """Yield the records of plain text, and what was counted in them, up to a refused row; None at the end."""
    options = item.own(run.options)
    parser, ahead, at_end = None, 0, False
    for line, block in plain_blocks(item, run.options):
        if parser is None:
            own = replace(run, options=options, progress=_UpToRefusal(lines=line))
            parser, ahead = _DateParser(own), line
        # a line of blanks, which the kernel passes over, is a row of too few fields
        at_end = block is None and line == ahead + parser.n_rows
        if block is None or line != ahead + parser.n_rows:
            break
        known, is_read = (parser.n_rows, replace(parser.progress)), False
        # blocks have a batch together, since partitions are read from many chunks; ids are those of a block
        parse = parser.parse if options.id_column else parser.full_batches
        with contextlib.suppress(BadInputError):
            for batch in parse(block):
                if int(batch.row_line[-1]) - ahead + 1 != len(batch.row_line):
                    return
                ahead += len(batch.row_line)
                yield _with_ids(batch, block, line, options), parser.take_counts()
                known = 0, _UpToRefusal()
            is_read = parser.state[State.LINE] == ahead + parser.n_rows
        if not is_read:
            parser.go_back(*known)
            break
    if parser is not None and parser.n_rows:
        yield parser.take_batch(), parser.take_counts()
    if parser is not None and at_end:
        yield None, parser.take_counts()


def _with_ids(batch: RecordBatch, block: TextBlock, line: int, options: TableOptions) -> RecordBatch:
    """Return a batch with the ids of its rows, if they have some; `line` is the block's first."""
    if not options.id_column:
        return batch
    fields = fields_of(options.dialect.separator, options.columns.index(options.id_column))
    return replace(batch, ids=BlockLines(block, line).ids(batch.row_line, fields))


TABLE_READER = TableReader(parquet_blocks)
