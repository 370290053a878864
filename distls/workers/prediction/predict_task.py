"""The task of `predict`: the best classes, the sets of labels or the numbers of one partition's rows.

Probabilities of a softmax are those of the MCID paper, Eq. 4.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.model.sparse_blocks import ClassBlocks
from distls.storage.rows import Partition, Rows, n_rows_of
from distls.workers.losses.loss_registry import decision_of, loss_named
from distls.workers.prediction.class_block_scores import best_of_blocks
from distls.workers.prediction.predictor import score_pieces
from distls.workers.prediction.probability_map import ProbabilityMap
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.task import Task

# Up to so many, finding the maximum again and again is four to twelve times faster than sorting.
_FEW = 16


class Predicted(NamedTuple):
    """The predictions of a block of rows."""

    codes: NDArray[np.int32]  # (n_rows, top), best classes or labels first; of numbers (n_rows, 0)
    scores: NDArray[Any]  # of the codes; of numbers the predictions themselves, (n_rows, n_outputs)
    # (n_rows + 1,): sets of labels, row i has ``labels[indptr[i]:indptr[i + 1]]``, increasing
    indptr: NDArray[np.int64] | None = None
    labels: NDArray[np.int32] | None = None


@dataclass(eq=False)
class PredictTask(Task):
    """Predicts a partition; items are numbers of partitions."""

    data: DatasetRef
    loss: str
    top: int  # classes or labels a row
    proba: bool  # probabilities instead of scores
    target: str = "class"
    probability: ProbabilityMap | None = None  # of classes, with `proba`
    cuts: NDArray[np.float64] | None = None  # of labels, as `label_cuts` returns them; None: that of the loss
    # whether scores and not probabilities order two classes: those of a model with a threshold
    by_score: bool = False

    def add(self, index: int, part: Partition) -> None:
        """Predict the rows."""
        found = self._numbers(part.x) if self.target == "continuous" else self._best_of_blocks(part.x)
        self.total = self._classes(part.x) if found is None else found

    def _numbers(self, x: Rows) -> Predicted:
        values = np.empty((n_rows_of(x), len(self.shared.intercept)), self.shared.coefficients.dtype)
        for rows, piece in score_pieces(self.shared, x):
            values[rows] = loss_named(self.loss).numbers(piece)
        return Predicted(np.empty((len(values), 0), np.int32), values)

    def _best_of_blocks(self, x: Rows) -> Predicted | None:
        """Return the best of very many classes; None where all scores are needed."""
        weights, intercept = self.shared.coefficients, self.shared.intercept
        served = self.target == "class" and not self.proba and len(intercept) > 1
        # of many the places among them take longer than all scores
        if not isinstance(weights, ClassBlocks) or not served or self.top > _FEW:
            return None
        found = best_of_blocks(x, weights, intercept, self.top)
        return found if found is None else Predicted(*found)

    def _classes(self, x: Rows) -> Predicted:
        n_rows, dtype = n_rows_of(x), self.shared.coefficients.dtype
        # The best ones only: all scores of a partition may not fit into memory.
        codes, best = np.empty((n_rows, self.top), np.int32), np.empty((n_rows, self.top), dtype)
        counts, labels = [np.zeros(1, np.int64)], [np.empty(0, np.int32)]
        for rows, scores in score_pieces(self.shared, x):
            if self.target == "multilabel":
                # Rows come sorted from `nonzero`, and codes within a row.
                row, chosen = np.nonzero(chosen_labels(self.loss, scores, self.cuts))
                counts.append(np.bincount(row, minlength=len(scores)))
                labels.append(chosen.astype(np.int32))
            values, decided = scores, None
            if self.target == "class" and (scores.shape[1] == 1 or self.by_score):
                # the decision is for the class that it chooses
                decision = decision_of(self.loss, scores)[:, None]
                decided = np.hstack([-decision, decision])
            if self.proba:
                values = to_probabilities(self.probability, self.target, scores)
            elif decided is not None:
                values = decided
            codes[rows], best[rows] = top_classes(values, self.top)
            if self.by_score and decided is not None:
                codes[rows], _ = top_classes(decided, self.top)
                best[rows] = np.take_along_axis(values, codes[rows].astype(np.intp), axis=1)
        if self.target == "multilabel":
            return Predicted(codes, best, np.cumsum(np.concatenate(counts)), np.concatenate(labels))
        return Predicted(codes, best)


def to_probabilities(classes: ProbabilityMap | None, target: str, scores: NDArray[Any]) -> NDArray[Any]:
    """Return probabilities, which may overwrite scores: of classes they sum to one, of labels they do not.

    `classes` is the map of a model of classes.
    """
    if target == "multilabel":
        return sigmoids(scores)
    assert classes is not None
    return classes(scores)


def chosen_labels(loss: str, scores: NDArray[Any], cuts: NDArray[np.float64] | None = None) -> NDArray[np.bool_]:
    """Return which labels are predicted, those with scores above their threshold, shape (n_rows, n_labels)."""
    return np.asarray(scores > (loss_named(loss).threshold if cuts is None else cuts))


def sigmoids(scores: NDArray[Any]) -> NDArray[Any]:
    """Overwrite scores by ``1 / (1 + exp(-score))``, and return them."""
    np.negative(np.logaddexp(0.0, -scores), out=scores)
    return np.exp(scores, out=scores)


def top_classes(values: NDArray[Any], top: int) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Return the codes and values of the `top` largest of each row of (n_rows, k) values, ties to the lower code."""
    # The maximum alone needs no sorting; all give ties to the lower code.
    codes = values.argmax(axis=1)[:, None]
    if top > 1:
        few = _codes_of_maxima(values, top) if top <= _FEW else None
        codes = _sorted_codes(-values, top) if few is None else few
    return codes.astype(np.int32), np.take_along_axis(values, codes, axis=1)


def _codes_of_maxima(values: NDArray[Any], top: int) -> NDArray[Any] | None:
    """Return the codes of the `top` largest of each row, or None where one of them is infinite or NaN."""
    left, rows, codes = values.copy(), np.arange(len(values)), np.empty((len(values), top), np.intp)
    for place in range(top):
        own = codes[:, place] = left.argmax(axis=1)
        if not np.isfinite(left[rows, own]).all():
            return None
        left[rows, own] = -np.inf
    return codes


def _sorted_codes(values: NDArray[Any], top: int) -> NDArray[Any]:
    """Return the places of the `top` smallest of each row, in their order."""
    n, k = values.shape
    if n and top < k:
        inside = values <= np.partition(values, top - 1, axis=1)[:, top - 1 : top]
        counts = np.count_nonzero(inside, axis=1)  # more than `top` of a row with ties, fewer of one with NaN
        # where nearly all are equal, sorting takes no more memory
        if counts.min() >= top and counts.sum() <= max(2 * top * n, n * k // 4):
            rows, codes = np.nonzero(inside)
            starts = np.cumsum(counts) - counts
            order = np.lexsort((values[rows, codes], rows))  # stable, as the sort of whole rows
            return np.asarray(codes[order[starts[:, None] + np.arange(top)]])
    return np.argsort(values, axis=1, kind="stable")[:, :top]
