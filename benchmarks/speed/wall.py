"""Seconds that a command prints beside those that it takes, and the share of its certificates, for every method.

    python -m benchmarks.speed.wall [--rows N] [--passes N] [--rtol X] [--methods A,B] [--workers N] [--out FILE.json]

`distls fit METHOD` as a whole process, on rows of 40 dense features and three classes. ``wall`` is measured around the
process, ``printed`` is what its last lines say, ``parts`` what it says they were spent on. With --rtol each method that
can be judged by it runs until its certificate is so small, or for --passes, and is evaluated as often as it chooses;
`share` is that of all certificates, `before` that of all but the last, which comes at an end whatever it costs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sklearn.datasets import make_classification

import distls
from distls.clock import parts_of
from distls.methods.method_registry import METHODS
from distls.training.run_folder import Run


def _data(folder: Path, rows: int) -> Path:
    x, y = make_classification(rows, 40, n_informative=20, n_classes=3, random_state=0)
    distls.ingest(x, folder / "data", y=y, transform="standardize")
    distls.add_columns(folder / "data")
    return folder / "data"


def _names(method: str) -> set[str]:
    return {parameter.name for parameter in METHODS[method].parameters}


def _row(method: str, data: Path, run: Path, options: argparse.Namespace) -> dict[str, Any] | None:
    where = ["--workers", str(options.workers)] if options.workers else ["--executor", "serial"]
    words = ["fit", method, str(data), str(run), "--quiet", *where]
    limit = ["--passes", str(options.passes)]
    words += ["-p", "alpha=1e-3"] if "alpha" in _names(method) else []
    # With an intercept the certificate of most is the norm of a gradient.
    plain = ["-p", "fit_intercept=false"] if "fit_intercept" in _names(method) else []
    # Of some methods no certificate is a bound, and some train each class to its own end.
    for judged in ([[*limit, *plain, "--rtol", str(options.rtol)]] if options.rtol else []) + [limit, []]:
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "distls", *words, *judged], capture_output=True, text=True, check=False
        )
        wall = time.perf_counter() - started
        if not done.returncode:
            break
        print(f"{method}: {done.stderr.splitlines()[-1]}")
    else:
        return None
    printed = float(done.stdout.partition(", ")[2].partition(" s")[0].replace(",", ""))
    status, parts = Run.open(run).status, parts_of(Run.open(run).status)
    share, before = _shares(Run.open(run).events())
    found = {"method": method, "wall": wall, "printed": printed, "share": share, "before": before}
    relative = (status.get("certificate") or {}).get("relative")
    return found | {"status": status["status"], "passes": status["passes"], "relative": relative, **parts}


def _shares(records: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Return the share of certificates in the work of all rounds, and of all of them but the last."""
    spent = [record["eval_seconds"] for record in records if "eval_seconds" in record]
    work = sum(records[-1][name] for name in ("read_seconds", "train_seconds")) if records else 0.0
    last, before = ([0.0, 0.0, *sorted(set(spent))])[:-3:-1]
    return last / max(last + work, 1e-9), before / max(before + work, 1e-9)


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark, print a table, and return the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--passes", type=float, default=5)
    parser.add_argument("--rtol", type=float)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--workers", type=int, default=0, help="processes; default: in the process of the command")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    results = []
    names = ("wall", "printed", "start", "compile", "read", "train", "evaluate", "write", "share", "before")
    with tempfile.TemporaryDirectory(prefix="distls-wall-") as folder:
        data = _data(Path(folder), options.rows)
        print(f"{'method':14}" + "".join(f"{name:>10}" for name in names))
        for method in options.methods.split(","):
            row = _row(method, data, Path(folder) / method, options)
            if row is not None:
                results.append(row)
                print(f"{method:14}" + "".join(f"{row[name]:>10.2f}" for name in names), flush=True)
    off = max(abs(row["wall"] - row["printed"]) - 0.05 * row["wall"] for row in results)
    print(f"printed and wall differ by at most 5 % and {max(off, 0.0):.2f} s")
    asked = {name: getattr(options, name) for name in ("rows", "passes", "rtol")}
    report = {**asked, "results": results}
    if options.out is not None:
        options.out.write_text(json.dumps(report, indent=1, allow_nan=False))
    return report


if __name__ == "__main__":
    main()
