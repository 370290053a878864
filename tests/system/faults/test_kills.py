"""Kill, interrupt, resume: the weights are those of the undisturbed run, bit for bit."""

import json
import shutil
import signal

import pytest

from distls import add_columns, fit

PASSES = 50


def _arguments(documents, run, *more):
    return ["fit", "mcid", documents, run, "-p", "alpha=1e-4", "--passes", PASSES, *more]


@pytest.fixture(scope="module")
def undisturbed(documents):
    result = fit("mcid", documents, params={"alpha": 1e-4}, passes=PASSES, eval_every=0)
    return result.model.sha256


def _rounds(run):
    events = run / "events.jsonl"
    return events.read_text().count("\n") if events.exists() else 0


def _digest(run):
    return json.loads((run / "status.json").read_text())["weights_sha256"]


def _pool(command, documents, run, *more):
    """Start a fit with two workers; return when some of its rounds are done."""
    started = command(*_arguments(documents, run, "--workers", 2, "--eval-every", 0, *more))
    started.when(lambda: _rounds(run) >= 5)
    return started


def _checkpoints(run):
    return [path for path in (run / "checkpoints").glob("round-*") if path.suffix != ".partial"]


@pytest.mark.slow
@pytest.mark.parametrize("victims", [1, 2])
def test_killed_workers_change_nothing(command, documents, tmp_path, undisturbed, victims):
    """Fault: SIGKILL of one worker, of all | from outside, between two events | nothing | bits"""
    run = tmp_path / "run"
    started = command(*_arguments(documents, run, "--workers", 2, "--eval-every", 0))
    started.when(lambda: len(started.workers()) >= 2)
    workers = started.workers()
    # from here to the kill nothing may take long, or the fit ends meanwhile
    started.when(lambda: _rounds(run) >= 5)
    for worker in workers[:victims]:
        worker.send_signal(signal.SIGKILL)
    assert _rounds(run) < PASSES, "killed too late to matter"
    code, _, error = started.end()
    assert code == 0, error
    assert _digest(run) == undisturbed
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [event["round"] for event in events] == list(range(1, PASSES + 1))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_says_how_to_go_on_and_resumes(command, documents, tmp_path, undisturbed, number):
    """Fault: Ctrl-C, SIGTERM | during a fit | one line, exit code 3; a checkpoint | bits"""
    run = tmp_path / "run"
    started = _pool(command, documents, run, "--quiet")
    started.interrupt(number)
    code, out, error = started.end()
    assert (code, error.count("\n")) == (3, 1), error
    assert f"`distls resume {run}` continues" in error
    assert out == ""
    assert not (run / "model").exists()
    done = _rounds(run)
    assert 5 <= done < PASSES
    code, out, error = command("resume", run, "--workers", 2, "--quiet").end()
    assert (code, error) == (0, "")
    assert "MAX_PASSES" in out
    assert _digest(run) == undisturbed
    assert _rounds(run) == PASSES


@pytest.mark.slow
def test_whoever_asks_twice_gets_one_answer(command, documents, tmp_path, undisturbed):
    run = tmp_path / "run"
    started = _pool(command, documents, run, "--quiet")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        started.interrupt(number)
    code, out, error = started.end()
    assert (code, out, error.count("\n")) == (3, "", 1), error
    assert f"`distls resume {run}` continues" in error
    assert 1 <= len(_checkpoints(run)) <= 2  # one more on a machine that takes 30 s
    code, out, error = command("resume", run, "--executor", "serial", "--quiet").end()
    assert (code, error) == (0, "")
    assert _digest(run) == undisturbed


def test_killed_driver_resumes_from_its_last_checkpoint(command, documents, tmp_path, undisturbed):
    """Fault: SIGKILL of the driver | after a checkpoint | a run that `resume` continues | bits"""
    run = tmp_path / "run"
    started = _pool(command, documents, run, "--checkpoint-seconds", 0.05)
    started.when(lambda: _checkpoints(run) != [])
    started.interrupt(signal.SIGKILL)
    started.end()
    assert _checkpoints(run) != []
    (run / "checkpoints" / "round-999999.12345678.partial").mkdir()  # a checkpoint that was being written
    code, _, error = command("resume", run, "--executor", "serial", "--quiet").end()
    assert code == 0, error
    assert _digest(run) == undisturbed


@pytest.mark.slow
def test_driver_killed_before_any_checkpoint_starts_over(command, documents, tmp_path, undisturbed):
    """Fault: SIGKILL of the driver | before any checkpoint | a run that `resume` continues | bits"""
    run = tmp_path / "run"
    started = _pool(command, documents, run, "--checkpoint-seconds", 1e9)
    started.interrupt(signal.SIGKILL)
    started.end()
    assert _checkpoints(run) == []
    code, _, error = command("resume", run, "--workers", 1, "--quiet").end()
    assert code == 0, error
    assert _digest(run) == undisturbed
    assert _rounds(run) == PASSES


@pytest.mark.slow
def test_killed_worker_changes_nothing_of_coordinate_descent(command, documents, tmp_path):
    """It has no scores but those in RUN/state, which follow from the weights."""
    params = {"alpha": 1e-3, "lanes": 4, "tau": 0.0, "active_sweeps": 0}
    passes = 40
    train = shutil.copytree(documents, tmp_path / "train")  # others want the documents without columns
    add_columns(train)
    whole = fit("bcd", train, params=params, passes=passes, eval_every=0).model
    assert whole is not None
    run = tmp_path / "run"
    given = [text for name, value in params.items() for text in ("-p", f"{name}={value}")]
    started = command("fit", "bcd", train, run, *given, "--passes", passes, "--workers", 2, "--eval-every", 0)
    started.when(lambda: len(started.workers()) >= 2)
    workers = started.workers()
    started.when(lambda: _rounds(run) >= 2)
    workers[0].send_signal(signal.SIGKILL)
    assert _rounds(run) < passes, "killed too late to matter"
    code, _, error = started.end()
    assert code == 0, error
    assert _digest(run) == whole.sha256
