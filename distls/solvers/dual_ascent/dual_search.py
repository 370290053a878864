"""A search for a lower bound of the optimum by dual ascent, from the weights of a fit by any method.

The gradient at the weights gives a bound that is of no use where alpha is small, and for hinges does not vanish at the
optimum (docs/decisions/0028). A fit with a tolerance asks for a better one: `sdca` starts from its weights, and its
dual point bounds the optimum of every fit of the problem. The weights of the fit stay as they are.

The ascent is SDCA (Shalev-Shwartz and Zhang 2013). What it lacks, such as the l1 norm, is left to working sets
(docs/decisions/0022).
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.methods.method_registry import METHODS
from distls.problem import Problem
from distls.request import Request
from distls.solvers.block_reads import BlockReader
from distls.solvers.coordinate_descent.near_search import NearSearch
from distls.solvers.dual_ascent.sdca import Sdca
from distls.solvers.dual_ascent.sdca_state import SdcaState
from distls.solvers.loop import Progress, largest_certificate
from distls.solvers.solver import Fitted
from distls.solvers.status import Status
from distls.storage.errors import MemoryPlanError, ParameterError
from distls.storage.filesystem.atomic import remove_tree
from distls.storage.filesystem.paths import Place
from distls.workers.losses.loss_registry import lacks
from distls.workers.penalties.penalty_registry import penalties_with
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.task import Needs

_MOST_PASSES = 50  # of one search
# What one of them costs, in passes of the fit, of which some change few weights a row: as a read for a certificate.
_PASS = 2.0
_FIRST_PASSES = 8.0  # what a first one is expected to take
# The gap of the search's own weights, as a part of the tolerance: what is left of it is the fit's own excess.
_GOAL = 0.5
# Most MiB of columns, and of scores, that working sets hold.
_ACTIVE_MIB = 128

Proof = Callable[[Fitted], dict[str, Any]]  # objective and certificate of a dual point, in one read


class DualSearch:
    """Bounds the optimum so well that the certificate of a fit meets its tolerance as soon as its weights do.

    What it knows is in the fit's progress, so that a resumed fit searches, and ends, as one that was not disturbed.
    """

    def __init__(
        self,
        problem: Problem,
        limits: Request[Any],
        progress: Progress,
        folder: Place,  # for the duals while it searches
        *,
        slots: int,
        memory: MemoryBudget | None,
    ) -> None:
        self._problem, self._limits, self._folder = problem, limits, folder
        self._slots, self._memory = slots, memory
        self._bound = -math.inf if progress.bound is None else progress.bound
        self.reached = progress.reached  # the lowest objective of the search's weights, None without any
        self._sets = None
        if _is_by_sets(problem):
            self._sets = NearSearch.of(problem, _ACTIVE_MIB, str(folder))

    @property
    def first_passes(self) -> float:
        """What a first search is expected to take, in passes of the fit."""
        return _FIRST_PASSES if self._sets is None else self._sets.round_passes

    def __call__(
        self, fitted: Fitted, objective: float, bound: float, executor: Executor, data: DatasetRef, prove: Proof
    ) -> tuple[float, int, float, float | None]:
        """Return a lower bound of the optimum, at least `bound`, bytes read and passes for it, and `reached`."""
        # Bounds from any dual point of the same problem hold for every primal point, so the best one is kept.
        self._bound = max(self._bound, bound)
        goal = largest_certificate(self._limits, objective)
        # no bound helps a fit that is further from the optimum than its tolerance
        far = self.reached is not None and objective - self.reached > goal
        near = objective - self._bound <= goal
        if self._sets is not None:
            # The bound of the weights' own gradient is of the first order: one that is near is looked for once.
            near = near and self.reached is not None
        if near or far or fitted.search_passes < (_PASS if self._sets is None else self.first_passes):
            return self._bound, 0, 0.0, self.reached
        try:
            if self._sets is not None:
                read, passes = self._work_on_sets(self._sets, fitted, _GOAL * goal, data, executor)
            elif (solver := self._solver(data)) is not None:
                read, passes = self._search(solver, fitted, objective, executor, prove)
            else:
                read, passes = 0, 0.0
        finally:
            # Removed on any exit: duals of a search are of no use to a later one, which starts from other weights.
            remove_tree(self._folder)
        return self._bound, read, passes, self.reached

    def _solver(self, data: DatasetRef) -> Sdca | None:
        """Return the solver, None where it has not the loss or penalty, or not the memory."""
        problem, method = self._problem, METHODS["sdca"]
        # Not as a parameter: the binary form of a loss is one of a problem alone.
        if lacks(problem.loss, dual=True) or not problem.alpha > 0.0:
            return None
        try:
            given = {"penalty": problem.penalty, "alpha": problem.alpha, "dtype": problem.dtype.name}
            given["start"] = "zero"  # it goes on from the fit's own weights
            params = {**method.resolve(given), "loss": problem.loss}
            state = str(self._folder)
            solver = Sdca(problem, params, slots=self._slots, memory=self._memory, state=state)
        except (ParameterError, MemoryPlanError):
            return None
        # the fit and the search share what workers keep
        # Otherwise the two together would hold more decoded partitions than was planned.
        cached = min(solver.data.cache_bytes, data.cache_bytes)
        solver.data = replace(solver.data, cache_bytes=cached)
        return solver

    def _work_on_sets(
        self, sets: NearSearch, start: Fitted, goal: float, data: DatasetRef, executor: Executor
    ) -> tuple[int, float]:
        """Look for the bound by working sets, if there is memory; return the bytes read, and the passes."""
        problem, memory = self._problem, self._memory or MemoryBudget(workers=self._slots)
        one = 8 * problem.shape[0] * problem.shape[1]
        try:
            needs = Needs(one, one, sets.work_bytes)
            alone = sets.descent_bytes
            planned = BlockReader(problem, lanes=None, needs=needs, alone_bytes=alone, memory=memory).data
        except MemoryPlanError:
            return 0, 0.0
        data = replace(data, cache_bytes=min(planned.cache_bytes, data.cache_bytes))
        own = start.predictor.coefficients, start.predictor.intercept
        bound, read, passes = sets.nearer(*own, data, start.search_passes, executor, goal)
        self._bound = max(self._bound, bound or -math.inf)
        self.reached = sets.reached if self.reached is None else min(sets.reached, self.reached)
        return read, passes

    def _search(
        self, solver: Sdca, start: Fitted, objective: float, executor: Executor, prove: Proof
    ) -> tuple[int, float]:
        """Ascend until the gap is small against the tolerance; return the bytes read, and the passes."""
        most = min(start.search_passes / _PASS, _MOST_PASSES)
        remove_tree(self._folder)  # of a search that was killed
        solver.prepare(executor)
        goal = largest_certificate(self._limits, objective)
        state, read, target = solver.near(start.predictor, executor), 0, _GOAL * goal
        while True:
            state, own = _ascended(solver, state, executor, target, most)
            if solver.status(state) == Status.DIVERGED:
                return read + own, _PASS * state.passes
            fitted = solver.weights(state)
            found = prove(fitted)
            read += own + int(found["eval_bytes_read"])
            value, gap = found["objective"], found["certificate"]["value"]
            # Weak duality: value minus gap is the value of the dual point, whatever weights it was proven with.
            self._bound = max(self._bound, value - gap)
            self.reached = value if self.reached is None else min(value, self.reached)
            met = gap <= _GOAL * goal or objective - self._bound <= goal
            if met or state.passes >= most:
                return read, _PASS * state.passes
            target *= 0.5  # a round's estimate is of rows at different times


def _is_by_sets(problem: Problem) -> bool:
    """Return whether a problem is one of working sets, and none of dual ascent."""
    dual = problem.penalty in penalties_with(dual=True) and not lacks(problem.loss, dual=True)
    sparse = not problem.penalty_is_quadratic and not lacks(problem.loss, coordinate_descent=True)
    return sparse and not dual


def _ascended(solver: Sdca, state: SdcaState, executor: Executor, target: float, most: float) -> tuple[SdcaState, int]:
    """Return the state after whole passes, once the gap seems to be at most `target`, and the bytes read."""
    read = 0
    while True:
        state, report = solver.step(state, executor)
        read += report.bytes_read
        estimate = report.gap_estimate
        ended = solver.status(state) != Status.RUNNING or state.passes >= most
        # A point between two parts of a pass has rows that were not visited since the last change of the spread.
        if state.part == 0 and (ended or (estimate is not None and estimate <= target)):
            return state, read
