import itertools

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize

from distls.storage.errors import BadInputError, ParameterError
from distls.storage.rows import CsrRows, DenseRows
from distls.workers.ingestion.stage_task import ranks_within
from distls.workers.ingestion.transforms import (
    apply_transforms,
    has_step,
    idf_weights,
    parse_transforms,
    source_width,
    stored_width,
    transforms_digest,
)


def sparse_rows(seed=0, dtype=np.float64):
    matrix = scipy.sparse.random_array((40, 12), density=0.3, rng=np.random.default_rng(seed), format="csr")
    matrix.data[:] = 1 + 9 * matrix.data
    matrix = scipy.sparse.csr_matrix(matrix.astype(dtype))
    matrix.sort_indices()
    return matrix, CsrRows(
        matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint16), matrix.data.copy()
    )


def applied(x, names, fitted=None):
    apply_transforms(x, parse_transforms(names), fitted or {}, "d: partition 3")
    return x


def test_idf_and_l2norm_are_scikit_learns():
    matrix, rows = sparse_rows()
    counts = np.bincount(matrix.indices, minlength=12)
    fitted = {"idf": idf_weights(counts, 40)}
    model = TfidfTransformer(norm=None).fit(matrix)
    np.testing.assert_allclose(fitted["idf"], model.idf_, rtol=1e-15)
    expected = normalize(model.transform(matrix)).toarray()
    dense = DenseRows(matrix.toarray())
    applied(rows, "idf,l2norm", fitted)
    applied(dense, "idf,l2norm", fitted)
    got = scipy.sparse.csr_matrix((rows.data, rows.indices, rows.indptr), (40, 12)).toarray()
    np.testing.assert_allclose(got, expected, rtol=1e-14)
    np.testing.assert_allclose(dense.values, expected, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_steps_are_applied_in_the_order_given(dtype):
    matrix, rows = sparse_rows(dtype=dtype)
    tolerance = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(applied(rows, "log1p,scale=4").data, np.log1p(matrix.data) / 4, rtol=tolerance)
    _, rows = sparse_rows(dtype=dtype)
    np.testing.assert_allclose(
        applied(rows, ["scale=4", "log1p"]).data, np.log1p(matrix.data / 4), rtol=tolerance
    )
    assert rows.data.dtype == dtype


def test_rows_of_zeros_stay():
    dense = applied(DenseRows(np.array([[3.0, 4.0], [0.0, 0.0]])), "l2norm")
    assert dense.values.tolist() == [[0.6, 0.8], [0.0, 0.0]]
    sparse = CsrRows(np.array([0, 2, 2, 3]), np.array([0, 1, 1], np.uint16), np.array([3.0, 4.0, 2.0]))
    np.testing.assert_allclose(applied(sparse, "l2norm").data, [0.6, 0.8, 1.0], rtol=1e-15)


@given(st.lists(st.lists(st.floats(1e-3, 1e3), max_size=5), min_size=1, max_size=6))
def test_unit_rows_have_norm_one(rows):
    data = np.array([value for row in rows for value in row], dtype=np.float32)
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    indices = np.concatenate([np.arange(len(row)) for row in rows]).astype(np.uint16)
    x = applied(CsrRows(indptr, indices, data), "l2norm")
    for a, b in itertools.pairwise(indptr):
        assert a == b or abs(np.linalg.norm(x.data[a:b].astype(np.float64)) - 1) < 1e-6


def test_refused_values_name_partition_and_row():
    sparse = CsrRows(np.array([0, 1, 1, 3]), np.array([0, 0, 1], np.uint16), np.array([1.0, 2.0, -1.0]))
    with pytest.raises(BadInputError) as caught:
        applied(sparse, "log1p")
    assert str(caught.value) == "d: partition 3, row 2: log1p of -1; values must be above -1"
    with pytest.raises(BadInputError) as caught:
        applied(DenseRows(np.array([[0.0, 1], [-7, 1]])), "log1p")
    assert str(caught.value) == "d: partition 3, row 1: log1p of -7; values must be above -1"
    with pytest.raises(BadInputError) as caught, np.errstate(over="ignore"):
        applied(DenseRows(np.array([[0.0, 1], [1e300, 1]])), "scale=1e-300")
    assert str(caught.value) == "d: partition 3, row 1: a value is not finite after the transforms"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("sqrt", "unknown transform 'sqrt'; there are log1p, idf, l2norm, scale, standardize, auto, none"),
        ("scale", "transform scale needs a positive divisor, as in scale=255; 'scale' was given"),
        ("scale=0", "transform scale needs a positive divisor, as in scale=255; 'scale=0' was given"),
        ("scale=nan", "transform scale needs a positive divisor, as in scale=255; 'scale=nan' was given"),
        ("l2norm=2", "transform l2norm takes no value, 'l2norm=2' was given"),
        ("idf,idf", "transform idf is given twice; its weights are fitted once, on the source values"),
    ],
)
def test_refused_steps(names, message):
    with pytest.raises(ParameterError) as caught:
        parse_transforms(names)
    assert str(caught.value) == message


def test_steps_and_digests():
    steps = parse_transforms(" log1p, scale=255 ")
    assert steps == ({"name": "log1p"}, {"name": "scale", "divisor": 255.0})
    assert parse_transforms("") == ()
    assert not has_step(steps, "idf", "min_count")
    assert has_step(parse_transforms(["idf"]), "min_count", "idf")
    digests = {
        transforms_digest((), {}),
        transforms_digest(steps, {}),
        transforms_digest(steps[::-1], {}),
        transforms_digest(parse_transforms("idf"), {"idf": np.ones(3)}),
        transforms_digest(parse_transforms("idf"), {"idf": np.array([1, 1, 2.0])}),
    }
    assert len(digests) == 5
    assert "" in digests


def test_digests_know_the_fitted_arrays_only():
    steps = parse_transforms("standardize")
    fitted = {"std": np.ones(2), "mean": np.zeros(2)}
    digest = transforms_digest(steps, fitted)
    assert transforms_digest(steps, {**fitted, "names": np.frombuffer(b"a,b", np.uint8)}) == digest
    assert transforms_digest(steps, {"std": np.ones(2)}) != digest


@pytest.mark.parametrize("kept", [[0], [3, 4, 11], list(range(12))])
def test_columns_that_are_kept_are_numbered_anew(kept):
    matrix, rows = sparse_rows()
    steps = (
        {"name": "min_count", "count": 2, "columns": 12, "kept": len(kept)},
        {"name": "scale", "divisor": 2.0},
    )
    dense = apply_transforms(DenseRows(matrix.toarray()), steps, {"kept": np.array(kept)}, "d")
    x = apply_transforms(rows, steps, {"kept": np.array(kept)}, "d")
    expected = matrix.toarray()[:, kept] / 2
    assert np.array_equal(dense.values, expected)
    assert np.array_equal(
        scipy.sparse.csr_matrix((x.data, x.indices, x.indptr), expected.shape).toarray(), expected
    )
    assert (stored_width(steps, 12), source_width(steps, len(kept))) == (len(kept), 12)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(0, 5))
def test_ranks_within_labels_count_from_zero_in_random_order(labels, seed):
    labels = np.array(labels, dtype=np.float64)
    rank = np.random.default_rng(seed).permutation(len(labels))
    within = ranks_within(labels, rank)
    for label in np.unique(labels):
        mine = labels == label
        assert sorted(within[mine]) == list(range(mine.sum()))
        assert np.array_equal(np.argsort(within[mine]), np.argsort(rank[mine]))
