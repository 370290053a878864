"""Certificates are bounds, and near the truth on text."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
import threadpoolctl
from helpers import distls, labelled_rows, printed, raised, stored_rows, write_dataset
from target_helpers import write_targets

from distls import History, add_columns, evaluate, fit
from distls.evaluation.evaluate import prove
from distls.execution.serial import SerialExecutor
from distls.methods.method_registry import method_named
from distls.problem import Problem
from distls.solvers.coordinate_descent import near_search
from distls.solvers.coordinate_descent.near_search import NearSearch
from distls.storage.errors import StateLostError
from distls.storage.model.model import load_model
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
        "loss": loss, "penalty": penalty, "alpha": alpha, "dtype": ["float64", "float32"][seed % 3 == 0],
    }  # fmt: skip
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


# -- what the duals of a run prove, computed again -------------------------------------------------------


data = stored_rows(90, 12, 3)


def _evaluated(*arguments):
    """Return what the command says, on stdout and on stderr."""
    ended = distls("evaluate", *arguments)
    assert ended.code == 0, ended
    return ended.out + ended.err


@pytest.mark.fast_cases("False")
@pytest.mark.parametrize("intercept", [False, True])
def test_evaluate_computes_the_gap_again(data, tmp_path, intercept):
    params = {"alpha": 1e-2, "fit_intercept": intercept}
    record = fit("sdca", data, tmp_path / "run", params=params).record
    found = json.loads(_evaluated(tmp_path / "run", data.path, "--json"))
    # the published intercept is rounded; a fit also knows the bounds of earlier rounds
    assert found["objective"] == pytest.approx(record["objective"], rel=1e-6)
    assert found["certificate"]["value"] >= record["certificate"]["value"] * (1 - 1e-3)
    assert found["certificate"]["relative"] == found["certificate"]["value"] / found["objective"] < 2e-3
    assert "n_rows" in found
    last = _evaluated(tmp_path / "run", data.path).splitlines()[-1]
    share = 100 * found["certificate"]["relative"]
    assert last == (
        f"objective {found['objective']:.6f}, proven to be at most {share:.2g} % "
        f"({found['certificate']['value']:.2e}) above the lowest possible (duality_gap)"
    )


def test_other_data_and_other_methods_have_no_proof(data, tmp_path):
    other = write_dataset(tmp_path / "other", *labelled_rows(80, 12, 3))
    fit("sdca", data, tmp_path / "run", params={"alpha": 1e-2})
    fit("mcid", data, tmp_path / "mcid", passes=1)
    assert "objective" not in _evaluated(tmp_path / "run", other.path)
    assert "objective" not in _evaluated(tmp_path / "mcid", data.path)


@pytest.mark.slow
def test_the_duals_of_a_selected_setting(data, tmp_path):
    params = {"alpha": [1e-1, 1e-2], "fit_intercept": False}
    result = fit("sdca", data, tmp_path / "run", params=params, select=data)
    found = prove(tmp_path / "run", load_model(tmp_path / "run"), data, SerialExecutor())
    assert found["objective"] == pytest.approx(result.record["objective"], rel=1e-12)
    shown = json.loads(printed("info", tmp_path / "run", "--json"))
    assert shown["duals"]["folder"].startswith(str(tmp_path / "run" / "children"))
    assert shown["duals"]["files"] >= 1


def test_lost_duals_are_said_to_be_lost(data, tmp_path):
    """Fault: Duals (RUN/state of `sdca`) removed after the fit | `distls evaluate` on the training data | the
    scores, and a note that objective and gap are not recomputed"""
    fit("sdca", data, tmp_path / "run", params={"alpha": 1e-2})
    for file in (tmp_path / "run" / "state").glob("*.npy"):
        file.unlink()
    raised(StateLostError, prove, tmp_path / "run", load_model(tmp_path / "run"), data, SerialExecutor())
    output = _evaluated(tmp_path / "run", data.path)
    assert "the objective and its bound are not recomputed" in output
    assert "error" in output


@pytest.mark.fast_cases("class$")
@pytest.mark.parametrize("kind", ["class", "multilabel", "continuous"])
def test_python_s_evaluate_has_the_proof_of_the_command(tmp_path, kind):
    x, y = labelled_rows(60, 8, 3)
    targets = {"class": y, "multilabel": np.eye(3, dtype=int)[y], "continuous": y[:, None].astype(float)}
    if kind == "class":
        train = write_dataset(tmp_path / "train", x, y)
    else:
        train = write_targets(tmp_path / "train", x, targets[kind], kind)
    fit("sdca", train, tmp_path / "run", params={"alpha": 1e-2})
    shown = json.loads(_evaluated(tmp_path / "run", train.path, "--json"))
    found = evaluate(tmp_path / "run", train)
    assert found.objective == shown["objective"]
    assert found.certificate == shown["certificate"]
    assert found.to_json() == shown
    # a model that has left its run, other data, another method
    other = write_dataset(tmp_path / "other", x[:50], y[:50]) if kind == "class" else None
    assert evaluate(load_model(tmp_path / "run"), train).objective is None
    assert other is None or evaluate(tmp_path / "run", other).certificate is None
    assert "objective" not in evaluate(load_model(tmp_path / "run"), train).to_json()


def test_python_s_evaluate_says_what_is_lost(data, tmp_path):
    fit("sdca", data, tmp_path / "run", params={"alpha": 1e-2})
    for file in (tmp_path / "run" / "state").glob("*.npy"):
        file.unlink()
    with pytest.warns(UserWarning, match="the objective and its bound are not recomputed: .*missing"):
        assert evaluate(tmp_path / "run", data).objective is None


@pytest.mark.slow
def test_a_fit_starts_from_the_duals_of_a_selected_setting(data, tmp_path):
    """As from the run of the setting that won."""
    parent = fit("sdca", data, tmp_path / "run", params={"alpha": [1.0, 1e-2, 1e-1]}, select=data)
    won = tmp_path / "run" / "children" / "001"
    assert load_model(won).sha256 == parent.model.sha256
    params = {"alpha": 1e-3, "init": str(won)}
    best = fit("sdca", data, params=params, passes=1).model
    assert fit("sdca", data, params={**params, "init": str(tmp_path / "run")}, passes=1).model.sha256 == best.sha256
    for file in (won / "state").glob("*.npy"):
        file.unlink()
    raised(StateLostError, prove, tmp_path / "run", parent.model, data, SerialExecutor())


@pytest.mark.slow
def test_the_best_weights_of_patience_have_no_duals(data, tmp_path):
    """Duals are those of the last round; where an earlier one is published, that is said."""
    x, _ = labelled_rows(40, 12, 3)
    judge = write_dataset(tmp_path / "judge", x, np.zeros(40, np.int32), n_classes=3)
    run = tmp_path / "run"
    params = {"alpha": 1e-3, "fit_intercept": True, "intercept_scaling": 1.0}
    result = fit("sdca", data, run, params=params, passes=9, eval_data=judge, patience=3)
    assert result.status == "EARLY_STOPPED"
    message = "no duals of these weights are kept"
    assert message in _evaluated(run, data.path)
    with pytest.warns(UserWarning, match=message):
        assert evaluate(run, data).objective is None
    assert json.loads(printed("info", run, "--json"))["duals"] is None
    # without duals the gradient bounds the distance, that of the penalised intercept included
    best = fit("sdca", data, params=params, rtol=1e-6).record["objective"]
    excess = result.record["objective"] - best
    assert 0.0 < excess <= result.record["certificate"]["value"]
