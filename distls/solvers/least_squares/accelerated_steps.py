"""Steps of generalized least squares (Eq. 14), accelerated, of several fits side by side, one but for a path.

Each fit goes its own way, with an L and a momentum of its own; they share what is costly, the reads of the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.solvers.solver import State

__all__ = ["ROUNDING", "Descent", "Tried", "next_momentum"]

Array = NDArray[np.float64]

# Differences of the objective below this share of it are rounding.
ROUNDING = 64 * float(np.finfo(np.float64).eps)
_NONE = np.empty((0, 0, 0))


class Tried(NamedTuple):
    """What a read tells of one point of each running fit.

    Attributes
    ----------
    theta, gradient : float64 arrays of shape (m, r, k)
    value : float64 array of shape (r,)
        Of the objective.
    held : float64 array of shape (r, 2)
        Sum of losses, and rows predicted wrong, of the fold that a fit leaves out.
    """

    theta: Array
    gradient: Array
    value: Array
    held: Array


@dataclass
class Descent(State):
    """Of p fits, r of them running. Weights are of shape (m, p, k), the constant column's first where there is one.

    Attributes
    ----------
    running : bool array of shape (p,)
    best, best_gradient, best_value, best_held
        The weights of lowest objective, its gradient and value there, (p,), and the judgement, (p, 2).
    base, base_gradient, base_value, base_held
        The point from which the step at hand is taken.
    candidate : float64 array of shape (m, r, k)
        Where it leads.
    ahead : float64 array of shape (m, r, k) or (0, 0, 0)
        Where the next step will be taken from, if not from the candidate.
    bound : float64 array of shape (r,)
        What the objective at the candidate is at most, if L is large enough.
    lipschitz, safe, momentum : float64 arrays of shape (p,)
        L, what it need not be raised above, and Nesterov's t; 0 before the first read.
    accepted : int64 array of shape (p,)
        Steps taken.
    """

    running: NDArray[np.bool_] = field(default_factory=lambda: np.ones(1, bool))
    best: Array = field(default_factory=_NONE.copy)
    best_gradient: Array = field(default_factory=_NONE.copy)
    best_value: Array = field(default_factory=lambda: np.full(1, np.inf))
    best_held: Array = field(default_factory=lambda: np.zeros((1, 2)))
    base: Array = field(default_factory=_NONE.copy)
    base_gradient: Array = field(default_factory=_NONE.copy)
    base_value: Array = field(default_factory=lambda: np.full(1, np.inf))
    base_held: Array = field(default_factory=lambda: np.zeros((1, 2)))
    candidate: Array = field(default_factory=_NONE.copy)
    ahead: Array = field(default_factory=_NONE.copy)
    bound: Array = field(default_factory=lambda: np.full(1, np.inf))
    lipschitz: Array = field(default_factory=lambda: np.zeros(1))
    safe: Array = field(default_factory=lambda: np.zeros(1))
    momentum: Array = field(default_factory=lambda: np.zeros(1))
    accepted: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))

    def start_at(self, theta: Array, lipschitz: float, safe: float) -> None:
        """Begin p fits at weights (m, p, k) of which nothing is known: the next read tells."""
        p = theta.shape[1]
        # that read counts as the one that accepts the start
        self.running, self.accepted = np.ones(p, bool), np.full(p, -1)
        self.best = self.base = self.candidate = theta
        self.best_gradient = self.base_gradient = np.zeros_like(theta)
        self.ahead = _NONE.copy()
        self.best_value = self.base_value = self.bound = np.full(p, np.inf)
        self.best_held = self.base_held = np.zeros((p, 2))
        self.lipschitz, self.safe, self.momentum = np.full(p, lipschitz), np.full(p, safe), np.zeros(p)

    def know_start(self, point: Tried) -> None:
        """Take what is known of the weights begun at: no read is needed."""
        self._take(np.arange(point.theta.shape[1]), point, point, accelerated=True)

    def judge(self, candidate: Tried, ahead: Tried | None, *, accelerated: bool) -> NDArray[Any]:
        """Take, or take back, the steps that led to the candidates.

        Returns
        -------
        outcomes : array of str, shape (r,)
            accepted; rejected: L was too low; restarted: the momentum led upwards and is dropped; rounding: there was
            none, so a step does not help any more.
        """
        run = np.flatnonzero(self.running)
        rounding = ROUNDING * np.abs(np.where(np.isfinite(self.bound), self.bound, 0.0))
        low = (self.lipschitz[run] < self.safe[run]) & (candidate.value > self.bound + rounding)
        up = ~low & (candidate.value > self.best_value[run])
        end = up & (self.base_value[run] == self.best_value[run])
        taken, again = ~(low | up), up & ~end
        self._set("lipschitz", run[low], np.minimum(2.0 * self.lipschitz, self.safe)[run[low]])
        self._set("running", run[end], False)
        self._take(run[taken], _of(candidate, taken), _of(ahead or candidate, taken), accelerated)
        self._drop_momentum(run[again])
        return np.select([low, end, again], ["rejected", "rounding", "restarted"], "accepted")

    def propose(self, steps: Callable[[NDArray[np.int64], Array], Array], settled: float = ROUNDING) -> None:
        """Step from the bases, and look ahead from where that leads.

        Parameters
        ----------
        steps : callable
            Given the numbers of fits (r,) and gradients (m, r, k): (L Sigma + alpha P)^-1 times each.
        settled : float
            A fit ends when its step is sure to lower the objective by no more than this share of it.
        """
        run = np.flatnonzero(self.running)
        if not len(run):
            return
        gradient = _pick(self.base_gradient, run)
        step = steps(run, gradient)
        decrease = 0.5 * np.einsum("irk,irk->r", gradient, step)
        going = decrease > settled * np.abs(self.base_value[run])
        self._end(run[~going])
        run, step = run[going], _pick(step, np.flatnonzero(going))
        self.bound = self.base_value[run] - decrease[going]
        self.candidate = _pick(self.base, run) - step
        self.ahead, t = _NONE.copy(), self.momentum[run]
        if np.any(t > 1.0):
            weight = (t - 1.0) / next_momentum(t)
            self.ahead = self.candidate + weight[:, None] * (self.candidate - _pick(self.best, run))

    def _take(self, fits: NDArray[np.int64], to: Tried, following: Tried, accelerated: bool) -> None:
        for name, point in (("best", to), ("base", following)):
            self._set_point(name, fits, point)
        self._set("accepted", fits, self.accepted[fits] + 1)
        self._set("momentum", fits, next_momentum(self.momentum[fits]) if accelerated else 1.0)

    def _drop_momentum(self, fits: NDArray[np.int64]) -> None:
        self._set("momentum", fits, 1.0)
        self._set_point("base", fits, self.point("best", fits))

    def _end(self, fits: NDArray[np.int64]) -> None:
        """End fits, at their bases where these are as good."""
        at_base = fits[self.base_value[fits] <= self.best_value[fits]]
        self._set_point("best", at_base, self.point("base", at_base))
        self._set("running", fits, False)

    def point(self, name: str, fits: NDArray[np.int64]) -> Tried:
        """Return some fits' best points, or their bases."""
        theta, gradient = (_pick(getattr(self, part), fits) for part in (name, f"{name}_gradient"))
        return Tried(
            theta, gradient, getattr(self, f"{name}_value")[fits], getattr(self, f"{name}_held")[fits]
        )

    def _set_point(self, name: str, fits: NDArray[np.int64], point: Tried) -> None:
        parts = zip((name, f"{name}_gradient", f"{name}_value", f"{name}_held"), point, strict=True)
        for part, values in parts:
            self._set(part, fits, values)

    def _set(self, name: str, fits: NDArray[np.int64], values: Any) -> None:
        """Replace some fits' part of an array, in a new one: states before this one keep theirs."""
        array = getattr(self, name)
        if not len(fits):
            return
        if len(fits) == len(self.running) and isinstance(values, np.ndarray):
            setattr(self, name, values)
            return
        array = array.copy()
        if array.ndim == 3:
            array[:, fits] = values
        else:
            array[fits] = values
        setattr(self, name, array)


def _pick(array: Array, fits: NDArray[np.int64]) -> Array:
    """Return some fits' weights; all of them are not copied."""
    return array if len(fits) == array.shape[1] else array[:, fits]


def _of(point: Tried, which: NDArray[np.bool_]) -> Tried:
    if which.all():
        return point
    return Tried(point.theta[:, which], point.gradient[:, which], point.value[which], point.held[which])


def next_momentum(t: Array) -> Array:
    """Return Nesterov's t after t; 1 after 0."""
    return np.asarray(0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t)))
