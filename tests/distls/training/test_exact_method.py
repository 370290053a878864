"""Where no method is named: dual ascent or truncated Newton, by the seconds that they are predicted to take."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from helpers import labelled_rows, write_dataset
from target_helpers import write_targets

from distls import fit, open_dataset, plan, resume
from distls.cli import cli
from distls.execution.memory_budget import MemoryBudget
from distls.execution.round_seconds import Cluster
from distls.methods import recommendation
from distls.methods.method_registry import method_named
from distls.planning.cluster_plan import resized
from distls.storage.model.model import load_model
from distls.training.exact_method import chosen_for, fit_seconds, passes_to
from distls.training.run_folder import Run


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """Numbers on sparse rows of more features than least squares takes."""
    rng = np.random.default_rng(5)
    x = sp.random(160, 1200, density=0.02, format="csr", random_state=rng, dtype=np.float32)
    y = np.asarray(x[:, :40].sum(axis=1)).reshape(-1, 1) + 0.1 * rng.standard_normal((160, 1))
    path = tmp_path_factory.mktemp("data") / "numbers"
    write_targets(path, x, y, "continuous", partition_rows=10)
    return path


@pytest.fixture(autouse=True)
def not_small(monkeypatch):
    """Small data have one lane, which is dual ascent's."""
    monkeypatch.setattr(recommendation, "_ONE_LANE_BYTES", 0)


def on(data, *shape, **asked):
    return chosen_for(data, workers=lambda: Cluster.of(shape), **asked)


def predicted(reason):
    """The seconds that a reason names, by method."""
    told = reason.partition("predicted on ")[2].partition(": ")[2].removesuffix(" a fit")
    return {name: float(value) for name, value, _ in (each.split() for each in told.split(", "))}


def test_the_method_of_fewer_seconds_is_taken(numbers):
    """Two threads have two lanes of the ascent; hundreds of lanes need more of its passes than of the other's."""
    data = open_dataset(numbers)
    few, many = on(resized(data, 10**8), 1, 2), on(resized(data, 10**13), 100, 8)
    assert (few.method, many.method) == ("sdca", "newton")
    assert "predicted on 2 threads: sdca " in few.reason
    assert "predicted on 800 threads: sdca " in many.reason
    for found in (few, many):
        seconds = predicted(found.reason)
        assert set(seconds) == {"sdca", "newton"}
        assert found.method == min(seconds, key=seconds.__getitem__)
    # the search is the same, by more reads
    assert many.params == few.params
    assert many.passes > few.passes


def test_threads_that_are_meant_take_the_place_of_those_that_are_there(numbers):
    data = resized(open_dataset(numbers), 10**9)
    here, there = (chosen_for(data, workers=lambda n=n: MemoryBudget(workers=n), parallelism=64) for n in (1, 300))
    assert here == there
    assert "predicted on 64 threads" in here.reason


def test_what_only_one_of_them_has_takes_that(numbers):
    data = resized(open_dataset(numbers), 10**13)
    found = on(data, 100, 8, params={"rounds": 4})
    assert found.method == "sdca"
    assert "predicted" not in found.reason


def test_more_lanes_or_digits_never_take_fewer_passes():
    ascent = [passes_to("sdca", lanes, 3.0, begun=lanes >= 32) for lanes in (1, 2, 8, 31, 32, 128)]
    assert ascent == sorted(ascent)
    assert ascent[-1] < passes_to("sdca", 128, 3.0, begun=False)
    assert len({passes_to("newton", lanes, 3.0, begun=False) for lanes in (1, 8, 128)}) == 1
    for method in ("sdca", "newton"):
        assert passes_to(method, 8, 2.0, begun=False) < passes_to(method, 8, 6.0, begun=False)


def test_a_start_by_sgd_is_predicted_where_lanes_are_many(numbers):
    """1,200 columns and 32 lanes begin so; with `start=zero` more passes are expected."""
    data = resized(open_dataset(numbers), 10**11)
    cluster = Cluster.of((4, 8))

    def seconds(**params):
        given = method_named("sdca").resolve({"alpha": 0.01, "loss": "squared", "lanes": 128, **params})
        return fit_seconds("sdca", given, data, cluster, 3.0, None)

    assert seconds() < 0.7 * seconds(start="zero")


def test_lanes_of_squared_hinges_are_predicted_to_overshoot(tmp_path):
    write_dataset(tmp_path / "classes", *labelled_rows(1_200, 300, 2))
    data = open_dataset(tmp_path / "classes")

    def seconds(method, loss, lanes):
        asked = {"alpha": 0.01, "loss": loss, "lanes": lanes}
        return fit_seconds(method, method_named(method).resolve(asked), data, Cluster.of((1, 8)), 3.0, None)

    assert seconds("sdca", "squared_hinge", 8) > 3.0 * seconds("sdca", "log", 8)
    # the other takes over from fewer lanes on
    few, newton, many = (
        passes_to(method, lanes, 3.0, False, True) for method, lanes in (("sdca", 2), ("newton", 8), ("sdca", 8))
    )
    assert few < newton < many


def test_a_plan_says_so(numbers):
    found = plan(numbers, cluster="100x8", bytes="10TB", rate=1e8)
    assert found.plan.chosen.startswith("newton: ridge regression on 1,200 features")
    asked = ["plan", str(numbers), "--cluster", "100x8", "--bytes", "10TB", "--rate", "100MB"]
    said = CliRunner().invoke(cli, asked).output
    assert f"method             {found.plan.chosen}\n" in said
    assert json.loads(CliRunner().invoke(cli, [*asked, "--json"]).output)["chosen"] == found.plan.chosen
    # of a method that is named there is nothing to be said
    assert plan("newton", numbers, probe=False).chosen is None
    assert plan(numbers, probe=False).chosen.startswith("sdca: ridge regression")


@pytest.mark.fast_cases("newton")
@pytest.mark.parametrize("taken", ["sdca", "newton"])
def test_a_fit_says_so_and_its_run_goes_on_with_it(numbers, tmp_path, monkeypatch, taken):
    slow = {"sdca": "newton", "newton": "sdca"}[taken]
    monkeypatch.setattr("distls.training.exact_method.passes_to", lambda name, *_: 1e6 if name == slow else 1.0)
    run = tmp_path / "run"
    given = ["-p", "alpha=0.01", "--executor", "serial", "--passes", "1"]
    ended = CliRunner().invoke(cli, ["fit", str(numbers), str(run), *given])
    assert ended.exit_code == 0, ended.output
    config = Run.open(run).config
    assert config.method == taken
    assert "predicted on 1 thread: sdca " in config.reason
    assert f"note: {taken}: {config.reason}" in ended.output
    same = fit("auto", numbers, params={"alpha": 0.01}, passes=1, executor="serial")
    assert same.model.sha256 == load_model(run).sha256
    # whatever is predicted then
    monkeypatch.setattr("distls.training.exact_method.passes_to", lambda name, *_: 1e6 if name == taken else 1.0)
    assert resume(run, passes=2).passes == 2
    assert Run.open(run).config.method == taken
