"""Where compiled kernels are kept: outside of the kernels' own folder, so that a change here compiles none anew."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from distls.storage.private import NotPrivateError, private_folder, temporary_home

__all__ = ["cache_folder"]


def cache_folder(name: str) -> str | None:
    """Return the first home of compiled kernels that can be written; None if there is none, or others can too.

    NUMBA_CACHE_DIR, the user's cache folder, a temporary one. Numba loads with pickle what it finds there: who
    writes there runs programs as this user.

    Parameters
    ----------
    name : str
        Of the folder for this version of the kernels.
    """
    if os.environ.get("DISTLS_NUMBA_CACHE", "1") == "0":
        return None
    try:
        return next(filter(None, (_writable(home, name) for home in _homes())), None)
    except NotPrivateError as error:
        remedy = "compiled kernels are not kept; set NUMBA_CACHE_DIR to a folder of your own"
        # without a line of the source, which would be a second one on the terminal
        warnings.warn_explicit(f"{error}; {remedy}", UserWarning, "distls", 0, module=__name__)
        return None


def _homes() -> list[Path]:
    named = [os.environ.get("NUMBA_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME"), str(Path.home() / ".cache")]
    return [*(Path(root) / "distls" for root in filter(None, named)), temporary_home()]


def _writable(home: Path, name: str) -> str | None:
    try:
        path = private_folder(private_folder(home) / name)
    except NotPrivateError:
        raise
    except OSError:
        return None
    return str(path) if os.access(path, os.W_OK) else None
