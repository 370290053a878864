"""Large results and their sums, in a module that worker processes import at once."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distls.execution.dask import reduction_tasks

Array = np.ndarray[Any, np.dtype[np.float64]]

WIDTH = 20_000  # numbers of a result: more than go straight to the driver


def wide(shared: Array | None, item: int) -> Array:
    """Return a large result of an item; sums of several depend on their order."""
    own = np.random.default_rng(item).normal(size=WIDTH)
    return own if shared is None else own * shared


def first_column(shared: tuple[Array, ...], item: int) -> Array:
    """Return a large result of an item, of several arrays, none of which it may have changed by mistake."""
    values, numbers, _, _ = shared
    assert values.flags.writeable
    assert numbers.tolist() == list(range(7))
    return wide(values[:, 0], item)


def add(left: Array, right: Array) -> Array:
    """Add in place, as tasks do."""
    left += right
    return left


def add_or_die(marks: Path, number: int, victims: Sequence[int], left: Array, right: Array) -> Array:
    """Add, and kill these processes in the merge of this number, counted by all, this one last."""
    left += right
    with (marks / "merges").open("ab") as merges:
        merges.write(b"x")
        done = merges.tell()
    if done == number:
        for victim in sorted({*victims, os.getpid()}, key=lambda each: each == os.getpid()):
            os.kill(victim, signal.SIGKILL)
    return left


def process_number(_item: object) -> int:
    return os.getpid()


def wholes_held(_item: object) -> int:
    """Return how many values this process has put together from slices, and keeps."""
    return len(reduction_tasks._WHOLE)
