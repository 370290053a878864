"""Batches of fits: errors and interrupts reach all, and only what can be shared is."""

from typing import Any

import numpy as np
import pytest

from distls.execution.batch import OwnSeconds, Wanted, mapped, reduced, run_alone, run_batch
from distls.execution.serial import SerialExecutor


def _add(shared, item):
    return shared + item


def _sum(left, right):
    return left + right


def _fails(shared, item):
    raise ValueError("a task failed")


def _pid(item):
    return item


def each_worker(item=1):
    return Wanted(lambda executor: executor.each_worker(_pid, item))


def test_each_gets_its_own_answers():
    async def work(own: int) -> Any:
        total = await reduced(_add, [1, 2, 3], merge=_sum, shared=own)
        return total, await mapped(_add, [1, 2], shared=own), await each_worker(7)

    ends = run_batch([work(10), work(20)], SerialExecutor())
    assert ends == [(36, [11, 12], {"this process": 7}), (66, [21, 22], {"this process": 7})]


def test_the_first_error_is_raised_and_interrupts_the_others():
    ends = []

    async def fails() -> None:
        await reduced(_fails, [1], merge=_sum)

    async def waits() -> None:
        try:
            for _ in range(9):
                await each_worker()
        except KeyboardInterrupt:
            ends.append("interrupted")

    with pytest.raises(ValueError, match="a task failed"):
        run_batch([waits(), fails(), waits()], SerialExecutor())
    assert ends == ["interrupted"] * 2


class _Interrupted(SerialExecutor):
    def each_worker(self, function, item):
        raise KeyboardInterrupt


def test_an_interrupt_reaches_all_and_their_results_count():
    async def work() -> str:
        try:
            await each_worker()
        except KeyboardInterrupt:
            return "saved"
        return "ended"

    assert run_batch([work(), work()], _Interrupted()) == ["saved", "saved"]

    async def careless() -> str:
        await each_worker()
        return "ended"

    with pytest.raises(KeyboardInterrupt):
        run_batch([careless(), work()], _Interrupted())


def test_a_fit_that_was_interrupted_itself_interrupts_the_others():
    async def work(own: bool) -> str:
        try:
            if own:
                raise KeyboardInterrupt  # while none of its calls is at work
            await each_worker()
            await each_worker()
        except KeyboardInterrupt:
            return "saved"
        return "ended"

    ends = run_batch([work(False), work(True)], SerialExecutor(), interrupted="saved".__eq__)
    assert ends == ["saved", "saved"]


def test_those_behind_go_first():
    order = []

    async def work(name: str, position: float) -> None:
        while position < 3:
            await OwnSeconds(position)
            await mapped(_add, [1], shared=1)
            order.append(name)
            position += 1

    run_batch([work("ahead", 2), work("behind", 0)], SerialExecutor())
    assert order.count("behind") == 3


def test_what_one_ignores_warns_in_others_and_in_its_own_calls_does_not():
    def overflow(_=None):
        np.float32(1e38) * np.float32(10)

    async def work(over: Any) -> None:
        with np.errstate(over=over):
            for _ in range(2):
                await Wanted(overflow)
                overflow()

    run_batch([work("ignore"), work("ignore")], SerialExecutor())
    with pytest.raises(FloatingPointError):
        run_batch([work("ignore"), work("raise")], SerialExecutor())
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        overflow()


def test_seconds_are_those_of_the_fit():
    async def work(calls: int) -> float:
        for _ in range(calls):
            await each_worker()
        return await OwnSeconds()

    short, long = run_batch([work(0), work(1000)], SerialExecutor())
    assert 0.0 < short < long
    assert run_alone(work(0), SerialExecutor()) > 0.0
