"""Sweeps of block coordinate descent over some columns, forth and back, with Anderson extrapolation.

Every few sweeps the weights are extrapolated to where these lead (Bertrand and Massias 2021), and a step of Newton's
method is made in those that are not zero. The sweeps are those of the paper's Algorithm 2, line search included.
"""

import numpy as np
from numpy.typing import NDArray

from distls.workers.coordinate_descent.descent_kernels import N_TOTALS
from distls.workers.coordinate_descent.prox_newton import ProxNewton
from distls.workers.coordinate_descent.working_columns import WorkingColumns

Array = NDArray[np.float64]

# Sweeps between extrapolations, and most sweeps (docs/decisions/0022).
_BETWEEN, _SWEEPS = 5, 300
# Extrapolations after which the gap has to be less than this part of what it was.
_PATIENCE, _LITTLE = 5, 0.9
# What may be left of the gap: what is more is sooner found after another read, on the columns that matter then; where
# sweeps hardly get further, this much.
_LEFT, _LED = 0.05, 0.25
# Of the differences' products, relative to their mean square: they are nearly dependent.
_DAMPING = 1e-12


def sweep_until(columns: WorkingColumns, target: float, newton: ProxNewton) -> bool:
    """Sweep until the columns' gap is at most `target` or a small part of the first, or falls no more.

    Return whether that has led anywhere.
    """
    task = columns.task
    means, gaps = task.leaning(columns.x), [np.inf] * _PATIENCE
    for _ in range(0, _SWEEPS, _BETWEEN):
        judged = columns.judge(columns.value())
        # A line search ends where the decrease is below the rounding of the objective.
        if judged.gap <= target:
            return True
        if judged.gap > _LITTLE * gaps[-_PATIENCE]:
            return judged.gap <= _LED * gaps[_PATIENCE]
        gaps.append(judged.gap)
        target = max(target, _LEFT * gaps[_PATIENCE])
        points = [_point(columns)]
        for number in range(_BETWEEN):
            # Forth and back: such sweeps are symmetric, and their errors extrapolate better (Bertrand and
            # Massias 2021).
            order = np.arange(len(columns.w))[:: -1 if number % 2 else 1]
            task.run(columns.x, order, columns.w, np.zeros(N_TOTALS), means)
            task.step_intercept()
            points.append(_point(columns))
        _extrapolate(columns, points, columns.value())
        newton.leap()
    return False


def _point(columns: WorkingColumns) -> Array:
    return np.concatenate([columns.w.ravel(), columns.intercept()])


def _extrapolate(columns: WorkingColumns, points: list[Array], before: float) -> None:
    """Move to where the points lead if the objective is lower there; the points are overwritten."""
    last = points.pop()
    shares = _shares(points, last)
    if shares is None:
        return
    there = last.copy()
    for share, change in zip(shares, points[1:], strict=True):
        there -= share * change
    size, shape = columns.w.size, columns.w.shape
    values, kept = there[:size].reshape(shape), columns.w.any(axis=1)
    # Rows that the sweeps have made zero stay so: an extrapolated row would be tiny but not zero.
    values[~kept] = 0.0
    columns.move(values, there[size:])
    # Anderson steps may rise: then the last sweep's weights stay.
    if not columns.value() < before:
        columns.move(last[:size].reshape(shape), last[size:])


def _shares(points: list[Array], last: Array) -> Array | None:
    """Overwrite points by their differences to the next; return how much of all but the first to take from `last`."""
    for place, point in enumerate(points):
        # In place, as the points are as large as the weights.
        np.subtract(points[place + 1] if place + 1 < len(points) else last, point, out=point)
    products = np.array([[float(a @ b) for b in points] for a in points])
    mean = float(np.trace(products)) / len(points)
    if not mean > 0.0:
        return None
    # Differences of converging sweeps become parallel, and the matrix singular.
    products[np.diag_indices(len(points))] += _DAMPING * mean
    # the combination of the differences, with shares that sum to one, which is the shortest
    shares = np.linalg.solve(products, np.ones(len(points)))
    return np.asarray(np.cumsum(shares / shares.sum())[:-1])
