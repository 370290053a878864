"""Packed triangles of symmetric matrices, and sums of blocks of them."""

import numpy as np
import pytest

from distls.workers.linear_algebra.gram_kernels import add_upper
from distls.workers.linear_algebra.packed_triangle import (
    diagonal,
    mirrored,
    order_of,
    packed,
    packed_size,
    unpacked,
)


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
@pytest.mark.parametrize(
    ("first", "shape"), [(0, (7, 7)), (0, (4, 4)), (4, (4, 3)), (5, (7, 2)), (2, (3, 1))]
)
def test_blocks_are_added_where_they_are_above_the_diagonal(first, shape, dtype):
    block = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    wanted = np.ones((7, 7))
    wanted[: shape[0], first : first + shape[1]] += block
    triangle = np.ones(packed_size(7))
    add_upper(block, first, 7, triangle)
    np.testing.assert_allclose(triangle, packed(np.triu(wanted)), rtol=1e-15)
