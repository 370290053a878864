"""Folders that no other user can write to."""

import os
import stat
import tempfile
from pathlib import Path

from distls.storage.errors import StorageError


class NotPrivateError(StorageError):
    """Other users can write to a folder."""


def private_folder(path: Path) -> Path:
    """Create a folder for this user alone, or check an existing one; return its real path.

    Raises NotPrivateError if it belongs to another user, or others can write to it or replace it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    # Checked at the real path: a link may lead anywhere.
    real = path.resolve(strict=True)
    status = real.stat()
    if status.st_uid != os.geteuid():
        raise NotPrivateError(f"{path} belongs to another user")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NotPrivateError(f"other users can write to {path}")
    # Whoever can rename a parent can put another folder in its place.
    for parent in real.parents:
        if _anyone_can_replace_in(parent):
            raise NotPrivateError(f"other users can replace {path}: they can write to {parent}")
    return real


def _anyone_can_replace_in(folder: Path) -> bool:
    """Return whether others can rename what is in a folder; in a sticky one, like /tmp, only its owner can."""
    status = folder.stat()
    if not status.st_mode & stat.S_IWOTH:
        return False
    trusted = {os.geteuid(), 0, Path("/").stat().st_uid}
    return not status.st_mode & stat.S_ISVTX or status.st_uid not in trusted


def temporary_home() -> Path:
    """Return the name of this user's own folder among the temporary ones; `private_folder` makes it."""
    return Path(tempfile.gettempdir()) / f"distls-{os.geteuid()}"
