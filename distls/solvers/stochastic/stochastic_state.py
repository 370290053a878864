"""The state of the stochastic solver, with the windows in which iterates are averaged."""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from distls.solvers.features.fitted_designs import DesignState
from distls.workers.rounds.averaging import add_scaled
from distls.workers.stochastic.update import Arrays


@dataclass
class StochasticState(DesignState):
    """Everything a round starts from."""

    # What lanes average: the weights of shape (n_features, n_columns), the intercept and the method's own
    lane: Arrays = ()
    # shape (n_lanes,): Steps each lane has taken
    times: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    part: int = 0  # Where the pass stands and how much of it the next round takes, in its shortest parts
    interval: int = 1
    # Which candidate was chosen by trial; None where there was nothing to choose, or not yet
    chosen: int | None = None
    # `eta0` and `switch` where they follow from the rows, with what they were made from
    measured: dict[str, float] = field(default_factory=dict)
    # Sum over the current averaging window of (mean iterate of a round) * (its steps); empty
    # without averaging
    tail: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    tail_intercept: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    # The same of the window before it
    before: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    before_intercept: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    tail_steps: float = 0.0  # Iterates in the two windows
    before_steps: float = 0.0

    def split(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return (scalars, arrays) by field name; those of `lane` by number."""
        scalars, arrays = super().split()
        del scalars["lane"]
        return scalars, {**arrays, **{f"lane{i}": array for i, array in enumerate(self.lane)}}

    @classmethod
    def join(cls, scalars: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild a state from the output of `split`."""
        rest = dict(arrays)
        # Numbered in the order in which the update returns its arrays.
        lane = tuple(rest.pop(f"lane{i}") for i in range(sum(name.startswith("lane") for name in arrays)))
        return super().join({**scalars, "lane": lane}, rest)

    def extend_window(
        self, before: Self, mean: Arrays, steps: float, *, doubling: bool, out: NDArray[np.float64] | None
    ) -> None:
        """Add a round's mean iterate over `steps` steps to the window of the state before the round.

        With `doubling`, windows double: rounds 1, 2, 3-4, 5-8, ...; the model is the mean over the current window and
        the one before it, dropped when the current one is complete. So it covers at least the last half of all rounds,
        and at most three quarters. `out` has the window's shape and is overwritten by it; `mean` is empty without
        averaging. The state `before` is never changed: an interrupt must find the state of the last whole round.
        """
        if out is None:
            out = np.empty_like(before.tail)
        # A round may end before its window begins.
        weights, intercept = mean if steps else (np.zeros_like(out), before.tail_intercept)
        add_scaled(out.reshape(-1), before.tail.reshape(-1), weights.reshape(-1), steps)
        self.tail = out
        self.tail_intercept = before.tail_intercept + intercept * steps
        self.tail_steps = before.tail_steps + steps
        # After rounds 1, 2, 4, 8, ...: the window closes and becomes the one before.
        if doubling and self.round & (self.round - 1) == 0:
            self.before, self.tail = self.tail, np.zeros_like(out)
            self.before_intercept = self.tail_intercept
            self.tail_intercept = np.zeros_like(self.tail_intercept)
            self.before_steps, self.tail_steps = self.tail_steps, 0.0
