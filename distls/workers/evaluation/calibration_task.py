"""The tasks that calibrate a model on held-out rows: scores of rows, sums of the objective over them, rows in order.

Scores are few numbers a row. If they are few enough they are gathered once, else every evaluation of the objective
reads the rows again. Isotonic regression and thresholds take rows in the order of their scores.
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, Partition
from distls.workers.evaluation.ranked_scores import (
    NO_SCORES,
    RankedScores,
    capacity_for,
    merge_ranked,
    ranked,
    scores_of,
)
from distls.workers.losses.targets import indicators, slice_rows
from distls.workers.prediction.predictor import LinearPredictor, score_pieces
from distls.workers.prediction.probability_map import margins
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.ledger import Ledger, add_sums
from distls.workers.rounds.task import Task

Floats = NDArray[np.float64]
_BATCH = 2**17  # margins for which gradients are held


@dataclass(eq=False)
class _OfScores(Task):
    data: DatasetRef
    scored: str  # as `scored_as` returns it
    kind: str
    codes: NDArray[np.int32]  # the model's code of each class of the data


@dataclass(eq=False)
class MarginTask(_OfScores):
    """Gathers the `Margins` of a block; items are numbers of blocks."""

    first_piece: bool = False  # a sample of a block's rows

    def add(self, index: int, part: Partition) -> None:
        # A sample of the first piece is enough to fit the start of the objective.
        found = itertools.islice(score_pieces(self.shared, part.x), 1 if self.first_piece else None)
        dtype = self.shared.coefficients.dtype
        # A partition of a fold may have no rows.
        scored = [scores for _, scores in found] or [np.empty((0, len(self.shared.intercept)), dtype)]
        pieces = [margins(self.scored, self.kind, scores).astype(dtype) for scores in scored]
        values = np.concatenate(pieces)
        self.total = Margins(values, self.codes[part.y[: len(values)]])


class Margins(NamedTuple):
    """Margins of a block of rows, in the type of the scores, and the rows' codes."""

    values: NDArray[Any]
    y: NDArray[np.int32]


class Objective(NamedTuple):
    """The objective of scale and offset: a loss of ``scale * (z - mean) / deviation + offset``.

    `sigmoids`: the sum over outputs of log losses, each with its own targets for rows of its class and for others;
    else the log loss of the softmax. Targets are not quite 1 and 0 (Platt 1999), so that the minimum is finite.
    """

    sigmoids: bool
    mean: Floats  # (k,), or (1,) where the one output is the difference of two scores
    deviation: Floats
    high: Floats  # targets of rows of the class, and of others
    low: Floats


@dataclass(frozen=True)
class ObjectiveSum:
    """Sums over rows."""

    loss: float
    scale: Floats  # gradients
    offset: Floats
    ledger: Ledger = field(default_factory=Ledger)


class ObjectivePoint(NamedTuple):
    """A predictor, with the point at which the objective is summed."""

    predictor: LinearPredictor
    objective: Objective
    scale: Floats
    offset: Floats


class ObjectiveTask(_OfScores):
    """Sums the objective over rows, at an `ObjectivePoint`."""

    def start(self) -> None:
        zero = np.zeros(len(self.shared.objective.mean))
        self.total = ObjectiveSum(0.0, zero, zero)

    def add(self, index: int, part: Partition) -> None:
        at: ObjectivePoint = self.shared
        for rows, scores in score_pieces(at.predictor, part.x):
            values, y = margins(self.scored, self.kind, scores), self.codes[part.y[rows]]
            self.total = add_sums(self.total, objective_of(at.objective, values, y, at.scale, at.offset))


def objective_of(
    objective: Objective, values: NDArray[Any], y: NDArray[np.int32], scale: Floats, offset: Floats
) -> ObjectiveSum:
    """Sum loss and gradient over margins (n_rows, k); `scale` is (k,), or (1,) where all outputs share it."""
    # In batches: gradients of all margins at once would be as large as the data.
    zero, step = np.zeros(len(objective.mean)), max(1, _BATCH // values.shape[1])
    total = ObjectiveSum(0.0, zero, zero)
    for first in range(0, len(y), step):
        rows = slice(first, first + step)
        total = add_sums(total, _batch_sums(objective, values[rows], y[rows], scale, offset))
    return total


def _batch_sums(
    objective: Objective, values: NDArray[Any], y: NDArray[np.int32], scale: Floats, offset: Floats
) -> ObjectiveSum:
    z = values.astype(np.float64)
    own = y[:, None] == np.arange(z.shape[1])
    if len(objective.mean) == 1 and z.shape[1] == 2:
        # Of two classes the difference is all that probabilities depend on.
        z, own = z[:, 1:] - z[:, :1], own[:, 1:]
    # Standardised margins: one step size suits scale and offset.
    z = (z - objective.mean) / objective.deviation
    targets = np.where(own, objective.high, objective.low)
    u = scale * z + offset
    if objective.sigmoids:
        # log(1 + exp(u)) - t u, without overflow for either sign of u.
        loss = (np.logaddexp(0.0, u) - targets * u).sum()
        g = np.exp(-np.logaddexp(0.0, -u)) - targets
    else:
        top = u.max(axis=1, keepdims=True)
        # The maximum is subtracted first, so that no exponential overflows.
        logs = u - top - np.log(np.exp(u - top).sum(axis=1, keepdims=True))
        loss = -(targets * logs).sum()
        g = np.exp(logs) - targets
    return ObjectiveSum(float(loss), (g * z).sum(axis=0), g.sum(axis=0))


@dataclass(frozen=True)
class CurveSum:
    """Rows in the order of their scores, for each of some curves."""

    curves: tuple[RankedScores, ...]
    ledger: Ledger


class _CurveTask(Task):
    """Base of tasks that order rows."""

    n_curves = 1

    def start(self) -> None:
        self.total = CurveSum((NO_SCORES,) * self.n_curves, self.ledger)

    def _rank(self, scores: Iterable[NDArray[Any]], own: Iterable[NDArray[np.bool_]]) -> None:
        """Add rows to each curve: their scores, and whether they are of its class."""
        capacity = capacity_for(self.n_curves)
        pairs = zip(scores, own, strict=True)
        found = (ranked(np.ascontiguousarray(z), has, np.ones(len(z)), capacity) for z, has in pairs)
        self.total = self.merge(self.total, CurveSum(tuple(found), Ledger()))

    @staticmethod
    def merge(left: CurveSum, right: CurveSum) -> CurveSum:
        capacity = capacity_for(len(left.curves))
        pairs = zip(left.curves, right.curves, strict=True)
        curves = tuple(merge_ranked(a, b, capacity) for a, b in pairs)
        return CurveSum(curves, left.ledger.merge(right.ledger))


class DifferenceTask(_CurveTask, _OfScores):
    """Orders rows of two classes by the difference of their margins."""

    def add(self, index: int, part: Partition) -> None:
        for rows, scores in score_pieces(self.shared, part.x):
            values, y = margins(self.scored, self.kind, scores), self.codes[part.y[rows]]
            self._rank([values[:, 1] - values[:, 0]], [y == 1])


@dataclass(eq=False)
class CutTask(_CurveTask):
    """Orders rows with sets of labels."""

    data: DatasetRef
    codes: NDArray[np.int32]  # the model's code of each label of the data
    n_labels: int
    each: bool  # every label by itself, else all pairs of a row and a label together

    def __post_init__(self) -> None:
        self.n_curves = self.n_labels if self.each else 1

    def add(self, index: int, part: Partition) -> None:
        for rows, scores in score_pieces(self.shared, part.x):
            y = slice_rows(part.y, rows)
            # Labels of the data by the model's codes.
            wanted = indicators(CsrRows(y.indptr, self.codes[y.indices], y.data), self.n_labels)
            values = scores.astype(np.float64)
            # Labels by themselves are columns, all pairs together one row.
            self._rank(*((a.T if self.each else a.reshape(1, -1)) for a in (values, wanted)))


class Cuts(NamedTuple):
    """What is predicted with the rows of the lowest 0, 1, 2, ... distinct scores left out, and at last with all."""

    having: float  # rows that have the label
    right: NDArray[np.float64]  # of them those that are predicted to
    predicted: NDArray[np.float64]


def f1_of(cuts: Cuts) -> NDArray[np.float64]:
    """Return the F1 of each cut."""
    return 2.0 * cuts.right / (cuts.having + cuts.predicted)


def best_cut(rows: RankedScores, dtype: Any, worth: Callable[[Cuts], NDArray[np.float64]] = f1_of) -> float | None:
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
