"""Stage 2 of an ingest: the held-out rows, the boundaries of partitions, and the numbers of rows in their files."""

import functools
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from distls.ingestion.label_rules import source_rows
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan
from distls.ingestion.schema import Schema, Survey
from distls.storage.dataset.row_origins import OriginFacts
from distls.storage.errors import ParameterError
from distls.storage.rows import index_dtype
from distls.workers.ingestion.assemble_task import PartitionItem, Piece
from distls.workers.ingestion.parsing.array_types import Ints, UInts
from distls.workers.ingestion.records.labels import class_values
from distls.workers.runtime.rng import Purpose, rng


def allot_split(survey: Survey, schema: Schema, options: IngestOptions) -> tuple[Ints, list[str]]:
    """Return how many rows of each stratum each chunk contributes to the first k + 1 splits, and notices.

    Strata are the classes, or all rows if there are none. Exactly ``round(fraction * n_rows)`` rows are held out, of
    each stratum its share up to a row, and never its last row. The int64 array has shape (n_splits, n_chunks,
    n_strata).
    """
    left, notices = _strata(survey, schema), []
    totals = left.sum(axis=0)
    random = rng(options.seed, Purpose.SPLIT)
    allotment = np.zeros((len(options.split), *left.shape), dtype=np.int64)
    for k, (name, fraction) in enumerate(options.split):
        held = _shares(fraction, totals, np.maximum(left.sum(axis=0) - 1, 0), random)
        for s, n_held in enumerate(held.tolist()):
            # spread over the chunks as by drawing without replacement
            allotment[k, :, s] = random.multivariate_hypergeometric(left[:, s], n_held, method="marginals")
        left = left - allotment[k]
        asked, found = round(fraction * survey.n_rows), int(held.sum())
        if not found or (asked >= survey.n_rows and len(totals) == 1):
            part = "the training rows" if found else "it"
            raise ParameterError(f"split {name}={fraction:g} of {survey.n_rows} rows leaves none for {part}")
        if found < asked:
            rest = f"not {asked}: each class keeps a row to train on"
            notices.append(f"split {name}={fraction:g} has {found} of {survey.n_rows} rows, {rest}")
    return np.cumsum(allotment, axis=0), notices


def _shares(fraction: float, totals: Ints, most: Ints, random: np.random.Generator) -> Ints:
    """Return the rows to hold out of each stratum, at most `most`, in all as many as of the whole."""
    wanted = fraction * totals
    held = np.minimum(np.rint(wanted).astype(np.int64), most)
    missing = round(fraction * int(totals.sum())) - int(held.sum())
    # strata that are too small for a row of their own take turns at random
    ties = random.permutation(len(totals)) if missing else np.arange(len(totals))
    while missing:
        step = 1 if missing > 0 else -1
        able = np.flatnonzero(held < most if step > 0 else held > 0)
        if not len(able):
            break
        # those that are farthest from their share first
        chosen = able[np.lexsort((ties[able], step * (held - wanted)[able]))][: abs(missing)]
        held[chosen] += step
        missing -= step * len(chosen)
    return held


def _strata(survey: Survey, schema: Schema) -> Ints:
    """Count the rows of each chunk and stratum, shape (n_chunks, n_strata)."""
    if schema.target != "class":
        return np.array([[chunk["rows"]] for chunk in survey.chunks], dtype=np.int64)
    n_classes, values = len(schema.classes), class_values(schema.classes).ravel().tolist()
    codes = {value: place % n_classes for place, value in enumerate(values)}
    counts = np.zeros((len(survey.chunks), n_classes), dtype=np.int64)
    for row, chunk in zip(counts, survey.chunks, strict=True):
        values, rows = chunk["labels"]
        row[[codes[value] for value in values]] = rows
    return counts


def partition_items(
    tables: Iterable[UInts], plan: SourcePlan, schema: Schema, options: IngestOptions, share: float = 1.0
) -> list[list[PartitionItem]]:
    """Cut each part (training rows, then the splits) into partitions of about `partition_size` decoded bytes.

    `tables` are uint32 arrays (n_buckets + 1, 3), one per chunk in row order; `share` of the values is left by
    min_count.
    """
    label = {"class": 4, "continuous": 8 * schema.n_targets, "multilabel": 8, "none": 0}[schema.target]
    per_row = (0 if plan.is_dense else 8) + label + 4 * schema.weighted
    index = 0 if plan.is_dense else index_dtype(schema.n_columns).itemsize
    per_value = share * ((8 if options.float64 else 4) + index)
    chunks = (table[1:].astype(np.int64) - table[:-1] for table in tables)
    # shuffled: bucket b of all chunks is one unit; in source order, each bucket of each chunk is
    sizes: Ints = functools.reduce(np.add, chunks) if options.shuffle else np.concatenate([*chunks])
    n_bytes = sizes[:, 0] * per_row + sizes[:, 2] * per_value
    held = [fraction for _, fraction in options.split]
    return [
        _cut(part, sizes[:, 1], n_bytes, fraction, options.partition_size)
        for part, fraction in enumerate([1 - sum(held), *held])
    ]


def _cut(part: int, n_words: Ints, n_bytes: Ints, fraction: float, partition_size: int) -> list[PartitionItem]:
    """Cut buckets into runs that hold about `partition_size` decoded bytes of this part."""
    ends = np.cumsum(n_bytes)
    wanted = int(min(max(np.ceil(fraction * ends[-1] / partition_size), 1), len(ends)))
    goals = ends[-1] * np.arange(1, wanted) / wanted
    inner = np.searchsorted(ends, goals, side="left") + 1
    inner = inner[ends[inner - 1] < ends[-1]]  # no empty partition at the end
    cuts = np.unique(np.concatenate([[0], inner, [len(ends)]])).tolist()
    return [
        PartitionItem(part, index, tuple(_pieces(start, stop, n_words, partition_size)))
        for index, (start, stop) in enumerate(itertools.pairwise(cuts))
    ]


def _pieces(start: int, stop: int, n_words: Ints, partition_size: int) -> Iterator[Piece]:
    """Cut a run of buckets into reads of at most `partition_size` / 2 words."""
    # two partitions' bytes at a time: the rows of a small split are spread over many more
    limit = max(partition_size // 2, 1)
    total = 0
    for bucket in range(start, stop):
        if total and total + n_words[bucket] > limit:
            yield Piece(start, bucket, total)
            start, total = bucket, 0
        total += int(n_words[bucket])
    yield Piece(start, stop, total)


def chunk_starts(survey: Survey) -> tuple[tuple[int, int], ...]:
    """Return for each chunk the code of its file, and the number in it of the first row of the chunk's item."""
    files = survey.plan.files
    # by identity: a file may be given twice
    codes = {id(file): code for code, file in enumerate(files)}
    starts: list[tuple[int, int]] = []
    before = [0] * max(len(files), 1)
    for item, summary in zip(survey.plan.items, survey.summaries, strict=True):
        # arrays in memory have no files
        code = codes.get(id(getattr(item, "file", None)), 0)
        starts += [(code, before[code])] * len(summary["chunks"])
        before[code] += source_rows(summary)
    return tuple(starts)


def origin_facts(survey: Survey, options: IngestOptions) -> OriginFacts:
    """Return the description of the origins of the rows."""
    names = [Path(file.path).name for file in survey.plan.files]
    n_rows = sum(map(source_rows, survey.summaries))
    small = n_rows <= np.iinfo(np.uint32).max
    in_order = not (options.shuffle or options.split) and len(names) <= 1 and n_rows == survey.n_rows
    ids = bool(survey.plan.read.id_column)
    return OriginFacts(dtype="uint32" if small else "uint64", files=names, ids=ids, in_order=in_order)
