"""Test error with nothing chosen, beside scikit-learn's linear models with their strength tuned.

    DISTLS_DATA=FOLDER python -m benchmarks.quality.defaults [--sets wine,letter,20news] [--limit 300] [--out FILE]

Of each set the raw training rows are ingested with `transform=auto`, and fitted by `fit auto`: the method, the loss
and the strength are distls' own choice. LogisticRegression and LinearSVC get the same raw rows in a pipeline as people
write it (StandardScaler for dense rows, TfidfTransformer for counts of words), with C from 1e-2 to 1e2 chosen on a
fifth of the training rows; a search that is longer than --limit seconds ends with what it has. Seconds are those of
everything from arrays in memory to the test error. Sets without official test rows give up three tenths, drawn with
seed 0. scikit-learn comes with distls; the folder is that of benchmarks/measurements.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import datasets
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import distls

Split = tuple[Any, np.ndarray, Any, np.ndarray]

STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)
RIVALS: dict[str, Callable[[float], Any]] = {
    "LogisticRegression": lambda c: LogisticRegression(C=c, max_iter=300),
    "LinearSVC": lambda c: LinearSVC(C=c, max_iter=2000),
}
PARTITIONS = 8


def held_out(x: Any, y: np.ndarray) -> Split:
    """Return training and test rows of a set that has no test rows."""
    train_x, test_x, train_y, test_y = train_test_split(x, y, test_size=0.3, random_state=0, stratify=y)
    return train_x, train_y, test_x, test_y


def toy(name: str) -> Callable[[Path], Split]:
    """Return the loader of one of scikit-learn's sets."""
    return lambda _folder: held_out(*getattr(datasets, f"load_{name}")(return_X_y=True))


def svmlight(train: str, test: str | None = None, *, dense: bool = False) -> Callable[[Path], Split]:
    """Return the loader of svmlight files."""

    def load(folder: Path) -> Split:
        names = [str(folder / name) for name in (train, test) if name]
        parts = datasets.load_svmlight_files(names)
        parts = [part.toarray() if dense and sp.issparse(part) else part for part in parts]
        return tuple(parts) if test else held_out(*parts)  # type: ignore[return-value]

    return load


def usps(folder: Path) -> Split:
    """Return the digits of the US Postal Service."""
    import h5py

    with h5py.File(folder / "usps/usps.h5") as file:
        parts = [np.array(file[part][name]) for part in ("train", "test") for name in ("data", "target")]
    return tuple(parts)  # type: ignore[return-value]


def covertype(folder: Path) -> Split:
    """Return 20,000 rows of Covertype, unscaled."""
    rows = np.loadtxt(folder / "covtype20k/covtype.20k.data", delimiter=",")
    return held_out(rows[:, :-1], rows[:, -1])


def mnist(folder: Path) -> Split:
    """Return the pixels of MNIST, from 0 to 255."""

    def values(name: str, start: int) -> np.ndarray:
        return np.frombuffer(gzip.open(folder / "mnist" / name).read(), np.uint8, offset=start)

    parts = []
    for part in ("train", "t10k"):
        parts.append(values(f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 784).astype(np.float32))
        parts.append(values(f"{part}-labels-idx1-ubyte.gz", 8).astype(np.int64))
    return tuple(parts)  # type: ignore[return-value]


def clinc(folder: Path) -> Split:
    """Return the words of 150 intents, hashed."""
    hashing = HashingVectorizer(norm=None, alternate_sign=False, n_features=2**18)
    parts: list[Any] = []
    for part in ("train", "test"):
        with gzip.open(folder / f"clinc150/clinc150-{part}.jsonl.gz", "rt") as file:
            rows = [json.loads(line) for line in file]
        label = next(name for name in rows[0] if name != "text")
        parts.append(hashing.transform([row["text"] for row in rows]).tocsr())
        parts.append(np.array([str(row[label]) for row in rows]))
    return tuple(parts)  # type: ignore[return-value]


SETS: dict[str, Callable[[Path], Split]] = {
    "iris": toy("iris"),
    "wine": toy("wine"),
    "breast_cancer": toy("breast_cancer"),
    "digits": toy("digits"),
    "letter": svmlight("letter/letter.scale", "letter/letter.scale.t", dense=True),
    "pendigits": svmlight("pendigits/pendigits", "pendigits/pendigits.t", dense=True),
    "usps": usps,
    "covtype": covertype,
    "adult": svmlight("libsvm-small/adult.trn.bz2", "libsvm-small/adult.tst.bz2"),
    "ijcnn1": svmlight("libsvm-small/ijcnn1.trn.bz2", "libsvm-small/ijcnn1.tst.bz2", dense=True),
    "dna": svmlight("libsvm-small/dna.scale", "libsvm-small/dna.scale.t"),
    "money-fx": svmlight("libsvm-small/reuters.trn.bz2", "libsvm-small/reuters.tst.bz2"),
    "agaricus": svmlight("libsvm-small/agaricus_127d_train.libsvm"),
    "clinc150": clinc,
    "r52": svmlight("reuters-r52/r52-counts.train.svm.gz", "reuters-r52/r52-counts.test.svm.gz"),
    "sector": svmlight("sector/sector.scale.bz2", "sector/sector.t.scale.bz2"),
    "20news": svmlight("20news/20news-counts.train.svm.gz", "20news/20news-counts.test.svm.gz"),
    "mnist": mnist,
}


def ours(split: Split, folder: Path) -> dict[str, Any]:
    """Ingest, fit and evaluate with nothing chosen."""
    train_x, train_y, test_x, test_y = split
    size = train_x.nbytes if isinstance(train_x, np.ndarray) else 8 * train_x.nnz
    began, before = time.perf_counter(), time.process_time()
    distls.ingest(
        train_x, folder / "train", y=train_y, transform="auto", partition_size=max(64 * 1024, size // PARTITIONS)
    )
    distls.ingest(test_x, folder / "test", y=test_y, like=folder / "train")
    result = distls.fit("auto", folder / "train", folder / "run")
    error = distls.evaluate(folder / "run", folder / "test").error
    assert result.model is not None
    params = result.model.params
    what = params.get("link") or params.get("loss")
    return {
        "error": 100 * error,
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - before,
        "passes": result.passes,
        "fits": len(list((folder / "run").glob("children/*"))) or 1,
        "chosen": f"{result.model.method} {what}",
        "transforms": [step["name"] for step in distls.open_dataset(folder / "train").meta.transforms],
    }


def tuned(name: str, split: Split, limit: float) -> dict[str, Any]:
    """Choose C of one of scikit-learn's models on a fifth of the training rows, and fit it to all of them."""
    train_x, train_y, test_x, test_y = split
    steps: list[Any] = [StandardScaler()] if isinstance(train_x, np.ndarray) else []
    if not steps and _are_counts(train_x):
        steps = [TfidfTransformer(sublinear_tf=True)]
    few = np.unique(train_y, return_counts=True)[1].min() < 2
    part = train_test_split(train_x, train_y, test_size=0.2, random_state=0, stratify=None if few else train_y)
    began, best = time.perf_counter(), (np.inf, STRENGTHS[0])
    for strength in STRENGTHS:
        model = make_pipeline(*steps, RIVALS[name](strength)).fit(part[0], part[2])
        best = min(best, (1.0 - model.score(part[1], part[3]), strength))
        if time.perf_counter() - began > limit:
            break
    model = make_pipeline(*steps, RIVALS[name](best[1])).fit(train_x, train_y)
    error = 100 * (1.0 - model.score(test_x, test_y))
    return {"error": error, "seconds": time.perf_counter() - began, "C": best[1], "searched": strength}


def _are_counts(x: sp.csr_matrix) -> bool:
    return bool(x.data.max() > 1 and x.data.min() >= 0 and (x.data == np.floor(x.data)).all())


def run_set(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one set."""
    split = SETS[name](options.data)
    if sp.issparse(split[0]):
        width = max(split[0].shape[1], split[2].shape[1])
        for x in (split[0], split[2]):
            x.resize(x.shape[0], width)
            # LinearSVC takes no others
            x.indices, x.indptr = x.indices.astype(np.int32), x.indptr.astype(np.int32)
    with tempfile.TemporaryDirectory(prefix="distls-defaults-") as folder:
        row: dict[str, Any] = {"rows": split[0].shape[0], "features": split[0].shape[1]}
        row["distls"] = ours(split, Path(folder))
    for rival in options.rivals.split(",") if options.rivals else ():
        row[rival] = tuned(rival, split, options.limit)
    best = min((row[rival]["error"] for rival in RIVALS if rival in row), default=None)
    row["behind"] = None if best is None else row["distls"]["error"] - best
    return row


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the sets, print the table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("DISTLS_DATA"))
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--rivals", default=",".join(RIVALS))
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of a rival's search")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")  # of convergence, at strengths that lose
    results = {}
    rivals = options.rivals.split(",") if options.rivals else []
    print(
        f"{'set':14}{'rows':>7} {'chosen':24}" + "".join(f"{who:>26}" for who in ("distls", *rivals)) + f"{'behind':>8}"
    )
    for name in options.sets.split(","):
        row = results[name] = run_set(name, options)
        cells = "".join(f"{row[who]['error']:15.2f} % {row[who]['seconds']:7.1f} s" for who in ("distls", *rivals))
        behind = "" if row["behind"] is None else f"{row['behind']:+8.2f}"
        print(f"{name:14}{row['rows']:7} {row['distls']['chosen']:24}{cells}{behind}", flush=True)
        print(" " * 22 + "{cpu_seconds:.1f} CPU seconds, {fits} fits, {passes:g} passes".format(**row["distls"]))
    if options.out:
        options.out.write_text(json.dumps(results, indent=1))
    return results


if __name__ == "__main__":
    main()
