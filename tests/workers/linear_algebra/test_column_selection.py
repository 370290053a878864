"""Columns of sparse rows, by a table of all columns and, for few rows, one value after the other."""

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import as_rows

from distls.storage.rows import CsrRows, index_dtype
from distls.workers.linear_algebra.column_selection import columns_of_csr, places_of


@pytest.mark.slow_cases("1-70000")
@pytest.mark.parametrize("width", [400, 70_000])
@pytest.mark.parametrize("n_rows", [1, 3, 2000])
def test_columns(width, n_rows):
    rng = np.random.default_rng(0)
    x = sp.random_array((n_rows, width), density=20 / width, format="csr", rng=rng, dtype=np.float32)
    x.sort_indices()
    columns = np.sort(rng.choice(width, width // 3, replace=False))
    found = columns_of_csr(as_rows(x), columns)
    expected = x[:, columns]
    assert np.array_equal(found.indptr, expected.indptr)
    assert np.array_equal(found.indices, expected.indices)
    assert np.array_equal(found.data, expected.data)
    assert found.indices.dtype == index_dtype(len(columns))


def test_no_columns():
    rows = CsrRows(np.array([0, 2]), np.array([1, 3], np.uint16), np.ones(2, np.float32))
    assert columns_of_csr(rows, np.empty(0, np.int64)).indptr.tolist() == [0, 0]
    assert places_of(rows.indices, np.empty(0, np.int64)).tolist() == [-1, -1]
    assert places_of(rows.indices, np.array([0, 3])).tolist() == [-1, 1]
