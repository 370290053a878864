"""Network traffic of a reduction by `DaskExecutor.reduce`.

The driver puts the shared value on one worker, from which the others that have a task fetch it; a small value is sent
with each task. Each task returns its lanes' results, merged as far as the fixed tree allows, to the driver, which
merges the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from distls.execution.executor import group_items, run_group

# Bytes of a shared value that travels with each task.
SMALL = 2**16


@dataclass(frozen=True)
class Traffic:
    """Bytes of the arrays that cross the network in one reduction; the messages around them are not counted."""

    tasks: int
    sent: int  # From the driver: the shared value once, or with each task where it is small
    fetched: int  # From worker to worker
    fetches: int  # Workers that fetch it
    results: int  # Merged results that reach the driver
    returned: int  # Their bytes

    @property
    def total(self) -> int:
        """Bytes in all."""
        return self.sent + self.fetched + self.returned


def traffic_of(shared_bytes: int, result_bytes: int, *, lanes: int, workers: int, threads: int) -> Traffic:
    """Return the traffic of one reduction of `lanes` results, each of at most `result_bytes` even after merging."""
    # The same grouping as of the executor, so that the estimate is exact.
    groups = group_items(lanes, [""] * (workers * threads))
    results = sum(_nodes(start, stop, lanes) for start, stop, _ in groups)
    small = shared_bytes <= SMALL
    # The worker that holds the value does not fetch it.
    fetches = 0 if small else min(workers, len(groups)) - 1
    return Traffic(
        tasks=len(groups),
        sent=shared_bytes * (len(groups) if small else 1),
        fetched=fetches * shared_bytes,
        fetches=fetches,
        results=results,
        returned=results * result_bytes,
    )


def _nodes(start: int, stop: int, n_items: int) -> int:
    """Return the number of results of consecutive lanes after merging as far as the tree allows."""
    items = range(start, stop)
    # Run on nothing: the count follows from the tree alone.
    return len(run_group(lambda _shared, _item: None, None, items, start, n_items, lambda _a, _b: None))
