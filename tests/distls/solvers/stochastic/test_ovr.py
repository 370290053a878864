"""The one-versus-rest comparators: the contract of all solvers, binary models trained apart, probabilities."""

import csv

import numpy as np
import pytest
from contract import SolverContract
from helpers import labelled_rows, raised, write_dataset
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

from distls.evaluation.evaluate import evaluate
from distls.methods.method_registry import METHODS
from distls.prediction.predict import predict
from distls.storage.errors import ParameterError
from distls.training.fitting import fit
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
        "alpha": 1e-3,
        "lanes": 3,
        "round_bytes": 20_000,
        "fit_intercept": True,
        "class_weight": "balanced",
        "batch_size": 3,
    }
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
    logistic = OneVsRestClassifier(
        LogisticRegression(C=c, fit_intercept=False, tol=1e-10, max_iter=5000)
    ).fit(x, y)
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
