"""Basis and projections of calibrated least squares: known values, the closest point, metamorphic relations."""

from itertools import product

import numpy as np
import pytest

from distls.workers.prediction.basis_functions import Basis, powers_of
from distls.workers.prediction.calibration import calibrate, project, replay
from reference import calibrated as reference


def test_powers_stand_side_by_side():
    values = np.array([[2.0, -3.0], [0.5, 1.0]])
    assert powers_of(values, (1, 3)).tolist() == [[2.0, -3.0, 8.0, -27.0], [0.5, 1.0, 0.125, 1.0]]
    assert np.array_equal(powers_of(values, (1, 2, 5))[:, 4:], values**5)
    assert powers_of(values[:0], (1, 2)).shape == (0, 4)
    assert powers_of(values.astype(np.float32), (1, 2)).dtype == np.float32


def test_powers_leave_the_predictions_alone():
    values = np.array([[2.0, 3.0]])
    powers_of(values, (1, 2, 3))[...] = 0.0
    assert values.tolist() == [[2.0, 3.0]]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5]),
        ([1.0, 1.0], [0.5, 0.5]),
        ([5.0, 0.0, 0.0], [1.0, 0.0, 0.0]),
        ([-4.0, -4.0, -4.0], [1 / 3, 1 / 3, 1 / 3]),
        ([0.9, 0.8, -3.0], [0.55, 0.45, 0.0]),
        ([0.5, 0.5, 0.0], [0.5, 0.5, 0.0]),
        ([-7.0], [1.0]),
    ],
)
def test_known_projections_onto_the_simplex(row, expected):
    np.testing.assert_allclose(project(np.array([row]), "simplex"), [expected], atol=1e-15)


def _closest_by_faces(v):
    """Try every set of coordinates that are not zero: the minimum of |p - v| over each face's plane, if it is in it."""
    best, distance = v, np.inf
    for kept in product([False, True], repeat=len(v)):
        mask = np.array(kept)
        if mask.any():
            point = np.where(mask, v - (v[mask].sum() - 1.0) / mask.sum(), 0.0)
            if point.min() >= 0.0 and np.linalg.norm(point - v) < distance:
                best, distance = point, float(np.linalg.norm(point - v))
    return best


@pytest.mark.fast_cases(r"0\.1-1", r"1\.0-3", r"10\.0-8")
@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_the_projection_is_the_closest_point(k, scale):
    values = np.random.default_rng(k).standard_normal((40, k)) * scale
    projected = project(values, "simplex")
    np.testing.assert_allclose(projected, [_closest_by_faces(v) for v in values], atol=1e-13)
    np.testing.assert_allclose(projected, reference.project(values, "simplex"), atol=1e-12)


@pytest.mark.fast_cases("float32-simplex", "float64-cube")
@pytest.mark.parametrize("onto", ["simplex", "cube"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_metamorphic(onto, dtype):
    rng = np.random.default_rng(0)
    values = (rng.standard_normal((200, 6)) * 3).astype(dtype)
    values[::7, 2] = values[::7, 4]  # ties
    eps = float(np.finfo(dtype).eps)
    once = project(values, onto)
    assert once.dtype == dtype
    assert once.min() >= 0.0
    assert once.max() <= 1.0 + 4 * eps
    np.testing.assert_allclose(project(once, onto), once, atol=4 * eps)
    if onto == "simplex":
        np.testing.assert_allclose(once.sum(axis=1), 1.0, atol=8 * eps)
        np.testing.assert_allclose(project(values + 1.0, onto), once, atol=16 * eps)  # along (1, ..., 1)
    order = rng.permutation(6)
    np.testing.assert_allclose(project(values[:, order], onto), once[:, order], atol=8 * eps)
    # not farther from any point of the set than before: what makes the error fall
    corners = np.eye(6)[rng.integers(0, 6, 200)]
    assert np.all(np.square(once - corners).sum(axis=1) <= np.square(values - corners).sum(axis=1) + 1e-5)


def test_large_values_lose_no_digits():
    values = np.array([[1e9 + 0.25, 1e9, -1e9]])
    np.testing.assert_allclose(project(values, "simplex"), [[0.625, 0.375, 0.0]], atol=1e-15)


def test_the_cube_clips():
    assert project(np.array([[-0.5, 0.25, 1.5]]), "cube").tolist() == [[0.0, 0.25, 1.0]]


def test_replay_goes_through_the_rounds():
    rng = np.random.default_rng(1)
    fits, weights = rng.standard_normal((30, 9)), rng.standard_normal((3, 6, 3))
    expected = np.zeros((30, 3))
    for number in range(3):
        expected = expected + fits[:, 3 * number : 3 * number + 3]
        expected = reference.project(np.hstack([expected, expected**2]) @ weights[number], "simplex")
    np.testing.assert_allclose(replay(Basis((1, 2)), "simplex", weights, fits), expected, atol=1e-12)
    assert replay(Basis((1, 2)), "simplex", weights[:0], fits[:, :0]).tolist() == np.zeros((30, 3)).tolist()


def test_one_round_is_a_calibration():
    rng = np.random.default_rng(2)
    fits, weights = rng.standard_normal((20, 3)), rng.standard_normal((6, 3))
    expected = calibrate(fits, weights, Basis((1, 2)), "cube")
    assert np.array_equal(replay(Basis((1, 2)), "cube", weights[None], fits), expected)
