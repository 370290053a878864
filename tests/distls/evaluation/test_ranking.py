"""Sets of labels by the squared hinges: the ranking of section 4.7 of the BCD paper, and thresholds that end it."""

import functools

import numpy as np
import pytest
import scipy.sparse as sp
from contract import SolverContract
from helpers import write_dataset
from sklearn.metrics import label_ranking_loss
from target_helpers import rows_with_labels, write_targets

from distls import SparseMulticlassClassifier, add_columns, evaluate, fit, predict
from distls.evaluation.evaluator import Evaluator
from distls.execution.batch import run_alone
from distls.execution.serial import SerialExecutor
from distls.methods.method_registry import METHODS
from distls.problem import Problem
from distls.solvers.solver import Fitted
from distls.solvers.warm_start import initial_weights
from distls.storage.errors import MismatchError, ParameterError
from distls.storage.model.model import load_model
from distls.training.configuration import Setting
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.prediction.threshold_task import best_cuts, threshold_bytes
from distls.workers.rounds.block_stream import DatasetRef
from distls.workers.runtime.rng import Purpose, rng
from reference import bcd

N, D, K = 240, 12, 5
# Names of the oracle by those of the losses: it has one loss for classes and another one for sets.
ORACLES = {"multiclass_squared_hinge": "ranking_squared_hinge", "multitask_squared_hinge": "labels_apart"}


@pytest.fixture(scope="module")
def rows():
    x, y = rows_with_labels(N, D, K)
    assert not y.any(axis=1).all()
    assert y.all(axis=1).any()
    return x, y


def stored(path, x, y, **options):
    """Write rows with sets of labels, and a few column shards."""
    write_targets(path, x, y, "multilabel", **options)
    return add_columns(path, shard_size=2000)


@pytest.fixture(scope="module", params=["csr", "dense"])
def dataset(request, rows, tmp_path_factory):
    x, y = rows
    return stored(tmp_path_factory.mktemp("d") / "train", sp.csr_matrix(x) if request.param == "csr" else x, y)


def problem(rows, loss="multiclass_squared_hinge", **changes):
    """Return the oracle's problem."""
    x, y = rows
    sets = [np.flatnonzero(row).tolist() for row in y]
    return bcd.Problem(x, sets, K, loss=ORACLES[loss], **{"alpha": 1e-2, **changes})


@pytest.mark.slow
class TestContract(SolverContract):
    method = "bcd"
    params = {"alpha": 1e-2, "lanes": 3, "tau": 0.0}
    passes = 20
    random = False  # working sets follow from the data

    @pytest.fixture(scope="class")
    def dataset(self, tmp_path_factory):
        x, y = rows_with_labels(1050, 30, 4)
        return stored(tmp_path_factory.mktemp("data") / "train", sp.csr_matrix(x), y)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bcd", "fista", "sparsa"])
@pytest.mark.parametrize("loss", ORACLES)
def test_ends_at_the_optimum_of_the_oracle_s_objective(dataset, rows, method, loss):
    p = problem(rows, loss)
    result = fit(
        method, dataset, params={"alpha": 1e-2, "loss": loss, "tau": 1e-7, "fit_intercept": False}, passes=5000,
    )  # fmt: skip
    assert result.status == "CONVERGED"
    assert result.record["certificate"]["kind"] == "duality_gap"
    assert result.record["certificate"]["value"] < 1e-5
    # of a ranking the published model has a threshold, which the penalty of the objective does not count
    w = result.model.weights.astype(float)
    w -= w.mean(axis=1, keepdims=True) if loss == "multiclass_squared_hinge" else 0.0
    assert result.record["objective"] == pytest.approx(bcd.objective(p, w), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ORACLES)
def test_one_lane_goes_as_the_oracle_does(dataset, rows, loss):
    p, shards = problem(rows, loss), dataset.columns
    params = {"alpha": 1e-2, "loss": loss, "lanes": 1, "active_sweeps": 0, "fit_intercept": False}
    result = fit("bcd", dataset, params=params, passes=1)
    order = []
    for place in rng(0, Purpose.BLOCKS, 0, 0, 0).permutation(len(shards)):
        first, stop = shards.first[place : place + 2]
        order += (first + rng(0, Purpose.BLOCKS, 0, 0, 0, first).permutation(stop - first)).tolist()
    swept = bcd.sweep(p, np.zeros((D, K)), order).w
    assert result.record["objective"] == pytest.approx(bcd.objective(p, swept), rel=1e-6)


@pytest.mark.slow
def test_a_label_alone_is_a_class(tmp_path, rows):
    x = sp.csr_matrix(rows[0])
    codes = np.random.default_rng(0).integers(K, size=N)
    sets = stored(tmp_path / "sets", x, np.eye(K, dtype=bool)[codes])
    write_dataset(tmp_path / "classes", x, codes)
    classes = add_columns(tmp_path / "classes", shard_size=2000)
    params = {"alpha": 1e-2, "lanes": 2}
    assert fit("bcd", sets, params=params, passes=20).record["objective"] == pytest.approx(
        fit("bcd", classes, params=params, passes=20).record["objective"], rel=1e-12
    )


@pytest.mark.slow
def test_the_published_threshold_keeps_the_ranking_and_predicts_sets(dataset, rows, tmp_path):
    x, y = rows
    run = tmp_path / "run"
    result = fit("bcd", dataset, str(run), params={"alpha": 1e-3}, passes=100, eval_data=str(dataset.path))
    model = result.model
    scores = x @ model.weights.astype(float) + model.intercept
    assert result.record["eval_error"] == pytest.approx(((scores > 0) != y).any(axis=1).mean())
    # better than what a ranking without thresholds has, which are all those scores above their mean
    bare = scores - scores.mean(axis=1, keepdims=True)
    assert ((scores > 0) != y).mean() < 0.8 * ((bare > 0) != y).mean()
    some = y.any(axis=1) & ~y.all(axis=1)
    assert label_ranking_loss(y[some], scores[some]) < 0.2
    evaluation = evaluate(str(run), str(dataset.path))
    assert evaluation.error == result.record["eval_error"]
    predict(str(run), str(dataset.path), str(tmp_path / "out.csv"))
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert len(lines) == N + 1


def test_best_cuts_are_those_of_all_cuts():
    rng = np.random.default_rng(0)
    scores = np.round(rng.standard_normal((200, 6)), 1)
    wanted = rng.random((200, 6)) < 0.4
    for z, own, cut in zip(scores, wanted, best_cuts(scores, wanted), strict=True):
        tried = np.concatenate([z - 0.01, z + 0.01])
        wrong = {t: int(((z > t) != own).sum()) for t in tried}
        least = min(wrong.values())
        assert ((z > cut) != own).sum() == least
        # the highest of the best ones, half-way between two scores
        assert (z > cut).sum() == min((z > t).sum() for t in tried if wrong[t] == least)
        above, below = z[z > cut].min(initial=np.inf), z[z <= cut].max(initial=-np.inf)
        middle = 0.5 * (above + below) if np.isfinite(above - below) else cut
        assert cut == pytest.approx(middle)
        assert min(abs(cut - above), abs(cut - below)) < 2.0


@pytest.fixture(scope="module")
def converged(tmp_path_factory):
    """Return a function that fits to convergence once a data set, loss and penalty, and keeps the run."""

    @functools.cache
    def fitted(path, loss, penalty):
        run = tmp_path_factory.mktemp("converged") / "run"
        params = {"alpha": 1e-2, "tau": 1e-7, "loss": loss, "penalty": penalty, "fit_intercept": False}
        return fit("bcd", path, run, params=params, passes=2000), run

    return lambda dataset, loss, penalty: fitted(dataset.path, loss, penalty)


@pytest.mark.slow
@pytest.mark.parametrize("penalty", ["l1l2", "l1", "l1linf", "l2"])
@pytest.mark.parametrize("method", ["bcd", "fista", "sparsa"])
@pytest.mark.parametrize("loss", ORACLES)
def test_a_model_is_started_from_without_its_threshold(dataset, converged, loss, method, penalty):
    params = {"alpha": 1e-2, "tau": 1e-7, "loss": loss, "penalty": penalty, "fit_intercept": False}
    problem = Problem.of(dataset, METHODS[method].resolve(params), 0, ("multilabel",))
    first, run = converged(dataset, loss, penalty)
    start = initial_weights(load_model(run), problem).astype(float)
    at_start = Fitted(LinearPredictor(start, np.zeros(K)))
    there = run_alone(Evaluator(problem, DatasetRef.of(dataset)).objective(at_start), SerialExecutor())
    assert there["objective"] == pytest.approx(first.record["objective"], rel=1e-6)
    again = fit(method, dataset, params={**params, "init": str(run)}, passes=2)
    assert again.record["objective"] <= first.record["objective"] * (1 + 1e-6)


@pytest.mark.slow
def test_weights_of_rows_count_in_ranking_and_threshold(rows, tmp_path):
    x, y = rows
    times = np.random.default_rng(3).integers(1, 4, N)
    weighted = stored(tmp_path / "weighted", x, y, sample_weight=times.astype(np.float32))
    copied = stored(tmp_path / "copied", np.repeat(x, times, axis=0), np.repeat(y, times, axis=0))
    params = {"alpha": 1e-2, "fit_intercept": True, "tau": 1e-9, "lanes": 1}
    one, other = (fit("bcd", data, params=params, passes=3000).model for data in (weighted, copied))
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)
    np.testing.assert_allclose(one.intercept, other.intercept, atol=1e-5)


@pytest.mark.slow
def test_one_label_has_nothing_to_be_ranked_with(rows, tmp_path):
    x, y = rows
    alone = stored(tmp_path / "alone", sp.csr_matrix(x), y[:, :1])
    result = fit("bcd", alone, params={"alpha": 1e-2}, passes=20)
    assert result.record["objective"] == 0.0
    apart = fit("bcd", alone, params={"alpha": 1e-3, "loss": "multitask_squared_hinge"}, passes=50)
    assert evaluate(apart.model, str(alone.path)).error < 0.3


@pytest.mark.fast_cases("csr")
def test_estimators_of_classes_refuse_sets(dataset):
    with pytest.raises(MismatchError, match="has multilabel targets; SparseMulticlassClassifier predicts one class"):
        SparseMulticlassClassifier().fit(dataset)


@pytest.mark.fast_cases("csr")
def test_the_plan_knows_of_the_threshold(dataset):
    plans = {
        loss: Setting.of(METHODS["bcd"], {"loss": loss, "active_sweeps": 0}, dataset, 0)
        .solver(slots=1, memory=None)
        .plan
        for loss in ORACLES
    }
    more = plans["multiclass_squared_hinge"].worker_bytes - plans["multitask_squared_hinge"].worker_bytes
    assert more == threshold_bytes(K)


@pytest.mark.fast_cases("csr-bcd")
@pytest.mark.parametrize("method", ["bcd", "fista", "sparsa"])
def test_the_logistic_loss_is_of_classes_only(dataset, method):
    with pytest.raises(ParameterError, match=r"need loss=multiclass_squared_hinge or loss=multitask_squared"):
        fit(method, dataset, params={"loss": "log"})
