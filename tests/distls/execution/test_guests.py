"""On somebody else's cluster: whose client it is, what its workers are and allow, and where a path leads there."""

import multiprocessing
import operator
import os
import pickle
import queue
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from cluster_helpers import cluster
from distributed import Client, Event, LocalCluster, get_client, worker_client
from helpers import SECONDS, refuses, stored_rows, wait_until

import distls
from distls.execution import executor_of, memory_of
from distls.execution.dask import connection, dask_executor, remote_cluster, worker_watch
from distls.execution.dask.connection import Connection
from distls.execution.dask.worker_watch import WorkerWatch
from distls.execution.memory_budget import MIB, WorkerMemory, budget_of_workers
from distls.execution.network import SMALL
from distls.execution.serial import SerialExecutor
from distls.storage.errors import ParameterError, WorkerError
from distls.workers.runtime.process import peak_rss

LIMIT = 4096 * MIB
NOWHERE = {"dashboard_address": "127.0.0.1:0"}


@pytest.fixture(scope="module")
def client():
    """The open client of two workers of one thread each, in this process, which pause at half of its memory."""
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "memory_limit": LIMIT}
    with (
        dask.config.set({"distributed.worker.memory.pause": 0.5, "distributed.worker.memory.spill": 0.6}),
        LocalCluster(**options, **NOWHERE) as made,
        Client(made) as found,
    ):
        yield found


data = stored_rows(200, 8, 3)


def test_a_closed_client_is_refused_in_one_line(data, client):
    closed = Client(client.scheduler.address, set_as_default=False)
    closed.close()
    for given in ({"client": closed}, {"executor": closed}):
        refuses(ParameterError, "this Dask client is closed", distls.fit, "sgd", data, **given)


@pytest.mark.fast_cases("<lambda>-error0")
@pytest.mark.parametrize("error", [RuntimeError("ConnectionPool is closed"), AttributeError("ncores")])
@pytest.mark.parametrize("ask", [lambda executor: executor.slots, memory_of])
def test_a_client_that_another_thread_is_closing_is_one_line(client, monkeypatch, ask, error):
    own = Client(client.scheduler.address, set_as_default=False)
    executor = executor_of(client=own)

    def closing(*_, **__):
        own.close()
        raise error

    monkeypatch.setattr(own, "sync", closing)
    refuses(WorkerError, "the Dask client was closed", ask, executor)


@pytest.mark.slow
def test_a_forked_child_stays_in_its_own_process(client):
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_of_child, args=(queue, client, executor_of(client=client)))
    child.start()
    found = queue.get()
    child.join()
    assert found == ["SerialExecutor", "a process whose child", "no Dask client", "a process whose child"]


def _of_child(queue, client, executor):
    found = [type(executor_of()).__name__]
    for call in (lambda: executor_of(client=client), lambda: executor_of("dask"), lambda: executor.slots):
        try:
            call()
        except (ParameterError, WorkerError) as error:
            found += [word for word in ("a process whose child", "no Dask client") if word in str(error)]
    executor.close()
    queue.put(found)


@pytest.mark.fast_cases("python")
@pytest.mark.parametrize("name", ["python", "distributed", "numpy", "numba", "zarr", "distls"])
def test_workers_of_other_versions_are_refused_whoever_has_the_client(client, data, monkeypatch, name):
    versions, kind = remote_cluster._facts()
    other = sorted(client.nthreads())[1]
    answers = {each: (versions | ({name: "0.0.1"} if each == other else {}), kind) for each in client.nthreads()}
    monkeypatch.setattr(remote_cluster, "ask_workers", lambda *_: answers)
    for given in ({"client": client}, {"executor": "dask"}, {}):
        with pytest.raises(WorkerError, match=rf"worker {other} runs other versions: {name} .* 0\.0\.1 there"):
            distls.fit("sgd", data, **given)


def test_the_budget_and_the_way_of_weights_are_those_of_the_workers(client):
    budget = memory_of(executor_of(client=client))
    # both workers are this process, which has one limit
    assert (budget.limit, budget.workers, budget.threads, budget.compiles) == (LIMIT, 1, 2, True)
    assert (budget.safe, round(budget.calm, 3)) == (0.92, 0.47)
    with Client(client.scheduler.address, set_as_default=False) as own:
        connection = Connection(own)
        connection.threads()
        assert (connection._direct, own.direct_to_workers) == (True, None), "the client is its owner's"


def _worker(process, limit, threads=1):
    return WorkerMemory(process, threads, limit, 800, 0.92, 0.67 if limit else 0.92)


@pytest.mark.fast_cases("workers0")
@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ([_worker("a:1", 600), _worker("b:1", 500, 3)], (500, 2, 3)),
        ([_worker("a:1", 600, 2), _worker("a:1", 500)], (500, 1, 3)),
        ([_worker("a:1", None), _worker("a:2", None)], (200, 2, 1)),
        ([_worker("a:1", None), _worker("b:1", 700)], (400, 2, 1)),
    ],
)
def test_the_smallest_worker_counts(workers, expected):
    found = budget_of_workers(workers)
    assert (found.limit, found.workers, found.threads) == expected


def _fit_in_task(path, seed, how):
    if how == "worker_client":
        with worker_client() as own:
            return distls.fit("sgd", path, client=own, seed=seed, passes=1).model.sha256, True
    where = {"dask": {"executor": "dask"}, "get_client": {"client": get_client()}, "nothing": {}}[how]
    here = isinstance(executor_of(), SerialExecutor)
    return distls.fit("sgd", path, **where, seed=seed, passes=1).model.sha256, here


@pytest.mark.fast_cases("dask$")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["dask", "get_client", "worker_client", "nothing"])
def test_as_many_fits_in_tasks_as_there_are_threads_and_more(client, data, how):
    call = (str(data.path), range(3), how)
    found = client.gather([client.submit(_fit_in_task, call[0], seed, how, pure=False) for seed in call[1]])
    alone = [distls.fit("sgd", data, executor="serial", seed=seed, passes=1).model.sha256 for seed in call[1]]
    assert found == [(digest, True) for digest in alone]


def test_a_fit_in_a_callback_ends(client, data):
    """Dask has one thread for the callbacks of all clients, which then waits for the fit's own tasks."""
    found = queue.SimpleQueue[Any]()

    def call(_done):
        found.put(distls.fit("sgd", data, client=client, passes=1).model.sha256)

    client.submit(int, pure=False).add_done_callback(call)
    alone = distls.fit("sgd", data, executor="serial", passes=1)
    assert found.get(timeout=SECONDS) == alone.model.sha256


class _Scheduler:
    """What a scheduler answers, to be changed."""

    def __init__(self):
        self.worker = {"status": "running", "memory_limit": 600 * MIB, "last_seen": 1.0, "nthreads": 1,
                       "metrics": {"memory": 492 * MIB}}  # fmt: skip
        self.events: list[Any] = [(0.0, {"worker": "tcp://b", "rss": 1})]
        self.processing, self.addresses = {"tcp://a": ["ours"]}, ["tcp://a"]

    def ask(self, question, **_):
        workers = {address: dict(self.worker) for address in self.addresses}
        answers = {"identity": {"workers": workers}, "events": self.events}
        return (answers | {"processing": self.processing}).get(question)


PAUSED, SPILLS, KILLED = "has paused and takes no tasks", "moves what it is sent", "was killed for its memory"


@pytest.mark.fast_cases("has")
@pytest.mark.parametrize("what", [PAUSED, SPILLS, KILLED])
def test_a_worker_short_of_memory_is_named_once(monkeypatch, caplog, what):
    monkeypatch.setattr(worker_watch, "LOOK_SECONDS", 0.0)
    scheduler = _Scheduler()
    watch = WorkerWatch(scheduler.ask)
    watch.look()
    assert caplog.messages == []
    scheduler.worker["status"] = "paused" if what == PAUSED else "running"
    if what == SPILLS:
        scheduler.worker["metrics"]["digests_total_since_heartbeat"] = {("execute", "disk-write", "bytes"): 9}
    if what == KILLED:
        scheduler.events = [*scheduler.events, (1.0, {"worker": "tcp://a", "rss": 570 * MIB})]
    for _ in range(3):
        watch.look()
    (said,) = caplog.messages
    assert said.startswith(f"worker tcp://a {what}")
    assert ("570 MiB" if what == KILLED else "492 MiB of 600 MiB") in said


def test_a_fit_says_what_it_waits_for(monkeypatch):
    clock = SimpleNamespace(now=100.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(worker_watch, "time", clock)
    scheduler = _Scheduler()
    watch = WorkerWatch(scheduler.ask)
    watch.look()
    assert watch.troubles({"ours"}) == ""
    scheduler.processing["tcp://a"] = ["theirs", "ours"]
    assert watch.troubles({"ours"}) == "worker tcp://a has 1 tasks of others"
    clock.now += 40
    assert watch.troubles({"ours"}) == "nothing was heard of worker tcp://a for 40 s"
    scheduler.worker["status"] = "paused"
    watch.look()
    assert watch.troubles(set()) == "worker tcp://a is paused, 492 MiB of 600 MiB in use"
    scheduler.addresses = [f"tcp://{letter}" for letter in "abcdefgh"]
    clock.now += worker_watch.LOOK_SECONDS
    watch.look()
    said = watch.troubles(set())
    assert said.count("is paused") == 5
    assert said.endswith("; 3 more")


class _Noting(SerialExecutor):
    """Notes all that workers would be sent."""

    sent = b""

    def map(self, function, items, **options):
        self.sent += pickle.dumps((function, list(items), options))
        return super().map(function, items, **options)

    def reduce(self, function, items, **options):
        self.sent += pickle.dumps((function, items, options))
        return super().reduce(function, items, **options)

    def each_worker(self, function, item):
        self.sent += pickle.dumps((function, item))
        return super().each_worker(function, item)


@pytest.mark.slow_cases("(sdca|bcd|cls)")
@pytest.mark.parametrize("method", ["sgd", "sdca", "bcd", "cls"])
def test_paths_travel_as_they_were_given(tmp_path, method):
    """What is a link here may be a mount elsewhere, where the file behind it is not."""
    (tmp_path / "behind").mkdir()
    (given := tmp_path / "given").symlink_to("behind")
    (given / "s.svm").write_text("1 1:2 2:1\n0 2:1 3:4\n" * 100)
    executor = _Noting()
    distls.ingest(given / "s.svm", given / "d", executor=executor)
    distls.add_columns(given / "d", executor=executor)
    distls.fit(method, given / "d", given / "run", passes=1, executor=executor)
    distls.evaluate(given / "run", given / "d", executor=executor)
    distls.predict(given / "run", given / "d", given / "p.csv", executor=executor)
    assert str(given).encode() in executor.sent
    assert b"behind" not in executor.sent
    # the run is the same by its other name
    assert distls.resume(tmp_path / "behind/run").status == distls.resume(given / "run").status


@pytest.mark.fast_cases("worker-run$")
@pytest.mark.parametrize(
    ("who", "handler"),
    [
        *(("worker", name) for name in ("run", "get_data", "update_data", "identity")),
        *(("scheduler", name) for name in ("ncores", "who_has", "ncores_running", "processing")),
        *(("scheduler", name) for name in ("events", "get_task_status", "broadcast")),
    ],
)
def test_handlers_that_are_blocked_are_one_line(who, handler):
    """Also those that would be missed later, or without which a cluster tries again for ever."""
    with (
        dask.config.set({f"distributed.{who}.blocked-handlers": [handler]}),
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, **NOWHERE) as made,
        Client(made, set_as_default=False) as own,
        pytest.raises(WorkerError, match=f"the {who} blocks '{handler}', which distls needs; take it out"),
    ):
        list(executor_of(client=own).map(operator.getitem, [0], shared=[b"large" * SMALL]))


def test_a_scheduler_that_does_not_say_who_it_is_is_one_line():
    with (
        dask.config.set({"distributed.scheduler.blocked-handlers": ["identity"]}),
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, **NOWHERE) as made,
        pytest.raises(WorkerError, match="the scheduler blocks 'identity', which distls needs; take it out"),
    ):
        remote_cluster.connect(made.scheduler.address)


def test_tasks_go_to_workers_with_the_resources_that_are_asked_for(data, monkeypatch):
    monkeypatch.setattr(connection, "CHECK_SECONDS", 0.1)
    monkeypatch.setattr(dask_executor, "_ATTEMPTS", 2)
    options = {"threads_per_worker": 2, "processes": False, "resources": {"LARGE": 1}}
    with LocalCluster(n_workers=1, **options, **NOWHERE) as made, Client(made, set_as_default=False) as own:
        alone = distls.fit("sgd", data, executor="serial", passes=2).model.sha256
        with dask.annotate(resources={"LARGE": 1}):
            found = distls.fit("sgd", data, client=own, passes=2)
        assert found.model.sha256 == alone
        with dask.annotate(resources={"OTHER": 1}), pytest.raises(WorkerError, match="none of them may run it"):
            distls.fit("sgd", data, client=own, passes=2)


# -- real processes ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_workers_with_little_memory_neither_pause_nor_spill(tmp_path):
    distls.generate("dense", tmp_path / "d", rows=400_000)
    with LocalCluster(n_workers=1, threads_per_worker=1, memory_limit="600MiB", **NOWHERE) as made, Client(made) as own:
        distls.fit("mcid", tmp_path / "d", client=own, params={"loss": "hinge"}, passes=2)
        assert max(own.run(peak_rss).values()) < 0.7 * 600 * MIB


def _fill(seconds):
    Event("watched").wait()
    memory = bytearray(450 * MIB)
    threading.Event().wait(seconds)
    del memory


@pytest.mark.slow
def test_a_worker_that_is_killed_while_a_fit_waits_is_named(data, caplog, monkeypatch):
    options = {"n_workers": 1, "threads_per_worker": 1, "memory_limit": "600MiB"}
    with (
        dask.config.set({"distributed.worker.memory.terminate": 0.8, "distributed.scheduler.allowed-failures": 0}),
        LocalCluster(**options, **NOWHERE) as made,
        Client(made) as own,
    ):
        look = WorkerWatch.look

        def looked(watch, **given):
            look(watch, **given)
            Event("watched", client=own).set()

        monkeypatch.setattr(WorkerWatch, "look", looked)
        # that it is soon in order again is no reason to say nothing
        monkeypatch.setattr(worker_watch, "LOOK_SECONDS", SECONDS)
        full = own.submit(_fill, SECONDS)
        wait_until(lambda: any(own.processing().values()))
        assert distls.fit("sgd", data, client=own, passes=1).model is not None
        assert full.status == "error"
    assert any("was killed for its memory" in said for said in caplog.messages)


@pytest.mark.slow
def test_a_worker_of_another_zarr_is_refused_for_real(tmp_path, data):
    (tmp_path / "other.py").write_text(
        "from importlib import metadata\n"
        "metadata.version = lambda name, own=metadata.version: '3.0.0' if name == 'zarr' else own(name)\n"
    )
    with cluster(tmp_path) as there:
        there.add_worker("--preload", str(tmp_path / "other.py"))
        with Client(there.address, set_as_default=False) as own, pytest.raises(WorkerError, match="zarr"):
            distls.fit("sgd", data, client=own)


P = "DISTRIBUTED__"
HARMLESS = {
    "SCHEDULER__IDLE_TIMEOUT": "1s", "SCHEDULER__ALLOWED_FAILURES": "0", "SCHEDULER__NO_WORKERS_TIMEOUT": "1ms",
    "SCHEDULER__PRELOAD": "['nowhere']", "NANNY__PRELOAD": "['nowhere']", "CLIENT__PRELOAD": "['nowhere']",
    "ADMIN__EVENT_LOOP": "uvloop", "COMM__TIMEOUTS__CONNECT": "1ms", "COMM__TIMEOUTS__TCP": "50ms",
    "WORKER__BLOCKED_HANDLERS": "['run']", "WORKER__CONNECTIONS__INCOMING": "0", "WORKER__LIFETIME__DURATION": "1s",
    "COMM__RETRY__COUNT": "many", "WORKER__DAEMON": "False", "WORKER__MEMORY__PAUSE": "0.01",
    "WORKER__MEMORY__TERMINATE": "0.01",
}  # fmt: skip
NAMED = {
    "TEMPORARY_DIRECTORY": "/proc/nowhere", P + "WORKER__PRELOAD": "['nowhere']", P + "COMM__REQUIRE_ENCRYPTION": "1",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{P + k: v for k, v in HARMLESS.items()}, *({k: v} for k, v in NAMED.items())])
def test_settings_for_other_clusters_do_not_end_the_commands_own(tmp_path, data, settings):
    command = [sys.executable, "-m", "distls", "fit", "sgd", str(data.path), str(tmp_path / "r"), "--workers", "2"]
    given = os.environ | {f"DASK_{name}": value for name, value in settings.items()}
    ended = subprocess.run([*command, "--passes", "3"], env=given, capture_output=True, text=True, timeout=SECONDS)
    (name, *more) = [key.removeprefix(P).lower().replace("__", ".").replace("_", "-") for key in settings]
    assert (ended.returncode, f"{name} (" in ended.stderr) == ((0, False) if more else (1, True))
    assert "Traceback" not in ended.stderr
