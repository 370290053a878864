"""Workers that are lost all at once, results that come while the scheduler is asked: nothing hangs or comes twice."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from distributed import Client, Future, LocalCluster
from helpers import SECONDS, wait_until

from distls.execution.dask import connection as connections
from distls.execution.dask.connection import Connection
from distls.execution.dask.local_cluster import start_local


def _pid(_item: object) -> int:
    return os.getpid()


def _kill_once(mark: Path, victims: list[int], item: int) -> int:
    """Kill all workers, this one last, at the first call of all."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return item
    for number in sorted(victims, key=lambda number: number == os.getpid()):
        os.kill(number, signal.SIGKILL)
    return item


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("call", ["map", "reduce"])
def test_all_workers_are_killed_at_once(tmp_path: Path, workers: int, call: str) -> None:
    """What is shared is small: nothing but the tasks is lost, and they were meant for workers that are no more."""
    executor = start_local(workers)
    try:
        victims = list(executor.each_worker(_pid, None).values())
        task = partial(_kill_once, tmp_path / "mark")
        if call == "map":
            assert list(executor.map(task, range(6), shared=victims)) == list(range(6))
        else:
            assert executor.reduce(task, range(6), merge=max, shared=victims) == 5
        assert not set(victims) & set(executor.each_worker(_pid, None).values())
    finally:
        executor.close()


_RELEASED = [Event(), Event()]


def _until_released(number: int) -> bool:
    return _RELEASED[number].wait(SECONDS)


@pytest.fixture
def client() -> Iterator[Client]:
    """A client of a worker in this process."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=3, processes=False, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as made,
    ):
        yield made


def test_a_task_that_ends_while_the_scheduler_is_asked_is_counted_once(
    monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    there = Connection(client)
    futures = [there.submit("few", _until_released, number) for number in (0, 0, 1)]
    ask = there._lost_among

    def ending(waiting: Iterable[Future], *given: Any) -> set[str]:
        found = ask(waiting, *given)
        _RELEASED[0].set()
        wait_until(lambda: all(future.done() for future in futures[:2]))
        return found

    monkeypatch.setattr(connections, "CHECK_SECONDS", 0.2)
    monkeypatch.setattr(there, "_lost_among", ending)
    came = Counter[str]()
    for future, lost in there.ended(futures):
        came[future.key] += 1
        assert lost is None
        if len(came) == 2:
            _RELEASED[1].set()
    assert came == Counter(future.key for future in futures)
