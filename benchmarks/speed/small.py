"""Seconds of small jobs beside scikit-learn: a first call ever, a first call of a process, and calls of a warm process.

    python -m benchmarks.speed.small [--tiny] [--repeats N] [--rows N] [--cold] [--out FILE.json]

Wall seconds, the least of the repeats, and their CPU seconds, which a busy machine distorts less. ``shell`` is a whole
process, interpreter and imports included; ``python`` a call in a process that has made the same call before; ``search``
a GridSearchCV over 20 settings in five folds. ``--cold`` also times each process once with an empty folder of compiled
kernels, as on a fresh machine. Accuracies are of the training rows, to show that the same is done.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.datasets import dump_svmlight_file, make_classification
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV

from distls import DualLogisticRegression, StochasticClassifier

_SCRIPT = """
import sys, numpy as np
from {module} import {estimator}
rows = np.load(sys.argv[1])
{estimator}().fit(rows["x"], rows["y"])
"""
_OURS = _SCRIPT.format(module="distls", estimator="StochasticClassifier")
_RIVAL = _SCRIPT.format(module="sklearn.linear_model", estimator="SGDClassifier")
_SETTINGS = 20


class Spent(NamedTuple):
    """Seconds of a job."""

    wall: float
    cpu: float  # of all its processes


class Jobs:
    """Small jobs on one set of rows, each with its name."""

    def __init__(self, folder: Path, rows: int, searched: tuple[int, int]) -> None:
        self._folder, self._made = folder, 0
        self.x, self.y = make_classification(rows, 20, random_state=0)
        self.wide = make_classification(*searched, random_state=0)
        dump_svmlight_file(self.x, self.y, str(folder / "rows.svm"), zero_based=False)
        np.savez(folder / "rows.npz", x=self.x, y=self.y)
        dump_svmlight_file(self.x[:1], self.y[:1], str(folder / "row.svm"), zero_based=False)
        names = ",".join([*(f"f{j}" for j in range(self.x.shape[1])), "label"])
        np.savetxt(folder / "rows.csv", np.c_[self.x, self.y], delimiter=",", header=names, comments="")
        run_timed({}, "ingest", folder / "rows.svm", folder / "data", "--quiet")
        run_timed({}, "fit", "sgd", folder / "data", folder / "run", "--quiet")

    def processes(self) -> dict[str, Callable[[dict[str, str]], Spent]]:
        """Return what whole processes do; each is given changes of the environment."""
        folder = self._folder
        return {
            "import distls": lambda env: shell(env, "-c", "import distls"),
            "distls --help": lambda env: shell(env, "-m", "distls", "--help"),
            "distls ingest": lambda env: self._distls(env, "ingest", folder / "rows.svm", self._new("data")),
            "distls fit": lambda env: self._distls(env, "fit", "sgd", folder / "data", self._new("run")),
            "distls train": lambda env: self._distls(env, "train", folder / "rows.csv", self._new("run")),
            "distls info": lambda env: run_timed(env, "info", folder / "run"),
            "distls predict, a row": lambda env: self._distls(
                env, "predict", folder / "run", folder / "row.svm", self._new("out").with_suffix(".csv"), "--labelled"
            ),
            "distls evaluate": lambda env: self._distls(env, "evaluate", folder / "run", folder / "data"),
            "StochasticClassifier": lambda env: shell(env, "-c", _OURS, folder / "rows.npz"),
            "SGDClassifier": lambda env: shell(env, "-c", _RIVAL, folder / "rows.npz"),
        }

    def _distls(self, environment: dict[str, str], *words: object) -> Spent:
        return run_timed(environment, *words, "--quiet")

    def _new(self, name: str) -> Path:
        self._made += 1
        return self._folder / f"{name}-{self._made}"

    def calls(self) -> dict[str, Callable[[], BaseEstimator]]:
        """Return what a warm process does."""
        return {
            "StochasticClassifier": lambda: StochasticClassifier().fit(self.x, self.y),
            "SGDClassifier": lambda: SGDClassifier(loss="log_loss").fit(self.x, self.y),
            "DualLogisticRegression": lambda: DualLogisticRegression().fit(self.x, self.y),
            "LogisticRegression": lambda: LogisticRegression().fit(self.x, self.y),
        }

    def searches(self) -> dict[str, Callable[[], BaseEstimator]]:
        """Return searches over settings."""
        alphas, strengths = np.logspace(-6, -2, _SETTINGS), np.logspace(-3, 3, _SETTINGS)
        return {
            "StochasticClassifier": lambda: self._search(StochasticClassifier(), alpha=alphas),
            "SGDClassifier": lambda: self._search(SGDClassifier(loss="log_loss"), alpha=alphas),
            "DualLogisticRegression": lambda: self._search(DualLogisticRegression(), C=strengths),
            "LogisticRegression": lambda: self._search(LogisticRegression(), C=strengths),
            # nearer to the optimum, as DualLogisticRegression is
            "LogisticRegression, 1e-5": lambda: self._search(LogisticRegression(tol=1e-5), C=strengths),
        }

    def _search(self, estimator: BaseEstimator, **grid: Any) -> BaseEstimator:
        found: BaseEstimator = GridSearchCV(estimator, grid, cv=5).fit(*self.wide)
        return found


def shell(changed: dict[str, str], *words: object) -> Spent:
    """Return the seconds of a process of Python, with changes of the environment."""
    environment = {**os.environ, "DISTLS_COMPILING_NOTICE": "0", **changed}
    command = [sys.executable, *map(str, words)]
    return timed(lambda: subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL), command=True)


def run_timed(changed: dict[str, str], *words: object) -> Spent:
    """Return the seconds of a command of distls."""
    return shell(changed, "-m", "distls", *words)


def timed(call: Callable[[], object], *, command: bool = False) -> Spent:
    """Return the seconds of a call; of a `command` with those of all processes that it has left."""
    cpu_seconds = _with_orphans if command else _cpu_seconds
    busy, began = cpu_seconds(), time.perf_counter()
    call()
    return Spent(time.perf_counter() - began, cpu_seconds() - busy)


_ADOPTS = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)


def _with_orphans() -> float:
    # What orphans took, as the workers of a command that has ended are, counts once somebody has waited for them.
    ctypes.CDLL(None).prctl(_ADOPTS, 1)
    deadline = time.monotonic() + 5.0
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0] or time.monotonic() < deadline:
            time.sleep(0.002)
    return _cpu_seconds()


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _process_rows(jobs: Jobs, repeats: int, cold: bool) -> list[dict[str, Any]]:
    rows = []
    for name, run in jobs.processes().items():
        first = run({})  # compiles what is not compiled yet
        warm = min([first, *(run({}) for _ in range(repeats - 1))])
        rows.append({"kind": "shell", "job": name, "warm": warm.wall, "cpu": warm.cpu, "cold": None, "cold_cpu": None})
        if cold:
            with tempfile.TemporaryDirectory() as empty:
                rows[-1]["cold"], rows[-1]["cold_cpu"] = run({"NUMBA_CACHE_DIR": empty})
    return rows


def _call_rows(
    kind: str, calls: dict[str, Callable[[], Any]], rows: tuple[Any, Any], repeats: int
) -> list[dict[str, Any]]:
    found = []
    for name, call in calls.items():
        fitted = call()
        spent = min(timed(call) for _ in range(repeats))
        row = {"kind": kind, "job": name, "warm": spent.wall, "cpu": spent.cpu, "cold": None, "cold_cpu": None}
        found.append({**row, "accuracy": fitted.score(*rows)})
    return found


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark, print a table, and return the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="one repeat, few rows: only to see that it runs")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--cold", action="store_true", help="also with an empty folder of compiled kernels")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    repeats = 1 if options.tiny else options.repeats
    with tempfile.TemporaryDirectory(prefix="distls-small-") as folder:
        jobs = Jobs(Path(folder), options.rows, (200, 10) if options.tiny else (5000, 50))
        results = _process_rows(jobs, repeats, options.cold)
        results += _call_rows("python", jobs.calls(), (jobs.x, jobs.y), repeats)
        results += _call_rows("search", jobs.searches(), jobs.wide, min(repeats, 2))
    report = {"rows": options.rows, "repeats": repeats, "load": os.getloadavg()[0], "results": results}
    _print(results)
    if options.out is not None:
        options.out.write_text(json.dumps(report, indent=1, allow_nan=False))
    return report


def _print(results: list[dict[str, Any]]) -> None:
    print(f"{'kind':8} {'job':24} {'warm, s':>9} {'CPU, s':>9} {'cold, s':>9} {'CPU, s':>9} {'accuracy':>9}")
    for row in results:
        cold, cold_cpu = ("" if row[name] is None else f"{row[name]:9.3f}" for name in ("cold", "cold_cpu"))
        accuracy = f"{row['accuracy']:9.4f}" if "accuracy" in row else ""
        print(
            f"{row['kind']:8} {row['job']:24} {row['warm']:9.3f} {row['cpu']:9.3f} {cold:>9} "
            f"{cold_cpu:>9} {accuracy:>9}".rstrip()
        )


if __name__ == "__main__":
    main()
