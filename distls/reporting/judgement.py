"""How a model does on a data set: totals, classes, what is taken for what, and how far probabilities can be trusted."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from distls.evaluation.evaluate import evaluate
from distls.evaluation.metrics import AnyEvaluation, Evaluation, RegressionEvaluation
from distls.execution.executor import Executor
from distls.execution.serial import SerialExecutor
from distls.ingestion.adhoc_dataset import Scorable, sources_of
from distls.storage.model.model import LinearModel

_CONFUSIONS = 3  # shown of each class


@dataclass(frozen=True)
class Judgement:
    """A model's predictions on one data set."""

    dataset: str
    evaluation: AnyEvaluation
    # of each class or label of the data: its row of `per_class`, with `errors` and `taken_for`, what its rows are most
    # often taken for and how often
    classes: list[dict[str, Any]]
    reliability: list[dict[str, float]]  # of each bin with rows: `probability`, `accuracy`, `n_rows`

    @property
    def calibration_error(self) -> float | None:
        """Mean over rows of the distance between the probability of a bin and its accuracy."""
        value: float | None = self.evaluation.to_json().get("calibration_error")
        return value

    def to_json(self) -> dict[str, Any]:
        """Return JSON values: those of `distls evaluate --json`, and the data set."""
        return {"dataset": self.dataset, **self.evaluation.to_json()}


def judge(model: LinearModel, data: Scorable, name: str, executor: Executor | None = None, **reading: Any) -> Judgement:
    """Score a model on labelled data, as `evaluate` takes them; labels that it does not know count as errors.

    Raises MismatchError, before any partition is read, if the model cannot score these data.
    """
    runner = executor or SerialExecutor()
    found = evaluate(model, data, unknown_labels="count", executor=runner, name=name, beside=name, **reading)
    rows = _class_rows(found)
    return Judgement(", ".join(map(str, sources_of(data))), found, rows, _reliability(found))


def _class_rows(found: AnyEvaluation) -> list[dict[str, Any]]:
    if isinstance(found, RegressionEvaluation):
        return []
    taken = _taken_for(found) if isinstance(found, Evaluation) else {}
    return [
        {**row, "errors": row["n_rows"] - round(row["n_rows"] * (row["recall"] or 0.0)),
         "taken_for": taken.get(row["class"], [])}
        for row in found.per_class()
    ]  # fmt: skip


def _taken_for(found: Evaluation) -> dict[Any, list[tuple[str, int]]]:
    """Return the classes that rows of each class are taken for most often."""
    taken: dict[Any, list[tuple[int, str]]] = defaultdict(list)
    for true, guessed, count in found.confusion.tolist():
        if found.classes[true] != found.predicted_classes[guessed]:
            taken[found.classes[true]].append((-count, str(found.predicted_classes[guessed])))
    return {label: [(name, -count) for count, name in sorted(wrong)[:_CONFUSIONS]] for label, wrong in taken.items()}


def _reliability(found: AnyEvaluation) -> list[dict[str, float]]:
    """Return the bins of the evaluation's reliability that have rows; none without probabilities."""
    return [
        {"probability": line["confidence"], "accuracy": line["accuracy"], "n_rows": line["n_rows"]}
        for line in found.to_json().get("reliability") or []
        if line["n_rows"]
    ]
