"""The task that fits thresholds of labels: rows by their scores, and the cut of the highest F1 among them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, Partition
from distls.workers.evaluation.ranked_scores import (
    RankedScores,
    capacity_for,
    merge_ranked,
    ranked,
    scores_of,
)
from distls.workers.losses.targets import indicators, slice_rows
from distls.workers.prediction.predictor import score_pieces
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.task import Task


@dataclass(frozen=True)
class CutSum:
    """Rows by the scores of a label, for each label, or of all."""

    curves: tuple[RankedScores, ...]
    ledger: Ledger


@dataclass(eq=False)
class CutTask(Task):
    """Ranks rows with sets of labels."""

    data: DatasetRef
    codes: NDArray[np.int32]  # the model's code of each label of the data
    n_labels: int
    each: bool  # every label by itself, else all pairs of a row and a label together

    def start(self) -> None:
        none = RankedScores(np.empty(0, np.uint64), 0, np.empty(0), np.empty(0))
        self.total = CutSum((none,) * (self.n_labels if self.each else 1), self.ledger)

    def add(self, index: int, part: Partition) -> None:
        for rows, scores in score_pieces(self.shared, part.x):
            y = slice_rows(part.y, rows)
            # Labels of the data by the model's codes.
            wanted = indicators(CsrRows(y.indptr, self.codes[y.indices], y.data), self.n_labels)
            own = CutSum(self._curves(scores.astype(np.float64), wanted), Ledger())
            self.total = self.merge(self.total, own)

    def _curves(self, scores: NDArray[Any], wanted: NDArray[np.bool_]) -> tuple[RankedScores, ...]:
        capacity = capacity_for(self.n_labels if self.each else 1)
        columns = scores.T if self.each else scores.reshape(1, -1)
        # Labels by themselves are columns, all pairs together one row.
        own = wanted.T if self.each else wanted.reshape(1, -1)
        pairs = zip(columns, own, strict=True)
        return tuple(ranked(np.ascontiguousarray(z), has, np.ones(len(z)), capacity) for z, has in pairs)

    @staticmethod
    def merge(left: CutSum, right: CutSum) -> CutSum:
        capacity = capacity_for(len(left.curves))
        pairs = zip(left.curves, right.curves, strict=True)
        return CutSum(tuple(merge_ranked(a, b, capacity) for a, b in pairs), left.ledger.merge(right.ledger))


class Cuts(NamedTuple):
    """What is predicted with the rows of the lowest 0, 1, 2, ... distinct scores left out, and at last with all."""

    having: float  # rows that have the label
    right: NDArray[np.float64]  # of them those that are predicted to
    predicted: NDArray[np.float64]


def f1_of(cuts: Cuts) -> NDArray[np.float64]:
    """Return the F1 of each cut."""
    return 2.0 * cuts.right / (cuts.having + cuts.predicted)


def best_cut(
    rows: RankedScores, dtype: Any, worth: Callable[[Cuts], NDArray[np.float64]] = f1_of
) -> float | None:
    """Return the threshold that is worth most, the highest of such; None where no row has the label, or none will do.

    It is half-way between two scores in the type of the weights, so that a model in that type has it exactly, or 1
    below the lowest score or above the highest.
    """
    having = rows.own.sum()
    if not having > 0.0:
        return None
    # Cutting above the i-th score predicts it and all that are higher.
    right = having - np.cumsum(rows.own) + rows.own
    predicted = right + rows.others.sum() - np.cumsum(rows.others) + rows.others
    values = worth(Cuts(having, np.append(right, 0.0), np.append(predicted, 0.0)))
    # The last maximum: the highest of equally good thresholds.
    first = len(values) - 1 - int(values[::-1].argmax())
    scores = scores_of(rows)
    if values[first] == -np.inf:
        return None
    if first in (0, len(scores)):
        return float(scores[0] - 1.0 if not first else scores[-1] + 1.0)
    below, above = float(scores[first - 1]), float(scores[first])
    middle = float(np.dtype(dtype).type(0.5 * (below + above)))
    # Rounding to the model's type may reach the upper score, which must stay predicted.
    return middle if below <= middle < above else below
