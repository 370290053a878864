"""Fits side by side: each goes on until it asks its executor for something, and all requests are answered together.

The fits take turns in threads of their own, of which one at a time is at work, so that they need not know of each
other: each calls its own executor as if it were alone. Requests that read the same partitions become one, with one
read (`distls.workers.rounds.task`). The executor itself is called in the thread of the caller only, to which
an interrupt comes; it is raised in every fit at its next request.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from distls.execution.executor import Executor, Item, Result
from distls.workers.rounds.task import ReadTogether, read_key

T = TypeVar("T")


@dataclass(eq=False)
class _Request:
    """A call of an executor that waits for its answer."""

    call: Callable[[], Any]  # Makes it alone
    key: tuple[Any, ...] | None = None  # Requests of equal keys can be answered together, by `parts`
    parts: tuple[Any, ...] = ()  # function, items, merge, shared
    answer: Any = None
    error: BaseException | None = None
    seconds: float = 0.0  # of its answer, the part that was for this fit


class Turn(Generic[T]):
    """One of several fits: a thread, and the executor that it is given."""

    def __init__(self, work: Callable[[Turn[T]], T], executor: Executor) -> None:
        self._executor, self._work = executor, work
        self._go: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._rests: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._rested = 0
        self._stopped: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="distls-fit", daemon=True)
        self.away_seconds = 0.0  # see `Executor`
        self.position = 0.0  # how far the fit is: those that are behind go first
        self.request: _Request | None = None
        self.result: T
        self.error: BaseException | None = None
        self.ended = False

    # --- in the caller's thread

    @property
    def asks_alone(self) -> bool:
        """Whether nobody else can have a part in what it asks for."""
        return self.request is not None and self.request.key is None

    def proceed(self) -> None:
        """Give the fit its turn, until it asks for something or ends."""
        before = self._rested
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._go.put(None)
        while self._rested == before:
            self._rests.get()

    def stop(self, error: BaseException) -> None:
        """Raise an error in the fit at its next request, and wait for its end."""
        self._stopped = error
        self._go.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    # --- in the fit's thread

    def _run(self) -> None:
        try:
            self.result = self._work(self)
        except BaseException as error:
            self.error = error
        self.ended = True
        self._rest()

    def _rest(self) -> None:
        self._rested += 1
        self._rests.put(None)

    def _ask(self, request: _Request) -> Any:
        """Wait for the answer to a request."""
        if self._stopped is not None:
            raise self._stopped
        began, self.request = time.perf_counter(), request
        self._rest()
        self._go.get()
        self.request = None
        if self._stopped is not None:
            raise self._stopped
        self.away_seconds += time.perf_counter() - began - request.seconds
        if request.error is not None:
            raise request.error
        return request.answer

    @property
    def slots(self) -> int:
        """See `Executor.slots`."""
        return self._executor.slots

    def map(
        self, function: Callable[[Any, Item], Result], items: Sequence[Item], *, shared: Any = None
    ) -> Iterator[Result]:
        """See `Executor.map`."""
        # the results are small: what is tried gives a number
        call = partial(_listed, self._executor, function, items, shared)
        key = read_key(function, items[:1])
        found: list[Result] = self._ask(
            _Request(call, key and ("map", *key), (function, items, None, shared))
        )
        return iter(found)

    def reduce(
        self,
        function: Callable[[Any, Item], Result],
        items: Sequence[Item],
        *,
        merge: Callable[[Result, Result], Result],
        shared: Any = None,
    ) -> Result:
        """See `Executor.reduce`."""
        call = partial(self._executor.reduce, function, items, merge=merge, shared=shared)
        key = read_key(function, items)
        found: Result = self._ask(_Request(call, key and (merge, *key), (function, items, merge, shared)))
        return found

    def each_worker(self, function: Callable[[Item], Result], item: Item) -> dict[str, Result]:
        """See `Executor.each_worker`."""
        found: dict[str, Result] = self._ask(_Request(partial(self._executor.each_worker, function, item)))
        return found

    def close(self) -> None:
        """Leave the executor to its owner."""


def _listed(executor: Executor, function: Any, items: Any, shared: Any) -> list[Any]:
    return list(executor.map(function, items, shared=shared))


def side_by_side(
    works: Sequence[Callable[[Turn[T]], T]],
    executor: Executor,
    *,
    interrupted: Callable[[T], bool] = lambda result: False,  # whether a result is that of an interrupted fit
) -> list[T]:
    """Run functions that are given an executor each, and return their results.

    An interrupt of this thread, or of one of them, is raised in all at their next request, as a KeyboardInterrupt;
    those that return a result nevertheless have ended in their own way. Raises the first error of any, which
    interrupts the others.
    """
    turns: list[Turn[T]] = [Turn(work, executor) for work in works]
    try:
        _take_turns(turns, executor, interrupted)
    except KeyboardInterrupt as interrupt:
        _stop(turns, interrupt)
    failed = [turn.error for turn in turns if turn.error is not None]
    if failed:
        _stop(turns, KeyboardInterrupt())
        raise failed[0]
    if not all(turn.ended for turn in turns):  # interrupted before it began
        raise KeyboardInterrupt
    return [turn.result for turn in turns]


def _stop(turns: Sequence[Turn[Any]], error: BaseException) -> None:
    for turn in turns:
        turn.stop(error)


def _take_turns(turns: Sequence[Turn[Any]], executor: Executor, interrupted: Callable[[Any], bool]) -> None:
    """Let all go on until all have ended, or one has failed."""
    ready = list(turns)
    while ready:
        for turn in ready:
            turn.proceed()
            if turn.error is not None:
                return
            if turn.ended and interrupted(turn.result):
                raise KeyboardInterrupt
        waiting = [turn for turn in turns if not turn.ended]
        # those behind first: fits that resume at different rounds meet again
        ready = [turn for turn in waiting if turn.asks_alone]
        if not ready:
            least = min((turn.position for turn in waiting), default=0.0)
            ready = [turn for turn in waiting if turn.position == least]
        _answer([turn.request for turn in ready if turn.request is not None], executor)


def _answer(requests: Sequence[_Request], executor: Executor) -> None:
    groups: dict[Any, list[_Request]] = {}
    for request in requests:
        groups.setdefault(id(request) if request.key is None else request.key, []).append(request)
    for group in groups.values():
        began = time.perf_counter()
        try:
            answers = [group[0].call()] if len(group) == 1 else _together(group, executor)
            for request, answer in zip(group, answers, strict=True):
                request.answer = answer
        except Exception as error:
            for request in group:
                request.error = error
        for request in group:
            request.seconds = (time.perf_counter() - began) / len(group)


def _together(group: Sequence[_Request], executor: Executor) -> Sequence[Any]:
    """Answer requests of one key by one call."""
    functions, items, merges, shared = zip(*(request.parts for request in group), strict=True)
    task = ReadTogether(functions)
    if merges[0] is None:
        return _mapped(executor, task, items, shared)
    joint = [tuple(enumerate(each)) for each in zip(*items, strict=True)]
    found: tuple[Any, ...] = executor.reduce(task, joint, merge=task.merge, shared=shared)
    return found


def _mapped(executor: Executor, task: ReadTogether, items: Sequence[Any], shared: Any) -> list[list[Any]]:
    """Map the first items of all requests at one read, then the second ones, and so on: some may have fewer."""
    missing = object()
    joint = [
        tuple((number, item) for number, item in enumerate(each) if item is not missing)
        for each in itertools.zip_longest(*items, fillvalue=missing)
    ]
    answers: list[list[Any]] = [[] for _ in items]
    for entries, results in zip(joint, executor.map(task, joint, shared=shared), strict=True):
        for (number, _), result in zip(entries, results, strict=True):
            answers[number].append(result)
    return answers
