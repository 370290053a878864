"""What people read: data sets, plans, evaluations, runs."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import distls as command
from helpers import raised, stored_rows

import distls.cli.report
from distls.cli.data import dataset_line
from distls.cli.evaluation_text import evaluation_lines
from distls.cli.report import limit_lines, plan_lines, result_lines, run_lines
from distls.evaluation.metrics import Evaluation
from distls.memory_plan import Plan
from distls.reporting.describe import describe
from distls.reporting.run_page import render_report
from distls.reporting.run_report import report as report_of
from distls.solvers.status import Status
from distls.storage.errors import FormatError
from distls.training.fitting import fit
from distls.training.run_folder import Run
from distls.training.setting_fit import FitResult


@pytest.mark.parametrize(
    ("layout", "options", "text"),
    [
        ("csr", {}, "16 rows x 37 features, {nnz:.1f} non-zeros a row, 3 classes, 3 partitions, {stored} stored"),
        ("dense", {}, "16 rows x 37 features, 3 classes, 3 partitions, {stored} stored"),
        ("dense", {"target": "none"}, "16 rows x 37 features, no labels, 3 partitions, {stored} stored"),
        ("dense", {"target": "continuous"}, "16 rows x 37 features, continuous, 3 partitions, {stored} stored"),
    ],
)  # fmt: skip
def test_a_dataset_on_one_line(small_csr, small_dense, layout, options, text):
    data = (small_csr if layout == "csr" else small_dense)(**options).dataset
    stored = int(data.stored_bytes.sum())
    size = f"{stored} B" if stored < 1024 else f"{stored / 1024:.0f} KiB"
    assert dataset_line(data) == f"{data.path}: " + text.format(nnz=data.meta.nnz / 16, stored=size)


PLAN = Plan(
    worker_bytes=300 * 2**20, worker_parts={"base": 200 * 2**20, "sample": 0, "cache": 100 * 2**20},
    worker_limit=2**30, cache_bytes=95 * 2**20, cached_fraction=0.5, driver_bytes=250 * 2**20,
    bytes_per_pass=190 * 2**20, passes=4.0, rounds_per_pass=2, lanes=8, network_bytes_per_round=2048,
    seconds_per_pass=1.5,
)  # fmt: skip


def test_lines_of_a_plan():
    assert plan_lines(PLAN) == [
        "memory a worker    300 MiB of 1.0 GiB: base 200 MiB, cache 100 MiB",
        "memory, driver     250 MiB",
        "cached             50 % of the data in the workers' memory",
        "bytes a pass       190 MiB, in 2 rounds of 8 lanes",
        "network a round    2 KiB",
        "passes             4 at most",
        "seconds a pass     1.50 from the store (probe of one partition), 6.0 s in all, "
        "start, compilation and certificates apart",
    ]
    probed = plan_lines(replace(PLAN, overhead_seconds=2.25))
    assert probed[-2].endswith(", 8.2 s in all, certificates apart")
    assert probed[-1] == "start, compile     2.2 s"
    bare = plan_lines(Plan(**{**PLAN.to_json(), "passes": None, "seconds_per_pass": None}))
    assert bare == plan_lines(PLAN)[:5]


def test_lines_of_an_evaluation():
    pairs = np.array([[0, 0, 3], [0, 1, 1], [2, 1, 2]], dtype=np.int64)
    made = Evaluation(6, 0.5, 0.25, 2, ["a", "b", "new"], ["a", "b"], pairs)
    assert evaluation_lines(made) == [
        "6 rows, error 50.00 %, log loss 0.2500",
        "2 rows have labels the model does not know, counted as errors",
        "       class      rows   recall  precision       F1",
        "           a         4   75.0 %    100.0 %   0.8571",
        "           b         0        -      0.0 %   0.0000",
        "         new         2    0.0 %          -   0.0000",
    ]


def test_of_many_classes_the_worst_are_shown():
    pairs = np.array([[i, i if i % 2 else 0, 1 + i] for i in range(23)], dtype=np.int64)
    made = Evaluation(276, 0.5, None, 0, list(range(23)), list(range(23)), pairs)
    lines = evaluation_lines(made)
    assert lines[:2] == ["276 rows, error 50.00 %", "the 10 of 23 classes with the lowest F1; --all shows them all"]
    # of equal F1 those with the most rows first
    assert [line.split()[0] for line in lines[3:]] == [
        "22", "20", "18", "16", "14", "12", "10", "8", "6", "4",
    ]  # fmt: skip
    every = evaluation_lines(made, every=True)
    assert [line.split()[0] for line in every[2:]] == [str(i) for i in range(23)]


def test_lines_of_a_result(monkeypatch):
    record = {
        "objective": 0.5, "certificate": {"kind": "duality_gap", "value": 0.01}, "eval_error": 0.25,
        "select_error": 0.125, "averaging": {"loss_before": 1.0, "loss_after": 0.5, "penalty": -0.5, "spread": 0.1},
        "start_seconds": 5.0, "train_seconds": 2.0,
    }  # fmt: skip
    monkeypatch.setattr(distls.cli.report, "time", SimpleNamespace(perf_counter=lambda: 103.0))
    result = FitResult(
        Status.CONVERGED, None, Path("RUN"), 2.5, 8.25, record, {"alpha": 0.1, "lanes": None}, made=100.0
    )  # three seconds ago
    assert result_lines(result) == [
        "CONVERGED: 2.5 passes, 11.2 s: start 5.0, train 2.0, write 4.2",
        "selected alpha=0.1, error 12.50 % on the selection data",
        "objective 0.500000, proven to be at most 2 % (1.00e-02) above the lowest possible (duality_gap)",
        "eval error 25.00 %",
        "averaging lanes: loss on a fixed sample 1.00000 before, 0.50000 after; relative spread 0.100",
        "model in RUN",
    ]
    record["certificate"] = {"kind": "gradient_norm", "value": 0.01}
    assert result_lines(result)[2] == "objective 0.500000, gradient norm 1.0e-02 (no guarantee)"
    record["certificate"] = {"kind": "none", "value": None}
    assert result_lines(result)[2] == "objective 0.500000"
    assert result_lines(FitResult(Status.MAX_PASSES, None, None, 1.0, 0.0, {}, made=103.0)) == [
        "MAX_PASSES: 1 pass, 0.0 s of training"
    ]


data = stored_rows(300, 30, 3)


def test_the_story_of_a_run(data, tmp_path):
    fit("mcid", data, tmp_path / "run", params={"alpha": 1e-2}, passes=3, eval_data=data, eval_every=2)
    lines = run_lines(tmp_path / "run")
    assert lines[0] == f"mcid on {data.path.resolve()}, seed 0"
    assert lines[1].startswith("loss=softmax, alpha=0.01, batch_size=1, ")
    table = lines[3:7]
    assert table[0].split() == [
        "round", "passes", "seconds", "loss", "error", "%", "eval", "%", "objective", "read",
    ]  # fmt: skip
    assert {len(line) for line in table} == {len(table[0])}, "columns stand under each other"
    assert [row.split()[0] for row in table[1:]] == ["1", "2", "3"]
    assert [row.split()[5] == "-" for row in table[1:]] == [True, False, False]
    event = Run.open(tmp_path / "run").events()[2]
    assert table[3].split()[4:7] == [
        f"{100 * event['running_error']:.2f}", f"{100 * event['eval_error']:.2f}", f"{event['objective']:.6f}"
    ]  # fmt: skip
    assert lines[8].startswith("read ")
    assert any(line.startswith("peak memory of worker ") for line in lines)
    lines = [line for line in lines if not line.startswith("note: a bound")]
    assert lines[-2].startswith("status MAX_PASSES after 3 passes, ")
    assert lines[-1].startswith("objective ")


def test_the_story_of_a_selection(data, tmp_path):
    fit("mcid", data, tmp_path / "run", params={"alpha": [1e-2, 1e-3]}, passes=1, select=data)
    lines = run_lines(tmp_path / "run")
    assert [line.split(": ")[0] for line in lines[1:3]] == [f"  loss=softmax, alpha={a}" for a in (0.01, 0.001)]
    assert all(line.endswith(" % (MAX_PASSES)") for line in lines[1:3])
    run = Run.open(tmp_path / "run")
    status = run.status
    status["children"][0] |= {"error": None, "status": "DIVERGED"}
    run.write_status(status)
    assert run_lines(tmp_path / "run")[1] == "  loss=softmax, alpha=0.01: diverged (DIVERGED)"


def test_the_story_of_a_run_that_has_only_begun(data, tmp_path):
    fit("mcid", data, tmp_path / "run", passes=1)
    config = Run.open(tmp_path / "run").config
    begun = Run.create(tmp_path / "begun", config)
    with begun.held():
        assert run_lines(begun.path)[-1] == "status RUNNING after 0 passes, 0.0 s of training"
    # as after a full disk
    assert run_lines(begun.path)[-1] == (
        "stopped after 0 passes, 0.0 s of training: no process is at work on it; "
        f"`distls resume {begun.path}` continues"
    )
    described = describe(begun.path)
    assert (described["status"], described["objective"], described["weights_sha256"]) == ("RUNNING", None, None)
    assert described["certificate"] == {"kind": "none", "value": None}


def test_a_diverged_round_is_shown(data, tmp_path):
    fit("mcid", data, tmp_path / "run", passes=1)
    run = Run.open(tmp_path / "run")
    event = run.events()[0]
    run.append_event({**event, "round": 2, "running_loss": None, "objective": None})
    row = run_lines(tmp_path / "run")[5].split()
    assert (row[0], row[3]) == ("2", "-")


@pytest.mark.slow
def test_settings_that_diverged_in_their_folds_leave_a_run(data, tmp_path):
    """They have no error, and JSON has no word for infinity; so have lanes that diverged."""
    path = {"alpha": "path", "alphas": "0.1:0.01", "folds": 2}
    for eta0, end in (([1e30, 0.01], "MAX_PASSES"), (1e30, "DIVERGED")):
        run = tmp_path / end
        fit("sgd", data, run, params={"loss": "squared", **path, "eta0": eta0}, passes=1)
        assert any(end in line for line in run_lines(run))
    kept = Run.open(tmp_path / "MAX_PASSES").status["details"]["path"]
    assert [line["cv_error"] is None for line in kept] == [True, True, False, False]
    fit("adaline", data, tmp_path / "lanes", params={"eta0": 1e30, "lanes": 2}, passes=2)
    assert any("loss on a fixed sample nan" in line for line in run_lines(tmp_path / "lanes"))


def test_what_is_nothing_of_ours(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "zarr.json").write_text('{"attributes": {}}')
    for path, why in (
        ("none", "no such data set, run or model"),
        ("folder", "not a data set, run or model of distls"),
        ("zarr.json", "not a data set, run or model of distls"),
        (".", "not a data set, run or model of distls"),
    ):
        assert raised(FormatError, describe, tmp_path / path) == f"{tmp_path / path}: {why}"


def test_a_bound_that_says_nothing_is_called_so(data, tmp_path):
    fit("mcid", data, tmp_path / "run", params={"alpha": 1e-2}, passes=1)
    run = Run.open(tmp_path / "run")
    bound = {"kind": "strong_convexity", "value": 0.6}
    run.write_status({**run.status, "objective": 1.0, "certificate": bound})
    objective, note = run_lines(tmp_path / "run")[-2:]
    assert objective == "objective 1.000000, how far above the lowest possible is not known"
    assert note == (
        "note: no useful bound on the optimum was found; `distls fit sdca "
        f"{data.path.resolve()} RUN2 -p init={tmp_path / 'run'} -p loss=softmax -p alpha=0.01` gives a real one"
    )
    run.write_status({**run.status, "certificate": {**bound, "value": 0.2}})
    assert run_lines(tmp_path / "run")[-1].startswith("objective 1.000000, proven to be at most 20 % (2.00e-01)")


@pytest.mark.fast_cases("mcid")
@pytest.mark.parametrize(
    ("method", "loss"),
    [("mcid", "crammer_singer"), ("ovr-pegasos", "ovr_hinge"), ("sgd", "crammer_singer"), ("sgdqn", "ovr_hinge")],
)
def test_what_gives_a_real_bound_solves_the_same_problem(data, tmp_path, method, loss):
    params = {"alpha": 1e-2, "loss": loss, "class_weight": "balanced"}
    fit(method, data, tmp_path / "run", params=params, passes=1)
    run = Run.open(tmp_path / "run")
    run.write_status({**run.status, "objective": 1.0, "certificate": {"kind": "duality_gap", "value": 3.0}})
    note = run_lines(tmp_path / "run")[-1]
    assert note.startswith("note: no useful bound on the optimum was found; `distls fit sdca ")
    assert f"-p init={tmp_path / 'run'} -p loss={loss} -p alpha=0.01 " in note
    assert note.endswith("-p class_weight=balanced` gives a real one")


def test_of_many_rounds_the_first_some_and_the_last_are_text(data, tmp_path):
    fit("sgd", data, tmp_path / "r", passes=30)
    lines = run_lines(tmp_path / "r")
    start = next(k for k, line in enumerate(lines) if line.lstrip().startswith("round"))
    events = Run.open(tmp_path / "r").events()
    shown = [int(line.split()[0]) for line in lines[start + 1 : start + 21]]
    numbers = [event["round"] for event in events]
    assert len(numbers) > 25
    assert shown[:5] == numbers[:5]
    assert shown[-1] == numbers[-1]
    assert sorted(set(shown)) == shown
    gaps = np.diff(shown[4:])
    assert gaps.max() - gaps.min() <= 1
    left_out = len(numbers) - 20
    assert lines[start + 21] == f"{left_out} rounds of {len(numbers)} are left out; --json has all"


def test_parameters_have_six_digits_and_the_files_all(data, tmp_path):
    alpha = 1.0000000000625093e-06
    fit("sgd", data, tmp_path / "r", passes=1, params={"alpha": alpha})
    text = "\n".join(run_lines(tmp_path / "r"))
    assert "alpha=1e-06," in text
    assert str(alpha) not in text
    page = str(render_report(report_of(tmp_path / "r")))
    assert "\nalpha=1e-06" in page
    # the command repeats the run, to the bit
    assert f"-p alpha={alpha}" in page
    assert describe(tmp_path / "r")["params"]["alpha"] == alpha


def test_what_to_do_about_a_limit_of_passes(data, tmp_path):
    result = fit("sdca", data, tmp_path / "run", passes=2, rtol=1e-9)
    advice = f"`distls resume {tmp_path / 'run'} --passes 4` goes on, or take newton, which needs fewer"
    assert f"note: the limit of 2 passes came before the tolerance: {advice}" in result_lines(result)
    # a fit that was to do just these passes has done them
    free = fit("sgd", data, tmp_path / "free", passes=2)
    assert not limit_lines(free)


def test_every_method_says_what_to_do_about_its_own_limit(data, tmp_path):
    usual = fit("sgd", data, tmp_path / "sgd", params={"loss": "log", "alpha": 1e-3})
    longer = f"`distls resume {tmp_path / 'sgd'} --passes 20` goes on"
    assert limit_lines(usual) == [
        f"note: ended by its 10 passes, as sgd does: {longer}, or take newton, which proves the optimum"
    ]
    record = {**usual.record, "certificate": {"kind": "duality_gap", "value": 1e-9}}
    assert not limit_lines(replace(usual, record=record)), "nothing is to be gained"
    rounds = fit("mcid", data, tmp_path / "steps", params={"loss": "log", "steps": 9})
    assert limit_lines(rounds) == ["note: ended by steps=9: fit again with more to go on"]


def test_a_fit_that_has_ended_says_that_nothing_is_to_be_done(data, tmp_path):
    fit("sgd", data, tmp_path / "run", passes=2)
    ended = command("resume", tmp_path / "run", "--executor", "serial")
    assert ended.code == 0, ended
    assert f"{tmp_path / 'run'} has ended: nothing is to be done; --passes N trains on" in ended.err
    longer = command("resume", tmp_path / "run", "--executor", "serial", "--passes", "3")
    assert "nothing is to be done" not in longer.err
    # what ended by itself is refused more passes
    fit("gls", data, tmp_path / "solved", params={"link": "identity"})
    ended = command("resume", tmp_path / "solved", "--executor", "serial")
    assert f"{tmp_path / 'solved'} has ended: nothing is to be done\n" in ended.err
