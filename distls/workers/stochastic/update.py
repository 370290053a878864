"""A stochastic method: an `Update`, shared by all lanes, and its `Learner`, which processes a lane's rows.

Lanes average a tuple of plain arrays between rounds: the weights (n_features, n_columns), the intercept (n_columns,),
and others of the method. A learner starts from them, at its lane's own time, and returns them; in between it may hold
them in any form.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import Rows
from distls.workers.losses.loss_registry import loss_named
from distls.workers.penalties.penalty_registry import PLAIN_PENALTY, penalty_value

if TYPE_CHECKING:
    from distls.workers.stochastic.joint_learning import Joint

Arrays = tuple[NDArray[Any], ...]
Model = tuple[NDArray[Any], NDArray[np.float64]]
U = TypeVar("U", bound="Update")

LEAST_JOINT = 3  # learners of a `joint`; fewer are as fast one after the other


class Learner(ABC):
    """The arrays of a lane while it processes its rows."""

    most_joint: ClassVar[int] = 1  # learners of one `joint`
    # the steps the lane has taken, in earlier rounds too, and the kernel's other counters
    clock: NDArray[np.float64]

    @property
    def time(self) -> float:
        """Steps the lane has taken, in earlier rounds too."""
        return float(self.clock[0])

    @abstractmethod
    def learn(
        self, x: Rows, y: NDArray[Any], weight: NDArray[np.float64], order: NDArray[np.int64]
    ) -> tuple[float, int]:
        """Learn from the rows `order`; return (sum of s_i * loss_i before each row's own step, errors)."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """Return the arrays to be averaged; the learner cannot be used afterwards."""

    def snapshot(self) -> Arrays:
        """Return copies of the arrays; the learner goes on."""
        # A deep copy, since `arrays` may apply what is pending in place.
        return copy.deepcopy(self).arrays()

    @property
    def window_steps(self) -> float:
        """Iterates in the averaging window so far; 0 where the method keeps none."""
        return 0.0

    def window(self, *, consume: bool = False) -> Arrays:
        """Return the mean (weights, intercept) of the window's iterates, at least one; `consume` spares a copy."""
        raise NotImplementedError

    def new_window(self) -> None:
        """Start a window here."""
        raise NotImplementedError

    @property
    def batch_key(self) -> tuple[Any, ...] | None:
        """What learners of other strengths share that can learn in one `joint` kernel; None if none can."""
        return None

    def joint(self, learners: Sequence[Any]) -> Joint:
        """Return what learns for all `learners`, which are of this one's kind."""
        raise NotImplementedError


@dataclass
class KernelLearner(Learner):
    """A lane whose kernel changes plain arrays in place."""

    # (rows, y, weight, order, *state, settings) -> (loss_sum, errors). An attribute of the class and not of the
    # object: a compiled function that is copied or pickled would be compiled once more
    kernel: ClassVar[Callable[..., tuple[float, int]]]
    settings: Any  # a NamedTuple
    state: tuple[Any, ...]  # the arrays that the kernel mutates, those to be averaged first
    clock: NDArray[np.float64]  # one of the arrays of `state`
    averaged: int  # number of arrays to be averaged

    def learn(
        self, x: Rows, y: NDArray[Any], weight: NDArray[np.float64], order: NDArray[np.int64]
    ) -> tuple[float, int]:
        loss, errors = self.kernel(x, y, weight, order, *self.state, self.settings)
        # Kernels return int64 of NumPy, which JSON does not take.
        return loss, int(errors)

    def arrays(self) -> Arrays:
        # The first ones by convention; the rest is a lane's own.
        return self.state[: self.averaged]


@dataclass(frozen=True)
class Update(ABC):
    """The part of a method that all lanes share; small, and sent with every task."""

    loss: str  # full loss name
    alpha: float
    fit_intercept: bool

    @property
    def row_loss(self) -> Any:
        """The loss in the form that kernels take."""
        return loss_named(self.loss)

    @property
    def needs_mean(self) -> bool:
        """Whether `with_mean` must be given the mean of all rows before the first round."""
        return False

    @property
    def meets_mean(self) -> bool:
        """Whether all models pass through the mean point."""
        return False

    def zeros(self, shape: tuple[int, int], dtype: Any) -> Arrays:
        """Return the arrays of zero weights; `shape` is that of the model's weights."""
        # The intercept is float64 in all methods: it is a sum over all rows.
        return np.zeros(shape, dtype), np.zeros(shape[1]), *self.extra_arrays(shape, dtype)

    def extra_arrays(self, shape: tuple[int, int], dtype: Any) -> Arrays:
        """Return the initial arrays that the method averages in addition to weights and intercept."""
        return ()

    def bytes_of(self, shape: tuple[int, int], dtype: Any) -> int:
        """Return the approximate size of `zeros` without making them: linear in the features, except for `rls`."""
        return shape[0] * sum(array.nbytes for array in self.zeros((1, shape[1]), dtype))

    def sent_bytes(self, shape: tuple[int, int], dtype: Any) -> int:
        """Return the exact size of `zeros` without making them."""
        # the size is a polynomial of degree two at most in the features: three points determine it
        one, two, three = (sum(a.nbytes for a in self.zeros((n, shape[1]), dtype)) for n in (1, 2, 3))
        more = shape[0] - 1
        return one + more * (two - one) + more * (more - 1) // 2 * (three - 2 * two + one)

    def joint_bytes(self, shape: tuple[int, int], dtype: Any, learners: int) -> int:
        """Return the bytes of the `joint` of so many learners, in addition to their own arrays; 0 if there is none."""
        return 0

    @abstractmethod
    def start_lane(self, arrays: Arrays, time: float, tail_from: float = math.inf) -> Learner:
        """Return the learner of a lane that has taken `time` steps; `arrays` are only read."""

    def model(self, arrays: Arrays) -> Model:
        """Return the weights (n_features, n_outputs) and the intercept of the model."""
        weights, intercept = arrays[:2]
        return weights, intercept if self.fit_intercept else np.zeros_like(intercept)

    def penalty_of(self, weights: NDArray[Any]) -> float:
        """Return R of the model's weights."""
        return penalty_value(PLAIN_PENALTY, weights, 0.0)

    def start_from(self, weights: NDArray[Any], intercept: NDArray[Any], arrays: Arrays) -> None:
        """Write a model's weights into the arrays."""
        arrays[0][...] = weights
        if self.fit_intercept:
            arrays[1][...] = intercept

    def with_mean(self, arrays: Arrays, mean_x: NDArray[np.float64], mean_y: NDArray[np.float64]) -> Arrays:
        """Return the arrays with the mean of all rows and of their targets."""
        raise NotImplementedError

    def for_one_lane(self: U) -> U:
        """Return the update for a trial in a single lane."""
        return self


@dataclass(frozen=True)
class ScheduleUpdate(Update):
    """An update whose steps follow a schedule of `distls.workers.stochastic.step_sizes`."""

    schedule: str = "sqrt"  # one of `SCHEDULES`
    eta0: float = 1.0
    switch: float = math.inf
