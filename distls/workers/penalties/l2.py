"""The penalty of ridge regression (Hoerl and Kennard 1970)."""

# mypy: allow-untyped-defs, allow-untyped-calls
import math

import numpy as np

from distls.workers.penalties.l1 import L1
from distls.workers.penalties.penalty import Array, Penalty
from distls.workers.penalties.penalty_rows import row_penalty_of, row_prox_of, scale, sum_of_squares


class L2(Penalty):
    """``1/2 |W|_F^2``, the penalty of most methods."""

    __slots__ = ()

    name = "l2"
    quadratic = True

    def value(self, w: Array, rho: float) -> float:
        """Return R(W)."""
        return 0.5 * float(np.square(w).sum())

    def conjugate(self, v: Array, alpha: float, rho: float) -> tuple[float, float]:
        """Return (1, the conjugate's value), which is finite everywhere."""
        return 1.0, float(np.square(v).sum()) / (2.0 * alpha)

    def zero_from(self, gradient: Array, rho: float) -> float:
        """Return infinity."""
        return math.inf

    def split(self, rho: float) -> tuple[Penalty, float, float] | None:
        """Return nothing of a norm, and all of the squares."""
        # A norm of strength zero stands for none.
        return L1(), 0.0, 1.0


@row_penalty_of(L2)
def _value(w, rho):
    return 0.5 * sum_of_squares(w)


@row_prox_of(L2)
def _prox(v, mu, rho, out):
    scale(v, 1.0 / (1.0 + mu), out)
