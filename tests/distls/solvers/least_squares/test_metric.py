"""The metric of generalized least squares: assembled from sums, factorised, sound at any conditioning."""

import numpy as np
import pytest

from distls.dual_problem import optimal_intercept
from distls.solvers.least_squares.metric import Metric, PathMetric, second_moments
from distls.workers.linear_algebra.packed_triangle import packed
from distls.workers.losses.loss_registry import loss_named


def _rows(n, d, condition, seed=0):
    rng = np.random.default_rng(seed)
    q, _ = np.linalg.qr(rng.standard_normal((n, d)))
    v, _ = np.linalg.qr(rng.standard_normal((d, d)))
    return np.asarray(np.sqrt(n) * q * np.logspace(0, -np.log10(condition), d) @ v)


def _in_basis(x, metric, alpha, *, intercept):
    """Do what a read in the metric's next basis does."""
    basis = metric.next_basis()
    z = np.hstack([np.ones((len(x), 1)), x]) if intercept else x
    q = np.linalg.solve(basis.T, z.T).T
    return Metric(basis, q.T @ q / len(x), alpha, intercept=intercept)


def _metric(x, alpha, *, intercept):
    sigma = second_moments(packed(x.T @ x), x.sum(axis=0), len(x), intercept=intercept)
    return Metric.scaled(sigma, alpha, intercept=intercept)


@pytest.mark.fast_cases("False")
@pytest.mark.parametrize("intercept", [False, True])
def test_sigma_is_the_mean_of_the_outer_products_constant_column_first(intercept):
    x = np.random.default_rng(0).standard_normal((50, 4))
    s = np.random.default_rng(1).uniform(0.5, 2, 50)
    sigma = second_moments(packed((x * s[:, None]).T @ x), s @ x, s.sum(), intercept=intercept)
    z = np.hstack([np.ones((50, 1)), x]) if intercept else x
    np.testing.assert_allclose(sigma, (z * s[:, None]).T @ z / s.sum(), rtol=1e-13)


@pytest.mark.fast_cases(r"0\.0625-0\.0-False", r"0\.5-0\.3-False", r"1\.0-0\.3-True")
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("alpha", [0.0, 0.3])
@pytest.mark.parametrize("lipschitz", [0.0625, 0.5, 1.0])
def test_steps_solve_in_the_metric(intercept, alpha, lipschitz):
    x = np.random.default_rng(0).standard_normal((60, 5)) * [1, 10, 100, 0.1, 3] + 2.0
    metric = _metric(x, alpha, intercept=intercept)
    assert metric.is_sound
    assert metric.rank == metric.size == 5 + intercept
    z = np.hstack([np.ones((60, 1)), x]) if intercept else x
    penalised = np.ones(metric.size)
    penalised[: int(intercept)] = 0.0
    g = np.random.default_rng(1).standard_normal((metric.size, 3))
    wanted = np.linalg.solve(lipschitz * z.T @ z / 60 + alpha * np.diag(penalised), g)
    np.testing.assert_allclose(metric.steps(g, lipschitz), wanted, rtol=1e-10)
    refined = _in_basis(x, metric, alpha, intercept=intercept)
    np.testing.assert_allclose(refined.steps(g, lipschitz), wanted, rtol=1e-10)


@pytest.mark.fast_cases(r"1000000\.0")
@pytest.mark.parametrize("condition", [1e6, 1e8, 1e10])
def test_another_basis_saves_the_digits_that_the_gram_matrix_loses(condition):
    x = _rows(400, 12, condition)
    plain = _metric(x, 0.0, intercept=False)
    assert not plain.is_sound
    metric = _in_basis(x, plain, 0.0, intercept=False)
    assert metric.is_sound
    assert metric.rank == 12
    # in a well-conditioned basis the metric of the fitted values is known exactly: Q with X = Q R
    q, r = np.linalg.qr(x)
    v = np.random.default_rng(2).standard_normal((12, 2))
    # gradient X^T (Q v) / n has the step X step = Q v: fitted values do not depend on the basis
    fitted = x @ metric.steps(x.T @ (q @ v) / 400, 1.0)
    np.testing.assert_allclose(fitted, q @ v, atol=3e-15 * condition)
    assert abs(np.linalg.norm(r, -2) * condition / np.linalg.norm(r, 2) - 1) < 0.1


def test_a_singular_sigma_is_solved_in_its_range_and_says_its_rank():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((80, 4))
    x = np.hstack([x, x[:, :1] + x[:, 1:2], np.zeros((80, 2)), np.full((80, 1), 3.0)])
    plain = _metric(x, 0.0, intercept=True)
    assert not plain.is_sound
    metric = _in_basis(x, plain, 0.0, intercept=True)
    # 8 columns and the constant one: a sum of others, two zeros and a second constant are no news
    assert (metric.size, metric.rank) == (9, 5)
    z = np.hstack([np.ones((80, 1)), x])
    target = rng.standard_normal((80, 2))
    step = metric.steps(z.T @ target / 80, 1.0)
    projected = z @ np.linalg.lstsq(z, target, rcond=1e-10)[0]
    np.testing.assert_allclose(z @ step, projected, atol=1e-12)
    np.testing.assert_array_equal(step[[6, 7]], 0.0)


def test_alpha_mends_what_is_singular():
    x = np.hstack([np.ones((30, 2)), np.zeros((30, 1))])
    metric = _metric(x, 0.1, intercept=True)
    assert metric.is_sound
    assert metric.rank == 4
    g = np.ones((4, 1))
    z = np.hstack([np.ones((30, 1)), x])
    wanted = np.linalg.solve(z.T @ z / 30 + np.diag([0, 0.1, 0.1, 0.1]), g)
    np.testing.assert_allclose(metric.steps(g, 1.0), wanted, rtol=1e-12)


def test_a_ridge_keeps_many_copies_of_a_column_sound():
    """In the 1-norm they are not, at alpha = 1e-5; an eigendecomposition of large blocks would take minutes."""
    column = np.random.default_rng(0).standard_normal(50)
    column /= np.sqrt(np.mean(column**2))
    metric = _metric(np.tile(column[:, None], (1, 400)), 1e-5, intercept=False)
    assert metric.is_sound
    assert metric.rank == 400
    np.testing.assert_allclose(metric.steps(np.ones((400, 1)), 1.0), 1 / (400 + 1e-5), rtol=1e-6)
    assert not _metric(np.tile(column[:, None], (1, 400)), 1e-7, intercept=False).is_sound


def test_a_ridge_above_the_rounding_needs_no_eigenvectors(monkeypatch):
    """Those of a block of 8000 features take minutes, its Cholesky factor seconds."""

    def refuse(*_, **__):
        raise AssertionError("eigenvectors were asked for")

    monkeypatch.setattr("scipy.linalg.eigh", refuse)
    column = np.random.default_rng(0).standard_normal(50)
    column /= np.sqrt(np.mean(column**2))
    x = np.tile(column[:, None], (1, 400))
    metric = _metric(x, 1e-7, intercept=False)
    assert not metric.is_sound
    assert metric.rank == 400
    np.testing.assert_allclose(metric.steps(np.ones((400, 1)), 1.0), 1 / (400 + 1e-7), rtol=1e-4)
    rounded = Metric.scaled(x.T @ x / 50, 1e-5, intercept=False, eps=2.0**-23)
    np.testing.assert_allclose(rounded.steps(np.ones((400, 1)), 1.0), 1 / (400 + 1e-5), rtol=1e-6)


@pytest.mark.fast_cases(r"0\.0-1")
@pytest.mark.parametrize(("alpha", "rank"), [(0.0, 1), (1e-8, 1), (1e-3, 30)])
def test_what_a_gram_matrix_was_rounded_to_is_no_direction_unless_a_ridge_is_above_it(alpha, rank):
    column = np.random.default_rng(0).standard_normal(50)
    sigma = np.full((30, 30), np.mean(column**2)) * (1 + 1e-7 * np.eye(30))
    assert Metric.scaled(sigma.copy(), alpha, intercept=False, eps=2.0**-23).rank == rank
    assert Metric.scaled(sigma.copy(), alpha, intercept=False).rank == 30


def test_a_tiny_alpha_counts_in_the_new_basis_too():
    x = _rows(300, 6, 1e7)
    alpha = 1e-13
    metric = _in_basis(x, _metric(x, alpha, intercept=False), alpha, intercept=False)
    u, s, vt = np.linalg.svd(x / np.sqrt(300), full_matrices=False)
    target = np.random.default_rng(3).standard_normal((300, 1))
    step = metric.steps(x.T @ target / 300, 1.0)
    wanted = vt.T @ ((s / (s**2 + alpha))[:, None] * (u.T @ target)) / np.sqrt(300)
    np.testing.assert_allclose(x @ step, x @ wanted, atol=1e-7)
    assert np.linalg.norm(step - wanted) < 1e-6 * np.linalg.norm(wanted)


def test_zero_columns_alone_leave_the_rest_sound():
    x = np.random.default_rng(0).standard_normal((40, 3)) * [1, 0, 1]
    metric = _metric(x, 0.0, intercept=False)
    assert metric.is_sound
    assert (metric.size, metric.rank) == (3, 2)
    step = metric.steps(np.ones((3, 1)), 0.5)
    assert step[1, 0] == 0.0
    kept = x[:, [0, 2]]
    np.testing.assert_allclose(step[[0, 2]], np.linalg.solve(0.5 * kept.T @ kept / 40, np.ones((2, 1))), rtol=1e-12)


@pytest.mark.fast_cases("False")
@pytest.mark.parametrize("intercept", [False, True])
def test_a_paths_steps_solve_in_the_metric_of_each_fit(intercept):
    x = np.random.default_rng(0).standard_normal((90, 60)) + 2.0
    sigma = second_moments(packed(x.T @ x), x.sum(axis=0), 90.0, intercept=intercept)
    metric = PathMetric(sigma, intercept=intercept, eps=2.0**-52)
    g = np.random.default_rng(1).standard_normal((60 + intercept, 4, 2))
    lipschitz, alphas = np.array([0.5, 0.25, 0.5, 1.0]), np.array([0.1, 0.05, 3.0, 0.1])
    found = metric.steps(g, lipschitz, alphas)
    for fit in range(4):
        alone = Metric.scaled(sigma.copy(), alphas[fit], intercept=intercept)
        np.testing.assert_allclose(found[:, fit], alone.steps(g[:, fit], lipschitz[fit]), rtol=1e-9, atol=1e-12)


# -- the intercept that is optimal for given weights -----------------------------------------------------


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
