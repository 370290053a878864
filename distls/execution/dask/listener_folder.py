"""Where the process that workers are forked from listens: a folder that later processes sweep if it was left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from multiprocessing import process, util
from pathlib import Path

from distls.storage.filesystem.private_folder import private_folder, temporary_home

# The name that multiprocessing gives it, in a folder of temporary files.
_PREFIX = "pymp-"
# The address of a socket has at most 108 bytes, of which the names in that folder take some 30.
_LONGEST = 70
# Locks on folders in use, released when this process ends, however it does.
_HELD: list[int] = []


def choose_listener_folder() -> None:
    """Let multiprocessing make its folder of sockets in this user's own folder, and sweep those that nobody holds.

    Nothing changes if it has one already, or there is no such folder.
    """
    if process.current_process()._config.get("tempdir") is not None:  # type: ignore[attr-defined]
        return
    with contextlib.suppress(OSError):
        home = private_folder(temporary_home())
        if len(os.fsencode(home)) > _LONGEST:
            return
        with _locked(home):
            sweep(home)
            _HELD.append(_open(Path(_made_in(home))))
            fcntl.flock(_HELD[-1], fcntl.LOCK_SH)


def _made_in(home: Path) -> str:
    before, tempfile.tempdir = tempfile.tempdir, str(home)
    try:
        return util.get_temp_dir()
    finally:
        tempfile.tempdir = before


def sweep(home: Path) -> None:
    """Remove the folders of processes that were killed."""
    for folder in home.glob(f"{_PREFIX}*"):
        # one that is in use stays
        with contextlib.suppress(OSError), _locked(folder, fcntl.LOCK_NB):
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path, options: int = 0) -> Iterator[None]:
    descriptor = _open(folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | options)
        yield
    finally:
        os.close(descriptor)


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
