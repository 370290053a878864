"""Values of a column that its transforms make equal are found, in dense rows and beside sparse columns."""

import numpy as np
import pytest
import scipy.sparse as sp

from distls.storage.rows import CsrRows, DenseRows
from distls.workers.ingestion.merged_values import Merging

N = 400
SMALL, LARGE = np.arange(N) % 5, np.r_[np.arange(N - 1) % 5, 2.0**60]
FRACTIONS = np.r_[np.arange(1, N) / 1000, 1e12]
WIDE = np.arange(N) * 2.0**40  # far from each other


def csr(values):
    x = sp.csr_array(values)
    return CsrRows(x.indptr.astype(np.int64), x.indices.astype(np.uint32), x.data)


def pairs(x, steps, fitted, dtype="float32"):
    return {column: [a for a, _ in values] for column, values in Merging(steps, fitted, dtype).found(x)}


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_columns_that_are_centred(layout, dtype):
    values = np.column_stack([SMALL, LARGE, FRACTIONS, WIDE, SMALL == 2]).astype(dtype)
    width = 4
    mean, std = values.mean(axis=0, dtype=float), values.std(axis=0, dtype=float)
    mean[width:], std[width:] = 0.0, 1.0
    x = DenseRows(values) if layout == "dense" else csr(values)
    step = {"name": "standardize"} | ({"dense": width} if layout == "csr" else {})
    found = pairs(x, [step], {"mean": mean, "std": std})
    assert {c: two for c, two in found.items() if len(two) == 2 and c < width} == {
        1: [0.0, 1.0], 2: pytest.approx([0.001, 0.002]),
    }  # fmt: skip
    assert np.array_equal(
        x.values if layout == "dense" else csr(values).data, values if layout == "dense" else x.data
    )
    # rows of another partition have the same mean
    assert pairs(DenseRows(values[:-1]), [{"name": "standardize"}], {"mean": mean, "std": std})[1] == [
        0.0,
        1.0,
    ]


def test_columns_that_are_divided_alone():
    near = np.array([2.0**24 - 1, 2.0**24 - 2, 5.0, 0.0])
    x = csr(np.column_stack([near, near * 0 + 2.0**30, near == 5.0]).astype(np.float32))
    assert pairs(x, [{"name": "standardize"}], {"std": np.array([1.0, 3.0, 1.0])}) == {}
    std = np.array([1.1e7, 3.0, 1.0])
    assert pairs(x, [{"name": "standardize"}], {"std": std}) == {0: [2.0**24 - 2, 2.0**24 - 1]}
    assert pairs(x, [], {}) == pairs(x, [{"name": "l2norm"}], {}) == {}


def test_few_values_are_told_for_other_rows():
    x = DenseRows(np.array([[0.0], [0.0], [2.0**40]], dtype=np.float32))
    ((column, values),) = Merging([{"name": "scale", "divisor": 4.0}], {}, "float32").found(x)
    assert (column, values) == (0, [(0.0, 0.0), (2.0**40, 2.0**38)])


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_logarithms_of_whole_numbers(layout):
    near = (
        2e6 + np.r_[np.arange(2 * N) * 100.0, 1.0]
    )  # two that are next to each other, in rows that a sample misses
    values = np.column_stack([np.roll(near, 7), np.arange(len(near)) % 9])
    x = DenseRows(values) if layout == "dense" else csr(values)
    assert pairs(x, [{"name": "log1p"}], {}) == {0: [2e6, 2e6 + 1.0]}


def test_all_large_values_of_sparse_columns_are_compared():
    values = np.full((2**17, 1), 2.0**23)
    values[-2:, 0] = 2.0**24 - 2, 2.0**24 - 1
    assert pairs(csr(values), [{"name": "scale", "divisor": 1.1e7}], {}) == {0: [2.0**24 - 2, 2.0**24 - 1]}
