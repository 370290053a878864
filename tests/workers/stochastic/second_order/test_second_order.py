import math

import numpy as np
import pytest
from helpers import as_rows, refuses
from scipy.optimize import minimize

from distls.workers.losses.loss_registry import LOSSES, losses_with
from distls.workers.stochastic.second_order import rls
from distls.workers.stochastic.second_order.olbfgs import OlbfgsSettings, new_olbfgs, olbfgs_block
from distls.workers.stochastic.second_order.rls import RlsSettings, new_rls, rls_block
from reference import mcid, second_order

NO_WEIGHT = np.empty(0)

BINARY_LOSSES = {name: LOSSES[name].binary for name in losses_with(curvature=True, separable=True)}


def problem(k, n=120, d=9, seed=0):
    """Rows with zeros, one of them empty, and a common part; weights of mean 1."""
    rng = np.random.default_rng([seed, k])
    x = np.round(rng.standard_normal((n, d)) + 1.0, 2) * (rng.random((n, d)) < 0.6)
    x[3] = 0
    truth = rng.standard_normal((d, k))
    y = np.argmax(x @ truth + rng.standard_normal((n, k)), axis=1).astype(np.int32)
    numbers = x @ truth + 3.0 + rng.standard_normal((n, k))
    s = rng.random(n) + 0.1
    return x, y, numbers, s / s.mean()


class RlsLane:
    def __init__(self, d, k, settings, dtype=np.float64):
        self.settings, self.w, self.b = settings, np.zeros((d, k), dtype), np.zeros(k)
        self.state, self.loss_sum, self.errors = new_rls(d, k, settings), 0.0, 0

    def run(self, rows, y, order, s=NO_WEIGHT):
        value, errors = rls_block(rows, y, s, order, self.w, self.b, *self.state, self.settings)
        self.loss_sum += value
        self.errors += errors
        return self


class OlbfgsLane:
    def __init__(self, d, k, settings, dtype=np.float64, rank=10):
        self.settings, self.w, self.b = settings, np.zeros((d, k), dtype), np.zeros(k, dtype)
        self.state, self.loss_sum, self.errors = new_olbfgs(d, k, rank), 0.0, 0

    def run(self, rows, y, order, s=NO_WEIGHT):
        value, errors = olbfgs_block(rows, y, s, order, self.w, self.b, *self.state, self.settings)
        self.loss_sum += value
        self.errors += errors
        return self


def ridge(x, targets, s, prior, intercept):
    """The normal equations of sum s_i/2 |W^T x_i + b - t_i|^2 + prior/2 |W|^2."""
    d = x.shape[1]
    if intercept:
        x = np.hstack([x, np.ones((len(x), 1))])
    penalty = np.diag([prior] * d + [0.0] * intercept)
    theta = np.linalg.solve(x.T @ (s[:, None] * x) + penalty, x.T @ (s[:, None] * targets))
    return theta[:d], theta[d] if intercept else np.zeros(targets.shape[1])


def close(found, wanted, tolerance):
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max())


# ---------------------------------------------------------------- recursive least squares


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True], ids=["ones", "weights"])
@pytest.mark.parametrize("intercept", [False, True], ids=["plain", "intercept"])
@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("k", [1, 3])
def test_one_pass_solves_the_ridge_problem(k, layout, intercept, weighted):
    x, _, numbers, s = problem(k)
    n, d = x.shape
    s = s if weighted else np.ones(n)
    order, alpha = np.random.default_rng(1).permutation(n), 0.02
    lane = RlsLane(d, k, RlsSettings(LOSSES["squared"], alpha * n, fit_intercept=intercept))
    lane.run(as_rows(x, layout), numbers, order, s if weighted else NO_WEIGHT)
    w, b = ridge(x, numbers, s, alpha * n, intercept)
    close(lane.w, w, 1e-9)
    close(lane.b, b, 1e-9)
    assert intercept == bool(lane.b.any())
    assert lane.errors == 0
    p = lane.state[0]
    assert np.array_equal(p, p.T)
    middle = x - (s @ x / s.sum() if intercept else 0.0)
    close(np.linalg.inv(p), middle.T @ (s[:, None] * middle) + alpha * n * np.eye(d), 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("passes", [1, 2, 3])
def test_every_pass_ends_at_the_minimum_for_classes(passes):
    x, y, _, s = problem(4)
    n, d = x.shape
    settings = RlsSettings(LOSSES["squared"], 0.5 * n, pass_rows=n, fit_intercept=True)
    lane = RlsLane(d, 4, settings)
    for seed in range(passes):
        lane.run(as_rows(x, "csr"), y, np.random.default_rng(seed).permutation(n), s)
    w, b = ridge(x, np.eye(4)[y], s, 0.5 * n, True)
    close(lane.w, w, 1e-9)
    close(lane.b, b, 1e-9)


@pytest.mark.slow
def test_a_large_common_part_does_not_spoil_the_weights():
    x, _, numbers, s = problem(2)
    n, d = x.shape
    lane = RlsLane(d, 2, RlsSettings(LOSSES["squared"], 1.0, fit_intercept=True))
    lane.run(as_rows(x + 1e4, "dense"), numbers, np.arange(n), s)
    close(lane.w, ridge(x, numbers, s, 1.0, True)[0], 1e-7)


@pytest.mark.fast_cases("squared")
@pytest.mark.parametrize(
    ("name", "intercept"),
    # hinge and intercept: the first row moves the intercept onto the margin, where rounding chooses the side
    [("squared", True), ("ovr_log", True), ("ovr_log", False), ("ovr_squared_hinge", False)],
)
def test_rls_equals_the_oracle(name, intercept):
    x, y, _, s = problem(3)
    n, d = x.shape
    order = np.concatenate([np.random.default_rng(seed).permutation(n) for seed in range(3)])
    settings = RlsSettings(LOSSES[name], 0.7, pass_rows=n, fit_intercept=intercept)
    lane = RlsLane(d, 3, settings).run(as_rows(x, "csr"), y, order, s)
    w, b, loss_sum = second_order.second_order_sgd(x, y, 3, name, 0.7, order, s=s, fit_intercept=intercept, pass_rows=n)
    close(lane.w, w, 1e-9)
    close(lane.b, b, 1e-9)
    assert lane.loss_sum == pytest.approx(loss_sum, rel=1e-10)
    assert 0 < lane.errors < 3 * n


@pytest.mark.slow
@pytest.mark.parametrize(("name", "k"), [("ovr_log", 2), ("ovr_log", 3), ("ovr_squared_hinge", 2)])
def test_rls_comes_near_the_optimum_of_other_losses(name, k):
    x, y, _, s = problem(k, n=600)
    n, d = x.shape
    alpha = 1e-2
    settings = RlsSettings(LOSSES[name], alpha * n, pass_rows=n, fit_intercept=True)
    lane = RlsLane(d, k, settings)

    def objective(theta):
        w, b = theta[: k * d].reshape(d, k), theta[k * d :]
        grad_w, grad_b = mcid.loss_gradient(x, y, name, w, b, s)
        value = mcid.objective(x, y, name, alpha, w, b, s)
        return value, np.concatenate([(grad_w / n + alpha * w).ravel(), grad_b / n])

    best = minimize(objective, np.zeros(k * d + k), jac=True, tol=1e-10).fun
    excess = []
    for seed in range(4):
        lane.run(as_rows(x, "csr"), y, np.random.default_rng(seed).permutation(n), s)
        excess.append(objective(np.concatenate([lane.w.ravel(), lane.b]))[0] / best - 1)
    assert -1e-9 < excess[-1] < 0.01, excess
    assert excess[-1] < excess[0]


@pytest.mark.slow
def test_a_row_that_is_badly_wrong_does_not_throw_the_weights():
    # at a score of -40 the curvature is 4e-18: a step of slope over curvature would go to 2e17
    rows, y = as_rows(np.array([[1.0], [-40.0]]), "dense"), np.array([1, 1], np.int32)
    lane = RlsLane(1, 1, RlsSettings(BINARY_LOSSES["ovr_log"], 1e-9))
    lane.run(rows, y, np.array([0, 1]))
    assert 0.0 < -40.0 * lane.w[0, 0] < 2.0


# ---------------------------------------------------------------- online L-BFGS


@pytest.mark.fast_cases("ovr_squared_hinge-2-csr-plain$")
@pytest.mark.parametrize("intercept", [False, True], ids=["plain", "intercept"])
@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize(("name", "k"), [("softmax", 3), ("ovr_log", 3), ("ovr_squared_hinge", 2), ("squared", 1)])
def test_olbfgs_equals_the_oracle(name, k, layout, intercept):
    x, y, numbers, s = problem(k, n=200)
    targets = numbers if k == 1 else y
    # epsilon is larger than by default: the first pair is a difference of slopes, which is to keep its digits
    options = {"eta0": 0.05, "tau": 100.0, "damping": 0.2, "epsilon": 1e-2, "fit_intercept": intercept}
    order = np.random.default_rng(2).permutation(200)
    lane = OlbfgsLane(x.shape[1], k, OlbfgsSettings(LOSSES[name], 1e-3, **options))
    lane.run(as_rows(x, layout), targets, order, s)
    w, b, loss_sum = second_order.olbfgs(x, targets, k, name, 1e-3, order, s=s, **options)
    close(lane.w, w, 1e-10)
    close(lane.b, b, 1e-10)
    assert lane.loss_sum == pytest.approx(loss_sum, rel=1e-10)
    assert lane.state[4].tolist() == [200.0, 10.0, lane.state[4][2]]
    assert np.abs(w).max() > 0.1


@pytest.mark.slow
def test_olbfgs_needs_fewer_passes_than_sgd_on_an_ill_conditioned_problem():
    # condition 1000 in turned directions, of equal importance; both gains are the best of small grids
    rng = np.random.default_rng(0)
    n, d, alpha = 3000, 20, 1e-4
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    normal = rng.standard_normal((n, d))
    x = normal * np.geomspace(1.0, 1e-3, d) ** 0.5 @ turn
    y = (normal @ rng.standard_normal(d) / d**0.5 + 0.5 * rng.standard_normal(n) > 0).astype(np.int32)
    order = np.concatenate([rng.permutation(n) for _ in range(2)])

    def objective(w):
        return mcid.objective(x, y, "ovr_log", alpha, w, np.zeros(2), np.ones(n))

    settings = OlbfgsSettings(LOSSES["ovr_log"], alpha, eta0=0.3, tau=300.0, damping=0.03)
    lane = OlbfgsLane(d, 2, settings)
    found = [objective(lane.run(as_rows(x, "csr"), y, part).w) for part in np.split(order, 2)]
    starts = [1e3, 1e4, 3e4, 1e5]
    plain = [objective(second_order.sgd(x, y, 2, "ovr_log", alpha, order[:n], t0)) for t0 in starts]
    assert 0 < np.argmin(plain) < len(starts) - 1
    assert found[0] < 0.97 * min(plain), (found, plain)
    again = objective(second_order.sgd(x, y, 2, "ovr_log", alpha, order, starts[np.argmin(plain)]))
    assert found[1] < 0.97 * again, (found, again)
    assert found[1] < found[0]


@pytest.mark.slow
def test_olbfgs_takes_float32_weights_and_loses_no_step():
    x, y, _, s = problem(3)
    settings = OlbfgsSettings(LOSSES["softmax"], 1e-3, fit_intercept=True)
    wide, narrow = (OlbfgsLane(x.shape[1], 3, settings, dtype) for dtype in (np.float64, np.float32))
    for part in np.split(np.arange(len(x)), [1, 2, 60]):
        wide.run(as_rows(x, "csr"), y, part, s)
        narrow.run(as_rows(x, "csr"), y, part, s)
    assert wide.w.any()
    assert np.array_equal(narrow.w, wide.w.astype(np.float32))
    assert np.array_equal(narrow.state[0], wide.state[0])


@pytest.mark.slow
def test_weights_that_the_caller_has_changed_are_taken_over():
    x, y, _, _ = problem(3)
    settings = OlbfgsSettings(LOSSES["softmax"], 1e-3, fit_intercept=True)
    lane = OlbfgsLane(x.shape[1], 3, settings, np.float32).run(as_rows(x, "csr"), y, np.arange(50))
    before = lane.state[0].copy()
    lane.w[2, 1] = 7.0
    lane.b[0] = -3.0
    lane.run(as_rows(x, "csr"), y, np.arange(0))
    changed = np.flatnonzero(lane.state[0] != before)
    assert changed.tolist() == [2 * 3 + 1, 3 * x.shape[1]]
    assert (lane.w[2, 1], lane.b[0]) == (7.0, -3.0)


@pytest.mark.slow
def test_steps_without_curvature_are_not_remembered():
    # beyond its margin a row has no slope: with neither penalty nor damping nothing moves
    rows, y = as_rows(np.array([[1.0], [1.0]]), "dense"), np.array([1, 1], np.int32)
    lane = OlbfgsLane(1, 1, OlbfgsSettings(BINARY_LOSSES["ovr_squared_hinge"], 0.0, damping=0.0))
    lane.w[0, 0] = 2.0
    lane.run(rows, y, np.array([0, 1, 0]))
    assert lane.state[4].tolist() == [3.0, 0.0, 0.0]
    assert lane.w[0, 0] == 2.0


# ---------------------------------------------------------------- both


def lane_of(kind, name, d, k, n, dtype=np.float64):
    if kind == "rls":
        return RlsLane(d, k, RlsSettings(LOSSES[name], 0.01 * n, pass_rows=n, fit_intercept=True), dtype)
    return OlbfgsLane(d, k, OlbfgsSettings(LOSSES[name], 1e-3, fit_intercept=True), dtype, rank=5)


@pytest.mark.fast_cases("3$")
@pytest.mark.parametrize("d", [3, 21, 37])
def test_the_product_does_not_depend_on_addresses(d):
    rng = np.random.default_rng(0)
    root = rng.standard_normal((d, d))
    given = [root @ root.T, rng.standard_normal(d), rng.standard_normal(d), np.zeros(d)]
    memory, found = np.empty(d * d + 3 * d + 100), set()
    for gap in (0, 1, 2, 3, 5, 8, 13):
        for places in ((0, 1, 2, 3), (1, 0, 2, 3), (2, 3, 0, 1), (3, 2, 1, 0)):
            views, at = {}, 0
            for place in places:
                a = given[place]
                views[place] = memory[at : at + a.size].reshape(a.shape)
                views[place][...] = a
                at += a.size + gap
            p, u, v, out = (views[place] for place in range(4))
            rls._update_and_multiply(p, 0.3, u, v, out)
            found.add(np.triu(p).tobytes() + out.tobytes())
    assert len(found) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [("rls", "ovr_log"), ("olbfgs", "softmax")])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_gets_out(kind, name, bad):
    x, y, _, s = problem(3)
    x[5, 2] = bad
    lane = lane_of(kind, name, x.shape[1], 3, len(x)).run(as_rows(x, "csr"), y, np.arange(len(x)), s)
    assert not np.isfinite(lane.loss_sum)
    assert not np.isfinite(lane.w).all()


@pytest.mark.slow
def test_arrays_that_do_not_fit_are_refused():
    x, y, _, _ = problem(3)
    rows, order, d = as_rows(x, "csr"), np.arange(3), x.shape[1]
    lane = lane_of("rls", "ovr_log", d, 3, 9)
    lane.state = new_rls(d + 1, 3, lane.settings)
    refuses(ValueError, "weights' size", lane.run, rows, y, order)
    for size, k, message in ((d + 1, 3, "size of the weights"), (d, 2, "size of the weights")):
        lane = lane_of("olbfgs", "softmax", d, 3, 9)
        lane.state = new_olbfgs(size, k)
        refuses(ValueError, message, lane.run, rows, y, order)
    lane.state = (np.zeros((d + 1) * 3), *new_olbfgs(d + 1, 3)[1:])
    refuses(ValueError, "shape", lane.run, rows, y, order)
