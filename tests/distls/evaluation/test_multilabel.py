"""Targets that are sets of labels: trained, evaluated, predicted; against scikit-learn, and what is refused."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from helpers import labelled_rows, printed, raised, read_csv, write_dataset
from scipy.special import expit
from sklearn import metrics
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from target_helpers import made_model, rows_with_labels, sets_of, write_targets

import distls.workers.prediction.predictor
from distls import evaluate, fit, predict
from distls.cli.data import dataset_line
from distls.cli.evaluation_text import evaluation_lines
from distls.evaluation.evaluator import Evaluator
from distls.evaluation.metrics import LabelEvaluation
from distls.execution.batch import run_alone
from distls.execution.serial import SerialExecutor
from distls.methods.method_registry import METHODS
from distls.problem import Problem
from distls.solvers.solver import Fitted
from distls.storage.errors import DistlsError, MismatchError, ParameterError
from distls.training.run_folder import Run
from distls.workers.prediction.predict_task import sigmoids
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.block_stream import DatasetRef
from reference.least_squares import ridge_gap

D, K, N = 6, 4, 260
THRESHOLD = {"squared": 0.5, "ovr_log": 0.0}


@pytest.fixture(scope="module")
def rows():
    x, y = rows_with_labels(N, D, K)
    assert not y.any(axis=1).all()
    assert y.all(axis=1).any()
    return x, y


@pytest.fixture(scope="module", params=["csr", "dense"])
def dataset(request, rows, tmp_path_factory):
    x, y = rows
    stored = sp.csr_matrix(x) if request.param == "csr" else x
    return write_targets(tmp_path_factory.mktemp("d") / "train", stored, y, "multilabel")


def scored(result):
    assert isinstance(result, LabelEvaluation)
    return result


def near_model(loss, rows, **changes):
    """A model that is right more often than not."""
    x, y = rows
    ridge = Ridge(alpha=1.0).fit(x, y)
    spread = 1.0 if loss == "squared" else 4.0
    shift = 0.0 if loss == "squared" else -2.0
    return replace(
        made_model(D, K, "multilabel", loss=loss), weights=np.ascontiguousarray(spread * ridge.coef_.T),
        intercept=spread * ridge.intercept_ + shift, **changes,
    )  # fmt: skip


# ---------------------------------------------------------------- evaluation


@pytest.mark.fast_cases("csr-squared")
@pytest.mark.parametrize("loss", ["squared", "ovr_log"])
def test_agrees_with_scikit_learn(dataset, rows, loss):
    x, y = rows
    model = near_model(loss, rows)
    scores = x @ model.weights + model.intercept
    predicted = (scores > THRESHOLD[loss]).astype(int)
    result = scored(evaluate(model, dataset))
    assert (result.n_rows, result.unknown) == (N, 0)
    assert result.error == pytest.approx(1 - metrics.accuracy_score(y, predicted), abs=1e-12)
    assert 0.05 < result.error < 0.9
    assert result.hamming_loss == pytest.approx(metrics.hamming_loss(y, predicted), rel=1e-12)
    assert result.micro_f1 == pytest.approx(metrics.f1_score(y, predicted, average="micro"), rel=1e-12)
    assert result.macro_f1 == pytest.approx(metrics.f1_score(y, predicted, average="macro"), rel=1e-12)
    by_label = result.per_class()
    assert [row["class"] for row in by_label] == list(range(K))
    assert [row["n_rows"] for row in by_label] == y.sum(axis=0).tolist()
    for name, score in (("recall", metrics.recall_score), ("precision", metrics.precision_score)):
        assert [row[name] for row in by_label] == score(y, predicted, average=None).tolist()
    if loss == "squared":
        assert result.log_loss is None
    else:
        each = [metrics.log_loss(y[:, c], expit(scores[:, c])) for c in range(K)]
        assert result.log_loss == pytest.approx(sum(each), rel=1e-10)


def test_labels_are_matched_by_name_and_need_not_be_in_the_data(tmp_path, rows):
    x, y = rows
    model = near_model("squared", rows, classes=["d", "c", "b", "a"])
    data = write_targets(tmp_path / "t", x, y[:, [3, 1]], "multilabel", classes=["a", "c"])
    result = scored(evaluate(model, data))
    truth = np.zeros((N, K), int)
    truth[:, 3], truth[:, 1] = y[:, 3], y[:, 1]
    predicted = x @ model.weights + model.intercept > 0.5
    assert result.error == pytest.approx(1 - metrics.accuracy_score(truth, predicted), abs=1e-12)
    assert result.hamming_loss == pytest.approx(metrics.hamming_loss(truth, predicted))
    assert [(row["class"], row["n_rows"]) for row in result.per_class()] == [
        ("d", 0), ("c", y[:, 1].sum()), ("b", 0), ("a", y[:, 3].sum())
    ]  # fmt: skip
    assert [row["recall"] is None for row in result.per_class()] == [True, False, True, False]


def test_unknown_labels_are_refused_or_counted(tmp_path, rows):
    x, y = rows
    wide = np.column_stack([y[:, 0], y[:, 1], y[:, 2], y[:, 3], y[:, 0] & y[:, 3], np.zeros(N, int)])
    data = write_targets(tmp_path / "t", x, wide, "multilabel", classes=[0, 1, 2, 3, "new", "never"])
    model = near_model("ovr_log", rows)
    said = raised(MismatchError, evaluate, model, data)
    uses = int(wide[:, 4].sum())
    assert said == (
        f"{tmp_path}/t has 1 label (new; {uses} uses) that is not among the 4 of the model; "
        "--unknown-labels count counts them as errors"
    )
    result = scored(evaluate(model, data, unknown_labels="count"))
    scores = x @ model.weights + model.intercept
    predicted = np.column_stack([scores > 0, np.zeros((N, 2))]).astype(int)
    known = wide[:, 4] == 0
    assert result.unknown == uses == N - known.sum()
    assert result.error == pytest.approx(1 - metrics.accuracy_score(wide, predicted), abs=1e-12)
    assert result.hamming_loss == pytest.approx(metrics.hamming_loss(wide, predicted))
    assert result.micro_f1 == pytest.approx(metrics.f1_score(wide, predicted, average="micro"))
    assert result.macro_f1 == pytest.approx(metrics.f1_score(wide, predicted, average="macro", zero_division=0.0))
    each = [metrics.log_loss(y[known, c], expit(scores[known, c])) for c in range(K)]
    assert result.log_loss == pytest.approx(sum(each), rel=1e-10)
    assert result.per_class()[4:] == [
        {"class": "new", "n_rows": uses, "recall": 0.0, "precision": None, "f1": 0.0},
        {"class": "never", "n_rows": 0, "recall": None, "precision": None, "f1": 0.0},
    ]


@pytest.mark.fast_cases("csr")
def test_pieces_of_rows_add_up(dataset, rows, monkeypatch):
    whole = evaluate(near_model("squared", rows), dataset).to_json()
    monkeypatch.setattr(distls.workers.prediction.predictor, "PIECE_BYTES", 7 * K * 8)
    assert evaluate(near_model("squared", rows), dataset).to_json() == whole


@pytest.mark.fast_cases("False-identity")
@pytest.mark.parametrize("link", ["identity", "logit"])
@pytest.mark.parametrize("intercept", [False, True])
def test_objective_and_certificate_are_the_documented_ones(tmp_path, rows, link, intercept):
    x, y = rows
    s = np.random.default_rng(1).integers(0, 4, N).astype(np.float64)
    data = write_targets(tmp_path / "t", sp.csr_matrix(x), y, "multilabel", sample_weight=s)
    params = METHODS["gls"].resolve({"link": link, "alpha": 0.05, "fit_intercept": intercept})
    problem = Problem.of(data, params, 0, ("multilabel",))
    assert problem.shape == (D, K)
    model = near_model(problem.loss, rows)
    model = model if intercept else replace(model, intercept=np.zeros(K))
    evaluator = Evaluator(problem, DatasetRef.of(data), eval_data=data)
    result = run_alone(evaluator(Fitted(LinearPredictor(model.weights, model.intercept))), SerialExecutor())
    z = x @ model.weights + model.intercept
    loss = 0.5 * np.square(z - y) if link == "identity" else np.logaddexp(0, np.where(y, -z, z))
    slope = (z if link == "identity" else expit(z)) - y
    slope *= s[:, None] / s.sum()
    objective = s @ loss.sum(axis=1) / s.sum() + 0.025 * np.square(model.weights).sum()
    assert result["objective"] == pytest.approx(objective, rel=1e-10)
    square = np.square(x.T @ slope + 0.05 * model.weights).sum()
    if intercept:
        kind, value = "gradient_norm", np.sqrt(square + np.square(slope.sum(axis=0)).sum())
    elif link == "identity":
        kind, value = "duality_gap", ridge_gap(x, y, model.weights.astype(np.float64), 0.05, s)
    else:
        kind, value = "strong_convexity", min(square / 0.1, objective)
    assert result["certificate"] == {"kind": kind, "value": pytest.approx(value, rel=1e-9)}
    assert result["eval_error"] == scored(evaluate(model, data)).error
    assert "eval_mse" not in result


# ---------------------------------------------------------------- prediction

NAMES = ["a,b", 'say "x"', "", 7]


@pytest.mark.fast_cases("csr-1-squared")
@pytest.mark.parametrize(("loss", "proba"), [("squared", False), ("ovr_log", False), ("ovr_log", True)])
@pytest.mark.parametrize("top", [1, 3])
def test_predictions(dataset, rows, tmp_path, loss, proba, top):
    x, _ = rows
    model = near_model(loss, rows, classes=NAMES)
    assert predict(model, dataset, tmp_path / "p.csv", top=top, proba=proba) == N
    header, *lines = read_csv(tmp_path / "p.csv")
    value = "probability" if proba else "score"
    later = [f"{name}_{place}" for place in range(2, top + 1) for name in ("label", value)]
    assert header == ["row", "labels", "label", value, *later]
    scores = x @ model.weights + model.intercept
    chosen = scores > THRESHOLD[loss]
    values = expit(scores) if proba else scores
    codes = np.argsort(-values, axis=1, kind="stable")[:, :top]
    best = np.take_along_axis(values, codes, axis=1)
    names = np.array([str(name) for name in NAMES])
    assert [line[0] for line in lines] == [str(i) for i in range(N)]
    # a cell is itself a line of a csv file, so that labels with commas are told apart
    found = [next(csv.reader([line[1]])) if line[1] else [] for line in lines]
    assert found == [names[row].tolist() for row in chosen]
    assert [line[2::2] for line in lines] == names[codes].tolist()
    np.testing.assert_allclose(np.array([line[3::2] for line in lines], float), best, rtol=1e-6)
    predict(model, dataset, tmp_path / "p.zarr", top=top, proba=proba)
    group = zarr.open_group(str(tmp_path / "p.zarr"), mode="r")
    assert group.attrs["classes"] == NAMES
    assert np.array_equal(group["label"][:], codes)
    np.testing.assert_allclose(group["score"][:], best, rtol=1e-10)
    assert np.array_equal(csr_of(group["labels"]).toarray(), chosen)


def csr_of(group):
    """The sets as scipy has them, from the arrays alone."""
    parts = tuple(group[name][:] for name in ("data", "indices", "indptr"))
    return sp.csr_matrix(parts, shape=tuple(group.attrs["shape"]))


@pytest.mark.fast_cases("csr")
def test_the_sets_are_an_anndata_matrix(dataset, rows, tmp_path):
    anndata = pytest.importorskip("anndata")
    predict(near_model("squared", rows), dataset, tmp_path / "p.zarr")
    group = zarr.open_group(str(tmp_path / "p.zarr"), mode="r")
    read = anndata.io.read_elem(group["labels"])
    assert np.array_equal(read.toarray(), csr_of(group["labels"]).toarray())


def test_independent_probabilities_far_out():
    assert sigmoids(np.array([[0.0, 800.0, -800.0]])).tolist() == [[0.5, 1.0, 0.0]]
    assert sigmoids(np.array([[2.0]], np.float32)).dtype == np.float32


@pytest.mark.fast_cases("csr-options0")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top": 5}, "--top 5: the model has 4 labels"),
        (
            {"proba": True},
            "--proba: the model was trained with loss squared, which has no probabilities; train with -p loss=ovr_log",
        ),
    ],
)
def test_predictions_that_there_are_none_of(dataset, tmp_path, options, message):
    said = raised(ParameterError, predict, made_model(D, K, "multilabel"), dataset, tmp_path / "p.csv", **options)
    assert said == message


# ---------------------------------------------------------------- training


@pytest.mark.fast_cases("csr")
def test_gls_identity_is_ridge_on_indicators(dataset, rows):
    x, y = rows
    model = fit("gls", dataset, params={"link": "identity", "alpha": 0.05}).model
    assert (model.target, model.loss, model.classes) == ("multilabel", "squared", list(range(K)))
    ridge = Ridge(alpha=0.05 * N, solver="cholesky").fit(x, y)
    np.testing.assert_allclose(model.weights.T, ridge.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(model.intercept, ridge.intercept_, rtol=1e-8, atol=1e-10)


def test_gls_logit_is_one_logistic_regression_a_label(tmp_path, rows):
    x, y = rows
    data = write_targets(tmp_path / "t", x, y, "multilabel")
    params = {"link": "logit", "alpha": 0.05, "fit_intercept": False}
    result = fit("gls", data, params=params, passes=400, tol=1e-14)
    plain = LogisticRegression(C=1 / (0.05 * N), fit_intercept=False, tol=1e-10, max_iter=10_000)
    rest = OneVsRestClassifier(plain).fit(x, y)
    coefficients = np.vstack([each.coef_ for each in rest.estimators_])
    np.testing.assert_allclose(result.model.weights.T, coefficients, rtol=1e-4, atol=1e-6)
    assert scored(evaluate(result.model, data)).error == pytest.approx(1 - rest.score(x, y), abs=1e-12)


@pytest.mark.fast_cases("csr")
def test_running_error_is_that_of_the_rows_just_read(dataset, tmp_path):
    params = {"link": "logit", "alpha": 0.05}
    fit("gls", dataset, tmp_path / "run", params=params, passes=2, eval_data=dataset, eval_every=1)
    first, second = Run.open(tmp_path / "run").events()[:2]
    empty = 1 - np.mean([bool(row.any()) for row in rows_with_labels(N, D, K)[1]])
    assert first["running_error"] == pytest.approx(1 - empty)
    assert 0 < second["running_error"] < 1


@pytest.mark.fast_cases("csr")
def test_selection_takes_the_lowest_error(dataset, rows, tmp_path):
    grid = {"link": "identity", "alpha": [100.0, 1e-3]}
    result = fit("gls", dataset, tmp_path / "run", params=grid, select=dataset)
    assert result.selected["alpha"] == 1e-3
    errors = [child["error"] for child in Run.open(tmp_path / "run").status["children"]]
    assert errors[1] == min(errors) < errors[0]
    assert scored(evaluate(tmp_path / "run", dataset)).error == min(errors)


@pytest.mark.fast_cases("csr-cls$")
@pytest.mark.parametrize("method", ["cls", "stagewise"])
def test_the_other_methods_predict_sets_too(dataset, rows, tmp_path, method):
    if dataset.meta.layout == "csr" and method == "stagewise":
        pytest.skip("one layout will do")
    params = {"rounds": 3} if method == "cls" else {"inner": "linear", "block_size": 4}
    fit(method, dataset, tmp_path / "run", params=params)
    result = scored(evaluate(tmp_path / "run", dataset))
    predict(tmp_path / "run", dataset, tmp_path / "p.zarr", top=K)
    group = zarr.open_group(str(tmp_path / "p.zarr"), mode="r")
    scores = np.empty((N, K))
    np.put_along_axis(scores, group["label"][:], group["score"][:], axis=1)
    predicted = csr_of(group["labels"]).toarray()
    assert np.array_equal(predicted, scores > 0.5)
    assert result.error == pytest.approx(1 - metrics.accuracy_score(rows[1], predicted), abs=1e-12)
    assert result.hamming_loss < 0.3
    if method == "cls":
        assert scores.min() >= 0.0
        assert scores.max() <= 1.0


# ---------------------------------------------------------------- what is refused


@pytest.mark.fast_cases("csr-gls-params0", "csr-mcid")
@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("gls", {}, "link=softmax: {0} has multilabel targets; they need link=logit or link=identity"),
        (
            "gls",
            {"link": "logit", "class_weight": {"1": 2}},
            "class_weight: the rows of {0} have multilabel targets, not one class each; give the rows weights at "
            "ingest",
        ),
        ("mcid", {}, "{0} has multilabel targets; this method needs class targets"),
    ],
)
def test_refused_before_anything_is_read(dataset, method, params, message):
    assert raised(DistlsError, fit, method, dataset, params=params) == message.format(dataset.path)


def test_rows_without_any_label(tmp_path, rows):
    data = write_targets(tmp_path / "t", rows[0], np.zeros((N, 2), int), "multilabel")
    said = raised(MismatchError, fit, "gls", data, params={"link": "logit"})
    assert said == f"no row of {tmp_path}/t has a label; at least one is needed to learn from"


def test_other_targets_cannot_be_scored(tmp_path):
    data = write_dataset(tmp_path / "classes", *labelled_rows(20, D, 2))
    said = raised(MismatchError, evaluate, made_model(D, K, "multilabel"), data)
    assert said == f"{data.path} has class targets, the model predicts sets of labels"


# ---------------------------------------------------------------- what people read


def test_lines_of_an_evaluation():
    made = LabelEvaluation(10, 0.3, 0.75, 2, ["a", "b", "new"], np.array([[4, 5, 4], [2, 0, 0], [2, 0, 0]]))
    assert evaluation_lines(made) == [
        "10 rows, error 30.00 %, hamming loss 0.1667, log loss 0.7500",
        "an error is a row whose predicted set of labels is not exactly its own",
        "F1 0.2963 macro, 0.6154 micro, 0.4444 weighted",
        "2 rows have labels the model does not know, counted as errors",
        "       label      rows   recall  precision       F1",
        "           a         4  100.0 %     80.0 %   0.8889",
        "           b         2    0.0 %          -   0.0000",
        "         new         2    0.0 %          -   0.0000",
    ]
    many = evaluation_lines(LabelEvaluation(1, 0.0, None, 0, list(range(23)), np.ones((23, 3), int)))
    assert many[-12] == "the 10 of 23 labels with the lowest F1; --all shows them all"


@pytest.mark.fast_cases("csr")
def test_a_dataset_on_one_line(dataset):
    assert ", 4 labels, 5 partitions, " in dataset_line(dataset)


def test_from_text_to_predictions(tmp_path):
    x, y = rows_with_labels(150, 4, 3)
    text, serial = tmp_path / "train.svm", ("--executor", "serial")
    with text.open("w") as file:
        for row, labels in zip(x.tolist(), y, strict=True):
            values = " ".join(f"{j + 1}:{a!r}" for j, a in enumerate(row))
            print(",".join(str(5 * c) for c in np.flatnonzero(labels)), values, file=file)
    printed("ingest", text, tmp_path / "d", "--multilabel", "--dtype", "float64", "--quiet", *serial)
    printed(
        "fit", "gls", tmp_path / "d", tmp_path / "run", "-p", "link=identity", "-p", "alpha=0.01", "--quiet", *serial,
    )  # fmt: skip
    predicted = Ridge(alpha=0.01 * 150).fit(x, y).predict(x) > 0.5
    expected = 1 - metrics.accuracy_score(y, predicted)
    assert printed("evaluate", tmp_path / "run", tmp_path / "d", *serial).startswith(
        f"150 rows, error {100 * expected:.2f} %, hamming loss {metrics.hamming_loss(y, predicted):.4f}\n"
    )
    found = json.loads(printed("evaluate", tmp_path / "run", text, "--json", *serial))
    assert found["error"] == pytest.approx(expected)
    assert set(found) == {
        "n_rows", "weighted", "error", "hamming_loss", "micro_f1", "macro_f1", "weighted_f1", "precision_at",
        "log_loss", "unknown_labels", "calibration", "per_class",
    }  # fmt: skip
    printed("predict", tmp_path / "run", text, tmp_path / "p.csv", "--labelled", "--top", 2, "--quiet", *serial)
    header, *table = read_csv(tmp_path / "p.csv")
    assert header == ["row", "labels", "label", "score", "label_2", "score_2"]
    assert [line[1] for line in table] == [",".join(str(5 * c) for c in np.flatnonzero(p)) for p in predicted]
    bare = tmp_path / "new.svm"
    bare.write_text("\n".join(line.split(" ", 1)[1] for line in text.read_text().splitlines()) + "\n")
    printed("predict", tmp_path / "run", bare, tmp_path / "q.csv", "--top", 2, "--quiet", *serial)
    assert (tmp_path / "q.csv").read_bytes() == (tmp_path / "p.csv").read_bytes()


def test_sets_are_as_partitions_hold_them(rows):
    made = sets_of(rows[1])
    assert np.array_equal(sp.csr_matrix((made.data, made.indices, made.indptr), (N, K)).toarray(), rows[1])
