"""Targets that are numbers: trained, evaluated, predicted; against scikit-learn, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from helpers import labelled_rows, printed, raised, read_csv, write_dataset
from sklearn import metrics
from sklearn.linear_model import Ridge
from target_helpers import made_model, rows_with_numbers, write_targets

import distls
from distls import evaluate, fit, predict
from distls.cli.evaluation_text import evaluation_lines
from distls.cli.report import result_lines, run_lines
from distls.evaluation.evaluator import Evaluator
from distls.evaluation.metrics import RegressionEvaluation
from distls.execution.batch import run_alone
from distls.execution.serial import SerialExecutor
from distls.methods.method_registry import METHODS
from distls.problem import Problem
from distls.solvers.solver import Fitted
from distls.solvers.status import Status
from distls.storage.errors import DistlsError, FormatError, MismatchError, ParameterError
from distls.storage.model.model import load_model, save_model
from distls.testing.solvers import opened
from distls.training.callbacks import describe_round
from distls.training.configuration import FitRequest
from distls.training.run_folder import Run
from distls.training.setting_fit import FitResult
from distls.workers.prediction.predictor import LinearPredictor
from distls.workers.rounds.block_stream import DatasetRef
from reference.least_squares import ridge_gap

D, K, N = 7, 3, 260
IDENTITY = {"link": "identity", "alpha": 0.05}


@pytest.fixture(scope="module")
def rows():
    return rows_with_numbers(N, D, K)


@pytest.fixture(scope="module", params=["csr", "dense"])
def dataset(request, rows, tmp_path_factory):
    x, y = rows
    stored = sp.csr_matrix(x) if request.param == "csr" else x
    return write_targets(tmp_path_factory.mktemp("d") / "train", stored, y, "continuous")


def scored(result):
    assert isinstance(result, RegressionEvaluation)
    return result


# ---------------------------------------------------------------- evaluation


@pytest.mark.fast_cases("csr-float32")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_agrees_with_scikit_learn(dataset, rows, dtype):
    x, y = rows
    made = made_model(D, K, "continuous")
    model = replace(made, weights=made.weights.astype(dtype), intercept=made.intercept.astype(dtype))
    predicted = x @ model.weights + model.intercept
    result = scored(evaluate(model, dataset))
    rtol = 1e-11 if dtype == "float64" else 1e-5
    raw = {"multioutput": "raw_values"}
    assert result.n_rows == N
    assert result.mse == pytest.approx(metrics.mean_squared_error(y, predicted), rel=rtol)
    assert result.r2 == pytest.approx(metrics.r2_score(y, predicted), rel=rtol)
    np.testing.assert_allclose(result.mse_by_output, metrics.mean_squared_error(y, predicted, **raw), rtol)
    np.testing.assert_allclose(result.r2_by_output, metrics.r2_score(y, predicted, **raw), rtol)
    found = result.to_json()
    assert set(found) == {"n_rows", "weighted", "mse", "r2", "log_loss", "per_output"}
    assert found["log_loss"] is None
    assert [row["output"] for row in found["per_output"]] == [0, 1, 2]
    assert found["mse"] == pytest.approx(np.mean([row["mse"] for row in found["per_output"]]))


def test_r2_of_numbers_far_from_zero(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 2))
    y = x[:, :1] * 1e-3 + 1e6 + 1e-4 * rng.standard_normal((200, 1))
    model = made_model(2, 1, "continuous", weights=np.array([[1e-3], [0.0]]), intercept=np.array([1e6]))
    found = scored(evaluate(model, write_targets(tmp_path / "t", x, y, "continuous", partition_rows=17)))
    assert found.r2 == pytest.approx(metrics.r2_score(y, x @ model.weights + model.intercept), rel=1e-8)
    assert 0.98 < found.r2 < 1.0


def test_targets_that_do_not_vary_have_no_r2(tmp_path):
    x, y = rows_with_numbers(90, 2, 2)
    y[:, 0] = 0.1
    found = scored(evaluate(made_model(2, 2, "continuous"), write_targets(tmp_path / "t", x, y, "continuous")))
    assert found.r2_by_output[0] is None
    assert found.r2_by_output[1] is not None
    assert found.r2 is None
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["r2"] is None


@pytest.mark.fast_cases("csr-three threads$")
@pytest.mark.parametrize("cluster", ["two processes", "three threads"])
def test_same_numbers_on_any_executor(dataset, cluster):
    serial = evaluate(made_model(D, K, "continuous"), dataset).to_json()
    assert evaluate(made_model(D, K, "continuous"), dataset, executor=opened(cluster)).to_json() == serial


def evaluated(data, model, **given):
    params = METHODS["gls"].resolve({**IDENTITY, "dtype": "float64", **given})
    problem = Problem.of(data, params, 0, ("class", "multilabel", "continuous"))
    assert problem.shape == (D, K)
    evaluator = Evaluator(problem, DatasetRef.of(data), eval_data=data)
    return run_alone(evaluator(Fitted(LinearPredictor(model.weights, model.intercept))), SerialExecutor())


@pytest.mark.fast_cases("csr-False-False")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_objective_and_certificate_are_the_documented_ones(tmp_path, rows, weighted, intercept, layout):
    x, y = rows
    s = np.random.default_rng(1).integers(0, 4, N).astype(np.float64) if weighted else np.ones(N)
    stored = (sp.csr_matrix(x) if layout == "csr" else x).astype(np.float32)
    x = np.asarray(x.astype(np.float32), dtype=np.float64)
    data = write_targets(tmp_path / "t", stored, y, "continuous", sample_weight=s if weighted else None)
    model = made_model(D, K, "continuous")
    model = model if intercept else replace(model, intercept=np.zeros(K))
    result = evaluated(data, model, fit_intercept=intercept)
    residual = x @ model.weights + model.intercept - y
    norm = np.square(model.weights).sum()
    objective = 0.5 * s @ np.square(residual).sum(axis=1) / s.sum() + 0.025 * norm
    assert result["objective"] == pytest.approx(objective, rel=1e-11)
    slope = residual * s[:, None] / s.sum()
    square = np.square(x.T @ slope + 0.05 * model.weights).sum()
    if intercept:
        expected = {"kind": "gradient_norm", "value": np.sqrt(square + np.square(slope.sum(axis=0)).sum())}
    else:
        expected = {"kind": "duality_gap", "value": ridge_gap(x, y, model.weights, 0.05, s)}
    found = result["certificate"]
    assert found == {"kind": expected["kind"], "value": pytest.approx(expected["value"], rel=1e-10)}
    mse = scored(evaluate(model, data)).mse
    assert (result["eval_error"], result["eval_mse"], result["eval_log_loss"]) == (mse, mse, None)


@pytest.mark.fast_cases("csr")
def test_the_certificate_at_the_optimum_is_zero(dataset, rows):
    x, y = rows
    ridge = Ridge(alpha=0.05 * N, fit_intercept=False, solver="cholesky").fit(x, y)
    model = replace(made_model(D, K, "continuous"), weights=np.ascontiguousarray(ridge.coef_.T), intercept=np.zeros(K))
    assert evaluated(dataset, model, fit_intercept=False)["certificate"]["value"] < 1e-24


# ---------------------------------------------------------------- prediction


@pytest.mark.fast_cases("csr-1-float32")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k", [1, 3])
def test_csv_has_each_number_to_the_last_digit(dataset, rows, tmp_path, dtype, k):
    made = made_model(D, k, "continuous")
    model = replace(made, weights=made.weights.astype(dtype), intercept=made.intercept.astype(dtype))
    assert predict(model, dataset, tmp_path / "p.csv") == N
    header, *lines = read_csv(tmp_path / "p.csv")
    assert header == ["row", "prediction", "prediction_2", "prediction_3"][: k + 1]
    assert [line[0] for line in lines] == [str(i) for i in range(N)]
    predict(model, dataset, tmp_path / "p.zarr")
    group = zarr.open_group(str(tmp_path / "p.zarr"), mode="r")
    assert dict(group.attrs) == {}
    assert [name for name, _ in group.arrays()] == ["prediction"]
    numbers = group["prediction"][:]
    assert numbers.dtype == dtype
    assert np.array_equal(np.array([line[1:] for line in lines], dtype=dtype), numbers)
    np.testing.assert_allclose(numbers, rows[0] @ model.weights + model.intercept, rtol=1e-5, atol=1e-4)


@pytest.mark.fast_cases("csr-options0")
@pytest.mark.parametrize(("options", "asked"), [({"top": 2}, "--top 2"), ({"proba": True}, "--proba")])
def test_there_is_nothing_to_choose_from(dataset, tmp_path, options, asked):
    said = raised(ParameterError, predict, made_model(D, K, "continuous"), dataset, tmp_path / "p.csv", **options)
    assert said == f"{asked}: the model predicts numbers, all of which are written; leave it out"


# ---------------------------------------------------------------- training


@pytest.mark.fast_cases("False-False")
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_gls_is_ridge_regression(tmp_path, rows, intercept, weighted):
    x, y = rows
    s = np.random.default_rng(2).integers(0, 4, N).astype(np.float64) if weighted else np.ones(N)
    data = write_targets(tmp_path / "t", x, y, "continuous", sample_weight=s if weighted else None)
    model = fit("gls", data, params={**IDENTITY, "fit_intercept": intercept}).model
    assert (model.target, model.classes, model.n_outputs) == ("continuous", [], K)
    ridge = Ridge(alpha=0.05 * s.sum(), fit_intercept=intercept, solver="cholesky").fit(x, y, s)
    np.testing.assert_allclose(model.weights.T, ridge.coef_, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(model.intercept, np.zeros(K) + ridge.intercept_, rtol=1e-9, atol=1e-10)


@pytest.mark.fast_cases("csr")
def test_outputs_do_not_meddle_with_each_other(dataset, rows, tmp_path):
    both = fit("gls", dataset, params=IDENTITY).model
    x, y = rows
    one = fit("gls", write_targets(tmp_path / "o", x, y[:, 1:2], "continuous"), params=IDENTITY).model
    np.testing.assert_allclose(both.weights[:, 1:2], one.weights, rtol=1e-9, atol=1e-12)


@pytest.mark.fast_cases("csr")
def test_selection_takes_the_lowest_mse(dataset, rows, tmp_path):
    x, y = rows
    held = write_targets(tmp_path / "held", x[:100], y[:100], "continuous")
    grid = {"link": "identity", "alpha": [10.0, 1e-3, 1.0]}
    result = fit("gls", dataset, tmp_path / "run", params=grid, select=held)
    children = Run.open(tmp_path / "run").status["children"]
    found = [child["mse"] for child in children]
    assert found == [child["error"] for child in children]
    assert result.selected["alpha"] == 1e-3
    assert result.record["select_mse"] == result.record["select_error"] == min(found)
    assert scored(evaluate(tmp_path / "run", held)).mse == min(found)
    assert [line.split(": ")[1] for line in run_lines(tmp_path / "run")[1:4]] == [
        f"mse {mse:.5g} (CONVERGED)" for mse in found
    ]


@pytest.mark.fast_cases("csr")
def test_what_is_read_of_a_fit(dataset, tmp_path):
    fit("gls", dataset, tmp_path / "run", params=IDENTITY, eval_data=dataset)
    (event,) = Run.open(tmp_path / "run").events()
    assert "running_error" not in event
    mse = scored(evaluate(tmp_path / "run", dataset)).mse
    assert event["eval_mse"] == event["eval_error"] == mse
    title, row = run_lines(tmp_path / "run")[3:5]
    assert title.split() == ["round", "passes", "seconds", "loss", "eval", "mse", "objective", "read"]
    assert row.split()[4] == f"{mse:.5g}"
    assert len(title) == len(row)
    assert f", eval mse {mse:.5g}, read " in describe_round(event)
    assert "error" not in describe_round(event)
    ended = FitResult(Status.CONVERGED, None, None, 1.0, 0.0, {"eval_error": 2.0, "eval_mse": 2.0})
    assert result_lines(ended)[1] == "eval mse 2"
    chosen = replace(ended, record={"select_error": 0.125, "select_mse": 0.125}, selected={"alpha": 0.1})
    assert result_lines(chosen)[1] == "selected alpha=0.1, mse 0.125 on the selection data"


def test_lines_of_an_evaluation():
    made = RegressionEvaluation(1234, np.array([0.5, 1.5]), np.array([2.0, 0.0]))
    assert evaluation_lines(made) == [
        "1,234 rows, mse 1, r2 -",
        "      output          mse       r2",
        "           0          0.5   0.7500",
        "           1          1.5        -",
    ]
    one = RegressionEvaluation(3, np.array([0.25]), np.array([0.5]))
    assert evaluation_lines(one) == ["3 rows, mse 0.25, r2 0.5000"]
    many = evaluation_lines(RegressionEvaluation(3, np.ones(22), np.ones(22)))
    assert many[-1] == "... and 2 more outputs; --all shows them all"


# ---------------------------------------------------------------- what is refused


@pytest.mark.fast_cases("csr-gls-params0")
@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        (
            "gls",
            {"link": "softmax"},
            "link=softmax: {0} has continuous targets; they need link=identity or link=poisson",
        ),
        ("gls", {"link": "logit"}, "link=logit: {0} has continuous targets; they need link=identity or link=poisson"),
        (
            "gls",
            {"link": "identity", "class_weight": "balanced"},
            "class_weight: the rows of {0} have continuous targets, not one class each; give the rows weights at "
            "ingest",
        ),
        ("mcid", {}, "{0} has continuous targets; this method needs class targets"),
    ],
)  # fmt: skip
def test_refused_before_anything_is_read(dataset, method, params, message):
    assert raised(DistlsError, fit, method, dataset, params=params) == message.format(dataset.path)


def test_weights_that_are_all_zero(tmp_path, rows):
    data = write_targets(tmp_path / "t", *rows, "continuous", sample_weight=np.zeros(N))
    assert raised(ParameterError, fit, "gls", data, params=IDENTITY) == "the row weights sum to zero"


@pytest.mark.fast_cases("csr")
def test_other_targets_cannot_be_scored(dataset, tmp_path):
    model = made_model(D, K, "continuous")
    two = write_targets(tmp_path / "two", *rows_with_numbers(20, D, 2), "continuous")
    classes = write_dataset(tmp_path / "classes", *labelled_rows(20, D, 2))
    for data, why in (
        (two, "has 2 targets a row, RUN predicts 3"),
        (classes, "has class targets, RUN predicts numbers"),
    ):
        assert raised(MismatchError, evaluate, model, data, name="RUN") == f"{data.path} {why}"
    said = raised(MismatchError, fit, "gls", dataset, params=IDENTITY, eval_data=two)
    assert said == f"{two.path} has 2 targets a row, {dataset.path} predicts 3"


def test_models_say_what_they_predict(tmp_path):
    model = made_model(D, K, "continuous")
    save_model(tmp_path / "m", model)
    assert load_model(tmp_path / "m").target == "continuous"
    for changes, why in (
        ({"target": "class"}, "a model of class targets with 0 classes"),
        ({"classes": [0, 1, 2]}, "a model of continuous targets with 3 classes"),
        ({"target": "rank"}, "not a model written by distls (Invalid enum value 'rank' - at `$.target`)"),
    ):
        save_model(tmp_path / "bad", replace(model, **changes))
        assert raised(FormatError, load_model, tmp_path / "bad") == f"{tmp_path}/bad: {why}"


# ---------------------------------------------------------------- from text to predictions


@pytest.mark.slow_cases("csv")
@pytest.mark.parametrize("kind", ["svm", "csv"])
def test_from_text_to_predictions(tmp_path, kind):
    x, y = rows_with_numbers(150, 4, 1)
    text = tmp_path / f"train.{kind}"
    if kind == "svm":
        lines = [
            f"{v!r} " + " ".join(f"{j + 1}:{a!r}" for j, a in enumerate(row))
            for row, (v,) in zip(x.tolist(), y.tolist(), strict=True)
        ]
    else:
        lines = [
            "a,b,c,d,price",
            *(",".join(map(repr, [*row, v])) for row, (v,) in zip(x.tolist(), y.tolist(), strict=True)),
        ]
    text.write_text("\n".join(lines) + "\n")
    serial = ("--executor", "serial")
    column = ("--label-column", "price") if kind == "csv" else ()
    printed("ingest", text, tmp_path / "d", "--quiet", "--dtype", "float64", *serial, *column)
    printed(
        "fit", "gls", tmp_path / "d", tmp_path / "run", "-p", "link=identity", "-p", "alpha=0.01", "--quiet", *serial,
    )  # fmt: skip
    ridge = Ridge(alpha=0.01 * 150).fit(x, y)
    expected = metrics.mean_squared_error(y, ridge.predict(x))
    for data in (tmp_path / "d", text):
        told = printed("evaluate", tmp_path / "run", data, *serial)
        r2 = metrics.r2_score(y, ridge.predict(x))
        assert told == f"150 rows, mse {expected:.6g}, r2 {r2:.4f}\n"
        found = json.loads(printed("evaluate", tmp_path / "run", data, "--json", *serial))
        # source files are scored as float32
        assert found["mse"] == pytest.approx(expected, rel=1e-9 if data != text else 1e-6)
    printed("predict", tmp_path / "run", text, tmp_path / "p.csv", "--labelled", "--quiet", *serial)
    header, *table = read_csv(tmp_path / "p.csv")
    assert header == ["row", "prediction"]
    np.testing.assert_allclose([float(row[1]) for row in table], ridge.predict(x).ravel(), rtol=1e-5)
    assert json.loads(printed("info", tmp_path / "run" / "model", "--json"))["target"] == "continuous"


def test_several_outputs_from_arrays(tmp_path, rows):
    x, y = rows
    distls.ingest(x, tmp_path / "d", y=y, target="continuous", dtype="float64", seed=3)
    model = fit("gls", tmp_path / "d", params=IDENTITY).model
    np.testing.assert_allclose(model.weights.T, Ridge(alpha=0.05 * N).fit(x, y).coef_, rtol=1e-8, atol=1e-9)


@pytest.mark.fast_cases("csr-gls")
@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("gls", {"link": "identity"}),
        ("sgd", {"loss": "squared", "fit_intercept": True, "schedule": "sqrt"}),
        ("asgd", {"loss": "squared", "fit_intercept": True, "schedule": "sqrt"}),
        ("olbfgs", {"loss": "squared", "fit_intercept": True}),
    ],
)
def test_numbers_have_defaults_of_their_own(dataset, method, expected):
    params = FitRequest.of(method, dataset).grid[0]
    assert {name: params[name] for name in expected} == expected


@pytest.mark.fast_cases("csr")
def test_a_loss_that_is_given_keeps_the_other_defaults(dataset):
    params = FitRequest.of("sgd", dataset, params={"loss": "squared"}).grid[0]
    assert (params["schedule"], params["fit_intercept"]) == ("adaptive", True)
    mine = FitRequest.of("sgd", dataset, params={"schedule": "constant"}).grid[0]
    assert (mine["schedule"], mine["loss"], mine["fit_intercept"]) == ("constant", "squared", True)
