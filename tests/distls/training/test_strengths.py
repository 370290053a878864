"""Several strengths at one read: the bits of each alone, what is read, planned, told and published."""

import io
import json
import signal
import subprocess
import sys

import numpy as np
import pytest
from helpers import labelled_rows, refuses, stored_rows, write_dataset

from distls import LineProgress, fit, resume
from distls.cli.report import plan_lines, run_lines
from distls.execution.memory_budget import MIB, MemoryBudget
from distls.execution.serial import SerialExecutor
from distls.methods.method_registry import method_named
from distls.planning.fit_plan import plan_fit
from distls.storage.errors import ParameterError
from distls.storage.model.model import load_model
from distls.testing.solvers import StopAfter, interrupted, opened
from distls.training.child_runs import budget_of, fits_at_once
from distls.training.configuration import Setting
from distls.training.run_folder import Run

_ALPHAS = "1e-2:1e-3:1e-4"
_METHODS = [
    ("sgd", {}),
    ("sgd", {"loss": "softmax", "schedule": "sqrt", "fit_intercept": True}),
    ("asgd", {"loss": "ovr_log"}),
    ("mcid", {}),
    ("mcid", {"loss": "crammer_singer", "lanes": 1, "average": "none"}),
    ("ovr-pegasos", {}),
    ("svmsgd2", {}),
    ("sgdqn", {}),
    ("csgd", {}),
    ("rls", {}),
    ("olbfgs", {"lanes": 1}),
    ("fobos", {"penalty": "l1"}),
]


dataset = stored_rows(300, 30, 3, partition_rows=40)


held_out = stored_rows(80, 30, 3, seed=5)


def _path(method, data, run, params, **options):
    params = {"alpha": "path", "alphas": _ALPHAS, **params}
    return fit(method, data, run, params=params, **{"passes": 3, **options})


def _child(run, number):
    return run / "children" / f"{number:03d}"


def _same(one, other):
    assert np.array_equal(one.weights, other.weights)
    assert np.array_equal(one.intercept, other.intercept)


@pytest.mark.fast_cases(r"sgd-\{\}")
@pytest.mark.parametrize(("method", "params"), _METHODS, ids=lambda each: str(each).replace("'", ""))
def test_every_model_has_the_bits_of_a_fit_alone(dataset, held_out, tmp_path, method, params):
    run = tmp_path / "run"
    result = _path(method, dataset, run, params, select=held_out)
    for number, alpha in enumerate(_ALPHAS.split(":")):
        alone = fit(method, dataset, params={**params, "alpha": alpha}, passes=3)
        _same(load_model(_child(run, number)), alone.model)
        record = Run.open(_child(run, number)).status
        assert record["objective"] == alone.record["objective"]
        assert record["weights_sha256"] == alone.record["weights_sha256"]
    errors = [child["error"] for child in Run.open(run).status["children"]]
    assert result.selected["alpha"] == float(_ALPHAS.split(":")[int(np.argmin(errors))])
    assert result.record["select_error"] == min(errors)


class _Reads(SerialExecutor):
    """Counts the calls that read the data."""

    def __init__(self):
        super().__init__()
        self.names: list[str] = []

    def reduce(self, function, items, **options):
        self.names.append(type(function).__name__)
        return super().reduce(function, items, **options)


def test_all_strengths_share_each_read(dataset, held_out):
    executor = _Reads()
    _path("sgd", dataset, None, {}, select=held_out, executor=executor)
    # three passes, the objective, the rows that select
    assert executor.names == ["ReadTogether"] * 5


@pytest.mark.slow
def test_settings_of_select_share_each_read_too(dataset, held_out, tmp_path):
    executor, run = _Reads(), tmp_path / "run"
    grid = {"alpha": ["1e-3", "1e-4"], "loss": ["softmax", "crammer_singer"]}
    fit("sgd", dataset, run, params=grid, passes=2, select=held_out, executor=executor)
    assert executor.names == ["ReadTogether"] * 4
    for number, setting in enumerate(Run.open(run).config.grid):
        alone = fit("sgd", dataset, params=setting, passes=2)
        _same(load_model(_child(run, number)), alone.model)


def test_cross_validation_trains_every_fold_side_by_side(dataset, tmp_path):
    executor, run = _Reads(), tmp_path / "run"
    result = _path("sgd", dataset, run, {"folds": 3}, executor=executor, eval_every=0)
    # what the folds weigh; three passes and the folds' own rows, each at one read; the fit to all rows
    assert [executor.names.count("ReadTogether"), len(executor.names)] == [4, 8]
    path = result.record["details"]["path"]
    assert [line["alpha"] for line in path] == [1e-2, 1e-3, 1e-4]
    best = min(path, key=lambda line: line["cv_error"])["alpha"]
    alone = fit("sgd", dataset, params={"alpha": best}, passes=3)
    _same(result.model, alone.model)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 2, 4, 7])
def test_an_interrupted_path_resumes_with_the_same_bits(dataset, held_out, tmp_path, rounds):
    whole = _path("mcid", dataset, tmp_path / "whole", {}, select=held_out)
    run = tmp_path / "run"
    with interrupted():
        _path("mcid", dataset, run, {}, select=held_out, callbacks=[StopAfter(rounds)])
    status = Run.open(run).status
    assert status["status"] == "INTERRUPTED"
    assert not (run / "model").exists()
    resumed = resume(run)
    assert resumed.selected == whole.selected
    for number in range(3):
        _same(load_model(_child(run, number)), load_model(_child(tmp_path / "whole", number)))


@pytest.mark.slow
def test_fits_that_resume_apart_meet_again(dataset, held_out, tmp_path):
    run = tmp_path / "run"
    with interrupted():
        _path("sgd", dataset, run, {}, select=held_out, callbacks=[StopAfter(3)])
    passes = [Run.open(_child(run, number)).status["passes"] for number in range(3)]
    assert passes == [1.0, 1.0, 0.0]  # the third one's first round was not counted
    executor = _Reads()
    resume(run, executor=executor)
    # the one behind alone, then two passes of all; objective and selection
    assert executor.names == ["TrainTask", *["ReadTogether"] * 4]


class _Broken(SerialExecutor):
    def reduce(self, function, items, **options):
        raise OSError("the disk is gone")


def test_an_error_ends_all(dataset, held_out, tmp_path):
    with pytest.raises(Exception, match="the disk is gone"):
        _path("sgd", dataset, tmp_path / "run", {}, select=held_out, executor=_Broken())


def test_progress_names_the_strength(dataset, held_out):
    told = io.StringIO()
    _path("sgd", dataset, None, {}, select=held_out, callbacks=[LineProgress(told)])
    lines = told.getvalue().splitlines()
    assert [line.partition(":")[0] for line in lines[:3]] == [
        f"sgd (softmax), alpha={alpha} ({number} of 3)"
        for number, alpha in enumerate(("0.01", "0.001", "0.0001"), start=1)
    ]
    assert sum(line.startswith("alpha=0.001 (2 of 3): round ") for line in lines) == 3


@pytest.mark.slow
def test_seconds_are_shared_out(dataset, held_out, tmp_path):
    result = _path("sgd", dataset, tmp_path / "run", {}, select=held_out)
    children = [Run.open(_child(tmp_path / "run", number)).status for number in range(3)]
    # those of the children, and of what the parent does: its alphas, its model
    assert 0.0 < sum(child["seconds"] for child in children) <= result.seconds
    spent, parts = Run.open(tmp_path / "run").status, ("startup_seconds", "train_seconds", "eval_seconds")
    assert all(spent[part] == pytest.approx(sum(child[part] for child in children)) for part in parts)
    events = [json.loads(line) for line in (_child(tmp_path / "run", 1) / "events.jsonl").read_text().splitlines()]
    # the first fit has the bytes that all share
    assert all(event["bytes_read"] + event["cached_bytes"] == 0 for event in events)


@pytest.mark.fast_cases("None")
@pytest.mark.parametrize(("limit", "at_once"), [(None, 10), (400, 5), (300, 2)])
def test_the_plan_counts_the_memory_of_all(tmp_path, limit, at_once):
    data = write_dataset(tmp_path / "train", *labelled_rows(60, 50_000, 5))
    budget = MemoryBudget(None if limit is None else limit * MIB)
    alone = Setting.of(method_named("sgd"), {"alpha": 1e-3}, data, 0)
    one = alone.solver(slots=1, memory=budget).plan.worker_parts["weights"]
    found = fits_at_once([alone] * 10, 1, budget)
    assert found == at_once
    several = alone.solver(slots=1, memory=budget_of(budget, 1, found)).plan
    assert several.worker_parts["weights"] == found * one
    assert several.side_by_side == found


def test_plan_says_how_many_share_a_read(dataset):
    plan = plan_fit("sgd", dataset.path, {"alpha": "path", "alphas": 4})
    assert (plan.fits, plan.side_by_side, plan.times_read) == (4, 4, 1)
    text = "\n".join(plan_lines(plan))
    assert "for each of 4 fits, 4 at each read" in text
    seconds = plan.overhead_seconds + plan.passes * plan.seconds_per_pass
    assert f", {seconds:.1f} s in all, certificates apart" in text


def test_the_report_lists_the_strengths(dataset, held_out, tmp_path):
    _path("sgd", dataset, tmp_path / "run", {}, select=held_out)
    told = "\n".join(run_lines(tmp_path / "run"))
    for alpha in ("0.01", "0.001", "0.0001"):
        assert f"  loss=softmax, alpha={alpha}: error " in told


@pytest.mark.parametrize("params", [{"alphas": 3}, {"folds": 3}])
def test_parameters_of_a_path_need_one(dataset, params):
    refuses(ParameterError, "of alpha=path only; leave it out", fit, "sgd", dataset, params=params)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["two processes", "three threads"])
def test_the_same_bits_on_a_cluster(dataset, held_out, tmp_path, cluster):
    for name, executor in (("here", None), ("there", opened(cluster))):
        _path("sgdqn", dataset, tmp_path / name, {}, select=held_out, executor=executor)
    for number in range(3):
        _same(load_model(_child(tmp_path / "here", number)), load_model(_child(tmp_path / "there", number)))


_KILLED = """
import os, signal, sys
from distls.solvers.events import Callback
from distls.training.fitting import fit

class Killer(Callback):
    left = 5
    def on_round(self, event):
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)

params = {"alpha": "path", "alphas": sys.argv[4]}
fit("mcid", sys.argv[1], sys.argv[2], params=params, passes=3, select=sys.argv[3], checkpoint_seconds=0,
    callbacks=[Killer()])
"""


@pytest.mark.slow
def test_a_killed_path_resumes_with_the_same_bits(dataset, held_out, tmp_path):
    run, words = tmp_path / "run", (dataset.path, tmp_path / "run", held_out.path, _ALPHAS)
    ended = subprocess.run([sys.executable, "-c", _KILLED, *map(str, words)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert any((_child(run, 0) / "checkpoints").iterdir())
    resume(run)
    whole = _path("mcid", dataset, tmp_path / "whole", {}, select=held_out)
    assert Run.open(run).status["selected"] == whole.selected
    for number in range(3):
        _same(load_model(_child(run, number)), load_model(_child(tmp_path / "whole", number)))
