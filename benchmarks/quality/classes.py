"""Very many classes: memory, seconds and error of `ovr-sdca`, whose weights are trained by blocks of classes.

    python -m benchmarks.quality.classes --part full [--rows N] [--directory FOLDER] [--memory-limit 2GiB] [--out FILE]
    python -m benchmarks.quality.classes --part blocks [--rows N]
    python -m benchmarks.quality.classes --part trees --rivals PYTHON [--directory FOLDER]
    DISTLS_DATA=FOLDER python -m benchmarks.quality.classes --part small

`full`: the shape of LSHTC1, 12,294 classes and 347,255 features, by the command line and two workers: the highest
resident bytes of workers and commands, seconds a pass (a sweep of every class over all rows), the size of the
model, and the error of the same rows' test part. What is in FOLDER already is used, and a run that was stopped resumed.

`trees`: napkinXC and PECOS on the same rows, in an interpreter of their own.

`blocks`: CPU seconds of the second sweep of all classes, by the number of classes in a block.

`small`: LSHTC1 task 2, 1,139 classes: the error on the validation rows, the seconds of the fit, the CPU seconds of the
whole call, and the stored weights, by the strength, with an intercept and without one, and by what is pruned.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import distls
from benchmarks.quality.real import SETS, arrays_of, ingest_set
from distls.methods.method_registry import method_named
from distls.reporting.costs import round_seconds
from distls.solvers.dual_ascent.class_blocks import ClassBlockSolver
from distls.training.configuration import Setting
from distls.workers.dual_ascent import class_task
from distls.workers.rounds.ledger import Ledger

PRUNE = 0.01
STRENGTHS = (1e-4, 5e-5, 2e-5, 1e-5)
WIDTHS = (16, 32, 64, 128, 256)


def command(*arguments: object) -> tuple[str, float, int]:
    """Run a command of distls; return what it writes, its seconds and its own peak in bytes."""
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen([sys.executable, "-m", "distls", *map(str, arguments)], stdout=out)
        _, code, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(code)
        out.seek(0)
        text = out.read()
    if process.returncode:
        raise RuntimeError(f"distls {' '.join(map(str, arguments))}: exit code {process.returncode}")
    return text, time.perf_counter() - started, usage.ru_maxrss * 1024


def generate(place: Path, rows: int | None) -> Path:
    """Return the data set of the full shape, or of its first rows."""
    data = place / "lshtc1"
    if not data.exists():
        command("generate", "lshtc1", data, "--quiet", *([] if rows is None else ["--rows", rows]))
    return data


def full(place: Path, rows: int | None, limit: str) -> dict[str, Any]:
    """Measure the full shape, or its first rows."""
    data, run = generate(place, rows), place / "run"
    workers = ("--workers", 2, "--threads-per-worker", 1, "--memory-limit", limit, "--quiet")
    asked = ("resume", run) if run.exists() else ("fit", "ovr-sdca", data, run, "-p", f"prune={PRUNE}")
    _, _, driver = command(*asked, *workers)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    last, meta = events[-1], distls.open_dataset(data).meta
    tested, seconds, evaluating = command(
        "evaluate", run, f"{data}-test", "--unknown-labels", "count", "--json", *workers[:-1]
    )
    predicted, found = [], place / "predictions.csv"
    for rows_of in (Path(f"{data}-test"), data):
        _, took, _ = command("predict", run, rows_of, found, "--top", 5, "--overwrite", *workers)
        n_rows = distls.open_dataset(rows_of).meta.n_rows
        predicted.append({"rows": n_rows, "seconds": took, "rows_per_second": n_rows / took})
    peaks = [peak for event in events for peak in event["worker_peaks"].values()]
    files = [path.stat().st_size for path in (run / "model").rglob("*") if path.is_file()]
    return {
        "rows": meta.n_rows,
        "dense_bytes": 4 * meta.n_features * len(meta.classes),
        "worker_peak_bytes": max(peaks, default=0),
        "driver_peak_bytes": driver,
        "evaluate_peak_bytes": evaluating,
        "sweeps": last["passes"],
        "seconds": last["seconds"],
        "seconds_per_pass": round_seconds(last) / last["passes"],
        "kernel_seconds": sum(event["kernel_seconds"] for event in events),
        "relative_gap": last["certificate"]["relative"],
        "weights": last["details"]["weights"],
        "model_bytes": sum(files),
        "evaluate_seconds": seconds,
        "predicted": predicted,
        "error": 100 * json.loads(tested)["error"],
    }


def trees(place: Path, rows: int | None, interpreter: str) -> list[dict[str, Any]]:
    """Train and test the rivals."""
    data = generate(place, rows)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("train.npz", "test.npz")]
        for source, file in zip((data, Path(f"{data}-test")), files, strict=True):
            x, y = arrays_of(source)
            np.savez(file, data=x.data, indices=x.indices, indptr=x.indptr, shape=x.shape, labels=y)
        script = Path(__file__).with_name("class_trees.py")
        found = subprocess.run([interpreter, script, *files], check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]


def blocks(place: Path, rows: int | None) -> dict[int, float]:
    """Time sweeps over blocks of different widths."""
    dataset = distls.open_dataset(generate(place, rows))
    solver = Setting.of(method_named("ovr-sdca"), {}, dataset, 0).solver(slots=1, memory=None)
    assert isinstance(solver, ClassBlockSolver)
    k, found = solver.problem.shape[1], {}
    job = replace(solver.task(), data=replace(solver.data, cache_bytes=int(2 * dataset.decoded_bytes.sum())))
    for width in WIDTHS:
        block = class_task.Block(job, 0, width, Ledger())
        block.sweep(0)
        started = time.process_time()
        block.sweep(1)
        found[width] = (time.process_time() - started) * k / width
    return found


def small(place: Path, source: Path) -> list[dict[str, Any]]:
    """Measure LSHTC1 task 2."""
    if not (place / "test").exists():
        ingest_set(SETS["lshtc2"], source, place, 64 * 2**20)
    settings: list[dict[str, Any]] = [{"alpha": alpha, "prune": PRUNE} for alpha in STRENGTHS]
    settings += [{"alpha": 5e-5, "prune": prune} for prune in (None, 0.03, 0.1)]
    settings += [{"alpha": 5e-5, "prune": PRUNE, "fit_intercept": False}]
    rows = []
    for setting in settings:
        started = time.process_time()
        result = distls.fit("ovr-sdca", place / "all", params=setting)
        used = time.process_time() - started
        tested = distls.evaluate(result.model, place / "test", unknown_labels="count")
        rows.append({
            **setting,
            "error": 100 * tested.error,
            "seconds": result.seconds,
            "cpu_seconds": used,
            "weights": result.record["details"]["weights"],
            "sweeps": result.passes,
            "relative_gap": result.record["certificate"]["relative"],
        })  # fmt: skip
    return rows


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run what was asked for; print it and return it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="full,blocks,small")
    parser.add_argument("--data", type=Path, default=os.environ.get("DISTLS_DATA"))
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--rivals", metavar="PYTHON", help="interpreter with napkinxc and libpecos")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--memory-limit", default="2GiB")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        place = options.directory or Path(temporary)
        for part in options.part.split(","):
            if part == "small" and options.data is None:
                parser.error("--part small needs --data FOLDER, or DISTLS_DATA")
            if part == "trees" and options.rivals is None:
                parser.error("--part trees needs --rivals PYTHON")
            results[part] = {
                "full": lambda: full(place, options.rows, options.memory_limit),
                "trees": lambda: trees(place, options.rows, options.rivals),
                "blocks": lambda: blocks(place, options.rows),
                "small": lambda: small(place, Path(options.data)),
            }[part]()
            print(part, json.dumps(results[part], indent=2, default=float), flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=2, default=float))
    return results


if __name__ == "__main__":
    main()
