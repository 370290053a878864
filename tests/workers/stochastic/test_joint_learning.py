"""Learners of several strengths in one kernel: each has the bits that it has alone."""

import numpy as np
import pytest
from helpers import as_rows

from distls.storage.rows import CsrRows
from distls.workers.losses.targets import label_sets
from distls.workers.simd.adaptive_steps import MODELS_PER_LINE
from distls.workers.stochastic.adagrad_together import MOST_OUTPUTS, lines_bytes
from distls.workers.stochastic.joint_learning import together
from distls.workers.stochastic.sgd import AdagradUpdate, SgdUpdate
from distls.workers.stochastic.sgd_together import MOST_MODELS, side_by_side_bytes

NONE = np.empty(0)
D, N = 23, 150


def _rows(layout, dtype):
    rng = np.random.default_rng(4)
    x = np.round(rng.standard_normal((N, D)), 2) * (rng.random((N, D)) < 0.4)
    x[[3, 40]] = 0
    return as_rows(x, layout, dtype, np.uint32), rng


def _learners(count, k, dtype, loss="softmax", alpha=None, warm=False, **options):
    """Return learners whose weights decay from hardly at all to so much that factors are folded."""
    found, rng = [], np.random.default_rng(1)
    for strength in np.geomspace(1e-7, 3.0, count) if alpha is None else [alpha] * count:
        update = AdagradUpdate(loss, strength, True, eta0=0.3 + strength, eta_b=0.2, **options)
        arrays = update.zeros((D, k), dtype)
        if warm:
            for array in (arrays[0], arrays[2], arrays[3]):
                array[...] = rng.random(array.shape)
        found.append(update.start_lane(arrays, 5.0 if warm else 0.0))
    return found


def _plain_learners(count, k, dtype, loss="softmax", tail_from=np.inf, warm=False, **options):
    """Return learners of plain steps, some of whose weights decay so much that the factor is folded."""
    options = {"schedule": "pegasos", "fit_intercept": True, "eta0": 0.5, **options}
    found, rng = [], np.random.default_rng(1)
    for strength in np.geomspace(1e-4, 0.9, count):
        update = SgdUpdate(loss, strength, averaging=tail_from < np.inf, **options)
        arrays = update.zeros((D, k), np.dtype(dtype))
        if warm:
            arrays[0][...] = rng.random(arrays[0].shape)
        found.append(update.start_lane(arrays, 5.0 if warm else 0.0, tail_from))
    return found


def _learned(learners, x, y, weight, rng):
    """Return what each learner has learned from two blocks, its window, and what it said of them."""
    told, found = [[] for _ in learners], []
    for order in (rng.permutation(N), rng.permutation(N)[: N // 2]):
        for place, learner in enumerate(learners):
            told[place].append(learner.learn(x, y, weight, order))
    for said, learner in zip(told, learners, strict=True):
        steps = learner.window_steps
        window = learner.window(consume=True) if steps else ()
        found.append(((said, learner.time, steps), (*window, *learner.arrays())))
    return found


def _assert_same(x, y, weight, make):
    alone = _learned(make(), x, y, weight, np.random.default_rng(9))
    plain = make()
    joint = together(plain)
    assert not set(map(id, joint)) & set(map(id, plain))
    for one, other in zip(alone, _learned(joint, x, y, weight, np.random.default_rng(9)), strict=True):
        assert one[0] == other[0]
        for a, b in zip(one[1], other[1], strict=True):
            assert np.array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("loss", "k"), [("softmax", 2), ("softmax", 5), ("softmax", 8), ("crammer_singer", 4), ("ovr_hinge", 1)]
)
def test_every_learner_has_its_own_bits(loss, k, dtype):
    x, rng = _rows("csr", "float32")
    y = rng.integers(0, max(k, 2), N).astype(np.int32)
    _assert_same(x, y, NONE, lambda: _learners(10, k, dtype, loss))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "k", "dtype"), [("softmax", 5, "float32"), ("crammer_singer", 4, "float64"), ("ovr_hinge", 2, "float32")]
)
@pytest.mark.parametrize("schedule", ["pegasos", "constant"])
def test_plain_steps_have_their_own_bits(loss, k, dtype, schedule):
    x, rng = _rows("csr", "float32")
    y, weight = rng.integers(0, k, N).astype(np.int32), rng.random(N)
    # the window starts in the first block; with constant steps factors are folded before and in it
    _assert_same(x, y, weight, lambda: _plain_learners(10, k, dtype, loss, 40.0, schedule=schedule))
    for learner in _plain_learners(10, k, dtype, loss, 40.0, schedule=schedule)[:1]:
        learner.learn(x, y, weight, np.arange(N))
        assert learner.window_steps == N - 40


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"t0": 3.0}, {"fit_intercept": False}, {"schedule": "sqrt"}])
def test_plain_steps_without_a_window(options):
    x, rng = _rows("dense", "float64")
    y = rng.integers(0, 3, N).astype(np.int32)
    _assert_same(x, y, NONE, lambda: _plain_learners(MOST_MODELS, 3, "float32", "perceptron", **options))


@pytest.mark.slow
def test_plain_steps_from_trained_weights_to_numbers_and_sets():
    x, rng = _rows("csr", "float32")
    numbers, small = rng.standard_normal((N, 2)), {"schedule": "sqrt", "eta0": 0.05}
    _assert_same(x, numbers, NONE, lambda: _plain_learners(4, 2, "float32", "squared", warm=True, **small))
    sets = CsrRows(np.arange(N + 1), rng.integers(0, 4, N).astype(np.uint32), np.ones(N, np.float32))
    _assert_same(x, label_sets(sets), NONE, lambda: _plain_learners(4, 4, "float32", "ovr_log"))


@pytest.mark.slow
def test_with_sample_weights_and_dense_rows():
    x, rng = _rows("dense", "float64")
    y, weight = rng.integers(0, 3, N).astype(np.int32), rng.random(N)
    weight[::7] = 0.0
    _assert_same(x, y, weight, lambda: _learners(MODELS_PER_LINE, 3, "float64"))


@pytest.mark.slow
def test_from_trained_weights():
    x, rng = _rows("csr", "float32")
    y = rng.integers(0, 3, N).astype(np.int32)
    _assert_same(x, y, NONE, lambda: _learners(5, 3, "float32", warm=True))


@pytest.mark.slow
def test_numbers_and_sets_of_labels():
    x, rng = _rows("csr", "float32")
    _assert_same(x, rng.standard_normal((N, 2)), NONE, lambda: _learners(4, 2, "float32", "squared"))
    sets = CsrRows(np.arange(N + 1), rng.integers(0, 4, N).astype(np.uint32), np.ones(N, np.float32))
    _assert_same(x, label_sets(sets), NONE, lambda: _learners(4, 4, "float32", "ovr_log"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "learners",
    [
        lambda: _learners(2, 3, "float32"),  # too few to be worth it
        lambda: _learners(4, 3, "float32", alpha=0.0),
        lambda: _learners(4, MOST_OUTPUTS + 1, "float32"),
        lambda: _learners(2, 3, "float32") + _learners(2, 3, "float32", "crammer_singer"),
        lambda: _plain_learners(2, 3, "float32"),
        lambda: _plain_learners(4, 3, "float32", batch_size=2),
        lambda: _plain_learners(4, 1, "float32"),
        lambda: _plain_learners(4, 9, "float64"),  # their scores are added up in another order
        lambda: _plain_learners(2, 3, "float32") + _plain_learners(2, 3, "float32", tail_from=40.0),
    ],
)
def test_others_learn_one_after_the_other(learners):
    plain = learners()
    assert together(plain) == plain


def test_what_is_left_of_the_lanes_learns_alone():
    plain = _learners(MODELS_PER_LINE + 1, 3, "float32")
    found = together(plain)
    assert found[-1] is plain[-1]
    assert not set(map(id, found[:-1])) & set(map(id, plain))


def test_bytes_of_weights_side_by_side():
    for averaging in (False, True):
        joint = _plain_learners(10, 3, "float32", tail_from=40.0 if averaging else np.inf)
        held = sum(array.nbytes for array in joint[0].joint(joint)._arrays[:2])
        planned = joint[0].update.joint_bytes((D, 3), np.dtype("float32"), 10)
        assert planned == held == side_by_side_bytes(D, 3, 10, 4, averaging=averaging)
    assert joint[0].update.joint_bytes((D, 3), np.dtype("float32"), 2) == 0
    assert joint[0].update.joint_bytes((D, 17), np.dtype("float32"), 10) == 0


def test_bytes_of_the_lines():
    update = AdagradUpdate("softmax", 0.1, True)
    joint = _learners(10, 3, "float32")
    held = sum(array.nbytes for array in joint[0].joint(joint)._arrays[:2])
    assert update.joint_bytes((D, 3), np.dtype("float32"), 10) == held == lines_bytes(D, 3, 10, 4)
    assert update.joint_bytes((D, 3), np.dtype("float32"), 2) == 0
