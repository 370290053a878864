"""Forward-backward splitting through the driver: its contract, its iterates, what it reaches, what it refuses."""

import json

import numpy as np
import pytest
from contract import SolverContract, visits
from helpers import stored_rows

from distls.evaluation.evaluate import evaluate
from distls.planning.fit_plan import plan_fit
from distls.storage.errors import ParameterError
from distls.training.fitting import fit
from reference import bcd, proximal
from reference import stochastic as oracle

PENALTIES = ["l1l2", "l1", "l2", "elasticnet", "l1linf"]


@pytest.mark.slow
class TestChosenByTrial(SolverContract):
    """The step is tried in the first round."""

    method = "fobos"
    params = {"alpha": 1e-3, "fit_intercept": True, "class_weight": "balanced"}


@pytest.mark.slow
class TestRoundsOfParts(SolverContract):
    method = "fobos"
    params = {
        "alpha": 1e-3, "loss": "hinge", "penalty": "elasticnet", "eta0": 0.5, "lanes": 3, "sync_bytes": 1,
    }  # fmt: skip


# 400 rows, 30 features, 4 classes; and the same as arrays.
small = stored_rows(400, 30, 4, arrays=True)


@pytest.mark.slow
@pytest.mark.parametrize("penalty", PENALTIES)
def test_one_lane_is_the_algorithm_over_shuffled_rows(small, penalty):
    dataset, x, y = small
    order = np.concatenate(visits(dataset, 2))
    params = {
        "lanes": 1,
        "dtype": "float64",
        "alpha": 1e-2,
        "eta0": 0.4,
        "penalty": penalty,
        "fit_intercept": False,
    }
    made = fit("fobos", dataset, params=params, passes=2).model
    w, _, _ = oracle.fobos(
        x[order], y[order], oracle.slopes_of("multiclass_squared_hinge"), 0.4,
        lambda v, mu: bcd.prox(v, mu, penalty, 0.5), k=4, alpha=1e-2,
    )  # fmt: skip
    np.testing.assert_allclose(made.weights, w, rtol=1e-7, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("loss", ["multiclass_squared_hinge", "multitask_squared_hinge", "softmax"])
def test_many_passes_come_near_the_optimum(small, loss, lanes):
    dataset, x, y = small
    p = bcd.Problem(x, y, 4, loss=loss, alpha=1e-2)
    best = proximal.optimum(p)[1]
    record = fit(
        "fobos",
        dataset,
        params={"alpha": 1e-2, "loss": loss, "lanes": lanes, "fit_intercept": False},
        passes=40,
    ).record
    assert best <= record["objective"] <= 1.05 * best
    assert record["objective"] - best <= record["certificate"]["value"]


@pytest.mark.slow
def test_crammer_singer_learns_and_has_a_certificate(small):
    result = fit(
        "fobos", small[0], params={"loss": "hinge", "alpha": 1e-3, "fit_intercept": False}, passes=20
    )
    assert evaluate(result.model, small[0]).error < 0.4
    assert result.record["certificate"]["kind"] == "duality_gap"
    longer = fit(
        "fobos",
        small[0],
        params={"loss": "hinge", "alpha": 1e-3, "lanes": 1, "fit_intercept": False},
        passes=60,
    )
    gain = result.record["objective"] - longer.record["objective"]
    assert gain <= result.record["certificate"]["value"]


def test_strong_penalties_leave_rows_of_zeros(small):
    model = fit("fobos", small[0], params={"alpha": 1.0, "lanes": 1, "eta0": 0.1}, passes=10).model
    weights = np.asarray(model.weights)
    assert 0 < np.count_nonzero(~weights.any(axis=1)) < len(weights)


@pytest.mark.slow
def test_steps_are_judged_with_their_penalty(small, tmp_path):
    """On held-out rows, with alpha R of the penalty at hand: a huge alpha wants weights of zero."""
    fit("fobos", small[0], tmp_path / "run", params={"alpha": 50.0, "fit_intercept": False}, passes=1)
    first = json.loads((tmp_path / "run" / "events.jsonl").read_text().splitlines()[0])
    tried = first["details"]["tried"]
    assert len(tried["objectives"]) == 7
    loss_at_zero = 3.0  # of the multi-class squared hinge with 4 classes
    assert min(tried["objectives"].values()) == pytest.approx(loss_at_zero)


def test_the_sparse_group_penalty_is_refused(small):
    with pytest.raises(ParameterError, match=r"does not add up .*; use bcd, fista or sparsa") as refusal:
        fit("fobos", small[0], params={"penalty": "sparse-group"}, passes=1)
    assert "\n" not in str(refusal.value)


def test_plan_and_probe(small):
    assert plan_fit("fobos", small[0].path).seconds_per_pass > 0


@pytest.mark.slow
def test_a_fit_goes_on_from_a_model(small, tmp_path):
    dataset = small[0]
    fit("fista", dataset, tmp_path / "first", params={"alpha": 1e-3}, passes=100)
    params = {"alpha": 1e-3, "eta0": 1e-3}
    warm = fit("fobos", dataset, params={**params, "init": str(tmp_path / "first")}, passes=1).model
    cold = fit("fobos", dataset, params=params, passes=1).model
    assert evaluate(warm, dataset).error < 0.8 * evaluate(cold, dataset).error
    assert warm.sha256 != cold.sha256
