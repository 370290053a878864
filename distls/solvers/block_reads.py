"""Reads of row partitions that are reduced to `BlockSums`, and the report of such a round."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.memory_plan import Footprint, Plan, make_plan
from distls.problem import Problem
from distls.solvers.solver import RoundReport
from distls.storage.errors import ParameterError, StateLostError
from distls.storage.rows import index_dtype
from distls.workers.least_squares.block_task import Block, BlockJob, BlockSums, block_lane, merge_blocks
from distls.workers.least_squares.multi_point_task import PointJob, warm_up_products
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.kernel_types import KernelTypes
from distls.workers.rounds.lanes import DEFAULT_LANES, Lane, deal


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
        work_bytes: int = 0,  # what else a task needs, for a chunk of its rows
        driver_bytes: int = 0,  # what else the driver needs
    ) -> None:
        dataset = problem.dataset
        self.problem = problem
        self.lanes = deal(dataset.decoded_bytes, lane_count(lanes, len(dataset)))
        self.plan: Plan = make_plan(
            dataset,
            Footprint(
                weight_bytes=max(weight_bytes, 1),
                result_copies=block_bytes / max(weight_bytes, 1),
                driver_copies=driver_bytes / max(weight_bytes, 1),
                work_bytes=work_bytes,
            ),
            lanes=len(self.lanes),
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

    def point_job(self, folds: int = 1) -> PointJob:
        """Return the job of a read of loss and gradient at several weights."""
        return PointJob(
            data=self.data,
            loss=self.problem.loss,
            n_outputs=self.problem.shape[1],
            dtype=self.problem.dtype.name,
            class_weight=self.class_weight,
            folds=folds,
        )

    def compile_products(self, executor: Executor, *dtypes: str) -> None:
        """Have the kernels of products compiled here, then loaded by every worker."""
        for dtype in dtypes or (self.problem.dtype.name,):
            self.compile(executor, warm_up_products, dtype)

    def compile(self, executor: Executor, warm_up: Callable[[KernelTypes], None], dtype: str) -> None:
        """Have the kernels of `warm_up` compiled here, then loaded by every worker."""
        meta = self.problem.dataset.meta
        indices = index_dtype(meta.n_features).name
        types = KernelTypes(meta.layout, meta.dtype, indices, dtype, self.problem.loss)
        # first in this process, which writes the cache on disk that local workers load from
        warm_up(types)
        executor.each_worker(warm_up, types)

    def report(self, result: BlockSums) -> RoundReport:
        """Return the report of a round: loss and error at the weights it started from."""
        counted = self.problem.target != "continuous"
        return RoundReport.of(
            result.ledger,
            sum(fold.loss_sum for fold in result.folds),
            sum(fold.errors for fold in result.folds) if counted else None,
        )
