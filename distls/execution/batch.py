"""Batches of fits that share reads; a fit alone is a batch of one.

A fit is a coroutine that awaits what it wants an executor to do. All fits of a batch go on, one after the other in the
caller's thread, until each of them awaits something; what reads the same partitions is then done by one task, at one
read (`distls.workers.rounds.task`), and each gets what it would have alone. An interrupt, which comes to the
caller's thread, is raised in every fit at what it awaits.
"""

import itertools
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from distls.execution.executor import Executor, Item, Result
from distls.workers.rounds.task import ReadTogether, read_key

T = TypeVar("T")
Work = Coroutine[Any, Any, T]  # a fit, or a part of one

_DIGITS = 9  # of passes, which are sums of fractions


@dataclass(eq=False)
class Wanted(Generic[T]):
    """What a fit awaits of an executor."""

    call: Callable[[Executor], T]  # does it alone
    key: tuple[Any, ...] | None = None  # what has the same key can be done by one call, of all `parts`
    parts: tuple[Any, ...] = ()  # function, items, merge, shared
    answer: Any = None

    def __await__(self) -> Generator[Any, Any, T]:
        yield self
        # weights, perhaps: they live as long as the fit needs them
        answer, self.answer = self.answer, None
        return answer


@dataclass(frozen=True, eq=False)
class OwnSeconds:
    """Awaited for the seconds that were spent on this fit so far; it may tell how far it is."""

    passes: float | None = None

    def __await__(self) -> Generator[Any, float, float]:
        return (yield self)


def reduced(
    function: Callable[[Any, Item], Result],
    items: Sequence[Item],
    *,
    merge: Callable[[Result, Result], Result],
    shared: Any = None,
) -> Wanted[Result]:
    """Return what to await for the result of `Executor.reduce`."""
    key = read_key(function, items)
    return Wanted(
        lambda executor: executor.reduce(function, items, merge=merge, shared=shared),
        key and (merge, *key),
        (function, items, merge, shared),
    )


def mapped(
    function: Callable[[Any, Item], Result], items: Sequence[Item], *, shared: Any = None
) -> Wanted[list[Result]]:
    """Return what to await for the results of `Executor.map`; they are held at once."""
    key = read_key(function, items[:1])
    return Wanted(
        lambda executor: list(executor.map(function, items, shared=shared)),
        key and ("map", *key),
        (function, items, None, shared),
    )


def run_alone(work: Work[T], executor: Executor) -> T:
    """Run a coroutine alone."""
    return run_batch([work], executor)[0]


def run_batch(
    works: Sequence[Work[T]],
    executor: Executor,
    *,
    interrupted: Callable[[T], bool] = lambda result: False,  # whether a result is that of an interrupted fit
) -> list[T]:
    """Run coroutines and return their results.

    An interrupt of the caller, or of one of them, is raised in all as a KeyboardInterrupt; those that return a result
    nevertheless have ended in their own way. Raises the first error of any, which interrupts the others.
    """
    fits = [_Fit(work) for work in works]
    try:
        _advance(fits, executor, interrupted)
    except KeyboardInterrupt:
        _interrupt(fits)
    failed = [fit.error for fit in fits if fit.error is not None]
    if failed:
        _interrupt(fits)
        raise failed[0]
    return [fit.result for fit in fits]


class _Fit(Generic[T]):
    """A coroutine, what it awaits, and how it ended."""

    def __init__(self, work: Work[T]) -> None:
        self._work = work
        self.context = copy_context()  # the `np.errstate` of one is not that of the others
        self.position = 0.0  # those that are behind go first
        self.seconds = 0.0
        self.wanted: Wanted[Any] | None = None
        self.failure: BaseException | None = None  # instead of an answer
        self.result: T
        self.error: BaseException | None = None
        self.ended = False

    @property
    def key(self) -> Any:
        """What it awaits: what others of the same key await can be done by the same call."""
        return None if self.wanted is None else self.wanted.key

    def proceed(self) -> None:
        """Let it go on, with its answer or failure, until it awaits something or ends."""
        began, run = time.perf_counter(), self.context.run
        failure, self.failure, self.wanted = self.failure, None, None
        try:
            found = run(self._work.send, None) if failure is None else run(self._work.throw, failure)
            while isinstance(found, OwnSeconds):
                if found.passes is not None:
                    self.position = round(found.passes, _DIGITS)
                found = run(self._work.send, self.seconds + time.perf_counter() - began)
            self.wanted = found
        except StopIteration as end:
            self.result, self.ended = end.value, True
        except BaseException as error:
            self.error, self.ended = error, True
        self.seconds += time.perf_counter() - began


def _interrupt(fits: Sequence[_Fit[Any]]) -> None:
    """Raise an interrupt in those that have not ended, and again at all they still await."""
    for fit in fits:
        while not fit.ended:
            fit.failure = KeyboardInterrupt()
            fit.proceed()


def _advance(fits: Sequence[_Fit[T]], executor: Executor, interrupted: Callable[[T], bool]) -> None:
    """Let all go on until all have ended, or one has failed."""
    ready = list(fits)
    while ready:
        for fit in ready:
            fit.proceed()
            if fit.error is not None:
                return
            if fit.ended and interrupted(fit.result):
                raise KeyboardInterrupt
        waiting = [fit for fit in fits if not fit.ended]
        # those behind first: fits that resume at different rounds meet again
        ready = [fit for fit in waiting if fit.key is None]
        if not ready:
            least = min((fit.position for fit in waiting), default=0.0)
            ready = [fit for fit in waiting if fit.position == least]
        _answer(ready, executor)


def _answer(fits: Sequence[_Fit[Any]], executor: Executor) -> None:
    """Do what fits await, of equal keys by one call, and note the answers."""
    groups: dict[Any, list[_Fit[Any]]] = {}
    for fit in fits:
        groups.setdefault(id(fit) if fit.key is None else fit.key, []).append(fit)
    for group in groups.values():
        began, wanted = time.perf_counter(), [fit.wanted for fit in group if fit.wanted is not None]
        try:
            answers = group[0].context.run(_answers, wanted, executor)
            for one, answer in zip(wanted, answers, strict=True):
                one.answer = answer
        except Exception as error:
            for fit in group:
                fit.failure = error
        for fit in group:
            fit.seconds += (time.perf_counter() - began) / len(group)


def _answers(group: Sequence[Wanted[Any]], executor: Executor) -> Sequence[Any]:
    if len(group) == 1:
        return [group[0].call(executor)]
    functions, items, merges, shared = zip(*(wanted.parts for wanted in group), strict=True)
    task, missing = ReadTogether(functions), object()
    # the first items of all at one read, then the second ones, and so on; of a map some may have fewer
    joint = [
        tuple((number, item) for number, item in enumerate(each) if item is not missing)
        for each in itertools.zip_longest(*items, fillvalue=missing)
    ]
    if merges[0] is not None:
        return executor.reduce(task, joint, merge=task.merge, shared=shared)
    answers: list[list[Any]] = [[] for _ in group]
    for entries, results in zip(joint, executor.map(task, joint, shared=shared), strict=True):
        for (number, _), result in zip(entries, results, strict=True):
            answers[number].append(result)
    return answers
