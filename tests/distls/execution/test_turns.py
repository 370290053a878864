"""Turns of fits side by side: errors and interrupts reach all, and only what can be shared is."""

from __future__ import annotations

from typing import Any

import pytest

from distls.execution.serial import SerialExecutor
from distls.execution.turns import Turn, side_by_side


def _add(shared: int, item: int) -> int:
    return shared + item


def _sum(left: int, right: int) -> int:
    return left + right


def _fails(shared: None, item: int) -> int:
    raise ValueError("a task failed")


def _pid(item: int) -> int:
    return item


def test_each_gets_its_own_answers() -> None:
    def work(turn: Turn[Any]) -> Any:
        own = 10 * turn.slots
        total = turn.reduce(_add, [1, 2, 3], merge=_sum, shared=own)
        return total, list(turn.map(_add, [1, 2], shared=own)), turn.each_worker(_pid, 7)

    assert side_by_side([work, work], SerialExecutor()) == [(36, [11, 12], {"this process": 7})] * 2


def test_the_first_error_is_raised_and_interrupts_the_others() -> None:
    ends: list[str] = []

    def fails(turn: Turn[None]) -> None:
        turn.reduce(_fails, [1], merge=_sum)

    def waits(turn: Turn[None]) -> None:
        try:
            for _ in range(9):
                turn.each_worker(_pid, 1)
        except KeyboardInterrupt:
            ends.append("interrupted")

    with pytest.raises(ValueError, match="a task failed"):
        side_by_side([waits, fails, waits], SerialExecutor())
    assert ends == ["interrupted"] * 2


class _Interrupted(SerialExecutor):
    def each_worker(self, function: Any, item: Any) -> Any:
        raise KeyboardInterrupt


def test_an_interrupt_reaches_all_and_their_results_count() -> None:
    def work(turn: Turn[str]) -> str:
        try:
            turn.each_worker(_pid, 1)
        except KeyboardInterrupt:
            return "saved"
        return "ended"

    assert side_by_side([work, work], _Interrupted()) == ["saved", "saved"]

    def careless(turn: Turn[str]) -> str:
        turn.each_worker(_pid, 1)
        return "ended"

    with pytest.raises(KeyboardInterrupt):
        side_by_side([careless, work], _Interrupted())


def test_those_behind_go_first() -> None:
    order: list[str] = []

    def work(name: str, position: float) -> Any:
        def run(turn: Turn[None]) -> None:
            turn.position = position
            while turn.position < 3:
                turn.map(_add, [1], shared=1)
                order.append(name)
                turn.position += 1

        return run

    side_by_side([work("ahead", 2), work("behind", 0)], SerialExecutor())
    assert order[-1] == "behind"
    assert order.count("behind") == 3
