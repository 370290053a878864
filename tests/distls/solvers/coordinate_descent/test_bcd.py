"""Block coordinate descent through the driver: the paper's iterates, descent, certificates, refusals, state lost."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import scipy.sparse as sp
from contract import Rounds, StoredContract
from helpers import labelled_rows, raised, refuses, stored_rows, write_dataset

from distls.execution.memory_budget import MIB, MemoryBudget
from distls.methods.method_registry import method_named
from distls.problem import Problem
from distls.solvers.coordinate_descent.bcd import BlockCoordinateDescent
from distls.solvers.coordinate_descent.bcd_round import Round
from distls.solvers.status import Status
from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.storage.errors import DistlsError, MemoryPlanError, MismatchError, ParameterError, StateLostError
from distls.storage.temporary.row_state import RowState, StateFolder
from distls.testing.solvers import StopAfter, interrupted, opened
from distls.training.callbacks import History
from distls.training.fitting import fit, resume
from distls.training.run_folder import Run
from distls.workers.coordinate_descent import row_scores_task
from distls.workers.runtime.buffers import release_buffers
from distls.workers.runtime.rng import Purpose, rng
from reference import bcd

LOSSES = ["multiclass_squared_hinge", "multitask_squared_hinge", "softmax"]
PENALTIES = ["l1l2", "l1", "l2", "elasticnet", "l1linf", "sparse-group"]


class TestContract(StoredContract):
    method = "bcd"
    params = {"alpha": 1e-2, "lanes": 5, "tau": 0.0, "algorithm": "sweeps"}
    passes = 20  # active sweeps count too
    shard_size = 2000


@pytest.mark.slow
class TestContractOfConstantSteps(StoredContract):
    method = "bcd"
    params = {"alpha": 1e-2, "lanes": 3, "step": "constant", "loss": "softmax", "fit_intercept": True, "tau": 0.0}
    passes = 20
    dense = True
    shard_size = 2000


# 300 rows, 40 features in 12 shards, 4 classes; and the same as arrays.
small = stored_rows(300, 40, 4, arrays=True, shard_size=2000)


def fitted(dataset, passes=1000.0, **params):
    """Fit by sweeps in this process, without an intercept; return the result and the records of all rounds."""
    kept = History()
    params = {"algorithm": "sweeps", "fit_intercept": False, **params}
    result = fit("bcd", dataset, params=params, passes=passes, eval_every=1, callbacks=[kept])
    return result, kept.records


@pytest.mark.slow_cases("(multitask|softmax)")
@pytest.mark.parametrize("loss", LOSSES)
def test_one_lane_is_the_paper_s_algorithm(small, loss):
    dataset, x, y = small
    p = bcd.Problem(x, y, 4, loss=loss, alpha=1e-2)
    expected, shards = np.zeros((40, 4)), dataset.columns
    for number in range(3):
        order = []
        for place in rng(0, Purpose.BLOCKS, number, 0, 0).permutation(len(shards)):
            first, stop = shards.first[place : place + 2]
            order += (first + rng(0, Purpose.BLOCKS, number, 0, 0, first).permutation(stop - first)).tolist()
        expected = bcd.sweep(p, expected, order).w
    result, records = fitted(dataset, 3, loss=loss, alpha=1e-2, lanes=1, active_sweeps=0)
    np.testing.assert_allclose(result.model.weights, expected, atol=1e-6)
    assert [record["passes"] for record in records] == [1.0, 2.0, 3.0]
    assert result.record["objective"] == pytest.approx(bcd.objective(p, expected), rel=1e-6)


@pytest.mark.slow
def test_constant_steps_draw_from_all_columns(small):
    """Of a shard more or fewer than it has, in all as many as there are: uniform draws, sorted by shards."""
    dataset, x, y = small
    p = bcd.Problem(x, y, 4, loss="softmax", alpha=1e-3)
    expected, shards = np.zeros((40, 4)), dataset.columns
    sizes = np.diff(shards.first)
    for number in range(3):
        draws, order = rng(0, Purpose.DRAWS, number).multinomial(40, sizes / 40), []
        assert np.any(draws != sizes)
        for place in rng(0, Purpose.BLOCKS, number, 0, 0).permutation(len(shards)):
            first, stop = shards.first[place : place + 2]
            own = rng(0, Purpose.BLOCKS, number, 0, 0, first).integers(stop - first, size=draws[place])
            order += (first + own).tolist()
        expected = bcd.sweep(p, expected, order, "constant").w
    given = {"loss": "softmax", "alpha": 1e-3, "lanes": 1, "active_sweeps": 0, "step": "constant"}
    np.testing.assert_allclose(fitted(dataset, 3, **given)[0].model.weights, expected, atol=1e-6)


@pytest.mark.fast_cases("multiclass")
@pytest.mark.parametrize("loss", LOSSES)
def test_a_round_of_lanes_is_the_oracle_s(small, loss):
    dataset, x, y = small
    p, shards = bcd.Problem(x, y, 4, loss=loss, alpha=1e-2), dataset.columns
    given = {"loss": loss, "fit_intercept": False}
    problem = Problem.of(dataset, method_named("bcd").resolve(given), 0, ("class",))
    solver = BlockCoordinateDescent(problem, method_named("bcd").resolve({**given, "lanes": 4}))
    orders = []
    for lane, blocks in enumerate(solver.lanes):
        order = []
        for place in rng(0, Purpose.BLOCKS, 0, lane, 0).permutation(len(blocks)):
            first, stop = shards.first[blocks[place] : blocks[place] + 2]
            order += (first + rng(0, Purpose.BLOCKS, 0, lane, 0, first).permutation(stop - first)).tolist()
        orders.append(order)
    expected, size = bcd.lanes_round(p, np.zeros((40, 4)), orders)
    result, records = fitted(dataset, 1, loss=loss, alpha=1e-2, lanes=4, active_sweeps=0)
    np.testing.assert_allclose(result.model.weights, expected, atol=1e-6)
    assert records[0]["details"]["step_size"] == size


@pytest.mark.fast_cases("l1l2-multiclass_squared_hinge$")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_objective_is_exact_and_the_gap_small_at_the_end(small, loss, penalty):
    dataset, x, y = small
    result, records = fitted(dataset, 60, loss=loss, penalty=penalty, alpha=2e-2, lanes=3)
    p, w = bcd.Problem(x, y, 4, loss=loss, penalty=penalty, alpha=2e-2), result.model.weights
    assert result.record["objective"] == pytest.approx(bcd.objective(p, w), rel=1e-12)
    certificate = result.record["certificate"]
    assert certificate["kind"] == ("strong_convexity" if penalty == "l2" else "duality_gap")
    best = min(record["objective"] for record in records)
    assert all(r["certificate"]["value"] >= r["objective"] - best - 1e-12 for r in records)
    if loss != "softmax":  # at most the gap at the gradients of the weights themselves
        assert certificate["value"] <= 1.001 * bcd.gap(p, w) + 1e-9
    assert certificate["value"] < 1e-4 * records[0]["objective"]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["multiclass_squared_hinge", "multitask_squared_hinge"])
@pytest.mark.parametrize("penalty", ["l1l2", "l1", "l1linf", "sparse-group"])
def test_without_active_sweeps_the_gap_is_that_of_the_weights_own_gradients(small, loss, penalty):
    dataset, x, y = small
    params = {"loss": loss, "penalty": penalty, "alpha": 2e-2, "lanes": 3, "active_sweeps": 0, "fit_intercept": False}
    result = fit("bcd", dataset, params=params, passes=20)  # evaluated once: no better bound from before
    p = bcd.Problem(x, y, 4, loss=loss, penalty=penalty, alpha=2e-2)
    expected = bcd.gap(p, result.model.weights)
    assert result.record["certificate"]["value"] == pytest.approx(expected, rel=1e-3, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 2, 8])
def test_every_round_descends_to_the_same_optimum(small, lanes):
    dataset, _, _ = small
    result, records = fitted(dataset, alpha=1e-2, lanes=lanes, tau=1e-9)
    values = [record["objective"] for record in records]
    assert result.status == Status.CONVERGED
    assert (np.diff(values) <= 1e-12).all()
    assert values[-1] == pytest.approx(1.29193763, abs=1e-8)
    assert result.record["certificate"]["value"] < 1e-8


@pytest.mark.slow
def test_zeros_are_exact_after_active_sweeps(small):
    """Steps shorter than 1 leave rows near zero; the sweeps over active columns in one lane set them to zero."""
    dataset, _, _ = small
    with_sweeps, records = fitted(dataset, alpha=5e-2, lanes=8, tau=1e-4)
    assert any(record["details"]["step_size"] < 1.0 for record in records)
    one, _ = fitted(dataset, alpha=5e-2, lanes=1, tau=1e-8)
    zero = ~one.model.weights.any(axis=1)
    assert 0 < zero.sum() < 40
    np.testing.assert_array_equal(~with_sweeps.model.weights.any(axis=1), zero)


def test_tolerance_is_that_of_the_certificate(small):
    dataset, _, _ = small
    result = fit("bcd", dataset, params={"alpha": 1e-2, "tau": 0.0}, tol=1e-4)
    assert result.status == Status.CONVERGED
    assert result.record["certificate"]["value"] <= 1e-4


@pytest.mark.fast_cases("sum")
@pytest.mark.parametrize("violation", ["sum", "max"])
def test_the_paper_s_stopping_rule(small, violation):
    dataset, _, _ = small
    result, records = fitted(dataset, alpha=1e-2, tau=1e-2, violation=violation, lanes=1)
    name = "violation" if violation == "sum" else "largest_violation"
    ratios = [record["details"][name] / records[0]["details"][name] for record in records]
    assert result.status == Status.CONVERGED
    assert ratios[-1] <= 1e-2 < ratios[-2]


@pytest.mark.slow
def test_the_intercept_is_optimal_and_not_penalised(small):
    dataset, x, y = small
    result, _ = fitted(dataset, alpha=5e-2, fit_intercept=True, tau=1e-9, lanes=2)
    model = result.model
    p = bcd.Problem(np.hstack([x, np.ones((300, 1))]), y, 4, alpha=0.0)
    w = np.vstack([model.weights, model.intercept])
    assert np.abs(bcd.gradient(p, w)[-1]).max() < 1e-6
    assert result.record["certificate"]["kind"] == "duality_gap"
    assert result.record["certificate"]["value"] < 1e-6
    assert model.intercept.any()


@pytest.fixture(scope="module")
def unequal(tmp_path_factory):
    """400 rows of three classes, 320, 60 and 20 of them, 6 features; and the same as arrays."""
    x = np.random.default_rng(0).standard_normal((400, 6))
    y = np.repeat(np.arange(3, dtype=np.int32), [320, 60, 20])[np.random.default_rng(1).permutation(400)]
    return write_dataset(tmp_path_factory.mktemp("unequal") / "train", x, y, shard_size=2000), x, y


def _best_alone(loss, y):
    """Return the objective of the best intercept without other weights."""
    alone = bcd.Problem(np.ones((400, 1)), y, 3, loss=loss, alpha=0.0)
    return bcd.objective(alone, bcd.best_intercept(alone, np.zeros((400, 3)))[None])


@pytest.mark.slow
@pytest.mark.parametrize("tau", [1e-3, 0.0])
@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize(
    ("loss", "alpha"), [("softmax", 0.5), ("multiclass_squared_hinge", 10.0), ("multitask_squared_hinge", 10.0)]
)
def test_an_intercept_alone_is_optimal_before_the_fit_ends(unequal, loss, alpha, lanes, tau):
    dataset, _, y = unequal
    assert len(dataset.columns) > 1
    result, _ = fitted(dataset, 20, loss=loss, alpha=alpha, fit_intercept=True, lanes=lanes, tau=tau)
    assert not result.model.weights.any()
    assert result.record["objective"] == pytest.approx(_best_alone(loss, y), rel=1e-12)
    if loss == "softmax":
        share = np.array([320, 60, 20]) / 400
        assert result.record["objective"] == pytest.approx(-float(share @ np.log(share)), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("loss", LOSSES)
def test_features_with_means_and_an_intercept(unequal, tmp_path, loss, lanes):
    _, x, y = unequal
    x = x + 3.0
    x[:, :3] += np.eye(3)[y]
    dataset = write_dataset(tmp_path / "train", x, y, shard_size=2000)
    result, _ = fitted(dataset, 36, loss=loss, alpha=3e-2, fit_intercept=True, lanes=lanes, tau=0.0)
    best = fit("fista", dataset, params={"loss": loss, "alpha": 3e-2, "fit_intercept": True, "tau": 0.0}, passes=3000)
    assert result.record["objective"] == pytest.approx(best.record["objective"], rel=1e-12)
    assert result.passes < 42  # five sweeps over active columns in each round
    assert 0 < np.count_nonzero(result.model.weights.any(axis=1)) <= 6


@pytest.mark.slow
def test_sparse_columns_that_are_nearly_full_are_centred_too(tmp_path):
    """One that has a value in most rows, among others; as the same columns stored dense."""
    x, y = labelled_rows(300, 40, 4)
    full = np.asarray(x.todense())
    full[:, 7] = 2.0 + 0.1 * y + 0.1 * full[:, 7]
    full[::10, 7] = 0.0
    s = np.linspace(0.5, 1.5, 300)
    params = {"alpha": 1e-2, "fit_intercept": True, "tau": 1e-9, "lanes": 2, "algorithm": "sweeps"}
    results = [
        fit("bcd", write_dataset(tmp_path / name, rows, y, sample_weight=s, shard_size=2000), params=params, passes=150)
        for name, rows in (("sparse", sp.csr_matrix(full)), ("dense", full))
    ]
    assert [result.status for result in results] == ["CONVERGED", "CONVERGED"]
    np.testing.assert_allclose(results[0].model.weights, results[1].model.weights, atol=1e-6)
    first, second = (result.model.intercept for result in results)
    np.testing.assert_allclose(first, second, atol=1e-6)
    # the loss does not depend on a number added to all classes, and steps add none
    assert abs(first.sum()) < 1e-12
    assert results[0].model.weights[7].any()


@pytest.mark.slow
def test_single_precision_comes_close(small):
    dataset, _, _ = small
    double, _ = fitted(dataset, alpha=1e-2, tau=1e-4)
    single, _ = fitted(dataset, alpha=1e-2, tau=1e-4, dtype="float32")
    assert single.model.weights.dtype == np.float32
    assert single.record["objective"] == pytest.approx(double.record["objective"], rel=1e-5)


def test_init_goes_on_from_a_model(small, tmp_path):
    dataset, _, _ = small
    fit("bcd", dataset, tmp_path / "first", params={"alpha": 1e-2}, passes=20)
    started, records = fitted(dataset, 1, alpha=1e-2, init=str(tmp_path / "first"))
    assert records[0]["running_loss"] < 1.2 < 3.0
    assert started.record["objective"] < 1.3


@pytest.mark.slow
@pytest.mark.parametrize("violation", ["sum", "max"])
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_warm_start_is_held_to_what_zero_weights_are(small, tmp_path, lanes, violation):
    dataset, _, _ = small
    params = {"alpha": 1e-2, "lanes": lanes, "violation": violation}
    cold, records = fitted(dataset, tau=1e-3, **params)
    fit(
        "bcd",
        dataset,
        tmp_path / "first",
        params={**params, "tau": 1e-3, "algorithm": "sweeps", "fit_intercept": False},
    )
    warm, (first,) = fitted(dataset, tau=1e-2, init=str(tmp_path / "first"), **params)
    name = "violation" if violation == "sum" else "largest_violation"
    assert warm.status == "CONVERGED"
    assert first["details"]["violation_ratio"] == first["details"][name] / records[0]["details"][name]
    assert first["passes"] >= 2.0  # a sweep from zero weights, and its own
    assert warm.record["objective"] <= cold.record["objective"] + 1e-12


@pytest.mark.fast_cases("state-sweeps$")
@pytest.mark.parametrize("algorithm", ["sweeps", "working-set"])
@pytest.mark.parametrize("lost", ["state", "columns"])
def test_what_is_kept_may_be_lost(small, tmp_path, lost, algorithm):
    """Scores follow from the weights: a run whose RUN/state is gone ends with the same bits."""
    dataset, _, _ = small
    params = {"alpha": 1e-2, "lanes": 3, "tau": 0.0, "algorithm": algorithm}
    whole = fit("bcd", dataset, params=params, passes=6).model.sha256
    run, where = tmp_path / "run", _keeping_files(algorithm)
    with interrupted():
        fit("bcd", dataset, run, params=params, passes=6, callbacks=[StopAfter(2)], **where)
    columns = {"sweeps": "state/active", "working-set": "state/working"}[algorithm]
    shutil.rmtree(run / (columns if lost == "columns" else lost))
    assert resume(run, **where).model.sha256 == whole


def _keeping_files(algorithm):
    """Return the executor with which what tasks leave for each other is in files."""
    return {"executor": opened("two processes")} if algorithm == "working-set" else {}


@pytest.mark.slow
def test_what_is_lost_in_memory_is_kept_in_files(small, tmp_path):
    """In one process memory serves; where it does not, as with other fits in it, the fit goes on by files."""
    dataset, _, _ = small
    params, run, stored = {"alpha": 1e-2, "lanes": 3, "tau": 0.0}, tmp_path / "run", []
    whole = fit("bcd", dataset, params=params, passes=6).model.sha256

    def lose(_):
        release_buffers()
        stored.append(any((run / "state").rglob("*.npy")))

    assert fit("bcd", dataset, run, params=params, passes=6, callbacks=[Rounds(lose)]).model.sha256 == whole
    assert stored[:3] == [False, True, True]
    assert all(stored[1:])


_AGAIN = "import sys, distls; print(distls.resume(sys.argv[1], executor='serial').model.sha256)"


@pytest.mark.slow
def test_a_new_process_goes_on_with_the_same_bits(small, tmp_path):
    """Without the memory of the process that was stopped."""
    dataset, _, _ = small
    params, run = {"alpha": 1e-2, "lanes": 3, "tau": 0.0}, tmp_path / "run"
    whole = fit("bcd", dataset, params=params, passes=6).model.sha256
    with interrupted():
        fit("bcd", dataset, run, params=params, passes=6, callbacks=[StopAfter(2)])
    found = subprocess.run([sys.executable, "-c", _AGAIN, run], capture_output=True, text=True, check=True)
    assert found.stdout.split() == [whole]


def _truncates(path):
    path.write_bytes(path.read_bytes()[:-1])


def _replaces(path):
    index, version = path.stem.split("-")
    run = next(folder for folder in path.parents if (folder / "config.json").exists())
    state = RowState(StateFolder.of(path.parent, Run(run).request))
    state.put(int(index), int(version), state.read(int(index), int(version))[:-1])


@pytest.mark.fast_cases("_truncates-sweeps$")
@pytest.mark.parametrize("algorithm", ["sweeps", "working-set"])
@pytest.mark.parametrize("damage", [_truncates, _replaces])
def test_damaged_state_is_made_anew(small, tmp_path, damage, algorithm):
    dataset, _, _ = small
    params = {"alpha": 1e-2, "lanes": 3, "tau": 0.0, "algorithm": algorithm}
    whole = fit("bcd", dataset, params=params, passes=6).model.sha256
    run = tmp_path / "run"
    damaged = []

    def damages(_):
        for path in (run / "state").rglob("*.npy"):
            damage(path)
            damaged.append(path)

    asked = {"params": params, "passes": 6, "callbacks": [Rounds(damages)], **_keeping_files(algorithm)}
    assert fit("bcd", dataset, run, **asked).model.sha256 == whole
    assert damaged


@pytest.mark.fast_cases("sweeps")
@pytest.mark.parametrize("algorithm", ["sweeps", "working-set"])
def test_targets_are_read_once(small, monkeypatch, algorithm):
    """Of each partition, in a process: in an object store each read is a request."""
    dataset, _, _ = small
    reads, honest = [], Dataset.read_targets
    monkeypatch.setattr(Dataset, "read_targets", lambda *given: reads.append(given[1]) or honest(*given))
    row_scores_task._targets_of.cache_clear()
    params = {"alpha": "path", "alphas": "1e-2:5e-3", "lanes": 3, "tau": 0.0}
    fit("bcd", dataset, params={**params, "algorithm": algorithm}, passes=6)
    assert sorted(reads) == list(range(len(dataset)))


@pytest.mark.slow
def test_state_lost_again_says_what_to_do(small, tmp_path, monkeypatch):
    dataset, _, _ = small
    params = {"alpha": 1e-2, "lanes": 3, "tau": 0.0}
    whole = fit("bcd", dataset, params=params, passes=6).model.sha256
    run = tmp_path / "run"
    honest = RowState.put

    def put(state, index, version, array):
        honest(state, index, version, array)
        _truncates(state.folder / f"{index:08d}-{version:06d}.npy")

    monkeypatch.setattr(RowState, "put", put)
    # Workers in threads of this process, where it is patched.
    with pytest.raises(StateLostError) as caught:
        fit("bcd", dataset, run, params=params, passes=6, executor=opened("three threads"))
    message = str(caught.value)
    assert message.startswith(f"{run}: the fit stopped: what it keeps for each row was lost again ")
    assert str(run / "state") in message
    assert message.endswith(f"; check the disk or store; once that is fixed, `distls resume {run}` continues")
    monkeypatch.undo()
    assert resume(run).model.sha256 == whole


def test_a_rise_is_an_error(small, monkeypatch):
    dataset, _, _ = small
    honest = Round._value
    monkeypatch.setattr(Round, "_value", lambda self, *given: honest(self, *given) - 1.0)
    with pytest.raises(DistlsError, match=r"round 1: the objective rose from 2 to "):
        fit("bcd", dataset, params={"alpha": 100.0, "algorithm": "sweeps"}, passes=2)


def test_refusals(small, tmp_path):
    dataset, _, _ = small
    bare = write_dataset(tmp_path / "bare", *labelled_rows(100, 10, 3))
    refuses(MismatchError, r"bare has no column shards, .*`distls columns .*bare` adds them", fit, "bcd", bare)
    with pytest.raises(ParameterError, match="lanes=99: the data set has only 12 column shards"):
        fit("bcd", dataset, params={"lanes": 99})
    with pytest.raises(ParameterError, match=r"l1_ratio=0\.3: used with penalty=elasticnet or sparse-group only"):
        fit("bcd", dataset, params={"l1_ratio": 0.3})
    refuses(ParameterError, "bcd has no parameter 'eta0'", fit, "bcd", dataset, params={"eta0": 1})


def test_the_plan_counts_scores_and_names_rows_that_fit(small):
    dataset, _, _ = small
    large = replace(dataset, meta=msgspec.structs.replace(dataset.meta, n_rows=50_000_000))
    chosen = method_named("bcd")
    asked = {"dtype": "float32", "loss": "softmax", "fit_intercept": False, "algorithm": "working-set"}
    params = chosen.resolve(asked)
    problem = replace(Problem.of(dataset, params, 0, chosen.targets), dataset=large)
    with pytest.raises(MemoryPlanError, match=r"rows \d.*, or train on (\d+) rows, which would fit") as refused:
        BlockCoordinateDescent(problem, params, memory=MemoryBudget(800 * MIB))
    rows = int(str(refused.value).split("train on ")[1].split()[0])
    fitting = replace(problem, dataset=replace(dataset, meta=msgspec.structs.replace(dataset.meta, n_rows=rows)))
    plan = BlockCoordinateDescent(fitting, params, memory=MemoryBudget(800 * MIB)).plan
    # scores, slopes, three changes of scores and ten second derivatives; targets; the last slopes and scores, and their
    # products, which are fewer than rows, and which of them are known
    assert plan.worker_parts["rows"] == rows * (5 * 8 * 4 + 4 * 10 + 4 + 3 * 8 * 4 + 8)
    # one task descends, and threads share what they read: no more for eight threads
    threads = BlockCoordinateDescent(fitting, params, memory=MemoryBudget(8000 * MIB, threads=8)).plan
    assert threads.worker_parts["rows"] == plan.worker_parts["rows"]
    assert plan.network_bytes_per_round >= rows * 16 * 3
    assert plan.worker_bytes <= 800 * MIB
    # too little for any row
    with pytest.raises(MemoryPlanError, match="allow at least --memory-limit") as refused:
        BlockCoordinateDescent(problem, params, memory=MemoryBudget(200 * MIB))
    assert "train on" not in str(refused.value)


def test_a_refusal_names_the_columns_that_fit(small, monkeypatch):
    dataset, _, _ = small
    chosen = method_named("bcd")
    params = chosen.resolve({})
    problem = Problem.of(dataset, params, 0, chosen.targets)
    monkeypatch.setattr(BlockCoordinateDescent, "_most_active", lambda self, active_mib: (active_mib + 88) * MIB)

    def planned(active_mib):
        given = {**params, "active_mib": active_mib}
        return BlockCoordinateDescent(problem, given, memory=MemoryBudget(700 * MIB)).plan

    named = r"work 600 MiB.*, or give active_mib=(\d+), the most that fits, or give algorithm=row"
    fits = int(re.search(named, raised(MemoryPlanError, planned, 512))[1])
    assert planned(fits).worker_bytes <= 700 * MIB
    assert f"active_mib={fits}," in raised(MemoryPlanError, planned, fits + 1)
    # of so few columns no set would be made
    monkeypatch.setattr(BlockCoordinateDescent, "_most_active", lambda self, active_mib: (32 * active_mib) * MIB)
    assert "active_mib" not in raised(MemoryPlanError, planned, 512)


def test_state_is_gone_when_a_run_has_ended(small, tmp_path):
    dataset, _, _ = small
    fit("bcd", dataset, tmp_path / "run", passes=2)
    assert not (tmp_path / "run" / "state").exists()
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert {"relative_gap", "non_zero_rows", "working_set"} <= events[0]["details"].keys()
    assert open_dataset(dataset.path).fingerprint == dataset.fingerprint


@pytest.mark.slow
class TestContractOfDebiasing(StoredContract):
    method = "bcd"
    params = {"alpha": 3e-2, "lanes": 3, "tau": 0.2, "debias": 1e-3}
    passes = 20
    shard_size = 2000


@pytest.mark.fast_cases("multiclass_squared_hinge-1")
@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("loss", LOSSES)
def test_debiasing_is_ridge_on_the_selected_features(small, loss, lanes):
    dataset, x, y = small
    params = {"alpha": 3e-2, "loss": loss, "lanes": lanes, "tau": 1e-3, "fit_intercept": False}
    sparse = fit("bcd", dataset, params=params, passes=1000)
    used = np.flatnonzero(sparse.model.weights.any(axis=1))
    assert 0 < len(used) < 40
    result, records = fitted(dataset, debias=1e-2, **{**params, "tau": 1e-6})
    p = bcd.Problem(x[:, used], y, 4, loss=loss, penalty="l2", alpha=1e-2)
    w = result.model.weights
    assert result.status == "CONVERGED"
    assert not np.delete(w, used, axis=0).any()
    assert np.linalg.norm(bcd.gradient(p, w[used]) + 1e-2 * w[used]) < 1e-5
    assert result.record["objective"] == pytest.approx(bcd.objective(p, w[used]), rel=1e-9)
    assert result.record["certificate"]["kind"] == "strong_convexity"
    assert result.record["certificate"]["value"] < 1e-8
    # rounds before are of the sparse problem, whose certificate must not end the fit
    stages = [record["details"]["refit"] for record in records]
    assert stages == sorted(stages)
    assert [record.get("preliminary") for record in records] == [None if stage else True for stage in stages]


@pytest.mark.slow
def test_debiasing_waits_for_the_sparse_problem(small):
    dataset, *_ = small
    result, records = fitted(dataset, 2, alpha=1e-2, debias=1e-3, active_sweeps=0)
    assert result.status == "MAX_PASSES"
    assert not any(record["details"]["refit"] for record in records)
    assert result.record["certificate"]["kind"] == "duality_gap"


def test_debiasing_that_would_never_come_is_refused(small):
    dataset, *_ = small
    refuses(ParameterError, "debias needs tau > 0", fit, "bcd", dataset, params={"debias": 1e-3, "tau": 0.0})
    with pytest.raises(ParameterError, match="patience: not with debias"):
        fit("bcd", dataset, params={"debias": 1e-3}, patience=2, eval_data=dataset)


@pytest.mark.slow
def test_every_model_of_a_path_is_fitted_anew(small, tmp_path):
    dataset, *_ = small
    fit("bcd", dataset, str(tmp_path / "run"), params={"alpha": "path", "alphas": 3, "debias": 1e-3}, passes=300)
    children = sorted((tmp_path / "run" / "children").iterdir())
    ended = [json.loads((child / "status.json").read_text()) for child in children]
    assert len(ended) == 3
    assert all(own["details"]["refit"] and own["status"] == "CONVERGED" for own in ended)
