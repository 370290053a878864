"""Multi-class logistic loss."""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import math

import numpy as np

from distls.workers.compilation.jit import elementwise_helper
from distls.workers.losses.loss import Codes, Floats, Loss
from distls.workers.losses.numpy_forms import scores_of_class, softmax_in_place
from distls.workers.losses.row_functions import (
    GRADIENT_IN_G,
    add_score_curvature_of,
    add_score_gradient_of,
    add_score_hessian_of,
    row_curvature_of,
    row_gradient_of,
    score_change_of,
)
from distls.workers.simd.class_sums import exp_below, first_max

__all__ = ["Softmax", "logistic_curvature"]


class Softmax(Loss):
    """Multi-class logistic loss, ``log sum_j exp(z_j) - z_y`` (MCID paper Eq. 6, gradient Eq. 15)."""

    __slots__ = ()

    name = "softmax"
    aliases = ("log",)

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
