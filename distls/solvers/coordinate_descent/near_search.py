"""Weights nearer to the optimum than those of a fit, whose dual point is its certificate: by working sets.

Methods that read rows gather the columns of a set from these (docs/decisions/0022).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from distls.execution.executor import Executor
from distls.execution.memory_budget import MIB
from distls.execution.row_reads import reading_lanes
from distls.problem import Problem
from distls.solvers.coordinate_descent.bcd_round import BcdState, RoundSetting
from distls.solvers.coordinate_descent.row_rounds import RowReads, RowRound, row_round_tasks
from distls.solvers.coordinate_descent.working_set_round import WorkingSetRound
from distls.solvers.solver import prepare
from distls.storage.dataset.column_shards import ColumnShards
from distls.storage.dataset.dataset import Dataset
from distls.storage.dataset.metadata import DatasetMeta
from distls.storage.errors import StateLostError
from distls.storage.temporary.row_state import IN_MEMORY
from distls.workers.coordinate_descent.quadratic_model import parts_of
from distls.workers.losses.loss_registry import loss_named
from distls.workers.rounds.block_stream import DatasetRef

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
    """Looks for weights with a better dual point than those of a fit, by reads of rows.

    Parameters
    ----------
    problem : Problem
    active_mib : int
        Most MiB of columns that are held.
    folder : str or None
        Where scores and columns are stored meanwhile; without one nothing can be searched.
    points : int
        At how many points the method reads rows in a pass.
    """

    def __init__(self, problem: Problem, active_mib: int, folder: str | None, points: int) -> None:
        self._problem, self._active_mib, self._folder = problem, active_mib, folder
        self.round_passes = _round_passes(problem, points)
        self.reached = math.inf  # the lowest objective of the newest search's weights

    @classmethod
    def of(cls, problem: Problem, active_mib: int, folder: str | None, points: int = 1) -> NearSearch | None:
        """Return the search, or None where the scores of all rows are not to be held."""
        # Without alpha there is no dual bound; fits to folds are compared, and not proven.
        if not active_mib or problem.alpha == 0.0 or problem.dataset.fold is not None:
            return None
        # The search holds the scores of all rows in one task, so they count against the same limit as columns.
        if _row_bytes(problem) * problem.dataset.meta.n_rows > active_mib * MIB:
            return None
        return cls(problem, active_mib, folder, points)

    @property
    def work_bytes(self) -> int:
        """Bytes of a task that reads rows: a partition, its copy as float64 or of columns; weights and gradient."""
        n_features, k = self._problem.shape
        return 3 * int(self._problem.dataset.decoded_bytes.max(initial=0)) + 2 * 8 * n_features * k

    @property
    def descent_bytes(self) -> int:
        """Bytes of the one task that descends: of all rows, and of the columns that it holds."""
        problem, dataset = self._problem, self._problem.dataset
        rows = (_row_bytes(problem) + working_row_bytes(problem)) * dataset.meta.n_rows
        return rows + working_set_bytes(problem, dataset, self._active_mib)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the Gram that a process keeps after a search, for the next one."""
        problem = self._problem
        gram = 4 * max(_parts(problem), 1) * (problem.shape[0] + 1) ** 2
        return min(self._active_mib * MIB, gram) * loss_named(problem.loss).quadratic

    def nearer(
        self,
        weights: NDArray[Any],
        intercept: NDArray[np.float64],
        data: DatasetRef,
        most: float,
        executor: Executor,
        goal: float = math.inf,
    ) -> tuple[float | None, int, float]:
        """Return a bound of the optimum, or None, the bytes read, and the passes, at most `most`.

        It is to be at most `goal` below the lowest objective too, so that it serves weights that are nearer.
        """
        if most < self.round_passes:
            return None, 0, 0.0
        problem = self._problem
        setting = RoundSetting(
            problem=problem,
            params={
                "step": "line-search",
                "active_sweeps": 1,
                "active_mib": self._active_mib,
                "shrink": False,
                "debias": None,
            },
            data=data,
            shards=cast("Any", None),
            lanes=[()],
            row_lanes=reading_lanes(problem.dataset, problem.parallelism),
            polishes=False,
            folder=self._folder,
        )
        calls = row_round_tasks(replace(setting, folder=IN_MEMORY), data.like())
        prepare(executor, problem, ("search", problem.fit_intercept), calls)
        reads = RowReads(setting)
        state = BcdState(weights=weights, intercept=intercept, recentres=True)
        found = near_optimum_of(partial(RowRound, reads), state, most, executor, self.round_passes, goal)
        self.reached = reads.lowest
        return found


def _round_passes(problem: Problem, points: int) -> float:
    """Return what a round takes, in passes of a method that reads rows at so many points, as far as sizes tell."""
    meta, k = problem.dataset.meta, problem.shape[1]
    # Where a pass is as short as its tasks take to begin, those of a round, and its threads, are many of it.
    work = _PER_PRODUCT * k * (meta.nnz + _PER_FEATURE * meta.n_features)
    own = _LOGISTIC_PASSES if loss_named(problem.loss).logistic else _OTHER_PASSES
    return own / points + _TASKS / (1.0 + work)


def near_optimum_of(
    begun: Callable[..., WorkingSetRound],
    state: BcdState,
    most: float,
    executor: Executor,
    round_passes: float = SWEEP_PASSES,
    goal: float = math.inf,
) -> tuple[float | None, int, float]:
    """Return a bound of the optimum, or None, the bytes read, and the passes, at most `most`.

    It is that of rounds from a state's weights; `begun` makes one; for `goal` see `NearSearch.nearer`.
    """
    rounds = int(min(most / round_passes, _ROUNDS))
    state = BcdState(weights=state.weights, intercept=state.intercept, recentres=state.recentres)
    # Scores are row state that may be lost; the search is a function of the weights, so it is done again.
    try:
        bound, read, done = _searched(begun, state, executor, rounds, goal)
    except StateLostError:
        bound, read, done = _searched(begun, state, executor, rounds, goal)
    # That no loss is negative is known without a search.
    return bound if bound > 0.0 else None, read, round_passes * done


def _searched(
    begun: Callable[..., WorkingSetRound], state: BcdState, executor: Executor, rounds: int, goal: float
) -> tuple[float, int, int]:
    """Return the best bound of the rounds, the bytes read, and how many were done."""
    read, done, first, lowest, bound = 0, 0, math.inf, math.inf, 0.0
    rounding = _ROUNDING * float(np.finfo(state.weights.dtype).eps)
    for number in range(rounds):
        one = begun(executor, fresh=number == 0)
        found = one.run(state)
        if found is None:
            # Columns that do not fit were read nevertheless.
            return bound, read + one.bytes_read, number + 1
        state, report = found
        read, done, bound = read + report.bytes_read, number + 1, state.bound
        first, lowest = one.before if number == 0 else first, min(lowest, state.objective)
        good = first - bound <= max(_GOOD * (first - lowest), rounding * first)
        if good and lowest - bound <= max(goal, rounding * first):
            break
    return bound, read, done


def active_column_bytes(problem: Problem, data: Dataset | ColumnShards, active_mib: int) -> int:
    """Return the bytes of active columns that a task may hold, with a copy where they are put together."""
    return 2 * min(active_mib * MIB, int(data.decoded_bytes.sum()))


def working_set_bytes(problem: Problem, data: Dataset | ColumnShards, active_mib: int) -> int:
    """Return the bytes of a working set in a task, at most: columns, as read, put together and by rows; the Gram."""
    parts = max(_parts(problem), 1)
    grams = 1 + loss_named(problem.loss).quadratic  # the one before is kept
    gram = min(active_mib * MIB, grams * 4 * parts * (problem.shape[0] + 1) ** 2)
    # Rows are made with indices of 4 bytes, and a copy while that is done.
    return 2 * active_column_bytes(problem, data, active_mib) + gram


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
