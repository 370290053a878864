"""Scores against scikit-learn's metrics, objective and certificate against NumPy, and what is refused."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import labelled_rows, raised, refuses, write_dataset
from scipy.special import log_softmax, softmax
from sklearn import metrics

from distls.evaluation.certificates import certificate_kind
from distls.evaluation.evaluate import evaluate
from distls.evaluation.evaluator import Evaluator
from distls.evaluation.metrics import Evaluation, RegressionEvaluation
from distls.execution.batch import run_alone
from distls.execution.serial import SerialExecutor
from distls.facts import Fact, as_json
from distls.methods.method_registry import METHODS
from distls.problem import Problem
from distls.reporting.markup import card
from distls.solvers.solver import Fitted
from distls.storage.errors import MismatchError, ParameterError
from distls.storage.model.model import LinearModel
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.block_stream import DatasetRef

K, D = 6, 40


def random_model(seed=0, **changes):
    rng = np.random.default_rng(seed)
    model = LinearModel(
        weights=rng.standard_normal((D, K)) * 2, intercept=rng.standard_normal(K), classes=list(range(K)),
        method="mcid", loss="softmax", params={}, transforms=[], transforms_digest="", dataset_fingerprint="",
    )  # fmt: skip
    return replace(model, **changes)


def scores_of(model, x):
    return np.asarray(x @ model.weights + model.intercept)


@pytest.fixture(scope="module", params=["csr", "dense"])
def rows(request):
    x, y = labelled_rows(333, D, K)
    x = x.astype(np.float64)
    return (x if request.param == "csr" else x.toarray()), y


@pytest.fixture(scope="module")
def dataset(rows, tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("d") / "test", *rows, n_classes=K)


@pytest.mark.fast_cases("csr-crammer_singer")
@pytest.mark.parametrize("loss", ["crammer_singer", "perceptron"])
def test_no_log_loss_without_probabilities(dataset, loss):
    result = evaluate(random_model(loss=loss), dataset)
    assert result.log_loss is None
    assert result.error == evaluate(random_model(), dataset).error


def test_labels_are_matched_by_name(tmp_path):
    x, y = labelled_rows(200, D, 3)
    model = random_model(classes=["f", "e", "d", "c", "b", "a"])
    result = evaluate(model, write_dataset(tmp_path / "t", x, y, classes=["a", "c", "e"]))
    predicted = np.array(model.classes)[scores_of(model, x).argmax(axis=1)]
    truth = np.array(["a", "c", "e"])[y]
    assert result.error * 200 == pytest.approx(np.count_nonzero(predicted != truth), abs=1e-9)
    expected = metrics.confusion_matrix(truth, predicted, labels=list("abcdef"))
    for row in result.to_json()["confusion"]:
        place = "abcdef".index(row["class"]), "abcdef".index(row["predicted"])
        assert expected[place] == row["count"]
        expected[place] = 0
    assert not expected.any()


def test_unknown_labels_are_refused_or_counted(tmp_path):
    x, y = labelled_rows(200, D, 4)
    data = write_dataset(tmp_path / "t", x, y, classes=[0, 1, "new", "newer"])
    model = random_model()
    said = raised(MismatchError, evaluate, model, data)
    strange = np.count_nonzero(y >= 2)
    assert said == (
        f"{tmp_path}/t has 2 classes (new, newer; {strange} rows) that are not among the 6 of the model; "
        "--unknown-labels count counts them as errors"
    )
    result = evaluate(model, data, unknown_labels="count")
    values = scores_of(model, x)
    known = y < 2
    wrong = np.count_nonzero(values.argmax(axis=1)[known] != y[known]) + strange
    assert (result.unknown, result.n_rows) == (strange, 200)
    assert result.error * 200 == pytest.approx(wrong, abs=1e-9)
    assert result.log_loss == pytest.approx(-log_softmax(values, axis=1)[known, y[known]].mean(), rel=1e-6)
    assert [row["recall"] for row in result.per_class()[2:]] == [0.0, 0.0]
    assert [row["precision"] for row in result.per_class()[2:]] == [None, None]


def test_a_class_without_rows_has_no_recall(tmp_path):
    data = write_dataset(tmp_path / "t", *labelled_rows(50, D, 3), n_classes=4, classes=[0, 1, 2, "never"])
    assert evaluate(random_model(), data).per_class()[3] == {
        "class": "never", "n_rows": 0, "recall": None, "precision": None, "f1": 0.0,
        "roc_auc": None, "average_precision": None,
    }  # fmt: skip


def test_narrower_sparse_rows_are_zero_beyond(tmp_path):
    x, y = labelled_rows(80, 30, 3)
    model = random_model()
    narrow = evaluate(model, write_dataset(tmp_path / "n", x, y))
    wide = evaluate(model, write_dataset(tmp_path / "w", sp.csr_matrix((x.data, x.indices, x.indptr), (80, D)), y))
    assert narrow.to_json() == wide.to_json()
    assert raised(MismatchError, evaluate, model, write_dataset(tmp_path / "dense", x.toarray(), y), name="RUN") == (
        f"{tmp_path}/dense has 30 features, RUN 40; ingest it with --like the training data"
    )


@pytest.mark.fast_cases("csr-changes0", "csr-changes2")
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"weights": np.zeros((30, K))}, "has 40 features, the model 30"),
        ({"transforms_digest": "x", "transforms": [{"name": "idf"}]}, "has transforms none, the model idf"),
        ({"transforms_digest": "x"}, "has transforms fitted on other data"),
    ],
)
def test_rows_that_mean_something_else_are_refused(dataset, changes, why):
    said = raised(MismatchError, evaluate, random_model(**changes), dataset)
    assert said == f"{dataset.path} {why}; ingest it with --like the training data"


@pytest.mark.fast_cases("none")
@pytest.mark.parametrize(
    ("target", "kind"),
    [("none", "no labels"), ("continuous", "continuous targets"), ("multilabel", "multilabel targets")],
)
def test_only_classes_can_be_scored(small_csr, target, kind):
    data = small_csr(target=target, n_features=D).dataset
    said = raised(MismatchError, evaluate, random_model(), data)
    assert said == f"{data.path} has {kind}, the model predicts classes"


def _params(**given):
    return METHODS["mcid"].resolve({"dtype": "float64", "alpha": 0.03, **given})


def _evaluated(data, model, **given):
    problem = Problem.of(data, _params(**given), 0, ("class",))
    evaluator = Evaluator(problem, DatasetRef.of(data), eval_data=data)
    return run_alone(evaluator(Fitted(LinearPredictor(model.weights, model.intercept))), SerialExecutor())


@pytest.mark.fast_cases("csr-False-False")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_objective_and_certificate_are_the_documented_ones(tmp_path, rows, weighted, intercept):
    x, y = rows
    s = np.random.default_rng(1).integers(0, 4, len(y)).astype(np.float64) if weighted else np.ones(len(y))
    data = write_dataset(tmp_path / "t", x, y, sample_weight=s if weighted else None)
    given = {"class_weight": {"2": 5.0}} if weighted else {}
    model = random_model() if intercept else random_model(intercept=np.zeros(K))
    result = _evaluated(data, model, fit_intercept=intercept, **given)
    if weighted:
        s = s * np.where(y == 2, 5.0, 1.0)
    values = scores_of(model, x)
    norm = np.square(model.weights).sum()
    objective = -s @ log_softmax(values, axis=1)[np.arange(len(y)), y] / s.sum() + 0.015 * norm
    assert result["objective"] == pytest.approx(objective, rel=1e-10)
    slope = (softmax(values, axis=1) - np.eye(K)[y]) * s[:, None] / s.sum()
    square = np.square(x.T @ slope + 0.03 * model.weights).sum()
    if intercept:
        expected = {"kind": "gradient_norm", "value": np.sqrt(square + np.square(slope.sum(axis=0)).sum())}
    else:
        expected = {"kind": "strong_convexity", "value": min(square / 0.06, objective)}
    assert result["certificate"] == {"kind": expected["kind"], "value": pytest.approx(expected["value"], rel=1e-9)}
    assert result["eval_bytes_read"] == data.stored_bytes.sum()
    assert result["eval_error"] == evaluate(model, data).error


@pytest.mark.fast_cases("csr-softmax-False", "csr-perceptron-False")
@pytest.mark.parametrize(
    ("loss", "intercept", "kind"),
    [
        ("softmax", False, "strong_convexity"), ("softmax", True, "gradient_norm"),
        ("crammer_singer", False, "duality_gap"), ("crammer_singer", True, "gradient_norm"),
        ("perceptron", False, "none"), ("perceptron", True, "none"),
    ],
)  # fmt: skip
def test_kinds_of_certificates(dataset, loss, intercept, kind):
    given = {"loss": loss, "fit_intercept": intercept, "alpha": 0.1}
    assert certificate_kind(given) == kind
    certificate = _evaluated(dataset, random_model(loss=loss), **given)["certificate"]
    assert certificate["kind"] == kind
    assert (certificate["value"] is None) == (kind == "none")


# -- arrays ------------------------------------------------------------------------------------------------


@pytest.mark.fast_cases("asarray")
@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
def test_arrays_are_evaluated_with_their_targets(tmp_path, make):
    rows, y = labelled_rows(90, D, K)
    x, weight = make(rows.toarray().astype(np.float32)), np.linspace(1, 3, 90).astype(np.float32)
    model = random_model()
    dataset = write_dataset(tmp_path / "d", x, y, sample_weight=weight)
    for weighted in (False, True):
        from_array = evaluate(model, x, y, sample_weight=weight, weighted=weighted)
        stored = evaluate(model, dataset, weighted=weighted)
        assert (from_array.error, from_array.log_loss) == pytest.approx((stored.error, stored.log_loss))
        assert from_array.n_rows == 90
    refuses(ParameterError, r"an array is evaluated with its targets: evaluate\(model, X, y\)", evaluate, model, x)
    refuses(ParameterError, "y is of arrays; files and data sets have their own", evaluate, model, dataset, y)
    refuses(MismatchError, "X has 6 classes", evaluate, model, x, y + 50)


def test_an_evaluation_shows_itself_on_one_line():
    confusion = np.array([[0, 0, 3], [1, 0, 1]])
    found = Evaluation(4, 0.25, 0.5, 0, ["a", "b"], ["a", "b"], confusion)
    wanted = "4 rows, error 25.00 %, log loss 0.5000, macro F1 0.4286, micro F1 0.7500, weighted F1 0.6429"
    assert repr(found) == f"<Evaluation {wanted}>"
    assert all(f">{fact.text}<" in found._repr_html_() for fact in found.facts())
    other = RegressionEvaluation(3, np.array([0.5]), np.array([1.0]))
    assert repr(other) == "<RegressionEvaluation 3 rows, mse 0.5, r2 0.5000>"


# -- A metric is a fact of its evaluation ----------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class WithRoot(RegressionEvaluation):
    """An evaluation with the root of the mean squared error."""

    def facts(self):
        return [*super().facts(), Fact("rmse", self.mse**0.5, ".3f", key="rmse")]


def test_a_metric_from_outside_is_shown():

    found = WithRoot(10, np.array([4.0]), np.array([8.0]), False)
    assert repr(found).endswith("rmse 2.000>")
    assert as_json(found.facts())["rmse"] == 2.0
    assert "rmse" in card("evaluation", found.facts())
