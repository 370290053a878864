"""Working sets: the optimum of the paper's sweeps and of independent programs, with a certificate in every round."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from contract import StoredContract
from helpers import labelled_rows, write_dataset
from sklearn.linear_model import LogisticRegression

from distls import ingest
from distls.columns.sharding import add_columns
from distls.execution.memory_budget import MIB, MemoryBudget
from distls.storage.errors import ParameterError
from distls.storage.model.model import load_model
from distls.storage.rows import CsrRows
from distls.storage.temporary.row_state import RowState
from distls.testing.solvers import StopAfter, interrupted
from distls.training.callbacks import History
from distls.training.fitting import fit, resume
from distls.workers.coordinate_descent import (
    all_rows,
    kept_gram,
    prox_newton,
    quadratic_model,
    violation_task,
    working_columns,
)
from distls.workers.coordinate_descent.active_columns import KnownProducts, SlopeProducts
from distls.workers.coordinate_descent.prox_newton import ProxNewton
from distls.workers.coordinate_descent.violation_task import ViolationTask
from distls.workers.coordinate_descent.working_set_task import WorkingSetTask
from distls.workers.runtime.buffers import job_memory

LOSSES = ["multiclass_squared_hinge", "multitask_squared_hinge", "softmax"]
PENALTIES = ["l1l2", "l1", "elasticnet", "l1linf", "sparse-group"]


class TestContract(StoredContract):
    method = "bcd"
    params = {"alpha": 1e-2, "lanes": 5, "tau": 0.0, "fit_intercept": True}
    passes = 5
    random = False
    shard_size = 2000


@pytest.mark.slow
class TestContractOfCycles(TestContract):
    """Of one output, where the first steps are cycles in random order."""

    params = {**TestContract.params, "loss": "log", "alpha": 1e-3}
    random = True

    @pytest.fixture(scope="class")
    def dataset(self, tmp_path_factory):
        x, y = labelled_rows(1050, 60, 5)
        return write_dataset(tmp_path_factory.mktemp("data") / "train", x, y % 2, shard_size=self.shard_size)


@pytest.fixture(scope="module")
def small(weighted_rows, tmp_path_factory):
    """Weighted rows in a dozen column shards."""
    x, y, weight = weighted_rows
    return write_dataset(tmp_path_factory.mktemp("small") / "train", x, y, sample_weight=weight, shard_size=2000)


def records_of(dataset, rtol=1e-10, **params):
    kept = History()
    result = fit("bcd", dataset, params=params, rtol=rtol, passes=60, callbacks=[kept])
    return result, kept.records


def sweeps_of(dataset, **params):
    """Return the optimum that the paper's sweeps find."""
    asked = {**params, "algorithm": "sweeps", "lanes": 1, "tau": 1e-10}
    return float(fit("bcd", dataset, params=asked, passes=600).record["objective"])


@pytest.mark.fast_cases("csr-False-l1l2-multiclass")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("intercept", [True, False])
def test_the_optimum_is_that_of_the_sweeps(small, intercept, penalty, loss):
    params = {"loss": loss, "penalty": penalty, "alpha": 1e-2, "fit_intercept": intercept}
    result, records = records_of(small, **params)
    best = sweeps_of(small, **params)
    assert result.status == "CONVERGED"
    assert result.record["objective"] == pytest.approx(best, rel=2e-10)
    assert len(records) <= 12
    # every round proves its own distance, and what it proves is true
    for record in records:
        assert record["certificate"]["kind"] == "duality_gap"
        assert record["objective"] - record["certificate"]["value"] <= best * (1 + 1e-12)
        assert record["eval_bytes_read"] == 0


@pytest.mark.slow
def test_the_optimum_of_two_classes_is_scikit_learns(tmp_path):
    """L1 logistic regression, with an intercept without a penalty."""
    x, y = labelled_rows(400, 30, 2, seed=3)
    alpha = 4e-3
    params = {"loss": "softmax", "penalty": "l1", "alpha": alpha, "fit_intercept": True}
    dataset = write_dataset(tmp_path / "train", x, y, shard_size=2000)
    result, _ = records_of(dataset, **params)
    own = result.model.weights[:, 0]
    rival = LogisticRegression(l1_ratio=1.0, solver="saga", C=1.0 / (alpha * len(y)), tol=1e-10, max_iter=100_000).fit(
        x.astype(np.float64), y
    )
    np.testing.assert_allclose(own, rival.coef_[0], atol=1e-4)
    assert 0 < np.count_nonzero(own) < 30
    np.testing.assert_array_equal(own != 0.0, np.abs(rival.coef_[0]) > 1e-6)
    shift = result.model.intercept[0]
    assert shift == pytest.approx(rival.intercept_[0], abs=1e-4)
    # the derivative in the intercept is zero
    probability = 1.0 / (1.0 + np.exp(-(x @ own + shift)))
    assert abs(float((probability - y).mean())) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["multiclass_squared_hinge", "multitask_squared_hinge"])
def test_sets_of_labels(tmp_path, loss):
    x, y = labelled_rows(300, 30, 4)
    second = np.random.default_rng(1).integers(0, 4, len(y))
    lines = [
        f"{a},{b} " + " ".join(f"{j + 1}:{v}" for j, v in zip(row.indices, row.data, strict=True))
        for a, b, row in zip(y, (y + 1 + second % 3) % 4, x, strict=True)
    ]
    (tmp_path / "rows.svm").write_text("\n".join(lines))
    ingest(tmp_path / "rows.svm", tmp_path / "train", multilabel=True)
    dataset = add_columns(tmp_path / "train", shard_size=2000)
    params = {"loss": loss, "alpha": 2e-2, "fit_intercept": True}
    result, _ = records_of(dataset, **params)
    assert result.status == "CONVERGED"
    assert result.record["objective"] == pytest.approx(sweeps_of(dataset, **params), rel=2e-10)


@pytest.mark.fast_cases("csr")
def test_sweeps_descend_where_no_gram_fits(small, monkeypatch):
    params = {"alpha": 1e-2, "fit_intercept": True}
    by_gram, _ = records_of(small, **params)
    monkeypatch.setattr(ProxNewton, "serves", lambda *given: False)
    by_sweeps, _ = records_of(small, 1e-8, **params)
    assert by_sweeps.status == "CONVERGED"
    assert by_sweeps.model.sha256 != by_gram.model.sha256
    assert by_sweeps.record["objective"] == pytest.approx(by_gram.record["objective"], rel=1e-9)


@pytest.mark.fast_cases("csr")
def test_columns_that_do_not_fit_are_left_to_sweeps(small, monkeypatch):
    """A working set without room for the columns with weights: rounds are the paper's, to the bit."""
    params = {"alpha": 1e-2, "tau": 0.0, "lanes": 2}
    sweeps = fit("bcd", small, params={**params, "algorithm": "sweeps"}, passes=20).model.sha256
    monkeypatch.setattr(ViolationTask, "_fits", lambda self, sizes: np.zeros(len(sizes), bool))
    left = fit("bcd", small, params=params, passes=20)
    assert left.model.sha256 == sweeps
    assert [note for note in left.record["notes"] if "active_mib=512" in note]


@pytest.mark.slow
def test_columns_that_find_no_room_are_reached_by_sweeps(tmp_path):
    """The columns with weights fill the memory, and others matter: rounds that change nothing would never end."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((10_000, 60)).astype(np.float32)
    y = (x[:, :40].sum(axis=1) + rng.standard_normal(len(x)) > 0.0).astype(int)
    dataset = write_dataset(tmp_path / "train", x, y, shard_size=400_000)
    params = {"loss": "log", "alpha": 1e-3, "lanes": 1}
    roomy = fit("bcd", dataset, params=params, rtol=1e-6)
    tight = fit("bcd", dataset, params={**params, "active_mib": 1, "tau": 1e-4})
    assert [note for note in tight.record["notes"] if "active_mib=1:" in note]
    assert tight.status == "CONVERGED"
    assert tight.record["objective"] == pytest.approx(roomy.record["objective"], rel=1e-5)


@pytest.mark.slow
def test_sweeps_that_end_too_soon_are_followed_by_a_gram(tmp_path):
    """Eight outputs over five values a row: passes over the Gram are slow there, and sweeps alone end at 2e-4."""
    rng = np.random.default_rng(4)
    x = sp.random(300, 500, density=0.01, format="csr", random_state=rng, dtype=np.float32)
    x.data[:] = 1.0
    y = (x @ rng.standard_normal((500, 8)) + 0.5 * rng.standard_normal((300, 8))).argmax(axis=1)
    y[:8] = range(8)
    dataset = write_dataset(tmp_path / "train", x, y.astype(np.int32), n_classes=8, shard_size=200_000)
    params = {"alpha": 1e-4, "loss": "softmax", "penalty": "l1l2", "fit_intercept": True}
    found = fit("bcd", dataset, params=params, rtol=1e-5, passes=30)
    assert found.status == "CONVERGED"
    # the loss ignores a constant, in which the intercept has no reason to move
    assert abs(found.model.intercept.mean()) < 1e-3 * np.ptp(found.model.intercept)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["softmax", "multiclass_squared_hinge"])
def test_a_weight_of_two_is_a_row_twice(tmp_path, loss):
    x, y = labelled_rows(200, 30, 3)
    twice = np.arange(len(y)) % 3 == 0
    weight = np.where(twice, 2.0, 1.0).astype(np.float32)
    weighted = write_dataset(tmp_path / "weighted", x, y, sample_weight=weight, shard_size=2000)
    rows = np.concatenate([np.arange(len(y)), np.flatnonzero(twice)])
    repeated = write_dataset(tmp_path / "repeated", x[rows], y[rows], shard_size=2000)
    first, second = (records_of(data, loss=loss, alpha=1e-2, fit_intercept=True)[0] for data in (weighted, repeated))
    np.testing.assert_allclose(first.model.weights, second.model.weights, atol=1e-6)


@pytest.mark.slow
def test_rounds_do_not_depend_on_the_tolerance(small):
    """It says which of them is the last: a run goes on from the states of one with another tolerance."""
    params = {"alpha": 2e-3, "fit_intercept": True}
    rounds = {rtol: records_of(small, rtol, **params)[1] for rtol in (1e-2, 1e-10)}
    few, many = ([record["details"] for record in rounds[rtol]] for rtol in rounds)
    assert 1 < len(few) < len(many)
    assert few == many[: len(few)]


@pytest.mark.fast_cases("csr")
def test_a_strength_of_a_path_is_solved_as_far_as_is_asked(small, monkeypatch):
    """It begins near its optimum; a descent further than the tolerance, or `tau`, would take as long as all else."""
    last, descend = {}, WorkingSetTask._descend
    for rtol in (1e-3, 1e-10, None):

        def noted(self, columns, rtol=rtol):
            last[rtol] = self.target
            descend(self, columns)

        monkeypatch.setattr(WorkingSetTask, "_descend", noted)
        result = fit("bcd", small, params={"alpha": "path", "alphas": "1e-2:8e-3:6e-3"}, rtol=rtol)
        assert all(child["status"] == "CONVERGED" for child in result.record["children"])
        assert result.record["certificate"]["relative"] <= (rtol or 5e-4)
        last[rtol] /= result.record["objective"]
    assert last[1e-10] < 1e-5 < 4e-4 < last[None] < 5e-4 < last[1e-3] < 1e-3


@pytest.mark.fast_cases("csr")
def test_one_process_writes_no_scores_and_reads_none_again(small, tmp_path, monkeypatch):
    """Strengths of a path begin at the scores with which the one before it has ended, with the same bits."""
    read, add = [], violation_task.ScoresOfColumns.add

    def counted(self, index, shard):
        read.append(1 - self.data.one_row)
        add(self, index, shard)

    monkeypatch.setattr(violation_task.ScoresOfColumns, "add", counted)
    written, write = [], RowState.write

    def noted(self, *given):
        # those of one row, on which tasks are tried, are in memory
        written.append(self._memory is None)
        write(self, *given)

    monkeypatch.setattr(RowState, "write", noted)
    strengths = {"alpha": "path", "alphas": "1e-2:8e-3:6e-3"}
    kept = fit("bcd", small, params=strengths, rtol=1e-6).model.sha256
    assert not any(written)
    assert not sum(read)
    monkeypatch.setattr(violation_task, "known_scores", lambda *given: None)
    assert fit("bcd", small, params=strengths, rtol=1e-6).model.sha256 == kept
    assert sum(read)


@pytest.mark.slow
def test_steps_between_cycles_lead_where_cycles_go(tmp_path, monkeypatch):
    """Of as many columns as half the rows cycles alone need several times as many."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((300, 1500)).astype(np.float32)
    y = x[:, :20] @ rng.standard_normal(20) + rng.standard_normal(300) > 0.5
    ingest(x, tmp_path / "train", y=y.astype(int))
    dataset = add_columns(tmp_path / "train")
    cycles, cycle = [], ProxNewton._cycle
    monkeypatch.setattr(ProxNewton, "_cycle", lambda *given: (cycles.append(1), cycle(*given))[1])
    monkeypatch.setattr(ProxNewton, "_worth", lambda *given, **asked: 1e6)
    monkeypatch.setattr(prox_newton, "_DENSE_PRODUCT", prox_newton._PRODUCT)  # so few columns are in the caches
    params = {"loss": "log", "penalty": "l1", "alpha": 5e-3, "fit_intercept": True}
    stepped, _ = records_of(dataset, 1e-6, **params)
    few = len(cycles)
    cycles.clear()
    monkeypatch.setattr(ProxNewton, "_leapt", lambda self, value: (value, 0))
    alone, _ = records_of(dataset, 1e-6, **params)
    assert 2 * few < len(cycles)
    assert stepped.record["objective"] == pytest.approx(alone.record["objective"], rel=2e-6)


@pytest.mark.parametrize("stop", [1, 3])
def test_what_found_no_memory_is_left_out_after_a_resume_too(tmp_path, stop):
    """That a round has brought something is not seen again when its weights are judged once more."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3000, 900)).astype(np.float32)
    y = x[:, :200] @ rng.standard_normal(200) + 5.0 * rng.standard_normal(3000) > 0.0
    dataset = write_dataset(tmp_path / "train", x, y.astype(np.int32), shard_size=100_000)
    given = {"params": {"loss": "log", "penalty": "l1", "alpha": 1e-2, "active_mib": 2}, "rtol": 1e-3, "passes": 6}
    whole = fit("bcd", dataset, tmp_path / "whole", **given)
    with interrupted():
        fit("bcd", dataset, tmp_path / "run", callbacks=[StopAfter(stop)], **given)
    assert resume(tmp_path / "run").model.sha256 == whole.model.sha256


@pytest.mark.fast_cases("2")
@pytest.mark.parametrize("k", [2, 3])
def test_the_bits_do_not_depend_on_threads(tmp_path, monkeypatch, k):
    x, y = labelled_rows(9000, 60, k)
    dataset = write_dataset(tmp_path / "train", x, y, partition_rows=3000, shard_size=2000)
    monkeypatch.setattr(all_rows, "_LEAST_SCORES", 1000)
    monkeypatch.setattr(working_columns, "_LEAST_VALUES", 1000)
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(all_rows, "THREADS", threads)
        monkeypatch.setattr(kept_gram, "THREADS", threads)
        found.append(records_of(dataset, loss="softmax", alpha=1e-3, fit_intercept=True)[0].model.sha256)
    assert found[0] == found[1] == found[2]


@pytest.mark.fast_cases("csr")
def test_a_path_multiplies_once_at_the_weights_of_two_strengths(small, tmp_path, monkeypatch):
    products, multiply = [], violation_task.products_of

    def multiplied(x, slopes, *asked, **alone):
        found = multiply(x, slopes, *asked, **alone)
        # not of the one row on which tasks are tried
        products.append((len(slopes) > 1) * len(found))
        return found

    monkeypatch.setattr(violation_task, "products_of", multiplied)
    strengths = {"alpha": "path", "alphas": "1e-2:8e-3:6e-3"}

    def path(name):
        products.clear()
        fit("bcd", small, tmp_path / name, params=strengths, rtol=1e-6)
        children = sorted((tmp_path / name / "children").iterdir())
        return [load_model(child / "model").sha256 for child in children], sum(products)

    models, columns = path("once")
    monkeypatch.setattr(
        violation_task, "known_products", lambda data, slopes: KnownProducts(data, SlopeProducts(slopes))
    )
    # Each strength but the first begins where the one before it has ended.
    assert path("anew") == (models, columns + 2 * small.meta.n_features)


def test_paths_of_several_penalties_have_the_bits_of_each_alone(tmp_path):
    """What is held of one is not what matters to another, though both begin at the slopes of zero weights."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 300)).astype(np.float32)
    y = (x[:, :3].sum(axis=1) + 0.5 * rng.standard_normal(60) > 0).astype(int)
    data = write_dataset(tmp_path / "train", x, y, shard_size=8000)
    most = np.abs(x.T @ (y - 0.5)).max() / 60
    given = {"loss": "log", "penalty": "elasticnet", "alpha": "path", "fit_intercept": False, "dtype": "float64"}
    given["alphas"] = ":".join(str(share * most) for share in (1.30, 1.28, 1.26))

    def models(name, **own):
        fit("bcd", data, tmp_path / name, params={**given, **own}, select=data)
        children = sorted((tmp_path / name / "children").iterdir())
        return [load_model(child / "model").sha256 for child in children]

    alone = [digest for ratio in (1.0, 0.5) for digest in models(f"alone-{ratio}", l1_ratio=ratio)]
    assert models("both", l1_ratio=[1.0, 0.5]) == alone


@pytest.mark.parametrize("cached", [True, False])
def test_a_path_reads_dense_shards_once_a_strength(tmp_path, monkeypatch, cached):
    """And multiplies those columns alone that a bound does not tell to be small; with the same bits.

    Of shards that are decoded for every read one serves several strengths.
    """
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 300)).astype(np.float32)
    y = (x[:, :3].sum(axis=1) + 0.5 * rng.standard_normal(60) > 0).astype(int)
    dataset = write_dataset(tmp_path / "train", x, y, shard_size=8000)
    counts, multiply, shards = [0, 0], violation_task.products_of, violation_task.stream_columns

    def multiplied(*given, **asked):
        counts[0] += len(found := multiply(*given, **asked))
        return found

    def streamed(data, blocks, ledger):
        counts[1] += len(blocks)
        yield from shards(data, blocks, ledger)

    monkeypatch.setattr(violation_task, "products_of", multiplied)
    monkeypatch.setattr(violation_task, "stream_columns", streamed)
    # once farther below than expected
    alphas = ":".join(map(repr, (0.3 * 0.97 ** np.array([*range(8), *range(14, 20)])).tolist()))
    params = {"loss": "log", "fit_intercept": False, "alpha": "path", "alphas": alphas}
    memory = None if cached else MemoryBudget(2048 * MIB, cache_limit=0)

    def path(name):
        counts[:] = [0, 0]
        fit("bcd", dataset, tmp_path / name, params=params, rtol=1e-3, memory=memory)
        children = sorted((tmp_path / name / "children").iterdir())
        ends = [json.loads((child / "status.json").read_text())["certificate"] for child in children]
        return [load_model(child / "model").sha256 for child in children], ends, *counts

    *models, products, read = path("known")
    monkeypatch.setattr(
        violation_task, "known_products", lambda data, slopes: KnownProducts(data, SlopeProducts(slopes))
    )
    assert list(path("anew")[:2]) == models
    assert products < 0.7 * counts[0]
    assert read < 0.7 * counts[1]
    assert cached or read < 0.6 * 14 * len(dataset.columns)


def test_a_fit_that_gives_way_to_sweeps_is_resumed(tmp_path):
    """Where the columns that matter do not fit, and each round is saved."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((10_000, 60)).astype(np.float32)
    y = (x[:, :40].sum(axis=1) + rng.standard_normal(len(x)) > 0).astype(int)
    dataset = write_dataset(tmp_path / "train", x, y, shard_size=400_000)
    params = {"loss": "log", "alpha": 1e-3, "lanes": 1, "active_mib": 1}

    def fitted(name, **given):
        return fit("bcd", dataset, tmp_path / name, params=params, passes=12, checkpoint_seconds=0.0, **given)

    whole = fitted("whole")
    assert "rounds are sweeps" in whole.record["notes"][0]
    with interrupted():
        fitted("run", callbacks=[StopAfter(3)])
    assert resume(tmp_path / "run").model.sha256 == whole.model.sha256


@pytest.mark.fast_cases("kept0")
@pytest.mark.parametrize("kept", [[], [1, 4, 5], [0, 2, 3, 6, 9], list(range(300))])
def test_products_of_two_columns_are_the_same_in_every_gram(kept):
    """Whatever is known, and whatever columns are beside them; a little more than one block of them is new."""
    rng = np.random.default_rng(0)
    x, h = rng.standard_normal((301, 1100)), rng.random((1100, 1)).astype(np.float32)
    whole = kept_gram._of_dense(x, h, np.arange(301), None)
    numbers = np.sort(rng.permutation(301)[:290])
    known = None
    if kept:
        known = kept_gram._Kept(None, h, np.array(kept), whole[np.ix_(kept, [0], kept)])
    found = kept_gram._of_dense(x[numbers], h, numbers, known)
    np.testing.assert_array_equal(found, whole[np.ix_(numbers, [0], numbers)])
    np.testing.assert_allclose(whole[:, 0], (x * h[:, 0]) @ x.T, rtol=1e-4, atol=1e-3)


@pytest.mark.slow
def test_a_path_has_the_bits_of_one_that_keeps_no_products(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 80)).astype(np.float32)
    y = x[:, :8] @ rng.standard_normal(8) + rng.standard_normal(200)
    ingest(x, tmp_path / "train", y=y)
    dataset = add_columns(tmp_path / "train", shard_size=8000)
    params = {"loss": "squared", "penalty": "l1", "alpha": "path", "alphas": "1:.5:.2:.1:.03", "lanes": 2}
    multiplied, multiply = [], kept_gram._multiply
    monkeypatch.setattr(kept_gram, "_multiply", lambda *given: (multiplied.append(given[2]), multiply(*given)))

    monkeypatch.setattr(ProxNewton, "_run_cycles", lambda self, judged, target: judged)

    def path():
        multiplied.clear()
        return fit("bcd", dataset, params=params, rtol=1e-6).model.sha256, sum(multiplied)

    kept, few = path()
    gram_of = prox_newton.gram_of
    monkeypatch.setattr(prox_newton, "gram_of", lambda *given: gram_of(*given[:-1], 0))
    anew, many = path()
    assert kept == anew
    assert 2 * few < many


@pytest.mark.slow
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("penalty", ["l1", "elasticnet", "l1l2", "sparse-group"])
def test_steps_between_passes_lead_where_passes_go(tmp_path, monkeypatch, penalty, intercept):
    """Features so correlated that passes alone take hundreds: both end at one optimum."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((300, 3)) @ rng.standard_normal((3, 40)) + 0.1 * rng.standard_normal((300, 40))
    y = np.stack([x[:, :4].sum(axis=1), x[:, 4:7].sum(axis=1)], axis=1) + rng.standard_normal((300, 2))
    ingest(x.astype(np.float32), tmp_path / "train", y=y)
    dataset = add_columns(tmp_path / "train")
    params = {"loss": "squared", "penalty": penalty, "alpha": 1e-2, "fit_intercept": intercept}
    stepped, _ = records_of(dataset, 1e-8, **params)
    calls, descend = [], quadratic_model.gram_descent

    def counted(*given):
        calls.extend([1] * (given[-1] > 0))  # with no passes it is a product with the Gram
        return descend(*given)

    monkeypatch.setattr(quadratic_model, "gram_descent", counted)
    again, _ = records_of(dataset, 1e-8, **params)
    few = len(calls)
    calls.clear()
    monkeypatch.setattr(quadratic_model, "_step", lambda *given: None)
    passed, _ = records_of(dataset, 1e-8, **params)
    assert again.model.sha256 == stepped.model.sha256
    assert stepped.record["objective"] == pytest.approx(passed.record["objective"], rel=3e-8)
    assert 2 * few < len(calls)


@pytest.mark.slow
@pytest.mark.parametrize("intercept", [True, False])
def test_a_scaled_gram_has_the_diagonal_of_a_new_one(small, monkeypatch, intercept):
    """So that it serves for most steps: weights change curvature, and hardly how columns are correlated."""
    scaled, gram, calls = ProxNewton._scaled, ProxNewton._gram, []

    def compared(self, earlier):
        found = scaled(self, earlier)
        fresh = np.diagonal(gram(self), axis1=0, axis2=2)
        np.testing.assert_allclose(np.diagonal(found, axis1=0, axis2=2), fresh, rtol=1e-4, atol=1e-6)
        calls.append("scaled")
        return found

    monkeypatch.setattr(ProxNewton, "_scaled", compared)
    monkeypatch.setattr(ProxNewton, "_run_cycles", lambda self, judged, target: judged)
    monkeypatch.setattr(ProxNewton, "_gram", lambda self: calls.append("new") or gram(self))
    result, _ = records_of(small, loss="multitask_squared_hinge", alpha=1e-3, fit_intercept=intercept)
    assert result.status == "CONVERGED"
    assert calls.count("scaled") > calls.count("new") > 0


@pytest.mark.slow
@pytest.mark.parametrize("correlated", [False, True])
@pytest.mark.parametrize("loss", ["log", "squared_hinge"])
def test_cycles_give_way_where_columns_are_correlated(tmp_path, monkeypatch, loss, correlated):
    """The optimum is that of steps on the Gram, which is not made where cycles are sooner."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2000, 100)) + 20.0 * correlated * rng.standard_normal((2000, 1))
    x, y = sp.csr_matrix(x, dtype=np.float32), rng.integers(0, 2, 2000)
    dataset = write_dataset(tmp_path / "train", x, y, shard_size=2000)
    params, rtol = {"loss": loss, "alpha": 3e-3, "fit_intercept": True}, 1e-8 if correlated else 1e-4
    made, gram = [], ProxNewton._gram
    monkeypatch.setattr(ProxNewton, "_gram", lambda self: made.append(len(self._h)) or gram(self))
    cycled, _ = records_of(dataset, rtol, **params)
    assert (2000 in made) == correlated  # that of one row is made to compile kernels
    monkeypatch.setattr(ProxNewton, "_run_cycles", lambda self, judged, target: judged)
    by_gram, _ = records_of(dataset, rtol, **params)
    assert 2000 in made
    assert cycled.status == by_gram.status == "CONVERGED"
    assert cycled.record["objective"] == pytest.approx(by_gram.record["objective"], rel=2.0 * rtol)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["log", "squared_hinge"])
def test_refused_steps_leave_the_scores_of_the_weights(tmp_path, monkeypatch, loss):
    """Columns far from zero, and next to no penalty: steps are refused that move scores by more than their digits."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((300, 30)) + 100.0, rng.integers(0, 2, 300)
    dataset = write_dataset(tmp_path / "train", x, y, shard_size=2000)
    drifts, searched = [], ProxNewton._searched

    def compared(self, *given):
        found, columns = searched(self, *given), self._columns
        wanted = columns.change_scores(columns.w, columns.intercept())
        drifts.append(np.abs(columns.margins.z - wanted).max() / (1.0 + np.abs(wanted).max()))
        return found

    monkeypatch.setattr(ProxNewton, "_searched", compared)
    fit("bcd", dataset, params={"loss": loss, "alpha": 1e-7, "fit_intercept": True}, rtol=1e-6, passes=12)
    assert drifts
    assert max(drifts) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["softmax", "multitask_squared_hinge"])
def test_early_descents_take_some_of_the_rows(tmp_path, monkeypatch, loss):
    """The Gram of every eighth row while all columns are new, then that of all; the optimum is the same."""
    x, y = labelled_rows(6000, 30, 3)
    dataset = write_dataset(tmp_path / "train", x, y, shard_size=2000)
    shifts, gram = [], ProxNewton._gram
    monkeypatch.setattr(ProxNewton, "_run_cycles", lambda self, judged, target: judged)
    monkeypatch.setattr(ProxNewton, "_gram", lambda self: shifts.append(self._shift) or gram(self))
    some, _ = records_of(dataset, loss=loss, alpha=1e-3, fit_intercept=True)
    assert shifts[-1] == 0 < max(shifts)
    monkeypatch.setattr(prox_newton, "_LOOSE", np.inf)
    shifts.clear()
    every, _ = records_of(dataset, loss=loss, alpha=1e-3, fit_intercept=True)
    assert not any(shifts)
    assert some.status == every.status == "CONVERGED"
    assert some.record["objective"] == pytest.approx(every.record["objective"], rel=2e-10)


@pytest.mark.fast_cases("0-False")
@pytest.mark.parametrize("ones", [False, True])
@pytest.mark.parametrize("shift", [0, 2])
def test_columns_are_put_together_by_row(shift, ones):
    x = sp.random(37, 9, 0.4, "csc", dtype=np.float32, rng=np.random.default_rng(0))
    columns = CsrRows(x.indptr.astype(np.int64), x.indices.astype(np.uint32), x.data)
    found = kept_gram.rows_of(columns, len(range(0, 37, 1 << shift)), shift, ones=ones)
    wanted = np.hstack([x.toarray(), np.ones((37, int(ones)))])[:: 1 << shift]
    turned = sp.csr_matrix((found.data, found.indices, found.indptr), wanted.shape)
    assert turned.has_sorted_indices
    np.testing.assert_array_equal(turned.toarray(), wanted)


@pytest.mark.fast_cases("csr")
def test_what_a_path_keeps_is_released_by_the_next_job(small, tmp_path):
    fit("bcd", small, params={"alpha": 1e-2})
    assert job_memory
    fit("sgd", small, tmp_path / "run", passes=1)
    assert not job_memory


@pytest.mark.fast_cases("csr")
def test_a_tolerance_counts_alone(small, tmp_path):
    """A fit goes on where `tau` is met and `rtol` is not, also one that was stopped in between."""
    params, run = {"alpha": 2e-2}, tmp_path / "run"
    whole = fit("bcd", small, params=params, rtol=1e-10, passes=60)
    stop = int(whole.record["round"]) - 1
    with interrupted():
        fit("bcd", small, run, params=params, rtol=1e-10, passes=60, callbacks=[StopAfter(stop)])
    again = resume(run)
    assert again.record["certificate"]["relative"] <= 1e-10
    assert (again.model.sha256, again.record["round"]) == (whole.model.sha256, stop + 1)
    soon = fit("bcd", small, params=params, passes=60)
    assert soon.status == "CONVERGED"
    assert 1e-10 < soon.record["certificate"]["relative"] <= 5e-4


@pytest.mark.fast_cases("csr")
def test_weights_that_are_all_zero_are_proven_at_once(small):
    result, records = records_of(small, alpha=10.0, fit_intercept=False)
    assert not result.model.weights.any()
    assert len(records) == 1
    assert records[0]["passes"] == 2.0


@pytest.mark.fast_cases("csr")
def test_what_sweeps_alone_have_is_refused(small):
    for given in ({"shrink": True}, {"step": "constant"}, {"active_sweeps": 0}, {"penalty": "l2"}, {"alpha": 0.0}):
        with pytest.raises(ParameterError, match="algorithm=working-set"):
            fit("bcd", small, params={"algorithm": "working-set", **given}, passes=1)
