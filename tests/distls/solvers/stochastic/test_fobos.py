"""Forward-backward splitting through the driver: its contract, its iterates, what it reaches, what it refuses."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from contract import SolverContract, visits
from helpers import distls, labelled_rows, raised, stored_rows, write_dataset
from target_helpers import write_targets

from distls import CSGDRegressor, evaluate, fit
from distls.planning.fit_plan import plan_fit
from distls.storage.errors import ParameterError
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
        "lanes": 1, "dtype": "float64", "alpha": 1e-2, "eta0": 0.4, "penalty": penalty, "fit_intercept": False,
    }  # fmt: skip
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
        "fobos", dataset, params={"alpha": 1e-2, "loss": loss, "lanes": lanes, "fit_intercept": False}, passes=40,
    ).record  # fmt: skip
    assert best <= record["objective"] <= 1.05 * best
    assert record["objective"] - best <= record["certificate"]["value"]


@pytest.mark.slow
def test_crammer_singer_learns_and_has_a_certificate(small):
    result = fit("fobos", small[0], params={"loss": "hinge", "alpha": 1e-3, "fit_intercept": False}, passes=20)
    assert evaluate(result.model, small[0]).error < 0.4
    assert result.record["certificate"]["kind"] == "duality_gap"
    longer = fit(
        "fobos", small[0], params={"loss": "hinge", "alpha": 1e-3, "lanes": 1, "fit_intercept": False}, passes=60,
    )  # fmt: skip
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


# -- steps that follow from all rows ---------------------------------------------------------------------


@pytest.mark.slow
class TestMeasured(SolverContract):
    """What was measured is kept, and the rest tried."""

    method = "csgd"
    params = {"tolerance": 0.2, "lanes": 3, "class_weight": "balanced"}


@pytest.mark.slow
class TestSpectrum(SolverContract):
    """On the hyperplane through the mean, of rows without a constant."""

    method = "ncsgd"
    params = {"eta0": "spectrum", "fit_intercept": False}


def _rows(n=4000, d=5):
    """Return rows that are not centred, and numbers of a line and noise."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, d)) + 0.7
    return x, x @ rng.standard_normal(d) + 1.0 + rng.standard_normal(n)


def _measured(run):
    return json.loads((run / "events.jsonl").read_text().splitlines()[0])["details"]["measured"]


@pytest.mark.slow_cases("sgd", "csgd-(False|True-dense)")
@pytest.mark.parametrize("layout", ["sparse", "dense"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("method", ["csgd", "sgd"])
def test_the_spectrum_is_numpys(tmp_path, layout, fit_intercept, method):
    x, y = labelled_rows(300, 8, 3, seed=1)
    rows, weights = x.toarray().astype(float) + 0.3, np.array([1.0, 0.25, 3.0])
    data = write_dataset(tmp_path / "d", sp.csr_array(rows) if layout == "sparse" else rows, y)
    given = {"fit_intercept": fit_intercept, "class_weight": dict(enumerate(weights)), "alpha": 0.01}
    given |= {"lanes": 2, "loss": "squared", "schedule": "sqrt", "dtype": "float64"}
    tried = fit(method, data, tmp_path / "run", params={**given, "eta0": "spectrum"}, passes=1)
    found = _measured(tmp_path / "run")
    s = weights[y] / weights[y].sum()
    rows = np.hstack([rows, np.ones((300, 1))]) if fit_intercept else rows
    hessian, mean = rows.T @ (s[:, None] * rows), s @ rows
    if method == "csgd":  # of models through the mean point
        onto = np.eye(len(mean)) - np.outer(mean, mean) / (mean @ mean)
        hessian = onto @ hessian @ onto
    largest, trace = np.linalg.eigvalsh(hessian)[-1] + 0.01, np.trace(hessian) + 8 * 0.01
    assert found["trace"] == pytest.approx(trace, rel=1e-5)
    assert found["largest_eigenvalue"] == pytest.approx(largest, rel=0.01)
    assert found["eta0"] == pytest.approx(8.0 / (trace + 2.0 * largest), rel=0.01)
    assert f"eta0={found['eta0']:.6g} by the Hessian" in tried.record["notes"][0]
    as_number = fit(method, data, params={**given, "eta0": found["eta0"]}, passes=1)
    assert as_number.model.sha256 == tried.model.sha256


@pytest.mark.slow
def test_constant_steps_by_the_spectrum_stay_stable_and_are_an_eighth(tmp_path):
    data, found = write_dataset(tmp_path / "d", *labelled_rows(300, 8, 3, seed=1)), {}
    for schedule in ("constant", "t^-0.75"):
        run = tmp_path / schedule
        fit("adaline", data, run, params={"eta0": "spectrum", "schedule": schedule}, passes=1)
        found[schedule] = _measured(run)
    assert found["t^-0.75"]["eta0"] == pytest.approx(8.0 * found["constant"]["eta0"])


@pytest.mark.slow
def test_the_first_rows_meet_the_tolerance_of_proposition_2_2(tmp_path):
    """Of m drawn rows: |w*| |mean_m(x) - mean(x)| + |mean_m(y) - mean(y)| <= epsilon |w*|, in the root mean square."""
    epsilon, (x, y) = 0.1, _rows()
    rows = np.hstack([x, np.ones((len(x), 1))])
    best, mean_x, mean_y = np.linalg.lstsq(rows, y, rcond=None)[0], rows.mean(axis=0), y.mean()
    data = write_targets(tmp_path / "d", x, y[:, None], "continuous")
    result = fit("csgd", data, tmp_path / "run", params={"tolerance": epsilon, "lanes": 1}, passes=1)
    m = round(_measured(tmp_path / "run")["rows"])
    assert "rows is within tolerance" in result.record["notes"][0]
    rng, shifts, distances = np.random.default_rng(1), [], []
    for _ in range(400):
        own = rng.integers(len(x), size=m)
        near_x, near_y = rows[own].mean(axis=0), y[own].mean()
        shifts.append(np.linalg.norm(near_x - mean_x) + abs(near_y - mean_y) / np.linalg.norm(best))
        # of w* to the hyperplane, as corrected, and the proposition's bound of it
        distances.append(abs(near_y - best @ near_x) / np.linalg.norm(best))
    shift = np.sqrt(np.mean(np.square(shifts)))
    # half or twice of it is what four times more or fewer rows have
    assert 0.55 * epsilon < shift <= epsilon
    assert np.sqrt(np.mean(np.square(distances))) <= shift


@pytest.mark.slow
def test_rows_of_several_outputs_are_those_of_the_worst_and_at_most_all(tmp_path):
    x, y = labelled_rows(600, 8, 3, seed=2)
    rows, data = x.toarray().astype(float), write_dataset(tmp_path / "d", x, y)
    covariance = np.cov(rows.T, bias=True)
    wanted = []
    for code in range(3):
        target = (y == code) - np.mean(y == code)
        c = rows.T @ target / 600
        norm = np.linalg.norm(c) ** 3 / (c @ covariance @ c)
        # the first iterate of conjugate gradients is no longer than the solution
        assert norm <= np.linalg.norm(np.linalg.pinv(covariance) @ c)
        wanted.append((np.sqrt(np.trace(covariance)) + target.std() / norm) ** 2)
    given = {"lanes": 2, "eta0": 0.1}
    found = {}
    for epsilon in (0.5, 1e-3):
        run = tmp_path / str(epsilon)
        model = fit("c-adaline", data, run, params={**given, "schedule": "two-phase", "tolerance": epsilon}).model
        found[epsilon] = _measured(run)
        same = {**given, "schedule": "two-phase", "switch": found[epsilon]["switch"]}
        assert fit("c-adaline", data, params=same).model.sha256 == model.sha256
    assert found[0.5]["rows"] == pytest.approx(max(wanted) / 0.25, abs=2.0)
    assert found[0.5]["switch"] == found[0.5]["rows"] / 2
    assert found[1e-3]["rows"] == 600


@pytest.mark.slow
def test_targets_that_do_not_vary_need_the_rows_alone(tmp_path):
    x, _ = _rows(400)
    data = write_targets(tmp_path / "d", x, np.full((400, 1), 3.0), "continuous")
    fit("csgd", data, tmp_path / "run", params={"tolerance": 0.2, "lanes": 1}, passes=1)
    spread = np.trace(np.cov(x.T, bias=True))
    assert _measured(tmp_path / "run")["rows"] == pytest.approx(spread / 0.04, abs=2.0)


@pytest.mark.fast_cases("csgd-params0", "sgd", "csgd-params7")
@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("csgd", {"tolerance": 0.1, "switch": 50}, "switch=50.0: not with tolerance=0.1; leave it out"),
        ("csgd", {"tolerance": 0.1, "center": "global"}, "center=global: not with tolerance=0.1; leave it out"),
        ("ncsgd", {"tolerance": 0.1}, "tolerance=0.1: of schedule=two-phase only; leave it out"),
        ("csgd", {"tolerance": 0.1, "fit_intercept": False}, "no mean point binds models without intercept"),
        ("sgd", {"eta0": "spectrum"}, "eta0=spectrum: not with schedule=adaptive; leave it out"),
        ("asgd", {"eta0": "spectrum"}, "eta0=spectrum: not with loss=softmax; leave it out"),
        ("asgd", {"eta0": "spectrum", "loss": "squared", "center": "running", "average": "none"},
         "eta0=spectrum: not with center=running; leave it out"),
        ("csgd", {"eta0": "spectrum", "features": "fourier"}, "leave out eta0=spectrum and tolerance"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused(tmp_path, method, params, message):
    x, y = labelled_rows(60, 5, 3)
    said = raised(ParameterError, fit, method, write_dataset(tmp_path / "d", x.toarray(), y), params=params, passes=1)
    assert message in said


@pytest.mark.slow
def test_the_command_line_and_the_estimator_take_both(tmp_path):
    x, y = _rows(300)
    write_targets(tmp_path / "d", x, y[:, None], "continuous")
    given = {"eta0": "spectrum", "tolerance": 0.3, "lanes": 1}
    words = [word for name, value in given.items() for word in ("-p", f"{name}={value}")]
    done = distls("fit", "csgd", tmp_path / "d", tmp_path / "run", *words, "--passes", "2")
    assert done.code == 0, done.err
    assert set(_measured(tmp_path / "run")) == {"rows", "switch", "eta0", "trace", "largest_eigenvalue"}
    assert "within tolerance" in distls("info", tmp_path / "run").out
    found = CSGDRegressor(**given, passes=2).fit(x, y)
    numbers = {name: _measured(tmp_path / "run")[name] for name in ("eta0", "switch")}
    same = CSGDRegressor(**numbers, lanes=1, passes=2).fit(x, y)
    np.testing.assert_allclose(found.coef_, same.coef_, rtol=1e-6)
    for name, value in (("eta0", "spectrum"), ("tolerance", 0.3)):
        with pytest.raises(ParameterError, match=f"{name}={value} needs all rows at once"):
            CSGDRegressor(**{name: value}).partial_fit(x, y)
