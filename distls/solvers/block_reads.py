"""What the least-squares methods share: lanes that are read and reduced to `BlockSums`, and the round's report."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.memory_plan import Plan, make_plan
from distls.problem import Problem
from distls.solvers.solver import RoundReport
from distls.storage.errors import ParameterError, StateLostError
from distls.workers.least_squares.block_task import Block, BlockJob, BlockSums, block_lane, merge_blocks
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import DEFAULT_LANES, Lane, deal

__all__ = ["BlockReader", "lane_count"]


def lane_count(asked: int | None, n_blocks: int) -> int:
    """Return the number of lanes, by default; raise ParameterError if there are fewer partitions than asked for."""
    if asked is None:
        return max(1, min(DEFAULT_LANES, n_blocks))
    if asked > n_blocks:
        raise ParameterError(
            f"lanes={asked}: the data set has only {n_blocks} partitions; "
            "ingest it with a smaller --partition-size"
        )
    return asked


class BlockReader:
    """Reads the data in lanes and reduces them; the same sums with any executor."""

    def __init__(
        self,
        problem: Problem,
        *,
        lanes: int | None,
        block_bytes: int,  # of one result: a lane's sums
        weight_bytes: int,  # of what a round sends
        memory: MemoryBudget,
        work_bytes: int = 0,  # what a task needs besides, for a piece of its rows
        driver_bytes: int = 0,  # what the driver needs besides
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
        self.class_weight = problem.row_weights

    def read(
        self,
        executor: Executor,
        job: BlockJob,
        added: Block | None = None,
        current: Block | None = None,
        *,
        rebuild: Callable[[], None] | None = None,
    ) -> BlockSums:
        """Do one read of the data; if a worker has lost kept predictions, `rebuild` them and read again."""
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
        dataset = self.problem.dataset
        result.ledger.check_cover(range(len(dataset)), dataset.meta.n_rows)
        return result

    def report(self, result: BlockSums) -> RoundReport:
        """Return the report of a round: loss and error at the weights it started from."""
        counted = self.problem.target != "continuous"
        return RoundReport.of(
            result.ledger,
            sum(fold.loss_sum for fold in result.folds),
            sum(fold.errors for fold in result.folds) if counted else None,
        )
