"""Calibration on held-out rows: against scikit-learn and a plain minimiser, stored, resumed, refused."""

import csv
import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from helpers import distls as command
from helpers import labelled_rows, printed, raised, refuses, write_dataset
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax, softmax
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from target_helpers import made_model, rows_with_numbers, write_targets

import distls
from distls import calibrate, evaluate, fit, load_model, predict
from distls.cli.evaluation_text import calibration_lines
from distls.evaluation import calibrate as module
from distls.evaluation.metrics import Evaluation
from distls.request import OPTIONS
from distls.storage.errors import DistlsError, FormatError, MismatchError, ParameterError
from distls.storage.model.bundle import read_bundle, write_bundle
from distls.storage.model.model import LinearModel, save_model
from distls.testing.solvers import StopAfter, interrupted, opened
from distls.workers.prediction.probability_map import (
    CALIBRATIONS,
    LABEL_CALIBRATIONS,
    ProbabilityMap,
    model_probabilities,
)

N, D = 900, 24


def noisy_rows(k, n=N, seed=0):
    """Rows of which a fifth have another class than they look like."""
    x, y = labelled_rows(n, D, k, seed)
    rng = np.random.default_rng(seed + 1)
    other = rng.random(n) < 0.2
    y[other] = rng.integers(0, k, other.sum())
    return x.astype(np.float64), y


def sure_model(k, loss="softmax", factor=9.0):
    """A model that is far too sure of itself."""
    weights = np.zeros((D, k))
    for c in range(k):
        weights[c * (D // k) : c * (D // k) + D // k // 2, c] = factor
    return LinearModel(
        weights=weights, intercept=np.linspace(0.0, 1.0, k), classes=list(range(k)), method="mcid", loss=loss,
        params={}, transforms=[], transforms_digest="", dataset_fingerprint="",
    )  # fmt: skip


class Case:
    def __init__(self, k, folder):
        self.k = k
        self.x, self.y = noisy_rows(k)
        self.data = write_dataset(folder / f"held-{k}", self.x, self.y, n_classes=k)
        self.model = sure_model(k)
        self.scores = np.asarray(self.x @ self.model.weights + self.model.intercept)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return Case(2, tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    return Case(4, tmp_path_factory.mktemp("four"))


def quality(found):
    return found.details.uncalibrated, found.details.probability


# ---------------------------------------------------------------- the fits


def test_temperature_is_the_best_one(four):
    made = calibrate(four.model, four.data, "temperature").model

    def loss(scale):
        logs = log_softmax(scale * four.scores, axis=1)
        # one row more, of which nothing is known
        return float(-(logs[np.arange(N), four.y].sum() * N + logs.mean(axis=1).sum()) / (N + 1) / N)

    best = minimize_scalar(loss, bounds=(1e-3, 10.0), method="bounded", options={"xatol": 1e-10})
    assert made.calibration_arrays["scale"] == pytest.approx([best.x], rel=1e-5)
    assert best.x < 0.8


def test_platt_of_two_classes_is_scikit_learns(two):
    from sklearn.calibration import _sigmoid_calibration

    made = calibrate(two.model, two.data, "platt").model
    difference = two.scores[:, 1] - two.scores[:, 0]
    slope, intercept = _sigmoid_calibration(difference, two.y)
    assert made.calibration_arrays["scale"] == pytest.approx([-slope], rel=1e-4)
    assert made.calibration_arrays["offset"] == pytest.approx([-intercept], abs=1e-4)
    second = model_probabilities(made, two.scores.copy())[:, 1]
    np.testing.assert_allclose(second, expit(-slope * difference - intercept), atol=1e-5)


def test_platt_of_many_classes_is_one_logistic_regression_each(four):
    made = calibrate(four.model, four.data, "platt").model
    for c in range(4):
        # rows twice, once with each label, weighted by the targets
        own = (four.y == c).astype(float)
        n = own.sum()
        target = np.where(own > 0, (n + 1) / (n + 2), 1 / (N - n + 2))
        given = np.tile(four.scores[:, c], 2)[:, None], np.repeat([1, 0], N)
        weights = np.concatenate([target, 1 - target])
        other = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(*given, sample_weight=weights)
        assert made.calibration_arrays["scale"][c] == pytest.approx(other.coef_[0, 0], rel=1e-4)
        assert made.calibration_arrays["offset"][c] == pytest.approx(other.intercept_[0], abs=1e-4)
    values = model_probabilities(made, four.scores.copy())
    each = expit(made.calibration_arrays["scale"] * four.scores + made.calibration_arrays["offset"])
    np.testing.assert_allclose(values, each / each.sum(axis=1, keepdims=True), rtol=1e-10)


@pytest.mark.slow
def test_vector_has_no_gradient(four):
    arrays = calibrate(four.model, four.data, "vector").model.calibration_arrays
    p = softmax(arrays["scale"] * four.scores + arrays["offset"], axis=1)
    targets = (np.eye(4)[four.y] * N + 0.25) / (N + 1)
    assert np.abs((p - targets).mean(axis=0)).max() < 1e-5
    assert np.abs(((p - targets) * four.scores).mean(axis=0)).max() < 1e-4


def test_isotonic_is_scikit_learns(two):
    made = calibrate(two.model, two.data, "isotonic").model
    difference = two.scores[:, 1] - two.scores[:, 0]
    least = 1 / (N + 2)
    other = IsotonicRegression(out_of_bounds="clip").fit(difference, two.y)
    grid = np.linspace(difference.min() - 1, difference.max() + 1, 301)
    given = np.stack([np.zeros(301), grid], axis=1)
    found = model_probabilities(made, given)
    # probabilities are moved inwards at the ends of steps, between which both interpolate
    expected = np.interp(grid, other.X_thresholds_, np.clip(other.y_thresholds_, least, 1 - least))
    np.testing.assert_allclose(found[:, 1], expected, atol=1e-9)
    inner = (other.predict(difference) > least) & (other.predict(difference) < 1 - least)
    second = model_probabilities(made, two.scores.copy())[:, 1]
    np.testing.assert_allclose(second[inner], other.predict(difference)[inner], atol=1e-9)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)


@pytest.mark.fast_cases("temperature")
@pytest.mark.parametrize("kind", [kind for kind in CALIBRATIONS if kind != "isotonic"])
def test_the_same_where_scores_are_streamed(four, kind, monkeypatch):
    held = calibrate(four.model, four.data, kind).model.calibration_arrays
    monkeypatch.setattr(module, "MOST_HELD", 10)
    streamed = calibrate(four.model, four.data, kind).model.calibration_arrays
    for name, array in held.items():
        np.testing.assert_allclose(streamed[name], array, rtol=1e-5, atol=1e-6)
    spread = calibrate(four.model, four.data, kind, executor=opened("three threads")).model.calibration_arrays
    assert {name: a.tolist() for name, a in spread.items()} == {n: a.tolist() for n, a in streamed.items()}


@pytest.mark.fast_cases("temperature")
@pytest.mark.parametrize("kind", CALIBRATIONS)
def test_same_bits_on_any_number_of_workers(two, kind):
    alone = calibrate(two.model, two.data, kind)
    others = calibrate(two.model, two.data, kind, executor=opened("three threads"))
    for name, array in alone.model.calibration_arrays.items():
        assert others.model.calibration_arrays[name].tobytes() == array.tobytes()
    assert others.evaluation.to_json() == alone.evaluation.to_json()


@pytest.mark.fast_cases("2-platt")
@pytest.mark.parametrize(("k", "kind"), [(2, "platt"), (2, "isotonic"), (2, None), (4, "vector"), (4, None)])
def test_probabilities_are_better_on_other_rows(two, four, k, kind, tmp_path):
    case = two if k == 2 else four
    test = write_dataset(tmp_path / "test", *noisy_rows(k, seed=7), n_classes=k)
    made = calibrate(case.model, case.data, kind).model
    assert made.calibration["kind"] == (kind or ("platt" if k == 2 else "temperature"))
    before, after = quality(evaluate(made, test))
    assert before.to_json() == evaluate(case.model, test).details.probability.to_json()
    assert after.log_loss < 0.8 * before.log_loss
    assert after.brier_score < before.brier_score
    assert after.calibration_error < 0.5 * before.calibration_error


@pytest.mark.slow
def test_a_hinge_has_probabilities_then(four, tmp_path):
    model = replace(four.model, loss="crammer_singer")
    refuses(DistlsError, "calibrate it on held-out rows", predict, model, four.data, tmp_path / "p.csv", proba=True)
    assert evaluate(model, four.data).details.probability is None
    made = calibrate(model, four.data).model
    found = evaluate(made, four.data)
    before, after = quality(found)
    assert before is None
    assert found.log_loss == after.log_loss < np.log(4)
    assert found.error == evaluate(model, four.data).error
    predict(made, four.data, tmp_path / "p.csv", proba=True, top=4)
    with (tmp_path / "p.csv").open() as file:
        header, *rows = csv.reader(file)
    assert header[:3] == ["row", "label", "probability"]
    values = softmax(made.calibration_arrays["scale"] * four.scores, axis=1)
    assert [row[1] for row in rows] == [str(c) for c in values.argmax(axis=1)]
    assert [float(row[2]) for row in rows] == pytest.approx(values.max(axis=1), rel=1e-6)
    assert [sum(map(float, row[2::2])) for row in rows] == pytest.approx(np.ones(N), rel=1e-5)


def test_scores_that_are_probabilities_have_their_logarithms_calibrated(four):
    values = softmax(four.scores, axis=1)
    made = ProbabilityMap("simplex", "temperature", {"scale": np.array([0.5])})
    np.testing.assert_allclose(made(values.copy()), softmax(0.5 * four.scores, axis=1), rtol=1e-6)


@pytest.mark.fast_cases("softmax")
@pytest.mark.parametrize("loss", ["softmax", "ovr_log"])
def test_a_temperature_of_one_leaves_probabilities_as_they_are(four, loss):
    natural = ProbabilityMap(loss)(four.scores.copy())
    made = ProbabilityMap(loss, "temperature", {"scale": np.ones(1)})
    np.testing.assert_allclose(made(four.scores.copy()), natural, rtol=1e-9)


# ---------------------------------------------------------------- stored


@pytest.mark.fast_cases("temperature")
@pytest.mark.parametrize("kind", CALIBRATIONS)
def test_it_is_stored_with_the_model(two, kind, tmp_path):
    save_model(tmp_path / "m", two.model)
    before = load_model(tmp_path / "m")
    assert (before.calibration, before.calibration_arrays) == ({}, {})
    assert "calibration" not in read_bundle(tmp_path / "m", "model")[0]
    found = calibrate(tmp_path / "m", two.data, kind)
    again = load_model(tmp_path / "m")
    assert again.sha256 == before.sha256
    assert again.calibration == {
        "kind": kind, "n_rows": N, "dataset_fingerprint": two.data.fingerprint
    }  # fmt: skip
    assert evaluate(tmp_path / "m", two.data).to_json() == found.evaluation.to_json()
    calibrate(tmp_path / "m", two.data, "platt")
    assert load_model(tmp_path / "m").calibration["kind"] == "platt"


@pytest.mark.fast_cases("magic", "platt", "isotonic-arrays9")
@pytest.mark.parametrize(
    ("kind", "arrays"),
    [
        ("magic", {"scale": np.ones(1)}),
        ("temperature", {"scale": np.ones(2)}),
        ("temperature", {"scale": np.array([np.nan])}),
        ("temperature", {"scale": np.ones(1, np.float32)}),
        ("platt", {"scale": np.ones(1)}),
        ("isotonic", {"scores": np.zeros(0), "probabilities": np.zeros(0)}),
        ("isotonic", {"scores": np.zeros(2), "probabilities": np.array([0.1, 0.2])}),
        ("isotonic", {"scores": np.arange(2.0), "probabilities": np.array([0.2, 0.1])}),
        ("isotonic", {"scores": np.arange(2.0), "probabilities": np.array([0.2, 1.1])}),
        ("isotonic", {"scores": np.arange(2.0), "probabilities": np.arange(3.0) / 3}),
    ],
)
def test_forged_calibrations_are_refused(two, kind, arrays, tmp_path):
    save_model(tmp_path / "m", two.model)
    attributes, stored = read_bundle(tmp_path / "m", "model")
    given = {f"calibration_{name}": array for name, array in arrays.items()}
    write_bundle(tmp_path / "m", "model", {**attributes, "calibration": {"kind": kind}}, {**stored, **given})
    said = raised(FormatError, evaluate, tmp_path / "m", two.data)
    assert said.startswith(f"{tmp_path / 'm'}: ")


# ---------------------------------------------------------------- refused


def test_numbers_are_refused(tmp_path):
    data = write_targets(tmp_path / "d", *rows_with_numbers(60, 5, 3), "continuous")
    said = raised(MismatchError, calibrate, made_model(5, 3, "continuous"), data)
    only = "only models of classes or of sets of labels can be calibrated"
    assert said == f"the model predicts numbers, which have no probabilities; {only}"
    refuses(MismatchError, only, fit, "gls", data, tmp_path / "run", params={"link": "identity"}, calibrate=data)
    assert not (tmp_path / "run").exists()


def test_rows_that_lack_a_class_are_refused(four, tmp_path):
    x, y = noisy_rows(4, 200)
    few = write_dataset(tmp_path / "few", x[y < 2], y[y < 2], n_classes=4)
    for kind in ("vector", "platt"):
        assert raised(MismatchError, calibrate, four.model, few, kind) == (
            f"{tmp_path}/few has no rows of class 2 and 1 more, and calibration {kind} needs some of every class; "
            "hold out more, or take temperature"
        )
    assert calibrate(four.model, few).model.calibration["kind"] == "temperature"
    one = write_dataset(tmp_path / "one", x[y == 1], y[y == 1], n_classes=2)
    with pytest.raises(MismatchError, match=r"no rows of class 0, and calibration platt needs .*; hold out more$"):
        calibrate(sure_model(2), one)


def test_other_mistakes_are_refused(two, four, tmp_path):
    for given, message in (
        ((four.model, four.data, "isotonic"), "isotonic is for two classes, the model has 4; take temperature, "),
        ((four.model, four.data, "magic"), "calibration magic: expected one of temperature, vector, platt, isotonic"),
        ((replace(two.model, dataset_fingerprint=two.data.fingerprint), two.data), "was trained on, where it is too"),
        ((two.model, four.data), "not among the 2 of the model; read from files, --drop unknown leaves their rows out"),
        ((tmp_path / "none", two.data), "none: no such run or model"),
    ):
        said = raised(DistlsError, calibrate, *given)
        assert message in said


# ---------------------------------------------------------------- with a fit


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("train") / "train", *noisy_rows(4, seed=3), n_classes=4)


def test_a_fit_calibrates_what_it_publishes(four, train, tmp_path):
    plain = fit("mcid", train, tmp_path / "plain", params={"dtype": "float64"}, passes=2)
    made = fit("mcid", train, tmp_path / "run", params={"dtype": "float64"}, passes=2, calibrate=four.data)
    assert made.model.sha256 == plain.model.sha256
    assert made.model.calibration["kind"] == made.calibrated.details.calibration == "temperature"
    assert load_model(tmp_path / "run").calibration == made.model.calibration
    assert not (tmp_path / "run" / "lock").exists()
    again = distls.resume(tmp_path / "run")
    assert again.calibrated is None
    assert again.model.calibration == made.model.calibration
    config = json.loads((tmp_path / "plain" / "config.json").read_text())
    assert not {"calibrate", "calibration"} & set(config)


@pytest.mark.slow
def test_a_fit_that_was_stopped_is_calibrated_when_it_ends(four, train, tmp_path):
    options = {"params": {"loss": "hinge"}, "calibrate": four.data, "calibration": "platt"}
    whole = fit("mcid", train, tmp_path / "whole", passes=4, **options)
    with interrupted():
        fit("mcid", train, tmp_path / "half", passes=4, callbacks=[StopAfter(2)], **options)
    ended = distls.resume(tmp_path / "half")
    assert ended.model.calibration == whole.model.calibration
    for name, array in whole.model.calibration_arrays.items():
        assert ended.model.calibration_arrays[name].tobytes() == array.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["selection", "folds"])
def test_of_many_fits_only_what_is_published_is_calibrated(four, train, tmp_path, how):
    given = {
        "selection": {"method": "mcid", "params": {"loss": "hinge", "alpha": [1e-3, 1e-1]}, "select": four.data},
        "folds": {"method": "sdca", "params": {"alpha": "path", "alphas": 2, "folds": 2}},
    }[how]
    made = fit(given.pop("method"), train, tmp_path / "run", **given, passes=2, calibrate=four.data)
    assert made.model is not None
    assert load_model(tmp_path / "run").calibration["kind"] == "temperature"
    children = sorted((tmp_path / "run" / "children").iterdir())
    assert len(children) == {"selection": 2, "folds": 5}[how]
    for child in children:
        assert not load_model(child).calibration
        assert "calibrate" not in json.loads((child / "config.json").read_text())


def test_from_the_command_line(four, train, tmp_path):
    run, held, options = tmp_path / "run", four.data.path, ("-p", "dtype=float64", "--passes", 1, "--quiet")
    text = printed("fit", "mcid", train.path, run, *options, "--calibrate", held, "--calibration", "vector")
    assert f"calibrated (vector) on {N} held-out rows, on which now log loss " in text
    text = printed("calibrate", run, held)
    found = evaluate(run, held)
    assert isinstance(found, Evaluation)
    assert text.splitlines() == calibration_lines(found)
    assert text.startswith(f"calibrated (temperature) on {N} held-out rows, on which now log loss ")
    for path in (run, run / "model"):
        assert json.loads(printed("info", path, "--json"))["calibration"]["kind"] == "temperature"
    refused = command("fit", "mcid", train.path, tmp_path / "x", "--calibration", "platt")
    assert refused.code == 2
    assert "calibration needs held-out rows: give --calibrate DATASET" in refused.err


def test_the_earlier_name_of_the_kind(four):
    refuses(ParameterError, r"^kind is calibration= now$", calibrate, four.model, four.data, kind="vector")


def test_the_option_has_all_kinds():
    (option,) = (option for option in OPTIONS if option.name == "calibration")
    assert set(option.choices) == {*CALIBRATIONS, *LABEL_CALIBRATIONS}


def test_only_scores_are_held(tmp_path):
    rows, k = 3000, 3000
    x, y = labelled_rows(rows, D, 5)
    data = write_dataset(tmp_path / "d", x, y, partition_rows=1000, classes=list(range(k)), n_classes=k)
    model = replace(
        sure_model(2), weights=np.ones((D, k), np.float32), intercept=np.zeros(k, np.float32), classes=list(range(k)),
    )  # fmt: skip
    calibrate(model, data)  # compiles
    tracemalloc.start()
    try:
        calibrate(model, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # the scores, twice those of a partition while it is gathered, and batches
    assert peak < (rows + 2 * 1000) * k * 4 + 2**25, f"{peak / 2**20:.0f} MiB"
