"""Two classes are one problem: one column, the binary loss and the textbook objective, in every method and loss."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.svm import LinearSVC

from distls import (
    DualLinearSVC,
    DualLogisticRegression,
    GeneralizedLeastSquaresClassifier,
    SGDQNClassifier,
    SparseMulticlassClassifier,
    StochasticClassifier,
    evaluate,
    fit,
    ingest,
    load_model,
    open_dataset,
    predict,
)
from distls.evaluation.evaluate import prove
from distls.execution.serial import SerialExecutor
from distls.methods.method_registry import METHODS
from distls.storage.filesystem.paths import place_of
from distls.storage.model.bundle import read_bundle, write_bundle
from distls.storage.model.model import LinearModel, save_model
from distls.workers.losses.loss_registry import loss_named

ALPHA = 0.05
# the binary loss at margins; scikit-learn's model of it without an intercept, at C = 1 / (alpha n)
ORACLES = {
    "binary_log": lambda m: np.log1p(np.exp(-m)),
    "binary_hinge": lambda m: np.maximum(0.0, 1.0 - m),
    "binary_squared_hinge": lambda m: np.maximum(0.0, 1.0 - m) ** 2,
    "binary_squared": lambda m: 0.5 * (1.0 - m) ** 2,
    "binary_perceptron": lambda m: np.maximum(0.0, -m),
    "binary_probit": lambda m: -m * norm.cdf(-m) + norm.pdf(m),
    "binary_cauchit": lambda m: -m * (0.5 - np.arctan(m) / np.pi) - np.log1p(m**2) / (2 * np.pi),
}


def _chooses(method):
    names = [parameter.name for parameter in method.parameters]
    return next((name for name in ("loss", "link", "inner") if name in names), None)


def _values(method):
    """Return what the parameter that chooses a loss may be."""
    name = _chooses(method)
    known = {
        "link": ["identity", "logit", "softmax", "probit", "cauchit"],
        "inner": ["linear", "logistic", "logit", "calibrated", "cls"],
    }
    if name != "loss":
        return [*known.get(str(name), [None])]
    (parameter,) = (each for each in method.parameters if each.name == name)
    return [*getattr(parameter.parse, "names", lambda: [None])()]


CASES = [
    pytest.param(name, value, id=f"{name}-{value}")
    for name, method in METHODS.items()
    if "class" in method.targets
    for value in _values(method)
]


def _rows(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 4))
    return x, np.where(x @ [1.0, -2.0, 0.5, 0.0] + rng.standard_normal(n) > 0.3, "yes", "no")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    x, y = _rows(300, 0)
    path = tmp_path_factory.mktemp("data") / "train"
    ingest(x, path, y=y, dtype="float64", columns=True, target="class", executor=SerialExecutor())
    return open_dataset(path)


def _given(method, value, **changes):
    names = {parameter.name for parameter in method.parameters}
    wanted = {"alpha": ALPHA, "dtype": "float64", "penalty": "l2", "fit_intercept": True, **changes}
    chosen = {} if value is None else {str(_chooses(method)): value}
    return {name: each for name, each in wanted.items() if name in names} | chosen


@pytest.mark.fast_cases("newton-softmax$")
@pytest.mark.parametrize(("name", "value"), CASES)
def test_a_model_is_one_column_of_the_binary_loss(data, tmp_path, name, value):
    run, (x, y) = tmp_path / "run", _rows(300, 0)
    passes = {} if name == "ovr-sdca" else {"passes": 20}
    result = fit(name, data, run, params=_given(METHODS[name], value), executor=SerialExecutor(), **passes)
    model = load_model(run)
    decision = model.decision_function(x)
    assert decision.shape == (300,)
    assert model.weights.shape[1] == 1 or model.recipe
    assert (model.predict(x) == np.where(decision > 0.0, "yes", "no")).all()
    assert evaluate(run, data, executor=SerialExecutor()).error == (model.predict(x) != y).mean()
    loss = loss_named(model.loss)
    if loss.log_loss is not None:
        chance = {"binary_log": 1.0 / (1.0 + np.exp(-decision)), "binary_share": (1.0 + decision) / 2.0}
        chance["binary_probit"] = norm.cdf(decision)
        chance["binary_cauchit"] = 0.5 + np.arctan(decision) / np.pi
        expected = np.stack([1.0 - chance[model.loss], chance[model.loss]], axis=1)
        np.testing.assert_allclose(model.predict_proba(x), expected, atol=1e-12)
    if model.recipe:
        return
    assert model.coef_.shape == (1, 4)
    assert model.intercept_.shape == (1,)
    np.testing.assert_allclose(x @ model.coef_[0] + model.intercept_[0], decision, atol=1e-12)
    if name == "stagewise":  # its alpha is that of each block
        return
    objective = ORACLES[model.loss](np.where(y == "yes", decision, -decision)).mean()
    objective += ALPHA / 2 * np.square(model.coef_).sum()
    if name != "ovr-sdca":  # whose intercept is penalised
        assert result.record["objective"] == pytest.approx(objective, rel=1e-9, abs=1e-12)


RIVALS = {
    "log": lambda c: LogisticRegression(C=c, fit_intercept=False, tol=1e-12, max_iter=10_000),
    "squared_hinge": lambda c: LinearSVC(C=c, fit_intercept=False, tol=1e-12, max_iter=1_000_000),
    "hinge": lambda c: LinearSVC(C=c, fit_intercept=False, loss="hinge", tol=1e-10, max_iter=1_000_000),
    "squared": lambda c: RidgeClassifier(alpha=1.0 / c, fit_intercept=False, tol=1e-12),
}
EXACT = {
    "newton": ("log", "squared_hinge", "squared"),
    "sdca": ("log", "ovr_log", "squared_hinge", "hinge", "squared"),
    "bcd": ("log", "squared_hinge", "multitask_squared_hinge"),
    "gls": ("softmax", "logit", "identity"),
    "fista": ("log", "squared_hinge"),
    "sparsa": ("log", "squared_hinge"),
    "rls": ("squared",),
    "ovr-sdca": ("squared_hinge",),
}


CLOSE = {"bcd": {"tau": 1e-9}, "fista": {"tau": 1e-9}, "sparsa": {"tau": 1e-9}, "ovr-sdca": {"class_tol": 1e-14}}


@pytest.mark.fast_cases("newton-log$")
@pytest.mark.parametrize(
    ("name", "value"), [pytest.param(m, v, id=f"{m}-{v}") for m, values in EXACT.items() for v in values]
)
def test_coefficients_are_those_of_scikit_learn(data, tmp_path, name, value):
    (x, y), method = _rows(300, 0), METHODS[name]
    params = _given(method, value, fit_intercept=False, alpha=ALPHA, **CLOSE.get(name, {}))
    exact = {"rtol": 1e-13} if name in ("newton", "sdca", "bcd") else {}
    limit = {} if name == "ovr-sdca" else {"passes": 2000}
    fit(name, data, tmp_path / "run", params=params, executor=SerialExecutor(), **limit, **exact)
    short = {"softmax": "log", "logit": "log", "identity": "squared", "ovr_log": "log"}
    rival = RIVALS[short.get(value, value).removeprefix("multitask_")](1.0 / (ALPHA * 300)).fit(x, y)
    np.testing.assert_allclose(load_model(tmp_path / "run").coef_, np.atleast_2d(rival.coef_), atol=1e-6)


@pytest.mark.fast_cases("newton-log$")
@pytest.mark.parametrize(
    ("name", "value"), [("newton", "log"), ("sdca", "log"), ("bcd", "log"), ("gls", "softmax"), ("fista", "log")]
)
def test_so_they_are_with_an_intercept(data, tmp_path, name, value):
    (x, y), exact = _rows(300, 0), {"rtol": 1e-13} if name in ("newton", "sdca") else {}
    params = _given(METHODS[name], value, alpha=ALPHA, **CLOSE.get(name, {}))
    fit(name, data, tmp_path / "run", params=params, passes=2000, executor=SerialExecutor(), **exact)
    model, rival = (load_model(tmp_path / "run"), LogisticRegression(C=1.0 / (ALPHA * 300), tol=1e-12).fit(x, y))
    np.testing.assert_allclose(model.coef_, rival.coef_, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, rival.intercept_, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [
        DualLogisticRegression(C=0.3, tol=1e-13),
        SparseMulticlassClassifier(loss="log", alpha=1.0 / (0.3 * 300), penalty="l2", tau=1e-10, passes=2000),
        GeneralizedLeastSquaresClassifier(alpha=1.0 / (0.3 * 300), passes=2000, tol=1e-13),
    ],
)
def test_estimators_have_the_coefficients_of_scikit_learn(estimator):
    x, y = _rows(300, 0)
    rival = LogisticRegression(C=0.3, tol=1e-12).fit(x, y)
    np.testing.assert_allclose(estimator.fit(x, y).coef_, rival.coef_, atol=1e-6)
    np.testing.assert_allclose(estimator.intercept_, rival.intercept_, atol=1e-6)


@pytest.mark.slow
def test_the_lasso_is_that_of_scikit_learn(data):
    x, y = _rows(300, 0)
    result = fit(
        "bcd", data, rtol=1e-10, executor=SerialExecutor(),
        params={"loss": "log", "penalty": "l1", "alpha": ALPHA, "dtype": "float64", "fit_intercept": False},
    )  # fmt: skip
    rival = LogisticRegression(
        C=1.0 / (ALPHA * 300), l1_ratio=1, solver="saga", fit_intercept=False, tol=1e-13, max_iter=100_000
    ).fit(x, y)
    np.testing.assert_allclose(result.model.weights[:, 0], np.ravel(rival.coef_), atol=1e-6)
    assert (result.model.weights == 0.0).sum() == (rival.coef_ == 0.0).sum() > 0


ESTIMATORS = [
    DualLogisticRegression(alpha=ALPHA),
    DualLogisticRegression(loss="ovr_log", alpha=ALPHA, lanes=1),
    GeneralizedLeastSquaresClassifier(link="logit", alpha=ALPHA),
    StochasticClassifier(loss="ovr_log", alpha=ALPHA),
    SGDQNClassifier(loss="log", alpha=ALPHA),
    SparseMulticlassClassifier(loss="log", alpha=ALPHA, penalty="l2"),
    DualLinearSVC(loss="squared_hinge", alpha=ALPHA),
    StochasticClassifier(loss="hinge", alpha=ALPHA),
]


@pytest.mark.fast_cases("0$")
@pytest.mark.parametrize("number", range(len(ESTIMATORS)))
def test_estimators_and_their_models_agree(number):
    estimator, (x, y) = ESTIMATORS[number], _rows(300, 0)
    estimator.fit(x, y)
    decision = estimator.decision_function(x)
    assert estimator.coef_.shape == (1, 4)
    np.testing.assert_allclose(x @ estimator.coef_[0] + estimator.intercept_[0], decision, atol=2e-6)
    np.testing.assert_array_equal(estimator.coef_, estimator.model_.weights.T)
    assert (estimator.predict(x) == np.where(decision > 0.0, "yes", "no")).all()
    if "log" in str(estimator.get_params().get("loss", "log")):
        chance = estimator.predict_proba(x)[:, 1]
        np.testing.assert_allclose(chance, 1.0 / (1.0 + np.exp(-decision.astype(float))), atol=1e-7)


@pytest.mark.slow
def test_the_svm_has_the_cost_of_scikit_learn():
    x, y = _rows(300, 0)
    for loss in ("squared_hinge", "hinge"):
        ours = DualLinearSVC(loss=loss, C=0.3, fit_intercept=False, tol=1e-12).fit(x, y)
        rival = LinearSVC(loss=loss, C=0.3, fit_intercept=False, tol=1e-11, max_iter=1_000_000).fit(x, y)
        np.testing.assert_allclose(ours.coef_, rival.coef_, atol=1e-6)


# -- models and runs of earlier versions, with two columns ---------------------------------------------------


def _with_two_columns(model, share, loss):
    weights, intercept = (share * np.concatenate([-a, a], axis=-1) for a in (model.weights, model.intercept))
    return replace(model, weights=weights, intercept=intercept, loss=loss)


@pytest.mark.slow_cases("ovr_log")
@pytest.mark.parametrize(("loss", "share"), [("softmax", 0.5), ("ovr_log", 1.0)])
def test_a_model_of_two_columns_predicts_and_starts_a_fit(data, tmp_path, loss, share):
    params = {"loss": "log", "alpha": ALPHA, "fit_intercept": True, "dtype": "float64"}
    one = fit("newton", data, params=params, executor=SerialExecutor()).model
    two = _with_two_columns(one, share, loss)
    save_model(place_of(tmp_path / "old"), two)
    old, x = load_model(tmp_path / "old"), _rows(200, 1)[0]
    scores = x @ two.weights + two.intercept
    np.testing.assert_allclose(old.decision_function(x), scores[:, 1] - scores[:, 0], atol=1e-12)
    np.testing.assert_allclose(old.coef_, [two.weights[:, 1] - two.weights[:, 0]])
    odds = np.exp(scores) if loss == "softmax" else 1.0 / (1.0 + np.exp(-scores))
    np.testing.assert_allclose(old.predict_proba(x), odds / odds.sum(axis=1, keepdims=True), atol=1e-12)
    assert (old.predict(x) == np.array(["no", "yes"])[scores.argmax(axis=1)]).all()
    assert evaluate(tmp_path / "old", data, executor=SerialExecutor()).error < 0.3
    started = fit("newton", data, params={**params, "init": str(tmp_path / "old")}, passes=1, executor=SerialExecutor())
    np.testing.assert_allclose(started.model.weights, one.weights, atol=1e-9)


def test_the_proof_of_a_run_of_two_columns(data, tmp_path):
    run, executor = tmp_path / "run", SerialExecutor()
    params = {"loss": "log", "alpha": ALPHA, "dtype": "float64", "fit_intercept": False}
    fit("sdca", data, run, params=params, executor=executor)
    wanted = _proof(run, data)
    model = load_model(run)
    plain = LinearModel(**{name: getattr(model, name) for name in LinearModel.__dataclass_fields__})
    # the softmax of two columns has half of the penalty: the same optimum at twice the strength
    old = _with_two_columns(replace(plain, params={**plain.params, "alpha": 2 * ALPHA}), 0.5, "softmax")
    save_model(place_of(run / "model"), old)
    names, arrays = read_bundle(place_of(run / "state" / "point"), "duals", place_of(run))
    earlier = {**names, "loss": "softmax", "binary": True}
    write_bundle(place_of(run / "state" / "point"), "duals", earlier, arrays)
    found = _proof(run, data)
    assert found["objective"] == pytest.approx(wanted["objective"], rel=1e-12)
    assert found["certificate"]["value"] == pytest.approx(wanted["certificate"]["value"], abs=1e-12)


def _proof(run, data):
    return prove(place_of(run), load_model(run), data, SerialExecutor())


def test_predictions_have_the_decision_of_the_class_that_is_chosen(data, tmp_path):
    run = tmp_path / "run"
    fit("newton", data, run, params={"loss": "squared_hinge", "alpha": ALPHA}, executor=SerialExecutor())
    x, _ = _rows(50, 2)
    predict(run, x, tmp_path / "p.csv", executor=SerialExecutor())
    scores = np.loadtxt(tmp_path / "p.csv", delimiter=",", skiprows=1, usecols=2)
    np.testing.assert_allclose(scores, np.abs(load_model(run).decision_function(x)), rtol=1e-6)


@pytest.mark.slow
def test_methods_that_call_others_hand_on_the_binary_form(data, tmp_path):
    """The start of Newton's method is a fit of another method, and a default loss is that of a model to start from."""
    zero, sgd = (fit("newton", data, params={"alpha": 1e-2, "start": start}, rtol=1e-5) for start in ("zero", "sgd"))
    assert sgd.model.loss == zero.model.loss == "binary_log"
    np.testing.assert_allclose(sgd.model.weights, zero.model.weights, atol=1e-3)
    fit("sgd", data, tmp_path / "run", params={"loss": "hinge"}, passes=2)
    going_on = fit("sgd", data, params={"init": str(tmp_path / "run")}, passes=1)
    assert going_on.model.loss == "binary_hinge"
