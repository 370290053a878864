"""What the l1 of an elastic net changes of Newton's method: it works within an orthant, where the penalty is linear.

Weights that are zero, and would stay it, are left out of a step, and those whose signs a step would change end at zero
(Andrew, Gao 2007; with conjugate gradients Byrd, Chin, Nocedal, Oztoprak 2016). Without l1 it changes nothing.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Orthants(NamedTuple):
    """The penalty ``l1 |W|_1``, of weights (m, k)."""

    l1: Array  # (m, 1): zero in the row of an intercept
    none: bool  # zero in every row

    def value(self, theta: Array) -> float:
        """Return the penalty."""
        return 0.0 if self.none else float((self.l1 * np.abs(theta)).sum())

    def subgradient(self, theta: Array, smooth: Array) -> Array:
        """Return the subgradient of the least norm, from the gradient of all else; the objective falls against it."""
        if self.none:
            return smooth
        at_zero = smooth - np.clip(smooth, -self.l1, self.l1)
        return np.where(theta != 0.0, smooth + self.l1 * np.sign(theta), at_zero)

    def free(self, theta: Array, subgradient: Array, moves: Array) -> Array:
        """Return changes without those of weights that are zero and stay it."""
        if self.none:
            return moves
        return np.where((theta != 0.0) | (subgradient != 0.0) | (self.l1 == 0.0), moves, 0.0)

    def within(self, theta: Array, subgradient: Array, step: Array, scale: Array) -> Array:
        """Return a step along which the objective falls: zero weights move against their subgradient or not at all."""
        if self.none:
            return step
        leaves = (self.l1 > 0.0) & (theta == 0.0) & (step * subgradient >= 0.0)
        step = np.where(leaves, 0.0, step)
        return step if float(np.vdot(step, subgradient)) < 0.0 else -subgradient / scale

    def moved(self, theta: Array, step: Array) -> Array:
        """Return the point at the end of a step; weights that would change their signs are zero there."""
        end = theta + step
        if not self.none:
            end[(self.l1 > 0.0) & (end * theta < 0.0)] = 0.0
        return end
