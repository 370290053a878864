"""Stage 3 of an ingest, on workers: ranges of all staged chunks become one partition of a dataset."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import numpy as np

from distls.storage.dataset.chunks import BufferPool
from distls.storage.dataset.metadata import TargetKind
from distls.storage.dataset.partitions import choose_codecs, write_partition
from distls.storage.dataset.row_origins import OriginFacts, RowIds, RowSources, take_ids, write_origins
from distls.storage.filesystem.paths import Place
from distls.storage.rows import CsrRows, DenseRows, Partition, Rows, index_dtype, take_rows
from distls.storage.temporary.ingest_staging import Segment, StagingArea
from distls.workers.ingestion.column_moments import Moments, merge_moments, moments_of
from distls.workers.ingestion.merged_values import Merged, Merging
from distls.workers.ingestion.parsing import record_kernels
from distls.workers.ingestion.parsing.array_types import Array, Bools, Doubles, Ints, UInts
from distls.workers.ingestion.records.record_batch import RecordLayout, labels_in
from distls.workers.ingestion.stand_ins import filled
from distls.workers.ingestion.transforms import apply_transforms, in_type, stored_width
from distls.workers.runtime.buffers import borrowed_buffers
from distls.workers.runtime.rng import Purpose, rng


@dataclass(frozen=True)
class AssemblySpec:
    """Common input of all assembly tasks; the larger arrays are in the staging area."""

    # with arrays ``classes`` (float64 values), ``allotment`` (see `_selected_rows`) and each fitted transform
    staging: StagingArea
    roots: tuple[Place, ...]  # dataset of the training rows, then of each split
    chunks: tuple[str, ...]  # names, in row order
    n_buckets: int
    layout: RecordLayout
    weighted: bool  # whether partitions get the weights of the records
    target: TargetKind
    n_targets: int
    n_columns: int  # of the source
    narrowed: bool  # sparse rows have columns from `n_columns` on, which are left out
    base: int  # number of the first column in the source
    seed: int
    shuffle: bool
    dtype: str  # of the partitions; records may have more digits
    transforms: tuple[dict[str, Any], ...]
    fitted: tuple[str, ...]  # names of the fitted arrays
    codecs: dict[str, str] | None  # None: by `compress`; the first partition decides, the others guess
    compress: str
    # code of the file of each chunk, and the number of its item's first row in it; empty: origins are not kept
    chunk_starts: tuple[tuple[int, int], ...] = ()
    origins: OriginFacts | None = None
    drop_empty: bool = False  # leave out sparse rows that min_count leaves without values
    compared: bool = False  # look for different values that become equal


@dataclass(frozen=True)
class Piece:
    """A run of buckets start, ..., stop - 1 that is read at once."""

    start: int
    stop: int
    n_words: int  # words of the records in these buckets

    def segments(self, spec: AssemblySpec) -> list[Segment]:
        """Return the runs of buckets to read, in row order."""
        # shuffled: these buckets of every chunk; in source order buckets are numbered chunk by chunk
        if spec.shuffle:
            return [Segment(chunk, self.start, self.stop) for chunk in spec.chunks]
        # Only the first and the last chunk may be taken in part.
        segments = []
        n = spec.n_buckets
        for number in range(self.start // n, (self.stop - 1) // n + 1):
            first, last = max(self.start - number * n, 0), min(self.stop - number * n, n)
            segments.append(Segment(spec.chunks[number], first, last))
        return segments


@dataclass(frozen=True)
class PartitionItem:
    """A partition to assemble."""

    part: int  # 0 for the training rows, k for the k-th split
    index: int  # number of the partition in its dataset
    pieces: tuple[Piece, ...]  # several for a small split, whose rows are a few of very many


Items = Sequence[PartitionItem]


@dataclass(frozen=True)
class _Records:
    """Staged rows in memory: first word and chunk number of each row."""

    words: UInts
    row_at: Ints
    chunk: Ints


@dataclass(frozen=True)
class _Taken:
    """The rows of a piece that belong to an item: their numbers among the rows read."""

    piece: Piece
    rows: Ints


def assemble(spec: AssemblySpec, item: PartitionItem) -> dict[str, Any]:
    """Write one partition, unless an earlier attempt did; return ``codecs`` and ``record``, the `PartitionRecord`."""
    with spec.staging.guard():
        finished = spec.staging.read_record(f"part{item.part}", item.index)
        # With other codecs than were decided since, the partition is written again.
        if finished is not None and spec.codecs in (None, finished["codecs"]):
            return finished
        # Rows are gathered into the pool's buffers, which the next partition uses again.
        with borrowed_buffers() as pool:
            return _assemble(spec, item, pool)


def _assemble(spec: AssemblySpec, item: PartitionItem, pool: BufferPool) -> dict[str, Any]:
    taken: list[_Taken] = []
    found: dict[str, Any] = {"merged": [], "filled": []}
    order, partition, n_empty = _partition(spec, item, pool, taken, found)
    # the first partition decides for all; the others guess from a sample until that is known
    first = item.part == item.index == 0
    codecs = spec.codecs or choose_codecs(partition, spec.compress, sample=not first)
    n_classes = spec.staging.read_array("classes").shape[-1] if spec.target in ("class", "multilabel") else 0
    n_features = stored_width(spec.transforms, spec.n_columns)
    record = write_partition(spec.roots[item.part], item.index, partition, n_features, n_classes, codecs)
    result = {"codecs": codecs, "record": asdict(record), "dropped": {"empty": n_empty}, **found}
    if spec.origins is not None:
        sources = _sources_of(spec, spec.origins, taken, order)
        # Origins before the record: a recorded partition has all of its files.
        result["origins"] = msgspec.to_builtins(write_origins(spec.roots[item.part], item.index, sources))
    spec.staging.write_record(f"part{item.part}", item.index, result)
    return result


def _partition(
    spec: AssemblySpec, item: PartitionItem, pool: BufferPool, taken: list[_Taken], found: dict[str, Any]
) -> tuple[Ints, Partition, int]:
    """Return a partition, the order of its rows among those added to `taken`, and how many were left out.

    `found` takes values that become equal, and how many missing ones of each column were filled in.
    """
    words, row_at = _rows_of(spec, item, pool, taken)
    order = np.arange(len(row_at))
    if spec.shuffle:
        # Each split has its own partitions, so the split is part of the key.
        key = (item.index,) if item.part == 0 else (item.index, item.part)
        order = rng(spec.seed, Purpose.SHUFFLE_ROWS, *key).permutation(len(row_at))
        row_at = row_at[order]
    x = _gather(spec, words, row_at, pool)
    if "stand_ins" in spec.fitted:
        x, found["filled"] = filled(x, spec.staging.read_array("stand_ins"))
    x = in_type(_transformed(spec, item, x, found["merged"] if spec.compared else None), spec.dtype)
    # Some rows have rare features only, which are known by now.
    n_rows = len(row_at)
    # dense rows are judged as they were read: centring moves their zeros
    if spec.drop_empty and isinstance(x, CsrRows):
        full = np.flatnonzero(np.diff(x.indptr))
        order, row_at, x = order[full], row_at[full], x if len(full) == n_rows else take_rows(x, full)
    y = _targets(spec, words, row_at)
    # The weight is the first extra word of a record, behind both counts.
    weight = words[row_at + 2].view(np.float32) if spec.weighted else None
    return order, Partition(x, y, weight), n_rows - len(row_at)


def _transformed(spec: AssemblySpec, item: PartitionItem, x: Rows, merged: Merged | None = None) -> Rows:
    fitted = {name: spec.staging.read_array(name) for name in spec.fitted}
    where, steps = f"{spec.roots[item.part]}: partition {item.index}", spec.transforms
    if merged is not None:
        # by their columns in the data set, which these steps decide
        n = sum(step["name"] in ("impute", "min_count") for step in steps)
        x, steps = apply_transforms(x, steps[:n], fitted, where), steps[n:]
        merged += Merging(steps, fitted, spec.dtype).found(x)
    return apply_transforms(x, steps, fitted, where)


def _rows_of(
    spec: AssemblySpec, item: PartitionItem, pool: BufferPool, found: list[_Taken] | None = None
) -> tuple[UInts, Ints]:
    """Return words and the position of each record that belongs to the item, in source order.

    `found` takes the rows of each piece.
    """
    taken = []
    for piece in item.pieces:
        records = _read(spec, piece, pool)
        rows = np.arange(len(records.row_at))
        # Without a split all rows are taken, which saves the look at their ranks.
        if len(spec.roots) > 1:
            rows = np.flatnonzero(_selected_rows(spec, records, item.part))
        row_at = records.row_at[rows] if len(spec.roots) > 1 else records.row_at
        if found is not None:
            found.append(_Taken(piece, rows))
        # One piece is the rule: nothing is copied then.
        if len(item.pieces) == 1:
            return records.words, row_at
        # the buffer is reused for the next piece: copy the few records of this part
        taken.append(_copied(spec, records.words, row_at))
    starts = np.cumsum([0, *(len(words) for words, _ in taken)])
    row_at = np.concatenate([rows + start for (_, rows), start in zip(taken, starts[:-1], strict=True)])
    return np.concatenate([words for words, _ in taken]), row_at


def _sources_of(spec: AssemblySpec, facts: OriginFacts, taken: list[_Taken], order: Ints) -> RowSources:
    """Return the origins of a partition's rows, in their `order` among the rows taken."""
    parts = [_piece_sources(spec, facts, each) for each in taken]
    rows = np.concatenate([part.rows for part in parts])[order]
    files = [part.files for part in parts if part.files is not None]
    ids = _joined_ids([part.ids for part in parts if part.ids is not None])
    file = np.concatenate(files)[order] if files else None
    return RowSources(rows, file, None if ids is None else take_ids(ids, order))


def _piece_sources(spec: AssemblySpec, facts: OriginFacts, taken: _Taken) -> RowSources:
    """Return the origins of the rows taken from a piece, in source order."""
    number_of = {name: number for number, name in enumerate(spec.chunks)}
    rows, files, ids = [], [], []
    for segment in taken.piece.segments(spec):
        numbers, own_ids = spec.staging.read_origins(segment)
        file, first = spec.chunk_starts[number_of[segment.chunk]]
        # Numbers count within an item; the file may begin with other items.
        rows.append(numbers.astype(facts.dtype) + np.dtype(facts.dtype).type(first))
        files.append(np.full(len(numbers), file, dtype=np.uint32))
        if own_ids is not None:
            ids.append(own_ids)
    joined, own = _joined_ids(ids), taken.rows
    of_file = np.concatenate(files)[own] if len(facts.files) > 1 else None
    return RowSources(np.concatenate(rows)[own], of_file, None if joined is None else take_ids(joined, own))


def _joined_ids(parts: Sequence[RowIds]) -> RowIds | None:
    if not parts:
        return None
    sizes = np.concatenate([np.diff(part.ends) for part in parts])
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64, copy=False)
    return RowIds(np.concatenate([part.text for part in parts]), ends)


def _copied(spec: AssemblySpec, words: UInts, row_at: Ints) -> tuple[UInts, Ints]:
    n_values, n_labels = (words[row_at + k].astype(np.int64) for k in (0, 1))
    # A record: counts, extra words, labels of two words each, values.
    ends = np.cumsum(2 + spec.layout.n_extra + 2 * n_labels + spec.layout.stride * n_values)
    own = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.uint32)
    own_at = np.concatenate([[0], ends])
    record_kernels.copy_records(words, row_at, own_at, own)
    return own, own_at[:-1]


def _read(spec: AssemblySpec, piece: Piece, pool: BufferPool) -> _Records:
    segments = piece.segments(spec)
    words, n_rows = spec.staging.read_segments(segments, piece.n_words, pool)
    row_at = np.empty(int(n_rows.sum()) + 1, dtype=np.int64)  # the end of the last record too
    # Records have no fixed length, so one pass finds where each begins.
    record_kernels.locate_records(words, spec.layout.n_extra, spec.layout.stride, row_at)
    first = 0 if spec.shuffle else piece.start // spec.n_buckets
    chunk = np.repeat(np.arange(first, first + len(segments)), n_rows)
    return _Records(words, row_at[:-1], chunk)


# Ranks were drawn when the rows were staged: every split takes a slice of them.
def _selected_rows(spec: AssemblySpec, records: _Records, part: int) -> Bools:
    """Return which rows belong to `part`, shape (n_rows,)."""
    # of stratum s of chunk c, the allotment[k, c, s] rows of the lowest ranks go to the first k + 1 splits
    allotment = spec.staging.read_array("allotment")
    if spec.target == "class":
        stratum = _codes(spec, labels_in(records.words, records.row_at, spec.layout.n_extra)[0])
        rank = records.words[records.row_at + spec.layout.n_extra]
    else:
        stratum = np.zeros(len(records.row_at), dtype=np.int64)
        rank = records.words[records.row_at + 1 + spec.layout.n_extra]
    bounds = [allotment[k][records.chunk, stratum] for k in range(len(allotment))]
    if part == 0:
        # The training rows are what no split has taken.
        return rank >= bounds[-1]
    lower = bounds[part - 2] if part > 1 else 0
    return (rank >= lower) & (rank < bounds[part - 1])


def _gather(spec: AssemblySpec, words: UInts, row_at: Ints, pool: BufferPool) -> Rows:
    dtype = np.dtype(np.float64 if spec.layout.float64 else np.float32)
    if spec.layout.dense:
        n_values = len(row_at) * spec.n_columns
        values = _array(pool, "values", n_values, dtype).reshape(len(row_at), spec.n_columns)
        record_kernels.gather_dense(words, row_at, spec.layout.n_extra, values)
        return DenseRows(values)
    nnz = int(record_kernels.count_entries(words, row_at)[0])
    indptr = np.empty(len(row_at) + 1, dtype=np.int64)
    # Columns beyond the width may need wider indices until they are cut off.
    indices = _array(pool, "indices", nnz, index_dtype(2**32 if spec.narrowed else spec.n_columns))
    data = _array(pool, "data", nnz, dtype)
    record_kernels.gather_pairs(words, row_at, spec.layout.n_extra, spec.base, indptr, indices, data)
    rows = CsrRows(indptr, indices, data)
    return _narrowed(rows, spec.n_columns) if spec.narrowed else rows


def _narrowed(rows: CsrRows, n_columns: int) -> CsrRows:
    kept = rows.indices < n_columns
    # Counts of kept values before each place give the new offsets.
    before = np.concatenate([[0], np.cumsum(kept)])
    indices = rows.indices[kept].astype(index_dtype(n_columns))
    return CsrRows(before[rows.indptr], indices, rows.data[kept])


def _array(pool: BufferPool, name: str, size: int, dtype: np.dtype[Any]) -> Array:
    return pool.take(name, size * dtype.itemsize).view(dtype)


def _codes(spec: AssemblySpec, labels: Doubles) -> Ints:
    classes = spec.staging.read_array("classes")
    values = classes.ravel()
    # classes taken over from another dataset need not be sorted
    order = np.argsort(values, kind="stable")
    return np.asarray((order % classes.shape[-1])[np.searchsorted(values, labels, sorter=order)])


def _targets(spec: AssemblySpec, words: UInts, row_at: Ints) -> Any:
    if spec.target == "none":
        return None
    labels, offsets = labels_in(words, row_at, spec.layout.n_extra)
    if spec.target == "continuous":
        # Targets of a row stand side by side in its record.
        return labels.reshape(len(row_at), spec.n_targets)
    codes = _codes(spec, labels)
    if spec.target == "class":
        return codes.astype(np.int32)
    # codes increase within a row, as in every CSR group
    order = np.lexsort((codes, np.repeat(np.arange(len(row_at)), np.diff(offsets))))
    return CsrRows(offsets, codes[order].astype(np.uint32), np.ones(len(codes), dtype=np.float32))


def column_counts(spec: AssemblySpec, items: Items) -> tuple[Ints, int]:
    """Count the non-zeros of each column over the rows of `items`, shape (n_columns,), and the rows."""
    counts = np.zeros(stored_width(spec.transforms, spec.n_columns), dtype=np.int64)
    with spec.staging.guard(), borrowed_buffers() as pool:
        n_rows = sum(_count(spec, item, counts, pool) for item in items)
    return counts, n_rows


def _count(spec: AssemblySpec, item: PartitionItem, counts: Ints, pool: BufferPool) -> int:
    """Add a partition's rows to `counts`; return their number."""
    words, row_at = _rows_of(spec, item, pool)
    if spec.layout.dense or spec.transforms:
        x = _transformed(spec, item, _gather(spec, words, row_at, pool))
        if isinstance(x, DenseRows):
            counts += np.count_nonzero(x.values, axis=0)
        else:
            counts += np.bincount(x.indices, minlength=len(counts))
    else:
        record_kernels.count_columns(words, row_at, spec.layout.n_extra, spec.layout.stride, spec.base, counts)
    return len(row_at)


def transformed_rows(spec: AssemblySpec, items: Items) -> Iterator[Rows]:
    """Yield the rows of each partition after the transforms of `spec`, in source order; they share buffers."""
    with spec.staging.guard(), borrowed_buffers() as pool:
        for item in items:
            yield _transformed(spec, item, _gather(spec, *_rows_of(spec, item, pool), pool))


def column_moments(spec: AssemblySpec, items: Items) -> Moments:
    """Return the moments of the columns over the rows of `items` after the transforms of `spec`."""
    width = stored_width(spec.transforms, spec.n_columns)
    # Merged from the left, in the order of the items: the same rounding on any worker.
    return functools.reduce(merge_moments, (moments_of(x, width) for x in transformed_rows(spec, items)))
