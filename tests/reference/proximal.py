"""FISTA and SpaRSA on dense rows, a step after the other, for the objectives of the block coordinate descent paper.

Ours, not their papers': L goes down again (to what the last step saw of the curvature, times 1.5, at most by a fifth),
a step that was too long is followed by one whose L is 1.5 times that curvature, at least doubled; FISTA's momentum
starts anew where it points away from the step (O'Donoghue, Candes 2015).
"""

import numpy as np

from reference.bcd import Array, Problem, gradient, objective, prox, rows_of


def smooth(p: Problem, w: Array) -> float:
    """Return the mean loss."""
    return float(p.weights @ rows_of(p, p.x @ w)[0])


def prox_step(p: Problem, w: Array, g: Array, lipschitz: float) -> Array:
    """Return the proximal step of length 1/L from w along -g."""
    return np.stack([prox(row, p.alpha / lipschitz, p.penalty, p.rho) for row in w - g / lipschitz])


def curvature(p: Problem, w: Array, g: Array, to: Array) -> float:
    """Return the L at which the quadratic model at w is exact at `to`."""
    step = to - w
    return 2.0 * (smooth(p, to) - smooth(p, w) - float(np.vdot(g, step))) / float(np.vdot(step, step))


def shorter(lipschitz: float, seen: float, safe: float) -> float:
    """Return L after a step that was too long."""
    return min(max(1.5 * seen, 2.0 * lipschitz), safe)


def fista(
    p: Problem, reads: int, lipschitz: float, safe: float, *, line_search: bool = True
) -> tuple[list[Array], list[float]]:
    """Beck and Teboulle's FISTA: the accepted weights and L after each read; the first read is at zero weights."""
    x = y = np.zeros((p.x.shape[1], p.m))
    t, points, constants = 1.0, [x], [lipschitz]
    for _ in range(reads - 1):
        g = gradient(p, y)
        to = prox_step(p, y, g, lipschitz)
        seen = curvature(p, y, g, to)
        if line_search and lipschitz < safe and seen > lipschitz:
            lipschitz = shorter(lipschitz, seen, safe)
        else:
            if line_search:
                lipschitz = max(0.8 * lipschitz, min(lipschitz, 1.5 * seen))
            if np.vdot(y - to, to - x) > 0.0:
                t = 1.0
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
            y, x, t = to + (t - 1.0) / following * (to - x), to, following
        points.append(x)
        constants.append(lipschitz)
    return points, constants


def sparsa(p: Problem, reads: int, lipschitz: float, safe: float, history: int = 5) -> tuple[list[Array], list[float]]:
    """Wright, Nowak and Figueiredo's SpaRSA: the accepted weights and L after each read."""
    x = np.zeros((p.x.shape[1], p.m))
    g, values = gradient(p, x), [objective(p, x)]
    points, constants = [x], [lipschitz]
    for _ in range(reads - 1):
        to = prox_step(p, x, g, lipschitz)
        step = to - x
        square = float(np.vdot(step, step))
        if lipschitz < safe and objective(p, to) > max(values[-history:]) - 0.005 * lipschitz * square:
            lipschitz = shorter(lipschitz, curvature(p, x, g, to), safe)
        else:
            new = gradient(p, to)
            lipschitz = min(max(float(np.vdot(step, new - g)) / square, 1e-8 * safe), safe)
            x, g = to, new
            values.append(objective(p, x))
        points.append(x)
        constants.append(lipschitz)
    return points, constants


def optimum(p: Problem, reads: int = 400) -> tuple[Array, float]:
    """Return weights and objective after so many steps of FISTA, or where it stands still."""
    x = y = np.zeros((p.x.shape[1], p.m))
    factor = {"multiclass_squared_hinge": 2.0 * p.m, "multitask_squared_hinge": 2.0, "softmax": 0.5}[p.loss]
    lipschitz = factor * float(np.linalg.norm(p.x.T @ (p.weights[:, None] * p.x), 2))
    t = 1.0
    for _ in range(reads):
        to = prox_step(p, y, gradient(p, y), lipschitz)
        if np.abs(to - y).max() < 1e-9:
            break
        if np.vdot(y - to, to - x) > 0.0:
            t = 1.0
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
        y, x, t = to + (t - 1.0) / following * (to - x), to, following
    return to, objective(p, to)
