"""Stage 1 of an ingest, on workers: an item of a source becomes staged chunks of shuffled row records."""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from distls.storage.dataset.chunks import BufferPool
from distls.storage.dataset.row_origins import take_ids
from distls.storage.temporary.ingest_staging import StagingArea
from distls.workers.ingestion.parsing.array_types import Doubles, Ints, UInts
from distls.workers.ingestion.parsing.record_kernels import sort_records, value_facts
from distls.workers.ingestion.records.reader import Reader, SourceItem, refusals_together
from distls.workers.ingestion.records.record_batch import (
    Progress,
    ReadOptions,
    ReadRun,
    RecordBatch,
    RecordLayout,
    labels_in,
)
from distls.workers.ingestion.row_rules import RowLabels, RowRules, RowStep
from distls.workers.runtime.buffers import borrowed_buffers
from distls.workers.runtime.rng import Purpose, rng


@dataclass(frozen=True)
class StageSpec:
    """Common input of all staging tasks."""

    staging: StagingArea
    reader: Reader[Any, Any]  # of the items' format
    layout: RecordLayout = field(default_factory=RecordLayout)
    read: ReadOptions = field(default_factory=ReadOptions)
    n_buckets: int = 1
    shuffle: bool = True  # into random buckets; else buckets are consecutive slices of a chunk
    seed: int = 0
    n_features: int = 0  # columns, where they are known before rows are read
    block_bytes: int = 32 * 2**20  # decompressed text of a compressed source in one chunk
    keep_fractions: bool = False  # list fractional labels, which become classes; else only the first
    # record the smallest value and its line, for log1p; the largest magnitude and whether all are counts, for auto
    find_values: bool = False
    first_item: int = 0  # added to the numbers of items, where they are staged once more
    origins: bool = True  # keep the number of each row in its file, and its id
    rules: RowRules | None = None  # labels from elsewhere, rows to leave out


def stage_item(spec: StageSpec, item: SourceItem) -> dict[str, Any]:
    """Stage one item, resuming an earlier attempt.

    Return ``chunks``, the facts of each chunk in row order, and the fields of `Progress` over the whole item.
    """
    with spec.staging.guard():
        # All chunks of the item are there.
        finished = spec.staging.read_item(spec.first_item + item.number)
        if finished is not None:
            return finished
        with borrowed_buffers() as pool:
            return _stage(spec, item, pool)


def _stage(spec: StageSpec, item: SourceItem, pool: BufferPool) -> dict[str, Any]:
    number = spec.first_item + item.number
    chunks = _finished_chunks(spec, number)
    # The last finished chunk tells where to go on.
    drops = spec.rules is not None and "unknown" in spec.rules.drop
    progress = Progress(**chunks[-1]["progress"]) if chunks else Progress(unlabelled=0 if drops else None)
    run = ReadRun(spec.read, progress, spec.layout.n_extra, spec.n_features, spec.block_bytes, pool)
    layout = spec.layout
    step = None if spec.rules is None else RowStep(spec.rules, spec.staging, item.number, layout, run)
    # Rows that are left out have numbers too, as refused ones have, by which origins are joined.
    before = sum(chunk["rows"] for chunk in chunks) + sum(progress.dropped.values())
    refused = progress.skipped
    with refusals_together(item, progress, spec.read.skip_errors):
        for batch in spec.reader.batches(item, run):
            numbers = _numbers_in_item(batch, before + refused, progress)
            progress.skipped_since.clear()
            before, refused = before + len(numbers), progress.skipped
            if step is not None:
                labels = RowLabels(*labels_in(batch.words, batch.row_at[:-1], layout.n_extra), batch.label_words)
                batch, kept = step.apply(batch, labels, numbers.astype(np.int64))
                numbers = numbers[kept]
                # Rows that the rules refuse are counted with those that the reader did.
                before, refused = before - (progress.skipped - refused), progress.skipped
                progress.skipped_since.clear()
            # a chunk of no rows has nothing to tell: what was counted goes with the next
            if len(numbers):
                chunks.append(_write_batch(spec, number, len(chunks), batch, progress, pool, numbers))
        if progress.unlabelled:
            progress.skipped -= progress.unlabelled
            progress.dropped["unknown"] = progress.dropped.get("unknown", 0) + progress.unlabelled
    for facts in chunks:
        facts.pop("progress")
    progress.skipped_since.clear()
    summary = {**asdict(progress), "chunks": chunks}
    # After all chunks: the item is finished by this document.
    spec.staging.write_item(number, summary)
    return summary


def _chunk_name(item: int, part: int) -> str:
    return f"{item:06d}-{part:04d}"


def _finished_chunks(spec: StageSpec, number: int) -> list[dict[str, Any]]:
    """Return the facts of the chunks that an earlier attempt at the item finished."""
    chunks: list[dict[str, Any]] = []
    while (facts := spec.staging.finished_chunk(_chunk_name(number, len(chunks)))) is not None:
        chunks.append(facts)
    return chunks


def _numbers_in_item(batch: RecordBatch, before: int, progress: Progress) -> UInts:
    """Return the number of each row of a batch in its item, from 0, of which `before` came before it."""
    refused = np.searchsorted(np.array(progress.skipped_since, dtype=np.int64), batch.row_line)
    return (before + refused + np.arange(len(batch.row_line))).astype(np.uint32)


def _write_batch(
    spec: StageSpec, item: int, part: int, batch: RecordBatch, progress: Progress, pool: BufferPool, numbers: UInts
) -> dict[str, Any]:
    n_extra, n_rows = spec.layout.n_extra, len(batch.row_line)
    labels, offsets = labels_in(batch.words, batch.row_at[:-1], n_extra)
    facts = {"rows": n_rows, **_label_facts(spec, batch, labels, offsets), "rounded": batch.rounded}
    if spec.find_values:
        facts |= _value_facts(spec, batch)
    table = np.zeros((spec.n_buckets + 1, 3), dtype=np.uint32)
    words = pool.take("sorted", batch.words.nbytes).view(np.uint32)
    extra = _extra_words(spec, item, part, batch, labels, offsets)
    buckets = _buckets(spec, item, part, n_rows)
    origins = None
    if spec.origins:
        # as sort_records sorts them; NumPy sorts two bytes by their digits, in a fifth of the time
        small = spec.n_buckets <= 2**16
        order = np.argsort(buckets.astype(np.uint16) if small else buckets, kind="stable")
        origins = numbers[order], None if batch.ids is None else take_ids(batch.ids, order)
    sort_records(batch.words, batch.row_at, buckets, extra, table, words)
    # Totals are the last row of the table.
    facts["nnz"] = int(table[-1, 2])
    if batch.column_words is not None:
        spec.staging.write_document(f"words-{_chunk_name(item, part)}", sorted(batch.column_words.items()))
    # With the chunk: a resumed item starts exactly behind it.
    facts["progress"] = asdict(progress)
    return spec.staging.write_chunk(_chunk_name(item, part), table, words, facts, origins)


def _label_facts(spec: StageSpec, batch: RecordBatch, labels: Doubles, offsets: Ints) -> dict[str, Any]:
    """Count the labels, and locate the first fraction and the first word."""

    def line_of(label: int) -> int:
        return int(batch.row_line[int(np.searchsorted(offsets, label, side="right")) - 1])

    fractional = np.flatnonzero(labels != np.floor(labels))
    facts: dict[str, Any] = {"labels": [[], []], "n_labels": len(labels), "fraction": None, "words": []}
    if len(fractional):
        facts["fraction"] = [float(labels[fractional[0]]), line_of(fractional[0])]
    words = np.flatnonzero(np.isin(labels, list(batch.label_words)))
    if len(words):
        facts["words"] = [[value, batch.label_words[value]] for value in np.unique(labels[words]).tolist()]
        facts["first_word"] = [batch.label_words[labels[words[0]]], line_of(words[0])]
    # fractions are a continuous target, whose values are not listed, unless they are to be classes
    if not len(fractional) or spec.keep_fractions:
        values, counts = np.unique(labels, return_counts=True)
        facts["labels"] = [values.tolist(), counts.tolist()]
    return facts


def _value_facts(spec: StageSpec, batch: RecordBatch) -> dict[str, Any]:
    own = spec.layout.n_extra, spec.layout.stride, spec.layout.dense
    smallest, row, largest, counts = value_facts(batch.words, batch.row_at[:-1], *own)
    line = int(batch.row_line[row]) if row >= 0 else -1
    return {"minimum": [float(smallest), line], "largest": float(largest), "counts": bool(counts)}


def _buckets(spec: StageSpec, item: int, part: int, n_rows: int) -> UInts:
    """Return the bucket of each row, shape (n_rows,)."""
    if spec.shuffle:
        random = rng(spec.seed, Purpose.SHUFFLE, item, part)
        return random.integers(0, spec.n_buckets, n_rows, dtype=np.uint32)
    return (np.arange(n_rows, dtype=np.int64) * spec.n_buckets // n_rows).astype(np.uint32)


def _extra_words(spec: StageSpec, item: int, part: int, batch: RecordBatch, labels: Doubles, offsets: Ints) -> UInts:
    """Return the extra words of each record, shape (n_extra, n_rows)."""
    n_rows = len(batch.row_line)
    extra = np.empty((spec.layout.n_extra, n_rows), dtype=np.uint32)
    if spec.layout.weighted:
        assert batch.weights is not None
        extra[0] = batch.weights.view(np.uint32)
    if spec.layout.ranked:
        # hold-out takes the lowest ranks of a chunk, within each class if rows have one label
        rank = rng(spec.seed, Purpose.SPLIT, item, part).permutation(n_rows)
        single = len(labels) == n_rows and offsets[-1] == n_rows
        extra[-2] = ranks_within(labels, rank) if single else rank
        extra[-1] = rank
    return extra


def ranks_within(labels: Doubles, rank: Ints) -> Ints:
    """Return the position of each row among the rows of its label in the order of `rank`; shapes (n_rows,)."""
    order = np.lexsort((rank, labels))
    grouped = labels[order]
    starts = np.flatnonzero(np.concatenate([[True], grouped[1:] != grouped[:-1]]))
    sizes = np.diff(np.append(starts, len(labels)))
    within = np.empty(len(labels), dtype=np.int64)
    within[order] = np.arange(len(labels)) - np.repeat(starts, sizes)
    return within
