"""The extensions of section 4.7 of the paper of block coordinate descent, which its conclusion leaves to be evaluated.

    DISTLS_DATA=FOLDER python -m benchmarks.papers.bcd_extensions [--alphas 1e-3,3e-4,1e-4,3e-5]
        [--sets 20news,sector] [--directory FOLDER] [--out FILE]

Penalties: l1/l2, l1/linf and the sparse group lasso (half of it l1) of the multi-class squared hinge on 20 Newsgroups
and Sector, split 4/5 to 1/5: test accuracy %, non-zero rows and non-zero weights %, seconds until the gap is a
thousandth of the objective. Label ranking: 20 Newsgroups with two labels each, the group and the part of the hierarchy
that it is in (comp.graphics and comp), and Yeast, 2,417 genes of 103 numbers with 4.2 labels of 14 each, where the
folder has it (`yeast/yeast.csv.gz`, the file of the package river), with all three penalties: the ranking loss of
Equation 2 for sets of labels beside the multi-task squared hinge, which trains each label by itself; precision at 1
and 3 %, micro-averaged F1 % (of the ranking with the fitted threshold).
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import distls
from benchmarks.quality.real import SETS

Numbers = dict[str, Any]

PENALTIES: dict[str, Numbers] = {
    "l1/l2": {"penalty": "l1l2"},
    "l1/linf": {"penalty": "l1linf"},
    "sparse group lasso": {"penalty": "sparse-group"},
}
LOSSES = ("multiclass_squared_hinge", "multitask_squared_hinge")


def split(
    source: Path, place: Path, name: str, labels: list[list[str]] | None = None, kind: str = "20news"
) -> tuple[Path, Path]:
    """Ingest a set once, with classes or sets of labels; return rows to train on and to test on."""
    from sklearn.datasets import load_svmlight_file

    chosen, train = SETS[kind], place / name
    if not train.exists():
        x, y = load_svmlight_file(str(source / chosen.train), dtype=np.float32)
        codes = y.astype(np.int64)
        distls.ingest(
            x, train, y=codes if labels is None else [labels[code] for code in codes], split=("test=0.2",),
            transform=tuple(filter(None, chosen.transform.split(","))), columns=True,
            multilabel=labels is not None,
        )  # fmt: skip
    return train, place / f"{name}-test"


def _fitted(train: Path, test: Path, params: Numbers) -> tuple[Numbers, Any]:
    result = distls.fit("bcd", train, params={"fit_intercept": False, **params}, rtol=1e-3)
    w = result.model.weights
    row = {
        "rows": 100 * float(np.any(w, axis=1).mean()), "weights": 100 * float(np.mean(w != 0)),
        "seconds": result.seconds, "status": str(result.status),
    }  # fmt: skip
    return {**params, **row}, distls.evaluate(result.model, test)


def penalties(source: Path, place: Path, alphas: Sequence[float], kind: str) -> list[Numbers]:
    """Measure the penalties on a set."""
    train, test = split(source, place, f"{kind}-classes", kind=kind)
    found = []
    for name, params in PENALTIES.items():
        for alpha in alphas:
            row, judged = _fitted(train, test, {**params, "alpha": alpha})
            found.append({"set": kind, **row, "accuracy": 100 * (1 - judged.error)})
            print(
                f"{kind:7} {name:18} alpha {alpha:7.0e}: {found[-1]['accuracy']:5.2f} %, rows {row['rows']:.2f} %, "
                f"weights {row['weights']:.3f} %, {row['seconds']:.1f} s, {row['status']}",
                flush=True,
            )
    return found


def grouped(source: Path, place: Path) -> tuple[Path, Path]:
    """Ingest 20 Newsgroups with two labels a row, and return rows to train on and to test on."""
    names = json.loads((source / "20news" / "labels.json").read_text())
    return split(source, place, "sets", [[name, name.split(".")[0]] for name in names])


def yeast(source: Path, place: Path) -> tuple[Path, Path]:
    """Ingest Yeast likewise; its last 14 columns are the labels."""
    train = place / "yeast"
    if not train.exists():
        with gzip.open(source / "yeast" / "yeast.csv.gz", "rt") as file:
            names, *rows = csv.reader(file)
        x = np.array([row[:-14] for row in rows], np.float32)
        y = [[name for name, value in zip(names[-14:], row[-14:], strict=True) if value == "1"] for row in rows]
        distls.ingest(x, train, y=y, multilabel=True, split=("test=0.2",), transform="standardize", columns=True)
    return train, place / "yeast-test"


def ranking(
    kind: str, train: Path, test: Path, alphas: Sequence[float], chosen: Sequence[str], given: Numbers
) -> list[Numbers]:
    """Measure label ranking on a set, with some of the penalties."""
    found = []
    for loss in LOSSES:
        for name in chosen:
            for alpha in alphas:
                row, judged = _fitted(train, test, {**given, **PENALTIES[name], "loss": loss, "alpha": alpha})
                at = {k: 100 * value for k, value in judged.precision_at.items() if k <= 3}
                found.append({"set": kind, **row, "precision": at, "micro_f1": 100 * judged.micro_f1})
                shown = ", ".join(f"precision at {k} {value:.2f} %" for k, value in at.items())
                print(
                    f"{kind:7} {loss:25} {name:18} alpha {alpha:7.0e}: {shown}, micro F1 {100 * judged.micro_f1:.2f} "
                    f"%, rows {row['rows']:.2f} %, weights {row['weights']:.3f} %, {row['seconds']:.1f} s, "
                    f"{row['status']}",
                    flush=True,
                )
    return found


def main(argv: Sequence[str] | None = None) -> Numbers:
    """Measure both, print them, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("DISTLS_DATA"))
    parser.add_argument("--alphas", default="1e-3,3e-4,1e-4,3e-5")
    parser.add_argument("--yeast-alphas", default="1,3e-1,1e-1")
    parser.add_argument("--sets", default="20news,sector", help="of the penalties")
    parser.add_argument("--directory", type=Path, help="where datasets are kept; default a temporary folder")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    if options.data is None:
        parser.error("set DISTLS_DATA to the folder of the data sets")
    alphas = [float(each) for each in options.alphas.split(",")]
    with tempfile.TemporaryDirectory(prefix="distls-bcd-") as folder:
        place = options.directory or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        results = {
            "penalties": [
                row for kind in options.sets.split(",") for row in penalties(options.data, place, alphas, kind)
            ],
            "ranking": ranking("20news", *grouped(options.data, place), alphas, ["l1/l2"], {}),
        }
        if (options.data / "yeast").exists():
            of_yeast = [float(each) for each in options.yeast_alphas.split(",")]
            sets = yeast(options.data, place)
            results["ranking"] += ranking("yeast", *sets, of_yeast, list(PENALTIES), {"fit_intercept": True})
    if options.out:
        options.out.write_text(json.dumps(results, indent=1))
    return results


if __name__ == "__main__":
    main()
