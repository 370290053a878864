"""Facts and limits of the process a task runs in."""

import contextlib
import functools
import os
import resource
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import threadpoolctl


def _blas() -> list[threadpoolctl.LibController]:
    # SciPy has a library of its own, which is loaded when the first product needs it.
    return _loaded_blas("scipy.linalg" in sys.modules)


@functools.cache
def _loaded_blas(_scipy: bool) -> list[threadpoolctl.LibController]:
    # Cached: it looks through all loaded libraries.
    return threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers


# The threads of this process within a task, how often each is, and the numbers of threads that the first one found.
_WITHIN, _FOUND, _LOCK = Counter[int](), dict[threadpoolctl.LibController, int](), threading.Lock()


def _count(step: int) -> None:
    me = threading.get_ident()
    with _LOCK:
        if step > 0 and not _WITHIN:
            _FOUND.update((library, library.get_num_threads() or 1) for library in _blas())
        _WITHIN[me] += step
        if _WITHIN[me] > (step > 0):
            return
        if not _WITHIN[me]:
            del _WITHIN[me]
        for library, number in _FOUND.items():
            # OpenMP has a number for each thread, others one for the process.
            within = me in _WITHIN if getattr(library, "threading_layer", "") == "openmp" else _WITHIN
            # threadpoolctl silently ignores what a thread sets that is not the first
            free = getattr(library, "clear_controlling_thread", lambda force: None)
            free(force=True)
            library.set_num_threads(1 if within else number)
            free(force=True)


def _after_fork() -> None:
    """Forget other threads: a child does not have them, and one of them may have held the lock."""
    global _LOCK
    _LOCK = threading.Lock()
    for other in _WITHIN.keys() - {threading.get_ident()}:
        del _WITHIN[other]
    _count(0)


os.register_at_fork(after_in_child=_after_fork)


@contextlib.contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread: its results differ in the last bits between one thread and two."""
    # Bits must not depend on the number of cores, nor may workers fight for them.
    _count(1)
    try:
        yield
    finally:
        _count(-1)


@contextlib.contextmanager
def task_settings() -> Iterator[None]:
    """Limit BLAS to one thread, and be silent where numbers overflow: a round that diverges says so itself."""
    with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
        yield


def peak_rss() -> int:
    """Return the highest resident size this process has had, in bytes."""
    # not ru_maxrss: a child starts with its parent's, even after exec
    # asked for by every task: in bytes, which takes a fifth of the time
    with open("/proc/self/status", "rb") as file:
        _, found, rest = file.read().partition(b"VmHWM:")
    return int(rest.split(maxsplit=1)[0]) * 1024 if found else resident_bytes()


def resident_bytes() -> int:
    """Return the resident size of this process now, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def process_name() -> str:
    """Name this process across machines: host and process id."""
    return f"{socket.gethostname()}:{os.getpid()}"
