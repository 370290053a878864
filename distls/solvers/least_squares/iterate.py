"""One accelerated iterate of Algorithm 1 (least squares revisited), and the state of a fit with one or more.

Algorithm 1 repeats W <- W - (L Sigma + alpha P)^-1 gradient (Eq. 14). Here a step starts from a base, which is
ahead of the last accepted weights by Nesterov's momentum; it is accepted or undone once the next read has the objective
at its end. Nothing is changed in place: every function returns a new `Iterate`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from distls.solvers.momentum import next_momentum
from distls.solvers.solver import State

Array = NDArray[np.float64]

# Differences of the objective below this share of it are rounding.
ROUNDING = 64 * float(np.finfo(np.float64).eps)


class Evaluated(NamedTuple):
    """Weights with their objective and gradient, from a read."""

    theta: Array  # shape (m, k): The constant column's weights first where there is an intercept
    gradient: Array
    value: float  # Of the objective
    # shape (2,): Sum of losses, and rows predicted wrong, of the fold that the fit leaves out
    held_out: Array


@dataclass(frozen=True, eq=False)
class Iterate:
    """An iterate of Algorithm 1 between two reads."""

    # The weights of lowest objective, W_t of Algorithm 1. The value is infinite before they are read
    best: Evaluated
    base: Evaluated  # The point from which the step at hand is taken
    candidate: Array  # shape (m, k): Where the step leads: W_{t+1}
    # shape (m, k) or None: Where the next step will be taken from, if not from the candidate
    ahead: Array | None
    bound: float  # What the objective at the candidate is at most, if L is large enough
    lipschitz: float  # L, what it need not be raised above, and Nesterov's t; 0 before the first read
    safe: float
    momentum: float
    accepted: int  # Steps taken; -1 before the start itself is read
    running: bool

    @classmethod
    def start(cls, theta: Array, lipschitz: float, safe: float) -> Self:
        """Start at weights whose objective is not known before the next read."""
        unknown = Evaluated(theta, np.zeros_like(theta), np.inf, np.zeros(2))
        return cls(unknown, unknown, theta, None, np.inf, lipschitz, safe, 0.0, -1, True)

    def accept(self, candidate: Evaluated, ahead: Evaluated | None, *, accelerated: bool) -> Self:
        """Accept the candidate; the next step starts from `ahead` if given, else from the candidate."""
        # Nesterov's t grows with every accepted step only.
        momentum = next_momentum(self.momentum) if accelerated else 1.0
        return replace(self, best=candidate, base=ahead or candidate, accepted=self.accepted + 1, momentum=momentum)

    def judge(self, candidate: Evaluated, ahead: Evaluated | None, *, accelerated: bool) -> tuple[Self, str]:
        """Accept or undo the step that led to the candidate; return the iterate and the outcome.

        accepted; rejected: L was too low; restarted: the momentum increased the objective and is dropped; rounding:
        without momentum no step helps any more.
        """
        # The objective is known up to rounding; below it a difference proves nothing.
        rounding = ROUNDING * abs(self.bound if np.isfinite(self.bound) else 0.0)
        # L Sigma + alpha P majorises the Hessian from `safe` on: below, an objective above the bound disproves L
        if self.lipschitz < self.safe and candidate.value > self.bound + rounding:
            return replace(self, lipschitz=min(2.0 * self.lipschitz, self.safe)), "rejected"
        # "not greater": a NaN passes here, and is the loop's to report.
        if not candidate.value > self.best.value:
            return self.accept(candidate, ahead, accelerated=accelerated), "accepted"
        # The step came from the best point itself: there is no momentum left to blame.
        if self.base.value == self.best.value:
            return replace(self, running=False), "rounding"
        # The function-value restart of O'Donoghue and Candes (2015).
        return replace(self, base=self.best, momentum=1.0), "restarted"

    def move(self, intercept: Array, lipschitz: float) -> Self:
        """Move the intercept (k,) alone, to values that are known to be better, with another L from there on."""
        candidate = self.base.theta.copy()
        candidate[0] = intercept
        return replace(self, candidate=candidate, ahead=None, bound=np.inf, lipschitz=lipschitz)

    def descend(self, step: Array, settled: float) -> Self:
        """Step from the base, or end there if the step cannot lower the objective noticeably."""
        # Half of gradient times step: the decrease of the quadratic model at its minimum.
        decrease = 0.5 * float(np.einsum("ik,ik->", self.base.gradient, step))
        if decrease > settled * abs(self.base.value):
            return replace(self, candidate=self.base.theta - step, ahead=None, bound=self.base.value - decrease)
        # The base has been read, and may be better than the last accepted point.
        best = self.base if self.base.value <= self.best.value else self.best
        return replace(self, best=best, running=False)

    def look_ahead(self) -> Self:
        """Return the iterate with the point from which the step after the candidate's is taken."""
        # (t_k - 1) / t_{k+1}, as in FISTA.
        weight = (self.momentum - 1.0) / next_momentum(self.momentum)
        return replace(self, ahead=self.candidate + weight * (self.candidate - self.best.theta))


def propose(iterates: Sequence[Iterate], steps: Sequence[Array], settled: float = ROUNDING) -> list[Iterate]:
    """Return the iterates after their next step; those whose step cannot lower the objective any more have ended.

    Each step, shape (m, k), is (L Sigma + alpha P)^-1 times the gradient at the base. An iterate ends when the decrease
    is at most the share `settled` of the objective.
    """
    moved = [iterate.descend(step, settled) for iterate, step in zip(iterates, steps, strict=True)]
    # all points are columns of the products of the next read, so every iterate looks ahead or none does
    if not any(iterate.running and iterate.momentum > 1.0 for iterate in moved):
        return moved
    return [iterate.look_ahead() if iterate.running else iterate for iterate in moved]


@dataclass
class GlsState(State):
    """State of the iteration between two rounds.

    Its arrays determine the next read: without a basis Sigma, with a basis but no Gram matrix Sigma in that basis, with
    both the objective at the points of the iterates.
    """

    # One; in the search along a path one for each fold and alpha
    # (`distls.solvers.least_squares.alpha_grid.Grid`)
    iterates: list[Iterate] = field(default_factory=list)
    alpha: float = 0.0  # With a path the best so far
    alphas: Array = field(default_factory=lambda: np.empty(0))  # shape (n_alphas,): Of a path
    # Of the metric; see `distls.solvers.least_squares.metric.Metric`. In the search the
    # latter is Sigma
    basis: Array = field(default_factory=lambda: np.empty((0, 0)))
    gram: Array = field(default_factory=lambda: np.empty((0, 0)))
    path: list[dict[str, float]] = field(default_factory=list)  # Each alpha's judgement
    notes: list[str] = field(default_factory=list)

    @property
    def running(self) -> list[int]:
        """Numbers of the iterates that have not ended."""
        return [number for number, iterate in enumerate(self.iterates) if iterate.running]

    def split(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """See `State.split`; the iterates are side by side in arrays."""
        scalars, arrays = super().split()
        return scalars, arrays | _stacked(scalars.pop("iterates"))

    @classmethod
    def join(cls, scalars: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        own = {name: array for name, array in arrays.items() if name not in _STACKED}
        return super().join(scalars | {"iterates": _unstacked(arrays)}, own)


_STACKED = (
    "best",
    "best_gradient",
    "best_value",
    "best_held",
    "base",
    "base_gradient",
    "base_value",
    "base_held",
    "candidate",
    "ahead",
    "bound",
    "lipschitz",
    "safe",
    "momentum",
    "accepted",
    "running",
)


def _stacked(iterates: list[Iterate]) -> dict[str, NDArray[Any]]:
    """Return arrays of p iterates: weights and gradients (m, p, k), numbers (p,), judgements (p, 2)."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, points in (("best", [i.best for i in iterates]), ("base", [i.base for i in iterates])):
        arrays[name] = np.stack([point.theta for point in points], axis=1)
        arrays[f"{name}_gradient"] = np.stack([point.gradient for point in points], axis=1)
        arrays[f"{name}_value"] = np.array([point.value for point in points])
        arrays[f"{name}_held"] = np.array([point.held_out for point in points])
    # Arrays need every iterate to have a point ahead; for those without one the candidate stands in.
    ahead = [i.candidate if i.ahead is None else i.ahead for i in iterates]
    leads = any(i.running and i.ahead is not None for i in iterates)
    arrays["candidate"] = np.stack([i.candidate for i in iterates], axis=1)
    arrays["ahead"] = np.stack(ahead, axis=1) if leads else np.empty((0, 0, 0))
    for name in ("bound", "lipschitz", "safe", "momentum", "accepted", "running"):
        arrays[name] = np.array([getattr(i, name) for i in iterates])
    return arrays


def _unstacked(arrays: dict[str, NDArray[Any]]) -> list[Iterate]:
    p = len(arrays["running"])
    best, base = _evaluated_points(arrays, "best", p), _evaluated_points(arrays, "base", p)
    candidates = _columns(arrays["candidate"], p)
    ahead: list[Any] = _columns(arrays["ahead"], p) if arrays["ahead"].size else [None] * p
    names = "bound", "lipschitz", "safe", "momentum", "accepted", "running"
    numbers = zip(*(arrays[name].tolist() for name in names), strict=True)
    points = zip(best, base, candidates, ahead, strict=True)
    return [Iterate(*four, *own) for four, own in zip(points, numbers, strict=True)]


def _evaluated_points(arrays: dict[str, NDArray[Any]], name: str, p: int) -> list[Evaluated]:
    thetas, gradients = _columns(arrays[name], p), _columns(arrays[f"{name}_gradient"], p)
    values, held_out = arrays[f"{name}_value"].tolist(), _columns(arrays[f"{name}_held"].T, p)
    return [Evaluated(thetas[n], gradients[n], float(values[n]), held_out[n]) for n in range(p)]


def _columns(array: NDArray[Any], p: int) -> list[NDArray[Any]]:
    """Return p matrices that are side by side, each in memory of its own."""
    return [np.ascontiguousarray(array[:, n]) for n in range(p)]
