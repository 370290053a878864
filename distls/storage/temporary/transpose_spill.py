"""The temporary files of a transposition, under DATASET/.columns: plan, groups of rows, finished shards.

Files appear atomically, and the same command resumes with those it finds. The file of a group is a concatenation of
the workers' arrays, little-endian, and of the checksums of its blocks.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import CorruptDataError
from distls.storage.filesystem.atomic import os_errors_described, remove_tree, write_bytes
from distls.storage.filesystem.checksums import (
    block_sums,
    checked_range,
    content_bytes,
    little_endian,
    read_sealed,
    write_sealed,
)
from distls.storage.filesystem.locks import DATASET_LOCK, locked
from distls.storage.filesystem.paths import Place
from distls.storage.filesystem.safe_read import opened_ranges

_FOLDER = ".columns"


@dataclass(frozen=True)
class SpillArea:
    """The temporary files in the dataset at `dataset`."""

    dataset: Place
    fingerprint: str = ""  # of the dataset, for who writes or reads groups

    @property
    def folder(self) -> Place:
        """DATASET/.columns."""
        return self.dataset / _FOLDER

    @property
    def shards(self) -> Place:
        """The group of finished shards, published as a whole."""
        return self.folder / "columns"

    def create(self) -> None:
        """Make the folders."""
        for name in ("columns", "groups", "records"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    def remove(self) -> None:
        """Delete everything."""
        remove_tree(self.folder)

    def write_plan(self, plan: dict[str, Any]) -> None:
        """Store the plan, synced."""
        write_sealed(self.folder / "plan.json", plan, sync=True)

    def read_plan(self) -> dict[str, Any] | None:
        """Return the stored plan, or None."""
        return read_sealed(self.folder / "plan.json", self.dataset)

    def end(self) -> None:
        """Delete the plan: the rest is useless after the rename that follows."""
        (self.folder / "plan.json").unlink(missing_ok=True)

    def sweep(self) -> None:
        """Delete the remains of a transposition that was killed after its rename."""
        if self.folder.exists():
            # Another process may be at work there: then nothing is removed.
            with contextlib.suppress(OSError), self.held():
                # with a plan it can be resumed
                if self.read_plan() is None:
                    self.remove()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Be the only process that writes the dataset, or raise StorageError."""
        with locked(self.dataset / DATASET_LOCK, str(self.dataset)):
            yield

    def guard(self) -> AbstractContextManager[None]:
        """Turn an OSError into a StorageError that says how to go on."""
        doing = f"{self.dataset}: its column shards are incomplete"
        return os_errors_described(doing, f"run `distls columns {self.dataset}` to go on, or remove {self.folder}")

    # -- groups of rows ----------------------------------------------------------------------------------

    def _group(self, number: int) -> Place:
        return self.dataset / f"{_FOLDER}/groups/{number:08d}.bin"

    def group_bytes(self, number: int) -> int:
        """Return the bytes of the arrays of a finished group; -1 when there is none."""
        try:
            return content_bytes(self._group(number).stat().st_size)
        except FileNotFoundError:
            # No file has this size, so it equals no expected one.
            return -1

    def write_group(self, number: int, *arrays: NDArray[Any]) -> None:
        """Write the arrays of a group."""
        parts = [little_endian(array).reshape(-1).view(np.uint8) for array in arrays]
        sums = block_sums(self._name(number), *parts).view(np.uint8)
        write_bytes(self._group(number), *(part.data for part in (*parts, sums)), sync=False)

    @contextlib.contextmanager
    def open_group(self, number: int) -> Iterator[Callable[[int, NDArray[Any]], None]]:
        """Yield a function that fills an array from an offset in the group's file; raises CorruptDataError."""
        name, path = self._name(number), self._group(number)
        size = content_bytes(path.stat().st_size)

        def fill(at: int, into: NDArray[Any]) -> None:
            # What is short or changed would lead kernels out of bounds, or to other shards.
            if not checked_range(read, name, size, at, into.reshape(-1).view(np.uint8)):
                raise self.damaged()

        with opened_ranges(path, self.dataset) as read:
            yield fill

    def _name(self, number: int) -> str:
        return f"{self.fingerprint} {number}"

    def damaged(self) -> CorruptDataError:
        """Return the error of temporary files that were changed."""
        return CorruptDataError(f"{self.folder}: damaged; remove it and run `distls columns {self.dataset}`")

    # -- finished shards ---------------------------------------------------------------------------------

    def _record(self, index: int) -> Place:
        return self.folder / "records" / f"{index:08d}.json"

    def write_record(self, index: int, record: dict[str, Any]) -> None:
        """Record that shard `index` is written."""
        write_sealed(self._record(index), record)

    def read_record(self, index: int) -> dict[str, Any] | None:
        """Return what `write_record` stored, or None."""
        return read_sealed(self._record(index), self.dataset)
