"""The state of dual coordinate ascent: the image of the duals, and where the duals themselves are stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.solvers.solver import State

Array = NDArray[np.float64]


@dataclass
class SdcaState(State):
    """Everything a round starts from, but for the duals; see `DualProblem` and `DualPoint`."""

    u: NDArray[Any] = field(default_factory=lambda: np.empty((0, 0)))  # shape (n_features, k)
    center: Array = field(default_factory=lambda: np.empty(0))  # shape (k,), and the next two
    up: Array = field(default_factory=lambda: np.empty(0))
    down: Array = field(default_factory=lambda: np.empty(0))
    versions: NDArray[np.int64] = field(
        default_factory=lambda: np.empty(0, np.int64)
    )  # shape (n_partitions,), and the next two
    before: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    mix: Array = field(default_factory=lambda: np.empty(0))
    conjugate: float = 0.0  # mean over rows, an upper bound where duals are mixed
    dual: float | None = None  # D; None before the first round, or where it has to be compared anew
    part: int = 0  # Rounds done of the current pass
    # shape (rounds_per_pass,), of the newest rounds: |sum of the lanes' changes|^2 over the sum of their squares, and
    # the sums of the gaps of rows when they were visited
    ratios: Array = field(default_factory=lambda: np.empty(0))
    gaps: Array = field(default_factory=lambda: np.empty(0))
    # the sum of `gaps` when the last pass ended, and its ratio to the sum of the pass before, at most 1
    last_gap: float | None = None
    decline: float = 1.0
    renewed: int = 0  # Partitions whose duals were lost and recomputed
