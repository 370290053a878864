"""Multi-class logistic loss."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from distls.workers.compilation.jit import elementwise_helper, helper
from distls.workers.losses.loss import Codes, Floats, Loss
from distls.workers.losses.row_functions import (
    GRADIENT_IN_G,
    add_score_curvature_of,
    add_score_gradient_of,
    add_score_hessian_of,
    dual_step_of,
    row_curvature_of,
    row_gradient_of,
    score_change_of,
)
from distls.workers.losses.shared_parts import scores_of_class, softmax_in_place
from distls.workers.simd.class_sums import exp_below, first_max

__all__ = ["Softmax", "logistic_curvature", "masses_of", "set_masses"]


class Softmax(Loss):
    """Multi-class logistic loss, ``log sum_j exp(z_j) - z_y`` (MCID paper Eq. 6, gradient Eq. 15)."""

    __slots__ = ()

    name = "softmax"
    ignores_constants = True
    aliases = ("log",)
    dual_domain = "simplex"

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        top = scores.max(axis=1)
        total = np.exp(scores - top[:, None]).sum(axis=1)
        return np.log(total) + top - scores_of_class(scores, y)

    def gradient(self, scores: Floats, y: Codes) -> Floats:
        """Return the derivatives of each row: the probabilities, less 1 at the row's class."""
        out = np.exp(scores - scores.max(axis=1, keepdims=True))
        out /= out.sum(axis=1, keepdims=True)
        out[np.arange(len(y)), y] -= 1.0
        return out

    def conjugate(self, duals: Floats, y: Codes) -> NDArray[np.float64]:
        """Return the negative entropy of the masses ``e_y - a``."""
        masses = -duals.astype(np.float64)
        masses[np.arange(len(y)), y] += 1.0
        masses = np.maximum(masses, 0.0)  # by rounding less than zero, where others have all mass
        return np.asarray(xlogy(masses, masses).sum(axis=1))

    def probabilities(self, scores: Floats) -> Floats:
        """Overwrite scores by their softmax, and return them."""
        return softmax_in_place(scores)

    def lipschitz(self, k: int) -> float:
        """Return 1/2, the largest eigenvalue of ``diag(p) - p p^T``."""
        return 0.5


Softmax.log_loss = Softmax()


@row_gradient_of(Softmax)
def _row(z, scale, y, g):
    best = first_max(z)
    total = exp_below(z, scale, z[best], g)
    inverse = g.dtype.type(1.0 / total)
    for c in range(len(g)):
        g[c] *= inverse
    g[y] -= g.dtype.type(1.0)
    value = math.log(total) + scale * (np.float64(z[best]) - np.float64(z[y]))
    return value, GRADIENT_IN_G, best


@row_curvature_of(Softmax)
def logistic_curvature(loss, g, h):
    """Set ``h = p (1 - p)`` for probabilities p of each class, from the gradient."""
    for c in range(len(g)):
        size = abs(g[c])  # 1 - p of the row's class, p of the others
        h[c] = size * (g.dtype.type(1.0) - size)


# ---------------------------------------------------------------- the duals of one row, in dual coordinate ascent

_NEWTON_STEPS, _NEAR = 40, 1e-9


@helper
def masses_of(a, own, masses):
    """Set masses, on the simplex, to ``e_own - a`` and return that of the row's own class."""
    others = 0.0
    for c in range(len(a)):
        masses[c] = max(-np.float64(a[c]), 0.0)
        others += masses[c] if c != own else 0.0
    masses[own] = max(1.0 - others, 0.0)
    return masses[own]


@helper
def set_masses(masses, own, a, d):
    """Set a to ``e_own - masses`` rounded, so that its numbers sum to zero, and d to its change; return how many."""
    moved, total, kind = 0, 0.0, a.dtype.type
    for c in range(len(a)):
        if c != own:
            rounded = kind(-masses[c])
            d[c] = rounded - a[c]
            moved += d[c] != 0.0
            a[c] = rounded
            total -= np.float64(rounded)
    rounded = kind(total)
    d[own] = rounded - a[own]
    a[own] = rounded
    return moved + (d[own] != 0.0)


@helper
def _negative_entropy(masses):
    total = 0.0
    for c in range(len(masses)):
        total += masses[c] * math.log(masses[c]) if masses[c] > 0.0 else 0.0
    return total


@helper
def _new_masses(z, q, work):
    """Set work[1] to the masses that solve ``log m_c + q (m_c - old_c) = z_c - nu`` and sum to one; old is work[0]."""
    # Newton's method for all logarithms x and nu at once, from a nu at which the masses sum to more than one
    old, x, residual, slope = work[0], work[1], work[2], work[3]
    k, top = len(z), -np.inf
    for c in range(k):
        top = max(top, z[c] + q * old[c])
    nu = top - q
    for c in range(k):
        x[c] = min(z[c] + q * old[c] - nu, 0.0)
    for _ in range(_NEWTON_STEPS):
        total, shift, weight, worst = 0.0, 0.0, 0.0, 0.0
        for c in range(k):
            mass = math.exp(x[c])
            residual[c] = z[c] + q * old[c] - nu - x[c] - q * mass
            slope[c] = 1.0 / (1.0 + q * mass)
            total += mass
            shift += mass * residual[c] * slope[c]
            weight += mass * slope[c]
            worst = max(worst, abs(residual[c]) * mass)
        if abs(total - 1.0) + worst <= _NEAR:
            break
        step = (total - 1.0 + shift) / weight
        nu += step
        for c in range(k):
            x[c] = min(x[c] + (residual[c] - step) * slope[c], 0.0)
    total = 0.0
    for c in range(k):
        x[c] = math.exp(x[c])
        total += x[c]
    for c in range(k):
        x[c] /= total


@dual_step_of(Softmax)
def _dual_step(z, y, i, q, a, d, work):
    own, best, old, new = np.intp(y[i]), first_max(z), work[0], work[1]
    masses_of(a, own, old)
    total = 0.0
    for c in range(len(z)):
        total += math.exp(np.float64(z[c]) - np.float64(z[best]))
    value = math.log(total) + np.float64(z[best]) - np.float64(z[own])
    _new_masses(z, q, work)
    before, after, gain = _negative_entropy(old), _negative_entropy(new), 0.0
    for c in range(len(z)):
        change = new[c] - old[c]
        gain += change * (np.float64(z[c]) - 0.5 * q * change)
    if before - after + gain < 0.0:  # Newton's method has not converged
        return value, before, before, 0, best
    return value, before, after, set_masses(new, own, a, d), best


# ---------------------------------------------------------------- one non-zero, in block coordinate descent


@elementwise_helper
def _exponentials(z, i, scratch):
    """Set ``scratch = exp(z_i - max z_i)`` and return the sum."""
    top = z[i, 0]
    for r in range(1, z.shape[1]):
        top = max(top, z[i, r])
    for r in range(z.shape[1]):
        scratch[r] = math.exp(np.float64(z[i, r]) - np.float64(top))
    total = 0.0
    for r in range(z.shape[1]):
        total += scratch[r]
    return total


@elementwise_helper
def _log_loss(z, i, y, scratch):
    top = z[i, 0]
    for r in range(1, z.shape[1]):
        top = max(top, z[i, r])
    return math.log(_exponentials(z, i, scratch)) + np.float64(top) - np.float64(z[i, y])


@add_score_gradient_of(Softmax)
def _add_gradient(loss, z, i, y, factor, g, own, scratch):
    by = factor / _exponentials(z, i, scratch)
    for r in range(z.shape[1]):
        g[r] += by * scratch[r]
    own[y[i]] -= factor


@add_score_curvature_of(Softmax)
def _add_curvature(loss, z, i, y, factor, h, own, scratch):
    inverse = 1.0 / _exponentials(z, i, scratch)
    for r in range(z.shape[1]):
        p = inverse * scratch[r]
        h[r] += factor * p * (1.0 - p)


@add_score_hessian_of(Softmax)
def _add_hessian(loss, z, i, y, factor, hessian, scratch):
    inverse = 1.0 / _exponentials(z, i, scratch)
    for r in range(z.shape[1]):
        p = inverse * scratch[r]
        by = factor * inverse * p
        for c in range(r + 1):
            hessian[r, c] -= by * scratch[c]
        hessian[r, r] += factor * p


@score_change_of(Softmax)
def _change(loss, z, i, y, x, d, scratch):
    before = _log_loss(z, i, y[i], scratch)
    for r in range(z.shape[1]):
        z[i, r] += x * d[r]
    return _log_loss(z, i, y[i], scratch) - before
