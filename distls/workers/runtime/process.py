"""Facts and limits of the process a task runs in."""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import threadpoolctl


@functools.cache
def _blas() -> threadpoolctl.ThreadpoolController:
    # Cached: it looks through all loaded libraries.
    return threadpoolctl.ThreadpoolController().select(user_api="blas")


@contextlib.contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread: its results differ in the last bits between one thread and two."""
    # Bits must not depend on the number of cores, nor may workers fight for them.
    with _blas().limit(limits=1):
        yield


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
