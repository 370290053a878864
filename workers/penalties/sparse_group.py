"""The sparse group lasso: zero rows, and zeros within rows."""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import math

import numpy as np

from distls.workers.penalties.l1l2 import L1L2
from distls.workers.penalties.penalty import Array, Penalty
from distls.workers.penalties.penalty_rows import (
    row_penalty_of,
    row_prox_of,
    shorten,
    soft_threshold,
    sum_of_absolutes,
    sum_of_squares,
)

__all__ = ["SparseGroup"]

_HALVINGS = 60  # more than the bits of a float64's fraction


class SparseGroup(Penalty):
    """``rho sum_jr |W_jr| + (1 - rho) sum_j |W_j|_2`` (section 4.7 of the paper of block coordinate descent)."""

    __slots__ = ()

    name = "sparse-group"
    mixed = True
    number = 5

    # no `split`: soft-thresholding changes the direction in which a row's length shrinks, so proxes do not add up

    def value(self, w: Array, rho: float) -> float:
        """Return R(W)."""
        return rho * float(np.abs(w).sum()) + (1.0 - rho) * L1L2().value(w, rho)

    def dual_norms(self, v: Array, rho: float) -> Array:
        """Return the t >= 0 with ``|soft(v, t rho)|_2 = t (1 - rho)`` of each row, from above, by bisection."""
        size = np.abs(v)
        if rho == 1.0:
            return np.asarray(size.max(axis=1))
        low, high = np.zeros(len(size)), np.sqrt(np.square(size).sum(axis=1)) / (1.0 - rho)
        for _ in range(_HALVINGS):
            t = 0.5 * (low + high)
            left = np.maximum(size - rho * t[:, None], 0.0)
            over = np.sqrt(np.square(left).sum(axis=1)) > (1.0 - rho) * t
            low, high = np.where(over, t, low), np.where(over, high, t)
        return high


@row_penalty_of(SparseGroup)
def _value(w, rho):
    return rho * sum_of_absolutes(w) + (1.0 - rho) * math.sqrt(sum_of_squares(w))


@row_prox_of(SparseGroup)
def _prox(v, mu, rho, out):
    soft_threshold(v, mu * rho, out)
    shorten(out, mu * (1.0 - rho), out)
