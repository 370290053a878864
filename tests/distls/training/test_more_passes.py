"""`resume` with passes goes on with a fit that has ended, to the weights of a fit of all passes."""

import shutil

import numpy as np
import pytest
from helpers import labelled_rows, raised, write_dataset

import distls
from distls.solvers.status import Status
from distls.storage.errors import MismatchError, ParameterError
from distls.training.run_folder import Run

METHODS = {
    "sgd": {},
    "asgd": {},
    "mcid": {"alpha": 1e-4},
    "sgdqn": {},
    "sdca": {},
    "bcd": {"alpha": 1e-6, "algorithm": "sweeps"},
    "olbfgs": {},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    x, y = labelled_rows(300, 20, 3)
    path = tmp_path_factory.mktemp("d") / "d"
    write_dataset(path, x, y)
    distls.add_columns(path, executor="serial")
    return distls.open_dataset(path)


def weights(run):
    model = distls.load_model(run)
    return np.concatenate([model.coef_.ravel(), model.intercept_.ravel()])


@pytest.mark.fast_cases("mcid")
@pytest.mark.parametrize("method", METHODS)
def test_the_weights_are_those_of_all_passes(data, tmp_path, method):
    given = {"params": METHODS[method], "executor": "serial", "eval_every": 0}
    # a round of bcd is several passes
    few, more, all_ = (2, 4, 6) if method != "bcd" else (5, 10, 16)
    whole = distls.fit(method, data, tmp_path / "whole", passes=all_, **given)
    first = distls.fit(method, data, tmp_path / "run", passes=few, **given)
    assert first.status == Status.MAX_PASSES
    assert not np.array_equal(weights(tmp_path / "run"), weights(tmp_path / "whole"))
    # also twice
    distls.resume(tmp_path / "run", passes=more, executor="serial")
    found = distls.resume(tmp_path / "run", passes=all_, executor="serial")
    assert found.passes == whole.passes
    assert np.array_equal(weights(tmp_path / "run"), weights(tmp_path / "whole"))
    rounds = [event["round"] for event in Run.open(tmp_path / "run").events()]
    assert rounds == list(range(1, len(rounds) + 1))
    # without passes, and with as many, there is nothing to do
    assert distls.resume(tmp_path / "run", executor="serial").passes == whole.passes
    with pytest.raises(
        ParameterError, match=r"^passes=1: the run has done [\d.]+; give more, the sum of all$"
    ):
        distls.resume(tmp_path / "run", passes=1)


@pytest.mark.slow
def test_seconds_give_way_to_passes(data, tmp_path):
    distls.fit("sgd", data, tmp_path / "run", max_seconds=1e-9, executor="serial")
    found = distls.resume(tmp_path / "run", passes=3, executor="serial")
    assert (found.status, found.passes) == (Status.MAX_PASSES, 3)


def test_killed_before_it_goes_on_it_is_called_again(data, tmp_path, monkeypatch):
    distls.fit("sgd", data, tmp_path / "run", passes=2, executor="serial")
    with monkeypatch.context() as patched:
        patched.setattr(Run, "write_status", lambda run, status: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            distls.resume(tmp_path / "run", passes=4, executor="serial")
    assert distls.resume(tmp_path / "run", passes=4, executor="serial").passes == 4


def test_what_cannot_go_on_says_why(data, tmp_path):
    run = tmp_path / "run"

    def refusal():
        said = raised(MismatchError, distls.resume, run, passes=100, executor="serial")
        shutil.rmtree(run)
        return said

    distls.fit("sdca", data, run, tol=10.0, executor="serial")
    assert refusal().startswith(f"{run}: CONVERGED after ")
    distls.fit("sgd", data, run, passes=1, params={"alpha": [0.0, 1.0]}, select=data, executor="serial")
    assert refusal() == (
        f"{run}: a fit of several settings ends with their passes; start from its model with more: -p init={run}"
    )
    distls.fit("sgd", data, run, passes=1, executor="serial")
    shutil.rmtree(run / "final")
    assert refusal().startswith(f"{run}: its last round was not kept, as by fits of several settings")
