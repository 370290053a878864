"""Atomic writes: temporary name, sync, rename."""

import contextlib
import ctypes
import errno
import io
import json
import math
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, TextIO, cast

from distls.storage.errors import DistlsError, StorageError
from distls.storage.filesystem.paths import Place, StorePath


class SyncedTogether:
    """What a thread writes meanwhile is synced all at once: where there is something to sync after so many seconds.

    To sync many small files one by one takes a disk longer than all else that is done to them. After a failure of
    power what was written since may be torn; who reads it has to know.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._last = seconds, time.monotonic()

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Leave the syncs of this thread to this; others that it starts do theirs."""
        before = _TOGETHER.set(self)
        try:
            yield
        finally:
            _TOGETHER.reset(before)

    def sync(self, path: Path, *, now: bool = False) -> None:
        """Sync all of a path's file system, if it is time."""
        if now or time.monotonic() - self._last >= self._seconds:
            _sync_file_system(path)
            self._last = time.monotonic()


_TOGETHER: ContextVar[SyncedTogether | None] = ContextVar("together", default=None)


def unsynced() -> contextlib.AbstractContextManager[None]:
    """Sync nothing that this thread writes meanwhile: of files that are removed at the end, whatever happens."""
    return SyncedTogether(math.inf).writing()


def canonical_json(value: Any) -> str:
    """Serialise to the one JSON text that a value has: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def finite_json(value: Any) -> Any:
    """Return a JSON value with null for NaN and infinity, which a round or fold that diverged has."""
    if isinstance(value, dict):
        return {key: finite_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Place, value: Any) -> None:
    """Write `value` as JSON, atomically and synced."""
    write_bytes(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def write_bytes(path: Place, *parts: bytes | memoryview, sync: bool = True) -> None:
    """Write `parts`, one after the other, to `path` through a temporary name: `path` is either old or whole."""
    # An object of a store appears whole by itself.
    if isinstance(path, StorePath):
        path.write_parts(*parts)
        return
    with _replacing(path, "wb", sync=sync) as file:
        for part in parts:
            file.write(part)


@contextlib.contextmanager
def _replacing(path: Path, mode: str, *, sync: bool = True, **options: Any) -> Iterator[IO[Any]]:
    """Yield a file under a temporary name that becomes `path` when the block ends without error."""
    # In the same folder: a rename is atomic within one file system only. Random: two writers do not collide.
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        with temporary.open(mode, **options) as file:
            yield file
            if sync and _TOGETHER.get() is None:
                # Content before name: after a power failure a rename must not show an empty file.
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        if sync:
            _sync_directory(path.parent)
    except BaseException:
        # Also for interrupts: partial files would be left behind.
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def atomic_directory(target: Place, *, sync: bool = True) -> Iterator[Place]:
    """Yield a temporary sibling folder that becomes `target` (replacing it) when the block ends without error."""
    if isinstance(target, StorePath):
        # objects are replaced one by one: the caller must mark the folder as complete
        yield target
        return
    temporary = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}.partial")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if sync and _TOGETHER.get() is None:
            paths = sorted(temporary.rglob("*"))
            # One by one, thousands take many times as long as all that the file system has not written.
            if len(paths) > _MANY:
                _sync_file_system(temporary)
            else:
                # Files before the folders that name them.
                for path in paths:
                    (_sync_directory if path.is_dir() else _sync)(path)
                _sync_directory(temporary)
        replace_directory(temporary, target)
        if sync:
            _sync_directory(target.parent)
    finally:
        # what was not renamed: the failed attempt, or the folder it was exchanged with
        shutil.rmtree(temporary, ignore_errors=True)


def replace_directory(source: Place, target: Place) -> None:
    """Rename `source` to `target`; an earlier `target` stays whole on failure, and may be left as `source` else."""
    # in an object store the group is copied, its metadata last; until then there is no `target`
    if isinstance(source, StorePath) or isinstance(target, StorePath):
        _copy_group(source, target)
        remove_tree(source)
    elif not target.exists():
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


def _copy_group(source: Place, target: Place) -> None:
    """Copy a zarr group within an object store, or into one."""
    (target / _MARK).unlink(missing_ok=True)
    remove_tree(target)
    if isinstance(source, StorePath):
        names = [place.relative_to(source) for place in source.objects()]
    else:
        names = sorted(str(path.relative_to(source)) for path in source.rglob("*") if path.is_file())
    # The metadata last: a group without them does not exist.
    for name in sorted(names, key=lambda name: name == _MARK):
        copy = target / name
        assert isinstance(copy, StorePath)
        copy.copy_from(source / name)


_MARK = "zarr.json"
_MANY = 500  # files
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names atomically; return whether the system could."""
    # where it could not, replace_directory leaves a moment without `target`
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    return rename is not None and not rename(
        _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), ctypes.c_uint(_RENAME_EXCHANGE)
    )


def _sync(path: Path) -> None:
    together = _TOGETHER.get()
    if together is not None:
        together.sync(path)
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_file_system(path: Path) -> None:
    sync = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if sync is None:
            os.sync()
        elif sync(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make durable what a file holds, and its name."""
    _sync(path)
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    # not every file system can sync a folder; the rename itself stays atomic
    with contextlib.suppress(OSError):
        _sync(path)


def remove_tree(folder: Place) -> None:
    """Remove a folder and what is in it, as far as that can be done."""
    if isinstance(folder, StorePath):
        with contextlib.suppress(OSError):
            folder.remove()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def is_half(path: Place) -> bool:
    """Return whether it was being written, or replaced, under a temporary name."""
    return _HALF.fullmatch(path.name) is not None


def sweep(folder: Place, name: str = "") -> None:
    """Remove what killed processes have left half-written in a folder, or under a name there; nobody writes it now."""
    # an object store has no temporary names
    if isinstance(folder, StorePath) or not folder.is_dir():
        return
    for path in folder.iterdir():
        if is_half(path) and name in ("", _HALF.sub(r"\1", path.name)):
            remove_tree(path) if path.is_dir() else path.unlink(missing_ok=True)


def subfolders(folder: Place) -> list[Place]:
    """Return the folders in a folder, sorted."""
    if isinstance(folder, StorePath):
        return [*folder.folders()]
    return sorted(path for path in folder.iterdir() if path.is_dir())


@contextlib.contextmanager
def text_file(target: Place) -> Iterator[TextIO]:
    """Yield a text file that is there, whole and synced, when the block ends without error."""
    if isinstance(target, StorePath):
        with target.upload() as upload:
            text = io.TextIOWrapper(cast(IO[bytes], upload), encoding="utf-8", newline="")
            yield text
            text.flush()
        return
    with _replacing(target, "w", newline="", encoding="utf-8") as file:
        yield cast(TextIO, file)


_HALF = re.compile(r"(.+)\.[0-9a-f]{8}\.(partial|old)", re.DOTALL)
_CAUSES = {
    errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file grew past the allowed size", errno.EACCES: "permission denied",
    errno.EPERM: "permission denied", errno.EROFS: "the file system is read-only",
    errno.ENOENT: "no such file or directory",
}  # fmt: skip


@contextlib.contextmanager
def os_errors_described(doing: str, remedy: str) -> Iterator[None]:
    """Turn an OSError of the block into the StorageError of `describe_os_error`, whose cause it is."""
    try:
        yield
    except DistlsError:  # some are OSErrors too, with a message of their own
        raise
    except OSError as error:
        raise describe_os_error(error, doing, remedy) from error


def describe_os_error(error: OSError, doing: str, remedy: str) -> StorageError:
    """Turn an OSError into the one-line StorageError that says what failed, where, why and what to do."""
    cause = _CAUSES.get(error.errno or 0, error.strerror or str(error))
    where = f" ({error.filename})" if error.filename else ""
    return StorageError(f"{doing}: {cause}{where}; {remedy}")
