"""Comparison with other systems on real and generated data: error, wall time, CPU time and peak memory.

    DISTLS_DATA=FOLDER python -m benchmarks.quality.systems [--sets 20news,rcv1-4]
        [--rivals "VW hinge,LinearSVC"] [--out FILE]

Every system gets the same features as svmlight text, or Vowpal Wabbit's own format (log-tf, idf, unit rows for text,
pixels / 255 for MNIST), and may use both cores. Its strength (alpha or C) is the one with the lowest error on a
fifth of the training rows after training on the others (for a generated set: of its first 60,000 rows); the chosen
one is trained on all rows and evaluated on the test set. Strengths are tried from the cheapest; one that takes
longer than --limit ends the search. `load` is the time from text to the system's training format, `train` that of
the training. A run longer than --limit seconds is ended and shown as such. Systems that are not installed are
skipped with a note: Vowpal Wabbit and scikit-learn come with the extra `bench`, dask-ml and pyspark with `rivals`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import distls
from benchmarks.quality.real import SETS, arrays_of, ingest_set
from benchmarks.quality.rivals import RIVALS, Task
from distls.execution.memory_budget import MIB
from distls.synthetic.text_export import export_text

GENERATED = ("rcv1-4", "rcv1-53", "odp")
TUNING_ROWS = 60_000
NEEDS = {"VW": "vowpalwabbit", "dask-ml": "dask_ml", "Spark": "pyspark"}
ALPHAS = (1e-4, 3e-5, 1e-5, 3e-6, 1e-6)
STRENGTHS = {
    "distls mcid hinge": ALPHAS,
    "distls mcid log": ALPHAS,
    "SGDClassifier": ALPHAS,
    "dask-ml Incremental": ALPHAS,
    "LinearSVC": (0.03, 0.1, 0.3, 1.0, 3.0),
    "LinearSVC Crammer-Singer": (0.03, 0.1, 0.3, 1.0, 3.0),
    "LogisticRegression": (1.0, 10.0, 100.0, 1000.0),
    "Spark MLlib": (1.0, 10.0, 100.0),
}  # Vowpal Wabbit has its defaults, and so has distls sgd


def prepare(name: str, source: Path | None, place: Path, rows: int | None) -> tuple[Task, Task]:
    """Write a set as text; return the jobs for tuning and for training, common to all systems."""
    place.mkdir(parents=True, exist_ok=True)
    if name in GENERATED:
        distls.generate(name, place / "all", rows=rows)
        distls.generate(name, place / "first", rows=min(TUNING_ROWS, rows or TUNING_ROWS))
        train, test, passes = place / "all", place / "all-test", 5
        _write_text(place / "first", place / "first")
        distls.ingest(place / "first.svm", place / "part", split="val=0.2", n_features=_width(train))
    else:
        assert source is not None
        ingest_set(replace(SETS[name], held=0.2), source, place, 16 * MIB)
        train, test, passes = place / "all", place / "test", 10
    for path in (train, test, place / "part", place / "part-val"):
        _write_text(path, path)
    meta = distls.open_dataset(train).meta
    whole = Task("", f"{train}.svm", f"{test}.svm", meta.n_features, len(meta.classes), 1.0, passes, "")
    return replace(whole, train=f"{place}/part.svm", test=f"{place}/part-val.svm"), whole


def _width(path: Path) -> int:
    return distls.open_dataset(path).meta.n_features


def _write_text(path: Path, out: Path) -> None:
    """Write a dataset as svmlight and as Vowpal Wabbit text."""
    data = distls.open_dataset(path)
    if data.meta.layout == "dense":
        import scipy.sparse as sp

        x, y = arrays_of(path)
        sparse = path.with_name(f"{path.name}-sparse")
        distls.ingest(sp.csr_matrix(x), sparse, y=y, shuffle=False)
        data = distls.open_dataset(sparse)
    for style, ending in (("svmlight", "svm"), ("vw", "vw")):
        export_text(data, out.with_name(f"{out.name}.{ending}"), style=style)


def run(task: Task, limit: float) -> dict[str, Any]:
    """Run one system in a separate process; return its cost, or why it failed."""
    command = [sys.executable, "-m", "benchmarks.quality.rivals", json.dumps(asdict(task))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"failed": f"over {limit:.0f} s", "over limit": True}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:100]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(rival: str, tuning: Task, whole: Task, place: Path, limit: float) -> dict[str, Any]:
    """Choose a rival's strength, then train it on everything."""
    strengths = STRENGTHS.get(rival, (1.0,))
    chosen = strengths[0]
    if len(strengths) > 1:
        found = {}
        for strength in strengths:
            task = replace(tuning, rival=rival, strength=strength, place=str(place / "run"))
            tried = run(task, limit)
            if tried.get("over limit"):
                break  # the next would take longer still
            found[strength] = tried.get("error", 100.0)
        chosen = min(found or strengths, key=lambda strength: found.get(strength, 100.0))
    task = replace(whole, rival=rival, strength=chosen, place=str(place / "run"))
    return {"rival": rival, "strength": chosen if len(strengths) > 1 else None, **run(task, limit)}


def _print_row(name: str, row: dict[str, Any]) -> None:
    strength = "" if row["strength"] is None else f"{row['strength']:g}"
    head = f"{name:8} {row['rival']:29} {strength:>7} "
    if "failed" in row:
        print(f"{head} {row['failed']}", flush=True)
        return
    print(
        f"{head} {row['error']:8.2f} {row['load']:8.2f} {row['train']:8.2f} {row['cpu']:8.2f} {row['peak'] / MIB:8.0f}",
        flush=True,
    )


def _installed(rival: str) -> bool:
    module = next((needed for start, needed in NEEDS.items() if rival.startswith(start)), None)
    return module is None or importlib.util.find_spec(module) is not None


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure the requested sets and systems, print the table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("DISTLS_DATA"))
    parser.add_argument("--sets", help="default all; the real ones where DISTLS_DATA is set")
    parser.add_argument("--rivals", default=",".join(RIVALS))
    parser.add_argument("--rows", type=int, help="training rows of generated sets; default the papers'")
    parser.add_argument("--passes", type=int, help="of iterative systems; default 5 on generated sets, else 10")
    parser.add_argument("--limit", type=float, default=300, help="seconds of one run")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    names = (options.sets or ",".join([*(SETS if options.data else ()), *GENERATED])).split(",")
    wanted = [rival for rival in options.rivals.split(",") if rival]
    absent = [rival for rival in wanted if not _installed(rival)]
    if absent:
        print(f"not installed, left out: {', '.join(absent)}")
    results: dict[str, Any] = {"cpus": os.cpu_count(), "sets": {}}
    heads = ("error %", "load s", "train s", "CPU s", "peak MiB")
    print(f"{'set':8} {'system':29} {'alpha/C':>7}  " + " ".join(f"{head:>8}" for head in heads))
    for name in names:
        with tempfile.TemporaryDirectory(prefix="distls-table-") as folder:
            place = Path(folder)
            tuning, whole = prepare(name, options.data, place / "set", options.rows)
            if options.passes:
                tuning, whole = (replace(task, passes=options.passes) for task in (tuning, whole))
            rows = results["sets"][name] = []
            for rival in (rival for rival in wanted if rival not in absent):
                rows.append(measure(rival, tuning, whole, place, options.limit))
                _print_row(name, rows[-1])
    if options.out:
        options.out.write_text(json.dumps(results, indent=1))
    return results


if __name__ == "__main__":
    main()
