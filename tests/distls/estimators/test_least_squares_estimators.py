"""The estimators of the least-squares methods: the same bits as `fit`, what each one has."""

import pickle
import warnings

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from helpers import labelled_rows, raised, refuses, write_dataset
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from target_helpers import rows_with_numbers

from distls import (
    CalibratedLeastSquaresClassifier,
    CSGDRegressor,
    GeneralizedLeastSquaresClassifier,
    GeneralizedLeastSquaresRegressor,
    StagewiseClassifier,
    fit,
    ingest,
)
from distls.storage.errors import MismatchError, ParameterError

ALL = [GeneralizedLeastSquaresClassifier, CalibratedLeastSquaresClassifier, StagewiseClassifier]


@pytest.fixture(scope="module")
def rows():
    return labelled_rows(300, 20, 4)


NAMES = np.array(["ant", "bee", "cat", "dog"])


@pytest.mark.fast_cases("csr-GeneralizedLeastSquaresClassifier$")
@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_same_bits_as_fit(estimator, layout, tmp_path, rows):
    x, y = rows
    x = x if layout == "csr" else x.toarray()
    weight = np.arange(len(y)) % 3 + 0.5
    ingest(x, tmp_path / "d", y=y, sample_weight=weight)
    limit = {"passes": 4} if "passes" in estimator().get_params() else {}
    model = fit(estimator._method, tmp_path / "d", params={"class_weight": "balanced"}, **limit).model
    made = estimator(class_weight="balanced", **limit)
    in_memory = clone(made).fit(x, NAMES[y], sample_weight=weight)
    stored = clone(made).fit(tmp_path / "d")
    assert model.sha256 == in_memory.model_.sha256 == stored.model_.sha256
    assert in_memory.classes_.tolist() == NAMES.tolist()
    assert (stored.n_features_in_, stored.status_) == (20, in_memory.status_)
    assert np.array_equal(NAMES[stored.predict(tmp_path / "d")], in_memory.predict(tmp_path / "d"))
    assert in_memory.score(x, NAMES[y]) > 0.6
    again = pickle.loads(pickle.dumps(in_memory))
    assert np.array_equal(again.decision_function(x), in_memory.decision_function(x))


@pytest.mark.fast_cases("GeneralizedLeastSquaresClassifier")
@pytest.mark.parametrize("estimator", ALL)
def test_dask_arrays(estimator, rows):
    x, y = rows[0].toarray(), rows[1]
    lazy = da.from_array(x, chunks=(90, 10))
    with dask.config.set(scheduler="synchronous"):
        fitted = estimator().fit(lazy, da.from_array(y, chunks=90))
        predicted, scores = fitted.predict(lazy), fitted.decision_function(lazy)
        assert np.array_equal(predicted.compute(), fitted.predict(x))
        assert (scores.shape, scores.dtype) == ((300, 4), fitted.decision_function(x).dtype)
        np.testing.assert_allclose(scores.compute(), fitted.decision_function(x), atol=1e-6)


def test_only_plain_linear_models_have_coefficients(rows):
    linear = GeneralizedLeastSquaresClassifier(passes=3).fit(*rows)
    assert np.array_equal(linear.coef_, linear.model_.weights.T)
    assert np.array_equal(linear.intercept_, linear.model_.intercept)
    np.testing.assert_allclose(
        linear.decision_function(rows[0]), rows[0] @ linear.coef_.T + linear.intercept_, atol=1e-6
    )
    assert not hasattr(CalibratedLeastSquaresClassifier(rounds=1).fit(*rows), "coef_")
    for name in ("coef_", "intercept_"):
        raised(NotFittedError, getattr, GeneralizedLeastSquaresClassifier(), name)


def test_calibrated_probabilities_are_the_scores(rows):
    x, y = rows
    fitted = CalibratedLeastSquaresClassifier(rounds=3).fit(x, y)
    proba = fitted.predict_proba(x)
    assert np.array_equal(proba, fitted.decision_function(x))
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-14)
    assert proba.min() == 0.0
    assert np.array_equal(fitted.classes_[proba.argmax(axis=1)], fitted.predict(x))
    two = CalibratedLeastSquaresClassifier(rounds=3).fit(x, y > 1)
    assert np.array_equal(two.decision_function(x), np.diff(two.predict_proba(x)).ravel())


@pytest.mark.fast_cases("made0")
@pytest.mark.parametrize(
    ("made", "message"),
    [
        (GeneralizedLeastSquaresClassifier("identity"), "link='identity' has no probabilities; use link='softmax'"),
        (StagewiseClassifier(), "inner='linear' has no probabilities; use inner='logistic'"),
    ],
)  # fmt: skip
def test_no_probabilities(made, message):
    assert not hasattr(made, "predict_proba")
    with pytest.raises(AttributeError) as caught:
        _ = made.predict_proba
    assert isinstance(caught.value.__cause__, ParameterError)
    assert str(caught.value.__cause__) == message


@pytest.mark.fast_cases("2")
@pytest.mark.parametrize("basis", [2, "1+2", (1, 2), [1, 2]])
def test_ways_to_give_a_basis(basis, rows):
    fitted = CalibratedLeastSquaresClassifier(basis, rounds=2).fit(*rows)
    assert fitted.model_.recipe["calibration"] == {"powers": [1, 2], "onto": "simplex"}
    assert fitted.get_params()["basis"] == basis


@pytest.mark.slow
def test_a_weight_is_a_number_of_rows(rows):
    x, y = rows
    times = np.random.default_rng(3).integers(0, 3, len(y))
    repeated = np.repeat(np.arange(len(y)), times)
    weighted = CalibratedLeastSquaresClassifier(rounds=5).fit(x, y, sample_weight=times)
    expected = CalibratedLeastSquaresClassifier(rounds=5).fit(x[repeated], y[repeated])
    np.testing.assert_allclose(weighted.predict_proba(x), expected.predict_proba(x), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_a_warm_start_goes_on(rows):
    warm = GeneralizedLeastSquaresClassifier(passes=3, warm_start=True).fit(*rows)
    first = warm.model_.sha256
    assert first == GeneralizedLeastSquaresClassifier(passes=3).fit(*rows).model_.sha256
    assert warm.fit(*rows).model_.sha256 != first


@pytest.mark.fast_cases("made0")
@pytest.mark.parametrize(
    ("made", "message"),
    [
        (CalibratedLeastSquaresClassifier(alpha=-1.0), "cls: alpha=-1.0: expected a number from 0 to inf"),
        (CalibratedLeastSquaresClassifier(rounds=0), "cls: rounds=0: expected a whole number of at least 1"),
        (GeneralizedLeastSquaresClassifier(passes=0), "passes=0: must be greater than 0 and finite"),
    ],
)
def test_parameters_out_of_range(made, message, rows):
    assert raised(ParameterError, made.fit, *rows) == message
    assert not hasattr(made, "model_")


# -- the regressor ---------------------------------------------------------------------------------------


N, D = 150, 5


@pytest.mark.fast_cases("csr-1$")
@pytest.mark.parametrize("k", [None, 1, 3])
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_agrees_with_ridge(k, layout):
    x, y = rows_with_numbers(N, D, k or 1)
    y = y if k else y[:, 0]
    s = np.random.default_rng(0).integers(1, 4, N).astype(np.float64)
    given = sp.csr_matrix(x) if layout == "csr" else x
    mine = GeneralizedLeastSquaresRegressor(0.1).fit(given, y, sample_weight=s)
    ridge = Ridge(alpha=0.1 * s.sum(), solver="cholesky").fit(x, y, s)
    assert mine.coef_.shape == (ridge.coef_.shape if k != 1 else (1, D))
    np.testing.assert_allclose(mine.coef_, ridge.coef_.reshape(mine.coef_.shape), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(mine.intercept_, ridge.intercept_, rtol=1e-8)
    assert mine.predict(given).shape == y.shape
    np.testing.assert_allclose(mine.predict(given), ridge.predict(x).reshape(y.shape), rtol=1e-8, atol=1e-9)
    assert mine.score(x, y) == pytest.approx(ridge.score(x, y), abs=1e-9)
    assert mine.n_iter_ == 1.0
    again = pickle.loads(pickle.dumps(mine))
    assert np.array_equal(again.predict(x), mine.predict(x))


@pytest.mark.fast_cases("1")
@pytest.mark.parametrize("k", [1, 2])
def test_datasets_and_dask_arrays(tmp_path, k):
    x, y = rows_with_numbers(N, D, k)
    ingest(x, tmp_path / "d", y=y, target="continuous", dtype="float64", shuffle=False)
    stored = GeneralizedLeastSquaresRegressor(0.1).fit(tmp_path / "d")
    model = fit("gls", tmp_path / "d", params={"link": "identity", "alpha": 0.1}).model
    assert stored.model_.sha256 == model.sha256
    expected = stored.predict(x)
    assert expected.shape == ((N,) if k == 1 else (N, 2))
    assert np.array_equal(stored.predict(tmp_path / "d"), expected)
    with dask.config.set(scheduler="synchronous"):
        lazy = da.from_array(x, chunks=(40, 3))
        made = GeneralizedLeastSquaresRegressor(0.1).fit(lazy, da.from_array(y[:, 0], chunks=40))
        predicted, several = made.predict(lazy), stored.predict(lazy)
        assert (predicted.shape, several.shape) == ((N,), expected.shape)
        np.testing.assert_allclose(several.compute(), expected, rtol=1e-12)
        np.testing.assert_allclose(predicted.compute(), expected.reshape(N, k)[:, 0], rtol=1e-7)


def test_what_is_refused(tmp_path):
    data = write_dataset(tmp_path / "classes", *labelled_rows(30, D, 2))
    assert raised(MismatchError, GeneralizedLeastSquaresRegressor().fit, data) == (
        f"{data.path} has class targets; a regressor needs continuous ones, as ingest makes them with "
        "--target continuous"
    )
    lazy = da.zeros((4, 2))
    with pytest.raises(ValueError, match=r"^GeneralizedLeastSquaresRegressor requires y to be passed, but"):
        GeneralizedLeastSquaresRegressor().fit(lazy)
    for name in ("coef_", "intercept_"):
        raised(NotFittedError, getattr, GeneralizedLeastSquaresRegressor(), name)


@pytest.mark.slow
def test_steps_that_are_too_long_are_tried_without_a_warning():
    x, y = load_diabetes(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert CSGDRegressor().fit(x, y).score(x, y) > 0.5


@pytest.mark.slow
def test_targets_that_overflow_are_what_is_to_be_scaled():
    x = np.random.default_rng(0).normal(size=(40, 3))
    refuses(ValueError, r"or scale y$", GeneralizedLeastSquaresRegressor(alpha=0).fit, x, x[:, 0] * 1e200)
    with pytest.raises(ValueError, match=r", a smaller eta0, or scale X and y$"):
        CSGDRegressor(alpha=0, eta0=1e300, schedule="constant").fit(x * 1e3, x[:, 0])
