"""Generalized least squares through the driver: Algorithm 1, its bound, its independence of the features' basis."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from contract import SolverContract
from helpers import labelled_rows, raised, write_dataset
from sklearn.linear_model import LogisticRegression, Ridge

from distls import History, evaluate, fit, resume
from distls.cli.report import result_lines, run_lines
from distls.execution.memory_budget import MIB, MemoryBudget
from distls.methods.method_registry import method_named
from distls.planning.fit_plan import plan_fit
from distls.solvers.least_squares import gls_passes, metric
from distls.storage.errors import MemoryPlanError, MismatchError, ParameterError
from distls.testing.solvers import StopAfter, interrupted
from reference import least_squares as oracle


class _Deterministic(SolverContract):
    """Nothing is drawn, so that the seed changes nothing."""

    random = False


class TestSoftmaxAccelerated(_Deterministic):
    """Defaults: Nesterov's steps, L adapted."""

    method = "gls"
    passes = 7


@pytest.mark.slow
class TestLogitPlainWeighted(_Deterministic):
    method = "gls"
    params = {
        "link": "logit", "accelerate": "none", "lipschitz": "sharp", "class_weight": "balanced", "lanes": 3,
        "dtype": "float32", "alpha": 1e-3, "fit_intercept": False,
    }  # fmt: skip


@pytest.mark.slow
class TestSoftmaxInAnotherBasis(_Deterministic):
    """alpha = 0 on collinear columns: one more read, and directions left out."""

    method = "gls"
    params = {"alpha": 0}
    passes = 5

    @pytest.fixture(scope="class")
    def dataset(self, tmp_path_factory):
        x, y = labelled_rows(1050, 30, 5)
        x = sp.csr_matrix(sp.hstack([x, x[:, :2]]))
        return write_dataset(tmp_path_factory.mktemp("data") / "train", x, y)


@pytest.mark.slow
class TestIdentityPath(_Deterministic):
    """Each fold's fits are made by whoever is there."""

    method = "gls"
    passes = 1
    params = {"link": "identity", "alpha": "path", "folds": 3}

    @pytest.mark.parametrize("rounds", [1])
    @pytest.mark.parametrize("checkpoint_seconds", [0.0])
    def test_interrupted_and_resumed(self, dataset, undisturbed, tmp_path, rounds, checkpoint_seconds):
        super().test_interrupted_and_resumed(dataset, undisturbed, tmp_path, rounds, checkpoint_seconds)

    @pytest.mark.slow
    @pytest.mark.parametrize(("rounds", "checkpoint_seconds"), [(1, 1e9)])
    def test_interrupted_at_other_moments_and_resumed(self, dataset, undisturbed, tmp_path, rounds, checkpoint_seconds):
        assert self.stop_and_resume(dataset, tmp_path / "run", rounds, checkpoint_seconds) == undisturbed


@pytest.mark.slow
class TestSoftmaxPath(_Deterministic):
    """Long enough for the alpha to be chosen and fitted to everything."""

    method = "gls"
    passes = 16
    params = {"alpha": "path", "folds": 2, "alphas": "0.3:0.1"}

    def test_the_alpha_is_chosen(self, dataset):
        history = History()
        self.fit(dataset, callbacks=[history])
        preliminary = [record.get("preliminary", False) for record in history.records]
        assert preliminary == sorted(preliminary, reverse=True)
        assert 4 < sum(preliminary) < 14

    @pytest.mark.parametrize("rounds", [1, 3, 13])
    @pytest.mark.parametrize("checkpoint_seconds", [0.0])
    def test_interrupted_and_resumed(self, dataset, undisturbed, tmp_path, rounds, checkpoint_seconds):
        super().test_interrupted_and_resumed(dataset, undisturbed, tmp_path, rounds, checkpoint_seconds)


def _dense(n, d, k, seed=0, noise=2.0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) + rng.standard_normal(d)
    scores = x @ rng.standard_normal((d, k)) + noise * rng.gumbel(size=(n, k))
    return x, scores.argmax(axis=1).astype(np.int32)


def _records(dataset, params, passes):
    history = History()
    fit("gls", dataset, params=params, passes=passes, eval_every=1, callbacks=[history])
    return history.records


def _objectives(dataset, params, passes):
    return np.array([record["objective"] for record in _records(dataset, params, passes)])


def test_sigma_is_summed_and_factorised_once(tmp_path, monkeypatch):
    """In ten reads of Algorithm 1 as printed."""
    dataset, calls = write_dataset(tmp_path / "d", *_dense(250, 6, 3)), []
    for module, name in ((gls_passes, "second_moments"), (metric, "_cholesky")):
        own = getattr(module, name)
        counted = lambda *given, own=own, **named: calls.append(own.__name__) or own(*given, **named)  # noqa: E731
        monkeypatch.setattr(module, name, counted)
    assert fit("gls", dataset, passes=10, as_published=True, eval_every=0).passes == 10
    assert calls == ["second_moments", "_cholesky"]


@pytest.mark.fast_cases(r"True-0\.0-dense-softmax$")
@pytest.mark.parametrize("link", ["softmax", "logit"])
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize(("fit_intercept", "alpha"), [(True, 0.0), (True, 0.02), (False, 0.02)])
def test_plain_steps_are_the_papers(tmp_path, link, layout, fit_intercept, alpha):
    x, y = _dense(250, 6, 3)
    s = np.random.default_rng(1).integers(1, 5, 250) / 2
    stored = x if layout == "dense" else sp.csr_matrix(x)
    dataset = write_dataset(tmp_path / "d", stored, y, sample_weight=s)
    params = {"link": link, "alpha": alpha, "accelerate": "none", "lipschitz": "sharp"}
    plain = oracle.problem(x, np.eye(3)[y], link, alpha, s=s, constant=fit_intercept)
    iterates = oracle.train(plain, 6)
    history = History()
    for passes in (1, 3, 6):
        model = fit(
            "gls", dataset, params={**params, "fit_intercept": fit_intercept}, passes=passes, callbacks=[history],
        ).model  # fmt: skip
        wanted = iterates[passes]
        np.testing.assert_allclose(model.weights, wanted[:6], rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(model.intercept, wanted[6] if fit_intercept else np.zeros(3), rtol=1e-9, atol=1e-11)
    # every read tells the loss at the iterate before, in units of mean weight one
    losses = [record["running_loss"] for record in history.records[-6:]]
    penalty = [0.5 * alpha * np.square(w[:6]).sum() for w in iterates[:6]]
    values = np.array([plain.value(w) for w in iterates[:6]]) - penalty
    np.testing.assert_allclose(losses, values, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("link", ["softmax", "logit"])
@pytest.mark.parametrize(("given", "start"), [("sharp", 1.0), ("adaptive", 0.125), (0.01, None)])
def test_accelerated_and_adaptive_steps_are_the_oracles(tmp_path, link, given, start):
    x, y = _dense(300, 8, 4, noise=0.3)
    dataset = write_dataset(tmp_path / "d", x, y)
    records = _records(dataset, {"link": link, "alpha": 1e-3, "lipschitz": given}, 25)
    found = [record["details"]["best_objective"] for record in records[1:]]
    plain = oracle.problem(x, np.eye(4)[y], link, 1e-3)
    first = given if start is None else start * oracle.SHARP[link]
    np.testing.assert_allclose(found, oracle.accelerate(plain, 24, start=first), rtol=1e-9)
    if start != 1.0:
        outcomes = [record["details"]["outcome"] for record in records[1:]]
        assert "rejected" in outcomes  # or the test would not see L raised
        assert records[-1]["details"]["lipschitz"] > first
    assert np.all(np.diff(found) <= 0)


@pytest.mark.fast_cases("softmax")
@pytest.mark.parametrize(("link", "bound"), [("softmax", 0.5), ("logit", 0.25)])
def test_the_bound_of_theorem_1_holds(tmp_path, link, bound):
    """F(W_t) - F(W*) <= 2 L ||W*||^2 / (t + 4), in the metric that the proof uses."""
    x, y = _dense(300, 6, 3, noise=3.0)
    dataset = write_dataset(tmp_path / "d", x, y)
    shared = {"link": link, "alpha": 0}
    optimum = fit("gls", dataset, params=shared, passes=200)
    assert optimum.status == "CONVERGED"
    z = np.hstack([x, np.ones((300, 1))])
    w = np.vstack([optimum.model.weights, optimum.model.intercept])
    size = np.square(z @ w).sum() / 300
    excess = (
        _objectives(dataset, {**shared, "accelerate": "none", "lipschitz": "sharp"}, 40) - optimum.record["objective"]
    )
    assert np.all(excess > -1e-15)
    assert len(excess) >= 30  # it may end when rounding hides any decrease
    assert np.all(excess <= 2 * bound * size / (np.arange(1, len(excess) + 1) + 4))
    assert np.all(np.diff(excess) <= 0)


@pytest.mark.slow
def test_the_papers_l_takes_twice_the_steps(tmp_path):
    dataset = write_dataset(tmp_path / "d", *_dense(300, 6, 3))
    params = {"alpha": 0, "accelerate": "none"}
    sharp = _objectives(dataset, {**params, "lipschitz": "sharp"}, 20)
    paper = _objectives(dataset, {**params, "lipschitz": "paper"}, 40)
    np.testing.assert_allclose(paper[1::2][5:], sharp[5:], rtol=1e-2)
    assert np.all(paper[:20] > sharp)


@pytest.mark.slow
@pytest.mark.parametrize("accelerate", ["none", "nesterov"])
def test_objectives_do_not_depend_on_the_basis_of_the_features(tmp_path, accelerate):
    rng = np.random.default_rng(0)
    x, y = _dense(300, 10, 3)
    params = {"alpha": 0, "accelerate": accelerate}
    found = {}
    for condition in (1.0, 1e2, 1e8):
        u, v = (np.linalg.qr(rng.standard_normal((10, 10)))[0] for _ in range(2))
        mixed = x @ (u * np.logspace(0, -np.log10(condition), 10)) @ v if condition > 1 else x
        dataset = write_dataset(tmp_path / f"{condition:g}", mixed, y)
        found[condition] = [
            record["details"]["best_objective"]
            for record in _records(dataset, params, 101)
            if "best_objective" in record["details"]
        ]
    for condition in (1e2, 1e8):
        n = min(len(found[1.0]), len(found[condition]))
        assert n >= 20
        np.testing.assert_allclose(found[condition][:n], found[1.0][:n], rtol=1e-8)


@pytest.mark.fast_cases("False")
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_optimum_is_scikit_learns(tmp_path, fit_intercept):
    x, y = _dense(300, 8, 3)
    dataset = write_dataset(tmp_path / "d", x, y)
    alpha = 1e-2
    result = fit("gls", dataset, params={"alpha": alpha, "fit_intercept": fit_intercept}, passes=300)
    assert result.status == "CONVERGED"
    theirs = LogisticRegression(C=1 / (300 * alpha), fit_intercept=fit_intercept, tol=1e-10, max_iter=10_000)
    theirs.fit(x, y)
    np.testing.assert_allclose(result.model.weights.T, theirs.coef_, atol=1e-5)
    assert result.record["certificate"]["kind"] == "strong_convexity"
    assert result.record["certificate"]["value"] < 1e-6


@pytest.mark.fast_cases("False-softmax$")
@pytest.mark.parametrize("link", ["softmax", "logit", "identity", "probit"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_certificates_are_bounds_near_the_truth(tmp_path, link, fit_intercept):
    x, y = _dense(300, 8, 3)
    weight = np.random.default_rng(1).integers(1, 5, 300) / 2
    # curvatures far above alpha, and features with means
    dataset = write_dataset(tmp_path / "d", 3.0 * x + 1.0, y, sample_weight=weight)
    params = {"link": link, "alpha": 1e-3, "fit_intercept": fit_intercept}
    best = fit("gls", dataset, params=params, passes=3000).record["objective"]
    for passes in (5, 10, 20, 40):
        record = fit("gls", dataset, params=params, passes=passes, eval_every=passes).record
        excess, certificate = record["objective"] - best, record["certificate"]
        ridge = link == "identity" and not fit_intercept
        assert certificate["kind"] == ("duality_gap" if ridge else "strong_convexity")
        assert excess <= certificate["value"] + 1e-12
        if 1e-4 < excess / best < 1e-1:
            assert certificate["value"] <= 10.0 * excess


def test_rounds_know_their_gap_and_what_is_left_of_a_fifth_brings_it_nearer(tmp_path):
    x, y = _dense(300, 8, 3)
    dataset = write_dataset(tmp_path / "d", 3.0 * x + 1.0, y)
    params = {"link": "softmax", "alpha": 1e-3, "fit_intercept": False}
    best = fit("gls", dataset, params=params, passes=3000).record["objective"]
    kept = History()
    result = fit("gls", dataset, params=params, rtol=1e-2, callbacks=[kept])
    assert result.status == "CONVERGED"
    judged = [record for record in kept.records if "certificate" in record]
    own, excess = judged[-1]["gap_estimate"], result.record["objective"] - best
    assert own <= 1e-2 * result.record["objective"]
    assert excess <= result.record["certificate"]["value"] < 0.5 * own


def test_no_bound_with_an_intercept_in_single_precision(tmp_path):
    dataset = write_dataset(tmp_path / "d", *_dense(300, 8, 3))
    result = fit("gls", dataset, params={"alpha": 1e-2, "fit_intercept": True, "dtype": "float32"}, passes=5)
    assert result.record["certificate"]["kind"] == "gradient_norm"


@pytest.mark.slow
def test_with_a_tolerance_a_fit_is_evaluated_once_it_is_near(tmp_path):
    dataset = write_dataset(tmp_path / "d", *_dense(300, 8, 3))
    kept = History()
    result = fit(
        "gls", dataset, params={"alpha": 1e-3, "fit_intercept": False}, rtol=1e-3, passes=300, callbacks=[kept],
    )  # fmt: skip
    assert result.status == "CONVERGED"
    evaluated = [record for record in kept.records if "objective" in record]
    assert 1 <= len(evaluated) < len(kept.records) / 2
    for record in kept.records[:-1]:
        if "objective" in record:
            assert record["gap_estimate"] <= 2e-3 * record["objective"]


@pytest.mark.fast_cases("dense-True$")
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_identity_is_ridge_regression_at_one_read(tmp_path, layout, fit_intercept):
    x, y = _dense(300, 8, 3)
    s = np.random.default_rng(1).integers(1, 5, 300) / 2
    dataset = write_dataset(tmp_path / "d", x if layout == "dense" else sp.csr_matrix(x), y, sample_weight=s)
    params = {"link": "identity", "alpha": 0.1, "fit_intercept": fit_intercept}
    result = fit("gls", dataset, tmp_path / "run", params=params)
    assert (result.status, result.passes) == ("CONVERGED", 1.0)
    theirs = Ridge(alpha=0.1 * s.sum(), fit_intercept=fit_intercept).fit(x, np.eye(3)[y], sample_weight=s)
    np.testing.assert_allclose(result.model.weights, theirs.coef_.T, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(result.model.intercept, theirs.intercept_, rtol=1e-9, atol=1e-12)
    assert result.record["certificate"]["value"] < 1e-12
    assert evaluate(result.model, dataset).error == np.mean(theirs.predict(x).argmax(axis=1) != y)


def test_resuming_a_closed_form_that_was_interrupted(tmp_path):
    dataset = write_dataset(tmp_path / "d", *_dense(300, 8, 3))
    params = {"link": "identity", "alpha": 0.1}
    whole = fit("gls", dataset, params=params)
    with interrupted():
        fit("gls", dataset, tmp_path / "run", params=params, callbacks=[StopAfter(1)])
    ended = resume(tmp_path / "run")
    assert ended.status == "CONVERGED"
    assert ended.model.sha256 == whole.model.sha256


def test_init_goes_on_where_a_run_has_stopped(tmp_path):
    dataset = write_dataset(tmp_path / "d", *_dense(300, 8, 4, noise=0.5))
    params = {"alpha": 1e-4, "accelerate": "none", "lipschitz": "sharp"}
    fit("gls", dataset, tmp_path / "first", params=params, passes=5)
    warm = fit("gls", dataset, params={**params, "init": str(tmp_path / "first")}, passes=5).model
    whole = fit("gls", dataset, params=params, passes=10).model
    np.testing.assert_allclose(warm.weights, whole.weights, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(warm.intercept, whole.intercept, rtol=1e-9, atol=1e-11)


@pytest.mark.fast_cases("identity")
@pytest.mark.parametrize("link", ["identity", "softmax"])
def test_singular_sigma_is_fitted_and_said(tmp_path, link):
    x, y = _dense(300, 5, 3)
    # the sum of two columns, a constant, a column of zeros
    wide = np.hstack([x, x[:, :1] + x[:, 1:2], np.full((300, 1), 2.0), np.zeros((300, 1))])
    params = {"link": link, "alpha": 0}
    narrow = fit("gls", write_dataset(tmp_path / "n", x, y), params=params, passes=150)
    dataset = write_dataset(tmp_path / "w", wide, y)
    result = fit("gls", dataset, tmp_path / "run", params=params, passes=150)
    assert result.record["objective"] == pytest.approx(narrow.record["objective"], rel=1e-9)
    said = (
        "the second-moment matrix has rank 6 of 9; its 3 null directions were dropped. Set alpha > 0 to regularise "
        "them instead"
    )
    assert said in result.record["notes"]
    assert f"note: {said}" in result_lines(result)
    assert f"note: {said}" in run_lines(tmp_path / "run")
    assert np.abs(result.model.weights).max() < 100
    np.testing.assert_array_equal(result.model.weights[7], 0.0)


@pytest.mark.fast_cases("dense-False$")
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_a_path_is_separate_fits_of_every_fold(tmp_path, layout, fit_intercept):
    x, y = _dense(230, 7, 3)
    s = np.random.default_rng(1).integers(1, 5, 230) / 2
    stored = x if layout == "dense" else sp.csr_matrix(x)
    dataset = write_dataset(tmp_path / "d", stored, y, sample_weight=s, partition_rows=60)
    params = {"link": "identity", "alpha": "path", "folds": 4, "fit_intercept": fit_intercept}
    result = fit("gls", dataset, tmp_path / "run", params={**params, "alphas": "10:1:0.1:0.01"})
    assert (result.status, result.passes) == ("CONVERGED", 1.0)
    # a fold is a quarter of each partition's rows, in their order
    fold = np.concatenate([np.repeat(np.arange(4), np.diff(n * np.arange(5) // 4)) for n in (60, 60, 60, 50)])
    targets, errors = np.eye(3)[y], []
    for alpha in (10, 1, 0.1, 0.01):
        squares = np.empty(230)
        for held in range(4):
            own = fold == held
            ridge = Ridge(alpha=alpha * s[~own].sum(), fit_intercept=fit_intercept)
            ridge.fit(x[~own], targets[~own], sample_weight=s[~own])
            squares[own] = np.square(targets[own] - ridge.predict(x[own])).mean(axis=1)
        errors.append(np.average(squares, weights=s))
    path = result.record["details"]["path"]
    assert [point["alpha"] for point in path] == [10, 1, 0.1, 0.01]
    np.testing.assert_allclose([point["cv_mse"] for point in path], errors, rtol=1e-9)
    best = (10, 1, 0.1, 0.01)[int(np.argmin(errors))]
    assert result.model.params["alpha"] == best
    alone = fit("gls", dataset, params={"link": "identity", "alpha": best, "fit_intercept": fit_intercept})
    np.testing.assert_allclose(result.model.weights, alone.model.weights, rtol=1e-9, atol=1e-12)
    assert result.record["objective"] == pytest.approx(alone.record["objective"], rel=1e-12)
    said = f"alpha={best:.6g} has the lowest mean squared error of 4 in 4-fold cross-validation, {min(errors):.6g}"
    assert f"note: {said}" in run_lines(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("link", "layout", "fit_intercept"),
    [("softmax", "dense", True), ("softmax", "csr", False), ("logit", "csr", True), ("logit", "dense", False)],
)
def test_a_path_at_shared_reads_is_separate_fits_of_every_fold(tmp_path, link, layout, fit_intercept):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((230, 7))
    y = (x[:, :3] + 0.7 * rng.gumbel(size=(230, 3))).argmax(axis=1).astype(np.int32)
    s = rng.integers(1, 5, 230) / 2
    stored = x if layout == "dense" else sp.csr_matrix(x)
    dataset = write_dataset(tmp_path / "d", stored, y, sample_weight=s, partition_rows=60)
    params = {"link": link, "alpha": "path", "folds": 3, "fit_intercept": fit_intercept}
    alphas = (1.0, 0.05, 0.001)
    result = fit("gls", dataset, tmp_path / "run", params={**params, "alphas": "0.05:1:0.001"}, passes=400)
    assert result.status == "CONVERGED"
    fold = np.concatenate([np.repeat(np.arange(3), np.diff(n * np.arange(4) // 3)) for n in (60, 60, 60, 50)])
    losses, wrong = np.zeros(3), np.zeros(3)
    for a, held in itertools.product(range(3), range(3)):
        own = fold == held
        shared = {"link": link, "alpha": alphas[a], "fit_intercept": fit_intercept}
        others = write_dataset(tmp_path / f"{a}-{held}", x[~own], y[~own], sample_weight=s[~own])
        alone = fit("gls", others, params=shared, passes=400)
        assert alone.status == "CONVERGED"
        scores = x[own] @ alone.model.weights + alone.model.intercept
        losses[a] += s[own] @ oracle.LINKS[link](scores, np.eye(3)[y[own]])[0] / s.sum()
        wrong[a] += np.sum(scores.argmax(axis=1) != y[own]) / 230
    path = result.record["details"]["path"]
    assert [point["alpha"] for point in path] == list(alphas)
    # each fit of the path ends when its objective is settled to about 1e-6, theirs at rounding
    np.testing.assert_allclose([point["cv_loss"] for point in path], losses, rtol=1e-3)
    np.testing.assert_allclose([point["cv_error"] for point in path], wrong, atol=2.5 / 230)
    best = int(np.argmin(losses))
    assert best == 1  # neither end of the path, or it would choose nothing
    assert result.model.params["alpha"] == alphas[best]
    whole = fit(
        "gls", dataset, params={"link": link, "alpha": alphas[best], "fit_intercept": fit_intercept}, passes=400,
    )  # fmt: skip
    assert result.record["objective"] == pytest.approx(whole.record["objective"], rel=1e-12)
    np.testing.assert_allclose(result.model.weights, whole.model.weights, atol=1e-5)
    said = f"alpha={alphas[best]:.6g} has the lowest mean loss of 3 in 3-fold cross-validation, "
    assert any(line.startswith(f"note: {said}") for line in run_lines(tmp_path / "run"))


@pytest.mark.slow
def test_a_path_that_is_cut_short_publishes_the_mean_of_the_folds_and_says_so(tmp_path):
    dataset = write_dataset(tmp_path / "d", *_dense(200, 5, 3))
    params = {"alpha": "path", "alphas": "0.1:0.01"}
    for passes, note in ((1, "alpha=0.1 is the first of 2, none of which is judged yet"), (7, "alpha=0.")):
        result = fit("gls", dataset, params=params, passes=passes)
        assert result.status == "MAX_PASSES"
        assert result.record["notes"][0].startswith(note)
        assert result.record["notes"][-1] == (
            "the fits of the path have not converged: double --passes, or take newton, which needs fewer"
        )
        assert result.record["preliminary"] is True
    whole = fit("gls", dataset, params={"alpha": result.model.params["alpha"]}, passes=100)
    assert result.record["objective"] == pytest.approx(whole.record["objective"], rel=0.05)


@pytest.mark.slow
def test_a_path_that_patience_ends_has_its_alpha_after_a_resume_too(tmp_path):
    x, y = labelled_rows(300, 20, 4)
    dataset = write_dataset(tmp_path / "d", x, y)
    x, y = labelled_rows(120, 20, 4, seed=9)
    options = {
        "params": {"alpha": "path", "alphas": "0.3:0.1", "folds": 2}, "eval_data": write_dataset(tmp_path / "e", x, y),
        "eval_every": 1, "patience": 3, "passes": 60, "checkpoint_seconds": 0.0,
    }  # fmt: skip
    whole = fit("gls", dataset, tmp_path / "whole", **options)
    assert whole.status == "EARLY_STOPPED"
    with interrupted():
        fit("gls", dataset, tmp_path / "run", callbacks=[StopAfter(2)], **options)
    resumed = resume(tmp_path / "run")
    assert resumed.model.sha256 == whole.model.sha256
    assert resumed.model.params == whole.model.params
    assert resumed.model.params["alpha"] == 0.3


@pytest.mark.slow
def test_no_certificate_ends_a_path_before_its_alpha_is_chosen(tmp_path):
    dataset = write_dataset(tmp_path / "d", *_dense(300, 5, 3, noise=0.3))
    # alpha=100 alone meets the tolerance within a few reads, long before 0.001 is fitted
    params = {"alpha": "path", "alphas": "100:0.001", "fit_intercept": False}
    quick = fit("gls", dataset, params={"alpha": 100, "fit_intercept": False}, tol=1e-3, passes=50)
    assert (quick.status, quick.passes <= 6) == ("CONVERGED", True)
    result = fit("gls", dataset, params=params, tol=1e-3, passes=200)
    assert result.status == "CONVERGED"
    assert result.model.params["alpha"] == 0.001
    assert "preliminary" not in result.record


@pytest.mark.slow
def test_a_path_goes_on_from_an_initial_model(tmp_path):
    dataset = write_dataset(tmp_path / "d", *_dense(300, 6, 3))
    fit("gls", dataset, tmp_path / "first", params={"alpha": 0.01}, passes=100)
    given = {"alpha": "path", "alphas": "0.02:0.01"}
    cold = fit("gls", dataset, params=given, passes=300)
    warm = fit("gls", dataset, params={**given, "init": str(tmp_path / "first")}, passes=300)
    np.testing.assert_allclose(warm.model.weights, cold.model.weights, atol=1e-5)
    assert warm.passes < cold.passes


def test_a_path_that_does_not_fit_is_refused_with_a_remedy(tmp_path):
    dataset = write_dataset(tmp_path / "d", *labelled_rows(300, 1000, 20))
    budget = MemoryBudget(400 * MIB)
    fit("gls", dataset, params={"alpha": 1e-3}, passes=1, memory=budget)
    with pytest.raises(MemoryPlanError, match=r"or try fewer alphas or folds: -p alphas=1:0\.1:0\.01 -p folds=2"):
        fit("gls", dataset, params={"alpha": "path"}, passes=1, memory=budget)
    fit("gls", dataset, params={"alpha": "path", "alphas": "0.1", "folds": 2}, passes=3, memory=budget)


def test_the_default_path_is_relative_to_the_features(tmp_path):
    x, y = _dense(200, 5, 2)
    found = []
    for scale in (1.0, 1000.0):
        dataset = write_dataset(tmp_path / f"{scale}", x * scale, y)
        result = fit("gls", dataset, params={"link": "identity", "alpha": "path"})
        found.append(result.record["details"]["path"])
        alphas = [point["alpha"] for point in found[-1]]
        assert alphas[0] == pytest.approx(10 * np.square(x * scale).mean())
        assert alphas[-1] == pytest.approx(1e-6 * np.square(x * scale).mean())
        assert len(alphas) == 20
    np.testing.assert_allclose([p["cv_mse"] for p in found[0]], [p["cv_mse"] for p in found[1]], rtol=1e-9)


def test_what_is_refused_before_reading(tmp_path):
    dataset = write_dataset(tmp_path / "d", *_dense(200, 5, 2))
    fit("gls", dataset, tmp_path / "run", passes=1)
    closed = "link=identity is solved in closed form and has no use for it; drop it"
    cases = [
        ({"alpha": -1}, ParameterError, "gls: alpha=-1: expected a number from 0 to inf, or path"),
        ({"lipschitz": 0}, ParameterError, "gls: lipschitz=0: must be greater than 0, or adaptive"),
        ({"link": "identity", "lipschitz": "sharp"}, ParameterError, f"gls: lipschitz=sharp: {closed}"),
        ({"link": "identity", "accelerate": "nesterov"}, ParameterError, f"gls: accelerate=nesterov: {closed}"),
        ({"link": "identity", "init": str(tmp_path / "run")}, ParameterError, closed),
        ({"alphas": "1:2"}, ParameterError, "gls: alphas=1:2 is of alpha=path; give that too, or drop it"),
        ({"folds": 3}, ParameterError, "gls: folds=3 is of alpha=path; give that too, or drop it"),
        ({"link": "identity", "alphas": "1"}, ParameterError, "gls: alphas=1 is of alpha=path"),
        (
            {"link": "identity", "alpha": "path", "alphas": "1;2"},
            ParameterError,
            "gls: alphas=1;2: expected numbers greater than 0 separated by colons, such as 1:0.1:0.01",
        ),
        ({"loss": "softmax"}, ParameterError, "gls has no parameter 'loss'"),
    ]  # fmt: skip
    for params, error, message in cases:
        assert message in raised(error, fit, "gls", dataset, params=params)


@pytest.mark.fast_cases("identity")
@pytest.mark.parametrize("link", ["identity", "softmax"])
def test_a_fold_without_rows_is_refused(tmp_path, link):
    dataset = write_dataset(tmp_path / "d", *_dense(12, 3, 2), partition_rows=4)
    with pytest.raises(ParameterError, match="folds=6: a fold has no rows of any weight; ask for fewer"):
        fit("gls", dataset, params={"link": link, "alpha": "path", "folds": 6})


def test_init_that_does_not_fit_is_refused(tmp_path):
    x, y = _dense(100, 5, 2)
    fit("gls", write_dataset(tmp_path / "d", x, y), tmp_path / "run", passes=1)
    other = write_dataset(tmp_path / "o", x[:, :4], y)
    with pytest.raises(MismatchError, match=r"a model of 5 features and 1 output; .* has 4 and 1, or other"):
        fit("gls", other, params={"init": str(tmp_path / "run")})


def test_a_gram_matrix_that_does_not_fit_is_refused_with_a_block_size(tmp_path):
    dataset = write_dataset(tmp_path / "d", *labelled_rows(200, 30_000, 3))
    budget = MemoryBudget(1024 * MIB)
    said = raised(MemoryPlanError, fit, "gls", dataset, memory=budget)
    assert "a worker needs" in said
    assert "or fit blocks of features: `distls fit stagewise` with -p block_size=" in said
    size = int(said.rsplit("=", 1)[1].rstrip("`"))
    assert size in (1024, 2048, 4096)


@pytest.mark.fast_cases("identity")
@pytest.mark.parametrize("link", ["identity", "softmax"])
def test_plan_has_seconds_and_grows_with_the_width(tmp_path, link):
    made = []
    for width in (50, 1500):
        x, y = labelled_rows(300, width, 3)
        dataset = write_dataset(tmp_path / f"{width}", x, y)
        made.append(plan_fit("gls", dataset.path, {"link": link}))
    assert all(plan.seconds_per_pass is not None and plan.seconds_per_pass > 0 for plan in made)
    assert made[1].worker_parts["weights"] > 8 * 1500**2


def test_a_first_round_alone_publishes_a_safe_step(tmp_path):
    x, y = _dense(200, 5, 3)
    dataset = write_dataset(tmp_path / "d", x, y)
    (record,) = _records(dataset, {"alpha": 1e-5}, 1)
    assert record["objective"] < np.log(3)
    plain = oracle.problem(x, np.eye(3)[y], "softmax", 1e-5)
    assert record["objective"] == pytest.approx(plain.value(oracle.train(plain, 1)[1]), rel=1e-9)


def test_the_methods_parameters_have_defaults_that_resolve():
    resolved = method_named("gls").resolve({})
    assert (resolved["link"], resolved["alpha"], resolved["fit_intercept"]) == ("softmax", 1e-5, True)
    assert method_named("gls").resolve({"lipschitz": "0.1"})["lipschitz"] == 0.1
