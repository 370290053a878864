"""Everything in this process, in order: the default of the Python estimators, and what most tests use."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from distls.execution.executor import Item, Result, run_group
from distls.workers.rounds.reduction_tree import ReductionTree
from distls.workers.runtime.process import task_settings


class SerialExecutor:
    """Runs tasks one after the other."""

    slots = 1

    def map(
        self, function: Callable[[Any, Item], Result], items: Sequence[Item], *, shared: Any = None
    ) -> Iterator[Result]:
        """See `Executor.map`."""
        for item in items:
            # Around each task, not around the generator: settings must not leak to the caller between items.
            with task_settings():
                result = function(shared, item)
            yield result

    def reduce(
        self,
        function: Callable[[Any, Item], Result],
        items: Sequence[Item],
        *,
        merge: Callable[[Result, Result], Result],
        shared: Any = None,
    ) -> Result:
        """See `Executor.reduce`."""
        tree: ReductionTree[Result] = ReductionTree(len(items), merge)
        with task_settings():
            # The same tree as on a cluster, hence the same bits.
            tree.add_all(run_group(function, shared, items, 0, len(items), merge))
        return tree.root()

    def each_worker(self, function: Callable[[Item], Result], item: Item) -> dict[str, Result]:
        """See `Executor.each_worker`."""
        return {"this process": function(item)}

    def close(self) -> None:
        """Nothing to release."""
