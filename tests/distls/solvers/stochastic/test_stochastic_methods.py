"""The stochastic methods through the driver: the contract of all solvers, steps that are tried, what is refused."""

import itertools
import json
import math

import numpy as np
import pytest
from contract import SolverContract, StoredContract, visits
from helpers import labelled_rows, raised, refuses, write_dataset
from target_helpers import write_targets

from distls import add_columns, evaluate, fit, resume
from distls.execution.memory_budget import MIB, MemoryBudget
from distls.methods.method_registry import METHODS
from distls.planning.fit_plan import plan_fit
from distls.storage.errors import DistlsError, FormatError, MemoryPlanError, MismatchError, ParameterError
from distls.storage.rows import DenseRows
from distls.workers.features.design import blocks
from distls.workers.features.design_recipe import design_of
from distls.workers.stochastic.sgd import AdagradUpdate, sgd_steps
from distls.workers.stochastic.step_choice import ProblemStats
from reference import constrained
from reference import stochastic as oracle
from reference.stagewise import fourier


class TestAdaptive(StoredContract):
    """With lazy decay, an intercept and class weights."""

    method = "sgd"
    params = {"alpha": 1e-4, "fit_intercept": True, "class_weight": "balanced"}


@pytest.mark.slow
class TestScheduleChosenByTrial(SolverContract):
    """The step is tried in the first round; iterates are averaged; rounds are smaller than a pass."""

    method = "sgd"
    params = {
        "schedule": "sqrt", "average": "tail", "alpha": 1e-3, "round_bytes": 20_000, "lanes": 3,
    }  # fmt: skip
    passes = 2


@pytest.mark.slow
class TestGaussNewton(SolverContract):
    """Rounds of one part of a pass at first, of more when lanes agree."""

    method = "sgdqn"
    params = {
        "alpha": 1e-1, "loss": "log", "fit_intercept": True, "lanes": 2, "sync_bytes": 1,
    }  # fmt: skip


@pytest.mark.slow
class TestGeneratedFeatures(SolverContract):
    """Fourier features of principal components, made anew in every read."""

    method = "sgd"
    params = {"features": "fourier", "block_size": 70, "pca": 10, "lanes": 4}


@pytest.mark.slow
class TestOneLane(SolverContract):
    method = "rls"
    params = {"alpha": 1e-3}
    passes = 3


@pytest.mark.slow
class TestMeanPoint(SolverContract):
    """Numbers, the running mean merged over lanes."""

    method = "csgd"

    @pytest.fixture(scope="class")
    def dataset(self, tmp_path_factory):
        """Eleven partitions of numbers."""
        return write_targets(tmp_path_factory.mktemp("data") / "train", *numbers(), "continuous", partition_rows=100)


def numbers(n=1050, d=20, k=2):
    """Return dense rows far from the origin, and linear targets with noise."""
    generator = np.random.default_rng(7)
    x = generator.random((n, d)).astype(np.float32)
    return x, x @ generator.standard_normal((d, k)) + 0.5 + 0.1 * generator.standard_normal((n, k))


DOUBLE = {"dtype": "float64"}


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """Rows in double precision, as fits with `DOUBLE` have weights: their kernels are those of tests/workers."""
    x, y = labelled_rows(400, 30, 4)
    dataset = write_dataset(tmp_path_factory.mktemp("data") / "c", x.astype(np.float64), y)
    return dataset, x.toarray().astype(float), y


@pytest.fixture(scope="module")
def continuous(tmp_path_factory):
    x, y = numbers(400)
    path = tmp_path_factory.mktemp("data") / "n"
    return write_targets(path, x, y, "continuous", partition_rows=100), x.astype(float), y


def _one_lane(method, dataset, passes, **params):
    return fit(method, dataset, params={"lanes": 1, "dtype": "float64", **params}, passes=passes).model


@pytest.mark.slow
def test_one_lane_is_the_algorithm_over_shuffled_rows(classes):
    dataset, x, y = classes
    order = np.concatenate(visits(dataset, 2))
    made = _one_lane("sgd", dataset, 2, alpha=1e-3, eta0=0.7, fit_intercept=True)
    w, b, *_ = oracle.adaptive(
        x[order], y[order], oracle.slopes_of("softmax"), 0.7, eta_b=0.7, k=4, alpha=1e-3, intercept=True,
    )  # fmt: skip
    np.testing.assert_allclose(made.weights, w, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(made.intercept, b, rtol=1e-7)
    made = _one_lane("sgdqn", dataset, 2, alpha=1e-2, t0=50.0, skip=16, fit_intercept=False)
    w = oracle.scheduled(
        x[order], y[order], oracle.slopes_of("ovr_squared_hinge"), "ovr_squared_hinge", 1e-2, 50.0, 16,
        "gauss-newton", k=4,
    )[0]  # fmt: skip
    np.testing.assert_allclose(made.weights, w, rtol=1e-7, atol=1e-10)
    made = _one_lane("asgd", dataset, 2, alpha=1e-2, eta0=0.5, fit_intercept=False)
    ws, *_ = oracle.sgd(x[order], y[order], oracle.slopes_of("softmax"), lambda t: 0.5 / np.sqrt(t), k=4, alpha=1e-2)
    np.testing.assert_allclose(made.weights, np.mean(ws[1:], axis=0), rtol=1e-7, atol=1e-10)
    made = _one_lane("asgd", dataset, 2, alpha=1e-2, eta0=0.5, schedule="t^-0.6", fit_intercept=False)
    ws, *_ = oracle.sgd(x[order], y[order], oracle.slopes_of("softmax"), lambda t: 0.5 * t**-0.6, k=4, alpha=1e-2)
    np.testing.assert_allclose(made.weights, np.mean(ws[1:], axis=0), rtol=1e-7, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("center", ["running", "global"])
def test_one_lane_of_constrained_sgd(continuous, center):
    dataset, x, y = continuous
    order = np.concatenate(visits(dataset, 2))
    made = _one_lane("csgd", dataset, 2, eta0=0.1, switch=150, center=center)
    steps = oracle.SCHEDULES["two-phase"]
    fixed = None if center == "running" else (x.mean(axis=0), y.mean(axis=0))
    d, k = x.shape[1], y.shape[1]
    wanted = constrained.csgd(
        x[order], y[order], lambda t: steps(0.1, 150.0, t), w0=np.zeros((d, k)), b0=np.zeros(k), s=np.ones(len(order)),
        fixed=fixed,
    )  # fmt: skip
    np.testing.assert_allclose(made.weights, wanted.w, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(made.intercept, wanted.b, rtol=1e-6)


@pytest.mark.slow
def test_least_squares_solution_in_one_pass(continuous):
    dataset, x, y = continuous
    made = _one_lane("rls", dataset, 1, alpha=1e-4)
    centred, mean = x - x.mean(axis=0), y - y.mean(axis=0)
    w = np.linalg.solve(centred.T @ centred + 1e-4 * len(x) * np.eye(x.shape[1]), centred.T @ mean)
    np.testing.assert_allclose(made.weights, w, rtol=1e-8)
    np.testing.assert_allclose(made.intercept, y.mean(axis=0) - x.mean(axis=0) @ w, rtol=1e-8)


@pytest.mark.fast_cases("sgd$")
@pytest.mark.parametrize("method", ["csgd", "ncsgd", "sgd", "asgd"])
def test_regression_beats_the_mean(continuous, method):
    dataset, _, y = continuous
    params = {} if method in ("csgd", "ncsgd") else {"loss": "squared", "fit_intercept": True}
    model = fit(method, dataset, params=params, passes=20).model
    assert evaluate(model, dataset).mse < 0.5 * np.var(y, axis=0).mean()


@pytest.mark.fast_cases("sgd$", "sgdqn$", "adaline$", "rls$")
@pytest.mark.parametrize("method", ["sgd", "asgd", "svmsgd2", "sgdqn", "adaline", "c-adaline", "rls", "olbfgs"])
def test_classification_learns(classes, method):
    params = {"alpha": 1e-3} if method in ("svmsgd2", "sgdqn") else {}
    model = fit(method, classes[0], params={**DOUBLE, **params}, passes=10).model
    assert evaluate(model, classes[0]).error < 0.4


@pytest.mark.slow
def test_features_are_generated_as_the_model_says(classes):
    """The weights are those of a fit on the features themselves, rows in the same order."""
    dataset, x, y = classes
    params = {"features": "fourier", "block_size": 50, "bandwidth": 2.0, "eta0": 0.1, "fit_intercept": False}
    made = _one_lane("sgd", dataset, 2, **params)
    (design,) = design_of(made.recipe["features"], made.arrays)
    rows = DenseRows(x)
    features = np.concatenate([piece.values.copy() for _, piece in blocks(design, rows, np.dtype(np.float64))])
    order = np.concatenate(visits(dataset, 2))
    w, *_ = oracle.adaptive(features[order], y[order], oracle.slopes_of("softmax"), 0.1, eta_b=1.0, k=4)
    np.testing.assert_allclose(made.weights, w, rtol=1e-6, atol=1e-9)
    assert evaluate(made, dataset).error < 0.4


@pytest.mark.fast_cases("sgd")
@pytest.mark.parametrize("method", ["sgd", "asgd"])
def test_generated_features_refuse_what_they_cannot_do(classes, tmp_path, method):
    fit("gls", classes[0], tmp_path / "first", passes=2)
    given = {"features": "fourier", "init": str(tmp_path / "first")}
    with pytest.raises(ParameterError, match="not with generated features; leave one of them out"):
        fit(method, classes[0], params=given, passes=1)
    with pytest.raises(ParameterError, match="block_size=9: used with generated features only"):
        fit(method, classes[0], params={"block_size": 9}, passes=1)


def test_what_was_tried_is_told(tmp_path, classes):
    fit("svmsgd2", classes[0], tmp_path / "run", params={**DOUBLE, "alpha": 1e-3}, passes=2)
    first, second = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    tried = first["details"]["tried"]
    assert tried["n_rows"] == 200
    finite = [value for value in tried["objectives"].values() if value is not None]
    assert tried["objectives"][f"t0={tried['chosen']['t0']:.6g}"] == min(finite)
    assert "details" not in second


@pytest.mark.slow
def test_the_step_that_is_tried_is_the_one_that_is_taken(classes, tmp_path):
    run = tmp_path / "run"
    given = {**DOUBLE, "lanes": 1}
    chosen = fit("ncsgd", classes[0], run, params=given, passes=1).model
    eta0 = json.loads((run / "events.jsonl").read_text().splitlines()[0])["details"]["tried"]["chosen"]["eta0"]
    again = fit("ncsgd", classes[0], params={**given, "eta0": eta0}, passes=1).model
    assert again.sha256 == chosen.sha256


@pytest.mark.slow
@pytest.mark.parametrize("values", [np.zeros((60, 3)), np.full((60, 3), 1e-160)], ids=["zeros", "tiny"])
@pytest.mark.parametrize("method", ["svmsgd2", "sgdqn"])
def test_of_values_that_are_zero_the_intercept_is_learned(tmp_path, method, values):
    y = (np.arange(60) % 3 == 0).astype(np.int32)
    dataset = write_dataset(tmp_path / "d", values, y)
    model = fit(method, dataset, params={"alpha": 1e-2, "fit_intercept": True}, passes=2).model
    assert np.abs(model.weights).max() < 1e-30
    assert np.all(np.isfinite(model.intercept))


@pytest.mark.slow
def test_no_step_keeps_the_weights_finite(tmp_path):
    x = np.array([[3e38, 1.0], [-3e38, 2.0]] * 40, np.float32)
    dataset = write_dataset(tmp_path / "d", x, np.arange(80) % 2)
    with pytest.raises(DistlsError, match=r"none of eta0=.* keeps the weights finite; give one, or scale the data"):
        fit("ncsgd", dataset, passes=1)


REFUSED = [
    ("sgd", {"average": "tail"}, "average=tail: not with schedule=adaptive"),
    ("sgd", {"batch_size": 4}, "batch_size=4: not with schedule=adaptive"),
    ("sgd", {"center": "running"}, "center=running: not with schedule=adaptive"),
    ("sgd", {"schedule": "sqrt", "center": "running"}, "center=running: for loss=squared only, here it is softmax"),
    (
        "sgd",
        {"schedule": "sqrt", "center": "running", "loss": "squared", "fit_intercept": False},
        "center=running: centred data have an intercept; set fit_intercept=true",
    ),
    ("sgd", {"schedule": "sqrt", "eta0": 10, "alpha": 0.1}, "eta0=10.0: times alpha=0.1 it is 1 or more"),
    ("asgd", {"schedule": "adaptive"}, "expected one of inverse, constant, sqrt, two-phase, t^-A"),
    ("csgd", {"schedule": "t^-1"}, "t^-A with A between 0.5 and 1"),
    ("csgd", {"schedule": "t^-x"}, "schedule=t^-x: expected"),
    ("csgd", {"schedule": "t^-0.7", "switch": 9}, "switch=9.0: not with schedule=t^-0.7"),
    ("rls", {"lanes": 2}, "this method has one lane only: its second-order state cannot be averaged"),
    ("sgdqn", {"alpha": 0}, "must be greater than 0"),
    ("csgd", {"loss": "log"}, "expected one of squared"),
]  # fmt: skip


@pytest.mark.fast_cases("sgd-params0", "sgd-params3", "asgd", "csgd-params9", "csgd-params12")
@pytest.mark.parametrize(("method", "params", "message"), REFUSED)
def test_contradictions_are_refused(classes, method, params, message):
    assert message in raised(ParameterError, fit, method, classes[0], params=params, passes=1)


@pytest.mark.slow
@pytest.mark.parametrize(("n_rows", "n_features", "loss"), [(40, 41, "crammer_singer"), (40, 40, "softmax")])
def test_more_features_than_rows_are_learned_with_the_hinge(tmp_path, n_rows, n_features, loss):
    dataset = write_dataset(tmp_path / "data", *labelled_rows(n_rows, n_features, 3))
    result = fit("sgd", dataset, tmp_path / "run", passes=1)
    assert result.model.loss == loss
    assert json.loads((tmp_path / "run" / "config.json").read_text())["grid"][0]["loss"] == loss
    given = fit("sgd", dataset, params={"loss": loss}, passes=1).model
    assert np.array_equal(given.weights, result.model.weights)


def test_a_run_has_its_loss(classes, tmp_path):
    fit("sgd", classes[0], tmp_path / "run", params=DOUBLE, passes=1)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["grid"][0]["loss"] = None
    del config["request"], config["crc32c"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    with pytest.raises(FormatError, match=r"config.json: not written by distls .*a setting that is not complete"):
        resume(tmp_path / "run")


@pytest.mark.slow
def test_the_loss_is_that_of_the_model_to_start_from(tmp_path):
    wide = write_dataset(tmp_path / "wide", *labelled_rows(20, 30, 4))
    assert fit("sgd", wide, passes=1).model.loss == "crammer_singer"
    for method, loss, then in (("sgd", "ovr_log", "ovr_log"), ("bcd", "squared_hinge", "crammer_singer")):
        if method == "bcd":
            add_columns(wide.path)
        fit(method, wide.path, tmp_path / method, params={"loss": loss}, passes=1)
        again = fit("sgd", wide.path, params={"init": str(tmp_path / method)}, passes=1)
        assert again.model.loss == then


@pytest.mark.slow
def test_generated_features_are_what_counts(tmp_path):
    data = write_dataset(tmp_path / "data", *labelled_rows(60, 80, 3))
    for size, loss in ((60, "softmax"), (61, "crammer_singer"), (None, "crammer_singer")):
        params = {"features": "fourier", "block_size": size}
        assert fit("sgd", data, params=params, passes=1).model.loss == loss


def test_steps_of_the_hinge_grow_with_rows_and_not_with_classes():
    def eta0(loss, n_rows, n_outputs=20, lanes=1):
        stats = ProblemStats(loss, "class", 0.0, False, n_outputs, 100, n_rows, 100 * n_rows, 4.0)
        params = METHODS["sgd"].resolve({"loss": loss})
        update = sgd_steps(stats, params, lanes, warm=False).default
        assert isinstance(update, AdagradUpdate)
        return update.eta0

    assert eta0("crammer_singer", 100) == eta0("crammer_singer", 10_000, n_outputs=3) == 0.25 / 2
    assert eta0("crammer_singer", 160_000, lanes=8) == pytest.approx(2 * 2 * 0.25 / 2)
    assert eta0("softmax", 160_000, lanes=8) == pytest.approx(2 * 0.5 * math.sqrt(20) / 2)


def test_numbers_need_the_squared_loss(continuous):
    refuses(ParameterError, "they need loss=squared", fit, "sgd", continuous[0], params={"loss": "log"}, passes=1)
    refuses(MismatchError, "this method needs class or multilabel targets", fit, "sgdqn", continuous[0], passes=1)


@pytest.mark.fast_cases("sgd$", "olbfgs")
@pytest.mark.parametrize("method", ["sgd", "sgdqn", "csgd", "rls", "olbfgs"])
def test_plans_and_probes(classes, method):
    plan = plan_fit(method, classes[0].path, params=DOUBLE)
    assert plan.seconds_per_pass > 0


def test_a_matrix_that_does_not_fit_is_refused_before_it_is_made(tmp_path):
    dataset = write_dataset(tmp_path / "wide", *labelled_rows(100, 40_000, 2))
    raised(MemoryPlanError, fit, "rls", dataset, passes=1, memory=MemoryBudget(2048 * MIB, 1, 1))


@pytest.mark.fast_cases("sgd$")
@pytest.mark.parametrize("method", ["sgd", "sgdqn", "c-adaline", "olbfgs"])
def test_starts_from_a_run(classes, tmp_path, method):
    """From a good model one more pass is good too; a cold start in the same pass differs."""
    dataset = classes[0]
    fit("gls", dataset, tmp_path / "first", passes=20)
    params = {**DOUBLE, "alpha": 1e-3} if method == "sgdqn" else DOUBLE
    warm = fit(method, dataset, params={**params, "init": str(tmp_path / "first")}, passes=1).model
    cold = fit(method, dataset, params=params, passes=1).model
    assert warm.sha256 != cold.sha256
    assert evaluate(warm, dataset).error < 0.4


# -- rounds ----------------------------------------------------------------------------------------------


def _rounds(method, dataset, run, **params):
    fit(method, dataset, run, params={"lanes": 2, **params}, passes=4, eval_every=0)
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def test_lanes_that_agree_meet_less_often(tmp_path):
    x, y = labelled_rows(1600, 30, 3)
    dataset = write_dataset(tmp_path / "d", x.astype(np.float64), y, partition_rows=100)
    rounds = _rounds("sgdqn", dataset, tmp_path / "r", **DOUBLE, alpha=1.0, sync_bytes=1)
    reads = [after["passes"] - before["passes"] for before, after in itertools.pairwise(rounds)]
    spreads = [each["averaging"]["spread"] for each in rounds]
    assert rounds[0]["passes"] == pytest.approx(1 / 8, rel=0.2)
    assert 1.8 / 8 < reads[0] < 2.2 / 8 if spreads[0] < 0.1 else reads[0] < 1.2 / 8
    assert spreads[-1] < 0.1
    assert max(reads) > 0.9  # lanes do agree in the end: a pass a round
    assert rounds[-1]["passes"] == 4.0


@pytest.mark.slow
def test_lanes_that_differ_meet_at_every_part(tmp_path):
    dataset = write_dataset(tmp_path / "d", *labelled_rows(1600, 30, 3), partition_rows=100)
    params = {"loss": "perceptron", "alpha": 1e-3, "average": "none"}
    rounds = _rounds("mcid", dataset, tmp_path / "r", **params, sync_bytes=1)
    assert min(each["averaging"]["spread"] for each in rounds) >= 0.1
    assert len(rounds) == 4 * 8
    assert len(_rounds("mcid", dataset, tmp_path / "whole", **params)) == 4


@pytest.mark.slow
@pytest.mark.slow_cases("(csgd|c-adaline|svmsgd2)")
@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("sgdqn", {"t0": 900.0, "skip": 8, "alpha": 1e-2}),
        ("svmsgd2", {"t0": 900.0, "skip": 8, "alpha": 1e-2}),
        ("csgd", {"eta0": 0.02}),
        ("c-adaline", {"eta0": 0.02}),
    ],
)
def test_generated_features_are_those_of_a_block(tmp_path, method, given):
    """The model is that of the features as rows; the papers' extension to non-linear models."""
    x, y = labelled_rows(120, 6, 3)
    rows = np.asarray(x.todense(), np.float64)
    own = {**given, "lanes": 1, "shuffle": False, "dtype": "float64"}
    made = write_dataset(tmp_path / "x", rows, y, partition_rows=40)
    features = {"features": "fourier", "block_size": 8, "bandwidth": 2.0}
    found = fit(method, made, params={**own, **features}, passes=2, eval_every=0).model
    lifted = write_dataset(tmp_path / "f", fourier(rows, 0, 0, 8, 2.0), y, partition_rows=40)
    expected = fit(method, lifted, params=own, passes=2, eval_every=0).model
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-12 * np.abs(expected.weights).max())
    if "center" in METHODS[method].published:
        with pytest.raises(ParameterError, match="center=running"):
            fit(method, made, params={**own, **features, "center": "global"}, passes=1)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0 / 8.0, 8.0])
def test_olbfgs_answers_the_same_whatever_the_unit_of_the_rows(tmp_path, scale):
    """Its damping has the unit of second derivatives, and its gain has none."""
    x, y = labelled_rows(300, 6, 3)
    found = []
    for name, factor in (("plain", 1.0), ("scaled", scale)):
        write_dataset(tmp_path / name, factor * x, y)
        params = {"alpha": 1e-3 * factor**2, "fit_intercept": False, "dtype": "float64"}
        found.append(factor * fit("olbfgs", tmp_path / name, params=params, passes=2).model.weights)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-3, atol=1e-6)
