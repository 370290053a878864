"""The task of a comparison: on how many rows several models of the same classes disagree, and on which."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import Partition, Rows, n_rows_of
from distls.workers.losses.loss_registry import class_scores
from distls.workers.prediction.predictor import LinearPredictor, score_pieces
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.ledger import Ledger, add_sums
from distls.workers.rounds.task import Task


@dataclass
class AgreementSum:
    """Sums over rows, for m models."""

    errors: NDArray[np.int64]  # (m,)
    apart: NDArray[np.int64]  # (m, m): rows for which two models predict different classes
    disputed: int  # rows for which not all predict the same
    # (n, 2 + m): row number, code of its class, predicted codes; increasing, the first `shown` disputed rows
    rows: NDArray[np.int64]
    shown: int
    ledger: Ledger = field(default_factory=Ledger)


@dataclass(eq=False)
class AgreementTask(Task):
    """Compares the classes that several models predict."""

    data: DatasetRef
    losses: tuple[str, ...]  # of the models
    codes: NDArray[np.int32]  # the models' code of each class of the data, -1 for an unknown label
    first_rows: NDArray[np.int64]  # number of the first row of each partition
    shown: int  # rows in dispute to return, the first ones

    def start(self) -> None:
        m = len(self.shared)
        found = np.empty((0, 2 + m), np.int64)
        self.total = AgreementSum(np.zeros(m, np.int64), np.zeros((m, m), np.int64), 0, found, self.shown)

    def add(self, index: int, part: Partition) -> None:
        # Codes of the models' classes, so that truth and predictions are comparable.
        total, truth = self.total, self.codes[part.y]
        predicted = np.stack([_classes(*each, part.x) for each in zip(self.losses, self.shared, strict=True)])
        total.errors += (predicted != truth).sum(axis=1)
        total.apart += (predicted[:, None] != predicted[None]).sum(axis=2)
        disputed = np.flatnonzero((predicted != predicted[0]).any(axis=0))
        total.disputed += len(disputed)
        # Only the first ones can be among those shown.
        first = disputed[: self.shown]
        table = [first + self.first_rows[index], truth[first], *predicted[:, first]]
        total.rows = _first(total.rows, np.stack(table, axis=1), self.shown)

    @staticmethod
    def merge(left: AgreementSum, right: AgreementSum) -> AgreementSum:
        return add_sums(left, right, rows=_first(left.rows, right.rows, left.shown), shown=left.shown)


def _classes(loss: str, predictor: LinearPredictor, x: Rows) -> NDArray[np.int64]:
    """Return the code of each row's highest score."""
    codes = np.empty(n_rows_of(x), np.int64)
    for rows, scores in score_pieces(predictor, x):
        codes[rows] = class_scores(loss, scores).argmax(axis=1)
    return codes


def _first(left: NDArray[np.int64], right: NDArray[np.int64], shown: int) -> NDArray[np.int64]:
    """Return the rows of both tables with the lowest numbers."""
    both = np.concatenate([left, right])
    # By the number of the row: the same rows whatever order lanes end in.
    return both[np.argsort(both[:, 0], kind="stable")[:shown]]
