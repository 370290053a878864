"""A dual point of a problem with a free intercept, from the gradients that a step has read.

It asks for gradients whose sum over the rows is zero. Those at zero weights with an intercept b are alike for all rows
of a class, so that their sum, their dual and their products with the rows are known for any b from the sums of the rows
of each class. A small part of those with the right b, mixed with the gradients that were read, makes the sum zero.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distls.dual_problem import intercept_curvature, optimal_intercept
from distls.problem import Problem
from distls.workers.coordinate_descent.dual_bounds import BALANCED, DualFactor, bound_of, intercept_slack
from distls.workers.losses.loss_registry import loss_named
from distls.workers.penalties.penalty_registry import penalty_named

Array = NDArray[np.float64]

# Of the part that would move all of a class's gradients to one side, so that b is not at its limit; and the largest
# part: gradients of zero weights are far from the dual's domain.
_ROOM, _MOST = 2.0, 0.5


def has_balance(problem: Problem) -> bool:
    """Return whether the gradients of a problem with a free intercept can be balanced."""
    return problem.target == "class" and loss_named(problem.loss).smooth


def balanced_bound(
    problem: Problem, dual: DualFactor, loss: float, gradient: Array, class_rows: Array, intercept: Array
) -> float | None:
    """Return the bound of the optimum at balanced gradients; None where they are too far from it.

    Parameters
    ----------
    problem : Problem
    dual : DualFactor
        Of the gradients that were read; its factor and conjugate are not used.
    loss : float
        The mean loss there.
    gradient : array of shape (1 + n_features, k)
        Of the mean loss, in the intercept first.
    class_rows : array of shape (1 + n_features, n_classes)
        The mean over all rows of (1, x), of each class's rows alone.
    intercept : array of shape (k,)
        Where they were read.
    """
    form, slope, shares = loss_named(problem.loss), gradient[0], class_rows[0]
    least = shares if len(shares) == len(slope) else np.full(len(slope), shares.min())
    if not shares.min() > 0.0:
        return None
    part = _ROOM * float((np.abs(slope) / least).max())
    if not part <= _MOST:
        return None
    codes = np.arange(len(shares), dtype=np.int32)

    def at(b: Array) -> tuple[Array, Array]:
        scores = np.tile(b, (len(shares), 1))
        return np.asarray(form.gradient(scores, codes), np.float64), np.asarray(form.values(scores, codes), np.float64)

    # the least of L0(b) + b . wanted, where the gradients of zero weights have the sum that is asked for
    wanted = (1.0 - part) / max(part, 1e-300) * slope
    b = optimal_intercept(
        lambda b: shares @ at(b)[0] + wanted,
        np.zeros(len(slope)),
        intercept_curvature(problem),
        separable=form.separable,
    )
    slopes, values = at(b)
    mixed = (1.0 - part) * gradient + part * (class_rows @ slopes)
    rest = float(np.abs(mixed[0]).sum())
    if not rest <= BALANCED:
        return None
    factor, conjugated = penalty_named(problem.penalty).conjugate(-mixed[1:], problem.alpha, problem.l1_ratio)
    # By convexity the conjugates of a mixture are at most the mixture of the conjugates.
    read = bound_of(problem.loss, loss, dual._replace(factor=factor, conjugated=0.0), None)
    other = DualFactor(factor, 0.0, float(shares @ slopes @ b))
    zero = bound_of(problem.loss, float(shares @ values), other, None)
    return (1.0 - part) * read + part * zero - conjugated - intercept_slack(rest, np.concatenate([b, intercept]))
