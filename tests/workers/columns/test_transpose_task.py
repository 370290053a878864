"""Kernels of the transposition against NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distls.workers.columns.transpose_task import append_columns, count_values, scatter_rows, transpose_rows

DTYPES = [
    (columns, rows, values)
    for columns in (np.uint16, np.uint32)
    for rows in (np.uint16, np.uint32)
    for values in (np.float32, np.float64)
]


def random_csr(rng, n_rows, n_columns, dtypes):
    keep = rng.random((n_rows, n_columns)) < 0.3
    i, j = np.nonzero(keep)
    indptr = np.concatenate([[0], np.cumsum(keep.sum(axis=1))])
    return i, indptr, j.astype(dtypes[0]), rng.standard_normal(len(j)).astype(dtypes[2])


@pytest.mark.parametrize("dtypes", DTYPES, ids=lambda d: "-".join(t.__name__ for t in d))
def test_values_are_dealt_to_columns_in_the_order_of_rows(dtypes):
    rng = np.random.default_rng(0)
    rows, indptr, columns, data = random_csr(rng, 50, 30, dtypes)
    counts = np.zeros(30, np.int64)
    count_values(columns, counts)
    assert counts.tolist() == np.bincount(columns, minlength=30).tolist()
    ends = np.cumsum(counts)
    place, out_rows, out_data = ends - counts, np.empty(len(data), dtypes[1]), np.empty_like(data)
    scatter_rows(indptr, columns, data, 1000, place, out_rows, out_data)
    order = np.argsort(columns, kind="stable")
    assert place.tolist() == ends.tolist()
    assert out_rows.tolist() == (rows[order] + 1000).tolist()
    assert out_data.tobytes() == data[order].tobytes()


@pytest.mark.parametrize("dtypes", DTYPES[:4], ids=lambda d: "-".join(t.__name__ for t in d))
def test_groups_are_appended_column_by_column(dtypes):
    rng = np.random.default_rng(1)
    lengths = [rng.integers(0, 5, 20) for _ in range(3)]
    total = sum(lengths)
    out_rows, out_data = np.zeros(total.sum(), dtypes[1]), np.zeros(total.sum(), dtypes[2])
    place, truth = np.cumsum(total) - total, [[] for _ in range(20)]
    for first, counts in enumerate(lengths):
        # offsets count from the group's first value, which is in a column before these
        starts = np.concatenate([[0], np.cumsum(counts)]) + 7
        rows = np.arange(counts.sum(), dtype=dtypes[1])
        data = rng.standard_normal(counts.sum()).astype(dtypes[2])
        append_columns(starts, rows, data, first, place, out_rows, out_data)
        for column in range(20):
            part = slice(starts[column] - 7, starts[column + 1] - 7)
            truth[column] += zip((rows[part] + first).tolist(), data[part].tolist(), strict=True)
    found = zip(out_rows.tolist(), out_data.tolist(), strict=True)
    assert [*found] == [pair for column in truth for pair in column]


@given(st.integers(0, 100), st.integers(0, 100), st.sampled_from([np.float32, np.float64]))
def test_tiles_cover_the_whole(n_rows, n_columns, dtype):
    values = np.arange(n_rows * n_columns, dtype=dtype).reshape(n_rows, n_columns)
    # a part of a wider array, as groups of partitions are
    out = np.full((n_columns, n_rows + 5), -1, dtype=dtype)
    transpose_rows(values, out[:, 2 : 2 + n_rows])
    assert np.array_equal(out[:, 2 : 2 + n_rows], values.T)
    assert (out[:, :2] == -1).all()
    assert (out[:, 2 + n_rows :] == -1).all()
