"""What the papers prove of their methods, tested on fits: inequalities of every step, and rates in the mean."""

from itertools import pairwise

import numpy as np
import pytest
from helpers import labelled_rows, write_dataset

from distls import fit, ingest
from distls.workers.losses.crammer_singer import CrammerSinger, Perceptron
from distls.workers.losses.softmax import Softmax

ETA = 0.05


def _regression(n, d, seed):
    """Return rows that are not centred, numbers y = w'x + 1 + noise, and w."""
    rng = np.random.default_rng(seed)
    x, w = rng.standard_normal((n, d)) + 0.7, rng.standard_normal(d)
    return x, x @ w + 1.0 + rng.standard_normal(n), w


def _last_point(path, method, x, y, **params):
    """Return weights and intercept after one pass over the rows as they stand."""
    ingest(x, path, y=y, target="continuous", dtype="float64", shuffle=False)
    common = {"lanes": 1, "shuffle": False, "dtype": "float64", "fit_intercept": True}
    model = fit(method, path, params={**common, **params}, passes=1, eval_every=0).model
    return np.append(model.weights[:, 0], model.intercept[0])


@pytest.mark.slow
def test_constrained_sgd_theorem_3_2_bounds_every_step(tmp_path):
    """Eq. 16, for any point on the hyperplane of the means in the place of w*."""
    x, y, _ = _regression(26, 3, 0)
    rows = np.hstack([x, np.ones((26, 1))])
    sizes, rng = range(20, 26), np.random.default_rng(1)
    points = [_last_point(tmp_path / str(t), "csgd", x[:t], y[:t], schedule="constant", eta0=ETA) for t in sizes]
    for (t, before), (_, after) in pairwise(zip(sizes, points, strict=True)):
        row, mean_x, mean_y = rows[t], rows[: t + 1].mean(axis=0), y[: t + 1].mean()
        assert after @ mean_x == pytest.approx(mean_y, abs=1e-12)  # it is on the hyperplane
        gradient = row * (row @ before - y[t])
        plain = before - ETA * gradient
        for u in 3.0 * rng.standard_normal((50, 4)):
            best = u - mean_x * (u @ mean_x - mean_y) / (mean_x @ mean_x)
            losses = 0.5 * (row @ before - y[t]) ** 2 - 0.5 * (row @ best - y[t]) ** 2
            bound = ETA**2 * gradient @ gradient - 2 * ETA * losses - np.square(after - plain).sum()
            assert np.square(after - best).sum() - np.square(before - best).sum() <= bound + 1e-9


def test_constrained_sgd_proposition_2_2_the_optimum_nears_the_hyperplanes():
    """The bound at every size, and its rate: 16 times the rows, a quarter of the distance."""
    far, shares = {}, []
    for seed in range(20):
        x, y, _ = _regression(4096, 5, seed)
        rows = np.hstack([x, np.ones((4096, 1))])
        best = np.linalg.lstsq(rows, y, rcond=None)[0]
        for m in (16, 256, 4000):
            mean_x, mean_y = rows[:m].mean(axis=0), y[:m].mean()
            distance = abs(best @ mean_x - mean_y) / np.linalg.norm(mean_x)
            shift = np.linalg.norm(best) * np.linalg.norm(mean_x - rows.mean(axis=0)) + abs(mean_y - y.mean())
            assert distance <= shift / np.linalg.norm(mean_x) + 1e-12
            shares.append(distance * np.linalg.norm(mean_x) / shift)
            far.setdefault(m, []).append(distance)
    assert max(shares) > 0.25  # a quarter of the bound is exceeded
    mean = {m: np.mean(values) for m, values in far.items()}
    assert 2.0 < mean[16] / mean[256] < 8.0
    assert mean[4000] < mean[256] / 4  # nearly all rows: the constraint is the optimum's own


@pytest.mark.fast_cases("loss0")
@pytest.mark.parametrize("loss", [Softmax(), CrammerSinger(), Perceptron()])
def test_mcid_theorem_1_losses_are_convex_with_bounded_subgradients(loss):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 500)
    for spread in (0.1, 1.0, 30.0):
        a, b = spread * rng.standard_normal((2, 500, 5))
        for share in (0.1, 0.5, 0.9):
            between = share * loss.values(a, y) + (1.0 - share) * loss.values(b, y)
            assert (loss.values(share * a + (1.0 - share) * b, y) <= between + 1e-9).all()
        slope = loss.gradient(a, y)
        assert (loss.values(b, y) >= loss.values(a, y) + (slope * (b - a)).sum(axis=1) - 1e-9).all()
        # so that the subgradient in W, an outer product with x, is at most sqrt(2) |x|, and that in w_k at most |x|
        assert (np.square(slope).sum(axis=1) <= 2.0 + 1e-9).all()
        assert (np.abs(slope) <= 1.0 + 1e-9).all()
    # both are attained where scores are far apart
    assert np.square(slope).sum(axis=1).max() > 1.99
    assert np.abs(slope).max() > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["softmax", "crammer_singer"])
def test_mcid_theorem_2_the_excess_falls_as_log_t_over_t(tmp_path, loss):
    x, y = labelled_rows(1000, 30, 3)
    dataset, rows, alpha = (write_dataset(tmp_path / "d", x, y, partition_rows=1000), x.toarray().astype(float), 0.05)
    form = Softmax() if loss == "softmax" else CrammerSinger()

    def objective(w):
        return float(form.values(rows @ w, y).mean() + 0.5 * alpha * np.square(w).sum())

    tight = fit(
        "sdca", dataset, params={"loss": loss, "alpha": alpha, "dtype": "float64", "fit_intercept": False}, rtol=1e-7,
        passes=500,
    )  # fmt: skip
    best, longest = objective(tight.model.weights), float(np.linalg.norm(rows, axis=1).max())
    excess = {}
    for passes in (1, 16):
        params = {
            "loss": loss, "alpha": alpha, "average": "all", "lanes": 1, "t0": 0, "dtype": "float64",
            "fit_intercept": False,
        }  # fmt: skip
        found = [
            objective(fit("mcid", dataset, params=params, passes=passes, seed=seed, eval_every=0).model.weights)
            for seed in range(3)
        ]
        steps = 1000 * passes
        excess[passes] = np.mean(found) - best
        # the proof's constant: |v_t| <= 2 sqrt(2) |x|, and the mean iterate is at most the mean of the objectives
        assert 0.0 <= excess[passes] <= 4.0 * longest**2 * (1.0 + np.log(steps)) / (alpha * steps)
    # log(T)/T falls by 11.4, 1/sqrt(T) by 4
    assert excess[1] / excess[16] > 7.0


@pytest.mark.slow
def test_sgd_qn_theorem_1_second_order_sgd_has_half_of_nu_over_t(tmp_path):
    """Corollary 2 with B = H^-1: the excess is tr(G H^-1) / 2t (the paper's prints have no 1/2), here d / 2t."""
    d, n = 30, 1500
    excess = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x, w = rng.standard_normal((n, d)), rng.standard_normal(d)
        found = _last_point(tmp_path / str(seed), "rls", x, x @ w + rng.standard_normal(n))
        # of the expected cost, whose Hessian is the identity, also for the constant column
        excess.append(0.5 * np.square(found - np.append(w, 0.0)).sum())
    assert 0.7 < np.mean(excess) / ((d + 1) / (2.0 * n)) < 1.35
