"""Readers turn the items of one input format into batches of records for a staging task.

A line-oriented text format has a parser of blocks of whole lines, any other a function that yields blocks of rows.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from distls.storage.dataset.chunks import BufferPool
from distls.storage.errors import BadInputError
from distls.workers.ingestion.parsing.text_blocks import TextBlock, TextItem, line_locator, text_blocks
from distls.workers.ingestion.records.line_ids import BlockLines, LineIds
from distls.workers.ingestion.records.pack_records import PackOptions, pack_blocks
from distls.workers.ingestion.records.record_batch import Progress, ReadOptions, RecordBatch
from distls.workers.ingestion.records.row_block import RowBlock


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

ItemT = TypeVar("ItemT", bound=SourceItem)
OptionsT = TypeVar("OptionsT", bound=ReadOptions)


@dataclass(frozen=True)
class ReadRun(Generic[OptionsT]):
    """Arguments of a reader besides the item."""

    options: OptionsT
    progress: Progress  # where to start; up to date whenever a batch is yielded
    n_extra: int  # words to reserve in each record
    n_features: int  # columns, where they are known before the rows are read
    block_bytes: int  # decoded bytes to hold at a time
    pool: BufferPool


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
    try:
        yield
    except BadInputError:
        if skip or not progress.skipped_first:
            raise
    if progress.skipped_first and not skip:
        lines = isinstance(item, TextItem)
        locate = line_locator(item) if isinstance(item, TextItem) else item.where
        line, reason = progress.skipped_first[0]
        kinds = [f"{kind} ({n}, from {locate(at)})" for kind, (n, at) in progress.refused.items()]
        more = f"; {progress.skipped:,} of {progress.lines:,} {'lines' if lines else 'rows'} read are refused"
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

    # (options, extra words of a record, progress, 0-based line -> ``FILE:LINE``, pool) -> parser
    parser: Callable[[OptionsT, int, Progress, Callable[[int], str], BufferPool], TextParser]
    # ids of the lines, where there is an id column; None: batches have their ids
    line_ids: Callable[[OptionsT], LineIds] | None = None

    def batches(self, item: TextItem, run: ReadRun[OptionsT]) -> Iterator[RecordBatch]:
        """Yield the item's records from ``run.progress`` on."""
        progress, options = run.progress, item.own(run.options)
        parser = self.parser(options, run.n_extra, progress, line_locator(item), run.pool)
        for block in text_blocks(item, progress.offset, run.block_bytes, progress.lines, run.pool):
            lines = None
            if options.id_column and self.line_ids is not None:
                # Before parsing, which moves the progress to the end of the block.
                lines, ids_of = BlockLines(block, progress.lines), self.line_ids(options)
            for batch in parser.parse(block):
                if lines is not None:
                    batch = replace(batch, ids=lines.ids(batch.row_line, ids_of, line_locator(item)))
                if item.weights is not None:
                    batch = replace(batch, weights=item.weights[batch.row_line])
                yield batch


@dataclass(frozen=True)
class BlockReader(Reader[ItemT, OptionsT]):
    """Reads blocks of rows."""

    # (item, options, progress, whose offset counts rows, bytes) -> blocks of about that many bytes
    blocks: Callable[[ItemT, OptionsT, Progress, int], Iterator[RowBlock]]

    def batches(self, item: ItemT, run: ReadRun[OptionsT]) -> Iterator[RecordBatch]:
        """Yield the item's records from ``run.progress`` on."""
        options = run.options
        packed = PackOptions(
            run.n_features,
            run.n_extra,
            options.float64,
            options.skip_errors,
            options.continuous,
            options.gaps,
        )
        # rows are converted and copied once before they are records
        blocks = self.blocks(item, options, run.progress, run.block_bytes // 2)
        return pack_blocks(blocks, packed, run.progress, item.where)
