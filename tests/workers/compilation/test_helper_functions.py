"""Helpers are compiled for kernels alone, and Python may still call them."""

from __future__ import annotations

import pickle

import numba
import numpy as np

from distls.workers.compilation.jit import helper, kernel


@helper
def _twice(x):
    return 2.0 * x


@kernel
def _four_times(x):
    return _twice(_twice(x))


def test_python_may_call_a_helper_before_and_after_kernels_do() -> None:
    assert _twice(1.5) == 3.0
    assert _four_times(1.5) == 6.0
    assert _twice(2.5) == 5.0
    assert _twice(np.float32(3)) == 6.0


def test_a_helper_has_no_wrapper_for_python() -> None:
    # not a kernel that the cache on disk has, for which no helper is compiled
    assert numba.njit(lambda x: _twice(x))(0.5) == 1.0
    (compiled,) = (each for args, each in _twice.overloads.items() if str(args) == "(float64,)")
    assert "cpython" not in compiled.library.get_llvm_str()
    assert _twice(0.5) == 1.0
    assert "cpython" in next(iter(_twice.for_python.overloads.values())).library.get_llvm_str()


def test_a_pickled_helper_is_a_helper() -> None:
    again = pickle.loads(pickle.dumps(_twice))
    assert type(again) is type(_twice)
    assert again(2.0) == 4.0
