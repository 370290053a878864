"""How results show themselves: in one line, and in a notebook, where every name is text."""

from pathlib import Path

import pytest
from helpers import labelled_rows, write_dataset

import distls
from distls.planning.fit_plan import plan_fit
from distls.reporting.describe import describe
from distls.solvers.status import Status
from distls.training.fitting import fit
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
    assert (
        f"model sgd (softmax), objective {result.record['objective']:.6g}, error {error}, run {tmp_path}"
        in line
    )
    assert len(line) < 300 + len(str(tmp_path))
    assert f">{error}</td>" in result._repr_html_()


def test_a_result_without_a_model():
    result = FitResult(Status.DIVERGED, None, None, 1.0, 0.25, {})
    assert repr(result) == "<FitResult status DIVERGED, passes 1, seconds 0.2>"
    numbers = FitResult(Status.CONVERGED, None, Path("r"), 1.0, 0.0, {"eval_mse": 0.5, "eval_error": 0.5})
    assert repr(numbers).endswith("mse 0.5, run r>")
