"""The reliability curve against plain NumPy, however the rows are divided."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import labelled_rows, write_dataset

from distls.evaluation.scores import reference
from distls.workers.evaluation.reliability_task import ReliabilityJob, merge_reliability, reliability_lane
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.lanes import Lane


@pytest.mark.parametrize("lanes", [((0, 1, 2),), ((0,), (2, 1))])
def test_counts_accuracy_and_probability_of_each_bin(
    tmp_path: Path, lanes: tuple[tuple[int, ...], ...]
) -> None:
    x, y = labelled_rows(300, 30, 3)
    data = write_dataset(tmp_path / "d", x, y)
    weights = np.random.default_rng(0).normal(size=(30, 2)) * 3
    # the model knows two of the three classes of the data, in another order
    codes = np.array([1, -1, 0], np.int32)
    predictor = LinearPredictor(weights, np.array([0.1, -0.1]))
    job = ReliabilityJob(reference(data), "softmax", codes, 5)
    parts = [reliability_lane(job, predictor, Lane(i, blocks)) for i, blocks in enumerate(lanes)]
    total = parts[0] if len(parts) == 1 else merge_reliability(*parts)

    scores = x @ predictor.coefficients + predictor.intercept
    given = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    best, right = given.max(axis=1), given.argmax(axis=1) == codes[y]
    bins = (best * 5).astype(int)
    assert total.counts.tolist() == np.bincount(bins, minlength=5).tolist()
    assert total.right.tolist() == np.bincount(bins[right], minlength=5).tolist()
    np.testing.assert_allclose(total.probability, np.bincount(bins, weights=best, minlength=5), rtol=1e-5)
    assert total.ledger.n_rows == 300


def test_a_certain_prediction_is_in_the_last_bin(tmp_path: Path) -> None:
    data = write_dataset(tmp_path / "d", np.array([[1.0], [-1.0]]), np.array([0, 1], np.int32))
    predictor = LinearPredictor(np.array([[500.0, -500.0]]), np.zeros(2))
    job = ReliabilityJob(reference(data), "softmax", np.array([0, 1], np.int32), 10)
    total = reliability_lane(job, predictor, Lane(0, (0,)))
    assert (total.counts[-1], total.right[-1], total.probability[-1]) == (2, 2, 2.0)
