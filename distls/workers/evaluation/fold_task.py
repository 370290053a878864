"""The task that counts the rows and weights of every fold."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import n_rows_of
from distls.workers.losses.targets import is_codes
from distls.workers.rounds.block_stream import DatasetRef, stream
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.ledger import Ledger
from distls.workers.rounds.row_weights import fold_of


@dataclass
class FoldCounts:
    """Rows and sums of sample weights by fold and class, shape (folds, n_classes); one column without classes."""

    rows: NDArray[np.int64]
    weights: NDArray[np.float64]
    ledger: Ledger = field(default_factory=Ledger)


def fold_lane(data: DatasetRef, shape: tuple[int, int], _shared: None, lane: Lane) -> FoldCounts:
    """Count one lane's partitions; `shape` is (folds, n_classes)."""
    with Ledger.of_task() as ledger:
        total = FoldCounts(np.zeros(shape, np.int64), np.zeros(shape), ledger)
        for index, part in stream(data, lane.blocks, ledger):
            n_rows = n_rows_of(part.x)
            codes = part.y if is_codes(part.y) else np.zeros(n_rows, np.int64)
            weight = np.ones(n_rows) if part.sample_weight is None else part.sample_weight.astype(np.float64)
            for fold in range(shape[0]):
                rows = fold_of(n_rows, fold, shape[0])
                total.rows[fold] += np.bincount(codes[rows], minlength=shape[1])
                total.weights[fold] += np.bincount(codes[rows], weight[rows], minlength=shape[1])
            ledger.count(index, n_rows)
        return total
