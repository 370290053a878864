"""Links of `gls` that are given by their derivative: the paper's iterates, the optimum, predictions, evaluation."""

import numpy as np
import pytest
from helpers import labelled_rows, refuses, write_dataset
from scipy.optimize import minimize
from scipy.special import ndtr
from sklearn.linear_model import PoissonRegressor
from target_helpers import write_targets

from distls import (
    GeneralizedLeastSquaresRegressor,
    History,
    evaluate,
    export,
    fit,
    ingest,
    load_model,
    open_dataset,
    predict,
)
from distls.storage.errors import FormatError, ParameterError
from distls.workers.losses import loss_registry
from distls.workers.losses.links import Link
from reference import least_squares as oracle
from reference import stagewise as staged


def _classes(path):
    x, y = labelled_rows(330, 12, 3)
    s = (np.random.default_rng(5).integers(1, 5, 330) / 2).astype(np.float32)
    return (write_dataset(path, x, y, sample_weight=s), x.toarray().astype(float), np.eye(3)[y], s.astype(float))


def _counts(path, scale=1.0):
    """Return rows with two counts each, their arrays and weights; `scale` multiplies their means."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((400, 6)).astype(np.float32)
    mean = scale * np.exp(0.4 * x @ rng.standard_normal((6, 2)) + (0.3, -1.0))
    y, s = rng.poisson(mean).astype(float), rng.uniform(0.5, 2.0, 400).astype(np.float32)
    ingest(x, path, y=y, sample_weight=s, target="continuous", partition_size=2**12)
    return open_dataset(path), x.astype(float), y, s.astype(float)


def _optimum(p):
    shape = p.x.shape[1], p.y.shape[1]

    def value_and_slope(w):
        return p.value(w.reshape(shape)), p.gradient(w.reshape(shape)).ravel()

    start = np.zeros(shape[0] * shape[1])
    options = {"maxiter": 5000, "maxfun": 20_000, "ftol": 1e-15, "gtol": 1e-10}
    return float(minimize(value_and_slope, start, jac=True, method="L-BFGS-B", options=options).fun)


@pytest.mark.fast_cases("1-probit")
@pytest.mark.parametrize("link", ["probit", "cauchit"])
@pytest.mark.parametrize("steps", [1, 4])
def test_plain_steps_are_algorithm_1(tmp_path, link, steps):
    dataset, x, y, s = _classes(tmp_path / "d")
    p = oracle.problem(x, y, link, 1e-3, s=s)
    params = {"link": link, "alpha": 1e-3, "accelerate": "none", "lipschitz": "sharp"}
    model = fit("gls", dataset, params=params, passes=steps).model
    expected = oracle.train(p, steps)[-1]
    np.testing.assert_allclose(model.weights, expected[:-1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.intercept, expected[-1], rtol=1e-9, atol=1e-12)


@pytest.mark.fast_cases("probit")
@pytest.mark.parametrize("link", ["probit", "cauchit"])
def test_classes_end_at_the_optimum(tmp_path, link):
    dataset, x, y, s = _classes(tmp_path / "d")
    best = _optimum(oracle.problem(x, y, link, 1e-3, s=s))
    result = fit("gls", dataset, params={"link": link, "alpha": 1e-3}, passes=300)
    assert result.record["objective"] == pytest.approx(best, rel=1e-9)
    certificate = fit("gls", dataset, params={"link": link, "alpha": 1e-3, "fit_intercept": False}, passes=300).record[
        "certificate"
    ]
    assert certificate["kind"] == "strong_convexity"
    assert 0.0 <= certificate["value"] < 1e-9


def test_a_loss_below_zero_is_no_bound_of_itself(tmp_path):
    rng = np.random.default_rng(0)
    x = 3.0 * rng.standard_normal((200, 5))
    dataset = write_dataset(tmp_path / "d", x, (x @ rng.standard_normal(5) > 0.0).astype(np.int32))
    given = {"params": {"link": "cauchit", "alpha": 1e-3, "fit_intercept": False}}
    best = fit("gls", dataset, passes=600, tol=1e-13, **given).record["objective"]
    history = History()
    fit("gls", dataset, passes=20, tol=1e-8, eval_every=1, callbacks=[history], **given)
    above = [each["objective"] - best for each in history.records]
    bounds = [each["certificate"]["value"] for each in history.records]
    assert best < 0.0
    assert all(bound >= gap - 1e-9 for bound, gap in zip(bounds, above, strict=True))


@pytest.mark.fast_cases("probit")
@pytest.mark.parametrize("link", ["probit", "cauchit"])
def test_predictions_and_probabilities_of_classes(tmp_path, link):
    dataset, x, y, _ = _classes(tmp_path / "d")
    model = fit("gls", dataset, tmp_path / "run", params={"link": link, "alpha": 1e-3}).model
    means = oracle.LINKS[link](x @ model.weights + model.intercept, y)[1]
    expected = means / means.sum(axis=1, keepdims=True)
    loaded = load_model(tmp_path / "run")
    np.testing.assert_allclose(loaded.predict_proba(x), expected, rtol=1e-6)
    np.testing.assert_array_equal(loaded.predict(x), loaded.classes_[means.argmax(axis=1)])
    found = evaluate(model, dataset)
    assert found.error == pytest.approx(np.mean(means.argmax(axis=1) != y.argmax(axis=1)), abs=1e-12)
    assert found.log_loss == pytest.approx(-np.log(expected[y > 0.5]).mean(), rel=1e-6)
    predict(model, dataset, tmp_path / "p.csv", proba=True)
    assert (tmp_path / "p.csv").stat().st_size > 0


@pytest.mark.fast_cases("False-300")
@pytest.mark.parametrize("scale", [0.02, 1.0, 300.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_counts_end_at_the_optimum(tmp_path, scale, fit_intercept):
    dataset, x, y, s = _counts(tmp_path / "d", scale)
    best = _optimum(oracle.problem(x, y, "poisson", 1e-2, s=s, constant=fit_intercept))
    params = {"link": "poisson", "alpha": 1e-2, "fit_intercept": fit_intercept}
    result = fit("gls", dataset, params=params, passes=400)
    assert result.record["objective"] == pytest.approx(best, rel=1e-8)


@pytest.mark.slow
def test_counts_agree_with_scikit_learn(tmp_path):
    dataset, x, y, s = _counts(tmp_path / "d")
    model = fit("gls", dataset, params={"link": "poisson", "alpha": 1e-2}, passes=300).model
    for output in range(2):
        other = PoissonRegressor(alpha=1e-2, tol=1e-10, max_iter=1000)
        other.fit(x, y[:, output], sample_weight=s)
        np.testing.assert_allclose(model.weights[:, output], other.coef_, rtol=1e-4, atol=1e-6)
        assert model.intercept[output] == pytest.approx(other.intercept_, rel=1e-4)


def test_the_regressor_of_counts_is_scikit_learns(tmp_path):
    _, x, y, s = _counts(tmp_path / "d")
    own = GeneralizedLeastSquaresRegressor(alpha=1e-2, link="poisson").fit(x, y[:, 0], sample_weight=s)
    other = PoissonRegressor(alpha=1e-2, tol=1e-10, max_iter=1000).fit(x, y[:, 0], sample_weight=s)
    np.testing.assert_allclose(own.predict(x), other.predict(x), rtol=1e-4)


def test_predictions_of_counts_are_means_and_their_deviance_is_reported(tmp_path):
    dataset, x, y, s = _counts(tmp_path / "d")
    fit("gls", dataset, tmp_path / "run", params={"link": "poisson", "alpha": 1e-2})
    model = load_model(tmp_path / "run", dtype="float64")
    means = np.exp(x @ model.weights + model.intercept)
    np.testing.assert_allclose(model.predict(x), means, rtol=1e-10)
    predict(tmp_path / "run", dataset, tmp_path / "p.csv")
    written = np.genfromtxt(tmp_path / "p.csv", delimiter=",", names=True)
    assert np.allclose(np.sort(written["prediction_2"]), np.sort(means[:, 1]), rtol=1e-5)
    halves = oracle.poisson(np.log(means), y)[0]
    found = evaluate(tmp_path / "run", dataset)
    assert found.deviance == pytest.approx(2 * halves.mean(), rel=1e-9)
    assert found.criterion == found.deviance
    assert found.mse == pytest.approx(np.square(means - y).mean(), rel=1e-9)
    weighted = evaluate(tmp_path / "run", dataset, weighted=True)
    assert weighted.deviance == pytest.approx(2 * halves @ s / s.sum(), rel=1e-6)


@pytest.mark.slow
def test_counts_are_evaluated_by_their_deviance_in_the_fit(tmp_path):
    dataset, _, _, _ = _counts(tmp_path / "d")
    result = fit("gls", dataset, params={"link": "poisson", "alpha": 1e-2}, eval_data=dataset)
    assert result.record["eval_error"] == pytest.approx(evaluate(result.model, dataset).deviance)
    assert result.record["eval_mse"] == pytest.approx(evaluate(result.model, dataset).mse)


@pytest.mark.fast_cases("params0", "params3")
@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"link": "poison"}, "link=poison: expected one of .*identity, probit, cauchit, poisson"),
        ({"link": "poisson", "alpha": "path"}, "alpha=path: the curvature of link=poisson has no bound"),
        ({"link": "poisson", "lipschitz": "sharp"}, "lipschitz=sharp: the curvature of link=poisson has no bound"),
        ({"link": "probit"}, "continuous targets; they need link=identity or link=poisson"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path, params, message):
    dataset, _, _, _ = _counts(tmp_path / "d")
    refuses(ParameterError, message, fit, "gls", dataset, params=params)


def test_negative_counts_and_formats_without_the_link_are_one_line(tmp_path):
    x = np.random.default_rng(0).standard_normal((60, 3))
    ingest(x, tmp_path / "n", y=x[:, 0], target="continuous")
    with pytest.raises(ParameterError, match=r"link=poisson: a target is -\d.*counts are 0 or more"):
        fit("gls", tmp_path / "n", params={"link": "poisson"})
    dataset, _, _, _ = _counts(tmp_path / "d")
    model = fit("gls", dataset, params={"link": "poisson", "alpha": 1e-2}).model
    refuses(ParameterError, "predicts through link=poisson", export, model, tmp_path / "m.onnx", to="onnx")
    export(model, tmp_path / "m.npz", to="npz")


class CompLogLog(Link):
    """``g(z) = 1 - exp(-exp(z))``, without a potential: it is integrated."""

    __slots__ = ()

    name = "cloglog"
    steepest = float(np.exp(-1.0)) * 1.0000001

    def mean(self, scores):
        return np.asarray(-np.expm1(-np.exp(np.minimum(scores, 30.0))))


@pytest.fixture
def cloglog():
    loss_registry.register_loss(CompLogLog())
    yield
    loss_registry._losses.pop("cloglog", None)


@pytest.mark.usefixtures("cloglog")
def test_a_link_from_outside_is_trained_stored_by_its_name_and_asked_for(tmp_path):
    dataset, x, y, s = _classes(tmp_path / "d")
    result = fit("gls", dataset, tmp_path / "run", params={"link": "cloglog", "alpha": 1e-2}, passes=200)
    z = x @ result.model.weights + result.model.intercept
    residual = (1.0 - np.exp(-np.exp(z)) - y) * (s / s.sum())[:, None]
    assert np.abs(x.T @ residual + 1e-2 * result.model.weights).max() < 1e-7
    assert np.abs(residual.sum(axis=0)).max() < 1e-7
    assert '"loss": "cloglog"' in (tmp_path / "run" / "model" / "bundle.json").read_text()
    before = load_model(tmp_path / "run").predict_proba(x)
    np.testing.assert_allclose(before.sum(axis=1), 1.0, rtol=1e-6)
    loss_registry._losses.pop("cloglog")
    with pytest.raises(FormatError, match=r"no loss 'cloglog' of class targets is known.*register_loss"):
        load_model(tmp_path / "run").predict(x)
    refuses(ParameterError, "link=cloglog: expected one of", fit, "gls", dataset, params={"link": "cloglog"})


# -- stagewise regression with other links inside --------------------------------------------------------


STEPS = {"inner_rounds": 4, "block_size": 4, "dtype": "float64", "alpha": 1e-3, "order": "rareness"}
POISSON = {**STEPS, "inner": "poisson", "inner_rounds": 60}


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((300, 8))
    y = rng.poisson(np.exp(2.0 + x @ rng.standard_normal((8, 1)) * 0.4)).astype(np.float64)
    return write_targets(tmp_path_factory.mktemp("d") / "train", x, y, "continuous", partition_rows=90)


def test_a_bounded_link_is_the_oracles(tmp_path):
    x, y = labelled_rows(120, 8, 3)
    dense = x.toarray() * (np.random.default_rng(0).random((120, 8)) < np.linspace(0.3, 0.9, 8))
    order = np.argsort((dense != 0).sum(axis=0), kind="stable")  # the rarest first
    stages = staged.logistic(
        [dense[:, np.sort(order[:4])], dense[:, np.sort(order[4:])]], np.eye(3)[y], 1e-3,
        s=np.ones(120), intercept=True, rounds=4, lipschitz=1.0 / np.sqrt(2.0 * np.pi), mean=ndtr,
    )  # fmt: skip
    model = fit("stagewise", write_dataset(tmp_path / "d", dense, y), params={**STEPS, "inner": "probit"}).model
    scores = dense @ model.weights + model.intercept
    np.testing.assert_allclose(scores, stages[-1].after, rtol=1e-9, atol=1e-11)


def test_one_block_of_counts_ends_at_the_optimum_of_gls(counts):
    # steps begin too long by far, as the mean count is above seven
    params = {**POISSON, "block_size": 8, "inner_rounds": 400, "alpha": 1e-2}
    found = fit("stagewise", counts, params=params).model
    best = fit("gls", counts, params={"link": "poisson", "alpha": 1e-2}, passes=400).model
    np.testing.assert_allclose(found.weights, best.weights, atol=1e-6)
    np.testing.assert_allclose(found.intercept, best.intercept, atol=1e-6)


@pytest.mark.slow
def test_every_block_of_counts_lowers_the_objective(counts):
    values = [fit("stagewise", counts, params={**POISSON, "stages": n}).record["objective"] for n in (1, 2, 4)]
    assert values[0] > values[1] > values[2]


def test_acceleration_needs_a_bound(counts):
    with pytest.raises(ParameterError, match="accelerate=nesterov"):
        fit("stagewise", counts, params={**POISSON, "accelerate": "nesterov"})
