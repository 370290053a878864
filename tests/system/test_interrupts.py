"""Whoever asks a command to end is obeyed within ten seconds, whatever it is doing, and loses nothing saved.

Each phase is made to last for ever by a fault in the workers (a module that they load) or in the command itself. The
deadline here is generous: the machine may be busy.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from helpers import SECONDS, labelled_rows, wait_until, workers_of, write_dataset

from distls.cli import interrupts
from distls.synthetic.text_export import export_text
from distls.training.fitting import fit

PROMISED, ALLOWED = 10, 30
PASSES = 400
RESUME = "`distls resume {run}` continues"
AT_ONCE = "interrupted: stopped at once; what was saved is whole\n"

# Loaded by every worker: from when HOLD exists no task ends.
STALLING_WORKER = """
import os, time
from distls.execution.dask import dask_executor, reduction_tasks

def stalling(call):
    def stalled(*given):
        if os.path.exists(os.environ["HOLD"]):
            open(os.environ["HOLD"] + ".reached", "w").close()
            time.sleep(10_000)
        return call(*given)
    return stalled

def dask_setup(worker):
    dask_executor._call = stalling(dask_executor._call)
    reduction_tasks.call_group = stalling(reduction_tasks.call_group)
"""

# Runs before a command: `stuck` waits where no signal is handled, as in a long kernel.
STUCK_DRIVER = """
import ctypes, os, sys, time

def stuck(*given, **options):
    open(os.environ["HOLD"] + ".reached", "w").close()
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(mutex)

def when_held(call):
    def called(*given, **options):
        if os.path.exists(os.environ["HOLD"]):
            stuck()
        return call(*given, **options)
    return called
"""

# One of the tests below waits as long as users do.
IMPATIENT = "from distls.cli import interrupts; interrupts._PATIENCE_SECONDS = float(os.environ['PATIENCE'])"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A small data set, with its text beside it."""
    path = write_dataset(tmp_path_factory.mktemp("data") / "d", *labelled_rows(400, 300, 3)).path
    export_text(path, path.with_name("d.svm"))
    return path


@pytest.fixture(scope="module")
def undisturbed(data):
    return fit("mcid", data, passes=PASSES, eval_every=0).model.sha256


class Stalled:
    """A command that can be made to last for ever."""

    def __init__(self, place):
        self._hold, self._place = place / "hold", place
        (place / "stalling.py").write_text(STALLING_WORKER)
        self.process: subprocess.Popen[str] | None = None
        self.environment = os.environ | {
            "HOLD": str(self._hold),
            "PATIENCE": "1.2",
            "DASK_DISTRIBUTED__WORKER__PRELOAD": f"['{place / 'stalling.py'}']",
        }

    def start(self, *arguments, faults=""):
        program = f"{STUCK_DRIVER}\n{IMPATIENT if faults else ''}\n{faults}\nfrom distls.cli import main\nmain()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True, env=self.environment,
        )  # fmt: skip

    def hold(self):
        self._hold.touch()

    def let_go(self):
        self._hold.unlink(missing_ok=True)
        Path(f"{self._hold}.reached").unlink(missing_ok=True)

    def when(self, condition):
        wait_until(condition, self.process)

    def when_reached(self):
        self.when(Path(f"{self._hold}.reached").exists)

    def hold_in_round(self, run):
        """Let three rounds be done, and hold the command in a later one."""
        self.when(lambda: _rounds(run) >= 3)
        self.hold()
        self.when_reached()

    def end(self, *numbers, pause=0.0):
        """Send signals to the command and its children; return stdout and stderr when it has ended as promised."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        started = time.monotonic()
        for place, number in enumerate(numbers):
            time.sleep(pause if place else 0.0)
            os.killpg(self.process.pid, number)
        out, err = self.process.communicate(timeout=SECONDS)
        seconds = time.monotonic() - started
        print(f"ended in {seconds:.1f} s, {PROMISED} s are promised: {err}")
        assert self.process.returncode == 3, err
        assert seconds < ALLOWED
        wait_until(lambda: not any(_runs(process) for process in family))
        return out, err

    def clear(self):
        if self.process is not None and self.process.poll() is None:
            for process in workers_of(self.process.pid):
                process.kill()
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()


def _runs(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


@pytest.fixture
def stalled(tmp_path):
    made = Stalled(tmp_path)
    yield made
    made.clear()


def _fit(data, run, *more):
    return ["fit", "mcid", data, run, "--passes", PASSES, "--eval-every", 0, "--quiet", *more]


def _rounds(run):
    events = run / "events.jsonl"
    return events.read_text().count("\n") if events.exists() else 0


def _check_resumed(stalled, run, undisturbed):
    stalled.let_go()
    subprocess.run(
        [sys.executable, "-m", "distls", "resume", str(run), "--executor", "serial", "--quiet"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    status = json.loads((run / "status.json").read_text())
    assert (status["status"], status["weights_sha256"]) == ("MAX_PASSES", undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_round_that_does_not_end(stalled, data, tmp_path, undisturbed, number):
    """Fault: Ctrl-C, SIGTERM, SIGHUP in a round that never ends | all tasks of a local cluster | one line that names
    `distls resume`; a checkpoint, exit code 3 | bits"""
    run = tmp_path / "run"
    stalled.start(*_fit(data, run, "--workers", 2))
    stalled.hold_in_round(run)
    out, err = stalled.end(number)
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("interrupted after ")
    assert err.endswith(RESUME.format(run=run) + "\n")
    assert len(list((run / "checkpoints").glob("round-*"))) == 1
    _check_resumed(stalled, run, undisturbed)


@pytest.mark.slow
def test_a_round_that_does_not_end_on_a_running_cluster(stalled, data, tmp_path, undisturbed):
    """Fault: SIGTERM in a round that never ends, with `--scheduler` | all tasks of a running cluster | one line that
    names `distls resume`; a checkpoint, exit code 3 | bits"""
    run, contact = tmp_path / "run", tmp_path / "scheduler.json"
    where = ["--scheduler-file", str(contact), "--no-dashboard"]
    servers = [
        _dask("scheduler", stalled, *where, "--host", "127.0.0.1", "--port", "0"),
        _dask("worker", stalled, *where, "--nthreads", "1", "--local-directory", str(tmp_path)),
    ]
    try:
        wait_until(lambda: contact.exists() and contact.read_text().rstrip().endswith("}"))
        address = json.loads(contact.read_text())["address"]
        stalled.start(*_fit(data, run, "--scheduler", address))
        stalled.hold_in_round(run)
        out, err = stalled.end(signal.SIGTERM)
        assert (out, err.count("\n")) == ("", 1)
        assert err.endswith(RESUME.format(run=run) + "\n")
    finally:
        for server in servers:
            server.kill()
            server.wait()
    _check_resumed(stalled, run, undisturbed)


def _dask(name, stalled, *options):
    command = [sys.executable, "-m", f"distributed.cli.dask_{name}", *options]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, env=stalled.environment)


# What cannot be interrupted in the driver: the start of a cluster, a kernel, a disk that does not answer, a close.
STUCK = {
    "start": "from distls.execution.dask import local_cluster as m; m.local_cluster = when_held(m.local_cluster)",
    "prepare": "from distls.solvers.stochastic.stochastic import Stochastic as S; S.prepare = when_held(S.prepare)",
    "kernel": "from distls.workers.stochastic import lane_task as t; t.row_weights = when_held(t.row_weights)",
    "checkpoint": "from distls.training import run_folder as f; f.write_bundle = when_held(f.write_bundle)",
    "close": "from distls.execution.dask.private_hooks import PromptClient as C; C.close = when_held(C.close)",
}


@pytest.mark.fast_cases("start", "close")
@pytest.mark.parametrize("phase", STUCK)
def test_what_is_to_be_stuck_is_there(phase):
    """The tests that use it belong to the slow lane; a name that has moved is seen by every run."""
    replaced = []
    exec(STUCK[phase], {"when_held": lambda call: replaced.append(call) or call})
    assert callable(replaced[0])


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["start", "prepare"])
def test_what_is_stuck_before_the_first_round(stalled, data, tmp_path, phase):
    """Fault: SIGTERM while the driver is stuck before the first round | start of the cluster, preparation | one line
    after 9 s, exit code 3"""
    stalled.hold()
    stalled.start(*_fit(data, tmp_path / "run", "--workers", 1), faults=STUCK[phase])
    stalled.when_reached()
    assert stalled.end(signal.SIGTERM) == ("", AT_ONCE)


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [(signal.SIGTERM,), (signal.SIGINT, signal.SIGINT)])
@pytest.mark.parametrize("phase", ["kernel", "checkpoint"])
def test_what_is_stuck_loses_nothing_that_was_saved(stalled, data, tmp_path, undisturbed, phase, numbers):
    """A second signal is obeyed at once; a single one when the driver has had its time.

    Fault: SIGTERM, or a second Ctrl-C, while the driver is stuck | in a kernel, in the write of a checkpoint |
    one line, exit code 3; the checkpoints there were | bits
    """
    run = tmp_path / "run"
    executor = ("--executor", "serial", "--checkpoint-seconds", 0)
    if len(numbers) > 1:
        stalled.environment["PATIENCE"] = str(SECONDS)
    elif phase == "kernel":
        stalled.environment["PATIENCE"] = str(interrupts._PATIENCE_SECONDS)
    stalled.start(*_fit(data, run, *executor), faults=STUCK[phase])
    stalled.hold_in_round(run)
    saved = {path.name for path in (run / "checkpoints").glob("round-??????")}
    assert saved
    assert stalled.end(*numbers, pause=1.5) == ("", AT_ONCE)
    assert saved == {path.name for path in (run / "checkpoints").glob("round-??????")}
    _check_resumed(stalled, run, undisturbed)


@pytest.mark.slow
def test_a_cluster_that_does_not_close(stalled, data, tmp_path, undisturbed):
    """Fault: SIGTERM, and the cluster does not close | the client's close | one line after 9 s, exit code 3 | bits"""
    run = tmp_path / "run"
    stalled.start(*_fit(data, run, "--workers", 1), faults=STUCK["close"])
    stalled.when(lambda: _rounds(run) >= 3)
    stalled.hold()
    out, err = stalled.end(signal.SIGTERM)
    # the fit has ended already, and says so
    assert (out, re.sub(r"^interrupted after \d+ passes; `distls resume \S+` continues\n", "", err)) == ("", AT_ONCE)
    _check_resumed(stalled, run, undisturbed)


def _work(command, data, place):
    """Return the arguments of a command that has something to do."""
    quiet, text = "--quiet", data.with_name("d.svm")
    return {
        "ingest": ["ingest", text, place / "new", quiet],
        "columns": ["columns", data, quiet],
        "generate": ["generate", "rcv1-4", place / "new", "--rows", 2000, quiet],
        "predict": ["predict", place / "run", data, place / "out.csv", quiet],
        "evaluate": ["evaluate", place / "run", data],
        "demo": ["demo", "--rows", 2000],
    }[command]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["ingest", "columns", "generate", "predict", "evaluate", "demo"])
def test_work_that_does_not_end(stalled, data, tmp_path, command):
    """Fault: Ctrl-C in ingest, columns, generate, predict, evaluate, demo | workers' tasks | one line, exit code 3;
    nothing partial of predictions"""
    if command in ("predict", "evaluate"):
        fit("mcid", data, tmp_path / "run", passes=1, eval_every=0)
    before = {path.name for path in tmp_path.iterdir()}
    stalled.hold()
    stalled.start(*_work(command, data, tmp_path), "--workers", 1)
    stalled.when_reached()
    out, err = stalled.end(signal.SIGINT)
    assert (out, err.splitlines()[-1]) == ("", "interrupted")
    left = {path.name for path in tmp_path.iterdir()} - before - {"hold", "hold.reached"}
    # a data set that is not whole says so; the same command again goes on
    assert left <= ({"new", "new-test"} if command in ("ingest", "generate") else set())


@pytest.mark.slow
def test_a_terminal_that_is_closed(stalled, data, tmp_path, undisturbed):
    """The last whole round is saved, although nobody can be told.

    Fault: The terminal is closed | in a fit | exit code 3, a checkpoint | bits
    """
    run = tmp_path / "run"
    arguments = [str(each) for each in _fit(data, run, "--workers", 1) if each != "--quiet"]
    number, terminal = os.forkpty()
    if number == 0:
        for each in (signal.SIGINT, signal.SIGHUP):
            signal.signal(each, signal.SIG_DFL)
        os.execvp(sys.executable, [sys.executable, "-m", "distls", *arguments])
    try:
        shown = b""
        while _rounds(run) < 3 or b"loss" not in shown:
            shown += os.read(terminal, 65536)
    finally:
        os.close(terminal)
    _, status = os.waitpid(number, 0)
    assert os.waitstatus_to_exitcode(status) == 3
    assert len(list((run / "checkpoints").glob("round-*"))) == 1
    _check_resumed(stalled, run, undisturbed)


@pytest.mark.slow
def test_modules_of_the_current_folder_are_not_taken_for_installed_ones(data, tmp_path):
    """Fault: Modules in the current folder named like installed ones | `distls`, `distributed`, `numpy` | nothing"""
    for name in ("distls", "distributed", "numpy"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / name)!r}, 'w').close()\n")
    program = "from distls.cli import main; main()"
    arguments = ["fit", "mcid", str(data), str(tmp_path / "run"), "--passes", "1", "--workers", "1", "--quiet"]
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program, *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".py") == ["run"]
