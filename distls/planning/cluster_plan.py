"""Cost model of a fit on a hypothetical cluster, on data of any size (docs/scale.md).

A round is a number of reductions, each of which sends, returns, merges and schedules, one after the other; in between,
every thread processes its lanes.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from distls.execution import ClusterOptions
from distls.execution.memory_budget import MIB, MemoryBudget, parse_bytes
from distls.execution.network import Traffic
from distls.execution.round_seconds import (
    SCHEDULER_BYTES,
    SCHEDULER_TASK_BYTES,
    SCHEDULER_WORKER_BYTES,
    Cluster,
    exchange,
)
from distls.facts import Shown
from distls.long_calls import parsed, worker_bytes
from distls.memory_plan import Plan
from distls.methods.method_registry import method_named
from distls.methods.recommendation import AUTO
from distls.planning.fit_plan import Asked, blocks_of, one_thread_seconds, plan_fit, planned
from distls.storage.dataset.column_shards import ColumnShards
from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.storage.dataset.metadata import DatasetMeta, PartitionTable, ShardTable
from distls.storage.errors import ParameterError
from distls.storage.filesystem.paths import Place
from distls.training.configuration import Setting

# Memory of each thread of a cluster that is not there.
_THREAD_BYTES = 4 * 2**30
_ADVICE = {
    "store": "every worker reads its share over its own link: workers with more cache, or more of them",
    "send": "the weights reach the workers one after the other: a faster network, or longer rounds",
    "return": "results reach the driver over one link: a faster network for it, or longer rounds",
    "merge": "results are merged pair by pair on the way to the driver: a faster network, or longer rounds",
    "schedule": "each task costs the scheduler a millisecond: fewer lanes, or longer rounds",
}


@dataclass(frozen=True, repr=False)
class ClusterPlan(Shown):
    """Predicted cost of a fit on a cluster."""

    plan: Plan  # Memory and bytes; `seconds_per_pass` is of this cluster
    cluster: Cluster
    n_rows: int  # Of the data, column shards where the method works on these
    partitions: int
    # bytes by name: "sent" by the driver, "fetched" among workers, "merged" there, "returned" to the driver,
    # and "read" from the store
    round_bytes: dict[str, int]
    # seconds by name: "work" (reading, or what the store's link takes where that is more, decoding,
    # kernels), "send", "return", "merge", "schedule"; "work" only where a rate is known
    round_parts: dict[str, float]
    round_seconds: float | None  # Their sum
    scheduler_bytes: int  # Peak of the scheduler
    # The largest of the parts; "lanes" where work is, and threads are idle; "store" where work is reading
    limited_by: str | None
    advice: str | None  # What to do about it

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the plan and of the cluster as one JSON object."""
        values = asdict(self)
        return {**self.plan.to_json(), **{name: value for name, value in values.items() if name != "plan"}}


def plan(
    method: str | Place | Dataset,
    dataset: str | Place | Dataset | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    passes: float | None = None,
    seed: int = 0,
    as_published: bool = False,
    parallelism: int | None = None,
    probe: bool = True,
    cluster: str | None = None,
    bandwidth: str | None = None,
    latency: str | None = None,
    bytes: int | str | None = None,
    rate: float | None = None,
    workers: int | None = None,
    threads: int | None = None,
    memory_limit: int | str | None = None,
) -> Plan | ClusterPlan:
    """Return what a fit will cost in memory, bytes and seconds, as ``distls plan`` shows it.

    Parameters
    ----------
    method, dataset
        As of `distls.fit`: ``plan("train")`` is of the method that suits the data.
    params, passes, seed, as_published, parallelism, workers, threads, memory_limit
        As of `distls.fit`.
    probe : bool
        Train on one partition in this process, to estimate the seconds of a pass.
    cluster : str, optional
        Plan for a cluster that is not there, ``"100x8"`` of 100 workers with 8 threads each, whose machines have links
        of this `bandwidth` ("10Gbit" by default) and `latency` ("1ms"), and as if the data set had `bytes`; `rate`, the
        stored bytes that a thread processes in a second, takes the place of the probe.

    Raises
    ------
    ParameterError
        An option goes with `cluster`, and there is none, or the other way around.
    MemoryPlanError
        It cannot fit, with numbers and remedies.
    """
    if dataset is None:
        method, dataset = AUTO, method
    named, dataset = str(method), dataset.path if isinstance(dataset, Dataset) else dataset
    given = method_named(named).as_published(params or {})[0] if as_published else params
    limit = worker_bytes(workers, threads, memory_limit)
    imagined = {"bytes": bytes, "rate": rate, "bandwidth": bandwidth, "latency": latency}
    _check_together(cluster, imagined, {"workers": workers, "threads": threads})
    asked: dict[str, Any] = {"params": given, "passes": passes, "seed": seed, "probe": probe}
    asked["parallelism"] = parallelism
    if cluster is None:
        return plan_fit(named, dataset, cluster=ClusterOptions("auto", workers, threads, limit), **asked)
    link, delay = parsed("bandwidth", parse_bandwidth, bandwidth), parsed("latency", parse_seconds, latency)
    shape = Cluster.of(parsed("cluster", parse_shape, cluster), link, delay)
    asked |= {"stored_bytes": parsed("bytes", parse_bytes, bytes), "rate": rate}
    return plan_cluster(named, dataset, cluster=shape, memory_limit=limit, **asked)


def _check_together(cluster: str | None, imagined: Mapping[str, Any], actual: Mapping[str, Any]) -> None:
    """Refuse what only a cluster that is not there has, without one, and with one what workers that are there have."""
    why = "describes actual workers and cluster hypothetical ones; drop one of them"
    why = "needs cluster, such as cluster='100x8'" if cluster is None else why
    for name, value in (imagined if cluster is None else actual).items():
        if value is not None:
            raise ParameterError(f"{name} {why}")


def plan_cluster(
    method: str,
    dataset: str | Place,
    params: Mapping[str, Any] | None = None,
    *,
    cluster: Cluster,
    memory_limit: int | None = None,  # bytes a worker; default 4 GiB a thread
    stored_bytes: int | None = None,  # plan as if the data set were as large, with rows like its own
    rate: float | None = None,
    probe: bool = True,
    seed: int = 0,
    passes: float | None = None,
    parallelism: int | None = None,
) -> ClusterPlan:
    """Plan a fit on a hypothetical cluster; raise MemoryPlanError, with numbers and remedies, if it cannot fit.

    `rate` is the stored bytes that one thread reads, decodes and learns from in a second; by default a probe of one
    partition in this process measures it, if `probe`.
    """
    given = open_dataset(dataset)
    data = given if stored_bytes is None else resized(given, stored_bytes)
    asked = {"workers": lambda: cluster, "parallelism": parallelism, "limited": passes is not None}
    named = Asked.of(method, params or {}, data, **asked)
    chosen = named.method
    setting = Setting.of(chosen, named.params, data, seed, parallelism)
    limit = memory_limit or _THREAD_BYTES * cluster.threads
    budget = MemoryBudget(limit, cluster.workers, cluster.threads, compiles=True)
    solver = setting.solver(slots=budget.workers * budget.threads, memory=budget)
    plan = named.told(planned(setting, solver.plan, passes, cluster.slots))
    if rate is None and probe:
        # lanes were chosen for the large data, the probe runs on the given ones
        lanes = {p.name: p.default for p in chosen.parameters if p.name == "lanes"}
        own = Setting.of(chosen, {**setting.params, **lanes}, given, seed)
        small = own.solver(slots=1, memory=MemoryBudget(limit))
        rate = small.plan.bytes_per_pass / one_thread_seconds(small, given, seed)[0]
    return _predict(plan, cluster, (data.meta.n_rows, blocks_of(setting)), rate)


def _predict(plan: Plan, cluster: Cluster, size: tuple[int, int], rate: float | None) -> ClusterPlan:
    """Return the plan with the seconds of a round on data of `size` (rows, blocks)."""
    traffic, one = exchange(cluster, lanes=plan.lanes, shared_bytes=plan.shared_bytes, result_bytes=plan.result_bytes)
    limit = None
    parts = {name: plan.reductions * seconds for name, seconds in one.items()}
    if rate is not None:
        computing, reading = _work(plan, cluster, traffic, rate)
        parts = {"work": max(computing, reading), **parts}
        limit = max(parts, key=lambda name: parts[name])
        if limit == "work" and reading > computing:
            limit = "store"
        elif limit == "work" and plan.idle is not None:
            limit = "lanes"
    total = sum(parts.values()) if rate is not None else None
    moved = {name: getattr(traffic, name) for name in ("sent", "fetched", "merged", "returned")}
    return ClusterPlan(
        plan=replace(plan, seconds_per_pass=None if total is None else total * plan.rounds_per_pass),
        cluster=cluster,
        n_rows=size[0],
        partitions=size[1],
        round_bytes={**{name: plan.reductions * n_bytes for name, n_bytes in moved.items()}, "read": _read_bytes(plan)},
        round_parts=parts,
        round_seconds=total,
        scheduler_bytes=SCHEDULER_BYTES
        + cluster.workers * SCHEDULER_WORKER_BYTES
        + (traffic.tasks + traffic.merges) * SCHEDULER_TASK_BYTES,
        limited_by=limit,
        advice=_advice(limit, plan),
    )


def _read_bytes(plan: Plan) -> int:
    return plan.bytes_per_pass // plan.rounds_per_pass


def _work(plan: Plan, cluster: Cluster, traffic: Traffic, rate: float) -> tuple[float, float]:
    """Return the seconds of work of a round's threads, and of reading over the busiest worker's link."""
    a_task = -(-plan.lanes // traffic.tasks) / plan.lanes * _read_bytes(plan)
    return a_task / rate, a_task * -(-traffic.tasks // cluster.workers) / cluster.bandwidth


def _advice(limit: str | None, plan: Plan) -> str | None:
    """Return advice on how to shorten a round; threads that are idle are named."""
    if limit == "lanes":
        return plan.idle
    advice = _ADVICE.get(limit or "")
    # More lanes would make such a round longer still.
    return f"{advice}; {plan.idle.partition(':')[0]}" if advice and plan.idle else advice


def parse_shape(text: str) -> tuple[int, int]:
    """Parse workers and threads such as ``100x8``; raise ValueError unless both are from 1 to a million."""
    found = re.fullmatch(r"(\d{1,6})x(\d{1,4})", text.strip().lower())
    if not found or not (int(found[1]) and int(found[2])):
        raise ValueError(f"{text!r} is not a cluster; write workers and threads of each like 100x8")
    return int(found[1]), int(found[2])


def parse_bandwidth(text: str) -> float:
    """Parse a positive rate such as ``10Gbit``; return bytes a second; raise ValueError for anything else."""
    return _scaled(text, {"kbit": 125.0, "mbit": 125e3, "gbit": 125e6}, "bandwidth; write it like 10Gbit")


def parse_seconds(text: str) -> float:
    """Parse a positive time such as ``1ms``; raise ValueError for anything else."""
    return _scaled(text, {"us": 1e-6, "ms": 1e-3, "s": 1.0}, "time; write it like 1ms")


def _scaled(text: str, units: Mapping[str, float], what: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip().lower())
    if not found or found[2] not in units or not float(found[1]):
        raise ValueError(f"{text!r} is not a {what}")
    return float(found[1]) * units[found[2]]


# -- metadata of a data set of another size --------------------------------------------------------------

# Decoded bytes of a partition, unless those of the data at hand are larger.
_PARTITION = 16 * MIB


@dataclass(frozen=True)
class _Resized(Dataset):
    """Metadata of a hypothetical data set; no partition can be read."""

    shards: ColumnShards | None = None

    @cached_property
    def columns(self) -> ColumnShards | None:
        """The hypothetical column shards."""
        return self.shards


def resized(dataset: Dataset, stored_bytes: int) -> Dataset:
    """Return the metadata that a data set of `stored_bytes` would have, with rows like those of `dataset`.

    All its partitions have the same size: that of the largest given one, or the default of an ingest if larger.
    """
    factor = stored_bytes / int(dataset.stored_bytes.sum())
    decoded, largest = int(dataset.decoded_bytes.sum()), int(dataset.decoded_bytes.max(initial=0))
    count = max(1, math.ceil(decoded * factor / max(_PARTITION, largest)))
    meta, table = dataset.meta, dataset.table
    grown = msgspec.structs.replace(
        meta,
        n_rows=_times(meta.n_rows, factor),
        nnz=_times(meta.nnz, factor),
        label_counts=[_times(rows, factor) for rows in meta.label_counts],
        label_weights=[weight * factor for weight in meta.label_weights],
        weight_sum=meta.weight_sum * factor,
    )
    parts = PartitionTable(
        _cut(grown.n_rows, count),
        _cut(grown.nnz, count),
        {name: _cut(_times(int(sizes.sum()), factor), count) for name, sizes in table.sizes.items()},
        {name: np.zeros(count, np.uint32) for name in table.sizes},
    )
    shards = _resized_columns(dataset, grown, factor)
    return _Resized(dataset.path, grown, parts, dataset.fingerprint, shards=shards)


def _resized_columns(dataset: Dataset, grown: DatasetMeta, factor: float) -> ColumnShards | None:
    """Return column shards over more rows: more of them, of fewer columns."""
    shards = dataset.columns
    if shards is None:
        return None
    decoded = int(shards.decoded_bytes.sum()) * factor
    count = min(grown.n_features, max(len(shards), math.ceil(decoded / shards.shard_size)))
    table = ShardTable(
        _cut(grown.n_features, count),
        _cut(_times(int(shards.table.nnz.sum()), factor), count),
        {name: _cut(_times(int(sizes.sum()), factor), count) for name, sizes in shards.table.sizes.items()},
        {name: np.zeros(count, np.uint32) for name in shards.table.sizes},
    )
    return replace(shards, meta=grown, table=table)


def _times(number: int, factor: float) -> int:
    return max(round(number * factor), min(number, 1))


def _cut(total: int, count: int) -> NDArray[np.int64]:
    """Return `count` whole numbers as equal as can be, with this sum."""
    return total // count + (np.arange(count, dtype=np.int64) < total % count)
