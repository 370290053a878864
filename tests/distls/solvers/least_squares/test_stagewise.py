"""Stagewise regression through the driver: the contract, the paper's algorithm, and predictions that are lost."""

import os
import signal

import numpy as np
import pytest
from contract import Rounds, SolverContract, StoredContract
from helpers import labelled_rows, raised, write_dataset

from distls.execution.dask.local_cluster import start_local
from distls.execution.memory_budget import MIB, MemoryBudget
from distls.planning.fit_plan import plan_fit
from distls.solvers.least_squares.stagewise_state import block_of
from distls.storage.errors import MemoryPlanError, ParameterError
from distls.storage.rows import DenseRows
from distls.testing.solvers import StopAfter, interrupted
from distls.training.fitting import fit, resume
from distls.workers.features.design import PIECE_ROWS
from distls.workers.least_squares.block_task import predict_block
from distls.workers.runtime.rng import Purpose, rng
from reference import stagewise as oracle

FOURIER = {"features": "fourier", "bandwidth": 2.0}


class DenseContract(StoredContract):
    """Random features need dense rows."""

    dense = True


class TestLinear(SolverContract):
    method = "stagewise"
    params = {"block_size": 13, "stages": 7, "alpha": 1e-2}
    passes = None


@pytest.mark.slow
class TestCalibratedModels(DenseContract):
    """Two models on disjoint features, class weights, three lanes."""

    method = "stagewise"
    params = {
        **FOURIER, "inner": "calibrated", "block_size": 16, "stages": 3, "models": 2, "lanes": 3,
        "class_weight": "balanced",
    }  # fmt: skip
    passes = None


@pytest.mark.slow
class TestMasksAndPolynomials(DenseContract):
    """Convolutional features, and polynomials of them beside, in two models."""

    method = "stagewise"
    params = {
        "features": "random-masks", "image": "5x4x3", "mask_side": 2, "pool": 1, "expand": 6, "inner": "calibrated",
        "block_size": 14, "stages": 2, "models": 2,
    }  # fmt: skip
    passes = None


@pytest.mark.slow
class TestLogistic(DenseContract):
    method = "stagewise"
    params = {
        "inner": "logistic", "block_size": 20, "inner_rounds": 2, "accelerate": "nesterov", "dtype": "float64",
        "fit_intercept": False,
    }  # fmt: skip
    passes = None


def _weights_of(n_rows):
    return (np.random.default_rng(5).integers(1, 5, n_rows) / 2).astype(np.float32)


def _written(path, kind, weighted=False):
    """Return a data set, its rows as an array and the indicators of their classes."""
    x, y = labelled_rows(330, 40, 4)
    weight = _weights_of(330) if weighted else None
    rows = x if kind == "csr" else x.toarray()
    return write_dataset(path, rows, y, sample_weight=weight), x.toarray().astype(float), np.eye(4)[y]


def _random_columns(n_features, size, stages, seed=0):
    """Return the columns of each stage: the documented order, a new one in each pass."""
    columns = []
    while len(columns) < stages:
        order = rng(seed, Purpose.COLUMNS, len(columns) // -(-n_features // size)).permutation(n_features)
        columns += [np.sort(order[first : first + size]) for first in range(0, n_features, size)]
    return columns[:stages]


def _expected(inner, features, y, alpha, **options):
    if inner == "logistic":
        return oracle.logistic(features, y, alpha, **options)
    options.pop("rounds"), options.pop("accelerate")
    return oracle.linear(features, y, alpha, calibrated=inner == "calibrated", **options)


@pytest.mark.fast_cases("True-csr-linear$")
@pytest.mark.parametrize("inner", ["linear", "calibrated", "logistic", "accelerated"])
@pytest.mark.parametrize("kind", ["csr", "dense", "fourier"])
@pytest.mark.parametrize("intercept", [True, False])
def test_every_stage_is_the_papers(tmp_path, inner, kind, intercept):
    dataset, x, y = _written(tmp_path / "d", kind, weighted=True)
    s = _weights_of(330).astype(float)
    columns = _random_columns(40, 12, 6, seed=3)
    features = [x[:, c] for c in columns]
    params = {"inner": inner, "block_size": 12, "stages": 6, "alpha": 1e-3, "dtype": "float64"}
    if kind == "fourier":
        params |= FOURIER
        features = [oracle.fourier(x, 3, t, 12, 2.0) for t in range(6)]
    if inner in ("logistic", "accelerated"):
        params |= {"inner": "logistic", "inner_rounds": 4}
        params["accelerate"] = "nesterov" if inner == "accelerated" else "none"
    watch = Rounds()
    params["fit_intercept"] = intercept
    result = fit("stagewise", dataset, params=params, seed=3, callbacks=[watch])
    options = {"s": s, "intercept": intercept, "rounds": 4, "accelerate": inner == "accelerated"}
    stages = _expected(params["inner"], features, y, 1e-3, **options)
    ended = watch.states[-1]
    assert (result.status, ended.stage) == ("CONVERGED", 6)
    for number, stage in enumerate(stages):
        block = block_of(ended, number)
        width = features[number].shape[1]
        np.testing.assert_allclose(block.weights[:width], stage.weights, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(block.intercept, stage.intercept, rtol=1e-8, atol=1e-10)
        if inner == "calibrated":
            np.testing.assert_allclose(block.weights[width:], stage.calibration, rtol=1e-8, atol=1e-9)
    scores = (np.hstack(features) if kind == "fourier" else x) @ result.model.weights + result.model.intercept
    np.testing.assert_allclose(scores, stages[-1].after, rtol=1e-8, atol=1e-10)


@pytest.mark.fast_cases("linear")
@pytest.mark.parametrize("inner", ["linear", "calibrated", "logistic"])
def test_plain_model_is_the_replayed_predictions(tmp_path, inner):
    dataset, x, _ = _written(tmp_path / "d", "dense")
    watch = Rounds()
    params = {"inner": inner, "block_size": 16, "stages": 5, "dtype": "float64"}
    params |= {"inner_rounds": 3} if inner == "logistic" else {}
    model = fit("stagewise", dataset, params=params, callbacks=[watch], eval_every=0).model
    values = np.zeros((330, 4))
    for stage in range(5):
        values = predict_block(block_of(watch.states[-1], stage), DenseRows(x), values, 40)
    assert model.recipe == {}
    np.testing.assert_allclose(x @ model.weights + model.intercept, values, rtol=1e-10, atol=1e-12)


def test_residuals_only_become_smaller_down_to_the_last_stage(tmp_path):
    dataset, x, y = _written(tmp_path / "d", "dense")
    losses = []
    for passes in (1, 2, 5, 10):
        params = {**FOURIER, "block_size": 8, "stages": 10, "alpha": 1e-4, "dtype": "float64"}
        result = fit("stagewise", dataset, params=params, passes=passes)
        features = np.hstack([oracle.fourier(x, 0, t, 8, 2.0) for t in range(passes)])
        residual = y - features @ result.model.weights - result.model.intercept
        assert result.record["objective"] == pytest.approx(0.5 * (residual**2).sum(axis=1).mean(), rel=1e-9)
        assert result.record["objective"] < result.record["running_loss"]
        losses.append(result.record["objective"])
        assert result.status == ("CONVERGED" if passes == 10 else "MAX_PASSES")
    assert sorted(losses, reverse=True) == losses


@pytest.mark.slow
def test_gradient_order_is_made_anew_for_each_pass(tmp_path):
    dataset, x, y = _written(tmp_path / "d", "csr")
    watch = Rounds()
    params = {"order": "gradient", "block_size": 15, "stages": 6, "alpha": 1e-2, "dtype": "float64"}
    result = fit("stagewise", dataset, params=params, callbacks=[watch])
    before, features = np.zeros_like(y), []
    for _ in range(2):
        order = np.argsort(-np.linalg.norm(x.T @ (before - y), axis=1), kind="stable")
        features += [x[:, np.sort(order[first : first + 15])] for first in (0, 15, 30)]
        stages = oracle.linear(features, y, 1e-2, s=np.ones(330), intercept=True)
        before = stages[-1].after
    assert result.passes == 8  # two of them for the orders
    np.testing.assert_allclose(x @ result.model.weights + result.model.intercept, before, rtol=1e-9, atol=1e-11)
    first, second = (set(watch.states[-1].columns[start : start + 15]) for start in (0, 40))
    assert first != second


@pytest.mark.fast_cases("linear")
@pytest.mark.parametrize("inner", ["linear", "calibrated", "logistic"])
def test_block_gradient_ranks_all_features_before_each_block(tmp_path, inner):
    dataset, x, y = _written(tmp_path / "d", "csr")
    watch = Rounds()
    params = {"inner": inner, "order": "block-gradient", "block_size": 15, "stages": 5, "alpha": 1e-2}
    params |= {"inner_rounds": 3} if inner == "logistic" else {}
    result = fit("stagewise", dataset, params={**params, "dtype": "float64"}, callbacks=[watch])
    options = {"s": np.ones(330), "intercept": True, "rounds": 3, "accelerate": False}
    before, blocks = np.zeros_like(y), []
    for _ in range(5):
        residual = (oracle.softmax(before) if inner == "logistic" else before) - y
        blocks.append(np.sort(np.argsort(-np.linalg.norm(x.T @ residual, axis=1), kind="stable")[:15]))
        features = [x[:, block] for block in blocks]
        before = _expected(inner, features, y, 1e-2, **dict(options))[-1].after
    np.testing.assert_array_equal(watch.states[-1].columns, np.concatenate(blocks))
    assert len(np.unique(blocks)) < 75  # some are chosen again
    scores = x @ result.model.weights + result.model.intercept
    np.testing.assert_allclose(scores, before, rtol=1e-8, atol=1e-10)


@pytest.mark.fast_cases("params0")
@pytest.mark.parametrize(
    "params",
    [
        {"order": "frequency", "block_size": 15, "stages": 4},
        {"order": "block-gradient", "inner": "logistic", "inner_rounds": 2, "block_size": 15, "stages": 2},
        {"order": "gradient", "inner": "logistic", "inner_rounds": 2, "block_size": 15, "stages": 4},
        {**FOURIER, "pca": 5, "block_size": 8, "stages": 2, "models": 2},
    ],
)
def test_plan_says_how_many_passes_there_are(tmp_path, params):
    dataset, _, _ = _written(tmp_path / "d", "dense")
    result = fit("stagewise", dataset, params=params, eval_every=0)
    assert plan_fit("stagewise", dataset.path, params, probe=False).passes == result.passes
    assert plan_fit("stagewise", dataset.path, params, probe=False, passes=2).passes == 2


@pytest.mark.slow
def test_models_are_averaged_over_disjoint_features(tmp_path):
    dataset, x, y = _written(tmp_path / "d", "dense")
    params = {**FOURIER, "inner": "calibrated", "block_size": 9, "stages": 3, "models": 2, "dtype": "float64"}
    features = [oracle.fourier(x, 0, t, 9, 2.0) for t in range(6)]
    options = {"s": np.ones(330), "intercept": True, "calibrated": True}
    one = oracle.linear(features[:3], y, 1e-3, **options)[-1].after
    two = oracle.linear(features[3:], y, 1e-3, **options)[-1].after
    both = fit("stagewise", dataset, params=params).model
    np.testing.assert_allclose(
        np.hstack(features) @ both.weights + both.intercept, (one + two) / 2, rtol=1e-9, atol=1e-10
    )
    # a model under way counts once it is complete
    half = fit("stagewise", dataset, params=params, passes=5).model
    np.testing.assert_allclose(np.hstack(features[:3]) @ half.weights + half.intercept, one, rtol=1e-9, atol=1e-10)


def test_targets_that_are_numbers(tmp_path, small_dense):
    written = small_dense(rows=(50, 70, 40), n_features=6, target="continuous", dtype="float64")
    x = np.concatenate([part.x.values for part in written.partitions])
    y = np.concatenate([part.y for part in written.partitions])
    params = {"block_size": 4, "stages": 3, "dtype": "float64", "inner": "calibrated"}
    model = fit("stagewise", written.dataset, params=params).model
    features = [x[:, c] for c in _random_columns(6, 4, 3)]
    stages = oracle.linear(features, y, 1e-3, s=np.ones(160), intercept=True, calibrated=True)
    np.testing.assert_allclose(x @ model.weights + model.intercept, stages[-1].after, rtol=1e-8, atol=1e-10)


def test_one_block_of_all_columns_is_ridge_regression(tmp_path):
    from sklearn.linear_model import Ridge

    dataset, x, y = _written(tmp_path / "d", "csr")
    model = fit("stagewise", dataset, params={"alpha": 1e-2, "dtype": "float64"}).model
    best = Ridge(alpha=1e-2 * 330, solver="cholesky").fit(x, y)
    np.testing.assert_allclose(model.weights, best.coef_.T, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(model.intercept, best.intercept_, rtol=1e-8, atol=1e-10)


@pytest.mark.fast_cases("linear")
@pytest.mark.parametrize("inner", ["linear", "calibrated", "logistic"])
def test_singular_blocks_without_a_ridge(tmp_path, inner):
    """Copied, constant and empty columns, and predictions that add up to one: a least-squares solution still."""
    x, y = labelled_rows(300, 20, 3)
    wide = np.hstack([x.toarray(), x.toarray()[:, :5], np.ones((300, 2)), np.zeros((300, 3))]).astype(float)
    dataset = write_dataset(tmp_path / "d", wide, y)
    params = {"inner": inner, "alpha": 0, "block_size": 30, "stages": 2, "dtype": "float64"}
    params |= {"inner_rounds": 300, "accelerate": "nesterov"} if inner == "logistic" else {}
    record = fit("stagewise", dataset, params=params).record
    if inner == "logistic":
        assert record["certificate"]["value"] < 1e-4
        return
    z = np.hstack([wide, np.ones((300, 1))])
    best = z @ np.linalg.lstsq(z, np.eye(3)[y], rcond=None)[0]
    assert record["objective"] == pytest.approx(0.5 * ((best - np.eye(3)[y]) ** 2).sum(axis=1).mean(), rel=1e-9)


SETTINGS = {
    "original": {"block_size": 13, "stages": 5},
    "models": {**FOURIER, "inner": "calibrated", "block_size": 8, "stages": 3, "models": 2},
    "logistic": {**FOURIER, "inner": "logistic", "block_size": 8, "stages": 3, "inner_rounds": 2},
    "gradient": {"order": "gradient", "inner": "calibrated", "block_size": 20, "stages": 4},
    "block-gradient": {"order": "block-gradient", "block_size": 20, "stages": 3},
}


def _files(run):
    return sorted((run / "state").glob("*.npy"))


def _delete_all(run):
    for path in _files(run):
        path.unlink()


def _damage_one(run):
    for path in _files(run)[:2]:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(bytes(content))


def _cut_one(run):
    for path in _files(run)[-2:]:
        path.write_bytes(path.read_bytes()[:3])


@pytest.mark.fast_cases("_delete_all-original$")
@pytest.mark.parametrize("setting", list(SETTINGS))
@pytest.mark.parametrize("harm", [_delete_all, _damage_one, _cut_one])
def test_lost_predictions_are_made_anew(tmp_path, setting, harm):
    dataset, _, _ = _written(tmp_path / "d", "dense")
    undisturbed = fit("stagewise", dataset, params=SETTINGS[setting], eval_every=0).model.sha256
    run = tmp_path / "run"
    watch = Rounds(lambda _: harm(run))
    assert fit("stagewise", dataset, run, params=SETTINGS[setting], callbacks=[watch]).model.sha256 == undisturbed
    assert not (run / "state").exists()


@pytest.mark.fast_cases("original")
@pytest.mark.parametrize("setting", list(SETTINGS))
def test_replayed_predictions_are_the_lost_ones(tmp_path, setting):
    dataset, _, _ = _written(tmp_path / "d", "dense")
    run = tmp_path / "run"
    seen = {}
    again = 0

    def compare_then_lose(_):
        nonlocal again
        for path in _files(run):
            content = path.read_bytes()
            again += path in seen
            assert seen.setdefault(path, content) == content
            # the next round asks for it, and replays
            path.unlink()

    fit("stagewise", dataset, run, params=SETTINGS[setting], callbacks=[Rounds(compare_then_lose)])
    assert again > 0


@pytest.mark.fast_cases("original")
@pytest.mark.parametrize("setting", list(SETTINGS))
def test_resumed_from_an_older_checkpoint(tmp_path, setting):
    dataset, _, _ = _written(tmp_path / "d", "dense")
    undisturbed = fit("stagewise", dataset, params=SETTINGS[setting], eval_every=0).model.sha256
    run = tmp_path / "run"
    old = {}

    def keep(event):
        # the checkpoint of a round is seen in the next
        if event.state.round == 3:
            (checkpoint,) = (run / "checkpoints").glob("round-000002")
            old["kept"] = checkpoint.rename(tmp_path / checkpoint.name)

    callbacks = [Rounds(keep), StopAfter(5)]
    with interrupted():
        fit("stagewise", dataset, run, params=SETTINGS[setting], callbacks=callbacks, checkpoint_seconds=0.0)
    for checkpoint in (run / "checkpoints").iterdir():
        checkpoint.rename(tmp_path / f"new-{checkpoint.name}")
    old["kept"].rename(run / "checkpoints" / "round-000002")
    assert resume(run).model.sha256 == undisturbed


@pytest.mark.slow
def test_killed_worker_changes_nothing(tmp_path):
    dataset, _, _ = _written(tmp_path / "d", "dense")
    params = {**SETTINGS["models"], "stages": 6}
    undisturbed = fit("stagewise", dataset, params=params, eval_every=0).model.sha256
    executor = start_local(2, 1)

    def kill(event):
        if event.state.round == 3:
            os.kill(sorted(executor.client.run(os.getpid).values())[0], signal.SIGKILL)

    try:
        budget = MemoryBudget(2048 * MIB, 2)
        result = fit("stagewise", dataset, params=params, callbacks=[Rounds(kill)], executor=executor, memory=budget)
    finally:
        executor.close()
    assert result.model.sha256 == undisturbed


def test_limit_before_any_block_is_a_model_of_nothing(tmp_path):
    dataset, _, _ = _written(tmp_path / "d", "csr")
    result = fit("stagewise", dataset, params={"order": "gradient"}, passes=1)
    assert result.status == "MAX_PASSES"
    assert not result.model.weights.any()
    assert result.model.n_features == 40


def test_what_is_refused_before_reading(tmp_path):
    dataset, _, _ = _written(tmp_path / "d", "csr")
    links = "logistic or logit or probit or cauchit or poisson"
    cases = [
        ({"order": "gradient", **FOURIER}, "order=gradient: used with features=original only; leave it out"),
        ({"models": 2}, "models=2: used with random features only; leave it out"),
        ({"inner_rounds": 5}, f"inner_rounds=5: used with inner={links} or cls only; leave it out"),
        ({"accelerate": "none"}, f"accelerate=none: used with inner={links} only; leave it out"),
        ({"pca": 3}, "pca=3: used with features=fourier|logits|polynomials only; leave it out"),
        ({**FOURIER, "pca": 41}, "pca=41: rows have only 40 features"),
        ({"alpha": -1}, "stagewise: alpha=-1: expected a number from 0 to inf"),
        ({"block_size": 0}, "stagewise: block_size=0: expected a whole number of at least 1"),
        ({"bandwidth": 0}, "stagewise: bandwidth=0: must be greater than 0, or median"),
        (
            {"inner": "least"},
            "stagewise: inner=least: expected one of logistic, logit, linear, calibrated, cls, probit, cauchit, "
            "poisson",
        ),
        ({"lanes": 9}, "lanes=9: the data set has only 4 partitions; ingest it with a smaller --partition-size"),
    ]  # fmt: skip
    for params, message in cases:
        assert raised(ParameterError, fit, "stagewise", dataset, params=params) == message


def test_plan_counts_the_block_and_its_features(tmp_path):
    dataset, _, _ = _written(tmp_path / "d", "dense")
    parts = {
        size: plan_fit("stagewise", dataset.path, {**FOURIER, "block_size": size}, probe=size == 64).worker_parts
        for size in (64, 1024)
    }
    assert parts[1024]["weights"] - parts[64]["weights"] >= 2 * 4 * (1024**2 - 64**2)
    assert parts[1024]["work"] - parts[64]["work"] >= 4 * (PIECE_ROWS * 960 + 1024**2 - 64**2)
    assert plan_fit("stagewise", dataset.path, {"order": "gradient", "block_size": 9}, probe=False).passes == 6
    with pytest.raises(MemoryPlanError, match=r"a worker needs .* allow at least --memory-limit \d+MiB"):
        fit("stagewise", dataset, params={**FOURIER, "block_size": 10_000}, memory=MemoryBudget(1024 * MIB))
