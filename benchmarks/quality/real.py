"""Test error on real data sets, loss and alpha chosen on a held-out part of the training data.

    DISTLS_DATA=FOLDER python -m benchmarks.quality.real [--sets 20news,mnist] [--methods mcid,sdca] [--passes 20]
    [--out FILE]

Each set is ingested as a user would: once whole, once with a stratified part held out (a quarter, or two
fifths for 20 Newsgroups, whose test documents are of a later time). The held-out part
chooses loss and alpha; the chosen setting is trained on the whole training set and evaluated on the test set, with
one lane and with the default lanes; small sets are cut into small partitions so that there are eight. `sdca` is
trained to a proven 1e-3, and also with the setting that is best on the test set itself, as rivals' are. In the same
run, scikit-learn's LinearSVC and LogisticRegression are trained on the same features, with their strength tuned on
the test set itself, which favours them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import distls
from distls.execution.memory_budget import MIB
from distls.storage.dataset.dataset import Dataset
from distls.storage.rows import DenseRows

TEXT = "log1p,idf,l2norm"
ALPHAS = [5e-4, 2e-4, 1e-4, 5e-5, 2e-5, 1e-5, 5e-6, 2e-6]
# What each method is fitted with: settings to choose from, and where a fit ends; None: after --passes.
GRIDS: dict[str, tuple[dict[str, Any], float | None]] = {
    "mcid": ({"loss": ["log", "hinge"], "alpha": ALPHAS}, None),
    "sdca": (
        {"loss": ["log", "hinge", "ovr_hinge", "ovr_squared_hinge"], "alpha": [1e-3, 3e-4, 1e-4, 3e-5, 1e-5]},
        1e-3,
    ),
}


@dataclass(frozen=True)
class RealSet:
    """A data set in the folder DISTLS_DATA.

    Attributes
    ----------
    train, test : str
        Files.
    transform : str
    bar : float
        Error % of the best tuned rival, from an earlier measurement.
    train_labels, test_labels : str or None
    held : float
        Fraction held out to choose by.
    """

    train: str
    test: str
    transform: str
    bar: float
    train_labels: str | None = None
    test_labels: str | None = None
    held: float = 0.25


SETS = {
    "20news": RealSet("20news/20news-counts.train.svm.gz", "20news/20news-counts.test.svm.gz", TEXT, 13.1, held=0.4),
    "sector": RealSet("sector/sector.scale.bz2", "sector/sector.t.scale.bz2", "", 5.8),
    "r52": RealSet("reuters-r52/r52-counts.train.svm.gz", "reuters-r52/r52-counts.test.svm.gz", TEXT, 4.7),
    "lshtc2": RealSet("lshtc1-small/task2-rdf.train.svm.gz", "lshtc1-small/task2-rdf.val.svm.gz", TEXT, 55.9),
    "mnist": RealSet(
        "mnist/train-images-idx3-ubyte.gz",
        "mnist/t10k-images-idx3-ubyte.gz",
        "scale=255",
        7.4,
        "mnist/train-labels-idx1-ubyte.gz",
        "mnist/t10k-labels-idx1-ubyte.gz",
    ),
}


def ingest_set(
    chosen: RealSet, source: Path, place: Path, partition_size: int, *, columns: bool = False
) -> tuple[Path, Path]:
    """Ingest a set: place/all, place/part, place/part-val, place/test and place/part-test; return all and part.

    With `columns` those to train on have column shards.
    """
    for name, split in (("all", ()), ("part", (f"val={chosen.held}",))):
        labels = source / chosen.train_labels if chosen.train_labels else None
        common = {
            "partition_size": partition_size,
            "columns": columns,
            "transform": tuple(filter(None, chosen.transform.split(","))),
        }
        distls.ingest(str(source / chosen.train), place / name, labels=labels, split=split, **common)
    labels = source / chosen.test_labels if chosen.test_labels else None
    distls.ingest(str(source / chosen.test), place / "test", labels=labels, like=place / "all")
    return place / "all", place / "part"


def ours(
    place: Path, method: str, lanes: int | None, passes: float, intercept: bool, select: str = "part-val"
) -> dict[str, Any]:
    """Choose by a data set, train on everything, score on the test set."""
    choices, rtol = GRIDS[method]
    grid = {**choices, "lanes": lanes, "fit_intercept": intercept}
    limits = {"passes": passes, "eval_every": 0} if rtol is None else {"rtol": rtol}
    started = time.perf_counter()
    chosen = distls.fit(method, place / select.split("-")[0], params=grid, select=place / select, **limits).selected
    selecting = time.perf_counter() - started
    assert chosen is not None
    result = distls.fit(method, place / "all", params=chosen, **limits)
    evaluation = distls.evaluate(result.model, place / "test", unknown_labels="count")
    return {
        "error": 100 * evaluation.error,
        "loss": chosen["loss"],
        "alpha": chosen["alpha"],
        "seconds": result.seconds,
        "select_seconds": selecting,
        "lanes": lanes,
    }


def arrays_of(path: Path) -> tuple[Any, np.ndarray]:
    """Return a whole dataset as (X, class labels) in memory, for the rivals."""
    data: Dataset = distls.open_dataset(path)
    parts = [data.read(i) for i in range(len(data))]
    labels = np.concatenate([np.array(data.meta.classes)[p.y] for p in parts])
    if isinstance(parts[0].x, DenseRows):
        return np.concatenate([p.x.values for p in parts]), labels
    width = data.meta.n_features
    blocks = [sp.csr_matrix((p.x.data, p.x.indices.astype(np.int32), p.x.indptr), (len(p.y), width)) for p in parts]
    return sp.vstack(blocks).tocsr(), labels


def rivals(place: Path) -> dict[str, dict[str, float]]:
    """Return the best test error of each rival over its strengths, and its seconds."""
    from sklearn.svm import LinearSVC

    x, y = arrays_of(place / "all")
    test_x, test_y = arrays_of(place / "test")
    table: dict[str, Callable[[float], Any]] = {"LinearSVC": lambda c: LinearSVC(C=c, dual=True, max_iter=300)}
    results = {}
    for name, make in table.items():
        best = {"error": 100.0}
        for strength in (0.1, 0.3, 1.0, 3.0):
            started = time.perf_counter()
            error = 100 * float(np.mean(make(strength).fit(x, y).predict(test_x) != test_y))
            if error < best["error"]:
                best = {"error": error, "strength": strength, "seconds": time.perf_counter() - started}
        results[name] = best
    return results


def run_set(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one set."""
    chosen, source = SETS[name], options.data
    passes, intercept = options.passes, options.intercept
    rows: dict[str, Any] = {"bar": chosen.bar}
    with tempfile.TemporaryDirectory(prefix="distls-real-") as folder:
        small = Path(folder) / "small"
        whole = Path(folder) / "whole"
        ingest_set(chosen, source, whole, 16 * MIB)
        if "mcid" in options.methods:
            rows["default lanes, 16 MiB partitions"] = ours(whole, "mcid", None, passes, intercept)
            rows["one lane"] = ours(whole, "mcid", 1, passes, intercept)
        if "sdca" in options.methods:
            rows["sdca"] = ours(whole, "sdca", None, passes, intercept)
            # as rivals are tuned
            (whole / "all-test").symlink_to("test")
            rows["sdca, tuned on the test set"] = ours(whole, "sdca", None, passes, intercept, "all-test")
        size = int(distls.open_dataset(whole / "all").decoded_bytes.sum())
        if "mcid" in options.methods and not options.no_small and len(distls.open_dataset(whole / "all")) < 8:
            ingest_set(chosen, source, small, max(size // 20, 4096))
            rows["eight lanes, small partitions"] = ours(small, "mcid", 8, passes, intercept)
        if not options.no_rivals:
            rows["rivals"] = rivals(whole)
    return rows


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the requested sets, print the table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("DISTLS_DATA"))
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--methods", default="mcid,sdca")
    parser.add_argument("--passes", type=float, default=20)
    parser.add_argument("--intercept", action="store_true")
    parser.add_argument("--no-rivals", action="store_true")
    parser.add_argument("--no-small", action="store_true", help="skip the small partitions")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    if options.data is None:
        sys.exit("set DISTLS_DATA to the folder of the data sets")
    results = {}
    print(f"{'set':8} {'bar %':>6} {'how':36} {'error %':>8} {'loss':15} {'alpha':>7} {'fit s':>6}")
    for name in options.sets.split(","):
        rows = results[name] = run_set(name, options)
        for how, row in rows.items():
            if how == "rivals":
                for rival, found in row.items():
                    print(
                        f"{name:8} {'':6} {rival:36} {found['error']:8.2f} {'':15} {'':7} "
                        f"{found.get('seconds', 0):6.1f}"
                    )
            elif how != "bar":
                print(
                    f"{name:8} {rows['bar']:6.1f} {how:36} {row['error']:8.2f} {row['loss']:15} {row['alpha']:7.0e} "
                    f"{row['seconds']:6.2f}",
                    flush=True,
                )
    if options.out:
        options.out.write_text(json.dumps(results, indent=1))
    return results


if __name__ == "__main__":
    main()
