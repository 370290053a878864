"""Solves with A + c I from one reduction to a band."""

import numpy as np
import pytest

from distls.workers.linear_algebra.shifted_solve import Shifted


def _matrix(d, rank):
    x = np.random.default_rng(d).standard_normal((rank, d))
    return np.asarray(x.T @ x / rank)


def _solve(shifted, right, shift):
    return shifted.outside(shifted.solve_inside(shifted.inside(right), shift))


@pytest.mark.fast_cases("1$", "50", "210")
@pytest.mark.parametrize(
    "d", [1, 2, 48, 49, 50, 96, 97, 98, 145, 210]
)  # around multiples of the band's width
def test_shifts_are_solved_as_if_each_were_factorised(d):
    matrix, right = _matrix(d, d + 3), np.random.default_rng(0).standard_normal((d, 4))
    kept = matrix.copy()
    shifted = Shifted(matrix)
    np.testing.assert_array_equal(matrix, kept)
    for shift in (1e-4, 0.3, 20.0):
        wanted = np.linalg.solve(matrix + shift * np.eye(d), right)
        np.testing.assert_allclose(
            _solve(shifted, right, shift), wanted, rtol=0, atol=1e-9 * np.abs(wanted).max()
        )


def test_the_basis_is_orthonormal():
    shifted = Shifted(_matrix(130, 140))
    q = shifted.outside(np.eye(130))
    np.testing.assert_allclose(q.T @ q, np.eye(130), atol=1e-13)
    np.testing.assert_allclose(shifted.inside(q), np.eye(130), atol=1e-13)


def test_a_singular_matrix_with_columns_of_zeros_is_solved_in_its_shifts():
    matrix = _matrix(120, 30)
    matrix[:, [0, 50, 119]] = matrix[[0, 50, 119]] = 0.0
    right = np.random.default_rng(0).standard_normal((120, 2))
    wanted = np.linalg.solve(matrix + 1e-3 * np.eye(120), right)
    np.testing.assert_allclose(_solve(Shifted(matrix), right, 1e-3), wanted, atol=1e-9)


def test_a_shift_that_is_lost_in_rounding_is_replaced_by_the_least_that_is_not():
    shifted = Shifted(_matrix(100, 20))
    right = np.random.default_rng(0).standard_normal((100, 2))
    assert 0.0 < shifted.least < 1e-11
    np.testing.assert_array_equal(_solve(shifted, right, 1e-30), _solve(shifted, right, shifted.least))
    assert np.isfinite(_solve(shifted, right, 1e-30)).all()
    rough = Shifted(_matrix(100, 20), eps=float(np.finfo(np.float32).eps))
    assert rough.least > 1e4 * shifted.least
