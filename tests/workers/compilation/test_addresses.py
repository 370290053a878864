"""The same numbers wherever arrays lie in memory: threads allocate elsewhere, their bits must not differ."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers import as_rows, labelled_rows

from distls.workers.losses.loss_registry import LOSSES
from distls.workers.rounds.averaging import merge_mean
from distls.workers.stochastic.sgd_kernels import SgdSettings, new_clock, sgd_block


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
