"""Calibrated least squares: the oracle round by round, a falling error, lost predictions, Theorem 2, refusals."""

import csv
import itertools
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from contract import SolverContract
from helpers import labelled_rows, raised, refuses, write_dataset

from distls import evaluate, fit, predict, resume
from distls.execution.memory_budget import MIB, MemoryBudget
from distls.methods.method_registry import METHODS
from distls.model_check import predictor_of
from distls.planning.fit_plan import plan_fit
from distls.solvers.events import Callback
from distls.solvers.least_squares.cls import Cls
from distls.solvers.least_squares.metric import Metric
from distls.solvers.status import Status
from distls.storage.dataset.dataset import publish
from distls.storage.dataset.metadata import DatasetMeta
from distls.storage.dataset.partitions import write_partition
from distls.storage.errors import DistlsError, FormatError, MemoryPlanError, ParameterError
from distls.storage.model.model import load_model
from distls.storage.rows import CsrRows, DenseRows, Partition
from distls.testing.solvers import StopAfter, interrupted, opened
from distls.training.run_folder import Run
from distls.workers.prediction.basis_functions import Basis
from distls.workers.prediction.calibration import replay
from distls.workers.prediction.predictor import linear_view, scored_as
from reference import calibrated as reference
from reference import features as formulas

ROUNDS = 5


def dense_rows(n=350, d=7, k=3, seed=0, spread=1.2):
    """Return rows whose classes overlap, float64."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n).astype(np.int32)
    return rng.standard_normal((n, d)) + spread * rng.standard_normal((k, d))[y] + 0.5, y


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Four partitions of dense rows, and the rows."""
    x, y = dense_rows()
    return write_dataset(tmp_path_factory.mktemp("cls") / "dense", x, y), x, np.eye(3)[y]


def each_round(model, x):
    """Return the predictions of a model after each of its rounds."""
    fits = x @ model.weights + model.intercept
    recipe, weights = model.recipe["calibration"], model.arrays["calibration"]
    k = weights.shape[2]
    return [
        replay(Basis.of_recipe(recipe), recipe["onto"], weights[:t], fits[:, : t * k])
        for t in range(1, len(weights) + 1)
    ]


def write_labels(path, x, y):
    """Write rows with sets of labels, given as indicators, in partitions of 60."""
    records = []
    for index, first in enumerate(range(0, len(x), 60)):
        sets = sp.csr_matrix(y[first : first + 60])
        codes = CsrRows(sets.indptr.astype(np.int64), sets.indices.astype(np.uint32), sets.data.astype(np.float32))
        part = Partition(DenseRows(x[first : first + 60]), codes)
        records.append(write_partition(path, index, part, x.shape[1], y.shape[1], {}))
    meta = DatasetMeta(
        n_rows=0, n_features=x.shape[1], nnz=0, layout="dense", dtype="float64", target="multilabel",
        classes=list(range(y.shape[1])),
    )  # fmt: skip
    return publish(path, meta, records, {})


def predictions(model, x):
    """Return the scores of a model."""
    rows, _, _ = linear_view(predictor_of(model), DenseRows(x))
    assert isinstance(rows, DenseRows)
    return rows.values


def losses(run):
    return [event["running_loss"] for event in Run.open(run).events()]


SETTINGS = [
    {"basis": "1+2+3", "alpha": 1e-3, "fit_intercept": True},
    {"basis": "1", "alpha": 0.0, "fit_intercept": True},
    {"basis": "1+2+3", "alpha": 0.0, "fit_intercept": False},
    {"basis": "1+3", "alpha": 0.1, "fit_intercept": False},
]


class TestContract(SolverContract):
    method = "cls"
    passes = 8
    random = False


FOURIER = {"features": "fourier", "block_size": 20, "bandwidth": 8.0}


@pytest.mark.slow
class TestContractOfFourierFeatures(SolverContract):
    """Sparse rows, principal components, the median trick; in single precision."""

    method = "cls"
    passes = 7
    params = {
        "features": "fourier", "block_size": 24, "pca": 6, "dtype": "float32", "lanes": 3
    }  # fmt: skip


@pytest.mark.fast_cases("False-setting0$")
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("weighted", [False, True])
def test_every_round_is_the_oracles(setting, weighted, tmp_path):
    x, codes = dense_rows()
    weight = np.arange(len(codes)) % 4 + 0.5 if weighted else None
    dataset = write_dataset(tmp_path / "d", x, codes, sample_weight=weight)
    y, powers = np.eye(3)[codes], tuple(int(p) for p in setting["basis"].split("+"))
    expected = reference.calibrated(
        x, y, rounds=ROUNDS, powers=powers, alpha=setting["alpha"], intercept=setting["fit_intercept"], weight=weight
    )  # fmt: skip
    result = fit("cls", dataset, tmp_path / "run", params={**setting, "rounds": ROUNDS})
    assert (result.status, result.passes) == (Status.MAX_PASSES, 2.0 * ROUNDS)
    model = result.model
    np.testing.assert_allclose(model.weights, np.hstack([r.W for r in expected]), atol=1e-9)
    np.testing.assert_allclose(model.intercept, np.hstack([r.b for r in expected]), atol=1e-9)
    for ours, theirs in zip(each_round(model, x), expected, strict=True):
        np.testing.assert_allclose(ours, theirs.predictions, atol=1e-9)
    before = [np.zeros_like(y), *(r.predictions for r in expected)]
    means = [reference.mean_loss(y, values, weight) for values in before]
    np.testing.assert_allclose(losses(tmp_path / "run"), means[:-1], atol=1e-12)
    assert result.record["objective"] == pytest.approx(means[-1], abs=1e-12)
    assert result.record["certificate"] == {"kind": "none", "value": None}


@pytest.mark.slow
def test_sparse_rows_are_dense_rows(tmp_path):
    x, y = labelled_rows(500, 30, 4)
    params = {"rounds": 3, "alpha": 1e-3}
    sparse = fit("cls", write_dataset(tmp_path / "s", x, y), params=params).model
    dense = fit("cls", write_dataset(tmp_path / "d", x.toarray(), y), params=params).model
    np.testing.assert_allclose(sparse.weights, dense.weights, atol=1e-12)
    expected = reference.calibrated(x.toarray().astype(float), np.eye(4)[y], rounds=3, alpha=1e-3)
    np.testing.assert_allclose(predictions(sparse, x.toarray()), expected[-1].predictions, atol=1e-11)


@pytest.mark.fast_cases("2-float64-setting0$")
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("classes", [2, 5])
def test_the_error_falls_in_all_settings(setting, dtype, classes, tmp_path):
    x, y = dense_rows(k=classes)
    dataset = write_dataset(tmp_path / "d", x.astype(dtype), y)
    params = {**setting, "dtype": dtype, "rounds": 30, "class_weight": "balanced"}
    result = fit("cls", dataset, tmp_path / "run", params=params)
    fallen = [*losses(tmp_path / "run"), result.record["objective"]]
    rounding = 1e-12 if dtype == "float64" else 1e-6
    assert np.all(np.diff(fallen) <= rounding * fallen[0])
    assert fallen[-1] < 0.9 * fallen[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fourier", "logits", "polynomials"])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_generated_features_are_the_oracles_rows(kind, layout, tmp_path):
    x, codes = dense_rows(n=650)
    x[np.random.default_rng(9).random(x.shape) < 0.4] = 0.0
    rows = sp.csr_matrix(x) if layout == "csr" else x
    # a partition of more rows than a piece
    dataset = write_dataset(tmp_path / "d", rows, codes, partition_rows=600)
    params = {"features": kind, "block_size": 20, "bandwidth": 8.0, "rounds": 4, "alpha": 1e-3}
    degree = {"degree": 3} if kind == "polynomials" else {}
    result = fit("cls", dataset, tmp_path / "run", params={**params, **degree}, seed=3)
    z = getattr(formulas, kind)(x, 20, 8.0, 3, 0, **degree)
    expected = reference.calibrated(z, np.eye(3)[codes], rounds=4, alpha=1e-3)
    model = result.model
    assert (result.passes, model.n_features, model.weights.shape) == (8.0, 7, (20, 12))
    np.testing.assert_allclose(model.weights, np.hstack([r.W for r in expected]), atol=1e-6)
    np.testing.assert_allclose(predictions(model, x), expected[-1].predictions, atol=1e-8)
    assert result.record["objective"] == pytest.approx(
        reference.mean_loss(np.eye(3)[codes], expected[-1].predictions), rel=1e-9
    )


@pytest.mark.slow
def test_projection_and_median_trick_are_those_of_stagewise(data):
    """Its first stage has the same block; `pca` is a read more."""
    params = {"features": "fourier", "block_size": 20, "pca": 4}
    result = fit("cls", data[0], params={**params, "rounds": 2}, seed=1)
    stage = fit("stagewise", data[0], params={**params, "stages": 1}, seed=1).model
    assert result.passes == 5.0
    assert result.model.recipe["features"] == stage.recipe["features"]
    for name, array in stage.arrays.items():
        np.testing.assert_array_equal(result.model.arrays[name], array)


@pytest.mark.slow
def test_masks_of_images(tmp_path):
    rng = np.random.default_rng(2)
    y = rng.integers(0, 2, 240).astype(np.int32)
    x = rng.standard_normal((240, 36)) * (1.0 + 2.0 * y[:, None])
    params = {"features": "random-masks", "block_size": 16, "image": "6x6x1", "mask_side": 3, "rounds": 3}
    result = fit("cls", write_dataset(tmp_path / "d", x, y), tmp_path / "run", params=params)
    assert set(result.model.arrays) >= {"calibration", "masks"}
    fallen = losses(tmp_path / "run")
    assert fallen[-1] < 0.5 * fallen[0]
    evaluation = evaluate(tmp_path / "run", tmp_path / "d")
    assert evaluation.error == np.mean((predictions(result.model, x)[:, 0] > 0.5) != y) < 0.2


def test_a_saved_model_makes_the_same_features(data, tmp_path):
    dataset, x, _ = data
    params = {"features": "fourier", "block_size": 20, "pca": 4, "rounds": 3}
    model = fit("cls", dataset, tmp_path / "run", params=params).model
    saved = load_model(tmp_path / "run")
    assert (saved.sha256, saved.n_features) == (model.sha256, 7)
    np.testing.assert_array_equal(predictions(saved, x), predictions(model, x))
    predict(tmp_path / "run", dataset, tmp_path / "out.csv", proba=True)
    with (tmp_path / "out.csv").open() as file:
        found = [float(row["probability"]) for row in csv.DictReader(file)]
    np.testing.assert_allclose(found, predictions(model, x).max(axis=1), atol=1e-6)


def test_a_calibration_of_several_blocks_is_refused(data):
    dataset, x, _ = data
    model = fit("cls", dataset, params={**FOURIER, "rounds": 2}).model
    two = {**model.recipe, "features": {**model.recipe["features"], "n_stages": 2}}
    said = raised(FormatError, predictions, replace(model, recipe=two), x)
    assert said == "the model: not written by distls (a calibration of 2 blocks)"


@pytest.mark.slow
def test_a_linear_change_of_features_changes_nothing(data, tmp_path):
    """At alpha = 0 the method sees the span of the features only."""
    dataset, x, _ = data
    mixing = np.random.default_rng(3).standard_normal((7, 7)) * np.logspace(0, 3, 7)
    mixed = write_dataset(tmp_path / "mixed", x @ mixing, np.asarray(dense_rows()[1]))
    params = {"alpha": 0.0, "rounds": 4}
    one, other = (fit("cls", each, params=params).model for each in (dataset, mixed))
    np.testing.assert_allclose(predictions(one, x), predictions(other, x @ mixing), atol=1e-8)


@pytest.mark.slow
def test_copied_and_constant_columns_are_no_trouble(data, tmp_path):
    """A singular Gram matrix at alpha = 0: the fit is that of the columns that span the others."""
    _, x, y = data
    wide = np.hstack([x, x[:, :3], np.ones((len(x), 1)), np.zeros((len(x), 1))])
    dataset = write_dataset(tmp_path / "wide", wide, y.argmax(axis=1))
    model = fit("cls", dataset, params={"alpha": 0.0, "rounds": 4}).model
    expected = reference.calibrated(x, y, rounds=4, alpha=0.0)
    np.testing.assert_allclose(predictions(model, wide), expected[-1].predictions, atol=1e-7)
    assert not model.weights[-1].any()


@pytest.mark.slow
def test_theorem_2_on_noiseless_data(tmp_path):
    """Its bound and, stronger, the recursion (31), where the inverse link y + c y^3 - const is in the span of G.

    Probabilities as targets are rows of every class, weighted by them: errors differ by a constant only.
    """
    rng, k, c = np.random.default_rng(0), 3, 2.0
    p = rng.dirichlet(np.ones(k), 80)
    inverse_link = p + c * p**3 - (1 / k + c / k**3)
    x = inverse_link @ rng.standard_normal((k, k))
    copies, codes = np.repeat(x, k, axis=0), np.tile(np.arange(k), len(x)).astype(np.int32)
    dataset = write_dataset(tmp_path / "d", copies, codes, sample_weight=p.reshape(-1))
    rounds = 60
    params = {"alpha": 0.0, "fit_intercept": False, "rounds": rounds, "basis": "1+3"}
    model = fit("cls", dataset, params=params).model
    kappa = 1.0 + 3.0 * c  # 1 <= d(inverse link)/dy <= 1 + 3c on [0, 1]
    found = each_round(model, x)
    # both constants are loose, by as much as is asserted: at most 1 and at least 1 is what the paper says
    errors = np.array([np.square(predicted - p).sum(axis=1).mean() for predicted in found])
    assert 1e-5 < (errors * np.arange(1, rounds + 1)).max() / (22 * kappa**2) < 4e-5
    fits = (x @ model.weights + model.intercept).reshape(len(x), -1, k)
    before = [np.zeros_like(p), *found]
    epsilon = [np.square(before[t] + fits[:, t] - p).sum(axis=1).mean() for t in range(len(found))]
    falls = [(now - following) / now**2 for now, following in itertools.pairwise(epsilon)]
    assert 1e4 < min(falls) * 22 * k * kappa**2 < 4e4
    assert epsilon[-1] < 0.05 * epsilon[0]


@pytest.mark.fast_cases("select")
@pytest.mark.parametrize("how", ["select", "eval_data"])
def test_an_infinite_log_loss_is_no_number_of_a_run(tmp_path, how):
    x, y = dense_rows(spread=6.0)
    train = write_dataset(tmp_path / "train", x, y)
    wrong = write_dataset(tmp_path / "wrong", x, (y + 1) % 3)  # whose classes are sure to be none
    given = {how: wrong}
    alphas = [1e-4, 1e-3] if how == "select" else 1e-4
    result = fit("cls", train, str(tmp_path / "run"), params={"rounds": 3, "alpha": alphas}, **given)
    assert evaluate(result.model, wrong).log_loss == np.inf
    told = json.loads((tmp_path / "run" / "status.json").read_text())
    assert told["select_log_loss" if how == "select" else "eval_log_loss"] is None


def test_it_ends_where_nothing_changes_any_more(tmp_path):
    y = (np.arange(120) % 4).astype(np.int32)
    dataset = write_dataset(tmp_path / "d", np.eye(4)[y], y)
    result = fit("cls", dataset, tmp_path / "run", params={"alpha": 0.0, "rounds": 50})
    assert result.status == Status.CONVERGED
    assert result.passes < 12
    assert losses(tmp_path / "run")[-1] < 1e-20


def test_an_overflow_is_divergence(tmp_path):
    x, y = dense_rows(100)
    result = fit("cls", write_dataset(tmp_path / "d", x * 1e100, y), params={"dtype": "float32"})
    assert (result.status, result.model) == (Status.DIVERGED, None)


def test_limits_come_in_whole_rounds(data):
    result = fit("cls", data[0], passes=3)
    assert (result.status, result.passes) == (Status.MAX_PASSES, 4.0)
    assert len(result.model.arrays["calibration"]) == 2


# ---------------------------------------------------------------- lost predictions


class Spoils(Callback):
    """Damages what is kept for rows after every round."""

    def __init__(self, run, how):
        self._state, self._how = run / "state", how

    def on_round(self, event):
        """Delete or damage the newest files of some partitions, or all files."""
        newest = sorted(self._state.glob(f"*-{event.state.round:06d}.npy"))
        assert newest
        if self._how == "all gone":
            shutil.rmtree(self._state)
        for path in newest[1::2] if self._how == "some gone" else []:
            path.unlink()
        for path in newest[:1] if self._how == "damaged" else []:
            content = bytearray(path.read_bytes())
            content[200] ^= 4
            path.write_bytes(content)


@pytest.fixture
def rebuilt(monkeypatch):
    """Record the rounds for which predictions are made anew."""
    rounds, original = [], Cls._rebuild

    def recording(self, state, executor):
        rounds.append(state.round)
        original(self, state, executor)

    monkeypatch.setattr(Cls, "_rebuild", recording)
    return rounds


@pytest.fixture(scope="module", params=["float64", "float32", "fourier"])
def whole(request, data):
    """Parameters, and the digest of an undisturbed fit."""
    own = {**FOURIER, "pca": 5} if request.param == "fourier" else {"dtype": request.param}
    params = {"rounds": 4, **own}
    model = fit("cls", data[0], params=params).model
    return params, model.sha256


@pytest.mark.fast_cases("float64-some gone$")
@pytest.mark.parametrize("how", ["some gone", "all gone", "damaged"])
def test_lost_predictions_are_made_anew_to_the_bit(data, whole, how, tmp_path, rebuilt):
    params, digest = whole
    run = tmp_path / "run"
    result = fit("cls", data[0], run, params=params, callbacks=[Spoils(run, how)])
    assert result.model.sha256 == digest
    assert rebuilt == [1, 2, 3]
    assert not (run / "state").exists()


@pytest.mark.slow
def test_lost_predictions_on_a_cluster(data, tmp_path, rebuilt):
    digest = fit("cls", data[0], params={"rounds": 3}).model.sha256
    run, executor = tmp_path / "run", opened("two processes")
    spoiler = Spoils(run, "some gone")
    result = fit("cls", data[0], run, params={"rounds": 3}, callbacks=[spoiler], executor=executor)
    assert result.model.sha256 == digest
    assert rebuilt == [1, 2]


@pytest.mark.fast_cases("float64")
def test_resumed_from_an_older_checkpoint(data, whole, tmp_path, rebuilt):
    params, digest = whole
    run = tmp_path / "run"
    with interrupted():  # in its second round: the first is kept
        fit("cls", data[0], run, params=params, callbacks=[StopAfter(2)])
    shutil.copytree(run / "checkpoints", tmp_path / "old")
    with interrupted():
        resume(run, callbacks=[StopAfter(3)])
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(tmp_path / "old", run / "checkpoints")
    assert sorted({path.name[9:15] for path in (run / "state").iterdir()}) == ["000003", "000004"]
    ended = resume(run)
    assert ended.model.sha256 == digest
    assert rebuilt == [1]
    assert [event["round"] for event in Run.open(run).events()] == [1, 2, 3, 4]


@pytest.mark.fast_cases("float64")
def test_resumed_without_its_predictions(data, whole, tmp_path, rebuilt):
    params, digest = whole
    run = tmp_path / "run"
    with interrupted():
        fit("cls", data[0], run, params=params, callbacks=[StopAfter(3)])
    shutil.rmtree(run / "state")
    ended = resume(run)
    assert ended.model.sha256 == digest
    assert rebuilt == [2]


# ---------------------------------------------------------------- what the loop asserts


def test_a_calibration_that_raises_the_error_is_an_error(data, monkeypatch):
    worse = np.vstack([np.roll(np.eye(3), 1, axis=1), np.zeros((6, 3))])
    monkeypatch.setattr(Cls, "_calibrate", lambda self, sums: worse)
    with pytest.raises(DistlsError) as caught:
        fit("cls", data[0])
    expected = (
        r"cls: the calibration of round 1 raised half the mean squared error from 0\.\d+ to 0\.\d+, which only "
        r"rounding can do; try a larger alpha"
    )
    caught.match(f"^{expected}$")


def test_a_residual_fit_that_raises_the_error_is_an_error(data, monkeypatch):
    steps = Metric.steps
    monkeypatch.setattr(Metric, "steps", lambda *args: -steps(*args))
    with pytest.raises(DistlsError) as caught:
        fit("cls", data[0], params={"dtype": "float32"})
    caught.match(
        r"^cls: the residual fit of round 1 raised half the mean squared error from 0\.5 to \d\.\d+, which only "
        r"rounding can do; try a larger alpha or dtype=float64$"
    )


# ---------------------------------------------------------------- parameters and plan


@pytest.mark.fast_cases("3", "1-1", r"1\+log\+2")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (3, "1+2+3"),
        ("2", "1+2"),
        ("1+3", "1+3"),
        ([1, 2, 5], "1+2+5"),
        (1, "1"),
        ("1+2+3", "1+2+3"),
        ([1, "log"], "1+log"),
        ("1+log+2", "1+2+log"),
    ],
)
def test_ways_to_write_a_basis(given, expected):
    resolved = METHODS["cls"].resolve({"basis": given})["basis"]
    assert resolved == expected
    assert METHODS["cls"].resolve({"basis": resolved})["basis"] == expected


_FUNCTIONS = "expected powers such as 1+2+3, and functions of log, logit, probit, cauchit, each once"
_LIST = "expected increasing powers from 1 to at most 12, 1 among them"


@pytest.mark.fast_cases(r"basis-2\+3", "basis-999999999999999999", r"basis-1\+x", "alpha")
@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("basis", "2+3", _LIST),
        ("basis", "1+3+2", _LIST),
        ("basis", "0", _LIST),
        ("basis", "13", _LIST),
        ("basis", "9" * 18, _LIST),  # not listed before it is refused
        ("basis", "1+.", "expected a number of powers, or powers such as 1+2+3"),
        ("basis", "cubic", _FUNCTIONS),
        ("basis", "1+x", _FUNCTIONS),
        ("basis", "1+log+log", _FUNCTIONS),
        ("basis", "log", _LIST),
        ("rounds", 0, "expected a whole number of at least 1"),
        ("alpha", -1.0, "expected a number from 0 to inf"),
    ],
)
def test_values_out_of_range(data, name, value, rule):
    assert raised(ParameterError, fit, "cls", data[0], params={name: value}) == f"cls: {name}={value}: {rule}"


@pytest.mark.fast_cases("params0", "params5")
@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"block_size": 64},
            "block_size=64: used with generated features only; leave it out, or ask for features=fourier",
        ),
        ({"pca": 3}, "pca=3: used with features=fourier|logits|polynomials only; leave it out"),
        ({"mask_side": 2}, "mask_side=2: used with features=random-masks|kmeans-masks only; leave it out"),
        ({"features": "logits", "degree": 3}, "degree=3: used with features=polynomials only; leave it out"),
        ({"features": "fourier", "pca": 8}, "pca=8: rows have only 7 features"),
        (
            {"features": "random-masks"},
            "rows of 7 features are no square images of one or three channels; say what they are, such as "
            "image=28x28x1",
        ),
    ],
)  # fmt: skip
def test_parameters_that_the_features_do_not_use(data, params, message):
    assert raised(ParameterError, fit, "cls", data[0], params=params) == message


def test_tol_is_refused(data):
    refuses(ParameterError, r"^tol: ", fit, "cls", data[0], tol=1e-3)


def test_the_plan_holds_all_rounds_and_the_predictions(data):
    few, many = (plan_fit("cls", data[0].path, {"rounds": r}, probe=False) for r in (10, 1000))
    a_round = 7 * 3 * 8 + (9 + 1) * 3 * 8
    assert many.driver_bytes - few.driver_bytes == pytest.approx(990 * a_round, abs=64)
    assert many.worker_parts["weights"] - few.worker_parts["weights"] == pytest.approx(3 * 990 * a_round, abs=64)
    assert few.worker_parts["work"] >= 2 * 100 * 3 * 8 + 8 * MIB
    assert plan_fit("cls", data[0].path).seconds_per_pass is not None


@pytest.mark.slow
def test_the_plan_of_generated_features(data):
    """Sums and weights are those of the block, not of the row; `pca` costs a read, and sums of rows."""
    sizes = [
        plan_fit("cls", data[0].path, {"features": "fourier", "block_size": m, "pca": 5}, probe=False)
        for m in (600, 1200)
    ]
    grams = [8 * (m * (m + 1) // 2 + m * (3 + 1)) for m in (600, 1200)]
    assert sizes[1].driver_bytes - sizes[0].driver_bytes > 8 * (grams[1] - grams[0])
    # sums are among them
    weights = [plan.worker_parts["weights"] for plan in sizes]
    assert weights[1] - weights[0] >= grams[1] - grams[0] + 20 * 600 * 3 * 8
    assert [plan.passes for plan in sizes] == [41.0, 41.0]
    assert plan_fit("cls", data[0].path, {"rounds": 3}, probe=False).passes == 6.0
    assert plan_fit("cls", data[0].path, FOURIER).seconds_per_pass is not None


def test_what_cannot_fit_is_refused(tmp_path):
    dataset = write_dataset(tmp_path / "d", *labelled_rows(40, 3000, 2))
    with pytest.raises(MemoryPlanError, match=r"weights 7\d\.\d MiB, work 1\d\d MiB"):
        fit("cls", dataset, memory=MemoryBudget(300 * MIB))


# ---------------------------------------------------------------- what a model is good for


@pytest.fixture(scope="module")
def fitted(data, tmp_path_factory):
    run = tmp_path_factory.mktemp("fitted") / "run"
    fit("cls", data[0], run, params={"rounds": 6})
    return run


@pytest.mark.slow
def test_predictions_are_probabilities(data, fitted, tmp_path):
    dataset, x, y = data
    expected = reference.calibrated(x, y, rounds=6, alpha=1e-4)[-1].predictions
    for proba in (False, True):
        out = tmp_path / f"{proba}.csv"
        predict(fitted, dataset, out, top=3, proba=proba)
        with out.open() as file:
            rows = list(csv.DictReader(file))
        value = "probability" if proba else "score"
        found = np.zeros_like(expected)
        for i, row in enumerate(rows):
            for place in ("", "_2", "_3"):
                found[i, int(row[f"label{place}"])] = float(row[f"{value}{place}"])
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_log_loss_is_infinite_where_a_class_has_no_chance(tmp_path):
    x, codes = dense_rows(k=8, spread=0.7)
    dataset, y = write_dataset(tmp_path / "d", x, codes), np.eye(8)[codes]
    fit("cls", dataset, tmp_path / "run", params={"rounds": 3})
    own = (reference.calibrated(x, y, rounds=3, alpha=1e-4)[-1].predictions * y).sum(axis=1)
    assert own.min() == 0.0
    found = evaluate(tmp_path / "run", dataset)
    assert found.log_loss == np.inf
    written = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert written["log_loss"] is None
    assert written["error"] == found.error


def test_the_log_loss_where_all_classes_have_a_chance(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((300, 2)), rng.integers(0, 2, 300).astype(np.int32)
    dataset = write_dataset(tmp_path / "d", x, y)
    fit("cls", dataset, tmp_path / "run", params={"rounds": 2, "basis": 1})
    share = reference.calibrated(x, y[:, None].astype(float), rounds=2, powers=(1,), alpha=1e-4, onto="cube")
    own = np.abs(1 - y - share[-1].predictions[:, 0])
    assert evaluate(tmp_path / "run", dataset).log_loss == pytest.approx(-np.log(own).mean(), rel=1e-9)


def test_evaluation_on_other_data_in_a_run(data, tmp_path):
    result = fit("cls", data[0], tmp_path / "run", params={"rounds": 3}, eval_data=data[0], eval_every=2)
    events = Run.open(tmp_path / "run").events()
    assert [event["eval_error"] for event in events][:-1] == [e["running_error"] for e in events][1:]
    assert result.record["eval_error"] == events[-1]["eval_error"]
    assert all("eval_log_loss" in event for event in events)


def test_sets_of_labels_lie_in_the_cube(tmp_path):
    x, _ = dense_rows(200, 6, 3)
    rng = np.random.default_rng(5)
    y = (x @ rng.standard_normal((6, 4)) + rng.standard_normal((200, 4)) > 0.5).astype(float)
    model = fit("cls", write_labels(tmp_path / "d", x, y), params={"rounds": 4}).model
    assert model.recipe["calibration"]["onto"] == "cube"
    expected = reference.calibrated(x, y, rounds=4, alpha=1e-4, onto="cube")
    np.testing.assert_allclose(predictions(model, x), expected[-1].predictions, atol=1e-6)
    assert scored_as(model.loss, model.recipe) == "squared"
