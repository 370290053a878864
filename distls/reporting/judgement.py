"""How a model does on a data set: totals, classes, what is taken for what, and how far probabilities can be trusted."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from distls.evaluation.evaluate import evaluate
from distls.evaluation.metrics import AnyEvaluation, Evaluation, LabelEvaluation
from distls.execution.executor import Executor
from distls.execution.serial import SerialExecutor
from distls.storage.dataset.dataset import Dataset
from distls.storage.model.model import LinearModel

_CONFUSIONS = 3  # shown of each class


@dataclass(frozen=True)
class ClassRow:
    """One class or label of the data."""

    name: str
    n_rows: int
    errors: int  # of those rows
    precision: float | None  # None where the class is never predicted
    recall: float | None  # None where the data have no row of it
    f1: float
    taken_for: list[tuple[str, int]]  # the classes that its rows are taken for, most frequent first


@dataclass(frozen=True)
class Judgement:
    """A model's predictions on one data set."""

    dataset: str
    evaluation: AnyEvaluation
    classes: list[ClassRow]
    reliability: list[dict[str, float]]  # of each bin with rows: `probability`, `accuracy`, `n_rows`

    @property
    def calibration_error(self) -> float | None:
        """Mean over rows of the distance between the probability of a bin and its accuracy."""
        value: float | None = self.evaluation.to_json().get("calibration_error")
        return value

    def to_json(self) -> dict[str, Any]:
        """Return JSON values: those of `distls evaluate --json`, and the data set."""
        return {"dataset": self.dataset, **self.evaluation.to_json()}


def judge(model: LinearModel, data: Dataset, name: str, executor: Executor | None = None) -> Judgement:
    """Score a model on a labelled data set; labels that it does not know count as errors.

    Raises MismatchError, before any partition is read, if the model cannot score these data.
    """
    runner = executor or SerialExecutor()
    found = evaluate(model, data, unknown_labels="count", executor=runner, name=name)
    rows = _class_rows(found)
    return Judgement(str(data.path), found, rows, _reliability(found))


def _class_rows(found: AnyEvaluation) -> list[ClassRow]:
    if isinstance(found, Evaluation):
        return _of_classes(found)
    return _of_labels(found) if isinstance(found, LabelEvaluation) else []


def _of_classes(found: Evaluation) -> list[ClassRow]:
    """Return a line for each class of the data, from the pairs that occur: their number is that of errors at most."""
    taken: dict[int, list[tuple[int, str]]] = defaultdict(list)
    right: dict[int, int] = {}
    for true, guessed, count in found.confusion.tolist():
        name = found.predicted_classes[guessed]
        if found.classes[true] == name:
            right[true] = count
        else:
            taken[true].append((-count, str(name)))
    predicted = _predicted_rows(found)
    rows = []
    for code, label in enumerate(found.classes):
        wrong, hits = sorted(taken[code]), right.get(code, 0)
        errors = -sum(count for count, _ in wrong)
        top = [(name, -count) for count, name in wrong[:_CONFUSIONS]]
        rows.append(_row(str(label), hits + errors, predicted.get(label, 0), hits, top))
    return rows


def _predicted_rows(found: Evaluation) -> dict[Any, int]:
    """Return how often each class is predicted."""
    counts = np.bincount(
        found.confusion[:, 1], weights=found.confusion[:, 2], minlength=len(found.predicted_classes)
    )
    return dict(zip(found.predicted_classes, counts.astype(np.int64).tolist(), strict=True))


def _of_labels(found: LabelEvaluation) -> list[ClassRow]:
    return [
        _row(str(label), had, predicted, right, [])
        for label, (had, predicted, right) in zip(found.classes, found.counts.tolist(), strict=True)
    ]


def _row(name: str, n_rows: int, predicted: int, right: int, taken_for: list[tuple[str, int]]) -> ClassRow:
    return ClassRow(
        name=name,
        n_rows=n_rows,
        errors=n_rows - right,
        precision=right / predicted if predicted else None,
        recall=right / n_rows if n_rows else None,
        f1=2 * right / (n_rows + predicted) if n_rows + predicted else 0.0,
        taken_for=taken_for,
    )


def _reliability(found: AnyEvaluation) -> list[dict[str, float]]:
    """Return the bins of the evaluation's reliability that have rows; none without probabilities."""
    return [
        {"probability": line["confidence"], "accuracy": line["accuracy"], "n_rows": line["n_rows"]}
        for line in found.to_json().get("reliability") or []
        if line["n_rows"]
    ]
