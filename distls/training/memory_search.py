"""Strengths compared in memory: the fits of a path without each fold, where all rows fit, without a run for each."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError

from distls.methods.method import Params
from distls.problem import Problem
from distls.solvers.lbfgs import RowsInMemory, are_few, path_weights
from distls.solvers.solver import Fitted
from distls.storage.dataset.dataset import Dataset
from distls.storage.filesystem.paths import Place
from distls.storage.model.model import save_model
from distls.storage.rows import CsrRows
from distls.training.configuration import FitRequest, Setting
from distls.training.run_folder import Run
from distls.training.setting_fit import model_of
from distls.workers.losses.loss_registry import loss_named
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.row_weights import fold_of, row_weights

if TYPE_CHECKING:
    from distls.training.selection import FoldView, Race

_NEAR = 1e-8  # gap, as a part of the objective, of weights from which the last fit has nothing left to do


class Judged(NamedTuple):
    """What the rows of a fold say of a point."""

    error: float  # the share of wrong classes, or the mean squared error
    loss: float  # the mean of what was minimised
    rows: int


def are_compared_here(setting: Setting) -> bool:
    """Return whether the folds of a path are fitted in this process: by an exact method, few rows without sets."""
    problem, params = setting.problem, setting.params
    meta, plain = problem.dataset.meta, params.get("intercept_scaling") is None
    plain = plain and problem.penalty_is_quadratic
    if not (setting.method.in_memory and plain and params.get("folds")) or problem.target == "multilabel":
        return False
    nnz = meta.nnz if meta.layout == "csr" else None
    return are_few(meta.n_rows, *problem.shape, loss_named(problem.loss), nnz)


def compared_here(
    run: Run, request: FitRequest, race: Race, paths: list[list[Params]], views: Sequence[FoldView]
) -> tuple[list[float] | None, Place | None]:
    """Let all rows of the folds judge, in memory.

    Return the errors of the points where their losses decide, and the model that the last fit starts from, if any.
    """
    problems = [
        [Setting.of(request.method, path[0], view.rest, request.seed).problem for path in paths] for view in views
    ]
    rows = RowsHere(replace(request.data, standardization=problems[0][0].dataset.standardization))
    table = rows.judged(paths, problems)
    # Losses tell more than errors of few rows do, but are not alike along paths of different ones.
    by_loss = len(paths) == 1
    for place, each in ((place, each) for judged in table for place, each in enumerate(judged)):
        value = each.loss if by_loss else each.error
        race.judge(place, value if math.isfinite(value) else None, each.rows)
    race.keep_first()  # the first loss, which has probabilities
    counts = [judged[0].rows for judged in table]
    errors = np.average([[each.error for each in judged] for judged in table], axis=0, weights=counts)
    start = None
    # of sparse rows, most of whose columns may be empty, a pass costs more than the weights' file
    if request.data.meta.layout == "csr" and race.points[0].get("init") is None:
        point, start = race.points[race.best], run.path / "search"
        best = Setting.of(request.method, point, request.data, request.seed)
        own = next(path for path in paths if point in path)
        alphas = [each["alpha"] for each in own[: own.index(point) + 1]]
        save_model(start, model_of(Fitted(rows.weights(best.problem, alphas)), best))
    return (list(map(float, errors)) if by_loss else None), start


class RowsHere:
    """All rows of a data set, in memory."""

    def __init__(self, data: Dataset) -> None:
        self._parts = [data.read(index) for index in range(len(data))]
        self._x, self._used = _joined([part.x for part in self._parts])
        self._y = np.concatenate([part.y for part in self._parts])

    def judged(self, paths: Sequence[Sequence[Params]], problems: Sequence[Sequence[Problem]]) -> list[list[Judged]]:
        """Return what each fold's rows say of each point; `problems` are those of the paths without each fold."""
        found = []
        for fold, of_paths in enumerate(problems):
            out = np.concatenate([_in_fold(len(part.y), fold, len(problems)) for part in self._parts])
            judged: list[Judged] = []
            for path, problem in zip(paths, of_paths, strict=True):
                given, alphas = self._given(problem, ~out), [point["alpha"] for point in path]
                judged += _judged(given, alphas, self._x[out], self._y[out])
            found.append(judged)
        return found

    def weights(self, problem: Problem, alphas: Sequence[float]) -> LinearPredictor:
        """Return weights near the optimum of the last of decreasing strengths."""
        given = self._given(problem, np.ones(len(self._y), bool))
        *_, (weights, intercept) = path_weights(given, alphas, _NEAR)
        full = np.zeros(problem.shape, problem.dtype)
        full[self._used] = weights
        return LinearPredictor(full, intercept)

    def _given(self, problem: Problem, rows: NDArray[np.bool_]) -> RowsInMemory:
        by_class = problem.row_weight_by_class
        s = np.concatenate([row_weights(part, by_class) for part in self._parts])[rows]
        loss, k = loss_named(problem.loss), problem.shape[1]
        return RowsInMemory(self._x[rows], self._y[rows], s / s.mean(), loss, k, 1.0, problem.fit_intercept)


def _judged(given: RowsInMemory, alphas: Sequence[float], x: Any, y: NDArray[Any]) -> list[Judged]:
    found: list[Judged] = []
    # columns that float64 cannot tell apart under so weak a penalty
    with contextlib.suppress(LinAlgError, ValueError):
        for weights, intercept in path_weights(given, alphas):
            scores = x @ weights + intercept
            if y.ndim == 1:
                wrong = given.loss.of_classes(scores).argmax(axis=1) != y
                losses = given.loss.values(scores, y)
            else:
                losses = wrong = np.square(scores - y).sum(axis=1)
            found.append(Judged(float(np.mean(wrong)), float(np.mean(losses)), len(y)))
    return found + [Judged(math.inf, math.inf, len(y))] * (len(alphas) - len(found))


def _in_fold(n_rows: int, fold: int, folds: int) -> NDArray[np.bool_]:
    held = np.zeros(n_rows, dtype=bool)
    held[fold_of(n_rows, fold, folds)] = True
    return held


def _joined(blocks: Sequence[Any]) -> tuple[Any, Any]:
    """Return all rows as float64, an array or SciPy's CSR matrix of the columns that have values, and these columns."""
    if not isinstance(blocks[0], CsrRows):
        return np.concatenate([block.values for block in blocks]).astype(np.float64), slice(None)
    from scipy import sparse

    # columns without a value have weights of zero, whose room is saved
    used, places = np.unique(np.concatenate([block.indices for block in blocks]), return_inverse=True)
    counts = np.concatenate([np.diff(block.indptr) for block in blocks])
    data = np.concatenate([block.data for block in blocks]).astype(np.float64)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return sparse.csr_matrix((data, places, indptr), shape=(len(counts), len(used))), used
