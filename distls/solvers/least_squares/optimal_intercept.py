"""The intercept that is optimal for given weights, from reads of the gradient alone (Anderson 1965)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from distls.workers.runtime.process import single_threaded_blas

Array = NDArray[np.float64]

# Reads at most; changes that are combined where outputs depend on each other.
_READS, _KEPT = 40, 20
# From so many times the least gradient on, what is combined leads away.
_WORSE = 4.0
# The sum of the gradient's absolute values that is as good as zero: certificates count what is left of it.
_ENDED = 1e-9


def optimal_intercept(
    gradient_at: Callable[[Array], Array], start: Array, curvature: Array, *, separable: bool
) -> Array:
    """Return the intercept at which the gradient vanishes, or the best one found.

    Parameters
    ----------
    gradient_at : callable
        Returns the gradient of the mean loss at an intercept, shape (k,); a read.
    start : array of shape (k,)
        Where to begin.
    curvature : array of shape (k,)
        A diagonal that is above the second derivatives, for the first step.
    separable : bool
        Whether the loss is a sum over outputs, so that each has a secant of its own. Otherwise the changes seen are
        combined so that the gradient is shortest (Anderson).
    """
    gradient = shortest = gradient_at(start)
    best, least = start, float(np.abs(gradient).sum())
    points, gradients = [start], [gradient]
    for _ in range(_READS - 1):
        # A NaN ends the search with the best intercept so far.
        if least <= _ENDED or not np.isfinite(gradient).all():
            break
        step = (_secant if separable else _combined)(points[-_KEPT:], gradients[-_KEPT:], curvature)
        point = points[-1] + step
        gradient = gradient_at(point)
        size = float(np.abs(gradient).sum())
        if size < least:
            best, shortest, least = point, gradient, size
        # A secant over a kink, or across saturated rows, can point anywhere.
        if size > _WORSE * least:  # the changes that were seen mislead
            points, gradients = [best], [shortest]
        else:
            points.append(point)
            gradients.append(gradient)
    return best


def _secant(points: list[Array], gradients: list[Array], curvature: Array) -> Array:
    """Return the step of each output by the slope between its last two points."""
    slope = curvature.copy()
    if len(points) > 1:
        moved, change = points[-1] - points[-2], gradients[-1] - gradients[-2]
        # the gradient rises with the intercept; where rounding hides it, the first slope has to do
        rises = moved * change > 0.0
        slope[rises] = change[rises] / moved[rises]
    return -gradients[-1] / slope


def _combined(points: list[Array], gradients: list[Array], curvature: Array) -> Array:
    """Return the step from the combination of all points whose gradient is shortest."""
    gradient = gradients[-1]
    if len(points) == 1:
        return -gradient / curvature
    moves, changes = (np.diff(np.stack(each, axis=1), axis=1) for each in (points, gradients))
    with single_threaded_blas():
        # The tolerance drops nearly parallel changes, whose combination would amplify rounding.
        shares = np.linalg.lstsq(changes, gradient, rcond=1e-12)[0]
        # Anderson: the combination's point, then a step from there by the diagonal for what the changes do
        # not explain.
        return np.asarray(-(moves @ shares) - (gradient - changes @ shares) / curvature)
