"""The steps of FISTA and SpaRSA between two reads; nothing is changed in place: each function returns a new state.

FISTA is that of Beck and Teboulle (2009), SpaRSA that of Wright, Nowak and Figueiredo (2009).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.problem import Problem
from distls.solvers.momentum import next_momentum
from distls.solvers.solver import State
from distls.workers.penalties.penalty_registry import prox_rows

Array = NDArray[np.float64]

# An array that stands for none in a state.
NONE = np.empty((0, 0))
# The slack avoids a rejected step, which costs a read, after each small rise of the curvature.
# L is the curvature along a step times the slack; a step lowers it at most by the second factor.
_SLACK, _DOWN = 1.5, 0.8
# Differences of the objective below this many roundings of it are noise.
_ROUNDINGS = 64.0
# How far steps move weights that have diverged.
_FAR = 1e100
# SpaRSA's sufficient decrease.
_SIGMA = 0.01
_LEAST = 1e-8  # of its bound that SpaRSA's L may be


class Read(NamedTuple):
    """Result of a read: mean loss at the candidate, mean loss and gradient at the point ahead of it.

    Without such a point these are the candidate's own.
    """

    candidate: float
    value: float
    gradient: Array


@dataclass
class ProximalState(State):
    """Everything a round starts from. Weights are of shape (m, k), the intercept first where there is one."""

    stage: str = "start"  # What the next round reads
    point: Array = field(default_factory=NONE.copy)  # shape (m, k): The last accepted weights
    # shape (m, k): Where the step at hand is taken from, and the gradient of the mean loss there
    base: Array = field(default_factory=NONE.copy)
    gradient: Array = field(default_factory=NONE.copy)
    value: float = 0.0  # The mean loss at the base
    candidate: Array = field(default_factory=NONE.copy)  # shape (m, k): Where the step leads
    # shape (m, k) or (0, 0): Where the next step will be taken from, if not from the candidate
    ahead: Array = field(default_factory=NONE.copy)
    lipschitz: float = 1.0  # L, and Nesterov's t
    momentum: float = 1.0
    # shape (n,): Of the last accepted weights, the newest last
    objectives: Array = field(default_factory=lambda: np.empty(0))
    # L times how far the step at hand moves rows of weights, summed; that of the first step; and the last
    # accepted one's by it, None before
    moved: float = 0.0
    first: float = 0.0
    ratio: float | None = None
    bound: float = 0.0  # Of the optimum, the best from gradients that were read; no loss is negative
    # shape (1 + n_features, n_classes) or (0, 0): The mean over all rows of (1, x), of each class's rows alone, where
    # a free intercept has a bound
    class_rows: Array = field(default_factory=NONE.copy)
    # shape (m, q): An orthonormal basis in the iteration for the norm of Sigma
    vectors: Array = field(default_factory=NONE.copy)


class ProximalSteps(ABC):
    """Accepts or rejects a step after a read, and proposes the next; FISTA and SpaRSA differ in three methods.

    No step is rejected at L = `safe`, a bound of it; with `constant`, L never changes; `history` objectives are kept;
    `printed`: by the rules of the papers to the letter.
    """

    def __init__(self, problem: Problem, *, safe: float, constant: bool, history: int, printed: bool = False) -> None:
        self._printed = printed
        self._problem, self._safe, self._constant, self._history = problem, safe, constant, history
        self._first = int(problem.fit_intercept)
        self._rounding = _ROUNDINGS * float(np.finfo(problem.dtype).eps)

    def advance(self, state: ProximalState, read: Read) -> tuple[ProximalState, str]:
        """Judge the candidate, then propose the next one; return the outcome of the judgement too."""
        objective = read.candidate + self._penalty(state.candidate)
        if state.stage == "start":
            state = self._propose(self._taken(replace(state, stage="steps"), read, objective))
            return replace(state, first=state.moved), "start"
        state, outcome = self._judged(state, read, objective)
        return self._propose(state), outcome

    def _judged(self, state: ProximalState, read: Read, objective: float) -> tuple[ProximalState, str]:
        """Take the candidate, or raise L."""
        curvature = self._curvature(state, read)
        if not self._constant and state.lipschitz < self._safe and not self._accepts(state, curvature, objective):
            # Twice L at the least: each rejection costs a read, so L must not creep up.
            seen = 0.0 if self._printed else _SLACK * curvature
            raised = min(max(seen, 2.0 * state.lipschitz), self._safe)
            return replace(state, lipschitz=raised), "rejected"
        state = replace(state, ratio=state.moved / state.first if state.first > 0.0 else 0.0)
        state, outcome = self._followed(state, read, curvature)
        return self._taken(state, read, objective), outcome

    def _curvature(self, state: ProximalState, read: Read) -> float:
        """Return the least L that would have done for the step; L itself where that is lost in rounding."""
        step = state.candidate - state.base
        square = float(np.vdot(step, step))
        # The quadratic model is exact in the gradient term; what the loss adds above it is the curvature seen.
        over = read.candidate - state.value - float(np.vdot(state.gradient, step))
        # The difference of two losses has lost all digits here: dividing it by a tiny square would give a random L.
        if not square * state.lipschitz > 2.0 * self._rounding * abs(state.value):
            return state.lipschitz
        return 2.0 * over / square

    def _taken(self, state: ProximalState, read: Read, objective: float) -> ProximalState:
        return replace(
            state,
            point=state.candidate,
            # The gradient that was read is at the point ahead, so the next step is taken from there.
            base=state.ahead if state.ahead.size else state.candidate,
            value=read.value,
            gradient=read.gradient,
            objectives=np.append(state.objectives, objective)[-self._history :],
        )

    def _propose(self, state: ProximalState) -> ProximalState:
        """Step from the base, and look ahead from where that leads."""
        # The proximal step of L: argmin of the linearized loss plus L/2 of the squared distance plus the penalty.
        candidate = self._prox(state.base - state.gradient / state.lipschitz, state.lipschitz)
        step = candidate - state.base
        # The sum of row norms, as in Eq. 9 and 10 of the BCD paper: a column counts once, whatever its outputs.
        moved = state.lipschitz * float(np.sqrt(np.square(step).sum(axis=1)).sum())
        state = replace(state, candidate=candidate, moved=moved)
        state = replace(state, ahead=self._look_ahead(state))
        return state if moved < _FAR else diverged(state)

    def _penalty(self, theta: Array) -> float:
        return self._problem.alpha * self._problem.penalty_of(theta[self._first :])

    def _prox(self, theta: Array, lipschitz: float) -> Array:
        out, problem = theta.copy(), self._problem
        # The prox of the penalty at strength alpha / L; the intercept is not penalised.
        out[self._first :] = prox_rows(
            problem.penalty, theta[self._first :], problem.alpha / lipschitz, problem.l1_ratio
        )
        return out

    @abstractmethod
    def _accepts(self, state: ProximalState, curvature: float, objective: float) -> bool:
        """Whether the candidate is good enough to be taken."""

    @abstractmethod
    def _followed(self, state: ProximalState, read: Read, curvature: float) -> tuple[ProximalState, str]:
        """Return L and the momentum after an accepted candidate, and the outcome."""

    def _look_ahead(self, state: ProximalState) -> Array:
        """Return the point from which the step after the candidate's is taken, (0, 0) where it is that."""
        return NONE.copy()


class FistaSteps(ProximalSteps):
    """Nesterov's steps, restarted where the momentum points away from the last one."""

    def _accepts(self, state: ProximalState, curvature: float, objective: float) -> bool:
        return curvature <= state.lipschitz

    def _followed(self, state: ProximalState, read: Read, curvature: float) -> tuple[ProximalState, str]:
        lipschitz = state.lipschitz
        if not (self._constant or self._printed):
            # L may fall slowly only: FISTA's rate needs it not to decrease, and a rejected step costs a read.
            lipschitz = max(_DOWN * lipschitz, min(lipschitz, _SLACK * curvature))
        # No point ahead was proposed although momentum had built up: the momentum was dropped.
        restarted = state.momentum > 1.0 and not state.ahead.size
        momentum = next_momentum(state.momentum if state.ahead.size else 1.0)
        return replace(state, lipschitz=lipschitz, momentum=momentum), "restarted" if restarted else "accepted"

    def _look_ahead(self, state: ProximalState) -> Array:
        """Return the point from which the next step is taken; the candidate where momentum would lead back."""
        change = state.candidate - state.point
        weight = (state.momentum - 1.0) / next_momentum(state.momentum)
        # Gradient-based restart (O'Donoghue and Candes 2015): the momentum points against the step just proposed.
        against = float(np.vdot(state.base - state.candidate, change)) > 0.0 and not self._printed
        if weight == 0.0 or against:
            return NONE.copy()
        return state.candidate + weight * change


class SparsaSteps(ProximalSteps):
    """L from the last step (Barzilai and Borwein), no monotone descent asked for."""

    def _accepts(self, state: ProximalState, curvature: float, objective: float) -> bool:
        step = state.candidate - state.base
        # The largest of the last objectives, not the newest: nonmonotone descent, as SpaRSA asks for.
        worst = float(state.objectives.max())
        least = 0.5 * _SIGMA * state.lipschitz * float(np.vdot(step, step))
        return objective <= worst - least + self._rounding * abs(worst)

    def _followed(self, state: ProximalState, read: Read, curvature: float) -> tuple[ProximalState, str]:
        step = state.candidate - state.base
        square = float(np.vdot(step, step))
        if not square > 0.0:
            return state, "accepted"
        # The Barzilai-Borwein value: the curvature along the last step.
        seen = float(np.vdot(step, read.gradient - state.gradient)) / square
        least, most = (1e-30, 1e30) if self._printed else (_LEAST * self._safe, self._safe)
        return replace(state, lipschitz=min(max(seen, least), most)), "accepted"


def diverged(state: ProximalState) -> ProximalState:
    """Return what `status` looks for; numbers that are not finite have no place in a checkpoint."""
    return replace(state, candidate=np.full_like(state.candidate, np.nan))
