"""Regularisation paths: where they start, what each point starts from, what is kept, told and published."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import labelled_rows, raised, refuses, write_dataset

from distls import LineProgress, add_columns, evaluate, fit, resume
from distls.cli.report import plan_lines, result_lines, run_lines
from distls.planning.fit_plan import plan_fit
from distls.reporting.describe import describe
from distls.solvers.events import Callback
from distls.storage.errors import ParameterError
from distls.storage.model.model import load_model, used_rows
from distls.testing.solvers import StopAfter, interrupted
from distls.training import fitting
from distls.training.run_folder import Run
from distls.workers.penalties.penalty_registry import penalty_named, prox_rows
from reference import bcd


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return add_columns(write_dataset(tmp_path_factory.mktemp("data") / "d", *labelled_rows(400, 60, 3)).path)


def _path(dataset, run, **options):
    params = {"alpha": "path", "alphas": 4, **options.pop("params", {})}
    return fit("bcd", dataset, run, params=params, passes=60, **options)


def test_a_path_is_refused_whose_first_alpha_cannot_be_found(dataset, tmp_path):
    params = {"alpha": "path", "penalty": "elasticnet", "fit_intercept": True}
    assert raised(ParameterError, fit, "sdca", dataset, tmp_path / "run", params=params) == (
        "alpha=path: sdca with an intercept does not find the first alpha; list them, as in alphas=1e-2:1e-3:1e-4"
    )
    assert not (tmp_path / "run").exists()
    fit("sdca", dataset, params=params | {"alphas": "1e-2:1e-3"}, passes=1)


@pytest.mark.fast_cases("l1l2$")
@pytest.mark.parametrize("penalty", ["l1l2", "l1", "l1linf", "elasticnet", "sparse-group"])
def test_zero_is_optimal_from_there_on(penalty):
    gradient = np.random.default_rng(3).standard_normal((20, 4))
    alpha = penalty_named(penalty).zero_from(gradient, 0.3)
    assert not prox_rows(penalty, -gradient, alpha * (1 + 1e-9), 0.3).any()
    assert prox_rows(penalty, -gradient, alpha * (1 - 1e-6), 0.3).any()


def test_a_path_goes_down_from_zero_weights(dataset, tmp_path):
    result = _path(dataset, tmp_path / "run")
    children = result.record["children"] if "children" in result.record else _status(tmp_path / "run")["children"]
    alphas = [child["params"]["alpha"] for child in children]
    np.testing.assert_allclose(np.diff(np.log(alphas)), np.log(1e-3) / 3)
    rows = [child["non_zero_rows"] for child in children]
    assert (rows[0], children[0]["passes"]) == (0, 2.0)
    assert rows == sorted(rows)
    assert 0 < rows[1] < rows[-1]
    for number, child in enumerate(children):
        model = load_model(tmp_path / "run" / "children" / f"{number:03d}")
        assert len(used_rows(model.weights)) == child["non_zero_rows"]
        assert model.params["alpha"] == child["params"]["alpha"]
    assert result.model.sha256 == load_model(tmp_path / "run" / "children" / "003").sha256
    assert result.passes == pytest.approx(sum(child["passes"] for child in children))


def _status(run):
    return json.loads((run / "status.json").read_text())


@pytest.mark.slow
def test_each_point_starts_from_the_one_before(dataset, tmp_path):
    _path(dataset, tmp_path / "run")
    children = _status(tmp_path / "run")["children"]
    last = children[-1]["params"]
    assert last["init"] == str((tmp_path / "run" / "children" / "002").resolve())
    again = fit("bcd", dataset, params={**last, "alphas": None}, passes=60)
    assert again.model.sha256 == load_model(tmp_path / "run").sha256
    first = Run.open(tmp_path / "run" / "children" / "003").events()[0]
    before = Run.open(tmp_path / "run" / "children" / "002").events()[0]
    assert first["running_loss"] < before["running_loss"] <= 3.0


def test_alphas_are_given_in_any_order_and_one_is_selected(dataset, tmp_path):
    run = tmp_path / "run"
    result = _path(dataset, run, params={"alphas": "1e-3:1e-1:1e-2"}, select=dataset, eval_data=dataset)
    children = _status(run)["children"]
    assert [child["params"]["alpha"] for child in children] == [1e-1, 1e-2, 1e-3]
    errors = [child["error"] for child in children]
    assert result.selected["alpha"] == [1e-1, 1e-2, 1e-3][int(np.argmin(errors))]
    assert [child["eval_error"] for child in children] == errors
    assert evaluate(run, dataset).error == pytest.approx(min(errors))


@pytest.mark.fast_cases("False")
@pytest.mark.parametrize("select", [False, True])
def test_the_best_on_the_evaluation_data_is_published(dataset, tmp_path, select):
    """Selection data count for more; zero weights are best on the one and others on the other."""
    x, _ = labelled_rows(90, 60, 3)
    first = write_dataset(tmp_path / "first", x, np.zeros(90, np.int32), n_classes=3)
    data = {"eval_data": first, "select": dataset} if select else {"eval_data": first}
    result = _path(dataset, tmp_path / "run", params={"fit_intercept": False}, **data)
    children = _status(tmp_path / "run")["children"]
    errors = [child["error" if select else "eval_error"] for child in children]
    place = int(np.argmin(errors))
    assert (place > 0) == select
    assert result.selected["alpha"] == children[place]["params"]["alpha"]
    best = load_model(tmp_path / "run" / "children" / f"{place:03d}")
    assert result.model.sha256 == best.sha256
    on = "selection" if select else "evaluation"
    assert f"{100 * errors[place]:.2f} % on the {on} data" in "\n".join(result_lines(result))


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["softmax", "squared_hinge"])
def test_the_first_alpha_is_judged_at_the_best_intercept(tmp_path, loss):
    x = np.random.default_rng(0).standard_normal((400, 6)) + 0.5
    y = np.repeat(np.arange(3, dtype=np.int32), [320, 60, 20])
    dataset = add_columns(write_dataset(tmp_path / "d", x, y).path)
    _path(dataset, tmp_path / "run", params={"fit_intercept": True, "loss": loss})
    children = _status(tmp_path / "run")["children"]
    full = {"squared_hinge": "multiclass_squared_hinge"}.get(loss, loss)
    p = bcd.Problem(x, y, 3, loss=full)
    slopes = bcd.rows_of(p, np.tile(bcd.best_intercept(p, np.zeros((400, 3))), (400, 1)))[1]
    largest = np.linalg.norm(x.T @ slopes / 400, axis=1).max()
    assert children[0]["params"]["alpha"] == pytest.approx((1 + 1e-6) * largest, rel=1e-7)
    assert children[0]["non_zero_rows"] == 0
    assert not (tmp_path / "run" / "state").exists()


def test_progress_names_the_alpha(dataset, tmp_path):
    lines, starts = io.StringIO(), []

    class Starts(Callback):
        def on_start(self, start):
            starts.append(start.what)

    _path(dataset, tmp_path / "run", params={"alphas": "0.1:0.03"}, callbacks=[Starts(), LineProgress(lines)])
    assert starts == ["alpha=0.1 (1 of 2)", "alpha=0.03 (2 of 2)"]
    told = [line for line in lines.getvalue().splitlines() if line.startswith("bcd ")]
    assert [line.split(":")[0] for line in told] == [f"bcd (multiclass_squared_hinge), {start}" for start in starts]


def test_a_path_is_planned_as_one(dataset):
    path = plan_fit("bcd", dataset.path, {"alpha": "path", "alphas": 4}, probe=False)
    one = plan_fit("bcd", dataset.path, {"alpha": 1e-2}, probe=False)
    listed = plan_fit("bcd", dataset.path, {"alpha": "path", "alphas": "1:0.1"}, passes=7, probe=False)
    default = plan_fit("bcd", dataset.path, {"alpha": "path"}, probe=False)
    assert [(each.fits, each.passes) for each in (path, one, listed, default)] == [
        (4, 200.0), (1, 200.0), (2, 7.0), (10, 200.0)
    ]  # fmt: skip
    lines = plan_lines(replace(path, seconds_per_pass=0.5))
    assert "passes             200 at most for each of 4 fits" in lines
    assert lines[-1].endswith(", 400.0 s in all, start, compilation and certificates apart")


def test_a_path_without_a_run_needs_room_for_its_models_alone(dataset, monkeypatch):
    """Checkpoints and numbers of rows are those of one fit at a time: few bytes are in memory, not on a disk."""
    asked, place = [], fitting.temporary_place

    def noted(prefix, n_bytes, **given):
        asked.append(n_bytes)
        return place(prefix, n_bytes, **given)

    monkeypatch.setattr(fitting, "temporary_place", noted)
    model = fit("bcd", dataset, params={"alpha": 1e-2}, passes=1).model
    fit("bcd", dataset, params={"alpha": "path", "alphas": "1e-1:1e-2:1e-3"}, passes=1)
    one, path = asked
    assert 0 < path - one <= 3 * 8 * model.weights.size


@pytest.mark.slow
def test_an_interrupted_path_is_resumed(dataset, tmp_path):
    whole = _path(dataset, tmp_path / "whole")
    with interrupted():
        _path(dataset, tmp_path / "run", callbacks=[StopAfter(4)])
    assert resume(tmp_path / "run").model.sha256 == whole.model.sha256
    assert _status(tmp_path / "run")["children"][-1]["non_zero_rows"] == len(used_rows(whole.model.weights))


@pytest.mark.fast_cases("config")
@pytest.mark.parametrize("torn", ["config.json", "status.json", "model/bundle.json", "model/weights.npy"])
def test_a_child_that_a_failure_of_power_has_torn_is_trained_again(dataset, tmp_path, torn):
    """Children are synced all at once: of the newest the system may have kept a name without its content."""
    whole = _path(dataset, tmp_path / "whole")
    with interrupted():
        _path(dataset, tmp_path / "run", callbacks=[StopAfter(4)])
    children = tmp_path / "run" / "children"
    files = [path for path in children.rglob("*") if str(path).endswith(torn)]
    files[-1].write_bytes(b"")
    assert resume(tmp_path / "run").model.sha256 == whole.model.sha256
    assert len(Run.open(tmp_path / "run").status["children"]) == len(list(children.iterdir())) == 4


def test_report_and_info_tell_of_sparse_models(dataset, tmp_path):
    _path(dataset, tmp_path / "run", eval_data=dataset)
    lines = run_lines(tmp_path / "run")
    table = lines.index(next(line for line in lines if "non-zero rows" in line and "alpha" in line))
    children = _status(tmp_path / "run")["children"]
    for line, child in zip(lines[table + 1 :], children, strict=False):
        assert f"{child['non_zero_rows']:,}" in line
        assert f"{100 * (1 - child['eval_error']):.2f}" in line
    plot = [line for line in lines if "####" in line]
    assert len(plot) == 4
    described = describe(tmp_path / "run")
    model = load_model(tmp_path / "run")
    assert described["non_zero_rows"] == children[-1]["non_zero_rows"]
    column, weight = described["top_features"][str(model.classes[0])][0]
    assert weight == model.weights[:, 0].max() == model.weights[column, 0]
    assert Run.open(tmp_path / "run").config.grid[0]["alpha"] == "path"


@pytest.mark.slow
def test_several_paths_are_fitted_each_from_its_own_start(dataset, tmp_path):
    params = {"penalty": ["l1", "l1l2"], "alphas": 3}
    result = _path(dataset, tmp_path / "run", params=params, select=dataset)
    children = json.loads((tmp_path / "run" / "status.json").read_text())["children"]
    assert [child["params"]["penalty"] for child in children] == ["l1"] * 3 + ["l1l2"] * 3
    folder = tmp_path / "run" / "children"
    started = [None, folder / "000", folder / "001", None, folder / "003", folder / "004"]
    assert [child["params"]["init"] for child in children] == [str(run) if run else None for run in started]
    for penalty, own in (("l1", children[:3]), ("l1l2", children[3:])):
        alone = _path(dataset, tmp_path / penalty, params={"penalty": penalty, "alphas": 3}, select=dataset)
        assert alone.selected is not None
        points = json.loads((tmp_path / penalty / "status.json").read_text())["children"]
        assert [child["error"] for child in own] == [child["error"] for child in points]
    errors = [child["error"] for child in children]
    assert result.selected == children[int(np.argmin(errors))]["params"]


@pytest.mark.slow
def test_the_alphas_of_l2_follow_the_rows(dataset, tmp_path):
    _path(dataset, tmp_path / "run", params={"penalty": "l2"}, select=dataset)
    children = json.loads((tmp_path / "run" / "status.json").read_text())["children"]
    expected = dataset.meta.mean_square_norm * np.geomspace(1e-2, 1e-6, 4)
    np.testing.assert_allclose([child["params"]["alpha"] for child in children], expected)


REFUSED = [
    (
        {"alpha": ["path", 1e-3], "alphas": None},
        "alpha=path cannot be combined with other alphas; list those as alphas=1e-2:1e-3",
    ),
    ({"alpha": 1e-3}, "alphas=4: of alpha=path only; leave it out"),
    ({"alphas": 1}, "alphas=1: expected a whole number of at least 2"),
    ({"alphas": "1:0"}, "alphas=1:0: expected numbers greater than 0 separated by colons"),
]


@pytest.mark.fast_cases("params0", "params3")
@pytest.mark.parametrize(("params", "message"), REFUSED)
def test_paths_that_make_no_sense_are_refused(dataset, tmp_path, params, message):
    refuses(ParameterError, message, _path, dataset, tmp_path / "run", params=params, select=dataset)
