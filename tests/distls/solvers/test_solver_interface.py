"""The interface of solvers, whose errors are not taken for those of a checkpoint."""

import json
import os
import subprocess
import sys
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers import SECONDS, labelled_rows, write_dataset
from target_helpers import write_targets

import distls
from distls import add_columns, fit, open_dataset, resume
from distls.memory_plan import Plan
from distls.methods.method_registry import METHODS
from distls.problem import Problem
from distls.solvers.coordinate_descent.proximal import Fista
from distls.solvers.solver import Fitted, Solver, State
from distls.solvers.status import Status
from distls.storage.errors import DistlsError, FormatError
from distls.testing.solvers import StopAfter, interrupted
from distls.training.configuration import Setting
from distls.workers.rounds.block_stream import DatasetRef


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The same rows with classes, and with numbers."""
    root = tmp_path_factory.mktemp("data")
    x, y = labelled_rows(90, 12, 3)
    classes = write_dataset(root / "classes", x, y, partition_rows=30).path
    add_columns(classes)
    write_targets(root / "numbers", x, np.eye(3)[y], "continuous", partition_rows=30)
    return {"class": open_dataset(classes), "continuous": open_dataset(root / "numbers")}


def solver_of(method, data):
    chosen = METHODS[method]
    dataset = data["class" if "class" in chosen.targets else "continuous"]
    return Setting.of(chosen, {}, dataset, 0).solver(slots=1, memory=None)


@pytest.mark.parametrize("method", list(METHODS))
def test_every_solver_offers_what_the_driver_uses(method, data):
    solver = solver_of(method, data)
    assert all(callable(getattr(solver, name)) for name in Solver.__abstractmethods__)
    assert isinstance(solver.problem, Problem)
    assert isinstance(solver.plan, Plan)
    assert isinstance(solver.data, DatasetRef)
    assert isinstance(solver.state_type(), State)
    assert all(isinstance(block, int) for lane in solver.lanes for block in lane)
    first = solver.init()
    assert type(first) is solver.state_type
    assert isinstance(solver.weights(first), Fitted)


@pytest.mark.parametrize("error", [TypeError, KeyError, AttributeError, ZeroDivisionError, ValueError])
def test_an_error_of_a_solver_is_not_taken_for_a_damaged_checkpoint(error, data, tmp_path, monkeypatch):
    with interrupted():
        fit("fista", data["class"], tmp_path / "run", params={"tau": 0.0}, passes=4, callbacks=[StopAfter(2)])

    def slip(*_):
        raise error("a slip")

    monkeypatch.setattr(Fista, "step", slip)
    with pytest.raises(error, match="a slip") as caught:
        resume(tmp_path / "run")
    assert not isinstance(caught.value, FormatError)
    assert "slip" in [entry.name for entry in caught.traceback]


# -- numbers that overflow -------------------------------------------------------------------------------


def _ingest(path, x, y, target):
    report = distls.ingest(x, path, y=y, dtype="float64", target=target, transform=(), partition_size=2000)
    assert report is not None
    return distls.open_dataset(path)


@pytest.fixture(scope="module")
def large_rows(tmp_path_factory):
    random = np.random.default_rng(0)
    x = random.standard_normal((120, 4))
    return _ingest(tmp_path_factory.mktemp("data") / "d", x * 1e140, np.arange(120) % 3, "class")


@pytest.fixture(scope="module")
def large_targets(tmp_path_factory):
    random = np.random.default_rng(0)
    x = random.standard_normal((120, 4))
    return _ingest(tmp_path_factory.mktemp("data") / "d", x, 1e160 * (1 + x[:, 0]), "continuous")


@pytest.mark.fast_cases("cls$")
@pytest.mark.parametrize("method", ["mcid", "olbfgs", "sdca", "fista", "cls", "stagewise"])
def test_rows_that_overflow(large_rows, method):
    given = {"eta0": 0.1} if method == "olbfgs" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        result = distls.fit(method, large_rows, params={"dtype": "float32", **given}, passes=3)
    assert (result.status, result.model) == (Status.DIVERGED, None)


@pytest.mark.slow
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_no_gain_of_the_trial_is_finite(large_rows):
    with pytest.raises(DistlsError, match=r"none of eta0=.* keeps the weights finite"):
        distls.fit("olbfgs", large_rows, params={"dtype": "float32"}, passes=3)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["gls", "sdca"])
def test_targets_whose_squares_overflow(large_targets, method):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        result = distls.fit(method, large_targets, passes=3)
    assert (result.status, result.model) == (Status.DIVERGED, None)


@pytest.mark.slow
def test_workers_print_no_warnings(large_targets, tmp_path):
    run = tmp_path / "run"
    command = ["fit", "gls", str(large_targets.path), str(run), "--passes", "3", "--workers", "2", "--quiet"]
    ended = subprocess.run([sys.executable, "-m", "distls", *command], capture_output=True, text=True, timeout=SECONDS)
    assert (ended.returncode, ended.stderr.splitlines()) == (
        1,
        [f"distls: {run}: the weights are no longer finite; try a larger alpha, or scale the data"],
    )


# -- what weights mean to every family -------------------------------------------------------------------


class Case(NamedTuple):
    """A fit whose result does not depend on the order of rows, and how near two of them are."""

    method: str
    params: dict[str, Any]
    passes: float | None = None
    near: float = 1e-8


CASES = {
    "gls identity": Case("gls", {"link": "identity", "alpha": 0.01}),
    "gls softmax": Case("gls", {"link": "softmax", "alpha": 0.01}, passes=12),
    "cls": Case("cls", {"rounds": 4}),
    "stagewise calibrated": Case("stagewise", {"inner": "calibrated", "block_size": 11, "dtype": "float64"}),
    "stagewise logistic": Case(
        "stagewise", {"inner": "logistic", "inner_rounds": 3, "block_size": 11, "dtype": "float64"}
    ),
    "bcd": Case("bcd", {"alpha": 1e-2, "lanes": 1, "tau": 1e-9}, near=1e-7),
    "fista": Case("fista", {"alpha": 1e-2, "tau": 1e-9}, passes=400, near=1e-6),
}
ROWS = 200


@pytest.fixture(scope="module")
def rows():
    x, y = labelled_rows(ROWS, 30, 3)
    return x, y


def _fitted(case, dataset, **params):
    if case.method in ("bcd", "fista"):
        add_columns(dataset.path)
    model = fit(case.method, dataset.path, params={**case.params, **params}, passes=case.passes).model
    return np.vstack([model.weights, model.intercept])


@pytest.mark.fast_cases("gls identity$")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_weight_of_two_is_a_row_twice_or_its_classs(case, rows, tmp_path):
    x, y = rows
    of_rows = write_dataset(tmp_path / "w", x, y, sample_weight=np.where(y == 1, 2.0, 1.0))
    plain = write_dataset(tmp_path / "p", x, y)
    twice = np.concatenate([np.arange(ROWS), np.flatnonzero(y == 1)])
    repeated = _fitted(case, write_dataset(tmp_path / "r", x[twice], y[twice]))
    for other in (_fitted(case, of_rows), _fitted(case, plain, class_weight={"1": 2.0})):
        np.testing.assert_allclose(other, repeated, rtol=case.near, atol=case.near)
    assert np.abs(_fitted(case, plain) - repeated).max() > 1e-3


@pytest.mark.fast_cases("stagewise calibrated$")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_partitions_change_rounding_only(case, rows, tmp_path):
    one, other = (_fitted(case, write_dataset(tmp_path / f"{size}", *rows, partition_rows=size)) for size in (ROWS, 37))
    np.testing.assert_allclose(one, other, rtol=case.near, atol=case.near)


def test_the_weight_of_a_class_has_the_bits_of_that_of_its_rows(rows, tmp_path):
    x, y = rows
    weight = np.where(y == 1, 3.0, 1.0)
    weighted = Case("mcid", {"alpha": 1e-2}, passes=2)
    by_row = _fitted(weighted, write_dataset(tmp_path / "w", x, y, sample_weight=weight))
    by_class = _fitted(weighted, write_dataset(tmp_path / "p", x, y), class_weight={"1": 3.0})
    assert np.array_equal(by_class, by_row)


# -- the kernels of a fit are compiled by the driver -----------------------------------------------------


# Prints the variants of kernels that a fit adds to those of its warm-up, and of the one of its search.
PROGRAM = """
import json, sys
from distls import fit
from distls.solvers import solver
from distls.training import setting_fit
from distls.workers.compilation.kernel_cache import KernelCache

found, solve, load, rehearse = [], setting_fit.solve, KernelCache.load_overload, solver.rehearse

def warm(*args, **options):
    print([name for name in found if "merge_mean" in name or "add_scaled" in name])
    found.clear()
    solver.rehearse = rehearsed
    return solve(*args, **options)

def rehearsed(given):
    before = list(found)
    rehearse(given)
    found[:] = before

def seen(self, signature, context):
    found.append(f"{self._name} {signature}")
    return load(self, signature, context)

setting_fit.solve, KernelCache.load_overload = warm, seen
given = json.loads(sys.argv[3])
fit(sys.argv[1], sys.argv[2], params=given["params"], executor="serial", **given["limits"])
print(found)
"""
PARAMS = {
    "mcid": {},
    "sgd": {},
    "csgd": {},
    "sgdqn": {},
    "svmsgd2": {},
    "adaline": {},
    "olbfgs": {},
    "rls": {"loss": "squared"},
    "fobos": {"alpha": 1e-3},
    "sdca": {"alpha": 1e-2},
    "ovr-sdca": {"alpha": 1e-2},
    "bcd": {"dtype": "float32", "alpha": 1e-3, "tau": 0},
    "bcd:rows": {"dtype": "float32", "alpha": 1e-3, "tau": 0, "algorithm": "row-blocks"},
    "fista": {"alpha": 1e-3, "tau": 0},
    "sparsa": {"alpha": 1e-3, "tau": 0},
    "gls": {},
    "cls": {"rounds": 2},
    "stagewise": {"block_size": 10, "stages": 2},
}
OWN_END = {"ovr-sdca", "cls", "stagewise"}


@pytest.mark.fast_cases("sdca-sparse")
@pytest.mark.skipif(os.environ.get("DISTLS_NUMBA_CACHE") == "0", reason="kernels are not cached")
@pytest.mark.parametrize("layout", ["sparse", "dense"])
@pytest.mark.parametrize("method", PARAMS)  # of several settings, the name of one is after a colon
def test_a_fit_needs_no_other_kernels(method, layout, tmp_path):
    x, y = labelled_rows(60, 40, 3)
    data = write_dataset(tmp_path / "d", x if layout == "sparse" else x.toarray(), y, partition_rows=20)
    given = {"params": PARAMS[method], "limits": {} if method in OWN_END else {"passes": 2}}
    path = add_columns(data.path, shard_size=1000).path if method == "bcd" else data.path
    assert _compiled(method.partition(":")[0], path, given)[1] == "[]"


@pytest.mark.skipif(os.environ.get("DISTLS_NUMBA_CACHE") == "0", reason="kernels are not cached")
@pytest.mark.slow_cases("params[12]")
@pytest.mark.parametrize(
    ("params", "merged"),
    [({}, False), ({"lanes": 2}, True), ({"average": "tail", "schedule": "sqrt", "eta0": 0.1}, True)],
)
def test_one_lane_needs_no_kernels_to_merge(params, merged, tmp_path):
    x, y = labelled_rows(60, 40, 3)
    data = write_dataset(tmp_path / "d", x.toarray(), y, partition_rows=30 if "lanes" in params else 60)
    averaged, others = _compiled("sgd", data.path, {"params": params, "limits": {"passes": 2}})
    assert (averaged != "[]", others) == (merged, "[]")


def _compiled(method, data, given):
    """Return the kernels of averages that the warm-up of a fit has loaded, and all that the fit has loaded after it."""
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, method, str(data), json.dumps(given)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
