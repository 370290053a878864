"""Objects that wrap an array, and what is none: of xarray, AnnData, wrong types."""

import anndata
import numpy as np
import pytest
import scipy.sparse as sp
import xarray
from helpers import labelled_rows, refuses

from distls import CSGDRegressor, GeneralizedLeastSquaresRegressor, StochasticClassifier, fit, ingest, open_dataset
from distls.ingestion.formats.memory_arrays import unwrapped
from distls.storage.errors import BadInputError, ParameterError

SPARSE, Y = labelled_rows(120, 6, 3)
X = SPARSE.toarray()
ROWS = xarray.DataArray(X, dims=("row", "feature"))
LABELS = xarray.DataArray(Y, dims=("row",))
CELLS = anndata.AnnData(sp.csr_matrix(SPARSE))

WRAPPED = {"array": (ROWS, LABELS), "chunks": (ROWS.chunk({"row": 50}), LABELS), "cells": (CELLS, Y)}


@pytest.mark.slow_cases("cells")
@pytest.mark.parametrize("kind", WRAPPED)
def test_they_are_the_arrays_that_they_wrap(kind, tmp_path):
    x, y = WRAPPED[kind]
    inner = unwrapped("X", x)
    own, plain = (StochasticClassifier(passes=2).fit(*given) for given in ((x, y), (inner, Y)))
    assert own.model_.sha256 == plain.model_.sha256
    for method in ("predict", "decision_function", "predict_proba"):
        assert np.array_equal(np.asarray(getattr(own, method)(x)), np.asarray(getattr(plain, method)(inner)))
    numbers = GeneralizedLeastSquaresRegressor().fit(x, y)
    assert np.array_equal(np.asarray(numbers.predict(x)), np.asarray(numbers.predict(inner)))
    ingest(x, tmp_path / "a", y=y, sample_weight=abs(LABELS) + 1)
    ingest(inner, tmp_path / "b", y=Y, sample_weight=abs(Y) + 1)
    assert open_dataset(tmp_path / "a").fingerprint == open_dataset(tmp_path / "b").fingerprint


def test_a_stream_takes_them():
    own = StochasticClassifier(loss="log").partial_fit(ROWS, LABELS, classes=[0, 1, 2])
    assert np.array_equal(own.coef_, StochasticClassifier(loss="log").partial_fit(X, Y, classes=[0, 1, 2]).coef_)


@pytest.mark.slow
def test_a_stream_of_numbers_takes_them():
    assert CSGDRegressor().partial_fit(ROWS, LABELS).predict(ROWS).shape == (120,)


NONE = [
    (None, "X: expected an array, a sparse matrix, .* of numbers, not None"),
    ({"a": 1}, "X: expected an array, .* not a dict"),
    (iter(X), "X: expected an array, .* not a "),
    (xarray.Dataset({"a": ROWS}), r"X: an xarray Dataset of several arrays; give one of them, as in X\['name'\]"),
    (anndata.AnnData(obs={"a": [1, 2]}), "X: an AnnData object without X; give a layer"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "message"), NONE)
def test_what_is_no_array_is_one_line(wrong, message, tmp_path):
    for estimator in (StochasticClassifier(), GeneralizedLeastSquaresRegressor()):
        refuses(BadInputError, message, estimator.fit, wrong, Y)
        with pytest.raises(BadInputError, match=message):
            type(estimator)(passes=1).fit(X, Y).predict(wrong)
    refuses(BadInputError, message, ingest, wrong, tmp_path / "d", y=Y)
    assert not list(tmp_path.iterdir())


def test_arrays_are_no_data_set():
    refuses(ParameterError, "a ndarray is no data set: give a path or a Dataset; arrays are for", fit, "sgd", X)


def test_what_is_masked_is_missing(tmp_path):
    x = np.ma.masked_array(np.arange(24.0).reshape(12, 2), mask=[[0, 1]] + [[0, 0]] * 11)
    y = np.ma.masked_array([0, 1, 2] * 4, mask=[0, 0, 1] * 4)
    words = np.ma.masked_array(["a", "b", "c"] * 4, mask=y.mask)
    refuses(BadInputError, "row 0", ingest, x, tmp_path / "x", y=y.data)
    for k, labels in enumerate((y, words)):
        report = ingest(x.data, tmp_path / f"{k}", y=labels, drop="unknown")
        assert report.dropped == {"unknown": 4}
        assert open_dataset(tmp_path / f"{k}").meta.classes == ([0, 1], ["a", "b"])[k]
    with pytest.raises((BadInputError, ValueError)):
        GeneralizedLeastSquaresRegressor(passes=1).fit(x, np.arange(12.0))
    assert unwrapped("X", np.ma.masked_array([[1]])).dtype.kind == "i"
