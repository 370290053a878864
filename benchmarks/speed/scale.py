"""Data larger than memory: peak memory of every worker against the plan, for a fit, an ingest and a fit by columns.

    python -m benchmarks.speed.scale [--part fit,ingest,columns] [--directory FOLDER] [--rows 6652650] [--text-gb 3]
        [--memory-limit 600MiB] [--workers 2] [--passes 2] [--out FILE]

The resident size of every worker process is sampled from outside, ten times a second, and its high-water mark is
read from the kernel. A fit must stay below the limit and between 60 and 100 % of the plan; an ingest below the
limit.
`columns`: `bcd` on rcv1-53 with --column-rows rows, in float32, limited to --column-limit, until the duality gap is
about a hundredth of the objective; and the message of `plan` when memory does not suffice.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

import distls
from distls.execution.memory_budget import human, parse_bytes
from distls.reporting.costs import round_seconds
from distls.synthetic.text_export import export_text


class Watched:
    """Runs a command and records the peak resident size of its worker processes."""

    def __init__(self, *arguments: object) -> None:
        self.peaks: dict[int, int] = {}
        self._process = subprocess.Popen([sys.executable, "-m", "distls", *map(str, arguments)], stdout=subprocess.PIPE)
        watcher = threading.Thread(target=self._watch, daemon=True)
        started = time.perf_counter()
        watcher.start()
        self.out = self._process.communicate()[0].decode()
        self.seconds = time.perf_counter() - started
        watcher.join()
        if self._process.returncode:
            sys.exit(f"distls {' '.join(map(str, arguments))} ended with {self._process.returncode}")

    def _watch(self) -> None:
        while self._process.poll() is None:
            for pid, peak in [(pid, high_water(pid)) for pid in self._workers()]:
                if peak:  # not one that has just ended
                    self.peaks[pid] = peak
            time.sleep(0.1)

    def _workers(self) -> list[int]:
        try:
            family = psutil.Process(self._process.pid).children(recursive=True)
            # workers are forked by a process that this command has started
            servers = {p.pid for p in family if "forkserver" in " ".join(p.cmdline()) and p.ppid() == self._process.pid}
            return [p.pid for p in family if p.ppid() in servers]
        except psutil.Error:
            return []


def high_water(pid: int) -> int:
    """Return the highest resident size a process has had, 0 when it is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def fit_beyond_memory(place: Path, rows: int, limit: str, workers: int, passes: int) -> dict[str, Any]:
    """Fit rcv1-4 of `rows` rows; return peaks, plan and times."""
    data, run = place / f"rcv1-4-{rows}", place / f"run-{time.time_ns()}"
    if not data.exists():
        Watched("generate", "rcv1-4", data, "--rows", rows, "--workers", workers, "--quiet")
    options = ["--workers", workers, "--memory-limit", limit]
    plan = json.loads(Watched("plan", "mcid", data, "-p", "loss=hinge", "--passes", passes, "--json", *options).out)
    fitted = Watched("fit", "mcid", data, run, "-p", "loss=hinge", "--passes", passes, "--quiet", *options)
    status = json.loads((run / "status.json").read_text())
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    evaluation = distls.evaluate(run, f"{data}-test")
    return {
        "rows": rows,
        "decoded bytes": int(distls.open_dataset(data).decoded_bytes.sum()),
        "stored bytes": plan["bytes_per_pass"],
        "limit": parse_bytes(limit),
        "plan": plan["worker_bytes"],
        "peaks": sorted(fitted.peaks.values()),
        "passes": status["passes"],
        "train seconds": round_seconds(status),
        "planned seconds": plan["seconds_per_pass"] * passes,
        "wall seconds": fitted.seconds,
        "bytes read": sum(event["bytes_read"] for event in events),
        "error %": 100 * evaluation.error,
    }


# Of block coordinate descent beyond memory: no sweep over active columns alone, which are large at this alpha.
_DESCENT = (
    "-p",
    "fit_intercept=false",
    "-p",
    "dtype=float32",
    "-p",
    "alpha=1e-3",
    "-p",
    "active_mib=16",
    "-p",
    "tau=0",
)
_CERTIFIED = 0.01
_UNTIL = ("--passes", "100", "--eval-every", "5")


def descend_beyond_memory(place: Path, rows: int, limit: str, workers: int, tol: float) -> dict[str, Any]:
    """Fit rcv1-53 of `rows` rows by columns; return peaks, plan, and when the certificate was good enough."""
    data, run = place / f"rcv1-53-{rows}", place / f"run-{time.time_ns()}"
    options = ["--workers", workers, "--memory-limit", limit]
    if not data.exists():
        Watched("generate", "rcv1-53", data, "--rows", rows, "--workers", workers, "--quiet")
    if distls.open_dataset(data).columns is None:
        Watched("columns", data, "--quiet", *options)
    refused = subprocess.run(
        [sys.executable, "-m", "distls", "plan", "bcd", data, "-p", "dtype=float32", *map(str, options)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    plan = json.loads(Watched("plan", "bcd", data, *_DESCENT, "--json", *options).out)
    fitted = Watched("fit", "bcd", data, run, *_DESCENT, *_UNTIL, "--tol", tol, "--quiet", *options)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    judged = [(e, e["certificate"]["value"] / e["objective"]) for e in events if "certificate" in e]
    certified = next((e for e, relative in judged if relative <= _CERTIFIED), None)
    return {
        "rows": rows,
        "decoded bytes": int(distls.open_dataset(data).columns.decoded_bytes.sum()),
        "limit": parse_bytes(limit),
        "plan": plan["worker_bytes"],
        "network bytes a round": plan["network_bytes_per_round"],
        "peaks": sorted(fitted.peaks.values()),
        "certificates": [[e["round"], e["seconds"], e["objective"], relative] for e, relative in judged],
        "certified": None if certified is None else [certified["round"], certified["seconds"]],
        "bytes read": sum(event["bytes_read"] for event in events),
        "refused": refused.stderr.strip() if refused.returncode else None,
    }


def ingest_beyond_memory(place: Path, n_bytes: int, limit: str, workers: int) -> dict[str, Any]:
    """Ingest `n_bytes` of svmlight text; return peaks and rate."""
    text, out = place / "large.svm", place / f"ingested-{time.time_ns()}"
    if not text.exists() or text.stat().st_size < n_bytes:
        _write_text(place, text, n_bytes)
    run = Watched("ingest", text, out, "--workers", workers, "--memory-limit", limit, "--quiet")
    return {
        "text bytes": text.stat().st_size,
        "limit": parse_bytes(limit),
        "peaks": sorted(run.peaks.values()),
        "wall seconds": run.seconds,
        "MB/s": text.stat().st_size / run.seconds / 1e6,
        "rows": distls.open_dataset(out).meta.n_rows,
    }


def _write_text(place: Path, text: Path, n_bytes: int) -> None:
    rows = 100_000
    source = place / "text-source"
    if not source.exists():
        distls.generate("rcv1-4", source, rows=rows)
    size = export_text(source, place / "piece.svm")
    piece = (place / "piece.svm").read_bytes()
    with text.open("wb") as file:
        for _ in range(-(-n_bytes // size)):
            file.write(piece)


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--rows", type=int, default=6_652_650)
    parser.add_argument("--text-gb", type=float, default=3.0)
    parser.add_argument("--memory-limit", default="600MiB")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--part", default="fit,ingest,columns", help="some of fit, ingest, columns")
    parser.add_argument("--column-rows", type=int, default=1_500_000)
    parser.add_argument("--column-limit", default="800MiB")
    # the objective is above 10
    parser.add_argument("--column-tol", type=float, default=0.1, help="duality gap that ends the fit by columns")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    parts: dict[str, Callable[[argparse.Namespace, Path], dict[str, Any]]] = {
        "fit": _fit, "ingest": _ingest, "columns": _columns
    }  # fmt: skip
    asked = options.part.split(",")
    if unknown := set(asked) - set(parts):
        parser.error(f"--part {','.join(sorted(unknown))}: there are {', '.join(parts)}")
    with tempfile.TemporaryDirectory(prefix="distls-scale-") as folder:
        results = {part: parts[part](options, options.directory or Path(folder)) for part in asked}
    if options.out:
        options.out.write_text(json.dumps(results, indent=1))
    return results


def _fit(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    fitted = fit_beyond_memory(place, options.rows, options.memory_limit, options.workers, options.passes)
    print(
        f"fit: {fitted['rows']:,} rows, {human(fitted['decoded bytes'])} decoded, {human(fitted['stored bytes'])} "
        f"stored; limit {options.memory_limit}, plan {human(fitted['plan'])}; peaks {_shares(fitted)}; "
        f"{fitted['passes']:g} passes in {fitted['train seconds']:.1f} s, error {fitted['error %']:.2f} %",
        flush=True,
    )
    return fitted


def _ingest(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    n_bytes = int(options.text_gb * 1e9)
    ingested = ingest_beyond_memory(place, n_bytes, options.memory_limit, options.workers)
    print(
        f"ingest: {ingested['text bytes'] / 1e9:.2f} GB of text, {ingested['rows']:,} rows; limit "
        f"{options.memory_limit}; peaks {', '.join(map(human, ingested['peaks']))}; {ingested['MB/s']:.0f} MB/s",
        flush=True,
    )
    return ingested


def _columns(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    fitted = descend_beyond_memory(
        place, options.column_rows, options.column_limit, options.workers, options.column_tol
    )
    print(
        f"columns: {fitted['rows']:,} rows, {human(fitted['decoded bytes'])} of shards; limit {options.column_limit}, "
        f"plan {human(fitted['plan'])}; peaks {_shares(fitted)}; {human(fitted['network bytes a round'])} a round "
        f"between processes, {human(fitted['bytes read'])} read"
    )
    for number, seconds, objective, relative in fitted["certificates"]:
        print(f"  round {number:4d}  {seconds:7.1f} s  objective {objective:.6f}  gap {relative:.2e} of it")
    print(f"  default active_mib: {fitted['refused'] or 'fits'}", flush=True)
    return fitted


def _shares(fitted: dict[str, Any]) -> str:
    return ", ".join(f"{human(p)} = {100 * p / fitted['plan']:.0f} % of the plan" for p in fitted["peaks"])


if __name__ == "__main__":
    main()
