"""Temporary folders, in memory where their files are small: a disk takes long to sync and to remove them.

Each is locked while it is in use: a later process sweeps those that nobody holds.
"""

import contextlib
import fcntl
import functools
import os
import platform
import shutil
import tempfile
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path

from distls.storage.errors import ParameterError
from distls.storage.filesystem.atomic import remove_tree
from distls.storage.filesystem.paths import Place, StorePath, place_of

# Environment variable: a folder, or the URL of an object store, that all workers reach.
SHARED_VARIABLE = "DISTLS_TEMPORARY"

# A file system of Linux that is in memory.
_MEMORY = Path("/dev/shm")
LARGEST_IN_MEMORY = 32 * 2**20
# How much more room than for the files themselves there must be: they are staged, and replaced by copies.
_ROOM = 6


@contextlib.contextmanager
def temporary_folder(prefix: str, n_bytes: float | None) -> Iterator[Path]:
    """Yield a new folder for this user alone, removed at the end, for files of about `n_bytes`; None: of any size.

    Only this process, and others on this machine, may need what is in it.
    """
    # Memory is for small files only, and with room to spare.
    if n_bytes is None or n_bytes > LARGEST_IN_MEMORY or not _has_room(n_bytes):
        home, own = Path(tempfile.gettempdir()), _own_here()
    else:
        home, own = _MEMORY, _own()
    with _swept_folder(home, own, prefix) as path:
        yield path


@contextlib.contextmanager
def temporary_place(prefix: str, n_bytes: float, *, shared: bool) -> Iterator[Place]:
    """Yield what `temporary_folder` does; `shared` is for files that workers read, perhaps on other machines.

    Raises
    ------
    ParameterError
        The environment names a folder for shared files that does not exist.
    """
    named = os.environ.get(SHARED_VARIABLE) if shared else None
    if not named:
        with temporary_folder(prefix, None if shared else n_bytes) as path:
            yield path
        return
    home = place_of(named)
    if isinstance(home, StorePath):
        place = home / f"{_own()}{prefix}{uuid.uuid4().hex[:12]}"
        try:
            yield place
        finally:
            remove_tree(place)
    elif not home.is_dir():
        raise ParameterError(f"{SHARED_VARIABLE}={named}: no such folder")
    else:
        with _swept_folder(home.absolute(), _own_here(), prefix) as path:
            yield path


@contextlib.contextmanager
def _swept_folder(home: Path, own: str, prefix: str) -> Iterator[Path]:
    # machines that share a folder may not see each other's locks: each sweeps its own
    # Swept before the own folder is made, which must not be among those found.
    _sweep(home, own)
    path, lock = _locked_folder(home, own + prefix)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _has_room(n_bytes: float) -> bool:
    try:
        if not os.access(_MEMORY, os.R_OK | os.W_OK | os.X_OK):
            return False
        found = os.statvfs(_MEMORY)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= _ROOM * n_bytes


def _locked_folder(home: Path, prefix: str) -> tuple[Path, int]:
    """Make a folder and lock it, so that it is not taken for what a killed process has left."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=home))
        with contextlib.suppress(FileNotFoundError):
            lock = open_folder(path)
            # without locks nothing is swept either
            with contextlib.suppress(OSError):
                # A sweep waits for no lock, so this one is soon free.
                fcntl.flock(lock, fcntl.LOCK_EX)
            if path.is_dir():
                return path, lock
            os.close(lock)  # it was swept before it was locked


def _own() -> str:
    return f"distls-{os.geteuid()}-"


def _own_here() -> str:
    return f"{_own()}{zlib.crc32(platform.node().encode()):08x}-"


def open_folder(path: Path) -> int:
    """Open a folder, by which it can be locked."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)


@contextlib.contextmanager
def held_folder(path: Path, options: int = 0) -> Iterator[int]:
    """Hold the lock on a folder, and yield its descriptor; with `fcntl.LOCK_NB` raise OSError if another has it."""
    descriptor = open_folder(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | options)
        yield descriptor
    finally:
        os.close(descriptor)


def sweep_folders(home: Path, prefix: str) -> None:
    """Remove what killed processes of this user have left in a folder: the folders in it that nobody holds."""
    for path in home.glob(f"{prefix}*"):
        with contextlib.suppress(OSError), held_folder(path, fcntl.LOCK_NB) as descriptor:
            # Other users may make folders with such a name in a shared place.
            if os.fstat(descriptor).st_uid == os.geteuid():
                shutil.rmtree(path, ignore_errors=True)


_sweep = functools.cache(sweep_folders)  # once in a process
