"""Predictions made anew: the blocks of all stages added again, where what was kept for each row is lost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distls.storage.rows import n_rows_of
from distls.storage.temporary.row_state import RowState
from distls.workers.least_squares.block_task import Block, n_features_of, predict_block
from distls.workers.rounds.block_stream import DatasetRef, stream
from distls.workers.rounds.lanes import Lane

__all__ = ["ReplayJob", "replay_lane"]


@dataclass(frozen=True)
class ReplayJob:
    """Which predictions to make."""

    data: DatasetRef
    n_outputs: int
    dtype: str  # of the predictions
    state: str  # folder of the predictions
    version: int  # under which they are stored


def replay_lane(job: ReplayJob, fitted: list[Block], lane: Lane) -> int:
    """Make the predictions that are not there, by what the rounds did in the same order; return how many were not.

    Parameters
    ----------
    fitted : list of Block
        All blocks that are in the predictions, in the order of their stages.
    """
    kept = RowState(job.state)
    lost = [index for index in lane.blocks if not kept.holds(index, job.version)]
    for index, part in stream(job.data, lost):
        values = np.zeros((n_rows_of(part.x), job.n_outputs), job.dtype)
        for block in fitted:
            values = predict_block(block, part.x, values, n_features_of(part.x, job.data))
        kept.write(index, job.version, values)
    return len(lost)
