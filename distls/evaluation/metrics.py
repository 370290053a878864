"""Results of an evaluation, for each kind of target, and their JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.metadata import Label

__all__ = ["AnyEvaluation", "Evaluation", "LabelEvaluation", "RegressionEvaluation"]


@dataclass(frozen=True, kw_only=True)
class _Proven:
    """What the duals of a run say on its training data; see `distls.evaluation.proof`."""

    objective: float | None = None
    certificate: dict[str, Any] | None = None  # "kind", "value", "relative"

    def _proof(self) -> dict[str, Any]:
        if self.objective is None:
            return {}
        return {"objective": self.objective, "certificate": self.certificate}


@dataclass(frozen=True)
class Evaluation(_Proven):
    """Evaluation of a classifier.

    Attributes
    ----------
    error : float
        Fraction of rows whose predicted class is wrong; rows with labels unknown to the model are wrong.
    log_loss : float or None
        Mean negative log probability over the rows with known labels; None without probabilities. Infinite (null
        in JSON) if the class of a row has probability zero.
    unknown : int
        Rows with labels unknown to the model.
    confusion : int64 array of shape (m, 3)
        Rows (class of the data, predicted class, count), as indices into the two lists.
    objective, certificate : float and dict, or None
        Of a run that has kept its duals, on its training data: F, and ``{"kind", "value", "relative"}``, how far it is
        above the optimum at most.
    """

    n_rows: int
    error: float
    log_loss: float | None
    unknown: int
    classes: list[Label]
    predicted_classes: list[Label]
    confusion: NDArray[np.int64]

    @property
    def criterion(self) -> float:
        """The error, which early stopping and selection minimise."""
        return self.error

    def per_class(self) -> list[dict[str, Any]]:
        """Return rows, recall and precision of each class of the data."""
        true, predicted, counts = self.confusion.T
        place = {label: i for i, label in enumerate(self.predicted_classes)}
        table = []
        for code, label in enumerate(self.classes):
            rows = int(counts[true == code].sum())
            guessed = predicted == place.get(label, -1)
            right = int(counts[(true == code) & guessed].sum())
            table.append(_class_row(label, rows, int(counts[guessed].sum()), right))
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
            "log_loss": None if self.log_loss == math.inf else self.log_loss,
            "unknown_labels": self.unknown,
            "per_class": self.per_class(),
            "confusion": named,
            **self._proof(),
        }


@dataclass(frozen=True)
class LabelEvaluation(_Proven):
    """Evaluation of a multi-label classifier.

    A label unknown to the model is never predicted: it makes its rows wrong, and counts in all other figures too.

    Attributes
    ----------
    error : float
        Fraction of rows whose predicted set of labels is not exactly their own.
    log_loss : float or None
        Mean over the rows with known labels of the negative log probability of their set, a sum over labels; None
        without probabilities.
    unknown : int
        Rows with labels unknown to the model.
    classes : list of labels
        The model's labels, then those of the data that it does not know.
    counts : int64 array of shape (n_labels, 3)
        For each label: rows that have it, rows predicted to have it, rows of both.
    objective, certificate
        As of `Evaluation`.
    """

    n_rows: int
    error: float
    log_loss: float | None
    unknown: int
    classes: list[Label]
    counts: NDArray[np.int64]

    @property
    def criterion(self) -> float:
        """The error, which early stopping and selection minimise."""
        return self.error

    @property
    def hamming_loss(self) -> float:
        """Fraction of all pairs of a row and a label that are predicted wrongly."""
        had, predicted, right = self.counts.sum(axis=0).tolist()
        pairs = self.n_rows * len(self.counts)
        return (had + predicted - 2 * right) / pairs if pairs else math.nan

    @property
    def micro_f1(self) -> float:
        """2 * right / (had + predicted) over all pairs of a row and a label."""
        return _f1(*self.counts.sum(axis=0).tolist())

    @property
    def macro_f1(self) -> float:
        """Mean over labels of the same; 0 for a label that no row has and none is predicted to."""
        return float(np.mean([_f1(*row) for row in self.counts.tolist()]))

    def per_class(self) -> list[dict[str, Any]]:
        """Return rows, recall and precision of each label."""
        return [
            _class_row(label, *row) for label, row in zip(self.classes, self.counts.tolist(), strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the evaluation as JSON values."""
        return {
            "n_rows": self.n_rows,
            "error": self.error,
            "hamming_loss": self.hamming_loss,
            "micro_f1": self.micro_f1,
            "macro_f1": self.macro_f1,
            "log_loss": self.log_loss,
            "unknown_labels": self.unknown,
            "per_class": self.per_class(),
            **self._proof(),
        }


@dataclass(frozen=True)
class RegressionEvaluation(_Proven):
    """Evaluation of a regression model.

    Attributes
    ----------
    mse_by_output : float64 array of shape (n_outputs,)
        Mean squared difference from the targets.
    variance : float64 array of shape (n_outputs,)
        Variance of the targets.
    objective, certificate
        As of `Evaluation`.
    """

    n_rows: int
    mse_by_output: NDArray[np.float64]
    variance: NDArray[np.float64]

    @property
    def criterion(self) -> float:
        """The mean squared error, which early stopping and selection minimise."""
        return self.mse

    @property
    def mse(self) -> float:
        """Mean squared error over rows and outputs."""
        return float(self.mse_by_output.mean())

    @property
    def r2_by_output(self) -> list[float | None]:
        """1 - mse / variance of each output; None where the targets do not vary."""
        pairs = zip(self.mse_by_output.tolist(), self.variance.tolist(), strict=True)
        return [1.0 - mse / variance if variance > 0.0 else None for mse, variance in pairs]

    @property
    def r2(self) -> float | None:
        """Mean over outputs of the same; None where one of them has none."""
        values = [value for value in self.r2_by_output if value is not None]
        return float(np.mean(values)) if len(values) == len(self.variance) else None

    def to_json(self) -> dict[str, Any]:
        """Return the evaluation as JSON values."""
        outputs = zip(self.mse_by_output.tolist(), self.r2_by_output, strict=True)
        return {
            "n_rows": self.n_rows,
            "mse": self.mse,
            "r2": self.r2,
            "log_loss": None,
            "per_output": [{"output": i, "mse": mse, "r2": r2} for i, (mse, r2) in enumerate(outputs)],
            **self._proof(),
        }


AnyEvaluation = Evaluation | LabelEvaluation | RegressionEvaluation


def _class_row(label: Label, rows: int, predicted: int, right: int) -> dict[str, Any]:
    return {
        "class": label,
        "n_rows": rows,
        "recall": right / rows if rows else None,
        "precision": right / predicted if predicted else None,
    }


def _f1(had: int, predicted: int, right: int) -> float:
    return 2 * right / (had + predicted) if had + predicted else 0.0
