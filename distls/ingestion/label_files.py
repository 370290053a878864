"""Files of labels, and of what labels become, as the tables of `workers/ingestion/row_rules.py`.

The driver reads them once and stores the tables in the staging area. That takes 40 bytes for each line with a label at
its peak, and the distinct labels; workers map the tables into memory.
"""

import io
import re
from array import array
from collections.abc import Iterator, Mapping
from typing import cast

import numpy as np

from distls.ingestion.request.joined_labels import is_array_file
from distls.ingestion.request.source_start import start_of
from distls.storage.errors import BadInputError, ParameterError
from distls.storage.temporary.ingest_staging import StagingArea
from distls.workers.ingestion.formats.arrays import read_labels_file
from distls.workers.ingestion.formats.document_records import Refused
from distls.workers.ingestion.parsing.array_types import Doubles
from distls.workers.ingestion.parsing.text_blocks import MAX_LINE, SourceFile, damage_described, line_too_long
from distls.workers.ingestion.public_sets.marked_documents import marks_of, rdf_elements, topic_path
from distls.workers.ingestion.records.labels import (
    check_one_name,
    label_fault,
    label_value,
    value_labels,
    whole_labels,
)
from distls.workers.ingestion.records.messages import quoted
from distls.workers.ingestion.row_rules import WITHOUT_LABEL, id_key, write_words

_TREE = re.compile(r"parent:\s*(\S+)\s+child:\s*(\S+)(\s.*)?")
_MOST_LABELS = 2**28  # that are held in memory while they are sorted
_MOST_CACHED = 2**16  # labels whose values are remembered: numbers may all differ


# -- labels ----------------------------------------------------------------------------------------------


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


def _store_by_id(
    staging: StagingArea,
    keys: np.ndarray[tuple[int], np.dtype[np.uint64]],
    labels: Doubles,
    words: Mapping[float, str],
) -> int:
    # Stable: labels of one id stay in the order of the file, which makes the tables the same bits.
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    staging.write_array("labels-keys", keys[starts])
    return _store(staging, np.append(starts, len(keys)), labels[order], words)


def _store_array(file: SourceFile, staging: StagingArea, by_id: bool) -> int:
    found = read_labels_file(file)
    if by_id or found.ndim != 1:
        raise BadInputError(
            f"{file.path}: an array of shape {found.shape}; labels are one a row, in their order"
        )
    words: dict[float, str] = {}
    if found.dtype.kind == "U":
        values, words = value_labels(found.tolist())
    else:
        values, words = whole_labels(found) if found.dtype.kind in "iu" else (found.astype(np.float64), {})
    return _store(staging, np.arange(len(values) + 1), values + 0.0, words)


def _store(
    staging: StagingArea,
    ends: np.ndarray[tuple[int], np.dtype[np.int64]],
    values: Doubles,
    words: Mapping[float, str],
) -> int:
    write_words(staging, "labels", words)
    staging.write_array("labels-values", values)
    staging.write_array("labels-ends", ends.astype(np.int64, copy=False))
    return len(ends) - 1


def _lines(file: SourceFile) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that are not blank, numbered from 1."""
    with damage_described(file), file.open() as opened:
        stream = io.BufferedReader(cast(io.RawIOBase, opened))
        number = 0
        while raw := stream.readline(MAX_LINE + 1):
            number += 1
            if len(raw) > MAX_LINE:
                raise line_too_long(file.path, number)
            try:
                text = raw.removeprefix(b"\xef\xbb\xbf").decode().strip("\r\n ")
            except UnicodeDecodeError:
                raise BadInputError(f"{file.path}:{number}: {quoted(raw)}: not UTF-8 text") from None
            if text:
                yield number, text


# -- what labels become ----------------------------------------------------------------------------------


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
            raise BadInputError(
                f'{file.path}:{line}: label "{label}" becomes "{other}", but "{others[label]}" before; leave one line'
            )
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
            raise BadInputError(
                f"{file.path}:{line}: {quoted(text.encode())}: expected LABEL OTHER, or parent: OTHER child: LABEL"
            )


def _topics(file: SourceFile) -> Iterator[tuple[int, str, str]]:
    """Yield the topics of the structure of the Open Directory, with their parents."""
    with damage_described(file), file.open() as stream:
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
