"""What tasks of a reduction are given and return: slices of what they share, results by size, merges of results.

A module of its own, as workers run it.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from distls.execution.executor import Node, run_group
from distls.execution.network import HUGE_FAN, LARGE_FAN, fan_of
from distls.workers.rounds.reduction_tree import ReductionTree
from distls.workers.runtime.process import task_settings


class Size(NamedTuple):
    """The pickled bytes of a value."""

    head: int
    arrays: int  # which are not copied

    @classmethod
    def of(cls, value: Any) -> Size:
        """Return the size of `value`."""
        head, buffers = _pickled(value)
        return cls(len(head), sum(buffer.nbytes for buffer in buffers))


def _pickled(value: Any) -> tuple[bytes, list[memoryview]]:
    buffers: list[pickle.PickleBuffer] = []
    # Out-of-band buffers: the arrays' own memory.
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return head, [buffer.raw() for buffer in buffers]


def _copied(value: Any) -> Any:
    head, buffers = _pickled(value)
    # NumPy asks for huge pages, without which most of a copy's time is that of the system, which clears small ones.
    return pickle.loads(head, buffers=[np.array(buffer) for buffer in buffers])


# ---------------------------------------------------------------- slices of what is shared

_SLICED = "slices of what is shared"
# What tasks of this process share, put together from slices -> how many of them are at work.
_WHOLE: dict[str, tuple[Any, int]] = {}
_WHOLE_LOCK = threading.Lock()


def cut(shared: Any, count: int) -> tuple[list[Any], list[list[Any]]]:
    """Return the head of what tasks are given, and the slices that have to follow it there."""
    head, buffers = _pickled(shared)
    arrays = [np.asarray(buffer) for buffer in buffers]
    # Of every array a part, so that each can be put together in memory of its own.
    slices = [[each[len(each) * i // count : len(each) * (i + 1) // count] for each in arrays] for i in range(count)]
    return [_SLICED, uuid.uuid4().hex, head], slices


@contextlib.contextmanager
def _whole(sent: Any) -> Iterator[Any]:
    """Yield what was sent; of slices, the whole, once for all threads of this process."""
    if not (isinstance(sent, list) and sent[:1] == [_SLICED]):
        yield sent
        return
    _, token, head, *slices = sent
    with _WHOLE_LOCK:
        whole, users = _WHOLE.get(token) or (None, 0)
        if not users:
            whole = pickle.loads(head, buffers=[np.concatenate(parts) for parts in zip(*slices, strict=True)])
        _WHOLE[token] = whole, users + 1
    try:
        yield whole
    finally:
        with _WHOLE_LOCK:
            _, users = _WHOLE.pop(token)
            if users > 1:
                _WHOLE[token] = whole, users - 1


# ---------------------------------------------------------------- results


class Large(list[Any]):
    """Results of a task so large that workers merge them, `fan` or more at a time; by its type the driver knows."""

    fan = LARGE_FAN


class Huge(list[Any]):
    """Even larger ones."""

    fan = HUGE_FAN


_KINDS = {kind.fan: kind for kind in (Large, Huge)}


def call_group(few: bool, function: Any, sent: Any, *call: Any) -> list[Node]:
    """Return the results of neighbouring items; their type says how to go on with them, unless they are few."""
    with task_settings(), _whole(sent) as shared:
        nodes = run_group(function, shared, *call)
    return nodes if few else _KINDS.get(fan_of(sum(Size.of(nodes)) // len(nodes)), list)(nodes)


def merge_parts(n_items: int, merge: Callable[[Any, Any], Any], parts: Sequence[list[Node]]) -> list[Node]:
    """Merge the results of neighbouring groups as far as the tree allows; what is given is left as it is."""
    given = {id(value) for part in parts for _, _, value in part}

    def merge_copies(left: Any, right: Any) -> Any:
        # Merging reuses the left one's memory, and what was given is the worker's, for a repetition, or another's in
        # this process.
        return merge(_copied(left) if id(left) in given else left, right)

    with task_settings():
        tree: ReductionTree[Any] = ReductionTree(n_items, merge_copies)
        for part in parts:
            tree.add_all(part)
        return tree.nodes()
