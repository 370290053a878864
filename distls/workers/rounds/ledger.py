"""The ledger of a round: costs of reading and computing, and the blocks and rows covered.

Every task's result has one, and merged results merge theirs. That each partition and each row takes part exactly once
is checked here and nowhere else.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from distls.storage.errors import DistlsError
from distls.workers.compilation.compile_clock import compile_seconds
from distls.workers.runtime.process import process_name

N = TypeVar("N", int, float)
S = TypeVar("S")


@dataclass
class Ledger:
    """Costs and coverage of one task, or of several that were merged."""

    blocks: list[int] = field(default_factory=list)  # partitions or column shards that were processed
    n_rows: int = 0  # 0 for column shards
    bytes_read: int = 0  # stored bytes read from disk
    cached_bytes: int = 0  # stored bytes of the blocks found in the cache
    wait_seconds: float = 0.0
    kernel_seconds: float = 0.0
    compile_seconds: float = 0.0  # of kernels that were compiled only then
    worker_seconds: dict[str, float] = field(default_factory=dict)  # process -> seconds in its tasks
    worker_peaks: dict[str, int] = field(default_factory=dict)  # process -> peak resident bytes

    def charge(self, seconds: float) -> None:
        """Add seconds of work to this process."""
        self.worker_seconds[process_name()] = self.worker_seconds.get(process_name(), 0.0) + seconds

    @contextlib.contextmanager
    def in_kernels(self) -> Iterator[None]:
        """Count the time until exit as time in kernels, but for what compiling them takes."""
        began, compiled = time.perf_counter(), compile_seconds()
        yield
        compiled = compile_seconds() - compiled
        self.compile_seconds += compiled
        self.kernel_seconds += time.perf_counter() - began - compiled

    def count(self, block: int, n_rows: int) -> None:
        """Enter a processed block, with its rows."""
        self.blocks.append(block)
        self.n_rows += n_rows

    def merge(self, other: Ledger) -> Ledger:
        """Return the ledger of both."""
        return Ledger(
            blocks=self.blocks + other.blocks,
            n_rows=self.n_rows + other.n_rows,
            bytes_read=self.bytes_read + other.bytes_read,
            cached_bytes=self.cached_bytes + other.cached_bytes,
            wait_seconds=self.wait_seconds + other.wait_seconds,
            kernel_seconds=self.kernel_seconds + other.kernel_seconds,
            compile_seconds=self.compile_seconds + other.compile_seconds,
            worker_seconds=_by_key(sum, self.worker_seconds, other.worker_seconds),
            worker_peaks=_by_key(max, self.worker_peaks, other.worker_peaks),
        )

    def check_cover(self, blocks: Sequence[int], n_rows: int, kind: str = "partitions") -> None:
        """Check that these blocks, in any order, and all their rows were processed, each exactly once.

        Raises DistlsError if a block is missing or was counted twice, or rows are missing.
        """
        # Sorted lists, not sets: a block that was counted twice must show.
        if sorted(self.blocks) != sorted(blocks) or self.n_rows != n_rows:
            raise DistlsError(
                f"a round covered {len(self.blocks)} {kind} and {self.n_rows} rows instead of {len(blocks)} and "
                f"{n_rows}; resume the run"
            )


def _by_key(how: Callable[[list[N]], N], left: dict[str, N], right: dict[str, N]) -> dict[str, N]:
    """Return a table with `how` of the values under each key."""
    return {key: how([table[key] for table in (left, right) if key in table]) for key in sorted({*left, *right})}


def add_sums(left: S, right: S, *reused: str, **merged: Any) -> S:
    """Return the sum of two results of a task, dataclasses: field by field, but for those that are given.

    Arrays of `left` that are `reused` become the sums.
    """
    for name in reused:
        merged[name] = vars(left)[name]
        merged[name] += vars(right)[name]
    for name, value in vars(left).items():
        # A field that is not merged explicitly is a sum; a new field cannot be forgotten.
        if name not in merged:
            other = vars(right)[name]
            merged[name] = value.merge(other) if isinstance(value, Ledger) else value + other
    return type(left)(**merged)
