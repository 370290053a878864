"""Stagewise regression (Algorithm 3 of least squares revisited): residuals fitted by one block of features a stage.

The predictions of every row are kept in RUN/state. A round reads the data once: it adds the block of the stage
before to the predictions, recomputing its features, and sums the statistics of the current block. The predictions can
be lost at any time, because the state holds the weights of all stages and replays them.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.methods.method import Params
from distls.problem import Problem
from distls.solvers.block_reads import BlockReader
from distls.solvers.features import generator_parameters, generators
from distls.solvers.features.fitted_designs import StageBlocks
from distls.solvers.least_squares.metric import Metric, second_moments
from distls.solvers.least_squares.stagewise_state import StagewiseState, append_block, assemble, base_of, block_of
from distls.solvers.solver import Fitted, RoundReport, Solver, evaluation_tasks
from distls.solvers.status import Status
from distls.solvers.warm_start import check_initial
from distls.storage.errors import ParameterError
from distls.workers.features.design import Design
from distls.workers.least_squares.block_task import Block, BlockSums, BlockTask, Moments, ReplayTask, moment_bytes
from distls.workers.linear_algebra.gram import gram_work_bytes
from distls.workers.losses.loss_registry import loss_named, losses_by
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.task import Call, Needs
from distls.workers.runtime.process import single_threaded_blas

Array = NDArray[np.float64]

# Orders of the original features, and what the generator of blocks calls them.
ORDERS = {
    "random": "columns",
    "replacement": "columns-replaced",
    "frequency": generator_parameters.FREQUENCY,
    "rareness": generator_parameters.RARENESS,
    "gradient": "gradient",
    "block-gradient": generator_parameters.BLOCK_GRADIENT,
}
ALGORITHM_2 = "cls"
_STEPS, _INNER_ROUNDS = 50, 3
_BASIS = "1+2+3"
_RANDOM_STAGES = 16

# In the driver: the weights of all stages before and after a round and in the model, with the copy that is saved;
# Sigma, its scaled form and its factor; what principal components are made from.
_MODEL_COPIES, _METRIC_COPIES, _PREPARATION_COPIES = 4, 3, 6


class Stagewise(Solver[StagewiseState]):
    """The solver of `stagewise`.

    The first stage fits the residuals of the initial model, whose weights are part of the model.
    """

    state_type = StagewiseState
    generates = True

    def __init__(self, problem: Problem, params: Params, **given: Any) -> None:
        n_features, self._k = problem.shape
        super().__init__(problem, with_defaults(params, n_features), **given)
        self._features = StageBlocks(self.params, problem)
        check_initial(self._initial, problem, params["init"])
        self._calibrated = params["inner"] == "calibrated"
        self._descends = takes_steps(params["inner"])
        self._lipschitz = loss_named(problem.loss).lipschitz(problem.shape[1])
        self._bounded = math.isfinite(self._lipschitz)
        if params["accelerate"] == "nesterov" and not self._bounded:
            raise ParameterError(f"accelerate=nesterov: inner={params['inner']} has steps of no known size")
        self._stages = self.params["stages"] * self.params["models"]
        self._metric: tuple[int, Metric] | None = None
        self.reader = self._reader(self._memory)
        reads = self._features.reads + self._features.order_reads
        self.plan = replace(self.reader.plan, passes=float(self._stages * self.params["inner_rounds"]) + reads)
        self.data, self.lanes = self.reader.data, self.reader.lanes

    def _reader(self, memory: MemoryBudget) -> BlockReader:
        n_features, k = self.problem.shape
        size = self.problem.dtype.itemsize
        features, width = self._features, self._features.width
        m = width + self._calibrated * k
        fitted = generator_parameters.preparation_bytes(self.params, n_features)
        base = n_features * k * (self._initial is not None)
        model = self._stages * width * k + base
        rows = int(self.problem.dataset.table.rows.max(initial=0))
        return BlockReader(
            self.problem,
            lanes=self.params["lanes"],
            needs=Needs(
                8 * ((2 * m + 2) * k + base),
                # the Gram matrix and the block's gradient, or the gradient of all columns
                max(moment_bytes(m, k), features.preparation_bytes),
                # products of a chunk before they are added, predictions before and after, gradients; replayed blocks
                features.work_bytes
                + gram_work_bytes(m + k + 1, self.problem.dtype)
                + rows * k * (3 * size + 16)
                + model * size,
            ),
            # a stage of several steps keeps Sigma in its state
            driver_bytes=_MODEL_COPIES * model * size
            + (_METRIC_COPIES + self._descends) * 8 * m * m
            + _PREPARATION_COPIES * fitted
            + features.work_bytes,
            memory=memory,
        )

    def tasks(self, data: DatasetRef, block: int = 0) -> list[Call]:
        """See `Solver.tasks`: a block is added to the predictions, and another fitted."""
        n_features, k = self.problem.shape
        design = self._features.probe()
        task = self._task(design, with_predictions=self._calibrated)
        weights = np.zeros((design.width(n_features) + self._calibrated * k, k))
        task, before = (replace(task, data=data, state=None), Block(design, weights, np.zeros(k)))
        return [Call(task, (before, None), Lane(0, (block,))), *evaluation_tasks(self.problem, self.data)]

    def init(self) -> StagewiseState:
        """Return the state without any block but the initial model."""
        k, dtype = self._k, self.problem.dtype
        state = StagewiseState(
            coefficients=np.empty((0, k), dtype),
            intercepts=np.empty((0, k)),
            calibrations=np.empty((0, k, k) if self._calibrated else (0, 0, 0), dtype),
        )
        if self._initial is None:
            return state
        weights, intercept = self._initial.weights.astype(dtype), self._initial.intercept.astype(np.float64)
        return replace(state, base=weights, base_intercept=intercept)

    def step(self, state: StagewiseState, executor: Executor) -> tuple[StagewiseState, RoundReport]:
        """Do one round: reorder the features, or fit a block, or take one step of a block by a link."""
        if not state.recipe:
            state = self._features.prepared(state, self.reader, executor)
        # A stage of several inner steps keeps its block: no reordering in between.
        if state.inner == 0 and self._features.is_used_up(state, state.stage):
            if self._features.ranked:
                return self._rank(state, executor)
            state = self._features.ordered(state, self.reader, executor)
        return self._descend(state, executor) if self._descends else self._fit(state, executor)

    def _rank(self, state: StagewiseState, executor: Executor) -> tuple[StagewiseState, RoundReport]:
        """Order the original features by the gradient at the predictions so far."""
        result = self._read(state, executor, Design(n_features=self.problem.shape[0]), with_gram=False)
        order = self._features.ranking(result.folds[0].cross)
        return self._reported(self._after(state, order=order, orders=state.orders + 1), result)

    def _fit(self, state: StagewiseState, executor: Executor) -> tuple[StagewiseState, RoundReport]:
        """Fit the residuals by one block: least squares, with the predictions as columns where calibrated."""
        design = generators.design_at(state.design, state.stage, state.order)
        # section 3.1: predictions are columns of a block, but of the first, where all of them are zero
        has_predictions = self._calibrated and (state.has_base or not self._starts_model(state))
        result = self._read(state, executor, design, with_predictions=has_predictions)
        sums = result.folds[0]
        with single_threaded_blas():
            own = self._new_metric(self._sigma(sums))
            steps = own.steps(self._gradient(sums), self._lipschitz)
        return self._reported(self._appended(self._noted(state, own), design, -steps), result)

    def _descend(self, state: StagewiseState, executor: Executor) -> tuple[StagewiseState, RoundReport]:
        """Take one step of Algorithm 1 on one block, the predictions so far being an offset of the scores."""
        design = generators.design_at(state.design, state.stage, state.order)
        first = state.inner == 0
        current = None if first else self._block(design, state.point)
        # Sigma of a block is summed in the first inner step only: the rows do not change.
        result = self._read(state, executor, design, current, with_gram=first)
        sums = result.folds[0]
        gradient = self._gradient(sums)
        point = np.zeros_like(gradient) if first else state.point
        penalised = point[int(self.problem.fit_intercept) :]
        if not self._bounded:
            ridge = 0.5 * self.problem.alpha * float(np.einsum("ik,ik->", penalised, penalised))
            value = sums.loss_sum / sums.weight_sum + ridge
            if not (first or value <= state.value):
                return self._reported(self._halved(state, design), result)
            state = replace(state, value=value)
        # The gradient of the ridge; the paper has no regulariser.
        gradient[int(self.problem.fit_intercept) :] += self.problem.alpha * penalised
        sigma = self._sigma(sums) if first else state.sigma
        # A resumed fit factorises Sigma again; it is part of the state.
        with single_threaded_blas():
            own = self._metric_of(state.stage, sigma)
            state = self._noted(state, own) if first else state
            iterate = point - own.steps(gradient, self._lipschitz if self._bounded else state.lipschitz)
        if state.inner + 1 == self.params["inner_rounds"]:
            # without a bound of the slopes the last step may be one too far
            ended = iterate if self._bounded or first else point
            return self._reported(self._appended(state, design, ended), result)
        accelerated = self.params["accelerate"] == "nesterov"
        # (t - 1)/(t + 2) with t = inner + 1: Nesterov's sequence in its simple form.
        momentum = state.inner / (state.inner + 3.0) if accelerated else 0.0
        before = point if first else state.iterate
        following = self._after(
            state,
            inner=state.inner + 1,
            sigma=sigma,
            iterate=iterate if self._bounded else point,
            point=iterate + momentum * (iterate - before),
        )
        return self._reported(following, result)

    def _halved(self, state: StagewiseState, design: Design) -> StagewiseState:
        """Return the state after a step that raised the objective: half of it is tried next, and L doubled."""
        if state.inner + 1 == self.params["inner_rounds"]:
            return self._appended(state, design, state.iterate)
        point = 0.5 * (state.iterate + state.point)
        return self._after(state, inner=state.inner + 1, point=point, lipschitz=2.0 * state.lipschitz)

    def _noted(self, state: StagewiseState, own: Metric) -> StagewiseState:
        """Return the state with one more singular block counted, if this one is."""
        return replace(state, singular=state.singular + (own.rank < own.size))

    def _reported(self, state: StagewiseState, result: BlockSums) -> tuple[StagewiseState, RoundReport]:
        report = self.reader.report(result)
        report.details = {"stages": state.stage, "inner": state.inner}
        if state.singular:
            report.notes = [
                f"{state.singular} block(s) had a singular Sigma: directions in which their features do not vary were "
                "left out; alpha above 0 leaves none out"
            ]
        return state, report

    def _read(
        self, state: StagewiseState, executor: Executor, design: Design, current: Block | None = None, **options: bool
    ) -> BlockSums:
        """Read the data once, after the newest block was added to the predictions if it was not yet."""
        # The newest block is not yet in the kept predictions; this read adds it before it sums.
        behind = state.version < state.blocks
        # A new model of an average starts again from the initial model or zero, not from the model before it.
        from_zero = behind and self._starts_model(state)
        task = self._task(design, version=state.version, from_zero=from_zero, **options)
        fitted = base_of(state) if from_zero else [block_of(state, state.stage - 1)] if behind else []
        added = fitted[0] if fitted else None
        rebuild = partial(self._rebuild, state, executor)
        return self.reader.reduce(executor, task, (added, current), rebuild=rebuild)

    def _task(self, design: Design, **options: Any) -> BlockTask:
        return self.reader.task(BlockTask, design=design, state=self._folder, joint=True, **options)

    def _rebuild(self, state: StagewiseState, executor: Executor) -> None:
        stages = state.version - state.has_base
        # Predictions of a model follow from its own blocks alone, so replay begins there.
        first = stages // self.params["stages"] * self.params["stages"]
        fitted = [*base_of(state), *(block_of(state, stage) for stage in range(first, stages))]
        task = ReplayTask(self._task(Design(), version=state.version))
        executor.reduce(task, self.reader.work, merge=task.merge, shared=fitted)

    def _starts_model(self, state: StagewiseState) -> bool:
        return state.stage % self.params["stages"] == 0

    def _sigma(self, sums: Moments) -> Array:
        return second_moments(sums.gram, sums.sums, sums.weight_sum, intercept=self.problem.fit_intercept)

    def _gradient(self, sums: Moments) -> Array:
        """Return the mean gradient, shape (m, k), the intercept's in front."""
        parts = [sums.slopes[None]] * self.problem.fit_intercept + [sums.cross]
        return np.concatenate(parts) / sums.weight_sum

    def _new_metric(self, sigma: Array) -> Metric:
        eps = float(np.finfo(self.problem.dtype).eps)
        return Metric.scaled(sigma, self.problem.alpha, intercept=self.problem.fit_intercept, eps=eps)

    def _metric_of(self, stage: int, sigma: Array) -> Metric:
        """Return the metric of a stage under way, factorised once."""
        if self._metric is None or self._metric[0] != stage:
            # A copy, since scaling works in place and the state keeps Sigma.
            self._metric = stage, self._new_metric(sigma.copy())
        return self._metric[1]

    def _block(self, design: Design, values: Array) -> Block:
        if not self.problem.fit_intercept:
            return Block(design, values, np.zeros(self._k))
        return Block(design, values[1:], values[0])

    def _appended(self, state: StagewiseState, design: Design, values: Array) -> StagewiseState:
        block = self._block(design, values)
        width = design.width(self.problem.shape[0])
        return append_block(self._after(state), design, width, block.weights, block.intercept)

    def _after(self, state: StagewiseState, **changes: Any) -> StagewiseState:
        """Return the state after one round, which has brought the predictions up to date."""
        return replace(state, round=state.round + 1, passes=state.passes + 1.0, version=state.blocks, **changes)

    def status(self, state: StagewiseState) -> Status:
        """Return CONVERGED after all stages, DIVERGED if the newest weights are not finite."""
        newest = int(state.widths[-1]) if state.stage else 0
        # Earlier blocks were finite, or the fit would have ended then.
        values = state.coefficients[len(state.coefficients) - newest :], state.intercepts[-1:], state.point
        if not all(np.isfinite(array).all() for array in values):
            return Status.DIVERGED
        return Status.CONVERGED if state.stage >= self._stages else Status.RUNNING

    def weights(self, state: StagewiseState) -> Fitted:
        """Return the model of what is fitted so far."""
        with single_threaded_blas():
            return Fitted(assemble(state, self.problem.shape[0], self.params["stages"]))


def takes_steps(inner: str) -> bool:
    """Return whether an inner update is several steps of Algorithm 1: of any link but the identity."""
    return not loss_named(losses_by("inner")[inner]).quadratic


def with_defaults(params: dict[str, Any], n_features: int) -> dict[str, Any]:
    """Return all parameters with their defaults, named as in `distls.solvers.features.generator_parameters`.

    Raises ParameterError for a parameter that the setting does not use.
    """
    original, inner = params["features"] == "original", params["inner"]
    # Refuse what has no effect: a typing error in an option must not go unnoticed.
    calibrates, steps = inner == ALGORITHM_2, takes_steps(inner)
    links = " or ".join(name for name in losses_by("inner") if takes_steps(name))
    _refuse(params, "order", "features=original", used=original)
    _refuse(params, "models", "random features", used=not original)
    _refuse(params, "models", "another inner update than cls", used=not calibrates)
    _refuse(params, "init", "another inner update than cls", used=not calibrates)
    _refuse(params, "inner_rounds", f"inner={links} or {ALGORITHM_2}", used=steps or calibrates)
    _refuse(params, "accelerate", f"inner={links}", used=steps)
    _refuse(params, "basis", f"inner={ALGORITHM_2}", used=calibrates)
    chosen = dict(params)
    chosen["features"] = ORDERS[params["order"] or "random"] if original else params["features"]
    chosen["inner_rounds"] = params["inner_rounds"] or (_STEPS if steps else _INNER_ROUNDS if calibrates else 1)
    chosen["basis"] = params["basis"] or _BASIS
    chosen["models"] = params["models"] or 1
    per_pass = generator_parameters.stages_per_pass(chosen, n_features)
    # By default a pass over the original features; random ones have no end.
    chosen["stages"] = params["stages"] or (per_pass if original else _RANDOM_STAGES)
    return chosen


def _refuse(params: dict[str, Any], name: str, only: str, *, used: bool) -> None:
    if params[name] is not None and not used:
        raise ParameterError(f"{name}={params[name]}: used with {only} only; leave it out")
