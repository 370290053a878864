"""Partitions one after the other, the next one read and decoded while the current one is worked on.

A process keeps decoded partitions up to a byte budget and evicts nothing within a fit: a least-recently-used
cache would miss every time on cyclic scans. Buffers are kept between calls, because fresh memory costs page
faults that take longer than decoding.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from distls.storage.chunks import BufferPool, KeptBuffers
from distls.storage.dataset import Dataset, open_dataset
from distls.storage.errors import MismatchError
from distls.storage.rows import Partition

__all__ = ["DatasetRef", "Form", "ReadStats", "cached_bytes", "clear_cache", "open_ref", "stream"]


@dataclass(frozen=True)
class DatasetRef:
    """A dataset by name, small enough to send with every task.

    Attributes
    ----------
    path : str
        As every worker sees it.
    fingerprint : str
        Refused when the dataset found there has another one.
    cache_bytes : int
        Decoded bytes of it that a worker process may keep.
    prefetch : bool
        Read ahead in a background thread.
    """

    path: str
    fingerprint: str
    cache_bytes: int = 0
    prefetch: bool = True


@dataclass
class ReadStats:
    """What reading cost.

    Attributes
    ----------
    bytes_read : int
        Stored bytes read from disk.
    cached_bytes : int
        Stored bytes of the partitions that were found in the cache instead.
    wait_seconds : float
        Time the consumer waited for data.
    """

    bytes_read: int = 0
    cached_bytes: int = 0
    wait_seconds: float = 0.0

    def merge(self, other: ReadStats) -> ReadStats:
        """Add another task's costs."""
        return ReadStats(
            self.bytes_read + other.bytes_read,
            self.cached_bytes + other.cached_bytes,
            self.wait_seconds + other.wait_seconds,
        )


class Form(NamedTuple):
    """Another form of partitions, such as fewer columns, made when one is read and kept instead of it.

    Attributes
    ----------
    name : str
        Tells forms of one dataset apart.
    make : callable
        Takes a partition and returns its form, which shares no memory with it.
    """

    name: str
    make: Callable[[Partition], Partition]


Key = tuple[str, int]


@dataclass
class _Cache:
    """Decoded partitions of this process, by (fingerprint, index).

    Attributes
    ----------
    kept : dict of key -> Partition
    claimed : dict of key -> int
        Bytes of the partitions that are kept or being read in order to be kept.
    """

    kept: dict[Key, Partition] = field(default_factory=dict)
    claimed: dict[Key, int] = field(default_factory=dict)
    used: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, fingerprint: str, budget: int) -> None:
        """Shrink to the budget of a new fit: one of an earlier fit may have been larger."""
        with self.lock:
            own = [key for key in reversed(self.kept) if key[0] == fingerprint]
            self._make_room(fingerprint, budget)
            for key in own if self.used > budget else []:
                self._drop(key)
                if self.used <= budget:
                    break

    def claim(self, key: Key, n_bytes: int, budget: int) -> bool:
        """Reserve room for one partition; data sets of earlier fits make way, this one's partitions never do."""
        with self.lock:
            if key in self.claimed or n_bytes > budget:
                return False
            self._make_room(key[0], budget - n_bytes)
            if self.used + n_bytes > budget:
                return False
            self.claimed[key] = n_bytes
            self.used += n_bytes
            return True

    def put(self, key: Key, partition: Partition) -> None:
        """Keep a partition whose room was claimed."""
        self.kept[key] = partition

    def release(self, key: Key) -> None:
        """Give up a claim: the partition could not be read."""
        with self.lock:
            self._drop(key)

    def _make_room(self, fingerprint: str, most: int) -> None:
        """Drop partitions of other data sets, oldest first, until at most `most` bytes are used."""
        for key in [key for key in self.kept if key[0] != fingerprint] if self.used > most else []:
            self._drop(key)
            if self.used <= most:
                break

    def _drop(self, key: Key) -> None:
        self.kept.pop(key, None)
        self.used -= self.claimed.pop(key)


_CACHE = _Cache()
_LOCAL = threading.local()


def cached_bytes() -> int:
    """Return the decoded bytes this process keeps."""
    return _CACHE.used


def clear_cache() -> None:
    """Forget all decoded partitions and buffers of this thread."""
    global _CACHE
    _CACHE = _Cache()
    _LOCAL.__dict__.clear()


def open_ref(ref: DatasetRef) -> Dataset:
    """Open the referred dataset, once a process.

    Raises
    ------
    MismatchError
        Another dataset is there now.
    """
    dataset = _open(ref.path, ref.fingerprint)
    if dataset.fingerprint != ref.fingerprint:
        _open.cache_clear()
        raise MismatchError(
            f"{ref.path}: its fingerprint is {dataset.fingerprint[:12]}, the job expects {ref.fingerprint[:12]}; "
            "the data set was replaced, or this worker sees another file system"
        )
    return dataset


@functools.lru_cache(maxsize=16)
def _open(path: str, _fingerprint: str) -> Dataset:
    return open_dataset(Path(path))


def _load(
    dataset: Dataset, ref: DatasetRef, index: int, pool: BufferPool, form: Form | None
) -> tuple[Partition, bool]:
    """Return a partition and whether it came from the cache."""
    cache, key = _CACHE, _key(ref, index, form)
    kept = cache.kept.get(key)
    if kept is not None:
        return kept, True
    if form is not None:
        made = form.make(dataset.read(index, pool))
        if ref.cache_bytes and cache.claim(key, _bytes_of(made), ref.cache_bytes):
            cache.put(key, made)
        return made, False
    if ref.cache_bytes and cache.claim(key, int(dataset.decoded_bytes[index]), ref.cache_bytes):
        try:
            partition = dataset.read(index, KeptBuffers(scratch=pool))
        except BaseException:
            cache.release(key)
            raise
        cache.put(key, partition)
        return partition, False
    return dataset.read(index, pool), False


def _key(ref: DatasetRef, index: int, form: Form | None) -> Key:
    return ref.fingerprint if form is None else f"{ref.fingerprint} {form.name}", index


def _bytes_of(part: Partition) -> int:
    targets = part.y if isinstance(part.y, tuple) else (part.y,)
    return sum(array.nbytes for array in (*part.x, *targets, part.sample_weight) if array is not None)


@contextlib.contextmanager
def _borrowed_pools() -> Iterator[tuple[BufferPool, BufferPool]]:
    """Take this thread's two buffers, one being worked on, one being filled; a stream within a stream gets its own."""
    pools = _LOCAL.__dict__.pop("pools", None) or (BufferPool(), BufferPool())
    try:
        yield pools
    finally:
        _LOCAL.pools = pools


def stream(
    ref: DatasetRef, indices: Sequence[int], stats: ReadStats, form: Form | None = None
) -> Iterator[tuple[int, Partition]]:
    """Yield (index, partition) in the order of `indices`, reading ahead by one.

    A partition's arrays are valid until the next one is asked for, when they are filled anew. With a `form` it is
    that of the partitions.
    """
    dataset = open_ref(ref)
    if ref.cache_bytes:
        _CACHE.start(_key(ref, 0, form)[0], ref.cache_bytes)
    with _borrowed_pools() as pools, ThreadPoolExecutor(1, thread_name_prefix="distls-read") as reader:
        ahead: Future[tuple[Partition, bool]] | None = None
        for place, index in enumerate(indices):
            started = time.perf_counter()
            partition, hit = (
                ahead.result() if ahead is not None else _load(dataset, ref, index, pools[place % 2], form)
            )
            stats.wait_seconds += time.perf_counter() - started
            size = int(dataset.stored_bytes[index])
            stats.cached_bytes += size * hit
            stats.bytes_read += size * (not hit)
            following = indices[place + 1] if place + 1 < len(indices) else None
            ahead = None
            if ref.prefetch and following is not None and _key(ref, following, form) not in _CACHE.kept:
                ahead = reader.submit(_load, dataset, ref, following, pools[(place + 1) % 2], form)
            yield index, partition
