"""The rules of an ingest about labels and rows: their tables for workers, and what is reported of them."""

import io
import itertools
import re
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from distls.facts import counted
from distls.ingestion.request.format import is_array_file
from distls.ingestion.request.format_options import FormatOptions
from distls.ingestion.request.like import Like
from distls.ingestion.request.options import IngestOptions
from distls.ingestion.request.source_plan import SourcePlan
from distls.ingestion.request.source_start import source_file, start_of
from distls.ingestion.schema import Survey
from distls.storage.errors import BadInputError, ParameterError
from distls.storage.temporary.ingest_staging import StagingArea
from distls.workers.ingestion.formats.arrays import read_labels_file
from distls.workers.ingestion.formats.document_records import Refused
from distls.workers.ingestion.parsing import text_blocks
from distls.workers.ingestion.parsing.array_types import Doubles, Ints, ULongs
from distls.workers.ingestion.parsing.text_blocks import SourceFile, TextItem
from distls.workers.ingestion.public_sets.marked_documents import marks_of, rdf_elements, topic_path
from distls.workers.ingestion.records.labels import (
    check_one_name,
    class_values,
    label_fault,
    label_value,
    value_labels,
    whole_labels,
)
from distls.workers.ingestion.records.messages import quoted
from distls.workers.ingestion.row_rules import DROPPED, WITHOUT_LABEL, RowRules, id_key, write_words

_TREE = re.compile(r"parent:\s*(\S+)\s+child:\s*(\S+)(\s.*)?")
_MOST_LABELS = 2**28  # that are held in memory while they are sorted
_MOST_CACHED = 2**16  # labels whose values are remembered: numbers may all differ


class _Values:
    """The values of labels, and the words among them."""

    def __init__(self) -> None:
        self.words: dict[float, str] = {}
        self._known: dict[str, float] = {}

    def of(self, label: str) -> float:
        """Return the value of a label, or raise Refused."""
        if (value := self._known.get(label)) is not None:
            return value
        if fault := label_fault(label):
            raise Refused(fault)
        (value,), words = value_labels([label])
        if len(self._known) >= _MOST_CACHED:
            self._known.clear()
        self._known[label] = float(value)
        for number, word in words.items():
            check_one_name(self.words.setdefault(number, word), word)
        return float(value)


def store_labels(file: SourceFile, staging: StagingArea, by_id: bool, sets: bool) -> int:
    """Store the labels of a file, by the ids of rows or in their order; return their number (that of ids).

    Raises BadInputError for a line that is none of these.
    """
    # Arrays have no ids, and are small enough to be read whole.
    if is_array_file(file):
        return _store_array(file, staging, by_id)
    # Arrays of numbers: objects would take four times their memory.
    keys, counts, values, known = array("Q"), array("q"), array("d"), _Values()
    line = 0
    try:
        for line, text in _lines(file):  # noqa: B007 - a message names the line
            row_id, label = _id_and_label(text) if by_id else ("", _label_alone(text))
            if label is None:
                continue
            own = [part.strip() for part in label.split(",")] if sets else (label,)
            values.extend(map(known.of, own))
            counts.append(len(own))
            if by_id:
                keys.append(id_key(row_id))
            if len(values) > _MOST_LABELS:
                raise Refused(f"more than {_MOST_LABELS:,} labels; write them into the sources")
    except Refused as refused:
        raise BadInputError(f"{file.path}:{line}: {refused}") from None
    if not values:
        raise BadInputError(f"{file.path}: no labels")
    lengths, labels = np.frombuffer(counts, np.int64), np.frombuffer(values, np.float64)
    if by_id:
        return _store_by_id(staging, np.repeat(np.frombuffer(keys, np.uint64), lengths), labels, known.words)
    return _store(staging, np.concatenate([[0], np.cumsum(lengths)]), labels, known.words)


def _label_alone(text: str) -> str:
    if len(text.split(None, 1)) != 1:
        remedy = "one label a line, or ID LABEL where rows have ids: --id-column"
        raise Refused(f"{quoted(text.encode())}: {remedy}")
    return text


def _id_and_label(text: str) -> tuple[str, str | None]:
    """Return id and label of a line; a label of None is a judgement that the label does not apply."""
    # Between tabs, ids and labels may have blanks.
    fields = [field.strip() for field in text.split("\t")] if "\t" in text else text.split()
    if len(fields) == 2:
        return fields[0], fields[1]
    # relevance judgements of TREC have the label first
    if len(fields) == 3 and fields[2] in ("1", "0", "-1"):
        return fields[1], fields[0] if fields[2] == "1" else None
    raise Refused(f"{quoted(text.encode())}: expected ID LABEL, or LABEL ID 1")


def _store_by_id(staging: StagingArea, keys: ULongs, labels: Doubles, words: Mapping[float, str]) -> int:
    # Stable: labels of one id stay in the order of the file, which makes the tables the same bits.
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    staging.write_array("labels-keys", keys[starts])
    return _store(staging, np.append(starts, len(keys)), labels[order], words)


def _store_array(file: SourceFile, staging: StagingArea, by_id: bool) -> int:
    found = read_labels_file(file)
    if by_id or found.ndim != 1:
        remedy = "labels are one a row, in their order"
        raise BadInputError(f"{file.path}: an array of shape {found.shape}; {remedy}")
    words: dict[float, str] = {}
    if found.dtype.kind == "U":
        values, words = value_labels(found.tolist())
    else:
        values, words = whole_labels(found) if found.dtype.kind in "iu" else (found.astype(np.float64), {})
    return _store(staging, np.arange(len(values) + 1), values + 0.0, words)


def _store(staging: StagingArea, ends: Ints, values: Doubles, words: Mapping[float, str]) -> int:
    write_words(staging, "labels", words)
    staging.write_array("labels-values", values)
    staging.write_array("labels-ends", ends.astype(np.int64, copy=False))
    return len(ends) - 1


def _lines(file: SourceFile) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that are not blank, numbered from 1."""
    with text_blocks.damage_described(file), file.open() as opened:
        stream = io.BufferedReader(cast(io.RawIOBase, opened))
        number = 0
        while raw := stream.readline(text_blocks.MAX_LINE + 1):
            number += 1
            if len(raw) > text_blocks.MAX_LINE:
                raise text_blocks.line_too_long(file.path, number)
            try:
                text = raw.removeprefix(b"\xef\xbb\xbf").decode().strip("\r\n ")
            except UnicodeDecodeError:
                raise BadInputError(f"{file.path}:{number}: {quoted(raw)}: not UTF-8 text") from None
            if text:
                yield number, text


def store_label_map(file: SourceFile, staging: StagingArea, level: int | None) -> None:
    """Store what the labels of a file become: the other of a pair, or the ancestor at a level.

    Raises BadInputError if a label has two others, or is its own ancestor; ParameterError if no label is so deep.
    """
    others = _pairs(file)
    becomes: Mapping[str, str | None] = others if level is None else _ancestors(others, level, file.path)
    if not any(becomes.values()):
        raise ParameterError(f"label_level: no label of {file.path} is at level {level}")
    # Sorted by value, as workers search them.
    labels = sorted(becomes, key=label_value)
    values, words = value_labels(filter(None, becomes.values()))
    found = iter(values.tolist())
    staging.write_array("map-from", np.array([label_value(label) for label in labels], np.float64))
    value_of = {label: next(found) for label, other in becomes.items() if other}
    staging.write_array("map-to", np.array([value_of.get(label, WITHOUT_LABEL) for label in labels]))
    write_words(staging, "map", words)


def _pairs(file: SourceFile) -> dict[str, str]:
    """Return the other label, or the parent, of each label of a file."""
    # A label with two parents is in no tree.
    others: dict[str, str] = {}
    for line, label, other in _topics(file) if marks_of(start_of(file)) == "rdf" else _written(file):
        if others.setdefault(label, other) != other:
            why = f'label "{label}" becomes "{other}", but "{others[label]}" before; leave one line'
            raise BadInputError(f"{file.path}:{line}: {why}")
    if not others:
        raise BadInputError(f"{file.path}: no pairs of labels")
    return others


def _written(file: SourceFile) -> Iterator[tuple[int, str, str]]:
    for line, text in _lines(file):
        tree = _TREE.fullmatch(text)
        fields = [field.strip() for field in text.split("\t")] if "\t" in text else text.split()
        if tree is not None:
            # the root of the topics of RCV1 has None for a parent
            if tree[1] != "None":
                yield line, tree[2], tree[1]
        elif len(fields) == 2 and all(fields):
            yield line, fields[0], fields[1]
        else:
            why = "expected LABEL OTHER, or parent: OTHER child: LABEL"
            raise BadInputError(f"{file.path}:{line}: {quoted(text.encode())}: {why}")


def _topics(file: SourceFile) -> Iterator[tuple[int, str, str]]:
    """Yield the topics of the structure of the Open Directory, with their parents."""
    with text_blocks.damage_described(file), file.open() as stream:
        for element in rdf_elements(stream, file.path):
            parent = topic_path(element.attributes.get("r:id", ""))
            for name, attributes, _ in element.children:
                child = topic_path(attributes.get("r:resource", ""))
                # other relations lead across the tree
                if (
                    child
                    and element.name == "Topic"
                    and name.startswith("narrow")
                    and child.rpartition("/")[0] == parent
                ):
                    yield element.line + 1, child, parent


def _ancestors(parents: Mapping[str, str], level: int, path: str) -> dict[str, str | None]:
    """Return the ancestor of each label at a level, itself if it is there; None for labels above it."""
    roots = {parent for parent in parents.values() if parent not in parents}
    # of several trees the roots are labels; of one it is the name of all
    first = 0 if len(roots) == 1 else 1
    found: dict[str, str | None] = {}
    for label in {*parents, *roots}:
        # From the label up to its root.
        chain = [label]
        while chain[-1] in parents:
            chain.append(parents[chain[-1]])
            if len(chain) > len(parents) + 1 or chain[-1] == label:
                raise BadInputError(f'{path}: label "{label}" is its own ancestor')
        depth = len(chain) - 1 + first
        found[label] = chain[depth - level] if depth >= level else None
    return found


_SAID = {"several": "with several labels", "unknown": "without a known label", "empty": "without features"}


def store_rules(
    plan: SourcePlan, read: FormatOptions, options: IngestOptions, like: Like | None, staging: StagingArea
) -> RowRules | None:
    """Store the tables of labels for workers; return what they do with rows, None if nothing."""
    if not (plan.joined or read.label_map or read.label_level or read.drop):
        return None
    targets = len(getattr(plan.read, "labels", ())) > 1 or np.ndim(getattr(plan.items[0], "y", 0)) > 1
    own: dict[str, Any] = {"level": read.label_level or 0, "drop": tuple(read.drop), "targets": targets}
    rules = RowRules(sets=options.multilabel, **own)
    if like is not None and "unknown" in read.drop and like.meta.classes:
        rules = replace(rules, known=tuple(class_values(like.meta.classes).ravel().tolist()))
    # Stored again by an ingest that goes on: the same files give the same bits.
    if read.label_map is not None:
        store_label_map(source_file(read.label_map), staging, read.label_level)
        rules = replace(rules, label_map=str(read.label_map))
    if plan.joined is None:
        return rules
    by_id = bool(plan.read.id_column)
    first_rows = () if by_id else _first_rows(plan)
    store_labels(plan.joined, staging, by_id, options.multilabel or "several" in read.drop)
    return replace(rules, labels=plan.joined.path, by_id=by_id, first_rows=first_rows)


def _first_rows(plan: SourcePlan) -> tuple[int, ...]:
    """Return the number of the first row of each item, if every line but a header is one; see `counted_rows`."""
    items: tuple[Any, ...] = plan.items
    # Items of other formats are ranges of rows.
    if not isinstance(items[0], TextItem):
        return tuple(itertools.accumulate((item.stop - item.start for item in items[:-1]), initial=0))
    header = int(getattr(getattr(plan.read, "dialect", None), "header", False))
    firsts, before = [], 0
    # A file may be given twice, so that only its beginning tells one from the next.
    begins = [number for number, item in enumerate(items) if item.start == 0]
    for begin, end in itertools.pairwise([*begins, len(items)]):
        offsets = [item.start for item in items[begin:end]]
        # the lines of the last file are counted as far as its last item begins
        counts = text_blocks.line_starts(items[begin].file, offsets + [sys.maxsize] * (end < len(items)))
        known = [
            count if item.before is None else item.before[1]
            for count, item in zip(counts, items[begin:end], strict=False)
        ]
        firsts += [before + max(count - header, 0) for count in known]
        before += counts[-1] - header
    return tuple(firsts)


def source_rows(summary: Mapping[str, Any]) -> int:
    """Return the rows of an item as its source has them: staged, refused, left out."""
    staged = sum(chunk["rows"] for chunk in summary["chunks"])
    return int(staged + summary["skipped"] + sum(summary["dropped"].values()))


def counted_rows(survey: Survey, rules: RowRules, staging: StagingArea) -> tuple[int, ...]:
    """Return the number of the first row of each item, as they were read: lines that are blank, or comments, are none.

    Raises BadInputError unless labels in the order of rows are as many.
    """
    counts = [*map(source_rows, survey.summaries)]
    found = len(staging.read_array("labels-ends")) - 1
    if found != sum(counts):
        remedy = "; where rows have ids, --id-column joins labels by them"
        raise BadInputError(f"{rules.labels}: {found} labels for {sum(counts)} rows{remedy}")
    return tuple(itertools.accumulate(counts[:-1], initial=0))


def dropped_rows(summaries: Sequence[dict[str, Any]], read: FormatOptions) -> dict[str, int]:
    """Sum up the rows that were left out, of each kind that was asked for."""
    kinds = (kind for kind in DROPPED if kind in read.drop)
    return {kind: sum(summary["dropped"].get(kind, 0) for summary in summaries) for kind in kinds}


def dropped_notice(dropped: dict[str, int]) -> list[str]:
    """Return a notice of the rows that were left out, if any were asked for."""
    said = ", ".join(f"{count:,} {_SAID[kind]}" for kind, count in dropped.items())
    return [f"{counted(sum(dropped.values()), 'row')} left out: {said}"] if dropped else []


def rows_record(plan: SourcePlan, read: FormatOptions, dropped: dict[str, int]) -> dict[str, Any]:
    """Return the record of these options in a data set, empty if none was given."""
    files = {"labels": plan.joined and plan.joined.path, "label_map": read.label_map}
    found: dict[str, Any] = {name: Path(path).name for name, path in files.items() if path}
    found |= {"label_level": read.label_level} if read.label_level else {}
    return found | ({"dropped": dropped} if dropped else {})
