"""Column shards of a dataset: plan and driver of the out-of-core transposition.

Groups of partitions are read once and written by columns (step 1). Their counts of values per column determine the
shards, of about equal size; each shard is assembled from one range of every group (step 2) and all appear by a single
rename. Files are whole or absent, so that the same call resumes a killed one.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from distls.execution import executor_of, memory_of
from distls.execution.executor import Executor
from distls.execution.memory_budget import MIB, MemoryBudget, human
from distls.long_calls import Workers, long_call
from distls.memory_plan import BASE_BYTES, SLACK, check_workers
from distls.storage.dataset.column_shards import ColumnShards, ShardRecord, choose_codec, publish_columns
from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.storage.errors import MemoryPlanError, MismatchError, ParameterError
from distls.storage.filesystem.paths import Place
from distls.storage.filesystem.safe_read import as_format_error, refuse_links
from distls.storage.rows import index_dtype
from distls.storage.temporary.transpose_spill import SpillArea
from distls.workers.columns.transpose_task import (
    Bundle,
    RowGroup,
    TransposeSpec,
    column_counts_of,
    turn_group,
    write_bundle,
)
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import DEFAULT_LANES
from distls.workers.runtime.buffers import release_buffers

Progress = Callable[[int, int, str], None]

DEFAULT_SHARD_BYTES = 16 * MIB
_READ_BYTES = 2**18  # a shorter read is dominated by its overhead
_COPIES = 3  # a task holds its input, its output, and the encoded form of one of them


@long_call
def add_columns(
    dataset: str | Place,
    *,
    shard_size: int | None = None,
    executor: Any = None,
    memory: MemoryBudget | None = None,
    progress: Any = None,
    **workers: Unpack[Workers],
) -> Dataset:
    """Add column shards to a dataset, for coordinate descent: its columns over all rows, in blocks.

    The shards are a function of the dataset and of `shard_size`: the same bits with any executor. The dataset
    remains what it was, its fingerprint too. After a crash, the same call resumes.

    Parameters
    ----------
    dataset : path
    shard_size : int, optional
        Decoded bytes of a shard, about; a shard has one column at least, and there are eight shards at least where
        there are as many columns. Default: that of shards that are half made, else of those that are there, else
        16 MiB. Shards of another size are replaced in one act.
    executor : Executor, Client or {"auto", "serial", "dask"}, optional
        Where the work is done; see `distls.fit`.
    memory : MemoryBudget, optional
        Of a worker; by default what a cluster's own workers say, else half of what is free here.
    progress : callable or bool, optional
        Called with (bytes done, bytes in all, stage). Default, in notebooks, and True: a bar.

    Returns
    -------
    Dataset
        With `Dataset.columns`.

    Raises
    ------
    MemoryPlanError
        A partition, or a shard, does not fit into the memory of a worker.
    ParameterError
        `shard_size` is not positive, or the dataset has more than 2^32 rows.
    CorruptDataError
        A partition is damaged.
    WorkerError
        A worker does not see the dataset or cannot write there.
    StorageError
        The disk is full, or the like; then the same call resumes. Or another process is adding them.
    """
    data = open_dataset(dataset)
    runner = executor_of(executor)
    budget = memory or memory_of(runner)
    if check_columns(data, shard_size, budget) is None:
        spill = SpillArea(data.path)
        with spill.guard(), spill.held():
            data = open_dataset(dataset)  # another process may have added them meanwhile
            if check_columns(data, shard_size, budget) is None:
                size = _wanted_size(data, shard_size)
                _Transposition(data, size, runner, budget, progress or _silent).run()
    return open_dataset(dataset)


def check_columns(dataset: Dataset, shard_size: int | None, memory: MemoryBudget | None) -> ColumnShards | None:
    """Return the column shards if they exist as requested; else check that they can be made.

    Raises as `add_columns`; the memory is not checked if `memory` is None.
    """
    if shard_size is not None and shard_size < 1:
        raise ParameterError(f"shard_size must be at least 1 byte, not {shard_size}")
    if dataset.meta.n_rows > 2**32:
        raise ParameterError(f"{dataset.path}: {dataset.meta.n_rows} rows; column shards number at most 2^32")
    there = _columns_of(dataset)
    if there is not None and there.shard_size == _wanted_size(dataset, shard_size):
        SpillArea(dataset.path).sweep()
        return there
    if memory is not None:
        largest = int(dataset.decoded_bytes.max(initial=0))
        _Room(dataset, memory).check(largest, "a partition", "ingest again with a smaller --partition-size")
    return None


def _columns_of(dataset: Dataset) -> ColumnShards | None:
    try:
        return dataset.columns
    except MismatchError:  # shards of another dataset are replaced
        return None


def _wanted_size(dataset: Dataset, shard_size: int | None) -> int:
    """Return the requested shard size, or the default described in `add_columns`."""
    if shard_size is not None:
        return shard_size
    unfinished, there = SpillArea(dataset.path).read_plan() or {}, _columns_of(dataset)
    if unfinished.get("fingerprint") == dataset.fingerprint:
        return int(unfinished["shard_size"])
    return DEFAULT_SHARD_BYTES if there is None else there.shard_size


def _silent(done: int, total: int, stage: str) -> None:
    pass


# -- the plan --------------------------------------------------------------------------------------------


def cut_columns(n_bytes: NDArray[np.int64], shard_size: int) -> NDArray[np.int64]:
    """Cut columns of `n_bytes` (int64, decoded) into shards of about equal bytes, at least one column each.

    Shard k of the returned int64 array `cuts` has the columns cuts[k] to cuts[k + 1] - 1.
    """
    n, ends = len(n_bytes), np.concatenate([[0], np.cumsum(n_bytes)])
    wanted = min(max(-(-int(ends[-1]) // shard_size), DEFAULT_LANES), n)
    cuts = [0]
    for left in range(wanted, 1, -1):
        # a goal from the remaining bytes: a huge column does not starve the shards after it
        goal = ends[cuts[-1]] + (ends[-1] - ends[cuts[-1]]) // left
        stop = int(np.searchsorted(ends, goal))
        stop -= bool(goal - ends[stop - 1] < ends[stop] - goal)  # the nearer end
        # at least one column here, and one for each shard that is left
        cuts.append(min(max(stop, cuts[-1] + 1), n - left + 1))
    return np.array([*cuts, n] if n else cuts, dtype=np.int64)


def _runs(sizes: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Cut a sequence into runs (start, stop) that sum to at most `most`, or have a single element."""
    bounds, total = [0], 0
    for place, size in enumerate(sizes):
        if total + size > most and place > bounds[-1]:
            bounds.append(place)
            total = 0
        total += size
    return list(pairwise([*bounds, len(sizes)])) if sizes else []


@dataclass(frozen=True)
class _Room:
    """The memory of a worker."""

    dataset: Dataset
    budget: MemoryBudget

    def needed(self, n_bytes: int) -> int:
        """Return the bytes a worker needs if each task holds `n_bytes` of rows or columns."""
        return BASE_BYTES + self.budget.threads * int(SLACK * _COPIES * n_bytes + 3 * self._index)

    @property
    def _index(self) -> int:
        """Bytes of a group's column offsets."""
        meta = self.dataset.meta
        return 0 if meta.layout == "dense" else 8 * (meta.n_features + 1)

    def check(self, n_bytes: int, what: str, remedy: str) -> None:
        """Raise MemoryPlanError for `n_bytes` that do not fit."""
        needed, budget = self.needed(n_bytes), self.budget
        if needed <= budget.usable:
            return
        # rounded up to whole MiB, so that the named limit is accepted
        remedies = [f"allow at least --memory-limit {math.ceil((needed + 1) / budget.safe / MIB)}MiB"]
        if needed > 2 * BASE_BYTES:
            remedies.append(remedy)
        raise MemoryPlanError(
            f"{self.dataset.path}: a worker needs {human(needed)} for {what} of {human(n_bytes)} but may use "
            f"{human(budget.usable)} of its {human(budget.worker_limit)}; {', or '.join(remedies)}"
        )

    def batch(self, least: int) -> int:
        """Return the bytes of rows, or columns, that a task should hold, at least `least`."""
        total = int(self.dataset.decoded_bytes.sum())
        # batches of b bytes: (total / b)^2 reads of b^2 / total bytes each; fewer groups have fewer offsets
        spare = int(self.budget.worker_limit * self.budget.calm) - self.needed(0)
        most = int(spare / (SLACK * _COPIES * self.budget.threads))
        return max(least, min(max(math.isqrt(total * _READ_BYTES), self._index), most))


class _Transposition:
    """Runs the two steps of one transposition."""

    def __init__(
        self, dataset: Dataset, shard_size: int, executor: Executor, budget: MemoryBudget, progress: Progress
    ) -> None:
        self.dataset = dataset
        self.shard_size = shard_size
        self.executor = executor
        self.progress = progress
        self.room = _Room(dataset, budget)
        self.spill = SpillArea(dataset.path.absolute())
        self.data = DatasetRef.of(dataset)

    def run(self) -> None:
        """Run the transposition, or the rest of an unfinished one."""
        largest = int(self.dataset.decoded_bytes.max(initial=0))
        groups = self._planned_groups(max(largest, self.shard_size))
        check_workers(self.executor, self.dataset, self.spill.folder)
        spec = TransposeSpec(self.data, groups, self._codec())
        sizes = [self._group_bytes(group) for group in spec.groups]
        for _ in self._watched("reading rows", turn_group, spec, spec.groups, sizes):
            pass
        bundles, sizes = self._bundles(spec)
        written = self._watched("writing columns", write_bundle, spec, bundles, sizes)
        records = [ShardRecord(**record) for each in written for record in each]
        self._publish(records, spec.codec)

    def _planned_groups(self, least: int) -> tuple[RowGroup, ...]:
        """Return the groups: those of an unfinished transposition with this plan, or new ones."""
        batch = self.room.batch(least)
        plan: dict[str, Any] = {
            "version": 2,  # of groups: their rows are numbered within them
            "fingerprint": self.dataset.fingerprint,
            "shard_size": self.shard_size,
            "groups": _runs(self.dataset.decoded_bytes.tolist(), batch),
        }
        earlier = self.spill.read_plan() or {}
        refuse_links(self.spill.folder, self.dataset.path)
        with as_format_error(str(self.spill.folder)):
            groups = [RowGroup(number, *run) for number, run in enumerate(earlier.get("groups", ()))]
        # groups may differ, as they depend on the memory: they leave no trace in the shards
        if {**plan, "groups": None} == {**earlier, "groups": None} and all(
            self._group_bytes(group) <= batch for group in groups
        ):
            return tuple(groups)
        self.spill.remove()
        self.spill.create()
        self.spill.write_plan(plan)
        return tuple(RowGroup(number, *run) for number, run in enumerate(plan["groups"]))

    def _codec(self) -> str:
        """Return the codec of the values: the first rows decide, as in an ingest."""
        values = "X" if self.dataset.meta.layout == "dense" else "data"
        codec = self.dataset.meta.codecs.get(values, "none")
        if codec == "none" or not len(self.dataset):
            return "none"
        return choose_codec(self.dataset.read(0).x, codec)

    def _group_bytes(self, group: RowGroup) -> int:
        return int(self.dataset.decoded_bytes[group.start : group.stop].sum())

    def _watched(
        self,
        stage: str,
        task: Callable[[Any, Any], Any],
        spec: TransposeSpec,
        items: Sequence[Any],
        sizes: Sequence[int],
    ) -> Iterator[Any]:
        """Run a step and yield its results, reporting the bytes they represent."""
        done, total = 0, sum(sizes)
        self.progress(done, total, stage)
        for size, result in zip(sizes, self.executor.map(task, items, shared=spec), strict=True):
            done += size
            self.progress(done, total, stage)
            yield result
        self.executor.each_worker(release_buffers, None)

    def _bundles(self, spec: TransposeSpec) -> tuple[list[Bundle], list[int]]:
        """Return bundles of adjacent shards, and the bytes of each."""
        n_bytes = self._column_bytes(spec.groups)
        cuts = cut_columns(n_bytes, self.shard_size)
        ends = np.concatenate([[0], np.cumsum(n_bytes)])[cuts]
        sizes = np.diff(ends).tolist()
        self.room.check(max(sizes, default=0), "a column shard", "give a smaller --shard-size")
        runs = _runs(sizes, self.room.batch(self.shard_size))
        bundles = [Bundle(start, tuple(cuts[start : stop + 1].tolist())) for start, stop in runs]
        return bundles, [int(ends[stop] - ends[start]) for start, stop in runs]

    def _column_bytes(self, groups: Sequence[RowGroup]) -> NDArray[np.int64]:
        """Return the bytes of each column in a shard, shape (n_features,)."""
        meta = self.dataset.meta
        itemsize = np.dtype(meta.dtype).itemsize
        if meta.layout == "dense":
            return np.full(meta.n_features, meta.n_rows * itemsize, dtype=np.int64)
        counts = column_counts_of(self.dataset, groups, 0, meta.n_features)
        if counts.sum() != meta.nnz:
            raise self.spill.damaged()
        return counts * (itemsize + index_dtype(meta.n_rows).itemsize) + 8

    def _publish(self, records: list[ShardRecord], codec: str) -> None:
        # without a plan, a killed call leaves only files to be swept
        self.spill.end()
        publish_columns(
            self.dataset.path,
            self.spill.shards,
            records,
            dataset_fingerprint=self.dataset.fingerprint,
            shard_size=self.shard_size,
            codec=codec,
        )
        self.spill.remove()
