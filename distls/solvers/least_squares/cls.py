"""Calibrated least squares (Algorithm 2 of least squares revisited): residual fits and calibrations in turns.

A round makes two reads of the data (`distls.workers.least_squares.calibrated_task`).
The first sums ``X^T (y - yhat)``, from which the
residual fit W_t, b_t comes (Eq. 18); in a process's first round also the Gram matrix, which is factorised once. The
second adds that fit to the predictions kept for every row and sums the products of their basis G, from which the
calibration comes (Eq. 19). One read does not do: G needs all of W_t, which needs all rows. The features may be
generated from the rows; they are recomputed in each read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.methods.method import Params
from distls.problem import Problem
from distls.solvers.block_reads import BlockReader
from distls.solvers.features.fitted_designs import DesignState, OneBlock
from distls.solvers.least_squares.metric import Metric, second_moments
from distls.solvers.solver import Fitted, RoundReport, Solver, evaluation_tasks
from distls.solvers.status import Status
from distls.solvers.warm_start import check_initial
from distls.storage.errors import DistlsError
from distls.storage.temporary.row_state import IN_MEMORY
from distls.workers.features.design import PIECE_ROWS, Design
from distls.workers.least_squares.block_task import Block, BlockSums, BlockTask, Moments, moment_bytes
from distls.workers.least_squares.calibrated_task import CalibrationFit, FittedRound, Rebuild, ResidualFit
from distls.workers.linear_algebra.gram import gram_work_bytes
from distls.workers.losses.loss_registry import loss_named
from distls.workers.prediction.basis_functions import Basis
from distls.workers.prediction.predictor import PIECE_BYTES, LinearPredictor
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.task import Call, Needs
from distls.workers.runtime.process import single_threaded_blas

# Eigenvalues of the basis G below this part of the largest are left out of the calibration: predictions of the
# training rows hardly differ in their directions, and rounding errors there would distort those of other rows.
_KNOWN_WELL = 1e-10
# What rounding may do to the mean squared error, relative to that of predicting nothing: targets and predictions
# lie between 0 and 1, so rounding enters as an absolute error, of the type that products are made in.
_ROUNDING = {"float32": 1e-6, "float64": 1e-12}
# In the driver: Sigma, its scaled copy, its factor and what factorising needs; what principal components are made from.
_METRIC_COPIES, _PREPARATION_COPIES = 4, 6


@dataclass
class ClsState(DesignState):
    """State between two rounds; the predictions can be recomputed from it."""

    # shape (n_rounds, m, n_outputs): The residual fits W_t, on m features: the row's own, or generated ones
    fits: NDArray[Any] = field(default_factory=lambda: np.empty((0, 0, 0)))
    # shape (n_rounds, n_outputs)
    intercepts: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    # shape (n_rounds, width of the basis, n_outputs)
    calibrations: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0, 0)))
    # Half the mean squared error: of predicting nothing, before the last round, and after its residual fit
    # (None where that is not finite)
    first: float | None = None
    before: float | None = None
    last: float | None = None
    fixed: bool = False  # Whether rounds do not change the error any more

    @property
    def fitted(self) -> int:
        """Rounds of the algorithm that are done."""
        return len(self.fits)


class Cls(Solver[ClsState]):
    """The solver of `cls`.

    The problem's `alpha` is the ridge on every residual fit: 1/2 mean ||r - W x - b||^2 + alpha/2 ||W||_F^2. The
    weights of an initial model are the first round's fit; the rounds that follow calibrate and correct them.
    """

    state_type = ClsState
    method = "cls"

    def __init__(self, problem: Problem, params: Params, **given: Any) -> None:
        super().__init__(problem, params, **given)
        self.basis = Basis.parsed(params["basis"])
        # G has a column for each output and basis function; its width does not depend on the data.
        self._columns = self.basis.width(problem.shape[1])
        # The simplex of two classes is a segment, on which the second's probability says all.
        one = loss_named(problem.loss).one_output
        self.onto = "cube" if problem.target == "multilabel" or one else "simplex"
        self._block = self._features()
        self.generates = self._block.generated
        check_initial(self._initial, problem, params["init"], generated=self.generates)
        self._reader = self._planned(self._memory)
        # Two reads a round: the residual fit, then the calibration.
        reads = 2.0 * params["rounds"] + self._block.reads
        self.plan = replace(self._reader.plan, passes=reads)
        self.data, self.lanes = self._reader.data, self._reader.lanes
        self._metric: Metric | None = None

    def _features(self) -> OneBlock:
        return OneBlock(self.params, self.problem)

    def _planned(self, memory: MemoryBudget) -> BlockReader:
        d, k = self._block.width, self.problem.shape[1]
        m, itemsize = self._columns, self.problem.dtype.itemsize
        a_round, prepared = d * k * itemsize + (m + 1) * k * 8, self._block.preparation_bytes
        return BlockReader(
            self.problem,
            lanes=self.params["lanes"],
            needs=Needs(
                # evaluation and rebuilding need all rounds
                a_round * self.params["rounds"],
                # of the two reads' sums the larger; one is merged while the next lane makes its own
                max(*(moment_bytes(size, k) for size in (d, m)), prepared),
                self._work_bytes(),
            ),
            driver_bytes=a_round * self.params["rounds"]
            + max(_METRIC_COPIES * 8 * max((d + 1) ** 2, m * m), _PREPARATION_COPIES * prepared)
            + self._block.work_bytes,
            memory=memory,
        )

    def _work_bytes(self) -> int:
        d, k = self._block.width, self.problem.shape[1]
        dtype, most_rows = self.problem.dtype, int(self.problem.dataset.table.rows.max(initial=0))
        # the predictions of a partition, and its scores when it is evaluated
        rows = 2 * most_rows * k * 8
        # of a chunk of rows: a copy of them, basis and its powers, predictions, gradients and their squares
        piece = PIECE_ROWS * (d * dtype.itemsize + (3 * self._columns + 4 * k) * 8)
        return rows + piece + PIECE_BYTES + gram_work_bytes(d + k + 1, dtype) + self._block.work_bytes

    def tasks(self, data: DatasetRef, block: int = 0) -> list[Call]:
        """See `Solver.tasks`: both reads of a round."""
        design, lane, k = self._block.probe(), Lane(0, (block,)), self.problem.shape[1]
        summed = replace(self._summed(design, 0, with_gram=True), data=data, state=IN_MEMORY)
        own = summed, self.basis, self.onto
        weights = np.zeros((design.width(data.one_row or self.problem.shape[0]), k), self.problem.dtype)
        calibration = np.zeros((self._columns, k))
        start = FittedRound(Block(design, weights, np.zeros(k)), calibration)
        recipe = {"n_features": 1, "calibration": {**self.basis.recipe(), "onto": self.onto}}
        zero = LinearPredictor(np.zeros((1, k), weights.dtype), np.zeros(k), recipe, {"calibration": calibration[None]})
        return [
            Call(ResidualFit(*own), None, lane),
            Call(CalibrationFit(*own), start, lane),
            *evaluation_tasks(self.problem, self.data, predictor=zero),
        ]

    def init(self) -> ClsState:
        """Return the state without rounds: all predictions are zero."""
        k = self.problem.shape[1]
        return ClsState(
            fits=np.empty((0, self._block.width, k), self.problem.dtype),
            intercepts=np.empty((0, k)),
            calibrations=np.empty((0, self._columns, k)),
        )

    def step(self, state: ClsState, executor: Executor) -> tuple[ClsState, RoundReport]:
        """Do one round of Algorithm 2."""
        if self._block.generated and not state.recipe:
            state = self._block.prepared(state, self._reader, executor)
        design = self._design(state, state.fitted)
        # The Gram matrix of fixed features is the same in all rounds, so it is summed once in the life of a process.
        own = self._summed(design, state.fitted, with_gram=self._metric is None), self.basis, self.onto
        before = state.calibrations[-1] if state.fitted else None
        # Predictions are row state on the workers' disks; a lost partition is recomputed from all rounds.
        rebuild = partial(self._rebuild, state, executor)
        residuals = self._reader.reduce(executor, ResidualFit(*own), before, rebuild=rebuild)
        loss = _mean_loss(residuals)
        # The calibration contains the identity, so it cannot raise the error but by rounding.
        self._check_fall(state.fitted, "calibration", state.last, loss, state.first)
        fit = self._fit(residuals.folds[0], state, design)
        start = FittedRound(fit, before)
        fitted = self._reader.reduce(executor, CalibrationFit(*own), start, rebuild=rebuild)
        first = loss if state.first is None else state.first
        given = self._starts_from_model(state)
        if not given:
            # The initial model is no minimiser of the residuals, and may well raise the error.
            self._check_fall(state.fitted + 1, "residual fit", loss, _mean_loss(fitted), first)
        missing = self._block.width - len(fit.weights)  # of a block that is not full
        following = replace(
            state,
            round=state.round + 1,
            passes=state.passes + 2.0,
            fits=np.concatenate([state.fits, np.pad(fit.weights, ((0, missing), (0, 0)))[None]]),
            intercepts=np.concatenate([state.intercepts, fit.intercept[None]]),
            calibrations=np.concatenate([state.calibrations, self._calibrate(fitted.folds[0])[None]]),
            first=first,
            before=None if given else loss,
            last=_mean_loss(fitted) if np.isfinite(_mean_loss(fitted)) else None,
            # What the whole round before has gained, the residual fit and the calibration.
            fixed=state.before is not None and state.before - loss <= self._rounding * first,
        )
        return following, self._report(residuals, fitted)

    @property
    def _rounding(self) -> float:
        return _ROUNDING[self.problem.dtype.name]

    def _summed(self, design: Design, version: int, *, with_gram: bool) -> BlockTask:
        return self._reader.task(BlockTask, design=design, with_gram=with_gram, state=self._folder, version=version)

    def _design(self, state: ClsState, number: int) -> Design:
        # The features do not change between the rounds of one block.
        return state.design

    def _starts_from_model(self, state: ClsState) -> bool:
        return self._initial is not None and not state.fitted

    def _fit(self, sums: Moments, state: ClsState, design: Design) -> Block:
        """Return the ridge regression of the residuals on the features (Eq. 18), or the initial model."""
        intercept = self.problem.fit_intercept
        with single_threaded_blas():
            if self._metric is None:
                sigma = second_moments(sums.gram, sums.sums, sums.weight_sum, intercept=intercept)
                # Gram matrices are summed in the type of the data, whose rounding decides which directions are noise.
                eps = float(np.finfo(self.problem.dtype).eps)
                self._metric = Metric.scaled(sigma, self.problem.alpha, intercept=intercept, eps=eps)
            slopes = [sums.slopes[None]] if intercept else []
            gradients = np.concatenate([*slopes, sums.cross]) / sums.weight_sum
            if self._initial is not None and self._starts_from_model(state):
                weights = self._initial.weights.astype(self.problem.dtype)
                if self.params.get("init_as") is None:
                    return Block(design, weights, self._initial.intercept.astype(np.float64))
                # W_0 plus the fit of its residuals, as one fit: without a ridge W_0 leaves no trace
                gradients[int(intercept) :] -= self.problem.alpha * weights
            # For the squared loss L = 1, and one step from zero leads to the minimiser.
            fit = -self._metric.steps(gradients, 1.0)
        constant = fit[0] if intercept else np.zeros(fit.shape[1])
        weights = np.ascontiguousarray(fit[int(intercept) :]).astype(self.problem.dtype)
        return Block(design, weights, constant)

    def _calibrate(self, sums: Moments) -> NDArray[np.float64]:
        """Return the least-squares fit of the targets on the basis G (Eq. 19)."""
        # the identity, which G contains, plus the fit of its residuals: where G is nearly singular (a row's
        # predictions sum to one) directions are left out of that fit alone, so the error still cannot rise
        gram = second_moments(sums.gram, sums.sums, sums.weight_sum, intercept=False)
        with single_threaded_blas():
            correction = -_solve_in_span(gram, sums.cross / sums.weight_sum)
        k = correction.shape[1]
        correction[:k] += np.eye(k)
        return correction

    def _check_fall(self, number: int, what: str, before: float | None, after: float, first: float | None) -> None:
        """Raise DistlsError if a step has raised the squared error of the training rows beyond rounding."""
        if before is None or first is None or not after > before + self._rounding * first:
            return
        remedy = "try a larger alpha" + (" or dtype=float64" if self.problem.dtype == np.float32 else "")
        raise DistlsError(
            f"{self.method}: the {what} of round {number} raised half the mean squared error from {before:.12g} to "
            f"{after:.12g}, which only rounding can do; {remedy}"
        )

    def _rebuild(self, state: ClsState, executor: Executor) -> None:
        # The predictions are a function of all rounds in turn, since each projects onto the simplex.
        # each round has the features of its own fit
        task = Rebuild(self._summed(Design(), state.fitted, with_gram=False), self.basis, self.onto)
        executor.reduce(task, self._reader.work, merge=task.merge, shared=self._rounds(state))

    def _rounds(self, state: ClsState) -> list[FittedRound]:
        """Return all rounds, each with the calibration of the one before it."""
        earlier: Sequence[NDArray[np.float64] | None] = [None, *state.calibrations]
        found = []
        for number, (weights, intercept) in enumerate(zip(state.fits, state.intercepts, strict=True)):
            design = self._design(state, number)
            own = weights[: design.width(self.problem.shape[0])]
            found.append(FittedRound(Block(design, own, intercept), earlier[number]))
        return found

    def _report(self, residuals: BlockSums, fitted: BlockSums) -> RoundReport:
        """Return what both reads cost; loss and error are those of the predictions before the round."""
        report = self._reader.report(residuals)
        both = self._reader.report(replace(residuals, ledger=residuals.ledger.merge(fitted.ledger)))
        return replace(both, running_loss=report.running_loss, running_error=report.running_error)

    def status(self, state: ClsState) -> Status:
        """Return MAX_PASSES after all rounds, CONVERGED once they change nothing."""
        if state.round and state.last is None:
            return Status.DIVERGED
        if state.fixed:
            return Status.CONVERGED
        return Status.MAX_PASSES if state.round >= self.params["rounds"] else Status.RUNNING

    def weights(self, state: ClsState) -> Fitted:
        """Return the predictor of all rounds: their residual fits as columns, and the calibrations."""
        d, k = self.problem.shape
        recipe: dict[str, Any] = {"n_features": d, "calibration": {**self.basis.recipe(), "onto": self.onto}}
        arrays: dict[str, NDArray[Any]] = {"calibration": state.calibrations}
        if state.recipe:
            recipe["features"] = state.recipe
            arrays |= state.arrays
        fits = state.fits if state.round else np.empty((0, d, k), self.problem.dtype)
        side_by_side = np.ascontiguousarray(fits.transpose(1, 0, 2)).reshape(fits.shape[1], state.round * k)
        return Fitted(LinearPredictor(side_by_side, state.intercepts.reshape(-1), recipe, arrays))


def _solve_in_span(gram: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``gram^-1 @ right`` in the span of the eigenvectors that are known well, at unit diagonal."""
    # Unit diagonal first: the threshold on eigenvalues then does not depend on the scales of the functions.
    scale = np.sqrt(np.diag(gram))
    scale[scale == 0.0] = 1.0
    values, vectors = linalg.eigh(gram / scale / scale[:, None], check_finite=False)
    # Truncated, not regularised: in the span that is kept the fit is exact, and the error cannot rise.
    kept = values > _KNOWN_WELL * values[-1]
    inner = vectors[:, kept].T @ (right / scale[:, None])
    return np.asarray((vectors[:, kept] @ (inner / values[kept][:, None])) / scale[:, None])


def _mean_loss(sums: BlockSums) -> float:
    return sums.folds[0].loss_sum / sums.folds[0].weight_sum
