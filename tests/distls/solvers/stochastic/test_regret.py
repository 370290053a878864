"""The regret of constrained SGD, the rate of first-order SGD, one pass of second-order SGD, and inverse dependency.

Steps are those of the printed algorithms, in NumPy; fits have the same (tests/distls/methods/test_as_published.py).
A bound is tested together with its constant: a quarter of it is exceeded.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from helpers import write_dataset

from distls.training.fitting import fit

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass
class Walk:
    """What each step t of (constrained) SGD did: w_t, its gradient, the step before and after projection."""

    w: Array
    gradient: Array
    plain: Array
    after: Array
    eta: Array
    losses: Array  # of the row of each step at w_t, less that at w*
    best: Array

    @property
    def moved(self):
        """|w_(t+1) - what_(t+1)|^2, the last term of Theorem 3.2 (as corrected)."""
        return np.square(self.after - self.plain).sum(axis=1)

    def distance(self, points):
        """|. - w*|^2 of each step."""
        return np.square(points - self.best).sum(axis=1)

    @property
    def tangent(self):
        """tan^2(theta_t) of Figure 1."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.moved / self.distance(self.after)


def walk(x, y, best, eta, *, project=True):
    """Algorithm 1 of the constrained SGD paper over rows as they stand; SGD if not `project`."""
    w, mean_x, mean_y = np.zeros(x.shape[1]), np.zeros(x.shape[1]), 0.0
    rows = []
    for t, (row, target) in enumerate(zip(x, y, strict=True), start=1):
        gradient = (row @ w - target) * row
        loss = 0.5 * (row @ w - target) ** 2 - 0.5 * (row @ best - target) ** 2
        mean_x, mean_y = mean_x + (row - mean_x) / t, mean_y + (target - mean_y) / t
        plain = w - eta(t) * gradient
        after = plain - mean_x * (mean_x @ plain - mean_y) / (mean_x @ mean_x) if project else plain
        rows.append((w, gradient, plain, after, eta(t), loss))
        w = after
    return Walk(*(np.array(column) for column in zip(*rows, strict=True)), best)


def regression(n, d, *, noise, seed=0):
    """Return rows with the constant feature, uniform in [0, 1] as in section 5.1, targets, and the optimum."""
    rng = np.random.default_rng(seed)
    x = np.hstack([np.ones((n, 1)), rng.uniform(0.0, 1.0, (n, d))])
    y = x @ rng.standard_normal(d + 1) + noise * rng.standard_normal(n)
    return x, y, np.linalg.lstsq(x, y, rcond=None)[0]


def test_theorem_3_1_bounds_every_step_of_sgd():
    """|what_(t+1) - w*|^2 - |w_t - w*|^2 <= eta^2 |g|^2 - 2 eta (l(w_t) - l(w*)), noise or not."""
    x, y, best = regression(400, 5, noise=0.45)
    found = walk(x, y, best, lambda t: 0.3 / np.sqrt(t), project=False)
    change = found.distance(found.plain) - found.distance(found.w)
    square = found.eta**2 * np.square(found.gradient).sum(axis=1)
    assert (change <= square - 2.0 * found.eta * found.losses + 1e-12).all()
    assert (change > square - 8.0 * found.eta * found.losses).any()
    assert (change > square / 4.0 - 2.0 * found.eta * found.losses).any()


@pytest.mark.slow
def test_theorem_3_2_bounds_every_step_of_csgd():
    """The same with the projected step, less |w_(t+1) - what_(t+1)|^2; equal with twice the losses, as l(w*) is 0."""
    x, y, best = regression(400, 5, noise=0.0)
    found = walk(x, y, best, lambda t: 1.0 / np.sqrt(t))
    change = found.distance(found.after) - found.distance(found.w)
    square = found.eta**2 * np.square(found.gradient).sum(axis=1)
    fall = 2.0 * found.eta * found.losses
    assert (change <= square - fall - found.moved + 1e-12).all()
    np.testing.assert_allclose(change, square - 2.0 * fall - found.moved, atol=1e-12)


@pytest.mark.fast_cases("sqrt")
@pytest.mark.parametrize("schedule", ["sqrt", "fixed"])
def test_theorem_3_3_and_corollary_3_4_bound_the_losses(schedule):
    """2 sum eta (l(w_t) - l(w*)) <= D^2 - G_2 + G^2 sum eta^2, with w* on every hyperplane: without noise."""
    x, y, best = regression(900, 5, noise=0.0)
    n = len(x)
    found = walk(x, y, best, lambda t: 0.3 / np.sqrt(t) if schedule == "sqrt" else 1.0 / np.sqrt(n))
    squares, start = np.square(found.gradient).sum(axis=1), float(best @ best)
    left = 2.0 * float((found.eta * found.losses).sum())
    assert left <= start - found.moved.sum() + squares.max() * np.square(found.eta).sum()
    own = start - found.moved.sum() + float((np.square(found.eta) * squares).sum())  # with each |g_t| for G
    # what is left over: the last distance, and the losses once more, whose gradients are twice them
    assert 2.0 * left == pytest.approx(own - found.distance(found.after)[-1])
    if schedule == "fixed":
        bound = (start - found.moved.sum() + squares.max()) / (2.0 * np.sqrt(n))
        assert found.losses.min() <= found.losses.mean() <= bound
        assert found.losses.mean() > bound / 4.0


@pytest.mark.slow
def test_theorem_4_1_rests_on_equation_20_which_holds_without_noise():
    x, y, best = regression(500, 3, noise=0.0)
    h = 0.1 * float(np.square(x).sum(axis=1).mean())
    found = walk(x, y, best, lambda t: 1.0 / (h * t))
    squares, before = np.square(found.gradient).sum(axis=1), found.distance(found.w)[1:]
    inner = 1.0 / found.eta[1:] - (1.0 + found.tangent[:-1]) / found.eta[:-1]
    right = float(before @ inner) + found.distance(found.w)[0] / found.eta[0] + float(squares @ found.eta)
    left = 2.0 * float(found.losses.sum())
    assert right / 4.0 < left <= right


def test_theorem_4_1_and_corollary_4_3_hold_where_the_assumption_is_met():
    """Regret at most G^2 (1 + log T) / 2H: the constant feature alone, targets on both sides of their mean."""
    n, h = 4005, 0.7
    x, y = np.ones((n, 1)), np.append(np.zeros(5), np.tile([1.0, -1.0], (n - 5) // 2))
    found = walk(x, y, np.zeros(1), lambda t: 1.0 / (h * t))
    away = found.distance(found.after) > 0.0  # elsewhere there is no angle
    assert (found.tangent[away] * h * np.arange(1, n + 1)[away] >= h).all()  # tan^2 / eta >= H
    largest = float(np.square(found.gradient).sum(axis=1).max())
    for t in (100, 1000, n):
        regret, bound = found.losses[:t].sum(), largest * (1.0 + np.log(t)) / (2.0 * h)
        assert bound / 4.0 < regret <= bound
    growth = found.losses[:n].sum() - found.losses[: n // 10].sum()
    assert growth == pytest.approx(0.5 * np.log(10.0), rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.45])
def test_theorem_4_1_does_not_hold_on_the_papers_own_data(noise):
    """The high-dimensional case of section 5.1: the assumption is met nearly nowhere, and the regret grows like T."""
    x, y, best = regression(1000, 250, noise=noise)
    h = float(np.square(x).sum(axis=1).mean())
    found = walk(x, y, best, lambda t: 1.0 / (h * t))
    assert np.mean(found.tangent[:-1] * h * np.arange(1, len(x)) >= h) < 0.01
    regret = np.cumsum(found.losses)
    assert regret[-1] / regret[249] > 3.0  # log T grows by 1.25
    largest = float(np.square(found.gradient).sum(axis=1).max())
    assert regret[-1] > largest * (1.0 + np.log(len(x))) / (2.0 * h)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "noise"), [(3, 0.0), (3, 0.45), (100, 0.45)])
def test_lemma_4_2_is_not_true(d, noise):
    """The tangent falls at about every second step."""
    x, y, best = regression(2000, d, noise=noise)
    h = 0.1 * float(np.square(x).sum(axis=1).mean())
    falls = np.diff(walk(x, y, best, lambda t: 1.0 / (h * t)).tangent) < 0.0
    assert 0.4 < falls.mean() < 0.6


def test_sgd_qn_theorem_1_and_corollary_3_of_first_order_sgd():
    """Steps 1/(lambda (t + t0)): an excess of tr(HBGB) / 2 (2 lambda_min - 1) t, which is at most kappa^2 nu / 2 t.

    The 1/2 is that of the authors' errata. H is 2 I, lambda 1, so that lower and upper bound are the same.
    """
    rng, d, runs, steps, t0 = np.random.default_rng(0), 4, 2000, 1500, 20.0
    w = np.zeros((runs, d))
    for t in range(steps):
        x, noise = rng.choice([-1.0, 1.0], (runs, d)), rng.standard_normal(runs)
        gradient = w + ((x * w).sum(axis=1) - noise)[:, None] * x
        w -= gradient / (t + t0)
    excess, total = float(np.square(w).sum(axis=1).mean()), steps + t0  # P - P* = w' H w / 2
    hessian, fisher = 2.0 * np.eye(d), np.eye(d)
    exact = 0.5 * np.trace(hessian @ fisher) / (2.0 * 2.0 - 1.0) / total
    assert excess == pytest.approx(exact, rel=0.1)
    corollary = 0.5 * 2.0**2 * np.trace(fisher @ np.linalg.inv(hessian)) / total
    assert corollary / 4.0 < excess <= corollary


@pytest.mark.slow
def test_sgd_qn_theorem_4_one_pass_is_as_near_as_the_optimum(tmp_path):
    """n E|w_n - w*|^2 after one pass of second-order SGD and n E|w_n* - w*|^2 have the same limit: logistic loss."""
    d, n, found, best = 4, 6000, [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        x, w = rng.standard_normal((n, d)), np.linspace(-1.0, 1.0, d)
        y = (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-x @ w))).astype(np.int32)
        data = write_dataset(tmp_path / str(seed), x, y, partition_rows=n)
        given = {"loss": "log", "alpha": 1e-7, "fit_intercept": False, "dtype": "float64"}
        once = fit("rls", data, params=given, passes=1, eval_every=0).model.weights[:, -1]
        exact = fit("newton", data, params={**given, "loss": "ovr_log"}, rtol=1e-8).model.weights[:, -1]
        found.append(n * np.square(once - w).sum())
        best.append(n * np.square(exact - w).sum())
    assert 0.7 < np.mean(found) / np.mean(best) < 1.4
    # the limit is the trace of the inverse Fisher information
    rows = np.random.default_rng(99).standard_normal((100_000, d))
    p = 1.0 / (1.0 + np.exp(-rows @ np.linspace(-1.0, 1.0, d)))
    limit = np.trace(np.linalg.inv(rows.T @ (rows * (p * (1.0 - p))[:, None]) / len(rows)))
    assert 0.5 < np.mean(best) / limit < 2.0


@pytest.mark.fast_cases(r"0\.1")
@pytest.mark.parametrize("alpha", [0.1, 1e-3])
def test_mcid_lemma_1_and_the_constant_of_theorem_2(alpha):
    """Labels of one row that alternate: the sum of |alpha w + v|^2 / 2 alpha t is attained, that of |v|^2 exceeded.

    The lemma prints the latter, with the loss after the step. The constant of Theorem 2, 4 |x|^2, is within a factor of
    four, as |alpha w| is as large as |v| at times only.
    """
    steps, w = 1000, np.zeros(2)
    regret = own = printed = 0.0
    for t in range(1, steps + 1):
        y = t % 2
        v = np.eye(2)[1 - y] - np.eye(2)[y]  # of a hinge that is never met
        loss = max(0.0, 1.0 + w[1 - y] - w[y])
        regret += 0.5 * alpha * w @ w + loss - 1.0  # of all rows together w = 0 is the best, whose losses are 1
        own += np.square(alpha * w + v).sum() / (2.0 * alpha * t)
        printed += v @ v / (2.0 * alpha * t)
        w = w - (alpha * w + v) / (alpha * t)
    assert regret == pytest.approx(own)
    assert regret > 1.2 * printed
    bound = 4.0 * (1.0 + np.log(steps)) / alpha
    assert bound / 4.0 < regret <= bound


@pytest.mark.slow
def test_mcid_theorem_3_more_rows_need_fewer_steps(tmp_path):
    """Equation 20's term in N and lambda (that in T is Theorem 2); the steps to an error that few rows never reach."""
    d, k, alpha, w = 20, 3, 0.02, np.random.default_rng(5).standard_normal((20, 3))

    def rows(n, seed):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((n, d)) / np.sqrt(d)
        return x, np.argmax(x @ w * 4.0 + rng.gumbel(size=(n, k)), axis=1).astype(np.int32)

    test_x, test_y = rows(20_000, 999)

    def loss(v):
        z = test_x @ v
        return float((np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(z)), test_y]).mean())

    def optimum(n, seed, strength):
        data = write_dataset(tmp_path / f"o-{n}-{seed}-{strength}", *rows(n, seed), partition_rows=n)
        given = {"loss": "log", "alpha": strength, "dtype": "float64"}
        return loss(fit("newton", data, params=given, rtol=1e-6).model.weights)

    # the estimation term, O(1 / lambda N): four times the rows or the strength, about a quarter of it
    limit = {a: optimum(40_000, 7, a) for a in (alpha, alpha / 4)}
    over = {
        (n, a): np.mean([optimum(n, s, a) for s in range(8)]) - limit[a]
        for n, a in ((100, alpha), (400, alpha), (400, alpha / 4))
    }
    assert 2.0 < over[100, alpha] / over[400, alpha] < 8.0
    assert 1.5 < over[400, alpha / 4] / over[400, alpha] < 8.0

    def reached(n, passes):
        found = []
        for seed in range(3):
            path = tmp_path / f"t-{n}-{seed}"
            data = path if path.exists() else write_dataset(path, *rows(n, seed), partition_rows=n)
            given = {"loss": "log", "alpha": alpha, "dtype": "float64"}
            model = fit("mcid", data, params=given, as_published=True, passes=passes, seed=seed, eval_every=0).model
            found.append(loss(model.weights))
        return float(np.mean(found))

    # the steps until a generalisation error is reached: never with 100 rows, and fewer and fewer
    goal = limit[alpha] + 0.5 * over[100, alpha]
    needed = {
        n: next((t for t in (4000, 16_000, 64_000) if reached(n, t / n) <= goal), np.inf) for n in (100, 500, 4000)
    }
    assert needed[100] == np.inf
    assert needed[4000] <= needed[500] < np.inf
