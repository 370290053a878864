"""Seconds of a reduction on a cluster of identical machines, beside its work: sends, merges and scheduling in turn."""

from dataclasses import dataclass
from typing import Self

from distls.execution.memory_budget import MIB
from distls.execution.network import Traffic, traffic_of

# Measured: see docs/scale.md.
TASK_SECONDS = 1e-3
LANE_SECONDS, MERGED_LANE_SECONDS = 2e-4, 6e-5
MERGE_RATE = 3e9
SCHEDULER_BYTES = 175 * MIB
SCHEDULER_WORKER_BYTES = MIB
SCHEDULER_TASK_BYTES = 2**15

# Of clusters of which nothing is known: 10 Gbit/s and 1 ms.
_BANDWIDTH, _LATENCY = 1.25e9, 1e-3
# A worker serves a value to at most this many others at once (Dask's `worker.connections.incoming`); the rest ask again
# and find more holders.
_SERVED_AT_ONCE = 10
# Sequential messages of one task: from driver to worker through the scheduler, and back.
_HOPS = 4


@dataclass(frozen=True)
class Cluster:
    """Identical machines with one worker each, the driver's among them."""

    workers: int
    threads: int  # Of each worker
    bandwidth: float  # Bytes a second of each machine's link, each way
    latency: float  # Seconds from one to another

    @classmethod
    def of(cls, shape: tuple[int, int], bandwidth: float | None = None, latency: float | None = None) -> Self:
        """Return the cluster of so many workers and threads, of links of 10 Gbit/s and 1 ms unless told."""
        return cls(*shape, bandwidth or _BANDWIDTH, latency or _LATENCY)

    @property
    def slots(self) -> int:
        """Threads of all."""
        return self.workers * self.threads


def exchange(cluster: Cluster, *, lanes: int, shared_bytes: int, result_bytes: int) -> tuple[Traffic, dict[str, float]]:
    """Return what a reduction of so many lanes sends, and its seconds without the work, by what they are spent on."""
    traffic = traffic_of(shared_bytes, result_bytes, lanes=lanes, workers=cluster.workers, threads=cluster.threads)
    sent = traffic.sent / cluster.bandwidth + _fetch_seconds(shared_bytes, traffic, cluster)
    # What the driver merges has been returned; a worker fetches it first.
    merge = 1 / MERGE_RATE + (1 / cluster.bandwidth if traffic.merges else 0.0)
    tasks = traffic.tasks + traffic.merges
    # the driver merges what workers have not merged
    lane = MERGED_LANE_SECONDS if traffic.merges else LANE_SECONDS
    return traffic, {
        "send": sent,
        "return": traffic.returned / cluster.bandwidth,
        "merge": traffic.steps * result_bytes * merge,
        "schedule": tasks * TASK_SECONDS + lanes * lane + _HOPS * cluster.latency,
    }


def _fetch_seconds(size: int, traffic: Traffic, cluster: Cluster) -> float:
    """Return the seconds until all workers have a value, which each of them then serves too."""
    holders, left, seconds = 1, traffic.fetches, 0.0
    while left > 0:
        each = min(-(-left // holders), _SERVED_AT_ONCE)
        # slices come from as many holders side by side, over one link to each worker
        seconds += max(each / traffic.slices, 1) * size / cluster.bandwidth + 2 * cluster.latency
        left -= holders * each
        holders += holders * each
    return seconds
