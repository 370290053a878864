"""The passes over the data that the solvers of `gls` make, and what else they share.

They give Sigma and the gradients of Algorithm 1 of least squares revisited.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.dual_problem import intercept_curvature, optimal_intercept
from distls.execution.executor import Executor
from distls.methods.method import Params
from distls.problem import Problem
from distls.solvers.block_reads import BlockReader
from distls.solvers.least_squares.alpha_grid import fold_count
from distls.solvers.least_squares.iterate import Evaluated
from distls.solvers.least_squares.metric import Metric, second_moments
from distls.solvers.solver import Fitted, ImproveFn, RoundReport, evaluation_tasks, predictor_of
from distls.solvers.status import Record
from distls.storage.model.model import LinearModel
from distls.workers.features.design import Design
from distls.workers.least_squares.block_task import Block, BlockSums, BlockTask, Moments
from distls.workers.least_squares.multi_point_task import BasisTask, PointMoments, PointTask, StackedWeights
from distls.workers.linear_algebra.packed_triangle import unpacked
from distls.workers.losses.loss_registry import loss_named
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.task import Call

Array = NDArray[np.float64]

# With alpha above this share of the mean square norm of the rows another basis is never needed.
_WELL_CONDITIONED = 1e-6
BASIS_NOTE = "the second-moment matrix is ill-conditioned: it was read again in a nearly orthonormal basis"


def may_need_basis(mean_square_norm: float, alpha: float) -> bool:
    """Return whether alpha may be too small to keep the metric well-conditioned, from metadata alone."""
    return alpha <= _WELL_CONDITIONED * mean_square_norm


class GlsPasses:
    """Base of the solvers of `gls`; weights theta are of shape (m, k), with the constant column's first, if any."""

    def __init__(
        self, problem: Problem, params: Params, reader: BlockReader, initial: LinearModel | None = None
    ) -> None:
        self.problem, self.params = problem, params
        self._reader, self._initial = reader, initial
        self.plan, self.lanes, self.data = reader.plan, reader.lanes, reader.data
        # where the weights begin: behind the constant column, which alpha does not penalise
        self._first = int(problem.fit_intercept)
        self._follows_path = params["alpha"] == "path"
        self._folds = fold_count(params)
        # Products of rows are made in the type of the data: that sets the relative rounding error of Sigma.
        self._eps = float(np.finfo(problem.dtype).eps)

    def tasks(self, data: DatasetRef, block: int = 0) -> list[Call]:
        """See `Solver.tasks`: the second moments."""
        sigma = replace(self._sigma_task(self._folds), data=data)
        return [Call(sigma, (None, None), Lane(0, (block,))), *evaluation_tasks(self.problem, self.data)]

    @property
    def _shape(self) -> tuple[int, int]:
        n_features, k = self.problem.shape
        return n_features + self._first, k

    def _split(self, theta: Array) -> tuple[Array, Array]:
        intercept = theta[0].copy() if self._first else np.zeros(theta.shape[1])
        return np.ascontiguousarray(theta[self._first :]), intercept

    def _fitted(
        self, theta: Array, alpha: float, improved: ImproveFn | None = None, known: Record | None = None
    ) -> Fitted:
        """Return the model; a better certificate is that of `improved`, or of own weights at their best intercept."""
        if improved is None and self._can_balance:
            improved = partial(self._with_best_intercept, theta)
        return Fitted(
            predictor_of(theta, self.problem),
            alpha=alpha if self._follows_path else None,
            known=known,
            improved_weights=improved,
        )

    @property
    def _can_balance(self) -> bool:
        """Whether an intercept can be made so good that it is no obstacle to a bound: not in single precision."""
        # float32 scores change by less than their rounding before the intercept's gradient is small enough
        # for a bound.
        return self.problem.fit_intercept and self.problem.dtype == np.float64

    def _with_best_intercept(self, theta: Array, most: float, executor: Executor) -> tuple[LinearPredictor, int, float]:
        """Return the weights with the intercept optimal for them, the bytes read, and the passes, whatever they are."""
        read, passes = 0, 0.0

        def gradient_at(intercept: Array) -> Array:
            nonlocal read, passes
            theta[0], passes = intercept, passes + 1.0
            sums = self._read_points(executor, [theta])
            read += sums.ledger.bytes_read
            moments = sums.folds[0]
            return np.asarray(moments.slopes / moments.weight_sum)

        theta, loss = theta.astype(self.problem.dtype), loss_named(self.problem.loss)
        theta[0] = optimal_intercept(
            gradient_at, theta[0].copy(), intercept_curvature(self.problem), separable=loss.separable
        )
        return predictor_of(theta, self.problem), read, passes

    def _report(
        self, sums: BlockSums, details: dict[str, Any], path: list[dict[str, float]], notes: list[str]
    ) -> RoundReport:
        """Return the report of a round; `path` has each alpha's judgement, where there is one."""
        report = self._reader.report(sums)
        report.details = {**details, **({"path": path} if path else {})}
        report.notes = notes or None
        return report

    # -- reads

    def _read_sigma(self, executor: Executor, start: Array | None, folds: int = 1) -> BlockSums:
        """Sum Sigma, and loss and gradient at some weights (None: zero), of each fold separately."""
        current = None if start is None else Block(Design(), *self._split(start))
        return self._reader.reduce(executor, self._sigma_task(folds), (None, current))

    def _sigma_task(self, folds: int) -> BlockTask:
        return self._reader.task(BlockTask, design=Design(), folds=folds)

    def _read_in_basis(self, executor: Executor, theta: Array, basis: Array) -> BlockSums:
        """Sum Sigma of the rows times the inverse of a basis."""
        # The basis is triangular, and rows times its inverse have the scores of the weights times the basis.
        sent = StackedWeights(basis @ theta, np.zeros(theta.shape[1]), basis)
        return self._reader.reduce(executor, self._reader.task(BasisTask), sent)

    def _read_points(self, executor: Executor, thetas: Sequence[Array], held_out: Sequence[int] = ()) -> BlockSums:
        """Sum loss and gradient at several weights, each without its fold where folds are held out."""
        task = self._reader.task(PointTask, folds=self._folds if held_out else 1)
        return self._reader.reduce(executor, task, self._stacked(thetas, held_out))

    def _stacked(self, thetas: Sequence[Array], held_out: Sequence[int] = ()) -> StackedWeights:
        weights, intercept = self._split(np.concatenate(thetas, axis=1))
        return StackedWeights(weights, intercept, held_out=tuple(held_out))

    # -- what reads give

    def _evaluated(self, theta: Array, sums: Moments, weight: float, alpha: float, place: int = 0) -> Evaluated:
        """Return objective and gradient at the `place`-th weights of a read, over rows of total weight `weight`."""
        # Points of a read are side by side; each has its own columns of the gradient.
        k = theta.shape[1]
        own = slice(place * k, (place + 1) * k)
        loss, held_out = sums.loss_sum, np.zeros(2)
        if isinstance(sums, PointMoments):
            loss = sums.losses[place]
            held_out = np.array([sums.held_losses[place], float(sums.wrong[place])])
        penalised = theta[self._first :]
        # The row of the intercept comes first in theta, and carries no penalty.
        gradient = np.empty_like(theta)
        gradient[: self._first] = sums.slopes[own] / weight
        # E[(yhat - y) x^T] of Algorithm 1, and the gradient of the ridge, which the paper does not have
        gradient[self._first :] = sums.cross[:, own] / weight + alpha * penalised
        value = loss / weight + 0.5 * alpha * np.einsum("ik,ik->", penalised, penalised)
        return Evaluated(theta, gradient, float(value), held_out)

    def _sigma(self, sums: Moments) -> Array:
        return second_moments(sums.gram, sums.sums, sums.weight_sum, intercept=bool(self._first))

    def _scaled_metric(self, sigma: Array, alpha: float) -> Metric:
        """Return the metric of Sigma, whose memory it reuses."""
        return Metric.scaled(sigma, alpha, intercept=bool(self._first), eps=self._eps)

    def _needs_basis(self, metric: Metric, alpha: float) -> bool:
        """Return whether solves in the metric lose so many digits that Sigma must be read again in another basis."""
        # Only where a small alpha leaves the conditioning to the data is another read worth it.
        return not metric.is_sound and may_need_basis(self.problem.dataset.meta.mean_square_norm, alpha)

    def _metric_in_basis(self, basis: Array, sums: Moments, alpha: float) -> Metric:
        gram = unpacked(sums.gram, np.empty_like(basis))
        gram /= sums.weight_sum
        return Metric(basis, gram, alpha, intercept=bool(self._first))


def rank_notes(metric: Metric) -> list[str]:
    """Return the note on the null space that steps leave out, if any."""
    left_out = metric.size - metric.rank
    if not left_out:
        # Reported, since a minimum-norm solution is a choice that the user has not made.
        return []
    return [
        f"the second-moment matrix has rank {metric.rank} of {metric.size}; its {left_out} null directions were "
        "dropped. Set alpha > 0 to regularise them instead"
    ]
