"""The score above which the second of two classes is predicted: the best cut, the same for all who predict."""

import csv
import json

import numpy as np
import pytest
from helpers import printed, refuses, write_dataset

import distls
from distls.storage.errors import MismatchError, ParameterError
from distls.storage.model.model import load_model as load_stored

N, D = 900, 6
LOG = {"loss": "log", "alpha": 1e-3, "dtype": "float64"}


def _rows(seed):
    """One row in twelve is of the second class, which no score separates."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((N, D)).astype(np.float32)
    return x, (x[:, 0] + 1.5 * random.standard_normal(N) > 2.5).astype(np.int32)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Training rows, and held-out ones."""
    folder = tmp_path_factory.mktemp("data")
    return tuple(write_dataset(folder / str(k), *_rows(k)) for k in range(2))


def _counts(scores, y):
    """Return (right, predicted) of every cut of the distinct scores: above the lowest, ..., none at last."""
    cuts = [np.nextafter(scores.min(), -np.inf), *np.unique(scores)]
    return np.array([(int((y & (scores > cut)).sum()), int((scores > cut).sum())) for cut in cuts])


def _best(metric, right, predicted, having):
    """Return what the best cut of all reaches."""
    if metric == "f1":
        return float(np.max(2 * right / (having + predicted)))
    if metric.startswith("recall"):
        return float(predicted[right >= 0.8 * having].min())
    if metric.startswith("precision"):
        return float(right[(right >= 0.1 * predicted) & (right > 0)].max())
    return float(np.min((predicted - right) + 10 * (having - right)))


METRICS = ("f1", "recall=0.8", "precision=0.1", "cost=1:10")


@pytest.mark.fast_cases("f1-log$")
@pytest.mark.parametrize("loss", ["log", "hinge"])
@pytest.mark.parametrize("metric", METRICS)
def test_no_cut_is_better_and_probabilities_stay(data, tmp_path, metric, loss):
    train, held = data
    x, y = _rows(1)
    run = tmp_path / "run"
    params = {**LOG, "loss": loss}
    method = "newton" if loss == "log" else "sdca"  # whose loss need not be smooth
    plain = distls.fit(method, train, run, params=params, calibrate=held).model
    before = distls.load_model(run)
    scores, odds = before.decision_function(x), before.predict_proba(x)
    made = distls.calibrate(run, held, threshold_for=metric)
    model = distls.load_model(run)
    chosen = model.predict(x) == 1
    right, predicted = _counts(scores, y).T
    own = np.array([(y[chosen]).sum()]), np.array([chosen.sum()])
    assert _best(metric, *own, int(y.sum())) == _best(metric, right, predicted, int(y.sum()))
    np.testing.assert_allclose(model.predict_proba(x), odds, rtol=1e-9)  # fitted anew, to rounding
    threshold = model.calibration["threshold"]
    assert np.array_equal(chosen, scores > threshold)
    assert made.evaluation.error == np.mean(chosen != y)
    # choosing again begins with the model as it was trained
    distls.calibrate(run, held)
    assert load_stored(run).sha256 == plain.sha256


def test_predictions_estimators_and_evaluations_honour_it(data, tmp_path):
    train, held = data
    run = tmp_path / "run"
    distls.fit("newton", train, run, params=LOG, calibrate=held, threshold_for="recall=0.9")
    model, (x, y) = distls.load_model(run), _rows(1)
    chosen = model.predict(x)
    assert chosen.sum() > 2 * y.sum()  # many more than are above a probability of one half
    assert (model.predict_proba(x)[:, 1] > 0.5).sum() < 0.5 * y.sum()
    assert np.array_equal(distls.load_estimator(run).predict(x), chosen)
    for proba in (False, True):
        distls.predict(run, held, tmp_path / "p.csv", proba=proba, overwrite=True)
        with (tmp_path / "p.csv").open() as file:
            assert [int(row["label"]) for row in csv.DictReader(file)] == chosen.tolist()
    found = distls.evaluate(run, held)
    assert found.error == np.mean(chosen != y)
    shown = printed("evaluate", run, held.path)
    assert "predicts 1 above a probability of 0." in shown
    assert "chosen for recall=0.9" in shown
    told = json.loads(printed("evaluate", run, held.path, "--json"))
    assert told["threshold_for"] == "recall=0.9"


@pytest.mark.slow
def test_the_proof_is_of_the_weights_as_they_were_trained(data, tmp_path):
    train, held = data
    fitted = distls.fit("sdca", train, tmp_path / "run", params=LOG, calibrate=held, threshold_for="f1")
    found = distls.evaluate(tmp_path / "run", train)
    assert found.objective == pytest.approx(fitted.record["objective"], rel=1e-9)


def test_exports_have_it_or_say_why_not(data, tmp_path):
    train, held = data
    run = tmp_path / "run"
    distls.fit("newton", train, run, params=LOG, calibrate=held, threshold_for="f1")
    distls.export(run, tmp_path / "model.npz", to="npz")
    x, _ = _rows(1)
    with np.load(tmp_path / "model.npz") as file:
        scores = x.astype(float) @ file["weights"][:, 0] + file["intercept"][0]
    assert np.array_equal(scores > 0, distls.load_model(run).predict(x) == 1)
    skops = pytest.importorskip("skops.io")
    distls.export(run, tmp_path / "model.skops", to="sklearn")
    pipeline = skops.load(tmp_path / "model.skops")
    assert np.array_equal(pipeline.predict(x), distls.load_model(run).predict(x))
    np.testing.assert_allclose(pipeline.predict_proba(x), distls.load_model(run).predict_proba(x), atol=1e-6)
    distls.fit("newton", train, tmp_path / "zero", params={**LOG, "fit_intercept": False}, calibrate=held)
    distls.export(tmp_path / "zero", tmp_path / "zero.skops", to="sklearn")
    none = np.zeros_like(x[:3])  # whose score is zero, which is no more than the threshold
    given = skops.load(tmp_path / "zero.skops").predict(none)
    assert np.array_equal(given, distls.load_model(tmp_path / "zero").predict(none))
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    distls.export(run, tmp_path / "model.onnx", to="onnx")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    label, odds = session.run(["label", "probabilities"], {"X": x})
    assert np.array_equal(label, distls.load_model(run).predict(x))
    np.testing.assert_allclose(odds, distls.load_model(run).predict_proba(x), atol=1e-6)
    refuses(ParameterError, "probabilities are calibrated", distls.export, run, tmp_path / "model.txt", to="liblinear")


@pytest.mark.fast_cases("auc", "precision=1")
@pytest.mark.parametrize(
    ("metric", "error", "words"),
    [
        ("auc", ParameterError, "expected f1, recall=R"),
        ("recall=2", ParameterError, "expected f1, recall=R"),
        ("cost=1", ParameterError, "expected f1, recall=R"),
        ("precision=1", MismatchError, "no score of the held-out rows reaches it"),
    ],
)
def test_what_cannot_be_asked_for_is_one_line(data, tmp_path, metric, error, words):
    train, held = data
    distls.fit("newton", train, tmp_path / "run", params=LOG)
    with pytest.raises(error, match=words) as caught:
        distls.calibrate(tmp_path / "run", held, threshold_for=metric)
    assert "\n" not in str(caught.value)
    with pytest.raises(ParameterError, match="not with calibration temperature"):
        distls.calibrate(tmp_path / "run", held, "temperature", threshold_for="f1")


@pytest.mark.slow
def test_train_holds_out_rows_for_it(tmp_path):
    x, y = _rows(0)
    lines = [",".join([*map(str, row), str(label)]) for row, label in zip(x.tolist(), y, strict=True)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([",".join([*(f"x{k}" for k in range(D)), "label"]), *lines]) + "\n")
    notices = []
    distls.train(path, tmp_path / "run", threshold_for="f1", label_column="label", notify=notices.append)
    assert any("20% of the rows are held out" in notice for notice in notices)
    model = distls.load_model(tmp_path / "run")
    assert model.calibration["threshold_for"] == "f1"
    assert 0.0 < model.calibration["probability"] < 0.5
    assert json.loads((tmp_path / "run" / "config.json").read_text())["threshold_for"] == "f1"
    with pytest.raises(ParameterError, match="expected f1"):
        distls.train(path, tmp_path / "other", threshold_for="auc", label_column="label")
    assert not (tmp_path / "other-data").exists()
