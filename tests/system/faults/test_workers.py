"""Workers that die, stop, slow down, come and go: the user sees nothing of it, and the bits are the same."""

import contextlib
import json
import os
import signal

import pytest
from cluster_helpers import cluster
from distributed import Client
from helpers import SECONDS, wait_until
from worker_faults import KILL_AFTERWARDS, STOP, Fault

from distls.storage.model.model import load_model
from distls.training.fitting import fit, resume

WAYS = ["lanes", "statistics", "shards"]
READ = "distls.storage.dataset.parts:read_array"  # of a partition or a column shard


def check_whole(run, digest):
    """Assert that a run has ended as if nothing had happened."""
    assert json.loads((run / "status.json").read_text())["weights_sha256"] == digest
    assert load_model(run).sha256 == digest
    rounds = [json.loads(line)["round"] for line in (run / "events.jsonl").read_text().splitlines()]
    assert rounds == list(range(1, len(rounds) + 1))
    left = {path.name for path in run.iterdir()}
    assert left <= {"config.json", "status.json", "events.jsonl", "final", "model", "lock"}


def fit_with(command, job, tmp_path, fault, **environment):
    """Fit on a local cluster of two workers that are struck by `fault`, and expect nothing to be seen of it."""
    run = tmp_path / "run"
    given = {**fault.preload(tmp_path), **environment}
    started = command(*job.arguments(run, "--workers", 2, "--quiet"), environment=given)
    code, _, error = started.end()
    assert (code, error) == (0, "")
    assert len(fault.struck(tmp_path)) == fault.victims, "the fault was not met"
    check_whole(run, job.digest)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", ["read", "kernel", "reduce"])
def test_a_worker_is_killed(command, job, tmp_path, way, place):
    """Fault: SIGKILL of a worker | while it reads, in a kernel, in a reduction, for each way | nothing | bits"""
    made = job(way)
    reducing = (
        "distls.execution.dask.reduction_tasks:run_group"
        if way == "shards"
        else "distls.workers.rounds.reduction_tree:ReductionTree.add"
    )
    faults = {"read": Fault(READ, call=20), "kernel": Fault(made.kernel, call=25), "reduce": Fault(reducing, call=5)}
    fit_with(command, made, tmp_path, faults[place])


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_only_holder_of_the_weights_is_killed(command, job, tmp_path, way):
    """Fault: SIGKILL of the only holder of the weights | just after they were sent to it, for each way | nothing |
    bits"""
    fit_with(command, job(way), tmp_path, Fault("update_data", call=2, act=KILL_AFTERWARDS))


@pytest.mark.slow
def test_both_workers_are_killed_in_one_round(command, job, tmp_path):
    """Fault: SIGKILL of all active workers | in a kernel, both of two | nothing | bits"""
    made = job("lanes")
    fit_with(command, made, tmp_path, Fault(made.kernel, call=30, victims=2))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_worker_stops_for_longer_than_its_heartbeat(command, job, tmp_path, way):
    """Fault: A worker stopped (SIGSTOP) for longer than its heartbeat | in a kernel, for each way | nothing | bits"""
    made = job(way)
    fault = Fault(made.kernel, call=25, act=STOP)
    fit_with(command, made, tmp_path, fault, DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL="3s")


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_one_worker_is_slow(command, job, tmp_path, way):
    """Fault: One worker is slow | in every call of the kernel, for each way | nothing | bits"""
    made = job(way)
    fit_with(command, made, tmp_path, Fault(made.kernel, act="time.sleep(0.01)", once=False))


@pytest.mark.slow
def test_a_task_that_kills_every_worker_ends_the_fit_in_one_line(command, job, tmp_path):
    """Fault: A task that kills every worker | in a kernel, at each attempt | one line, exit code 1; a run that
    `resume` continues | bits"""
    made, run = job("lanes"), tmp_path / "run"
    fault = Fault(made.kernel, call=25, victims=100)
    started = command(*made.arguments(run, "--workers", 2, "--quiet"), environment=fault.preload(tmp_path))
    code, out, error = started.end()
    assert (code, out, error.count("\n")) == (1, "", 1), error
    assert error.startswith("distls: workers ")
    assert not (run / "model").exists()
    assert resume(run).model.sha256 == made.digest


@contextlib.contextmanager
def running(made, command, job, run, rounds=2):
    """Start a fit on a cluster; it is past some rounds when the block begins, and ends well after it."""
    started = command(*job.arguments(run, "--scheduler", made.address, "--quiet"))
    started.when(lambda: rounds_of(run) >= rounds)
    yield started
    code, _, error = started.end()
    assert (code, error) == (0, "")
    check_whole(run, job.digest)


def rounds_of(run):
    events = run / "events.jsonl"
    return events.read_text().count("\n") if events.exists() else 0


def slowly(job, folder):
    """Return an environment in which workers take their time, and end no call while `folder` has a file ``hold``."""
    folder.mkdir()
    held = f"iter(lambda: os.path.exists({str(folder / 'hold')!r}), False)"
    act = f"for _ in itertools.chain((0,), {held}): time.sleep(0.02)"
    return Fault(job.kernel, act=act, once=False, victims=100).preload(folder)


def _others_than(client, before):
    return [address for address in client.nthreads() if address not in before]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_workers_come_and_go(command, job, tmp_path, way):
    """One is added in the midst of a round, then the first is retired in the midst of another.

    Fault: Workers added and retired | during rounds, for each way | nothing | bits
    """
    made, run = job(way), tmp_path / "run"
    with cluster(tmp_path, environment=slowly(made, tmp_path / "slow")) as there:
        there.add_worker()
        there.wait_for_workers(1)
        with Client(there.address, set_as_default=False) as client, running(there, command, made, run, rounds=1):
            first = set(client.nthreads())
            # a worker may take longer to start than the fit to end
            (tmp_path / "slow" / "hold").touch()
            there.add_worker()
            client.wait_for_workers(2, timeout=SECONDS)
            (tmp_path / "slow" / "hold").unlink()
            (added,) = _others_than(client, first)
            # the new one takes part
            wait_until(lambda: bool(client.processing()[added]))
            client.retire_workers(list(first))
            assert set(client.nthreads()) == {added}
            assert rounds_of(run) < made.passes, "retired too late to matter"


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_all_workers_are_gone_for_a_while(command, job, tmp_path, way):
    """Fault: All workers gone temporarily | during a round, for each way | nothing | bits"""
    made, run = job(way), tmp_path / "run"
    with cluster(tmp_path, environment=slowly(made, tmp_path / "slow")) as there:
        workers = [there.add_worker(), there.add_worker()]
        there.wait_for_workers(2)
        with Client(there.address, set_as_default=False) as client, running(there, command, made, run):
            _kill(workers)
            assert rounds_of(run) < made.passes, "killed too late to matter"
            wait_until(lambda: not client.nthreads())
            there.add_worker()


@pytest.mark.slow
def test_a_nanny_is_killed(command, job, tmp_path):
    """Fault: SIGKILL of a nanny | during a round | nothing | bits"""
    made, run = job("lanes"), tmp_path / "run"
    with cluster(tmp_path, environment=slowly(made, tmp_path / "slow")) as there:
        nanny = there.add_worker(nanny=True)
        there.add_worker()
        there.wait_for_workers(2)
        with Client(there.address, set_as_default=False) as client, running(there, command, made, run):
            nanny.kill()
            assert rounds_of(run) < made.passes, "killed too late to matter"
            # its worker does not outlive it
            wait_until(lambda: len(client.nthreads()) == 1)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_scheduler_is_killed_and_started_anew(command, job, tmp_path, way):
    """Fault: SIGKILL of the scheduler, which is restarted | during a round, for each way | nothing | bits"""
    made, run = job(way), tmp_path / "run"
    with cluster(tmp_path, environment=slowly(made, tmp_path / "slow")) as there:
        workers = [there.add_worker(), there.add_worker()]
        there.wait_for_workers(2)
        with running(there, command, made, run):
            there.restart_scheduler()
            assert rounds_of(run) < made.passes, "killed too late to matter"
            for worker in workers:
                worker.wait(SECONDS)
            there.add_worker()


@pytest.mark.slow
def test_a_worker_that_was_stopped_comes_back(command, job, tmp_path):
    """Nobody starts it anew: its work is done by the other, and what it then says too late is not counted twice.

    Fault: A stopped worker continues after its work was redone | under a running scheduler | nothing | bits
    """
    made, run = job("lanes"), tmp_path / "run"
    environment = {**slowly(made, tmp_path / "slow"), "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "3s"}
    with cluster(tmp_path, environment=environment) as there:
        worker = there.add_worker()
        there.add_worker()
        there.wait_for_workers(2)
        with Client(there.address, set_as_default=False) as client, running(there, command, made, run):
            os.kill(worker.pid, signal.SIGSTOP)
            wait_until(lambda: len(client.nthreads()) == 1)
            os.kill(worker.pid, signal.SIGCONT)


@pytest.mark.slow
def test_a_scheduler_that_stays_away_is_one_line(monkeypatch, job, tmp_path):
    """Fault: A scheduler that stays away | before the first round | one line after 120 s, exit code 1; a run that
    `resume` continues"""
    from distls.execution.dask import connection
    from distls.execution.dask.remote_cluster import connect
    from distls.storage.errors import WorkerError

    monkeypatch.setattr(connection, "RETURN_SECONDS", 1.0)
    made = job("lanes")
    with cluster(tmp_path) as there:
        there.add_worker()
        there.wait_for_workers(1)
        executor = connect(there.address)
    try:
        with pytest.raises(WorkerError) as caught:
            fit(made.method, made.data, tmp_path / "run", params=made.params, executor=executor)
    finally:
        executor.close()
    assert str(caught.value) == (
        f"the scheduler at {there.address} is gone and did not come back within 1 s; once that is fixed, "
        "`distls resume` continues the run"
    )


def _kill(processes):
    for process in processes:
        process.kill()
        process.wait()
