"""MCID, Algorithms 1-4 of the paper as they stand: every step visits the whole of W, one example at a time.

Readings of the paper's misprints: scores come from W(t-1), unshrunk, and the updates of a batch accumulate;
ties go to the lowest class. Ours, not the paper's: the start time t0, the weights s_i, the intercept and the
window sums.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def softmax(z: Array, y: int) -> tuple[float, Array]:
    """Algorithm 2: the loss (Eq. 6) and its derivatives by the scores (Eq. 15) for one example."""
    o = np.exp(z - z.max())
    g = o / o.sum()
    value = -np.log(g[y]) if g[y] > 0 else z.max() - z[y] + np.log(o.sum())
    g[y] -= 1.0
    return float(value), g


def crammer_singer(z: Array, y: int) -> tuple[float, Array]:
    """Algorithm 3: Eq. 9 and Eq. 16."""
    others = [c for c in range(len(z)) if c != y]
    star = max(others, key=lambda c: z[c])  # `max` keeps the first of equals
    g = np.zeros_like(z)
    if 1.0 + z[star] - z[y] > 0.0:
        g[star], g[y] = 1.0, -1.0
    return max(0.0, float(1.0 + z[star] - z[y])), g


def perceptron(z: Array, y: int) -> tuple[float, Array]:
    """Algorithm 4: Eq. 11 and Eq. 17."""
    star = int(np.argmax(z))
    g = np.zeros_like(z)
    g[star] += 1.0
    g[y] -= 1.0
    return float(z[star] - z[y]), g


def ovr_hinge(z: Array, y: int) -> tuple[float, Array]:
    """One-versus-rest hinge: the sum of K binary hinges, the row positive in one of them."""
    t = np.where(np.arange(len(z)) == y, 1.0, -1.0)
    return float(np.maximum(0.0, 1.0 - t * z).sum()), np.where(t * z < 1.0, -t, 0.0)


def ovr_squared_hinge(z: Array, y: int) -> tuple[float, Array]:
    """One-versus-rest squared hinge: the sum of K binary ones, each halved."""
    t = np.where(np.arange(len(z)) == y, 1.0, -1.0)
    short = np.maximum(0.0, 1.0 - t * z)
    return 0.5 * float(short @ short), -t * short


def ovr_log(z: Array, y: int) -> tuple[float, Array]:
    """One-versus-rest logistic loss: the sum of K binary ones."""
    t = np.where(np.arange(len(z)) == y, 1.0, -1.0)
    return float(np.logaddexp(0.0, -t * z).sum()), -t / (1.0 + np.exp(t * z))


def squared(z: Array, y: int) -> tuple[float, Array]:
    """Half the squared distance of the scores to the indicator of the class."""
    g = z - np.eye(len(z))[y]
    return 0.5 * float(g @ g), g


def multiclass_squared_hinge(z: Array, y: int) -> tuple[float, Array]:
    """The loss of block coordinate descent (Eq. 2 of its paper): squared slacks of all rivals."""
    a = np.maximum(0.0, 1.0 + z - z[y]) * (np.arange(len(z)) != y)
    return float(a @ a), 2.0 * a - 2.0 * a.sum() * np.eye(len(z))[y]


def multitask_squared_hinge(z: Array, y: int) -> tuple[float, Array]:
    """Its one-versus-rest comparator (Eq. 11), without the 1/2."""
    value, g = ovr_squared_hinge(z, y)
    return 2.0 * value, 2.0 * g


LOSSES: dict[str, Callable[[Array, int], tuple[float, Array]]] = {
    "softmax": softmax,
    "crammer_singer": crammer_singer,
    "perceptron": perceptron,
    "ovr_hinge": ovr_hinge,
    "ovr_squared_hinge": ovr_squared_hinge,
    "ovr_log": ovr_log,
    "squared": squared,
    "multiclass_squared_hinge": multiclass_squared_hinge,
    "multitask_squared_hinge": multitask_squared_hinge,
}


@dataclass
class Result:
    """Last iterate, sums of the iterates t > tail_from, and what was seen on the way."""

    w: Array
    b: Array
    w_sum: Array
    b_sum: Array
    loss_sum: float
    errors: int
    near_ties: int = 0  # rows whose best scores differ by rounding: which one wins is anybody's guess


def onto_ball(w: Array, alpha: float) -> Array:
    """Pegasos' projection onto the ball of radius 1 / sqrt(alpha)."""
    return min(1.0, 1.0 / (np.sqrt(alpha) * np.linalg.norm(w))) * w


def train(
    x: Array, y: NDArray[np.integer], loss: str, alpha: float, batches: Sequence[NDArray[np.integer]], *, w0: Array,
    t0: float = 0.0, s: Array | None = None, fit_intercept: bool = False, tail_from: float = np.inf,
    ball: bool = False,
) -> Result:  # fmt: skip
    """Algorithm 1 over the given batches A_1, A_2, ...: x (n, d), w0 (d, k); with the ball of Pegasos, if asked."""
    w, b = w0.copy(), np.zeros(w0.shape[1])
    out = Result(w, b, np.zeros_like(w), np.zeros_like(b), 0.0, 0)
    s = np.ones(len(x)) if s is None else s
    for t, batch in enumerate(batches, start=1):
        now, r = t + t0, len(batch)
        new_w, new_b = (now - 1.0) / now * w, b.copy()
        for i in batch:
            z = x[i] @ w + b
            value, g = LOSSES[loss](z, int(y[i]))
            out.loss_sum += s[i] * value
            out.errors += int(np.argmax(z)) != y[i]
            out.near_ties += 0.0 < np.diff(np.sort(z)[-2:])[0] < 1e-13 * np.abs(z).max()
            new_w -= s[i] / (alpha * now * r) * np.outer(x[i], g)
            if fit_intercept:
                new_b -= min(1.0 / (alpha * now), 1.0 / np.sqrt(now)) * s[i] / r * g
        if ball:
            new_w = onto_ball(new_w, alpha)
        w, b = new_w, new_b
        if t > tail_from:
            out.w_sum += w
            out.b_sum += b
    out.w, out.b = w, b
    return out


def objective(x: Array, y: NDArray[np.integer], loss: str, alpha: float, w: Array, b: Array, s: Array) -> float:
    """Eq. 3 with weights: the weighted mean loss and the penalty."""
    values = [LOSSES[loss](x[i] @ w + b, int(y[i]))[0] for i in range(len(x))]
    return float(np.dot(s, values) / s.sum() + alpha / 2 * (w**2).sum())


def loss_gradient(x: Array, y: NDArray[np.integer], loss: str, w: Array, b: Array, s: Array) -> tuple[Array, Array]:
    """Return sum_i s_i x_i (x) g_i and sum_i s_i g_i."""
    g = np.array([LOSSES[loss](x[i] @ w + b, int(y[i]))[1] for i in range(len(x))]).reshape(len(x), w.shape[1])
    return x.T @ (s[:, None] * g), s @ g
