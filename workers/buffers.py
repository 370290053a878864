"""Large buffers that ingest tasks borrow, so that a process touches fresh memory once and not in every task.

Page faults on fresh buffers cost as much as a third of an ingest. A pool serves one task at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from distls.storage.chunks import BufferPool

__all__ = ["borrowed_buffers", "release_buffers"]

# Tasks of one process may run in several threads; list.append and list.pop are atomic.
_idle: list[BufferPool] = []


@contextlib.contextmanager
def borrowed_buffers() -> Iterator[BufferPool]:
    """Yield a pool that nobody else uses; what was taken from it is void afterwards."""
    try:
        pool = _idle.pop()
    except IndexError:
        pool = BufferPool()
    try:
        yield pool
    finally:
        _idle.append(pool)


def release_buffers(_: None = None) -> None:
    """Give the memory of this process's idle pools back."""
    _idle.clear()
