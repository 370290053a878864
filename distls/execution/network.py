"""What crosses the network in a reduction by `DaskExecutor.reduce`, and how its merges are dealt to workers.

The driver puts the shared value on one worker, from which the others that have a task fetch it, or each slice of a
very large one on another; a small value goes to the scheduler once, and from there with each task. Each task merges
its lanes' results as far as the fixed tree allows. If these are small or few, the driver fetches and merges them.
Otherwise further tasks merge those of neighbours, each on a worker that holds some of them, until one result is left
for the driver.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from distls.execution.executor import Group, group_items

# Bytes of a shared value that travels with each task, and of results that go straight to the driver.
SMALL = 2**16
# Bytes of a result that takes longer to move and to merge than further tasks take the scheduler.
_HUGE = 2**24
# A shared value with more bytes of arrays is cut into slices, if more workers need it: each is sent, and fetched by the
# others, beside the rest.
SLICED, SLICES = 2**22, 4
# Results of so many tasks go straight to the driver, whatever their size; of so many on its own machine, without links.
FEW, FEW_HERE = 4, 8
# Large, and huge, results that one further task merges (docs/decisions/0040-merges-among-workers.md).
LARGE_FAN, HUGE_FAN = 8, 2
# While so many are left, a task costs the scheduler more than a further merge in each costs the links.
_MANY, _MANY_FAN = 256, 4


@dataclass(frozen=True)
class Traffic:
    """Bytes of the arrays that cross the network in one reduction; the messages around them are not counted."""

    tasks: int  # That process lanes
    sent: int  # From the driver: the shared value
    fetched: int  # From worker to worker, or from the scheduler with each task where it is small
    fetches: int  # Workers that fetch it
    slices: int  # That it is cut into
    merges: int  # Further tasks that merge results on workers
    merged: int  # From worker to worker: results that they merge
    steps: int  # Merges that follow each other, with the others beside them; on the driver all do
    held: int  # Results that one of these tasks holds at most; 0 if there are none
    results: int  # Merged results that reach the driver
    returned: int  # Their bytes

    @property
    def total(self) -> int:
        """Bytes in all."""
        return self.sent + self.fetched + self.merged + self.returned


def traffic_of(
    shared_bytes: int, result_bytes: int, *, lanes: int, workers: int, threads: int, here: bool = False
) -> Traffic:
    """Return the traffic of one reduction of `lanes` results, each of at most `result_bytes` even after merging.

    `here` says that the workers were started by the driver, on its machine.
    """
    # The same grouping as of the executor, so that the estimate is exact.
    groups = group_items(lanes, [str(worker) for worker in range(workers)] * threads)
    counts = {group: count_nodes(group, lanes) for group in groups}
    results, fan = sum(counts.values()), fan_of(result_bytes)
    merged, steps, held, merges = 0, results - 1, 0, 0
    if fan and len(groups) > (FEW_HERE if here else FEW):
        results, steps = 1, 0
        for level in merge_levels(groups, fan, lanes):
            counts |= {joined(some): count_nodes(joined(some), lanes) for some in level}
            given = [sum(counts[part] for part in some) for some in level]
            elsewhere = [part for some in level for part in some if part[2] != joined(some)[2]]
            merged += result_bytes * sum(counts[part] for part in elsewhere)
            merges += sum(len(some) > 1 for some in level)
            steps += max(many - counts[joined(some)] for many, some in zip(given, level, strict=True))
            # What a merge is given stays, for a repetition; it merges copies, one a level of the tree and one more.
            held = max(held, max(given) + _fan_of_level(fan, sum(map(len, level))).bit_length())
    small = shared_bytes <= SMALL
    # The worker that holds the value does not fetch it.
    busy = min(workers, len(groups))
    fetches = 0 if small else busy - 1
    return Traffic(
        tasks=len(groups),
        sent=shared_bytes,
        fetched=(len(groups) if small else fetches) * shared_bytes,
        fetches=fetches,
        slices=1 if here else slices_of(shared_bytes, busy),
        merges=merges,
        merged=merged,
        steps=steps,
        held=held,
        results=results,
        returned=results * result_bytes,
    )


def slices_of(array_bytes: int, workers: int) -> int:
    """Return the number of slices of a shared value that so many workers need."""
    return SLICES if array_bytes > SLICED and workers > SLICES else 1


def fan_of(result_bytes: int) -> int:
    """Return how many results of this size one further task merges; 0: they go straight to the driver."""
    if result_bytes <= SMALL:
        return 0
    return LARGE_FAN if result_bytes <= _HUGE else HUGE_FAN


def _fan_of_level(fan: int, left: int) -> int:
    return max(fan, _MANY_FAN) if left >= _MANY else fan


def merge_levels(groups: Sequence[Group], fan: int, n_items: int) -> Iterator[list[list[Group]]]:
    """Yield, level by level, which neighbouring groups' results one task merges, until one is left.

    It merges those of two groups, and of as many more as have `fan` results in all, or 4 while many are left.
    """
    while len(groups) > 1:
        level: list[list[Group]] = [[]]
        most = _fan_of_level(fan, len(groups))
        for group in groups:
            if len(level[-1]) > 1 and sum(count_nodes(each, n_items) for each in [*level[-1], group]) > most:
                level.append([])
            level[-1].append(group)
        yield level
        groups = [joined(some) for some in level]


def joined(groups: Sequence[Group]) -> Group:
    """Return neighbouring groups as one, at the place of the middle one: most of them, if any place has most."""
    return groups[0][0], groups[-1][1], groups[len(groups) // 2][2]


def count_nodes(group: Group, n_items: int) -> int:
    """Return the number of results of neighbouring items after merging as far as the tree allows."""
    start, stop, _ = group
    # The last item has no sibling: it moves up as if there were items to the end of the tree.
    end, count = (stop if stop < n_items else 1 << (n_items - 1).bit_length()), 0
    while start < stop:
        # A subtree begins at a multiple of its size.
        size = 1 << (end - start).bit_length() - 1
        start, count = start + (min(start & -start, size) or size), count + 1
    return count
