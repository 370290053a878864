"""Recomputes lost predictions by adding the blocks of all stages again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distls.storage.rows import n_rows_of
from distls.storage.temporary.row_state import RowState
from distls.workers.least_squares.block_task import Block, n_features_of, predict_block
from distls.workers.rounds.block_stream import DatasetRef, stream
from distls.workers.rounds.lanes import Lane


@dataclass(frozen=True)
class ReplayJob:
    """The predictions to recompute."""

    data: DatasetRef
    n_outputs: int
    dtype: str  # of the predictions
    state: str  # folder of the predictions
    version: int  # under which they are stored


def replay_lane(job: ReplayJob, fitted: list[Block], lane: Lane) -> int:
    """Recompute a lane's lost predictions from all fitted blocks; return the number of lost partitions."""
    stored = RowState(job.state)
    lost = [index for index in lane.blocks if not stored.holds(index, job.version)]
    for index, part in stream(job.data, lost):
        values = np.zeros((n_rows_of(part.x), job.n_outputs), job.dtype)
        for block in fitted:  # in the order of the rounds: the same additions, the same bits
            values = predict_block(block, part.x, values, n_features_of(part.x, job.data))
        stored.write(index, job.version, values)
    return len(lost)
