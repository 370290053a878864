"""The temporary files of an ingest, under DATASET/.ingest: the plan, staged chunks, finished partitions.

A chunk file holds rows of one item, grouped into buckets, so that a partition is assembled from one range of every
chunk. Files appear atomically; a chunk is finished once its JSON sidecar exists, and a resumed ingest keeps finished
ones. Layout of a chunk file, little-endian::

    "distlsC2"  n_buckets (uint64)  table (uint32, n_buckets + 1 rows of 5)  words (uint32)

The table gives the rows, words and values before each bucket, and the checksums of these words, together with the rows,
and of the origins of these rows; the words are the workers' row records. Next to it, if they are kept, a file holds the
origins of the rows in the same order, so that a bucket's are one range too::

    "distlsO1"  n_rows (uint64)  has_ids (uint64)  numbers (uint32, n_rows)  ends (int64, n_rows + 1)  ids (bytes)
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.chunks import BufferPool
from distls.storage.dataset.dataset import STAGING
from distls.storage.dataset.row_origins import RowIds
from distls.storage.errors import CorruptDataError
from distls.storage.filesystem.atomic import os_errors_described, remove_tree, write_bytes
from distls.storage.filesystem.checksums import crc32c, little_endian, read_sealed, write_sealed
from distls.storage.filesystem.paths import Place, StorePath
from distls.storage.filesystem.safe_read import convert_json, opened_ranges
from distls.storage.model.bundle import read_npy, write_npy

_MAGIC = b"distlsC2"
_ORIGIN_MAGIC = b"distlsO1"
_ORIGIN_BYTES = 24  # of its header
_HEADER_BYTES = 16
_ROWS, _WORDS, _WORDS_SUM, _ORIGINS_SUM = 0, 1, 3, 4  # columns of a table
_ENTRY_BYTES = 20


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
        write_sealed(self.folder / f"{name}.json", {"document": value}, sync=True)

    def read_document(self, name: str) -> Any | None:
        """Return the JSON document `name`, or None when there is none that is whole."""
        # Within the dataset: a staged link must not lead elsewhere.
        found = read_sealed(self.folder / f"{name}.json", self.dataset)
        return None if found is None else found["document"]

    def guard(self) -> AbstractContextManager[None]:
        """Turn an OSError into a StorageError that says how to go on."""
        remedy = f"the output is incomplete: run the same ingest again to resume it, or remove {self.dataset}"
        return os_errors_described(f"{self.dataset}: the ingest stopped", remedy)

    def has_array(self, name: str) -> bool:
        """Return whether `write_array` has stored this array, and it is whole."""
        with contextlib.suppress(FileNotFoundError, CorruptDataError):
            self.read_array(name)
            return True
        return False

    def write_array(self, name: str, array: NDArray[Any]) -> None:
        """Store an array that every task reads (fitted transforms, the allotment of a split)."""
        write_npy(self.folder / f"{name}.npy", name, array)

    def read_array(self, name: str) -> NDArray[Any]:
        """Return an array stored by `write_array`, memory-mapped where it is a file."""
        path = self.folder / f"{name}.npy"
        if isinstance(path, StorePath):
            array = read_npy(path, name, self.dataset)
        else:
            whole = _is_whole(path, name, self.dataset, path.stat().st_mtime_ns)
            array = np.lib.format.open_memmap(path, mode="r") if whole else None
        if array is None:
            raise CorruptDataError(f"{path}: its bytes were changed; remove {self.dataset} and ingest it again")
        return array

    # -- chunks ------------------------------------------------------------------------------------------

    def write_chunk(
        self,
        name: str,
        table: NDArray[np.uint32],
        words: NDArray[np.uint32],
        facts: dict[str, Any],
        origins: tuple[NDArray[np.uint32], RowIds | None] | None = None,
    ) -> dict[str, Any]:
        """Write a chunk and its sidecar: `facts`, returned with ``name``, ``bytes`` and the checksum of its ``table``.

        The table is uint32 (n_buckets + 1, 3), words are uint32 (n_words,). `origins` are the numbers and the ids of
        its rows, if they are kept.
        """
        path, words = self._chunk_path(name), little_endian(words)
        full = np.zeros((len(table), _ENTRY_BYTES // 4), dtype="<u4")
        full[:, : table.shape[1]] = table
        rows = table[:, _ROWS].tolist()
        full[:, _WORDS_SUM] = _running(crc32c(name.encode()), (words, table[:, _WORDS].tolist()))
        if origins is not None:
            self._write_origins(name, *origins)
            full[:, _ORIGINS_SUM] = _running(crc32c(name.encode()), *_origin_cuts(rows, *origins))
        # A segment has rows too, which its checksum cannot tell from others by its words alone.
        full[:, _WORDS_SUM] ^= full[:, _ROWS]
        header = _MAGIC + (len(table) - 1).to_bytes(8, "little")
        write_bytes(path, header, _bytes_of(full), _bytes_of(words), sync=False)
        size = _HEADER_BYTES + full.nbytes + words.nbytes
        facts = {**facts, "name": name, "bytes": size, "table": crc32c(full)}
        # the sidecar last: it marks the chunk as finished
        write_sealed(path.with_suffix(".json"), facts)
        return facts

    def _write_origins(self, name: str, numbers: NDArray[np.uint32], ids: RowIds | None) -> None:
        # Without ids both arrays are empty, and take no room.
        ends = np.empty(0, dtype=np.int64) if ids is None else ids.ends
        text = np.empty(0, dtype=np.uint8) if ids is None else ids.text
        header = _ORIGIN_MAGIC + len(numbers).to_bytes(8, "little") + int(ids is not None).to_bytes(8, "little")
        # numbers are padded to eight bytes
        padded = np.zeros(len(numbers) + len(numbers) % 2, dtype="<u4")
        padded[: len(numbers)] = numbers
        arrays: tuple[NDArray[Any], ...] = (padded, ends, text)
        parts = (np.ascontiguousarray(array).data.cast("B") for array in arrays if array.size)
        write_bytes(self._origin_path(name), header, *parts, sync=False)

    def read_origins(self, segment: Segment) -> tuple[NDArray[np.uint32], RowIds | None]:
        """Return numbers and ids of the rows of a segment."""
        with self._opened(segment.chunk, self._chunk_path(segment.chunk)) as read:
            table = _entries(read, segment)
        rows = table[:, _ROWS].astype(np.int64)
        with self._opened(segment.chunk, self._origin_path(segment.chunk)) as read:
            numbers, ids = _read_origins(read, int(rows[0]), int(rows[-1]))
            cuts = _origin_cuts((rows - rows[0]).tolist(), numbers, ids)
            if _running(int(table[0, _ORIGINS_SUM]), *cuts)[-1] != table[-1, _ORIGINS_SUM]:
                raise CorruptDataError("its checksum")
        return numbers, ids

    def _origin_path(self, name: str) -> Place:
        return self.folder / "chunks" / f"{name}.rows"

    def finished_chunk(self, name: str) -> dict[str, Any] | None:
        """Return the facts of a finished chunk, None if it must be written."""
        return self._whole(f"chunks/{name}", lambda facts: [convert_json(facts, _Chunk)])

    def write_item(self, number: int, summary: dict[str, Any]) -> None:
        """Record that all chunks of item `number` are finished."""
        write_sealed(self.folder / "items" / f"{number:06d}.json", summary)

    def read_item(self, number: int) -> dict[str, Any] | None:
        """Return the summary of an item if all its chunks exist, else None."""
        return self._whole(f"items/{number:06d}", lambda summary: convert_json(summary, _Item).chunks)

    def _whole(self, name: str, chunks: Callable[[Any], Sequence[_Chunk]]) -> dict[str, Any] | None:
        """Return a JSON document if the chunks that it names are there with their sizes, else None."""
        found = read_sealed(self.folder / f"{name}.json", self.dataset)
        with contextlib.suppress(FileNotFoundError, ValueError):
            sizes = [(self._chunk_path(c.name).stat().st_size, c.bytes) for c in chunks(found)]
            # Size tells a whole chunk: it was written under another name and renamed.
            return found if all(size == wanted for size, wanted in sizes) else None
        return None

    def read_table(self, facts: dict[str, Any]) -> NDArray[np.uint32]:
        """Return the table of the chunk with these facts, shape (n_buckets + 1, 3)."""
        path = self._chunk_path(facts["name"])
        with self._opened(facts["name"], path) as read:
            n_buckets = _read_header(read)
            # before memory is allocated
            if (n_buckets + 1) * _ENTRY_BYTES > path.stat().st_size:
                raise CorruptDataError("its size")
            table = _entries(read, Segment(facts["name"], 0, n_buckets))
            if crc32c(table) != facts["table"]:
                raise CorruptDataError("its table")
            return table[:, :_WORDS_SUM]

    @contextlib.contextmanager
    def _opened(self, chunk: str, path: Place) -> Iterator[Callable[[int, memoryview], int]]:
        """Yield the reads of a file of a chunk, which is written again by the next ingest if the file is damaged."""
        try:
            with opened_ranges(path, self.dataset) as read:
                yield read
        except (CorruptDataError, FileNotFoundError):
            # what is not there is not finished
            self._chunk_path(chunk).unlink(missing_ok=True)
            raise CorruptDataError(
                f"{path}: missing, changed since it was written, or not a staged chunk; run the same ingest again"
            ) from None

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
            raise CorruptDataError(f"{self.folder}: {done} words where {n_words} were staged; remove {self.dataset}")
        return words, rows

    def _read_segment(self, segment: Segment, into: NDArray[np.uint32]) -> tuple[int, int]:
        """Read one segment to the start of `into`; return its rows and words."""
        # called partitions x chunks times: three reads each, without a file object
        with self._opened(segment.chunk, self._chunk_path(segment.chunk)) as read:
            n_buckets, table = _read_header(read), _entries(read, segment)
            # The table's second column counts words before each bucket.
            first, last = table[0].tolist(), table[-1].tolist()
            size = last[_WORDS] - first[_WORDS]
            # Of more than is expected the caller says so.
            if 0 <= size <= len(into):
                words_at = _HEADER_BYTES + (n_buckets + 1) * _ENTRY_BYTES + 4 * first[_WORDS]
                _fill(read, words_at, into[:size])
                found = crc32c(into[:size], after=first[_WORDS_SUM] ^ first[_ROWS])
                if found != last[_WORDS_SUM] ^ last[_ROWS]:
                    raise CorruptDataError("its checksum")
            return last[_ROWS] - first[_ROWS], size

    def _chunk_path(self, name: str) -> Place:
        return self.folder / "chunks" / f"{name}.bin"

    # -- finished partitions -----------------------------------------------------------------------------

    def write_record(self, part: str, index: int, record: dict[str, Any]) -> None:
        """Record that partition `index` of the dataset `part` is written."""
        write_sealed(self.folder / "partitions" / f"{part}-{index:08d}.json", record)

    def read_record(self, part: str, index: int) -> dict[str, Any] | None:
        """Return what `write_record` stored, or None."""
        return read_sealed(self.folder / "partitions" / f"{part}-{index:08d}.json", self.dataset)


# -- the bytes of chunks ---------------------------------------------------------------------------------


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _running(first: int, *cuts: tuple[NDArray[Any], Sequence[int]]) -> list[int]:
    """Return the checksum before each bucket and behind the last, of arrays that buckets cut at these places."""
    sums = [first]
    for pieces in zip(*([array[a:b] for a, b in pairwise(places)] for array, places in cuts), strict=True):
        sums.append(crc32c(*pieces, after=sums[-1]))
    return sums


def _origin_cuts(
    rows: list[int], numbers: NDArray[np.uint32], ids: RowIds | None
) -> list[tuple[NDArray[Any], Sequence[int]]]:
    """Return the arrays of origins, and where buckets that begin at these rows cut them."""
    if ids is None:
        return [(numbers, rows)]
    # sizes, since ends count from the first id of what is read
    return [(numbers, rows), (np.diff(ids.ends), rows), (ids.text, ids.ends[rows].tolist())]


def _fill(read: Callable[[int, memoryview], int], at: int, into: NDArray[Any]) -> NDArray[Any]:
    if len(into) and read(at, into.view(np.uint8).data) < into.nbytes:
        raise CorruptDataError("it was cut short")
    return into


def _read_header(read: Callable[[int, memoryview], int]) -> int:
    """Return the number of buckets of a chunk."""
    header = _fill(read, 0, np.empty(_HEADER_BYTES, np.uint8)).tobytes()
    # The magic bytes first: what follows is read by their layout.
    if header[:8] != _MAGIC:
        raise CorruptDataError("its first bytes")
    return int.from_bytes(header[8:], "little")


def _entries(read: Callable[[int, memoryview], int], segment: Segment) -> NDArray[np.uint32]:
    """Return the rows of a chunk's table from the first bucket of a segment to that behind its last."""
    n, width = segment.stop - segment.start + 1, _ENTRY_BYTES // 4
    at = _HEADER_BYTES + segment.start * _ENTRY_BYTES
    return _fill(read, at, np.empty(n * width, dtype="<u4")).reshape(n, width)


def _read_origins(
    read: Callable[[int, memoryview], int], start: int, stop: int
) -> tuple[NDArray[np.uint32], RowIds | None]:
    """Return numbers and ids of the rows start, ..., stop - 1 of a chunk."""
    header = _fill(read, 0, np.empty(_ORIGIN_BYTES, np.uint8)).tobytes()
    n_rows, has_ids = int.from_bytes(header[8:16], "little"), header[16:] != bytes(8)
    # A header of another file.
    if header[:8] != _ORIGIN_MAGIC or not 0 <= start <= stop <= n_rows:
        raise CorruptDataError("its first bytes")
    numbers = _fill(read, _ORIGIN_BYTES + 4 * start, np.empty(stop - start, dtype="<u4"))
    if not has_ids:
        return numbers, None
    ends_at = _ORIGIN_BYTES + 4 * (n_rows + n_rows % 2)
    ends = _fill(read, ends_at + 8 * start, np.empty(stop - start + 1, dtype="<i8"))
    # Offsets are of the whole chunk; those returned start at zero.
    first, size = int(ends[0]), int(ends[-1] - ends[0])
    if not 0 <= size < 2**40:
        raise CorruptDataError("its offsets")
    text = _fill(read, ends_at + 8 * (n_rows + 1) + first, np.empty(size, np.uint8))
    return numbers, RowIds(text, ends - first)


@functools.lru_cache(maxsize=64)
def _is_whole(path: Path, name: str, within: Path, stamp: int) -> bool:
    """Return whether an array's file is what was written at this time; looked at once by each process."""
    return read_npy(path, name, within) is not None
