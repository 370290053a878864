"""Learners of fits side by side that learn in one kernel, while each is used as if it were alone."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import Rows
from distls.workers.stochastic.update import LEAST_JOINT, Arrays, Learner


def together(learners: Sequence[Learner]) -> list[Learner]:
    """Return learners to be used in place of these, which will all be given the same rows, in this order."""
    # A group needs equal settings but for the strengths: what differs in kind has another kernel.
    found, kinds = list(learners), dict[Any, list[int]]()
    for place, learner in enumerate(learners):
        if learner.batch_key is not None:
            kinds.setdefault(learner.batch_key, []).append(place)
    for places in kinds.values():
        first = learners[places[0]]
        # Groups as large as the kernel has lanes.
        for at in range(0, len(places), first.most_joint):
            group = places[at : at + first.most_joint]
            # Fewer are as fast one after the other, and need no second copy of the weights.
            if len(group) >= LEAST_JOINT:
                joint = first.joint([learners[place] for place in group])
                for number, place in enumerate(group):
                    found[place] = _Member(learners[place], number, joint)
    return found


class Joint(ABC):
    """Several learners that see the same rows, in one kernel; each has the bits that it would have alone."""

    # (rows, y, weight, order, *arrays, settings) -> the sums of losses and the errors of every learner
    kernel: ClassVar[Callable[..., tuple[NDArray[np.float64], NDArray[np.int64]]]]

    def __init__(self, arrays: tuple[Any, ...], settings: Any) -> None:
        self._arrays, self._settings, self._calls = arrays, settings, 0

    @property
    def time(self) -> float:
        """See `Learner.time`; the clock is the last of the arrays."""
        return float(self._arrays[-1].flat[0])

    def learn(self, call: int, *rows: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Learn for all at the first of the members' calls of that number; return what it has given."""
        # The first member to ask does the work for all; the others find its sums.
        if call == self._calls:
            self._calls, self._sums = call + 1, self.kernel(*rows, *self._arrays, self._settings)
        return self._sums

    @abstractmethod
    def write(self, number: int) -> None:
        """Write what a learner has learned to its own arrays."""


class _Member(Learner):
    """One of the learners."""

    def __init__(self, own: Learner, number: int, joint: Joint) -> None:
        self._own, self._number, self._joint, self._calls, self._written = own, number, joint, 0, 0

    @property
    def time(self) -> float:
        return self._joint.time

    def learn(
        self, x: Rows, y: NDArray[Any], weight: NDArray[np.float64], order: NDArray[np.int64]
    ) -> tuple[float, int]:
        loss_sums, errors = self._joint.learn(self._calls, x, y, weight, order)
        self._calls += 1
        return float(loss_sums[self._number]), int(errors[self._number])

    def arrays(self) -> Arrays:
        return self._learned().arrays()

    @property
    def window_steps(self) -> float:
        return self._learned().window_steps

    def window(self, *, consume: bool = False) -> Arrays:
        return self._learned().window(consume=consume)

    def _learned(self) -> Learner:
        # Written back only when asked: members learn from many partitions between two readings.
        if self._written < self._calls:
            self._joint.write(self._number)
            self._written = self._calls
        return self._own
