"""Test errors of methods with nothing chosen but their name, on draws of few rows.

    DISTLS_DATA=FOLDER python -m benchmarks.quality.few_rows [--methods NAMES] [--sets NAMES] [--draws N] [--out FILE]

Of the large sets as many rows are drawn as `_ROWS` has, and up to 2,000 others to test with; of the rest seven tenths,
and all others. `made` is another problem in each draw. `ingest` has `transform=auto`. Printed are the mean error of the
draws, its standard error, and CPU seconds of fit and prediction, with kernels that are not compiled yet.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets

import distls
from benchmarks.quality.defaults import SETS, Split

_ROWS = {"usps": 1000, "letter": 2000, "pendigits": 1000, "dna": 1500}


def _drawn(x: Any, y: np.ndarray, seed: int, rows: int | None) -> Split:
    order = np.random.default_rng(seed).permutation(len(y))[: rows and rows + 2000]
    train = order[: rows or len(order) * 7 // 10]
    test = order[len(train) :]
    return x[train], y[train], x[test], y[test]


def _loader(name: str, folder: Path | None) -> Callable[[int], Split]:
    if name == "made":
        shape = {"n_informative": 8, "n_classes": 3}
        return lambda seed: _drawn(*datasets.make_classification(10_000, 20, **shape, random_state=seed), seed, None)
    if name not in _ROWS:
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    elif folder is None:
        raise SystemExit("set DISTLS_DATA to the folder of the data sets")
    else:
        x, y = SETS[name](folder)[:2]
        x = x if isinstance(x, np.ndarray) else x.toarray()
    return lambda seed: _drawn(x, y, seed, _ROWS.get(name))


def _errors(methods: Sequence[str], split: Split) -> list[tuple[float, float]]:
    """Return error in % and CPU seconds of each method."""
    x, y, test_x, test_y = split
    found = []
    with tempfile.TemporaryDirectory(prefix="distls-few-") as folder:
        data = Path(folder) / "data"
        distls.ingest(x.astype(np.float32), data, y=y.astype(int), transform="auto")
        for method in methods:
            began = time.process_time()
            run = Path(folder) / method
            distls.fit(method, data, run)
            wrong = distls.load_model(run).predict(test_x.astype(np.float32)) != test_y.astype(int)
            found.append((100.0 * float(np.mean(wrong)), time.process_time() - began))
    return found


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the sets, print a line of each method, write JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("DISTLS_DATA"))
    parser.add_argument("--sets", default="iris,wine,breast_cancer,digits,made,usps,letter,pendigits,dna")
    parser.add_argument("--methods", default="ovr-sdca,svmsgd2,sgdqn,olbfgs")
    parser.add_argument("--draws", type=int, default=3, help="at least 2")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")  # of limits of passes
    methods, results = options.methods.split(","), {}
    for name in options.sets.split(","):
        load = _loader(name, options.data)
        found = np.array([_errors(methods, load(seed)) for seed in range(options.draws)])
        for at, method in enumerate(methods):
            errors = found[:, at, 0]
            line = {
                "error": errors.mean(),
                "deviation": errors.std(ddof=1) / len(errors) ** 0.5,
                "cpu": found[:, at, 1].mean(),
            }
            results[f"{name} {method}"] = line
            print(
                f"{name:14} {method:12} {line['error']:6.2f} % +- {line['deviation']:.2f} {line['cpu']:6.2f} CPU s",
                flush=True,
            )
    if options.out:
        options.out.write_text(json.dumps(results, indent=1))
    return results


if __name__ == "__main__":
    main()
