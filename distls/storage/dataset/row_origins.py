"""Where the rows of a dataset came from: the group ``origins/``, with each row's file, number and id.

Rows are shuffled and held out when they are ingested; from this group they can be joined to their source again. It is
not part of the dataset's fingerprint, whose content it does not change.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.chunks import BufferPool
from distls.storage.dataset.metadata import OriginTable
from distls.storage.dataset.partitions import are_offsets
from distls.storage.dataset.parts import as_damage, read_description, read_part, read_table, write_described, write_part
from distls.storage.errors import CorruptDataError, IncompleteError
from distls.storage.filesystem.paths import Place
from distls.storage.filesystem.safe_read import convert_json

ORIGINS = "origins"
ORIGINS_VERSION = 1


class RowIds(NamedTuple):
    """Ids of rows: row i has ``text[ends[i]:ends[i + 1]]``, UTF-8."""

    text: NDArray[np.uint8]
    ends: NDArray[np.int64]  # shape (n_rows + 1,)

    def texts(self) -> list[str]:
        """Return the ids."""
        joined = self.text.tobytes()
        return [joined[a:b].decode() for a, b in itertools.pairwise(self.ends.tolist())]


def pack_ids(ids: Sequence[str]) -> RowIds:
    """Return ids in the form in which they are stored."""
    encoded = [text.encode() for text in ids]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return RowIds(np.frombuffer(b"".join(encoded), dtype=np.uint8), ends)


def take_ids(ids: RowIds, rows: NDArray[np.int64]) -> RowIds:
    """Return the ids of `rows`, any subset in any order."""
    sizes = np.diff(ids.ends)[rows]
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64, copy=False)
    # position of every byte: its id's start in the source plus its rank within the id
    # One gather for all bytes instead of a loop over ids.
    source = np.repeat(ids.ends[:-1][rows] - ends[:-1], sizes) + np.arange(ends[-1])
    return RowIds(ids.text[source], ends)


class RowSources(NamedTuple):
    """The origins of consecutive rows of a dataset."""

    rows: NDArray[Any]  # unsigned, shape (n_rows,): number of the row in its file, from 0
    files: NDArray[np.uint32] | None  # codes into the list of files; None: there is one
    ids: RowIds | None


class OriginFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Facts that all partitions share."""

    dtype: Literal["uint32", "uint64"]  # of the numbers
    files: list[str]  # names; empty for arrays in memory
    ids: bool
    in_order: bool  # row i of the dataset is row i of its only file
    format_version: int = ORIGINS_VERSION


class OriginRecord(msgspec.Struct, frozen=True):
    """Encoded sizes and checksums of one partition's origins, as reported by their writer."""

    sizes: dict[str, int]
    checksums: dict[str, int]
    id_bytes: int = 0


@dataclass(frozen=True)
class RowOrigins:
    """The open origins of a dataset; those of a partition are read on demand."""

    path: Place  # of the dataset
    facts: OriginFacts
    n_rows: NDArray[np.int64]  # of each partition
    table: OriginTable

    def read(self, index: int) -> RowSources:
        """Read the origins of partition `index`, verified, into fresh arrays.

        Raises CorruptDataError, naming the array, if one is missing, truncated, changed or inconsistent.
        """
        where = f"{self.path}: origins of partition {index}"
        n_rows, n_bytes = int(self.n_rows[index]), int(self.table.counts[index])
        arrays = read_part(
            origins_folder(self.path, index),
            _layout(self.facts, n_rows, n_bytes),
            {},
            self.table.reported(index),
            BufferPool(),
            where,
            _remedy(self.path),
            self.path,
        )
        ids = None
        if self.facts.ids:
            ids = RowIds(arrays["id_text"], arrays["id_ends"])
            # Offsets from a file lead to slices out of bounds.
            if not are_offsets(ids.ends, len(ids.text), n_bytes):
                raise CorruptDataError(f"{where}, array id_ends: inconsistent; {_remedy(self.path)}")
        files = arrays.get("file")
        if files is not None and files.max(initial=0) >= len(self.facts.files):
            raise CorruptDataError(f"{where}, array file: out of range; {_remedy(self.path)}")
        return RowSources(arrays["row"], files, ids)

    def record(self, index: int) -> OriginRecord:
        """Return what the writer of partition `index` has reported."""
        return OriginRecord(*self.table.reported(index), int(self.table.counts[index]))


def origins_folder(root: Place, index: int) -> Place:
    """Return the group of the origins of partition `index`."""
    return root / ORIGINS / f"{index:08d}"


def _layout(facts: OriginFacts, n_rows: int, n_bytes: int) -> dict[str, tuple[tuple[int], np.dtype[Any]]]:
    """Return array name -> (shape, dtype) of a partition."""
    layout: dict[str, tuple[tuple[int], np.dtype[Any]]] = {"row": ((n_rows,), np.dtype(facts.dtype))}
    if len(facts.files) > 1:
        layout["file"] = ((n_rows,), np.dtype(np.uint32))
    if facts.ids:
        layout |= {"id_text": ((n_bytes,), np.dtype(np.uint8)), "id_ends": ((n_rows + 1,), np.dtype(np.int64))}
    return layout


def joined_facts(one: OriginFacts, other: OriginFacts) -> OriginFacts:
    """Return the facts of the rows of two datasets, one after the other."""
    named = [facts.files or ["rows in memory"] for facts in (one, other)]
    # "uint64" is the larger of the two, as text too
    return OriginFacts(max(one.dtype, other.dtype), [*named[0], *named[1]], one.ids, in_order=False)


def joined_sources(parts: Sequence[tuple[RowSources, int]], facts: OriginFacts) -> RowSources:
    """Return the origins of the rows of several parts; with each comes the number of its first file in `facts`."""
    ids = None
    if facts.ids:
        known = [part.ids for part, _ in parts if part.ids is not None]
        ends = np.cumsum(np.concatenate([[0], *(np.diff(each.ends) for each in known)]))
        ids = RowIds(np.concatenate([each.text for each in known]), ends.astype(np.int64, copy=False))
    files = [
        np.uint32(first) + (np.zeros(len(part.rows), np.uint32) if part.files is None else part.files)
        for part, first in parts
    ]
    rows = np.concatenate([part.rows.astype(facts.dtype, copy=False) for part, _ in parts])
    return RowSources(rows, np.concatenate(files), ids)


def write_origins(root: Place, index: int, sources: RowSources) -> OriginRecord:
    """Write the origins of one partition's rows atomically, replacing an earlier attempt."""
    arrays: dict[str, NDArray[Any]] = {"row": sources.rows}
    if sources.files is not None:
        arrays["file"] = sources.files
    if sources.ids is not None:
        arrays |= {"id_text": sources.ids.text, "id_ends": sources.ids.ends}
    reported = write_part(origins_folder(root, index), arrays, {}, {}, {})
    return OriginRecord(*reported, 0 if sources.ids is None else len(sources.ids.text))


def publish_origins(root: Place, facts: OriginFacts, records: Iterable[OriginRecord], dataset_fingerprint: str) -> None:
    """Complete the group: the table of the partitions, in their order, and the description."""
    ordered = list(records)
    if any(record.sizes.keys() != _layout(facts, 0, 0).keys() for record in ordered):
        raise IncompleteError(f"{root}: origins of rows are missing; run the same ingest again")
    described = {**msgspec.to_builtins(facts), "dataset_fingerprint": dataset_fingerprint}
    write_described(root / ORIGINS, "distls_origins", described, "table", OriginTable.of(ordered).to_arrays())


def open_origins(root: Place, n_rows: NDArray[np.int64], fingerprint: str) -> RowOrigins | None:
    """Open the origins of a dataset with partitions of `n_rows`; None if there are none.

    Raises FormatError or CorruptDataError for another format version, origins of another dataset, or damaged ones.
    """
    folder = root / ORIGINS
    with as_damage(root, "the origins of its rows", _remedy(root)):
        try:
            described = read_description(folder, "distls_origins", root, ORIGINS_VERSION, "origins of rows")
        except FileNotFoundError:
            if isinstance(folder, Path) and folder.is_dir():
                raise  # they were kept, and what describes them is lost
            return None
        table = OriginTable.from_arrays(read_table(folder / "table", root, described))
        # Rows of another dataset would be joined wrongly without any error.
        if described.pop("dataset_fingerprint") != fingerprint:
            raise ValueError("they are those of another data set")
        del described["digest"]
        facts = convert_json(described, OriginFacts)
        sound = len(table) == len(n_rows) and (not len(table) or table.sizes.keys() == _layout(facts, 0, 0).keys())
        if not sound or np.any(table.counts < 0):
            raise ValueError("their table does not fit the metadata")
        return RowOrigins(root, facts, n_rows, table)


def _remedy(root: Place) -> str:
    return f"ingest the data set again, or remove {root / ORIGINS} to do without the origins of its rows"
