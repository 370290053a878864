"""Readers turn the items of one input format into batches of records for a staging task.

A line-oriented text format has a parser of blocks of whole lines, any other a function that yields blocks of rows.
"""

import contextlib
import csv
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from distls.storage.dataset.chunks import BufferPool
from distls.storage.dataset.row_origins import RowIds, pack_ids
from distls.storage.errors import BadInputError
from distls.workers.ingestion.parsing.array_types import Bytes, Int32s, Ints, UInts
from distls.workers.ingestion.parsing.record_kernels import Records
from distls.workers.ingestion.parsing.row_cuts import BYTE_ORDER_MARK
from distls.workers.ingestion.parsing.svmlight_kernels import State, line_end
from distls.workers.ingestion.parsing.text_blocks import MAX_LINE, TextBlock, TextItem, line_starts, text_blocks
from distls.workers.ingestion.records.messages import ENCODED, quoted
from distls.workers.ingestion.records.pack_records import pack_blocks
from distls.workers.ingestion.records.record_batch import OptionsT, Progress, ReadRun, RecordBatch, RowBlock, RowError


class SourceItem(Protocol):
    """The part of a source that one task reads."""

    @property
    def number(self) -> int:
        """Its position among the items of the ingest."""

    @property
    def start(self) -> int:
        """Its first row or byte in the source; 0: it starts the source."""

    def where(self, line: int, lines_before: int = 0) -> str:
        """Format the position of a 0-based line (row) of the item, which has `lines_before` in its source."""


_MOST_REFUSED = 10_000

# The ids of some lines, in order.
LineIds = Callable[[Iterator[str]], Iterator[str]]
ItemT = TypeVar("ItemT", bound=SourceItem)


class Reader(ABC, Generic[ItemT, OptionsT]):
    """Reads the items of one format; it is pickled into every task, so it has no state."""

    @abstractmethod
    def batches(self, item: ItemT, run: ReadRun[OptionsT]) -> Iterator[RecordBatch]:
        """Yield the item's records from ``run.progress`` on."""


@contextlib.contextmanager
def refusals_together(item: SourceItem, progress: Progress, skip: bool) -> Iterator[None]:
    """Raise BadInputError at the end for all refused rows of an item together, unless they are to be skipped.

    The end is that of the item, or `_MOST_REFUSED` rows: so many tell what is wrong, and one takes as long as 40.
    """
    progress.stop_after = 0 if skip else _MOST_REFUSED
    text = item if isinstance(item, TextItem) else None

    def locate(line: int) -> str:
        # a range that starts inside a line begins with the next one
        counted = text is not None and text.before is None and text.file.is_plain
        return item.where(line, line_starts(text.file, [text.start])[0] if text and counted else 0)

    try:
        yield
    except RowError as error:
        if skip or not progress.skipped_first:
            raise BadInputError(f"{locate(error.line)}: {error}") from None
    except BadInputError:
        if skip or not progress.skipped_first:
            raise
    if progress.skipped_first and not skip:
        line, reason = progress.skipped_first[0]
        # a resumed reading has lost the order
        found = sorted(progress.refused.items(), key=lambda each: each[1][1])
        kinds = [f"{kind} ({n}, from {locate(at)})" for kind, (n, at) in found]
        more = f"; {progress.skipped:,} of {progress.lines:,} {'lines' if text else 'rows'} read are refused"
        more += f": {', '.join(kinds)}" if len(kinds) > 1 else " for this"
        more += ", and no more are read" * (not progress.stop_after)
        raise BadInputError(f"{locate(line)}: {reason}{more if progress.skipped > 1 else ''}") from None


class TextParser(Protocol):
    """Parses the blocks of one item, in order."""

    def parse(self, block: TextBlock) -> Iterator[RecordBatch]:
        """Yield the block's rows; the progress is up to date at each batch and at the end of the block."""


@dataclass(frozen=True)
class TextReader(Reader[TextItem, OptionsT]):
    """Reads line-oriented text."""

    parser: Callable[[ReadRun[OptionsT]], TextParser]
    # ids of the lines, where there is an id column; None: batches have their ids
    line_ids: Callable[[OptionsT], LineIds] | None = None

    def batches(self, item: TextItem, run: ReadRun[OptionsT]) -> Iterator[RecordBatch]:
        progress, options = run.progress, item.own(run.options)
        parser = self.parser(replace(run, options=options))
        for block in text_blocks(item, progress.offset, run.block_bytes, progress.lines, run.pool):
            lines = None
            if options.id_column and self.line_ids is not None:
                # Before parsing, which moves the progress to the end of the block.
                lines, ids_of = BlockLines(block, progress.lines), self.line_ids(options)
            for batch in parser.parse(block):
                if lines is not None:
                    batch = replace(batch, ids=lines.ids(batch.row_line, ids_of))
                if item.weights is not None:
                    batch = replace(batch, weights=item.weights[batch.row_line])
                yield batch


@dataclass(frozen=True)
class BlockReader(Reader[ItemT, OptionsT]):
    """Reads blocks of rows."""

    # (item, options, progress, whose offset counts rows, bytes) -> blocks of about that many bytes
    blocks: Callable[[ItemT, OptionsT, Progress, int], Iterator[RowBlock]]

    def batches(self, item: ItemT, run: ReadRun[OptionsT]) -> Iterator[RecordBatch]:
        # rows are converted and copied once before they are records
        blocks = self.blocks(item, run.options, run.progress, run.block_bytes // 2)
        return pack_blocks(blocks, run)


class BlockLines:
    """The lines of a block by their numbers in the item, of which the first is `first_line`."""

    def __init__(self, block: TextBlock, first_line: int) -> None:
        self.block = block
        self.first_line = first_line
        newlines = np.flatnonzero(block.text[: block.size] == ord("\n"))
        # The last line need not end.
        self.ends = np.append(newlines, block.size)

    def ids(self, row_line: Int32s, ids_of: LineIds) -> RowIds:
        """Return the ids of rows; raise RowError for one that is not UTF-8."""
        return pack_ids(list(ids_of(self._texts(row_line.tolist()))))

    def _texts(self, lines: Sequence[int]) -> Iterator[str]:
        for line in lines:
            place = line - self.first_line
            start = int(self.ends[place - 1]) + 1 if place else 0
            # Cut out of the block's bytes, as the parser keeps no text.
            raw = self.block.text[start : int(self.ends[place])].tobytes()
            try:
                yield raw.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\r").decode()
            except UnicodeDecodeError:
                reason = f"{quoted(raw)}: a line with an id must be UTF-8 text; {ENCODED}"
                raise RowError(line, reason) from None


def fields_of(separator: str, column: int) -> LineIds:
    """Return the reader of ids in a column of separated text."""

    def ids(lines: Iterator[str]) -> Iterator[str]:
        csv.field_size_limit(MAX_LINE)  # 128 KiB by default
        rows = csv.reader(lines, delimiter=separator, skipinitialspace=separator != " ")
        for row in rows:
            yield row[column].strip()

    return ids


def tag_of(lines: Iterator[str]) -> Iterator[str]:
    """Yield the tags of Vowpal Wabbit's lines: the word that touches the first bar, or begins with an apostrophe."""
    for line in lines:
        head = line.partition("|")[0]
        word = head.split()[-1] if head.strip() else ""
        # A word that touches the bar is a tag, one before a space a label or weight.
        tagged = word.startswith("'") or (word and not head[-1].isspace())
        yield word.removeprefix("'") if tagged else ""


def comment_of(lines: Iterator[str]) -> Iterator[str]:
    """Yield the comments of svmlight lines, what comes after ``#``."""
    for line in lines:
        yield line.partition("#")[2].strip()


def first_of(lines: Iterator[str]) -> Iterator[str]:
    """Yield the first words of lines, of svmlight lines what is in the place of the label."""
    for line in lines:
        yield line.split(maxsplit=1)[0]


_BATCH_WORDS = 16 * 2**20


class KernelParser:
    """Parses the blocks of one item, in order, and keeps the progress up to date.

    The first entries of the kernel's state, of `state_size` in all, are those of `State` in every format.
    """

    def __init__(self, run: ReadRun[Any], state_size: int, n_words: int = 0) -> None:
        self.options: Any = run.options
        self.progress, self.n_extra, self.pool = run.progress, run.n_extra, run.pool
        self.records = records_in(run.pool, n_words or _BATCH_WORDS)
        self.label_words: dict[float, str] = {}
        self.state = np.zeros(state_size, dtype=np.int64)
        # Line numbers go on where an earlier attempt has stopped.
        self.state[State.LINE] = self.progress.lines

    def begin_block(self, block: TextBlock) -> bytes:
        """Go to the block's first line, behind a byte order mark; of the file's first block return the beginning."""
        self.state[State.POSITION] = 0
        if not block.starts_file:
            return b""
        start = block.text[: min(block.size, 4096)].tobytes()
        self.state[State.POSITION] = 3 * start.startswith(BYTE_ORDER_MARK)
        return start.removeprefix(BYTE_ORDER_MARK)

    def skip_line(self, text: Bytes) -> None:
        self.state[State.POSITION] = line_end(text, int(self.state[State.POSITION])) + 1
        self.state[State.LINE] += 1

    def refuse(self, text: Bytes, reason: str) -> None:
        """Count a refused line, and go to the next one, where the kernel starts anew."""
        self.progress.skip(int(self.state[State.LINE]), reason)
        self.skip_line(text)

    def take_records(self) -> tuple[UInts, Ints, Any]:
        """Return the rows that were parsed since the last call: words, first words and the end, and lines."""
        n_rows, n_words = self.state[[State.ROWS, State.WORDS]].tolist()
        self.state[[State.ROWS, State.WORDS]] = 0
        # The end of the last record closes the table.
        self.records.row_at[n_rows] = n_words
        return self.records.words[:n_words], self.records.row_at[: n_rows + 1], self.records.row_line[:n_rows]


def records_in(pool: BufferPool, n_words: int) -> Records:
    """Return buffers for records of `n_words` words, from `pool`."""
    words = pool.take("words", 4 * n_words).view(np.uint32)
    return Records(
        words=words,
        floats=words.view(np.float32),
        # sized for the shortest records, as untouched pages cost nothing
        row_at=pool.take("row_at", 4 * n_words + 16).view(np.int64),
        row_line=pool.take("row_line", 2 * n_words + 8).view(np.int32),
        row_weight=pool.take("row_weight", 2 * n_words + 8).view(np.float32),
    )
