"""What a reduction moves over each link, and how long it takes: hosts on one machine, with links of a shaped bandwidth.

    python -m benchmarks.speed.links [--workers 4,8,16] [--megabytes 1,8] [--rate 100mbit] [--rounds 3]
                                     [--ways straight,2,4,8,actors,sockets] [--out FILE]
    python -m benchmarks.speed.links --fits sgd,sdca,newton,gls,bcd [--workers 8,16] [--rate 1gbit]

Every worker, of one thread, is in a network namespace of its own, the driver in another, the scheduler on the bridge
between them (needs root and Debian's iproute2). Each worker returns an array as large as the shared one, the sum of
all is formed in the fixed tree, and the bits are compared. Ways:

- straight: all results go to the driver, which adds them
- 2, 4, 8: tasks that add so many results, on workers, as `DaskExecutor` does; the sum goes to the driver
- actors: pairs of Dask's actors, each of which fetches from the other; what a dead worker held is lost
- sockets: what a collective library does: each worker adds a slice of all, by sockets of its own; nothing is repeated

The bytes are those of the links' counters, for each direction; memory is the growth of the driver's peak.

`--fits` trains on as many rows whatever the workers, and on as many for each of them, with a lane for each, and sets
what a round moves over the links, the difference of a longer fit and a shorter one, beside what the model of traffic
has for the values that were really sent and returned (`network.py::traffic_of`), and what `distls plan` says. Seconds
beside those of the plan without the work, which so many processes on one machine take from each other.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from distributed import Client

from benchmarks.faults.hosts import SCHEDULER, Hosts
from distls.execution.dask import dask_executor
from distls.execution.dask.dask_executor import DaskExecutor
from distls.execution.dask.reduction_tasks import Size
from distls.execution.dask.remote_cluster import connect
from distls.execution.executor import group_items
from distls.execution.memory_budget import MIB, MemoryBudget
from distls.execution.network import count_nodes, fan_of, joined, merge_levels, traffic_of
from distls.execution.serial import SerialExecutor
from distls.planning.cluster_plan import ClusterPlan, plan
from distls.synthetic.generation import generate
from distls.training.callbacks import History
from distls.training.fitting import fit
from distls.workers.runtime.process import peak_rss

Array = np.ndarray[Any, np.dtype[np.float64]]
SECONDS = 120.0
# As docs/cluster.md has it; and so many processes on a few cores are silent for longer than Dask allows hosts to be.
SETTINGS = {
    "DASK_CONFIG": str(Path(__file__).parents[2] / "deploy" / "distls.yaml"),
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "600s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "300s",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "1h",
}


def result_of(shared: Array, item: int) -> Array:
    """Return what a worker returns; sums of several depend on their order."""
    return shared / (item + 3.0)


def add(left: Array, right: Array) -> Array:
    """Add in place."""
    left += right
    return left


# ---------------------------------------------------------------- ways


def by_tasks(executor: DaskExecutor, shared: Array, way: str) -> Array:
    """Return the sum by the executor, whose merges are given so many results; none if `straight`."""
    straight = way == "straight"
    few = 10**9 if straight else 1
    levels = partial(_levels, 2 if straight else int(way))
    with patch.object(dask_executor, "FEW", few), patch.object(dask_executor, "merge_levels", levels):
        found: Array = executor.reduce(result_of, range(executor.slots), merge=add, shared=shared)
    return found


def _levels(fan: int, groups: Any, _fan: int, n_items: int) -> Any:
    return merge_levels(groups, fan, n_items)


class Summand:
    """An actor that holds an array."""

    def __init__(self, shared: Array, item: int) -> None:
        self.value = result_of(shared, item)

    def held(self) -> Array:
        """Return it."""
        return self.value

    def add(self, other: Any) -> None:
        """Add that of another one."""
        self.value += other.held().result()


def by_actors(executor: DaskExecutor, shared: Array, _way: str) -> Array:
    """Return the sum of actors, one a worker, added in pairs."""
    client, places = executor.client, sorted(executor.client.nthreads())
    sent = client.scatter(shared, hash=False)
    made = [
        client.submit(Summand, sent, number, actor=True, workers=[place], pure=False)
        for number, place in enumerate(places)
    ]
    with client.as_current():
        actors: list[Any] = [future.result() for future in made]
        while len(actors) > 1:
            pairs = [left.add(right) for left, right in zip(actors[::2], actors[1::2], strict=False)]
            for pair in pairs:
                pair.result()
            actors = actors[::2]
        found: Array = actors[0].held().result()
    return found


_LISTENING: list[socket.socket] = []


def _listen(_item: object, dask_worker: Any = None) -> tuple[str, int]:
    if not _LISTENING:
        host = dask_worker.address.split("//")[1].rpartition(":")[0]
        _LISTENING.append(socket.create_server((host, 0), backlog=64))
    return _LISTENING[0].getsockname()[:2]


def _slices(size: int, count: int) -> list[slice]:
    return [slice(size * i // count, size * (i + 1) // count) for i in range(count)]


def _read(connection: socket.socket, into: Array) -> None:
    view, got = memoryview(into).cast("B"), 0
    while got < len(view):
        if not (more := connection.recv_into(view[got:])):
            raise ConnectionError("the sender has gone")
        got += more


def _sum_of_slice(addresses: Sequence[tuple[str, int]], shared: Array, rank: int) -> Array:
    """Send each other worker its slice, and return the sum of this one's, in the order of workers."""
    own = result_of(shared, rank)
    slices, count = _slices(len(own), len(addresses)), len(addresses)
    parts = np.empty((count, slices[rank].stop - slices[rank].start))
    parts[rank] = own[slices[rank]]

    def send(to: int) -> None:
        with socket.create_connection(addresses[to], SECONDS) as connection:
            connection.sendall(np.float64(rank).tobytes() + own[slices[to]].tobytes())

    def receive(_: int) -> None:
        connection, _address = _LISTENING[0].accept()
        with connection:
            number = np.empty(1)
            _read(connection, number)
            _read(connection, parts[int(number[0])])

    with ThreadPoolExecutor(2 * count) as pool:
        waiting = [pool.submit(receive, n) for n in range(count - 1)]
        waiting += [pool.submit(send, (rank + n) % count) for n in range(1, count)]
        for each in waiting:
            each.result()
    return SerialExecutor().reduce(lambda held, item: held[item].copy(), range(count), merge=add, shared=parts)


def by_sockets(executor: DaskExecutor, shared: Array, _way: str) -> Array:
    """Return the sum of slices, each made by the worker to which all others send theirs."""
    client = executor.client
    found = client.run(_listen, None)
    sent = client.scatter(shared, hash=False)
    futures = [
        client.submit(_sum_of_slice, list(found.values()), sent, rank, workers=[worker], pure=False)
        for rank, worker in enumerate(found)
    ]
    return np.concatenate(client.gather(futures))


WAYS: dict[str, Callable[[DaskExecutor, Array, str], Array]] = {"actors": by_actors, "sockets": by_sockets}


def _connected(workers: int) -> DaskExecutor:
    """Return the executor when all workers are there, which begin on the cores of one machine."""
    with Client(SCHEDULER, timeout=SECONDS) as client:
        client.wait_for_workers(workers, timeout=SECONDS * max(1, workers / 8))
    return connect(SCHEDULER)


def drive(way: str, workers: int, megabytes: int, rounds: int, out: Path) -> None:
    """Reduce some rounds as the driver, and write seconds and memory."""
    executor = _connected(workers)
    shared = np.linspace(1, 2, megabytes * MIB // 8)
    same = SerialExecutor().reduce(result_of, range(executor.slots), merge=add, shared=shared)
    before, seconds = peak_rss(), []
    for _ in range(rounds):
        began = time.perf_counter()
        found = WAYS.get(way, by_tasks)(executor, shared, way)
        seconds.append(time.perf_counter() - began)
        assert found.tobytes() == same.tobytes(), way
    out.write_text(json.dumps({"seconds": min(seconds), "memory": peak_rss() - before}))
    executor.close()


# ---------------------------------------------------------------- fits

# Rounds of the shorter fit, and of the longer one; the kind of rows.
LENGTHS, ROWS = (3, 9), 16_000
KINDS = {"gls": "dense"}
PARAMS: dict[str, dict[str, Any]] = {
    "gls": {"link": "softmax"}, "bcd": {"algorithm": "row-blocks", "tau": 0.0, "alpha": 1e-5},
}  # fmt: skip


class Modelled:
    """Adds up, reduction by reduction, the bytes that the model has for what is really sent and returned."""

    def __init__(self, executor: DaskExecutor) -> None:
        self._reduce, self._workers = executor.reduce, executor.slots
        self.bytes = {"driver out": 0, "driver in": 0, "workers in": [0] * self._workers}
        executor.reduce = self  # type: ignore[method-assign]

    def __call__(self, function: Any, items: Any, *, merge: Any, shared: Any = None) -> Any:
        """Reduce as the executor does."""
        sent = sum(Size.of(shared))
        found = self._reduce(function, items, merge=merge, shared=shared)
        size, count = sum(Size.of(found)), len(items)
        traffic = traffic_of(sent, size, lanes=count, workers=self._workers, threads=1)
        self.bytes["driver out"] += traffic.sent
        self.bytes["driver in"] += traffic.returned
        for number, got in enumerate(self._received(sent, size, count, merged=bool(traffic.merges))):
            self.bytes["workers in"][number] += got
        return found

    def _received(self, sent: int, size: int, count: int, *, merged: bool) -> Iterator[int]:
        """Yield what each worker receives: what is shared, and the results of others that it merges."""
        groups = group_items(count, [str(worker) for worker in range(self._workers)])
        got = Counter({place: sent for *_, place in groups})
        for level in merge_levels(groups, fan_of(size), count) if merged else ():
            for some in level:
                elsewhere = [part for part in some if part[2] != joined(some)[2]]
                got[joined(some)[2]] += size * sum(count_nodes(part, count) for part in elsewhere)
        yield from (got[str(worker)] for worker in range(self._workers))


def train(method: str, data: str, workers: int, rounds: int, out: Path) -> None:
    """Train some rounds as the driver; write how many there were, their seconds, and what plan and model say."""
    executor = _connected(workers)
    modelled = Modelled(executor)
    given: dict[str, Any] = {"params": {**PARAMS.get(method, {}), "lanes": workers}}
    # So many workers on one machine are said to have a share of half of what is free, and need no more than this.
    memory = MemoryBudget(512 * MIB, workers)
    history, said = History(), plan(method, data, **given, cluster=f"{workers}x1", rate=1e8)
    assert isinstance(said, ClusterPlan)
    passes = rounds / said.plan.rounds_per_pass
    fit(method, data, **given, passes=passes, eval_every=10**6, executor=executor, memory=memory, callbacks=[history])
    seconds = [record["seconds"] for record in history.records]
    made = {
        "rounds": len(seconds),
        "seconds": float(np.median(np.diff(seconds))),
        "plan": {**said.round_bytes, "seconds": sum(said.round_parts.values())},
        "model": modelled.bytes,
    }
    out.write_text(json.dumps(made))
    executor.close()


def compare_fit(hosts: Hosts, method: str, data: Path) -> dict[str, Any]:
    """Return what the links have carried in a round, and what the plan says, in MiB."""
    runs = [_run(hosts, "--drive-fit", data, "--fits", method, "--rounds", rounds) for rounds in LENGTHS]
    (first, before), (last, after) = runs
    more, driver = last["rounds"] - first["rounds"], hosts.others[0]
    moved = {host: (after[host] - before[host]) / (more * MIB) for host in after}
    said, model = (
        last["plan"],
        {name: (np.array(value) - first["model"][name]) / (more * MIB) for name, value in last["model"].items()},
    )
    # Which worker has which place is the scheduler's to say: links are compared in the order of their bytes.
    got, expected = sorted(float(moved[host][1]) for host in hosts.workers), np.sort(model["workers in"])
    return {
        "method": method,
        "rounds": more,
        "seconds": [last["seconds"], said["seconds"]],
        "driver out": [float(moved[driver][0]), float(model["driver out"]), said["sent"] / MIB],
        "driver in": [float(moved[driver][1]), float(model["driver in"]), said["returned"] / MIB],
        "workers in": [sum(got), float(expected.sum()), (said["fetched"] + said["merged"] + said["sent"]) / MIB],
        "busiest worker in": [got[-1], float(expected[-1])],
        # of any link, as a part of the busiest
        "furthest": float(np.abs(np.array(got) - expected).max() / max(expected[-1], 1e-9)),
    }


def _fits(hosts: Hosts, options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    rows, workers = [], len(hosts.workers)
    for many, method in itertools.product((ROWS, ROWS // 8 * workers), options.fits.split(",")):
        kind = KINDS.get(method, "rcv1-4")
        if not (data := folder / f"{kind}-{many}").exists():
            generate(kind, data, rows=many, partition_size=2**18)
        rows.append({"workers": workers, "rows": many, **compare_fit(hosts, method, data)})
        print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    return rows


# ---------------------------------------------------------------- hosts


def _counted(hosts: Hosts) -> dict[str, tuple[int, int]]:
    """Return the bytes that each host has sent and received."""
    asked = subprocess.run(["ip", "-n", hosts.hub, "-s", "-j", "link"], check=True, capture_output=True, text=True)
    links = {link["ifname"]: link["stats64"] for link in json.loads(asked.stdout)}
    every = [*hosts.workers, *hosts.others]
    # what the bridge's port receives the host has sent
    return {host: (links[f"port{n}"]["rx"]["bytes"], links[f"port{n}"]["tx"]["bytes"]) for n, host in enumerate(every)}


def _run(hosts: Hosts, *options: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run the driver on its host; return what it has written, and the bytes sent and received by each host."""
    with tempfile.TemporaryDirectory() as folder:
        out, before = Path(folder) / "out.json", _counted(hosts)
        options = (*options, "--workers", len(hosts.workers), "--out", out)
        driver = hosts.start(hosts.others[0], "benchmarks.speed.links", *options, out=subprocess.PIPE)
        said, _ = driver.communicate(timeout=10 * SECONDS)
        assert driver.returncode == 0, (options, said)
        made = json.loads(out.read_text())
    return made, {host: np.subtract(after, before[host]) for host, after in _counted(hosts).items()}


def measure(hosts: Hosts, way: str, megabytes: int, rounds: int) -> dict[str, Any]:
    """Return what a round took, in models over links."""
    made, moved = _run(hosts, "--drive", "--ways", way, "--megabytes", megabytes, "--rounds", rounds)
    models = {host: (found / (rounds * megabytes * MIB)).round(2).tolist() for host, found in moved.items()}
    busiest = max(max(models[host]) for host in hosts.workers)
    return {"way": way, "megabytes": megabytes, "driver": models[hosts.others[0]], "busiest worker": busiest, **made}


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def main(argv: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Print the table, write it as JSON where asked, and return it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--workers", type=_numbers, default=[4, 8, 16])
    parser.add_argument("--megabytes", type=_numbers, default=[1, 8])
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--fits", default="")
    parser.add_argument("--drive-fit", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", default="straight,2,4,8,actors,sockets")
    parser.add_argument("--drive", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="write the results here as JSON")
    options = parser.parse_args(argv)
    if options.drive:
        drive(options.ways, options.workers[0], options.megabytes[0], options.rounds, options.out)
        return []
    if options.drive_fit:
        train(options.fits, options.drive_fit, options.workers[0], options.rounds, options.out)
        return []
    rows = [row for workers in options.workers for row in _rows(workers, options)]
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")
    return rows


def _rows(workers: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    hosts, rows = Hosts(workers, others=1, settings=SETTINGS), []
    try:
        if found := hosts.build():
            raise SystemExit(found)
        for host in (*hosts.workers, *hosts.others):
            hosts.shape(host, options.rate)
        hosts.start_scheduler()
        hosts.start_workers("--no-nanny")  # half of the processes, which start on the cores of one machine
        if options.fits:
            with tempfile.TemporaryDirectory() as folder:
                return _fits(hosts, options, Path(folder))
        for megabytes in options.megabytes:
            for way in options.ways.split(","):
                row = {"workers": workers, **measure(hosts, way, megabytes, options.rounds)}
                rows.append(row)
                print(_line(row), flush=True)
    finally:
        hosts.remove()
    return rows


def _line(row: dict[str, Any]) -> str:
    sent, got = row["driver"]
    return (
        f"{row['workers']:3d} workers {row['megabytes']:4d} MiB {row['way']:>9}: {row['seconds']:6.2f} s a round; "
        f"models: driver {sent:.2f} out, {got:.2f} in, busiest worker {row['busiest worker']:.2f}; "
        f"memory of the driver {row['memory'] / MIB:.0f} MiB more"
    )


if __name__ == "__main__":
    # by its name: workers, which import it, then share the functions and what they keep
    importlib.import_module("benchmarks.speed.links").main()
