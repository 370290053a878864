"""The contract of executors, and what is so of clusters alone."""

import logging
import operator
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from types import SimpleNamespace
from typing import Any

import dask
import numpy as np
import pytest
from distributed import LocalCluster, Nanny, Status
from distributed.client import AllExit, FutureCancelledError
from distributed.comm import CommClosedError
from helpers import refuses, wait_until

from distls.execution.dask import connection as connections
from distls.execution.dask import forkserver as forking
from distls.execution.dask import local_cluster
from distls.execution.dask import remote_cluster as remote
from distls.execution.dask.dask_executor import DaskExecutor
from distls.execution.dask.forkserver import interrupts_held
from distls.execution.dask.local_cluster import start_local
from distls.execution.serial import SerialExecutor
from distls.storage.errors import WorkerError
from distls.testing.executors import ExecutorContract, add_item, join_words, process_of, word_of


def _records(executor):
    """Return what the scheduler holds: tasks, groups of tasks, spans and descriptions of what was submitted."""
    return executor.client.run_on_scheduler(_records_of)


def _records_of(dask_scheduler):
    spans = dask_scheduler.extensions["spans"].spans.values()
    described = sum(len(span.metadata["collections"]) for span in spans if span.metadata)
    return len(dask_scheduler.tasks), set(dask_scheduler.task_groups), len(spans), described


def _log_levels(names):
    return [logging.getLogger(name).getEffectiveLevel() for name in names]


class TestSerial(ExecutorContract):
    @pytest.fixture
    def executor(self):
        return SerialExecutor()


class _Dask(ExecutorContract):
    workers, threads, processes = 2, 1, True

    @pytest.fixture(scope="class")
    def executor(self, request):
        cls = request.cls
        made = start_local(cls.workers, cls.threads, processes=cls.processes)
        yield made
        made.close()

    def test_nothing_is_left_on_the_scheduler_but_one_task_of_one_group(self, executor):
        large = np.zeros(20_000)
        executor.reduce(word_of, range(8), merge=join_words)
        spans = _records(executor)[2]
        for _ in range(3):
            executor.reduce(word_of, range(8), merge=join_words)
            executor.reduce(partial(add_item, 0), range(8), merge=max, shared=large)
            assert list(executor.map(word_of, range(4))) == list(map(str, range(4)))
            wait_until(lambda: _records(executor) == (1, {"distls"}, spans, 0))
        assert len(executor.client.futures) == 1

    def test_the_kept_task_is_made_anew_when_it_is_lost(self, executor):
        executor.reduce(word_of, range(8), merge=join_words)
        executor.client.cancel(executor._connection._kept, force=True)
        wait_until(lambda: _records(executor)[0] == 0)
        executor.reduce(word_of, range(8), merge=join_words)
        wait_until(lambda: _records(executor)[:2] == (1, {"distls"}))


class TestTwoProcesses(_Dask):
    @pytest.mark.fast_cases("False")
    @pytest.mark.parametrize(("done", "idlest"), [(False, 1), (True, 0)])
    def test_a_large_value_does_not_keep_tasks_where_it_is(self, executor, done, idlest):
        workers = sorted(executor.client.nthreads())
        future = SimpleNamespace(done=lambda: done)
        assert executor._idlest([(0, future, workers[0])]) == workers[idlest]
        shared = np.ones(2**20)
        task = partial(add_item, 0)
        assert list(executor.map(task, range(9), shared=shared)) == [2**20 + i for i in range(9)]

    def test_workers_write_nothing_on_the_stderr_they_share(self, executor):
        (levels, _) = executor.each_worker(_log_levels, ["asyncio", "distributed", "tornado.application"]).values()
        assert levels == [logging.CRITICAL] * 3

    def test_errors_that_nobody_asks_for_are_reported_but_for_cut_connections(self, executor):
        handler = executor.client.loop.asyncio_loop.get_exception_handler()
        reported = []
        loop = SimpleNamespace(default_exception_handler=lambda context: reported.append(context["exception"]))
        defect = ValueError("a defect")
        for error in (CommClosedError("severed"), FutureCancelledError("key", "mislaid"), AllExit(), defect):
            handler(loop, {"exception": error})
        assert reported == [defect]


class TestEnds:
    """Workers that die, and clusters that are closed."""

    @pytest.fixture
    def starts(self, monkeypatch):
        """Names of the workers that are started from now on."""
        started = []
        instantiate = Nanny.instantiate

        async def noted(nanny: Nanny) -> object:
            started.append(nanny.name)
            return await instantiate(nanny)

        monkeypatch.setattr(Nanny, "instantiate", noted)
        return started

    def test_a_dead_worker_is_started_anew(self, starts):
        with closing(start_local(1)) as executor:
            first = _kill_worker(executor)
            assert list(executor.map(word_of, [7])) == ["7"]
            assert set(executor.each_worker(process_of, None).values()) != {first}
            assert len(starts) == 2

    @pytest.mark.slow
    def test_however_long_it_is_away(self, starts):
        with dask.config.set({"distributed.deploy.lost-worker-timeout": "10ms"}), closing(start_local(1)) as executor:
            for _ in range(2):
                _kill_worker(executor)
                assert list(executor.map(word_of, [7])) == ["7"]
            assert len(starts) == 3

    @pytest.mark.slow
    @pytest.mark.parametrize("call", ["map", "reduce"])
    def test_but_not_after_an_interrupt(self, starts, monkeypatch, call):
        executor = start_local(1)

        def interrupted(*_given):
            raise KeyboardInterrupt

        monkeypatch.setattr(executor, "_sent", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(executor.map(word_of, [7])) if call == "map" else executor.reduce(word_of, [7], merge=join_words)
        _kill_worker(executor)
        wait_until(lambda: not executor.client.nthreads())
        time.sleep(3 * local_cluster.PAUSE_SECONDS)
        executor.close()
        assert len(starts) == 1

    @pytest.mark.slow
    def test_an_interrupt_while_it_starts_waits_until_it_can_be_closed(self, monkeypatch):
        made = []

        def interrupted(*given, **options):
            signal.raise_signal(signal.SIGINT)
            return LocalCluster(*given, **options)

        def noted(client, cluster):
            made.append(DaskExecutor(client, cluster))
            return made[0]

        monkeypatch.setattr(local_cluster, "PatientCluster", interrupted)
        monkeypatch.setattr(local_cluster, "DaskExecutor", noted)
        with pytest.raises(KeyboardInterrupt):
            start_local(1, processes=False)
        assert made[0]._cluster.status == Status.closed

    @pytest.mark.slow
    def test_an_interrupt_cuts_closing_short(self, monkeypatch):
        executor = start_local(1, processes=False)
        close = executor.client.close

        def interrupted(timeout):
            raise KeyboardInterrupt

        monkeypatch.setattr(executor.client, "close", interrupted)
        executor.close()
        assert executor._cluster.status == Status.running
        assert not executor._cluster.shutdown_on_close
        close()
        executor._cluster.close()


def test_interrupts_are_held_and_then_handled_once():
    came = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _frame: came.append(number)) for number in numbers]
    try:
        with interrupts_held():
            with interrupts_held():
                signal.raise_signal(signal.SIGTERM)
                # as if another thread had taken it, which has it not blocked
                signal.getsignal(signal.SIGINT)(signal.SIGINT, None)
            assert came == []
        assert came == [signal.SIGTERM]
        signal.raise_signal(signal.SIGINT)
        assert came == [signal.SIGTERM, signal.SIGINT]
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def test_who_asks_again_after_a_while_is_heard_at_once(monkeypatch):
    came = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: came.append(number))
    clock = iter([0.0, 9.0, 11.0])
    monkeypatch.setattr(forking, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    try:
        with interrupts_held(), interrupts_held():
            for expected in ([], [], [signal.SIGTERM]):
                signal.raise_signal(signal.SIGTERM)
                assert came == expected
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_threads_hold_nothing():
    with ThreadPoolExecutor(1) as pool:
        handlers = pool.submit(_handlers_while_held).result()
    assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def _handlers_while_held():
    with interrupts_held():
        return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("tcp://127.0.0.1:9", "no Dask scheduler at {0}: "),
        (None, "the scheduler at {0} has no workers; start some with `dask worker {0}`"),
    ],
)
def test_who_does_not_answer_is_given_up_in_time(monkeypatch, address, message):
    assert remote.CONNECT_SECONDS <= 20, "within 30 s, start included"
    monkeypatch.setattr(remote, "CONNECT_SECONDS", 0.5)
    with LocalCluster(n_workers=0, processes=False, dashboard_address=None) as nobody:
        asked = address or nobody.scheduler_address
        with pytest.raises(WorkerError) as caught:
            remote.connect(asked)
    assert str(caught.value).startswith(message.format(asked))


@pytest.mark.parametrize("reachable", [True, False])
def test_weights_and_results_go_straight_where_workers_can_be_reached(monkeypatch, reachable):
    """Or the scheduler would relay every lane's result."""
    relayed = []
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, protocol="tcp://",
                      host="127.0.0.1", dashboard_address=None) as cluster:  # fmt: skip
        gather = cluster.scheduler.handlers["gather"]
        monkeypatch.setitem(cluster.scheduler.handlers, "gather", lambda **keys: relayed.append(keys) or gather(**keys))
        if not reachable:
            monkeypatch.setattr(connections, "reaches", _reaches_nobody)
        executor = remote.connect(cluster.scheduler_address)
        total = executor.reduce(partial(add_item, 0), range(4), merge=operator.add, shared=np.ones(20_000))
        executor.close()
    assert total == 6 + 4 * 20_000
    assert bool(relayed) is not reachable


async def _reaches_nobody(client: Any, worker: str) -> bool:
    return False


@pytest.mark.slow
def test_a_worker_that_does_not_answer_is_not_reached(monkeypatch):
    monkeypatch.setattr(connections, "REACH_SECONDS", 0.5)
    with LocalCluster(n_workers=1, processes=False, protocol="tcp://",
                      host="127.0.0.1", dashboard_address=None) as cluster:  # fmt: skip
        executor = remote.connect(cluster.scheduler_address)
        client = executor.client
        (worker,) = client.nthreads()
        assert client.sync(connections.reaches, client, worker)
        assert not client.sync(connections.reaches, client, "tcp://127.0.0.1:9")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            assert not client.sync(connections.reaches, client, f"tcp://127.0.0.1:{silent.getsockname()[1]}")
        executor.close()


def _kill_worker(executor):
    (number,) = executor.each_worker(process_of, None).values()
    os.kill(number, signal.SIGKILL)
    return number


class TestThreadsInOneProcess(_Dask):
    workers, threads, processes = 1, 3, False


def test_workers_that_would_start_in_a_removed_folder(monkeypatch):
    def gone():
        raise FileNotFoundError

    monkeypatch.setattr("os.getcwd", gone)
    refuses(WorkerError, "the current folder was removed", forking.start_fork_server)
