"""The interface of penalties: functions of a row of W, m weights that go to zero together, summed over the rows.

A penalty is an empty tuple like a loss (`distls.workers.losses.loss`). Kernels take its `kernel_argument`: a number for
the penalties of this package, on which they branch once a block, so that one compiled kernel serves all; for others
the tuple itself, for which they are compiled. Compiling the coordinate passes takes seconds, and six times as many
variants would slow down first fits and the tests by as much, while the branch costs nothing measurable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Curvature(NamedTuple):
    """Hessians of rows: diagonal matrices, less the outer products of vectors with themselves; both are (n, m)."""

    diagonal: Array
    outer: Array

    def scaled(self, by: float) -> Curvature:
        """Return them times a number that is not negative."""
        return Curvature(by * self.diagonal, by**0.5 * self.outer)

    def times(self, d: Array) -> Array:
        """Return the products with rows (n, m)."""
        return np.asarray(self.diagonal * d - self.outer * (self.outer * d).sum(axis=1, keepdims=True))

    @property
    def own(self) -> Array:
        """The diagonals, (n, m)."""
        return np.asarray(self.diagonal - np.square(self.outer))

    def blocks(self) -> Array:
        """Return the matrices (n, m, m)."""
        return np.asarray(
            self.diagonal[:, :, None] * np.eye(self.diagonal.shape[1]) - self.outer[:, :, None] * self.outer[:, None]
        )


class _NoFields(NamedTuple):
    """An empty named tuple: numba compiles for its class."""


class Penalty(_NoFields):
    """A penalty R. `rho` is the parameter `l1_ratio`, zero where `mixed` is False."""

    __slots__ = ()

    name: ClassVar[str]
    mixed: ClassVar[bool] = False  # whether `l1_ratio` mixes it of two penalties
    # the squares of all weights alone: R is differentiable, and no weight becomes zero
    quadratic: ClassVar[bool] = False
    signed: ClassVar[bool] = False  # not smooth where any weight is zero, and not only where all of a row are

    def value(self, w: Array, rho: float) -> float:
        """Return R(W), W of shape (n, m)."""
        raise NotImplementedError

    def dual_norms(self, v: Array, rho: float) -> Array:
        """Return the dual norm of each row, the largest ``v . w`` with R(w) <= 1; for norms only."""
        raise NotImplementedError

    def conjugate(self, v: Array, alpha: float, rho: float) -> tuple[float, float]:
        """Return (largest factor c <= 1 for which the conjugate of alpha R is finite at c V, its value there)."""
        # the conjugate of a norm is zero where the dual norm of every row is at most alpha, and infinite elsewhere
        # Scaling by c brings the largest dual norm to alpha.
        largest = float(self.dual_norms(v, rho).max(initial=0.0))
        return min(1.0, alpha / largest) if largest > 0.0 else 1.0, 0.0

    def zero_from(self, gradient: Array, rho: float) -> float:
        """Return the smallest alpha at which W = 0 is optimal, for the gradient of the loss there."""
        return float(self.dual_norms(gradient, rho).max(initial=0.0))

    def tangent(self, w: Array, rho: float) -> tuple[Array, Curvature] | None:
        """Return the gradient (n, m) and the Hessians of rows; None where these are not known.

        Of a weight that is zero, where the penalty is `signed`, or of a row that is, they may be anything finite.
        """
        return None

    def best_constants(self, w: Array, rho: float) -> Array | None:
        """Return what to subtract from each row of W (n, m) for the least R, shape (n,).

        None for l2 norms, whose best constant, the mean, stays zero by itself in a loss that ignores constants.
        """
        return None

    def split(self, rho: float) -> tuple[Penalty, float, float] | None:
        """Return (norm, pull, decay) with R = pull * norm + decay / 2 |.|^2 if proxes of the norm add up, else None.

        They do where shrinking keeps the norm's subgradient: many small steps without data then combine into one.
        """
        return None


def least_constants(w: Array, rho: float, slope: Callable[[Array], Array], between: Callable[[Array], Array]) -> Array:
    """Return the c that minimises ``rho |w - c|_1 + f(c)`` for each row of W (n, m), f convex.

    `slope` has the derivatives of f at constants (n, m); `between` (n,) where those of rows are minus the given
    ones, which are those of the norm between two neighbouring weights.
    """
    n, m = w.shape
    ordered, rows = np.sort(w, axis=1), np.arange(n)
    # the derivative just above each weight: rho times (weights below less weights above), and that of f
    above = rho * (2.0 * np.arange(1, m + 1) - m) + slope(ordered)
    place = np.argmax(above >= 0.0, axis=1)
    # The first weight above which the derivative is not negative.
    found = ordered[rows, place]
    inside = above[rows, place] - 2.0 * rho > 0.0  # the derivative changes sign before this weight
    return np.where(inside, between(rho * (2.0 * place - m)), found)


def recentre_rows(penalty: Penalty, w: Array, rows: NDArray[np.int64], rho: float) -> float:
    """Subtract the best constant from each of some rows of W that is not zero; return the change of R."""
    own = rows[w[rows].any(axis=1)]
    before = w[own]
    constants = penalty.best_constants(before, rho) if len(own) else None
    if constants is None:
        return 0.0
    # Zero rows stay zero: a constant would make them dense.
    w[own] = before - constants[:, None]
    return penalty.value(w[own], rho) - penalty.value(before, rho)
