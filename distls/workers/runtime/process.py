"""Facts and limits of the process a task runs in."""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import threadpoolctl


@functools.cache
def _blas(*, of_threads: bool) -> list[threadpoolctl.LibController]:
    """Return the BLAS libraries whose number of threads is a thread's own (of OpenMP), or of the process."""
    # Cached: it looks through all loaded libraries.
    found = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
    return [each for each in found if (getattr(each, "threading_layer", "") == "openmp") is of_threads]


Found = list[tuple[threadpoolctl.LibController, int | None]]


def _limited(libraries: list[threadpoolctl.LibController]) -> Found:
    found = [(library, library.get_num_threads()) for library in libraries]
    _set([(library, 1) for library in libraries])
    return found


def _set(numbers: Found) -> None:
    for library, number in numbers:
        # Of a process, threadpoolctl has only the thread set it that did so first, and ignores others.
        free = getattr(library, "clear_controlling_thread", lambda force: None)
        free(force=True)
        if number is not None:
            library.set_num_threads(number)
        free(force=True)


class _OneThread:
    """Limits BLAS to one thread while a thread is within; where that is the process's setting, while any is."""

    def __init__(self) -> None:
        self._lock, self._own = threading.Lock(), threading.local()
        # Threads within, and what the first of them found: the others would find its limit.
        self._inside, self._before = 0, Found()

    def enter(self) -> None:
        self._own.depth = getattr(self._own, "depth", 0) + 1
        if self._own.depth == 1:
            self._own.before = _limited(_blas(of_threads=True))
            with self._lock:
                if self._inside == 0:
                    self._before = _limited(_blas(of_threads=False))
                self._inside += 1

    def leave(self) -> None:
        self._own.depth -= 1
        if self._own.depth == 0:
            _set(self._own.before)
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    _set(self._before)

    def after_fork(self) -> None:
        """Forget other threads: a child does not have them, and one of them may have held the lock."""
        within = getattr(self._own, "depth", 0) > 0
        if self._inside and not within:
            _set(self._before)
        self._lock, self._inside = threading.Lock(), int(within)


_ONE_THREAD = _OneThread()
os.register_at_fork(after_in_child=_ONE_THREAD.after_fork)


@contextlib.contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread: its results differ in the last bits between one thread and two."""
    # Bits must not depend on the number of cores, nor may workers fight for them.
    _ONE_THREAD.enter()
    try:
        yield
    finally:
        _ONE_THREAD.leave()


@contextlib.contextmanager
def task_settings() -> Iterator[None]:
    """Limit BLAS to one thread, and be silent where numbers overflow: a round that diverges says so itself."""
    with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
        yield


def peak_rss() -> int:
    """Return the highest resident size this process has had, in bytes."""
    # not ru_maxrss: a child starts with its parent's, even after exec
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resident_bytes()


def resident_bytes() -> int:
    """Return the resident size of this process now, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def process_name() -> str:
    """Name this process across machines: host and process id."""
    return f"{socket.gethostname()}:{os.getpid()}"
