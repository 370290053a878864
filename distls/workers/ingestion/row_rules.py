"""What becomes of the rows of any source: labels from another file, labels in place of labels, rows left out.

The step between a reader and the staged chunks. Tables are arrays in the staging area, which workers map into memory
and search by bisection: ``labels`` has the labels of each id (of each row, without ids), ``map`` what labels become. A
label is its value in row records (`records/labels.py`); words belong to their values in a sorted table of their own.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from distls.storage.dataset.row_origins import RowIds, pack_ids, take_ids
from distls.storage.temporary.ingest_staging import StagingArea
from distls.workers.ingestion.parsing.array_types import Array, Bools, Doubles, Ints
from distls.workers.ingestion.parsing.record_kernels import have_features, relabel_records
from distls.workers.ingestion.records.labels import number_label, value_labels
from distls.workers.ingestion.records.messages import quoted
from distls.workers.ingestion.records.record_batch import ReadRun, RecordBatch, RecordLayout

DROPPED = ("several", "unknown", "empty")  # kinds of rows that may be left out
_PARTS = ("values", "ends", "text")  # of a table of words
WITHOUT_LABEL = np.nan  # in ``map``: a label above the level, which its row loses


class RowLabels(NamedTuple):
    """Labels of rows: row r has ``values[ends[r]:ends[r + 1]]``; words by their values."""

    values: Doubles
    ends: Ints  # shape (n_rows + 1,)
    words: Mapping[float, str]


@dataclass(frozen=True)
class RowRules:
    """The rules of an ingest, sent with every staging task."""

    labels: str = ""  # file of the labels, for messages; empty: the source has its own
    by_id: bool = False  # its lines name ids, else they are in the order of the rows
    first_rows: tuple[int, ...] = ()  # of each item, in that order
    label_map: str = ""  # file of what labels become
    level: int = 0  # without one, the parts of a label that are kept
    drop: tuple[str, ...] = ()
    sets: bool = False  # rows may have any number of labels
    # their labels are several numbers each, of which the reader refuses or drops those with gaps
    targets: bool = False
    known: tuple[float, ...] | None = None  # labels of the data of `like`, where others are unknown

    @property
    def judge_labels(self) -> bool:
        """Whether labels are looked at; else rows keep theirs, whatever their number."""
        judged = {*self.drop} - {"empty"} and not self.targets
        return bool(self.labels or self.label_map or self.level or judged)


def write_words(staging: StagingArea, name: str, words: Mapping[float, str]) -> None:
    """Store words for `read_words`."""
    values = sorted(words)
    packed = pack_ids([words[value] for value in values])
    arrays: tuple[Array, ...] = np.array(values, np.float64), packed.ends, packed.text
    for part, array in zip(_PARTS, arrays, strict=True):
        staging.write_array(f"{name}-words-{part}", array)


def read_words(staging: StagingArea, name: str, values: Doubles) -> dict[float, str]:
    """Return the words of some values by their value; numbers have none."""
    known, ends, text = (staging.read_array(f"{name}-words-{part}") for part in _PARTS)
    places, found = find(known, values)
    texts = take_ids(RowIds(text, ends), places[found]).texts()
    return dict(zip(values[found].tolist(), texts, strict=True))


def find(known: Array, values: Array) -> tuple[Ints, Bools]:
    """Return the places of `values` among sorted ones, and which of them are there."""
    places = np.searchsorted(known, values)
    inside = np.minimum(places, max(len(known) - 1, 0))
    return inside, (known[inside] == values) if len(known) else np.zeros(len(values), dtype=bool)


def id_key(row_id: str) -> int:
    """Return the key of an id: 64 bits of its hash; of ten million ids two have one with a chance of 1 to 370,000."""
    return int.from_bytes(hashlib.blake2b(row_id.encode(), digest_size=8).digest(), "little")


class RowStep:
    """Applies the rules to the batches of one item."""

    def __init__(
        self, rules: RowRules, staging: StagingArea, item: int, layout: RecordLayout, run: ReadRun[Any]
    ) -> None:
        self.rules = rules
        self.staging = staging
        self.layout = layout
        self.progress, self.pool = run.progress, run.pool
        self.first_row = rules.first_rows[item] if rules.first_rows else 0

    def joined(self, batch: RecordBatch, numbers: Ints) -> tuple[RowLabels, dict[int, str]]:
        """Return the labels of a batch in the other file, and why rows have none; `numbers` are those of its rows."""
        # Mapped into memory: pages of the tables that no row needs are never read.
        ends = self.staging.read_array("labels-ends")
        if self.rules.by_id:
            assert batch.ids is not None, "labels are joined by ids where rows have them"
            ids = batch.ids.texts()
            keys = np.array([id_key(each) for each in ids], dtype=np.uint64)
            places, there = find(self.staging.read_array("labels-keys"), keys)
            absent = np.flatnonzero(~there).tolist()
            faults = {row: f"{quoted(ids[row].encode())}: no label in {self.rules.labels}" for row in absent}
        else:
            # where there are more rows than labels, the driver refuses them once it has counted them
            places, faults = np.minimum(self.first_row + numbers, len(ends) - 2), {}
            there = np.ones(len(places), dtype=bool)
        # One gather of all labels: the place of each is that of its row's first, and its rank in the row.
        counts = np.where(there, ends[places + 1] - ends[places], 0)
        own = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        source = np.repeat(ends[places] - own[:-1], counts) + np.arange(own[-1])
        values = np.asarray(self.staging.read_array("labels-values")[source])
        return RowLabels(values, own, read_words(self.staging, "labels", np.unique(values))), faults

    def mapped(self, labels: RowLabels) -> tuple[RowLabels, Bools]:
        """Return labels in place of labels, and which labels are unknown; those above the level are NaN."""
        # Distinct labels only, of which a batch has few.
        known, places = np.unique(labels.values, return_inverse=True)
        unknown = np.zeros(len(known), dtype=bool)
        words = labels.words
        if self.rules.label_map:
            at, found = find(self.staging.read_array("map-from"), known)
            known, unknown = self.staging.read_array("map-to")[at], ~found
            words = read_words(self.staging, "map", np.unique(known[~np.isnan(known)]))
        # Paths need no file: a label names its ancestors itself.
        elif self.rules.level:
            texts = [words.get(value, _number(value)).split("/") for value in known.tolist()]
            kept = ["/".join(parts[: self.rules.level]) for parts in texts]
            deep = [len(parts) >= self.rules.level for parts in texts]
            known, words = value_labels(kept)
            known[~np.array(deep, dtype=bool)] = WITHOUT_LABEL
        return RowLabels(known[places], labels.ends, words), unknown[places]

    def apply(self, batch: RecordBatch, labels: RowLabels, numbers: Ints) -> tuple[RecordBatch, Ints]:
        """Return the rows of a batch that are kept, with their labels, and which these are.

        What is left out is counted in the progress, and what is refused is refused there.
        """
        faults: dict[int, str] = {}
        left_out = {kind: np.zeros(len(numbers), dtype=bool) for kind in DROPPED}
        if self.rules.judge_labels:
            labels = self._judged(labels, batch, numbers, faults)
            counts = np.diff(labels.ends)
            left_out["unknown"] |= (counts == 0) & (not self.rules.sets or "unknown" in self.rules.drop)
            # A label that is not known refuses its row, even one that has others.
            left_out["unknown"][list(faults)] = True
            left_out["several"] |= (counts > 1) & (not self.rules.sets) & ~left_out["unknown"]
            labels = self._known(labels, left_out)
        if "empty" in self.rules.drop:
            full = np.ones(len(numbers), dtype=bool)
            layout = self.layout
            have_features(batch.words, batch.row_at, layout.n_extra, layout.stride, layout.dense, full)
            left_out["empty"] |= ~full & ~left_out["unknown"] & ~left_out["several"]
        self._count(left_out, faults, labels, batch)
        # Kept rows stay in their order, by which their numbers are joined.
        kept = np.flatnonzero(~np.logical_or.reduce(list(left_out.values())))
        return self._taken(batch, kept, labels), kept

    def _judged(self, labels: RowLabels, batch: RecordBatch, numbers: Ints, faults: dict[int, str]) -> RowLabels:
        """Return the labels that the rows of a batch end up with; `faults` takes why a row is refused."""
        if self.rules.labels:
            labels, absent = self.joined(batch, numbers)
            faults |= absent
        own, unknown = self.mapped(labels)
        rows = np.repeat(np.arange(len(numbers)), np.diff(own.ends))
        # of a row that has others too, unknown labels alone are left out
        if "unknown" not in self.rules.drop:
            self._explain(faults, labels, rows, unknown)
        return _distinct(own, rows, ~unknown & ~np.isnan(own.values))

    def _known(self, labels: RowLabels, left_out: Mapping[str, Bools]) -> RowLabels:
        """Return the labels that other data have; rows with none of them are unknown, unless they have several."""
        if self.rules.known is None:
            return labels
        rows = np.repeat(np.arange(len(labels.ends) - 1), np.diff(labels.ends))
        inside = np.isin(labels.values, self.rules.known)
        found = np.bincount(rows[inside], minlength=len(labels.ends) - 1) > 0
        # What other data lack must not turn a row with several labels into one with a single one.
        left_out["unknown"][~found & ~left_out["several"]] = True
        return _distinct(labels, rows, inside)

    def _explain(self, faults: dict[int, str], labels: RowLabels, rows: Ints, unknown: Bools) -> None:
        for place in np.flatnonzero(unknown).tolist():
            value = float(labels.values[place])
            shown = quoted(labels.words.get(value, _number(value)).encode())
            faults.setdefault(int(rows[place]), f"{shown}: a label that is not in {self.rules.label_map}")

    def _count(
        self, left_out: Mapping[str, Bools], faults: Mapping[int, str], labels: RowLabels, batch: RecordBatch
    ) -> None:
        """Count the rows of each kind as left out, or refuse them where nobody asked for that."""
        # In the order of the rows, whatever the rule, as readers refuse lines.
        refused: dict[int, str] = {}
        dropped = self.progress.dropped
        for kind, chosen in left_out.items():
            places = np.flatnonzero(chosen).tolist()
            if kind in self.rules.drop and places:
                dropped[kind] = dropped.get(kind, 0) + len(places)
            elif kind == "unknown":
                rule = f"no label{f' at level {self.rules.level}' if self.rules.level else ''}"
                remedy = "; --drop unknown leaves such rows out"
                refused |= {row: faults.get(row, rule) + remedy for row in places}
            elif kind == "several":
                remedy = "; --drop several leaves such rows out, --multilabel of ingest and train keeps the labels"
                rule = "several labels in a row"
                refused |= {row: f"{_shown(labels, row)}: {rule}{remedy}" for row in places}
        for row in sorted(refused):
            self.progress.skip(int(batch.row_line[row]), refused[row])

    def _taken(self, batch: RecordBatch, kept: Ints, labels: RowLabels) -> RecordBatch:
        size = len(batch.words) + 2 * len(labels.values)
        # Not in place: a record with other labels has another length.
        words = self.pool.take("relabelled", 4 * size).view(np.uint32)
        row_at = np.empty(len(kept) + 1, dtype=np.int64)
        own = labels.values, labels.ends
        relabel_records(batch.words, batch.row_at, kept, *own, self.layout.n_extra, words, row_at)
        weights = None if batch.weights is None else batch.weights[kept]
        ids = None if batch.ids is None else take_ids(batch.ids, kept)
        batch = replace(batch, row_line=batch.row_line[kept], weights=weights, ids=ids)
        return replace(batch, words=words[: row_at[-1]], row_at=row_at, label_words=dict(labels.words))


def _shown(labels: RowLabels, row: int) -> str:
    own = labels.values[labels.ends[row] : labels.ends[row + 1]].tolist()
    return quoted(",".join(labels.words.get(value, _number(value)) for value in own[:10]).encode())


def _number(value: float) -> str:
    return "" if np.isnan(value) else str(number_label(value))


def _distinct(labels: RowLabels, rows: Ints, kept: Bools) -> RowLabels:
    """Return the labels that are kept, each once in its row."""
    n_rows, rows, values = len(labels.ends) - 1, rows[kept], labels.values[kept]
    # The rows stay in order, so their records can be copied in one pass.
    order = np.lexsort((values, rows))
    rows, values = rows[order], values[order]
    first = np.ones(len(rows), dtype=bool)
    # what two labels become may be one
    first[1:] = (rows[1:] != rows[:-1]) | (values[1:] != values[:-1])
    ends = np.concatenate([[0], np.cumsum(np.bincount(rows[first], minlength=n_rows))]).astype(np.int64)
    return RowLabels(values[first], ends, labels.words)
