"""The last fit of a selection, to training and held-out rows: its bits, what is told, resume, refusals."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import labelled_rows, write_dataset

from distls.cli.report import run_lines
from distls.execution.serial import SerialExecutor
from distls.reporting.run_report import fit_command, read_run
from distls.storage.errors import MismatchError, ParameterError
from distls.testing.solvers import StopAfter, interrupted
from distls.training.fitting import fit, resume

_CASES = [
    ("sgd", {"alpha": [1e-2, 1e-4]}),
    ("mcid", {"alpha": [1e-1, 1e-4]}),
    ("sdca", {"alpha": "path", "alphas": "1e-1:1e-2:1e-3"}),
]


def _rows():
    x, y = labelled_rows(240, 30, 3)
    other, labels = labelled_rows(80, 30, 3, seed=5)
    return x, y, other, labels


@pytest.fixture
def train(tmp_path):
    x, y, _, _ = _rows()
    return write_dataset(tmp_path / "train", x, y, partition_rows=40)


@pytest.fixture
def held(tmp_path):
    # classes in another order
    _, _, x, y = _rows()
    return write_dataset(tmp_path / "held", x, 2 - y, partition_rows=40, classes=[2, 1, 0])


@pytest.fixture
def everything(tmp_path):
    x, y, other, labels = _rows()
    rows = sp.vstack([x, other]).tocsr() if sp.issparse(x) else np.vstack([x, other])
    return write_dataset(tmp_path / "everything", rows, np.concatenate([y, labels]), partition_rows=40)


@pytest.mark.fast_cases("sgd")
@pytest.mark.parametrize(("method", "params"), _CASES, ids=[method for method, _ in _CASES])
def test_the_model_has_the_bits_of_the_setting_fitted_to_all_rows(
    train, held, everything, tmp_path, method, params
):
    run = tmp_path / "run"
    result = fit(method, train, run, params=params, passes=3, select=held, refit=True)
    own = {**result.selected, "init": None}
    alone = fit(method, everything, tmp_path / "alone", params=own, passes=3)
    assert np.array_equal(result.model.weights, alone.model.weights)
    assert np.array_equal(result.model.intercept, alone.model.intercept)
    # the error is that of the choice, before the rows that judged it were learnt
    chosen = fit(method, train, tmp_path / "chosen", params=params, passes=3, select=held)
    assert result.record["select_error"] == chosen.record["select_error"]
    assert not np.array_equal(result.model.weights, chosen.model.weights)
    assert not (run / "all-rows").exists()


def test_it_is_said_and_repeated(train, held, tmp_path):
    run = tmp_path / "run"
    fit("sgd", train, run, params={"alpha": [1e-2, 1e-4]}, passes=2, select=held, refit=True)
    said = "\n".join(run_lines(run))
    assert "fitted again, to all 320 rows" in said
    record = read_run(run)
    assert len(record.settings) == 2
    assert record.events, "those of the last fit"
    assert "--refit" in fit_command(record.config, "again")
    children = json.loads((run / "status.json").read_text())["children"]
    assert [child.get("refit", False) for child in children] == [False, False, True]


@pytest.mark.fast_cases("1")
@pytest.mark.parametrize("rounds", [1, 5])
def test_resume_ends_where_an_undisturbed_fit_ends(train, held, tmp_path, rounds):
    asked = {"params": {"alpha": [1e-2, 1e-4]}, "passes": 2, "select": held, "refit": True}
    whole = fit("mcid", train, tmp_path / "whole", **asked)
    with interrupted():
        fit("mcid", train, tmp_path / "run", **asked, callbacks=[StopAfter(rounds)], checkpoint_seconds=0)
    result = resume(tmp_path / "run", executor=SerialExecutor())
    assert np.array_equal(result.model.weights, whole.model.weights)


def test_what_cannot_be_joined_is_refused_before_any_fit(train, tmp_path):
    with pytest.raises(ParameterError, match="--select"):
        fit("sgd", train, refit=True)
    with pytest.raises(MismatchError, match="the very rows"):
        fit("sgd", train, select=train, refit=True)
    x, y, _, _ = _rows()
    doubled = write_dataset(tmp_path / "doubled", x.astype(np.float64)[:50], y[:50])
    with pytest.raises(MismatchError, match="float64"):
        fit("sgd", train, select=doubled, refit=True)
