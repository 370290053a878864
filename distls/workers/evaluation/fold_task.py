"""The task that counts the rows and weights of every fold."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import Partition, n_rows_of
from distls.workers.losses.targets import is_codes
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.row_weights import fold_of
from distls.workers.rounds.task import Task


@dataclass
class FoldCounts:
    """Rows and sums of sample weights by fold and class, shape (folds, n_classes); one column without classes."""

    rows: NDArray[np.int64]
    weights: NDArray[np.float64]
    ledger: Ledger = field(default_factory=Ledger)


@dataclass(eq=False)
class FoldTask(Task):
    """Counts rows by fold and class."""

    data: DatasetRef
    shape: tuple[int, int]  # (folds, n_classes)

    def start(self) -> None:
        self.total = FoldCounts(np.zeros(self.shape, np.int64), np.zeros(self.shape))

    def add(self, index: int, part: Partition) -> None:
        n_rows, (folds, k) = n_rows_of(part.x), self.shape
        # Without classes all rows are in one column.
        codes = part.y if is_codes(part.y) else np.zeros(n_rows, np.int64)
        weight = np.ones(n_rows) if part.sample_weight is None else part.sample_weight.astype(np.float64)
        for fold in range(folds):
            # The same slices as the fits of the folds use.
            rows = fold_of(n_rows, fold, folds)
            self.total.rows[fold] += np.bincount(codes[rows], minlength=k)
            self.total.weights[fold] += np.bincount(codes[rows], weight[rows], minlength=k)
