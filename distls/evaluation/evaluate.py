"""Scoring models: on other data, and the exact objective with its certificate on the training data."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.evaluation.metrics import AnyEvaluation, Evaluation, LabelEvaluation, RegressionEvaluation
from distls.execution.executor import Executor
from distls.execution.serial import SerialExecutor
from distls.ingestion.adhoc_dataset import Notify, Scorable, check_source_options, opened_like, pass_on
from distls.model_check import check_model
from distls.problem import Problem, loss_of
from distls.solvers.solver import Fitted
from distls.storage.dataset.dataset import Dataset
from distls.storage.dataset.feature_names import unpack_names
from distls.storage.dataset.metadata import Label, TargetKind
from distls.storage.errors import MismatchError
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.model.model import PROBABLE, WITH_PROBABILITIES, LinearModel, load_model, scored_as
from distls.workers.evaluation.multilabel_task import LabelJob, LabelSum, label_lane, merge_labels
from distls.workers.evaluation.regression_task import merge_residuals, residual_lane
from distls.workers.evaluation.score_task import (
    GradientJob,
    GradientSum,
    ScoreJob,
    ScoreSum,
    gradient_lane,
    merge_gradients,
    merge_scores,
    score_lane,
)
from distls.workers.penalties.registry import conjugate, prox_rows
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.prediction.threshold_task import (
    ThresholdJob,
    ThresholdSums,
    fitted_threshold,
    merge_thresholds,
    threshold_lane,
)
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import DEFAULT_LANES, Lane, deal
from distls.workers.runtime.process import single_threaded_blas

__all__ = [
    "AnyEvaluation",
    "Evaluation",
    "Evaluator",
    "LabelEvaluation",
    "RegressionEvaluation",
    "certificate_kind",
    "check_evaluable",
    "check_scorable",
    "class_codes",
    "evaluate",
    "predictor_of",
    "reference",
]


def reference(dataset: Dataset, cache_bytes: int = 0) -> DatasetRef:
    """Return the reference to `dataset` that is sent to workers."""
    return DatasetRef(str(dataset.path.resolve()), dataset.fingerprint, cache_bytes)


def predictor_of(model: LinearModel) -> LinearPredictor:
    """Return the predictor of a model, checked, as workers score rows with it."""
    return LinearPredictor.of(check_model(model, "the model")).compact()


def reading_lanes(dataset: Dataset) -> list[Lane]:
    """Return the lanes in which a dataset is read for a reduction."""
    n_lanes = max(1, min(DEFAULT_LANES, len(dataset)))
    return [Lane(i, blocks) for i, blocks in enumerate(deal(dataset.decoded_bytes, n_lanes))]


def check_scorable(
    dataset: Dataset,
    *,
    n_features: int,
    transforms_digest: str,
    transforms: Sequence[dict[str, Any]],
    features: Mapping[str, NDArray[Any]],
    model_name: str,
) -> None:
    """Check that rows of `dataset` mean the same as those a model was trained on.

    Raises
    ------
    MismatchError
        They are wider, or dense and narrower, went through other transforms, or have features of other names.
    """
    meta = dataset.meta
    if meta.n_features > n_features or (meta.layout == "dense" and meta.n_features != n_features):
        raise MismatchError(
            f"{dataset.path} has {meta.n_features} features, {model_name} {n_features}; "
            "ingest it with --like the training data"
        )
    if meta.transforms_digest != transforms_digest:
        mine, theirs = (",".join(t["name"] for t in ts) or "none" for ts in (meta.transforms, transforms))
        why = (
            f"transforms {mine}, {model_name} {theirs}"
            if mine != theirs
            else "transforms fitted on other data"
        )
        raise MismatchError(f"{dataset.path} has {why}; ingest it with --like the training data")
    _check_names(dataset, unpack_names(features, model_name), model_name)


def _check_names(dataset: Dataset, known: Sequence[str] | None, model_name: str) -> None:
    """Refuse columns of another order, or other categories, where both sides have names."""
    names = dataset.feature_names() if known is not None else None
    for number, (name, other) in enumerate(zip(names or (), known or (), strict=False)):
        if name != other:
            raise MismatchError(
                f'feature {number} of {dataset.path} is "{name}", but "{other}" in {model_name}; '
                "ingest it with --like the training data"
            )


_PREDICTED = {"class": "classes", "multilabel": "sets of labels", "continuous": "numbers"}


def check_targets(dataset: Dataset, target: TargetKind, n_outputs: int, model_name: str) -> None:
    """Check that predictions can be compared with the targets of `dataset`.

    Raises
    ------
    MismatchError
        There are none, or of another kind or number.
    """
    meta = dataset.meta
    if meta.target != target:
        kind = {"none": "no labels"}.get(meta.target, f"{meta.target} targets")
        raise MismatchError(f"{dataset.path} has {kind}, {model_name} predicts {_PREDICTED[target]}")
    if target == "continuous" and meta.n_targets != n_outputs:
        raise MismatchError(
            f"{dataset.path} has {meta.n_targets} targets a row, {model_name} predicts {n_outputs}"
        )
    if not meta.n_rows:
        raise MismatchError(f"{dataset.path} has no rows to score")


def class_codes(
    dataset: Dataset, classes: Sequence[Label], model_name: str, unknown: str
) -> NDArray[np.int32]:
    """Return the model's code of each class or label of the data, -1 for unknown ones.

    Raises
    ------
    MismatchError
        Rows have labels unknown to the model and `unknown` is "error".
    """
    meta = dataset.meta
    place = {label: code for code, label in enumerate(classes)}
    codes = np.array([place.get(label, -1) for label in meta.classes], dtype=np.int32)
    strange = [
        (label, count)
        for label, count, code in zip(meta.classes, meta.label_counts, codes, strict=True)
        if code < 0 and count
    ]
    if strange and unknown == "error":
        named = ", ".join(str(label) for label, _ in strange[:5]) + (", ..." if len(strange) > 5 else "")
        uses = sum(count for _, count in strange)
        what, often = ("classes", "rows") if meta.target == "class" else ("labels", "uses")
        raise MismatchError(
            f"{dataset.path} has {len(strange)} {what} ({named}; {uses} {often}) that are not among the "
            f"{len(classes)} of {model_name}; --unknown-labels count counts them as errors"
        )
    return codes


def score(
    executor: Executor,
    dataset: Dataset,
    predictor: LinearPredictor,
    loss: str,
    codes: NDArray[np.int32],
    cache_bytes: int = 0,
) -> ScoreSum:
    """Reduce the scores of all rows with classes, exactly once each."""
    job = ScoreJob(reference(dataset, cache_bytes), loss, codes)
    total: ScoreSum = _reduced(executor, dataset, predictor, partial(score_lane, job), merge_scores)
    return total


def _reduced(
    executor: Executor,
    dataset: Dataset,
    predictor: LinearPredictor,
    lane: Callable[..., Any],
    merge: Callable[..., Any],
) -> Any:
    total = executor.reduce(lane, reading_lanes(dataset), merge=merge, shared=predictor.compact())
    total.ledger.check_cover(range(len(dataset)), dataset.meta.n_rows)
    return total


def _evaluated(
    executor: Executor,
    dataset: Dataset,
    predictor: LinearPredictor,
    loss: str,
    classes: list[Label],
    codes: NDArray[np.int32],
) -> AnyEvaluation:
    """Compare the predictions for all rows with their targets; `codes` as `class_codes` returns them."""
    if dataset.meta.target == "continuous":
        lane = partial(residual_lane, reference(dataset))
        total = _reduced(executor, dataset, predictor, lane, merge_residuals)
        n_rows = total.ledger.n_rows
        return RegressionEvaluation(n_rows, total.squares / n_rows, total.spread / n_rows)
    if dataset.meta.target == "multilabel":
        return _label_evaluation(executor, dataset, predictor, loss, classes, codes)
    loss = scored_as(loss, predictor.recipe)
    return _summary(score(executor, dataset, predictor, loss, codes), dataset, classes, loss)


def _label_evaluation(
    executor: Executor,
    dataset: Dataset,
    predictor: LinearPredictor,
    loss: str,
    classes: list[Label],
    codes: NDArray[np.int32],
) -> LabelEvaluation:
    known = codes >= 0
    places = np.where(known, codes, len(classes) + np.cumsum(~known) - 1).astype(np.int32)
    strange = [label for label, code in zip(dataset.meta.classes, codes, strict=True) if code < 0]
    job = LabelJob(reference(dataset), loss, places, len(classes) + len(strange))
    total: LabelSum = _reduced(executor, dataset, predictor, partial(label_lane, job), merge_labels)
    return LabelEvaluation(
        n_rows=total.ledger.n_rows,
        error=total.errors / total.ledger.n_rows,
        log_loss=total.loss_sum / total.known if loss in PROBABLE and total.known else None,
        unknown=total.ledger.n_rows - total.known,
        classes=[*classes, *strange],
        counts=total.counts,
    )


def _summary(total: ScoreSum, dataset: Dataset, classes: list[Label], loss: str) -> Evaluation:
    n_outputs = max(len(classes), 1)
    confusion = np.stack([total.pairs // n_outputs, total.pairs % n_outputs, total.pair_counts], axis=1)
    return Evaluation(
        n_rows=total.ledger.n_rows,
        error=total.errors / total.ledger.n_rows,
        log_loss=total.loss_sum / total.known if loss in WITH_PROBABILITIES and total.known > 0 else None,
        unknown=total.ledger.n_rows - int(total.known),
        classes=dataset.meta.classes,
        predicted_classes=classes,
        confusion=confusion,
    )


def evaluate(
    model: str | Place | LinearModel,
    dataset: Scorable,
    *,
    unknown_labels: str = "error",
    format: str = "auto",
    labels: str | Place | None = None,
    beside: str | Place | None = None,
    executor: Executor | None = None,
    name: str | None = None,
    notify: Notify | None = None,
) -> AnyEvaluation:
    """Score a model on labelled data.

    Parameters
    ----------
    model : run path, model path or LinearModel
    dataset : path or Dataset, or paths of source files
        Source files are ingested first like the data of the model, into a folder that is removed after.
    unknown_labels : {"error", "count"}
        Refuse labels the model does not know, or count their rows as errors.
    format, labels : str
        Of the source files; see `distls.ingest`.
    beside : path, optional
        Source files are ingested into a folder next to this one, which every worker must reach. Default: the run
        or model, or for a LinearModel the system's folder for temporary files.
    executor : Executor, optional
        Default: this process.
    name : str, optional
        What errors call the model.
    notify : callable, optional
        Called with each notice about source files, one line of text. Default: they become a UserWarning each.

    Returns
    -------
    Evaluation, LabelEvaluation or RegressionEvaluation
        Of a model of classes, of sets of labels, of numbers: see `distls.evaluation.metrics`.

    Raises
    ------
    MismatchError
        Before any partition is read: widths, transforms or classes do not fit.
    BadInputError
        A source file cannot be read as asked.
    """
    path = None if isinstance(model, LinearModel) else str(model)
    name = name or path or "the model"
    fitted = check_model(model if isinstance(model, LinearModel) else load_model(model), name)
    check_source_options(dataset, {"format": format != "auto", "labels": labels is not None})
    options = {"format": format, "labels": labels, "executor": executor}
    place = place_of(beside or path or f"{tempfile.gettempdir()}/distls-evaluate")
    with opened_like(fitted, dataset, name=name, beside=place, **options) as (data, notices):
        check_scorable(
            data,
            n_features=fitted.n_features,
            transforms_digest=fitted.transforms_digest,
            transforms=fitted.transforms,
            features=fitted.features,
            model_name=name,
        )
        check_targets(data, fitted.target, fitted.n_outputs, name)
        codes = class_codes(data, fitted.classes, name, unknown_labels)
        pass_on(notices, notify)
        runner, predictor = executor or SerialExecutor(), LinearPredictor.of(fitted)
        return _evaluated(runner, data, predictor, fitted.loss, fitted.classes, codes)


def check_evaluable(problem: Problem, dataset: Dataset) -> NDArray[np.int32]:
    """Check that a model trained on the problem can score `dataset`; return the model's code of each class.

    Raises
    ------
    MismatchError
    """
    meta, name = problem.dataset.meta, str(problem.dataset.path)
    check_scorable(
        dataset,
        n_features=meta.n_features,
        transforms_digest=meta.transforms_digest,
        transforms=meta.transforms,
        features=problem.dataset.features(),
        model_name=name,
    )
    check_targets(dataset, meta.target, problem.shape[1], name)
    return class_codes(dataset, meta.classes, name, "error")


class Evaluator:
    """What a fit evaluates besides its rounds: objective, certificate, and other datasets.

    Parameters
    ----------
    problem : Problem
    executor : Executor
    data : DatasetRef
        The training data, with the cache budget of the fit.
    eval_data, select_data : Dataset or None

    Raises
    ------
    MismatchError
        A dataset does not fit the training data.
    """

    def __init__(
        self,
        problem: Problem,
        executor: Executor,
        data: DatasetRef,
        *,
        eval_data: Dataset | None = None,
        select_data: Dataset | None = None,
    ) -> None:
        self._problem, self._executor, self._data = problem, executor, data
        self._eval = self._checked(eval_data)
        self._select = self._checked(select_data)

    def _checked(self, dataset: Dataset | None) -> tuple[Dataset, NDArray[np.int32]] | None:
        return None if dataset is None else (dataset, check_evaluable(self._problem, dataset))

    def __call__(self, fitted: Fitted) -> dict[str, Any]:
        """Return objective, certificate, what reading cost, and the error on the evaluation data."""
        told = self.objective(fitted)
        if self._eval is None:  # then there is no need to know what is published
            return told
        return told | self._scored("eval", self.published(fitted.predictor), self._eval)

    def selection(self, predictor: LinearPredictor) -> dict[str, Any]:
        """Return the error of a published predictor on the selection data, if there are any."""
        return self._scored("select", predictor, self._select)

    def published(self, predictor: LinearPredictor) -> LinearPredictor:
        """Return the predictor of the model to publish: of a ranking, less a threshold for sets of labels.

        That is fitted to the training data, in one read of them; see `distls.workers.prediction.threshold_task`.
        """
        problem = self._problem
        if not problem.ranks:
            return predictor
        dataset = problem.dataset
        job = ThresholdJob(self._data, problem.row_weights)
        sums: ThresholdSums = self._executor.reduce(
            partial(threshold_lane, job),
            reading_lanes(dataset),
            merge=merge_thresholds,
            shared=predictor.compact(),
        )
        sums.ledger.check_cover(range(len(dataset)), dataset.meta.n_rows)
        slope, constant = fitted_threshold(sums)
        w = predictor.coefficients
        with single_threaded_blas():
            of_rows, of_intercept = w @ slope, predictor.intercept @ slope
        return replace(
            predictor,
            coefficients=np.asarray(w - of_rows[:, None], w.dtype),
            intercept=predictor.intercept - (of_intercept + constant),
        )

    def _scored(
        self, name: str, predictor: LinearPredictor, opened: tuple[Dataset, NDArray[np.int32]] | None
    ) -> dict[str, Any]:
        """Return what is to be small as ``NAME_error``: the error, of numbers the mean squared one or None.

        A log loss that is infinite is None: a projection onto the simplex leaves probabilities of zero.
        """
        if opened is None:
            return {}
        problem = self._problem
        dataset, codes = opened
        classes = problem.dataset.meta.classes
        evaluation = _evaluated(self._executor, dataset, predictor, problem.loss, classes, codes)
        criterion = evaluation.criterion if math.isfinite(evaluation.criterion) else None
        if isinstance(evaluation, RegressionEvaluation):
            return {f"{name}_error": criterion, f"{name}_mse": criterion, f"{name}_log_loss": None}
        known = evaluation.log_loss is not None and math.isfinite(evaluation.log_loss)
        return {f"{name}_error": criterion, f"{name}_log_loss": evaluation.log_loss if known else None}

    def objective(self, fitted: Fitted) -> dict[str, Any]:
        """Return F(W, b) and the certificate; one read of the training data.

        For any subgradient G of an objective that is alpha-strongly convex in W, F(W) - F* <= ||G||^2 / (2 alpha);
        for the hinges this is also the duality gap at the dual point that the subgradient defines. Of the other
        penalties see `_gap`. With an intercept the bound would need it minimised out, so the gradient's norm is
        reported instead.
        """
        problem, predictor = self._problem, fitted.predictor
        if fitted.alpha is not None:
            problem = replace(problem, alpha=fitted.alpha)
        if fitted.refit is not None:
            problem = replace(problem, alpha=fitted.refit.alpha, penalty="l2")
        with_gradient = problem.loss != "perceptron" and not predictor.recipe
        total = self._summed(predictor, with_gradient=with_gradient)
        if fitted.refit is not None:
            total.gradient[~fitted.refit.used] = 0.0  # other weights are no part of that problem
        penalty = problem.penalty_of(predictor.coefficients) if with_gradient else 0.0
        value = total.loss_sum / total.weight_sum + problem.alpha * penalty
        return {
            "objective": value,
            "certificate": _certificate(problem, predictor, replace(total), value),
            "eval_bytes_read": total.ledger.bytes_read,
        }

    def gradient(self, predictor: LinearPredictor) -> NDArray[np.float64]:
        """Return the gradient of the mean loss in the weights, without the penalty's; one read of the training data."""
        total = self._summed(predictor, with_gradient=True)
        return np.asarray(total.gradient / total.weight_sum)

    def _summed(self, predictor: LinearPredictor, *, with_gradient: bool) -> GradientSum:
        problem, dataset = self._problem, self._problem.dataset
        job = GradientJob(self._data, problem.loss, problem.row_weights, with_gradient)
        total: GradientSum = self._executor.reduce(
            partial(gradient_lane, job),
            reading_lanes(dataset),
            merge=merge_gradients,
            shared=predictor if with_gradient else predictor.compact(),
        )
        total.ledger.check_cover(range(len(dataset)), dataset.meta.n_rows)
        return total


def certificate_kind(params: Mapping[str, Any]) -> str:
    """Return the kind of certificate that a setting has; see docs/notation.md."""
    loss = loss_of(params)
    if loss == "perceptron" or not is_linear(params):
        return "none"
    if params["fit_intercept"] or params["alpha"] == 0:
        return "gradient_norm"
    if params.get("penalty", "l2") != "l2":
        return "duality_gap"
    return "duality_gap" if loss in ("crammer_singer", "ovr_hinge") else "strong_convexity"


def is_linear(params: Mapping[str, Any]) -> bool:
    """Tell whether the model of a setting is plainly linear in the rows."""
    return "basis" not in params and params.get("features", "none") in ("none", "original")


def _certificate(
    problem: Problem, predictor: LinearPredictor, total: Any, objective: float
) -> dict[str, Any]:
    setting = {
        "loss": problem.loss,
        "fit_intercept": problem.fit_intercept,
        "alpha": problem.alpha,
        "penalty": problem.penalty,
    }
    kind = "none" if predictor.recipe else certificate_kind(setting)
    if kind == "none":
        return {"kind": kind, "value": None}
    gradient = total.gradient
    gradient /= total.weight_sum
    if problem.penalty != "l2" and kind == "duality_gap":
        loss = total.loss_sum / total.weight_sum
        return {"kind": kind, "value": min(_gap(problem, predictor, loss, gradient), objective)}
    square = float(np.square(_stationarity(problem, predictor, gradient)).sum())
    if kind == "gradient_norm":
        own = float(np.square(total.intercept_gradient / total.weight_sum).sum())
        return {"kind": kind, "value": math.sqrt(square + own * problem.fit_intercept)}
    # losses are not negative, so neither is the optimum: the objective itself is a bound
    return {"kind": kind, "value": min(square / (2.0 * problem.alpha), objective)}


def _stationarity(
    problem: Problem, predictor: LinearPredictor, gradient: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return what is zero at the optimum: the gradient of F, or how far a step of size 1 with its prox would go."""
    w = predictor.coefficients.astype(np.float64)
    if problem.penalty == "l2":
        gradient += problem.alpha * w
        return gradient
    return w - prox_rows(problem.penalty, w - gradient, problem.alpha, problem.l1_ratio)


_SQUARED_HINGES = ("multiclass_squared_hinge", "multitask_squared_hinge")


def _gap(problem: Problem, predictor: LinearPredictor, loss: float, gradient: NDArray[np.float64]) -> float:
    """Return the duality gap at c times the slopes of the losses, c being what makes that feasible.

    By Fenchel's equality the conjugates of the losses at their slopes have the mean <G, W> - L(W), with G the gradient
    of L. The squared hinges' conjugates are quadratic: at c times the slopes they cost c^2 L + c (<G, W> - 2 L). Of
    other losses, which are not negative, convexity bounds them by c (<G, W> - L), which is exact at c = 1.
    """
    product = float(np.vdot(gradient, predictor.coefficients.astype(np.float64)))
    c, conjugated = conjugate(problem.penalty, -gradient, problem.alpha, problem.l1_ratio)
    rest = problem.alpha * problem.penalty_of(predictor.coefficients) + conjugated + c * product
    return rest + loss * ((1.0 - c) ** 2 if problem.loss in _SQUARED_HINGES else 1.0 - c)
