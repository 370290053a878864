"""The inlined exp and log against NumPy's."""

import numpy as np

from distls.workers.compilation.jit import helper
from distls.workers.simd.exp_log import exp_of_negative, log_of_normal


@helper
def both(x, y, e, log):
    for i in range(len(x)):
        e[i], log[i] = exp_of_negative(x[i]), log_of_normal(y[i])


def test_they_agree_with_numpy():
    rng = np.random.default_rng(0)
    sizes = 10.0 ** rng.uniform(-18, 2.8, 20_000)
    x = np.concatenate([-sizes, [0.0, -1e-300, -700.0, -708.3, -745.0, -1e9, -np.inf, np.nan]])
    y = np.concatenate([np.exp(-sizes), 1.0 + 10.0 ** rng.uniform(-16, 0, 6), [1.0, 1e-300]])
    y = np.maximum(y, np.finfo(float).tiny)
    e, log = np.empty_like(x), np.empty_like(x)
    both(x, y, e, log)
    np.testing.assert_allclose(e[:-1], np.exp(x[:-1]), rtol=1e-13, atol=1e-307)
    near = np.flatnonzero(np.abs(x) < 40.0)
    np.testing.assert_allclose(e[near], np.exp(x[near]), rtol=1e-14)
    assert e[len(sizes)] == 1.0
    assert np.isnan(e[-1])  # divergence must be seen
    np.testing.assert_allclose(log, np.log(y), rtol=1e-14, atol=1e-14)
    assert log[-2] == 0.0
