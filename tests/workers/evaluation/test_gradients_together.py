"""Gradients of models side by side: each has the bits that it has alone."""

import numpy as np
import pytest
from helpers import as_rows, stored_rows

from distls.storage.dataset.dataset import Fold
from distls.workers.evaluation import loss_sums, score_task
from distls.workers.evaluation.loss_sums import add_gradient, add_gradients
from distls.workers.evaluation.score_task import GradientTask, joint_gradient_bytes
from distls.workers.linear_algebra.row_vectors import most_paired
from distls.workers.losses.loss_registry import loss_named
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.rounds.lanes import Lane
from distls.workers.rounds.task import ReadTogether

N, D, M = 150, 37, 10
NONE = np.empty(0)


def _rows(layout, dtype, rng, d=D):
    x = rng.standard_normal((N, d)) * (rng.random((N, d)) < 15 / d)
    x[[3, 40]] = 0
    return as_rows(x, layout, dtype, np.uint32)


def _assert_each_alone(layout, dtype, k, loss, weighted, models=M, d=D):
    rng = np.random.default_rng([k, models])
    rows, y = _rows(layout, dtype, rng, d), rng.integers(0, k, N).astype(np.int32)
    weight = rng.random(N) * (rng.random(N) < 0.9) if weighted else NONE
    w, b = rng.standard_normal((models, d, k)).astype(dtype), rng.standard_normal((models, k))
    grad, grad_b = np.zeros((d, models * k)), np.zeros((models, k))
    loss, wide = loss_named(loss), np.concatenate(list(w), axis=1)
    found = add_gradients(rows, y, weight, loss, wide, b, grad, grad_b)
    for m in range(models):
        own, own_b = np.zeros((d, k)), np.zeros(k)
        assert add_gradient(rows, y, weight, loss, w[m], b[m], own, own_b) == found[m]
        assert np.array_equal(own, grad[:, m * k : (m + 1) * k])
        assert np.array_equal(own_b, grad_b[m])


@pytest.mark.fast_cases("float32-2$")
@pytest.mark.parametrize(
    ("dtype", "k"),
    [(dtype, k) for dtype in ("float32", "float64") for k in (2, 3, 4, 5, 8, 9, 15, 16) if k <= most_paired(dtype)],
)
def test_each_model_has_its_own_bits(dtype, k):
    _assert_each_alone("csr", dtype, k, "softmax", weighted=True)


@pytest.mark.fast_cases("dense-softmax-True$")
@pytest.mark.parametrize(
    ("layout", "loss", "weighted"),
    [("dense", "softmax", True), ("csr", "crammer_singer", True), ("csr", "ovr_hinge", False)],
)
def test_other_rows_and_losses(layout, loss, weighted):
    _assert_each_alone(layout, "float32", 4, loss, weighted)


@pytest.mark.fast_cases("softmax")
@pytest.mark.parametrize("loss", ["softmax", "crammer_singer"])
def test_more_features_than_values_in_a_batch(monkeypatch, loss):
    by_row = []
    real = loss_sums._add_by_row
    monkeypatch.setattr(loss_sums, "_add_by_row", lambda *given: by_row.append(given) or real(*given))
    _assert_each_alone("csr", "float32", 4, loss, weighted=True, d=5000)
    assert len(by_row) == 1
    _assert_each_alone("csr", "float32", 4, loss, weighted=True)
    assert len(by_row) == 1


def test_batches_of_few_rows(monkeypatch):
    monkeypatch.setattr(loss_sums, "_BATCH_BYTES", 1)
    _assert_each_alone("dense", "float32", 4, "softmax", weighted=True)
    _assert_each_alone("csr", "float32", 4, "crammer_singer", weighted=True)


dataset = stored_rows(450, 60, 4)


def _summed_together(jobs, predictors, lane):
    items = tuple((number, lane) for number in range(len(jobs)))
    return ReadTogether(tuple(jobs))(tuple(predictors), items)


def test_fits_share_a_traversal_only_where_they_see_the_same(dataset, monkeypatch):
    rng, meta = np.random.default_rng(2), dataset.meta
    shape, lane = (meta.n_features, len(meta.classes)), Lane(0, tuple(range(len(dataset))))
    data = DatasetRef(str(dataset.path), dataset.fingerprint)
    by_class = rng.random(shape[1])
    jobs = [
        GradientTask(data, loss, weights, True)
        for loss in ("softmax", "crammer_singer")
        for weights in (None, by_class)
    ] * 2
    jobs += [
        GradientTask(
            DatasetRef(str(dataset.path), dataset.fingerprint, fold=Fold(1, 3, alone=False)), "softmax", None, True,
        )
    ] * 2  # fmt: skip
    predictors = [
        LinearPredictor(rng.standard_normal(shape).astype("float32"), rng.standard_normal(shape[1])) for _ in jobs
    ]
    models = []
    real = score_task.add_gradients
    monkeypatch.setattr(score_task, "add_gradients", lambda *args: models.append(len(args[5])) or real(*args))
    for job, predictor, total in zip(jobs, predictors, _summed_together(jobs, predictors, lane), strict=True):
        alone = job(predictor, lane)
        assert np.array_equal(alone.gradient, total.gradient)
        assert np.array_equal(alone.intercept_gradient, total.intercept_gradient)
        assert (alone.loss_sum, alone.weight_sum) == (total.loss_sum, total.weight_sum)
        total.ledger.check_cover(range(len(dataset)), meta.n_rows)
    assert models == [2] * 5 * len(dataset)


def test_results_are_merged_as_usual(dataset):
    shape = (dataset.meta.n_features, len(dataset.meta.classes))
    data, half = DatasetRef(str(dataset.path), dataset.fingerprint), len(dataset) // 2
    job = GradientTask(data, "softmax", None, True)
    predictors = [LinearPredictor(np.full(shape, 0.1 * m, "float32"), np.zeros(shape[1])) for m in range(3)]
    lanes = Lane(0, tuple(range(half))), Lane(1, tuple(range(half, len(dataset))))
    first, second = (_summed_together([job] * 3, predictors, lane) for lane in lanes)
    for left, right, predictor in zip(first, second, predictors, strict=True):
        alone = [job(predictor, lane) for lane in lanes]
        merged, expected = job.merge(left, right), job.merge(*alone)
        assert np.array_equal(merged.gradient, expected.gradient)


def test_bytes_of_weights_and_gradients():
    predictors = [LinearPredictor(np.zeros((D, 3), "float32"), np.zeros(3))] * M
    held = score_task._GradientsTogether(loss_named("softmax"), predictors)
    arrays = held._weights.nbytes + held._gradient.nbytes
    assert joint_gradient_bytes((D, 3), np.dtype("float32"), M) == arrays + 4 * D
    for shape, models in (((D, 1), M), ((D, 17), M), ((D, 3), 1)):
        assert joint_gradient_bytes(shape, np.dtype("float32"), models) == 0
