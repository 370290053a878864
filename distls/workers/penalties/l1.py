"""The lasso (Tibshirani 1996)."""

# mypy: allow-untyped-defs, allow-untyped-calls
import numpy as np

from distls.workers.penalties.penalty import Array, Penalty
from distls.workers.penalties.penalty_rows import (
    row_penalty_of,
    row_prox_of,
    soft_threshold,
    sum_of_absolutes,
)


class L1(Penalty):
    """``sum_jr |W_jr|``."""

    __slots__ = ()

    name = "l1"
    signed = True

    def value(self, w: Array, rho: float) -> float:
        """Return R(W)."""
        return float(np.abs(w).sum())

    def dual_norms(self, v: Array, rho: float) -> Array:
        """Return the largest size in each row."""
        # A maximum for each row takes ten times as long as the sizes.
        return np.abs(v[:, 0]) if v.shape[1] == 1 else np.asarray(np.abs(v).max(axis=1))

    def tangent(self, w: Array, rho: float) -> tuple[Array, Array]:
        """Return the signs; a line has no curvature."""
        return np.sign(w), np.zeros((*w.shape, w.shape[1]))

    def best_constants(self, w: Array, rho: float) -> Array:
        """Return the median nearest to zero."""
        ordered, m = np.sort(w, axis=1), w.shape[1]
        # Every constant between the two middle weights is a median.
        return np.asarray(np.clip(0.0, ordered[:, (m - 1) // 2], ordered[:, m // 2]))

    def split(self, rho: float) -> tuple[Penalty, float, float] | None:
        """Return the norm itself."""
        return self, 1.0, 0.0


@row_penalty_of(L1)
def _value(w, rho):
    return sum_of_absolutes(w)


@row_prox_of(L1)
def _prox(v, mu, rho, out):
    soft_threshold(v, mu, out)
