"""Constrained SGD, Algorithms 1 and 2 of the paper as they stand, and SGD on centred data: every step visits all of W.

Readings of the paper's misprints: xbar is updated once for a row, not once for every neuron, and Algorithm 2 divides
by |xbar|^2 alone, r_t being added after. Ours, not the paper's: the weights s_i (of gradients and means), the penalty,
which spares the intercept, the fixed mean, and nothing done where |xbar| = 0. The intercept is the last feature, 1.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Section 4.2 and 5.1: the step of row t = 1, 2, ...
STEPS: dict[str, Callable[[float, float, float], float]] = {
    "constant": lambda eta0, m, t: eta0,
    "sqrt": lambda eta0, m, t: eta0 / np.sqrt(t),
    "inverse": lambda eta0, m, t: eta0 / t,
    "two-phase": lambda eta0, m, t: eta0 / np.sqrt(t) if t < m else eta0 * np.sqrt(m) / t,
    "power": lambda eta0, m, t: eta0 * t**-m,
}


@dataclass
class Result:
    """Weights (d, k) and intercepts, the means, and what was seen on the way."""

    w: Array
    b: Array
    mean_x: Array
    mean_y: Array
    loss_sum: float = 0.0
    errors: int = 0


def targets(y: NDArray[np.generic], k: int) -> Array:
    """Class codes as indicators; numbers as they are."""
    return np.eye(k)[y] if y.ndim == 1 else np.asarray(y, float)


def csgd(
    x: Array, y: Array, steps: Callable[[int], float], *, w0: Array, b0: Array, s: Array, alpha: float = 0.0,
    fit_intercept: bool = True, fixed: tuple[Array, Array] | None = None, project: bool = True,
) -> Result:  # fmt: skip
    """Algorithm 1 for the k columns of y (n, k), which is Algorithm 2; NCSGD by its steps, SGD if not `project`."""
    n, d = x.shape
    if fit_intercept:
        x, w = np.hstack([x, np.ones((n, 1))]), np.vstack([w0, b0])
    else:
        w = w0.copy()
    mass, mean_x, mean_y = 0.0, np.zeros(x.shape[1]), np.zeros(y.shape[1])
    if fixed is not None:
        mean_x, mean_y = np.append(fixed[0], np.ones(x.shape[1] - d)), fixed[1]
    loss_sum, errors = 0.0, 0
    for t in range(1, n + 1):
        row, target, weight, eta = x[t - 1], y[t - 1], s[t - 1], steps(t)
        residual = row @ w - target
        loss_sum += 0.5 * weight * residual @ residual
        errors += np.argmax(row @ w) != np.argmax(target)
        if fixed is None:
            mass += weight
            if mass > 0:
                mean_x = (mass - weight) / mass * mean_x + weight / mass * row
                mean_y = (mass - weight) / mass * mean_y + weight / mass * target
        penalty = alpha * w
        penalty[d:] = 0.0
        v = w - eta * (weight * np.outer(row, residual) + penalty)
        norm = mean_x @ mean_x
        w = v - np.outer(mean_x, mean_x @ v - mean_y) / norm if project and norm > 0 else v
    b = w[d] if fit_intercept else np.zeros(y.shape[1])
    return Result(w[:d], b, mean_x[:d], mean_y, loss_sum, int(errors))


def centred_sgd(
    x: Array, y: Array, steps: Callable[[int], float], *, w0: Array, s: Array, alpha: float = 0.0,
    fixed: tuple[Array, Array] | None = None,
) -> Result:  # fmt: skip
    """SGD on rows and targets less their means, the row's own part of the means included."""
    n, d = x.shape
    w = w0.copy()
    mass, mean_x, mean_y = 0.0, np.zeros(d), np.zeros(y.shape[1])
    if fixed is not None:
        mean_x, mean_y = fixed
    loss_sum, errors = 0.0, 0
    for t in range(1, n + 1):
        row, target, weight, eta = x[t - 1], y[t - 1], s[t - 1], steps(t)
        if fixed is None:
            mass += weight
            if mass > 0:
                mean_x = mean_x + weight / mass * (row - mean_x)
                mean_y = mean_y + weight / mass * (target - mean_y)
        score = mean_y + (row - mean_x) @ w
        residual = score - target
        loss_sum += 0.5 * weight * residual @ residual
        errors += np.argmax(score) != np.argmax(target)
        w = w - eta * (weight * np.outer(row - mean_x, residual) + alpha * w)
    return Result(w, mean_y - mean_x @ w, mean_x, mean_y, loss_sum, int(errors))
