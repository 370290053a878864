"""Vectors of four numbers: operators, choices, lanes, and arrays read and written to their end."""

import numpy as np
import pytest

from distls.workers.compilation.jit import helper, kernel
from distls.workers.simd.exp_log import exp_of_negative, log_of_normal
from distls.workers.simd.vectors import (
    F64_PER_VECTOR,
    any_of,
    floor_of,
    fused,
    is_lane,
    lanes_below,
    load,
    max_of_lanes,
    padded,
    select,
    splat,
    store,
    sum_of_lanes,
)

NAN = float("nan")
A = np.array([1.5, -2.25, 0.0, NAN])
B = np.array([0.5, 3.0, -0.0, 1.0])


@kernel
def _arithmetic(a, b, out):
    x, y = load(a, 0, 0.0), load(b, 0, 0.0)
    store(x + y, out[0], 0)
    store(x - y, out[1], 0)
    store(x * y, out[2], 0)
    store(x / y, out[3], 0)
    store(2.0 * x - 1, out[4], 0)
    store(1.0 / (x + np.float32(0.5)), out[5], 0)
    store(-x, out[6], 0)
    store(abs(x), out[7], 0)
    store(floor_of(x), out[8], 0)


def test_operators_are_those_of_numbers():
    out = np.empty((9, F64_PER_VECTOR))
    with np.errstate(all="ignore"):
        wanted = [
            A + B, A - B, A * B, A / B, 2.0 * A - 1.0, 1.0 / (A + 0.5), -A, np.abs(A), np.floor(A),
        ]  # fmt: skip
    _arithmetic(A, B, out)
    np.testing.assert_array_equal(out, wanted)


@kernel
def _comparisons(a, b, out):
    x, y = load(a, 0, 0.0), load(b, 0, 0.0)
    store(select(x < y, 1.0, splat(0.0)), out[0], 0)
    store(select(x <= y, splat(1.0), 0.0), out[1], 0)
    store(select(x > 0.0, splat(1.0), 0.0), out[2], 0)
    store(select(x <= 0.0, splat(1.0), 0.0), out[3], 0)
    store(select(x != y, x, y), out[4], 0)
    store(select(x != x, 1.0, splat(0.0)), out[5], 0)
    return any_of(x > 1.0), any_of(x > 2.0), any_of(x != x)


def test_comparisons_choose_lane_by_lane():
    out = np.empty((6, F64_PER_VECTOR))
    found = _comparisons(A, B, out)
    wanted = [A < B, A <= B, A > 0.0, A <= 0.0, np.where(A != B, A, B), np.isnan(A)]
    np.testing.assert_array_equal(out, np.array(wanted, float))
    assert found == (True, False, True)


@kernel
def _numbers(a, b):
    return (select(a < b, a, b), select(a < b, 1, 2), any_of(a < b), exp_of_negative(a), log_of_normal(b), floor_of(b))


def test_what_vectors_have_numbers_have_too():
    smaller, chosen, any_is, e, log, whole = _numbers(-1.5, 2.5)
    assert (smaller, chosen, any_is, whole) == (-1.5, 1.0, True, 2.0)
    assert (e, log) == (pytest.approx(np.exp(-1.5), rel=1e-14), pytest.approx(np.log(2.5), rel=1e-14))


@kernel
def _fused(a, y, out, single):
    store(fused(load(a, 0, 0.0), a[0], load(y, 0, 0.0)), out, 0)
    return fused(a[0], a[0], y[0]), fused(single, single, y[0]), fused(single, single, single)


def test_a_fused_product_and_sum_are_rounded_once():
    # of two roundings the product's last digit would be lost, and nothing left
    a, y, out = np.full(4, 1.0 + 2.0**-30), np.full(4, -1.0 - 2.0**-29), np.empty(4)
    single = np.float32(1.0 + 2.0**-12)
    of_numbers, of_both, in_float32 = _fused(a, y, out, single)
    np.testing.assert_array_equal(out, 2.0**-60)
    assert of_numbers == 2.0**-60
    assert of_both == float(single) ** 2 + y[0]
    assert in_float32 == np.float32(float(single) ** 2 + float(single))


@kernel
def _lanes(a, n, out):
    x = load(a, 0, 0.0)
    store(select(lanes_below(n), x, -9.0), out[0], 0)
    store(select(is_lane(n), x, -9.0), out[1], 0)
    return sum_of_lanes(x), max_of_lanes(x)


@pytest.mark.fast_cases("-1", "2", "5")
@pytest.mark.parametrize("n", range(-1, 6))
def test_lanes_are_counted_from_zero(n):
    a, out, lanes = (np.array([1e16, 1.0, -1e16, 3.0]), np.empty((2, F64_PER_VECTOR)), np.arange(F64_PER_VECTOR))
    total, most = _lanes(a, n, out)
    np.testing.assert_array_equal(out, [np.where(lanes < n, a, -9.0), np.where(lanes == n, a, -9.0)])
    assert total == (a[0] + a[2]) + (a[1] + a[3])
    assert most == 1e16


@kernel
def _doubled(a, out, rounded):
    for first in range(0, len(a), F64_PER_VECTOR):
        store(store(2.0 * load(a, first, 7.0), out, first), rounded, first)


@pytest.mark.fast_cases("0-float32", "3-float32", "5-float64", "12-float64")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 11, 12])
def test_arrays_end_where_they_end(n, dtype):
    a = np.random.default_rng(n).standard_normal(n).astype(dtype) / dtype_of(dtype)(3.0)
    memory = np.full(n + 8, 99.0, dtype)
    rounded = np.full(padded(n), 99.0)
    _doubled(a, memory[4 : n + 4], rounded)
    np.testing.assert_array_equal(memory[4 : n + 4], 2.0 * a)
    assert (memory[:4] == 99.0).all()
    assert (memory[n + 4 :] == 99.0).all()
    # what is beyond the end is filled; what was stored is returned as rounded
    np.testing.assert_array_equal(rounded, np.r_[2.0 * a, np.full(padded(n) - n, 14.0)].astype(float))


def dtype_of(name):
    return np.dtype(name).type


@kernel
def _by_fours(x, y, e, log):
    for first in range(0, len(x), F64_PER_VECTOR):
        store(exp_of_negative(load(x, first, 0.0)), e, first)
        store(log_of_normal(load(y, first, 1.0)), log, first)


@kernel
def _one_by_one(x, y, e, log):
    for i in range(len(x)):
        e[i], log[i] = exp_of_negative(x[i]), log_of_normal(y[i])


def test_exponentials_are_the_same_bits_in_any_lane():
    rng = np.random.default_rng(1)
    x, y = -rng.exponential(30.0, 1003), np.exp(rng.normal(0.0, 40.0, 1003))
    vectors, numbers = np.empty((2, len(x))), np.empty((2, len(x)))
    _by_fours(x, y, *vectors)
    _one_by_one(x, y, *numbers)
    np.testing.assert_array_equal(vectors, numbers)
    shifted = np.empty((2, len(x) - 1))
    _by_fours(x[1:].copy(), y[1:].copy(), *shifted)
    np.testing.assert_array_equal(shifted, vectors[:, 1:])


# -- the inlined exp and log against NumPy's -------------------------------------------------------------


@helper
def both(x, y, e, log):
    for i in range(len(x)):
        e[i], log[i] = exp_of_negative(x[i]), log_of_normal(y[i])


def test_they_agree_with_numpy():
    rng = np.random.default_rng(0)
    sizes = 10.0 ** rng.uniform(-18, 2.8, 20_000)
    x = np.concatenate([-sizes, [0.0, -1e-300, -700.0, -708.3, -745.0, -1e9, -np.inf, np.nan]])
    y = np.concatenate([np.exp(-sizes), 1.0 + 10.0 ** rng.uniform(-16, 0, 6), [1.0, 1e-300]])
    y = np.maximum(y, np.finfo(float).tiny)
    e, log = np.empty_like(x), np.empty_like(x)
    both(x, y, e, log)
    np.testing.assert_allclose(e[:-1], np.exp(x[:-1]), rtol=1e-13, atol=1e-307)
    near = np.flatnonzero(np.abs(x) < 40.0)
    np.testing.assert_allclose(e[near], np.exp(x[near]), rtol=1e-14)
    assert e[len(sizes)] == 1.0
    assert np.isnan(e[-1])  # divergence must be seen
    np.testing.assert_allclose(log, np.log(y), rtol=1e-14, atol=1e-14)
    assert log[-2] == 0.0
