"""The interface between solvers and the machines they run on; one conformance suite tests every implementation."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from distls.workers.rounds.reduction_tree import ReductionTree

Item = TypeVar("Item")
Result = TypeVar("Result")
Node = tuple[int, int, Any]
Group = tuple[int, int, str]


class Executor(Protocol):
    """Runs module-level functions over items. Results never depend on the number of workers."""

    @property
    def slots(self) -> int:
        """Tasks that run at once."""

    def map(
        self, function: Callable[[Any, Item], Result], items: Sequence[Item], *, shared: Any = None
    ) -> Iterator[Result]:
        """Run ``function(shared, item)`` for each item; yield results in item order, few in flight at a time."""

    def reduce(
        self,
        function: Callable[[Any, Item], Result],
        items: Sequence[Item],
        *,
        merge: Callable[[Result, Result], Result],
        shared: Any = None,
    ) -> Result:
        """Run ``function(shared, item)`` for each item and merge the results in the fixed tree.

        `shared` may be large (weights): it is sent once a worker, not once an item. Neighbouring items may
        share a task; every item's result enters the tree exactly once, or the call fails.
        """

    def each_worker(self, function: Callable[[Item], Result], item: Item) -> dict[str, Result]:
        """Run the short ``function(item)`` once in every worker process; results by worker name."""

    def close(self) -> None:
        """Release workers that this executor started."""


def group_items(n_items: int, places: Sequence[str]) -> list[Group]:
    """Split items into consecutive groups, one per place, as equal as possible: (start, stop, place).

    The first places are taken, and sorted: groups at the same one are neighbours, whose results are merged there.
    """
    n_groups = min(n_items, len(places))
    # Integer arithmetic: groups differ by one item at most.
    bounds = [n_items * g // n_groups for g in range(n_groups + 1)]
    chosen = sorted(places[:n_groups])
    return [(a, b, place) for (a, b), place in zip(itertools.pairwise(bounds), chosen, strict=True)]


def move_groups(groups: Sequence[Group], places: Sequence[str]) -> list[Group]:
    """Assign groups to other places, round robin."""
    # By turns: a dead worker's groups are spread over those left.
    turns = itertools.cycle(places)
    return [(start, stop, next(turns)) for start, stop, _ in groups]


def run_group(
    function: Callable[[Any, Item], Result],
    shared: Any,
    items: Sequence[Item],
    start: int,
    n_items: int,
    merge: Callable[[Result, Result], Result],
) -> list[Node]:
    """Run the neighbouring items `start`, `start + 1`, ... of `n_items` and merge them as far as the tree allows."""
    tree: ReductionTree[Result] = ReductionTree(n_items, merge)
    for offset, item in enumerate(items):
        # In the tree's own order: merging here or on the driver gives the same bits.
        tree.add(0, start + offset, function(shared, item))
    return tree.nodes()
