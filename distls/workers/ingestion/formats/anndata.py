"""AnnData stores: blocks of rows of X with a column of labels."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from distls.storage.errors import BadInputError
from distls.storage.sources.anndata_store import AnnDataStore, open_anndata
from distls.workers.ingestion.parsing.array_types import Singles
from distls.workers.ingestion.parsing.text_blocks import SourceFile
from distls.workers.ingestion.records.messages import NO_LABEL
from distls.workers.ingestion.records.reader import BlockReader
from distls.workers.ingestion.records.record_batch import FileRows, Progress, ReadOptions, RowBlock


@dataclass(frozen=True)
class AnnDataItem(FileRows):
    """Rows start, ..., stop - 1 of a store."""

    number: int
    file: SourceFile
    start: int
    stop: int
    label: str  # column of ``obs``; empty if there is none
    weight: str  # likewise


def anndata_blocks(item: AnnDataItem, _: ReadOptions, progress: Progress, n_bytes: int) -> Iterator[RowBlock]:
    """Yield the item's rows from the `progress.offset`-th on, in blocks of about `n_bytes`."""
    # The offset of the progress counts rows of this item.
    first_wanted = item.start + progress.offset
    # A file that has changed since it was surveyed has other rows.
    item.file.check()
    with open_anndata(item.file.path) as store:
        for first, stop in _cuts(store, item, n_bytes):
            # resumed: an earlier attempt cut the rows into the same blocks
            if first >= first_wanted:
                yield _block(store, item, first, stop)


def _cuts(store: AnnDataStore, item: AnnDataItem, block_bytes: int) -> Iterator[tuple[int, int]]:
    if not store.sparse:
        step = max(1, block_bytes // store.row_bytes)
        for first in range(item.start, item.stop, step):
            yield first, min(first + step, item.stop)
        return
    ends = store.row_ends(item.start, item.stop)
    # bytes before each row: 8 per value, and 16 for the row itself
    size = 8 * (ends[:-1] - ends[0]) + 16 * np.arange(len(ends) - 1)
    # A cut wherever the running size passes a multiple of the block: the same cuts at every attempt.
    cuts = item.start + np.flatnonzero(np.diff(size // block_bytes, prepend=-1))
    yield from zip(cuts.tolist(), [*cuts[1:].tolist(), item.stop], strict=True)


def _block(store: AnnDataStore, item: AnnDataItem, first: int, stop: int) -> RowBlock:
    faults: dict[int, str] = {}
    values, csr = None, None
    if store.sparse:
        ends = store.row_ends(first, stop)
        indices, data = store.values(int(ends[0]), int(ends[-1]))
        # Offsets of a damaged store would read other rows' values.
        if np.any(np.diff(ends) < 0) or not len(indices) == len(data) == ends[-1] - ends[0]:
            raise BadInputError(f"{item.name}, row {first}: row offsets that do not fit the values; damaged")
        csr = (ends - ends[0], indices, data)
    else:
        values = store.dense_rows(first, stop)
    labels = store.column(item.label, first, stop)[:, None] if item.label else None
    if labels is not None:
        # NaN or an empty text: the row is refused when it is packed, by its number.
        missing = labels[:, 0] == "" if labels.dtype.kind == "U" else np.isnan(labels[:, 0])
        faults = dict.fromkeys(np.flatnonzero(missing).tolist(), f'column "{item.label}": {NO_LABEL}')
    return RowBlock(first, values, csr, labels, _weights(store, item, first, stop), faults=faults)


def _weights(store: AnnDataStore, item: AnnDataItem, first: int, stop: int) -> Singles | None:
    if not item.weight:
        return None
    weights = store.column(item.weight, first, stop)
    # words are no weights: NaN is refused with its row
    if weights.dtype.kind == "U":
        return np.full(len(weights), np.nan, dtype=np.float32)
    return weights.astype(np.float32)


ANNDATA_READER = BlockReader(anndata_blocks)
