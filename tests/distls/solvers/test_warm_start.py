"""``init`` of stagewise and cls: a linear model that others have fitted, and what the least squares add to it."""

import json

import numpy as np
import pytest
from contract import Rounds, SolverContract
from helpers import labelled_rows, refuses, write_dataset

from distls import evaluate, fit, ingest, predict
from distls.solvers.least_squares.stagewise_state import base_of, block_of
from distls.storage.errors import FormatError, MismatchError, ParameterError
from distls.storage.rows import DenseRows
from distls.workers.least_squares.block_task import predict_block
from distls.workers.prediction.predictor import LinearPredictor, linear_view

FOURIER = {"features": "fourier", "bandwidth": 2.0}
FIRST = {"loss": "softmax", "alpha": 1e-4}


def _rows(path):
    x, y = labelled_rows(330, 40, 4)
    return write_dataset(path, x.toarray(), y), x.toarray().astype(float), np.eye(4)[y]


def _first(dataset, run):
    return fit("sgd", dataset, run, params=FIRST, passes=2).model


class WarmContract(SolverContract):
    """Same bits with an initial model."""

    @pytest.fixture(scope="class")
    def dataset(self, request, tmp_path_factory):
        x, y = labelled_rows(1050, 60, 5)
        folder = tmp_path_factory.mktemp("data")
        dataset = write_dataset(folder / "train", x.toarray(), y)
        _first(dataset, folder / "first")
        request.cls.params = {**self.params, "init": str(folder / "first")}
        return dataset


@pytest.mark.slow
class TestStagewise(WarmContract):
    method = "stagewise"
    params = {
        **FOURIER, "inner": "calibrated", "block_size": 16, "stages": 3, "models": 2
    }  # fmt: skip
    passes = None


@pytest.mark.slow
class TestCls(WarmContract):
    method = "cls"
    params = {"rounds": 4}
    passes = None
    random = False


@pytest.mark.fast_cases("linear-original$")
@pytest.mark.parametrize("kind", ["original", "fourier", "models"])
@pytest.mark.parametrize("inner", ["linear", "calibrated", "logistic"])
def test_stages_fit_what_the_initial_model_has_left(tmp_path, kind, inner):
    dataset, x, _ = _rows(tmp_path / "d")
    first = _first(dataset, tmp_path / "first")
    params = {"inner": inner, "block_size": 16, "stages": 4, "dtype": "float64"}
    params |= {"inner_rounds": 3} if inner == "logistic" else {}
    params |= {"original": {}, "fourier": FOURIER, "models": {**FOURIER, "models": 2}}[kind]
    params["init"] = str(tmp_path / "first")
    undisturbed = fit("stagewise", dataset, params=params).model
    run = tmp_path / "run"
    losing = Rounds(lambda _: [path.unlink() for path in (run / "state").glob("*")])
    model = fit("stagewise", dataset, run, params=params, callbacks=[losing]).model
    last = losing.states[-1]
    assert model.sha256 == undisturbed.sha256
    scores = []
    for start in range(0, 8 if kind == "models" else 4, 4):
        values = np.zeros((330, 4))
        for block in [*base_of(last), *(block_of(last, start + t) for t in range(4))]:
            values = predict_block(block, DenseRows(x), values, 40)
        scores.append(values)
    assert (model.recipe == {}) == (kind == "original")
    predictor = LinearPredictor.of(model)
    rows, weights, intercept = linear_view(predictor, DenseRows(x))
    np.testing.assert_allclose(rows.values @ weights + intercept, np.mean(scores, axis=0), rtol=1e-9, atol=1e-10)
    if inner == "logistic":
        assert evaluate(model, dataset).log_loss < evaluate(first, dataset).log_loss
    else:
        y = np.eye(4)[np.concatenate([dataset.read(i).y for i in range(len(dataset))])]
        before = np.square(y - x @ first.weights - first.intercept).mean()
        assert np.square(y - np.mean(scores, axis=0)).mean() < before


@pytest.mark.slow
def test_one_block_of_all_columns_is_ridge_regression_of_the_residuals(tmp_path):
    dataset, x, y = _rows(tmp_path / "d")
    first = _first(dataset, tmp_path / "first")
    params = {"block_size": 40, "alpha": 0.1, "dtype": "float64", "init": str(tmp_path / "first")}
    model = fit("stagewise", dataset, params=params).model
    z = np.hstack([np.ones((330, 1)), x])
    ridge = np.diag([0.0] + [0.1] * 40)
    left = y - x @ first.weights.astype(float) - first.intercept
    wanted = np.linalg.solve(z.T @ z / 330 + ridge, z.T @ left / 330)
    np.testing.assert_allclose(model.weights, first.weights + wanted[1:], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(model.intercept, first.intercept + wanted[0], rtol=1e-6, atol=1e-9)


@pytest.mark.fast_cases("params0")
@pytest.mark.parametrize("params", [{"order": "gradient"}, FOURIER])
def test_the_first_round_reports_the_initial_model(tmp_path, params):
    dataset, _, _ = _rows(tmp_path / "d")
    first = _first(dataset, tmp_path / "first")
    own = {**params, "inner": "logistic", "block_size": 16, "init": str(tmp_path / "first")}
    fit("stagewise", dataset, tmp_path / "run", params=own, passes=2, eval_every=0)
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert events[0]["running_loss"] == pytest.approx(evaluate(first, dataset).log_loss, rel=1e-6)


def test_before_any_stage_it_is_the_initial_model(tmp_path):
    dataset, _, _ = _rows(tmp_path / "d")
    first = _first(dataset, tmp_path / "first")
    params = {"order": "gradient", "init": str(tmp_path / "first")}
    model = fit("stagewise", dataset, params=params, passes=1).model
    np.testing.assert_array_equal(model.weights, first.weights)
    np.testing.assert_allclose(model.intercept, first.intercept, rtol=1e-6)


def test_a_model_of_both_is_written_and_read(tmp_path):
    dataset, _, _ = _rows(tmp_path / "d")
    _first(dataset, tmp_path / "first")
    params = {**FOURIER, "block_size": 16, "stages": 2, "init": str(tmp_path / "first")}
    result = fit("stagewise", dataset, tmp_path / "run", params=params)
    assert result.model.recipe["rows"] is True
    found, wanted = (evaluate(model, dataset).to_json() for model in (tmp_path / "run", result.model))
    assert found == wanted
    predict(tmp_path / "run", dataset, tmp_path / "out.csv")
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 331


@pytest.mark.slow
def test_calibrated_rounds_start_from_the_initial_model(tmp_path):
    dataset, _, _ = _rows(tmp_path / "d")
    first = _first(dataset, tmp_path / "first")
    warm = fit("cls", dataset, tmp_path / "run", params={"rounds": 3, "init": str(tmp_path / "first")})
    np.testing.assert_allclose(warm.model.weights[:, :4], first.weights, rtol=1e-12)
    np.testing.assert_allclose(warm.model.intercept[:4], first.intercept, rtol=1e-12)
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    losses = [event["running_loss"] for event in events]
    assert losses[2] < losses[1] < losses[0]


@pytest.mark.slow
def test_a_bad_start_is_no_reason_to_stop(tmp_path):
    """It may be worse than predicting nothing: that is no error, nor the end of the fit."""
    dataset, _, _ = _rows(tmp_path / "d")
    fit("sgd", dataset, tmp_path / "first", params={**FIRST, "schedule": "constant", "eta0": 50.0}, passes=1)
    params = {"rounds": 6, "init": str(tmp_path / "first")}
    warm = fit("cls", dataset, tmp_path / "run", params=params)
    assert warm.status == "MAX_PASSES"
    assert warm.passes == 12.0


@pytest.mark.parametrize("method", ["stagewise", "cls"])
def test_what_cannot_be_started_from(tmp_path, method):
    dataset, x, y = _rows(tmp_path / "d")
    _first(dataset, tmp_path / "first")
    narrow = write_dataset(tmp_path / "n", x[:, :30], y.argmax(axis=1))
    with pytest.raises(MismatchError, match=r"a model of 40 features and 4 outputs; .* has 30 and 4, or other"):
        fit(method, narrow, params={"init": str(tmp_path / "first")})
    fit("cls", dataset, tmp_path / "other", params={"rounds": 1})
    with pytest.raises(MismatchError, match="a model of cls, which is not plainly linear in the rows"):
        fit(method, dataset, params={"init": str(tmp_path / "other")})
    if method == "cls":
        given = {**FOURIER, "block_size": 8, "init": str(tmp_path / "first")}
        with pytest.raises(ParameterError, match="not with generated features; leave one of them out"):
            fit(method, dataset, params=given)


def test_rows_beside_features_that_do_not_fit_are_refused():
    predictor = LinearPredictor(np.ones((5, 2)), np.zeros(2), {"n_features": 3, "rows": True}, {})
    refuses(FormatError, "rows", linear_view, predictor, DenseRows(np.ones((4, 3))))


@pytest.mark.fast_cases("sgd")
@pytest.mark.parametrize("method", ["sgd", "sdca", "bcd", "gls"])
def test_a_model_of_other_categories_is_refused(tmp_path, method):
    for name, kinds in (("a", "xyz"), ("b", "xyw")):
        rows = "".join(f"{kinds[row % 3]},{row},{row % 2}\n" for row in range(60))
        (tmp_path / f"{name}.csv").write_text(f"kind,n,label\n{rows}")
        ingest(tmp_path / f"{name}.csv", tmp_path / name, label_column="label", columns=True)
    fit("sgd", tmp_path / "a", tmp_path / "first", passes=1)
    with pytest.raises(MismatchError, match=r'feature 0 of .* is "kind=w", but "kind=x" in init=.*first'):
        fit(method, tmp_path / "b", params={"init": str(tmp_path / "first")})
