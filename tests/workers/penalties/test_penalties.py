import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from distls.testing.penalties import PenaltyContract
from distls.workers.penalties.penalty_registry import penalty_named, penalty_value, prox_rows
from reference import bcd

NAMES = ["l1l2", "l1", "l2", "elasticnet", "l1linf", "sparse-group"]
ROWS = st.lists(st.floats(-5, 5), min_size=2, max_size=6).map(np.array)
PULLS = st.floats(1e-3, 6)


class TestContract(PenaltyContract):
    @pytest.fixture(params=NAMES)
    def penalty(self, request):
        return penalty_named(request.param)


@pytest.mark.parametrize("name", NAMES)
@given(v=ROWS, mu=PULLS, rho=st.floats(0, 1))
def test_prox_is_that_of_the_paper(name, v, mu, rho):
    np.testing.assert_allclose(
        prox_rows(name, v[None], mu, rho)[0], bcd.prox(v, mu, name, rho), atol=1e-12, rtol=1e-12
    )


@pytest.mark.parametrize("name", NAMES)
def test_no_general_optimiser_finds_better_than_the_prox(name):
    v = np.random.default_rng(1).standard_normal(4)

    def value(w):
        return 0.5 * float((w - v) @ (w - v)) + 0.4 * penalty_value(name, w[None], 0.6)

    best = value(prox_rows(name, v[None], 0.4, 0.6)[0])
    for method in ("Nelder-Mead", "Powell"):
        found = minimize(value, v, method=method, tol=1e-12, options={"maxiter": 20_000}).fun
        assert best <= found + 1e-12
        assert best >= found - 0.02


@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_the_paper(name):
    w = np.random.default_rng(0).standard_normal((7, 3))
    w[2] = 0.0
    total = sum(bcd.penalty(row, name, 0.3) for row in w)
    assert penalty_value(name, w, 0.3) == pytest.approx(total, rel=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_small_rows_become_zero_exactly(name):
    w = prox_rows(name, np.array([[0.3, -0.2, 0.1], [3.0, -2.0, 1.0]]), 0.7, 0.9)
    assert w[1].any()
    assert name == "l2" or not w[0].any()


@pytest.mark.fast_cases("v0-l1l2", "v1-l2", "v2-elasticnet", "v3-sparse")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("v", [[0.1, 0.1, 0.1], [1e20, -1e20, 1e20], [np.nan, 1.0, 2.0], [np.inf, 1.0, 2.0]])
def test_a_pull_that_is_lost_in_rounding_ends(name, v):
    # the mean of equal sizes may be above them all
    found = prox_rows(name, np.array([v]), 1e-30, 0.5)[0]
    assert not np.isfinite(v).all() or np.allclose(found, v, rtol=1e-12)


@pytest.mark.parametrize("name", ["l1l2", "l1", "l1linf", "sparse-group"])
@given(v=ROWS, rho=st.floats(0, 1))
def test_a_norm_bounds_products_by_its_dual(name, v, rho):
    """At the factor that `conjugate` allows, sup_w (c v . w - alpha R(w)) is 0; beyond it, it is not."""
    factor, value = penalty_named(name).conjugate(v[None], 0.5, rho)
    assert value == 0.0
    moved = bcd.prox(factor * v, 0.5, name, rho)
    np.testing.assert_allclose(moved, 0.0, atol=1e-7)
    if factor < 1.0:
        assert np.abs(bcd.prox(1.001 * factor * v, 0.5, name, rho)).max() > 0.0


@pytest.mark.parametrize("name", ["l2", "elasticnet"])
def test_conjugate_by_search(name):
    rng = np.random.default_rng(2)
    v = rng.standard_normal(3)
    factor, value = penalty_named(name).conjugate(v[None], 0.5, 0.4)

    def negative(w):
        return 0.5 * penalty_value(name, w[None], 0.4) - float(v @ w)

    found = minimize(negative, v, method="Powell", tol=1e-14)
    assert factor == 1.0
    assert value == pytest.approx(-found.fun, rel=1e-6)
