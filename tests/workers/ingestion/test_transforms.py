import itertools
from functools import reduce

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse as sp
from helpers import as_rows, raised
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import StandardScaler, normalize

from distls.storage.errors import BadInputError, ParameterError
from distls.storage.rows import CsrRows, DenseRows
from distls.workers.ingestion.column_moments import Moments, merge_moments, moments_of, scale_of
from distls.workers.ingestion.merged_values import Merging
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
    return matrix, CsrRows(matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint16), matrix.data.copy())


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
    np.testing.assert_allclose(applied(rows, ["scale=4", "log1p"]).data, np.log1p(matrix.data / 4), rtol=tolerance)
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
    said = raised(BadInputError, applied, sparse, "log1p")
    assert said == "d: partition 3, row 2: log1p of -1; values must be above -1"
    said = raised(BadInputError, applied, DenseRows(np.array([[0.0, 1], [-7, 1]])), "log1p")
    assert said == "d: partition 3, row 1: log1p of -7; values must be above -1"
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
    assert raised(ParameterError, parse_transforms, names) == message


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
    steps = ({"name": "min_count", "count": 2, "columns": 12, "kept": len(kept)}, {"name": "scale", "divisor": 2.0})
    dense = apply_transforms(DenseRows(matrix.toarray()), steps, {"kept": np.array(kept)}, "d")
    x = apply_transforms(rows, steps, {"kept": np.array(kept)}, "d")
    expected = matrix.toarray()[:, kept] / 2
    assert np.array_equal(dense.values, expected)
    assert np.array_equal(scipy.sparse.csr_matrix((x.data, x.indices, x.indptr), expected.shape).toarray(), expected)
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


# -- mean and variance of columns, in parts that are merged ----------------------------------------------


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


# -- values of a column that its transforms make equal are found, in dense rows and beside sparse columns ---


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
    assert np.array_equal(x.values if layout == "dense" else csr(values).data, values if layout == "dense" else x.data)
    # rows of another partition have the same mean
    assert pairs(DenseRows(values[:-1]), [{"name": "standardize"}], {"mean": mean, "std": std})[1] == [0.0, 1.0]


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
    near = 2e6 + np.r_[np.arange(2 * N) * 100.0, 1.0]  # two that are next to each other, in rows that a sample misses
    values = np.column_stack([np.roll(near, 7), np.arange(len(near)) % 9])
    x = DenseRows(values) if layout == "dense" else csr(values)
    assert pairs(x, [{"name": "log1p"}], {}) == {0: [2e6, 2e6 + 1.0]}


def test_all_large_values_of_sparse_columns_are_compared():
    values = np.full((2**17, 1), 2.0**23)
    values[-2:, 0] = 2.0**24 - 2, 2.0**24 - 1
    assert pairs(csr(values), [{"name": "scale", "divisor": 1.1e7}], {}) == {0: [2.0**24 - 2, 2.0**24 - 1]}
