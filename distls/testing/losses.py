"""What every loss promises: slopes that are its derivatives, row functions that agree with its NumPy form."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from distls.workers.losses.loss import GRADIENT_IN_G, Loss
from distls.workers.losses.row_functions import row_gradient


def scores_and_classes(
    k: int, n: int = 40, spread: float = 3.0, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Return random scores (n, k) and classes (n,)."""
    rng = np.random.default_rng([seed, k])
    return spread * rng.standard_normal((n, k)), rng.integers(0, k, n).astype(np.int32)


def of_row(loss: Loss, z: NDArray[Any], scale: float, y: int) -> tuple[float, NDArray[Any], int]:
    """Return what kernels get of a row: value, slopes, predicted class."""
    g = np.full(len(z), np.nan, z.dtype)
    # a Python int, as kernels have it: one compilation
    value, rival, predicted = row_gradient(loss, z, scale, int(y), g)
    if rival != GRADIENT_IN_G:
        g[:] = 0
        g[rival] += 1
        g[y] -= 1
    return value, g, predicted


class LossContract:
    """What every loss of classes must do; subclasses provide the fixture `loss`."""

    def test_slopes_are_derivatives(self, loss: Loss) -> None:
        z, y = scores_and_classes(5)
        step = 1e-6 * np.eye(5)
        numeric = [(loss.values(z + step[c], y) - loss.values(z - step[c], y)) / 2e-6 for c in range(5)]
        np.testing.assert_allclose(loss.gradient(z, y), np.transpose(numeric), atol=1e-8)

    def test_rows_are_those_of_the_arrays(self, loss: Loss) -> None:
        for k in (2, 3, 4, 5, 53):
            z, y = scores_and_classes(k)
            values, slopes = loss.values(z, y), loss.gradient(z, y)
            for i in range(len(z)):
                value, g, predicted = of_row(loss, z[i] / 0.37, 0.37, y[i])
                assert value == pytest.approx(values[i], rel=1e-12, abs=1e-13)
                np.testing.assert_allclose(g, slopes[i], rtol=1e-12, atol=1e-14)
                assert predicted == z[i].argmax()

    def test_it_is_convex_and_not_below_its_floor(self, loss: Loss) -> None:
        (one, y), (two, _) = scores_and_classes(4), scores_and_classes(4, seed=1)
        ends, middle = loss.values(one, y) + loss.values(two, y), loss.values((one + two) / 2, y)
        assert (middle <= ends / 2 + 1e-12).all()
        assert (loss.values(one, y) >= loss.floor - 1e-12).all()

    def test_its_lipschitz_constant_is_one(self, loss: Loss) -> None:
        (one, y), (two, _) = scores_and_classes(4), scores_and_classes(4, seed=1)
        for apart in (1.0, 1e-3):
            far = one + apart * (two - one)
            change = np.linalg.norm(loss.gradient(far, y) - loss.gradient(one, y), axis=1)
            bound = loss.lipschitz(4)
            assert math.isinf(bound) or (change <= bound * np.linalg.norm(far - one, axis=1) + 1e-9).all()

    def test_ties_go_to_the_lowest_class(self, loss: Loss) -> None:
        z = np.array([1.0, 2.0, 2.0, 2.0])
        for y in range(4):
            _, g, predicted = of_row(loss, z, 1.0, y)
            assert predicted == 1
            np.testing.assert_allclose(loss.gradient(z[None], np.array([y]))[0], g, atol=1e-12)

    def test_nan_scores_are_not_hidden(self, loss: Loss) -> None:
        for c in range(3):
            z = np.array([0.5, -1.0, 0.25])
            z[c] = np.nan
            assert np.isnan(of_row(loss, z, 1.0, c)[0])

    def test_it_is_sent_to_workers_as_it_is(self, loss: Loss) -> None:
        sent = pickle.loads(pickle.dumps(loss))
        assert sent == loss
        assert type(sent) is type(loss)
