"""What every executor promises: results in the order of items, merged in one fixed tree, errors as they are."""

import operator
import os
from functools import partial

import numpy as np
import pytest

from distls.execution.executor import Executor
from distls.execution.serial import SerialExecutor
from distls.storage.errors import BadInputError


def add_item(offset: int, shared: np.ndarray | None, item: int) -> float:
    """Return the sum of all that a task is given."""
    return offset + item + (0 if shared is None else float(shared.sum()))


def word_of(shared: None, item: int) -> str:
    """Return the item as a word."""
    return str(item)


def join_words(left: str, right: str) -> str:
    """Merge two words; neither associative nor commutative, so that the result shows the shape of the tree."""
    return f"({left} {right})"


def process_of(item: object) -> int:
    """Return the number of the process that runs the task."""
    return os.getpid()


def _refuse(shared: None, item: int) -> int:
    if item == 3:
        raise BadInputError("item 3 is bad")
    return item


def _fail(shared: None, item: int) -> int:
    if item == 3:
        raise OSError(28, "No space left on device", "/somewhere")
    return item


class ExecutorContract:
    """What every executor must do; subclasses provide the fixture `executor`."""

    @pytest.mark.parametrize("n_items", [1, 2, 3, 7, 8, 13])
    def test_reduce_has_one_shape_whatever_the_workers(self, executor: Executor, n_items: int) -> None:
        expected = SerialExecutor().reduce(word_of, range(n_items), merge=join_words)
        assert executor.reduce(word_of, range(n_items), merge=join_words) == expected

    def test_eight_leaves_make_a_balanced_tree(self, executor: Executor) -> None:
        merged = executor.reduce(word_of, range(8), merge=join_words)
        assert merged == "(((0 1) (2 3)) ((4 5) (6 7)))"

    def test_map_keeps_the_order_of_items(self, executor: Executor) -> None:
        items = list(range(40, 0, -1))
        assert list(executor.map(partial(add_item, 5), items)) == [5 + i for i in items]

    def test_shared_value_reaches_every_task(self, executor: Executor) -> None:
        shared = np.arange(10.0)
        assert list(executor.map(partial(add_item, 0), [1, 2, 3], shared=shared)) == [46.0, 47.0, 48.0]
        total = executor.reduce(partial(add_item, 0), [1, 2, 3], merge=operator.add, shared=shared)
        assert total == 141.0

    def test_no_items(self, executor: Executor) -> None:
        assert list(executor.map(word_of, [])) == []

    @pytest.mark.parametrize(("task", "error", "text"), [(_refuse, BadInputError, "item 3"), (_fail, OSError, "space")])
    def test_errors_of_tasks_reach_the_caller_as_they_are(
        self, executor: Executor, task: object, error: type[Exception], text: str
    ) -> None:
        with pytest.raises(error, match=text):
            list(executor.map(task, range(6)))  # type: ignore[arg-type]
        with pytest.raises(error, match=text):
            executor.reduce(task, range(6), merge=operator.add)  # type: ignore[arg-type]

    def test_each_worker_answers_once(self, executor: Executor) -> None:
        answers = executor.each_worker(process_of, None)
        assert len(set(answers.values())) == len(answers) >= 1
