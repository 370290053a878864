"""How soon the sparse optimum is reached and proven: `bcd` beside others that solve the same problem, in one run.

    pip install '.[bench]' skglm celer liblinear-official adelie python-glmnet sklearn-contrib-lightning
    DISTLS_DATA=FOLDER python -m benchmarks.speed.sparse [--sets rcv1-4,wide,20news,sector,mnist] [--rows N]
        [--parts binary,svm,softmax,hinge] [--fractions .1,.01,.001] [--rtol 1e-6] [--workers 2] [--directory FOLDER]
        [--rivals skglm,celer,sklearn,adelie,glmnet,lightning] [--out FILE]

The others are skglm, celer, LIBLINEAR, adelie, glmnet and lightning. On generated `rcv1-4` data and on real sets: the
second class against the rest with l1, by logistic loss (`binary`) or squared hinge (`svm`), and all classes with
l1l2, by softmax or the multi-class squared hinge. `wide` are 2,000 rows of 500,000 normal columns, one in five
hundred of which a row has, and two classes. Strengths are parts of the smallest at which all weights are zero.
`solve` are the seconds of all rounds of distls, certificates among them, `wall` those of the whole fit in this
process without the compilation of kernels; of the others, which have the data in memory as arrays, the call that
fits; `cpu` are CPU seconds, which other programs distort less (of distls with `--workers 0` alone). Programs that are
not installed are left out. The excess is that over the best lower bound that distls has proven, relative to it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import distls
from benchmarks.quality.real import SETS, arrays_of
from benchmarks.speed.optimum import Report, prepared, timed
from distls.execution.dask.local_cluster import start_local
from distls.execution.executor import Executor
from distls.execution.serial import SerialExecutor
from distls.training.callbacks import History
from distls.workers.rounds.block_stream import clear_cache

PARTS = {
    "binary": ("softmax", "l1"),
    "svm": ("multiclass_squared_hinge", "l1"),
    "softmax": ("softmax", "l1l2"),
    "hinge": ("multiclass_squared_hinge", "l1l2"),
}
TWO_CLASSES = ("binary", "svm")
Fits = Iterator[tuple[str, float, np.ndarray]]  # setting, seconds, weights (n_features, k) or (n_features,)


def gradient_at_zero(x: sp.csr_matrix, y: np.ndarray, loss: str) -> np.ndarray:
    """Return the gradient of the mean loss at zero weights, (n_features, k)."""
    k = int(y.max()) + 1
    own = np.eye(k)[y]
    slopes = 1.0 / k - own if loss == "softmax" else 2.0 * (1.0 - own) - 2.0 * (k - 1) * own
    return np.asarray(x.T @ slopes) / len(y)


def largest_alpha(x: sp.csr_matrix, y: np.ndarray, loss: str, penalty: str) -> float:
    """Return the smallest strength at which all weights are zero."""
    gradient = gradient_at_zero(x, y, loss)
    sizes = np.abs(gradient) if penalty == "l1" else np.sqrt(np.square(gradient).sum(axis=1))
    return float(sizes.max())


def objective(x: sp.csr_matrix, y: np.ndarray, w: np.ndarray, alpha: float, part: str) -> float:
    """Return the objective; of two classes weights (n_features,) of the one output of class 1."""
    if part in TWO_CLASSES:
        behind = np.where(y == 1, -1.0, 1.0) * (x @ w)
        losses = np.logaddexp(0.0, behind) if part == "binary" else np.square(np.maximum(0.0, 1.0 + behind))
        return float(losses.mean() + alpha * np.abs(w).sum())
    z, rows = x @ w, np.arange(len(y))
    if part == "softmax":
        top = z.max(axis=1)
        losses = np.log(np.exp(z - top[:, None]).sum(axis=1)) + top - z[rows, y]
    else:
        slacks = np.maximum(0.0, 1.0 + z - z[rows, y][:, None])
        losses = np.square(slacks).sum(axis=1) - 1.0
    return float(losses.mean() + alpha * np.sqrt(np.square(w).sum(axis=1)).sum())


def skglm_fits(x: sp.csr_matrix, y: np.ndarray, alpha: float) -> Fits:
    """Yield skglm's prox-Newton with working sets at ever smaller tolerances."""
    from skglm.datafits import Logistic
    from skglm.penalties import L1
    from skglm.solvers import ProxNewton

    columns, signs = x.tocsc(), np.where(y == 1, 1.0, -1.0)
    ProxNewton(max_iter=1).solve(columns[:, :9], signs, Logistic(), L1(alpha))  # kernels are compiled
    for tolerance in (1e-3, 1e-5, 1e-7):
        solver = ProxNewton(tol=tolerance * alpha / 1e-3, fit_intercept=False, max_iter=100)
        (seconds, _), found = timed(lambda solver=solver: solver.solve(columns, signs, Logistic(), L1(alpha))[0])
        yield f"skglm, tolerance {tolerance:g} alpha / 1e-3", seconds, found


def celer_fits(x: sp.csr_matrix, y: np.ndarray, alpha: float) -> Fits:
    """Yield celer's logistic regression."""
    from celer import LogisticRegression

    columns, signs = x.tocsc(), np.where(y == 1, 1.0, -1.0)
    for tolerance in (1e-4, 1e-7):
        model = LogisticRegression(C=1.0 / (alpha * len(y)), tol=tolerance)
        (seconds, _), _ = timed(lambda model=model: model.fit(columns, signs))
        yield f"celer, tolerance {tolerance:g}", seconds, model.coef_.reshape(-1)


def liblinear_fits(x: sp.csr_matrix, y: np.ndarray, alpha: float) -> Fits:
    """Yield LIBLINEAR's l1 logistic regression, by itself or as scikit-learn has it."""
    from sklearn.linear_model import LogisticRegression

    for tolerance in (1e-2, 1e-4, 1e-5):
        model = LogisticRegression(
            l1_ratio=1.0, solver="liblinear", C=1.0 / (alpha * len(y)), tol=tolerance, fit_intercept=False,
            max_iter=10_000,
        )  # fmt: skip
        (seconds, _), _ = timed(lambda model=model: model.fit(x, y))
        yield f"LIBLINEAR -s 6, tolerance {tolerance:g}", seconds, model.coef_.reshape(-1)


def liblinear_svms(x: sp.csr_matrix, y: np.ndarray, alpha: float) -> Fits:
    """Yield LIBLINEAR's l1 support vector machine of squared hinge, likewise."""
    from sklearn.svm import LinearSVC

    for tolerance in (1e-2, 1e-4, 1e-5):
        model = LinearSVC(
            penalty="l1", dual=False, C=1.0 / (alpha * len(y)), tol=tolerance, fit_intercept=False, max_iter=10_000
        )
        (seconds, _), _ = timed(lambda model=model: model.fit(x, y))
        yield f"LIBLINEAR -s 5, tolerance {tolerance:g}", seconds, model.coef_.reshape(-1)


def adelie_fits(x: sp.csr_matrix, y: np.ndarray, alpha: float) -> Fits:
    """Yield adelie's l1 logistic regression, at one strength, and at the end of ten."""
    import adelie

    columns = adelie.matrix.sparse(x.tocsc(), method="naive", n_threads=2)
    first = largest_alpha(x, y, *PARTS["binary"])
    for strengths, tolerance in ((1, 1e-5), (1, 1e-7), (10, 1e-7)):
        path = np.geomspace(first, alpha, strengths) if strengths > 1 else np.array([alpha])
        (seconds, _), found = timed(
            lambda path=path, tolerance=tolerance: adelie.grpnet(
                columns, adelie.glm.binomial((y == 1) * 1.0), lmda_path=path, tol=tolerance, intercept=False,
                early_exit=False, progress_bar=False, n_threads=2,
            )
        )  # fmt: skip
        # it gives up where it finds no end
        if found.betas.shape[0]:
            yield (f"adelie, {strengths} strengths, tolerance {tolerance:g}", seconds, found.betas.toarray()[-1])


def glmnet_fits(x: sp.csr_matrix, y: np.ndarray, alpha: float) -> Fits:
    """Yield the weights of glmnet's Fortran, as Python's port calls it, at the end of ten strengths."""
    from glmnet import LogitNet

    columns, path = x.tocsc().astype(np.float64), np.geomspace(largest_alpha(x, y, *PARTS["binary"]), alpha, 10)
    for tolerance in (1e-5, 1e-7):
        model = LogitNet(lambda_path=path, tol=tolerance, standardize=False, fit_intercept=False, n_splits=0)
        (seconds, _), _ = timed(lambda model=model: model.fit(columns, (y == 1).astype(int)))
        yield f"glmnet, 10 strengths, tolerance {tolerance:g}", seconds, model.coef_path_[0, :, -1]


def lightning_fits(x: sp.csr_matrix, y: np.ndarray, alpha: float, part: str) -> Fits:
    """Yield the coordinate descent of the paper's author."""
    from lightning.classification import CDClassifier

    loss, penalty = PARTS[part]
    name, several = "log" if loss == "softmax" else "squared_hinge", part not in TWO_CLASSES
    for iterations in (10, 30, 100):
        model = CDClassifier(
            loss=name, penalty="l1/l2" if several else penalty, multiclass=several, C=1.0 / len(y), alpha=alpha,
            max_iter=iterations, tol=1e-9, random_state=0,
        )  # fmt: skip
        (seconds, _), _ = timed(lambda model=model: model.fit(x, y))
        yield f"lightning, {iterations} iterations", seconds, model.coef_.T if several else model.coef_.reshape(-1)


def rivals_of(part: str, names: list[str]) -> list[Callable[[sp.csr_matrix, np.ndarray, float], Fits]]:
    """Return the installed programs that solve a part's problem."""
    named: dict[str, Callable[..., Fits]] = {"lightning": partial(lightning_fits, part=part)}
    if part == "binary":
        named = {"skglm": skglm_fits, "celer": celer_fits, "sklearn": liblinear_fits}
        named |= {"adelie": adelie_fits, "glmnet": glmnet_fits}
    elif part == "svm":
        named["sklearn"] = liblinear_svms
    return [fits for name, fits in named.items() if name in names and importlib.util.find_spec(name)]


def own_fit(
    path: Path, part: str, alpha: float, rtol: float, executor: Executor
) -> tuple[dict[str, float], Any, list[Any]]:
    """Return wall seconds of a fit and CPU seconds of this process, its record and those of its rounds."""
    loss, penalty = PARTS[part]
    history = History()
    began, cpu = time.perf_counter(), time.process_time()
    params = {"loss": loss, "penalty": penalty, "alpha": alpha, "fit_intercept": False}
    result = distls.fit(
        "bcd", path, params=params, rtol=rtol, executor=executor,
        callbacks=[history],
    )  # fmt: skip
    spent = {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    return spent, result.record, history.records


def _forget(_: Any) -> None:
    clear_cache()


def wide_rows(n_rows: int = 2000, n_columns: int = 500_000) -> tuple[sp.csr_matrix, np.ndarray]:
    """Return rows of many columns, with two classes that a hundred of the columns tell; these have more values."""
    rng = np.random.default_rng(0)
    known = rng.standard_normal((n_rows, 100)) * (rng.random((n_rows, 100)) < 0.2)
    rest = sp.random(n_rows, n_columns - 100, 0.002, "csr", random_state=rng, data_rvs=rng.standard_normal)
    order = rng.permutation(n_columns)
    x = sp.hstack([sp.csr_matrix(known), rest]).tocsc()[:, order].tocsr()
    return x, (known.sum(axis=1) + rng.standard_normal(n_rows) > 0.0).astype(int)


def problems(name: str, folder: Path, rows: int) -> tuple[Path, Path]:
    """Return a set with all of its classes, and its second class against the rest, both with column shards."""
    if name == "rcv1-4":
        found = prepared(folder, rows)[:2]
    else:
        found = folder / f"{name}-all", folder / f"{name}-second"
        if not found[1].exists():
            if name == "wide":
                x, y = wide_rows()
                distls.ingest(x, str(found[0]), y=y)
            else:
                chosen, source = SETS[name], Path(os.environ["DISTLS_DATA"])
                labels = source / chosen.train_labels if chosen.train_labels else None
                transform = tuple(filter(None, chosen.transform.split(",")))
                distls.ingest(str(source / chosen.train), str(found[0]), labels=labels, transform=transform)
            x, y = read_problem(found[0])
            distls.ingest(x, str(found[1]), y=(y == 1).astype(int))
    for path in found:
        if not (path / "columns").exists():
            distls.add_columns(path)
    return found


def read_problem(path: Path) -> tuple[sp.csr_matrix, np.ndarray]:
    """Return the rows, and their classes from 0."""
    x, labels = arrays_of(path)
    return sp.csr_matrix(x), np.unique(labels, return_inverse=True)[1]


def compare(
    report: Report, name: str, path: Path, part: str, fraction: float, given: argparse.Namespace, executor: Executor
) -> None:
    """Report distls's seconds to each gap, and what its rivals reach."""
    x, y = read_problem(path)
    alpha = fraction * largest_alpha(x, y, *PARTS[part])
    own_fit(path, part, alpha, 0.5, executor)  # kernels are compiled
    executor.each_worker(_forget, None)  # and shards are read again
    spent, record, rounds = own_fit(path, part, alpha, given.rtol, executor)
    bound = record["objective"] - record["certificate"]["value"]
    for each in rounds:
        report.add(
            set=name, part=part, fraction=fraction, system=f"distls bcd, round {each['round']}",
            solve=sum(each[f"{kind}_seconds"] for kind in ("read", "train", "eval")),
            excess=each["objective"] / bound - 1.0, proven=each["certificate"]["relative"],
        )  # fmt: skip
    report.add(set=name, part=part, fraction=fraction, system="distls bcd, in all", **spent, passes=record["passes"])
    for fits in rivals_of(part, given.rivals.split(",")):
        found = fits(x.astype(np.float64), y, alpha)
        while True:
            cpu = time.process_time()
            system, seconds, w = next(found, ("", 0.0, None))
            if w is None:
                break
            spent, excess = time.process_time() - cpu, objective(x, y, w, alpha, part) / bound - 1.0
            report.add(set=name, part=part, fraction=fraction, system=system, solve=seconds, cpu=spent, excess=excess)


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", default=f"{tempfile.gettempdir()}/distls-optimum")
    parser.add_argument("--sets", default="rcv1-4")
    parser.add_argument("--rows", type=int, default=150_000)
    parser.add_argument("--parts", default="binary,svm,softmax,hinge")
    parser.add_argument("--fractions", default=".1,.01,.001")
    parser.add_argument("--rtol", type=float, default=1e-6)
    parser.add_argument("--workers", type=int, default=2, help="0: this process alone, whose CPU seconds are shown")
    parser.add_argument(
        "--rivals", default="skglm,celer,sklearn,adelie,glmnet,lightning", help="sklearn: its LIBLINEAR"
    )
    parser.add_argument("--out")
    given = parser.parse_args()
    folder, report = Path(given.directory), Report(given.out)
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(start_local(given.workers) if given.workers else SerialExecutor()) as executor:
        for name in given.sets.split(","):
            multi, binary = problems(name, folder, given.rows)
            for part in given.parts.split(","):
                for fraction in map(float, given.fractions.split(",")):
                    path = binary if part in TWO_CLASSES else multi
                    compare(report, name, path, part, fraction, given, executor)


if __name__ == "__main__":
    main()
