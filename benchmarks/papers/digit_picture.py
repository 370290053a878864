"""Figure 4 of "Constrained SGD for Large-scale Least Squares Problem": what C-Adaline and Adaline get wrong on MNIST.

    DISTLS_DATA=FOLDER python -m benchmarks.papers.digit_picture [--rows 2500] [--seeds 3]
        [--out FILE] [--picture PICTURE]

Both are trained on 2^14 rows with the paper's steps, and Adaline with a tuned one too. As in the paper, test rows that
both the paper's settings still get wrong after 2^20 rows are left out: a linear classifier does not tell them apart.
Counts of wrong rows are of all other test rows, means over seeds of the order of the training rows; the picture shows
the first of the seeds and the first ROWS test rows, each a point of scikit-learn's t-SNE of their 50 principal
components, in the colour of its class where it is right and black where it is wrong. The map depends on the rows alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers import least_squares
from benchmarks.papers.constrained_sgd import _DIGITS, Digits, _adaline, follow
from distls.execution.serial import SerialExecutor
from distls.workers.stochastic.constrained_sgd import ConstrainedUpdate
from distls.workers.stochastic.update import Update

Wrong = NDArray[np.bool_]

SHOWN, ENDED = 2**14, 2**20
UPDATES: dict[str, Update] = {
    "C-Adaline": ConstrainedUpdate(**_DIGITS, schedule="sqrt", eta0=2.0**-4),
    "Adaline": _adaline("constant", 2.0**-17),
    "Adaline, tuned": _adaline("constant", 2.0**-11),
}
PAPERS = ("C-Adaline", "Adaline")


def wrong_rows(digits: Digits, update: Update, seed: int, ended: int) -> Wrong:
    """Return which test rows are wrong after SHOWN and after `ended` rows, shape (2, n_test)."""
    generator, n = np.random.default_rng(seed), len(digits.y)
    order = np.concatenate([generator.permutation(n) for _ in range(-(-ended // n))])
    points = follow(update, digits.x, digits.y, order, [SHOWN, ended], digits.test_x.shape[1])
    scores = digits.test_x @ points.weights.astype(np.float32) + points.intercepts
    best = scores.reshape(len(digits.test_y), 2, -1).argmax(axis=2)
    return np.asarray((best != digits.test_y[:, None]).T)


def measured(digits: Digits, seeds: int, ended: int) -> dict[str, Any]:
    """Return the rows that are kept and those wrong of the first seed, and counts of wrong rows of each."""
    counts: dict[str, list[int]] = {name: [] for name in UPDATES}
    first: dict[str, Any] = {}
    for seed in range(seeds):
        found = {name: wrong_rows(digits, update, seed, ended) for name, update in UPDATES.items()}
        kept = ~(found[PAPERS[0]][1] & found[PAPERS[1]][1])
        for name, wrong in found.items():
            counts[name].append(int((wrong[0] & kept).sum()))
        first = first or {"kept": kept, "wrong": {name: wrong[0] for name, wrong in found.items()}}
    return {**first, "counts": counts}


def picture(digits: Digits, found: dict[str, Any], rows: int, path: Path) -> None:
    """Draw the first rows beside each other, for the paper's two settings."""
    import matplotlib
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    components = PCA(50, random_state=0).fit_transform(digits.test_x[:rows].astype(np.float64))
    places = TSNE(random_state=0, init="pca").fit_transform(components)
    kept, classes = found["kept"][:rows], digits.test_y[:rows]
    figure, panels = plt.subplots(1, 2, figsize=(9, 4.6))
    for panel, name in zip(panels, PAPERS, strict=True):
        wrong = found["wrong"][name][:rows] & kept
        right = kept & ~wrong
        panel.scatter(*places[right].T, c=classes[right], cmap="tab10", s=4, alpha=0.5, linewidths=0)
        panel.scatter(*places[wrong].T, c="black", s=9, marker="x", linewidths=0.8)
        panel.set_title(f"{name}: {wrong.sum()} of {kept.sum()} wrong", fontsize=10)
        panel.set(xticks=[], yticks=[])
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Print the counts, and draw the picture if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("DISTLS_DATA"))
    parser.add_argument("--rows", type=int, default=2500, help="of the picture")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ended", type=int, default=ENDED, help="rows after which what is wrong is left out")
    parser.add_argument("--directory", type=Path, help="where datasets are kept; default a temporary folder")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--picture", type=Path, help="needs matplotlib")
    options = parser.parse_args(argv)
    if options.data is None:
        sys.exit("set DISTLS_DATA to the folder of the data sets")
    with tempfile.TemporaryDirectory(prefix="distls-digits-") as folder:
        place = options.directory or Path(folder)
        lab = least_squares.Lab(options.data, place, SerialExecutor(), options.seeds, share=1.0)
        data = least_squares.mnist(lab)
        digits = Digits.of(data, data.with_name("mnist-test"))
        found = measured(digits, options.seeds, options.ended)
    print(f"test rows left out of the first seed: {(~found['kept']).sum()} of {len(digits.test_y)}")
    for name, counts in found["counts"].items():
        print(f"{name:16} wrong after {SHOWN} rows: {np.mean(counts):.0f} (mean of {counts})")
    if options.out:
        options.out.write_text(json.dumps({"counts": found["counts"]}, indent=1))
    if options.picture:
        picture(digits, found, options.rows, options.picture)
    return found


if __name__ == "__main__":
    main()
