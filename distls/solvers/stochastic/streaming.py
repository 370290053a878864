"""The stochastic methods on a stream: one lane over rows as they come, in the order given, without a data set.

The same kernels in the same order as a fit with ``lanes=1, shuffle=False``, so the same bits wherever a fit does
not need to know the whole stream beforehand: see `Stream`.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import Partition, n_rows_of
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.row_weights import row_weights
from distls.workers.stochastic.step_choice import StepChoice
from distls.workers.stochastic.update import Learner, Update


@dataclass
class Stream:
    """A stream between two rows.

    Cutting the stream into blocks changes no bit (with batches of r rows: at multiples of r). Row weights count as
    given, while a fit scales them to mean one. Where a fit chooses steps by trial, a stream uses safe ones for its
    first block.
    """

    params: dict[str, Any]  # All parameters of the method, resolved
    update: Update
    learner: Learner
    class_weight: NDArray[np.float64] | None  # shape (n_outputs,) or None
    before: NDArray[np.float64]  # Sum of the iterates of the last window that is closed
    before_b: NDArray[np.float64]
    before_steps: float = 0.0

    @classmethod
    def begin(
        cls,
        steps: StepChoice,  # of one lane, and of the first block, whose numbers decide steps that are not given
        params: dict[str, Any],
        shape: tuple[int, int],  # (n_features, n_outputs)
        class_weight: NDArray[np.float64] | None = None,  # shape (n_outputs,), optional
        initial: tuple[NDArray[Any], NDArray[np.float64]] | None = None,
    ) -> Self:
        """Return the stream before its first row; `initial` holds trained (weights, intercept) to start from."""
        update = steps.default
        arrays = update.zeros(shape, params["dtype"])
        if initial is not None:
            update.start_from(*initial, arrays)
        none = np.zeros((0, arrays[0].shape[1]))
        return cls(params, update, update.start_lane(arrays, 0.0, 0.0), class_weight, none, np.zeros(none.shape[1]))

    @property
    def updates(self) -> int:
        """Updates done so far: rows, or batches of them."""
        return int(self.learner.time)

    def learn(self, part: Partition) -> float:
        """Learn from a block of rows, in their order; return the sum of their losses, each before its own update."""
        weight, order = row_weights(part, self.class_weight), np.arange(n_rows_of(part.x))
        size, first, loss_sum = self.params.get("batch_size", 1), 0, 0.0
        while first < len(order):
            # A block that crosses the end of a window is cut there, so that the bits do not depend on the blocks.
            rows = order[first : first + min(self._updates_left() * size, len(order))]
            loss, _ = self.learner.learn(part.x, part.y, weight, rows)
            loss_sum, first = loss_sum + loss, first + len(rows)
            if not self._updates_left():
                self._close_window()
        return loss_sum

    def _updates_left(self) -> int:
        """Updates until the window closes: of `tail`, at 1, 2, 4, 8, ..."""
        if self.params.get("average") != "tail":
            return 2**62
        # where the last half of a stream starts cannot be known before its end, so windows close at powers of two;
        # the model is then that of a fit, and in between the mean of the last half to three quarters of all updates
        started = self.learner.time - self.learner.window_steps
        return int(max(2.0 * started, 1.0) - self.learner.time)

    def _close_window(self) -> None:
        self.before_steps = self.learner.window_steps
        with np.errstate(over="ignore", invalid="ignore"):
            # The mean is computed before the window is cleared, and multiplied back by its steps.
            mean, mean_b = self.learner.window()
            self.before, self.before_b = _times(mean, self.before_steps), mean_b * self.before_steps
        self.learner.new_window()

    def weights(self) -> LinearPredictor:
        """Return the model as it stands, finite or not."""
        with np.errstate(over="ignore", invalid="ignore"):
            return LinearPredictor(*self._weights())

    def _weights(self) -> tuple[NDArray[Any], NDArray[np.float64]]:
        steps = self.learner.window_steps
        if not steps and not self.before_steps:
            # A snapshot: the learner goes on with the next block.
            return self.update.model(self.learner.snapshot())
        total, total_b = self.before, self.before_b
        if steps:
            mean, mean_b = self.learner.window()
            total = _times(mean, steps) if not self.before_steps else _times(mean, steps) + total
            total_b = mean_b * steps + total_b
        steps += self.before_steps
        return self.update.model(((total / steps).astype(self.params["dtype"]), total_b / steps))


def _times(mean: NDArray[Any], steps: float) -> NDArray[np.float64]:
    """Return ``0 + steps * mean`` in float64: as a fit adds it to an empty window, without negative zeros."""
    return mean.astype(np.float64) * steps + 0.0
