"""Helpers are compiled for kernels alone, and Python may still call them."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from helpers import as_rows, labelled_rows
from numba.core import errors

from distls.workers.compilation.jit import helper, kernel
from distls.workers.losses.loss_registry import LOSSES
from distls.workers.rounds.averaging import merge_mean
from distls.workers.stochastic.sgd_kernels import SgdSettings, new_clock, sgd_block


@helper
def _twice(x):
    return 2.0 * x


@kernel
def _four_times(x):
    return _twice(_twice(x))


def test_python_may_call_a_helper_before_and_after_kernels_do():
    assert _twice(1.5) == 3.0
    assert _four_times(1.5) == 6.0
    assert _twice(2.5) == 5.0
    assert _twice(np.float32(3)) == 6.0


def test_a_helper_has_no_code_of_its_own():
    # not a kernel that the cache on disk has, for which no helper is compiled
    assert numba.njit(lambda x: _twice(x))(0.5) == 1.0
    (compiled,) = (each for args, each in _twice.overloads.items() if str(args) == "(float64,)")
    library = compiled.library
    assert "cpython" not in library.get_llvm_str()
    assert not library._codegen._engine.is_symbol_defined(compiled.fndesc.llvm_func_name)
    assert _twice(0.5) == 1.0
    own = next(iter(_twice.for_python.overloads.values()))
    assert "cpython" in own.library.get_llvm_str()
    assert own.library._codegen._engine.is_symbol_defined(own.fndesc.llvm_func_name)


def test_a_pickled_helper_is_a_helper():
    again = pickle.loads(pickle.dumps(_twice))
    assert type(again) is type(_twice)
    assert again(2.0) == 4.0


@helper
def _largest(values, part):
    most = part[0]
    for row in range(len(values)):
        own = values[row]
        for c in range(len(own)):
            most = max(most, own[c])
    return most


@helper
def _tail(values):
    return 1, values[1:]


@helper
def _fresh(n):
    return np.zeros(n).sum()


def test_a_helper_counts_no_references():
    values = np.arange(6.0).reshape(2, 3)
    assert numba.njit(lambda v: _largest(v, v[0]))(values) == 5.0
    (compiled,) = _largest.overloads.values()
    assert "NRT_" not in compiled.library.get_llvm_str()


def test_a_helper_returns_no_array():
    with pytest.raises(errors.TypingError, match="_tail returns an array, which helpers cannot"):
        numba.njit(lambda v: _tail(v)[0])(np.zeros(2))


def test_a_helper_makes_no_array():
    with pytest.raises(errors.TypingError, match="zeros"):
        numba.njit(lambda n: _fresh(n))(2)


def test_a_kernel_counts_references_though_a_helper_calls_it_first():
    @kernel
    def tail(values):
        return values[1:]

    @helper
    def last(values):
        return tail(values)[0]

    values = np.arange(2.0)
    assert numba.njit(lambda v: last(v))(values) == 1.0
    made = tail(values)
    del values
    assert made[0] == 1.0
    assert made.base is not None


# -- the same numbers wherever arrays lie in memory ------------------------------------------------------


def _train(loss, dtype, k, pad):
    x, y = labelled_rows(600, 60, k)
    rows = as_rows(x)
    held = [np.empty(size) for size in (pad, 3 * pad + 1)]  # moves what is allocated next
    u = np.zeros((60, k), dtype)
    b, qb, clock = np.zeros(k), np.zeros(k), new_clock()
    settings = SgdSettings(LOSSES[loss], 1e-3, t0=300.0, tail_from=100.0, fit_intercept=True)
    sums = sgd_block(rows, y, np.empty(0), np.arange(600), u, u.copy(), b, qb, clock, settings)
    assert len(held) == 2
    return u.tobytes() + b.tobytes() + np.array(sums).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k", [3, 5, 9, 33])
@pytest.mark.parametrize("loss", ["softmax", "crammer_singer", "ovr_hinge", "ovr_log"])
def test_training_does_not_depend_on_addresses(loss, dtype, k):
    here = {_train(loss, dtype, k, pad) for pad in range(1, 40, 3)}
    with ThreadPoolExecutor(3) as pool:
        there = set(pool.map(lambda pad: _train(loss, dtype, k, pad), range(1, 90, 3)))
    assert here | there == {_train(loss, dtype, k, 7)}


@pytest.mark.fast_cases("float32")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_merging_does_not_depend_on_addresses(dtype):
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(2, 37)).astype(dtype)
    memory = np.empty(400, dtype)
    found = set()
    for start in range(0, 90):
        for gap in (0, 1, 5, 64, 200):
            a, b = memory[start : start + 37], memory[start + 37 + gap : start + 74 + gap]
            a[:], b[:] = left, right
            found.add((merge_mean(a, b, 1 / 3), a.tobytes()))
    assert len(found) == 1
