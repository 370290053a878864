"""The sum of the largest sizes of the rows of W."""

# mypy: allow-untyped-defs, allow-untyped-calls
import math

import numpy as np

from distls.workers.compilation.jit import elementwise_helper
from distls.workers.penalties.penalty import Array, Penalty
from distls.workers.penalties.penalty_rows import row_penalty_of, row_prox_of, sum_of_absolutes


class L1Linf(Penalty):
    """``sum_j max_r |W_jr|`` (section 4.7 of the paper of block coordinate descent)."""

    __slots__ = ()

    name = "l1linf"

    def value(self, w: Array, rho: float) -> float:
        """Return R(W)."""
        return float(np.abs(w).max(axis=1, initial=0.0).sum())

    def dual_norms(self, v: Array, rho: float) -> Array:
        """Return the sum of the sizes in each row."""
        return np.asarray(np.abs(v).sum(axis=1))

    def best_constants(self, w: Array, rho: float) -> Array:
        """Return the middle between the largest and the smallest."""
        # The middle makes the largest size as small as possible.
        return np.asarray(0.5 * (w.max(axis=1) + w.min(axis=1)))

    def split(self, rho: float) -> tuple[Penalty, float, float] | None:
        """Return the norm itself: shrinking lowers a common height."""
        return self, 1.0, 0.0


@row_penalty_of(L1Linf)
def _value(w, rho):
    largest = 0.0
    for r in range(len(w)):
        largest = max(largest, abs(w[r]))
    return largest


@elementwise_helper
def _height(v, mu):
    """Return the height above which sizes sum to `mu`: it rises as those below are left out (Michelot 1986)."""
    height, counted = -1.0, len(v) + 1
    while True:
        total, count = 0.0, 0
        for r in range(len(v)):
            size = abs(v[r])
            if size > height:
                total += size
                count += 1
        # Where mu is lost in rounding, the mean of equal sizes may be above all of them.
        if count == 0 or count >= counted:
            return height
        height, counted = (total - mu) / count, count


@row_prox_of(L1Linf)
def _prox(v, mu, rho, out):
    # v less its projection onto the l1 ball of radius mu: sizes are cut at a common height
    # Inside the dual ball: the row becomes zero.
    if sum_of_absolutes(v) <= mu:
        out[:] = 0.0
        return
    height = _height(v, mu)
    for r in range(len(v)):
        # The sign of the weight, at the common height or below.
        out[r] = math.copysign(min(abs(v[r]), height), v[r])
