"""The one decorator of all kernels.

Numba's disk cache does not notice a change in another file that a kernel calls into, so the cache lives in
a folder named by a digest of all kernel sources: any edit starts a fresh one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

from distls.storage import rows
from distls.workers.caching import cache_folder

__all__ = ["elementwise", "kernel"]

F = TypeVar("F", bound=Callable[..., Any])

# NaN and infinity must survive (divergence is detected by them), so `nnan` and `ninf` stay out.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}
# Without "reassoc", which would undo the reduction of an argument by adding and subtracting a constant.
ELEMENTWISE = {"contract", "nsz"}


def _sources_digest() -> str:
    digest = hashlib.sha256()
    kernels = Path(__file__).parent
    # losses and penalties are compiled into kernels, and the order of the fields of rows is part of their types
    beside = [kernels.parent / "losses.py", kernels.parent / "penalties.py", Path(rows.__file__)]
    for path in [*sorted(kernels.glob("*.py")), *beside]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


_CACHE_DIR = cache_folder(f"numba-{_sources_digest()}")


def kernel(function: F) -> F:
    """Compile `function` without the GIL, with division by zero as in NumPy, cached on disk when possible."""
    return _compiled(function, FASTMATH)


def elementwise(function: F) -> F:
    """Compile as `kernel` does, but for sums, which keep the order they are written in."""
    return _compiled(function, ELEMENTWISE)


def _compiled(function: F, fastmath: set[str]) -> F:
    previous = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = _CACHE_DIR or previous
    try:
        # Inlined wherever it is called. A function of its own is optimised once more with each caller that is kept on
        # disk: the process that has compiled it would run another version, with other sums, than those that load it.
        return numba.njit(
            forceinline=True, nogil=True, cache=_CACHE_DIR is not None, fastmath=fastmath, error_model="numpy"
        )(function)
    finally:
        numba.config.CACHE_DIR = previous
