"""The estimators on dask arrays."""

import warnings

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse
from helpers import raised, refuses

from distls.estimators.stochastic import MCIDClassifier, StochasticClassifier
from distls.execution.serial import SerialExecutor


@pytest.fixture(autouse=True)
def in_this_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def blobs(n_classes=3, n_rows=300, seed=0):
    random = np.random.default_rng(seed)
    codes = random.integers(0, n_classes, n_rows)
    x = random.standard_normal((n_rows, 5)) + 6 * random.standard_normal((n_classes, 5))[codes]
    return x, codes


@pytest.mark.fast_cases("labels0-False$")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("labels", [np.array([0, 1, 7]), np.array(["ape", "bee", "cat"]), np.array([0.0, 1.0, 2.0])])
def test_fit_and_predict_on_dask_arrays(labels, sparse):
    x, codes = blobs()
    y = labels[codes]
    lazy = da.from_array(x, chunks=(80, 2))
    lazy = lazy.map_blocks(scipy.sparse.csr_matrix) if sparse else lazy
    model = StochasticClassifier(passes=4).fit(lazy, da.from_array(y, chunks=80))
    assert model.classes_.tolist() == labels.tolist()
    assert model.classes_.dtype.kind == labels.dtype.kind
    predicted = model.predict(lazy)
    assert isinstance(predicted, da.Array)
    assert (predicted.shape, predicted.dtype) == ((300,), model.classes_.dtype)
    assert np.array_equal(predicted.compute(), model.predict(x))
    assert np.mean(predicted.compute() == y) > 0.95
    for method in ("decision_function", "predict_proba"):
        values, expected = getattr(model, method)(lazy), getattr(model, method)(x)
        assert (values.shape, values.dtype, values.chunks[1]) == ((300, 3), expected.dtype, (3,))
        np.testing.assert_allclose(values.compute(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_one_chunk_is_what_the_array_itself_is():
    x, y = blobs()
    weights = np.linspace(0.5, 2, len(y))
    whole = MCIDClassifier(passes=3, dtype="float64", class_weight={1: 2.0}).fit(x, y, sample_weight=weights)
    lazy = MCIDClassifier(passes=3, dtype="float64", class_weight={1: 2.0})
    lazy.fit(da.from_array(x, chunks=-1), y, sample_weight=da.from_array(weights, chunks=100))
    assert np.array_equal(lazy.coef_, whole.coef_)


@pytest.mark.slow
def test_two_classes_and_chunks_of_unknown_length_or_without_rows():
    x, y = blobs(2)
    model = MCIDClassifier(passes=2, executor=SerialExecutor()).fit(da.from_array(x, chunks=100), y)
    lazy = da.from_array(x, chunks=50)
    some = lazy[da.from_array(np.arange(300) >= 120, chunks=50)]
    scores = model.decision_function(some)
    assert scores.ndim == 1
    np.testing.assert_allclose(scores.compute(), model.decision_function(x[120:]), rtol=1e-6)
    assert np.array_equal(model.predict(some).compute(), model.predict(x[120:]))
    assert model.predict_proba(some).compute().shape == (180, 2)


@pytest.mark.slow
def test_what_is_refused():
    x, y = blobs()
    lazy = da.from_array(x, chunks=100)
    model = MCIDClassifier(passes=1, loss="hinge").fit(lazy, y)
    said = raised(ValueError, model.predict, lazy[:, :3])
    assert said == "X has 3 features, but MCIDClassifier is expecting 5 features as input."
    assert not hasattr(model, "predict_proba")
    said = raised(ValueError, MCIDClassifier().fit, lazy)
    assert said == "MCIDClassifier requires y to be passed, but the target y is None"


def test_columns_of_dask_data_frames_have_names():
    pandas, dataframe = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    x, y = blobs()
    frame = pandas.DataFrame(x, columns=[*"abcde"])
    lazy = dataframe.from_pandas(frame, npartitions=3)
    model = StochasticClassifier(passes=2).fit(lazy, y)
    assert model.feature_names_in_.tolist() == [*"abcde"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing about names that are not there
        assert np.array_equal(model.predict(lazy).compute(), model.predict(frame))
    refuses(ValueError, "feature names should match", model.predict, lazy[[*"edcba"]])
    assert not hasattr(model.fit(x, y), "feature_names_in_")
    assert not hasattr(model.fit(lazy, y).fit(da.from_array(x, chunks=100), y), "feature_names_in_")
