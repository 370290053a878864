"""The last fit of a selection, to training and held-out rows: its bits, what is told, resume, refusals."""

import json
import os
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import distls as command
from helpers import labelled_rows, raised, refuses, write_dataset

import distls
from distls.cli.report import run_lines
from distls.execution.serial import SerialExecutor
from distls.reporting.run_report import fit_command, read_run
from distls.solvers.status import Status
from distls.solvers.warm_start import with_further_classes
from distls.storage.errors import FormatError, MismatchError, ParameterError
from distls.storage.model.model import load_model
from distls.testing.solvers import StopAfter, interrupted
from distls.training.fitting import fit, resume
from distls.training.run_folder import Run

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
def test_the_model_has_the_bits_of_the_setting_fitted_to_all_rows(train, held, everything, tmp_path, method, params):
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
    refuses(ParameterError, "--select", fit, "sgd", train, refit=True)
    refuses(MismatchError, "the very rows", fit, "sgd", train, select=train, refit=True)
    x, y, _, _ = _rows()
    doubled = write_dataset(tmp_path / "doubled", x.astype(np.float64)[:50], y[:50])
    refuses(MismatchError, "float64", fit, "sgd", train, select=doubled, refit=True)


# -- `resume` with passes goes on with a fit that has ended, to the weights of a fit of all passes -------


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
    with pytest.raises(ParameterError, match=r"^passes=1: the run has done [\d.]+; give more, the sum of all$"):
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
        raised(ZeroDivisionError, distls.resume, tmp_path / "run", passes=4, executor="serial")
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


# -- day after day ---------------------------------------------------------------------------------------


RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 3))
Y = np.argmax(X + 0.3 * RNG.normal(size=X.shape), axis=1)
TWO = np.flatnonzero(Y < 2)  # rows of the first day


def test_a_model_takes_up_a_further_class(tmp_path):
    data = tmp_path / "d"
    distls.ingest(X[TWO], data, y=Y[TWO])
    first = distls.fit("newton", data, tmp_path / "1", tol=1e-8)
    distls.append(data, X, y=Y)
    # a fit of the rows before cannot go on with others
    refuses(MismatchError, "new run", distls.resume, tmp_path / "1")
    problem = SimpleNamespace(dataset=distls.open_dataset(data), shape=(3, 3))
    start = with_further_classes(first.model, problem)
    half = first.model.weights[:, 0] / 2
    assert np.array_equal(start.weights, np.stack([-half, half, 0 * half], axis=1))
    starts = ({"init": str(tmp_path / "1")}, {})
    with pytest.warns(UserWarning, match=r'1 has no class "2": its weights begin at zero') as said:
        warm, cold = (
            distls.fit("newton", data, tmp_path / f"2{len(start)}", params=start, tol=1e-8) for start in starts
        )
    assert len(said) == 1
    done = command("fit", "newton", data, tmp_path / "3", "--from", tmp_path / "1", "--tol", "1e-8")
    assert done[0] == 0
    assert '1 has no class "2": its weights begin at zero' in done[2]
    assert load_model(tmp_path / "3").sha256 == warm.model.sha256
    assert warm.model.classes == [0, 1, 2]
    assert np.allclose(warm.model.weights, cold.model.weights, atol=1e-4)


def test_a_class_that_is_gone_is_refused(tmp_path):
    distls.ingest(X, tmp_path / "three", y=Y)
    distls.fit("sgd", tmp_path / "three", tmp_path / "m", passes=1)
    distls.ingest(X[TWO], tmp_path / "two", y=Y[TWO])
    with pytest.raises(MismatchError, match="other labels"):
        distls.fit("sgd", tmp_path / "two", tmp_path / "n", params={"init": str(tmp_path / "m")})


@pytest.mark.slow
def test_a_link_gives_the_model_to_others_in_one_step(tmp_path):
    distls.ingest(X, tmp_path / "d", y=Y)
    current = tmp_path / "current"
    for day in ("1", "2"):
        given = {"init": str(current)} if current.exists() else {}
        distls.fit("sgd", tmp_path / "d", tmp_path / day, passes=1, params=given)
        (tmp_path / "next").symlink_to(day)
        os.replace(tmp_path / "next", current)
        assert load_model(current).sha256 == load_model(tmp_path / day).sha256
        assert len(distls.load_model(current).predict(X[:4])) == 4


def test_a_run_finds_data_that_were_moved(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    distls.ingest(X, old / "d", y=Y)
    whole = distls.fit("sgd", old / "d", tmp_path / "whole", passes=3)
    distls.fit("sgd", old / "d", old / "run", passes=2)
    old.rename(new)
    # both together
    assert distls.resume(new / "run", passes=3).model.sha256 == whole.model.sha256
    (new / "d").rename(tmp_path / "elsewhere")
    refuses(FormatError, "--data", distls.resume, new / "run", passes=4)
    assert distls.resume(new / "run", passes=4, data=tmp_path / "elsewhere").passes == 4
    distls.ingest(X[:300], tmp_path / "others", y=Y[:300])
    refuses(MismatchError, "fingerprint", distls.resume, new / "run", passes=5, data=tmp_path / "others")
