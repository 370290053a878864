"""Seconds and objectives of each estimator beside scikit-learn's equivalent, on 1,000 and 10,000 rows.

    python -m benchmarks.speed.estimators [--tiny] [--rows N,N] [--only NAMES] [--out FILE.json]

CPU seconds of a call in a process that has made the same call before, the least of three. ``excess`` is how far the
objective that both minimise is above the lower of the two, relative to it, with scikit-learn's default tolerances.
Where there is none that both minimise, both columns have the error on the training rows, or of numbers 1 - r2. The
limit is 3 times scikit-learn's seconds and 0.5 more.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn import linear_model as rival
from sklearn.datasets import make_classification, make_regression
from sklearn.svm import LinearSVC

import distls
from benchmarks.speed.small import timed

_ALPHA = 1e-3
Objective = Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], float]  # of scores, targets and weights (k, d)


class Pair(NamedTuple):
    """An estimator, scikit-learn's for n rows, and what both minimise; None: they are compared by their errors."""

    name: str
    kind: str  # of the rows
    ours: Callable[[int], Any]
    theirs: Callable[[int], Any]
    objective: Objective | None = None


def _log(z: NDArray[Any], y: NDArray[Any], w: NDArray[Any]) -> float:
    scores = np.c_[np.zeros_like(z), z] if z.shape[1] == 1 else z
    return float(-log_softmax(scores, axis=1)[np.arange(len(y)), y].mean())


def _squared_hinge(z: NDArray[Any], y: NDArray[Any], w: NDArray[Any]) -> float:
    signs = np.where(y[:, None] == 1, 1.0, -1.0)
    return float(np.square(np.maximum(1.0 - signs * z, 0.0)).mean())


def _squares(z: NDArray[Any], y: NDArray[Any], w: NDArray[Any]) -> float:
    return float(0.5 * np.square(z - y.reshape(len(y), -1)).sum(axis=1).mean())


def _with(loss: Objective, penalty: Callable[[NDArray[Any]], float], alpha: float = _ALPHA) -> Objective:
    return lambda z, y, w: loss(z, y, w) + alpha * penalty(w)


def _l2(w: NDArray[Any]) -> float:
    return float(0.5 * np.square(w).sum())


def _l1(w: NDArray[Any]) -> float:
    return float(np.abs(w).sum())


def _rows_norm(w: NDArray[Any]) -> float:
    return float(np.sqrt(np.square(w).sum(axis=0)).sum())


def _c(n: int) -> float:
    return 1.0 / (_ALPHA * n)


PAIRS = (
    Pair("DualLogisticRegression", "classes", lambda n: distls.DualLogisticRegression(C=_c(n)),
         lambda n: rival.LogisticRegression(C=_c(n)), _with(_log, _l2)),
    Pair("DualLinearSVC", "two", lambda n: distls.DualLinearSVC(C=_c(n)),
         lambda n: LinearSVC(C=_c(n)), _with(_squared_hinge, _l2)),
    Pair("DualRidge", "numbers", lambda n: distls.DualRidge(alpha=_ALPHA),
         lambda n: rival.Ridge(alpha=_ALPHA * n), _with(_squares, _l2)),
    Pair("DualRidge, l1_ratio", "numbers", lambda n: distls.DualRidge(alpha=_ALPHA, l1_ratio=0.5),
         lambda n: rival.ElasticNet(alpha=_ALPHA), _with(_squares, lambda w: 0.5 * (_l1(w) + _l2(w)))),
    Pair("GeneralizedLeastSquaresClassifier", "classes",
         lambda n: distls.GeneralizedLeastSquaresClassifier(alpha=_ALPHA),
         lambda n: rival.LogisticRegression(C=_c(n)), _with(_log, _l2)),
    Pair("GeneralizedLeastSquaresRegressor", "numbers",
         lambda n: distls.GeneralizedLeastSquaresRegressor(alpha=_ALPHA),
         lambda n: rival.Ridge(alpha=_ALPHA * n), _with(_squares, _l2)),
    Pair("CalibratedLeastSquaresClassifier", "classes",
         lambda n: distls.CalibratedLeastSquaresClassifier(), lambda n: rival.RidgeClassifier()),
    Pair("StagewiseClassifier", "classes",
         lambda n: distls.StagewiseClassifier(), lambda n: rival.LogisticRegression()),
    Pair("SparseMulticlassClassifier, log", "classes",
         lambda n: distls.SparseMulticlassClassifier(loss="log", penalty="l1", alpha=_ALPHA),
         lambda n: rival.LogisticRegression(C=_c(n), l1_ratio=1.0, solver="saga"), _with(_log, _l1)),
    Pair("SparseMulticlassClassifier", "classes",
         lambda n: distls.SparseMulticlassClassifier(), lambda n: rival.LogisticRegression()),
    Pair("SparseLogisticRegression", "classes", lambda n: distls.SparseLogisticRegression(C=_c(n)),
         lambda n: rival.LogisticRegression(C=_c(n), l1_ratio=1.0, solver="saga"), _with(_log, _l1)),
    Pair("SparseLinearSVC", "two", lambda n: distls.SparseLinearSVC(C=_c(n)),
         lambda n: LinearSVC(C=_c(n), penalty="l1", dual=False), _with(_squared_hinge, _l1)),
    Pair("Lasso", "numbers", lambda n: distls.Lasso(alpha=1.0), lambda n: rival.Lasso(alpha=1.0),
         _with(_squares, _l1, 1.0)),
    Pair("ElasticNet", "numbers", lambda n: distls.ElasticNet(alpha=1.0), lambda n: rival.ElasticNet(alpha=1.0),
         _with(_squares, lambda w: 0.5 * (_l1(w) + _l2(w)), 1.0)),
    Pair("MultiTaskLasso", "several", lambda n: distls.MultiTaskLasso(alpha=1.0),
         lambda n: rival.MultiTaskLasso(alpha=1.0), _with(_squares, _rows_norm, 1.0)),
    Pair("StochasticClassifier", "classes", lambda n: distls.StochasticClassifier(),
         lambda n: rival.SGDClassifier(loss="log_loss")),
    Pair("MCIDClassifier", "classes", lambda n: distls.MCIDClassifier(),
         lambda n: rival.SGDClassifier(loss="log_loss")),
    Pair("SGDQNClassifier", "classes", lambda n: distls.SGDQNClassifier(),
         lambda n: rival.SGDClassifier(loss="squared_hinge")),
    Pair("AdalineClassifier", "classes", lambda n: distls.AdalineClassifier(),
         lambda n: rival.SGDClassifier(loss="squared_error")),
    Pair("CSGDRegressor", "numbers", lambda n: distls.CSGDRegressor(), lambda n: rival.SGDRegressor()),
)  # fmt: skip


def _rows(kind: str, n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    if kind in ("classes", "two"):
        x, y = make_classification(n, 20, n_informative=8, n_classes=3 if kind == "classes" else 2, random_state=0)
        return x, y
    x, y = make_regression(n, 20, n_informative=8, n_targets=3 if kind == "several" else 1, noise=10.0, random_state=0)
    return x, y


def _measure(make: Callable[[int], Any], x: NDArray[Any], y: NDArray[Any], repeats: int) -> tuple[Any, Any]:
    fitted = make(len(x)).fit(x, y)
    return fitted, min((timed(lambda: make(len(x)).fit(x, y)) for _ in range(repeats)), key=lambda s: s.cpu)


def _value(fitted: Any, pair: Pair, x: NDArray[Any], y: NDArray[Any]) -> float:
    if pair.objective is None:
        return 1.0 - float(fitted.score(x, y))
    weights = np.atleast_2d(fitted.coef_).astype(np.float64)
    scores = x @ weights.T + np.asarray(fitted.intercept_, np.float64)
    return pair.objective(scores, y, weights)


def measured(pair: Pair, n: int, repeats: int) -> dict[str, Any]:
    """Return the line of one pair on n rows."""
    x, y = _rows(pair.kind, n)
    ours, spent = _measure(pair.ours, x, y, repeats)
    theirs, spent_there = _measure(pair.theirs, x, y, repeats)
    values = [_value(fitted, pair, x, y) for fitted in (ours, theirs)]
    if pair.objective is not None:
        values = [value / min(values) - 1.0 for value in values]
    return {
        "job": pair.name, "rows": n, "cpu": spent.cpu, "wall": spent.wall, "rival_cpu": spent_there.cpu,
        "rival_wall": spent_there.wall, "limit": 3.0 * spent_there.cpu + 0.5, "status": ours.status_,
        "kind": "error" if pair.objective is None else "excess", "value": values[0], "rival_value": values[1],
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark, print a table, and return the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="one estimator: only to see that it runs")
    parser.add_argument("--rows", default="1000,10000")
    parser.add_argument("--only", default="", help="names of estimators")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    chosen = {"DualRidge"} if options.tiny else set(filter(None, options.only.split(",")))
    sizes = [200] if options.tiny else [int(n) for n in options.rows.split(",")]
    print(
        f"{'estimator':34} {'rows':>6} {'CPU, s':>8} {'sklearn':>8} {'':7} {'value':>8} {'sklearn':>8} status",
        flush=True,
    )
    results = []
    for pair in (pair for pair in PAIRS if not chosen or pair.name in chosen):
        for n in sizes:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                line = measured(pair, n, 1 if options.tiny else 3)
            results.append(line)
            print(
                f"{pair.name:34} {n:6} {line['cpu']:8.3f} {line['rival_cpu']:8.3f} {line['kind']:7} "
                f"{line['value']:8.1e} {line['rival_value']:8.1e} {line['status']}"
                f"{'' if line['cpu'] <= line['limit'] else '  over the limit'}",
                flush=True,
            )
    report = {"load": os.getloadavg()[0], "results": results}
    if options.out is not None:
        options.out.write_text(json.dumps(report, indent=1, allow_nan=False))
    return report


if __name__ == "__main__":
    main()
