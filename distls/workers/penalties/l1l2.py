"""The group lasso over the rows of W: rows become zero as a whole (Yuan and Lin 2006)."""

# mypy: allow-untyped-defs, allow-untyped-calls
import math

import numpy as np

from distls.workers.penalties.penalty import Array, Penalty
from distls.workers.penalties.penalty_rows import row_penalty_of, row_prox_of, shorten, sum_of_squares


class L1L2(Penalty):
    """``sum_j |W_j|_2`` (section 2 of the paper of block coordinate descent)."""

    __slots__ = ()

    name = "l1l2"

    def value(self, w: Array, rho: float) -> float:
        """Return R(W)."""
        return float(np.sqrt(np.square(w).sum(axis=1)).sum())

    def dual_norms(self, v: Array, rho: float) -> Array:
        """Return the lengths of the rows."""
        return np.asarray(np.sqrt(np.square(v).sum(axis=1)))

    def tangent(self, w: Array, rho: float) -> tuple[Array, Array]:
        """Return the directions of the rows, and what turns them, the less the longer a row is."""
        length = np.sqrt(np.square(w).sum(axis=1, keepdims=True))
        length[length == 0.0] = 1.0
        unit = w / length
        turning = np.eye(w.shape[1]) - unit[:, :, None] * unit[:, None, :]
        return unit, turning / length[:, :, None]

    def split(self, rho: float) -> tuple[Penalty, float, float] | None:
        """Return the norm itself."""
        return self, 1.0, 0.0


@row_penalty_of(L1L2)
def _value(w, rho):
    # The length of the row, whose subgradient at zero is the unit ball: whole rows become zero.
    return math.sqrt(sum_of_squares(w))


@row_prox_of(L1L2)
def _prox(v, mu, rho, out):
    shorten(v, mu, out)
