"""The task that evaluates a model of classes: all metrics from one read of the rows, or during a fit errors and loss.

Of very many pairs of classes the frequent ones are kept, as Misra and Gries (1982) do.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import Partition, n_rows_of
from distls.workers.evaluation.probability_sums import ProbabilitySums, merge_probabilities, sum_at, sum_probabilities
from distls.workers.evaluation.ranked_scores import (
    ALL_SCORES,
    NO_SCORES,
    RankedScores,
    capacity_for,
    merge_ranked,
    ranked,
)
from distls.workers.losses.loss_registry import class_scores, scorer
from distls.workers.losses.targets import LossSums, class_losses
from distls.workers.prediction.predictor import score_pieces
from distls.workers.prediction.probability_map import ProbabilityMap
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.ledger import Ledger, add_sums
from distls.workers.rounds.row_weights import row_weights
from distls.workers.rounds.task import Task

MOST_RANKS = 10  # places of a row's class among its scores that are counted one by one
MOST_PAIRS = 2**20  # pairs of a class and a predicted one that are counted: all of 1024 classes
RANKED_CLASSES = 1024  # with more, no curves: too few scores of each would be kept
_BATCH_BYTES = 2**20  # of the probabilities of a batch
_PENDING_BYTES = 2**25  # scores that are collected before they are sorted

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MetricsSum:
    """Weighted sums over rows; of each class of the data, and of each of the model's."""

    weight: float
    known: float  # of rows whose label the model knows
    loss_sum: float  # over those rows: the log loss of uncalibrated probabilities, or else the model's own
    rows: Floats  # (n_classes,) of the data's
    right: Floats  # (n_classes,) of the data's: predicted right
    predicted: Floats  # (k,) of the model's
    ranks: Floats  # (MOST_RANKS,): rows of known classes by how many other classes come before theirs
    pairs: NDArray[np.int64]  # (m,): ``class of the data * k + predicted code``, increasing
    pair_weights: Floats  # (m,)
    missing: float  # how much each of these may be too small, all that are not there among them
    probability: ProbabilitySums
    natural: ProbabilitySums
    # of each class of the model against the rest; of two, of the second alone
    curves: tuple[RankedScores, ...]
    n_unknown: int = 0  # rows, whatever their weights
    ledger: Ledger = field(default_factory=Ledger)


@dataclass(eq=False)
class MetricsTask(Task):
    """Evaluates a model on rows with classes."""

    data: DatasetRef
    loss: str  # as `scorer` takes it
    codes: NDArray[np.int32]  # the model's code of each class of the data, -1 for an unknown label
    n_outputs: int  # classes of the model
    weighted: bool  # rows count by their sample weights, else each one
    probability: ProbabilityMap | None = None  # of the model
    # of a calibrated model before it was, where its loss has probabilities
    natural: ProbabilityMap | None = None
    details: bool = False  # ranks, curves and the quality of probabilities too

    shares_reads = True

    def start(self) -> None:
        k = self.n_outputs
        self._capacity = capacity_for(1 if k == 2 else k, ALL_SCORES)
        empty, n_classes = np.empty(0, np.int64), len(self.codes)
        self.total = MetricsSum(
            0.0,
            0.0,
            0.0,
            np.zeros(n_classes),
            np.zeros(n_classes),
            np.zeros(k),
            np.zeros(MOST_RANKS),
            empty,
            np.empty(0),
            0.0,
            ProbabilitySums(),
            ProbabilitySums(),
            (NO_SCORES,) * (0 if k > RANKED_CLASSES or not self.details else 1 if k == 2 else k),
        )
        self._pending: list[tuple[Floats, NDArray[np.int32], Floats]] = []

    def add(self, index: int, part: Partition) -> None:
        weight = row_weights(part, None) if self.weighted else np.empty(0)
        weight = weight if len(weight) else np.ones(n_rows_of(part.x))
        losses, loss = LossSums(), scorer(self.loss)
        # Predictions are written by the kernel while it sums the losses.
        y, predicted = self.codes[part.y], np.empty(len(part.y), np.int32)
        for rows, scores in score_pieces(self.shared, part.x):
            class_losses(loss, scores, y[rows], weight[rows], losses, predicted=predicted[rows])
            # a piece is few rows of float32; in float64, with its squares and logarithms, it would be many times that
            step = max(1, _BATCH_BYTES // (8 * self.n_outputs))
            for first in range(0, len(scores) if self.details else 0, step):
                batch = slice(first, first + step)
                self._add_batch(scores[batch], y[rows][batch], weight[rows][batch])
        loss_sum, known, _ = losses.totals()
        found = self._counts(part.y, y, predicted, weight)
        # The sums of scores are already in the total; those of counts are merged here.
        self.total = self.merge(self.total, replace(found, loss_sum=loss_sum, known=known))

    def _counts(
        self, own: NDArray[np.int32], y: NDArray[np.int32], predicted: NDArray[np.int32], weight: Floats
    ) -> MetricsSum:
        """Return the sums of a partition that do not need scores."""
        n_classes, right = len(self.codes), predicted == y
        keys = own.astype(np.int64) * self.n_outputs + predicted
        pairs, inverse = np.unique(keys, return_inverse=True)
        return MetricsSum(
            float(weight.sum()),
            0.0,
            0.0,
            sum_at(own, weight, n_classes),
            sum_at(own, weight * right, n_classes),
            sum_at(predicted, weight, self.n_outputs),
            np.zeros(MOST_RANKS),
            pairs,
            sum_at(inverse, weight, len(pairs)),
            0.0,
            ProbabilitySums(),
            ProbabilitySums(),
            (),
            int(np.count_nonzero(y < 0)),
        )

    def _add_batch(self, scores: NDArray[Any], y: NDArray[np.int32], weight: Floats) -> None:
        """Add ranks, probabilities and curves of a batch."""
        total, known = self.total, y >= 0
        # Unknown labels have no rank.
        by_class = class_scores(self.loss, scores)
        ranks = _ranks(by_class[known], y[known])
        first = ranks < MOST_RANKS
        natural, values = (
            None if made is None else made(scores.astype(np.float64)) for made in (self.natural, self.probability)
        )
        if total.curves:
            self._collect(by_class if values is None else _log_odds(values), y, weight)
            # Sorting may have replaced the total.
            total = self.total
        self.total = replace(
            total,
            ranks=total.ranks + sum_at(ranks[first], weight[known][first], MOST_RANKS),
            probability=merge_probabilities(total.probability, _judged(values, y, weight)),
            natural=merge_probabilities(total.natural, _judged(natural, y, weight)),
        )

    def _collect(self, values: NDArray[Any], y: NDArray[np.int32], weight: Floats) -> None:
        """Keep what the curves of a batch need, and sort when there is much of it."""
        # of two classes the second alone: by the log odds of its probability, or by the difference of scores
        two = self.n_outputs == 2
        columns = (values[:, 1:] - values[:, :1]) if two else values
        self._pending.append((columns.astype(np.float64), y - 1 if two else y, weight))
        # Sorted in large portions: many small merges would cost more.
        if sum(columns.nbytes for columns, _, _ in self._pending) >= _PENDING_BYTES:
            self._sort()

    def _sort(self) -> None:
        columns, y, weight = (np.concatenate(each) for each in zip(*self._pending, strict=True))
        self._pending = []
        curves = [
            merge_ranked(old, ranked(columns[:, c].copy(), y == c, weight, self._capacity), self._capacity)
            for c, old in enumerate(self.total.curves)
        ]
        self.total = replace(self.total, curves=tuple(curves))

    def result(self) -> MetricsSum:
        if self._pending:
            self._sort()
        return replace(self.total, ledger=self.ledger)

    @staticmethod
    def merge(left: MetricsSum, right: MetricsSum) -> MetricsSum:
        pairs, pair_weights, dropped = _merged_pairs(left, right)
        k = len(left.predicted)
        capacity = capacity_for(1 if k == 2 else k, ALL_SCORES)
        curves = tuple(merge_ranked(*both, capacity) for both in zip(left.curves, right.curves, strict=False))
        return add_sums(
            left,
            right,
            pairs=pairs,
            pair_weights=pair_weights,
            missing=left.missing + right.missing + dropped,
            probability=merge_probabilities(left.probability, right.probability),
            natural=merge_probabilities(left.natural, right.natural),
            curves=curves or left.curves,
        )


def _ranks(scores: NDArray[Any], y: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return how many classes come before each row's own, ties in the order of the codes."""
    own = scores[np.arange(len(y)), y][:, None]
    # A score that is equal counts if its code is lower: the order in which classes are predicted.
    ahead = (scores > own) | ((scores == own) & (np.arange(scores.shape[1]) < y[:, None]))
    return np.count_nonzero(ahead, axis=1)


def _log_odds(values: Floats) -> Floats:
    """Return log p / (1 - p), which ranks rows as p does, but without crowding near 0 and 1."""
    with np.errstate(divide="ignore"):
        if values.shape[1] == 2:  # the difference of the two columns is taken later
            return np.log(values)
        # log1p keeps the digits of 1 - p where p is tiny.
        return np.log(values) - np.log1p(-values)


def _judged(values: Floats | None, y: NDArray[np.int32], weight: Floats) -> ProbabilitySums:
    known = y >= 0
    return ProbabilitySums() if values is None else sum_probabilities(values[known], y[known], weight[known])


def _merged_pairs(left: MetricsSum, right: MetricsSum) -> tuple[NDArray[np.int64], Floats, float]:
    """Return the pairs of both with their weights, and what was taken from each weight to keep them few enough."""
    pairs, places = np.unique(np.concatenate([left.pairs, right.pairs]), return_inverse=True)
    # Weights of equal pairs are added up.
    weights = sum_at(places, np.concatenate([left.pair_weights, right.pair_weights]), len(pairs))
    if len(pairs) <= MOST_PAIRS:
        return pairs, weights, 0.0
    # as Misra and Gries (1982): the frequent pairs stay, each with at most the sum of these cuts too little
    cut = float(np.partition(weights, len(weights) - MOST_PAIRS - 1)[len(weights) - MOST_PAIRS - 1])
    kept = weights > cut
    return pairs[kept], weights[kept] - cut, cut
