"""Predictions reduced to sums over all rows of a data set, each row exactly once."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.evaluation.class_details import THRESHOLD, ClassDetails
from distls.evaluation.metrics import AnyEvaluation, Evaluation, LabelEvaluation, RegressionEvaluation
from distls.execution.row_reads import rows_reduced
from distls.storage.dataset.dataset import Dataset
from distls.storage.dataset.feature_names import target_names
from distls.storage.dataset.metadata import Label
from distls.storage.errors import MismatchError
from distls.storage.model.model import LinearModel
from distls.workers.evaluation.class_metrics_task import MetricsSum, MetricsTask
from distls.workers.evaluation.target_task import PRECISION_AT, LabelSum, LabelTask, ResidualTask
from distls.workers.losses.loss_registry import has_probabilities, loss_named
from distls.workers.prediction.predictor import LinearPredictor, scored_as
from distls.workers.prediction.probability_map import ProbabilityMap, label_cuts
from distls.workers.rounds.block_stream import DatasetRef


async def score_targets(
    dataset: Dataset,
    predictor: LinearPredictor,
    loss: str,
    classes: list[Label],
    codes: NDArray[np.int32],
    *,
    weighted: bool = False,
    cache_bytes: int = 0,
) -> AnyEvaluation:
    """Compare the predictions for all rows with their targets; `codes` as `class_codes` returns them.

    With `weighted` rows with numbers or sets of labels count by their sample weights. Of decoded rows a worker may keep
    `cache_bytes`.
    """
    data = DatasetRef.of(dataset, cache_bytes)
    if dataset.meta.target == "continuous":
        residuals = ResidualTask(data, loss, weighted)
        found = await rows_reduced(dataset, predictor.compact(), residuals)
        _check_weight(dataset, found.weight)
        return RegressionEvaluation(
            found.ledger.n_rows,
            found.squares / found.weight,
            found.squared_deviations / found.weight,
            weighted,
            None if loss_named(loss).quadratic else found.deviance / found.weight,
            target_names(dataset.meta.source, dataset.meta.n_targets),
        )
    if dataset.meta.target == "multilabel":
        return await _label_evaluation(dataset, data, predictor, loss, classes, codes, weighted, None)
    loss = scored_as(loss, predictor.recipe)
    task = MetricsTask(data, loss, codes, len(classes), weighted=False)
    total: MetricsSum = await rows_reduced(dataset, predictor.compact(), task)
    log_loss = total.loss_sum / total.known if has_probabilities(loss) and total.known > 0 else None
    return _of_classes(dataset, classes, total, total.pair_weights.astype(np.int64), log_loss)


async def measure_labels(
    dataset: Dataset, model: LinearModel, codes: NDArray[np.int32], *, weighted: bool = False
) -> LabelEvaluation:
    """Evaluate a multi-label model with its own thresholds."""
    predictor, cuts = LinearPredictor.of(model), label_cuts(model)
    of_model = predictor, model.loss, model.classes
    found = await _label_evaluation(dataset, DatasetRef.of(dataset), *of_model, codes, weighted, cuts)
    return replace(found, calibration=model.calibration.get("kind"))


async def measure_classes(
    dataset: Dataset,
    model: LinearModel,
    codes: NDArray[np.int32],
    *,
    weighted: bool = False,
    costs: NDArray[np.float64] | None = None,
) -> Evaluation:
    """Evaluate a model of classes with all metrics; `costs` of each class of the data and each of the model."""
    predictor, loss = LinearPredictor.of(model), scored_as(model.loss, model.recipe)
    made, natural = ProbabilityMap.of(model), ProbabilityMap.of(model, natural=True)
    # scores that a threshold has moved are not those of the loss any more
    before = natural if model.calibration and "threshold_for" not in model.calibration else None
    task = MetricsTask(DatasetRef.of(dataset), loss, codes, model.n_outputs, weighted, made, before, details=True)
    total: MetricsSum = await rows_reduced(dataset, predictor.compact(), task)
    _check_weight(dataset, total.weight)
    k, kind = model.n_outputs, model.calibration.get("kind")
    pairs = total.pairs // k, total.pairs % k
    details = ClassDetails.of(
        total,
        k,
        weighted=weighted,
        by="score" if made is None else "probability",
        calibration=kind,
        cost=None if costs is None else float(total.pair_weights @ costs[pairs]) / total.weight,
        threshold={name: model.calibration[name] for name in THRESHOLD if name in model.calibration},
    )
    log_loss = total.loss_sum / total.known if made is not None and total.known > 0 else None
    if kind is not None:
        log_loss = None if details.probability is None else details.probability.log_loss
    counts = total.pair_weights if weighted else total.pair_weights.astype(np.int64)
    return _of_classes(dataset, model.classes, total, counts, log_loss, details)


def _check_weight(dataset: Dataset, weight: float) -> None:
    if not weight > 0.0:
        raise MismatchError(f"{dataset.path}: the sample weights of its rows sum to {weight:g}; nothing to measure")


async def _label_evaluation(
    dataset: Dataset,
    data: DatasetRef,
    predictor: LinearPredictor,
    loss: str,
    classes: list[Label],
    codes: NDArray[np.int32],
    weighted: bool,
    cuts: NDArray[np.float64] | None,
) -> LabelEvaluation:
    known = codes >= 0
    # labels unknown to the model come after its own
    places = np.where(known, codes, len(classes) + np.cumsum(~known) - 1).astype(np.int32)
    unknown = [label for label, code in zip(dataset.meta.classes, codes, strict=True) if code < 0]
    task = LabelTask(data, loss, places, len(classes) + len(unknown), weighted, cuts)
    total: LabelSum = await rows_reduced(dataset, predictor.compact(), task)
    _check_weight(dataset, total.weight)
    hits = zip(PRECISION_AT, total.hits.tolist(), strict=True)
    return LabelEvaluation(
        n_rows=total.ledger.n_rows,
        error=total.errors / total.weight,
        log_loss=total.loss_sum / total.known if has_probabilities(loss) and total.known else None,
        unknown=total.n_unknown,
        classes=[*classes, *unknown],
        counts=total.counts if weighted else total.counts.astype(np.int64),
        precision_at={at: hit / at / total.weight for at, hit in hits if at <= len(classes)},
        weight=total.weight if weighted else None,
    )


def _of_classes(
    dataset: Dataset,
    classes: list[Label],  # of the model
    total: MetricsSum,
    counts: NDArray[Any],  # of each pair of a class and a predicted one
    log_loss: float | None,
    details: ClassDetails | None = None,
) -> Evaluation:
    confusion = np.stack([*np.divmod(total.pairs, max(len(classes), 1)), counts], axis=1)
    error = (total.weight - float(total.right.sum())) / total.weight
    return Evaluation(
        total.ledger.n_rows, error, log_loss, total.n_unknown, dataset.meta.classes, classes, confusion, details
    )
