"""The tasks that calibrate probabilities on held-out rows: scores of rows, and sums of the objective over them.

Scores are few numbers a row. If they are few enough they are gathered once, else every evaluation of the objective
reads the rows again.
"""

import itertools
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import Partition
from distls.workers.evaluation.ranked_scores import RankedScores, merge_ranked, ranked
from distls.workers.prediction.predictor import LinearPredictor, score_pieces
from distls.workers.prediction.probability_map import margins
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.ledger import Ledger, add_sums
from distls.workers.rounds.task import Task

Floats = NDArray[np.float64]
_BATCH = 2**17  # margins for which gradients are held
_DIFFERENCES = 2**15  # distinct differences of scores that are kept for isotonic regression


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
class DifferenceSum:
    """Rows of two classes by the difference of their scores."""

    rows: RankedScores
    ledger: Ledger


class DifferenceTask(_OfScores):
    """Sums rows by the difference of their margins."""

    def start(self) -> None:
        none = RankedScores(np.empty(0, np.uint64), 0, np.empty(0), np.empty(0))
        self.total = DifferenceSum(none, self.ledger)

    def add(self, index: int, part: Partition) -> None:
        for rows, scores in score_pieces(self.shared, part.x):
            values, y = margins(self.scored, self.kind, scores), self.codes[part.y[rows]]
            # Distinct differences are merged where they become too many.
            found = ranked(values[:, 1] - values[:, 0], y == 1, np.ones(len(y)), _DIFFERENCES)
            self.total = self.merge(self.total, DifferenceSum(found, Ledger()))

    @staticmethod
    def merge(left: DifferenceSum, right: DifferenceSum) -> DifferenceSum:
        return DifferenceSum(
            merge_ranked(left.rows, right.rows, _DIFFERENCES), left.ledger.merge(right.ledger)
        )
