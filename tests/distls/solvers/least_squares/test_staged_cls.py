"""Algorithm 2 on the blocks of Algorithm 3: the contract, the oracle's rounds, lost predictions, what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from contract import Rounds, SolverContract, StoredContract
from helpers import labelled_rows, raised, refuses, write_dataset
from target_helpers import write_targets

from distls import evaluate, fit, load_model, predict
from distls.model_check import check_model
from distls.planning.fit_plan import plan_fit
from distls.storage.errors import FormatError, ParameterError
from distls.training.run_folder import Run
from distls.workers.runtime.rng import Purpose, rng
from reference import calibrated as oracle
from reference import stagewise as staged
from reference.stagewise import fourier

FOURIER = {"features": "fourier", "bandwidth": 2.0}
CLS = {"inner": "cls", "inner_rounds": 2, "dtype": "float64"}


@pytest.mark.slow
class TestContract(SolverContract):
    """Sparse rows, an order for each block, a smaller last one among them."""

    method = "stagewise"
    params = {
        "inner": "cls", "inner_rounds": 2, "order": "gradient", "block_size": 25, "basis": "1+2+log"
    }  # fmt: skip
    passes = None
    random = False


@pytest.mark.slow
class TestContractOfFourierFeatures(StoredContract):
    """Random features of dense rows behind principal components, in single precision."""

    method = "stagewise"
    params = {
        "inner": "cls", "features": "fourier", "block_size": 12, "pca": 6, "stages": 3, "lanes": 3
    }  # fmt: skip
    passes = None
    dense = True


def _written(path, kind):
    """Return a data set, its rows as an array, the indicators of their classes, and their weights."""
    x, y = labelled_rows(330, 30, 4)
    weight = (np.random.default_rng(5).integers(1, 5, 330) / 2).astype(np.float32)
    rows = x if kind == "csr" else x.toarray()
    dataset = write_dataset(path, rows, y, sample_weight=weight)
    return dataset, x.toarray().astype(float), np.eye(4)[y], weight.astype(float)


def _features(kind, x, stages):
    """Return the features of each stage of 12: of a pass over columns in random order 12, 12 and 6."""
    if kind == "fourier":
        return [fourier(x, 3, stage, 12, 2.0) for stage in range(stages)]
    order = rng(3, Purpose.COLUMNS, 0).permutation(30)
    return [x[:, np.sort(order[first : first + 12])] for first in (0, 12, 24)]


@pytest.mark.fast_cases("csr")
@pytest.mark.parametrize("kind", ["csr", "dense", "fourier"])
def test_every_round_is_the_oracles(tmp_path, kind):
    dataset, x, y, s = _written(tmp_path / "d", kind)
    params = {**CLS, "block_size": 12, "stages": 3, "basis": "1+3", "alpha": 1e-3}
    params |= FOURIER if kind == "fourier" else {}
    watch = Rounds()
    result = fit("stagewise", dataset, tmp_path / "run", params=params, seed=3, callbacks=[watch])
    blocks = [own for own in _features(kind, x, 3) for _ in range(2)]
    expected = oracle.calibrated(blocks, y, rounds=6, powers=(1, 3), alpha=1e-3, weight=s)
    for number, one in enumerate(expected):
        width = blocks[number].shape[1]
        np.testing.assert_allclose(watch.states[-1].fits[number, :width], one.W, atol=1e-9)
        np.testing.assert_allclose(watch.states[-1].intercepts[number], one.b, atol=1e-9)
    model = load_model(tmp_path / "run")
    rows = sp.csr_matrix(x) if kind == "csr" else x
    np.testing.assert_allclose(model.predict_proba(rows), expected[-1].predictions, atol=1e-7)
    mean = oracle.mean_loss(y, expected[-1].predictions, s)
    assert result.record["objective"] == pytest.approx(mean, abs=1e-10)
    assert (result.status, result.passes) == ("CONVERGED", 12)
    predict(result.model, dataset, tmp_path / "p.csv", proba=True)


@pytest.mark.slow
def test_one_stage_is_the_method_cls(tmp_path):
    dataset, x, _, _ = _written(tmp_path / "d", "dense")
    own = {**CLS, **FOURIER, "block_size": 12, "stages": 1, "basis": "1+2", "alpha": 1e-4}
    fit("stagewise", dataset, tmp_path / "a", params=own, seed=3)
    same = {**FOURIER, "block_size": 12, "rounds": 2, "basis": "1+2"}
    fit("cls", dataset, tmp_path / "b", params=same, seed=3)
    one, other = (load_model(tmp_path / run).predict_proba(x) for run in "ab")
    np.testing.assert_allclose(one, other, atol=1e-9)


@pytest.mark.slow
def test_the_error_falls_from_stage_to_stage(tmp_path):
    dataset, _, _, _ = _written(tmp_path / "d", "csr")
    params = {**CLS, "order": "block-gradient", "block_size": 5, "stages": 6, "alpha": 0.0}
    result = fit("stagewise", dataset, tmp_path / "run", params=params)
    losses = [event["running_loss"] for event in Run.open(tmp_path / "run").events()]
    fallen = [*losses, result.record["objective"]]
    assert np.all(np.diff(fallen) <= 1e-12)
    assert fallen[-1] < 0.8 * fallen[3]


@pytest.mark.fast_cases("frequency$")
@pytest.mark.parametrize("order", ["replacement", "frequency", "gradient", "block-gradient"])
def test_lost_predictions_are_made_anew_and_reads_are_planned(tmp_path, order):
    dataset, _, _, _ = _written(tmp_path / "d", "csr")
    params = {"inner": "cls", "inner_rounds": 2, "order": order, "block_size": 13, "stages": 3, "basis": 2}
    undisturbed = fit("stagewise", dataset, params=params, eval_every=0)
    run = tmp_path / "run"
    losing = Rounds(lambda _: [path.unlink() for path in (run / "state").glob("*.npy")])
    again = fit("stagewise", dataset, run, params=params, callbacks=[losing])
    assert again.model.sha256 == undisturbed.model.sha256
    assert plan_fit("stagewise", dataset.path, params, probe=False).passes == undisturbed.passes


@pytest.mark.slow
def test_sets_of_labels_end_in_the_cube(tmp_path):
    rng_ = np.random.default_rng(2)
    x = rng_.standard_normal((200, 8))
    y = (x @ rng_.standard_normal((8, 3)) > 0.4).astype(int)
    dataset = write_targets(tmp_path / "d", x, y, "multilabel", partition_rows=60)
    params = {**CLS, "block_size": 4, "order": "frequency", "basis": "1+2", "alpha": 1e-3}
    model = fit("stagewise", dataset, tmp_path / "run", params=params).model
    blocks = [x[:, :4], x[:, :4], x[:, 4:], x[:, 4:]]
    expected = oracle.calibrated(blocks, y.astype(float), rounds=4, powers=(1, 2), alpha=1e-3, onto="cube")
    found = load_model(tmp_path / "run").decision_function(x)
    np.testing.assert_allclose(found, expected[-1].predictions, atol=1e-7)
    assert model.recipe["calibration"] == {"powers": [1, 2], "onto": "cube", "stage_rounds": 2}


def test_a_limit_within_a_stage_is_a_model_of_the_rounds_done(tmp_path):
    dataset, x, y, s = _written(tmp_path / "d", "dense")
    params = {**CLS, **FOURIER, "block_size": 12, "stages": 3, "basis": "1", "alpha": 1e-3}
    fit("stagewise", dataset, tmp_path / "run", params=params, seed=3, passes=6)
    blocks = [own for own in _features("fourier", x, 2) for _ in range(2)][:3]
    expected = oracle.calibrated(blocks, y, rounds=3, powers=(1,), alpha=1e-3, weight=s)
    found = load_model(tmp_path / "run").predict_proba(x)
    np.testing.assert_allclose(found, expected[-1].predictions, atol=1e-7)


@pytest.mark.fast_cases("recipe0", "recipe5")
@pytest.mark.parametrize(
    ("recipe", "arrays", "message"),
    [
        ({"stage_rounds": 5}, {}, "a calibration of 6 rounds on 3 blocks"),
        ({"stage_rounds": 0}, {}, "Expected `int` >= 1"),
        ({}, {"intercepts": np.zeros((5, 4))}, "intercepts of a calibration of another shape"),
        ({}, {"widths": np.array([12, 12, 7])}, "recipe of features was not written by distls: columns"),
        ({}, {"widths": np.array([30, -6, 6])}, "recipe of features was not written by distls: widths"),
        ({}, {"columns": np.arange(30)[::-1].copy()}, "recipe of features was not written by distls: columns"),
    ],
)  # fmt: skip
def test_a_forged_model_is_refused(tmp_path, recipe, arrays, message):
    dataset, _, _, _ = _written(tmp_path / "d", "csr")
    model = fit("stagewise", dataset, params={**CLS, "block_size": 12}).model
    check_model(model, "m")
    own = {**model.recipe, "calibration": {**model.recipe["calibration"], **recipe}}
    refuses(FormatError, message, check_model, replace(model, recipe=own, arrays={**model.arrays, **arrays}), "m")


def test_what_is_refused(tmp_path):
    dataset, x, _, _ = _written(tmp_path / "d", "csr")
    numbers = write_targets(tmp_path / "n", x, x[:, :1], "continuous")
    cases = [
        (dataset, {"basis": "1+2"}, "basis=1+2: used with inner=cls only; leave it out"),
        (
            dataset,
            {**FOURIER, "inner": "cls", "models": 2},
            "models=2: used with another inner update than cls only; leave it out",
        ),
        (
            dataset,
            {"inner": "cls", "accelerate": "none"},
            "accelerate=none: used with inner=logistic or logit or probit or cauchit or poisson only; leave it out",
        ),
        (
            numbers,
            {"inner": "cls"},
            f"inner=cls: {numbers.path} has continuous targets; they need inner=linear or inner=calibrated",
        ),
    ]
    for data, params, message in cases:
        assert raised(ParameterError, fit, "stagewise", data, params=params) == message


# -- stagewise regression on sets of labels --------------------------------------------------------------


K = 3
LOGIT = {
    "inner": "logit", "inner_rounds": 4, "block_size": 5, "order": "frequency", "dtype": "float64", "alpha": 1e-3
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Rows of ten features, the second half of which fewer rows have, with up to three labels."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((120, 10)) * (rng.random((120, 10)) < np.linspace(0.95, 0.4, 10))
    y = (x @ rng.standard_normal((10, K)) + 0.3 * rng.standard_normal((120, K)) > 0.5).astype(int)
    path = tmp_path_factory.mktemp("d") / "train"
    return write_targets(path, sp.csr_matrix(x), y, "multilabel", partition_rows=40), x, y.astype(float)


@pytest.mark.fast_cases("none")
@pytest.mark.parametrize("accelerate", ["none", "nesterov"])
def test_every_stage_is_the_oracles(data, accelerate):
    dataset, x, y = data
    order = np.argsort(-(x != 0).sum(axis=0), kind="stable")
    stages = staged.logistic(
        [x[:, np.sort(order[:5])], x[:, np.sort(order[5:])]], y, 1e-3, s=np.ones(len(x)), intercept=True, rounds=4,
        accelerate=accelerate == "nesterov", lipschitz=0.25, mean=staged.logits,
    )  # fmt: skip
    result = fit("stagewise", dataset, params={**LOGIT, "accelerate": accelerate})
    scores = x @ result.model.weights + result.model.intercept
    np.testing.assert_allclose(scores, stages[-1].after, rtol=1e-9, atol=1e-11)
    assert (result.model.loss, result.passes) == ("ovr_log", 9)  # one of them for the order
    found = evaluate(result.model, dataset)
    assert found.error == pytest.approx(np.any((scores > 0) != (y > 0), axis=1).mean(), abs=1e-12)


def test_one_block_ends_at_the_optimum(data):
    """Its certificate is that of its weights, which here minimise the objective."""
    params = {
        **LOGIT, "block_size": 10, "inner_rounds": 120, "accelerate": "nesterov", "fit_intercept": False,
    }  # fmt: skip
    record = fit("stagewise", data[0], params={**params, "alpha": 0.1}).record
    assert 0.0 <= record["certificate"]["value"] < 1e-9


def test_softmax_is_refused_with_what_suits(data):
    with pytest.raises(ParameterError, match="they need inner=logit or inner=linear or inner=calibrated"):
        fit("stagewise", data[0], params={"inner": "logistic"})
