"""A fit is checked once: data sets are opened, problems made and solvers built once a setting."""

from collections import Counter

import numpy as np
import pytest
from helpers import labelled_rows, printed, refuses, stored_rows, write_dataset

from distls import StochasticClassifier, fit, open_dataset
from distls.execution import row_reads
from distls.methods.method_registry import method_named
from distls.problem import Problem
from distls.storage.errors import MismatchError, ParameterError
from distls.training import configuration
from distls.training.configuration import FitRequest, Setting
from distls.training.run_folder import Run

dataset = stored_rows(300, 20, 3)


@pytest.fixture
def counted(monkeypatch):
    """Count what is opened and built."""
    counts = Counter()

    def counting(name, function):
        def call(*given, **options):
            counts[name] += 1
            return function(*given, **options)

        return call

    monkeypatch.setattr(configuration, "open_dataset", counting("opened", open_dataset))
    monkeypatch.setattr(Problem, "of", counting("problem", Problem.of))
    factory = configuration.solver_factory
    monkeypatch.setattr(configuration, "solver_factory", lambda method: counting("solver", factory(method)))
    return counts


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("alpha", r"parameters of a method are one argument, params={'alpha': \.\.\.}"),
        ("pases", "did you mean 'passes'"),
    ],
)
def test_an_option_that_no_fit_has(dataset, name, meant):
    refuses(TypeError, f"unexpected keyword argument '{name}'; {meant}", fit, "sgd", dataset, **{name: 1})


def test_the_command_line_checks_a_fit_once(dataset, tmp_path, counted):
    options = ["--eval", str(dataset.path), "--executor", "serial", "--passes", "1", "--quiet"]
    printed("fit", "mcid", dataset.path, tmp_path / "run", *options)
    assert counted["problem"] == counted["solver"] == 1
    assert counted["opened"] == 2  # the training data and the evaluation data


def test_every_setting_is_checked_once(dataset, counted):
    params = {"alpha": [1e-3, 1e-4, 1e-5]}
    fit("mcid", dataset, params=params, select=dataset, passes=1)
    assert counted["problem"] == counted["solver"] == 3


def test_a_setting_makes_one_solver_for_the_same_workers(dataset):
    setting = Setting.of(method_named("mcid"), {}, dataset, 0)
    one = setting.solver(slots=1, memory=None)
    assert setting.solver(slots=1, memory=None) is one
    assert setting.solver(slots=2, memory=None) is not one


def test_a_request_survives_its_configuration(dataset, tmp_path):
    request = FitRequest.of("mcid", dataset, params={"alpha": [1e-3, 1e-4]}, select=dataset, tol=1e-3)
    again = FitRequest.of_run(Run.create(tmp_path / "run", request.config))
    assert again.config == request.config


@pytest.mark.parametrize(("method", "earlier", "now"), [("sgd", 8, 16), ("sdca", 2, 16), ("newton", 8, 16)])
def test_a_run_has_the_lanes_that_it_was_begun_with(tmp_path, monkeypatch, method, earlier, now):
    """Those of earlier versions have recorded no parallelism; a later rule changes no run."""
    monkeypatch.setattr(row_reads, "_PARTITIONS_A_LANE", 1)
    monkeypatch.setattr(row_reads, "_ROWS_A_LANE", 1)
    data = write_dataset(tmp_path / "train", *labelled_rows(34, 20, 3), partition_rows=2)
    for threads, lanes in ((1, earlier), (None, now)):
        request = FitRequest.of(method, data, parallelism=threads)
        assert ("parallelism" in request.config.stored()) == (threads is None)
        run = Run.create(tmp_path / f"run-{threads}", request.config)
        with monkeypatch.context() as later:
            later.setattr(row_reads, "_PARTITIONS_A_LANE", 3)
            again = FitRequest.of_run(run)
        again.check_same(run)
        assert len(again.settings[0].solver(slots=1, memory=None).lanes) == lanes
    with pytest.raises(MismatchError, match="another fit"):
        FitRequest.of(method, data, parallelism=5).check_same(run)


@pytest.mark.fast_cases("sgd")
@pytest.mark.parametrize("method", ["sgd", "asgd"])
def test_tol_ends_a_fit_whose_features_are_those_of_the_rows(dataset, method):
    params = {"loss": "softmax", "alpha": 1e-2, "fit_intercept": False}
    result = fit(method, dataset, params=params, tol=10.0, passes=50)
    assert result.status == "CONVERGED"
    assert result.record["certificate"]["kind"] == "strong_convexity"
    # the first certificate within a fifth of the work
    assert result.passes == 8


@pytest.mark.slow
def test_tol_ends_the_fit_of_an_estimator():
    x, y = labelled_rows(300, 20, 3)
    fitted = StochasticClassifier(alpha=1e-2, tol=10.0, passes=50).fit(x, y)
    assert fitted.status_ == "CONVERGED"
    assert np.isfinite(fitted.coef_).all()


@pytest.mark.parametrize(
    ("method", "params", "threads", "message"),
    [("rls", {}, 4, "has one"), ("sgd", {"lanes": 1}, 4, "are given"), ("sgd", {}, 5000, "4096 lanes at most")],
)
def test_a_parallelism_that_would_change_nothing_is_refused(dataset, method, params, threads, message):
    refuses(ParameterError, message, FitRequest.of, method, dataset, params=params, parallelism=threads)
