"""Certificates are bounds, and near the truth on text."""

import numpy as np
import pytest
import scipy.sparse as sp
import threadpoolctl
from helpers import labelled_rows, write_dataset

from distls.columns.sharding import add_columns
from distls.methods.method_registry import method_named
from distls.problem import Problem
from distls.solvers.coordinate_descent import near_search
from distls.solvers.coordinate_descent.near_search import NearSearch
from distls.training.callbacks import History
from distls.training.fitting import fit
from distls.workers.synthetic.kinds import generate_rows

LOSSES = ["multiclass_squared_hinge", "multitask_squared_hinge", "softmax"]
PENALTIES = ["l1l2", "l1", "l2", "elasticnet", "l1linf", "sparse-group"]


def records_of(dataset, rounds, method="bcd", every=1, **params):
    kept = History()
    fit(method, dataset, params=params, passes=rounds, eval_every=every, callbacks=[kept])
    return kept.records


def lowest(dataset, records, **params):
    """Return the optimum, by a long fit."""
    params = {**params, "dtype": "float64", "lanes": 1, "tau": 1e-7}
    long = fit("bcd", dataset, params=params, passes=100)
    return min(long.record["objective"], *(record["objective"] for record in records))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    x, y = generate_rows("rcv1-53", 0, "train", 0, 500)
    rows = sp.csr_matrix((x.data, x.indices.astype(np.int32), x.indptr), shape=(500, 47_236))
    common = np.flatnonzero(np.diff(rows.tocsc().indptr) >= 3)
    path, y = tmp_path_factory.mktemp("data") / "text", np.minimum(y, 9)
    return write_dataset(path, rows[:, common].astype(np.float32), y, shard_size=100_000)


@pytest.mark.slow
@pytest.mark.parametrize("penalty", ["l1l2", "l1linf", "sparse-group"])
def test_the_gap_on_text_is_at_most_ten_times_the_excess(text, penalty):
    params = {"penalty": penalty, "alpha": 2e-3, "algorithm": "sweeps"}
    records = records_of(text, 40, **params)
    best = lowest(text, records, **params)
    near = [r for r in records if 1e-5 * best < r["objective"] - best < 1e-2 * best]
    assert len(near) >= 2
    for record in near:
        excess = record["objective"] - best
        assert excess <= record["certificate"]["value"] <= 10.0 * excess


@pytest.mark.slow
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("method", ["fista", "sparsa"])
def test_methods_that_read_rows_have_the_bound_of_working_sets(text, method, intercept):
    params = {"alpha": 2e-3, "fit_intercept": intercept}
    records = [r for r in records_of(text, 160, method, 40, **params) if "objective" in r]
    best = lowest(text, records, **params)
    # with an intercept they are far from the optimum after so many reads
    near = [r for r in records if 1e-5 * best < r["objective"] - best < (0.3 if intercept else 1e-2) * best]
    assert near
    for record in near:
        excess = record["objective"] - best
        assert record["certificate"]["kind"] == "duality_gap"
        assert excess <= record["certificate"]["value"] <= 10.0 * excess
    alone = [r for r in records_of(text, 160, method, 40, active_mib=0, **params) if "objective" in r]
    assert [r["objective"] for r in alone] == [r["objective"] for r in records]
    if not intercept:
        assert alone[-1]["certificate"]["value"] > 5 * records[-1]["certificate"]["value"]


@pytest.mark.slow
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_the_mean_row_brings_the_bound_of_least_squares_near(text, class_weight):
    params = {"alpha": 1e-3, "dtype": "float64", "fit_intercept": False, "class_weight": class_weight}
    records = records_of(text, 12, "c-adaline", **params)
    long = fit("sdca", text, params={**params, "loss": "squared"}, passes=300, rtol=1e-10)
    best = long.record["objective"]
    for record in records:
        assert record["certificate"]["kind"] == "duality_gap"
        excess = record["objective"] - best
        assert 0.0 < excess <= record["certificate"]["value"] <= 3.0 * excess


@pytest.mark.fast_cases("c-adaline")
@pytest.mark.parametrize(("method", "params"), [("c-adaline", {}), ("fobos", {"penalty": "l1", "eta0": 0.1})])
def test_the_bits_do_not_depend_on_threads_of_blas(tmp_path, method, params):
    rng = np.random.default_rng(2)
    x, y = (1.0 + rng.standard_normal((40, 20_000))) / 200.0, rng.integers(0, 3, 40)
    dataset = write_dataset(tmp_path / "wide", x.astype(np.float32), y.astype(np.int32))
    found = []
    for threads in (1, 2):
        with threadpoolctl.threadpool_limits(threads, user_api="blas"):
            given = {"alpha": 1e-3, "fit_intercept": False, "dtype": "float64", **params}
            found.append(records_of(dataset, 30, method, **given))
    for one, two in zip(*found, strict=True):
        assert one["certificate"] == two["certificate"]


def test_no_more_scores_are_held_than_columns_may_be(text, monkeypatch):
    problem = Problem.of(text, method_named("fista").resolve({}), 0, ("class",))
    assert NearSearch.of(problem, 1, None) is not None
    assert NearSearch.of(problem, 0, None) is None
    monkeypatch.setattr(near_search, "MIB", 1000)
    assert NearSearch.of(problem, 1, None) is None


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_certificates_of_random_problems_are_bounds(tmp_path, loss, penalty):
    seed = LOSSES.index(loss) * len(PENALTIES) + PENALTIES.index(penalty)
    generator = np.random.default_rng(seed)
    x, y = labelled_rows(int(generator.integers(40, 120)), int(generator.integers(5, 40)), 3)
    weight = generator.uniform(0.1, 3.0, len(y)) if seed % 2 else None
    dataset = write_dataset(tmp_path / "data", x, y, sample_weight=weight, shard_size=2000)
    alpha = float(10.0 ** generator.uniform(-3.0, -1.0))
    params = {
        "loss": loss,
        "penalty": penalty,
        "alpha": alpha,
        "dtype": ["float64", "float32"][seed % 3 == 0],
    }
    records = records_of(dataset, 8, **params)
    best = lowest(dataset, records, **params)
    # in float32 a rounded objective may be below it
    assert all(record["certificate"]["value"] > 0.0 for record in records)
    assert all(r["objective"] - r["certificate"]["value"] <= best + 1e-12 for r in records)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", ["l1l2", "elasticnet"])
def test_block_coordinate_descent_has_a_bound_with_an_intercept(tmp_path, loss, penalty):
    x, y = labelled_rows(150, 20, 3)
    write_dataset(tmp_path / "data", x + sp.csr_matrix(np.full(x.shape, 0.1, np.float32)), np.minimum(y, 2))
    dataset = add_columns(tmp_path / "data", shard_size=2000)
    params = {"loss": loss, "penalty": penalty, "alpha": 1e-2, "fit_intercept": True}
    records = records_of(dataset, 30, **params)
    best = lowest(dataset, records, **params)
    assert all(record["certificate"]["kind"] == "duality_gap" for record in records)
    assert all(r["objective"] - r["certificate"]["value"] <= best + 1e-12 for r in records)
    last = records[-1]
    assert last["certificate"]["value"] <= 10.0 * (last["objective"] - best) + 1e-6 * best
