"""Memory of workers; sizes in bytes as text."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from distls.storage.machine import available_memory

MIB = 2**20
# The part of a limit that is planned for; Dask kills a worker at the limit itself.
SAFE_FRACTION = 0.92


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
    # Parts of the limit that a job may need, and may fill with a cache: Dask kills a worker, or pauses it, beyond
    safe: float = SAFE_FRACTION
    calm: float = SAFE_FRACTION

    @cached_property
    def worker_limit(self) -> int:
        """Bytes a worker process may use: the same for all that is planned with it, whatever becomes free or not."""
        if self.limit is not None:
            return self.limit
        # Half: estimates have errors, and others need memory too.
        return available_memory() // (2 * self.workers)

    @property
    def usable(self) -> int:
        """Bytes of them that a job may need."""
        return int(self.worker_limit * self.safe)


class WorkerMemory(NamedTuple):
    """What a worker says of itself."""

    process: str  # host and number
    threads: int
    limit: int | None  # bytes
    free: int  # bytes of its machine
    safe: float  # parts of the limit, as of a `MemoryBudget`
    calm: float


def budget_of_workers(workers: Collection[WorkerMemory]) -> MemoryBudget:
    """Return the memory of these workers' processes: the smallest counts, and the most threads."""
    threads, limits = Counter[str](), dict[str, int]()
    beside = Counter(process.partition(":")[0] for process in {each.process for each in workers})
    for each in workers:
        # A limit is one of the process, which workers may share. Without: half of what is free, as here.
        own = each.limit or each.free // (2 * beside[each.process.partition(":")[0]])
        limits[each.process] = min(limits.get(each.process, own), own)
        threads[each.process] += each.threads
    safe, calm = (min(getattr(each, name) for each in workers) for name in ("safe", "calm"))
    return MemoryBudget(min(limits.values()), len(limits), max(threads.values()), True, safe=safe, calm=calm)


def human(n_bytes: float) -> str:
    """Write a number of bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n_bytes) < 1024:
            return f"{n_bytes:.0f} {unit}" if unit in ("B", "KiB") or n_bytes >= 100 else f"{n_bytes:.1f} {unit}"
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
