"""The stochastic updates against plain NumPy, and the promises of learners."""

import copy
import itertools
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers import as_rows

from distls.workers.losses.loss_registry import loss_named
from distls.workers.penalties.penalty_registry import penalties_with
from distls.workers.stochastic import fobos
from distls.workers.stochastic.constrained_sgd import ConstrainedUpdate
from distls.workers.stochastic.fobos import FobosUpdate
from distls.workers.stochastic.second_order.olbfgs import OlbfgsUpdate
from distls.workers.stochastic.second_order.rls import RlsUpdate
from distls.workers.stochastic.second_order.sgdqn import SgdqnUpdate, sgdqn_steps
from distls.workers.stochastic.second_order.sgdqn_kernels import METRICS
from distls.workers.stochastic.sgd import AdagradUpdate, SgdUpdate
from distls.workers.stochastic.step_choice import ProblemStats
from distls.workers.stochastic.step_sizes import SCHEDULES
from reference import bcd
from reference import stochastic as oracle

NONE = np.empty(0)


def problem(k, n=230, d=19, seed=0):
    rng = np.random.default_rng([seed, k])
    x = np.round(rng.standard_normal((n, d)), 2) * (rng.random((n, d)) < 0.4)
    x[[3, 40]] = 0
    s = rng.random(n) + 0.1
    return x, rng.integers(0, max(k, 2), n).astype(np.int32), s / s.mean()


def learn(update, x, y, s=NONE, layout="csr", k=3, cuts=(), dtype=np.float64, tail_from=math.inf):
    """Go through the rows in blocks; return the arrays, the loss sum and the errors."""
    k = 1 if update.row_loss.one_output else k
    learner = update.start_lane(update.zeros((x.shape[1], k), dtype), 0.0, tail_from)
    loss_sum, errors, bounds = 0.0, 0, [0, *cuts, len(x)]
    for start, stop in itertools.pairwise(bounds):
        weight = s[start:stop] if len(s) else s
        rows = as_rows(x[start:stop], layout, dtype)
        loss, wrong = learner.learn(rows, y[start:stop], weight, np.arange(stop - start))
        loss_sum, errors = loss_sum + loss, errors + wrong
    assert learner.time == len(x)
    window = learner.window() if learner.window_steps else ()
    return (*learner.arrays(), *window), loss_sum, errors


def numbers(k, n, seed=3):
    return np.random.default_rng(seed).standard_normal((n, k))


@pytest.mark.fast_cases("softmax-csr")
@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("loss", ["softmax", "crammer_singer", "ovr_squared_hinge", "numbers"])
def test_schedules_with_decay(schedule, layout, loss):
    """A large alpha, so that sigma is folded into U; weights and intercept."""
    x, y, s = problem(3)
    if loss == "numbers":
        loss, y = "squared", numbers(3, len(x))
    m = 0.7 if schedule == "power" else 50.0
    update = SgdUpdate(loss, 0.9, True, schedule=schedule, eta0=0.3, switch=m)
    steps = lambda t: oracle.SCHEDULES[schedule](0.3, m, t)  # noqa: E731
    ws, bs, loss_sum = oracle.sgd(x, y, oracle.slopes_of(loss), steps, k=3, alpha=0.9, s=s, intercept=True)
    (w, b), got, _ = learn(update, x, y, s, layout)
    np.testing.assert_allclose(w, ws[-1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(b, bs[-1], rtol=1e-9)
    assert got == pytest.approx(loss_sum, rel=1e-10)


@pytest.mark.fast_cases(r"0\.0")
@pytest.mark.parametrize("alpha", [0.0, 0.9])
def test_window_means_of_schedules_with_folds(alpha):
    x, y, _ = problem(4)
    update = SgdUpdate("softmax", alpha, True, schedule="constant", eta0=0.4, averaging=True)
    ws, bs, _ = oracle.sgd(x, y, oracle.slopes_of("softmax"), lambda t: 0.4, k=4, alpha=alpha, intercept=True)
    learner = update.start_lane(update.zeros((x.shape[1], 4), np.float64), 0.0, 37.0)
    for start, stop in ((0, 30), (30, 120), (120, 230)):
        learner.learn(as_rows(x[start:stop], "csr"), y[start:stop], NONE, np.arange(stop - start))
    mean, mean_b = learner.window()
    np.testing.assert_allclose(mean, np.mean(ws[38:], axis=0), rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(mean_b, np.mean(bs[38:], axis=0), rtol=1e-9)


@pytest.mark.fast_cases("softmax-csr")
@pytest.mark.parametrize("alpha", [0.0, 1e-3, 2.0])
@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("loss", ["softmax", "crammer_singer", "ovr_hinge", "numbers"])
def test_adaptive_steps_with_lazy_decay_equal_dense_ones(alpha, layout, loss):
    x, y, s = problem(3)
    if loss == "numbers":
        loss, y = "squared", numbers(3, len(x))
    update = AdagradUpdate(loss, alpha, True, eta0=0.7, eta_b=0.4)
    w, b, squares, loss_sum = oracle.adaptive(
        x, y, oracle.slopes_of(loss), 0.7, eta_b=0.4, k=3, alpha=alpha, s=s, intercept=True
    )
    (got, got_b, got_squares, _), got_loss, _ = learn(update, x, y, s, layout)
    np.testing.assert_allclose(got, w, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(got_b, b, rtol=1e-9)
    np.testing.assert_allclose(got_squares, squares, rtol=1e-10)
    assert got_loss == pytest.approx(loss_sum, rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("penalty", penalties_with(split=True))
@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("loss", ["softmax", "crammer_singer", "multiclass_squared_hinge"])
@pytest.mark.parametrize("alpha", [0.0, 0.02, 0.2])
def test_lazy_shrinkage_equals_that_of_every_step(penalty, layout, loss, alpha):
    """With the strongest of them rows of W are zero again and again."""
    x, y, s = problem(3)
    update = FobosUpdate(loss, alpha, True, eta0=0.4, penalty=penalty, l1_ratio=0.3)
    w, b, loss_sum = oracle.fobos(
        x, y, oracle.slopes_of(loss), 0.4, lambda v, mu: bcd.prox(v, mu, penalty, 0.3), k=3, alpha=alpha, s=s,
        eta_b=min(0.4, 1.0 / loss_named(loss).slope_growth(3)),
    )  # fmt: skip
    (got, got_b), got_loss, _ = learn(update, x, y, s, layout)
    np.testing.assert_allclose(got, w, rtol=1e-9, atol=1e-12)
    assert np.array_equal(got == 0, w == 0)
    np.testing.assert_allclose(got_b, b, rtol=1e-9)
    assert got_loss == pytest.approx(loss_sum, rel=1e-10)


@pytest.mark.slow
def test_shrinkage_starts_anew_before_it_overflows():
    """So strong that P would pass 1e50 after a part of the rows."""
    x, y, s = problem(3)
    update = FobosUpdate("softmax", 30.0, False, eta0=0.5, penalty="elasticnet", l1_ratio=1e-3)
    w, _, loss_sum = oracle.fobos(
        x, y, oracle.slopes_of("softmax"), 0.5, lambda v, mu: bcd.prox(v, mu, "elasticnet", 1e-3), k=3, alpha=30.0,
        s=s,
    )  # fmt: skip
    largest = np.prod(1 + 30.0 * 0.999 * 0.5 / np.sqrt(np.arange(1, len(x) + 1)))
    assert largest > fobos._LARGEST_P
    (got, _), got_loss, _ = learn(update, x, y, s)
    np.testing.assert_allclose(got, w, rtol=1e-9, atol=1e-14)
    assert got_loss == pytest.approx(loss_sum, rel=1e-10)


@pytest.mark.slow_cases("binary_", ".*-dense-", "ovr_log-")
@pytest.mark.parametrize("metric", sorted(METRICS))
@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("loss", ["ovr_squared_hinge", "ovr_log", "binary_squared_hinge", "binary_log"])
def test_scheduled_updates_are_those_of_the_figures(metric, layout, loss):
    single = loss.startswith("binary")
    x, y, s = problem(1 if single else 3)
    k, slopes = (1, oracle.binary_slopes(loss)) if single else (3, oracle.slopes_of(loss))
    cap = {"most": 3.0, "spread": 5.0} if metric == "capped" else {}  # which most of the features reach
    update = SgdqnUpdate(loss, 0.02, True, t0=60.0, skip=7, metric=metric, **cap)
    w, b, diagonal, loss_sum = oracle.scheduled(
        x, y, slopes, loss, 0.02, 60.0, 7, metric, k=k, s=s, intercept=True, **cap
    )
    (got, got_b, got_diagonal), got_loss, _ = learn(update, x, y, s, layout)
    np.testing.assert_allclose(got, w, rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(got_b, b, rtol=1e-8)
    assert got_loss == pytest.approx(loss_sum, rel=1e-9)
    if metric != "none":
        np.testing.assert_allclose(got_diagonal, diagonal, rtol=1e-7, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("metric", sorted(METRICS))
@pytest.mark.parametrize("k", [1, 3])
def test_a_weighted_row_of_least_squares_is_a_row_of_its_root(metric, k):
    """Weight c^2 gives the gradients and curvatures of the row times c with targets times c."""
    x, _, s = problem(3)
    y = numbers(k, len(x))
    update = SgdqnUpdate("squared", 0.02, False, t0=60.0, skip=7, metric=metric)
    (w, _, diagonal), loss_sum, _ = learn(update, x, y, s, k=k)
    root = np.sqrt(s)[:, None]
    (scaled, _, scaled_diagonal), scaled_sum, _ = learn(update, root * x, root * y, k=k)
    np.testing.assert_allclose(w, scaled, rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(diagonal, scaled_diagonal, rtol=1e-8)
    assert loss_sum == pytest.approx(scaled_sum, rel=1e-10)


@pytest.mark.fast_cases("ovr_squared_hinge", "ovr_log-paper")
@pytest.mark.parametrize(
    ("loss", "given", "metric", "starts"),
    [
        ("ovr_squared_hinge", None, "capped", [0.2, 2.0, 6.0, 20.0, 200.0]),
        ("ovr_log", "capped", "capped", [0.2, 2.0, 6.0, 20.0, 200.0]),
        ("ovr_hinge", None, "secant", 200.0 * 10 ** (np.arange(-1, 5) / 2)),
        ("ovr_hinge", "gauss-newton", "gauss-newton", [0.2, 2.0, 6.0, 20.0, 200.0]),
        ("ovr_log", "paper", "paper", 200.0 * 10 ** (np.arange(-1, 5) / 2)),
    ],
)
def test_a_loss_without_second_derivatives_has_secants(loss, given, metric, starts):
    stats = ProblemStats(loss, "class", 0.02, False, 3, 19, 1000, 19_000, 4.0)
    choice = sgdqn_steps(stats, {"diagonal": given, "t0": None, "skip": None}, 1, warm=False)
    assert {each.update.metric for each in choice.candidates} == {metric}
    np.testing.assert_allclose([each.setting["t0"] for each in choice.candidates], starts)


@pytest.mark.slow
def test_plain_steps_compete_where_rows_are_few():
    """Fewer than mean |x|^2 / alpha; they are taken where they are better by more than a tie."""
    stats = ProblemStats("ovr_squared_hinge", "class", 0.02, False, 3, 19, 150, 2850, 4.0)
    choice = sgdqn_steps(stats, {"diagonal": None, "t0": None, "skip": None}, 1, warm=False)
    plain = [each for each in choice.candidates if each.setting.get("diagonal") == "none"]
    np.testing.assert_allclose([each.setting["t0"] for each in plain], 200.0 * 10 ** (np.arange(-1, 5) / 2))
    assert {each.update.metric for each in plain} == {"none"}
    assert {each.handicap for each in choice.candidates} == {1.0, 1.03}
    assert (choice.candidates[0].update.most, choice.candidates[0].update.spread) == (10.0 * 0.02 * 150, 19.0)
    assert choice.default.most == np.inf  # of streams
    given = sgdqn_steps(stats, {"diagonal": "capped", "t0": None, "skip": None}, 1, warm=False)
    assert len(given.candidates) == 5


@pytest.mark.slow
def test_the_printed_diagonal_stays_a_multiple_of_the_identity_on_dense_data():
    """What the paper's notes found: its own example's secant does not contain the feature."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4000, 5)) / np.arange(1, 6)
    y = (x @ np.arange(1, 6) > 0).astype(np.int32)
    spreads = {}
    for metric in ("paper", "gauss-newton"):
        update = SgdqnUpdate("binary_squared_hinge", 1e-3, False, t0=3000.0, skip=16, metric=metric)
        diagonal = learn(update, x, y, layout="dense")[0][2]
        spreads[metric] = diagonal.max() / diagonal.min() - 1
    assert spreads["paper"] < 1e-12
    assert spreads["gauss-newton"] > 10


UPDATES = {
    "sgd": SgdUpdate("softmax", 0.01, True, schedule="sqrt", eta0=0.3),
    "pegasos": SgdUpdate("softmax", 0.01, True, t0=5.0),
    "averaged": SgdUpdate("softmax", 0.01, True, schedule="constant", eta0=0.4, averaging=True),
    "adaptive": AdagradUpdate("softmax", 0.01, True, eta0=0.7),
    "svmsgd2": SgdqnUpdate("ovr_log", 0.02, True, t0=60.0, skip=7),
    **{m: SgdqnUpdate("ovr_squared_hinge", 0.02, True, t0=60.0, skip=7, metric=m) for m in METRICS},
    "csgd": ConstrainedUpdate("squared", 0.0, True, eta0=0.05),
    "fobos": FobosUpdate("multiclass_squared_hinge", 0.05, True, eta0=0.3),
    "fobos, elastic net": FobosUpdate("softmax", 0.05, True, eta0=0.3, penalty="elasticnet", l1_ratio=0.4),
    "centred": ConstrainedUpdate("squared", 0.0, True, eta0=0.05, mode="centre"),
}
ONE_LANE = {
    "rls": RlsUpdate("ovr_log", 1e-3, True, n_rows=115),
    "rls, squared": RlsUpdate("squared", 1e-3, True, n_rows=115),
    "olbfgs": OlbfgsUpdate("softmax", 1e-3, True, rank=4),
}


@pytest.mark.fast_cases("float64-(sgd|averaged|csgd|centred)$")
@pytest.mark.parametrize("name", [*UPDATES, *ONE_LANE])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cuts_and_looks_change_no_bit(name, dtype):
    """Blocks without rows are among the cuts."""
    x, y, s = problem(3)
    update = {**UPDATES, **ONE_LANE}[name]
    given = {"dtype": dtype, "tail_from": 37.0 if name == "averaged" else math.inf}
    whole, loss, errors = learn(update, x, y, s, **given)
    cut, cut_loss, cut_errors = learn(update, x, y, s, cuts=(1, 8, 8, 37, 64, 100, 101), **given)
    assert all(np.array_equal(a, b) for a, b in zip(whole, cut, strict=True))
    assert np.any(whole[0])
    assert cut_loss == pytest.approx(loss, rel=1e-12)
    assert cut_errors == errors
    learner = update.start_lane(update.zeros((x.shape[1], 3), dtype), 0.0)
    learner.learn(as_rows(x[:90], "csr", dtype), y[:90], s[:90], np.arange(90))
    looked, again = learner.snapshot(), learner.snapshot()
    assert all(np.array_equal(a, b) for a, b in zip(looked, again, strict=True))
    other = copy.deepcopy(learner)
    for each in (learner, other):
        each.learn(as_rows(x[90:], "csr", dtype), y[90:], s[90:], np.arange(len(x) - 90))
        assert all(np.array_equal(a, b) for a, b in zip(each.arrays(), whole, strict=False))


@pytest.mark.fast_cases("sgd-3-csr-float64$")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("k", [2, 3, 9])
@pytest.mark.parametrize("name", [*UPDATES, *ONE_LANE])
def test_results_do_not_depend_on_addresses(name, k, layout, dtype):
    """Threads allocate elsewhere."""
    x, y, s = problem(k)
    update = {**UPDATES, **ONE_LANE}[name]

    def trained(pad):
        held = [np.empty(size) for size in (pad, 3 * pad + 1)]  # moves what is allocated next
        arrays, loss, errors = learn(update, x, y, s, layout, k, dtype=dtype)
        assert len(held) == 2
        return b"".join(array.tobytes() for array in arrays), loss, errors

    here = {trained(pad) for pad in range(1, 40, 3)}
    with ThreadPoolExecutor(3) as pool:
        there = set(pool.map(trained, range(1, 90, 3)))
    assert len(here | there) == 1


@pytest.mark.fast_cases("sgd$", "secant$", "centred$")
@pytest.mark.parametrize("name", list(UPDATES))
def test_arrays_of_the_start_are_only_read(name):
    x, y, _ = problem(3)
    update = UPDATES[name]
    start = update.zeros((x.shape[1], 3), np.float64)
    start[0][...] = 0.5
    before = [array.copy() for array in start]
    update.start_lane(start, 4.0).learn(as_rows(x, "csr"), y, NONE, np.arange(len(x)))
    assert all(np.array_equal(a, b) for a, b in zip(start, before, strict=True))
