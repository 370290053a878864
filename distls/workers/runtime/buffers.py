"""Large buffers that tasks borrow: page faults on fresh memory in every task cost as much as a third of an ingest."""

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.chunks import BufferPool

# Tasks of one process may run in several threads; list.append and list.pop are atomic.
_idle: defaultdict[str, list[BufferPool]] = defaultdict(list)
job_memory: dict[str, Any] = {}  # what the tasks of a job leave for later ones, by its name


@contextlib.contextmanager
def borrowed_buffers(kind: str = "") -> Iterator[BufferPool]:
    """Yield a pool of that kind for exclusive use; arrays taken from it are invalid afterwards."""
    # one list for each kind of buffers: a task that borrows two pools would otherwise fill both with all of them
    try:
        pool = _idle[kind].pop()
    except IndexError:
        pool = BufferPool()
    try:
        yield pool
    finally:
        _idle[kind].append(pool)


def release_buffers(_: None = None) -> None:
    """Release the memory of this process's idle pools, and what the tasks of a job have kept."""
    _idle.clear()
    job_memory.clear()


def take(buffers: BufferPool, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an array in one of the buffers."""
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    return buffers.take(name, n_bytes).view(dtype).reshape(shape)
