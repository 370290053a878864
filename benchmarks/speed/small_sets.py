"""Seconds and test errors of five small sets: `distls train`, methods and estimators, beside scikit-learn.

    python -m benchmarks.speed.small_sets [--tiny] [--cold] [--sets NAMES] [--methods NAMES|all] [--out FILE.json]

The sets come with scikit-learn or are made: two tables of measurements, digits, 10,000 rows of three classes, and 4,000
tickets of Zipf words. Seven tenths of the rows are trained on. ``train`` and ``fit`` are whole processes, with
``--cold`` once more with an empty folder of compiled kernels. Estimators are calls of a warm process on prepared rows;
scikit-learn's pipeline (StandardScaler, of text TfidfVectorizer, and LogisticRegressionCV) is one first call.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn import datasets
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import distls
from benchmarks.speed.small import Spent, run_timed, timed
from distls.methods.method_registry import METHODS

EIGHT = "newton,gls,sgd,mcid,sdca,ovr-sdca,olbfgs,bcd"
_ESTIMATORS: dict[str, Callable[[], Any]] = {
    "DualLogisticRegression": lambda: distls.DualLogisticRegression(),
    "GeneralizedLeastSquaresClassifier": lambda: distls.GeneralizedLeastSquaresClassifier(alpha=1e-3),
    "SparseMulticlassClassifier": lambda: distls.SparseMulticlassClassifier(),
    "StochasticClassifier": lambda: distls.StochasticClassifier(),
}


class Rows(NamedTuple):
    """Rows to train on and to test with: numbers or documents, and class codes."""

    x: Any
    y: Any
    test_x: Any
    test_y: Any

    @property
    def is_text(self) -> bool:
        """Whether rows are documents."""
        return isinstance(self.x, list)


def _tickets(n: int = 4000, words: int = 12_000, classes: int = 8) -> tuple[list[str], Any]:
    rng = np.random.default_rng(0)
    common = 1.0 / np.arange(1, words + 1) ** 1.05
    own = [rng.choice(words, 150, replace=False) for _ in range(classes)]
    y, texts = rng.integers(0, classes, n), []
    for code in y:
        k = int(rng.integers(8, 40))
        drawn = np.where(rng.random(k) < 0.12, rng.choice(own[code], k), rng.choice(words, k, p=common / common.sum()))
        texts.append(" ".join(f"w{word}" for word in drawn))
    return texts, y


def small_sets() -> dict[str, Callable[[], tuple[Any, Any]]]:
    """Return the sets by name."""
    return {
        "wine": lambda: datasets.load_wine(return_X_y=True),
        "cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
        "digits": lambda: datasets.load_digits(return_X_y=True),
        "made": lambda: datasets.make_classification(10_000, 20, n_informative=8, n_classes=3, random_state=0),
        "tickets": _tickets,
    }


def _split(x: Any, y: Any) -> Rows:
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[: len(y) * 7 // 10], order[len(y) * 7 // 10 :]
    if isinstance(x, list):
        return Rows([x[i] for i in train], y[train], [x[i] for i in test], y[test])
    return Rows(x[train], y[train], x[test], y[test])


def _write(path: Path, x: Any, y: Any, text: bool) -> None:
    names = ["text"] if text else [f"f{j}" for j in range(len(x[0]))]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "label"])
        for row, label in zip(x, y, strict=True):
            writer.writerow([*([row] if text else map(repr, map(float, row))), f"c{label}"])


def _shell_rows(rows: Rows, folder: Path, methods: Sequence[str], cold: bool) -> list[dict[str, Any]]:
    """Time whole processes: `train`, then `fit` of each method on its data set."""
    for name, x, y in (("train", rows.x, rows.y), ("test", rows.test_x, rows.test_y)):
        _write(folder / f"{name}.csv", x, y, rows.is_text)
    options = ["--text-column", "text"] if rows.is_text else []
    made = 0

    def train(environment: dict[str, str]) -> tuple[Spent, Path]:
        nonlocal made
        made += 1
        run = folder / f"run-{made}"
        return run_timed(environment, "train", folder / "train.csv", run, "--quiet", *options), run

    train({})  # compiles what is not compiled yet
    spent, run = train({})
    first = _first(lambda empty: train(empty)[0]) if cold else {}
    found = [{"job": "distls train", **_judged(spent, run, folder / "test.csv"), **first}]
    data = run.with_name(f"{run.name}-data")
    if "bcd" in methods:
        run_timed({}, "columns", data, "--quiet")
    for method in methods:
        place = folder / f"fit-{method}"
        # what is refused for its size, as `gls` is of text, has no line
        with contextlib.suppress(subprocess.CalledProcessError):
            run_timed({}, "fit", method, data, place.with_name(f"{place.name}-first"), "--quiet")
        if not place.with_name(f"{place.name}-first").exists():
            continue
        spent = run_timed({}, "fit", method, data, place, "--quiet")
        line = {"job": f"fit {method}", **_judged(spent, place, folder / "test.csv")}
        again = ("fit", method, data, place.with_name(f"{place.name}-cold"), "--quiet")
        found.append(line | (_first(lambda empty, words=again: run_timed(empty, *words)) if cold else {}))
    return found


def _first(run: Callable[[dict[str, str]], Spent]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as empty:
        return dict(zip(("cold", "cold_cpu"), run({"NUMBA_CACHE_DIR": empty}), strict=True))


def _judged(spent: Spent, run: Path, test: Path) -> dict[str, Any]:
    error = getattr(distls.evaluate(run, test, notify=lambda text: None), "error", None)
    status = json.loads((run / "status.json").read_text())["status"]
    return {"warm": spent.wall, "cpu": spent.cpu, "error": error, "status": status}


def _call_rows(rows: Rows) -> list[dict[str, Any]]:
    """Time calls of this process: estimators on prepared rows, and scikit-learn's whole pipeline."""
    prepare = TfidfVectorizer() if rows.is_text else StandardScaler()
    x, test = prepare.fit_transform(rows.x), prepare.transform(rows.test_x)
    pipeline = make_pipeline(type(prepare)(), LogisticRegressionCV(max_iter=1000, use_legacy_attributes=False))
    spent = timed(lambda: pipeline.fit(rows.x, rows.y))
    error = 1.0 - pipeline.score(rows.test_x, rows.test_y)
    found = [{"job": "scikit-learn", "warm": spent.wall, "cpu": spent.cpu, "error": error, "status": ""}]
    for name, make in _ESTIMATORS.items():
        make().fit(x, rows.y)  # compiles, or loads what is compiled
        fitted = make()
        spent = timed(lambda fitted=fitted: fitted.fit(x, rows.y))
        error = 1.0 - fitted.score(test, rows.test_y)
        line = {"job": name, "warm": spent.wall, "cpu": spent.cpu, "error": error, "status": fitted.status_}
        found.append(line)
    return found


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark, print a table, and return the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="one set and one method: only to see that it runs")
    parser.add_argument("--sets", default=",".join(small_sets()))
    parser.add_argument("--methods", default=EIGHT, help="names, or all")
    parser.add_argument("--cold", action="store_true", help="also with an empty folder of compiled kernels")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    names = ["wine"] if options.tiny else options.sets.split(",")
    asked = ",".join(METHODS) if options.methods == "all" else options.methods
    methods = ["newton"] if options.tiny else [name for name in asked.split(",") if name]
    results = []
    print(
        f"{'set':8} {'job':34} {'warm, s':>8} {'CPU, s':>8} {'cold, s':>8} {'CPU, s':>8} {'error, %':>9} status",
        flush=True,
    )
    for name in names:
        rows = _split(*small_sets()[name]())
        with tempfile.TemporaryDirectory(prefix="distls-small-") as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lines = _shell_rows(rows, Path(folder), methods, options.cold)
            lines += [] if options.tiny else _call_rows(rows)
        for line in lines:
            results.append({"set": name, **line})
            cold, cold_cpu = ("" if line.get(key) is None else f"{line[key]:.2f}" for key in ("cold", "cold_cpu"))
            print(
                f"{name:8} {line['job']:34} {line['warm']:8.2f} {line['cpu']:8.2f} {cold:>8} {cold_cpu:>8} "
                f"{100 * line['error']:9.2f} {line['status']}",
                flush=True,
            )
    report = {"load": os.getloadavg()[0], "python": sys.version.split()[0], "results": results}
    if options.out is not None:
        options.out.write_text(json.dumps(report, indent=1, allow_nan=False))
    return report


if __name__ == "__main__":
    main()
