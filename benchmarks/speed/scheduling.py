"""What a task costs Dask's scheduler, in reductions over up to thousands of simulated workers.

    python -m benchmarks.speed.scheduling [--workers 10,100,300,1000] [--sizes small,large,huge] [--slices 1]
                                          [--rounds 3] [--megabytes 100] [--out FILE]

The scheduler is real, in a process of its own, and so are the client and the executor, with what they send. Workers are
connections from this process, each with an address of its own, that run each task as it comes and answer as Dask's
workers do, but keep all results in one dictionary and move nothing. Tasks do nothing; by `large` and `huge` their
results are merged by further tasks, as those of more than 64 KiB and of more than 16 MiB are. The seconds are those of
the scheduler's processor; beside them those of one merge on a worker.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil
from distributed import Client
from distributed.batched import BatchedSend
from distributed.comm.core import connect
from distributed.core import Server, Status
from distributed.protocol import to_serialize
from distributed.versions import get_versions
from distributed.worker import dumps_function

from distls.execution import network
from distls.execution.dask.connection import Connection
from distls.execution.dask.dask_executor import DaskExecutor
from distls.execution.dask.error_logs import set_log_level
from distls.execution.dask.reduction_tasks import merge_parts
from distls.execution.memory_budget import MIB
from distls.workers.rounds.ledger import Ledger
from distls.workers.stochastic.lane_task import LaneResult, TrainTask

# The least size of each kind, as `fan_of` has it.
SIZES: dict[str, dict[str, int]] = {"small": {}, "large": {"SMALL": -1}, "huge": {"SMALL": -1, "_HUGE": -1}}
SETTINGS = Path(__file__).parents[2] / "deploy" / "distls.yaml"
# each worker that joins is compared with all others
_PRELOAD = "import distributed.versions\ndistributed.versions.error_message = lambda *_, **__: {}"
_METRICS: dict[str, Any] = {
    "memory": 0, "managed_bytes": 0, "spilled_bytes": {"memory": 0, "disk": 0}, "task_counts": {},
    "bandwidth": {"total": 1e9, "workers": {}, "types": {}}, "digests_total_since_heartbeat": {},
    "event_loop_interval": 0,
}  # fmt: skip


class SimulatedWorkers:
    """Workers of one thread, on addresses of this machine that one server has."""

    def __init__(self) -> None:
        self._data: dict[str, Any] = {}
        self._server = Server({"get_data": self._get, "update_data": self._update})
        self._comms: list[Any] = []
        self._handling: list[asyncio.Task[None]] = []

    async def start(self, scheduler: str, count: int) -> None:
        """Register so many."""
        await self._server.listen("tcp://0.0.0.0:0")
        port = self._server.listeners[0].bound_address[1]
        registered = {
            "op": "register-worker", "reply": False, "status": "running", "nthreads": 1, "now": time.time(),
            "resources": {}, "memory_limit": 0, "local_directory": "", "services": {}, "nanny": None, "pid": 0,
            "versions": get_versions(), "extra": {}, "stimulus_id": "start",
        }  # fmt: skip
        for number in range(count):
            address = f"tcp://127.0.{1 + number // 250}.{1 + number % 250}:{port}"
            comm = await connect(scheduler)
            own = {"address": address, "name": address, "server_id": address, "metrics": dict(_METRICS)}
            await comm.write({**registered, **own}, serializers=["msgpack"])
            await comm.read(deserializers=["msgpack"])
            self._comms.append(comm)
            self._handling.append(asyncio.create_task(self._handle(comm, address)))

    async def close(self) -> None:
        """End them all."""
        for comm in self._comms:
            comm.abort()
        await asyncio.gather(*self._handling, return_exceptions=True)
        await self._server.close()

    async def _get(self, comm: Any, keys: Sequence[str], **_: Any) -> Status:
        await comm.write({"status": "OK", "data": {key: to_serialize(self._data[key]) for key in keys}})
        await comm.read()
        return Status.dont_reply

    async def _update(self, comm: Any, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        self._data.update(data)
        return {"status": "OK", "nbytes": dict.fromkeys(data, 1)}

    async def _handle(self, comm: Any, address: str) -> None:
        stream = BatchedSend(interval="2ms")
        stream.start(comm)
        while True:
            for message in await comm.read():
                if message["op"] == "compute-task":
                    for answer in self._run(message, address):
                        stream.send(answer)
                elif message["op"] == "free-keys":
                    # of the last holder: results are made once
                    continue

    def _run(self, message: dict[str, Any], address: str) -> Iterator[dict[str, Any]]:
        """Yield what a worker says while it runs a task: that it has got what it needs, and that it has ended."""
        found = message["stimulus_id"]
        got = [key for key, holders in message["who_has"].items() if address not in holders]
        if got:
            yield {"op": "add-keys", "keys": got, "stimulus_id": found}
        now, key = time.time(), message["key"]
        result = self._data[key] = message["run_spec"](self._data)
        yield {
            "op": "task-finished", "status": "OK", "key": key, "run_id": message["run_id"], "stimulus_id": found,
            "nbytes": 1, "type": dumps_function(type(result)), "typename": type(result).__name__, "thread": 1,
            "metadata": {}, "startstops": [{"action": "compute", "start": now, "stop": now}],
        }  # fmt: skip


def _nothing(_shared: Any, item: int) -> int:
    return item


def _add(left: int, right: int) -> int:
    return left + right


@contextmanager
def cluster(workers: int, place: Path) -> Iterator[tuple[DaskExecutor, psutil.Process]]:
    """Start a scheduler process and simulated workers; yield an executor and the scheduler."""
    address = place / f"scheduler-{workers}.json"
    # simulated workers send no heartbeats
    ttl = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "1d"}
    environment = {**os.environ, "DASK_CONFIG": str(SETTINGS), **ttl}
    command = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(address)]
    command += ["--preload", _PRELOAD]
    scheduler = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", *command], stderr=subprocess.DEVNULL, env=environment
    )
    try:
        while not address.exists():
            time.sleep(0.05)
        with Client(scheduler_file=str(address), timeout=120, set_as_default=False, direct_to_workers=True) as client:
            simulated = SimulatedWorkers()
            client.sync(simulated.start, client.scheduler.address, workers)
            yield DaskExecutor(Connection(client), owns_client=False), psutil.Process(scheduler.pid)
            client.sync(simulated.close)
    finally:
        scheduler.kill()
        scheduler.wait()


def schedule(workers: int, size: str, slices: int, rounds: int, place: Path) -> dict[str, Any]:
    """Reduce with one task per worker, and those that merge; return the cost of a task to the scheduler."""
    set_log_level(logging.CRITICAL)
    sizes = {"SLICED": -1 if slices > 1 else network.SLICED, "SLICES": slices, **SIZES[size]}
    with cluster(workers, place) as (executor, scheduler), patch.multiple(network, **sizes):
        shared, items = np.zeros(2**14), range(workers)  # too large to go with each task
        repeats = max(1, 300 // workers)  # the kernel counts in hundredths of a second
        traffic = network.traffic_of(0, 1, lanes=workers, workers=workers, threads=1)
        measured = []
        for _ in range(rounds + 1):  # the first makes connections
            before, here = _processor_seconds(scheduler), time.process_time()
            for _ in range(repeats):
                assert executor.reduce(_nothing, items, merge=_add, shared=shared) == sum(items)
            measured.append((_processor_seconds(scheduler) - before, time.process_time() - here))
        tasks = traffic.tasks + traffic.merges
        task, others = (min(each) / (repeats * tasks) for each in zip(*measured[1:], strict=True))
        memory = scheduler.memory_info().rss
    return {
        **{"workers": workers, "size": size, "slices": slices, "tasks": tasks},
        **{"task": task, "others": others, "memory": memory},
    }


def _processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


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
    parser.add_argument("--sizes", default="small,large,huge")
    parser.add_argument("--slices", type=int, default=1, help="of what all tasks share")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=100, help="of two results that are merged")
    parser.add_argument("--out", type=Path, help="write the results here as JSON")
    options = parser.parse_args(argv)
    results: dict[str, Any] = {"merge": merge_seconds(options.megabytes, options.rounds), "dask": []}
    print(f"two results of {options.megabytes} MiB are merged in {1e3 * results['merge']:.0f} ms")
    with tempfile.TemporaryDirectory() as folder:
        for size, workers in itertools.product(options.sizes.split(","), options.workers):
            row = schedule(workers, size, options.slices, options.rounds, Path(folder))
            results["dask"].append(row)
            print(
                f"{workers:5d} workers, {size} results: {row['tasks']} tasks, {1e3 * row['task']:.2f} ms a task of the "
                f"scheduler, {1e3 * row['others']:.2f} of driver and workers; it holds {row['memory'] / MIB:.0f} MiB",
                flush=True,
            )
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    return results


if __name__ == "__main__":
    main()
