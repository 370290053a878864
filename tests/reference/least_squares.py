"""Generalized least squares, Algorithm 1 of least squares revisited, as it stands, on dense arrays.

Ours, not the paper's: the L2 term (on all weights but those of a constant column), row weights, Nesterov's steps
with their restarts, the adaptive L, and ridge regression along a path.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def identity(z: Array, y: Array) -> tuple[Array, Array]:
    """Half the squared distance, and the link's predictions: g(u) = u."""
    return 0.5 * ((z - y) ** 2).sum(axis=1), z


def logit(z: Array, y: Array) -> tuple[Array, Array]:
    """A logistic loss for each output, and their probabilities."""
    signs = np.where(y > 0.5, 1.0, -1.0)
    return np.log1p(np.exp(-signs * z)).sum(axis=1), 1.0 / (1.0 + np.exp(-z))


def softmax(z: Array, y: Array) -> tuple[Array, Array]:
    """Multinomial logit: Phi(z) = log sum exp z, and g its gradient."""
    e = np.exp(z - z.max(axis=1, keepdims=True))
    total = e.sum(axis=1)
    return np.log(total) + z.max(axis=1) - (z * y).sum(axis=1), e / total[:, None]


def probit(z: Array, y: Array) -> tuple[Array, Array]:
    """The normal distribution function, and its integral z N(z) + N'(z)."""
    p = np.vectorize(lambda u: 0.5 * math.erfc(-u / math.sqrt(2.0)))(z)
    phi = z * p + np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
    return (phi - y * z).sum(axis=1), p


def cauchit(z: Array, y: Array) -> tuple[Array, Array]:
    """The Cauchy distribution function, and its integral."""
    p = 0.5 + np.arctan(z) / math.pi
    phi = z / 2 + (z * np.arctan(z) - 0.5 * np.log(1.0 + z**2)) / math.pi
    return (phi - y * z).sum(axis=1), p


def poisson(z: Array, y: Array) -> tuple[Array, Array]:
    """Half the deviance of counts, and their means."""
    least = np.where(y > 0, y - y * np.log(np.where(y > 0, y, 1.0)), 0.0)
    return (np.exp(z) - y * z - least).sum(axis=1), np.exp(z)


LINKS = {
    "identity": identity, "logit": logit, "softmax": softmax,
    "probit": probit, "cauchit": cauchit, "poisson": poisson,
}  # fmt: skip
SHARP = {
    "identity": 1.0, "logit": 0.25, "softmax": 0.5,
    "probit": 1 / math.sqrt(2 * math.pi), "cauchit": 1 / math.pi,
}  # fmt: skip


@dataclass
class Problem:
    """Rows x (n, m), the constant column last if there is one; targets y (n, k); row weights s (n,)."""

    x: Array
    y: Array
    link: str
    alpha: float
    s: Array
    constant: bool

    @property
    def penalised(self) -> Array:
        p = np.ones(self.x.shape[1])
        if self.constant:
            p[-1] = 0.0
        return p

    def metric(self, lipschitz: float) -> Array:
        """L Sigma + alpha P."""
        sigma = (self.x * (self.s / self.s.sum())[:, None]).T @ self.x
        return lipschitz * sigma + self.alpha * np.diag(self.penalised)

    def value(self, w: Array) -> float:
        """Eq. 15, weighted, and the penalty."""
        losses, _ = LINKS[self.link](self.x @ w, self.y)
        return float(self.s @ losses / self.s.sum() + self.alpha / 2 * (self.penalised[:, None] * w**2).sum())

    def gradient(self, w: Array) -> Array:
        """E[(yhat - y) x^T], transposed, and the penalty's."""
        _, predicted = LINKS[self.link](self.x @ w, self.y)
        mean = self.x.T @ ((predicted - self.y) * (self.s / self.s.sum())[:, None])
        return mean + self.alpha * self.penalised[:, None] * w


def problem(x: Array, y: Array, link: str, alpha: float, *, s: Array | None = None, constant: bool = True) -> Problem:
    """Put a constant column behind the rows where asked."""
    ones = np.ones((len(x), 1))
    return Problem(
        np.hstack([x, ones]) if constant else x, y, link, alpha, np.ones(len(x)) if s is None else s, constant
    )


def train(p: Problem, steps: int, *, lipschitz: float | None = None, w0: Array | None = None) -> list[Array]:
    """Algorithm 1: W_0, ..., W_steps."""
    inverse = np.linalg.inv(p.metric(lipschitz or SHARP[p.link]))
    w = np.zeros((p.x.shape[1], p.y.shape[1])) if w0 is None else w0
    out = [w]
    for _ in range(steps):
        w = w - inverse @ p.gradient(w)
        out.append(w)
    return out


def accelerate(p: Problem, reads: int, *, start: float) -> list[float]:
    """Nesterov's steps in the same metric: the lowest objective after each read.

    A read judges one step. L starts at `start` and is doubled, up to the sharp bound, when a step leads above the
    majorant; the momentum is dropped when it leads above the lowest objective so far.
    """
    lipschitz, t = start, 1.0
    x = y = np.zeros((p.x.shape[1], p.y.shape[1]))
    lowest = []
    for _ in range(reads):
        g, metric = p.gradient(y), p.metric(lipschitz)
        step = np.linalg.solve(metric, g)
        new = y - step
        if lipschitz < SHARP[p.link] and p.value(new) > p.value(y) - 0.5 * (g * step).sum():
            lipschitz = min(2 * lipschitz, SHARP[p.link])
        elif p.value(new) > p.value(x):
            y, t = x, 1.0
        else:
            following = (1 + np.sqrt(1 + 4 * t * t)) / 2
            x, y, t = new, new + (t - 1) / following * (new - x), following
        lowest.append(p.value(x))
    return lowest


def ridge_gap(x: Array, t: Array, w: Array, alpha: float, s: Array) -> float:
    """Return F(W) less the largest dual of ridge regression at a times the residuals plus a vector b, row weights s.

    A dual point theta (n, k) has ``sum s (theta . t - |theta|^2 / 2) / S - |X^T (s theta)|^2 / (2 alpha S^2)``.
    """
    total, residual = s.sum(), t - x @ w
    basis = [residual, *(np.tile(one, (len(t), 1)) for one in np.eye(t.shape[1]))]
    images = [x.T @ (s[:, None] * each) / total for each in basis]
    linear = np.array([s @ (each * t).sum(axis=1) / total for each in basis])
    quadratic = np.array(
        [
            [
                s @ (basis[i] * basis[j]).sum(axis=1) / total + (images[i] * images[j]).sum() / alpha
                for j in range(len(basis))
            ]
            for i in range(len(basis))
        ]
    )
    objective = s @ np.square(residual).sum(axis=1) / (2.0 * total) + alpha / 2.0 * np.square(w).sum()
    return float(objective - 0.5 * linear @ np.linalg.solve(quadratic, linear))
