"""The files of one kernel's compiled variants: an index, and an object for each variant, all with checksums.

What numba loads is unpickled and executed: a damaged byte of it is a wrong result or a crash. So nothing is looked at
before its checksum is right. The index has its own in front, the objects have theirs in the index, where they stand
with what they were compiled for: the object of another kernel or variant is as wrong as a damaged one.
"""

import contextlib
import hashlib
import os
import pickle
import stat
import time
import uuid
from typing import Any

from numba.core.serialize import dumps

_DIGEST_BYTES = 32
_PARTIAL, _ABANDONED = ".partial", 3600.0  # of files that are being written, for at most so many seconds
# Do not wait for the writer of a FIFO.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


class DamagedEntryError(Exception):
    """A file among compiled kernels is not what was written there."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class EntryFiles:
    """The index and the objects with one base name in a folder."""

    def __init__(self, folder: str, base: str) -> None:
        self._folder, self._base = folder, base
        self.index_path = os.path.join(folder, f"{base}.nbi")

    def load(self, key: Any) -> Any:
        """Return the object stored for `key`, None if there is none; raise DamagedEntryError if it is damaged."""
        name = self._index().get(key)
        if name is None:
            return None
        content = self._read(self._path(name))
        if content is not None and _name_of(content) != name:
            raise DamagedEntryError(self._path(name))
        return None if content is None else pickle.loads(content)

    def save(self, key: Any, data: Any) -> None:
        """Store an object; raises OSError."""
        content = dumps(data)
        try:
            index = self._index()
        except DamagedEntryError:
            # A damaged index is replaced: its objects are compiled again.
            index = {}
        replaced, index[key] = index.get(key), _name_of(content)
        # the object first: whoever finds it in the index finds all of it
        _replace(self._path(index[key]), content)
        listed = dumps(index)
        _replace(self.index_path, self._seal(listed) + listed)
        # Only when no index names it any more.
        if replaced is not None and replaced != index[key]:
            self.discard(self._path(replaced))

    def discard(self, path: str) -> bool:
        """Remove a file; return whether this process has."""
        try:
            os.unlink(path)
        except OSError:
            return False
        return True

    def _index(self) -> dict[Any, str]:
        """Return key -> name of the object's file; empty if there is no index."""
        content = self._read(self.index_path)
        if content is None:
            return {}
        seal, listed = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if seal != self._seal(listed):
            raise DamagedEntryError(self.index_path)
        return pickle.loads(listed)

    def _seal(self, listed: bytes) -> bytes:
        # with the name, or the index of another kernel would do
        return hashlib.sha256(self._base.encode() + b"\0" + listed).digest()

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, f"{self._base}.{name}.nbc")

    def _read(self, path: str) -> bytes | None:
        """Return a file's bytes, None if there is no such file or it cannot be read."""
        try:
            with open(os.open(path, _FLAGS), "rb", buffering=0) as file:
                # A FIFO or device would block or never end.
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise DamagedEntryError(path)
                return file.read()
        except OSError:
            return None


def _name_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGEST_BYTES]


def _sweep(folder: str) -> None:
    """Remove what processes that were killed have left half-written."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(_PARTIAL) and time.time() - entry.stat().st_mtime > _ABANDONED:
                os.unlink(entry.path)


def _replace(path: str, content: bytes) -> None:
    """Write a file through a temporary name: readers see the old one or all of the new one."""
    _sweep(os.path.dirname(path))
    temporary = f"{path}.{uuid.uuid4().hex[:8]}{_PARTIAL}"
    try:
        with open(temporary, "xb") as file:
            file.write(content)
        # Atomic within the folder; an entry that is half-written is never seen.
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
