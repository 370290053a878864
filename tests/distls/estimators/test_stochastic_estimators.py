"""The estimators of the stochastic methods: `partial_fit` as a fit, parameters."""

import numpy as np
import pytest
from helpers import labelled_rows, refuses, write_dataset
from target_helpers import write_targets

from distls import AdalineClassifier, CSGDRegressor, SGDQNClassifier, StochasticClassifier, fit
from distls.storage.errors import ParameterError

MADE = [
    (StochasticClassifier, {"eta0": 0.8}, "sgd"),
    (StochasticClassifier, {"eta0": 0.8, "alpha": 1e-3, "fit_intercept": True, "dtype": "float64"}, "sgd"),
    (StochasticClassifier, {"schedule": "sqrt", "eta0": 0.5, "average": "all", "alpha": 1e-3}, "sgd"),
    (SGDQNClassifier, {"t0": 300.0, "skip": 20, "alpha": 1e-3}, "sgdqn"),
    (SGDQNClassifier, {"t0": 900.0, "skip": 20, "alpha": 1e-3, "diagonal": "secant", "loss": "log"}, "sgdqn"),
    (AdalineClassifier, {"eta0": 0.2}, "c-adaline"),
    (AdalineClassifier, {"eta0": 0.2, "constrained": False}, "adaline"),
]


@pytest.mark.fast_cases("4-StochasticClassifier-params0")
@pytest.mark.parametrize(("estimator", "params", "method"), MADE)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_partial_fit_has_the_bits_of_a_streamed_fit(tmp_path, estimator, params, method, n_classes):
    x, y = labelled_rows(400, 30, n_classes)
    dataset = write_dataset(tmp_path / "d", x, y)
    given = {name: value for name, value in params.items() if name != "constrained"}
    model = fit(method, dataset, params={**given, "lanes": 1, "shuffle": False}, passes=1).model
    made = estimator(**params)
    for start, stop in ((0, 7), (7, 300), (300, 400)):
        made.partial_fit(x[start:stop], y[start:stop], classes=np.unique(y))
        made.predict(x[:3])  # looking changes nothing
    assert made.model_.sha256 == model.sha256
    assert made.t_ == 400
    assert made.score(x, y) > 0.5


@pytest.mark.fast_cases("None-two")
@pytest.mark.parametrize("schedule", ["two-phase", "sqrt"])
@pytest.mark.parametrize("columns", [None, 2])
def test_partial_fit_of_numbers(tmp_path, schedule, columns):
    rng = np.random.default_rng(0)
    x = rng.random((400, 10))
    y = x @ rng.standard_normal((10, columns or 1)) + 0.3
    dataset = write_targets(tmp_path / "d", x, y, "continuous", partition_rows=100)
    params = {"schedule": schedule, "eta0": 0.3, "switch": 150.0, "dtype": "float64"}
    model = fit("csgd", dataset, params={**params, "lanes": 1, "shuffle": False}, passes=1).model
    made = CSGDRegressor(**params)
    targets = y if columns else y[:, 0]
    for start, stop in ((0, 7), (7, 300), (300, 400)):
        made.partial_fit(x[start:stop], targets[start:stop])
        assert made.predict(x[:3]).shape == targets[:3].shape
    assert made.model_.sha256 == model.sha256
    assert made.score(x, targets) > 0.5
    refuses(ValueError, "y has 3 columns, at first it had", made.partial_fit, x, np.zeros((400, 3)))


@pytest.mark.slow
def test_goes_on_from_a_fit_with_steps_that_are_safe():
    x, y = labelled_rows(400, 30, 4)
    for made in (StochasticClassifier(), SGDQNClassifier(alpha=1e-3), AdalineClassifier()):
        made.fit(x, y)
        before = made.score(x, y)
        made.partial_fit(x, y)
        assert made.score(x, y) > before - 0.05


def test_an_estimator_needs_a_loss():
    x, y = labelled_rows(60, 5, 2)
    made = StochasticClassifier(None)
    for learn in (lambda: made.fit(x, y), lambda: made.partial_fit(x, y, classes=[0, 1])):
        refuses(ParameterError, "loss=None: an estimator needs one", learn)


@pytest.mark.slow_cases("(ovr_log|sgdqn)$")
@pytest.mark.parametrize(
    "made",
    [StochasticClassifier(), StochasticClassifier("ovr_log"), SGDQNClassifier("log")],
    ids=["softmax", "ovr_log", "sgdqn"],
)
def test_probabilities_where_the_loss_has_them(made):
    x, y = labelled_rows(200, 20, 3)
    assert np.allclose(made.fit(x, y).predict_proba(x).sum(axis=1), 1.0)


@pytest.mark.fast_cases("sgdqn$")
@pytest.mark.parametrize(
    "made", [SGDQNClassifier(), AdalineClassifier(), StochasticClassifier("hinge")], ids=["sgdqn", "adaline", "hinge"]
)
def test_no_probabilities_where_it_has_none(made):
    x, y = labelled_rows(200, 20, 3)
    assert not hasattr(made.fit(x, y), "predict_proba")


def test_what_a_stream_cannot_do_is_refused():
    x, y = labelled_rows(50, 20, 3)
    with pytest.raises(ParameterError, match="center='global' needs all rows at once"):
        AdalineClassifier(center="global").partial_fit(x, y, classes=[0, 1, 2])
    refuses(ParameterError, "center='global' needs all rows at once", CSGDRegressor(center="global").partial_fit, x, y)
    refuses(ParameterError, "lanes=4: partial_fit works in one lane", CSGDRegressor(lanes=4).partial_fit, x, y)
    x = x.toarray().astype(float)
    made = CSGDRegressor(eta0=0.1).partial_fit(x, y)
    made.eta0 = 0.2
    refuses(ParameterError, "eta0 was changed after the first call", made.partial_fit, x, y)


@pytest.mark.slow
def test_a_path_is_cross_validated():
    x, y = labelled_rows(200, 20, 3)
    made = StochasticClassifier(alpha="path", alphas="1:0.1:0.001", folds=3, loss="log").fit(x, y)
    alone = StochasticClassifier(alpha=made.model_.params["alpha"], loss="log").fit(x, y)
    assert made.model_.params["alpha"] in (1.0, 0.1, 0.001)
    assert np.array_equal(made.coef_, alone.coef_)
