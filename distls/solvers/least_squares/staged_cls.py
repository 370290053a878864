"""Stagewise regression with Algorithm 2 on each block of features (`inner=cls`), and the choice of a solver.

The rounds of a stage alternate residual fits on its block with calibrations of all predictions so far, as those of
`distls.solvers.least_squares.cls` do on one block; a stage starts from the predictions that the one before has left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.methods.method import Params
from distls.problem import Problem
from distls.solvers.features import generators
from distls.solvers.features.fitted_designs import OneBlock, StageBlocks, StagedState
from distls.solvers.least_squares.cls import Cls, ClsState
from distls.solvers.least_squares.stagewise import ALGORITHM_2, Stagewise, with_defaults
from distls.solvers.solver import Fitted, RoundReport
from distls.solvers.status import Status
from distls.storage.errors import ParameterError
from distls.workers.features.design import Design
from distls.workers.features.design_recipe import recipe_of
from distls.workers.least_squares.calibrated_task import ResidualFit
from distls.workers.prediction.predictor import LinearPredictor


def stagewise_regression(problem: Problem, params: Params, **given: Any) -> Stagewise | StagedCls:
    """Return the solver of a setting of `stagewise`."""
    if params["inner"] != ALGORITHM_2:
        return Stagewise(problem, params, **given)
    chosen = with_defaults(params, problem.shape[0])
    if problem.target == "continuous":
        raise ParameterError(
            f"inner={ALGORITHM_2}: {problem.dataset.path} has continuous targets; they need inner=linear or "
            "inner=calibrated"
        )
    chosen["rounds"] = chosen["stages"] * chosen["inner_rounds"]
    return StagedCls(problem, chosen, **given)


@dataclass
class StagedClsState(StagedState, ClsState):
    """State between two rounds; `fits` of a smaller block have rows of zeros at their end."""


class StagedCls(Cls):
    """The solver of `stagewise` with `inner=cls`."""

    state_type = StagedClsState
    method = "stagewise"

    def __init__(self, problem: Problem, params: Params, **given: Any) -> None:
        self._metric_stage = -1
        super().__init__(problem, params, **given)
        reads = 2.0 * params["rounds"] + self._stages.reads + self._stages.order_reads
        self.plan = replace(self.plan, passes=reads)

    def _features(self) -> OneBlock:
        self._stages = StageBlocks(self.params, self.problem)
        return self._stages

    def init(self) -> StagedClsState:
        """Return the state without stages: all predictions are zero."""
        first = super().init()
        return StagedClsState(fits=first.fits, intercepts=first.intercepts, calibrations=first.calibrations)

    def step(self, state: ClsState, executor: Executor) -> tuple[ClsState, RoundReport]:
        """Do one round of Algorithm 2 on the block of its stage, or rank the original features for that block."""
        state = state if state.recipe else self._stages.prepared(state, self._reader, executor)
        assert isinstance(state, StagedClsState)
        stage = self._stage(state.fitted)
        # The first round of a stage: its block is chosen now.
        if stage == len(state.widths):
            if self._stages.is_used_up(state, stage):
                if self._stages.ranked:
                    return self._rank(state, executor)
                state = self._stages.ordered(state, self._reader, executor)
            design = generators.design_at(state.design, stage, state.order)
            state = state.with_stage(design, design.width(self.problem.shape[0]))
        # Another block has another Gram matrix; the one at hand is of the stage before.
        if self._metric_stage != stage:
            self._metric, self._metric_stage = None, stage
        return super().step(state, executor)

    def _stage(self, number: int) -> int:
        return number // int(self.params["inner_rounds"])

    def _rank(self, state: StagedClsState, executor: Executor) -> tuple[ClsState, RoundReport]:
        """Order the original features by the gradient at the predictions so far."""
        summed = self._summed(Design(n_features=self.problem.shape[0]), state.fitted, with_gram=False)
        task = ResidualFit(summed, self.basis, self.onto)
        before = state.calibrations[-1] if state.fitted else None
        rebuild = partial(self._rebuild, state, executor)
        sums = self._reader.reduce(executor, task, before, rebuild=rebuild)
        # Row norms of the gradient say which features would reduce the error most at first (appendix A.2.2).
        order = self._stages.ranking(sums.folds[0].cross)
        following = replace(
            state, round=state.round + 1, passes=state.passes + 1.0, order=order, orders=state.orders + 1
        )
        return following, self._reader.report(sums)

    def _design(self, state: ClsState, number: int) -> Design:
        assert isinstance(state, StagedClsState)
        return state.design_of(self._stage(number))

    def status(self, state: ClsState) -> Status:
        """Return CONVERGED after all stages, DIVERGED if the error is not finite."""
        if state.fitted and state.last is None:
            return Status.DIVERGED
        return Status.CONVERGED if state.fitted >= self.params["rounds"] else Status.RUNNING

    def weights(self, state: ClsState) -> Fitted:
        """Return the predictor of all stages: blocks of rows, a round's fit on each as columns."""
        assert isinstance(state, StagedClsState)
        k, rounds = self.problem.shape[1], int(self.params["inner_rounds"])
        stages = -(-state.fitted // rounds)
        recipe: dict[str, Any] = {
            # Every round has its own calibration, which mixes the columns of all stages before it.
            "n_features": self.problem.shape[0],
            "calibration": {**self.basis.recipe(), "onto": self.onto, "stage_rounds": rounds},
        }
        arrays: dict[str, NDArray[Any]] = {
            "calibration": state.calibrations, "intercepts": state.intercepts
        }  # fmt: skip
        if state.recipe:
            recipe["features"], own = recipe_of(state.design, stages)
            arrays |= own
        if self._stages.original:
            total = int(state.widths[:stages].sum())
            arrays |= {"columns": state.columns[:total], "widths": state.widths[:stages]}
        coefficients = np.concatenate(
            [np.empty((0, rounds * k), self.problem.dtype)]
            + [self._side_by_side(state, stage) for stage in range(stages)]
        )
        return Fitted(LinearPredictor(coefficients, np.zeros(rounds * k), recipe, arrays))

    def _side_by_side(self, state: StagedClsState, stage: int) -> NDArray[Any]:
        """Return the fits of a stage's rounds, shape (width, rounds * k); zeros for rounds that are not done."""
        rounds, k, width = int(self.params["inner_rounds"]), self.problem.shape[1], int(state.widths[stage])
        out = np.zeros((width, rounds, k), self.problem.dtype)
        done = state.fits[stage * rounds : (stage + 1) * rounds, :width]
        # A model of an interrupted stage has zero columns for its missing rounds.
        out[:, : len(done)] = done.transpose(1, 0, 2)
        return out.reshape(width, rounds * k)
