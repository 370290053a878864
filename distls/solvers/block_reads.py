"""What the least-squares methods share: lanes that are read and reduced to `BlockSums`, and the round's report."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.memory_plan import Plan, make_plan
from distls.problem import Problem
from distls.solvers.solver import RoundReport
from distls.storage.errors import DistlsError, ParameterError, StateLostError
from distls.workers.least_squares.block_task import Block, BlockJob, BlockSums, block_lane, merge_blocks
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import DEFAULT_LANES, Lane, deal

__all__ = ["BlockReader", "lane_count"]


def lane_count(asked: int | None, n_blocks: int) -> int:
    """Return the number of lanes: as asked, or the default.

    Raises
    ------
    ParameterError
        There are fewer partitions.
    """
    if asked is None:
        return max(1, min(DEFAULT_LANES, n_blocks))
    if asked > n_blocks:
        raise ParameterError(
            f"lanes={asked}: the data set has only {n_blocks} partitions; "
            "ingest it with a smaller --partition-size"
        )
    return asked


class BlockReader:
    """Reads the data in lanes and reduces them; the same sums with any executor.

    Parameters
    ----------
    problem : Problem
    lanes : int or None
    block_bytes : int
        Of one result: a lane's sums.
    weight_bytes : int
        Of what a round sends.
    work_bytes : int
        What a task needs besides, for a piece of its rows.
    driver_bytes : int
        What the driver needs besides.
    memory : MemoryBudget
    """

    def __init__(
        self,
        problem: Problem,
        *,
        lanes: int | None,
        block_bytes: int,
        weight_bytes: int,
        memory: MemoryBudget,
        work_bytes: int = 0,
        driver_bytes: int = 0,
    ) -> None:
        dataset = problem.dataset
        self.problem = problem
        self.lanes = deal(dataset.decoded_bytes, lane_count(lanes, len(dataset)))
        self.plan: Plan = make_plan(
            dataset,
            weight_bytes=max(weight_bytes, 1),
            result_copies=block_bytes / max(weight_bytes, 1),
            lanes=len(self.lanes),
            rounds_per_pass=1,
            sample_bytes=0,
            work_bytes=work_bytes,
            driver_copies=driver_bytes / max(weight_bytes, 1),
            budget=memory,
        )
        self.data = DatasetRef(str(dataset.path.resolve()), dataset.fingerprint, self.plan.cache_bytes)
        by_class = problem.row_weight_by_class
        plain = not dataset.meta.weighted and bool(np.all(by_class == 1.0))
        self.class_weight = None if plain else by_class

    def read(
        self,
        executor: Executor,
        job: BlockJob,
        added: Block | None = None,
        current: Block | None = None,
        *,
        rebuild: Callable[[], None] | None = None,
    ) -> BlockSums:
        """Do one read of the data.

        Parameters
        ----------
        rebuild : callable, optional
            Makes the kept predictions anew when a worker does not find them; the read is then done again.
        """
        return self.reduce(executor, partial(block_lane, job), (added, current), rebuild=rebuild)

    def reduce(
        self,
        executor: Executor,
        task: Callable[[Any, Lane], BlockSums],
        shared: Any,
        *,
        rebuild: Callable[[], None] | None = None,
    ) -> BlockSums:
        """Do one read of the data by a task of any kind; as `read`."""
        lanes = [Lane(i, blocks) for i, blocks in enumerate(self.lanes)]
        try:
            result = executor.reduce(task, lanes, merge=merge_blocks, shared=shared)
        except StateLostError:
            if rebuild is None:
                raise
            rebuild()
            return self.reduce(executor, task, shared)
        self._check_cover(result)
        return result

    def _check_cover(self, result: BlockSums) -> None:
        """Every partition exactly once, every row counted."""
        dataset = self.problem.dataset
        n_rows = sum(fold.n_rows for fold in result.folds)
        if sorted(result.blocks) != list(range(len(dataset))) or n_rows != dataset.meta.n_rows:
            raise DistlsError(
                f"a round covered {len(result.blocks)} partitions and {n_rows} rows instead of {len(dataset)} and "
                f"{dataset.meta.n_rows}; resume the run"
            )

    def report(self, result: BlockSums) -> RoundReport:
        """Return what a round tells: loss and error at the weights it started from."""
        n_rows = sum(fold.n_rows for fold in result.folds)
        return RoundReport(
            running_loss=sum(fold.loss_sum for fold in result.folds) / n_rows,
            running_error=None
            if self.problem.target == "continuous"
            else sum(fold.errors for fold in result.folds) / n_rows,
            n_rows=n_rows,
            bytes_read=result.reads.bytes_read,
            cached_bytes=result.reads.cached_bytes,
            kernel_seconds=result.kernel_seconds,
            wait_seconds=result.reads.wait_seconds,
            worker_seconds=result.busy,
            worker_peaks=result.peaks,
        )
