"""Rounds that keep no number of a row: the optimum of working sets, chosen where the rows do not fit."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from contract import StoredContract
from helpers import labelled_rows, refuses, write_dataset

from distls import ingest
from distls.cli.report import limit_lines
from distls.columns.sharding import add_columns
from distls.execution.memory_budget import MIB, MemoryBudget
from distls.methods.method_registry import method_named
from distls.problem import Problem
from distls.reporting.run_page import render_report
from distls.reporting.run_report import report as report_of
from distls.solvers.coordinate_descent import row_blocks
from distls.solvers.coordinate_descent.bcd import BlockCoordinateDescent
from distls.solvers.status import Status
from distls.storage.errors import MemoryPlanError, ParameterError
from distls.testing.solvers import StopAfter, interrupted
from distls.training.fitting import fit, resume
from distls.workers.coordinate_descent.active_columns import known_products
from distls.workers.rounds.block_stream import DatasetRef

LOSSES = ["multiclass_squared_hinge", "multitask_squared_hinge", "softmax"]
PENALTIES = ["l1l2", "l1", "elasticnet", "l1linf", "sparse-group"]
BY_ROWS = {"algorithm": "row-blocks"}


@pytest.mark.slow
class TestContract(StoredContract):
    method = "bcd"
    params = {**BY_ROWS, "alpha": 1e-2, "lanes": 5, "tau": 0.0}
    passes = 9
    random = False


@pytest.fixture(scope="module")
def small(weighted_rows, tmp_path_factory):
    """Weighted rows in a dozen column shards."""
    x, y, weight = weighted_rows
    path = tmp_path_factory.mktemp("small") / "train"
    return write_dataset(path, x, y, sample_weight=weight, partition_rows=70, shard_size=2000)


def both(dataset, rtol=1e-9, **params):
    """Return the results of a descent in memory and of one by rows."""
    asked = {"rtol": rtol, "passes": 60}
    return (
        fit("bcd", dataset, params={"algorithm": "working-set", **params}, **asked),
        fit("bcd", dataset, params={**BY_ROWS, **params}, **asked),
    )


@pytest.mark.fast_cases("csr-True-l1l2-multiclass")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("intercept", [True, False])
def test_the_optimum_is_that_of_rows_in_memory(small, intercept, penalty, loss):
    found, own = both(small, loss=loss, penalty=penalty, alpha=3e-3, fit_intercept=intercept)
    assert (found.status, own.status) == ("CONVERGED", "CONVERGED")
    assert own.record["objective"] == pytest.approx(found.record["objective"], rel=1e-9)
    assert own.record["certificate"]["kind"] == "duality_gap"
    np.testing.assert_array_equal(own.model.weights != 0.0, found.model.weights != 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_and_sets_of_labels(tmp_path, dtype):
    x, y = labelled_rows(400, 30, 4)
    beta = np.random.default_rng(1).standard_normal((30, 2))
    lines = [
        f"{a},{(a + 1) % 4} " + " ".join(f"{j + 1}:{v}" for j, v in zip(row.indices, row.data, strict=True))
        for a, row in zip(y, x, strict=True)
    ]
    (tmp_path / "rows.svm").write_text("\n".join(lines))
    ingest(tmp_path / "rows.svm", tmp_path / "sets", multilabel=True, partition_size=2000)
    ingest(x, tmp_path / "numbers", y=x @ beta, target="continuous", partition_size=2000)
    for name, alpha in (("sets", 2e-2), ("numbers", 1e-3)):
        found, own = both(add_columns(tmp_path / name), 1e-5, alpha=alpha, dtype=dtype)
        assert own.status == "CONVERGED"
        assert own.record["objective"] == pytest.approx(found.record["objective"], rel=2e-5)


@pytest.mark.slow
def test_columns_move_in_turns_where_their_gram_does_not_fit(small, monkeypatch):
    whole = fit("bcd", small, params={**BY_ROWS, "alpha": 3e-3}, rtol=1e-6, passes=200)
    # four of some thirty columns with weights: the Gram of five, with the intercept's, of 3 * 4 / 2 parts
    monkeypatch.setattr(row_blocks, "_SHARE_OF_GRAM", MIB // (4 * 6 * 25))
    turns = fit("bcd", small, params={**BY_ROWS, "alpha": 3e-3, "active_mib": 1}, rtol=1e-6, passes=200)
    assert turns.record["certificate"]["relative"] <= 1e-6
    assert turns.record["objective"] == pytest.approx(whole.record["objective"], rel=1e-6)
    assert turns.record["round"] > whole.record["round"]


@pytest.mark.fast_cases("csr")
def test_it_is_named_where_rows_do_not_fit_and_goes_on(small, tmp_path, monkeypatch):
    params = {"alpha": 3e-3}
    named = fit("bcd", small, params={**params, **BY_ROWS}, rtol=1e-9, passes=60)
    with interrupted():
        stops = {"callbacks": [StopAfter(2)], "checkpoint_seconds": 0.0}
        fit("bcd", small, tmp_path / "run", params={**params, **BY_ROWS}, rtol=1e-9, passes=60, **stops)
    with monkeypatch.context() as few:
        few.setattr("distls.solvers.coordinate_descent.bcd.working_row_bytes", lambda problem: 2**40)
        with pytest.raises(MemoryPlanError, match=r"rows.*give algorithm=row-blocks"):
            fit("bcd", small, params=params, rtol=1e-9, passes=60)
        # its refit is by sweeps
        with pytest.raises(MemoryPlanError, match="rows") as caught:
            fit("bcd", small, params={**params, "debias": 1e-3})
        assert "row-blocks" not in str(caught.value)
        assert resume(tmp_path / "run").model.sha256 == named.model.sha256


def test_rounds_without_a_step_say_so_and_end(tmp_path):
    x, y = labelled_rows(600, 40, 4)
    dataset = write_dataset(tmp_path / "train", 1e20 * x.toarray(), y)
    done = fit("bcd", dataset, tmp_path / "run", params={**BY_ROWS, "alpha": 1e-2}, passes=99, rtol=1e-9)
    assert done.status == Status.MAX_PASSES
    assert done.passes < 20
    assert [note for note in done.record["notes"] if "no Newton step lowers the objective" in note]
    assert not limit_lines(done), "more passes would not help"
    report = report_of(tmp_path / "run")
    assert "ended by a limit of its own, such as steps or rounds, or for want of a step (MAX_PASSES)" in render_report(
        report
    )


def solver_of(dataset, n_rows, limit, **given):
    """Return the solver for so many rows like those of a data set, in partitions of 16 MiB, in workers of a limit."""
    chosen = method_named("bcd")
    params = chosen.resolve(given)
    problem = Problem.of(dataset, params, 0, chosen.targets)
    large = replace(dataset, meta=msgspec.structs.replace(dataset.meta, n_rows=n_rows))
    return BlockCoordinateDescent(replace(problem, dataset=large), params, memory=MemoryBudget(limit))


def test_rows_without_an_end_are_planned(tmp_path):
    x, _ = labelled_rows(300, 40, 3)
    ingest(x, tmp_path / "numbers", y=np.arange(300.0), target="continuous")
    dataset = add_columns(tmp_path / "numbers")
    assert "rows" in solver_of(dataset, 20_000_000, 4096 * MIB, loss="squared").plan.worker_parts
    refuses(MemoryPlanError, "algorithm=row-blocks", solver_of, dataset, 100_000_000, 4096 * MIB, loss="squared")
    for rows, limit in ((100_000_000, 4096 * MIB), (10**12, 600 * MIB)):
        plan = solver_of(dataset, rows, limit, loss="squared", **BY_ROWS).plan
        assert "rows" not in plan.worker_parts
        assert plan.worker_bytes <= limit


def test_column_shards_are_not_needed(tmp_path):
    x, y = labelled_rows(200, 20, 2)
    dataset = write_dataset(tmp_path / "train", x, y)
    assert fit("bcd", dataset, params={**BY_ROWS, "alpha": 1e-2}).status == "CONVERGED"
    for given in ({"debias": 1e-3}, {"penalty": "l2"}, {"shrink": True}):
        refuses(ParameterError, "algorithm=row-blocks", fit, "bcd", dataset, params={**BY_ROWS, **given})


@pytest.mark.slow
def test_a_path_begins_at_its_own_alpha(small, tmp_path):
    params = {"alpha": "path", "alphas": 4}
    ends = [fit("bcd", small, tmp_path / name, params={**params, "algorithm": name}) for name in
            ("working-set", "row-blocks")]  # fmt: skip
    first, second = ([child["objective"] for child in each.record["children"]] for each in ends)
    assert second == pytest.approx(first, rel=2e-3)


@pytest.mark.slow
def test_lanes_of_a_process_share_the_slopes(small):
    ref, slopes = DatasetRef.of(small), np.ones((300, 3))
    first = known_products(ref, slopes.copy()).newest
    assert known_products(ref, slopes.copy()).newest is first
    assert known_products(ref, 2.0 * slopes).newest is not first
