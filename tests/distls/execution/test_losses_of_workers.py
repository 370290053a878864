"""Workers that are lost all at once, results that come while the scheduler is asked: nothing hangs or comes twice."""

import asyncio
import os
import signal
import sys
from collections import Counter
from contextlib import closing
from functools import partial
from multiprocessing.process import BaseProcess
from operator import getitem
from threading import Event, Timer

import dask
import pytest
from cluster_helpers import cluster
from distributed import Client, Future, LocalCluster
from distributed.comm import CommClosedError
from helpers import SECONDS, refuses, wait_until

from distls.execution.dask import connection as connections
from distls.execution.dask import worker_watch
from distls.execution.dask.connection import Connection, Lost
from distls.execution.dask.local_cluster import start_local
from distls.execution.dask.remote_cluster import connect
from distls.storage.errors import WorkerError


def _pid(_item):
    return os.getpid()


def _parent(_item):
    return os.getppid()


def _kill_once(mark, victims, item):
    """Kill all workers, this one last, at the first call of all."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return item
    for number in sorted(set(victims), key=lambda number: number == os.getpid()):
        os.kill(number, signal.SIGKILL)
    return item


@pytest.mark.slow
@pytest.mark.parametrize("with_server", [False, True])
def test_a_successor_is_forked_as_its_predecessor_was(with_server):
    """A process that is started on its own imports for seconds, on a busy machine for many, what the server has."""
    with closing(start_local(2)) as executor:
        (server,) = set(executor.each_worker(_parent, None).values())
        first = executor.each_worker(_pid, None)
        victims = [*([server] if with_server else []), next(iter(first.values()))]
        for number in victims:
            os.kill(number, signal.SIGKILL)
        wait_until(lambda: victims[-1] not in _asked(executor, _pid) and len(_asked(executor, _pid)) == 2)
        parents = _asked(executor, _parent)
        assert os.getpid() not in parents, "spawned by this process"
        assert _asked(executor, _of_server) == {True}
        assert (server in parents) is not with_server
        assert dask.config.get("distributed.worker.multiprocessing-method") == "spawn", "the caller's own"


@pytest.mark.slow
def test_a_server_that_ends_before_it_has_forked_costs_one_more_attempt(monkeypatch):
    executor = start_local(1)
    start, failures = BaseProcess.start, iter([EOFError("unexpected EOF"), ConnectionRefusedError(111, "no")])

    def failing(process):
        for failure in failures:
            raise failure
        start(process)

    try:
        (victim,) = _asked(executor, _pid)
        monkeypatch.setattr(BaseProcess, "start", failing)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: not {victim} & _asked(executor, _pid))
        assert list(failures) == [], "both were met"
    finally:
        executor.close()


def _asked(executor, question):
    return set(executor.each_worker(question, None).values())


def _of_server(_item):
    return "distls.workers.forkserver_preload" in sys.modules


@pytest.mark.slow
@pytest.mark.parametrize("shared", ["small", "large"])
def test_workers_are_killed_with_the_process_that_forks_them(tmp_path, shared):
    """Fault: SIGKILL of all workers at once, with the process that they are forked from | in a task that shares
    little, and much | nothing"""
    with closing(start_local(2)) as executor:
        workers = list(executor.each_worker(_pid, None).values())
        victims = [*set(executor.each_worker(_parent, None).values()), *workers] * (1000 if shared == "large" else 1)
        task = partial(_kill_once, tmp_path / "mark")
        assert executor.reduce(task, range(6), merge=max, shared=victims) == 5
        assert not set(workers) & set(executor.each_worker(_pid, None).values())


def _settings(_item):
    return dict(dask.config.get("distributed.worker.memory"))


@pytest.mark.slow
def test_a_successor_has_the_settings_of_its_predecessor(tmp_path):
    """With Dask's own it would pause for ever near its limit, and what it has been given would never run."""
    with closing(start_local(2)) as executor:
        before = next(iter(executor.each_worker(_settings, None).values()))
        victims = [next(iter(executor.each_worker(_pid, None).values()))]
        task = partial(_kill_once, tmp_path / "mark")
        assert executor.reduce(task, range(6), merge=max, shared=victims) == 5
        wait_until(lambda: len(executor.each_worker(_pid, None)) == 2)
        assert set(victims).isdisjoint(executor.each_worker(_pid, None).values())
        for found in executor.each_worker(_settings, None).values():
            assert found["pause"] is False
            assert found == before


@pytest.mark.slow
def test_workers_that_cannot_be_started_again_are_not_waited_for(monkeypatch, tmp_path):
    """Fault: Workers that cannot be started again | after the SIGKILL of all, no memory for processes | one line at
    once; `resume` continues"""
    executor = start_local(2)

    def refused(*_):
        raise OSError(12, "Cannot allocate memory")

    try:
        victims = list(executor.each_worker(_pid, None).values())
        monkeypatch.setattr("multiprocessing.process.BaseProcess.start", refused)
        with pytest.raises(
            WorkerError, match=r"^all workers have died and cannot be started again; once that is fixed"
        ):
            executor.reduce(partial(_kill_once, tmp_path / "mark"), range(6), merge=max, shared=victims)
    finally:
        executor.close()


@pytest.mark.slow_cases("(map-.|reduce-2)$")
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("call", ["map", "reduce"])
def test_all_workers_are_killed_at_once(tmp_path, workers, call):
    """What is shared is small: nothing but the tasks is lost, and they were meant for workers that are no more.

    Fault: SIGKILL of all workers at once | in a task that shares little, one worker and two | nothing
    """
    with closing(start_local(workers)) as executor:
        victims = list(executor.each_worker(_pid, None).values())
        task = partial(_kill_once, tmp_path / "mark")
        if call == "map":
            assert list(executor.map(task, range(6), shared=victims)) == list(range(6))
        else:
            assert executor.reduce(task, range(6), merge=max, shared=victims) == 5
        assert not set(victims) & set(executor.each_worker(_pid, None).values())


_RELEASED = [Event(), Event(), Event()]


def _until_released(number):
    return _RELEASED[number].wait(SECONDS)


@pytest.fixture
def client():
    """A client of a worker in this process."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=3, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as made,
    ):
        yield made


def test_a_task_that_ends_while_the_scheduler_is_asked_is_counted_once(monkeypatch, client):
    there = Connection(client)
    futures = [there.submit("few", _until_released, number) for number in (0, 0, 1)]
    ask = there._lost_among

    def ending(waiting, *given):
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


@pytest.mark.slow
@pytest.mark.parametrize("call", ["each_worker", "reduce"])
def test_a_worker_that_is_stopped_is_not_waited_for(tmp_path, call):
    """It keeps its connections, has no nanny that would end it, and is the one to answer, or to take what is shared.

    Fault: A stopped worker without a nanny is asked, or takes the weights | under a running scheduler | done by
    others when its heartbeat is missed
    """
    with cluster(tmp_path, environment={"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "2s"}) as there:
        worker = there.add_worker()
        there.wait_for_workers(1)
        with closing(connect(there.address)) as executor:
            (stopped,) = executor.client.nthreads()
            os.kill(worker.pid, signal.SIGSTOP)
            there.add_worker()
            if call == "each_worker":
                assert stopped not in executor.each_worker(str, 1)
            else:
                assert executor.reduce(getitem, range(4), merge=max, shared=bytes([7]) * 100_000) == 7


@pytest.mark.slow
def test_a_worker_whose_death_is_not_noticed_yet_is_lost(monkeypatch, client):
    """The scheduler lists it for a moment longer than its connection lasts; errors of the task itself are raised."""
    there = Connection(client)
    (worker,) = there.threads()
    for error in (CommClosedError("ConnectionResetError: Connection reset by peer"), OSError("Timed out")):
        monkeypatch.setattr(there, "_asked", lambda _call, error=error: {worker: error})
        refuses(Lost, f"{worker}: .*{error}", there.ask_each, str, 1)
    monkeypatch.setattr(there, "_asked", lambda _call: {worker: PermissionError(13, "denied")})
    refuses(PermissionError, "denied", there.ask_each, str, 1)


def test_an_answer_that_is_cancelled_is_lost(monkeypatch, client):
    """As when the loop of the client ends, or the scheduler is restarted."""

    async def cancelled(_future: Future, _direct: object) -> None:
        raise asyncio.CancelledError

    there = Connection(client)
    future = there.submit("one", str, 1)
    monkeypatch.setattr(connections, "_fetch", cancelled)
    with pytest.raises(Lost):
        there.result(future)


@pytest.mark.slow
def test_it_is_said_that_nothing_goes_on(monkeypatch, client, caplog):
    there = Connection(client)
    _RELEASED[2].clear()
    monkeypatch.setattr(connections, "CHECK_SECONDS", 0.02)
    monkeypatch.setattr(worker_watch, "TROUBLE_SECONDS", 0.05)
    monkeypatch.setattr(there._watch, "troubles", lambda keys: "")
    monkeypatch.setattr(worker_watch, "LONG_SECONDS", 0.05)
    futures = [there.submit("few", _until_released, 2) for _ in range(2)]
    Timer(1, _RELEASED[2].set).start()
    assert len(list(there.ended(futures))) == 2
    said = [record.getMessage() for record in caplog.records if record.name == worker_watch.__name__]
    assert said[0].startswith("no task has ended for 0 minutes: 2 wait or run on 1 workers; they may be slow")
    assert 2 <= len(said) <= 5, "each time after twice as long"


@pytest.mark.slow
def test_a_scheduler_that_is_stopped_is_not_waited_for(monkeypatch, tmp_path):
    """Fault: A scheduler that is stopped (SIGSTOP) | before a round | one line after 120 s (1 s in the test);
    `resume` continues"""
    with cluster(tmp_path) as there:
        there.add_worker()
        there.wait_for_workers(1)
        executor = connect(there.address)
        monkeypatch.setattr(connections, "RETURN_SECONDS", 1.0)
        there.stop_scheduler()
        try:
            with pytest.raises(WorkerError, match=r"^the scheduler at .* is gone and did not come back within 1 s; "):
                executor.reduce(getitem, range(4), merge=max, shared=b"1234")
        finally:
            there.stop_scheduler(signal.SIGCONT)
            executor.close()
