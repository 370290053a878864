"""Mean and variance of columns, in parts that are merged."""

from functools import reduce

import numpy as np
import pytest
import scipy.sparse
from helpers import as_rows, raised
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from distls.storage.errors import BadInputError
from distls.storage.rows import DenseRows
from distls.workers.ingestion.column_moments import Moments, merge_moments, moments_of, scale_of


def in_parts(x, cuts):
    parts = [x[a:b] for a, b in zip([0, *cuts], [*cuts, x.shape[0]], strict=True)]
    return reduce(merge_moments, (moments_of(as_rows(part), x.shape[1]) for part in parts))


@given(st.lists(st.integers(0, 200), max_size=5).map(sorted), st.booleans(), st.integers(0, 99))
def test_any_parts_have_the_moments_of_the_whole(cuts, sparse, seed):
    random = np.random.default_rng(seed)
    x = random.normal(random.normal(0, 9, 5), random.random(5) * 9, (200, 5))
    x[random.random(x.shape) < 0.3] = 0
    got = in_parts(scipy.sparse.csr_matrix(x) if sparse else x, cuts)
    assert got.n_rows == 200
    np.testing.assert_allclose(got.mean, x.mean(axis=0), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(got.squares, 200 * x.var(axis=0), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_columns_far_from_zero_keep_their_variance(dtype):
    # float32 has steps of 1/16 there
    x = (1e6 + np.round(np.random.default_rng(0).standard_normal((30_000, 3)) * 16) / 16).astype(dtype)
    got = in_parts(x, [1, 7, 9000, 20_000])
    exact = x.astype(np.longdouble)
    np.testing.assert_allclose(got.mean, exact.mean(axis=0).astype(float), rtol=1e-15)
    np.testing.assert_allclose(scale_of(got), np.sqrt(exact.var(axis=0)).astype(float), rtol=1e-12)


def test_more_rows_than_a_block_of_the_sums(monkeypatch):
    monkeypatch.setattr("distls.workers.ingestion.column_moments._BLOCK_BYTES", 100)
    x = np.array([0, 5, 1e5]) + np.random.default_rng(0).standard_normal((1000, 3))
    got = moments_of(DenseRows(x), 3)
    np.testing.assert_allclose(got.mean, x.mean(axis=0), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(got.squares / 1000, x.var(axis=0), rtol=1e-12)


def test_constant_columns_are_exact_and_have_scale_one():
    x = np.column_stack([np.full(1000, 0.1), np.zeros(1000), np.arange(1000) % 2])
    got = in_parts(x, [3, 500, 501])
    assert got.mean[:2].tolist() == [0.1, 0.0]
    assert scale_of(got).tolist() == [1.0, 1.0, pytest.approx(0.5, rel=1e-14)]
    sparse = scipy.sparse.csr_matrix(x)
    scaler = StandardScaler(with_mean=False).fit(sparse)
    assert scale_of(in_parts(sparse, [300])).tolist() == scaler.scale_.tolist() == [1.0, 1.0, 0.5]


def test_a_variance_beyond_float64_is_refused():
    huge = Moments(2, np.zeros(3), np.array([1.0, np.inf, 1.0]))
    said = raised(BadInputError, scale_of, huge)
    assert said == "standardize: the variance of column 1 is beyond float64; scale the data"
