"""MCID on a stream: one lane over rows as they come, in the order given, without a data set.

The same kernel in the same order as a fit with ``lanes=1, shuffle=False``, so the same bits wherever a fit does
not need to know the end of the stream beforehand: see `McidStream`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from distls.solvers.base import Weights
from distls.solvers.mcid import safe_start
from distls.storage.rows import CsrRows, Partition, Rows, n_rows_of
from distls.workers.kernels.stochastic import (
    H,
    T,
    mcid_block,
    mcid_settings,
    new_clock,
    weights_from,
    window_mean,
)
from distls.workers.losses import LOSSES
from distls.workers.training import row_weights

__all__ = ["McidStream"]


@dataclass
class McidStream:
    """Everything the next row needs; plain arrays and numbers.

    Cutting the stream into blocks changes no bit (with batches of r rows: cutting at multiples of r). The model is
    that of a fit over the same rows as one partition or several: of ``average`` `none` and `all` always; of `tail`
    when the number of updates is a power of two. Windows of `tail` end there, because where the last half starts
    cannot be known before the end; in between the model is the mean of the last half of all updates at the
    least, and of the last three quarters at the most. Row weights count as given: a fit scales them to mean one.

    Attributes
    ----------
    params : dict
        All parameters of the method, resolved.
    u : array of shape (n_features, n_outputs)
        alpha * (t + t0) * W.
    q, qb : arrays
        Of the window under way, as `mcid_block` has them.
    b : float64 array of shape (n_outputs,)
    clock : float64 array (t, H)
    t0 : float
    class_weight : float64 array of shape (n_outputs,) or None
    window_from : float
        Time at which the window under way starts; infinity without averaging.
    before, before_b : float64 arrays
        Sum of the iterates of the window before it.
    before_steps : float
    """

    params: dict[str, Any]
    u: NDArray[Any]
    q: NDArray[Any]
    b: NDArray[np.float64]
    qb: NDArray[np.float64]
    clock: NDArray[np.float64]
    t0: float
    class_weight: NDArray[np.float64] | None
    window_from: float
    before: NDArray[np.float64]
    before_b: NDArray[np.float64]
    before_steps: float = 0.0

    @classmethod
    def begin(
        cls, params: dict[str, Any], shape: tuple[int, int], class_weight: NDArray[np.float64] | None
    ) -> Self:
        """Return the stream before its first row: zero weights of `shape` (n_features, n_outputs)."""
        averaging = params["average"] != "none"
        u, b = np.zeros(shape, params["dtype"]), np.zeros(shape[1])
        return cls(
            params=params,
            u=u,
            q=np.zeros(shape if averaging else (0, shape[1]), u.dtype),
            b=b,
            qb=b.copy(),
            clock=new_clock(),
            t0=params["t0"] or 0.0,
            class_weight=class_weight,
            window_from=0.0 if averaging else math.inf,
            before=np.zeros((0, shape[1])),
            before_b=b.copy(),
        )

    def start_from(self, weights: NDArray[Any], intercept: NDArray[Any], first: Rows) -> None:
        """Start from trained weights instead of zeros, at the time that a fit on the rows `first` would choose."""
        if self.params["t0"] is None:
            values = first.data if isinstance(first, CsrRows) else first.values
            square = float(np.square(values, dtype=np.float64).sum()) / n_rows_of(first)
            self.t0 = safe_start(square, self.params["alpha"])
        self.u[...] = weights.astype(self.u.dtype) * self.u.dtype.type(self.params["alpha"] * self.t0)
        if self.params["fit_intercept"]:
            self.b[...] = intercept

    @property
    def updates(self) -> int:
        """Updates done so far: rows, or batches of them."""
        return int(self.clock[T])

    def learn(self, part: Partition) -> float:
        """Learn from a block of rows, in their order; return the sum of their losses, each before its own update."""
        weight, order = row_weights(part, self.class_weight), np.arange(n_rows_of(part.x))
        size, first, loss_sum = self.params["batch_size"], 0, 0.0
        while first < len(order):
            rows = order[first : first + min(self._updates_left() * size, len(order))]
            loss, _ = mcid_block(
                part.x, part.y, weight, rows, self.u, self.q, self.b, self.qb, self.clock, self._settings()
            )
            loss_sum, first = loss_sum + loss, first + len(rows)
            if not self._updates_left():
                self._close_window()
        return loss_sum

    def _settings(self) -> Any:
        return mcid_settings(
            LOSSES[self.params["loss"]],
            self.params["alpha"],
            t0=self.t0,
            batch_size=self.params["batch_size"],
            fit_intercept=self.params["fit_intercept"],
            tail_from=self.window_from,
        )

    def _updates_left(self) -> int:
        """Updates until the window closes: of `tail`, at 1, 2, 4, 8, ..."""
        if self.params["average"] != "tail":
            return 2**62
        return int(max(2.0 * self.window_from, 1.0) - self.clock[T])

    def _close_window(self) -> None:
        self.before_steps = self.clock[T] - self.window_from
        with np.errstate(over="ignore", invalid="ignore"):
            mean, mean_b = self._window_mean()
            self.before, self.before_b = _times(mean, self.before_steps), mean_b * self.before_steps
        self.window_from = self.clock[T]
        self.clock[H] = 0.0
        self.q[...], self.qb[...] = 0.0, 0.0

    def _window_mean(self) -> tuple[NDArray[Any], NDArray[np.float64]]:
        steps = self.clock[T] - self.window_from
        return window_mean(self.u, self.q.copy(), self.clock, steps), self.qb / steps

    def weights(self) -> Weights:
        """Return the model as it stands, finite or not."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self._weights()

    def _weights(self) -> Weights:
        time, steps = self.clock[T], self.clock[T] - self.window_from
        none = np.zeros_like(self.b)
        if steps <= 0 and not self.before_steps:
            last = weights_from(self.u, self.params["alpha"], time + self.t0)
            return Weights(last, self.b.copy() if self.params["fit_intercept"] else none)
        total, total_b = self.before, self.before_b
        if steps > 0:
            mean, mean_b = self._window_mean()
            total = _times(mean, steps) if not self.before_steps else _times(mean, steps) + total
            total_b = mean_b * steps + total_b
        steps += self.before_steps
        mean = (total / steps).astype(self.u.dtype)
        return Weights(mean, total_b / steps if self.params["fit_intercept"] else none)


def _times(mean: NDArray[Any], steps: float) -> NDArray[np.float64]:
    """Return ``0 + steps * mean`` in float64: as a fit adds it to an empty window, without negative zeros."""
    return mean.astype(np.float64) * steps + 0.0
