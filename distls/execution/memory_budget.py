"""Memory of workers; sizes in bytes as text."""

from __future__ import annotations

from dataclasses import dataclass

from distls.storage.machine import available_memory

MIB = 2**20


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

    @property
    def worker_limit(self) -> int:
        """Bytes a worker process may use."""
        if self.limit is not None:
            return self.limit
        # Half: estimates have errors, and others need memory too.
        return available_memory() // (2 * self.workers)


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
