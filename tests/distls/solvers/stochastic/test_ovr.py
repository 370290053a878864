"""The one-versus-rest comparators: the contract of all solvers, binary models trained apart, probabilities."""

import csv

import numpy as np
import pytest
import scipy.sparse as sp
from contract import SolverContract
from helpers import labelled_rows, raised, write_dataset
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC
from target_helpers import write_targets

from distls import evaluate, fit, predict, resume
from distls.methods.method_registry import METHODS
from distls.storage.errors import ParameterError
from distls.testing.solvers import StopAfter, interrupted, opened
from reference import ovr

LOSSES = {"ovr-pegasos": "ovr_hinge", "ovr-logistic": "ovr_log"}


@pytest.mark.slow
class TestPegasos(SolverContract):
    method = "ovr-pegasos"
    params = {"alpha": 1e-3}


@pytest.mark.slow
class TestLogisticSmallRounds(SolverContract):
    """Rounds much smaller than a pass, an intercept, class weights and batches."""

    method = "ovr-logistic"
    params = {
        "alpha": 1e-3, "lanes": 3, "round_bytes": 20_000, "fit_intercept": True, "class_weight": "balanced",
        "batch_size": 3,
    }  # fmt: skip
    passes = 2


def test_they_take_the_parameters_of_mcid():
    names = [p.name for p in METHODS["mcid"].parameters]
    for method, loss in LOSSES.items():
        assert [p.name for p in METHODS[method].parameters] == names
        assert METHODS[method].resolve({})["loss"] == loss
        assert METHODS[method].resolve({"loss": loss.removeprefix("ovr_")})["loss"] == loss
    said = raised(ParameterError, METHODS["ovr-pegasos"].resolve, {"loss": "log"})
    assert said == "ovr-pegasos: loss=log: expected one of ovr_hinge, hinge"


@pytest.mark.fast_cases("4-ovr-pegasos")
@pytest.mark.parametrize("method", list(LOSSES))
@pytest.mark.parametrize("size", [1, 4])
def test_one_pass_in_stored_order_is_a_binary_model_for_each_class(tmp_path, method, size):
    x, y = labelled_rows(330, 40, 4)
    dataset = write_dataset(tmp_path / "d", x.astype(np.float64), y)
    params = {
        "alpha": 1e-2, "lanes": 1, "average": "none", "dtype": "float64", "batch_size": size, "shuffle": False,
        "fit_intercept": False,
    }  # fmt: skip
    model = fit(method, dataset, params=params, passes=2, eval_every=0).model
    starts = np.concatenate([np.arange(first, min(first + 100, 330), size) for first in range(0, 330, 100)])
    batches = [
        np.arange(start, min(start + size, (start // 100 + 1) * 100, 330)) for start in starts
    ] * 2  # batches end with their partition of 100 rows
    separate = ovr.train(x.toarray().astype(float), y, 4, LOSSES[method], 1e-2, batches)
    np.testing.assert_allclose(model.weights, separate, rtol=1e-9, atol=1e-9)
    assert (model.method, model.loss) == (method, LOSSES[method])


@pytest.mark.slow
def test_the_optimum_is_that_of_separate_binary_models(tmp_path):
    x, y = labelled_rows(400, 30, 3)
    dataset = write_dataset(tmp_path / "d", x, y)
    c = 1 / (1e-2 * 400)
    logistic = OneVsRestClassifier(LogisticRegression(C=c, fit_intercept=False, tol=1e-10, max_iter=5000)).fit(x, y)
    svm = LinearSVC(C=c, loss="hinge", fit_intercept=False, tol=1e-10, max_iter=10**6).fit(x, y)
    best = {"ovr-logistic": np.vstack([m.coef_ for m in logistic.estimators_]), "ovr-pegasos": svm.coef_}
    for method, coefficients in best.items():
        record = fit(
            method, dataset, params={"alpha": 1e-2, "dtype": "float64", "fit_intercept": False}, passes=60
        ).record
        against = np.where(np.eye(3)[y] > 0, -1.0, 1.0) * (x @ coefficients.T)
        values = np.maximum(0, 1 + against) if method == "ovr-pegasos" else np.logaddexp(0, against)
        optimum = values.sum() / 400 + 0.5 * 1e-2 * np.square(coefficients).sum()
        gap = record["objective"] - optimum
        kind = "duality_gap" if method == "ovr-pegasos" else "strong_convexity"
        assert record["certificate"]["kind"] == kind
        assert 0 < gap <= record["certificate"]["value"] < 0.3 * optimum


@pytest.mark.slow
def test_probabilities_are_the_normalised_sigmoids_everywhere(tmp_path):
    x, y = labelled_rows(300, 30, 4)
    dataset = write_dataset(tmp_path / "d", x, y)
    model = fit("ovr-logistic", dataset, params={"alpha": 1e-3, "fit_intercept": False}, passes=3).model
    scores = (x @ model.weights).astype(float)
    sigmoids = 1 / (1 + np.exp(-scores))
    p = sigmoids / sigmoids.sum(axis=1, keepdims=True)  # as scikit-learn's OneVsRestClassifier has it
    result = evaluate(model, dataset)
    assert result.log_loss == pytest.approx(-np.log(p[np.arange(300), y]).mean(), rel=1e-5)
    assert result.error == np.mean(scores.argmax(axis=1) != y)
    predict(model, dataset, tmp_path / "p.csv", top=4, proba=True)
    with (tmp_path / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == [str(c) for c in p.argmax(axis=1)]
    np.testing.assert_allclose([float(r["probability"]) for r in rows], p.max(axis=1), rtol=1e-5)
    np.testing.assert_allclose([float(r["probability_4"]) for r in rows], p.min(axis=1), rtol=1e-4)


def test_pegasos_has_no_probabilities(tmp_path):
    x, y = labelled_rows(100, 30, 3)
    dataset = write_dataset(tmp_path / "d", x.astype(np.float64), y)
    model = fit("ovr-pegasos", dataset, params={"dtype": "float64"}, passes=1).model
    assert evaluate(model, dataset).log_loss is None
    with pytest.raises(ParameterError, match="loss ovr_hinge, which has no probabilities"):
        predict(model, dataset, tmp_path / "p.csv", proba=True)


# -- stochastic methods on sets of labels, against plain loops in NumPy over rows and outputs ------------


N, D, K = 120, 8, 4
_ALPHA = 1e-2
_PLAIN = {"alpha": _ALPHA, "shuffle": False, "lanes": 1, "dtype": "float64"}


def _rows():
    rng = np.random.default_rng(4)
    x = rng.standard_normal((N, D)) * (rng.random((N, D)) < 0.6)
    y = (x @ rng.standard_normal((D, K)) + 0.3 * rng.standard_normal((N, K)) > 0.5).astype(int)
    return x, y


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    x, y = _rows()
    return write_targets(tmp_path_factory.mktemp("d") / "train", sp.csr_matrix(x), y, "multilabel", partition_rows=40)


def _losses(loss, z, y):
    """Return the sums over outputs and the derivatives of each row."""
    t = 2.0 * y - 1.0
    short = np.maximum(0.0, 1.0 - t * z)
    values, gradients = {
        "ovr_log": (np.logaddexp(0.0, -t * z), -t / (1.0 + np.exp(t * z))),
        "ovr_hinge": (short, -t * (short > 0.0)),
        "ovr_squared_hinge": (0.5 * short**2, -t * short),
        "squared": (0.5 * (z - y) ** 2, z - y),
    }[loss]
    return values.sum(axis=-1), gradients


def _sqrt(loss, x, y, size):
    w, b = np.zeros((D, K)), np.zeros(K)
    for t, (row, wanted) in enumerate(zip(x, y, strict=True), start=1):
        g, eta = _losses(loss, row @ w + b, wanted)[1], size / np.sqrt(t)
        w, b = (1.0 - _ALPHA * eta) * w - eta * np.outer(row, g), b - eta * g
    return w, b


def _adagrad(loss, x, y, size):
    w, squares = np.zeros((D, K)), np.zeros(D)
    for row, wanted in zip(x, y, strict=True):
        g = _losses(loss, row @ w, wanted)[1]
        squares += g @ g * row**2
        w = w - size * np.outer(row / (np.sqrt(squares) + 1e-30), g)
    return w, np.zeros(K)


def _pegasos(loss, x, y):
    w = np.zeros((D, K))
    for t, (row, wanted) in enumerate(zip(x, y, strict=True), start=1):
        g = _losses(loss, row @ w, wanted)[1]
        w = (1.0 - 1.0 / t) * w - np.outer(row, g) / (_ALPHA * t)
    return w, np.zeros(K)


def _scheduled(loss, x, y, t0):
    w = np.zeros((D, K))
    for t, (row, wanted) in enumerate(zip(x, y, strict=True)):
        g = _losses(loss, row @ w, wanted)[1]
        w = (w - np.outer(row, g) / (_ALPHA * (t + t0))) * (1.0 - 1.0 / (t + t0))
    return w, np.zeros(K)


_CASES = [
    *(
        ("sgd", loss, {"schedule": "sqrt", "eta0": 0.1, "fit_intercept": True}, lambda *of: _sqrt(*of, 0.1))
        for loss in ("ovr_log", "ovr_hinge", "ovr_squared_hinge", "squared")
    ),
    *(
        ("sgd", loss, {"alpha": 0.0, "eta0": 0.3, "fit_intercept": False}, lambda *of: _adagrad(*of, 0.3))
        for loss in ("ovr_log", "ovr_hinge", "ovr_squared_hinge")
    ),
    ("ovr-pegasos", "ovr_hinge", {"average": "none", "fit_intercept": False}, _pegasos),
    ("ovr-logistic", "ovr_log", {"average": "none", "fit_intercept": False}, _pegasos),
    *(
        ("svmsgd2", loss, {"skip": 1, "t0": 50.0, "fit_intercept": False}, lambda *of: _scheduled(*of, 50.0))
        for loss in ("ovr_log", "ovr_hinge", "ovr_squared_hinge")
    ),
]


@pytest.mark.fast_cases("ovr-pegasos")
@pytest.mark.parametrize(("method", "loss", "params", "oracle"), _CASES)
def test_weights_and_objective_are_those_of_the_oracle(dataset, method, loss, params, oracle):
    x, y = _rows()
    result = fit(method, dataset, params={**_PLAIN, "loss": loss, **params}, passes=1)
    w, b = oracle(loss, x, y)
    np.testing.assert_allclose(result.model.weights, w, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(result.model.intercept, b, rtol=1e-9, atol=1e-11)
    alpha = {**_PLAIN, **params}["alpha"]
    objective = _losses(loss, x @ w + b, y)[0].mean() + alpha / 2 * np.square(w).sum()
    assert result.record["objective"] == pytest.approx(objective, rel=1e-9)


@pytest.mark.slow
def test_running_loss_and_error_are_those_before_each_step(dataset):
    x, y = _rows()
    # steps so small that the weights stay near those of the start
    known = {**_PLAIN, "loss": "ovr_hinge", "schedule": "sqrt", "fit_intercept": True}
    result = fit("sgd", dataset, params={**known, "eta0": 1e-12}, passes=1)
    assert result.record["running_loss"] == pytest.approx(K, rel=1e-6)
    first = fit("sgd", dataset, params={**known, "eta0": 0.1}, passes=3)
    assert 0.0 < first.record["running_error"] < 1.0
    assert len(x) == len(y)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sgd", "asgd", "sgdqn", "ovr-logistic"])
def test_defaults_learn_the_sets(dataset, method):
    result = fit(method, dataset, passes=20)
    found = evaluate(result.model, dataset)
    assert found.micro_f1 > 0.8
    assert set(found.precision_at) == {1, 3}
    if method in ("sgd", "asgd"):
        assert result.model.loss == "ovr_log"
        assert result.model.params["fit_intercept"] is True


@pytest.mark.slow
def test_the_same_bits_on_a_cluster_and_after_an_interrupt(dataset, tmp_path):
    params = {"loss": "ovr_squared_hinge", "lanes": 3}
    whole = fit("sgdqn", dataset, params=params, passes=3)
    there = fit("sgdqn", dataset, params=params, passes=3, executor=opened("two processes"))
    with interrupted():
        fit("sgdqn", dataset, tmp_path / "run", params=params, passes=3, callbacks=[StopAfter(2)])
    again = resume(tmp_path / "run")
    assert whole.record["weights_sha256"] == there.record["weights_sha256"] == again.record["weights_sha256"]


def test_losses_of_classes_are_refused(dataset):
    assert raised(ParameterError, fit, "sgd", dataset, params={"loss": "softmax"}) == (
        f"loss=softmax: {dataset.path} has multilabel targets; they need loss=ovr_log or loss=ovr_hinge or "
        "loss=ovr_squared_hinge or loss=squared"
    )
    with pytest.raises(ParameterError, match="center=running: not with sets of labels; leave it out"):
        fit("sgd", dataset, params={"loss": "squared", "schedule": "sqrt", "center": "running"})
