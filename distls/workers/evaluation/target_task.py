"""The tasks that evaluate multi-label models, by exact sets and counts for each label, and regression models.

Of a regression these are sums of squared residuals, and of squared deviations of the targets, merged as Chan, Golub and
LeVeque (1979) do.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, Partition, n_rows_of
from distls.workers.evaluation.probability_sums import sum_at
from distls.workers.losses.loss_registry import loss_named
from distls.workers.losses.targets import indicators, score_gradients, slice_rows
from distls.workers.prediction.predict_task import chosen_labels
from distls.workers.prediction.predictor import score_pieces
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.ledger import Ledger, add_sums
from distls.workers.rounds.row_weights import row_weights
from distls.workers.rounds.task import Task

PRECISION_AT = (1, 3, 5)  # labels of the highest scores


@dataclass(frozen=True)
class LabelSum:
    """Weighted sums over rows."""

    weight: float
    errors: float  # of rows whose predicted set is not their set of labels
    known: float  # of rows whose labels are all known to the model
    loss_sum: float  # over those rows
    counts: NDArray[np.float64]  # (n_labels, 3): rows that have a label, are predicted to have it, and both
    hits: NDArray[np.float64]  # labels of a row among the `PRECISION_AT` of the highest scores
    n_unknown: int  # rows with labels that the model does not know, whatever their weights
    ledger: Ledger


@dataclass(eq=False)
class LabelTask(Task):
    """Compares the predicted sets of rows with their labels."""

    data: DatasetRef
    loss: str
    # place of each of the data's labels among all labels: first the model's, then those unknown to it
    codes: NDArray[np.int32]
    n_labels: int  # number of all labels
    weighted: bool = False  # rows count by their sample weights, else each one
    # thresholds, (1,) or one of each of the model's labels; None: the loss's
    cuts: NDArray[np.float64] | None = None

    shares_reads = True

    def start(self) -> None:
        none = np.zeros((self.n_labels, 3)), np.zeros(len(PRECISION_AT))
        self.total = LabelSum(0.0, 0.0, 0.0, 0.0, *none, 0, Ledger())

    def add(self, index: int, part: Partition) -> None:
        weight = row_weights(part, None) if self.weighted else np.empty(0)
        weight = weight if len(weight) else np.ones(n_rows_of(part.x))
        for rows, values in score_pieces(self.shared, part.x):
            found = _label_sums(self, slice_rows(part.y, rows), values, weight[rows])
            self.total = add_sums(self.total, found)


def _label_sums(job: LabelTask, y: CsrRows, scores: NDArray[Any], weight: NDArray[np.float64]) -> LabelSum:
    n_rows, k = scores.shape
    codes = job.codes[y.indices]
    # Codes from k on are labels that the model does not know.
    unknown = codes >= k
    row = np.repeat(np.arange(n_rows), np.diff(y.indptr))
    known = np.ones(n_rows, dtype=bool)
    # A row with any unknown label counts as wrong.
    known[row[unknown]] = False
    known_labels = _filter_labels(y, codes, ~unknown)
    wanted = indicators(known_labels, k)
    chosen = chosen_labels(job.loss, scores, job.cuts)
    # Exact sets: one label too many or too few makes the row wrong.
    wrong = (wanted != chosen).any(axis=1) | ~known
    counts = np.zeros((job.n_labels, 3))
    counts[:, 0] = sum_at(codes, weight[row], job.n_labels)
    counts[:k, 1] = _over_rows(weight, chosen)
    counts[:k, 2] = _over_rows(weight, chosen & wanted)
    # a row with an unknown label has no loss: its weight is zero
    loss_sum = score_gradients(job.loss, scores, known_labels, weight * known).loss_sum
    # A stable sort: ties go to the lower code.
    best = np.argsort(-scores, axis=1, kind="stable")[:, : max(PRECISION_AT)]
    own = np.cumsum(np.take_along_axis(wanted, best, axis=1), axis=1)
    # With fewer labels than places there is no such precision.
    hits = [float((weight * own[:, at - 1]).sum()) if at <= k else 0.0 for at in PRECISION_AT]
    return LabelSum(
        float(weight.sum()),
        float((weight * wrong).sum()),
        float((weight * known).sum()),
        loss_sum,
        counts,
        np.array(hits),
        int(np.count_nonzero(~known)),
        Ledger(),
    )


def _over_rows(weight: NDArray[np.float64], held: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the weight of the rows that hold each label, in an order of additions that BLAS does not have."""
    return np.asarray((weight[:, None] * held).sum(axis=0))


def _filter_labels(y: CsrRows, codes: NDArray[np.int32], kept: NDArray[np.bool_]) -> CsrRows:
    """Return the sets of labels with other codes, restricted to the labels `kept`."""
    # Offsets count only the labels that are kept.
    before = np.concatenate([[0], np.cumsum(kept)])
    return CsrRows(before[y.indptr], codes[kept], y.data[kept])


@dataclass(frozen=True)
class ResidualSum:
    """Weighted sums over rows."""

    weight: float
    squares: NDArray[np.float64]  # (n_targets,): ``sum_i s_i (prediction_i - y_i)^2``
    mean: NDArray[np.float64]  # (n_targets,), of the targets
    squared_deviations: NDArray[np.float64]  # (n_targets,): ``sum_i s_i (y_i - mean)^2``
    ledger: Ledger
    deviance: float = 0.0  # twice the loss of a link


@dataclass(eq=False)
class ResidualTask(Task):
    """Compares the predictions for rows with their targets."""

    data: DatasetRef
    loss: str
    weighted: bool = False  # rows count by their sample weights

    shares_reads = True

    def start(self) -> None:
        zero = np.zeros(len(self.shared.intercept))
        self.total = ResidualSum(0.0, zero, zero, zero, Ledger())

    def add(self, index: int, part: Partition) -> None:
        link, weight = loss_named(self.loss), row_weights(part, None) if self.weighted else np.empty(0)
        # In pieces: predictions of a whole partition are not held.
        for rows, values in score_pieces(self.shared, part.x):
            y, s = part.y[rows], weight[rows] if len(weight) else None
            found = _residual_sums(y, link.numbers(values), s)
            if not link.quadratic:
                halves = link.number_gradient(values, y)[1]
                found = replace(found, deviance=2.0 * float(halves.sum() if s is None else halves @ s))
            self.total = self.merge(self.total, found)

    @staticmethod
    def merge(left: ResidualSum, right: ResidualSum) -> ResidualSum:
        # spreads about two means become one about the common mean (Chan, Golub, LeVeque 1979)
        weight = left.weight + right.weight
        share = right.weight / weight if weight else 0.0
        difference = right.mean - left.mean
        squared_deviations = (
            left.squared_deviations + right.squared_deviations + np.square(difference) * (left.weight * share)
        )
        return add_sums(
            left, right, weight=weight, mean=left.mean + difference * share, squared_deviations=squared_deviations
        )


def _residual_sums(
    y: NDArray[np.float64], predicted: NDArray[np.floating], weight: NDArray[np.float64] | None
) -> ResidualSum:
    squares = np.square(predicted - y)
    shifted = y - y[0]  # so that the squared_deviations of equal targets is exactly zero
    if weight is None:
        mean = shifted.mean(axis=0)
        squared_deviations = np.square(shifted - mean).sum(axis=0)
        return ResidualSum(float(len(y)), squares.sum(axis=0), y[0] + mean, squared_deviations, Ledger())
    total = float(weight.sum())
    by_row = weight[:, None]
    # Weights may all be zero.
    mean = (by_row * shifted).sum(axis=0) / (total or 1.0)
    squared_deviations = (by_row * np.square(shifted - mean)).sum(axis=0)
    return ResidualSum(total, (by_row * squares).sum(axis=0), y[0] + mean, squared_deviations, Ledger())
