"""How results show themselves: in one line, and in a notebook, where every name is text."""

import http.client
import threading
from pathlib import Path

import pytest
from helpers import SECONDS, labelled_rows, refuses, write_dataset

import distls
from distls.planning.fit_plan import plan_fit
from distls.reporting.describe import describe
from distls.reporting.live import LiveReport
from distls.solvers.status import Status
from distls.storage.errors import FormatError
from distls.training.fitting import fit
from distls.training.run_config import RunConfig
from distls.training.run_folder import Run
from distls.training.setting_fit import FitResult

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rows = labelled_rows(300, 30, 3)
    return write_dataset(tmp_path_factory.mktemp("views") / "train", *rows, classes=["a", EVIL, "c"])


def test_a_dataset_is_a_line_and_a_table(data):
    assert repr(data) == f"<Dataset {data.path}: 300 rows x 30 features, 3 classes, 3 partitions>"
    shown = data._repr_html_()
    assert "<script>" not in shown
    assert "a, &lt;script&gt;alert(1)&lt;/script&gt;, c" in shown
    assert data.fingerprint[:16] in shown


def test_a_description_and_the_methods_are_tables_too(data):
    shown = distls.info(data.path)._repr_html_()
    assert "<script>" not in shown
    assert f">{data.fingerprint}</td>" in shown
    assert distls.info(data.path) == describe(data.path, 1000)
    assert ">newton</th>" in distls.list_methods()._repr_html_()


def test_rows_and_a_history_are_tables_too(data):
    assert ">300 x 30, float" in distls.to_arrays(data.path)._repr_html_()
    history = distls.History()
    assert repr(history) == "<History rounds 0>"
    fit("sgd", data.path, params={"loss": "log"}, passes=2, callbacks=[history])
    assert ">running loss</th>" in history._repr_html_()


def test_a_plan_is_a_line_and_a_table(data):
    plan = plan_fit("sgd", data.path, {"loss": "log"}, probe=False)
    assert repr(plan).startswith("<Plan: ")
    assert repr(plan).endswith(f"a pass, {plan.lanes} lanes>")
    assert "memory, driver" in plan._repr_html_()


def test_a_result_is_a_line_and_a_table(data, tmp_path):
    result = fit("sgd", data.path, tmp_path / "run", params={"loss": "log"}, passes=2, eval_data=data.path)
    error = f"{100 * result.record['eval_error']:.2f} %"
    line = repr(result)
    assert line.startswith("<FitResult status MAX_PASSES, passes 2, seconds ")
    assert f"model sgd (softmax), objective {result.record['objective']:.6g}, error {error}, run {tmp_path}" in line
    assert len(line) < 300 + len(str(tmp_path))
    assert f">{error}</td>" in result._repr_html_()


def test_a_notebook_says_what_was_selected_and_proven(data):
    result = fit("newton", data.path, params={"loss": "log", "alpha": "path", "alphas": 2, "folds": 2})
    shown = result._repr_html_()
    assert result.record["notes"]
    chosen = f"alpha={result.selected['alpha']:.6g}"
    assert all(text in shown for text in (chosen, "proven to be at most", *result.record["notes"]))


def test_a_result_without_a_model():
    result = FitResult(Status.DIVERGED, None, None, 1.0, 0.25, {})
    assert repr(result) == "<FitResult status DIVERGED, passes 1, seconds 0.2>"
    numbers = FitResult(Status.CONVERGED, None, Path("r"), 1.0, 0.0, {"eval_mse": 0.5, "eval_error": 0.5})
    assert repr(numbers).endswith("mse 0.5, run r>")


# -- the report that follows a run -----------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    data = write_dataset(tmp_path / "train", *labelled_rows(200, 30, 3))
    config = RunConfig(
        method="sgd", dataset=str(data.path), dataset_fingerprint=data.fingerprint, seed=0, grid=[{"alpha": 0.0}],
    )  # fmt: skip
    return Run.create(tmp_path / "run", config)


@pytest.fixture
def live(run):
    served = LiveReport(run.path)
    thread = threading.Thread(target=served.serve)
    thread.start()
    yield served
    served.stop()
    thread.join(SECONDS)
    served.close()


def _asked(live, path="/", host=None):
    address = live.address.removeprefix("http://").rstrip("/")
    connection = http.client.HTTPConnection(address, timeout=SECONDS)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_only_this_machine_is_answered_and_only_the_page(live):
    assert live.address.startswith("http://127.0.0.1:")
    assert _asked(live)[0] == 200
    assert _asked(live, "/../etc/passwd")[0] == 404
    assert _asked(live, host="attacker.example:80")[0] == 403


@pytest.mark.slow
def test_the_page_follows_the_run(live, run, tmp_path):
    _, page = _asked(live)
    assert '<meta http-equiv="refresh" content="5">' in page
    fit(
        "sgd", tmp_path / "train", tmp_path / "done", params={"loss": "log"}, passes=1, eval_data=tmp_path / "train",
    )  # fmt: skip
    for event in Run.open(tmp_path / "done").events():
        run.append_event(event)
    assert "<h2>Progress</h2>" in _asked(live)[1]
    (run.path / "status.json").write_text("{")
    assert f"<p>{run.path}: status.json cannot be read; remove " in _asked(live)[1]
    (tmp_path / "done" / "model").rename(run.path / "model")
    (run.path / "status.json").write_text((tmp_path / "done" / "status.json").read_text())
    _, page = _asked(live)
    assert 'http-equiv="refresh"' not in page
    assert "<h2>Strongest features</h2>" in page


def test_what_is_no_run_is_refused(tmp_path):
    refuses(FormatError, "no such run", LiveReport, tmp_path / "none")
