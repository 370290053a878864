"""Boxes that this package follows to the letter only when asked to, each in plain NumPy as its paper prints it.

Block coordinate descent (Blondel, Seki, Uehara 2013, Algorithms 1 to 3, with A kept up to date), FISTA with
backtracking (Beck, Teboulle 2009), SpaRSA (Wright, Nowak, Figueiredo 2009), and Algorithm 2 of least squares revisited
from a W_0. Misprints aside (docs/papers.md): A[i, y_i] does not count.
"""

from collections.abc import Callable, Sequence

import numpy as np

from reference.bcd import Array, Problem, gradient, group_soft, objective
from reference.calibrated import project_simplex
from reference.proximal import prox_step, smooth


def outer_iteration(
    x: Array, y: Array, w: Array, a: Array, alpha: float, blocks: Sequence[int], step: str
) -> list[float]:
    """One outer iteration of Algorithm 1: W and A are updated in place; return the violations v^t."""
    n, m = a.shape
    rows, violations = np.arange(n), []
    for j in blocks:
        # Algorithm 3: G(W)_j and h(W)_j from A
        g, h = np.zeros(m), np.zeros(m)
        for i in np.flatnonzero(x[:, j]):
            for r in range(m):
                if r != y[i] and a[i, r] > 0.0:
                    g[y[i]] -= 2.0 / n * a[i, r] * x[i, j]
                    g[r] += 2.0 / n * a[i, r] * x[i, j]
                    h[y[i]] += 2.0 / n * x[i, j] ** 2
                    h[r] += 2.0 / n * x[i, j] ** 2
        norm = float(np.linalg.norm(g))
        violations.append(abs(norm - alpha) if w[j].any() else max(norm - alpha, 0.0))  # Eq. 9
        # Algorithm 2
        k_j = 4.0 * (m - 1) / n * float(np.square(x[:, j]).sum())
        lipschitz = max(float(h.max()), 1e-12) if step == "line-search" else k_j
        delta = group_soft(w[j] - g / lipschitz, alpha / lipschitz) - w[j]
        change = (delta - delta[y][:, None]) * x[:, j][:, None]
        change[rows, y] = 0.0
        size = 1.0 if step == "constant" else _backtracked(a, y, w[j], g, delta, change, alpha)
        w[j] += size * delta
        a += size * change
    return violations


def _backtracked(a: Array, y: Array, w: Array, g: Array, delta: Array, change: Array, alpha: float) -> float:
    """Return 1, 1/2, 1/4, ... at which Eq. 7 holds."""

    def mean(margins: Array) -> float:
        slack = np.maximum(margins, 0.0)
        slack[np.arange(len(y)), y] = 0.0
        return float(np.square(slack).sum()) / len(y)

    length = np.linalg.norm
    predicted, size = g @ delta + alpha * (length(w + delta) - length(w)), 1.0
    while delta.any() and mean(a + size * change) - mean(a) + alpha * (length(w + size * delta) - length(w)) > (
        0.01 * size * predicted
    ):
        size *= 0.5
    return size


def descent(
    x: Array, y: Array, m: int, alpha: float, order: Callable[[int], Sequence[int]], step: str, passes: int
) -> tuple[Array, list[float]]:
    """Algorithm 1; return W and Eq. 10's ratios, of sums or, where blocks are drawn, of maxima."""
    w, a, size = np.zeros((x.shape[1], m)), np.ones((len(x), m)), sum if step == "line-search" else max
    found = [size(outer_iteration(x, y, w, a, alpha, order(k), step)) for k in range(passes)]
    return w, [each / found[0] for each in found]


def fista(p: Problem, reads: int, lipschitz: float) -> Array:
    """FISTA with backtracking, eta = 2: L never falls; the accepted weights after so many reads."""
    x = y = np.zeros((p.x.shape[1], p.m))
    t = 1.0
    for _ in range(reads - 1):
        g = gradient(p, y)
        to = prox_step(p, y, g, lipschitz)
        step = to - y
        if smooth(p, to) > smooth(p, y) + np.vdot(g, step) + 0.5 * lipschitz * np.vdot(step, step):
            lipschitz *= 2.0
            continue
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
        y, x, t = to + (t - 1.0) / following * (to - x), to, following
    return x


def sparsa(p: Problem, reads: int, lipschitz: float) -> Array:
    """SpaRSA, eta = 2, M = 5, sigma = 0.01: the accepted weights after so many reads."""
    x = np.zeros((p.x.shape[1], p.m))
    g, values = gradient(p, x), [objective(p, x)]
    for _ in range(reads - 1):
        to = prox_step(p, x, g, lipschitz)
        step = to - x
        square = float(np.vdot(step, step))
        if objective(p, to) > max(values[-6:]) - 0.005 * lipschitz * square:
            lipschitz *= 2.0
            continue
        new = gradient(p, to)
        lipschitz = min(max(float(np.vdot(step, new - g)) / square, 1e-30), 1e30)
        x, g = to, new
        values.append(objective(p, x))
    return x


def calibrated_from(x: Array, y: Array, w0: Array, rounds: int, powers: Sequence[int] = (1, 2, 3)) -> Array:
    """Algorithm 2 from yhat^(0) = W_0 x: the predictions yhat after so many rounds."""
    predictions = x @ w0
    for _ in range(rounds):
        fit = predictions + x @ np.linalg.lstsq(x, y - predictions, rcond=None)[0]  # Eq. 18
        g = np.hstack([fit**power for power in powers])
        calibrated = g @ np.linalg.lstsq(g, y, rcond=1e-13)[0]  # Eq. 19
        predictions = np.stack([project_simplex(row) for row in calibrated])
    return predictions
