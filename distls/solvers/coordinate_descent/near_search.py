"""The search in column shards for weights nearer to the optimum, by methods that read rows (docs/decisions/0022).

The extrapolation is that of Bertrand and Massias (2021).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.execution.memory_budget import MIB
from distls.problem import Problem
from distls.solvers.coordinate_descent.bcd_round import BcdState, Round, RoundSetting, row_tasks
from distls.solvers.solver import prepare
from distls.storage.dataset.column_shards import ColumnShards
from distls.storage.dataset.metadata import DatasetMeta
from distls.storage.errors import StateLostError
from distls.storage.temporary.row_state import IN_MEMORY
from distls.workers.coordinate_descent.near_optimum_task import KEPT
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import Lane


class NearSearch:
    """Looks for weights with a better dual point than those of a fit, in one lane, in memory.

    Parameters
    ----------
    problem : Problem
    shards : ColumnShards
        Those of its data.
    active_mib : int
        Most MiB of columns that are held.
    folder : str or None
        Where scores are stored meanwhile; without one nothing can be searched.
    """

    def __init__(self, problem: Problem, shards: ColumnShards, active_mib: int, folder: str | None) -> None:
        self._problem, self._shards, self._folder = problem, shards, folder
        self._active_mib = active_mib
        self._params = {"step": "line-search", "active_sweeps": 1, "active_mib": active_mib, "shrink": False}

    @classmethod
    def of(cls, problem: Problem, active_mib: int, folder: str | None) -> NearSearch | None:
        """Return the search, or None: without column shards, or where the scores of all rows are not to be held."""
        # Without alpha there is no dual bound, and a fold's column shards hold the rows of the other folds too.
        if not active_mib or problem.alpha == 0.0 or problem.dataset.fold is not None:
            return None
        shards = problem.dataset.columns
        # The search holds the scores of all rows in one task, so they count against the same limit as columns.
        if shards is None or _row_bytes(problem) * problem.dataset.meta.n_rows > active_mib * MIB:
            return None
        return cls(problem, shards, active_mib, folder)

    @property
    def work_bytes(self) -> int:
        """Bytes of the task that searches: of all rows, of the columns that it holds, and of a shard as it is read."""
        problem, shards = self._problem, self._shards
        rows = _row_bytes(problem) * problem.dataset.meta.n_rows
        read = sum(int(sizes.max(initial=0)) for sizes in (shards.decoded_bytes, shards.stored_bytes))
        return rows + read + active_column_bytes(problem, shards, self._active_mib)

    def nearer(
        self, weights: NDArray[Any], intercept: NDArray[np.float64], data: DatasetRef, executor: Executor
    ) -> tuple[LinearPredictor | None, int]:
        """Return weights nearer to the optimum than those given, or None, and the bytes read."""
        data = replace(data, columns=self._shards.digest)
        state = BcdState(weights=weights, intercept=intercept, recentres=True)
        partitions = range(len(self._problem.dataset))
        setting = RoundSetting(
            problem=self._problem,
            params=self._params,
            data=data,
            shards=self._shards,
            # One lane sweeps all shards: the search is sequential coordinate descent.
            lanes=[tuple(range(len(self._shards)))],
            # A partition for each row lane: its sums do not depend on how the fit has dealt its lanes.
            row_lanes=[Lane(i, (block,)) for i, block in enumerate(partitions)],
            polishes=False,
            folder=self._folder,
        )
        prepare(
            executor,
            self._problem,
            ("search", self._problem.fit_intercept),
            row_tasks(replace(setting, data=data.like(), folder=IN_MEMORY)),
        )
        return near_optimum_of(setting, state, executor)


def near_optimum_of(
    setting: RoundSetting, state: BcdState, executor: Executor
) -> tuple[LinearPredictor | None, int]:
    """Return weights nearer to the optimum than a state's, or None, and the bytes read."""
    # Scores are row state that may be lost; the search is a function of the weights, so it is done again.
    try:
        return Round(setting, state, executor).near_optimum()
    except StateLostError:
        return Round(setting, state, executor).near_optimum()


def active_column_bytes(problem: Problem, shards: ColumnShards, active_mib: int) -> int:
    """Return the bytes of active columns that a task may hold, with a copy where they are put together."""
    n_features, k = problem.shape
    # A copy exists while columns are put together, and the matrix is never larger than the data.
    columns = 2 * int(shards.decoded_bytes.sum())
    # sweeps for a certificate extrapolate from copies of the weights
    return min(2 * active_mib * MIB, columns + KEPT * 8 * n_features * k)


def target_bytes(meta: DatasetMeta) -> int:
    """Return the bytes per row of the targets that a worker keeps: a class, or a set of labels and its offset."""
    if meta.target == "class":
        # A class code is an int32.
        return 4
    # Offsets, and the mean number of labels of a row, rounded up, of 4 bytes each.
    return 16 + 4 * -(-sum(meta.label_counts) // max(meta.n_rows, 1))


def _row_bytes(problem: Problem) -> int:
    """Return the bytes of a row: scores, targets, and its weight."""
    meta = problem.dataset.meta
    return problem.shape[1] * problem.dtype.itemsize + target_bytes(meta) + 8
