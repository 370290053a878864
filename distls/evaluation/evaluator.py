"""The evaluation of a fit in progress: objective and certificate on its data, error on others."""

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from distls.dual_problem import balance_of, intercept_curvature, optimal_intercept
from distls.evaluation.certificates import BOUNDS, certificate_of, dual_certificate, rounding_of, tightened
from distls.evaluation.compatibility import check_evaluable
from distls.evaluation.metrics import RegressionEvaluation
from distls.evaluation.scores import score_targets
from distls.execution.batch import Wanted, run_alone
from distls.execution.executor import Executor
from distls.execution.row_reads import reading_lanes, rows_reduced
from distls.problem import Problem
from distls.solvers.solver import Fitted
from distls.storage.dataset.dataset import Dataset
from distls.storage.filesystem.atomic import finite_json
from distls.workers.duals.stored_duals import DualPoint
from distls.workers.evaluation.dual_task import DualStart, DualSum, DualTask
from distls.workers.evaluation.score_task import GradientSum, GradientTask
from distls.workers.losses.loss_registry import loss_named
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.prediction.threshold_task import ThresholdSums, ThresholdTask, fitted_threshold
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.runtime.process import single_threaded_blas


class BoundSearch(Protocol):
    """Looks for a better lower bound of the optimum than that of a fit's weights."""

    @property
    def first_passes(self) -> float:
        """What a first search is expected to take, in passes of the fit."""

    def __call__(
        self,
        fitted: Fitted,
        objective: float,
        bound: float,
        executor: Executor,
        data: DatasetRef,
        prove: Callable[[Fitted], dict[str, Any]],
    ) -> tuple[float, int, float, float | None]:
        """Return it, the bytes read, the passes, and the lowest objective of the weights that were seen.

        Given are a fit, its objective and bound, an executor and data, and what proves a dual point.
        """


class Evaluator:
    """Evaluates a fit between rounds: objective, certificate, and the error on other data sets.

    Raises MismatchError if a data set does not fit the training data.
    """

    def __init__(
        self,
        problem: Problem,
        data: DatasetRef,  # the training data, with the cache budget of the fit
        *,
        eval_data: Dataset | None = None,
        select_data: Dataset | None = None,
        search: BoundSearch | None = None,  # a better bound than that of the weights' own gradient
        balances: bool = False,  # the intercept is made optimal for a bound, where the method does not do it
    ) -> None:
        self._problem, self._data = problem, data
        self._search, self._balances = search, balances
        self._lanes = reading_lanes(problem.dataset, problem.parallelism)
        self._eval = self._checked(eval_data)
        self._select = self._checked(select_data)
        # squared norms of the rows of the gradient of the last objective, where it has one
        self.slope: NDArray[np.float64] | None = None
        self._mean_row: NDArray[np.float64] | None = None  # of the training data, for least squares

    @property
    def searches(self) -> float:
        """Passes that a first look for a bound of the optimum, or an optimal intercept, may take; 0: there is none."""
        return float(self._balances) if self._search is None else self._search.first_passes

    def _checked(self, dataset: Dataset | None) -> tuple[Dataset, NDArray[np.int32]] | None:
        return None if dataset is None else (dataset, check_evaluable(self._problem, dataset))

    async def __call__(self, fitted: Fitted, *, whole: bool = True) -> dict[str, Any]:
        """Return objective, certificate, bytes read, unless not `whole`, and the error on the evaluation data."""
        values = await self.objective(fitted) if whole else {}
        if whole and self._search is not None:
            values = await self._searched(values, fitted, self._search)
        # Evaluation rows see the published model, thresholds included.
        if self._eval is None:  # spares fitting the threshold of the published model
            return values
        published = await self.published(fitted.predictor)
        return values | await self._scored("eval", published, self._eval)

    async def selection(self, predictor: LinearPredictor) -> dict[str, Any]:
        """Return the error of a published predictor on the selection data, if there are any."""
        return await self._scored("select", predictor, self._select)

    async def published(self, predictor: LinearPredictor) -> LinearPredictor:
        """Return the predictor of the model to publish: of a ranking, less its threshold for sets of labels."""
        problem = self._problem
        if not problem.ranks:
            return predictor
        task = ThresholdTask(self._data, problem.row_weights)
        sums: ThresholdSums = await rows_reduced(problem.dataset, predictor.compact(), task, self._lanes)
        # the threshold is affine in the scores, so subtracting it gives a linear model again
        slope, constant = fitted_threshold(sums)
        w = predictor.coefficients
        with single_threaded_blas():
            of_rows, of_intercept = w @ slope, predictor.intercept @ slope
        # Rounded to the type of the weights, as the model will be.
        return replace(
            predictor,
            coefficients=np.asarray(w - of_rows[:, None], w.dtype),
            intercept=predictor.intercept - (of_intercept + constant),
        )

    async def _scored(
        self, name: str, predictor: LinearPredictor, opened: tuple[Dataset, NDArray[np.int32]] | None
    ) -> dict[str, Any]:
        """Return the criterion as ``NAME_error``: the error, or for numbers mean squared error or deviance."""
        if opened is None:
            return {}
        problem = self._problem
        dataset, codes = opened
        classes = problem.dataset.meta.classes
        raw = of_raw_rows(predictor, problem)
        # The rows of a fold are among those that the fit keeps.
        cache = 0 if dataset.fold is None else self._data.cache_bytes
        evaluation = await score_targets(dataset, raw, problem.loss, classes, codes, cache_bytes=cache)
        # JSON has no infinity, as where a projection onto the simplex leaves a probability of zero
        found: dict[str, Any] = {f"{name}_error": evaluation.criterion}
        if isinstance(evaluation, RegressionEvaluation):
            return finite_json({**found, f"{name}_mse": evaluation.mse, f"{name}_log_loss": None})
        return finite_json({**found, f"{name}_log_loss": evaluation.log_loss})

    async def objective(self, fitted: Fitted) -> dict[str, Any]:
        """Return F(W, b) and the certificate, with what rounding may add to it; one read of the training data.

        For any subgradient G of an objective that is alpha-strongly convex in W, F(W) - F* <= ||G||^2 / (2 alpha); for
        the hinges this is also the duality gap at the dual point that G defines. For other penalties see `_gap`. With
        an intercept the bound would require minimising over it, so the gradient's norm is reported instead.
        """
        problem, predictor, known = self._problem, fitted.predictor, await self._known(fitted)
        if known is not None and fitted.improved_weights is None:
            return known
        if known is not None:
            return known | await self._improved(problem, fitted, known["certificate"], known["objective"])
        if fitted.alpha is not None:
            problem = replace(problem, alpha=fitted.alpha)
        if fitted.debias is not None:
            problem = problem.with_squares(fitted.debias.alpha)
        with_gradient = loss_named(problem.loss).certificate != "none" and not predictor.recipe
        ridge = problem.is_ridge and with_gradient and fitted.debias is None
        total = await self._summed(predictor, with_gradient=with_gradient, with_rows=ridge and self._mean_row is None)
        # The mean row does not change, and is summed once.
        if len(total.rows):
            self._mean_row = total.rows / total.weight_sum
        if fitted.debias is not None:
            total.gradient[~fitted.debias.used] = 0.0  # other weights are not variables of a refit
        value = _objective(problem, predictor, total)
        mean_row, read = self._mean_row if ridge else None, total.ledger.bytes_read
        certificate = certificate_of(problem, predictor, total, value, mean_row=mean_row)
        self.slope = _slope_of(problem, total.gradient) if certificate["kind"] != "none" else None
        rounding = rounding_of(problem, value)
        found = {"objective": value, "certificate_rounding": rounding}
        return found | await self._improved(problem, fitted, certificate, value, read)

    async def _improved(
        self, problem: Problem, fitted: Fitted, certificate: dict[str, Any], value: float, read: int = 0
    ) -> dict[str, Any]:
        """Return the certificate that other weights improve, the bytes read, `read` among them, and the passes."""
        passes = 0.0
        # Without any bound so far the share does not count.
        most = fitted.search_passes if certificate["kind"] in BOUNDS else math.inf
        searches: list[Callable[[Executor], tuple[LinearPredictor | float | None, int, float]]] = []
        if fitted.improved_weights is not None:
            searches.append(partial(fitted.improved_weights, most))
        if self._balances and fitted.debias is None:
            searches.append(partial(self._balanced, problem, fitted.predictor))
        for place, search in enumerate(searches if problem.alpha != 0 else []):
            # The intercept alone is for fits that have no bound yet.
            if place == 1 and certificate["kind"] in BOUNDS:
                break
            near, own, further = await Wanted(search)
            read, passes = read + own, passes + further
            if near is None:
                continue
            if isinstance(near, float):
                other = certificate if certificate["kind"] in BOUNDS else {"kind": "duality_gap"}
                certificate = tightened(certificate, value, other, (near, rounding_of(problem, value)))
                continue
            other, bound, own = await self._certified(problem, near)
            read += own
            if other["kind"] in BOUNDS:  # none where an intercept's gradient is not zero
                certificate = tightened(certificate, value, other, (bound, rounding_of(problem, value)))
        return {"certificate": certificate, "eval_bytes_read": read, "certificate_passes": passes}

    async def _known(self, fitted: Fitted) -> dict[str, Any] | None:
        """Return what the method, or its dual point, has to say of its own fit; None where that is nothing."""
        if callable(fitted.known):
            return await Wanted(fitted.known)
        if fitted.known is not None:
            return copy.deepcopy(fitted.known)  # the loop adds to it
        return None if fitted.duals is None else await self._proven(fitted.predictor, fitted.duals)

    async def _searched(self, values: dict[str, Any], fitted: Fitted, search: BoundSearch) -> dict[str, Any]:
        """Return an evaluation with the better bound that a search finds, where there is one of F - F* at all."""
        value, certificate = values["objective"], values["certificate"]
        if certificate["kind"] == "none" or not math.isfinite(value):
            return values
        # The bound of the optimum from the weights' own gradient, which with a free intercept gives none.
        bounds = certificate["kind"] in BOUNDS
        own = value - certificate["value"] if bounds else loss_named(self._problem.loss).floor

        def bounded(executor: Executor) -> tuple[float, int, float, float | None]:
            def proof(near: Fitted) -> dict[str, Any]:
                return run_alone(self._proven(near.predictor, cast("DualPoint", near.duals)), executor)

            return search(fitted, value, own, executor, self._data, proof)

        bound, read, passes, reached = await Wanted(bounded)
        if bound > own:
            certificate = {"kind": "duality_gap", "value": max(value - bound, values["certificate_rounding"])}
        read += values["eval_bytes_read"]
        passes += values.get("certificate_passes", 0.0)  # those that have made the intercept optimal
        found = {"certificate": certificate, "eval_bytes_read": read, "certificate_passes": passes}
        return {**values, **found, "bound": bound, "reached": reached}

    def _balanced(
        self, problem: Problem, predictor: LinearPredictor, executor: Executor
    ) -> tuple[LinearPredictor, int, float]:
        """Return weights with the intercept optimal for them, the bytes read, and the passes."""
        read, passes = 0, 0.0
        # Scores in single precision would hide the gradient that is left.
        predictor = replace(predictor, coefficients=predictor.coefficients.astype(np.float64))

        def gradient_at(intercept: NDArray[np.float64]) -> NDArray[np.float64]:
            nonlocal read, passes
            total = run_alone(self._summed(replace(predictor, intercept=intercept), with_gradient=True), executor)
            read, passes = read + total.ledger.bytes_read, passes + 1.0
            return total.intercept_gradient / total.weight_sum

        found = optimal_intercept(
            gradient_at, predictor.intercept, intercept_curvature(problem), separable=loss_named(problem.loss).separable
        )
        return replace(predictor, intercept=found), read, passes

    async def _certified(self, problem: Problem, near: LinearPredictor) -> tuple[dict[str, Any], float, int]:
        """Return the certificate of other weights, the lower bound of F* from it, and the bytes read for it."""
        total = await self._summed(near, with_gradient=True)
        value = _objective(problem, near, total)
        certificate = certificate_of(problem, near, total, value, optimal_intercept=True)
        return certificate, value - certificate["value"], total.ledger.bytes_read

    async def _proven(self, predictor: LinearPredictor, point: DualPoint) -> dict[str, Any]:
        """Return F(W, b) and the gap between it and the dual; one read of the training data."""
        problem, balance = self._problem, None
        if problem.fit_intercept and problem.intercept_scaling is None:
            balance = balance_of(problem, point.form.dual_domain, point.up, point.down)
        task = DualTask(self._data, problem.row_weights, point, balance)
        total: DualSum = await rows_reduced(problem.dataset, DualStart(judged=predictor), task, self._lanes)
        value = total.loss_sum / total.weight_sum + problem.alpha * problem.penalty_of_model(
            predictor.coefficients, predictor.intercept
        )
        return {
            "objective": value,
            "certificate": dual_certificate(problem, total, value),
            "eval_bytes_read": total.ledger.bytes_read,
        }

    async def gradient(self, predictor: LinearPredictor) -> NDArray[np.float64]:
        """Return the gradient of the mean loss in the weights, without the penalty's; one read of the training data."""
        total = await self._summed(predictor, with_gradient=True)
        return np.asarray(total.gradient / total.weight_sum)

    async def _summed(self, predictor: LinearPredictor, *, with_gradient: bool, with_rows: bool = False) -> GradientSum:
        problem, sent = self._problem, predictor if with_gradient else predictor.compact()
        task = GradientTask(self._data, problem.loss, problem.row_weights, with_gradient, with_rows)
        total: GradientSum = await rows_reduced(problem.dataset, sent, task, self._lanes)
        return total


def of_raw_rows(predictor: LinearPredictor, problem: Problem) -> LinearPredictor:
    """Return the predictor of rows as they are, where the problem's are standardized."""
    own = problem.dataset.standardization
    if own is None:
        return predictor
    weights, intercept = own.of_raw_rows(predictor.coefficients, predictor.intercept)
    return replace(predictor, coefficients=weights, intercept=intercept)


def _slope_of(problem: Problem, gradient: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return the squared norms of the rows of the gradient of F; None where F is not smooth."""
    if not problem.penalty_is_quadratic or not loss_named(problem.loss).smooth:
        return None
    return np.asarray(np.einsum("ij,ij->i", gradient, gradient))


def _objective(problem: Problem, predictor: LinearPredictor, total: GradientSum) -> float:
    """Return F(W, b), without the penalty where the model is not linear in the rows."""
    linear = not predictor.recipe
    penalty = problem.penalty_of_model(predictor.coefficients, predictor.intercept) if linear else 0.0
    return total.loss_sum / total.weight_sum + problem.alpha * penalty
