"""A penalised intercept: the weight of a constant feature, against the same problem with that column in its rows."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import refuses, write_dataset
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from target_helpers import write_targets

from distls import evaluate
from distls.solvers.status import Status
from distls.storage.errors import ParameterError
from distls.training.fitting import fit
from reference import dual_ascent
from reference.dual_ascent import Primal

ALPHA, SCALING = 0.1, 2.5
PARAMS = {"alpha": ALPHA, "fit_intercept": True, "intercept_scaling": SCALING, "dtype": "float64"}


def rows_of(k, n=60, d=5):
    """Rows whose classes are not balanced, so that an intercept matters."""
    rng = np.random.default_rng([5, k])
    x = np.round(rng.standard_normal((n, d)), 2)
    y = (x[:, :k] + np.linspace(1.0, 0.0, k)).argmax(axis=1)
    y[:k] = np.arange(k)
    return x, y.astype(np.int32), rng.random(n).astype(np.float32) + 0.2


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root, made = tmp_path_factory.mktemp("data"), {}
    for k in (2, 4):
        x, y, s = rows_of(k)
        made[k] = write_dataset(root / str(k), sp.csr_matrix(x), y, partition_rows=20, sample_weight=s)
    return made


def with_column(x):
    return np.hstack([x.astype(float), np.full((len(x), 1), SCALING)])


def stacked(model):
    """Return the weights with that of the constant feature, which is the intercept over its value."""
    return np.vstack([model.weights, model.intercept / SCALING]).astype(float)


@pytest.mark.fast_cases("softmax-4")
@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("loss", list(dual_ascent.DOMAINS))
def test_the_optimum_is_that_of_a_constant_column(data, tmp_path, loss, k):
    x, y, s = rows_of(k)
    primal = Primal(loss, with_column(x), y, k, alpha=ALPHA, s=s.astype(float))
    hinge = loss in ("ovr_hinge", "crammer_singer")  # whose last digits take many passes
    params, rtol = {**PARAMS, "loss": loss}, 5e-7 if hinge else 1e-7
    result = fit("sdca", data[k], tmp_path / "run", params=params, rtol=rtol, passes=2000)
    assert result.status == Status.CONVERGED
    found, value = primal.value(stacked(result.model), 0.0), result.record["certificate"]["value"]
    assert found == pytest.approx(result.record["objective"], rel=1e-9)
    assert abs(found - primal.optimum()) <= 1e-6 * found
    # from the model on disk and the duals in RUN/state
    proof = evaluate(tmp_path / "run", data[k])
    assert proof.objective == pytest.approx(found, rel=1e-9)
    assert value * (1 - 1e-3) <= proof.certificate["value"] <= 1e-6 * found
    scores = with_column(x) @ stacked(result.model)
    best = scores.argmax(axis=1) if k > 2 else scores[:, 0] > 0.0
    assert proof.error == np.mean(best != y)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["ovr_log", "ovr_hinge", "ovr_squared_hinge"])
def test_the_weights_of_liblinear(tmp_path, loss):
    x, y, _ = rows_of(2)
    data = write_dataset(tmp_path / "d", sp.csr_matrix(x), y, partition_rows=20)
    model = fit("sdca", data, params={**PARAMS, "loss": loss}, rtol=1e-13, passes=3000).model
    c = 1.0 / (ALPHA * len(x))
    shared = {"intercept_scaling": SCALING, "tol": 1e-9, "max_iter": 10**6}
    if loss == "ovr_log":
        theirs = LogisticRegression(C=c, solver="liblinear", **shared)
    elif loss == "ovr_hinge":
        theirs = LinearSVC(C=c, loss="hinge", **shared)
    else:
        theirs = LinearSVC(C=c, loss="squared_hinge", **shared)
    theirs.fit(x.astype(float), y)
    np.testing.assert_allclose(model.weights[:, 0], theirs.coef_[0], atol=1e-6)
    assert model.intercept[0] == pytest.approx(theirs.intercept_[0], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["squared", "ovr_log"])
def test_label_sets(tmp_path, loss):
    x, _, _ = rows_of(4)
    labels = (x[:, :3] + 0.5 > 0).astype(int)
    data = write_targets(tmp_path / "d", sp.csr_matrix(x), labels, "multilabel", partition_rows=20)
    result = fit("sdca", data, params={**PARAMS, "loss": loss}, rtol=1e-7, passes=600)
    primal = Primal(loss, with_column(x), labels.astype(float), 3, alpha=ALPHA)
    assert primal.value(stacked(result.model), 0.0) == pytest.approx(primal.optimum(), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["softmax", "crammer_singer"])
def test_the_gap_bounds_the_excess_of_every_pass(data, tmp_path, loss):
    x, y, s = rows_of(4)
    best = Primal(loss, with_column(x), y, 4, alpha=ALPHA, s=s.astype(float)).optimum()
    run = tmp_path / "run"
    fit("sdca", data[4], run, params={**PARAMS, "loss": loss}, passes=5, eval_every=1)
    records = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    judged = [record for record in records if "certificate" in record]
    assert len(judged) == 5
    for record in judged:
        assert -1e-6 <= record["objective"] - best <= record["certificate"]["value"] + 1e-10


@pytest.mark.slow
def test_starts_from_other_runs(data, tmp_path):
    """From an intercept without a penalty, from its own duals, and to one without."""
    free = {**PARAMS, "intercept_scaling": None}
    fit("sdca", data[4], tmp_path / "free", params=free)
    cold = fit("sdca", data[4], tmp_path / "cold", params=PARAMS, rtol=1e-6)
    for name in ("free", "cold"):
        warm = fit("sdca", data[4], params={**PARAMS, "init": str(tmp_path / name)}, rtol=1e-6)
        assert warm.passes <= cold.passes
        assert warm.record["objective"] == pytest.approx(cold.record["objective"], rel=2e-6)
    back = fit("sdca", data[4], params={**free, "init": str(tmp_path / "cold")}, rtol=1e-6)
    again = fit("sdca", data[4], params=free, rtol=1e-6)
    assert back.record["objective"] == pytest.approx(again.record["objective"], rel=2e-6)
    assert again.record["objective"] < cold.record["objective"]


@pytest.mark.fast_cases("params0")
@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"fit_intercept": False}, "intercept_scaling=2.5: of an intercept; give fit_intercept=true too"),
        ({"penalty": "elasticnet"}, "intercept_scaling=2.5: with penalty=l2 only; leave it out"),
        ({"intercept_scaling": 0}, "intercept_scaling=0: .*must be greater than 0"),
    ],
)
def test_refusals(data, params, message):
    refuses(ParameterError, message, fit, "sdca", data[4], params={**PARAMS, **params})
