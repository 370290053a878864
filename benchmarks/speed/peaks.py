"""The peak memory of a worker against its plan, for every method, with caches of decoded partitions full.

    python -m benchmarks.speed.peaks [--methods mcid,gls] [--threads 1,3] [--megabytes 200] [--workers 2] [--passes 2]
        [--directory FOLDER] [--out FILE]

Each method trains on generated data (documents, or dense numbers for the methods that square the features). The limit
of memory is what the method needs without a cache and some more, less than a worker's share of the data: caches fill.
The peak is the highest of all workers', from the kernel's high-water mark and from the run's events. A peak above its
plan is a defect; the program then ends with 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import distls
from benchmarks.speed.scale import Watched
from distls.execution import ClusterOptions
from distls.execution.memory_budget import MIB, SAFE_FRACTION
from distls.memory_plan import SLACK, Plan
from distls.planning.fit_plan import plan_fit

__all__ = ["METHODS", "main", "make_data", "measure"]

# The parameters with which each method trains, and on what.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "mcid": ("documents", {}),
    "ovr-pegasos": ("documents", {}),
    "ovr-logistic": ("documents", {}),
    "sgd": ("documents", {}),
    "asgd": ("documents", {}),
    "svmsgd2": ("documents", {}),
    "sgdqn": ("documents", {}),
    "csgd": ("numbers", {}),
    "ncsgd": ("numbers", {}),
    "adaline": ("numbers", {}),
    "c-adaline": ("numbers", {}),
    "rls": ("numbers", {}),
    "olbfgs": ("numbers", {}),
    "sdca": ("documents", {}),
    "ovr-sdca": ("documents", {}),
    "newton": ("documents", {}),
    "bcd": ("documents", {"dtype": "float32", "alpha": 1e-3, "active_mib": 4, "tau": 0}),
    "fista": ("documents", {"alpha": 1e-3, "tau": 0}),
    "sparsa": ("documents", {"alpha": 1e-3, "tau": 0}),
    "fobos": ("documents", {"alpha": 1e-4}),
    "gls": ("numbers", {}),
    "cls": ("numbers", {"rounds": 3}),
    "stagewise": ("numbers", {"block_size": 40, "stages": 3}),
}
# These end by themselves.
_OWN_END = {"ovr-sdca", "cls", "stagewise"}
_FEATURES, _CLASSES = 100, 5
# Decoded bytes of a document of the kind rcv1-4.
_DOCUMENT_BYTES = 560
# Part of a worker's share of the data that its cache may hold.
_CACHED = 0.6


def make_data(place: Path, kind: str, megabytes: float) -> Path:
    """Write some sixty partitions of `kind`, with column shards; return the folder, made before or not."""
    path, n_bytes = place / f"{kind}-{megabytes:g}", int(megabytes * MIB)
    if path.exists():
        return path
    size = max(n_bytes // 60, 2**14)
    if kind == "documents":
        distls.generate("rcv1-4", path, rows=n_bytes // _DOCUMENT_BYTES, partition_size=size, compress="none")
        distls.add_columns(path, shard_size=size)
        return path
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n_bytes // (4 * _FEATURES), _FEATURES), dtype=np.float32)
    y = (x[:, :_CLASSES] + rng.standard_normal((len(x), _CLASSES))).argmax(axis=1)
    distls.ingest(x, path, y=y, partition_size=size, compress="none")
    return path


def _planned(method: str, data: Path, workers: int, threads: int) -> Plan:
    """Return the plan under the limit that lets each worker keep a part of its share of the data."""
    params = METHODS[method][1]

    def made(limit: int) -> Plan:
        cluster = ClusterOptions(executor="dask", workers=workers, threads_per_worker=threads, memory_limit=limit)
        return plan_fit(method, data, params, cluster=cluster, probe=False)

    generous = made(2**40)
    needed = generous.worker_bytes - int(SLACK * generous.cache_bytes)
    room = int(_CACHED * generous.cache_bytes / workers * SLACK)
    return made(int((needed + room) / SAFE_FRACTION) + 2)


def _reserve(plan: Plan) -> int:
    return sum(size for name, size in plan.worker_parts.items() if name.endswith("reserve"))


def measure(method: str, data: Path, run: Path, shape: tuple[int, int], passes: int) -> dict[str, Any]:
    """Train; return the plan with its parts, and the highest peak of a worker."""
    workers, threads = shape
    plan = _planned(method, data, workers, threads)
    given = [text for name, value in METHODS[method][1].items() for text in ("-p", f"{name}={value}")]
    given += [] if method in _OWN_END else ["--passes", str(passes)]
    fitted = Watched(
        "fit", method, data, run, *given, "--workers", workers, "--threads-per-worker", threads,
        "--memory-limit", plan.worker_limit, "--quiet",
    )  # fmt: skip
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    peaks = [*fitted.peaks.values(), *(peak for e in events for peak in e.get("worker_peaks", {}).values())]
    return {
        "method": method,
        "threads": threads,
        "plan": plan.worker_bytes,
        "peak": max(peaks),
        "ratio": max(peaks) / plan.worker_bytes,
        "without_reserve": max(peaks) / (plan.worker_bytes - _reserve(plan)),
        "parts": plan.worker_parts,
        "cached_bytes": plan.cache_bytes,
    }


def _line(row: dict[str, Any]) -> str:
    sizes = {name: f"{size / MIB:.0f}" for name, size in row["parts"].items() if size >= MIB / 2}
    parts = ", ".join(f"{name} {size}" for name, size in sizes.items())
    plan, peak = row["plan"] / MIB, row["peak"] / MIB
    return (
        f"| {row['method']} | {row['threads']} | {plan:.0f} | {peak:.0f} | {100 * row['ratio']:.0f} % | "
        f"{100 * row['without_reserve']:.0f} % | {parts} |"
    )


def main(argv: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--threads", default="1,3", help="of each worker")
    parser.add_argument("--megabytes", type=float, default=200.0, help="of each data set, decoded")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--directory", type=Path, help="where data are kept; a temporary one by default")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(argv)
    asked = given.methods.split(",")
    if unknown := set(asked) - set(METHODS):
        parser.error(f"--methods {','.join(sorted(unknown))}: there are {', '.join(METHODS)}")
    results = []
    print("| method | threads | plan, MiB | peak, MiB | peak / plan | without reserve | parts of the plan, MiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="distls-peaks-") as folder:
        for method in asked:
            data = make_data(given.directory or Path(folder), METHODS[method][0], given.megabytes)
            for threads in map(int, given.threads.split(",")):
                run = Path(folder) / f"{method}-{threads}"
                results.append(measure(method, data, run, (given.workers, threads), given.passes))
                print(_line(results[-1]), flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps(results, indent=1))
    return results


if __name__ == "__main__":
    sys.exit(any(row["ratio"] > 1 for row in main()))
