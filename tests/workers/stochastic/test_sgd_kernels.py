import math

import numpy as np
import pytest
from helpers import as_rows, refuses

from distls.workers.losses.loss_registry import LOSSES
from distls.workers.losses.row_functions import has_row_function
from distls.workers.stochastic import sgd_kernels as stochastic
from distls.workers.stochastic.sgd_kernels import SgdSettings, new_clock, scaled, sgd_block, window_sum
from reference import mcid, ovr

NAMES = sorted(name for name, loss in LOSSES.items() if has_row_function(loss, "row_gradient"))
NO_WEIGHT = np.empty(0)


def problem(k, n=61, d=17, seed=0):
    """Rows with zeros, two of them empty; weights of mean 1."""
    rng = np.random.default_rng([seed, k])
    x = np.round(rng.standard_normal((n, d)), 2) * (rng.random((n, d)) < 0.4)
    x[[3, 40]] = 0
    y = rng.integers(0, k, n).astype(np.int32)
    s = rng.random(n) + 0.1
    return x, y, s / s.mean()


class Lane:
    """U, Q, b and the clock, carried from block to block."""

    def __init__(self, d, k, dtype, settings, w0=None):
        self.settings = settings
        self.u = np.zeros((d, k), dtype) if w0 is None else (settings.alpha * settings.t0 * w0).astype(dtype)
        self.q = np.zeros((d if settings.tail_from < math.inf else 0, k), dtype)
        self.b, self.qb = np.zeros(k), np.zeros(k)  # float64 whatever the weights are
        self.clock, self.loss_sum, self.errors = new_clock(), 0.0, 0

    def run(self, rows, y, order, s=NO_WEIGHT):
        result = sgd_block(rows, y, s, order, self.u, self.q, self.b, self.qb, self.clock, self.settings)
        self.loss_sum += result[0]
        self.errors += result[1]
        return self

    @property
    def w(self):
        time = self.clock[stochastic.T] + self.settings.t0
        return scaled(self.u, 1.0 / (self.settings.alpha * time) if time > 0 else 0.0)


def batches_of(orders, r):
    return [order[i : i + r] for order in orders for i in range(0, len(order), r)]


def check_against_oracle(name, k, layout, dtype, r, intercept, weighted, tail, warm=False, tolerance=None):
    """Three blocks in sequence; the window starts inside the second."""
    x, y, s = problem(k)
    rng = np.random.default_rng(5)
    orders = [rng.permutation(len(x)), rng.permutation(len(x))[:34], rng.permutation(len(x))[:7]]
    batches = batches_of(orders, r)
    m = len(batches_of(orders[:1], r)) + 2.0 if tail else math.inf
    alpha, t0 = 0.03, 7.5 if warm else 0.0
    w0 = rng.standard_normal((x.shape[1], k)) if warm else np.zeros((x.shape[1], k))
    settings = SgdSettings(LOSSES[name], alpha, t0=t0, batch_size=r, fit_intercept=intercept, tail_from=m)
    lane = Lane(x.shape[1], k, dtype, settings, w0)
    for order in orders:
        lane.run(as_rows(x, layout, dtype), y, order, s if weighted else NO_WEIGHT)
    expected = mcid.train(
        x, y, name, alpha, batches, w0=w0, t0=t0, s=s if weighted else None, fit_intercept=intercept, tail_from=m,
    )  # fmt: skip

    def close(a, b):
        rtol = tolerance or 1e-10
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * max(1e-3, np.abs(b).max()))

    assert lane.clock[stochastic.T] == len(batches)
    close(lane.w, expected.w)
    close(lane.loss_sum, expected.loss_sum)
    if tail:
        assert m < len(batches) - 1
        close(window_sum(lane.u, lane.q, lane.clock), expected.w_sum)
        close(lane.qb, expected.b_sum)
        assert np.abs(expected.w_sum).max() > 0
    close(lane.b, expected.b)
    assert intercept == bool(np.any(lane.b))
    if tolerance is None:
        assert abs(lane.errors - expected.errors) <= expected.near_ties < 3


@pytest.mark.fast_cases("softmax-csr-3")
@pytest.mark.parametrize("tail", [False, True], ids=["last", "tail"])
@pytest.mark.parametrize("weighted", [False, True], ids=["ones", "weights"])
@pytest.mark.parametrize("intercept", [False, True], ids=["plain", "intercept"])
@pytest.mark.parametrize("r", [1, 3, 10])
@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("name", NAMES)
def test_float64_equals_the_oracle(name, layout, r, intercept, weighted, tail):
    for k in (2, 3, 4, 5, 53):
        check_against_oracle(name, k, layout, np.float64, r, intercept, weighted, tail)


@pytest.mark.fast_cases("softmax")
@pytest.mark.parametrize("k", [2, 3, 4, 5, 16, 17, 32, 33, 53, 64, 65, 131])
@pytest.mark.parametrize("name", NAMES)
def test_every_vector_width_and_a_warm_start(name, k):
    check_against_oracle(name, k, "csr", np.float64, 3, True, True, True, warm=True)


@pytest.mark.fast_cases("3-csr")
@pytest.mark.parametrize("k", [2, 3, 4, 5, 16, 17, 53, 131])
@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("r", [1, 3])
def test_float32_follows_the_oracle(k, layout, r):
    # a smooth loss: rounding moves the result a little, where a hinge may take another branch
    check_against_oracle("softmax", k, layout, np.float32, r, True, True, True, tolerance=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_float32_data_with_float64_weights_and_wide_indices(name):
    x, y, _ = problem(5)
    order = np.arange(len(x))
    settings = SgdSettings(LOSSES[name], 0.1)
    x = x.astype(np.float32).astype(np.float64)
    wanted = Lane(x.shape[1], 5, np.float64, settings).run(as_rows(x, "csr"), y, order)
    narrow = Lane(x.shape[1], 5, np.float64, settings).run(as_rows(x, "csr", np.float32, np.uint32), y, order)
    np.testing.assert_array_equal(wanted.u, narrow.u)


@pytest.mark.slow
@pytest.mark.parametrize("k", [2, 4, 53])
@pytest.mark.parametrize("r", [1, 3])
@pytest.mark.parametrize("name", ["ovr_hinge", "ovr_log"])
def test_one_versus_rest_is_a_binary_model_for_each_class(name, r, k):
    x, y, _ = problem(k)
    order = np.random.default_rng(6).permutation(len(x))
    settings = SgdSettings(LOSSES[name], 0.02, t0=1.5, batch_size=r)
    lane = Lane(x.shape[1], k, np.float64, settings).run(as_rows(x, "csr"), y, order)
    separate = ovr.train(x, y, k, name, 0.02, batches_of([order], r), t0=1.5)
    np.testing.assert_allclose(lane.w, separate, rtol=1e-11, atol=1e-12)


@pytest.mark.slow
def test_dense_and_csr_give_the_same_bits():
    x, y, s = problem(5)
    settings = SgdSettings(LOSSES["softmax"], 0.1, batch_size=3, fit_intercept=True, tail_from=4.0)
    order = np.random.default_rng(0).permutation(len(x))
    a, b = (
        Lane(x.shape[1], 5, np.float64, settings).run(as_rows(x, layout, np.float64), y, order, s)
        for layout in ("dense", "csr")
    )
    for one, two in ((a.u, b.u), (a.q, b.q), (a.b, b.b), (a.qb, b.qb), (a.clock, b.clock)):
        assert np.array_equal(one, two)


def test_rows_without_features_only_pass_time():
    lane = Lane(3, 4, np.float64, SgdSettings(LOSSES["softmax"], 0.1))
    y = np.array([0, 2], np.int32)
    lane.run(as_rows(np.zeros((2, 3)), "csr"), y, np.arange(2))
    assert not lane.u.any()
    assert lane.loss_sum == pytest.approx(2 * math.log(4))
    assert (lane.errors, lane.clock[stochastic.T]) == (1, 2.0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [4, 5])
def test_the_perceptron_does_not_depend_on_alpha(dtype, k):
    x, y, s = problem(k, n=400)
    order = np.random.default_rng(2).permutation(len(x))
    runs = [
        Lane(x.shape[1], k, dtype, SgdSettings(LOSSES["perceptron"], alpha)).run(as_rows(x, "csr", dtype), y, order, s)
        for alpha in (1e-4, 1e-5, 0.3)
    ]
    assert np.any(runs[0].u)
    for other in runs[1:]:
        assert np.array_equal(runs[0].u, other.u)
        assert runs[0].errors == other.errors


@pytest.mark.fast_cases("softmax")
@pytest.mark.parametrize("name", NAMES)
def test_weight_two_is_the_row_twice_in_its_batch(name):
    # a batch of (i, j) with s_i = 2 against (i, i, j): the same sum, divided by 2 or by 3
    x, y, _ = problem(5)
    single = Lane(x.shape[1], 5, np.float64, SgdSettings(LOSSES[name], 0.1, batch_size=2, fit_intercept=True))
    double = Lane(x.shape[1], 5, np.float64, SgdSettings(LOSSES[name], 0.1, batch_size=3, fit_intercept=True))
    s = np.ones(len(x))
    s[0] = 2.0
    single.run(as_rows(x, "csr"), y, np.array([0, 1]), s)
    double.run(as_rows(x, "csr"), y, np.array([0, 0, 1]))
    assert np.any(single.u)
    np.testing.assert_allclose(single.u * 2, double.u * 3, rtol=1e-14)
    np.testing.assert_allclose(single.b * 2, double.b * 3, rtol=1e-14)
    assert single.loss_sum == pytest.approx(double.loss_sum)
    assert double.errors - single.errors == (np.argmax(np.zeros(5)) != y[0])


@pytest.mark.slow
def test_strided_weights_are_refused():
    x, y, _ = problem(4)
    lane = Lane(x.shape[1], 4, np.float64, SgdSettings(LOSSES["softmax"], 0.1))
    lane.u = np.zeros((4, x.shape[1])).T
    refuses(Exception, "C-ordered", lane.run, as_rows(x, "csr"), y, np.arange(3))


def test_arrays_that_do_not_fit_are_refused():
    x, y, _ = problem(4)
    for change, message in (
        ({"b": np.zeros(3)}, "different numbers of classes"),
        ({"qb": np.zeros(5)}, "different numbers of classes"),
        ({"q": np.zeros((0, 4))}, "needs a Q"),
    ):
        lane = Lane(x.shape[1], 4, np.float64, SgdSettings(LOSSES["softmax"], 0.1, tail_from=1.0))
        vars(lane).update(change)
        refuses(ValueError, message, lane.run, as_rows(x, "csr"), y, np.arange(3))


def test_scaled_weights_may_overwrite_their_argument():
    u = np.arange(8.0).reshape(2, 4)
    assert np.array_equal(scaled(u, 0.5), u / 2)
    assert u[1, 3] == 7.0
    assert scaled(u, 0.5, out=u) is u
    assert u[1, 3] == 3.5
