"""2SGD with the Hessian estimated on line (SGD-QN paper, Equation 4) and oLBFGS, one example at a time and dense.

Each step of `second_order_sgd` solves with the matrix instead of updating its inverse, and its intercept is a constant
feature whose prior is zero. Ours, not the papers': the curvature of logistic rows that are wrong, the order of the
special examples, the share of an output in the one matrix, the weights s_i, and the intercept without a penalty.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reference import mcid

Array = NDArray[np.float64]


def _loss(name: str, y: Array | NDArray[np.integer], z: Array, i: int) -> tuple[float, Array]:
    """Value and slopes of row i, of a class or of numbers."""
    if y.ndim == 2:
        return 0.5 * float(((z - y[i]) ** 2).sum()), z - y[i]
    return mcid.LOSSES[name](z, int(y[i]))


def curvatures(name: str, y: Array | NDArray[np.integer], z: Array, g: Array) -> Array:
    """Return the second derivative of each output; for the logistic loss as the kernel has it."""
    if name == "squared" or y.ndim == 2:
        return np.ones_like(z)
    if name == "ovr_squared_hinge":
        return (g != 0.0).astype(np.float64)
    size = np.abs(g)
    return np.where(size > 0.5, size / (2.0 + np.abs(z)), size * (1.0 - size))


def second_order_sgd(
    x: Array, y: Array | NDArray[np.integer], k: int, name: str, prior: float, order: Sequence[int], *, s: Array,
    fit_intercept: bool = False, pass_rows: int = 0,
) -> tuple[Array, Array, float]:  # fmt: skip
    """Return W, b and the progressive loss sum after the rows `order`."""
    n, d = x.shape
    extended = np.hstack([x, np.full((n, 1), float(fit_intercept))])
    a = prior * np.eye(d + 1)
    a[d, d] = 0.0 if fit_intercept else 1.0
    theta, loss_sum, shown = np.zeros((d + 1, k)), 0.0, 0
    own, largest = np.zeros(k), 0.0

    def step(row: Array, slopes: Array, added: Array) -> None:
        for c in np.flatnonzero(added):
            share = own[c] / largest if own[c] > 0.0 else 1.0
            theta[:, c] -= slopes[c] * np.linalg.solve(share * a + added[c] * np.outer(row, row), row)

    for t, i in enumerate(order, start=1):
        row = extended[i]
        value, g = _loss(name, y, row @ theta, i)
        loss_sum += s[i] * value
        h = s[i] * curvatures(name, y, row @ theta, g)
        step(row, s[i] * g, h)
        a += h.max() * np.outer(row, row)
        own, largest = own + h, largest + h.max()
        while pass_rows and shown < (t - pass_rows) * d // pass_rows:
            e = np.eye(d + 1)[shown % d]
            step(e, prior * (e @ theta), np.full(k, prior))
            a += prior * np.outer(e, e)
            shown += 1
    return theta[:d], theta[d], loss_sum


def gradient(
    x: Array, y: NDArray[np.integer], i: int, name: str, alpha: float, theta: Array, s: float, free: bool
) -> tuple[float, Array]:
    """Loss of row i and the gradient of s_i loss_i + alpha/2 |W|^2; theta (d + 1, k) has b in its last row."""
    w, b = theta[:-1], theta[-1]
    value, g = _loss(name, y, x[i] @ w + b, i)
    return value, np.vstack([s * np.outer(x[i], g) + alpha * w, s * g * free])


def direction(g: Array, pairs: list[tuple[Array, Array]], epsilon: float) -> Array:
    """Algorithm 3 of Schraudolph, Yu and Guenter (2007); the oldest pair comes first."""
    p, shares = -g, []
    for s, y in reversed(pairs):
        shares.append(np.vdot(s, p) / np.vdot(s, y))
        p = p - shares[-1] * y
    p = p * (np.mean([np.vdot(s, y) / np.vdot(y, y) for s, y in pairs]) if pairs else epsilon)
    for (s, y), share in zip(pairs, reversed(shares), strict=True):
        p = p + (share - np.vdot(y, p) / np.vdot(s, y)) * s
    return p


def olbfgs(
    x: Array, y: NDArray[np.integer], k: int, name: str, alpha: float, order: Sequence[int], *, s: Array,
    rank: int = 10, eta0: float = 0.1, tau: float = 1e4, damping: float = 0.1, epsilon: float = 1e-10,
    fit_intercept: bool = False,
) -> tuple[Array, Array, float]:  # fmt: skip
    """Return W, b and the progressive loss sum after the rows `order`."""
    theta, pairs, loss_sum = np.zeros((x.shape[1] + 1, k)), [], 0.0
    for t, i in enumerate(order):
        value, g = gradient(x, y, i, name, alpha, theta, s[i], fit_intercept)
        loss_sum += s[i] * value
        step = eta0 * tau / (tau + t) * direction(g, pairs, epsilon)
        theta = theta + step
        bend = gradient(x, y, i, name, alpha, theta, s[i], fit_intercept)[1] - g + damping * step
        if np.vdot(step, bend) > 1e-10 * np.linalg.norm(step) * np.linalg.norm(bend):
            pairs = [*pairs, (step, bend)][-rank:]
    return theta[:-1], theta[-1], loss_sum


def sgd(x: Array, y: NDArray[np.integer], k: int, name: str, alpha: float, order: Sequence[int], t0: float) -> Array:
    """Equation 3 of the SGD-QN paper: steps of 1 / (alpha (t + t0)), without an intercept."""
    theta = np.zeros((x.shape[1] + 1, k))
    for t, i in enumerate(order):
        theta = theta - gradient(x, y, i, name, alpha, theta, 1.0, False)[1] / (alpha * (t + t0))
    return theta[:-1]
