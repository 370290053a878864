"""Streams of blocks: the next one is read and decoded while the current one is processed.

Blocks are the partitions of a dataset or its column shards; both share one cache and one budget, and neither evicts
the other.
"""

import contextlib
import copy
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from distls.storage.dataset.chunks import BufferPool, KeptBuffers
from distls.storage.dataset.column_shards import ColumnShards
from distls.storage.dataset.dataset import Dataset, Fold, open_dataset
from distls.storage.dataset.one_row import one_row_fingerprint, one_row_of
from distls.storage.errors import MismatchError
from distls.storage.rows import ColumnShard, Partition
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.row_weights import seen_in_fold


@dataclass(frozen=True)
class DatasetRef:
    """A dataset by name, small enough to send with every task."""

    path: str  # as every worker sees it
    fingerprint: str  # a dataset with another one is refused
    cache_bytes: int = 0  # decoded bytes of partitions and column shards that a worker process may keep
    prefetch: bool = True  # read ahead in a background thread
    columns: str = ""  # digest of the column shards, others are refused; empty: they are not read
    fold: Fold | None = None  # the view of the rows that `stream` gives
    beside: bool = False  # forms are kept beside its partitions; other data sets' reads let them go
    standardized: bool = False  # the view whose columns and targets are
    one_row: int = 0  # features of the one row that stands for the data, see `like`; 0: the data themselves

    @classmethod
    def of(cls, dataset: Dataset, cache_bytes: int = 0, columns: str = "") -> Self:
        """Return the reference to an open data set, or to the view of a fold, and to its column shards."""
        path = str(dataset.path.absolute())
        standardized = dataset.standardization is not None
        return cls(
            path, dataset.fingerprint, cache_bytes, columns=columns, fold=dataset.fold, standardized=standardized
        )

    @property
    def owner(self) -> str:
        """Whose partitions the cache keeps."""
        return f"{self.fingerprint} standardized" if self.standardized else self.fingerprint

    @property
    def whole(self) -> Self:
        """The same data, with the rows of all folds."""
        return self if self.fold is None else replace(self, fold=None)

    def uncached(self) -> Self:
        """Return the same data, of which nothing is kept or read ahead."""
        return replace(self, cache_bytes=0, prefetch=False)

    def like(self, n_features: int = 1) -> Self:
        """Return data of the same types, of one row of so many features, on which kernels are compiled."""
        own = one_row_fingerprint(self.fingerprint, n_features)
        return replace(self.uncached(), fingerprint=own, fold=None, standardized=False, one_row=n_features)


class Form(NamedTuple):
    """Another form of partitions, such as fewer columns, made when one is read and kept instead of it."""

    name: str  # distinguishes forms of one dataset
    make: Callable[[Partition], Partition]  # returns a partition's form, which shares no memory with it
    # kept beside whole partitions, which are read in the same rounds and make way for it, as it is smaller
    beside: bool = False


class _Beside(NamedTuple):
    """Of the key of such a form."""

    name: str
    number: int


# fingerprint (and form, if any), and the number of a partition, or digest and number of a column shard
Key = tuple[str, int | tuple[str, int] | _Beside]


def _evictable_for(kept: Key, wanted: Key, forms: bool) -> bool:
    """Return whether a block may be evicted for another: one of another dataset, or a shard of a replaced cut.

    `forms` says that a fit reads them beside whole partitions, which make way for them; others have no use for them.
    """
    old, new = kept[1], wanted[1]
    if kept[0] != wanted[0] or isinstance(old, int):
        return kept[0] != wanted[0] or isinstance(new, _Beside)
    return old[0] != new[0] if isinstance(new, tuple) else isinstance(old, _Beside) and not forms


@dataclass
class _Cache:
    """Decoded blocks of this process, up to a budget of bytes."""

    # nothing is evicted within a fit: a least-recently-used cache would miss every time on cyclic scans

    kept: dict[Key, Any] = field(default_factory=dict)  # partitions and column shards
    # bytes of the blocks that are kept or being read in order to be kept
    claimed: dict[Key, int] = field(default_factory=dict)
    used: int = 0
    forms: bool = False  # whether the newest reads are of a fit with forms beside whole partitions
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, first: Key, budget: int, forms: bool) -> None:
        """Shrink to the budget of a new fit, whose first block is `first`."""
        with self.lock:
            self.forms = forms
            own = [key for key in reversed(self.kept) if not _evictable_for(key, first, forms)]
            self._make_room(first, budget)
            # the budget of an earlier fit to the same data may have been larger
            # Newest first: a cyclic pass meets the oldest ones soonest again.
            for key in own if self.used > budget else []:
                self._drop(key)
                if self.used <= budget:
                    break

    def claim(self, key: Key, n_bytes: int, budget: int) -> bool:
        """Reserve room for one block; blocks of earlier fits' data sets are evicted, those of this one never."""
        with self.lock:
            # Another thread reads this block already, or it alone is too large.
            if key in self.claimed or n_bytes > budget:
                return False
            self._make_room(key, budget - n_bytes)
            if self.used + n_bytes > budget:
                return False
            # Claimed before it is read, so that two threads do not both take the last room.
            self.claimed[key] = n_bytes
            self.used += n_bytes
            return True

    def put(self, key: Key, block: Any) -> None:
        self.kept[key] = block

    def release(self, key: Key) -> None:
        """Release the claim of a block that could not be read."""
        with self.lock:
            self._drop(key)

    def _make_room(self, wanted: Key, most: int) -> None:
        """Evict blocks for `wanted`, oldest first, until at most `most` bytes are used."""
        evictable = [key for key in self.kept if self.used > most and _evictable_for(key, wanted, self.forms)]
        # A form that is read no more goes before partitions.
        for key in sorted(evictable, key=lambda key: isinstance(key[1], int)):
            self._drop(key)
            if self.used <= most:
                # No more than is needed: what stays may be used by the next fit.
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
    """Forget all decoded blocks and buffers of this thread."""
    global _CACHE
    _CACHE = _Cache()
    _LOCAL.__dict__.clear()


def open_ref(ref: DatasetRef) -> Dataset:
    """Open the referred dataset, once a process; raise MismatchError if another dataset is there now."""
    # By path and fingerprint: a dataset that was replaced is opened anew.
    dataset = _open(ref.path, ref.fingerprint, ref.one_row)
    if dataset.fingerprint != ref.fingerprint:
        _open.cache_clear()
        raise MismatchError(
            f"{ref.path}: its fingerprint is {dataset.fingerprint[:12]}, the job expects {ref.fingerprint[:12]}; "
            "the data set was replaced, or this worker sees another file system"
        )
    return dataset.standardized if ref.standardized else dataset


@functools.lru_cache(maxsize=16)
def _open(path: str, fingerprint: str, one_row: int) -> Dataset:
    if one_row:
        return one_row_of(_open(path, fingerprint.partition(",")[0], 0), one_row)
    return open_dataset(path)


def open_columns_of(ref: DatasetRef) -> ColumnShards:
    """Open the referred dataset's column shards, once a process; raises as `columns_of`."""
    try:
        return columns_of(open_ref(ref), ref)
    except MismatchError:
        # they may have been added, or cut again, since this process opened the dataset
        _open.cache_clear()
        return columns_of(open_ref(ref), ref)


def columns_of(dataset: Dataset, ref: DatasetRef) -> ColumnShards:
    """Return the column shards of an open dataset.

    Raises MismatchError if there are none, or others than those that the job began with.
    """
    shards = dataset.columns
    if shards is None or shards.digest != ref.columns:
        found = "none" if shards is None else f"those with digest {shards.digest[:12]}"
        raise MismatchError(
            f"{ref.path}: the job expects column shards with digest {ref.columns[:12]}, there are {found}; they were "
            "replaced or removed, or this worker sees another file system"
        )
    return shards


Blocks = Dataset | ColumnShards


def _load(blocks: Blocks, key: Key, index: int, budget: int, pool: BufferPool, form: Form | None) -> tuple[Any, bool]:
    """Return a block and whether it came from the cache."""
    cache = _CACHE
    kept = cache.kept.get(key)
    if kept is not None:
        return kept, True
    if form is not None:
        assert isinstance(blocks, Dataset)
        # A form is kept instead of the partition it is made of, which may be there too.
        whole = cache.kept.get((key[0], index))
        made = form.make(blocks.read(index, pool) if whole is None else whole)
        if budget and cache.claim(key, _bytes_of(made), budget):
            cache.put(key, made)
        return made, whole is not None
    if budget and cache.claim(key, int(blocks.decoded_bytes[index]), budget):
        # Buffers of its own, as the pool's are overwritten by the next block.
        try:
            block = blocks.read(index, KeptBuffers(scratch=pool))
        except BaseException:
            cache.release(key)
            raise
        cache.put(key, block)
        return block, False
    return blocks.read(index, pool), False


def _bytes_of(part: Partition) -> int:
    targets = part.y if isinstance(part.y, tuple) else (part.y,)
    return sum(array.nbytes for array in (*part.x, *targets, part.sample_weight) if array is not None)


@contextlib.contextmanager
def _borrowed_pools() -> Iterator[tuple[BufferPool, BufferPool]]:
    """Borrow this thread's two buffers, one being processed, one being filled."""
    # kept between calls: page faults on fresh memory take longer than decoding. A stream within a stream gets its own
    pools = _LOCAL.__dict__.pop("pools", None) or (BufferPool(), BufferPool())
    try:
        yield pools
    finally:
        _LOCAL.pools = pools


def stream(
    ref: DatasetRef, indices: Sequence[int], ledger: Ledger | None = None, form: Form | None = None
) -> Iterator[tuple[int, Partition]]:
    """Yield (index, partition) in the order of `indices`, reading ahead by one.

    A partition's arrays are valid until the next one is requested, when their memory is reused. With a `form`,
    partitions have that form. The costs of reading are entered into the ledger.
    """
    owner = ref.owner if form is None or form.beside else f"{ref.owner} {form.name}"
    own = functools.partial(_Beside, form.name) if form is not None and form.beside else int
    keys = [(owner, own(index)) for index in indices]
    parts = _stream(open_ref(ref), ref, keys, indices, ledger or Ledger(), form)
    fold = ref.fold
    # all folds share the cached partitions
    return parts if fold is None else ((index, seen_in_fold(part, fold)) for index, part in parts)


def held(ref: DatasetRef, index: int, part: Partition) -> Partition:
    """Return a partition that `stream` has given, to be kept: that of the cache, else a copy."""
    return part if (ref.owner, index) in _CACHE.kept else copy.deepcopy(part)


def stream_columns(
    ref: DatasetRef, indices: Sequence[int], ledger: Ledger | None = None
) -> Iterator[tuple[int, ColumnShard]]:
    """Yield (index, column shard) in the order of `indices`, as `stream` yields partitions."""
    keys: list[Key] = [(ref.fingerprint, (ref.columns, index)) for index in indices]
    return _stream(open_columns_of(ref), ref, keys, indices, ledger or Ledger(), None)


def _stream(
    blocks: Blocks, ref: DatasetRef, keys: Sequence[Key], indices: Sequence[int], ledger: Ledger, form: Form | None
) -> Iterator[tuple[int, Any]]:
    """Yield (index, block) for each of `indices`, known to the cache as `keys`."""
    budget = ref.cache_bytes
    # The cache shrinks before the first block is read: plans do not add up.
    if budget and keys:
        _CACHE.start(keys[0], budget, ref.beside)
    # One thread reads ahead: two buffers are enough, and no more blocks are in memory than planned.
    with _borrowed_pools() as pools, ThreadPoolExecutor(1, thread_name_prefix="distls-read") as reader:
        ahead: Future[tuple[Any, bool]] | None = None
        for place, (key, index) in enumerate(zip(keys, indices, strict=True)):
            started = time.perf_counter()
            # An error of the reader is raised here, where the block is due.
            block, hit = (
                ahead.result() if ahead is not None else _load(blocks, key, index, budget, pools[place % 2], form)
            )
            ledger.wait_seconds += time.perf_counter() - started
            # Stored bytes, whether read or cached: passes are counted in them.
            size = int(blocks.stored_bytes[index])
            ledger.cached_bytes += size * hit
            ledger.bytes_read += size * (not hit)
            ahead = None
            following = place + 1
            # A cached block needs no reading ahead.
            if ref.prefetch and following < len(keys) and keys[following] not in _CACHE.kept:
                pool = pools[following % 2]
                ahead = reader.submit(_load, blocks, keys[following], indices[following], budget, pool, form)
            yield index, block
