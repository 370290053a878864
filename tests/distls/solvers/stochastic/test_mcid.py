"""MCID through the driver: the contract of all solvers, and the paper's own algorithm."""

import numpy as np
import pytest
from contract import SolverContract, StoredContract, visits
from helpers import labelled_rows, raised, refuses, write_dataset

from distls.execution.memory_budget import MIB, MemoryBudget
from distls.storage.errors import MemoryPlanError, MismatchError, ParameterError
from distls.training.fitting import fit
from distls.workers.runtime.rng import Purpose, rng
from reference import mcid as oracle


class TestSoftmax(StoredContract):
    method = "mcid"
    params = {"alpha": 1e-3}


@pytest.mark.slow
class TestHingeSmallRounds(SolverContract):
    """Rounds much smaller than a pass, an intercept, class weights and one weight in float64."""

    method = "mcid"
    params = {
        "loss": "hinge", "alpha": 1e-3, "lanes": 3, "round_bytes": 20_000, "fit_intercept": True,
        "class_weight": "balanced", "dtype": "float64", "batch_size": 3,
    }  # fmt: skip
    passes = 2


@pytest.mark.slow
class TestPerceptronOneLane(SolverContract):
    method = "mcid"
    params = {"loss": "perceptron", "lanes": 1, "average": "all"}


def _double(n_rows, n_features, n_classes):
    """Return rows in double precision, as their fits have weights: the kernels of tests/workers."""
    x, y = labelled_rows(n_rows, n_features, n_classes)
    return x.astype(np.float64), y


def _batches(dataset, passes, seed, size):
    """Return the steps of one lane."""
    return [rows[i : i + size] for rows in visits(dataset, passes, seed) for i in range(0, len(rows), size)]


@pytest.mark.fast_cases("1-softmax$")
@pytest.mark.parametrize("loss", ["softmax", "crammer_singer", "perceptron"])
@pytest.mark.parametrize("size", [1, 4])
def test_one_lane_is_the_papers_algorithm(tmp_path, loss, size):
    x, y = _double(330, 40, 4)
    dataset = write_dataset(tmp_path / "d", x, y)
    params = {
        "loss": loss, "alpha": 1e-2, "lanes": 1, "average": "none", "dtype": "float64", "batch_size": size,
        "fit_intercept": False,
    }  # fmt: skip
    model = fit("mcid", dataset, params=params, passes=3, seed=7, eval_every=0).model
    plain = oracle.train(x.toarray().astype(float), y, loss, 1e-2, _batches(dataset, 3, 7, size), w0=np.zeros((40, 4)))
    np.testing.assert_allclose(model.weights, plain.w, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_tail_is_the_mean_of_the_last_half_of_the_first_pass(tmp_path):
    x, y = labelled_rows(200, 40, 4)
    dataset = write_dataset(tmp_path / "d", x, y)
    params = {"loss": "softmax", "alpha": 1e-2, "lanes": 1, "dtype": "float64", "fit_intercept": False}
    model = fit("mcid", dataset, params=params, passes=1, eval_every=0).model
    plain = oracle.train(
        x.toarray().astype(float), y, "softmax", 1e-2, _batches(dataset, 1, 0, 1), w0=np.zeros((40, 4)),
        tail_from=100,
    )  # fmt: skip
    np.testing.assert_allclose(model.weights, plain.w_sum / 100, rtol=1e-9, atol=1e-9)


@pytest.mark.fast_cases("2")
@pytest.mark.parametrize("passes", [2, 3, 5, 6])
def test_tail_over_several_passes_is_the_mean_of_its_window(tmp_path, passes):
    x, y = _double(120, 40, 4)
    dataset = write_dataset(tmp_path / "d", x, y)
    params = {"loss": "softmax", "alpha": 1e-2, "lanes": 1, "dtype": "float64", "fit_intercept": False}
    model = fit("mcid", dataset, params=params, passes=passes, eval_every=0).model
    first = 2 ** (passes.bit_length() - 2) if passes & (passes - 1) else passes // 2
    plain = oracle.train(
        x.toarray().astype(float), y, "softmax", 1e-2, _batches(dataset, passes, 0, 1),
        w0=np.zeros((40, 4)), tail_from=120 * first,
    )  # fmt: skip
    np.testing.assert_allclose(model.weights, plain.w_sum / (120 * (passes - first)), rtol=1e-8, atol=1e-9)


def test_lanes_average_their_weights_by_rows(tmp_path):
    x, y = _double(250, 40, 4)
    dataset = write_dataset(tmp_path / "d", x, y)  # 100, 100 and 50 rows
    params = {
        "loss": "softmax", "alpha": 1e-2, "lanes": 3, "average": "none", "dtype": "float64", "t0": 5,
        "fit_intercept": False,
    }  # fmt: skip
    result = fit("mcid", dataset, params=params, passes=1, eval_every=0)
    parts = []
    for block, rows in enumerate([slice(0, 100), slice(100, 200), slice(200, 250)]):
        order = rng(0, Purpose.ROWS, 0, block).permutation(rows.stop - rows.start)
        steps = [np.array([i]) for i in order]
        dense = x[rows].toarray().astype(float)
        parts.append(oracle.train(dense, y[rows], "softmax", 1e-2, steps, w0=np.zeros((40, 4)), t0=5).w)
    mean = (100 * parts[0] + 100 * parts[1] + 50 * parts[2]) / 250
    np.testing.assert_allclose(result.model.weights, mean, rtol=1e-9, atol=1e-9)
    distance = sum(n * np.square(w - mean).sum() for n, w in zip((100, 100, 50), parts, strict=True)) / 250
    assert result.record["averaging"]["spread"] == pytest.approx(np.sqrt(distance) / np.linalg.norm(mean), rel=1e-9)


@pytest.mark.slow
def test_averaging_penalty_is_measured_on_the_sample(tmp_path):
    dataset = write_dataset(tmp_path / "d", *labelled_rows(250, 40, 4))
    result = fit("mcid", dataset, params={"alpha": 1e-2, "average": "none"}, passes=1)
    record = result.record
    # 250 rows: the sample is all of them, so the loss after averaging is the data term of the objective
    averaging = record["averaging"]
    assert averaging["loss_after"] < averaging["loss_before"]
    assert averaging["penalty"] == averaging["loss_after"] - averaging["loss_before"]
    penalty = 0.5 * 1e-2 * np.square(result.model.weights, dtype=float).sum()
    assert averaging["loss_after"] == pytest.approx(record["objective"] - penalty, rel=1e-6)


def test_certificate_bounds_the_distance_to_the_optimum(tmp_path):
    from sklearn.linear_model import LogisticRegression

    x, y = _double(400, 30, 3)
    dataset = write_dataset(tmp_path / "d", x, y)
    record = fit("mcid", dataset, params={"alpha": 1e-2, "dtype": "float64", "fit_intercept": False}, passes=30).record
    best = LogisticRegression(C=1 / (1e-2 * 400), fit_intercept=False, tol=1e-10, max_iter=5000).fit(x, y).coef_.T
    scores = x @ best
    loss = np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(400), y])
    optimum = loss + 0.5 * 1e-2 * np.square(best).sum()
    gap = record["objective"] - optimum
    assert record["certificate"]["kind"] == "strong_convexity"
    assert 0 < gap <= record["certificate"]["value"] < 0.05


def test_tol_stops_at_the_certificate(tmp_path):
    dataset = write_dataset(tmp_path / "d", *labelled_rows(400, 30, 3))
    result = fit("mcid", dataset, params={"alpha": 1e-2}, tol=5e-3, passes=200)
    assert result.status == "CONVERGED"
    assert result.record["certificate"]["value"] <= 5e-3
    assert result.passes < 200


def test_warm_start_goes_on_from_the_model(tmp_path):
    dataset = write_dataset(tmp_path / "d", *labelled_rows(400, 30, 3))
    first = fit("mcid", dataset, tmp_path / "first", params={"alpha": 1e-2}, passes=10)
    cold = fit("mcid", dataset, params={"alpha": 1e-2, "average": "none"}, passes=1)
    params = {"alpha": 1e-2, "average": "none", "init": str(tmp_path / "first")}
    warm = fit("mcid", dataset, params=params, passes=1)
    assert warm.record["running_loss"] < cold.record["running_loss"]
    assert first.record["objective"] <= warm.record["objective"] < cold.record["objective"]


@pytest.mark.slow
def test_divergence_is_a_status_and_publishes_nothing(tmp_path):
    x, y = labelled_rows(200, 30, 3)
    x = (x * np.float32(1e30)).tocsr()
    dataset = write_dataset(tmp_path / "d", x, y)
    result = fit("mcid", dataset, tmp_path / "run", params={"loss": "perceptron", "alpha": 1e-8}, passes=5)
    assert result.status == "DIVERGED"
    assert result.model is None
    assert not (tmp_path / "run" / "model").exists()


def test_what_is_refused_before_reading(tmp_path):
    dataset = write_dataset(tmp_path / "d", *labelled_rows(200, 30, 3))
    cases = [
        ({"alpha": 0}, ParameterError, "mcid: alpha=0: must be greater than 0, or path"),
        ({"alpha": -1}, ParameterError, "must be greater than 0"),
        ({"alpha": float("nan")}, ParameterError, "expected a number"),
        ({"los": "hinge"}, ParameterError, "mcid has no parameter 'los'; did you mean 'loss'?"),
        ({"loss": "square"}, ParameterError, "expected one of softmax, crammer_singer, perceptron, log, hinge"),
        ({"lanes": 3}, ParameterError, "lanes=3: the data set has only 2 partitions"),
        ({"class_weight": {"9": 1}}, ParameterError, "class_weight: '9' is not a class"),
        ({"class_weight": '{"a":' * 9999 + "1" + "}" * 9999}, ParameterError, "expected balanced, or weights"),
        ({"batch_size": 1.5}, ParameterError, "expected a whole number"),
    ]  # fmt: skip
    for params, error, message in cases:
        assert message in raised(error, fit, "mcid", dataset, params=params)


def test_one_class_and_no_labels_are_refused(tmp_path):
    x, _ = labelled_rows(50, 30, 3)
    single = write_dataset(tmp_path / "one", x, np.zeros(50, np.int32), n_classes=2)
    refuses(MismatchError, "only one class", fit, "mcid", single)
    refuses(MismatchError, "no labels", fit, "mcid", write_dataset(tmp_path / "none", x, None))


def test_a_limit_that_cannot_hold_is_refused_with_numbers_and_remedy(tmp_path):
    dataset = write_dataset(tmp_path / "d", *labelled_rows(200, 30, 3))
    with pytest.raises(MemoryPlanError, match=r"a worker needs .* MiB .* allow at least --memory-limit \d+MiB"):
        fit("mcid", dataset, memory=MemoryBudget(100 * MIB))
