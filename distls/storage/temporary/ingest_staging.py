"""The temporary files of an ingest, under DATASET/.ingest: the plan, staged chunks, finished partitions.

A chunk file holds rows of one item, grouped into buckets, so that a partition is assembled from one range of every
chunk. Files appear atomically; a chunk is finished once its JSON sidecar exists, and a resumed ingest keeps finished
ones. Layout of a chunk file, little-endian::

    "distlsC1"  n_buckets (uint64)  table (uint32, n_buckets + 1 rows of 3)  words (uint32)

The table gives the rows, words and values before each bucket; the words are the workers' row records. Next to it, if
they are kept, a file holds the origins of the rows in the same order, so that a bucket's are one range too::

    "distlsO1"  n_rows (uint64)  has_ids (uint64)  numbers (uint32, n_rows)  ends (int64, n_rows + 1)  ids (bytes)
"""

from __future__ import annotations

import contextlib
import io
import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.chunks import BufferPool
from distls.storage.dataset.dataset import STAGING
from distls.storage.dataset.row_origins import RowIds
from distls.storage.errors import CorruptDataError
from distls.storage.filesystem.atomic import (
    canonical_json,
    os_errors_described,
    remove_tree,
    write_bytes,
    write_json,
)
from distls.storage.filesystem.paths import Place, StorePath
from distls.storage.filesystem.safe_read import (
    convert_json,
    open_regular,
    opened_ranges,
    read_finished,
    read_json,
)

_MAGIC = b"distlsC1"
_ORIGIN_MAGIC = b"distlsO1"
_ORIGIN_BYTES = 24  # of its header
_HEADER_BYTES = 16
_ENTRY_BYTES = 12


class _Chunk(msgspec.Struct):
    """The facts of a chunk by which it is known to be complete."""

    name: str
    bytes: int


class _Item(msgspec.Struct):
    chunks: list[_Chunk]


@dataclass(frozen=True)
class Segment:
    """Buckets start, ..., stop - 1 of one chunk."""

    chunk: str
    start: int
    stop: int


@dataclass(frozen=True)
class StagingArea:
    """The staged files of the dataset at `dataset`; small, sent with every task."""

    dataset: Place

    @property
    def folder(self) -> Place:
        """DATASET/.ingest."""
        return self.dataset / STAGING

    def create(self) -> None:
        """Make the folders."""
        for name in ("chunks", "items", "partitions"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    def remove(self) -> None:
        """Delete every staged file."""
        remove_tree(self.folder)

    def write_document(self, name: str, value: Any) -> None:
        """Store the JSON document `name` (the plan, the schema), synced."""
        write_json(self.folder / f"{name}.json", value)

    def read_document(self, name: str) -> Any | None:
        """Return the JSON document `name`, or None when there is none."""
        try:
            # Within the dataset: a staged link must not lead elsewhere.
            return read_json(self.folder / f"{name}.json", object, self.dataset)
        except FileNotFoundError:
            return None

    def guard(self) -> AbstractContextManager[None]:
        """Turn an OSError into a StorageError that says how to go on."""
        remedy = f"the output is incomplete: run the same ingest again to resume it, or remove {self.dataset}"
        return os_errors_described(f"{self.dataset}: the ingest stopped", remedy)

    def has_array(self, name: str) -> bool:
        """Return whether `write_array` has stored this array."""
        return (self.folder / f"{name}.npy").exists()

    def write_array(self, name: str, array: NDArray[Any]) -> None:
        """Store an array that every task reads (fitted transforms, the allotment of a split)."""
        path = self.folder / f"{name}.npy"
        if isinstance(path, StorePath):
            content = io.BytesIO()
            # Never pickled: every array here is of numbers.
            np.save(content, array, allow_pickle=False)
            path.write_parts(content.getbuffer())
            return
        # tasks must never see half an array
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.partial")
        with temporary.open("wb") as file:
            np.save(file, array, allow_pickle=False)
        temporary.replace(path)

    def read_array(self, name: str) -> NDArray[Any]:
        """Return an array stored by `write_array`, memory-mapped where it is a file."""
        path = self.folder / f"{name}.npy"
        try:
            if isinstance(path, StorePath):
                return np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
            # a check only: memmap opens the file by itself
            os.close(open_regular(path, self.dataset))
            return np.lib.format.open_memmap(path, mode="r")
        except (EOFError, ValueError) as error:
            raise CorruptDataError(
                f"{path}: not an array ({error}); remove the unfinished data set and ingest it again"
            ) from None

    # -- chunks ------------------------------------------------------------------------------------------

    def write_chunk(
        self, name: str, table: NDArray[np.uint32], words: NDArray[np.uint32], facts: dict[str, Any]
    ) -> dict[str, Any]:
        """Write a chunk and its sidecar: `facts`, returned with ``name`` and ``bytes``.

        The table is uint32 (n_buckets + 1, 3), words are uint32 (n_words,).
        """
        path = self._chunk_path(name)
        header = _MAGIC + (len(table) - 1).to_bytes(8, "little")
        write_bytes(path, header, _bytes_of(table), _bytes_of(words), sync=False)
        facts = {**facts, "name": name, "bytes": _HEADER_BYTES + table.nbytes + words.nbytes}
        # the sidecar last: it marks the chunk as finished
        write_bytes(path.with_suffix(".json"), canonical_json(facts).encode(), sync=False)
        return facts

    def write_chunk_origins(self, name: str, numbers: NDArray[np.uint32], ids: RowIds | None) -> None:
        """Write the origins of a chunk's rows, in its order; before the chunk, whose sidecar covers them."""
        # Without ids both arrays are empty, and take no room.
        ends = np.empty(0, dtype=np.int64) if ids is None else ids.ends
        text = np.empty(0, dtype=np.uint8) if ids is None else ids.text
        header = (
            _ORIGIN_MAGIC + len(numbers).to_bytes(8, "little") + int(ids is not None).to_bytes(8, "little")
        )
        # numbers are padded to eight bytes
        padded = np.zeros(len(numbers) + len(numbers) % 2, dtype="<u4")
        padded[: len(numbers)] = numbers
        arrays: tuple[NDArray[Any], ...] = (padded, ends, text)
        parts = (np.ascontiguousarray(array).data.cast("B") for array in arrays if array.size)
        write_bytes(self._origin_path(name), header, *parts, sync=False)

    def read_chunk_origins(
        self, name: str, start: int, stop: int
    ) -> tuple[NDArray[np.uint32], RowIds | None]:
        """Return numbers and ids of the rows start, ..., stop - 1 of a chunk."""
        path = self._origin_path(name)
        with opened_ranges(path, self.dataset) as read:
            header = _part(read, 0, _ORIGIN_BYTES)
            n_rows, has_ids = int.from_bytes(header[8:16], "little"), header[16:] != bytes(8)
            # A header that was cut short, or is of another file.
            if header[:8] != _ORIGIN_MAGIC or not 0 <= start <= stop <= n_rows:
                raise _foreign(path)
            numbers = np.frombuffer(_part(read, _ORIGIN_BYTES + 4 * start, 4 * (stop - start)), dtype="<u4")
            if not has_ids:
                return numbers, None
            ends_at = _ORIGIN_BYTES + 4 * (n_rows + n_rows % 2)
            ends = np.frombuffer(_part(read, ends_at + 8 * start, 8 * (stop - start + 1)), dtype="<i8")
            # Offsets are of the whole chunk; those returned start at zero.
            first, last = int(ends[0]), int(ends[-1])
            text = _part(read, ends_at + 8 * (n_rows + 1) + first, last - first)
            return numbers, RowIds(np.frombuffer(text, dtype=np.uint8), ends - first)

    def _origin_path(self, name: str) -> Place:
        return self.folder / "chunks" / f"{name}.rows"

    def finished_chunk(self, name: str) -> dict[str, Any] | None:
        """Return the facts of a finished chunk, None if it must be written."""
        return self._whole(f"chunks/{name}", lambda facts: [convert_json(facts, _Chunk)])

    def write_item(self, number: int, summary: dict[str, Any]) -> None:
        """Record that all chunks of item `number` are finished."""
        path = self.folder / "items" / f"{number:06d}.json"
        write_bytes(path, canonical_json(summary).encode(), sync=False)

    def read_item(self, number: int) -> dict[str, Any] | None:
        """Return the summary of an item if all its chunks exist, else None."""
        return self._whole(f"items/{number:06d}", lambda summary: convert_json(summary, _Item).chunks)

    def _whole(self, name: str, chunks: Callable[[Any], Sequence[_Chunk]]) -> dict[str, Any] | None:
        """Return a JSON document if the chunks that it names are there with their sizes, else None."""
        found = read_finished(self.folder / f"{name}.json", dict[str, Any], self.dataset)
        with contextlib.suppress(FileNotFoundError, ValueError):
            sizes = [(self._chunk_path(c.name).stat().st_size, c.bytes) for c in chunks(found)]
            # Size tells a whole chunk: it was written under another name and renamed.
            return found if all(size == wanted for size, wanted in sizes) else None
        return None

    def read_table(self, name: str) -> NDArray[np.uint32]:
        """Return a chunk's table, shape (n_buckets + 1, 3)."""
        path = self._chunk_path(name)
        with opened_ranges(path, self.dataset) as read:
            n_buckets = _read_header(_part(read, 0, _HEADER_BYTES), str(path))
            n_bytes = (n_buckets + 1) * _ENTRY_BYTES
            # before memory is allocated
            if n_bytes > path.stat().st_size:
                raise _foreign(path)
            return np.frombuffer(_part(read, _HEADER_BYTES, n_bytes), dtype="<u4").reshape(-1, 3)

    def read_table_rows(self, segment: Segment) -> tuple[int, int]:
        """Return the first row of a segment in its chunk, and the row after its last."""
        path = self._chunk_path(segment.chunk)
        with opened_ranges(path, self.dataset) as read:
            first, last = (
                int.from_bytes(_part(read, _HEADER_BYTES + bucket * _ENTRY_BYTES, 4), "little")
                for bucket in (segment.start, segment.stop)
            )
        return first, last

    def read_segments(
        self, segments: Sequence[Segment], n_words: int, pool: BufferPool
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Read segments of `n_words` words in all into the buffer ``segments``; return them, and rows by segment."""
        words = pool.take("segments", 4 * n_words).view("<u4")
        rows = np.empty(len(segments), dtype=np.int64)
        done = 0
        for i, segment in enumerate(segments):
            rows[i], size = self._read_segment(segment, words[done:])
            done += size
        # The counts of the plan and of the chunks must agree before kernels parse the words.
        if done != n_words:
            raise CorruptDataError(
                f"{self.folder}: {done} words where {n_words} were staged; remove {self.dataset}"
            )
        return words, rows

    def _read_segment(self, segment: Segment, into: NDArray[np.uint32]) -> tuple[int, int]:
        """Read one segment to the start of `into`; return its rows and words."""
        # called partitions x chunks times: three reads each, without a file object
        with opened_ranges(self._chunk_path(segment.chunk), self.dataset) as read:
            n_buckets = _read_header(_part(read, 0, _HEADER_BYTES), segment.chunk)
            entries_at = _HEADER_BYTES + segment.start * _ENTRY_BYTES
            entries = _part(read, entries_at, (segment.stop - segment.start + 1) * _ENTRY_BYTES)
            table = np.frombuffer(entries, dtype="<u4")
            # The table's second column counts words before each bucket.
            first, size = int(table[1]), int(table[-2]) - int(table[1])
            words_at = _HEADER_BYTES + (n_buckets + 1) * _ENTRY_BYTES + 4 * first
            if size <= len(into) and size and read(words_at, into[:size].data.cast("B")) < 4 * size:
                raise CorruptDataError(
                    f"staged chunk {segment.chunk} was cut short; remove the unfinished data set"
                )
            return int(table[-3]) - int(table[0]), size

    def _chunk_path(self, name: str) -> Place:
        return self.folder / "chunks" / f"{name}.bin"

    # -- finished partitions -----------------------------------------------------------------------------

    def write_record(self, part: str, index: int, record: dict[str, Any]) -> None:
        """Record that partition `index` of the dataset `part` is written."""
        text = canonical_json(record).encode()
        write_bytes(self.folder / "partitions" / f"{part}-{index:08d}.json", text, sync=False)

    def read_record(self, part: str, index: int) -> dict[str, Any] | None:
        """Return what `write_record` stored, or None."""
        path = self.folder / "partitions" / f"{part}-{index:08d}.json"
        return read_finished(path, dict[str, Any], self.dataset)


def _bytes_of(array: NDArray[np.uint32]) -> memoryview:
    return np.ascontiguousarray(array, dtype="<u4").data.cast("B") if array.size else memoryview(b"")


def _part(read: Callable[[int, memoryview], int], at: int, size: int) -> bytes:
    found = bytearray(size)
    return bytes(found[: read(at, memoryview(found))])


def _foreign(path: Place | str) -> CorruptDataError:
    return CorruptDataError(f"{path}: not a staged chunk; remove the unfinished data set and ingest it again")


def _read_header(header: bytes, path: str) -> int:
    # The magic bytes first: what follows is read by their layout.
    if len(header) != _HEADER_BYTES or header[:8] != _MAGIC:
        raise _foreign(path)
    return int.from_bytes(header[8:], "little")
