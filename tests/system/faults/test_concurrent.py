"""Several commands at once: two fits on one cluster, and two writers of one folder, of whom the second is refused."""

import json
import signal
import subprocess
import sys
import time

import pytest
from fault_helpers import digest_of, left_behind, options_of, rounds_of
from helpers import SECONDS, labelled_rows, wait_until, write_dataset

from distls import add_columns, fit, open_dataset
from distls.execution.dask.local_cluster import start_local
from distls.synthetic.text_export import export_text

LANES = ("mcid", {"loss": "hinge", "alpha": 1e-4})
STATISTICS = ("gls", {"link": "softmax", "alpha": 1e-4})
PASSES = 30
SLOW = """
import threading, time
def slowly(function):
    def slow(*given, **named):
        {act}
        return function(*given, **named)
    return slow
from distls.{module} import {owner}
{owner}.{name} = slowly({owner}.{name})
from distls.cli import main
main()
"""


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("data") / "train", *labelled_rows(2000, 300, 4)).path


@pytest.fixture(scope="module")
def undisturbed(train):
    return {
        method: fit(method, train, params=params, passes=PASSES, eval_every=0).model.sha256
        for method, params in (LANES, STATISTICS)
    }


@pytest.fixture(scope="module")
def cluster():
    """One scheduler and two workers of two threads, which several drivers share."""
    executor = start_local(2, 2, 2**31)
    yield executor
    executor.close()


@pytest.mark.slow
def test_two_fits_on_one_cluster(command, cluster, train, undisturbed, tmp_path):
    """Fault: Three fits at once on one cluster | two of `mcid`, one of `gls` | nothing; complete runs | bits"""
    address = cluster.client.scheduler.address
    started = {}
    for name, (method, params) in {"a": LANES, "b": STATISTICS, "c": LANES}.items():
        options = options_of(params, passes=PASSES, eval_every=0, scheduler=address)
        started[name] = method, command("fit", method, train, tmp_path / name, *options, "--quiet")
    for name, (method, each) in started.items():
        code, _, error = each.end()
        assert (code, error) == (0, "")
        assert digest_of(tmp_path / name) == undisturbed[method]
        assert rounds_of(tmp_path / name) == list(range(1, PASSES + 1))
        assert left_behind(tmp_path / name) == []
    known = cluster.client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
    assert known <= 1, "tasks of ended fits are still known to the scheduler"


class Slowed:
    """A command in a process of its own that stops in the midst of its work until it is told to go on."""

    def __init__(self, where, mark, *arguments):
        module, owner, name = where
        self._mark = mark
        act = (
            f"import os; open({str(mark)!r}, 'w').close()\n"
            f"        while os.path.exists({str(mark)!r}): time.sleep(0.01)"
        )
        source = SLOW.format(module=module, owner=owner, name=name, act=act)
        self.process = subprocess.Popen(
            [sys.executable, "-c", source, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_until(mark.exists, self.process)

    def go_on(self):
        """Let it end; return exit code and stderr."""
        # it stops at every call: a folder in the way of the mark would be an error of its own
        while self.process.poll() is None:
            self._mark.unlink(missing_ok=True)
            time.sleep(0.005)
        _, error = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, error

    def kill(self):
        """End it without a word."""
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        self._mark.unlink(missing_ok=True)


SERIAL = ("--executor", "serial", "--quiet")


def refused(command, folder, lock, *arguments):
    """The command is one line that names the process which is writing."""
    holder = json.loads(lock.read_text())
    code, out, error = command(*arguments).end()
    who = f"process {holder['process']} on {holder['host']}"
    assert (code, out) == (1, "")
    assert error == f"distls: {folder} is being written by {who}; wait until it has ended, or stop it ({lock})\n"


def _fit(train, run):
    method, params = LANES
    options = options_of(params, passes=PASSES, eval_every=0, checkpoint_seconds=0)
    return ["fit", method, train, run, *options, *SERIAL]


IN_FIT = ("training.run_folder", "Run", "append_event")


@pytest.mark.slow
def test_the_second_driver_of_a_run_is_refused(command, train, undisturbed, tmp_path):
    """Fault: A second driver of a run | `resume` and `fit` while the first works | one line with process and host,
    or "is a run already"; the first finishes | bits"""
    run = tmp_path / "run"
    first = Slowed(IN_FIT, tmp_path / "mark", *_fit(train, run))
    assert json.loads((run / "lock").read_text())["process"] == first.process.pid
    refused(command, run, run / "lock", "resume", run, *SERIAL)
    code, _, error = command(*_fit(train, run)).end()
    assert (code, error) == (
        1,
        f"distls: {run} is a run already; `distls resume {run}` continues it, or choose another name\n",
    )
    assert first.go_on() == (0, "")
    assert digest_of(run) == undisturbed["mcid"]
    assert left_behind(run) == []


@pytest.mark.slow
def test_the_lock_of_a_killed_driver_is_in_nobodys_way(command, train, undisturbed, tmp_path):
    """Fault: The lock of a killed driver | RUN/lock still there | `resume` finishes | bits"""
    run = tmp_path / "run"
    first = Slowed(IN_FIT, tmp_path / "mark", *_fit(train, run))
    first.kill()
    assert (run / "lock").exists()
    code, _, error = command("resume", run, *SERIAL).end()
    assert (code, error) == (0, "")
    assert digest_of(run) == undisturbed["mcid"]
    assert left_behind(run) == []


@pytest.mark.slow
def test_the_second_ingest_and_the_second_transposition_are_refused(command, train, tmp_path):
    """Fault: A second ingest, a second transposition | while the first works | one line with process and host"""
    export_text(train, tmp_path / "d.svm")
    out, lock = tmp_path / "out", tmp_path / "out" / ".lock"
    ingest = ["ingest", tmp_path / "d.svm", out, *SERIAL]
    first = Slowed(("storage.temporary.ingest_staging", "StagingArea", "write_item"), tmp_path / "mark", *ingest)
    refused(command, out, lock, *ingest)
    first.kill()
    first = Slowed(("storage.temporary.ingest_staging", "StagingArea", "write_item"), tmp_path / "mark", *ingest)
    assert first.go_on() == (0, "")
    assert not lock.exists()
    fingerprint = open_dataset(out).fingerprint
    columns = ["columns", out, "--shard-size", "16KiB", *SERIAL]
    first = Slowed(("storage.temporary.transpose_spill", "SpillArea", "write_group"), tmp_path / "mark", *columns)
    refused(command, out, lock, *columns)
    refused(command, out, lock, "columns", out, "--shard-size", "8KiB", *SERIAL)
    assert first.go_on() == (0, "")
    made = open_dataset(out)
    assert made.fingerprint == fingerprint
    whole = add_columns(write_again(tmp_path / "d.svm", tmp_path / "again"), shard_size=2**14).columns
    assert made.columns.digest == whole.digest
    assert left_behind(out) == []


def write_again(text, path):
    """Ingest undisturbed."""
    from distls.ingestion.ingest import ingest

    ingest(text, path)
    return path
