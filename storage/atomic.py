"""Write so that nothing half-written is ever mistaken for whole: temporary name, sync, rename."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distls.storage.errors import StorageError

__all__ = [
    "atomic_directory",
    "canonical_json",
    "describe_os_error",
    "replace_directory",
    "write_bytes",
    "write_json",
]


def canonical_json(value: Any) -> str:
    """Serialise to the one JSON text that a value has: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, atomically and synced."""
    write_bytes(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def write_bytes(path: Path, *parts: bytes | memoryview, sync: bool = True) -> None:
    """Write `parts`, one after the other, to `path` through a temporary name: `path` is either old or whole."""
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        with temporary.open("wb") as file:
            for part in parts:
                file.write(part)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if sync:
        _sync_directory(path.parent)


@contextlib.contextmanager
def atomic_directory(target: Path, *, sync: bool = True) -> Iterator[Path]:
    """Yield a temporary sibling folder that becomes `target` (replacing it) when the block ends without error."""
    temporary = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}.partial")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if sync:
            for path in sorted(temporary.rglob("*")):
                (_sync_directory if path.is_dir() else _sync)(path)
            _sync_directory(temporary)
        replace_directory(temporary, target)
        if sync:
            _sync_directory(target.parent)
    finally:
        # what was not renamed: the failed attempt, or the folder it was exchanged with
        shutil.rmtree(temporary, ignore_errors=True)


def replace_directory(source: Path, target: Path) -> None:
    """Rename `source` to `target`; a folder that was there stays whole if that fails, else may be left as `source`."""
    if not target.exists():
        source.rename(target)
    elif not _exchange(source, target):
        old = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}.old")
        target.rename(old)
        try:
            source.rename(target)
        except BaseException:
            old.rename(target)
            raise
        shutil.rmtree(old, ignore_errors=True)


_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names in one act of the kernel; False where it cannot, which leaves a moment without either."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    return rename is not None and not rename(
        _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), ctypes.c_uint(_RENAME_EXCHANGE)
    )


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_directory(path: Path) -> None:
    # Not every file system can sync a folder; the rename itself stays atomic.
    with contextlib.suppress(OSError):
        _sync(path)


_CAUSES = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file grew past the allowed size",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the file system is read-only",
    errno.ENOENT: "no such file or directory",
}


def describe_os_error(error: OSError, doing: str, remedy: str) -> StorageError:
    """Turn an OSError into the one-line StorageError that says what failed, where, why and what to do."""
    cause = _CAUSES.get(error.errno or 0, error.strerror or str(error))
    where = f" ({error.filename})" if error.filename else ""
    return StorageError(f"{doing}: {cause}{where}; {remedy}")
