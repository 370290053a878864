"""Plain NumPy of the stochastic methods: dense, one row a step, float64, as the papers write them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from reference.mcid import LOSSES

Array = np.ndarray[Any, np.dtype[np.float64]]
Slopes = Callable[[Array, Any], tuple[float, Array]]

SCHEDULES: dict[str, Callable[[float, float, float], float]] = {
    "constant": lambda eta0, m, t: eta0,
    "inverse": lambda eta0, m, t: eta0 / t,
    "sqrt": lambda eta0, m, t: eta0 / np.sqrt(t),
    "two-phase": lambda eta0, m, t: eta0 / np.sqrt(t) if t < m else eta0 * np.sqrt(m) / t,
    "power": lambda eta0, m, t: eta0 * t**-m,
}


def slopes_of(loss: str) -> Slopes:
    """Return value and slopes of a row: of a class code, or of numbers."""

    def of_row(z: Array, y: Any) -> tuple[float, Array]:
        if np.ndim(y):
            return 0.5 * float((z - y) @ (z - y)), z - y
        return LOSSES[loss](z, int(y))

    return of_row


def binary_slopes(loss: str) -> Slopes:
    """Return value and slopes of the single output of two classes."""
    times = 2.0 if loss == "binary_squared_hinge" else 1.0  # there without a factor 1/2

    def of_row(z: Array, y: Any) -> tuple[float, Array]:
        value, g = LOSSES[loss.replace("binary", "ovr")](np.array([-z[0], z[0]]), int(y))
        return times / 2.0 * value, times * g[1:]

    return of_row


def sgd(
    x: Array, y: Any, slopes: Slopes, steps: Callable[[int], float], *, k: int, alpha: float = 0.0, s: Any = None,
    intercept: bool = False, batch: int = 1,
) -> tuple[list[Array], list[Array], float]:  # fmt: skip
    """W(t) = (1 - alpha eta) W(t-1) - eta mean_i s_i x_i (x) g_i; return all W, all b and the sum of losses."""
    w, b, loss_sum = np.zeros((x.shape[1], k)), np.zeros(k), 0.0
    ws, bs = [w], [b]
    for t, first in enumerate(range(0, len(x), batch), start=1):
        rows = range(first, min(first + batch, len(x)))
        eta, grad, grad_b = steps(t), np.zeros_like(w), np.zeros_like(b)
        for i in rows:
            value, g = slopes(x[i] @ w + b, y[i])
            weight = 1.0 if s is None else s[i]
            loss_sum += weight * value
            grad += weight * np.outer(x[i], g) / len(rows)
            grad_b += weight * g / len(rows)
        w = (1 - alpha * eta) * w - eta * grad
        b = b - eta * grad_b if intercept else b
        ws.append(w)
        bs.append(b)
    return ws, bs, loss_sum


def adaptive(
    x: Array, y: Any, slopes: Slopes, eta0: float, *, eta_b: float, k: int, alpha: float = 0.0, s: Any = None,
    intercept: bool = False,
) -> tuple[Array, Array, Array, float]:  # fmt: skip
    """AdaGrad with one accumulator a feature; every feature decays at every step, by its step as it is after it."""
    w, b, squares, square_b, loss_sum = np.zeros((x.shape[1], k)), np.zeros(k), np.zeros(x.shape[1]), 0.0, 0.0

    def rates() -> Array:
        return np.where(squares > 0, eta0 / np.sqrt(np.where(squares > 0, squares, 1.0)), 0.0)

    for i in range(len(x)):
        value, g = slopes(x[i] @ w + b, y[i])
        weight = 1.0 if s is None else s[i]
        loss_sum += weight * value
        squares = squares + weight**2 * (g @ g) * x[i] ** 2
        w = np.exp(-alpha * rates())[:, None] * (w - weight * np.outer(rates() * x[i], g))
        if intercept and g.any():
            square_b += weight**2 * (g @ g)
            b = b - eta_b * weight / np.sqrt(square_b) * g
    return w, b, squares, loss_sum


def curvature(loss: str, g: Array) -> Array:
    """Second derivatives in the scores, from the slopes."""
    if loss == "ovr_squared_hinge":
        return (g != 0).astype(float)
    if loss == "binary_squared_hinge":
        return 2.0 * (g != 0)
    return np.abs(g) * (1 - np.abs(g)) if loss in ("ovr_log", "softmax", "binary_log") else np.zeros(len(g))


def scheduled(
    x: Array, y: Any, slopes: Slopes, loss: str, alpha: float, t0: float, skip: int, metric: str, *, k: int,
    s: Any = None, intercept: bool = False, most: float = np.inf, spread: float = 0.0,
) -> tuple[Array, Array, Array, float]:  # fmt: skip
    """SVMSGD2 (Figure 1) and SGD-QN (Figure 2 as printed, or with the other two diagonals); `count` counts as there."""
    d = x.shape[1]
    w, b, loss_sum = np.zeros((d, k)), np.zeros(k), 0.0
    diagonal = np.full((d, k), 1 / alpha if metric == "paper" else 0.0)
    previous, count, update, r = w, skip, False, 2

    def steps(tau: float) -> Array:
        if metric == "none":
            return np.full((d, k), 1 / (alpha * tau))
        return diagonal / tau if metric == "paper" else 1 / (alpha * tau + diagonal)

    for t in range(len(x)):
        tau, weight = t + t0, 1.0 if s is None else s[t]
        value, g = slopes(x[t] @ w + b, y[t])
        loss_sum += weight * value
        if update and metric == "secant":
            change = weight * (g - slopes(x[t] @ previous + b, y[t])[1])
            moved = w - previous
            seen = np.where(moved != 0, change * x[t][:, None] / np.where(moved != 0, moved, 1), 0)
            diagonal = diagonal + skip * np.clip(seen, 0, 99 * alpha) * (change != 0)
            previous, update = w, False
        if metric in ("gauss-newton", "capped"):
            added = weight * np.outer(x[t] ** 2, curvature(loss, g))
            diagonal = np.minimum(diagonal + added, np.maximum(diagonal, np.maximum(most, spread * added)))
        following = w - weight * np.outer(x[t], g) * steps(tau)
        if intercept:
            b = b - weight * min(1 / (alpha * tau), 1 / np.sqrt(tau)) * g
        if update and metric == "paper":
            dw = following - w
            p = alpha * dw + weight * np.outer(x[t], slopes(x[t] @ following + b, y[t])[1] - g)
            ratio = np.where(dw != 0, dw / np.where(dw != 0, p, 1), 1 / alpha)
            diagonal = np.maximum(diagonal + 2 / r * (ratio - diagonal), 1e-2 / alpha)
            r, update = r + 1, False
        w, count = following, count - 1
        if count <= 0:
            w = w * np.maximum(1 - skip * alpha * steps(tau), 0)
            count, update = skip, True
    return w, b, diagonal, loss_sum


def fobos(
    x: Array, y: Any, slopes: Slopes, eta0: float, prox: Callable[[Array, float], Array], *, k: int,
    alpha: float = 0.0, s: Any = None, eta_b: float = 0.0,
) -> tuple[Array, Array, float]:  # fmt: skip
    """Forward-backward splitting with steps eta0/sqrt(t), eta_b/sqrt(t) for b: all rows of W shrink at every step."""
    w, b, loss_sum = np.zeros((x.shape[1], k)), np.zeros(k), 0.0
    for t in range(1, len(x) + 1):
        i, eta = t - 1, eta0 / np.sqrt(t)
        value, g = slopes(x[i] @ w + b, y[i])
        weight = 1.0 if s is None else s[i]
        loss_sum += weight * value
        w = np.stack([prox(row, eta * alpha) for row in w - eta * weight * np.outer(x[i], g)])
        b = b - eta_b / np.sqrt(t) * weight * g
    return w, b, loss_sum
