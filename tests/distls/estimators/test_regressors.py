"""The regressor: agreement with Ridge, arrays of every kind, what is refused."""

import pickle
import warnings

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from helpers import labelled_rows, raised, write_dataset
from sklearn.datasets import load_diabetes
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from target_helpers import rows_with_numbers

from distls import CSGDRegressor, GeneralizedLeastSquaresRegressor, fit, ingest
from distls.storage.errors import MismatchError

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
        with pytest.raises(NotFittedError):
            getattr(GeneralizedLeastSquaresRegressor(), name)


@pytest.mark.slow
def test_steps_that_are_too_long_are_tried_without_a_warning():
    x, y = load_diabetes(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert CSGDRegressor().fit(x, y).score(x, y) > 0.5


@pytest.mark.slow
def test_targets_that_overflow_are_what_is_to_be_scaled():
    x = np.random.default_rng(0).normal(size=(40, 3))
    with pytest.raises(ValueError, match=r"or scale y$"):
        GeneralizedLeastSquaresRegressor(alpha=0).fit(x, x[:, 0] * 1e200)
    with pytest.raises(ValueError, match=r", a smaller eta0, or scale X and y$"):
        CSGDRegressor(alpha=0, eta0=1e300, schedule="constant").fit(x * 1e3, x[:, 0])
