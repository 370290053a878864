"""One writer at a time: a lock that the kernel lets go when its process ends, however it ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from distls.storage.errors import StorageError
from distls.storage.filesystem.paths import Place, StorePath

__all__ = ["DATASET_LOCK", "locked"]

# In a dataset that is being written.
DATASET_LOCK = ".lock"

# Of file systems that know no locks: there everything works as if this process were alone.
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


@contextlib.contextmanager
def locked(path: Place, what: str) -> Iterator[None]:
    """Hold the file `path` as a lock; it is removed at the end.

    Parameters
    ----------
    path : Place
        In a folder that is there. In an object store nothing is locked.
    what : str
        For the error: what is being written.

    Raises
    ------
    StorageError
        Another process holds it; the message names process and host.
    OSError
        The file cannot be made.
    """
    if isinstance(path, StorePath):
        yield  # a store has no locks that a killed process lets go
        return
    file = _acquired(path, what)
    try:
        yield
    finally:
        # while it is held: who opens it from now on makes another
        path.unlink(missing_ok=True)
        file.close()


def _acquired(path: Path, what: str) -> BinaryIO:
    while True:
        file = os.fdopen(_never_through_a_link(path), "a+b")
        try:
            _lock(file, path, what)
            if _is_there(file, path):
                _sign(file)
                return file
        except BaseException:
            file.close()
            raise
        file.close()


def _never_through_a_link(path: Path) -> int:
    # what is opened is written to: in a folder of somebody else it may lead anywhere
    how = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, how, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "a lock that is no file", str(path))
    return descriptor


def _lock(file: BinaryIO, path: Path, what: str) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StorageError(
            f"{what} is being written by {_holder(file)}; wait until it has ended, or stop it ({path})"
        ) from None
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


def _is_there(file: BinaryIO, path: Path) -> bool:
    """Return whether `file` is still the one of that name: its holder may have removed it since it was opened."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def _sign(file: BinaryIO) -> None:
    mine = {"process": os.getpid(), "host": socket.gethostname()}
    file.truncate(0)
    file.write(json.dumps(mine).encode())
    file.flush()


def _holder(file: BinaryIO) -> str:
    file.seek(0)
    try:
        signed: Any = json.loads(file.read(4096))
        return f"process {int(signed['process'])} on {str(signed['host'])[:255]}"
    except (KeyError, TypeError, ValueError):
        return "another process"
