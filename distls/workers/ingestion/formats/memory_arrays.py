"""Arrays in memory, and rows that are computed when read, in blocks of rows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from distls.workers.ingestion.formats.arrays import as_targets, row_ranges
from distls.workers.ingestion.parsing.array_types import Array
from distls.workers.ingestion.records.labels import LabelSets
from distls.workers.ingestion.records.reader import BlockReader
from distls.workers.ingestion.records.record_batch import Progress, ReadOptions, RowBlock


@dataclass(frozen=True)
class MemoryItem:
    """Rows start, ..., stop - 1 of arrays in memory, staged in the process that holds them."""

    number: int
    x: Any  # shape (n_rows, n_features)
    y: Array | LabelSets | None  # shape (n_rows,) or (n_rows, n_targets), or None
    sample_weight: Array | None  # shape (n_rows,), or None
    start: int
    stop: int

    def where(self, line: int, _lines_before: int = 0) -> str:
        return f"X, row {self.start + line}"


@dataclass(frozen=True)
class ComputedItem:
    """Rows that are computed when they are read, such as a chunk of a lazy array."""

    number: int
    name: str  # of the source, for messages
    start: int  # number of the first row
    compute: Callable[[], tuple[Any, Any, Any]]  # returns x, y and sample_weight as in `MemoryItem`

    def where(self, line: int, _lines_before: int = 0) -> str:
        return f"{self.name}, row {self.start + line}"


def memory_blocks(item: MemoryItem, _: ReadOptions, progress: Progress, n_bytes: int) -> Iterator[RowBlock]:
    """Yield the rows of arrays in memory from the `progress.offset`-th on, in blocks of about `n_bytes`."""
    weights, skip = item.sample_weight, progress.offset
    sparse = not isinstance(item.x, np.ndarray)
    # Two numbers for each stored value: its column, and itself.
    width = 2 * item.x.nnz // max(item.x.shape[0], 1) if sparse else item.x.shape[1]
    for first, stop in row_ranges(item.start + skip, item.stop, width, n_bytes):
        part = item.x[first:stop]
        # Records keep weights as float32.
        weight = None if weights is None else np.asarray(weights[first:stop], dtype=np.float32)
        values, csr = (None, (part.indptr, part.indices, part.data)) if sparse else (part, None)
        if isinstance(item.y, LabelSets):
            labels, ends = item.y.rows(first, stop)
            yield RowBlock(first, values, csr, labels[:, None], weight, label_ends=ends)
        else:
            yield RowBlock(first, values, csr, as_targets(item.y, first, stop), weight)


def computed_blocks(
    item: ComputedItem, options: ReadOptions, progress: Progress, block_bytes: int
) -> Iterator[RowBlock]:
    """Compute the rows of an item, and yield them as `memory_blocks` does."""
    x, y, weight = item.compute()
    # Its rows are counted from zero: the item's start is for messages.
    computed = MemoryItem(item.number, x, y, weight, 0, x.shape[0])
    yield from memory_blocks(computed, options, progress, block_bytes)


MEMORY_READER = BlockReader(memory_blocks)
COMPUTED_READER = BlockReader(computed_blocks)
