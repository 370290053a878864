"""What a round costs: the processor of Dask's scheduler a task, and seconds, with up to thousands of simulated workers.

    python -m benchmarks.speed.scheduling [--workers 10,100,300,1000] [--megabytes 0,1,100] [--bandwidth 10Gbit]
                                          [--rounds 3] [--out FILE]

The scheduler is real, in a process of its own, and so are the client and the executor, with what they send. Workers, of
one thread, are simulated (`simulated_workers.py`): the state of each is that of a Dask worker, but what it would fetch
and compute takes time and nothing else. Weights and results have so many MiB (0: a few bytes): from 64 KiB on, workers
merge them. Lanes themselves take no time. A round's seconds are simulated too: of the processors of scheduler and
driver, of links and of merges, of which the program measures one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil
from distributed import Client

from benchmarks.speed.simulated_workers import Clock, Machines, process_clock, simulated
from distls.execution import network
from distls.execution.dask import dask_executor, reduction_tasks
from distls.execution.dask.connection import Connection
from distls.execution.dask.dask_executor import DaskExecutor
from distls.execution.dask.error_logs import set_log_level
from distls.execution.dask.reduction_tasks import merge_parts
from distls.execution.memory_budget import MIB
from distls.execution.round_seconds import MERGE_RATE, Cluster, exchange
from distls.planning.cluster_plan import parse_bandwidth
from distls.workers.rounds.ledger import Ledger
from distls.workers.stochastic.lane_task import LaneResult, TrainTask

# No heartbeats come; and what the scheduler does every few seconds would count too often, as simulated time is slower.
_QUIET = {
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "1d",
    "DASK_DISTRIBUTED__SCHEDULER__ACTIVE_MEMORY_MANAGER__INTERVAL": "1h",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "1h",
}
SETTINGS = Path(__file__).parents[2] / "deploy" / "distls.yaml"
# each worker that joins is compared with all others
_PRELOAD = "import distributed.versions\ndistributed.versions.error_message = lambda *_, **__: {}"


def _nothing(_shared: Any, item: int) -> int:
    return item


def _add(left: int, right: int) -> int:
    return left + right


@contextmanager
def cluster(workers: int, machines: Machines, place: Path) -> Iterator[tuple[DaskExecutor, psutil.Process, Clock]]:
    """Start a scheduler process and simulated workers; yield an executor, the scheduler and their clock."""
    address = place / f"scheduler-{workers}-{machines.result}.json"
    environment = {**os.environ, "DASK_CONFIG": str(SETTINGS), **_QUIET}
    command = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(address)]
    command += ["--preload", _PRELOAD]
    scheduler = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", *command], stderr=subprocess.DEVNULL, env=environment
    )
    try:
        while not address.exists():
            time.sleep(0.05)
        with Client(scheduler_file=str(address), timeout=120, set_as_default=False, direct_to_workers=True) as client:
            drivers = [threading.current_thread(), client.sync(_own_thread)]
            with simulated(client.scheduler.address, workers, machines, Clock(scheduler.pid, drivers)) as clock:
                yield DaskExecutor(Connection(client), owns_client=False), psutil.Process(scheduler.pid), clock
    finally:
        scheduler.kill()
        scheduler.wait()


async def _own_thread() -> threading.Thread:
    return threading.current_thread()


def schedule(workers: int, megabytes: int, rounds: int, place: Path, bandwidth: float) -> dict[str, Any]:
    """Reduce with one task per worker, and those that merge; return what a task costs the scheduler, and a round."""
    set_log_level(logging.CRITICAL)
    size = megabytes * MIB
    slices = network.slices_of(size, workers)
    imagined = Cluster.of((workers, 1), bandwidth)
    machines = Machines(size, size, slices, imagined.bandwidth, imagined.latency, MERGE_RATE)
    traffic, parts = exchange(imagined, lanes=workers, shared_bytes=size, result_bytes=size)
    # The values are a few bytes; their sizes are those of the machines.
    fan = network.fan_of(size)
    small = {"SLICED": -1 if slices > 1 else network.SLICED, "SMALL": 0 if size > network.SMALL else network.SMALL}
    with (
        cluster(workers, machines, place) as (executor, scheduler, clock),
        patch.object(dask_executor, "SMALL", small["SMALL"]),
        patch.multiple(network, **small),
        patch.object(reduction_tasks, "fan_of", lambda _: fan),
    ):
        shared, items, tasks, measured = np.zeros(2**10), range(workers), traffic.tasks + traffic.merges, []
        for _ in range(rounds + 1):  # the first makes connections
            before, here, began = _processor_seconds(scheduler), time.process_time(), clock.now
            assert executor.reduce(_nothing, items, merge=_add, shared=shared) == sum(items)
            measured.append((clock.now - began, _processor_seconds(scheduler) - before, time.process_time() - here))
        seconds, of_scheduler, others = map(min, zip(*measured[1:], strict=True))
        memory = scheduler.memory_info().rss
    return {
        **{"workers": workers, "megabytes": megabytes, "tasks": tasks, "seconds": seconds, "memory": memory},
        **{"model": sum(parts.values()), "parts": parts, "task": of_scheduler / tasks, "others": others / tasks},
    }


def _processor_seconds(process: psutil.Process) -> float:
    return time.clock_gettime(process_clock(process.pid))


def merge_seconds(megabytes: int, rounds: int) -> float:
    """Return the seconds that a worker's thread takes to merge two averages of lanes of this size."""
    weights = np.linspace(0, 1, megabytes * MIB // 4, dtype=np.float32)
    lanes = [LaneResult((weights + lane,), (), 0.0, 0.0, 0, 0.0, {}, Ledger(n_rows=1)) for lane in range(2)]
    parts: list[Any] = [[(0, lane, result)] for lane, result in enumerate(lanes)]
    seconds = []
    for _ in range(rounds + 1):  # the first compiles
        began = time.thread_time()
        merge_parts(2, TrainTask.merge, parts)
        seconds.append(time.thread_time() - began)
    return min(seconds)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Print the costs, write them as JSON where asked, and return them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--workers", type=_numbers, default=[10, 100, 300, 1000])
    parser.add_argument("--megabytes", type=_numbers, default=[0, 1, 100], help="of weights and of each result")
    parser.add_argument("--bandwidth", type=parse_bandwidth, default="10Gbit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write the results here as JSON")
    options = parser.parse_args(argv)
    most = max(options.megabytes)
    results: dict[str, Any] = {"merge": merge_seconds(most, options.rounds), "dask": []}
    print(f"two results of {most} MiB are merged in {1e3 * results['merge']:.0f} ms")
    with tempfile.TemporaryDirectory() as folder:
        for megabytes, workers in itertools.product(options.megabytes, options.workers):
            row = schedule(workers, megabytes, options.rounds, Path(folder), options.bandwidth)
            results["dask"].append(row)
            print(
                f"{workers:5d} workers, {megabytes} MiB: {row['seconds']:.2f} s a round, {row['model']:.2f} by the "
                f"model; {row['tasks']} tasks, {1e3 * row['task']:.2f} ms a task of the scheduler, "
                f"{1e3 * row['others']:.2f} of driver and simulation; it holds {row['memory'] / MIB:.0f} MiB",
                flush=True,
            )
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    return results


if __name__ == "__main__":
    main()
