"""Results of an evaluation, for each kind of target, and their JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.evaluation.class_details import ClassDetails
from distls.facts import Fact, Shown, as_json, counted, percent
from distls.storage.dataset.metadata import Label
from distls.workers.evaluation.probability_sums import sum_at


@dataclass(frozen=True, kw_only=True, repr=False)
class _Proven(Shown):
    """Objective and bound of a run that has kept its duals, on its training data; see `distls.evaluation.evaluate`."""

    objective: float | None = None
    certificate: dict[str, Any] | None = None  # "kind", "value", "relative"

    @property
    def criterion(self) -> float:
        """What early stopping and selection minimise: the error of classes and of sets of labels."""
        return float(vars(self)["error"])

    def _proof(self) -> dict[str, Any]:
        if self.objective is None:
            return {}
        return {"objective": self.objective, "certificate": self.certificate}


def _totals(n_rows: int, error: float, log_loss: float | None, *others: Fact) -> list[Fact]:
    found = [
        Fact("", n_rows, partial(counted, what="row"), key="n_rows"),
        Fact("error", error, percent, key="error"),
        *others,
    ]
    if log_loss is None:
        return found
    return [*found, Fact("log loss", log_loss, ".4f", "mean over rows", "log_loss")]


def f1_facts(evaluation: Evaluation | LabelEvaluation) -> list[Fact]:
    """Return the means of F1."""
    means = {"macro": evaluation.macro_f1, "micro": evaluation.micro_f1, "weighted": evaluation.weighted_f1}
    return [Fact(f"{name} F1", value, ".4f", key=f"{name}_f1") for name, value in means.items()]


@dataclass(frozen=True, repr=False)
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
    details : ClassDetails or None
        What `distls.evaluate` adds; None during a fit.
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
    confusion: NDArray[Any]
    details: ClassDetails | None = None

    @property
    def macro_f1(self) -> float:
        """Mean of F1 over the classes that rows have or are predicted to have."""
        return self.mean_of("f1")

    @property
    def micro_f1(self) -> float:
        """F1 over all rows, which is the share of rows that are predicted right."""
        return 1.0 - self.error

    @property
    def weighted_f1(self) -> float:
        """Mean of F1 over the classes of the data, weighted by their rows."""
        return self.mean_of("f1", weighted=True)

    def mean_of(self, name: str, *, weighted: bool = False) -> float:
        """Return the mean of "f1", "precision" or "recall" over classes, as scikit-learn has it."""
        counts, strangers = self._counts()
        # A class that no row has and none is predicted as has no score.
        used = counts[(counts[:, 0] > 0) | (counts[:, 1] > 0)].tolist()
        values = [_SCORES[name](*row) for row in used]
        if weighted:
            return _ratio(sum(row[0] * value for row, value in zip(used, values, strict=True)), counts[:, 0].sum())
        return _ratio(sum(values), len(used) + strangers)

    def _counts(self) -> tuple[NDArray[Any], int]:
        """Return rows, predicted rows and rows of both of each class of the data, and how many others are predicted."""
        known = {label: code for code, label in enumerate(self.predicted_classes)}
        codes = np.array([known.get(label, -1) for label in self.classes], np.int64)
        if self.details is not None:
            rows, right, predicted = self.details.rows, self.details.right, self.details.predicted
        else:
            true, guessed, counts = self.confusion.T
            own = codes[true] == guessed
            rows, predicted = sum_at(true, counts, len(codes)), sum_at(guessed, counts, len(known))
            right = sum_at(true[own], counts[own], len(codes))
        # Predicted classes that the data do not have count in the mean too, as in scikit-learn.
        unlisted = np.setdiff1d(np.flatnonzero(predicted), codes)
        # Classes unknown to the model are never predicted.
        of_class = np.where(codes >= 0, np.append(predicted, 0.0)[codes], 0.0)
        return np.stack([rows, of_class, right], axis=1), len(unlisted)

    def facts(self) -> list[Fact]:
        """Return rows, error, and log loss and means of F1."""
        return [*_totals(self.n_rows, self.error, self.log_loss), *f1_facts(self)]

    def per_class(self) -> list[dict[str, Any]]:
        """Return rows, recall, precision and F1 of each class of the data, and how well scores rank its rows."""
        counts, _ = self._counts()
        whole = self.details is None or not self.details.weighted
        table = [
            _class_row(label, *(map(int, row) if whole else row))
            for label, row in zip(self.classes, counts.tolist(), strict=True)
        ]
        if self.details is not None and self.details.ranking is not None:
            ranking = dict(zip(self.predicted_classes, self.details.ranking.by_class, strict=True))
            for row in table:
                row |= ranking.get(row["class"], {"roc_auc": None, "average_precision": None})
        return table

    def to_json(self) -> dict[str, Any]:
        """Return the evaluation as JSON values."""
        number = float if self.details is not None and self.details.weighted else int
        named = [
            {"class": self.classes[int(t)], "predicted": self.predicted_classes[int(p)], "count": number(c)}
            for t, p, c in self.confusion
        ]
        return {
            "log_loss": None, **as_json(self.facts()), "unknown_labels": self.unknown,
            "macro_precision": self.mean_of("precision"), "macro_recall": self.mean_of("recall"),
            "per_class": self.per_class(), "confusion": named,
            **({} if self.details is None else self.details.to_json()), **self._proof(),
        }  # fmt: skip


@dataclass(frozen=True, repr=False)
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
    counts : array of shape (n_labels, 3)
        For each label: rows that have it, rows predicted to have it, rows of both.
    precision_at : dict of int -> float
        Of the 1, 3 and 5 labels of the highest scores, the share that a row has.
    weight : float or None
        Of all rows, where they count by their sample weights.
    calibration : str or None
        What the thresholds of the labels were fitted to, if they were; see `distls.calibrate`.
    objective, certificate
        As of `Evaluation`.
    """

    n_rows: int
    error: float
    log_loss: float | None
    unknown: int
    classes: list[Label]
    counts: NDArray[Any]
    precision_at: dict[int, float] = field(default_factory=dict)
    weight: float | None = None
    calibration: str | None = None

    @property
    def hamming_loss(self) -> float:
        """Fraction of all pairs of a row and a label that are predicted wrongly."""
        had, predicted, right = self.counts.sum(axis=0).tolist()
        # Every pair of a row and a label counts once, by the row's weight.
        pairs = (self.n_rows if self.weight is None else self.weight) * len(self.counts)
        return (had + predicted - 2 * right) / pairs if pairs else math.nan

    @property
    def micro_f1(self) -> float:
        """2 * right / (had + predicted) over all pairs of a row and a label."""
        return _f1(*self.counts.sum(axis=0).tolist())

    @property
    def macro_f1(self) -> float:
        """Mean over labels of the same; 0 for a label that no row has and none is predicted to."""
        return float(np.mean([_f1(*row) for row in self.counts.tolist()]))

    @property
    def weighted_f1(self) -> float:
        """Mean over labels of the same, weighted by the rows that have them."""
        rows = self.counts.tolist()
        return _ratio(sum(row[0] * _f1(*row) for row in rows), sum(row[0] for row in rows))

    def facts(self) -> list[Fact]:
        """Return rows, error, Hamming loss, and log loss and means of F1."""
        hamming = Fact("hamming loss", self.hamming_loss, ".4f", key="hamming_loss")
        return [*_totals(self.n_rows, self.error, self.log_loss, hamming), *f1_facts(self)]

    def per_class(self) -> list[dict[str, Any]]:
        """Return rows, recall, precision and F1 of each label."""
        return [_class_row(label, *row) for label, row in zip(self.classes, self.counts.tolist(), strict=True)]

    def to_json(self) -> dict[str, Any]:
        """Return the evaluation as JSON values."""
        return {
            "log_loss": None, **as_json(self.facts()), "weighted": self.weight is not None,
            "precision_at": [{"k": k, "precision": value} for k, value in self.precision_at.items()],
            "unknown_labels": self.unknown, "calibration": self.calibration, "per_class": self.per_class(),
            **self._proof(),
        }  # fmt: skip


@dataclass(frozen=True, repr=False)
class RegressionEvaluation(_Proven):
    """Evaluation of a regression model.

    Attributes
    ----------
    mse_by_output : float64 array of shape (n_outputs,)
        Mean squared difference from the targets.
    variance : float64 array of shape (n_outputs,)
        Variance of the targets.
    weighted : bool
        Rows count by their sample weights.
    deviance : float or None
        Of a model of counts (``link=poisson``): the mean of a row's Poisson deviance, summed over its outputs.
    outputs : list
        Columns of several targets, or their places from 0.
    objective, certificate
        As of `Evaluation`.
    """

    n_rows: int
    mse_by_output: NDArray[np.float64]
    variance: NDArray[np.float64]
    weighted: bool = False
    deviance: float | None = None
    names: Sequence[str] = ()

    @property
    def outputs(self) -> list[int] | list[str]:
        """See above."""
        return list(self.names) or list(range(len(self.variance)))

    @property
    def criterion(self) -> float:
        """What early stopping and selection minimise: the deviance if there is one, else the mean squared error."""
        return self.mse if self.deviance is None else self.deviance

    @property
    def mse(self) -> float:
        """Mean squared error over rows and outputs."""
        return float(self.mse_by_output.mean())

    @property
    def r2_by_output(self) -> list[float | None]:
        """1 - mse / variance of each output; None where the targets do not vary."""
        pairs = zip(self.mse_by_output.tolist(), self.variance.tolist(), strict=True)
        # A constant target has no variance to explain.
        return [1.0 - mse / variance if variance > 0.0 else None for mse, variance in pairs]

    @property
    def r2(self) -> float | None:
        """Mean over outputs of the same; None where one of them has none."""
        values = [value for value in self.r2_by_output if value is not None]
        return float(np.mean(values)) if len(values) == len(self.variance) else None

    def facts(self) -> list[Fact]:
        """Return rows, mean squared error, r2 and deviance."""
        found = [
            Fact("", self.n_rows, partial(counted, what="row"), key="n_rows"),
            Fact("mse", self.mse, ".6g", "mean squared error", "mse"),
            Fact("r2", self.r2, r2_text, "1 is perfect, 0 is the mean", "r2"),
        ]
        if self.deviance is not None:
            found.append(Fact("deviance", self.deviance, ".6g", key="deviance"))
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the evaluation as JSON values."""
        outputs = zip(self.outputs, self.mse_by_output.tolist(), self.r2_by_output, strict=True)
        return {
            **as_json(self.facts()),
            "weighted": self.weighted,
            "log_loss": None,
            "per_output": [{"output": name, "mse": mse, "r2": r2} for name, mse, r2 in outputs],
            **self._proof(),
        }


AnyEvaluation = Evaluation | LabelEvaluation | RegressionEvaluation


def r2_text(value: float | None) -> str:
    """Return an r2 for a reader."""
    return "-" if value is None else f"{value:.4f}"


def _class_row(label: Label, rows: float, predicted: float, right: float) -> dict[str, Any]:
    return {
        "class": label, "n_rows": rows, "recall": right / rows if rows else None,
        "precision": right / predicted if predicted else None, "f1": _f1(rows, predicted, right),
    }  # fmt: skip


def _ratio(part: float, whole: float) -> float:
    """Return a share, 0 of nothing."""
    return float(part / whole) if whole else 0.0


def _f1(had: float, predicted: float, right: float) -> float:
    return 2 * right / (had + predicted) if had + predicted else 0.0


# Of the rows of a class, those predicted as it, and those of both.
_SCORES: dict[str, Callable[[float, float, float], float]] = {
    "f1": _f1,
    "precision": lambda _, predicted, right: _ratio(right, predicted),
    "recall": lambda had, _, right: _ratio(right, had),
}
