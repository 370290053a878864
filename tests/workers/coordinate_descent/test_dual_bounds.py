"""Bounds at scaled gradients: below the dual there, and near it."""

import numpy as np
import pytest

from distls.workers.coordinate_descent.dual_bounds import DualFactor, bound_of
from distls.workers.losses.loss_registry import loss_named
from distls.workers.losses.targets import moved_masses, score_gradients


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("loss", "k"), [("softmax", 2), ("softmax", 5), ("ovr_log", 3), ("binary_log", 1)])
def test_scaled_gradients_of_logistic_losses_keep_nearly_their_dual(loss, k, weighted):
    rng = np.random.default_rng(k)
    z, y = rng.standard_normal((200, k)) * 2.0, rng.integers(0, max(k, 2), 200).astype(np.int32)
    weight = rng.integers(0, 3, 200) / 2.0 if weighted else np.empty(0)
    found = score_gradients(loss, z, y, weight)
    total = found.weight_sum
    masses = moved_masses(loss, found.values, weight) / total
    own = weight if weighted else np.ones(200)
    used = own > 0.0
    for factor in (0.05, 0.3, 0.6, 0.9, 0.99, 1.0):
        duals = -factor * found.values[used] / own[used][:, None]
        exact = -float(own[used] @ loss_named(loss).conjugate(duals, y[used])) / total
        factors = factor, 0.0, float(np.vdot(found.values, z)) / total
        by_convexity, bound = (
            bound_of(loss, found.loss_sum / total, DualFactor(*factors, *more), None) for more in ((), masses)
        )
        assert by_convexity <= bound + 1e-12
        assert bound <= exact + 1e-12
        assert bound - by_convexity >= 0.5 * (exact - by_convexity) - 1e-12


def test_other_losses_have_no_masses():
    z, y = np.ones((4, 3)), np.zeros(4, np.int32)
    gradients = score_gradients("multiclass_squared_hinge", z, y, np.empty(0)).values
    assert not moved_masses("multiclass_squared_hinge", gradients, np.empty(0)).any()
