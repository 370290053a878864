"""The state of Newton's method between two reads."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from distls.solvers.solver import State

Array = NDArray[np.float64]

START, GRADIENT, PRODUCT, SEARCH = "start", "gradient", "product", "search"


def _none() -> Array:
    return np.empty((0, 0))


@dataclass
class NewtonState(State):
    """A Newton iterate between two reads; matrices are (m, k), the first row that of the intercept, if there is one."""

    stage: str = GRADIENT
    point: Array = field(default_factory=_none)  # the weights of the lowest objective so far
    candidate: Array = field(default_factory=_none)  # where the next gradient is read
    # of the objective of the form at the point, and the gap that its gradient proves; both of points that were read
    value: float = 0.0
    gap: float = 0.0
    gradient: Array = field(default_factory=_none)
    curvature: Array = field(default_factory=_none)  # mean over rows, see `NewtonSum`
    up: Array = field(default_factory=lambda: np.empty(0))
    down: Array = field(default_factory=lambda: np.empty(0))
    # of conjugate gradients: the step so far, what is left of the equation, and the next direction
    step: Array = field(default_factory=_none)
    residual: Array = field(default_factory=_none)
    direction: Array = field(default_factory=_none)
    square: float = 0.0  # of the residual in the preconditioner's metric, now and at the start
    first_square: float = 0.0
    products: int = 0
    share: float = 1.0  # of the step that leads to the candidate
    steps: int = 0
    settled: bool = False  # no step lowers the objective but by rounding
