"""Lower bounds of the optimum at the gradients of some weights, scaled into the domain of the dual."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.workers.coordinate_descent.all_rows import in_threads
from distls.workers.coordinate_descent.row_scores_task import Margins
from distls.workers.losses.loss_registry import loss_named

Array = NDArray[np.float64]

_PIECE_ROWS = 2**14


class DualFactor(NamedTuple):
    """What scales the gradients of all rows into the dual's domain, and the dual there but for the losses."""

    factor: float  # at most 1
    conjugated: float  # the conjugate of the penalty
    product: float  # of the weights and the gradient of the mean loss, unscaled
    moved: float = 0.0  # the means of `moved_masses`, where they are known
    curved: float = 0.0

    @property
    def gained(self) -> float:
        """How much higher the dual of a logistic loss is at c times the gradients than convexity alone tells.

        The conjugate is the sum of q log q over masses q: c p of the other classes, p their probabilities, and 1 - c m
        of the row's own, m their sum. The first gives ``c m log c`` beside c times that of c = 1. By its power series
        the second is at most ``-c m + c^2 (m + (1 - m) log(1 - m))``.
        """
        c = self.factor
        return c * ((1.0 - c) * self.curved - self.moved * math.log(c)) if c > 0.0 else 0.0


def has_conjugate(loss: str, target: str) -> bool:
    """Return whether the dual of a loss is computed row by row; otherwise a formula of the mean loss has it."""
    return target != "multilabel" and loss_named(loss).dual_domain != "none"


def conjugate_mean(
    loss: str, margins: Margins, slopes: Array, factor: float, scale: float, *, alone: bool = False
) -> float:
    """Return the mean conjugate at minus `factor` times the gradients; `slopes` are these times ``scale s_i``.

    In threads, if this is the only task (`alone`).
    """
    weight = margins.weight

    def of_piece(first: int) -> float:
        rows = slice(first, first + _PIECE_ROWS)
        own, y = scale * weight[rows] if len(weight) else np.full(len(slopes[rows]), scale), margins.y[rows]
        # Rows without weight, as those of a fold, have no gradient left.
        used = own > 0.0 if len(weight) else slice(None)
        duals = slopes[rows][used] * (-factor / own[used])[:, None]
        return float(own[used] @ loss_named(loss).conjugate(duals, y[used]))

    # In pieces, so that what the dual is computed from is small.
    pieces = range(0, len(slopes), _PIECE_ROWS)
    return sum(in_threads(of_piece, pieces) if alone else map(of_piece, pieces))


def gap_of(loss: str, mean: float, dual: DualFactor, penalty: float) -> float:
    """Return the gap of weights with this mean loss and penalty to the bound at their own scaled gradients.

    By Fenchel's equality the conjugates of the losses at their gradients have the mean <G, W> - L(W), with G the
    gradient of L. The squared hinges' conjugates are quadratic: at c times the gradients they cost
    c^2 L + c (<G, W> - 2 L). Convexity bounds those of other losses, which are not negative, by c (<G, W> - L), which
    is exact at c = 1; for logistic losses see `DualFactor.gained`.
    """
    rest = penalty + dual.conjugated + dual.factor * dual.product - dual.gained
    return rest + mean * loss_named(loss).dual_shortfall(dual.factor)


def bound_of(loss: str, mean: float, dual: DualFactor, conjugate: float | None) -> float:
    """Return the bound, given the mean loss and where it is known the mean conjugate at the scaled gradients."""
    if conjugate is not None:
        return -conjugate - dual.conjugated
    return mean - gap_of(loss, mean, dual, 0.0)


# Largest sum of an intercept's mean gradients that counts as zero but for rounding.
BALANCED = 1e-8


def intercept_slack(rest: float, intercept: Array) -> float:
    """Return what a bound at duals that do not sum to zero may be wrong by, `rest` the sizes of their sums."""
    # convexity in the intercept: what is left of its gradient, times the way to where it is optimal
    return rest * (1.0 + 2.0 * float(np.abs(intercept).max(initial=0.0)))
