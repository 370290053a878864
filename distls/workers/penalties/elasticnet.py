"""The elastic net (Zou and Hastie 2005)."""

# mypy: allow-untyped-defs, allow-untyped-calls
import math

import numpy as np

from distls.workers.penalties.l1 import L1
from distls.workers.penalties.penalty import Array, Penalty, least_constants
from distls.workers.penalties.penalty_rows import (
    row_penalty_of,
    row_prox_of,
    scale,
    soft_threshold,
    sum_of_absolutes,
    sum_of_squares,
)


class ElasticNet(Penalty):
    """``rho sum_jr |W_jr| + (1 - rho)/2 |W|_F^2`` (section 2 of the paper of block coordinate descent)."""

    __slots__ = ()

    name = "elasticnet"
    mixed = signed = True

    def value(self, w: Array, rho: float) -> float:
        """Return R(W)."""
        return rho * float(np.abs(w).sum()) + (1.0 - rho) * (0.5 * float(np.square(w).sum()))

    def dual_norms(self, v: Array, rho: float) -> Array:
        """Return those of l1."""
        return L1().dual_norms(v, rho)

    def conjugate(self, v: Array, alpha: float, rho: float) -> tuple[float, float]:
        """Return (1, the conjugate's value), or those of l1 without squares."""
        # At rho = 1 there are no squares, and the conjugate is that of a norm.
        if rho == 1.0:
            return super().conjugate(v, alpha, rho)
        # What exceeds the threshold is the conjugate of the squares' share.
        over = np.maximum(np.abs(v) - alpha * rho, 0.0)
        return 1.0, float(np.square(over).sum()) / (2.0 * alpha * (1.0 - rho))

    def tangent(self, w: Array, rho: float) -> tuple[Array, Array]:
        """Return those of both parts."""
        squares = np.broadcast_to((1.0 - rho) * np.eye(w.shape[1]), (*w.shape, w.shape[1]))
        return rho * np.sign(w) + (1.0 - rho) * w, squares

    def best_constants(self, w: Array, rho: float) -> Array | None:
        """Return the zeros of the derivative, which is piecewise linear."""
        if rho == 1.0:
            return L1().best_constants(w, rho)
        m, mean = w.shape[1], w.mean(axis=1)

        def slope(c: Array) -> Array:
            return (1.0 - rho) * m * (c - mean[:, None])

        return least_constants(w, rho, slope, lambda pull: mean - pull / ((1.0 - rho) * m))

    def zero_from(self, gradient: Array, rho: float) -> float:
        """Return infinity without the norm: squares alone never make all weights zero."""
        return super().zero_from(gradient, rho) / rho if rho > 0.0 else math.inf

    def split(self, rho: float) -> tuple[Penalty, float, float] | None:
        """Return both parts."""
        return L1(), rho, 1.0 - rho


@row_penalty_of(ElasticNet)
def _value(w, rho):
    return rho * sum_of_absolutes(w) + 0.5 * (1.0 - rho) * sum_of_squares(w)


@row_prox_of(ElasticNet)
def _prox(v, mu, rho, out):
    # Threshold first, then scale: the prox of a sum of l1 and squares.
    soft_threshold(v, mu * rho, out)
    scale(out, 1.0 / (1.0 + mu * (1.0 - rho)), out)
