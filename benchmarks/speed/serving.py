"""Microseconds a row of `distls.load_model(run).predict` beside scikit-learn's `predict`, in one process and thread.

    python -m benchmarks.speed.serving [--tiny] [--repeats N] [--out FILE.json]

    dense    50 standardised columns of 5 classes; rival: StandardScaler and LogisticRegression
    sparse   50,000 columns, 100 values a row, idf and unit rows; rival: TfidfTransformer and LogisticRegression
    text     documents hashed into 2**18 columns, logarithms, idf, unit rows; rival: HashingVectorizer,
             TfidfTransformer and LogisticRegression
    frame    a pandas frame of 10 numbers and 2 categories; rival: ColumnTransformer and LogisticRegression
    dict     the same as a dict of each row; the rival makes a frame of them first

Times are medians over the repeats, of calls with one row and with many, both programs in turns: read ratios. The
models differ (another method of training), their shapes and their input do not.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
import sklearn
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits

import distls

KINDS = ("dense", "sparse", "text", "frame", "dict")
_LOG = {"loss": "log"}


@dataclass(frozen=True)
class Served:
    """A model of each program, and rows for both."""

    rows: Any
    ours: Callable[[Any], Any]
    theirs: Callable[[Any], Any]


def _dense(root: Path, n_rows: int) -> Served:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n_rows, 50)).astype(np.float32)
    y = x[:, :5].argmax(axis=1)
    distls.ingest(x, root / "data", y=y, transform="standardize")
    rival = make_pipeline(StandardScaler(), LogisticRegression(max_iter=20)).fit(x, y)
    return Served(x, _fitted(root), rival.predict)


def _sparse(root: Path, n_rows: int) -> Served:
    rng = np.random.default_rng(0)
    x = sp.random_array((n_rows, 50_000), density=0.002, format="csr", rng=rng, dtype=np.float32)
    y = rng.integers(0, 5, n_rows)
    distls.ingest(x, root / "data", y=y, transform="idf,l2norm")
    rival = make_pipeline(TfidfTransformer(), LogisticRegression(max_iter=5)).fit(x, y)
    return Served(x, _fitted(root), rival.predict)


def _text(root: Path, n_rows: int) -> Served:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, n_rows)
    # frequent and rare words, some of them a label's own
    words = rng.zipf(1.3, (n_rows, 60)) % 20_000 + 20_000 * (rng.random((n_rows, 60)) < 0.2) * labels[:, None]
    texts = [" ".join(f"word{word}" for word in row) for row in words.tolist()]
    lines = (f"c{label}\t{text}\n" for label, text in zip(labels, texts, strict=True))
    (root / "train.tsv").write_text("".join(lines))
    distls.ingest(root / "train.tsv", root / "data", format="text", n_features=2**18, transform="log1p,idf,l2norm")
    hashing = HashingVectorizer(n_features=2**18, alternate_sign=False, norm=None)
    rival = make_pipeline(hashing, TfidfTransformer(sublinear_tf=True), LogisticRegression(max_iter=5))
    return Served(texts, _fitted(root), rival.fit(texts, labels).predict)


def _frame(root: Path, n_rows: int) -> Served:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((n_rows, 10)), columns=[f"x{k}" for k in range(10)])
    label = frame["x0"] > frame["x1"]
    for name in ("job", "town"):
        frame[name] = [f"{name} {k}" for k in rng.integers(0, 20, n_rows)]
    frame.assign(label=label.astype(int)).to_csv(root / "train.csv", index=False)
    distls.ingest(root / "train.csv", root / "data", label_column="label", transform="standardize")
    coded = make_column_transformer((OneHotEncoder(), ["job", "town"]), remainder="passthrough")
    rival = make_pipeline(coded, LogisticRegression(max_iter=20)).fit(frame, label)
    return Served(frame, _fitted(root), rival.predict)


def _dict(root: Path, n_rows: int) -> Served:
    served = _frame(root, n_rows)
    rows = served.rows.to_dict("records")
    return Served(rows, served.ours, lambda some: served.theirs(pd.DataFrame(some)))


def _fitted(root: Path) -> Callable[[Any], Any]:
    distls.fit("mcid", root / "data", root / "run", params=_LOG, passes=1)
    return distls.load_model(root / "run").predict


MAKERS: dict[str, Callable[[Path, int], Served]] = {
    "dense": _dense, "sparse": _sparse, "text": _text, "frame": _frame, "dict": _dict
}  # fmt: skip


def measure(served: Served, n_rows: int, repeats: int, calls: int) -> dict[str, float]:
    """Return the microseconds a row of both programs; each repeat makes `calls` calls of each with the first rows."""
    rows = served.rows[:n_rows]
    ways = {"distls": served.ours, "sklearn": served.theirs}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(repeats + 1):
        for name, predict in ways.items():
            start = time.perf_counter()
            for _ in range(calls):
                predict(rows)
            # the first compiles, or fills caches
            if repeat:
                taken[name].append((time.perf_counter() - start) / calls / n_rows * 1e6)
    return {name: float(np.median(seconds)) for name, seconds in taken.items()}


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Print the table, write it as JSON where asked, and return it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="few rows: for tests that the script still works")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, help="write the results here as JSON")
    options = parser.parse_args(argv)
    many = 200 if options.tiny else 10_000
    report: dict[str, Any] = {"sklearn": sklearn.__version__, "results": []}
    print(f"{'microseconds a row':20}{'rows':>8}{'distls':>10}{'sklearn':>10}{'ratio':>8}")
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
            served = MAKERS[kind](Path(folder), many)
            for n_rows, calls in ((1, 2 if options.tiny else 50), (many, 1)):
                found = measure(served, n_rows, options.repeats, calls)
                report["results"].append({"rows_of": kind, "rows": n_rows, **found})
                ours, theirs = found["distls"], found["sklearn"]
                print(f"{kind:20}{n_rows:8}{ours:10.2f}{theirs:10.2f}{theirs / ours:8.1f}")
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    return report


if __name__ == "__main__":
    main()
