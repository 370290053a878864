"""Weights nearer to the optimum than those of a fit, whose dual point is its certificate: by working sets.

Methods that read rows leave the proof to the column shards, where the data set has them (docs/decisions/0037).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.execution.memory_budget import MIB
from distls.execution.row_reads import lanes_of
from distls.problem import Problem
from distls.solvers.coordinate_descent.bcd_round import BcdState, RoundSetting
from distls.solvers.coordinate_descent.working_set_round import WorkingSetRound, working_set_tasks
from distls.solvers.solver import prepare
from distls.storage.dataset.column_shards import ColumnShards
from distls.storage.dataset.metadata import DatasetMeta
from distls.storage.errors import StateLostError
from distls.storage.temporary.row_state import IN_MEMORY
from distls.workers.coordinate_descent.quadratic_model import parts_of
from distls.workers.losses.loss_registry import loss_named
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import Lane, deal

# The gap over what the weights are proven to be above the optimum at least, at which it is good enough.
_GOOD = 2.0
_ROUNDS = 30
# What a round takes, in passes of sweeps: it reads all columns, and descends, which is about as much again, and its
# weights are judged by another read.
SWEEP_PASSES = 4.0
# In passes of a method that reads rows at one point, of logistic losses and of others; beside them the passes that its
# tasks take, as of no rows; and what rows add to a pass, in such passes: products of non-zeros and weights, and
# for each weight as many as its prox is worth.
_LOGISTIC_PASSES, _OTHER_PASSES, _TASKS = 8.0, 22.0, 40.0
_PER_PRODUCT, _PER_FEATURE = 1e-6, 36.0
# In units of the last place of the objective: smaller gaps are rounding.
_ROUNDING = 8.0


class NearSearch:
    """Looks for weights with a better dual point than those of a fit, in lanes of columns.

    Parameters
    ----------
    problem : Problem
    shards : ColumnShards
        Those of its data.
    active_mib : int
        Most MiB of columns that are held.
    folder : str or None
        Where scores are stored meanwhile; without one nothing can be searched.
    points : int
        At how many points the method reads rows in a pass.
    """

    def __init__(
        self, problem: Problem, shards: ColumnShards, active_mib: int, folder: str | None, points: int
    ) -> None:
        self._problem, self._shards, self._folder = problem, shards, folder
        self._active_mib = active_mib
        self.round_passes = _round_passes(problem, points)
        self._params = {
            "step": "line-search", "active_sweeps": 1, "active_mib": active_mib, "shrink": False, "debias": None
        }  # fmt: skip

    @classmethod
    def of(cls, problem: Problem, active_mib: int, folder: str | None, points: int = 1) -> NearSearch | None:
        """Return the search, or None: without column shards, or where the scores of all rows are not to be held."""
        # Without alpha there is no dual bound.
        if not active_mib or problem.alpha == 0.0:
            return None
        shards = problem.dataset.columns
        # The search holds the scores of all rows in one task, so they count against the same limit as columns.
        if shards is None or _row_bytes(problem) * problem.dataset.meta.n_rows > active_mib * MIB:
            return None
        return cls(problem, shards, active_mib, folder, points)

    @property
    def work_bytes(self) -> int:
        """Bytes of the task that searches: of all rows, of the columns that it holds, and of a shard as it is read."""
        problem, shards = self._problem, self._shards
        rows = (_row_bytes(problem) + working_row_bytes(problem)) * problem.dataset.meta.n_rows
        read = sum(int(sizes.max(initial=0)) for sizes in (shards.decoded_bytes, shards.stored_bytes))
        return rows + read + working_set_bytes(problem, shards, self._active_mib)

    @property
    def kept_bytes(self) -> int:
        """Bytes of columns that a process keeps after a search, for the next one."""
        return active_column_bytes(self._problem, self._shards, self._active_mib) // 2

    def nearer(
        self,
        weights: NDArray[Any],
        intercept: NDArray[np.float64],
        data: DatasetRef,
        most: float,
        executor: Executor,
    ) -> tuple[LinearPredictor | None, int, float]:
        """Return weights nearer to the optimum than those given, or None, the bytes read, and the passes."""
        if most < self.round_passes:
            return None, 0, 0.0
        data, shards = replace(data, columns=self._shards.digest), self._shards
        rows = enumerate(range(len(self._problem.dataset)))
        setting = RoundSetting(
            problem=self._problem,
            params=self._params,
            data=data,
            shards=shards,
            lanes=deal(shards.decoded_bytes, lanes_of(self._problem.parallelism, len(shards))),
            row_lanes=[Lane(i, (block,)) for i, block in rows],
            polishes=False,
            folder=self._folder,
        )
        prepare(
            executor,
            self._problem,
            ("search", self._problem.fit_intercept),
            working_set_tasks(replace(setting, data=data.like(), folder=IN_MEMORY)),
        )
        state = BcdState(weights=weights, intercept=intercept, recentres=True)
        return near_optimum_of(setting, state, most, executor, self.round_passes)


def _round_passes(problem: Problem, points: int) -> float:
    """Return what a round takes, in passes of a method that reads rows at so many points, as far as sizes tell."""
    meta, k = problem.dataset.meta, problem.shape[1]
    # Where a pass is as short as its tasks take to begin, those of a round, and its threads, are many of it.
    work = _PER_PRODUCT * k * (meta.nnz + _PER_FEATURE * meta.n_features)
    own = _LOGISTIC_PASSES if loss_named(problem.loss).logistic else _OTHER_PASSES
    return own / points + _TASKS / (1.0 + work)


def near_optimum_of(
    setting: RoundSetting,
    state: BcdState,
    most: float,
    executor: Executor,
    round_passes: float = SWEEP_PASSES,
) -> tuple[LinearPredictor | None, int, float]:
    """Return weights nearer to the optimum than a state's, or None, the bytes read, and the passes, at most `most`."""
    rounds = int(min(most / round_passes, _ROUNDS))
    state = BcdState(weights=state.weights, intercept=state.intercept, recentres=state.recentres)
    # Scores are row state that may be lost; the search is a function of the weights, so it is done again.
    try:
        near, read, done = _searched(setting, state, executor, rounds)
    except StateLostError:
        near, read, done = _searched(setting, state, executor, rounds)
    return near, read, round_passes * done


def _searched(
    setting: RoundSetting, state: BcdState, executor: Executor, rounds: int
) -> tuple[LinearPredictor | None, int, int]:
    """Return nearer weights, if any, the bytes read, and the rounds done."""
    read, done, first, lowest, following = 0, 0, math.inf, math.inf, state
    for number in range(rounds):
        one = WorkingSetRound(setting, executor, fresh=number == 0)
        found = one.run(following)
        if found is None:
            break
        following, report = found
        read, done = read + report.bytes_read, number + 1
        first, lowest = one.before if number == 0 else first, min(lowest, following.objective)
        rounding = _ROUNDING * float(np.finfo(setting.problem.dtype).eps) * first
        if first - following.bound <= max(_GOOD * (first - lowest), rounding):
            break
    return LinearPredictor(following.weights, following.intercept) if done else None, read, done


def active_column_bytes(problem: Problem, shards: ColumnShards, active_mib: int) -> int:
    """Return the bytes of active columns that a task may hold, with a copy where they are put together."""
    return 2 * min(active_mib * MIB, int(shards.decoded_bytes.sum()))


def working_set_bytes(problem: Problem, shards: ColumnShards, active_mib: int) -> int:
    """Return the bytes of a working set in a task, at most: columns, as read, put together and by rows; the Gram."""
    parts = max(_parts(problem), 1)
    grams = 1 + loss_named(problem.loss).quadratic  # the one before is kept
    gram = min(active_mib * MIB, grams * 4 * parts * (problem.shape[0] + 1) ** 2)
    # Rows are made with indices of 4 bytes, and a copy while that is done.
    return 2 * active_column_bytes(problem, shards, active_mib) + gram


def working_row_bytes(problem: Problem) -> int:
    """Return the bytes of a row in a descent: scores, slopes, three changes of scores, and second derivatives."""
    return 5 * 8 * problem.shape[1] + 4 * _parts(problem)


def kept_row_bytes(problem: Problem) -> int:
    """Return the bytes of a row that a worker keeps with a Gram: second derivatives, where these stay the same."""
    return 4 * _parts(problem) * loss_named(problem.loss).quadratic


def _parts(problem: Problem) -> int:
    return parts_of(loss_named(problem.loss), problem.shape[1], sets=problem.target == "multilabel")


def target_bytes(meta: DatasetMeta) -> int:
    """Return the bytes per row of the targets that a worker keeps: a class, numbers, or labels and their offset."""
    if meta.target == "continuous":
        return 8 * meta.n_targets
    if meta.target == "class":
        # A class code is an int32.
        return 4
    # Offsets, and the mean number of labels of a row, rounded up, of 4 bytes each.
    return 16 + 4 * -(-sum(meta.label_counts) // max(meta.n_rows, 1))


def _row_bytes(problem: Problem) -> int:
    """Return the bytes of a row: scores, targets, and its weight."""
    meta = problem.dataset.meta
    return problem.shape[1] * problem.dtype.itemsize + target_bytes(meta) + 8
