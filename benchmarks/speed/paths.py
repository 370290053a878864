"""A path of strengths from the store beside its smallest strength alone, and beside celer, adelie and pybiglasso.

    pip install '.[bench]' celer pybiglasso adelie
    python -m benchmarks.speed.paths [--data dense] [--loss squared] [--rows 3000] [--columns 30000] [--strengths 50]
        [--least .01] [--rtol 1e-4] [--turns 1] [--memory BYTES] [--folds 5]
        [--programs path,alone,folds,celer,pybiglasso,adelie] [--out FILE]

`dense`: standard normal columns, 100 of them with weights, noise half as large as the signal. `spikes`: a train of
spikes blurred by a Gaussian of width 5; columns are its shifted copies, as many as rows, a tenth of them with weights.
Strengths go from the largest to --least of it; `folds` chooses one by cross-validation. Wall and CPU seconds are those
of the whole fit in this process, with the kernels compiled before; the others have the data in memory, as they
need them, and are left out where they are not installed. --turns repeats all programs, one after the other; --memory is
the memory_limit of distls. The excess is that at the smallest strength over the bound that distls has proven, relative
to it.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import distls
from benchmarks.speed.optimum import Report

Array = NDArray[np.float64]


def drawn(kind: str, rows: int, columns: int) -> tuple[NDArray[np.float32], Array]:
    """Return columns, row by row, and numbers."""
    rng = np.random.default_rng(0)
    if kind == "dense":
        x, some, noise = rng.standard_normal((rows, columns), dtype=np.float32), 100, 0.5
    else:
        place = np.arange(rows, dtype=np.float32)
        x, some, noise = np.exp(-np.square(place[:, None] - place) / 50.0), rows // 10, 0.01
    w = np.zeros(x.shape[1])
    w[rng.choice(len(w), min(some, len(w)), replace=False)] = rng.standard_normal(min(some, len(w)))
    signal = x @ w
    return x, signal + noise * signal.std() * rng.standard_normal(rows)


def objective(x: NDArray[np.float32], y: Array, w: Array, alpha: float, loss: str) -> float:
    """Return that of weights (n_features,) without an intercept."""
    z = x @ w
    losses = np.square(z - y) / 2.0 if loss == "squared" else np.logaddexp(0.0, np.where(y > 0, -z, z))
    return float(losses.mean() + alpha * np.abs(w).sum())


def own(
    path: Path, loss: str, alphas: Array, rtol: float, memory: str | None = None, folds: int | None = None
) -> tuple[Array, float]:
    """Return the weights at the last strength, of folds at the chosen one, and the bound of its optimum."""
    strengths: dict[str, Any] = {"alpha": float(alphas[0])}
    if len(alphas) > 1:
        strengths = {"alpha": "path", "alphas": ":".join(map(repr, alphas.tolist())), "folds": folds}
    params = {"loss": loss, "penalty": "l1", "fit_intercept": False, **strengths}
    found = distls.fit("bcd", path, params=params, rtol=rtol, executor="serial", memory_limit=memory)
    bound = found.record["objective"] - found.record["certificate"]["value"]
    return found.model.coef_.reshape(-1), bound


def by_celer(x: NDArray[np.float32], y: Array, loss: str, alphas: Array) -> Array:
    """Return celer's weights at the last strength."""
    from celer.homotopy import celer_path

    problem, scale = ("lasso", 1.0) if loss == "squared" else ("logreg", len(y))
    target = y if loss == "squared" else np.where(y > 0, 1.0, -1.0)
    # its logistic loss is a sum
    return celer_path(np.asfortranarray(x, np.float64), target, problem, alphas=scale * alphas)[1][:, -1]


def by_pybiglasso(x: NDArray[np.float32], y: Array, loss: str, alphas: Array) -> Array | None:
    """Return pybiglasso's weights, which have an intercept beside them and columns of one scale; of logistic loss."""
    import pybiglasso

    if loss == "squared":
        return None
    lambdas = np.ascontiguousarray(alphas)
    found = pybiglasso.biglasso(np.asfortranarray(x, np.float64), (y > 0) * 1.0, lambdas=lambdas, n_threads=2)
    return found.coef.toarray()[:, -1]


def by_adelie(x: NDArray[np.float32], y: Array, loss: str, alphas: Array) -> Array:
    """Return adelie's weights."""
    import adelie

    glm = adelie.glm.gaussian(y) if loss == "squared" else adelie.glm.binomial((y > 0) * 1.0)
    found = adelie.grpnet(
        np.asfortranarray(x, np.float64), glm, lmda_path=alphas, intercept=False, early_exit=False,
        progress_bar=False, n_threads=2,
    )  # fmt: skip
    return np.asarray(found.betas.toarray()[-1])


RIVALS = {"celer": by_celer, "pybiglasso": by_pybiglasso, "adelie": by_adelie}


def clocked(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return a result with its seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    return found, {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def main(argv: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Run the comparison, print a line for each program, and return the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", choices=("dense", "spikes"), default="dense")
    parser.add_argument("--loss", choices=("squared", "softmax"), default="squared")
    for name, number in (("rows", 3000), ("columns", 30000), ("strengths", 50)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--least", type=float, default=0.01)
    parser.add_argument("--rtol", type=float, default=1e-4)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--memory")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--programs", default="path,alone,celer,pybiglasso,adelie")
    parser.add_argument("--out")
    given = parser.parse_args(argv)
    x, y = drawn(given.data, given.rows, given.columns)
    slopes = y if given.loss == "squared" else (y > 0) - 0.5
    alphas = float(np.abs(x.T @ slopes).max()) / len(y) * np.geomspace(1.0, given.least, given.strengths)
    asked, report = given.programs.split(","), Report(given.out)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data"
        distls.ingest(x, path, y=y if given.loss == "squared" else (y > 0).astype(int))
        distls.add_columns(path)
        (_, bound), _ = clocked(lambda: own(path, given.loss, alphas[:2], given.rtol))  # kernels are compiled
        for _ in range(given.turns):
            for name, some in (("path", alphas), ("alone", alphas[-1:])):
                if name in asked or name == "alone":
                    ran = partial(own, path, given.loss, some, given.rtol, given.memory)
                    (w, bound), spent = clocked(ran)
                    excess = objective(x, y, w, alphas[-1], given.loss) / bound - 1.0
                    report.add(
                        data=given.data, loss=given.loss, system=f"distls {name}", **spent, excess=excess
                    )
            if "folds" in asked:
                ran = partial(own, path, given.loss, alphas, given.rtol, given.memory, given.folds)
                report.add(data=given.data, loss=given.loss, system="distls folds", **clocked(ran)[1])
            for name in [each for each in RIVALS if each in asked and importlib.util.find_spec(each)]:
                w, spent = clocked(partial(RIVALS[name], x, y, given.loss, alphas))
                if w is not None:
                    excess = objective(x, y, w, alphas[-1], given.loss) / bound - 1.0
                    report.add(data=given.data, loss=given.loss, system=name, **spent, excess=excess)
    return report.rows


if __name__ == "__main__":
    main()
