"""The temporary files of an ingest, under DATASET/.ingest: the plan, staged chunks, finished partitions.

A chunk file holds the rows of one piece of a source, grouped into buckets, so that a partition can be put together
from one range of every chunk. Every file appears whole under its name or not at all; a chunk is finished when its
JSON sidecar exists, and a resumed ingest keeps what is finished. Layout of a chunk file, little-endian::

    "distlsC1"  n_buckets (uint64)  table (uint32, n_buckets + 1 rows of 3)  words (uint32)

The table gives the rows, words and values before each bucket. What the words mean is the workers' business.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.atomic import canonical_json, describe_os_error, read_json, write_bytes, write_json
from distls.storage.dataset import STAGING
from distls.storage.errors import CorruptDataError, DistlsError

__all__ = ["Segment", "StagingArea"]

_MAGIC = b"distlsC1"
_HEADER_BYTES = 16
_ENTRY_BYTES = 12


@dataclass(frozen=True)
class Segment:
    """A run of buckets of one chunk.

    Attributes
    ----------
    chunk : str
    start, stop : int
        Buckets start, start + 1, ..., stop - 1.
    """

    chunk: str
    start: int
    stop: int


@dataclass(frozen=True)
class StagingArea:
    """The staged files of the dataset at `dataset`; small, sent with every task."""

    dataset: Path

    @property
    def folder(self) -> Path:
        """DATASET/.ingest."""
        return self.dataset / STAGING

    def create(self) -> None:
        """Make the folders."""
        for name in ("chunks", "items", "partitions"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    def remove(self) -> None:
        """Delete every staged file."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def write_document(self, name: str, value: Any) -> None:
        """Store the JSON document `name` (the plan, the schema), synced."""
        write_json(self.folder / f"{name}.json", value)

    def read_document(self, name: str) -> Any | None:
        """Return the JSON document `name`, or None when there is none."""
        try:
            return read_json(self.folder / f"{name}.json")
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Turn what the operating system refuses into a StorageError that says how to go on."""
        try:
            yield
        except OSError as error:
            if isinstance(error, DistlsError):
                raise
            remedy = (
                f"the output is incomplete: run the same ingest again to resume it, or remove {self.dataset}"
            )
            raise describe_os_error(error, f"{self.dataset}: the ingest stopped", remedy) from error

    def has_array(self, name: str) -> bool:
        """Tell whether `write_array` has stored this array."""
        return (self.folder / f"{name}.npy").exists()

    def write_array(self, name: str, array: NDArray[Any]) -> None:
        """Store an array that every task reads (fitted transforms, the allotment of a split)."""
        path = self.folder / f"{name}.npy"
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.partial")
        with temporary.open("wb") as file:
            np.save(file, array, allow_pickle=False)
        temporary.replace(path)

    def read_array(self, name: str) -> NDArray[Any]:
        """Return an array stored by `write_array`, memory-mapped."""
        return np.load(self.folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)

    # -- chunks ------------------------------------------------------------------------------------------

    def write_chunk(
        self, name: str, table: NDArray[np.uint32], words: NDArray[np.uint32], facts: dict[str, Any]
    ) -> dict[str, Any]:
        """Write a chunk and then its sidecar.

        Parameters
        ----------
        table : uint32 array of shape (n_buckets + 1, 3)
        words : uint32 array of shape (n_words,)
        facts : dict
            What later stages need to know without opening the chunk.

        Returns
        -------
        dict
            `facts` with ``name`` and ``bytes``, as `finished_chunk` will return them.
        """
        path = self._chunk_path(name)
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.partial")
        header = _MAGIC + (len(table) - 1).to_bytes(8, "little")
        try:
            with temporary.open("wb", buffering=0) as file:
                for part in (header, _bytes_of(table), _bytes_of(words)):
                    _write_all(file.fileno(), memoryview(part))
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        facts = {**facts, "name": name, "bytes": _HEADER_BYTES + table.nbytes + words.nbytes}
        write_bytes(path.with_suffix(".json"), canonical_json(facts).encode(), sync=False)
        return facts

    def finished_chunk(self, name: str) -> dict[str, Any] | None:
        """Return the facts of a finished chunk; None when it must be made (again)."""
        path = self._chunk_path(name)
        try:
            facts = dict(read_json(path.with_suffix(".json")))
            return facts if path.stat().st_size == facts["bytes"] else None
        except (FileNotFoundError, KeyError, ValueError):
            return None

    def write_item(self, number: int, summary: dict[str, Any]) -> None:
        """Note that all chunks of item `number` are finished."""
        path = self.folder / "items" / f"{number:06d}.json"
        write_bytes(path, canonical_json(summary).encode(), sync=False)

    def read_item(self, number: int) -> dict[str, Any] | None:
        """Return what `write_item` stored if the chunks it lists are all there, else None."""
        try:
            summary = dict(read_json(self.folder / "items" / f"{number:06d}.json"))
            whole = all(self._chunk_path(c["name"]).stat().st_size == c["bytes"] for c in summary["chunks"])
            return summary if whole else None
        except (FileNotFoundError, KeyError, ValueError):
            return None

    def read_table(self, name: str) -> NDArray[np.uint32]:
        """Return a chunk's table, shape (n_buckets + 1, 3)."""
        with self._chunk_path(name).open("rb") as file:
            n_buckets = _read_header(file.read(_HEADER_BYTES), file.name)
            return np.frombuffer(file.read((n_buckets + 1) * _ENTRY_BYTES), dtype="<u4").reshape(-1, 3)

    def read_segments(self, segments: Sequence[Segment]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Read segments one after the other into one buffer.

        Returns
        -------
        words : uint32 array of shape (n_words,)
        sizes : int64 array of shape (n_segments, 3)
            Rows, words and values of each segment.
        """
        extents = np.array([self._extent(s) for s in segments], dtype=np.int64).reshape(-1, 4)
        words = np.empty(int(extents[:, 1].sum()), dtype="<u4")
        done = 0
        for segment, (_, size, _, offset) in zip(segments, extents.tolist(), strict=True):
            self._read_words(segment.chunk, offset, words[done : done + size])
            done += size
        return words, extents[:, :3]

    def _extent(self, segment: Segment) -> tuple[int, int, int, int]:
        """Return (rows, words, values, offset of the first word in the file) of a segment."""
        with self._chunk_path(segment.chunk).open("rb", buffering=0) as file:
            n_buckets = _read_header(os.pread(file.fileno(), _HEADER_BYTES, 0), file.name)
            ends = [
                np.frombuffer(
                    os.pread(file.fileno(), _ENTRY_BYTES, _HEADER_BYTES + bucket * _ENTRY_BYTES), "<u4"
                )
                for bucket in (segment.start, segment.stop)
            ]
        rows, words, values = (int(b) - int(a) for a, b in zip(*ends, strict=True))
        return rows, words, values, _HEADER_BYTES + (n_buckets + 1) * _ENTRY_BYTES + 4 * int(ends[0][1])

    def _read_words(self, name: str, offset: int, into: NDArray[np.uint32]) -> None:
        view, done = memoryview(into).cast("B"), 0
        with self._chunk_path(name).open("rb", buffering=0) as file:
            file.seek(offset)
            while done < len(view):
                got = file.readinto(view[done:])
                if not got:
                    raise CorruptDataError(f"{file.name}: a staged file was cut short; remove {self.dataset}")
                done += got

    def _chunk_path(self, name: str) -> Path:
        return self.folder / "chunks" / f"{name}.bin"

    # -- finished partitions -----------------------------------------------------------------------------

    def write_record(self, part: str, index: int, record: dict[str, Any]) -> None:
        """Note that partition `index` of the dataset `part` is written."""
        text = canonical_json(record).encode()
        write_bytes(self.folder / "partitions" / f"{part}-{index:08d}.json", text, sync=False)

    def read_record(self, part: str, index: int) -> dict[str, Any] | None:
        """Return what `write_record` stored, or None."""
        try:
            return dict(read_json(self.folder / "partitions" / f"{part}-{index:08d}.json"))
        except (FileNotFoundError, ValueError):
            return None


def _bytes_of(array: NDArray[np.uint32]) -> memoryview:
    return memoryview(np.ascontiguousarray(array, dtype="<u4")).cast("B") if array.size else memoryview(b"")


def _write_all(descriptor: int, payload: memoryview) -> None:
    # one write() moves at most 2 GiB
    while len(payload):
        payload = payload[os.write(descriptor, payload) :]


def _read_header(header: bytes, path: str) -> int:
    if len(header) != _HEADER_BYTES or header[:8] != _MAGIC:
        raise CorruptDataError(
            f"{path}: not a staged chunk; remove the unfinished data set and ingest it again"
        )
    return int.from_bytes(header[8:], "little")
