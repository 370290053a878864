"""Products of blocks of rows: against plain NumPy, sparse as dense, weights as repeated rows, the same bits again."""

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import as_rows

from distls.storage.rows import CsrRows, DenseRows
from distls.workers.linear_algebra import gram as products
from distls.workers.linear_algebra.column_selection import columns_of_csr
from distls.workers.linear_algebra.gram import GramSum, add_cross, add_scores, column_sums
from distls.workers.linear_algebra.gram_kernels import add_upper, count_pairs
from distls.workers.linear_algebra.packed_triangle import diagonal, mirrored, order_of, packed, packed_size, unpacked
from distls.workers.linear_algebra.shifted_solve import Shifted

D = 40


def _values(n=300, density=0.3, seed=0, dtype="float32"):
    rng = np.random.default_rng(seed)
    return np.where(rng.random((n, D)) < density, rng.standard_normal((n, D)), 0).astype(dtype)


def _gram(block, weight=None):
    """Return the upper triangle, packed."""
    gram = np.zeros(packed_size(D))
    pending = GramSum(gram)
    pending.add(block, weight)
    pending.flush()
    return gram


@pytest.mark.fast_cases("False-float32-dense", "True-float64-csr")
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("weighted", [False, True])
def test_products(layout, dtype, weighted):
    rng = np.random.default_rng(1)
    x = _values(dtype=dtype)
    weight = rng.random(len(x)) if weighted else None
    block, s = as_rows(x, layout), np.ones(len(x)) if weight is None else weight
    wide, tolerance = x.astype(np.float64), 2e-6 if dtype == "float32" else 1e-13
    scale = dict(rtol=tolerance, atol=tolerance * len(x))
    gram = _gram(block, weight)
    np.testing.assert_allclose(gram, packed((wide * s[:, None]).T @ wide), **scale)
    np.testing.assert_allclose(column_sums(block, weight, D), s @ wide, **scale)
    residual, cross = rng.standard_normal((len(x), 3)), np.ones((D, 3))
    add_cross(block, residual, cross)
    np.testing.assert_allclose(cross, 1 + wide.T @ residual, **scale)
    weights, out = rng.standard_normal((D, 3)).astype(dtype), np.ones((len(x), 3), dtype)
    add_scores(block, weights, out)
    np.testing.assert_allclose(out, 1 + wide @ weights, **scale)


@pytest.mark.fast_cases("float32-dense")
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_first_columns_do_not_depend_on_the_others(layout, dtype):
    block = as_rows(_values(dtype=dtype), layout)
    residual = np.random.default_rng(2).standard_normal((300, 7))
    whole = np.zeros((D, 7))
    add_cross(block, residual, whole)
    for k in range(1, 7):
        alone, beside = np.zeros((D, k)), np.zeros((D, 7))
        add_cross(block, residual[:, :k].copy(), alone)
        add_cross(block, residual, beside, k)
        assert (beside[:, :k] == alone).all()
        scale = 1e-4 if dtype == "float32" else 1e-11
        np.testing.assert_allclose(beside[:, k:], whole[:, k:], rtol=0, atol=scale)


@pytest.mark.fast_cases(r"0\.02")
@pytest.mark.parametrize("density", [0.02, 0.3, 1.0])
def test_sparse_rows_have_the_products_of_dense_ones_whichever_way_is_chosen(density, monkeypatch):
    x, weight = _values(700, density), np.random.default_rng(0).random(700)
    found = []
    for cost in (0, 10**9):
        monkeypatch.setattr(products, "_PAIR_COST", (cost, cost))
        found.append(_gram(as_rows(x, "csr"), weight))
    for gram in found:
        np.testing.assert_allclose(gram, packed((x * weight[:, None]).T @ x), rtol=1e-5, atol=1e-4)
    assert not np.array_equal(*found)


def test_the_way_depends_on_counts_alone(monkeypatch):
    filled = []
    real = GramSum._add_filled
    monkeypatch.setattr(GramSum, "_add_filled", lambda *given: (filled.append(len(given[1].data)), real(*given)))
    for density in (0.02, 0.9):
        x = _values(100, density)
        _gram(as_rows(x, "csr"))
        _gram(as_rows(-3 * x, "csr"))
    assert filled == [np.count_nonzero(_values(100, 0.9))] * 2


def test_pairs_are_counted():
    block = as_rows(_values(), "csr")
    assert isinstance(block, CsrRows)
    counts = np.diff(block.indptr)
    assert count_pairs(block.indptr) == (counts * (counts + 1) // 2).sum()


@pytest.mark.fast_cases("float32")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_gram_sum_is_complete_when_flushed_and_the_same_again(dtype):
    x = _values(3 * products._FLUSH_ROWS + 5, 1.0, dtype=dtype)
    results = []
    for _ in range(2):
        gram = np.zeros(packed_size(D))
        pending = GramSum(gram)
        for first in range(0, len(x), 512):
            pending.add(DenseRows(x[first : first + 512]))
        pending.flush()
        pending.flush()
        results.append(gram)
    assert np.array_equal(*results)
    expected = packed(x.astype(np.float64).T @ x)
    np.testing.assert_allclose(results[0], expected, rtol=3e-6, atol=3e-6 * len(x))


def test_float32_is_summed_over_few_rows_only():
    """A sum of a million ones would stop at 2^24 in float32, or lose digits long before."""
    gram = np.zeros(3)
    pending, piece = GramSum(gram), DenseRows(np.full((512, 2), 1.1, np.float32))
    for _ in range(2**12):
        pending.add(piece)
    pending.flush()
    np.testing.assert_allclose(gram, 2**21 * float(np.float32(1.1)) ** 2, rtol=1e-6)


def test_the_first_columns_of_a_matrix_can_be_the_target():
    """Predictions beside the features have their own corner."""
    for layout in ("dense", "csr"):
        for dtype in ("float32", "float64"):
            block, gram = as_rows(_values(density=0.05, dtype=dtype), layout), np.zeros(packed_size(D + 3))
            pending = GramSum(gram, D)
            pending.add(block)
            pending.flush()
            upper = unpacked(gram, np.empty((D + 3, D + 3)))
            np.testing.assert_allclose(packed(upper[:D, :D]), _gram(block), rtol=1e-6, atol=1e-6)
            assert not upper[D:].any()


@pytest.mark.fast_cases("False-float32")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("weighted", [False, True])
def test_other_columns_come_with_the_gram_matrix(dtype, weighted):
    rng = np.random.default_rng(3)
    x, others = _values(5000, 1.0, dtype=dtype), rng.standard_normal((5000, 3))
    s = rng.integers(0, 3, 5000).astype(float) if weighted else np.ones(5000)
    gram = np.zeros(packed_size(D + 2))
    pending = GramSum(gram, D, 3)
    for first in range(0, 5000, 500):
        rows = slice(first, first + 500)
        room = np.hstack([x[rows], np.full((500, 3), np.nan, dtype)])
        pending.add_padded(room, others[rows] * s[rows, None], s[rows] if weighted else np.empty(0))
    pending.flush()
    wide, tolerance = x.astype(np.float64), 3e-6 if dtype == "float32" else 1e-13
    scale = dict(rtol=tolerance, atol=tolerance * len(x))
    upper = unpacked(gram, np.empty((D + 2, D + 2)))
    np.testing.assert_allclose(upper[:D, :D], (wide * s[:, None]).T @ wide, **scale)
    assert not upper[D:].any()
    np.testing.assert_allclose(pending.extra, wide.T @ (others * s[:, None]), **scale)


def test_sparse_rows_made_dense_are_multiplied_in_the_type_asked_for():
    x, gram = _values(900, 1.0), np.zeros(packed_size(D))
    pending = GramSum(gram, dtype=np.dtype(np.float64))
    pending.add(as_rows(x, "csr"))
    pending.flush()
    np.testing.assert_allclose(gram, packed(x.astype(np.float64).T @ x), rtol=1e-13, atol=1e-11)


def test_columns_of_sparse_rows():
    x = _values()
    block = as_rows(x, "csr")
    assert isinstance(block, CsrRows)
    for columns in (np.array([0, 7, 8, 39]), np.array([5]), np.arange(D), np.empty(0, np.int64)):
        found = columns_of_csr(block, columns)
        dense = sp.csr_matrix((found.data, found.indices, found.indptr), (len(x), len(columns))).toarray()
        assert np.array_equal(dense, x[:, columns])


# -- packed triangles of symmetric matrices, and sums of blocks of them ----------------------------------


def _matrix(d):
    x = np.random.default_rng(d).standard_normal((d, d))
    return x + x.T


@pytest.mark.fast_cases("0", "17", "300")
@pytest.mark.parametrize("d", [0, 1, 2, 17, 128, 129, 300])  # around multiples of a tile
def test_what_is_packed_is_unpacked(d):
    matrix = _matrix(d)
    triangle = packed(matrix)
    assert triangle.shape == (packed_size(d),)
    assert order_of(triangle) == d
    np.testing.assert_array_equal(diagonal(triangle), np.diag(matrix))
    np.testing.assert_array_equal(unpacked(triangle, np.empty((d, d))), matrix)
    upper = matrix.copy()
    upper[np.tril_indices(d, -1)] = np.nan  # the lower triangle must not be looked at
    np.testing.assert_array_equal(packed(upper), triangle)
    np.testing.assert_array_equal(mirrored(upper), matrix)


def test_a_corner_can_be_the_target():
    out = np.zeros((6, 6))
    unpacked(packed(_matrix(5)), out[1:, 1:])
    np.testing.assert_array_equal(out[1:, 1:], _matrix(5))
    assert not out[0].any()


@pytest.mark.fast_cases("0-shape0-float32", "4-shape2-float32", "2-shape4-float64")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("first", "shape"), [(0, (7, 7)), (0, (4, 4)), (4, (4, 3)), (5, (7, 2)), (2, (3, 1))])
def test_blocks_are_added_where_they_are_above_the_diagonal(first, shape, dtype):
    block = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    wanted = np.ones((7, 7))
    wanted[: shape[0], first : first + shape[1]] += block
    triangle = np.ones(packed_size(7))
    add_upper(block, first, 7, triangle)
    np.testing.assert_allclose(triangle, packed(np.triu(wanted)), rtol=1e-15)


# -- solves with A + c I from one reduction to a band ----------------------------------------------------


def _positive(d, rank):
    x = np.random.default_rng(d).standard_normal((rank, d))
    return np.asarray(x.T @ x / rank)


def _solve(shifted, right, shift):
    return shifted.outside(shifted.solve_inside(shifted.inside(right), shift))


@pytest.mark.fast_cases("1$", "50", "210")
@pytest.mark.parametrize("d", [1, 2, 48, 49, 50, 96, 97, 98, 145, 210])  # around multiples of the band's width
def test_shifts_are_solved_as_if_each_were_factorised(d):
    matrix, right = _positive(d, d + 3), np.random.default_rng(0).standard_normal((d, 4))
    kept = matrix.copy()
    shifted = Shifted(matrix)
    np.testing.assert_array_equal(matrix, kept)
    for shift in (1e-4, 0.3, 20.0):
        wanted = np.linalg.solve(matrix + shift * np.eye(d), right)
        np.testing.assert_allclose(_solve(shifted, right, shift), wanted, rtol=0, atol=1e-9 * np.abs(wanted).max())


def test_the_basis_is_orthonormal():
    shifted = Shifted(_positive(130, 140))
    q = shifted.outside(np.eye(130))
    np.testing.assert_allclose(q.T @ q, np.eye(130), atol=1e-13)
    np.testing.assert_allclose(shifted.inside(q), np.eye(130), atol=1e-13)


def test_a_singular_matrix_with_columns_of_zeros_is_solved_in_its_shifts():
    matrix = _positive(120, 30)
    matrix[:, [0, 50, 119]] = matrix[[0, 50, 119]] = 0.0
    right = np.random.default_rng(0).standard_normal((120, 2))
    wanted = np.linalg.solve(matrix + 1e-3 * np.eye(120), right)
    np.testing.assert_allclose(_solve(Shifted(matrix), right, 1e-3), wanted, atol=1e-9)


def test_a_shift_that_is_lost_in_rounding_is_replaced_by_the_least_that_is_not():
    shifted = Shifted(_positive(100, 20))
    right = np.random.default_rng(0).standard_normal((100, 2))
    assert 0.0 < shifted.least < 1e-11
    np.testing.assert_array_equal(_solve(shifted, right, 1e-30), _solve(shifted, right, shifted.least))
    assert np.isfinite(_solve(shifted, right, 1e-30)).all()
    rough = Shifted(_positive(100, 20), eps=float(np.finfo(np.float32).eps))
    assert rough.least > 1e4 * shifted.least
