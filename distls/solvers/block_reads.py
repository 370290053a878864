"""Reads of row partitions that are reduced to `BlockSums`, and the report of such a round."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from distls.execution.executor import Executor
from distls.execution.memory_budget import MemoryBudget
from distls.execution.row_reads import lanes_of, reduce_rows
from distls.memory_plan import Footprint, Plan, make_plan
from distls.problem import Problem
from distls.solvers.solver import RoundReport
from distls.storage.errors import ParameterError, StateLostError
from distls.workers.least_squares.block_task import BlockSums, SumsTask
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import Lane, deal
from distls.workers.rounds.task import Needs, Task

T = TypeVar("T", bound=SumsTask)


def lane_count(asked: int | None, n_blocks: int, parallelism: int) -> int:
    """Return the number of lanes, by default; raise ParameterError if there are fewer partitions than asked for."""
    if asked is None:
        # The default never depends on the number of workers: lanes fix the order of the sums.
        return lanes_of(parallelism, n_blocks)
    if asked > n_blocks:
        raise ParameterError(
            f"lanes={asked}: the data set has only {n_blocks} partitions; ingest it with a smaller --partition-size"
        )
    return asked


class BlockReader:
    """Reads the data in lanes and reduces them; the same sums with any executor."""

    def __init__(
        self,
        problem: Problem,
        *,
        lanes: int | None,
        needs: Needs,  # of its tasks
        memory: MemoryBudget,
        driver_bytes: int = 0,  # what else the driver needs
        alone_bytes: int = 0,  # of a task that works while no other does
    ) -> None:
        dataset = problem.dataset
        self.problem = problem
        # Lanes are dealt before the plan, so that the same lanes, and the same sums, come out on any number
        # of workers.
        self.lanes = deal(dataset.decoded_bytes, lane_count(lanes, len(dataset), problem.parallelism))
        self.plan: Plan = make_plan(
            dataset, Footprint(needs, driver_bytes, alone_bytes=alone_bytes), lanes=len(self.lanes), budget=memory
        )
        self.data = DatasetRef.of(dataset, self.plan.cache_bytes)  # with its fold
        self.class_weight = problem.row_weights

    @property
    def work(self) -> list[Lane]:
        """The items of a read of all rows."""
        return [Lane(i, blocks) for i, blocks in enumerate(self.lanes)]

    def quarter(self, turn: int) -> tuple[list[int] | None, float]:
        """Return a fourth of the partitions, others in each turn, and which share of the bytes they are.

        It does not depend on the lanes that were asked for. Of few partitions it is None, for all of them.
        """
        sizes = self.problem.dataset.stored_bytes
        # as they are dealt by default, so that each lane has its part
        lanes = lane_count(None, len(sizes), self.problem.parallelism)
        if len(sizes) < 4 * lanes:
            return None, 1.0
        blocks = [block for block in range(len(sizes)) if block // lanes % 4 == turn % 4]
        return blocks, float(sizes[blocks].sum() / sizes.sum())

    def reduce(
        self,
        executor: Executor,
        task: Task,
        shared: Any,
        *,
        rebuild: Callable[[], None] | None = None,
        only: Sequence[int] | None = None,
    ) -> BlockSums:
        """Do one read of the data, or of some partitions; of lost predictions `rebuild` them and read again."""
        try:
            # Every lane returns its own sums, merged in the order of lanes: bitwise identical with any executor.
            result: BlockSums = reduce_rows(executor, self.problem.dataset, shared, task, self.work, only)
        except StateLostError:
            if rebuild is None:
                raise
            # Lost row state follows from the weights, so it is recomputed and the read starts again as a whole.
            rebuild()
            # Without `rebuild`: a second loss is an error, and no loop.
            return self.reduce(executor, task, shared)
        return result

    def task(self, kind: type[T], **options: Any) -> T:
        """Return a task that sums moments of the problem's rows."""
        problem, made = self.problem, cast("Callable[..., T]", kind)
        own = {"loss": problem.loss, "n_outputs": problem.shape[1], "dtype": problem.dtype.name}
        return made(data=self.data, class_weight=self.class_weight, **own, **options)

    of_points = task

    def report(self, result: BlockSums) -> RoundReport:
        """Return the report of a round: loss and error at the weights it started from."""
        # An error rate is of predicted classes; continuous targets have none.
        counted = self.problem.target != "continuous"
        return RoundReport.of(
            result.ledger,
            sum(fold.loss_sum for fold in result.folds),
            sum(fold.errors for fold in result.folds) if counted else None,
        )
