"""Threads of a task while others wait for it."""

import threading

import pytest

from distls.workers.coordinate_descent import all_rows
from distls.workers.coordinate_descent.all_rows import in_threads


@pytest.fixture(autouse=True)
def _some_threads(monkeypatch):
    monkeypatch.setattr(all_rows, "THREADS", 4)
    all_rows._pool.cache_clear()
    yield
    all_rows._pool().shutdown()
    all_rows._pool.cache_clear()


def test_results_have_the_order_of_the_items_and_threads_stay():
    seen, met = set(), threading.Barrier(4)

    def waited(item):
        seen.add(threading.get_ident())
        met.wait(60)
        return item

    for _ in range(3):
        assert in_threads(waited, range(4)) == [0, 1, 2, 3]
    # the caller and three others, each time
    assert threading.get_ident() in seen
    assert len(seen) <= 5


def test_nobody_waits_for_threads_that_are_busy_elsewhere():
    end = threading.Event()
    busy = [all_rows._pool().submit(end.wait) for _ in range(4)]
    assert in_threads(abs, [-1, -2, -3]) == [1, 2, 3]
    end.set()
    assert all(each.result() for each in busy)


def test_an_error_of_any_item_is_raised():
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda item: 1 / item, [1, 1, 0, 1])
