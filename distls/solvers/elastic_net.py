"""The elastic net of few dense columns in memory: the optimum of least squares, by the products of columns alone.

Dual ascent moves row by row, and takes hundreds of passes where the penalty is weak. Here sweeps over the columns soon
know which weights are zero and the signs of the others, and with these known the weights are the solution of a linear
system (the active sets of Osborne, Presnell and Turlach 2000). The gap is proven, as everywhere.
"""

import contextlib

import numpy as np
from numpy.typing import NDArray

from distls.solvers.lbfgs import Optimum, RowsInMemory
from distls.workers.runtime.process import single_threaded_blas

Array = NDArray[np.float64]

_TURNS, _SWEEPS = 50, 2  # of sweeps and a solution each; what takes longer is left to dual ascent


def elastic_net_optimum(problem: RowsInMemory, l1_ratio: float, rtol: float) -> Optimum | None:
    """Return weights with a duality gap of at most `rtol` times the objective; None where that takes too long.

    The loss of `problem` is the squared one. Minimises the mean of ``s_i/2 |y_i - x_i W - b|^2`` plus ``alpha
    (l1_ratio |W|_1 + (1 - l1_ratio)/2 |W|^2)``, with an `l1_ratio` below 1.
    """
    # Weights divided by n, so that all sums are means.
    share = problem.weight / len(problem.weight)
    centred = float(problem.fit_intercept)
    mean, mean_y = centred * (share @ problem.x), centred * (share @ problem.y)
    x, y = problem.x - mean, problem.y - mean_y
    l1, l2 = problem.alpha * l1_ratio, problem.alpha * (1.0 - l1_ratio)
    # Columns that float64 cannot tell apart, or square, are no error: dual ascent takes over.
    with (
        single_threaded_blas(),
        np.errstate(over="ignore", invalid="ignore"),
        contextlib.suppress(np.linalg.LinAlgError),
    ):
        gram, products = x.T @ (share[:, None] * x), x.T @ (share[:, None] * y)
        w, square = np.zeros_like(products), 0.5 * float(share @ np.square(y).sum(axis=1))
        for _ in range(_TURNS):
            _sweep(gram, products, l1, l2, w)
            for k in range(w.shape[1]):
                _settle(gram, products[:, k], l1, l2, w[:, k])
            slopes = products - gram @ w
            penalty = l1 * float(np.abs(w).sum()) + 0.5 * l2 * float(np.vdot(w, w))
            value = square - 0.5 * float(np.vdot(w, products + slopes)) + penalty
            # Of the dual point at the residuals: what the penalty and its conjugate are above their product.
            beyond = np.maximum(np.abs(slopes) - l1, 0.0)
            gap = max(penalty + float(np.vdot(beyond, beyond)) / (2.0 * l2) - float(np.vdot(w, slopes)), 0.0)
            if gap <= rtol * value:
                return Optimum(w, mean_y - mean @ w, value, gap + np.finfo(np.float64).eps * square, 1)
    return None


def _sweep(gram: Array, products: Array, l1: float, l2: float, w: Array) -> None:
    """Minimise over each column in turn, some times, in place; outputs are independent of each other."""
    for j in list(range(len(w))) * _SWEEPS:
        slope = products[j] - gram[j] @ w + gram[j, j] * w[j]
        w[j] = np.sign(slope) * np.maximum(np.abs(slope) - l1, 0.0) / (gram[j, j] + l2)


def _settle(gram: Array, products: Array, l1: float, l2: float, w: Array) -> None:
    """Move the weights of one output, in place, to their optimum with the signs that they have, some at zero."""
    while len(free := np.flatnonzero(w)):
        old, signs = w[free], np.sign(w[free])
        matrix = gram[np.ix_(free, free)] + l2 * np.eye(len(free))
        new = np.linalg.solve(matrix, products[free] - l1 * signs)
        if not np.isfinite(new).all():
            raise np.linalg.LinAlgError("beyond float64")
        crossed = np.sign(new) != signs
        if not crossed.any():
            w[free] = new
            return
        # The objective falls all along the way there, as far as no sign changes: the first that would is zero.
        reach = np.where(crossed, old / np.where(crossed, old - new, 1.0), np.inf)
        w[free] = np.where(reach == reach.min(), 0.0, old + reach.min() * (new - old))
