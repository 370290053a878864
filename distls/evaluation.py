"""Scoring models: on other data, and the exact objective with its certificate on the training data."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.execution.base import Executor
from distls.execution.serial import SerialExecutor
from distls.problem import Problem, loss_of
from distls.scorable import Scorable, check_source_options, opened_like
from distls.solvers.base import Weights
from distls.storage.dataset import Dataset, open_dataset
from distls.storage.errors import MismatchError
from distls.storage.format import Label
from distls.storage.model import PROBABLE, LinearModel, load_model
from distls.storage.names import unpack_names
from distls.workers.lanes import DEFAULT_LANES, Lane, deal
from distls.workers.readout import Readout
from distls.workers.scoring import (
    GradientJob,
    ScoreJob,
    ScoreSum,
    gradient_lane,
    merge_gradients,
    merge_scores,
    score_lane,
)
from distls.workers.stream import DatasetRef

__all__ = [
    "Evaluation",
    "Evaluator",
    "certificate_kind",
    "check_evaluable",
    "check_scorable",
    "class_codes",
    "evaluate",
    "readout_of",
    "reference",
]


@dataclass(frozen=True)
class Evaluation:
    """How a model does on labelled data.

    Attributes
    ----------
    n_rows : int
    error : float
        Fraction of rows whose predicted class is wrong; rows with labels unknown to the model are wrong.
    log_loss : float or None
        Mean negative log probability over the rows with known labels; None without probabilities.
    unknown : int
        Rows with labels unknown to the model.
    classes : list of labels of the data
    predicted_classes : list of labels of the model
    confusion : int64 array of shape (m, 3)
        Rows (class of the data, predicted class, how often), as places in the two lists.
    """

    n_rows: int
    error: float
    log_loss: float | None
    unknown: int
    classes: list[Label]
    predicted_classes: list[Label]
    confusion: NDArray[np.int64]

    def per_class(self) -> list[dict[str, Any]]:
        """Return rows, recall and precision of each class of the data."""
        true, predicted, counts = self.confusion.T
        place = {label: i for i, label in enumerate(self.predicted_classes)}
        table = []
        for code, label in enumerate(self.classes):
            rows = int(counts[true == code].sum())
            guessed = predicted == place.get(label, -1)
            right = int(counts[(true == code) & guessed].sum())
            total = int(counts[guessed].sum())
            table.append(
                {
                    "class": label,
                    "n_rows": rows,
                    "recall": right / rows if rows else None,
                    "precision": right / total if total else None,
                }
            )
        return table

    def to_json(self) -> dict[str, Any]:
        """Return the evaluation as JSON values."""
        named = [
            {"class": self.classes[t], "predicted": self.predicted_classes[p], "count": int(c)}
            for t, p, c in self.confusion
        ]
        return {
            "n_rows": self.n_rows,
            "error": self.error,
            "log_loss": self.log_loss,
            "unknown_labels": self.unknown,
            "per_class": self.per_class(),
            "confusion": named,
        }


def reference(dataset: Dataset, cache_bytes: int = 0) -> DatasetRef:
    """Return the reference to `dataset` that is sent to workers."""
    return DatasetRef(str(dataset.path.resolve()), dataset.fingerprint, cache_bytes)


def readout_of(model: LinearModel) -> Readout:
    """Return what workers score rows with."""
    return Readout(model.weights, model.intercept.astype(np.float64), model.recipe, model.arrays)


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


def class_codes(
    dataset: Dataset, classes: Sequence[Label], model_name: str, unknown: str
) -> NDArray[np.int32]:
    """Return the model's code of each class of the data, -1 for unknown ones.

    Raises
    ------
    MismatchError
        Rows have labels unknown to the model and `unknown` is "error"; or the data have no class labels.
    """
    meta = dataset.meta
    if meta.target != "class":
        kind = {"none": "no labels"}.get(meta.target, f"{meta.target} targets")
        raise MismatchError(f"{dataset.path} has {kind}, {model_name} predicts classes")
    place = {label: code for code, label in enumerate(classes)}
    codes = np.array([place.get(label, -1) for label in meta.classes], dtype=np.int32)
    strange = [
        (label, count)
        for label, count, code in zip(meta.classes, meta.label_counts, codes, strict=True)
        if code < 0 and count
    ]
    if strange and unknown == "error":
        named = ", ".join(str(label) for label, _ in strange[:5]) + (", ..." if len(strange) > 5 else "")
        rows = sum(count for _, count in strange)
        raise MismatchError(
            f"{dataset.path} has {len(strange)} classes ({named}; {rows} rows) that are not among the "
            f"{len(classes)} of {model_name}; --unknown-labels count counts them as errors"
        )
    return codes


def score(
    executor: Executor,
    dataset: Dataset,
    weights: Weights,
    loss: str,
    codes: NDArray[np.int32],
    cache_bytes: int = 0,
) -> ScoreSum:
    """Reduce the scores of all rows, exactly once each."""
    job = ScoreJob(reference(dataset, cache_bytes), loss, codes)
    total = executor.reduce(
        partial(score_lane, job), reading_lanes(dataset), merge=merge_scores, shared=weights.readout()
    )
    assert sorted(total.blocks) == list(range(len(dataset)))
    assert total.n_rows == dataset.meta.n_rows
    return total


def _summary(total: ScoreSum, dataset: Dataset, classes: list[Label], loss: str) -> Evaluation:
    n_outputs = max(len(classes), 1)
    confusion = np.stack([total.pairs // n_outputs, total.pairs % n_outputs, total.pair_counts], axis=1)
    probable = loss in PROBABLE and total.known > 0
    return Evaluation(
        n_rows=total.n_rows,
        error=total.errors / total.n_rows if total.n_rows else math.nan,
        log_loss=total.loss_sum / total.known if probable else None,
        unknown=total.n_rows - int(total.known),
        classes=dataset.meta.classes,
        predicted_classes=classes,
        confusion=confusion,
    )


def evaluate(
    model: str | Path | LinearModel,
    dataset: Scorable,
    *,
    unknown_labels: str = "error",
    format: str = "auto",
    labels: str | Path | None = None,
    beside: str | Path | None = None,
    executor: Executor | None = None,
    name: str | None = None,
) -> Evaluation:
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

    Raises
    ------
    MismatchError
        Before any partition is read: widths, transforms or classes do not fit.
    BadInputError
        A source file cannot be read as asked.
    """
    path = None if isinstance(model, LinearModel) else str(model)
    name = name or path or "the model"
    fitted = model if isinstance(model, LinearModel) else load_model(model)
    check_source_options(dataset, {"format": format != "auto", "labels": labels is not None})
    options = {"format": format, "labels": labels, "executor": executor}
    place = Path(beside or path or Path(tempfile.gettempdir()) / "distls-evaluate")
    with opened_like(fitted, dataset, name=name, beside=place, **options) as data:
        check_scorable(
            data,
            n_features=fitted.n_features,
            transforms_digest=fitted.transforms_digest,
            transforms=fitted.transforms,
            features=fitted.features,
            model_name=name,
        )
        codes = class_codes(data, fitted.classes, name, unknown_labels)
        weights = Weights(fitted.weights, fitted.intercept, fitted.recipe, fitted.arrays)
        total = score(executor or SerialExecutor(), data, weights, fitted.loss, codes)
        return _summary(total, data, fitted.classes, fitted.loss)


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
    return class_codes(dataset, meta.classes, name, "error")


class Evaluator:
    """What a fit evaluates besides its rounds: objective, certificate, and other datasets.

    Parameters
    ----------
    problem : Problem
    executor : Executor
    data : DatasetRef
        The training data, with the cache budget of the fit.
    eval_data, select_data : path or None

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
        eval_data: str | None = None,
        select_data: str | None = None,
    ) -> None:
        self._problem, self._executor, self._data = problem, executor, data
        self._eval = self._open(eval_data)
        self._select = self._open(select_data)

    def _open(self, path: str | None) -> tuple[Dataset, NDArray[np.int32]] | None:
        if path is None:
            return None
        dataset = open_dataset(path)
        return dataset, check_evaluable(self._problem, dataset)

    def __call__(self, weights: Weights) -> dict[str, Any]:
        """Return objective, certificate, what reading cost, and the error on the evaluation data."""
        result = self.objective(weights)
        if self._eval is not None:
            evaluation = self._score(weights, *self._eval)
            result |= {"eval_error": evaluation.error, "eval_log_loss": evaluation.log_loss}
        return result

    def selection(self, weights: Weights) -> dict[str, Any]:
        """Return the error on the selection data, if there are any."""
        if self._select is None:
            return {}
        evaluation = self._score(weights, *self._select)
        return {"select_error": evaluation.error, "select_log_loss": evaluation.log_loss}

    def _score(self, weights: Weights, dataset: Dataset, codes: NDArray[np.int32]) -> Evaluation:
        total = score(self._executor, dataset, weights, self._problem.loss, codes)
        return _summary(total, dataset, self._problem.dataset.meta.classes, self._problem.loss)

    def objective(self, weights: Weights) -> dict[str, Any]:
        """Return F(W, b) and the certificate; one read of the training data.

        For any subgradient G of an objective that is alpha-strongly convex in W, F(W) - F* <= ||G||^2 / (2 alpha);
        for the hinges this is also the duality gap at the dual point that the subgradient defines. With an
        intercept the bound would need it minimised out, so the gradient's norm is reported instead.
        """
        problem = self._problem
        by_class = problem.row_weight_by_class
        plain = not problem.dataset.meta.weighted and bool(np.all(by_class == 1.0))
        with_gradient = problem.loss != "perceptron" and not weights.recipe
        job = GradientJob(self._data, problem.loss, None if plain else by_class, with_gradient)
        lanes = reading_lanes(problem.dataset)
        total = self._executor.reduce(
            partial(gradient_lane, job), lanes, merge=merge_gradients, shared=weights.readout()
        )
        assert total.n_rows == problem.dataset.meta.n_rows
        norm = float(np.square(weights.coefficients, dtype=np.float64).sum()) if with_gradient else 0.0
        value = total.loss_sum / total.weight_sum + 0.5 * problem.alpha * norm
        return {
            "objective": value,
            "certificate": _certificate(problem, weights, replace(total), value),
            "eval_bytes_read": total.reads.bytes_read,
        }


def certificate_kind(params: Mapping[str, Any]) -> str:
    """Return the kind of certificate that a setting has; see docs/notation.md."""
    loss = loss_of(params)
    if loss == "perceptron" or not is_linear(params):
        return "none"
    if params["fit_intercept"] or params["alpha"] == 0:
        return "gradient_norm"
    return "duality_gap" if loss in ("crammer_singer", "ovr_hinge") else "strong_convexity"


def is_linear(params: Mapping[str, Any]) -> bool:
    """Tell whether the model of a setting is plainly linear in the rows."""
    return "powers" not in params and params.get("features", "original") == "original"


def _certificate(problem: Problem, weights: Weights, total: Any, objective: float) -> dict[str, Any]:
    setting = {"loss": problem.loss, "fit_intercept": problem.fit_intercept, "alpha": problem.alpha}
    kind = "none" if weights.recipe else certificate_kind(setting)
    if kind == "none":
        return {"kind": kind, "value": None}
    gradient = total.gradient
    gradient /= total.weight_sum
    gradient += problem.alpha * weights.coefficients.astype(np.float64)
    square = float(np.square(gradient).sum())
    if kind == "gradient_norm":
        own = float(np.square(total.intercept_gradient / total.weight_sum).sum())
        return {"kind": kind, "value": math.sqrt(square + own * problem.fit_intercept)}
    # losses are not negative, so neither is the optimum: the objective itself is a bound
    return {"kind": kind, "value": min(square / (2.0 * problem.alpha), objective)}
