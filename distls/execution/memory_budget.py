"""Memory of workers; sizes in bytes as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from distls.storage.machine import available_memory

MIB = 2**20
# The part of a limit that is planned for; Dask kills a worker at the limit itself.
SAFE_FRACTION = 0.92
_MARGIN = 0.03  # of a limit, for what is measured late


@dataclass(frozen=True)
class MemoryBudget:
    """The memory of the workers."""

    # Bytes a worker process; None: half of the memory that is free here, shared by the workers
    limit: int | None = None
    workers: int = 1  # Processes, and threads in each
    threads: int = 1
    compiles: bool = False  # Whether workers may have to compile kernels themselves (other machines do)
    # Bytes of decoded partitions a worker may keep; None: all that its limit leaves
    cache_limit: int | None = None
    models: int = 1  # Fits side by side, whose weights a worker holds at once
    # Parts of the limit that a job may need, and that it may fill with a cache: Dask may spill or pause beyond
    safe: float = SAFE_FRACTION
    calm: float = SAFE_FRACTION

    @property
    def worker_limit(self) -> int:
        """Bytes a worker process may use."""
        if self.limit is not None:
            return self.limit
        # Half: estimates have errors, and others need memory too.
        return available_memory() // (2 * self.workers)

    @property
    def usable(self) -> int:
        """Bytes of them that a job may need."""
        return int(self.worker_limit * self.safe)

    @property
    def fillable(self) -> int:
        """Bytes of them that a job may fill with what it can do without."""
        return int(self.worker_limit * min(self.safe, self.calm))


class WorkerMemory(NamedTuple):
    """What a worker says of itself."""

    host: str
    process: int
    threads: int
    limit: int | None  # Bytes of its process
    free: int  # Bytes of its machine
    killed: float  # Parts of its limit above which it is killed, and pauses or spills; 0 for never
    paused: float
    spilled: float

    @property
    def parts(self) -> tuple[float, float]:
        """The parts of its limit that a job may need, and that it may fill: a little below those."""
        if self.limit is None:
            return SAFE_FRACTION, SAFE_FRACTION
        killed, calm = self.killed or 1.0, min(self.paused or 1.0, self.spilled or 1.0)
        return min(SAFE_FRACTION, killed - _MARGIN), calm - _MARGIN


def budget_of_workers(workers: Collection[WorkerMemory]) -> MemoryBudget:
    """Return the memory of the processes of these workers: the smallest limit counts, and the most threads."""
    # A limit is one of its process, which several workers may share.
    processes: dict[tuple[str, int], list[WorkerMemory]] = {}
    for each in workers:
        processes.setdefault((each.host, each.process), []).append(each)
    beside = Counter(host for host, _ in processes)
    # Any worker may get any task. Of one without a limit, half of what is free, as of this process.
    limits = [
        min(each.limit or each.free // (2 * beside[host]) for each in some)
        for (host, _), some in processes.items()
    ]
    threads = max(sum(each.threads for each in some) for some in processes.values())
    safe, calm = (min(some) for some in zip(*(each.parts for each in workers), strict=True))
    return MemoryBudget(min(limits), len(processes), threads, safe=safe, calm=calm)


def human(n_bytes: float) -> str:
    """Write a number of bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n_bytes) < 1024:
            return (
                f"{n_bytes:.0f} {unit}" if unit in ("B", "KiB") or n_bytes >= 100 else f"{n_bytes:.1f} {unit}"
            )
        n_bytes /= 1024
    return f"{n_bytes:.1f} TiB"


def parse_bytes(text: str) -> int:
    """Parse a size such as ``600MiB``, ``2GB`` or ``1000000``; raise ValueError unless it is positive."""
    units = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
    # "ib" is binary and "b" decimal, as the standards have it.
    units |= {f"{u}ib": n for u, n in units.items() if len(u) == 1 and u != "b"}
    units |= {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
    cleaned = text.strip().lower().replace(" ", "")
    digits = cleaned.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        size = int(float(digits) * units[cleaned[len(digits) :]])
    except (KeyError, ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a size; write it like 600MiB or 2GiB") from None
    if size <= 0:
        raise ValueError(f"{text!r}: a size must be positive")
    return size
