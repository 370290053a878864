"""Gradients, loss sums and errors of every kind of target, against sums over rows written out, and in the task."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from target_helpers import rows_with_labels, rows_with_numbers, sets_of, write_targets

from distls.storage.rows import DenseRows, Partition
from distls.workers.features.design import Design
from distls.workers.least_squares.block_task import Block, BlockTask
from distls.workers.linear_algebra.packed_triangle import packed
from distls.workers.losses.loss_registry import LOSSES
from distls.workers.losses.targets import indicators, is_codes, score_gradients, slice_rows
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.row_weights import row_weights

N, K = 40, 3
NONE = np.empty(0)
RNG = np.random.default_rng(5)
SCORES = RNG.standard_normal((N, K)) * 3
CODES = RNG.integers(0, K, N).astype(np.int32)
WANTED = RNG.integers(0, 2, (N, K))
NUMBERS = RNG.standard_normal((N, K)) * 4
WEIGHT = RNG.integers(0, 4, N) / 2.0

KINDS = [
    *((loss, "class", CODES) for loss in ("squared", "ovr_log", "softmax")),
    *((loss, "multilabel", sets_of(WANTED)) for loss in ("squared", "ovr_log")),
    ("squared", "continuous", NUMBERS),
]
kinds = pytest.mark.parametrize(("loss", "kind", "y"), KINDS, ids=[f"{loss}-{kind}" for loss, kind, _ in KINDS])


def loss_of_row(loss, kind, i, z):
    """The loss of row i at scores z, written out."""
    target = {"class": np.eye(K)[CODES[i]], "multilabel": WANTED[i], "continuous": NUMBERS[i]}[kind]
    if loss == "squared":
        return 0.5 * sum((z[c] - target[c]) ** 2 for c in range(K))
    if loss == "softmax":
        return math.log(sum(math.exp(v) for v in z)) - z[CODES[i]]
    return sum(math.log(1 + math.exp(-z[c] if target[c] else z[c])) for c in range(K))


def is_wrong(loss, kind, i):
    if kind == "continuous":
        return False
    if kind == "class":
        return int(np.argmax(SCORES[i])) != CODES[i]
    threshold = 0.5 if loss == "squared" else 0.0
    return [bool(v > threshold) for v in SCORES[i]] != [bool(w) for w in WANTED[i]]


@pytest.mark.fast_cases(
    "False-squared-class", "False-ovr_log-multilabel", "True-ovr_log-class", "True-squared-continuous"
)
@kinds
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_are_those_over_the_rows(loss, kind, y, weighted):
    s = WEIGHT if weighted else np.ones(N)
    found = score_gradients(loss, SCORES, y, WEIGHT if weighted else NONE)
    assert found.loss_sum == pytest.approx(sum(s[i] * loss_of_row(loss, kind, i, SCORES[i]) for i in range(N)))
    assert found.weight_sum == s.sum()
    assert found.errors == sum(is_wrong(loss, kind, i) for i in range(N))
    assert (found.errors > 0) == (kind != "continuous")


@pytest.mark.fast_cases("squared-class", "squared-continuous")
@kinds
def test_slopes_are_the_derivatives(loss, kind, y):
    found = score_gradients(loss, SCORES, y, WEIGHT).values
    step = 1e-5
    for i in range(0, N, 3):
        for c in range(K):
            ends = [loss_of_row(loss, kind, i, SCORES[i] + sign * step * np.eye(K)[c]) for sign in (1, -1)]
            assert found[i, c] == pytest.approx(WEIGHT[i] * (ends[0] - ends[1]) / (2 * step), abs=1e-8)


@pytest.mark.fast_cases("squared-class", "squared-continuous")
@kinds
def test_slopes_are_float64_and_scores_are_left_alone(loss, kind, y):
    scores = SCORES.astype(np.float32)
    before = scores.copy()
    found = score_gradients(loss, scores, y, NONE)
    assert found.values.dtype == np.float64
    np.testing.assert_allclose(found.values, score_gradients(loss, SCORES, y, NONE).values, atol=2e-6)
    assert np.array_equal(scores, before)


@pytest.mark.parametrize("loss", ["squared", "ovr_log"])
def test_sets_of_one_label_cost_what_classes_cost(loss):
    one = score_gradients(loss, SCORES, sets_of(np.eye(K)[CODES]), WEIGHT)
    same = score_gradients(loss, SCORES, CODES, WEIGHT)
    np.testing.assert_allclose(one.values, same.values, rtol=1e-12, atol=1e-15)
    assert one.loss_sum == pytest.approx(same.loss_sum, rel=1e-13)
    np.testing.assert_allclose(LOSSES[loss].gradient(SCORES, CODES) * WEIGHT[:, None], one.values, atol=1e-15)


def test_scores_far_out_do_not_overflow():
    far = np.array([[800.0, -800.0, 800.0]])
    found = score_gradients("ovr_log", far, sets_of(np.array([[1, 0, 0]])), NONE)
    assert found.loss_sum == 800.0
    assert found.values.tolist() == [[0.0, 0.0, 1.0]]


@pytest.mark.parametrize(("loss", "score"), [("squared", 0.5), ("ovr_log", 0.0)])
def test_a_score_at_the_threshold_predicts_nothing(loss, score):
    at, above = np.array([[score]]), np.array([[np.nextafter(score, 1)]])
    with_label, without = sets_of(np.array([[1]])), sets_of(np.array([[0]]))
    errors = [score_gradients(loss, z, y, NONE).errors for z in (at, above) for y in (with_label, without)]
    assert errors == [1, 0, 0, 1]


@pytest.mark.parametrize("loss", ["softmax", "ovr_log"])
def test_numbers_have_one_loss(loss):
    with pytest.raises(ValueError, match=f"^{loss} is no loss of numbers$"):
        score_gradients(loss, SCORES, NUMBERS, NONE)


def test_rows_without_labels():
    empty = sets_of(np.zeros((4, K)))
    assert not indicators(empty, K).any()
    assert score_gradients("squared", np.zeros((4, K)), empty, NONE).loss_sum == 0.0


@pytest.mark.parametrize("rows", [slice(0, N), slice(3, 17), slice(9, 9)])
def test_slices_of_every_kind(rows):
    assert np.array_equal(indicators(slice_rows(sets_of(WANTED), rows), K), WANTED[rows].astype(bool))
    assert np.array_equal(slice_rows(CODES, rows), CODES[rows])
    assert np.array_equal(slice_rows(NUMBERS, rows), NUMBERS[rows])
    assert np.array_equal(slice_rows(DenseRows(SCORES), rows).values, SCORES[rows])
    assert is_codes(slice_rows(CODES, rows))
    assert not is_codes(slice_rows(NUMBERS, rows))
    assert not is_codes(slice_rows(sets_of(WANTED), rows))


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_without_a_class_have_one_weight(weighted):
    own = WEIGHT.astype(np.float32) if weighted else None
    expected = 1.5 * (WEIGHT if weighted else np.ones(N))
    for y in (sets_of(WANTED), NUMBERS):
        part = Partition(DenseRows(SCORES), y, own)
        assert row_weights(part, np.array([1.5])).tolist() == expected.tolist()
        assert row_weights(part, None).tolist() == (WEIGHT.tolist() if weighted else [])
    by_class = row_weights(Partition(DenseRows(SCORES), CODES, own), np.array([1.0, 2.0, 4.0]))
    assert by_class.tolist() == (np.array([1.0, 2, 4])[CODES] * expected / 1.5).tolist()


@pytest.mark.fast_cases("1-multilabel-csr", "3-multilabel-csr", "3-continuous-dense")
@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("target", ["multilabel", "continuous"])
@pytest.mark.parametrize("folds", [1, 3])
def test_the_task_sums_every_kind(tmp_path, layout, target, folds):
    x, y = (rows_with_labels if target == "multilabel" else rows_with_numbers)(130, 5, 3)
    s = np.random.default_rng(0).integers(1, 4, len(y)).astype(np.float64)
    stored = sp.csr_matrix(x) if layout == "csr" else x
    data = write_targets(tmp_path / "t", stored, y, target, sample_weight=s)
    start = np.random.default_rng(1).standard_normal((5, 3)) / 9
    block = Block(Design(), start, np.array([0.25, 0.0, -1.0]))
    task = BlockTask(
        DatasetRef(str(data.path), data.fingerprint), "squared", Design(), 3, "float64", np.array([2.0]), folds=folds,
    )  # fmt: skip
    found = task((None, block), Lane(0, tuple(range(len(data)))))
    residual = x @ start + block.intercept - y
    weight = 2.0 * s
    total = found.folds[0]
    for other in found.folds[1:]:
        total.add(other)
    assert len(found.folds) == folds
    assert total.n_rows == 130
    np.testing.assert_allclose(total.cross, x.T @ (weight[:, None] * residual), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(total.slopes, weight @ residual, rtol=1e-10)
    np.testing.assert_allclose(total.squares, weight @ np.square(residual), rtol=1e-10)
    np.testing.assert_allclose(total.gram, packed((x.T * weight) @ x), rtol=1e-10, atol=1e-10)
    assert total.weight_sum == weight.sum()
    assert total.loss_sum == pytest.approx(0.5 * weight @ np.square(residual).sum(axis=1))
    wrong = ((residual + y > 0.5) != (y > 0.5)).any(axis=1).sum() if target == "multilabel" else 0
    assert total.errors == wrong
