"""One conformance suite for every executor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from distls.execution.base import Executor
from distls.execution.dask import start_local
from distls.execution.serial import SerialExecutor
from distls.storage.errors import BadInputError


def _add_item(offset: int, shared: np.ndarray | None, item: int) -> float:
    return offset + item + (0 if shared is None else float(shared.sum()))


def _words(shared: None, item: int) -> str:
    return str(item)


def _join(left: str, right: str) -> str:
    # neither associative nor commutative: shows the exact shape of the tree
    return f"({left} {right})"


def _refuse(shared: None, item: int) -> int:
    if item == 3:
        raise BadInputError("item 3 is bad")
    return item


def _fail(shared: None, item: int) -> int:
    if item == 3:
        raise OSError(28, "No space left on device", "/somewhere")
    return item


def _pid(item: object) -> int:
    return os.getpid()


class ExecutorSuite:
    """What every executor must do; subclasses provide the fixture `executor`."""

    @pytest.mark.parametrize("n_items", [1, 2, 3, 7, 8, 13])
    def test_reduce_has_one_shape_whatever_the_workers(self, executor: Executor, n_items: int) -> None:
        expected = SerialExecutor().reduce(_words, range(n_items), merge=_join)
        assert executor.reduce(_words, range(n_items), merge=_join) == expected

    def test_eight_leaves_make_a_balanced_tree(self, executor: Executor) -> None:
        merged = executor.reduce(_words, range(8), merge=_join)
        assert merged == "(((0 1) (2 3)) ((4 5) (6 7)))"

    def test_map_keeps_the_order_of_items(self, executor: Executor) -> None:
        items = list(range(40, 0, -1))
        assert list(executor.map(partial(_add_item, 5), items)) == [5 + i for i in items]

    def test_shared_value_reaches_every_task(self, executor: Executor) -> None:
        shared = np.arange(10.0)
        assert list(executor.map(partial(_add_item, 0), [1, 2, 3], shared=shared)) == [46.0, 47.0, 48.0]
        total = executor.reduce(partial(_add_item, 0), [1, 2, 3], merge=lambda a, b: a + b, shared=shared)
        assert total == 141.0

    def test_no_items(self, executor: Executor) -> None:
        assert list(executor.map(_words, [])) == []

    @pytest.mark.parametrize(
        ("task", "error", "text"), [(_refuse, BadInputError, "item 3"), (_fail, OSError, "space")]
    )
    def test_errors_of_tasks_reach_the_caller_as_they_are(
        self, executor: Executor, task: object, error: type[Exception], text: str
    ) -> None:
        with pytest.raises(error, match=text):
            list(executor.map(task, range(6)))
        with pytest.raises(error, match=text):
            executor.reduce(task, range(6), merge=lambda a, b: a + b)

    def test_each_worker_answers_once(self, executor: Executor) -> None:
        answers = executor.each_worker(_pid, None)
        assert len(set(answers.values())) == len(answers) >= 1


class TestSerial(ExecutorSuite):
    @pytest.fixture
    def executor(self) -> SerialExecutor:
        return SerialExecutor()


class _Dask(ExecutorSuite):
    workers, threads, processes = 2, 1, True

    @pytest.fixture(scope="class")
    def executor(self, request: pytest.FixtureRequest) -> Iterator[Executor]:
        cls = request.cls
        made = start_local(cls.workers, cls.threads, processes=cls.processes)
        yield made
        made.close()

    def test_nothing_is_left_on_the_scheduler(self, executor: Executor) -> None:
        import gc
        import time

        for _ in range(3):
            executor.reduce(_words, range(8), merge=_join)
        gc.collect()
        deadline = time.monotonic() + 10
        left = 1
        while left and time.monotonic() < deadline:
            left = executor.client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
            time.sleep(0.05)
        assert left == 0


class TestTwoProcesses(_Dask):
    pass


class TestThreadsInOneProcess(_Dask):
    workers, threads, processes = 1, 3, False
