"""The intercept that is optimal for given weights."""

import numpy as np
import pytest

from distls.dual_problem import optimal_intercept
from distls.workers.losses.loss_registry import loss_named


@pytest.mark.fast_cases("softmax-2$", "ovr_log-5", "squared-20")
@pytest.mark.parametrize("k", [2, 5, 20])
@pytest.mark.parametrize("loss", ["softmax", "ovr_log", "squared"])
def test_the_gradient_vanishes_there(loss, k):
    generator = np.random.default_rng(k)
    scores, own = 3.0 * generator.standard_normal((500, k)), loss_named(loss)
    y = np.minimum(generator.geometric(0.5, 500) - 1, k - 1)  # the last classes are rare
    reads = 0

    def gradient_at(intercept):
        nonlocal reads
        reads += 1
        return own.gradient(scores + intercept, y).mean(axis=0)

    shares = np.bincount(y, minlength=k) / 500 + 1e-9
    curvature = shares if loss == "softmax" else np.full(k, own.lipschitz(2))
    found = optimal_intercept(gradient_at, np.zeros(k), curvature, separable=own.separable)
    assert reads <= 40
    assert np.abs(gradient_at(found)).sum() < 1e-8


def test_the_best_of_what_was_seen_is_returned_where_it_does_not_end():
    def gradient_at(intercept):
        return -np.exp(-intercept)  # zero nowhere

    found = optimal_intercept(gradient_at, np.zeros(1), np.ones(1), separable=True)
    assert gradient_at(found) > -1e-6
