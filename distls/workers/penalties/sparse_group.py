"""The sparse group lasso (Friedman, Hastie, Tibshirani 2010): zero rows, and zeros within rows."""

# mypy: allow-untyped-defs, allow-untyped-calls
import math

import numpy as np

from distls.workers.penalties.l1 import L1
from distls.workers.penalties.l1l2 import L1L2
from distls.workers.penalties.penalty import Array, Penalty, least_constants
from distls.workers.penalties.penalty_rows import (
    row_penalty_of,
    row_prox_of,
    shorten,
    soft_threshold,
    sum_of_absolutes,
    sum_of_squares,
)

_HALVINGS = 60  # more than the bits of a float64's fraction


class SparseGroup(Penalty):
    """``rho sum_jr |W_jr| + (1 - rho) sum_j |W_j|_2`` (section 4.7 of the paper of block coordinate descent)."""

    __slots__ = ()

    name = "sparse-group"
    mixed = signed = True

    # no `split`: soft-thresholding changes the direction in which a row's length shrinks, so proxes do not add up

    def value(self, w: Array, rho: float) -> float:
        """Return R(W)."""
        return rho * float(np.abs(w).sum()) + (1.0 - rho) * L1L2().value(w, rho)

    def tangent(self, w: Array, rho: float) -> tuple[Array, Array]:
        """Return those of both parts."""
        unit, turning = L1L2().tangent(w, rho)
        return rho * np.sign(w) + (1.0 - rho) * unit, (1.0 - rho) * turning

    def dual_norms(self, v: Array, rho: float) -> Array:
        """Return the t >= 0 with ``|soft(v, t rho)|_2 = t (1 - rho)`` of each row, from above, by bisection."""
        size = np.abs(v)
        # Without the lengths it is the lasso.
        if rho == 1.0:
            return np.asarray(size.max(axis=1))
        # At this t the row's whole length would be paid for: an upper bound.
        low, high = np.zeros(len(size)), np.sqrt(np.square(size).sum(axis=1)) / (1.0 - rho)
        for _ in range(_HALVINGS):
            t = 0.5 * (low + high)
            left = np.maximum(size - rho * t[:, None], 0.0)
            over = np.sqrt(np.square(left).sum(axis=1)) > (1.0 - rho) * t
            low, high = np.where(over, t, low), np.where(over, high, t)
        # From above: a dual point scaled by it is surely feasible.
        return high

    def best_constants(self, w: Array, rho: float) -> Array | None:
        """Return the zeros of the derivative."""
        if rho == 1.0:
            return L1().best_constants(w, rho)
        m, mean = w.shape[1], w.mean(axis=1)
        spread = np.square(w - mean[:, None]).sum(axis=1)

        def slope(c: Array) -> Array:
            d = c - mean[:, None]
            length = np.sqrt(spread[:, None] + m * np.square(d))
            return (1.0 - rho) * m * d / np.where(length > 0.0, length, 1.0)

        def between(pull: Array) -> Array:
            a = np.square(pull / (1.0 - rho))  # below m where the derivative has a zero between two weights
            return mean - np.sign(pull) * np.sqrt(a * spread / (m * np.maximum(m - a, 1e-300)))

        return least_constants(w, rho, slope, between)


@row_penalty_of(SparseGroup)
def _value(w, rho):
    return rho * sum_of_absolutes(w) + (1.0 - rho) * math.sqrt(sum_of_squares(w))


@row_prox_of(SparseGroup)
def _prox(v, mu, rho, out):
    # Soft-threshold, then shorten: the prox of the sum is the two in this order.
    soft_threshold(v, mu * rho, out)
    shorten(out, mu * (1.0 - rho), out)
