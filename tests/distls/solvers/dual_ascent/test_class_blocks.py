"""One-versus-rest by blocks of classes: the optimum, the same bits in any blocks, an interrupt."""

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import labelled_rows, printed, write_dataset
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from target_helpers import write_targets

from distls.evaluation.evaluate import evaluate
from distls.execution import ClusterOptions, open_executor
from distls.execution.memory_budget import MIB, MemoryBudget, parse_bytes
from distls.planning.fit_plan import plan_fit
from distls.prediction.predict import predict
from distls.serving.fitted_model import load_model
from distls.solvers.status import Status
from distls.storage.errors import MemoryPlanError, ParameterError
from distls.storage.model import sparse_blocks
from distls.storage.model.sparse_blocks import ClassBlocks
from distls.testing.solvers import StopAfter, interrupted
from distls.training.fitting import fit, resume

K, D, ALPHA = 21, 60, 1e-2
EXACT = {"alpha": ALPHA, "dtype": "float64", "class_tol": 1e-9, "sweeps": 3000}


@pytest.fixture(scope="module")
def rows():
    return labelled_rows(300, D, K)


@pytest.fixture(scope="module")
def data(tmp_path_factory, rows):
    return write_dataset(tmp_path_factory.mktemp("class_blocks") / "train", *rows, partition_rows=70)


@pytest.fixture(scope="module")
def run(tmp_path_factory, data):
    """A run whose blocks are smaller than a vector."""
    path = tmp_path_factory.mktemp("class_blocks") / "run"
    fit("ovr-sdca", data, path, params={"alpha": ALPHA, "class_block": 6, "prune": 0.02})
    return path


def independent(loss, c):
    given = {"C": c, "tol": 1e-7, "intercept_scaling": 1.0, "max_iter": 10**5}
    if loss == "log":
        return LogisticRegression(solver="liblinear", **given)
    return LinearSVC(loss=loss, dual=True, random_state=0, **given)


@pytest.mark.slow_cases("(hinge|log)$")
@pytest.mark.parametrize("loss", ["squared_hinge", "hinge", "log"])
def test_each_class_is_at_its_own_optimum(rows, data, loss):
    x, y = rows
    found = fit("ovr-sdca", data, params={**EXACT, "loss": loss})
    weights = np.asarray(found.model.weights)
    # LIBLINEAR's squared hinge has no factor one half
    c = 1 / (ALPHA * len(y)) / (2 if loss == "squared_hinge" else 1)
    for code in (0, 7, K - 1):
        other = independent(loss, c).fit(x, y == code)
        np.testing.assert_allclose(weights[:, code], other.coef_[0], atol=2e-4)
        np.testing.assert_allclose(found.model.intercept[code], other.intercept_[0], atol=2e-4)


def objective_of(model, x, y):
    """Sum over classes of the mean squared hinge and its penalty, the intercept's included."""
    w, b = np.asarray(model.weights, np.float64), model.intercept.astype(np.float64)
    signs = np.where(y[:, None] == np.arange(K), 1.0, -1.0)
    losses = 0.5 * np.maximum(1 - signs * (x @ w + b), 0) ** 2
    return losses.mean(axis=0).sum() + ALPHA / 2 * (np.square(w).sum() + np.square(b).sum())


@pytest.mark.slow
def test_objective_and_certificate_are_those_of_the_weights_that_are_stored(rows, data):
    optimum = fit("ovr-sdca", data, params=EXACT)
    for prune in (None, 0.05):
        found = fit("ovr-sdca", data, params={"alpha": ALPHA, "class_tol": 0.05, "prune": prune})
        said = found.record["objective"]
        assert said == pytest.approx(objective_of(found.model, *rows), rel=1e-5)
        excess, bound = said - optimum.record["objective"], found.record["certificate"]["value"]
        assert 0 < excess <= bound
        if prune is None:
            assert found.record["certificate"]["relative"] <= 0.05
            assert found.status == Status.CONVERGED


def test_pruned_weights_are_the_large_ones(data):
    whole, pruned = (
        np.asarray(fit("ovr-sdca", data, params={"alpha": ALPHA, "prune": prune}).model.weights)
        for prune in (None, 0.05)
    )
    np.testing.assert_array_equal(pruned, np.where(np.abs(whole) < np.float32(0.05), 0, whole))
    assert 0 < np.count_nonzero(pruned) < np.count_nonzero(whole)


@pytest.mark.fast_cases("1$")
@pytest.mark.parametrize("block", [1, 5, None])
def test_blocks_do_not_change_the_bits(data, run, block):
    found = fit("ovr-sdca", data, params={"alpha": ALPHA, "class_block": block, "prune": 0.02})
    assert found.record["weights_sha256"] == load_model(run).sha256


@pytest.mark.slow
def test_workers_do_not_change_the_bits(tmp_path, data, run):
    executor, budget = open_executor(ClusterOptions(workers=2))
    try:
        params = {"alpha": ALPHA, "class_block": 4, "prune": 0.02}
        found = fit("ovr-sdca", data, tmp_path / "run", params=params, executor=executor, memory=budget)
    finally:
        executor.close()
    assert found.record["weights_sha256"] == load_model(run).sha256


def test_blocks_that_were_finished_stay_after_an_interrupt(tmp_path, data, run, monkeypatch):
    monkeypatch.setattr("distls.solvers.dual_ascent.class_blocks._ROUNDS", 4)
    path, params = tmp_path / "run", {"alpha": ALPHA, "class_block": 2, "prune": 0.02}
    with interrupted():
        fit("ovr-sdca", data, path, params=params, callbacks=[StopAfter(2)])
    blocks = sorted((path / "state").glob("classes-*"))
    assert len(blocks) == 6
    whole, damaged = blocks[-2], blocks[-1]
    before = (whole / "values.npy").stat().st_mtime_ns
    (damaged / "values.npy").write_bytes(b"no block")
    kept = []
    result = resume(path, callbacks=[KeepsTime(kept, whole / "values.npy")])
    assert kept[0] == before, "trained again"
    assert result.record["weights_sha256"] == load_model(run).sha256
    assert not (path / "state").exists()


class KeepsTime(StopAfter):
    """Notes when a file was written, in each round."""

    def __init__(self, times, file):
        super().__init__(0)
        self._times, self._file = times, file

    def on_round(self, event):
        self._times.append(self._file.stat().st_mtime_ns)


@pytest.mark.slow
def test_a_killed_round_is_resumed_block_by_block(tmp_path, data, run):
    """Blocks of a round whose checkpoint was never written are taken as they are."""
    path = tmp_path / "run"
    with interrupted():
        params = {"alpha": ALPHA, "class_block": 6, "prune": 0.02}
        fit("ovr-sdca", data, path, params=params, callbacks=[StopAfter(1)])
    for checkpoint in (path / "checkpoints").iterdir():
        for file in checkpoint.iterdir():
            file.unlink()
        checkpoint.rmdir()
    kept = []
    block = path / "state" / "classes-00000000-00000006" / "values.npy"
    before = block.stat().st_mtime_ns
    assert resume(path, callbacks=[KeepsTime(kept, block)]).status == Status.CONVERGED
    assert kept[0] == before
    assert load_model(path).sha256 == load_model(run).sha256


def dense(model):
    """Return the same model with all its weights in an array."""
    return replace(model, weights=np.asarray(model.weights))


def test_a_model_of_blocks_predicts_what_its_weights_do(tmp_path, rows, data, run, monkeypatch):
    # several batches of rows
    monkeypatch.setattr("distls.workers.prediction.class_block_scores._BATCH_BYTES", 64 * K * 4)
    model = load_model(run)
    assert isinstance(model.weights, ClassBlocks)
    whole = dense(model)
    x = rows[0]
    for given in (x, x.toarray()):
        np.testing.assert_allclose(model.decision_function(given), whole.decision_function(given), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(model.predict(given), whole.predict(given))
    assert evaluate(run, data).error == evaluate(whole, data).error
    for name, each in (("blocks", model), ("whole", whole)):
        assert predict(each, data, tmp_path / f"{name}.csv", top=3) == 300
    lines = [
        [line.split(",")[1::2] for line in (tmp_path / f"{name}.csv").read_text().splitlines()]
        for name in ("blocks", "whole")
    ]
    assert lines[0] == lines[1]


@pytest.mark.slow
def test_features_of_very_wide_rows_are_looked_up(rows, run, monkeypatch):
    model, x = load_model(run), rows[0]
    expected = model.decision_function(x)
    monkeypatch.setattr("distls.workers.prediction.class_block_scores._LARGEST_TABLE", 10)
    np.testing.assert_array_equal(load_model(run).decision_function(x), expected)


@pytest.mark.slow
def test_weights_that_do_not_fit_are_not_needed(data, rows, run, monkeypatch):
    model = load_model(run)
    expected = np.asarray(model.weights)
    monkeypatch.setattr(sparse_blocks, "available_memory", lambda: 1000)
    assert evaluate(run, data).error < 0.5
    assert len(load_model(run).predict(rows[0])) == 300
    np.testing.assert_array_equal(model.weights[:, 3], expected[:, 3])
    with pytest.raises(MemoryPlanError, match=r"weights of 60 features for 21 classes take 5040 bytes with their"):
        np.asarray(model.weights)


@pytest.mark.slow
def test_evaluation_data_and_probabilities(data):
    found = fit("ovr-sdca", data, params={"alpha": ALPHA, "loss": "log"}, eval_data=data)
    assert found.record["eval_error"] == evaluate(found.model, data).error
    whole = evaluate(dense(found.model), data)
    assert evaluate(found.model, data).log_loss == pytest.approx(whole.log_loss, rel=1e-5)


@pytest.mark.slow
def test_sets_of_labels(tmp_path):
    rng = np.random.default_rng(3)
    x = sp.csr_matrix(rng.standard_normal((200, 8)).astype(np.float32))
    y = (x @ rng.standard_normal((8, 5)) > 0.5).astype(int)
    data = write_targets(tmp_path / "train", x, np.asarray(y), "multilabel")
    blocks = fit("ovr-sdca", data, params={**EXACT, "class_block": 2})
    given = {"fit_intercept": True, "intercept_scaling": 1.0, "dtype": "float64"}
    other = fit("sdca", data, rtol=1e-9, passes=3000, params={"loss": "ovr_log", "alpha": ALPHA, **given})
    assert blocks.model.loss == "ovr_log"
    assert blocks.record["objective"] == pytest.approx(other.record["objective"], rel=1e-7)
    np.testing.assert_allclose(np.asarray(blocks.model.weights), other.model.weights, atol=1e-4)
    assert evaluate(blocks.model, data).error == evaluate(other.model, data).error


@pytest.mark.slow
def test_weights_of_classes(data):
    params = {"alpha": ALPHA, "class_weight": {"0": 3.0}, "fit_intercept": False, "dtype": "float64"}
    limits = {"class_tol": 1e-9, "sweeps": 3000}
    found = fit("ovr-sdca", data, params={**params, **limits}).model
    other = fit("sdca", data, params={**params, "loss": "ovr_squared_hinge"}, rtol=1e-10, passes=3000).model
    np.testing.assert_allclose(np.asarray(found.weights), other.weights, atol=1e-4)
    assert not found.intercept.any()


def test_the_plan_chooses_blocks_by_the_memory_limit(tmp_path):
    # a number in every fifth row: `scipy.sparse.random` would permute all cells
    positions = np.arange(0, 4000, 5), np.random.default_rng(0).integers(0, 200_000, 800)
    x = sp.csr_matrix((np.ones(800, np.float32), positions), (4000, 200_000))
    data = write_dataset(tmp_path / "wide", x, np.arange(4000), n_classes=4000)

    def blocks(limit):
        options = ClusterOptions(workers=2, memory_limit=parse_bytes(limit))
        (name,) = [
            n for n in plan_fit("ovr-sdca", data.path, cluster=options, probe=False).worker_parts if "block" in n
        ]
        return int(name.split()[2])

    assert blocks("2GiB") == 128
    assert 16 <= blocks("400MiB") < 64
    with pytest.raises(MemoryPlanError, match=r"a worker needs .* blocks? of .* classes|a worker needs"):
        fit("ovr-sdca", data, memory=MemoryBudget(limit=230 * MIB))


@pytest.mark.fast_cases("limits0")
@pytest.mark.parametrize(
    ("limits", "name"), [({"passes": 3}, "passes"), ({"rtol": 0.1}, "rtol"), ({"max_seconds": 1.0}, "max_seconds")]
)
def test_limits_that_would_leave_classes_out_are_refused(data, limits, name):
    with pytest.raises(ParameterError, match=rf"^{name}: ovr-sdca trains each class to its end; limit it by -p "):
        fit("ovr-sdca", data, **limits)


@pytest.mark.slow
def test_sweeps_end_a_class(data, tmp_path):
    found = fit("ovr-sdca", data, tmp_path / "run", params={"alpha": 1e-6, "class_tol": 1e-9, "sweeps": 2})
    assert (found.status, found.passes) == (Status.MAX_PASSES, 2.0)
    assert found.record["details"]["open_classes"] == K
    assert "eval %" in printed("report", tmp_path / "run")
    event = json.loads((tmp_path / "run" / "events.jsonl").read_text().splitlines()[-1])
    assert event["details"]["classes"] == K
