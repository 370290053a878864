"""Algorithm 2 of least squares revisited in plain NumPy: whole arrays, no package code."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


class Round(NamedTuple):
    """One turn of the paper's loop.

    W (d, k), b (k,): the residual fit. C (p k, k): the calibration. fit, predictions (n, k): ytilde and yhat.
    """

    W: Array
    b: Array
    C: Array
    fit: Array
    predictions: Array


def project_simplex(v: Array) -> Array:
    """Return the closest point of the simplex by bisection on the shift u of max(v - u, 0)."""
    low, high = v.min() - 1.0, v.max()
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.maximum(v - middle, 0.0).sum() > 1.0 else (low, middle)
    return np.maximum(v - 0.5 * (low + high), 0.0)


def project(values: Array, onto: str) -> Array:
    """Project each row onto the simplex or the unit cube."""
    if onto == "cube":
        return np.minimum(np.maximum(values, 0.0), 1.0)
    return np.stack([project_simplex(v) for v in values])


def ridge(x: Array, r: Array, s: Array, alpha: float, intercept: bool) -> tuple[Array, Array]:
    """Return argmin over (W, b) of 1/2 sum s |r - W'x - b|^2 / sum s + alpha/2 |W|^2, by an augmented system."""
    n, d = x.shape
    root = np.sqrt(s / s.sum())[:, None]
    columns = np.hstack([x, np.ones((n, 1))]) if intercept else x
    penalty = np.sqrt(alpha) * np.eye(d, columns.shape[1])
    system = np.vstack([root * columns, penalty])
    solution = np.linalg.lstsq(system, np.vstack([root * r, np.zeros((d, r.shape[1]))]), rcond=None)[0]
    return solution[:d], solution[d] if intercept else np.zeros(r.shape[1])


def calibrated(
    x: Array | Sequence[Array], y: Array, *, rounds: int, powers: tuple[int, ...] = (1, 2, 3),
    functions: Sequence[Callable[[Array], Array]] = (), alpha: float = 0.0, intercept: bool = True,
    weight: Array | None = None, onto: str = "simplex",
) -> list[Round]:  # fmt: skip
    """Run Algorithm 2 on indicators y (n, k) from zero predictions (Equations 18 and 19).

    x (n, d) are the features of all rounds, or a list of those of each.
    """
    own = [x] * rounds if isinstance(x, np.ndarray) else x
    s = np.ones(len(y)) if weight is None else weight
    predictions = np.zeros_like(y)
    done = []
    for features in own:
        w, b = ridge(features, y - predictions, s, alpha, intercept)
        fit = predictions + features @ w + b
        g = np.hstack([*(fit**power for power in powers), *(g(fit) for g in functions)])
        root = np.sqrt(s)[:, None]
        c = np.linalg.lstsq(root * g, root * y, rcond=1e-13)[0]
        predictions = project(g @ c, onto)
        done.append(Round(w, b, c, fit, predictions))
    return done


def mean_loss(y: Array, predictions: Array, weight: Array | None = None) -> float:
    """Return half the weighted mean squared error."""
    s = np.ones(len(y)) if weight is None else weight
    return float(0.5 * (s * ((y - predictions) ** 2).sum(axis=1)).sum() / s.sum())
