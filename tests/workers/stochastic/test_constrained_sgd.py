import math

import numpy as np
import pytest
from helpers import as_rows, refuses

from distls.storage.rows import DenseRows
from distls.workers.losses.squared import Squared
from distls.workers.stochastic.constrained_sgd import MeanModel, new_mean_lane, weights_from_mean_lane
from distls.workers.stochastic.constrained_sgd_kernels import (
    CENTRE,
    MASS,
    PRODUCTS,
    PROJECT,
    SCALE,
    SQUARE,
    TARGETS,
    A,
    ConstrainedSettings,
    T,
    constrained_block,
)
from distls.workers.stochastic.step_sizes import CONSTANT, SCHEDULES, SQRT, TWO_PHASE, step_size
from reference import constrained

NO_WEIGHT = np.empty(0)


def problem(k, numbers, n=400, d=17):
    """Rows far from centred, with zeros, the first and another one empty; weights of mean 1, two of them 0."""
    rng = np.random.default_rng([k, numbers])
    x = np.round(rng.random((n, d)) + 0.3, 2) * (rng.random((n, d)) < 0.4)
    x[[0, 40]] = 0
    truth = rng.standard_normal((d, k))
    z = x @ truth + 0.1 * rng.standard_normal((n, k)) + 2.0
    y = z if numbers else (z - z.mean(axis=0)).argmax(axis=1).astype(np.int32)
    s = rng.random(n) + 0.1
    s[[0, 30]] = 0
    return x, y, s / s.mean()


def start(d, k, warm, running):
    """Zeros; or anything, with a mean that is neither zero nor that of the data."""
    if not warm and running:
        return MeanModel(np.zeros((d, k)), np.zeros(k), np.zeros(d), np.zeros(k))
    rng = np.random.default_rng(9)
    scale = 1.0 if warm else 0.0
    w, b = scale * rng.standard_normal((d, k)), scale * rng.standard_normal(k)
    return MeanModel(w, b, rng.random(d) * 0.2 + 0.2, rng.random(k))


def oracle(mode, x, y, k, model, order, s, eta0, schedule, m, alpha, running, fit_intercept=True):
    steps = lambda t: constrained.STEPS[schedule](eta0, m, t)  # noqa: E731
    fixed = None if running else (model.mean_x, model.mean_y)
    given = {"w0": model.w, "s": s[order], "alpha": alpha, "fixed": fixed}
    numbers = constrained.targets(y, k)[order]
    if mode == CENTRE:
        return constrained.centred_sgd(x[order], numbers, steps, **given)
    return constrained.csgd(x[order], numbers, steps, b0=model.b, fit_intercept=fit_intercept, **given)


def close(a, b, rtol):
    np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * max(1e-3, np.abs(b).max()))


def check_against_oracle(
    mode, k, numbers, layout, *, running=True, schedule="sqrt", alpha=0.0, weighted=False, fit_intercept=True,
    eta0=0.3, dtype=np.float64, rtol=1e-10, n=400,
):  # fmt: skip
    x, y, s = problem(k, numbers, n)
    s = s if weighted else np.ones(n)
    m = 0.7 if schedule == "power" else 100.0
    settings = ConstrainedSettings(
        mode, eta0, running=running, schedule=SCHEDULES[schedule], m=m, alpha=alpha, fit_intercept=fit_intercept,
    )  # fmt: skip
    model = start(x.shape[1], k, warm=weighted and not running, running=running)
    lane = new_mean_lane(model, settings, dtype)
    order = np.random.default_rng(3).permutation(n)
    loss_sum, errors = 0.0, 0
    for part in np.split(order, [130, 131]):
        result = constrained_block(as_rows(x, layout), y, s if weighted else NO_WEIGHT, part, *lane, settings)
        loss_sum, errors = loss_sum + result[0], errors + result[1]
    expected = oracle(mode, x, y, k, model, order, s, eta0, schedule, m, alpha, running, fit_intercept)
    found = weights_from_mean_lane(lane, settings)
    close(found.w, expected.w, rtol)
    close(found.b, expected.b, rtol)
    close(found.mean_x, expected.mean_x, 1e-12)
    close(found.mean_y, expected.mean_y, 1e-12)
    close(loss_sum, expected.loss_sum, rtol)
    assert found.t == n
    assert found.mass == pytest.approx(s.sum() if running else 1.0)
    if dtype == np.float64:
        assert errors == (0 if numbers else expected.errors)
    assert np.abs(expected.w).max() > 0.01
    if mode == PROJECT:
        close(found.mean_x @ found.w + found.b, found.mean_y, rtol)
    return found


@pytest.mark.fast_cases(
    r"project-csr-fixed-ones-0\.0$",
    r"project-csr-running-ones-0\.05$",
    r"centre-csr-fixed-weights-0\.0$",
    r"centre-csr-running-weights-0\.05$",
)
@pytest.mark.parametrize("alpha", [0.0, 0.05])
@pytest.mark.parametrize("weighted", [False, True], ids=["ones", "weights"])
@pytest.mark.parametrize("running", [False, True], ids=["fixed", "running"])
@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("mode", [PROJECT, CENTRE], ids=["project", "centre"])
def test_float64_equals_the_oracle(mode, layout, running, weighted, alpha):
    for k, numbers in ((3, False), (1, True), (3, True)):
        check_against_oracle(mode, k, numbers, layout, running=running, weighted=weighted, alpha=alpha)


@pytest.mark.fast_cases(r"1-0\.0-fixed", r"3-0\.05-running")
@pytest.mark.parametrize("running", [False, True], ids=["fixed", "running"])
@pytest.mark.parametrize("alpha", [0.0, 0.05])
@pytest.mark.parametrize("k", [1, 3])
def test_without_an_intercept(k, alpha, running):
    # the mean itself is the normal of the hyperplane: on early, nearly empty means the projection moves far
    found = check_against_oracle(
        PROJECT, k, True, "csr", running=running, weighted=True, alpha=alpha, fit_intercept=False
    )
    assert not found.b.any()


@pytest.mark.fast_cases("project-constant", "centre-two")
@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
@pytest.mark.parametrize("mode", [PROJECT, CENTRE], ids=["project", "centre"])
def test_schedules(mode, schedule):
    check_against_oracle(mode, 3, False, "csr", schedule=schedule, eta0=0.1, alpha=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("running", [False, True], ids=["fixed", "running"])
@pytest.mark.parametrize("mode", [PROJECT, CENTRE], ids=["project", "centre"])
def test_two_classes_are_the_numbers_minus_one_and_one(mode, running):
    x, codes, s = problem(2, False)
    settings = ConstrainedSettings(mode, 0.1, loss=Squared.binary, running=running, alpha=0.01)
    found = []
    for y in (codes, np.where(codes == 1, 1.0, -1.0)[:, None]):
        lane = new_mean_lane(start(x.shape[1], 1, warm=not running, running=running), settings, np.float64)
        constrained_block(as_rows(x, "csr"), y, s, np.arange(len(y)), *lane, settings)
        found.append(weights_from_mean_lane(lane, settings))
    assert np.abs(found[0].w).max() > 0.01
    assert np.array_equal(found[0].w, found[1].w)
    assert np.array_equal(found[0].b, found[1].b)


@pytest.mark.fast_cases("project-2", "project-17", "centre-5", "centre-33")
@pytest.mark.parametrize("k", [2, 5, 8, 17, 33])
@pytest.mark.parametrize("mode", [PROJECT, CENTRE], ids=["project", "centre"])
def test_many_outputs(mode, k):
    check_against_oracle(mode, k, False, "csr", running=True, alpha=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [False, True], ids=["classes", "numbers"])
@pytest.mark.parametrize("mode", [PROJECT, CENTRE], ids=["project", "centre"])
def test_float32_follows_the_oracle(mode, numbers):
    for k in (1 if numbers else 2, 3):
        check_against_oracle(mode, k, numbers, "csr", alpha=0.01, dtype=np.float32, rtol=1e-4, n=3000)


@pytest.mark.parametrize("mode", [PROJECT, CENTRE], ids=["project", "centre"])
def test_beyond_the_period_and_with_factors_that_are_folded_early(mode):
    # eta alpha = 1/2 halves sigma in every step: 30 rows to the next fold
    check_against_oracle(mode, 3, True, "csr", n=2500)
    check_against_oracle(mode, 3, True, "csr", n=1500, eta0=0.1, alpha=5.0, schedule="constant")


@pytest.mark.fast_cases(r"project-10\.0")
@pytest.mark.parametrize("alpha", [10.0, 15.0])
@pytest.mark.parametrize("mode", [PROJECT, CENTRE], ids=["project", "centre"])
def test_a_penalty_that_leaves_nothing_or_turns_the_weights_round(mode, alpha):
    check_against_oracle(mode, 3, False, "csr", eta0=0.1, alpha=alpha, schedule="constant", n=60)


def run(x, y, s, order, settings, model=None):
    k = y.shape[1] if y.ndim == 2 else int(y.max()) + 1
    lane = new_mean_lane(model or start(x.shape[1], k, False, settings.running), settings, np.float64)
    constrained_block(as_rows(x, "csr"), y, s, order, *lane, settings)
    return lane


def same_bits(one, two):
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, two, strict=True))


@pytest.mark.fast_cases("project-fixed")
@pytest.mark.parametrize("running", [False, True], ids=["fixed", "running"])
@pytest.mark.parametrize("mode", [PROJECT, CENTRE], ids=["project", "centre"])
def test_a_lane_goes_on_from_its_plain_model(mode, running):
    x, y, s = problem(3, True)
    settings = ConstrainedSettings(mode, 0.3, alpha=0.02, running=running, schedule=TWO_PHASE, m=150.0)
    order = np.random.default_rng(1).permutation(len(x))
    model = start(x.shape[1], 3, False, running)
    whole = weights_from_mean_lane(run(x, y, s, order, settings, model), settings)
    half = weights_from_mean_lane(run(x, y, s, order[:200], settings, model), settings)
    rest = weights_from_mean_lane(run(x, y, s, order[200:], settings, half), settings)
    for one, two in zip(whole, rest, strict=True):
        close(two, one, 1e-11)


def test_reading_a_lane_twice_changes_nothing():
    x, y, s = problem(3, False)
    settings = ConstrainedSettings(CENTRE, 0.3, alpha=0.02)
    lane = run(x, y, s, np.arange(300), settings)
    assert lane.clock[SCALE] != 1.0
    first = [np.copy(a) for a in weights_from_mean_lane(lane, settings)]
    assert lane.clock[SCALE] == 1.0
    assert not lane.outputs[:, A].any()
    assert same_bits(first, [np.asarray(a) for a in weights_from_mean_lane(lane, settings)])


def test_tracked_scalars_are_what_they_stand_for():
    x, y, s = problem(3, True, n=1000)
    for mode in (PROJECT, CENTRE):
        settings = ConstrainedSettings(mode, 0.3, alpha=0.02)
        lane = run(x, y, s, np.arange(1000), settings)  # 488 rows since the last fold
        w = lane.clock[SCALE] * (lane.v + np.outer(lane.s, lane.outputs[:, A]))
        assert lane.clock[SQUARE] == pytest.approx(lane.s @ lane.s, rel=1e-12)
        assert lane.clock[T] == 1000
        assert lane.clock[MASS] == pytest.approx(s.sum())
        close(lane.outputs[:, PRODUCTS], lane.s @ w, 1e-11)
        close(lane.s, s @ x, 1e-12)
        close(lane.outputs[:, TARGETS], s @ y, 1e-12)


@pytest.mark.slow
def test_float32_keeps_to_the_constraint_however_long_it_runs():
    rng = np.random.default_rng(0)
    x = rng.random((20000, 30)).astype(np.float32)
    y = (x @ rng.standard_normal((30, 2)) + 0.1 * rng.standard_normal((20000, 2))).astype(float)
    settings = ConstrainedSettings(PROJECT, 1.0)
    lane = new_mean_lane(start(30, 2, False, True), settings, np.float32)
    for _ in range(5):
        constrained_block(DenseRows(x), y, NO_WEIGHT, np.arange(len(x)), *lane, settings)
    found = weights_from_mean_lane(lane, settings)
    close(found.mean_x @ found.w + found.b, found.mean_y, 2e-6)


def test_no_hyperplane_where_the_mean_is_zero():
    # x and -x: after the second row the mean is 0 and only the gradient step remains
    x = np.array([[0.3, 0.7], [-0.3, -0.7], [0.5, 0.0]])
    y = np.array([[1.0], [0.5], [0.2]])
    settings = ConstrainedSettings(PROJECT, 0.5, schedule=CONSTANT, fit_intercept=False)
    for n in (2, 3):
        lane = run(x, y, NO_WEIGHT, np.arange(n), settings)
        expected = constrained.csgd(
            x[:n], y[:n], lambda t: 0.5, w0=np.zeros((2, 1)), b0=np.zeros(1), s=np.ones(n), fit_intercept=False
        )
        found = weights_from_mean_lane(lane, settings)
        close(found.w, expected.w, 1e-12)
        if n == 2:
            assert lane.clock[SQUARE] == 0.0
            assert not found.mean_x.any()
    fixed = ConstrainedSettings(PROJECT, 0.5, schedule=CONSTANT, fit_intercept=False, running=False)
    model = MeanModel(np.zeros((2, 1)), np.zeros(1), np.zeros(2), np.array([0.7]))
    plain = constrained.csgd(
        x, y, lambda t: 0.5, w0=model.w, b0=model.b, s=np.ones(3), fit_intercept=False, project=False
    )
    found = weights_from_mean_lane(run(x, y, NO_WEIGHT, np.arange(3), fixed, model), fixed)
    close(found.w, plain.w, 1e-12)


@pytest.mark.parametrize("mode", [PROJECT, CENTRE], ids=["project", "centre"])
def test_the_penalised_optimum_is_a_fixed_point(mode):
    # with a fixed mean and tiny steps both modes approach ridge regression with a free intercept
    x, y, _ = problem(2, True, n=50, d=5)
    alpha, mean_x, mean_y = 0.3, x.mean(axis=0), y.mean(axis=0)
    centred = x - mean_x
    w = np.linalg.solve(centred.T @ centred / 50 + alpha * np.eye(5), centred.T @ (y - mean_y) / 50)
    model = MeanModel(w, mean_y - mean_x @ w, mean_x, mean_y)
    settings = ConstrainedSettings(mode, 1e-5, running=False, schedule=CONSTANT, alpha=alpha)
    order = np.tile(np.arange(50), 400)
    found = weights_from_mean_lane(run(x, y, NO_WEIGHT, order, settings, model), settings)
    close(found.w, w, 3e-4)
    close(found.b, model.b, 3e-4)


def test_divergence_is_seen():
    x, y, s = problem(3, True)
    settings = ConstrainedSettings(CENTRE, 1e3, schedule=CONSTANT)
    found = weights_from_mean_lane(run(x, y, s, np.arange(400), settings), settings)
    assert not np.isfinite(found.w).all()


def test_steps():
    for name, code in SCHEDULES.items():
        for t in (1.0, 8.0, 9.0, 10.0, 1000.0):
            assert step_size(code, 0.5, 9.0, t) == pytest.approx(constrained.STEPS[name](0.5, 9.0, t))
    assert step_size(TWO_PHASE, 0.5, math.inf, 9.0) == step_size(SQRT, 0.5, math.inf, 9.0)
    assert step_size(TWO_PHASE, 0.5, 9.0, 9.0) == pytest.approx(step_size(SQRT, 0.5, 9.0, 9.0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outputs": np.zeros((2, 4))}, "different numbers of classes"),
        ({"outputs": np.zeros((3, 3))}, "do not fit"),
        ({"s": np.zeros(16)}, "do not fit"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, message):
    x, y, _ = problem(3, False)
    settings = ConstrainedSettings(PROJECT, 0.3)
    lane = new_mean_lane(start(17, 3, False, True), settings)._replace(**change)
    refuses(ValueError, message, constrained_block, as_rows(x, "csr"), y, NO_WEIGHT, np.arange(3), *lane, settings)
