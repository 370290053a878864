"""Regularization paths: fits by decreasing alpha, each warm-started from the model of the one before."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from distls.evaluation.evaluator import Evaluator
from distls.execution.batch import run_alone
from distls.execution.executor import Executor
from distls.methods.method import Method, Params
from distls.problem import Problem
from distls.solvers.solver import StartsPath
from distls.storage.errors import ParameterError
from distls.workers.penalties.penalty_registry import penalty_named
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.block_stream import DatasetRef

PATH_PARAMETERS = ("alphas", "folds", "prune")  # of alpha=path only
_DEFAULT_ALPHAS = 10
_SPAN = 1e-3  # ratio of the last alpha of a path to the first
# of l2 alone, in mean squared norms of a row (docs/decisions/0025)
_L2_RANGE = (1e-2, 1e-6)
_ROUNDING = 1e-6  # margin, so that rounding leaves no nonzero weight at the first alpha


def has_path(method: Method, grid: Sequence[Params]) -> bool:
    """Return whether the settings of a fit are paths: one child run per alpha.

    Raises ParameterError for a path among settings of one alpha, or for parameters of a path without alpha=path.
    """
    if not method.path:
        return False
    points = [params for params in grid if params["alpha"] == "path"]
    for params in grid:
        for name in PATH_PARAMETERS if params not in points else ():
            if params.get(name) is not None:
                raise ParameterError(f"{name}={params[name]}: of alpha=path only; leave it out")
    if points and len(points) < len(grid):
        raise ParameterError("alpha=path cannot be combined with other alphas; list those as alphas=1e-2:1e-3")
    if any(params.get("prune") and not params.get("folds") for params in points):
        raise ParameterError("prune: the rows of folds tell what is worse; give folds, or leave it out")
    if len({params.get("folds") for params in points}) > 1:
        raise ParameterError("folds: of several values only one can choose; give one")
    return bool(points)


def number_of_alphas(params: Params) -> int:
    """Return the number of points of a path."""
    given = params["alphas"]
    return given.count(":") + 1 if isinstance(given, str) else given or _DEFAULT_ALPHAS


def needs_intercept(params: Params, problem: Problem) -> bool:
    """Return whether a path begins at an alpha that is to be found, with an intercept."""
    found = params["alpha"] == "path" and not isinstance(params["alphas"], str)
    return found and not problem.penalty_is_quadratic and problem.fit_intercept


def path_start(method: Method, solver: object) -> StartsPath:
    """Return the solver as one that can begin such a path; raise ParameterError if it cannot."""
    if isinstance(solver, StartsPath):
        return solver
    raise ParameterError(
        f"alpha=path: {method.name} with an intercept does not find the first alpha; list them, as in "
        "alphas=1e-2:1e-3:1e-4"
    )


def settings_of_path(
    params: Params, problem: Problem, executor: Executor, intercept_alone: Callable[[], NDArray[np.float64]]
) -> list[Params]:
    """Return the parameters of the path's points, by decreasing alpha, without the model each starts from.

    Without given alphas, the first is the smallest at which zero weights are optimal, which takes one read of the data,
    or two with an intercept, which `intercept_alone` returns for zero weights; with l2 there is none, and they are
    proportional to the mean squared norm of a row. The others are log-spaced. Raises ParameterError if weights are zero
    at no alpha, or no value differs from zero.
    """
    alphas = _known_alphas(params, problem)
    if alphas is None:
        intercept = intercept_alone() if problem.fit_intercept else np.zeros(problem.shape[1])
        first = (1.0 + _ROUNDING) * _largest_alpha(problem, executor, intercept)
        alphas = np.geomspace(first, _SPAN * first, number_of_alphas(params)).tolist()
    rest: Params = {name: None for name in PATH_PARAMETERS if name in params}
    return [{**params, "alpha": alpha, **rest} for alpha in alphas]


def _known_alphas(params: Params, problem: Problem) -> list[float] | None:
    """Return the alphas of a path, decreasing, or None if they take a read of the data."""
    given = params["alphas"]
    if isinstance(given, str):
        return sorted((float(each) for each in given.split(":")), reverse=True)
    if not problem.penalty_is_quadratic:
        return None
    square = problem.dataset.meta.mean_square_norm
    if not square > 0.0:
        raise ParameterError("alpha=path: all values are zero; list the alphas, as in alphas=1e-2:1e-3:1e-4")
    first, last = (square * each for each in _L2_RANGE)
    alphas: list[float] = np.geomspace(first, last, number_of_alphas(params)).tolist()
    return alphas


def typical_alpha(params: Params, problem: Problem) -> float:
    """Return the largest alpha of a path if it is known, else any."""
    known = _known_alphas(params, problem)
    return 1.0 if known is None else known[0]


def number_of_fits(params: Params) -> int:
    """Return the number of fits of a path: one of each alpha, or of each alpha and fold and one to all rows."""
    folds = params.get("folds")
    return number_of_alphas(params) if folds is None else folds * number_of_alphas(params) + 1


def _largest_alpha(problem: Problem, executor: Executor, intercept: NDArray[np.float64]) -> float:
    """Return the smallest alpha at which zero weights are optimal with that intercept."""
    zero = LinearPredictor(np.zeros(problem.shape, problem.dtype), intercept)
    gradient = run_alone(Evaluator(problem, DatasetRef.of(problem.dataset)).gradient(zero), executor)
    alpha = penalty_named(problem.penalty).zero_from(gradient, problem.l1_ratio)
    if not 0.0 < alpha < math.inf:
        raise ParameterError(
            f"alpha=path: no alpha makes all weights zero with penalty={problem.penalty}; list them, as in "
            "alphas=1e-2:1e-3:1e-4"
        )
    return alpha
