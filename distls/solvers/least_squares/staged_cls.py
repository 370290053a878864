"""Stagewise regression with Algorithm 2 on each block of features (`inner=cls`), and the choice of a solver.

The rounds of a stage alternate residual fits on its block with calibrations of all predictions so far, as those of
`distls.solvers.least_squares.cls` do on one block; a stage starts from the predictions that the one before has left.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.problem import Problem
from distls.solvers.features import generator_parameters, generators
from distls.solvers.features.fitted_designs import OneBlock, StageBlocks
from distls.solvers.least_squares.cls import Cls, ClsState
from distls.solvers.least_squares.stagewise import Stagewise
from distls.solvers.least_squares.stagewise_parameters import ALGORITHM_2, with_defaults
from distls.solvers.solver import Fitted, RoundReport
from distls.solvers.status import Status
from distls.storage.errors import ParameterError
from distls.storage.model.model import LinearModel
from distls.workers.features.design import Design
from distls.workers.features.design_recipe import recipe_of
from distls.workers.least_squares.calibrated_task import ResidualFit
from distls.workers.prediction.predictor import LinearPredictor

Numbers = NDArray[np.int64]


def stagewise_regression(
    problem: Problem,
    params: dict[str, Any],  # all parameters of the method, resolved
    *,
    slots: int = 1,  # worker threads, for the plan only
    memory: MemoryBudget | None = None,
    initial: LinearModel | None = None,
    state: str | None = None,  # folder of the predictions; without one there is a plan, but no training
) -> Stagewise | StagedCls:
    """Return the solver of a setting of `stagewise`; see `SolverFactory`."""
    if params["inner"] != ALGORITHM_2:
        return Stagewise(problem, params, slots=slots, memory=memory, initial=initial, state=state)
    chosen = with_defaults(params, problem.shape[0])
    if problem.target == "continuous":
        raise ParameterError(
            f"inner={ALGORITHM_2}: {problem.dataset.path} has continuous targets; they need inner=linear or "
            "inner=calibrated"
        )
    chosen["rounds"] = chosen["stages"] * chosen["inner_rounds"]
    return StagedCls(problem, chosen, slots=slots, memory=memory, state=state)


def _no_columns() -> Numbers:
    return np.empty(0, np.int64)


@dataclass
class StagedClsState(ClsState):
    """State between two rounds; `fits` of a smaller block have rows of zeros at their end."""

    orders: int = 0  # orders made of the original features
    order: Numbers = field(
        default_factory=_no_columns
    )  # shape (n_features,), or of one block: the newest of them
    widths: Numbers = field(default_factory=_no_columns)  # shape (stages begun,): features of each block
    # shape (sum of widths,): original features of all blocks; empty for random ones
    columns: Numbers = field(default_factory=_no_columns)


class StagedCls(Cls):
    """The solver of `stagewise` with `inner=cls`; see `SolverFactory`."""

    state_type = StagedClsState
    method = "stagewise"

    def __init__(self, problem: Problem, params: dict[str, Any], **options: Any) -> None:
        self._metric_stage = -1
        super().__init__(problem, params, **options)
        own = StageBlocks(params, problem)
        reads = 2.0 * params["rounds"] + own.reads + own.order_reads
        self.plan = replace(self.plan, passes=reads)
        self._original = params["features"] in generator_parameters.ORIGINAL
        self._ranked = params["features"] in generator_parameters.RANKED
        by_block = params["features"] == generator_parameters.BLOCK_GRADIENT
        per_pass = generator_parameters.stages_per_pass(params, problem.shape[0])
        # stages that take their features from one order
        self._per_order = 1 if by_block else per_pass

    def _features(self) -> OneBlock:
        return StageBlocks(self.params, self.problem)

    def init(self) -> StagedClsState:
        """Return the state without stages: all predictions are zero."""
        first = super().init()
        return StagedClsState(fits=first.fits, intercepts=first.intercepts, calibrations=first.calibrations)

    def step(self, state: ClsState, executor: Executor) -> tuple[ClsState, RoundReport]:
        """Do one round of Algorithm 2 on the block of its stage, or rank the original features for that block."""
        state = state if state.recipe else self._prepared(state, executor)
        assert isinstance(state, StagedClsState)
        stage = self._stage(state.fitted)
        # The first round of a stage: its block is chosen now.
        if stage == len(state.widths):
            # A pass over the original features is used up, or each block has its own order.
            if self._original and state.orders * self._per_order <= stage:
                if self._ranked:
                    return self._rank(state, executor)
                state = self._ordered(state, executor)
            state = self._begun(state, stage)
        # Another block has another Gram matrix; the one at hand is of the stage before.
        if self._metric_stage != stage:
            self._metric, self._metric_stage = None, stage
        return super().step(state, executor)

    def _stage(self, number: int) -> int:
        """Return the stage of the round of that number."""
        return number // int(self.params["inner_rounds"])

    def _ordered(self, state: StagedClsState, executor: Executor) -> StagedClsState:
        """Return the state with an order that takes no round: drawn, or by the number of rows with a feature."""
        # Frequencies do not change: the next pass takes the same order.
        if self.params["features"] in generator_parameters.COUNTED and state.orders:
            return replace(state, orders=state.orders + 1)
        order = generators.column_order(self.params, self._reader, executor, self.problem.seed, state.orders)
        reads = float(self.params["features"] in generator_parameters.COUNTED)
        return replace(state, order=order, orders=state.orders + 1, passes=state.passes + reads)

    def _rank(self, state: StagedClsState, executor: Executor) -> tuple[ClsState, RoundReport]:
        """Order the original features by the gradient at the predictions so far."""
        summed = self._summed(Design(n_features=self.problem.shape[0]), state.fitted, with_gram=False)
        task = ResidualFit(summed, self.basis, self.onto)
        before = state.calibrations[-1] if state.fitted else None
        rebuild = partial(self._rebuild, state, executor)
        sums = self._reader.reduce(executor, task, before, rebuild=rebuild)
        # Row norms of the gradient say which features would reduce the error most at first (appendix A.2.2).
        order = generators.gradient_order(sums.folds[0].cross)
        if self._per_order == 1:
            # an order of one block: the stages after it have their own
            order = order[: self._block.width]
        following = replace(
            state, round=state.round + 1, passes=state.passes + 1.0, order=order, orders=state.orders + 1
        )
        return following, self._reader.report(sums)

    def _begun(self, state: StagedClsState, stage: int) -> StagedClsState:
        """Return the state with the block of one more stage."""
        design = generators.design_at(state.design, stage, state.order)
        # Kept for all stages: predictions are recomputed, and the model made, from them.
        columns = state.columns if design.columns is None else np.append(state.columns, design.columns)
        width = design.width(self.problem.shape[0])
        return replace(state, widths=np.append(state.widths, width), columns=columns)

    def _design(self, state: ClsState, number: int) -> Design:
        assert isinstance(state, StagedClsState)
        stage = self._stage(number)
        if not self._original:
            return generators.design_at(state.design, stage, _no_columns())
        first, width = int(state.widths[:stage].sum()), int(state.widths[stage])
        columns = state.columns[first : first + width]
        return replace(state.design, stage=stage, size=width, columns=columns)

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
        if self._original:
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
