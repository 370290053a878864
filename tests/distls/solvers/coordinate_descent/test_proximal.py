"""FISTA and SpaRSA through the driver: their iterates, the optimum that block coordinate descent finds, refusals."""

import json
import pickle

import numpy as np
import pytest
from contract import Rounds, SolverContract, StoredContract
from helpers import labelled_rows, stored_rows, write_dataset

from distls.columns.sharding import add_columns
from distls.execution.memory_budget import MIB, MemoryBudget
from distls.execution.serial import SerialExecutor
from distls.methods.method_registry import method_named
from distls.planning.fit_plan import plan_fit
from distls.problem import Problem
from distls.solvers.coordinate_descent.proximal import Fista
from distls.solvers.status import Status
from distls.storage.errors import MemoryPlanError, MismatchError, ParameterError
from distls.testing.solvers import StopAfter, interrupted
from distls.training.callbacks import History
from distls.training.fitting import fit, resume
from distls.workers.least_squares import multi_point_task
from distls.workers.losses.loss_registry import loss_named
from reference import bcd, proximal

LOSSES = ["multiclass_squared_hinge", "multitask_squared_hinge", "softmax"]
PENALTIES = ["l1l2", "l1", "l2", "elasticnet", "l1linf", "sparse-group"]


class _Counts(SerialExecutor):
    """Keeps the bytes that each reduction sends."""

    def __init__(self):
        self.sent = []

    def reduce(self, function, items, *, merge, shared=None):
        self.sent.append(len(pickle.dumps(shared)))
        return super().reduce(function, items, merge=merge, shared=pickle.loads(pickle.dumps(shared)))


@pytest.mark.fast_cases("fista")
@pytest.mark.parametrize("method", ["fista", "sparsa"])
def test_zero_rows_of_weights_are_not_sent(tmp_path, method, monkeypatch):
    dataset = write_dataset(tmp_path / "train", *labelled_rows(300, 400, 4))
    params = {"alpha": 4e-2, "tau": 0.0, "fit_intercept": True}
    counts, full = _Counts(), _Counts()
    few = fit(method, dataset, params=params, passes=15, executor=counts, eval_every=0).model
    monkeypatch.setattr(multi_point_task, "_MOST_NONZERO", -1.0)
    assert fit(method, dataset, params=params, passes=15, executor=full, eval_every=0).model.sha256 == few.sha256
    points = 2 if method == "fista" else 1
    assert 0 < np.count_nonzero(few.weights.any(axis=1)) < 60
    assert min(full.sent) > 400 * 4 * 8
    assert max(counts.sent) < 60 * 4 * 8 * points + 2000


class _Deterministic(SolverContract):
    """Nothing is drawn, so that the seed changes nothing."""

    random = False


class TestLineSearch(_Deterministic):
    method = "fista"
    params = {"alpha": 1e-2, "tau": 0.0, "fit_intercept": True}
    passes = 7


@pytest.mark.slow
class TestConstantSteps(_Deterministic, StoredContract):
    """The norm of Sigma takes some of the reads."""

    method = "fista"
    params = {
        "alpha": 1e-2, "tau": 0.0, "step": "constant", "loss": "softmax", "class_weight": "balanced", "lanes": 3,
        "dtype": "float32",
    }  # fmt: skip
    passes = 24
    dense = True


@pytest.mark.slow
class TestSpectralSteps(_Deterministic):
    method = "sparsa"
    params = {"alpha": 1e-2, "tau": 0.0, "penalty": "sparse-group"}
    passes = 7


# 300 rows, 40 features, 4 classes, in three partitions and some column shards; and the same as arrays.
small = stored_rows(300, 40, 4, arrays=True, shard_size=2000)


def fitted(method, dataset, passes=1000.0, **params):
    """Fit in this process, without an intercept; return the result and what all rounds told."""
    kept = Rounds()
    result = fit(
        method, dataset, params={"fit_intercept": False, **params}, passes=passes, callbacks=[kept], eval_every=0
    )
    return result, kept


def bound_of(dataset, loss):
    return loss_named(loss).lipschitz(4) * dataset.meta.mean_square_norm


# -- the algorithms --------------------------------------------------------------------------------------


@pytest.mark.fast_cases("multiclass_squared_hinge-l1l2$")
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_line_search_is_the_oracle_s(small, loss, penalty):
    dataset, x, y = small
    p = bcd.Problem(x, y, 4, loss=loss, penalty=penalty, alpha=1e-2)
    safe = bound_of(dataset, loss)
    points, constants = proximal.fista(p, 14, safe / 64, safe)
    _, kept = fitted("fista", dataset, 14, loss=loss, penalty=penalty, alpha=1e-2, tau=0)
    np.testing.assert_allclose(kept.each("lipschitz"), constants, rtol=1e-6)
    np.testing.assert_allclose([state.point for state in kept.states], points, atol=1e-8)


@pytest.mark.slow
def test_steps_too_long_are_taken_back_and_momentum_starts_anew(small):
    """What the comparison above needs to mean anything."""
    _, kept = fitted("fista", small[0], 200, alpha=1e-3, tau=0, lipschitz=1e-3)
    outcomes = kept.each("outcome")
    assert outcomes[0] == "start"
    assert {"accepted", "rejected", "restarted"} <= set(outcomes)
    assert np.min(np.diff(np.log(kept.each("lipschitz")))) < 0 < np.max(np.diff(kept.each("lipschitz")))


@pytest.mark.fast_cases("multiclass_squared_hinge-1$")
@pytest.mark.parametrize("history", [1, 5])
@pytest.mark.parametrize("loss", LOSSES)
def test_spectral_steps_are_the_oracle_s(small, loss, history):
    dataset, x, y = small
    p = bcd.Problem(x, y, 4, loss=loss, alpha=3e-3)
    safe = bound_of(dataset, loss)
    points, constants = proximal.sparsa(p, 40, safe / 64, safe, history)
    _, kept = fitted("sparsa", dataset, 40, loss=loss, alpha=3e-3, tau=0, history=history)
    assert "rejected" in kept.each("outcome")
    np.testing.assert_allclose(kept.each("lipschitz"), constants, rtol=1e-5)
    np.testing.assert_allclose([state.point for state in kept.states], points, atol=1e-7)


@pytest.mark.fast_cases("multiclass")
@pytest.mark.parametrize("loss", LOSSES)
def test_constant_steps_are_the_oracle_s(small, loss):
    dataset, x, y = small
    p = bcd.Problem(x, y, 4, loss=loss, alpha=1e-2)
    points, _ = proximal.fista(p, 30, 3.0, 3.0, line_search=False)
    _, kept = fitted("fista", dataset, 30, loss=loss, alpha=1e-2, tau=0, step="constant", lipschitz=3)
    np.testing.assert_allclose([state.point for state in kept.states], points, atol=1e-8)
    assert kept.each("lipschitz") == [3.0] * 30


@pytest.mark.fast_cases("None-False")
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weights", [None, {"1": 3.0, "2": 0.5}])
def test_the_norm_of_sigma_bounds_the_curvature_closely(small, intercept, weights):
    dataset, x, y = small
    s = np.ones(len(y)) if weights is None else np.array([1.0, 3.0, 0.5, 1.0])[y]
    rows = np.hstack([np.ones((len(x), 1)), x]) if intercept else x
    norm = np.linalg.norm(rows.T @ (s[:, None] / s.sum() * rows), 2)
    options = {"step": "constant", "loss": "softmax", "fit_intercept": intercept, "class_weight": weights}
    _, kept = fitted("fista", dataset, 30, tau=0, **options)
    assert 0.5 * norm * (1 - 1e-9) <= kept.each("lipschitz")[-1] <= 0.5 * 1.02 * norm
    assert kept.each("outcome").count("norm") < 21
    _, bounded = fitted("fista", dataset, 2, tau=0, lipschitz="bound", **options)
    assert bounded.each("lipschitz")[0] >= 0.5 * norm


# -- what they reach -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_all_solvers_find_the_same_optimum(small, loss, penalty):
    dataset, x, y = small
    common = {"loss": loss, "penalty": penalty, "alpha": 1e-2, "tau": 1e-6}
    found = {method: fitted(method, dataset, 3000, **common)[0] for method in ("fista", "sparsa", "bcd")}
    p = bcd.Problem(x, y, 4, loss=loss, penalty=penalty, alpha=1e-2)
    best = proximal.optimum(p)[1]
    for method, result in found.items():
        assert result.status == Status.CONVERGED, method
        assert bcd.objective(p, result.model.weights) == pytest.approx(best, rel=1e-6), method
    if penalty != "l2":
        zeros = {method: ~result.model.weights.any(axis=1) for method, result in found.items()}
        assert np.array_equal(zeros["fista"], zeros["bcd"])
        assert np.array_equal(zeros["sparsa"], zeros["bcd"])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fista", "sparsa"])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_certificate_bounds_the_distance(small, method, loss):
    dataset, x, y = small
    best = proximal.optimum(bcd.Problem(x, y, 4, loss=loss, alpha=1e-2))[1]
    params = {"loss": loss, "alpha": 1e-2, "tau": 0, "fit_intercept": False}
    for passes in (5, 20):
        record = fit(method, dataset, params=params, passes=passes).record
        assert record["certificate"]["kind"] == "duality_gap"
        assert record["objective"] - best <= record["certificate"]["value"] + 1e-12
    result = fit(method, dataset, params=params, passes=3000, tol=1e-5)
    assert result.status == Status.CONVERGED
    assert result.record["objective"] - best <= 1e-5


@pytest.mark.fast_cases("fista")
@pytest.mark.parametrize("method", ["fista", "sparsa"])
def test_an_intercept_is_not_penalised(small, method):
    """All weights are zero where alpha is large: the intercept alone then minimises the loss."""
    dataset, _, y = small
    result, _ = fitted(method, dataset, 500, loss="softmax", alpha=1.0, tau=1e-9, fit_intercept=True)
    assert not result.model.weights.any()
    shares = np.bincount(y) / len(y)
    np.testing.assert_allclose(result.model.intercept, np.log(shares) - np.log(shares).mean(), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fista", "sparsa"])
def test_a_fit_goes_on_from_a_model(small, tmp_path, method):
    dataset = small[0]
    fit(method, dataset, tmp_path / "first", params={"alpha": 1e-2}, passes=500)
    _, warm = fitted(method, dataset, 3, alpha=1e-2, tau=0, init=str(tmp_path / "first"))
    _, cold = fitted(method, dataset, 3, alpha=1e-2, tau=0)
    assert warm.records[0]["running_loss"] < 0.5 * cold.records[0]["running_loss"]


def test_without_data_to_move_it_a_fit_ends_at_once(tmp_path):
    """Nothing is greater than alpha: zero weights are the optimum."""
    dataset = write_dataset(tmp_path / "d", *labelled_rows(50, 10, 2))
    for method in ("fista", "sparsa"):
        result, kept = fitted(method, dataset, 100, alpha=10.0)
        assert result.status == Status.CONVERGED
        assert len(kept.records) == 2
        assert not result.model.weights.any()


def test_steps_that_are_too_long_diverge(small, tmp_path):
    """Checkpoints have no place for what is not finite."""
    params = {"step": "constant", "lipschitz": 1e-3, "alpha": 0, "tau": 0}
    result = fit("fista", small[0], tmp_path / "run", params=params, passes=3000, checkpoint_seconds=0.0)
    assert result.status == Status.DIVERGED


# -- rounds and refusals ---------------------------------------------------------------------------------


@pytest.mark.fast_cases("fista")
@pytest.mark.parametrize("method", ["fista", "sparsa"])
def test_a_round_is_a_read(small, tmp_path, method):
    fit(method, small[0], tmp_path / "run", params={"tau": 0}, passes=6)
    rounds = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [each["passes"] for each in rounds] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert {each["n_rows"] for each in rounds} == {300}
    read = [each["bytes_read"] + each["cached_bytes"] for each in rounds]
    assert len(set(read)) == 1
    assert set(rounds[-1]["details"]) == {"outcome", "lipschitz", "violation_ratio", "non_zero_rows"}


@pytest.mark.fast_cases("norm")
@pytest.mark.parametrize("lipschitz", ["norm", "bound"])
def test_a_line_search_refuses_constants(small, lipschitz):
    with pytest.raises(ParameterError, match=f"lipschitz={lipschitz}: of step=constant; give a number"):
        fit("fista", small[0], params={"lipschitz": lipschitz}, passes=1)


def test_refusals(small, tmp_path):
    dataset = small[0]
    for method in ("fista", "sparsa"):
        with pytest.raises(ParameterError, match=r"l1_ratio=0\.5: used with penalty=elasticnet or sparse-group"):
            fit(method, dataset, params={"l1_ratio": 0.5}, passes=1)
        with pytest.raises(ParameterError, match="loss=hinge: expected one of multiclass_squared_hinge"):
            fit(method, dataset, params={"loss": "hinge"}, passes=1)
    other = write_dataset(tmp_path / "other", *labelled_rows(300, 30, 4))
    fit("fista", other, tmp_path / "run", params={"active_mib": 0}, passes=2)
    with pytest.raises(MismatchError, match="a model of 30 features and 4 outputs"):
        fit("sparsa", dataset, params={"init": str(tmp_path / "run")}, passes=1)


@pytest.mark.fast_cases("fista")
@pytest.mark.parametrize("method", ["fista", "sparsa"])
def test_the_plan_counts_scores_of_the_rows_that_there_are(small, method):
    """A chunk has at most the rows of a partition, however many would fit into it."""
    (rows, k), one = (int(small[0].table.rows.max()), 4), 8 * 4 * (small[0].meta.n_features + 1)
    work = plan_fit(method, small[0].path, probe=False).worker_parts["work"]
    assert 4 * 8 * rows * k < work < 4 * 8 * rows * 4 * k + 4 * one + 2**20


@pytest.mark.fast_cases("fista")
@pytest.mark.parametrize("method", ["fista", "sparsa"])
def test_plans_and_probes(small, method):
    plan = plan_fit(method, small[0].path)
    assert plan.bytes_per_pass == int(small[0].stored_bytes.sum())
    assert plan.seconds_per_pass > 0


def test_too_many_weights_are_refused_before_they_are_made(tmp_path):
    dataset = write_dataset(tmp_path / "wide", *labelled_rows(100, 60_000, 2), n_classes=1000)
    params = method_named("fista").resolve({})
    with pytest.raises(MemoryPlanError, match="a worker needs"):
        Fista(Problem.of(dataset, params, 0, ("class",)), params, memory=MemoryBudget(1024 * MIB, 1, 1))


@pytest.mark.fast_cases("fista")
@pytest.mark.parametrize("method", ["fista", "sparsa"])
def test_reads_for_steps_prove_the_gap(small, method):
    params = {"alpha": 1e-2, "fit_intercept": False, "tau": 0.0, "active_mib": 0}
    kept = History()
    result = fit(method, small[0], params=params, passes=500, rtol=1e-4, callbacks=[kept])
    assert (result.status, result.record["certificate"]["kind"]) == ("CONVERGED", "duality_gap")
    # at every pass, and at no read of its own
    assert [record["eval_bytes_read"] for record in kept.records] == [0] * round(result.passes)
    lowest = min(fit(method, small[0], params=params, passes=600).record["objective"], result.record["objective"])
    for record in kept.records:
        assert record["objective"] - record["certificate"]["value"] <= lowest * (1.0 + 1e-9)


@pytest.mark.fast_cases("fista-softmax-3-None")
@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("method", ["fista", "sparsa"])
def test_reads_for_steps_prove_the_gap_with_a_free_intercept(tmp_path, method, loss, n_classes, class_weight):
    x, y = labelled_rows(300, 20, n_classes)
    weight = np.random.default_rng(1).integers(0, 3, 300) / 2.0
    dataset = write_dataset(tmp_path / "train", x, y, sample_weight=weight)
    params = {"loss": loss, "alpha": 1e-2, "class_weight": class_weight, "dtype": "float64"}
    best = fit("bcd", add_columns(dataset.path), params=params, rtol=1e-10, passes=300).record
    lowest = best["objective"] - best["certificate"]["value"]
    kept, own = History(), {**params, "active_mib": 0, "tau": 0.0}
    result = fit(method, dataset, params=own, passes=3000, rtol=1e-3, callbacks=[kept])
    assert (result.status, result.record["certificate"]["kind"]) == ("CONVERGED", "duality_gap")
    known = [record for record in kept.records if record.get("certificate", {}).get("kind") == "duality_gap"]
    # before gradients can be balanced an intercept may be searched
    assert len([record for record in known if record["eval_bytes_read"] == 0]) > 5
    for record in known:
        assert record["objective"] - record["certificate"]["value"] <= best["objective"] * (1.0 + 1e-12)
    assert result.record["objective"] - lowest <= 1e-3 * result.record["objective"]


def test_a_resumed_fit_has_the_bound_of_the_other(small, tmp_path):
    params = {"alpha": 1e-2, "active_mib": 0}
    whole = fit("fista", small[0], params=params, rtol=1e-2, passes=500)
    with interrupted():
        fit("fista", small[0], tmp_path / "run", params=params, rtol=1e-2, passes=500, callbacks=[StopAfter(9)])
    again = resume(tmp_path / "run")
    assert (again.status, again.passes) == (whole.status, whole.passes)
    assert again.model.weights.tobytes() == whole.model.weights.tobytes()
    assert again.record["certificate"] == whole.record["certificate"]


@pytest.mark.fast_cases("fista")
@pytest.mark.parametrize("method", ["fista", "sparsa"])
def test_a_tolerance_counts_alone_until_steps_are_rounding(small, method):
    params = {"alpha": 1e-2, "fit_intercept": False, "tau": 0.1, "active_mib": 0}
    early = fit(method, small[0], params=params, passes=500)
    late = fit(method, small[0], params=params, passes=500, rtol=1e-4)
    assert (early.status, late.status) == ("CONVERGED", "CONVERGED")
    assert early.passes < late.passes
    assert early.record["certificate"]["relative"] > 1e-4 >= late.record["certificate"]["relative"]
    # no bound is as near as this in single precision: the fit ends, and has not met its tolerance
    last = fit(method, small[0], params={**params, "dtype": "float32"}, passes=5000, rtol=1e-12)
    assert (last.status, last.passes < 5000) == ("MAX_PASSES", True)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "rtol"), [("fista", 1e-4), ("sparsa", 1e-4), ("fobos", 0.5)])
def test_a_tolerance_is_met_with_an_intercept(tmp_path, method, rtol):
    """Without column shards too: the intercept is made optimal, so that the scaled gradients are a dual point."""
    dataset = write_dataset(tmp_path / "train", *labelled_rows(300, 20, 3))
    params = {"loss": "softmax", "penalty": "l1", "alpha": 2e-2, "fit_intercept": True}
    result = fit(method, dataset, params=params, rtol=rtol, passes=500)
    certificate = result.record["certificate"]
    assert (result.status, certificate["kind"]) == ("CONVERGED", "duality_gap")
    proven = fit("bcd", add_columns(tmp_path / "train"), params=params, rtol=1e-9).record["objective"]
    assert 0.0 <= result.record["objective"] - proven <= certificate["value"]


def test_a_tolerance_is_refused_where_no_intercept_is_optimal_by_its_gradient(tmp_path):
    x, y = labelled_rows(50, 5, 2)
    params = {"loss": "hinge", "penalty": "l1", "fit_intercept": True}
    with pytest.raises(ParameterError, match="rtol: the certificate"):
        fit("fobos", write_dataset(tmp_path / "train", x, y), params=params, rtol=1e-2)
