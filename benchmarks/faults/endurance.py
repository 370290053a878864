"""Growth of scheduler, workers and driver over many rounds.

    python -m benchmarks.faults.endurance [--methods mcid,gls,bcd] [--rounds 500] [--clusters own,local] [--out FILE]

Each method trains on small data with two worker processes and a checkpoint in every round, on a `dask scheduler` with
`dask worker` (cluster "own": its memory is measured separately) and on a cluster that the driver starts ("local": the
scheduler is part of the driver). Dask's bounded logs are shortened, so that they fill early, and its profiling of
workers is off, as in deploy/distls.yaml. Recorded after each round: resident sizes, open files, files in the folders of
the run and of Dask, and the tasks that the scheduler knows once releases have reached it. The slope is the median of
the slopes between all pairs of rounds of the second half; for workers, that of the steepest.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dask
import numpy as np
import psutil
import scipy.sparse as sp
from scipy.stats import theilslopes

import distls
from distls.execution.dask.dask_executor import DaskExecutor
from distls.execution.dask.local_cluster import start_local
from distls.execution.dask.remote_cluster import connect
from distls.solvers.events import FitStart, RoundEvent
from distls.solvers.solver import State
from distls.solvers.status import Status
from distls.storage.errors import WorkerError

# Weights of 75 KiB and more are scattered, those of less would travel with each task.
ROWS, FEATURES, CLASSES, NON_ZEROS = 2000, 1200, 16, 12
PARAMS: dict[str, dict[str, Any]] = {
    "mcid": {"lanes": 4},
    "gls": {"lanes": 4, "fit_intercept": False},
    # never at its own end, and every round sends its scores
    "bcd": {"lanes": 2, "tau": 0.0, "active_sweeps": 0},
}
_SECONDS = 120
# The profile of a worker grows with every new stack; deploy/distls.yaml switches it off, as local clusters do.
_SETTINGS = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.low-level-log-length": 50,
    "distributed.admin.system-monitor.log-length": 20,
}


def make_data(path: Path) -> Path:
    """Write a small sparse data set of eight partitions, with column shards."""
    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(ROWS), NON_ZEROS)
    columns = rng.integers(0, FEATURES, len(rows))
    values = np.abs(rng.standard_normal(len(rows))).astype(np.float32)
    x = sp.csr_matrix((values, (rows, columns)), shape=(ROWS, FEATURES))
    y = columns.reshape(ROWS, NON_ZEROS)[:, 0] % CLASSES
    distls.ingest(x, path, y=y, partition_size=x.data.nbytes // 4)
    distls.add_columns(path, shard_size=x.data.nbytes // 2)
    return path


class Watch:
    """Record memory, files and tasks of a fit after each round."""

    def __init__(self, executor: DaskExecutor, folders: Sequence[Path], scheduler: int | None) -> None:
        self._executor, self._folders = executor, folders
        workers = sorted(executor.each_worker(_pid, None).values())
        numbers = {"driver": os.getpid()} | {f"worker {i}": number for i, number in enumerate(workers)}
        if scheduler is not None:
            numbers["scheduler"] = scheduler
        self._processes = {name: psutil.Process(number) for name, number in numbers.items()}
        self.rounds: list[dict[str, Any]] = []

    def on_start(self, start: FitStart) -> None:
        """Ignore the start."""

    def on_round(self, event: RoundEvent) -> None:
        """Record the state after a round."""
        noted: dict[str, Any] = {
            "tasks": self._settled_tasks(),
            "files": sum(len(names) for each in self._folders for *_, names in os.walk(each)),
        }
        for name, process in self._processes.items():
            noted[name] = (process.memory_info().rss // 1024, process.num_fds())
        self.rounds.append(noted)

    def on_end(self, status: Status, state: State) -> None:
        """Ignore the end."""

    def _settled_tasks(self) -> int:
        """Return the tasks that the scheduler knows, after waiting for releases to reach it."""
        deadline = time.monotonic() + _SECONDS
        while True:
            known = int(self._executor.client.run_on_scheduler(_n_tasks))
            if known <= 1 or time.monotonic() > deadline:
                return known
            time.sleep(0.002)

    def summary(self) -> dict[str, Any]:
        """Return slopes in KiB per round, and the range of the counts."""
        second = self.rounds[len(self.rounds) // 2 :]
        first = self.rounds[: len(self.rounds) // 2] or second
        found: dict[str, Any] = {"tasks": max(each["tasks"] for each in self.rounds)}
        found["files"] = [max(each["files"] for each in part) for part in (first, second)]
        for name in self._processes:
            found[name] = {
                "KiB a round": _slope([each[name][0] for each in second]),
                "MiB": second[-1][name][0] / 1024,
                "open": [max(each[name][1] for each in part) for part in (first, second)],
            }
        return found


def _slope(values: Sequence[float]) -> float:
    return float(theilslopes(values).slope) if len(values) > 1 else 0.0


def _n_tasks(dask_scheduler: Any) -> int:
    return len(dask_scheduler.tasks)


def _pid(_item: None) -> int:
    return os.getpid()


@contextlib.contextmanager
def own_scheduler(scratch: Path) -> Iterator[tuple[DaskExecutor, int | None]]:
    """Start `dask scheduler` and `dask worker`; yield an executor and the scheduler's process."""
    contact = scratch / "scheduler.json"
    with contextlib.ExitStack() as stack:
        scheduler = _start(stack, "scheduler", "--host", "127.0.0.1", "--port", 0, "--scheduler-file", contact)
        address = _address(contact, scheduler)
        _start(stack, "worker", address, "--nworkers", 2, "--nthreads", 1, "--local-directory", scratch)
        executor = _connected(address)
        stack.callback(executor.close)
        yield executor, scheduler.pid
    contact.unlink(missing_ok=True)


def _address(contact: Path, scheduler: subprocess.Popen[bytes]) -> str:
    """Return the scheduler's address, once it is written completely."""
    deadline = time.monotonic() + _SECONDS
    while scheduler.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            return str(json.loads(contact.read_text())["address"])
        time.sleep(0.05)
    raise RuntimeError("the scheduler did not start")


def _connected(address: str) -> DaskExecutor:
    """Connect when both workers are there, which takes longer on a busy machine than a user would wait."""
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            return connect(address, min_workers=2)
        except WorkerError:
            if time.monotonic() > deadline:
                raise


def _start(stack: contextlib.ExitStack, name: str, *options: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", f"distributed.cli.dask_{name}", "--no-dashboard", *map(str, options)]
    settings = {
        f"DASK_{key.upper().replace('.', '__').replace('-', '_')}": str(value) for key, value in _SETTINGS.items()
    }
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=os.environ | settings)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process


@contextlib.contextmanager
def local_cluster(scratch: Path) -> Iterator[tuple[DaskExecutor, int | None]]:
    """Start a cluster as a fit does."""
    with dask.config.set({"temporary-directory": str(scratch), **_SETTINGS}):
        executor = start_local(2)
    try:
        yield executor, None
    finally:
        executor.close()


CLUSTERS: dict[str, Callable[[Path], Any]] = {"own": own_scheduler, "local": local_cluster}


def measure(method: str, cluster: str, rounds: int, data: Path, place: Path) -> dict[str, Any]:
    """Fit for `rounds` rounds; return slopes, counts and the files left when the cluster has ended."""
    run, scratch = place / f"run-{method}-{cluster}", place / f"scratch-{method}-{cluster}"
    scratch.mkdir()
    with CLUSTERS[cluster](scratch) as (executor, scheduler):
        watch = Watch(executor, (run, scratch), scheduler)
        distls.fit(
            method,
            data,
            run,
            params=PARAMS[method],
            passes=rounds,
            eval_every=0,
            executor=executor,
            callbacks=[watch],
            checkpoint_seconds=0,
        )
    # Dask's two locks of its folder stay there
    left = sorted(path.name for path in scratch.rglob("*") if path.is_file() and path.suffix != ".lock")
    kept = sorted(path.name for path in run.iterdir())
    return {
        "method": method,
        "cluster": cluster,
        "rounds": len(watch.rounds),
        **watch.summary(),
        "left": left,
        "run": kept,
    }


def line(found: dict[str, Any]) -> str:
    """Return a row of the table."""
    workers = [found[name]["KiB a round"] for name in found if name.startswith("worker")]
    scheduler = f"{found['scheduler']['KiB a round']:.2f}" if "scheduler" in found else "in the driver"
    opened = {name: "{} / {}".format(*found[name]["open"]) for name in ("scheduler", "driver") if name in found}
    opened["workers"] = ", ".join("{} / {}".format(*found[name]["open"]) for name in found if name.startswith("worker"))
    cells = [
        f"{found['method']}, {found['cluster']}",
        str(found["rounds"]),
        scheduler,
        f"{max(workers):.2f}",
        f"{found['driver']['KiB a round']:.2f}",
        str(found["tasks"]),
        "; ".join(f"{name} {counts}" for name, counts in opened.items()),
        "{} / {}".format(*found["files"]),
        str(len(found["left"])),
    ]
    return f"| {' | '.join(cells)} |"


HEAD = """\
| method, cluster | rounds | scheduler, KiB a round | workers | driver | most tasks known after a round | \
open files, most in either half | files of run and Dask, most in either half | left in Dask's folder |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def main(argv: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default="mcid,gls,bcd")
    parser.add_argument("--clusters", default="own,local")
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    results = []
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory(prefix="distls-endurance-") as folder:
        data = make_data(Path(folder) / "data")
        for method in options.methods.split(","):
            for cluster in options.clusters.split(","):
                results.append(measure(method, cluster, options.rounds, data, Path(folder)))
                print(line(results[-1]), flush=True)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1))
    return results


if __name__ == "__main__":
    main()
