"""File locks for a single writer, released by the kernel when the process ends, however it ends."""

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

DATASET_LOCK = ".lock"  # in a dataset that is being written

_SIGNED = b'{"process": '  # how a lock begins, unless it is empty
# errors of file systems without locks, where this process is assumed to be alone
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


@contextlib.contextmanager
def locked(path: Place, what: str) -> Iterator[None]:
    """Hold the file `path` as a lock on `what`; it is removed at the end.

    Raises StorageError, naming process and host, if another process holds it.
    """
    if isinstance(path, StorePath):
        yield  # an object store has no locks that a killed process releases
        return
    file = _acquired(path, what)
    try:
        yield
    finally:
        # while it is held: a process that opens it later creates another file
        path.unlink(missing_ok=True)
        file.close()


def is_held(path: Place) -> bool:
    """Return whether a process may hold the lock `path`; of an object store or another host this is assumed."""
    if isinstance(path, StorePath):
        return True
    try:
        # reading it, not trying the lock: a fit that starts right now must not find it taken
        with path.open("rb") as file:
            signed: Any = json.loads(file.read(4096))
        process, host = int(signed["process"]), signed["host"]
    except FileNotFoundError:
        return False
    except (KeyError, OSError, RecursionError, TypeError, ValueError):
        return True
    if host != socket.gethostname():
        return True
    # Signal 0 asks whether the process exists, and does nothing.
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return True


def _acquired(path: Path, what: str) -> BinaryIO:
    while True:
        file = os.fdopen(_open_without_links(path), "a+b")
        try:
            _lock(file, path, what)
            # The holder may have removed the file between opening and locking: then the lock is on no name.
            if _is_there(file, path):
                _sign(file, path)
                return file
        except BaseException:
            file.close()
            raise
        file.close()


def _open_without_links(path: Path) -> int:
    # the file is written to: a link in another user's folder may lead anywhere
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
    """Return whether `file` is still the one of that name."""
    # its holder may have removed it since it was opened
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def _sign(file: BinaryIO, path: Path) -> None:
    """Write who holds the lock; refuse a file of another program under that name, which would be emptied."""
    file.seek(0)
    if not _SIGNED.startswith(file.read(len(_SIGNED))):
        raise StorageError(f"{path}: not a lock of distls; move that file elsewhere")
    mine = {"process": os.getpid(), "host": socket.gethostname()}
    # For messages and `is_held`: the lock itself is the kernel's.
    file.truncate(0)
    file.write(json.dumps(mine).encode())
    file.flush()


def _holder(file: BinaryIO) -> str:
    file.seek(0)
    try:
        signed: Any = json.loads(file.read(4096))
        return f"process {int(signed['process'])} on {str(signed['host'])[:255]}"
    except (KeyError, RecursionError, TypeError, ValueError):
        return "another process"
