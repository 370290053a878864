"""Recomputes lost predictions by adding the blocks of all stages again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distls.storage.rows import Partition, n_rows_of
from distls.storage.temporary.row_state import RowState
from distls.workers.least_squares.block_task import n_features_of, predict_block
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.task import Task


@dataclass(eq=False)
class ReplayTask(Task):
    """Recomputes lost predictions from all fitted blocks; the result is the number of lost partitions."""

    data: DatasetRef
    n_outputs: int
    dtype: str  # of the predictions
    state: str  # folder of the predictions
    version: int  # under which they are stored

    def reads(self, item: Lane) -> tuple[int, ...]:
        """See `Task.reads`."""
        stored = RowState(self.state)
        return tuple(index for index in item.blocks if not stored.holds(index, self.version))

    def add(self, index: int, part: Partition) -> None:
        """Recompute those of a partition."""
        values = np.zeros((n_rows_of(part.x), self.n_outputs), self.dtype)
        for block in self.shared:  # in the order of the rounds: the same additions, the same bits
            values = predict_block(block, part.x, values, n_features_of(part.x, self.data))
        RowState(self.state).write(index, self.version, values)

    def result(self) -> int:
        """Return the number of partitions."""
        return len(self.ledger.blocks)

    @staticmethod
    def merge(left: int, right: int) -> int:
        """Add two numbers."""
        return left + right
