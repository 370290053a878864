"""How many fits train side by side: as many as share the fewest reads, given the memory of the workers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from distls.execution.memory_budget import MemoryBudget
from distls.storage.errors import MemoryPlanError
from distls.training.configuration import Setting

_MOST = 64  # whose results a reduction holds at once


def fits_at_once(settings: Sequence[Setting], slots: int, memory: MemoryBudget | None) -> int:
    """Return the number of these fits that should share each read.

    All of them where the memory allows it. Their weights may take the room of cached partitions: then groups that read
    more often, but from the cache, may read less in all.
    """
    if not settings[0].method.side_by_side:
        return 1
    best, count = 1, len(settings)
    fewest = math.inf
    for parts in _numbers_of_groups(count):
        at_once = -(-count // parts)
        share = _read_share(settings, slots, budget_of(memory, slots, at_once))
        if share is not None and parts * share < fewest:
            best, fewest = at_once, parts * share
        if not fewest:
            break
    return best


def budget_of(memory: MemoryBudget | None, slots: int, models: int) -> MemoryBudget:
    """Return the memory of workers that train this many models at once."""
    return replace(memory or MemoryBudget(workers=slots), models=models)


def _numbers_of_groups(count: int) -> list[int]:
    found, parts = [], -(-count // _MOST)
    while parts < count:
        found.append(parts)
        parts *= 2
    return [*found, count]


def _read_share(settings: Sequence[Setting], slots: int, memory: MemoryBudget) -> float | None:
    """Return the largest share of the data that a pass of such fits reads from the store; None without the memory."""
    # what a fit holds does not depend on its strength
    kinds = {
        str({name: value for name, value in setting.params.items() if name != "alpha"}): setting
        for setting in settings
    }
    try:
        plans = [setting.solver(slots=slots, memory=memory).plan for setting in kinds.values()]
    except MemoryPlanError:
        return None
    return 1.0 - min(plan.cached_fraction for plan in plans)
