"""Certificates of a fit: upper bounds of its distance from the optimum (docs/notation.md)."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.dual_problem import DualProblem
from distls.methods.method import Method
from distls.problem import Problem, loss_of, penalty_of
from distls.workers.coordinate_descent.dual_bounds import BALANCED, DualFactor, gap_of, intercept_slack
from distls.workers.evaluation.dual_task import DualSum
from distls.workers.evaluation.score_task import GradientSum
from distls.workers.losses.loss_registry import lacks, loss_named
from distls.workers.penalties.penalty_registry import penalties_with, penalty_named, prox_rows
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.runtime.process import single_threaded_blas

BOUNDS = ("duality_gap", "strong_convexity")  # the kinds that bound F - F*


def certificate_kind(params: Mapping[str, Any], method: Method | None = None) -> str:
    """Return the kind of certificate that a setting has; see docs/notation.md."""
    quadratic = penalty_named(penalty_of(params)).quadratic
    own = method is not None and method.proves_with is not None and method.proves_with(params)
    if method is not None and (method.proves or (own and not quadratic)):
        return "duality_gap"
    # calibrations and generated features make models that are not linear in the rows
    linear = "basis" not in params and params.get("features", "none") in ("none", "original")
    # what a stochastic fit with a tolerance asks dual ascent for
    dual = penalty_of(params) in penalties_with(dual=True) and not lacks(loss_of(params), dual=True)
    if method is not None and method.steps is not None and linear and dual and params["alpha"] != 0:
        return "duality_gap"
    bounded = not params["fit_intercept"] and params["alpha"] != 0
    return _kind(loss_of(params), linear=linear, bounded=bounded, penalty=penalty_of(params))


def balances_for(params: Mapping[str, Any], method: Method | None = None) -> bool:
    """Return whether a setting has a bound only where its intercept is made optimal, which takes reads."""
    # The gradient of a hinge in the intercept jumps, so that it need not vanish anywhere.
    can = loss_named(loss_of(params)).smooth and not penalty_named(penalty_of(params)).quadratic
    free = {**params, "fit_intercept": False}
    return can and certificate_kind(params, method) not in BOUNDS and certificate_kind(free, method) in BOUNDS


def _kind(loss: str, *, linear: bool, bounded: bool, penalty: str) -> str:
    """Return the kind of certificate of a problem; `bounded` where strong convexity or a dual point bounds F - F*."""
    certificate = loss_named(loss).certificate
    if certificate == "none" or not linear:
        return "none"
    if not bounded:
        return "gradient_norm"
    return certificate if penalty_named(penalty).quadratic else "duality_gap"


def dual_certificate(problem: Problem, total: DualSum, objective: float) -> dict[str, Any]:
    """Return the duality gap between weights with the objective F and a dual point.

    The sums are those of the point's duals; with an unpenalised intercept, balanced so that they sum to zero.
    """
    form, size = DualProblem.of(problem), total.weight_sum
    u, none = total.image / (form.alpha * size), np.zeros(form.n_outputs)
    # With a penalised intercept its own duals count, otherwise they are balanced to zero.
    t = none if form.free_intercept else (total.up - total.down) / (form.alpha * size)
    gap = objective - form.dual(total.conjugate_sum / size, u, t, none)
    # The gap cannot be negative but by rounding, which is added on top.
    return {"kind": "duality_gap", "value": max(gap, 0.0) + rounding_of(problem, objective)}


def rounding_of(problem: Problem, objective: float) -> float:
    """Return what an objective may be wrong by: losses and scores are computed in the type of the weights."""
    return float(np.finfo(problem.dtype).eps) * abs(objective)


@single_threaded_blas()
def certificate_of(
    problem: Problem,
    predictor: LinearPredictor,
    total: GradientSum,
    objective: float,
    *,
    optimal_intercept: bool = False,  # it was made so, as far as rounding allows
    mean_row: NDArray[np.float64] | None = None,  # (n_features,), of the training data, where it is known
) -> dict[str, Any]:
    """Return the kind and value of the certificate of a predictor with the objective F.

    The gradient in `total`, which is over the training data, becomes that of the mean loss (l2: of F).
    """
    b_scale = problem.intercept_scaling
    # The sum of sizes, as each output's intercept can be moved by itself.
    rest = float(np.abs(total.intercept_gradient).sum()) / total.weight_sum
    free = problem.fit_intercept and b_scale is None
    bounded = problem.alpha != 0 and (not free or (optimal_intercept and rest <= BALANCED))
    kind = _kind(problem.loss, linear=not predictor.recipe, bounded=bounded, penalty=problem.penalty)
    if kind == "none":
        return {"kind": kind, "value": None}
    shift = intercept_slack(rest, predictor.intercept) if free else 0.0
    gradient = total.gradient
    # In place: the gradient is as large as the weights.
    gradient /= total.weight_sum
    if not problem.penalty_is_quadratic and kind == "duality_gap":
        loss = total.loss_sum / total.weight_sum
        gap = max(_gap(problem, predictor, loss, gradient), 0.0) + shift
        # A zero model is feasible in the dual, so the objective is a bound as well.
        return {"kind": kind, "value": min(gap + rounding_of(problem, objective), objective)}
    if mean_row is not None and problem.is_ridge and math.isfinite(objective):
        kind = "duality_gap"
        most = max(objective - _shifted_dual(problem, predictor, total, mean_row), 0.0)
        most += rounding_of(problem, objective)
    else:  # most losses are not negative, so neither is the optimum: the objective itself is a bound
        most = objective - loss_named(problem.loss).floor
    square = float(np.square(_stationarity(problem, predictor, gradient)).sum())
    if b_scale is not None:  # the gradient in the weight of the constant feature, b / B
        slope = b_scale * total.intercept_gradient / total.weight_sum
        slope += problem.alpha * predictor.intercept / b_scale
        square += float(np.square(slope).sum())
    if kind == "gradient_norm":
        own = float(np.square(total.intercept_gradient / total.weight_sum).sum())
        return {"kind": kind, "value": math.sqrt(square + own * problem.fit_intercept)}
    # The smaller of two valid bounds.
    return {"kind": kind, "value": min(square / (2.0 * problem.alpha) + shift, most)}


def tightened(
    certificate: dict[str, Any], objective: float, near: dict[str, Any], lower: tuple[float, float]
) -> dict[str, Any]:
    """Return the certificate of weights with the objective F, given that of others.

    `lower` are the bound of F* from the others, and the rounding below which no bound leads.
    """
    bound, rounding = lower
    value = max(objective - bound, rounding)
    if certificate["kind"] in BOUNDS:
        value = min(value, certificate["value"])
    return {**near, "value": value}


def _stationarity(problem: Problem, predictor: LinearPredictor, gradient: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the gradient of F, or the prox-gradient step of size 1: both are zero at the optimum."""
    w = predictor.coefficients.astype(np.float64)
    if problem.penalty_is_quadratic:
        gradient += problem.alpha * w
        return gradient
    # The prox-gradient step is zero exactly at the optimum, for any penalty.
    return w - prox_rows(problem.penalty, w - gradient, problem.alpha, problem.l1_ratio)


def _gap(problem: Problem, predictor: LinearPredictor, loss: float, gradient: NDArray[np.float64]) -> float:
    """Return the duality gap at the gradients of the losses, scaled into the dual's domain."""
    product = float(np.vdot(gradient, predictor.coefficients.astype(np.float64)))
    c, conjugated = penalty_named(problem.penalty).conjugate(-gradient, problem.alpha, problem.l1_ratio)
    dual = DualFactor(c, conjugated, product)
    return gap_of(problem.loss, loss, dual, problem.alpha * problem.penalty_of(predictor.coefficients))


def _shifted_dual(
    problem: Problem, predictor: LinearPredictor, total: GradientSum, mean_row: NDArray[np.float64]
) -> float:
    """Return the largest dual of least squares with l2 at ``a r_i + b``, r_i the residuals of row i, b (k,).

    Weights whose residuals do not sum to zero have duals far from the optimal ones, in a direction in which the mean
    row makes the objective steep; a and b cost no read, since the dual is quadratic in them with known coefficients.
    """
    # r_i = t_i - z_i: sums of r (x) x, of r, of r . t and of t are those of the gradient, of the loss and of the scores
    gradient, weights = total.gradient, predictor.coefficients.astype(np.float64)
    square, r = 2.0 * total.loss_sum / total.weight_sum, -total.intercept_gradient / total.weight_sum
    linear = np.append(square - np.vdot(gradient, weights), r + weights.T @ mean_row)
    quadratic = np.diag(np.full(len(linear), 1.0 + float(mean_row @ mean_row) / problem.alpha))
    quadratic[0, 0] = square + float(np.vdot(gradient, gradient)) / problem.alpha
    quadratic[0, 1:] = quadratic[1:, 0] = r - gradient.T @ mean_row / problem.alpha
    # Least squares: the quadratic form may be singular.
    best = np.linalg.lstsq(quadratic, linear, rcond=None)[0]
    return float(best @ linear - 0.5 * best @ quadratic @ best)
