"""BLAS threads are set once for a process at work, and given back when the last task ends."""

import multiprocessing
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
import threadpoolctl

from distls.workers.runtime.process import single_threaded_blas, task_settings


def _threads():
    return int(threadpoolctl.ThreadpoolController().select(user_api="blas").info()[0]["num_threads"])


def _task(begun, end):
    with task_settings(), single_threaded_blas():
        begun.set()
        end.wait(10)


@pytest.mark.parametrize("first", [0, 1])
def test_the_last_task_gives_the_threads_back(first):
    begun, ends = [Event(), Event()], [Event(), Event()]
    with threadpoolctl.threadpool_limits(2, user_api="blas"), ThreadPoolExecutor() as pool:
        users = _threads()  # two, if BLAS has as many
        tasks = [pool.submit(_task, *events) for events in zip(begun, ends, strict=True)]
        assert all(event.wait(60) for event in begun)
        for place, within in ((first, 1), (1 - first, users)):
            ends[place].set()
            tasks[place].result()
            assert _threads() == within


def _child(queue):
    before = _threads()
    with single_threaded_blas():
        queue.put((before, _threads()))
    queue.put(_threads())


def test_a_forked_child_has_no_tasks_but_its_own():
    context, begun, end = multiprocessing.get_context("fork"), Event(), Event()
    queue = context.SimpleQueue()
    with threadpoolctl.threadpool_limits(2, user_api="blas"), ThreadPoolExecutor() as pool:
        users, other = _threads(), pool.submit(_task, begun, end)
        begun.wait()
        child = context.Process(target=_child, args=(queue,))
        child.start()
        assert (queue.get(), queue.get()) == ((users, 1), users)
        end.set()
        other.result()
        assert _threads() == users


_LATE = """
import threadpoolctl
from distls.workers.runtime.process import single_threaded_blas
with single_threaded_blas():
    pass
import distls.workers.least_squares.block_task
with threadpoolctl.threadpool_limits(2, user_api="blas"), single_threaded_blas():
    print({library["num_threads"] for library in threadpoolctl.ThreadpoolController().select(user_api="blas").info()})
"""


def test_a_library_that_is_loaded_later_is_limited_too():
    """SciPy's BLAS, which is loaded with what makes Grams: an evaluation before a fit changed its bits."""
    ended = subprocess.run([sys.executable, "-c", _LATE], capture_output=True, text=True, check=True)
    assert ended.stdout == "{1}\n"
