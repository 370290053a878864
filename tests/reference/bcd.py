"""Block coordinate descent, Algorithms 1-3 of the paper as they stand, on dense rows and one block after the other.

Readings of the paper's misprints: r = y_i does not count in Eq. 5 and 6, blocks without data are skipped, K_j is the
sharp 2m/n sum_i x_ij^2, that of the logistic loss has its 1/n, and the violation at W_j != 0 is not the difference of
norms, which is 0 in wrong directions too, but ``L_j |W_j* - W_j|``; at W_j = 0 this is Eq. 9.
Ours, not the paper's: row weights, the other penalties' proximity operators, active sweeps, lanes, the duality gap.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
SIGMA, OMEGA, EPSILON = 0.01, 0.5, 1e-12


@dataclass(frozen=True)
class Problem:
    """F(W) = sum_i s_i loss(y_i, W^T x_i) + alpha R(W), with weights s_i that sum to one."""

    x: Array
    y: Any
    m: int
    loss: str = "multiclass_squared_hinge"
    penalty: str = "l1l2"
    alpha: float = 1e-2
    rho: float = 0.5
    s: Any = None

    @property
    def weights(self) -> Array:
        """Weights of rows, which sum to one."""
        s = np.ones(len(self.x)) if self.s is None else np.asarray(self.s, float)
        return s / s.sum()


# ---------------------------------------------------------------- losses: value, slopes, second derivatives of a row


def multiclass_squared_hinge(z: Array, y: int) -> tuple[float, Array, Array]:
    """Eq. 2 without the penalty, Eq. 5 and Eq. 6 without x: every rival within the margin counts, twice in h."""
    a = np.maximum(1.0 - (z[y] - z), 0.0)
    a[y] = 0.0
    g, h = 2.0 * a, 2.0 * (a > 0.0)
    g[y], h[y] = -g.sum(), h.sum()
    return float(a @ a), g, h


def multitask_squared_hinge(z: Array, y: int) -> tuple[float, Array, Array]:
    """Eq. 11 and Eq. 13."""
    t = np.where(np.arange(len(z)) == y, 1.0, -1.0)
    a = np.maximum(1.0 - t * z, 0.0)
    return float(a @ a), -2.0 * t * a, 2.0 * (a > 0.0)


def softmax(z: Array, y: int) -> tuple[float, Array, Array]:
    """Eq. 12, which is log sum_r exp(z_r) - z_y."""
    p = np.exp(z - z.max())
    value = np.log(p.sum()) + z.max() - z[y]
    p /= p.sum()
    return float(value), p - (np.arange(len(z)) == y), p * (1.0 - p)


def ranking_squared_hinge(z: Array, labels: Sequence[int]) -> tuple[float, Array, Array]:
    """The label ranking of section 4.7: every label of the row against every other one."""
    value, g, h = 0.0, np.zeros_like(z), np.zeros_like(z)
    for r in labels:
        for q in set(range(len(z))) - set(labels):
            a = max(1.0 - (z[r] - z[q]), 0.0)
            value += a * a
            g[q] += 2.0 * a
            g[r] -= 2.0 * a
            h[[q, r]] += 2.0 * (a > 0.0)
    return value, g, h


def labels_apart(z: Array, labels: Sequence[int]) -> tuple[float, Array, Array]:
    """Eq. 11 and Eq. 13 with the row's labels in place of its class."""
    t = np.where(np.isin(np.arange(len(z)), labels), 1.0, -1.0)
    a = np.maximum(1.0 - t * z, 0.0)
    return float(a @ a), -2.0 * t * a, 2.0 * (a > 0.0)


LOSSES: dict[str, Callable[[Array, Any], tuple[float, Array, Array]]] = {
    "multiclass_squared_hinge": multiclass_squared_hinge,
    "multitask_squared_hinge": multitask_squared_hinge,
    "softmax": softmax,
    "ranking_squared_hinge": ranking_squared_hinge,
    "labels_apart": labels_apart,
}


# ---------------------------------------------------------------- penalties of one row of W


def penalty(w: Array, name: str, rho: float) -> float:
    """R of one row of W (sections 2 and 4.7)."""
    return float(
        {
            "l1l2": np.sqrt(w @ w), "l1": np.abs(w).sum(), "l2": 0.5 * (w @ w),
            "elasticnet": rho * np.abs(w).sum() + (1 - rho) * 0.5 * (w @ w), "l1linf": np.abs(w).max(),
            "sparse-group": rho * np.abs(w).sum() + (1 - rho) * np.sqrt(w @ w),
        }[name]
    )  # fmt: skip


def soft(v: Array, mu: float) -> Array:
    """Soft-thresholding."""
    return np.asarray(np.sign(v) * np.maximum(np.abs(v) - mu, 0.0))


def group_soft(v: Array, mu: float) -> Array:
    """Eq. 4."""
    norm = np.sqrt(v @ v)
    return v * max(1.0 - mu / norm, 0.0) if norm > 0 else v


def onto_l1_ball(v: Array, radius: float) -> Array:
    """The nearest point whose absolute values sum to at most `radius`, by bisection on the threshold."""
    if np.abs(v).sum() <= radius:
        return v
    low, high = 0.0, float(np.abs(v).max())
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.abs(soft(v, middle)).sum() > radius else (low, middle)
    return soft(v, high)


def prox(v: Array, mu: float, name: str, rho: float) -> Array:
    """Return argmin_w 1/2 |w - v|^2 + mu R(w)."""
    operators: dict[str, Callable[[], Array]] = {
        "l1l2": lambda: group_soft(v, mu),
        "l1": lambda: soft(v, mu),
        "l2": lambda: v / (1.0 + mu),
        "elasticnet": lambda: soft(v, mu * rho) / (1.0 + mu * (1 - rho)),
        "l1linf": lambda: v - onto_l1_ball(v, mu),
        "sparse-group": lambda: group_soft(soft(v, mu * rho), mu * (1 - rho)),
    }
    return operators[name]()


# ---------------------------------------------------------------- objective, gradient, certificate


def rows_of(p: Problem, z: Array) -> tuple[Array, Array, Array]:
    """Return loss, slopes and second derivatives of every row, unweighted."""
    values = [LOSSES[p.loss](z[i], p.y[i]) for i in range(len(z))]
    return (np.array([v for v, _, _ in values]), np.stack([g for _, g, _ in values]), np.stack([h for *_, h in values]))


def objective(p: Problem, w: Array) -> float:
    """Return F(W)."""
    return float(p.weights @ rows_of(p, p.x @ w)[0]) + p.alpha * sum(penalty(row, p.penalty, p.rho) for row in w)


def gradient(p: Problem, w: Array) -> Array:
    """Return the gradient of the loss, (d, m): all rows of Eq. 5."""
    return np.asarray(p.x.T @ (p.weights[:, None] * rows_of(p, p.x @ w)[1]))


def constant(p: Problem, column: Array) -> float:
    """Return the Lipschitz constant of one row of the gradient."""
    ranked, apart = 2.0 * p.m, 2.0
    factor = {
        "multiclass_squared_hinge": ranked, "ranking_squared_hinge": ranked, "multitask_squared_hinge": apart,
        "labels_apart": apart, "softmax": 0.5,
    }[p.loss]  # fmt: skip
    return factor * float(p.weights @ column**2)


def conjugate(v: Array, p: Problem) -> float:
    """Return the conjugate of alpha R at one row: of a norm 0 or infinity."""
    a, rho = p.alpha, p.rho
    if p.penalty == "l2":
        return float(v @ v) / (2 * a)
    if p.penalty == "elasticnet":
        return float(np.square(soft(v, a * rho)).sum()) / (2 * a * (1 - rho))
    inside = {
        "l1l2": np.sqrt(v @ v) <= a,
        "l1": np.abs(v).max() <= a,
        "l1linf": np.abs(v).sum() <= a,
        "sparse-group": np.linalg.norm(soft(v, a * rho)) <= a * (1 - rho),
    }[p.penalty]
    return 0.0 if inside else np.inf


def row_conjugate(p: Problem, theta: Array, y: int) -> float:
    """Return the conjugate of the loss of a row at slopes that some scores have, times a factor in [0, 1]."""
    if p.loss == "softmax":
        q = theta + (np.arange(p.m) == y)
        return float((q[q > 0] * np.log(q[q > 0])).sum())
    if p.loss == "multitask_squared_hinge":
        return float((theta**2 / 4.0 - np.abs(theta)).sum())
    others = np.delete(theta, y)
    return float((others**2 / 4.0 - others).sum())


def dual(p: Problem, w: Array, factor: float) -> float:
    """Return the dual objective at `factor` times the slopes, -infinity where that is not feasible."""
    theta = factor * rows_of(p, p.x @ w)[1]
    losses = np.array([row_conjugate(p, theta[i], p.y[i]) for i in range(len(theta))])
    v = -p.x.T @ (p.weights[:, None] * theta)
    return -float(p.weights @ losses) - sum(conjugate(row, p) for row in v)


def gap(p: Problem, w: Array) -> float:
    """Return F(W) less the best dual objective at factors up to the largest feasible one: a bound of F(W) - F*."""
    low, high = 0.0, 2.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.isfinite(dual(p, w, middle)) else (low, middle)
    return objective(p, w) - max(dual(p, w, factor) for factor in np.linspace(0.0, min(low, 1.0), 50))


# ---------------------------------------------------------------- Algorithms 1, 2 and 3


def score_hessian(p: Problem, z: Array) -> Array:
    """Return the second derivatives of the loss in a score added to all rows, (m, m), by pairs of classes."""
    total, m = np.zeros((p.m, p.m)), np.eye(p.m)
    for i, weight in enumerate(p.weights):
        if p.loss == "softmax":
            q = np.exp(z[i] - z[i].max()) / np.exp(z[i] - z[i].max()).sum()
            total += weight * (np.diag(q) - np.outer(q, q))
        elif p.loss in ("multitask_squared_hinge", "labels_apart"):
            total += weight * np.diag(LOSSES[p.loss](z[i], p.y[i])[2])
        else:
            labels = [p.y[i]] if p.loss == "multiclass_squared_hinge" else p.y[i]
            for r in labels:
                for q in set(range(p.m)) - set(labels):
                    within = 2.0 * weight * (z[i, q] - z[i, r] > -1.0)
                    total += within * np.outer(m[q] - m[r], m[q] - m[r])
    return total


def intercept_step(p: Problem, z: Array) -> tuple[Array, float]:
    """Return a Newton step of the intercept from scores Z, and the norm of its gradient."""
    g = p.weights @ rows_of(p, z)[1]
    d = -np.linalg.lstsq(score_hessian(p, z), g, rcond=1e-9)[0]
    size, value = 1.0, float(p.weights @ rows_of(p, z)[0])
    while float(p.weights @ rows_of(p, z + size * d)[0]) - value > SIGMA * size * float(g @ d) and size > 1e-9:
        size *= OMEGA
    return size * d, float(np.sqrt(g @ g))


def best_intercept(p: Problem, z: Array) -> Array:
    """Return the intercept that is best for scores Z."""
    b = np.zeros(p.m)
    for _ in range(100):
        step = intercept_step(p, z + b)[0]
        b = b + step
        if np.abs(step).max() < 1e-13:
            break
    return b


@dataclass(frozen=True)
class Swept:
    """What one sweep did."""

    w: Array
    violations: list[float]
    tries: int


def solve_block(p: Problem, w: Array, z: Array, j: int, step: str) -> tuple[Array, Array, float, int]:
    """Algorithm 2 on the scores Z = XW, with Algorithm 3 for G_j and h_j: new W_j, new Z, v_j and tries."""
    x, s = p.x[:, j], p.weights
    if not x.any():
        return w[j], z, 0.0, 0
    values, slopes, curvatures = rows_of(p, z)
    g, h = (s * x) @ slopes, (s * x * x) @ curvatures
    lipschitz = max(float(h.max()), EPSILON) if step == "line-search" else constant(p, x)
    delta = prox(w[j] - g / lipschitz, p.alpha / lipschitz, p.penalty, p.rho) - w[j]
    violation = lipschitz * float(np.sqrt(delta @ delta))

    def r(row: Array) -> float:
        return p.alpha * penalty(row, p.penalty, p.rho)

    if not delta.any():
        return w[j], z, violation, 0
    if step == "constant":
        return w[j] + delta, z + np.outer(x, delta), violation, 1
    slope, size, tries = float(g @ delta) + r(w[j] + delta) - r(w[j]), 1.0, 1
    while True:
        row, scores = w[j] + size * delta, z + size * np.outer(x, delta)
        change = float(s @ (rows_of(p, scores)[0] - values)) + r(row) - r(w[j])
        if change <= SIGMA * size * slope or tries == 60:  # Eq. 7
            return row, scores, violation, tries
        size, tries = size * OMEGA, tries + 1


def sweep(p: Problem, w: Array, order: Sequence[int], step: str = "line-search") -> Swept:
    """One outer iteration of Algorithm 1 over the blocks `order`."""
    w, z = w.copy(), p.x @ w
    violations, tries = [], 0
    for j in order:
        w[j], z, violation, tried = solve_block(p, w, z, j, step)
        violations.append(violation)
        tries += tried
    return Swept(w, violations, tries)


def lanes_round(p: Problem, w: Array, orders: Sequence[Sequence[int]]) -> tuple[Array, float]:
    """One parallel round: a sweep of each lane from the same W, then the best of 1, 1/2, ..., about 1/S."""
    delta = sum((sweep(p, w, order).w - w for order in orders), np.zeros_like(w))
    best, size = (objective(p, w + delta), 1.0), 0.5
    while size > 0.5 / len(orders):
        value = objective(p, w + size * delta)
        if value >= best[0]:
            break
        best, size = (value, size), size / 2
    return w + best[1] * delta, best[1]
