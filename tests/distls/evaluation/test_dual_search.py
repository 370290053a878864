"""The bound of the optimum that a stochastic fit with a tolerance searches: it is true, and it ends the fit."""

import numpy as np
import pytest
from helpers import labelled_rows, write_dataset

from distls import History, fit, resume
from distls.testing.solvers import StopAfter, interrupted

PLAIN = {"dtype": "float64", "alpha": 1e-3}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    x, y = labelled_rows(400, 30, 3)
    flipped = np.random.default_rng(1).random(400) < 0.1  # so that no weights separate the classes
    y = np.where(flipped, (y + 1) % 3, y)
    return write_dataset(tmp_path_factory.mktemp("d") / "d", x.astype(np.float64), y)


def _optimum(dataset, loss, alpha, rtol=1e-9, **more):
    """Return a lower bound of the optimum that is nearer to it than `rtol`."""
    params = {"loss": loss, "alpha": alpha, "dtype": "float64", **more}
    record = fit("sdca", dataset, params=params, rtol=rtol, passes=3000).record
    assert record["certificate"]["relative"] <= rtol
    return float(record["objective"] - record["certificate"]["value"])


@pytest.mark.fast_cases("asgd")
@pytest.mark.parametrize(
    ("method", "loss", "full"),
    [
        ("mcid", "hinge", "crammer_singer"), ("ovr-pegasos", "hinge", "ovr_hinge"),
        ("sgd", "hinge", "crammer_singer"), ("sgdqn", "hinge", "ovr_hinge"), ("asgd", "log", "softmax"),
    ],
)  # fmt: skip
def test_a_tolerance_ends_a_fit(dataset, method, loss, full):
    result = fit(method, dataset, params={**PLAIN, "loss": loss}, rtol=2e-2, passes=300)
    certificate, excess = (
        result.record["certificate"],
        result.record["objective"] - _optimum(dataset, full, PLAIN["alpha"], rtol=1e-5),
    )
    assert result.status == "CONVERGED"
    assert certificate["kind"] == "duality_gap"
    assert 0.0 <= excess <= certificate["value"] <= 2e-2 * result.record["objective"]
    # half of the tolerance is for the dual point
    assert certificate["value"] <= excess + 1e-2 * result.record["objective"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_bounds_of_random_problems_are_true(tmp_path, seed):
    rng = np.random.default_rng(seed)
    method, loss = [
        ("mcid", "softmax"), ("mcid", "crammer_singer"), ("ovr-pegasos", "ovr_hinge"),
        ("ovr-logistic", "ovr_log"), ("sgd", "ovr_squared_hinge"), ("svmsgd2", "ovr_hinge"),
    ][seed % 6]  # fmt: skip
    x, y = labelled_rows(150, 12, int(rng.integers(2, 5)), seed)
    y = np.where(rng.random(150) < 0.2, 0, y)
    data = write_dataset(tmp_path / "d", x, y, partition_rows=40)
    weight = {"class_weight": "balanced"} if rng.random() < 0.5 else {}
    alpha, lanes = float(10 ** rng.uniform(-3, -1)), int(rng.integers(1, 4))
    params = {"loss": loss, "alpha": alpha, "lanes": lanes, "dtype": "float64", **weight}
    intercept = {"fit_intercept": seed % 4 > 1}
    if method == "mcid":
        params["average"] = str(rng.choice(["none", "all", "tail"]))
    params |= intercept
    # dual ascent moves a free intercept once a pass, which takes hinges long to the last digits
    near = 1e-6 if intercept["fit_intercept"] else 1e-9
    lowest = _optimum(data, loss, alpha, near, **weight, **intercept)
    history = History()
    fit(method, data, params=params, rtol=1e-2, eval_every=1, passes=8, callbacks=[history])
    judged = [event for event in history.records if "certificate" in event]
    assert judged
    for event in judged:
        excess = event["objective"] - lowest
        assert 0.0 <= excess <= event["certificate"]["value"] * (1 + 1e-9) + near * event["objective"]
        # the search ends where it would help the tolerance no more
        assert event["certificate"]["value"] <= max(2.0 * excess, excess + 1e-2 * event["objective"])


@pytest.mark.slow
def test_the_search_leaves_the_weights_as_they_are(dataset, tmp_path):
    params = {**PLAIN, "loss": "hinge"}
    plain = fit("sgd", dataset, params=params, passes=4)
    judged = fit("sgd", dataset, tmp_path / "run", params=params, passes=4, rtol=1e-6)
    assert plain.model.weights.tobytes() == judged.model.weights.tobytes()
    assert not (tmp_path / "run" / "state").exists()


@pytest.mark.slow
def test_a_resumed_fit_ends_where_the_other_ends(dataset, tmp_path):
    params = {**PLAIN, "loss": "hinge"}
    whole = fit("mcid", dataset, params=params, rtol=2e-2, passes=300)
    with interrupted():
        fit("mcid", dataset, tmp_path / "run", params=params, rtol=2e-2, passes=300, callbacks=[StopAfter(2)])
    again = resume(tmp_path / "run")
    assert (again.status, again.passes) == (whole.status, whole.passes)
    assert again.model.weights.tobytes() == whole.model.weights.tobytes()
    assert again.record["certificate"] == whole.record["certificate"]
