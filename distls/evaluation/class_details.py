"""Details of an evaluation of classes beyond error and confusion: ranks, curves, probabilities, costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.workers.evaluation.class_metrics_task import MetricsSum
from distls.workers.evaluation.probability_sums import BINS, ProbabilitySums
from distls.workers.evaluation.ranked_scores import RankedScores, WithBound, average_precision, rates, roc_auc

Floats = NDArray[np.float64]
_TOP = (1, 3, 5, 10)
THRESHOLD = ("threshold_for", "threshold", "probability")  # members of a calibration with one


@dataclass(frozen=True)
class ProbabilityQuality:
    """How good probabilities are, over the rows whose labels the model knows.

    Attributes
    ----------
    log_loss : float
    brier_score : float
        Mean squared distance of a row's probabilities from the indicator of its class; of two classes half of it.
    calibration_error : float
        Expected calibration error: mean over rows of the distance between confidence and accuracy of their bin.
    bins : array of shape (15, 3)
        By the probability of the most probable class, in equal widths: weight of the rows, mean of that probability
        (confidence), share of rows of that class (accuracy). NaN for the means of an empty bin.
    """

    log_loss: float
    brier_score: float
    calibration_error: float
    bins: Floats

    @classmethod
    def of(cls, sums: ProbabilitySums, k: int) -> ProbabilityQuality | None:
        """Return the figures of k classes; None without rows."""
        if sums.bins is None or not sums.weight > 0.0:
            return None
        rows, confidence, right = sums.bins.T
        means = np.full((2, len(rows)), math.nan)
        np.divide([confidence, right], rows, out=means, where=rows > 0.0)
        error = np.abs(right - confidence).sum() / sums.weight
        brier = sums.brier / sums.weight / (2 if k == 2 else 1)
        return cls(sums.log_loss / sums.weight, brier, float(error), np.stack([rows, *means], axis=1))

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return {
            "log_loss": self.log_loss if math.isfinite(self.log_loss) else None,
            "brier_score": self.brier_score, "calibration_error": self.calibration_error,
            "reliability": [
                {
                    "low": i / BINS, "high": (i + 1) / BINS, "n_rows": rows,
                    "confidence": None if rows == 0.0 else confidence,
                    "accuracy": None if rows == 0.0 else accuracy,
                }
                for i, (rows, confidence, accuracy) in enumerate(self.bins.tolist())
            ],
        }  # fmt: skip


@dataclass(frozen=True)
class Ranking:
    """How well scores rank the rows of each class of the model before the others.

    Attributes
    ----------
    by : {"probability", "score"}
        What ranks rows; of two classes without probabilities the difference of the scores.
    roc_auc, average_precision : WithBound or None
        Of two classes that of the second, else the mean over the classes with rows and other rows.
    by_class : list of dict
    curve : array of shape (m, 3)
        Of two classes, for the cuts between their scores: rate of rows of the first class above it, recall and
        precision of the second.
    """

    by: str
    roc_auc: WithBound | None
    average_precision: WithBound | None
    by_class: list[dict[str, float | None]]
    curve: Floats

    @classmethod
    def of(cls, curves: Sequence[RankedScores], k: int, by: str) -> Ranking | None:
        """Return the figures; None without curves."""
        if not curves:
            return None
        areas = [roc_auc(rows) for rows in curves]
        # a class without rows has no precision, and one without others a perfect one
        precisions = [
            None if area is None else average_precision(rows) for area, rows in zip(areas, curves, strict=True)
        ]
        table = [
            {"roc_auc": area and area.value, "average_precision": precision and precision.value}
            for area, precision in zip(areas, precisions, strict=True)
        ]
        if k == 2:  # the first class is not ranked by itself
            table.insert(0, {"roc_auc": None, "average_precision": None})
        curve = rates(curves[0]) if k == 2 else np.empty((0, 3))
        return cls(by, _mean(areas), _mean(precisions), table, curve)


def _mean(values: Sequence[WithBound | None]) -> WithBound | None:
    found = [value for value in values if value is not None]
    return WithBound(*(float(np.mean(part)) for part in zip(*found, strict=True))) if found else None


@dataclass(frozen=True)
class ClassDetails:
    """Details of a classifier's evaluation by `distls.evaluate`.

    Attributes
    ----------
    weighted : bool
        Rows count by their sample weights; else each one.
    rows, right, predicted : arrays
        Rows and those predicted right of each class of the data, predicted rows of each class of the model.
    top_k : dict of int -> float
        Share of rows whose class is among the k of the highest scores.
    missing : float
        By how much the counts of the confusion matrix, those that are left out among them, may be too small.
    ranking : Ranking or None
        None with more than 1024 classes.
    probability : ProbabilityQuality or None
        Of the model's probabilities; None if it has none.
    calibration : str or None
        Kind of calibration that they went through.
    uncalibrated : ProbabilityQuality or None
        Of a calibrated model whose loss has probabilities: of those.
    cost : float or None
        Mean cost of a row's prediction, if costs were given.
    threshold : dict
        Of a model with a threshold: what it was chosen for, the score and the probability at it.
    """

    weighted: bool
    rows: Floats
    right: Floats
    predicted: Floats
    top_k: dict[int, float]
    missing: float
    ranking: Ranking | None
    probability: ProbabilityQuality | None
    calibration: str | None = None
    uncalibrated: ProbabilityQuality | None = None
    cost: float | None = None
    threshold: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        total: MetricsSum,
        k: int,
        *,
        weighted: bool,
        by: str,
        calibration: str | None,
        cost: float | None,
        threshold: dict[str, Any],
    ) -> ClassDetails:
        """Return the figures of sums over rows."""
        hits = np.cumsum(total.ranks) / total.weight
        return cls(
            weighted,
            total.rows,
            total.right,
            total.predicted,
            {at: float(hits[at - 1]) for at in _TOP if at < k},
            total.missing,
            Ranking.of(total.curves, k, by),
            ProbabilityQuality.of(total.probability, k),
            calibration,
            ProbabilityQuality.of(total.natural, k),
            cost,
            threshold,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        ranking, none = self.ranking, {"log_loss": None, "brier_score": None, "calibration_error": None}
        probability = {**none, "reliability": []} if self.probability is None else self.probability.to_json()
        del probability["log_loss"]  # that of the evaluation
        return {
            "weighted": self.weighted,
            "top_k_accuracy": [{"k": k, "accuracy": value} for k, value in self.top_k.items()],
            "roc_auc": ranking and ranking.roc_auc and ranking.roc_auc._asdict(),
            "average_precision": ranking and ranking.average_precision and ranking.average_precision._asdict(),
            "ranked_by": ranking and ranking.by,
            **probability,
            "calibration": self.calibration,
            "uncalibrated": self.uncalibrated and self.uncalibrated.to_json(),
            "cost": self.cost,
            **self.threshold,
            "confusion_missing": self.missing,
        }
