"""All metrics of `distls.evaluate` against scikit-learn on the gathered predictions, and on any number of workers."""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import labelled_rows, printed, write_dataset
from scipy.special import expit, softmax
from sklearn import metrics
from target_helpers import made_model, rows_with_labels, rows_with_numbers, write_targets

import distls.workers.evaluation.class_metrics_task as task
from distls.cli.evaluation_text import evaluation_lines
from distls.evaluation.class_details import ClassDetails
from distls.evaluation.evaluate import evaluate
from distls.evaluation.metrics import Evaluation, LabelEvaluation, RegressionEvaluation
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.storage.model.model import LinearModel, save_model
from distls.testing.solvers import opened

N, D = 700, 30


def random_model(k, loss="softmax", seed=0):
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((D, k))
    for c in range(k):  # right more often than not
        weights[c * (D // k) : c * (D // k) + D // k, c] += 2.0
    return LinearModel(
        weights=weights, intercept=rng.standard_normal(k) / 4, classes=list(range(k)), method="mcid", loss=loss,
        params={}, transforms=[], transforms_digest="", dataset_fingerprint="",
    )  # fmt: skip


class Case:
    """A data set with weights, in memory and on disk: sparse rows of two classes, dense ones of more."""

    def __init__(self, k, folder):
        x, self.y = labelled_rows(N, D, k)
        self.k, self.x = k, x.astype(np.float64) if k == 2 else x.toarray().astype(np.float64)
        self.weight = np.random.default_rng(1).integers(1, 9, N) / 4.0
        self.data = write_dataset(folder / "d", self.x, self.y, n_classes=k, sample_weight=self.weight)

    def scores(self, model):
        return np.asarray(self.x @ model.weights + model.intercept)


@pytest.fixture(scope="module", params=[2, 5])
def case(request, tmp_path_factory):
    return Case(request.param, tmp_path_factory.mktemp("d"))


def measured(*given, **options):
    found = evaluate(*given, **options)
    assert isinstance(found, Evaluation)
    return found


@pytest.mark.fast_cases("2-False")
@pytest.mark.parametrize("weighted", [False, True])
def test_predictions_as_scikit_learn(case, weighted):
    model = random_model(case.k)
    scores = case.scores(model)
    y, best, weight = case.y, scores.argmax(axis=1), {"sample_weight": case.weight if weighted else None}
    found = measured(model, case.data, weighted=weighted)
    fields = found.to_json()
    assert fields["weighted"] is weighted
    assert fields["error"] == pytest.approx(1 - metrics.accuracy_score(y, best, **weight), rel=1e-12)
    for average in ("micro", "macro", "weighted"):
        expected = metrics.f1_score(y, best, average=average, **weight)
        assert fields[f"{average}_f1"] == pytest.approx(expected, rel=1e-12)
    for name, score in (("precision", metrics.precision_score), ("recall", metrics.recall_score)):
        assert fields[f"macro_{name}"] == pytest.approx(score(y, best, average="macro", **weight), rel=1e-12)
        assert [row[name] for row in found.per_class()] == pytest.approx(score(y, best, average=None, **weight))
    assert [row["f1"] for row in found.per_class()] == pytest.approx(metrics.f1_score(y, best, average=None, **weight))
    if not weighted:
        assert [row["n_rows"] for row in found.per_class()] == np.bincount(y).tolist()
    confusion = np.zeros((case.k, case.k))
    for row in fields["confusion"]:
        confusion[row["class"], row["predicted"]] = row["count"]
    np.testing.assert_allclose(confusion, metrics.confusion_matrix(y, best, **weight), rtol=1e-12)
    assert fields["confusion_missing"] == 0.0
    tops = {row["k"]: row["accuracy"] for row in fields["top_k_accuracy"]}
    assert sorted(tops) == [k for k in (1, 3, 5, 10) if k < case.k]
    if case.k > 2:
        for at, value in tops.items():
            assert value == pytest.approx(metrics.top_k_accuracy_score(y, scores, k=at, **weight), rel=1e-12)


@pytest.mark.fast_cases("2-softmax-False", "5-crammer_singer-True")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", ["softmax", "ovr_log", "crammer_singer"])
def test_rankings_as_scikit_learn(case, loss, weighted):
    model = random_model(case.k, loss)
    scores, options = case.scores(model), {"sample_weight": case.weight if weighted else None}
    if loss == "softmax":
        scores = softmax(scores, axis=1)
    elif loss == "ovr_log":
        scores = expit(scores) / expit(scores).sum(axis=1, keepdims=True)
    found = measured(model, case.data, weighted=weighted)
    fields = found.to_json()
    assert fields["ranked_by"] == ("score" if loss == "crammer_singer" else "probability")
    for name, score in (("roc_auc", metrics.roc_auc_score), ("average_precision", metrics.average_precision_score)):
        if case.k == 2:
            ranking = scores[:, 1] - scores[:, 0]
            expected = [score(case.y, ranking, **options)]
            assert [row[name] for row in found.per_class()] == [None, pytest.approx(expected[0], rel=1e-9)]
        else:
            expected = [score(case.y == c, scores[:, c], **options) for c in range(case.k)]
            assert [row[name] for row in found.per_class()] == pytest.approx(expected, rel=1e-9)
        assert fields[name] == {"value": pytest.approx(np.mean(expected), rel=1e-9), "bound": 0.0}


@pytest.mark.fast_cases("2-False")
@pytest.mark.parametrize("weighted", [False, True])
def test_probabilities_as_scikit_learn(case, weighted):
    model = random_model(case.k)
    values, weight = softmax(case.scores(model), axis=1), case.weight if weighted else np.ones(N)
    fields = measured(model, case.data, weighted=weighted).to_json()
    expected = metrics.log_loss(case.y, values, sample_weight=weight)
    assert fields["log_loss"] == pytest.approx(expected, rel=1e-12)
    own = values[:, 1] if case.k == 2 else values
    expected = metrics.brier_score_loss(case.y, own, sample_weight=weight)
    assert fields["brier_score"] == pytest.approx(expected, rel=1e-12)
    # the definition, row by row
    confidence, right = values.max(axis=1), values.argmax(axis=1) == case.y
    error, bins = 0.0, fields["reliability"]
    assert [(row["low"], row["high"]) for row in bins] == [(i / 15, (i + 1) / 15) for i in range(15)]
    for row in bins:
        inside = (confidence > row["low"]) & (confidence <= row["high"])
        assert row["n_rows"] == pytest.approx(weight[inside].sum())
        if not inside.any():
            assert row["confidence"] is row["accuracy"] is None
            continue
        means = [np.average(part[inside], weights=weight[inside]) for part in (confidence, right)]
        assert [row["confidence"], row["accuracy"]] == pytest.approx(means)
        error += weight[inside].sum() * abs(means[0] - means[1])
    assert fields["calibration_error"] == pytest.approx(error / weight.sum(), rel=1e-12)
    assert (fields["calibration"], fields["uncalibrated"]) == (None, None)
    without = measured(random_model(case.k, "perceptron"), case.data).to_json()
    assert without["brier_score"] is without["calibration_error"] is without["log_loss"] is None
    assert without["reliability"] == []


def test_weights_of_two_are_repeated_rows(tmp_path):
    x, y = labelled_rows(90, D, 3)
    twice = np.arange(90) % 2 == 0
    weighted = write_dataset(tmp_path / "w", x, y, sample_weight=1.0 + twice)
    again = np.sort(np.concatenate([np.arange(90), np.flatnonzero(twice)]))
    repeated = write_dataset(tmp_path / "r", x[again], y[again])
    left = measured(random_model(3), weighted, weighted=True).to_json()
    right = measured(random_model(3), repeated).to_json()
    assert left.pop("n_rows") == 90
    assert right.pop("n_rows") == 135
    left.pop("weighted"), right.pop("weighted")
    for one, other in zip(left["per_class"], right["per_class"], strict=True):
        assert one == pytest.approx(other)
    for name in ("error", "log_loss", "macro_f1", "brier_score", "calibration_error"):
        assert left[name] == pytest.approx(right[name], rel=1e-12)
    with pytest.raises(MismatchError, match="/r has no sample weights; leave out --weighted"):
        evaluate(random_model(3), repeated, weighted=True)


@pytest.mark.fast_cases("2-three")
@pytest.mark.parametrize("cluster", ["two processes", "three threads"])
def test_same_bits_on_any_number_of_workers(case, cluster):
    for weighted in (False, True):
        alone = measured(random_model(case.k), case.data, weighted=weighted).to_json()
        there = measured(random_model(case.k), case.data, weighted=weighted, executor=opened(cluster))
        assert there.to_json() == alone


def test_rows_of_unknown_labels(tmp_path):
    x, y = labelled_rows(300, D, 4)
    data = write_dataset(tmp_path / "t", x, y, classes=[0, 1, "new", 2])
    model = random_model(3)
    fields = measured(model, data, unknown_labels="count").to_json()
    assert fields["unknown_labels"] == np.count_nonzero(y == 2)
    truth, best = np.array([0, 1, 9, 2])[y], np.asarray(x @ model.weights + model.intercept).argmax(axis=1)
    assert fields["error"] == pytest.approx(np.mean(truth != best))
    assert fields["macro_f1"] == pytest.approx(metrics.f1_score(truth, best, average="macro"))
    # negatives of every class; they have no probability of their own
    scores = softmax(np.asarray(x @ model.weights + model.intercept), axis=1)
    assert fields["per_class"][3]["roc_auc"] == pytest.approx(metrics.roc_auc_score(truth == 2, scores[:, 2]))
    assert fields["per_class"][2]["roc_auc"] is None
    assert sum(row["n_rows"] for row in fields["reliability"]) == np.count_nonzero(y != 2)


@pytest.mark.fast_cases("2")
def test_many_pairs_keep_the_frequent_ones(case, monkeypatch):
    exact = measured(random_model(case.k), case.data)
    monkeypatch.setattr(task, "MOST_PAIRS", 3)
    found = measured(random_model(case.k), case.data)
    missing, counts = found.details.missing, {(t, p): c for t, p, c in found.confusion.tolist()}
    assert missing > 0.0
    assert 0 < len(counts) <= 3
    for t, p, count in exact.confusion.tolist():
        assert 0 <= count - counts.get((t, p), 0) <= missing
    # all else does not come from the pairs
    assert found.per_class() == exact.per_class()
    assert (found.error, found.macro_f1) == (exact.error, exact.macro_f1)


@pytest.mark.fast_cases("2")
def test_no_curves_of_very_many_classes(case, monkeypatch):
    monkeypatch.setattr(task, "RANKED_CLASSES", case.k - 1)
    fields = measured(random_model(case.k), case.data).to_json()
    assert fields["roc_auc"] is fields["average_precision"] is fields["ranked_by"] is None
    assert "roc_auc" not in fields["per_class"][0]


# ---------------------------------------------------------------- costs


def costs_file(path, text):
    path.write_text(text)
    return path


def test_costs(tmp_path):
    x, y = labelled_rows(200, D, 3)
    weight = np.random.default_rng(2).random(200) + 0.5
    data = write_dataset(tmp_path / "d", x, y, classes=["a", "b", "c"], sample_weight=weight)
    model = replace(random_model(3), classes=["a", "b", "c"])
    # columns and lines in an order of their own, and a class more
    file = costs_file(tmp_path / "costs.csv", ",c,a,b,d\nb,1.5,2,0,9\na,-4,0,1,9\nc,0,3,0.5,9\n")
    table = np.array([[0, 1, -4], [2, 0, 1.5], [3, 0.5, 0]])
    best = np.asarray(x @ model.weights + model.intercept).argmax(axis=1)
    expected = table[y, best]
    assert measured(model, data, costs=file).to_json()["cost"] == pytest.approx(expected.mean(), rel=1e-12)
    found = measured(model, data, costs=file, weighted=True)
    stored = weight.astype(np.float32)
    assert found.to_json()["cost"] == pytest.approx(np.average(expected, weights=stored), rel=1e-12)
    assert f"cost {found.to_json()['cost']:.6g} a row" in evaluation_lines(found)
    assert measured(model, data).to_json()["cost"] is None


@pytest.mark.fast_cases(r"-costs\.csv", ",a,b,c\\\\na,0,1\\\\n", ",a,b,c\\\\na,0,inf")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "costs.csv: empty; expected a first line"),
        (",a,b\na,0,1\nb,1,0\n", 'costs.csv: no class "c" in its first line'),
        (",a,b,c\na,0,1,1\nb,1,0,1\n", 'costs.csv: no class "c" in its first column'),
        (",a,b,c\na,0,1\n", 'costs.csv, line 2: class "a", 2 costs of 3 classes'),
        (",a,b,c\na,0,1,1\na,0,1,1\n", 'costs.csv, line 3: class "a", twice'),
        (",a,b,c\na,0,x,1\n", 'costs.csv, line 2: "x" is not a cost; expected a finite number'),
        (",a,b,c\na,0,inf,1\n", 'costs.csv, line 2: "inf" is not a cost; expected a finite number'),
    ],
)
def test_costs_that_are_refused(tmp_path, text, message):
    data = write_dataset(tmp_path / "d", *labelled_rows(60, D, 3), classes=["a", "b", "c"])
    with pytest.raises((BadInputError, ParameterError)) as caught:
        evaluate(
            replace(random_model(3), classes=["a", "b", "c"]), data, costs=costs_file(tmp_path / "costs.csv", text)
        )
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- sets of labels, and numbers


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    x, y = rows_with_labels(260, 6, 7)
    weight = np.random.default_rng(1).integers(1, 9, 260) / 4.0
    data = write_targets(tmp_path_factory.mktemp("m") / "d", x, y, "multilabel", sample_weight=weight)
    return data, x, y, weight


@pytest.mark.fast_cases("False")
@pytest.mark.parametrize("weighted", [False, True])
def test_sets_of_labels(sets, weighted):
    data, x, y, weight = sets
    weight = weight if weighted else np.ones(len(y))
    model = made_model(6, 7, "multilabel", loss="ovr_log")
    scores = x @ model.weights + model.intercept
    found = evaluate(model, data, weighted=weighted)
    assert isinstance(found, LabelEvaluation)
    best, options = scores > 0, {"sample_weight": weight}
    assert found.error == pytest.approx(1 - metrics.accuracy_score(y, best, **options), rel=1e-12)
    assert found.hamming_loss == pytest.approx(metrics.hamming_loss(y, best, **options), rel=1e-12)
    for average in ("micro", "macro", "weighted"):
        expected = metrics.f1_score(y, best, average=average, zero_division=0.0, **options)
        assert found.to_json()[f"{average}_f1"] == pytest.approx(expected, rel=1e-12)
    order = np.argsort(-scores, axis=1)
    for row in found.to_json()["precision_at"]:
        hits = np.take_along_axis(y, order[:, : row["k"]], axis=1).mean(axis=1)
        assert row["precision"] == pytest.approx(np.average(hits, weights=weight), rel=1e-12)
    assert list(found.precision_at) == [1, 3, 5]
    assert evaluation_lines(found)[3].startswith(f"precision {found.precision_at[1]:.4f} at 1, ")
    assert evaluate(model, data, weighted=weighted, executor=opened("three threads")).to_json() == found.to_json()


def test_weights_of_numbers(tmp_path):
    x, y = rows_with_numbers(200, 5, 2)
    weight = (np.random.default_rng(1).random(200) + 0.1).astype(np.float32)
    data = write_targets(tmp_path / "d", x, y, "continuous", sample_weight=weight)
    model = made_model(5, 2, "continuous")
    predicted = x @ model.weights + model.intercept
    found = evaluate(model, data, weighted=True)
    assert isinstance(found, RegressionEvaluation)
    assert found.mse == pytest.approx(metrics.mean_squared_error(y, predicted, sample_weight=weight), rel=1e-12)
    assert found.r2 == pytest.approx(metrics.r2_score(y, predicted, sample_weight=weight), rel=1e-12)
    with pytest.raises(ParameterError, match="--costs are of classes; the model has continuous targets"):
        evaluate(model, data, costs="c.csv")


# ---------------------------------------------------------------- what people read


@pytest.mark.fast_cases("2")
def test_what_the_command_prints(tmp_path, case):
    save_model(tmp_path / "m", replace(random_model(case.k), classes=list(range(case.k))))
    given = ["evaluate", tmp_path / "m", case.data.path, "--executor", "serial"]
    found = measured(random_model(case.k), case.data)
    lines = printed(*given).splitlines()
    assert lines == evaluation_lines(found)
    assert lines[1].startswith("accuracy" if case.k > 3 else "F1 0.")
    starts = [line.split(" 0.")[0] for line in lines]
    assert starts.index("F1") < starts.index("ROC AUC") < starts.index("Brier score")
    # a matrix of few classes ends the text
    table = [line.split() for line in lines[-case.k - 1 :]]
    assert table[0] == ["predicted", *map(str, range(case.k))]
    counts = [[int(cell.replace(".", "0")) for cell in row[1:]] for row in table[1:]]
    assert counts == metrics.confusion_matrix(case.y, case.scores(random_model(case.k)).argmax(axis=1)).tolist()
    shown = json.loads(printed(*given, "--weighted", "--json"))
    assert shown == measured(random_model(case.k), case.data, weighted=True).to_json()


def test_long_names_are_numbered():
    names = ["a long name of a class", "b"]
    pairs = np.array([[0, 0, 12], [0, 1, 1], [1, 1, 3]], dtype=np.int64)
    details = ClassDetails(
        False, np.array([13.0, 3.0]), np.array([12.0, 3.0]), np.array([12.0, 4.0]), {1: 0.9375}, 0.0, None, None,
    )  # fmt: skip
    lines = evaluation_lines(Evaluation(16, 0.0625, None, 0, names, names, pairs, details))
    assert lines[-3:] == [
        "                 predicted  1  2",
        "a long name of a class = 1 12  1",
        "                     b = 2  .  3",
    ]
