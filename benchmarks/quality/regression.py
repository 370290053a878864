"""r2 of every method for numbers with nothing chosen, beside the closed form, on three small tables.

    python -m benchmarks.quality.regression [--sets NAMES] [--methods NAMES] [--rows 4000] [--out FILE.json]

`scaled` has columns of mean zero and like scales, `correlated` columns that share six directions, `small` the same
hundredfold smaller, `unscaled` scales from a thousandth to ten thousand, means of thirty times these, and targets about
ten thousand. Half of the rows are trained on with a seed of
the script, half judge; `lost` is the part of the closed form's r2 that a method misses. Some methods take only numbers
in [0, 1], or classes, and have no line.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import distls
from distls.methods.method_registry import METHODS

SETS = ("scaled", "correlated", "small", "unscaled")
FEATURES = 12


def made(name: str, n_rows: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return rows and targets of a set, as many again to judge by."""
    rng = np.random.default_rng(SETS.index(name))
    x = rng.normal(size=(2 * n_rows, FEATURES))
    if name in ("correlated", "small"):
        x = rng.normal(size=(2 * n_rows, 6)) @ rng.normal(size=(6, FEATURES)) + 0.05 * x
    score = x @ rng.normal(size=FEATURES)
    y = score / score.std() + 0.4 * rng.normal(size=2 * n_rows)
    if name == "small":
        x *= 0.01
    if name == "unscaled":
        x = (x + 30.0 * rng.normal(size=FEATURES)) * np.logspace(-3, 4, FEATURES)
        y = 1e4 + 3e3 * y
    return x, y


def r2(y: NDArray[Any], found: NDArray[Any]) -> float:
    """Return the share of the variance that is explained."""
    return float(1.0 - np.square(y - found.reshape(len(y))).sum() / np.square(y - y.mean()).sum())


def closed_form(x: NDArray[Any], y: NDArray[Any], test: NDArray[Any]) -> NDArray[Any]:
    """Return predictions of least squares, solved on standardized columns."""
    mean, scale = x.mean(axis=0), x.std(axis=0)
    weights = np.linalg.lstsq((x - mean) / scale, y - y.mean(), rcond=None)[0]
    return np.asarray((test - mean) / scale @ weights + y.mean())


def measure(name: str, methods: Sequence[str], n_rows: int) -> list[dict[str, Any]]:
    """Fit a set by each method with nothing chosen, of the file as it is."""
    (x, test), (y, test_y) = (np.split(each, 2) for each in made(name, n_rows))
    best = r2(test_y, closed_form(x, y, test))
    found = []
    with tempfile.TemporaryDirectory(prefix="distls-regression-") as folder:
        distls.ingest(x, Path(folder) / "data", y=y, target="continuous")
        if any(METHODS[method].columns for method in methods):
            distls.add_columns(Path(folder) / "data")
        for method in methods:
            began = time.process_time()
            result = distls.fit(method, Path(folder) / "data", Path(folder) / method)
            spent = time.process_time() - began
            own = r2(test_y, distls.load_model(Path(folder) / method).predict(test))
            line = {"set": name, "method": method, "r2": own, "closed_form": best, "lost": 1.0 - own / best}
            found.append(line | {"status": str(result.status.value), "passes": result.passes, "cpu": spent})
    return found


def main(argv: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Run the benchmark, print a table, and return its lines."""
    numeric = [name for name, method in METHODS.items() if "continuous" in method.targets]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--methods", default=",".join(numeric))
    parser.add_argument("--rows", type=int, default=4000, help="rows to train on, and as many to judge by")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    print(f"{'set':11} {'method':11} {'r2':>8} {'best':>7} {'lost, %':>8} {'passes':>7} {'CPU, s':>7} status")
    results = []
    for name in options.sets.split(","):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lines = measure(name, options.methods.split(","), options.rows)
        for line in lines:
            print(
                f"{name:11} {line['method']:11} {line['r2']:8.4f} {line['closed_form']:7.4f} "
                f"{100 * line['lost']:8.2f} {line['passes']:7.0f} {line['cpu']:7.2f} {line['status']}",
                flush=True,
            )
        results += lines
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1, allow_nan=False))
    return results


if __name__ == "__main__":
    main()
