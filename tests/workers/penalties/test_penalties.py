import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar

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
    np.testing.assert_allclose(prox_rows(name, v[None], mu, rho)[0], bcd.prox(v, mu, name, rho), atol=1e-12, rtol=1e-12)


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


# -- the constant that is best for a row's penalty -------------------------------------------------------


CONSTANTS = ["l1", "elasticnet", "l1linf", "sparse-group"]


@pytest.mark.fast_cases(
    r"2-0\.0-l1$", r"2-0\.7-elasticnet", r"3-0\.0-l1linf", r"3-0\.7-sparse", r"6-0\.2-l1$", r"6-1\.0-elasticnet",
    r"11-0\.2-l1linf", r"11-1\.0-sparse",
)  # fmt: skip
@pytest.mark.parametrize("name", CONSTANTS)
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


@pytest.mark.parametrize("name", ["l1", "l1l2", "elasticnet", "sparse-group"])
def test_tangents_are_differences(name):
    """The gradient of rows without zeros, and their Hessians, whole, on their diagonals and in products."""
    rng, penalty, rho, step = np.random.default_rng(0), penalty_named(name), 0.3, 1e-6
    w, d = rng.normal(size=(6, 4)), rng.normal(size=(6, 4))
    gradient, curvature = penalty.tangent(w, rho)
    blocks = curvature.scaled(2.0).blocks() / 2.0
    for r in range(4):
        moved = w + step * (np.arange(4) == r)
        back = w - step * (np.arange(4) == r)
        rise = [penalty.value(a[None], rho) - penalty.value(b[None], rho) for a, b in zip(moved, back, strict=True)]
        np.testing.assert_allclose(gradient[:, r], np.array(rise) / (2 * step), atol=1e-7)
        bent = (penalty.tangent(moved, rho)[0] - penalty.tangent(back, rho)[0]) / (2 * step)
        np.testing.assert_allclose(blocks[:, :, r], bent, atol=1e-7)
    np.testing.assert_allclose(curvature.times(d), np.einsum("jrc,jc->jr", blocks, d), atol=1e-12)
    np.testing.assert_allclose(curvature.own, np.einsum("jrr->jr", blocks), atol=1e-12)
