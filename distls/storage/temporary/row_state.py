"""State that a solver keeps for each row (predictions, residuals), in RUN/state: a file per partition and version.

A round writes a version; the one before it stays until the next round, so that a round can be repeated. Files are
replaced atomically, carry a checksum and are not synced: a solver can recompute them from its weights.
"""

from __future__ import annotations

import re
import threading
from typing import Any

from numpy.typing import NDArray

from distls.storage.errors import StateLostError
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.model.bundle import read_npy, write_npy

_KEPT_VERSIONS = 2
_NAME = re.compile(r"(\d{8})-(\d{6,})\.npy")
# A state that is kept in memory, for this thread alone: of the rows on which kernels are compiled.
IN_MEMORY = "memory:"
_LOCAL = threading.local()


class StateFolder(str):
    """The name of RUN/state with the digest of the fit that what is in it belongs to, none in earlier versions."""

    owner = ""

    @classmethod
    def of(cls, folder: Place, owner: str) -> StateFolder:
        """Return the name of a folder as that of an owner."""
        made = cls(folder)
        made.owner = owner
        return made


def owner_of(state: str | Place) -> str:
    """Return the digest of the fit to which what is in a folder belongs."""
    return state.owner if isinstance(state, StateFolder) else ""


class RowState:
    """The folder RUN/state on a worker, or a folder in it, created with the first array."""

    def __init__(self, state: str | Place, kind: str = "") -> None:
        self._owner = owner_of(state)
        self._memory = _LOCAL.__dict__.setdefault(kind, {}) if state == IN_MEMORY else None
        self._state = place_of(state)
        self.folder = self._state / kind if kind else self._state

    def _path(self, index: int, version: int) -> Place:
        return self.folder / f"{index:08d}-{version:06d}.npy"

    def write(self, index: int, version: int, array: NDArray[Any]) -> None:
        """Store the array of partition `index` as `version`, and delete all but the version before it."""
        self.put(index, version, array)
        # The version before stays, so that a round that fails can be repeated.
        self.drop(index, version - _KEPT_VERSIONS)

    def put(self, index: int, version: int, array: NDArray[Any]) -> None:
        """Store the array of partition `index` as `version`."""
        if self._memory is not None:
            self._memory[index, version] = array.copy()
            return
        for folder in (self._state, self.folder):  # without parents: a run that was removed is not made again
            folder.mkdir(exist_ok=True)
        write_npy(self._path(index, version), self._name(index, version), array)

    def drop(self, index: int, version: int) -> None:
        """Delete the array of partition `index` that was stored as `version`, if there is one."""
        if self._memory is not None:
            self._memory.pop((index, version), None)
            return
        self._path(index, version).unlink(missing_ok=True)

    def stored(self) -> set[tuple[int, int]]:
        """Return (index, version) of all arrays in the folder."""
        # Names of other files in the folder are not looked at.
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        found = (_NAME.fullmatch(name) for name in names)
        return {(int(match[1]), int(match[2])) for match in found if match}

    def read(self, index: int, version: int, shape: tuple[int, ...] | None = None, dtype: Any = None) -> NDArray[Any]:
        """Return a writable copy of the array of partition `index` that was stored as `version`.

        Raises StateLostError if it is missing, damaged, or of another shape or type than given.
        """
        path = self._path(index, version)
        try:
            array = self._whole(index, version) if self._memory is None else self._memory[index, version].copy()
        except (KeyError, FileNotFoundError):
            raise StateLostError(f"{path}: missing") from None
        if array is None:
            raise StateLostError(f"{path}: its bytes do not match its checksum")
        # kernels rely on them, and the run may be another user's
        if (shape is not None and array.shape != shape) or (dtype is not None and array.dtype != dtype):
            raise StateLostError(f"{path}: {array.dtype} of shape {array.shape} where others are expected")
        return array

    def _whole(self, index: int, version: int) -> NDArray[Any] | None:
        """Return the array of a file, None if the bytes do not match their checksum."""
        name, path = self._name(index, version), self._path(index, version)
        # a torn read looks like damage; a second one costs less than computing the state anew
        # Files of runs of earlier versions are without a name.
        names = (name, name) if self._owner else (name, name, "")
        found = (read_npy(path, each, self.folder) for each in names)
        return next((array for array in found if array is not None), None)

    def _name(self, index: int, version: int) -> str:
        return f"{self._owner} {self.folder.name} {index} {version}"

    def holds(self, index: int, version: int) -> bool:
        """Return whether `read` finds the array of partition `index`."""
        try:
            self.read(index, version)
        except StateLostError:
            return False
        return True
