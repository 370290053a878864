"""The constant that is best for a row's penalty: against a search, and known values."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from distls.workers.penalties.penalty_registry import penalty_named

NAMES = ["l1", "elasticnet", "l1linf", "sparse-group"]


@pytest.mark.fast_cases(
    r"2-0\.0-l1$", r"2-0\.7-elasticnet", r"3-0\.0-l1linf", r"3-0\.7-sparse", r"6-0\.2-l1$", r"6-1\.0-elasticnet",
    r"11-0\.2-l1linf", r"11-1\.0-sparse",
)  # fmt: skip
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rho", [0.0, 0.2, 0.7, 1.0])
@pytest.mark.parametrize("m", [2, 3, 6, 11])
def test_no_constant_is_better(name, rho, m):
    rng, penalty = np.random.default_rng(m), penalty_named(name)
    w = rng.standard_normal((60, m)) * rng.integers(0, 2, (60, m))  # with ties at zero
    w[0] = 0.7
    constants = penalty.best_constants(w, rho)
    for row, c in zip(w, constants, strict=True):
        own = penalty.value((row - c)[None], rho)
        found = minimize_scalar(
            lambda u, row=row: penalty.value((row - u)[None], rho),
            bounds=(row.min() - 0.1, row.max() + 0.1),
            method="bounded",
            options={"xatol": 1e-10},
        )
        assert own <= found.fun + 1e-12
        assert own <= penalty.value(row[None], rho) + 1e-15


def test_a_row_with_its_zeros_in_the_middle_keeps_them():
    w = np.array([[0.0, 0.0, 3.0, -1.0], [0.0, 2.0, 2.0, 0.0], [-1.0, 0.0, 0.0, 5.0]])
    for name in ("l1", "elasticnet", "sparse-group"):
        constants = penalty_named(name).best_constants(w[:1], 1.0)
        assert constants.tolist() == [0.0]
    np.testing.assert_array_equal(penalty_named("l1").best_constants(w, 0.0), [0.0, 0.0, 0.0])


@pytest.mark.parametrize("name", ["l2", "l1l2"])
def test_norms_whose_best_constant_is_the_mean_have_none(name):
    assert penalty_named(name).best_constants(np.ones((2, 3)), 0.5) is None
