"""Estimators of runs: those of the method, fitted, with the parameters of the run."""

import numpy as np
import pytest
from sklearn.base import clone
from target_helpers import rows_with_numbers

import distls
from distls.methods.method_registry import METHODS
from distls.solvers.solver import Fitted
from distls.storage.errors import MismatchError
from distls.storage.model.model import save_model
from distls.training.configuration import Setting
from distls.training.setting_fit import model_of
from distls.workers.prediction.predictor import LinearPredictor


def trained(root, method, params, *, target="class", passes=2, **options):
    x, y = rows_with_numbers(300, 6, 3)
    x = x.astype(np.float32)
    y = y.argmax(axis=1) if target == "class" else y[:, 0]
    distls.ingest(x, root / "data", y=y, target=target, columns=method == "bcd", **options)
    distls.fit(method, root / "data", root / "run", params=params, passes=passes)
    return x, y


@pytest.mark.fast_cases("sgd")
@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("mcid", {"loss": "log", "alpha": 1e-3}, "MCIDClassifier"),
        ("sgd", {}, "StochasticClassifier"),
        ("adaline", {}, "AdalineClassifier"),
        ("bcd", {"loss": "log"}, "SparseMulticlassClassifier"),
        ("cls", {"rounds": 2}, "CalibratedLeastSquaresClassifier"),
    ],
)
def test_classifiers(tmp_path, method, params, name):
    x, _ = trained(tmp_path, method, params)
    found = distls.load_estimator(tmp_path / "run")
    model = distls.load_model(tmp_path / "run")
    assert type(found).__name__ == name
    assert np.array_equal(found.predict(x), model.predict(x))
    assert np.allclose(found.decision_function(x), model.decision_function(x), rtol=1e-6)
    assert found.n_features_in_ == 6
    assert found.n_iter_ > 0
    assert found.status_ in ("MAX_PASSES", "CONVERGED")
    for key, value in params.items():
        if key in found.get_params():
            assert found.get_params()[key] in (value, model.loss)
    assert not hasattr(clone(found), "n_features_in_")


@pytest.mark.slow
def test_partial_fit_goes_on_from_the_weights(tmp_path):
    x, y = trained(tmp_path, "mcid", {"loss": "log", "alpha": 1e-3, "lanes": 1})
    found = distls.load_estimator(tmp_path / "run")
    before = found.coef_.copy()
    found.partial_fit(x[:5], y[:5])
    assert 0 < np.abs(found.coef_ - before).max() < np.abs(before).max()


def test_regressors(tmp_path):
    x, _ = trained(tmp_path, "gls", {"link": "identity", "alpha": 1e-3}, target="continuous")
    found = distls.load_estimator(tmp_path / "run" / "model")
    assert type(found).__name__ == "GeneralizedLeastSquaresRegressor"
    assert found.alpha == 1e-3
    assert found.predict(x).shape == (300,)
    assert np.allclose(found.predict(x), distls.load_model(tmp_path / "run").predict(x))


MIXED = {"penalty": "elasticnet", "alpha": 0.05}


@pytest.mark.fast_cases("sdca-class-params4")
@pytest.mark.parametrize(
    ("method", "target", "params", "name", "l1_ratio"),
    [
        ("bcd", "continuous", {"loss": "squared", **MIXED}, "ElasticNet", None),
        ("bcd", "continuous", {"loss": "squared", **MIXED, "l1_ratio": 0.2}, "ElasticNet", 0.2),
        ("bcd", "class", {"penalty": "l1l2", "alpha": 0.05}, "SparseMulticlassClassifier", None),
        ("sdca", "class", {"loss": "log", **MIXED}, "DualLogisticRegression", 0.5),
        ("sdca", "class", {"loss": "log", "alpha": 0.05}, "DualLogisticRegression", 0.0),
        ("sdca", "continuous", {"loss": "squared", **MIXED}, "DualRidge", 0.5),
    ],
)
def test_another_fit_has_the_objective_of_the_run(tmp_path, method, target, params, name, l1_ratio):
    x, y = rows_with_numbers(100, 4, 2)
    x = x.astype(np.float32)
    y = y.argmax(axis=1) if target == "class" else y[:, 0]
    data = {"y": y, "target": target, "columns": method == "bcd", "executor": "serial"}
    distls.ingest(x, tmp_path / "data", **data)
    ends = {"executor": "serial", "passes": 200, "tol": 1e-4}
    distls.fit(method, tmp_path / "data", tmp_path / "run", params=params, **ends)
    found = distls.load_estimator(tmp_path / "run")
    assert type(found).__name__ == name
    assert found.l1_ratio == l1_ratio
    before = found.coef_.copy()
    again = found.set_params(**ends).fit(x, y)
    assert np.allclose(again.coef_, before, atol=0.01)


@pytest.mark.slow
def test_what_has_no_estimator_is_refused(tmp_path):
    trained(tmp_path, "fista", {}, transform="standardize")
    with pytest.raises(MismatchError, match="run: its rows go through standardize, which estimators do not do"):
        distls.load_estimator(tmp_path / "run")
    (tmp_path / "b").mkdir()
    trained(tmp_path / "b", "fobos", {"loss": "ovr_hinge"})
    with pytest.raises(MismatchError, match=r"no estimator has the objective of fobos \(ovr_hinge\) for class targets"):
        distls.load_estimator(tmp_path / "b" / "run")


@pytest.fixture(scope="module")
def rows_of_target(tmp_path_factory):
    """Data sets of classes and of numbers, without any fit."""
    folder, (x, y) = tmp_path_factory.mktemp("rows"), rows_with_numbers(60, 4, 3)
    distls.ingest(x, folder / "class", y=y.argmax(axis=1))
    distls.ingest(x, folder / "continuous", y=y[:, 0], target="continuous")
    return {target: distls.open_dataset(folder / target) for target in ("class", "continuous")}


WITHOUT = {("continuous", "stagewise")}  # as docs/estimators.md says


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_has_an_estimator_of_its_objective(tmp_path, rows_of_target, method):
    for target in {"class", "continuous"} & {*METHODS[method].targets}:
        data = rows_of_target[target]
        given = {"penalty": "l1"} if method in ("bcd", "fista", "sparsa") else {}
        setting = Setting.of(METHODS[method], given, data, 0)
        width = setting.problem.shape[1]
        weights = np.random.default_rng(0).normal(size=(4, width)).astype(np.float32)
        predictor = LinearPredictor(weights, np.zeros(width, np.float32))
        save_model(tmp_path / target, model_of(Fitted(predictor), setting))
        if (target, method) in WITHOUT:
            with pytest.raises(MismatchError, match=f"no estimator has the objective of {method}"):
                distls.load_estimator(tmp_path / target)
            continue
        found, x = distls.load_estimator(tmp_path / target), data.read(0).x.values
        assert np.array_equal(found.predict(x), distls.load_model(tmp_path / target).predict(x))
        assert found.method_params(None)["alpha"] == setting.params["alpha"]
