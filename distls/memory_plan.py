"""The cost of a job, from metadata alone: memory of a worker and of the driver, bytes read, network traffic.

A worker's memory is::

    base                       interpreter, libraries, compiled kernels
    + threads * 2 * partition  one being worked on, one being read (decoded and encoded bytes)
    + weights                  the received copy, and the results of the lanes a task holds or merges
    + sample                   rows on which averaging is judged
    + rows                     arrays over all rows, such as the scores of coordinate descent
    + work                     what a task computes from a chunk of its rows
    + cache                    decoded partitions kept between rounds: all that the limit leaves
    + cache reserve            more of them: of lanes of other workers, when these are slow or lost
    + reserve                  what some jobs were seen to need beyond the other parts

A job that cannot fit without any cache is refused before anything is read.
"""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from distls.execution.executor import Executor
from distls.execution.memory_budget import MIB, MemoryBudget, human
from distls.execution.network import Traffic, traffic_of
from distls.facts import Fact, Shown, counted
from distls.storage.dataset.column_shards import ColumnShards
from distls.storage.dataset.dataset import Dataset
from distls.storage.errors import MemoryPlanError, WorkerError
from distls.storage.filesystem.paths import Place
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.task import Needs
from distls.workers.rounds.worker_checks import access_error

# A worker with all libraries and the kernels loaded from the disk cache has about 140 MiB (`benchmarks.speed.peaks
# --megabytes 4`); some jobs were seen to need up to 70 more than their other parts (benchmarks/measurements.md).
LOADED_BYTES = 140 * MIB
BASE_BYTES = 210 * MIB
# What compiling the kernels adds, and keeps, in a process that finds no disk cache.
COMPILE_BYTES = 100 * MIB
# Buffers are a little larger than what they hold; the allocator rounds.
SLACK = 1.05
# What the seconds of passes leave out.
APART = "start, compilation and certificates"


@dataclass(frozen=True, repr=False)
class Plan(Shown):
    """The cost of a job."""

    worker_bytes: int  # Peak resident bytes of one worker, cache included
    # bytes by name: What that sum is made of; "reserve" and "cache reserve": what a worker seldom needs
    worker_parts: dict[str, int]
    worker_limit: int
    cache_bytes: int  # Of each worker, for decoded partitions
    cached_fraction: float  # Share of the data that the workers' caches hold together
    driver_bytes: int
    bytes_per_pass: int  # Stored bytes
    passes: float | None  # Of a fit, as asked
    rounds_per_pass: int
    lanes: int
    network_bytes_per_round: int  # Between driver and workers, both ways, and among workers
    shared_bytes: int = 0  # What every lane of a round starts from, and what one lane returns, at most
    result_bytes: int = 0
    reductions: int = 1  # Times that a round sends and returns as much, at most
    fits: int = 1  # More than one for a path: one after the other, or
    side_by_side: int = 1  # how many at a time share each read; the weights of all are counted here
    # From a probe, where one was made; from the store, nothing cached; of all fits that share the read
    seconds_per_pass: float | None = None
    overhead_seconds: float | None = None  # to start, and to compile or load the kernels
    idle: str | None = None  # which threads have no lane, and why
    chosen: str | None = None  # the method, and why, where none was named

    @property
    def times_read(self) -> int:
        """Fits, or groups of fits side by side, that each read the data in every pass."""
        return -(-self.fits // self.side_by_side)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return asdict(self)

    def __repr__(self) -> str:
        limit = f"{human(self.worker_bytes)} of {human(self.worker_limit)} a worker"
        return f"<Plan: {limit}, {human(self.bytes_per_pass)} a pass, {self.lanes} lanes>"

    def facts(self) -> list[Fact]:
        """Return what a reader wants to know first."""
        parts = ", ".join(f"{name} {human(size)}" for name, size in self.worker_parts.items() if size)
        rounds, lanes = counted(self.rounds_per_pass, "round"), counted(self.lanes, "lane")
        found = [
            *([] if self.chosen is None else [Fact("method", self.chosen)]),
            Fact("memory a worker", f"{human(self.worker_bytes)} of {human(self.worker_limit)}: {parts}"),
            Fact("memory, driver", self.driver_bytes, human),
            Fact("cached", f"{100 * self.cached_fraction:.0f} % of the data in the workers' memory"),
            Fact("bytes a pass", f"{human(self.bytes_per_pass)}, in {rounds} of {lanes}"),
            Fact("network a round", self.network_bytes_per_round, human),
            *([] if self.idle is None else [Fact("idle", self.idle)]),
        ]
        if self.passes is not None:
            every = f" for each of {self.fits} fits" if self.fits > 1 else ""
            every += f", {self.side_by_side} at each read" if self.side_by_side > 1 else ""
            found.append(Fact("passes", f"{self.passes:g} at most{every}"))
        if self.seconds_per_pass is not None:
            passes = self.times_read * (self.passes or 0.0) * self.seconds_per_pass
            apart = "certificates" if self.overhead_seconds is not None else APART
            total = passes + (self.overhead_seconds or 0.0)
            whole = "" if self.passes is None else f", {total:.1f} s in all, {apart} apart"
            probe = f"{self.seconds_per_pass:.2f} from the store (probe of one partition)"
            found.append(Fact("seconds a pass", probe + whole))
        if self.overhead_seconds is not None:
            found.append(Fact("start, compile", self.overhead_seconds, "{:.1f} s".format))
        return found


@dataclass(frozen=True)
class PerRowCost:
    """Additional memory of a method that works by columns: the columns, and arrays with an entry for every row."""

    columns: ColumnShards
    worker_bytes: int  # Of one row, once in each worker
    reads: int  # Of the partitions, in a pass over the columns
    exchanged_bytes: int  # Of one row: what a round writes into RUN/state and reads from there


@dataclass(frozen=True)
class Footprint:
    """The arrays of a job: of its tasks, as they declare them, and of the driver."""

    needs: Needs
    driver_bytes: float  # Of the driver's state
    sample_bytes: int = 0  # Of the rows on which averaging is judged
    # Of tasks that train a lane, at work: a worker has no more of them than there are lanes
    lane_bytes: int = 0
    alone_bytes: int = 0  # Of a task that works while no other does, as the descent of a search
    per_row: PerRowCost | None = None
    stored_row_bytes: int = 0  # Of one row: what a pass writes into RUN/state and reads from there
    # Bytes that a round sends and that a lane returns, if known better than from the weights and copies
    exchanged: tuple[int, int] | None = None


def make_plan(
    dataset: Dataset,
    footprint: Footprint,
    *,
    lanes: int,
    budget: MemoryBudget,
    rounds_per_pass: int = 1,
    reductions: int = 1,  # of a round
) -> Plan:
    """Plan a job; raise MemoryPlanError if a worker needs more than its limit even without a cache."""
    # What is free is asked for once.
    budget = replace(budget, limit=budget.worker_limit)
    # fits side by side share all but their weights
    needs, per_row = footprint.needs, footprint.per_row
    every: list[Dataset | ColumnShards] = [dataset] if per_row is None else [dataset, per_row.columns]
    each_way = footprint.exchanged or (needs.shared, int(needs.result))
    shared_bytes, result_bytes = (budget.models * size for size in each_way)
    shape = {"lanes": lanes, "workers": budget.workers, "threads": budget.threads}
    traffic = traffic_of(shared_bytes, result_bytes, **shape, here=not budget.compiles)
    parts = _worker_parts(dataset, every, footprint, budget, lanes, traffic)
    needed = sum(parts.values())
    if needed > budget.usable:
        raise MemoryPlanError(_refusal(needed, parts, dataset, budget))
    room = max(int(budget.worker_limit * budget.calm) - needed, 0)
    # the cache takes all that is left, up to the data themselves and the limit of the budget
    decoded = sum(int(each.decoded_bytes.sum()) for each in every)
    held = min(decoded, int(room / SLACK), decoded if budget.cache_limit is None else budget.cache_limit)
    kept = int(held * SLACK)
    own = int(SLACK * decoded * -(-lanes // budget.workers) / lanes)
    parts["cache"] = min(kept, own)
    parts["cache reserve"] = kept - parts["cache"]
    # the driver merges as results arrive: one from each task or of all, and the one that they are merged into
    arriving = 1 if traffic.merges else traffic.tasks
    driver_bytes = footprint.driver_bytes + (arriving + 1) * needs.result
    stored = [int(each.stored_bytes.sum()) for each in every]
    exchanged_rows = footprint.stored_row_bytes if per_row is None else per_row.exchanged_bytes
    return Plan(
        worker_bytes=sum(parts.values()),
        worker_parts=parts,
        worker_limit=budget.worker_limit,
        cache_bytes=held,
        cached_fraction=min(1.0, held * budget.workers / max(decoded, 1)),
        driver_bytes=int(BASE_BYTES + COMPILE_BYTES + budget.models * driver_bytes),
        bytes_per_pass=stored[0] if per_row is None else stored[1] + per_row.reads * stored[0],
        passes=None,
        rounds_per_pass=rounds_per_pass,
        lanes=lanes,
        network_bytes_per_round=reductions * traffic.total + exchanged_rows * dataset.meta.n_rows,
        shared_bytes=shared_bytes,
        result_bytes=result_bytes,
        reductions=reductions,
        side_by_side=budget.models,
    )


def _worker_parts(
    dataset: Dataset,
    every: list[Dataset | ColumnShards],
    footprint: Footprint,
    budget: MemoryBudget,
    lanes: int,
    traffic: Traffic,
) -> dict[str, int]:
    """Return the parts of a worker's memory, but for its cache."""
    largest = [
        max(int(sizes.max(initial=0)) for sizes in kind)
        for kind in ([each.decoded_bytes for each in every], [each.stored_bytes for each in every])
    ]
    # a task holds the lane at work and the unmerged results on its side of the tree, then one being sent
    lanes_per_task = -(-lanes // traffic.tasks)
    results = min(lanes_per_task.bit_length(), lanes_per_task) + 1
    # one thread may merge what others have sent instead
    results = (budget.threads - 1) * results + max(results, traffic.held)
    # the received weights, their slices, those of the round before that are still being released, and those in transit
    weights = (3 + (traffic.slices > 1)) * footprint.needs.shared + results * footprint.needs.result
    parts = {
        "base": LOADED_BYTES + COMPILE_BYTES * budget.compiles,
        # of each thread one partition at work and one being read, decoded and stored bytes of both
        "partitions": int(budget.threads * 2 * SLACK * sum(largest)),
        "weights": int(budget.models * weights),
        "sample": footprint.sample_bytes,
        "work": max(
            footprint.needs.work * budget.threads + footprint.lane_bytes * min(budget.threads, lanes * budget.models),
            footprint.alone_bytes,
        ),
        "reserve": BASE_BYTES - LOADED_BYTES,
    }
    if footprint.per_row is not None:
        parts["rows"] = dataset.meta.n_rows * footprint.per_row.worker_bytes
    return parts


def _refusal(needed: int, parts: dict[str, int], dataset: Dataset, budget: MemoryBudget) -> str:
    made_of = ", ".join(f"{name} {human(size)}" for name, size in parts.items() if size)
    # rounded up to whole MiB: the limit that the message names must be accepted
    remedies = [f"allow at least --memory-limit {math.ceil((needed + 1) / budget.safe / MIB)}MiB"]
    if budget.threads > 1:
        remedies.append("use --threads-per-worker 1 with more workers")
    if parts["partitions"] > BASE_BYTES:
        remedies.append("ingest again with a smaller --partition-size")
    if parts.get("rows", 0) > BASE_BYTES // 4:
        free = budget.usable - (needed - parts["rows"])
        rows = free * dataset.meta.n_rows // parts["rows"]
        if rows > 0:
            remedies.append(f"train on {rows} rows, which would fit")
    return (
        f"{dataset.path}: a worker needs {human(needed)} ({made_of}) but may use {human(budget.usable)} "
        f"of its {human(budget.worker_limit)}; {', or '.join(remedies)}"
    )


def check_workers(
    executor: Executor, dataset: Dataset, run: Place | None, *, columns: ColumnShards | None = None
) -> None:
    """Have every worker open the dataset and its column shards, compare fingerprints and write to the run folder.

    Raises WorkerError, naming the worker and the path, if one cannot.
    """
    digest = "" if columns is None else columns.digest
    job = DatasetRef.of(dataset, columns=digest), None if run is None else str(run.absolute())
    for worker, trouble in executor.each_worker(access_error, job).items():
        if trouble:
            raise WorkerError(f"worker {worker}: {trouble}")
