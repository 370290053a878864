"""A path of strengths from the store beside its smallest alone, and beside celer, adelie, pybiglasso and glmnet.

    pip install '.[bench]' celer pybiglasso adelie python-glmnet
    python -m benchmarks.speed.paths [--data dense] [--loss squared] [--rows 3000] [--columns 30000] [--strengths 50]
        [--least .01] [--rtol 1e-4] [--turns 1] [--memory BYTES] [--active-mib 512] [--folds 5]
        [--programs path,alone,folds,celer,pybiglasso,adelie,glmnet] [--folder FOLDER] [--out FILE]

`dense`: standard normal columns, 100 of them with weights, noise half as large as the signal. `spikes`: a train of
spikes blurred by a Gaussian of width 5; columns are its shifted copies, as many as rows, a tenth of them with weights.
Strengths go from the largest to --least of it; `folds` chooses one by cross-validation. Wall and CPU seconds are
those of the whole fit in this process, with the kernels compiled before; the others have the data in memory, as they
need them and at no charge, and are left out where they are not installed. --turns repeats all programs, one after the
other; --memory is the limit of distls, to choose with --active-mib, `active_mib`. With --folder rows are drawn into a
file there, and pybiglasso maps another, of columns of float64. Memory is the most that a program had beside files
that it maps, in MiB, and what there was at its start. The excess is that at the smallest strength over the bound that
distls has proven, relative to it.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import distls
from benchmarks.speed.optimum import Report
from distls.execution.memory_budget import MIB, MemoryBudget, parse_bytes

Array = NDArray[np.float64]

_TOGETHER = 500  # rows, or columns, of a file at a time


def drawn(kind: str, rows: int, columns: int, folder: Path | None) -> tuple[NDArray[np.float32], Array]:
    """Return columns, row by row, in a file where there is a folder, and numbers."""
    rng, shape = np.random.default_rng(0), (rows, columns)
    if kind == "dense":
        x, some, noise = np.empty(shape, np.float32), 100, 0.5
        if folder is not None:
            x = np.memmap(folder / "rows", np.float32, "w+", shape=shape)
        for first in range(0, rows, _TOGETHER):
            x[first : first + _TOGETHER] = rng.standard_normal(x[first : first + _TOGETHER].shape, np.float32)
    else:
        place = np.arange(rows, dtype=np.float32)
        x, some, noise = np.exp(-np.square(place[:, None] - place) / 50.0), rows // 10, 0.01
    w = np.zeros(x.shape[1])
    w[rng.choice(len(w), min(some, len(w)), replace=False)] = rng.standard_normal(min(some, len(w)))
    signal = product(x, w)
    return x, signal + noise * signal.std() * rng.standard_normal(rows)


def product(x: NDArray[np.float32], w: Array) -> Array:
    """Return those of rows with weights; rows of a file are read in their order."""
    used = np.flatnonzero(w)
    pieces = [np.array(x[first : first + _TOGETHER])[:, used] @ w[used] for first in range(0, len(x), _TOGETHER)]
    return np.concatenate(pieces)


def by_columns(x: NDArray[np.float32], folder: Path | None) -> Array:
    """Return the columns as float64, column by column, in a file where there is a folder."""
    if folder is None:
        return np.asfortranarray(x, np.float64)
    turned = np.memmap(folder / "columns", np.float64, "w+", shape=x.shape, order="F")
    # by rows: columns of a file that does not fit in memory would be read page by page, again and again
    for first in range(0, len(x), 4 * _TOGETHER):
        turned[first : first + 4 * _TOGETHER] = np.array(x[first : first + 4 * _TOGETHER])
    return turned


def objective(x: NDArray[np.float32], y: Array, w: Array, alpha: float, loss: str) -> float:
    """Return that of weights (n_features,) without an intercept."""
    z = product(x, w)
    losses = np.square(z - y) / 2.0 if loss == "squared" else np.logaddexp(0.0, np.where(y > 0, -z, z))
    return float(losses.mean() + alpha * np.abs(w).sum())


def own(
    path: Path, loss: str, alphas: Array, given: argparse.Namespace, folds: int | None = None
) -> tuple[Array, float]:
    """Return the weights at the last strength, of folds at the chosen one, and the bound of its optimum."""
    strengths: dict[str, Any] = {"alpha": float(alphas[0])}
    if len(alphas) > 1:
        strengths = {"alpha": "path", "alphas": ":".join(map(repr, alphas.tolist())), "folds": folds}
    params = {"loss": loss, "penalty": "l1", "fit_intercept": False, "active_mib": given.active_mib}
    memory = None if given.memory is None else MemoryBudget(parse_bytes(given.memory))
    found = distls.fit("bcd", path, params={**params, **strengths}, rtol=given.rtol, executor="serial", memory=memory)
    bound = found.record["objective"] - found.record["certificate"]["value"]
    return found.model.coef_.reshape(-1), bound


def by_celer(x: Array, y: Array, loss: str, alphas: Array) -> Array:
    """Return celer's weights at the last strength."""
    from celer.homotopy import celer_path

    problem, scale = ("lasso", 1.0) if loss == "squared" else ("logreg", len(y))
    target = y if loss == "squared" else np.where(y > 0, 1.0, -1.0)
    # its logistic loss is a sum
    return celer_path(x, target, problem, alphas=scale * alphas)[1][:, -1]


def by_pybiglasso(x: Array, y: Array, loss: str, alphas: Array) -> Array | None:
    """Return pybiglasso's weights, which have an intercept beside them and columns of one scale; of logistic loss."""
    import pybiglasso

    if loss == "squared":
        return None
    lambdas = np.ascontiguousarray(alphas)
    found = pybiglasso.biglasso(x, (y > 0) * 1.0, lambdas=lambdas, n_threads=2)
    return found.coef.toarray()[:, -1]


def by_adelie(x: Array, y: Array, loss: str, alphas: Array) -> Array:
    """Return adelie's weights."""
    import adelie

    glm = adelie.glm.gaussian(y) if loss == "squared" else adelie.glm.binomial((y > 0) * 1.0)
    found = adelie.grpnet(
        x, glm, lmda_path=alphas, intercept=False, early_exit=False,
        progress_bar=False, n_threads=2,
    )  # fmt: skip
    return np.asarray(found.betas.toarray()[-1])


def by_glmnet(x: Array, y: Array, loss: str, alphas: Array) -> Array:
    """Return the weights of glmnet's Fortran, as Python's port calls it."""
    from glmnet import ElasticNet, LogitNet

    kind, target = (ElasticNet, y) if loss == "squared" else (LogitNet, (y > 0).astype(int))
    model = kind(lambda_path=alphas, standardize=False, fit_intercept=False, n_splits=0).fit(x, target)
    return np.asarray(model.coef_path_)[..., -1].reshape(-1)


RIVALS = {"celer": by_celer, "pybiglasso": by_pybiglasso, "adelie": by_adelie, "glmnet": by_glmnet}


def clocked(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return a result with its seconds, and the memory of this process."""
    ended, peaks = threading.Event(), [_own_mib()]

    def watch() -> None:
        while not ended.wait(0.1):
            peaks.append(_own_mib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        found = work()
    finally:
        spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        ended.set()
        watcher.join()
    return found, {**spent, "memory": max(peaks), "memory_before": peaks[0]}


def _own_mib() -> float:
    """Return the MiB of this process beside those of files."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"RssAnon:\s+(\d+)", status)[0]) * 1024 / MIB


def main(argv: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Run the comparison, print a line for each program, and return the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=("dense", "spikes"), default="dense")
    parser.add_argument("--loss", choices=("squared", "softmax"), default="squared")
    for name, number in (("rows", 3000), ("columns", 30000), ("strengths", 50)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--least", type=float, default=0.01)
    parser.add_argument("--rtol", type=float, default=1e-4)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--memory")
    parser.add_argument("--active-mib", type=int, default=512)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--programs", default="path,alone,celer,pybiglasso,adelie,glmnet")
    parser.add_argument("--out")
    given = parser.parse_args(argv)
    asked, report = given.programs.split(","), Report(given.out)
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        place = None if given.folder is None else Path(name)
        x, y = drawn(given.data, given.rows, given.columns, place)
        slopes = y if given.loss == "squared" else (y > 0) - 0.5
        pieces = [slice(first, first + _TOGETHER) for first in range(0, len(y), _TOGETHER)]
        largest = float(np.abs(sum(slopes[piece] @ x[piece] for piece in pieces)).max()) / len(y)
        alphas = largest * np.geomspace(1.0, given.least, given.strengths)
        path = Path(name) / "data"
        distls.ingest(x, path, y=y if given.loss == "squared" else (y > 0).astype(int))
        distls.add_columns(path)
        rivals = [each for each in RIVALS if each in asked and importlib.util.find_spec(each)]
        turned = by_columns(x, place) if rivals else None
        _, bound = own(path, given.loss, alphas[:2], given)  # kernels are compiled
        for _ in range(given.turns):
            for program, some in (("path", alphas), ("alone", alphas[-1:])):
                if program in asked or (program == "alone" and "path" not in asked):
                    (w, bound), spent = clocked(partial(own, path, given.loss, some, given))
                    excess = objective(x, y, w, alphas[-1], given.loss) / bound - 1.0
                    report.add(data=given.data, loss=given.loss, system=f"distls {program}", **spent, excess=excess)
            if "folds" in asked:
                ran = partial(own, path, given.loss, alphas, given, given.folds)
                report.add(data=given.data, loss=given.loss, system="distls folds", **clocked(ran)[1])
            for program in rivals:
                w, spent = clocked(partial(RIVALS[program], turned, y, given.loss, alphas))
                if w is not None:
                    excess = objective(x, y, w, alphas[-1], given.loss) / bound - 1.0
                    report.add(data=given.data, loss=given.loss, system=program, **spent, excess=excess)
    return report.rows


if __name__ == "__main__":
    main()
