"""Which columns move with the intercept, and what is left of them."""

import numpy as np
import pytest
from helpers import as_rows

from distls.workers.coordinate_descent.intercept import centred, uncentred_columns


def columns_of(x, layout):
    return as_rows(x.T, layout, np.float32)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_columns_whose_mean_is_a_tenth_of_their_mean_square(layout, weighted):
    rng = np.random.default_rng(0)
    # centred, apart from zero on either side, constant, a twelfth full, empty, with a mean below and above the limit
    x = rng.standard_normal((500, 8)) + np.array([0.0, 3.0, -3.0, 0.0, 0.0, 0.0, 0.2, 0.5])
    x[:, 3], x[:, 4], x[:, 5] = 2.0, 1.0 * (np.arange(500) < 40), 0.0
    s = rng.random(500) + 0.5 if weighted else np.ones(500)
    s /= s.mean()
    found = uncentred_columns(columns_of(x, layout), s if weighted else np.empty(0), 500)
    x = x.astype(np.float32).astype(float)
    means = s @ x / 500
    assert sorted(found) == [j for j in range(8) if means[j] ** 2 > 0.1 * (s @ x[:, j] ** 2) / 500]
    assert found.keys() == {1, 2, 3, 7}
    for j, mean in found.items():
        assert mean == pytest.approx(means[j], rel=1e-12)
        column = centred(columns_of(x, layout), j, mean, 500).values
        np.testing.assert_allclose(column, [x[:, j] - mean], atol=1e-15)
