"""SparseMulticlassClassifier: scikit-learn's checks, and agreement with `fit` and with scikit-learn."""

import inspect
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import FEW_CHECKS, labelled_rows, write_dataset
from sklearn import linear_model
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data,
    check_sample_weight_equivalence_on_sparse_data,
    parametrize_with_checks,
)

from distls import (
    ElasticNet,
    Lasso,
    MultiTaskLasso,
    SparseLinearSVC,
    SparseLogisticRegression,
    SparseMulticlassClassifier,
    ingest,
    load_estimator,
)
from distls.columns.sharding import add_columns
from distls.methods.method_registry import METHODS
from distls.storage.errors import MismatchError, ParameterError
from distls.training.fitting import fit

OF_FIT = {"passes", "tol", "warm_start", "as_published", "random_state", "executor"}


# The check's 15 rows can be separated, so that the optimal intercept puts some exactly on the margin. Rounding (slacks
# of 0 and of -3e-16 were seen) then decides whether the curvature of Eq. 6 counts them, and the next step differs.
_ON_THE_MARGIN = (
    "rows exactly on the margin have a second derivative or none, by rounding; log is checked below"
)
# What scores of repeated rows differ by from those of weights, beyond the checks' 1e-7.
_UNEQUAL = {
    SparseMulticlassClassifier: _ON_THE_MARGIN,
    SparseLogisticRegression: "working sets end at a gap, at which scores agree to six digits",
}
_WEIGHT_CHECKS = {
    "check_sample_weight_equivalence_on_dense_data": check_sample_weight_equivalence_on_dense_data,
    "check_sample_weight_equivalence_on_sparse_data": check_sample_weight_equivalence_on_sparse_data,
}


@pytest.mark.fast_cases(FEW_CHECKS)
@parametrize_with_checks(
    [
        SparseMulticlassClassifier(alpha=1e-3, fit_intercept=True),
        Lasso(alpha=1e-2),
        SparseLogisticRegression(),
        SparseLinearSVC(),
    ],
    expected_failed_checks=lambda estimator: (
        dict.fromkeys(_WEIGHT_CHECKS, _UNEQUAL[type(estimator)]) if type(estimator) in _UNEQUAL else {}
    ),
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("name", _WEIGHT_CHECKS)
@pytest.mark.parametrize(("loss", "intercept"), [("log", True), ("multiclass_squared_hinge", False)])
def test_repeated_rows_are_weights(name: str, loss: str, intercept: bool) -> None:
    # to nine digits, by sweeps: working sets end at a gap, at which weights agree to six
    estimator = SparseMulticlassClassifier(loss, alpha=1e-3, fit_intercept=intercept, algorithm="sweeps")
    _WEIGHT_CHECKS[name](name, estimator)


def test_constructor_has_the_parameters_of_the_method() -> None:
    given = inspect.signature(SparseMulticlassClassifier).parameters
    parameters = {p.name: p for p in METHODS["bcd"].parameters}
    assert set(parameters) - set(given) == {"init"}
    assert set(given) - OF_FIT <= set(parameters)
    resolved = METHODS["bcd"].resolve({n: v.default for n, v in given.items() if n in parameters})
    assert resolved == {name: p.default for name, p in parameters.items()}


@pytest.fixture(scope="module")
def rows() -> tuple[Any, np.ndarray]:
    return labelled_rows(300, 50, 3)


def test_arrays_and_datasets_give_the_same(rows: Any, tmp_path: Any) -> None:
    x, y = rows
    made = SparseMulticlassClassifier(alpha=2e-2, lanes=1).fit(x, y)
    assert 0 < len(made.used_features_) < 50
    assert np.array_equal(made.used_features_, np.flatnonzero(made.coef_.any(axis=0)))
    dataset = add_columns(write_dataset(tmp_path / "d", x, y).path)
    stored = SparseMulticlassClassifier(alpha=2e-2, lanes=1).fit(dataset)
    assert stored.model_.sha256 == fit("bcd", dataset, params={"alpha": 2e-2, "lanes": 1}).model.sha256
    np.testing.assert_allclose(stored.coef_, made.coef_, atol=5e-3)
    np.testing.assert_allclose(
        made.decision_function(x), x @ made.coef_.T + made.intercept_, rtol=1e-9, atol=1e-12
    )
    assert np.array_equal(made.predict(sp.csr_matrix(x)), made.predict(x.toarray()))


def test_probabilities_of_the_log_loss_alone(rows: Any) -> None:
    x, y = rows
    made = SparseMulticlassClassifier("log", alpha=1e-3).fit(x, y)
    np.testing.assert_allclose(made.predict_proba(x).sum(axis=1), 1.0)
    assert not hasattr(SparseMulticlassClassifier().fit(x, y), "predict_proba")


def test_warm_start_goes_on(rows: Any) -> None:
    x, y = rows
    made = SparseMulticlassClassifier(alpha=1e-3, passes=1, active_sweeps=0, warm_start=True).fit(x, y)
    first = made.coef_.copy()
    assert made.fit(x, y).status_ == "MAX_PASSES"
    assert not np.array_equal(first, made.coef_)


def test_what_cannot_be(rows: Any, tmp_path: Any) -> None:
    x, y = rows
    bare = write_dataset(tmp_path / "bare", x, y)
    with pytest.raises(MismatchError, match="has no column shards"):
        SparseMulticlassClassifier().fit(bare)
    with pytest.raises(
        ParameterError, match=r"l1_ratio=0\.3: used with penalty=elasticnet or sparse-group only"
    ):
        SparseMulticlassClassifier(l1_ratio=0.3).fit(x, y)


@pytest.mark.parametrize("kind", ["Lasso", "MultiTaskLasso", "ElasticNet"])
def test_regressors_agree_with_scikit_learns(kind: str, tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 30)) + 0.3
    y = x[:, :4] @ rng.standard_normal((4, 3)) + 0.1 * rng.standard_normal((200, 3)) + 2.0
    y = y if kind == "MultiTaskLasso" else y[:, 0]
    made = {"Lasso": Lasso, "MultiTaskLasso": MultiTaskLasso, "ElasticNet": ElasticNet}[kind]
    mixed = {"l1_ratio": 0.3} if kind == "ElasticNet" else {}
    ours = made(0.05, tol=1e-9, **mixed).fit(x, y)
    theirs = getattr(linear_model, kind)(0.05, tol=1e-12, max_iter=10**5, **mixed).fit(x, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)
    assert np.array_equal(ours.used_features_, np.flatnonzero(np.atleast_2d(theirs.coef_).any(axis=0)))
    ingest(x, tmp_path / "d", y=y, target="continuous", columns=True, dtype="float64")
    fit("bcd", tmp_path / "d", tmp_path / "run", params={"penalty": made.penalty, "alpha": 0.05, **mixed})
    again = load_estimator(tmp_path / "run")
    assert type(again) is made
    assert again.predict(x).shape == y.shape


# Saga takes its time.
@pytest.mark.fast_cases("True-abc-True-one", "False-ab-False-own")
@pytest.mark.parametrize(
    "by_class", [None, {"a": 2.0, "b": 0.7, "c": 1.0}, "balanced"], ids=["one", "own", "balanced"]
)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", ["ab", "abc"])
@pytest.mark.parametrize("sparse", [False, True])
def test_classifiers_agree_with_scikit_learns(
    sparse: bool, classes: str, weighted: bool, by_class: Any
) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((150, 12)) + 0.2
    noise = 0.5 * rng.standard_normal((150, len(classes)))
    y = np.array(list(classes))[(x[:, :3] @ rng.standard_normal((3, len(classes))) + noise).argmax(axis=1)]
    rows = sp.csr_matrix(x * (np.abs(x) > 0.5)) if sparse else x
    weights = rng.uniform(0.5, 2.0, 150) if weighted else None
    if isinstance(by_class, dict):
        by_class = {name: by_class[name] for name in classes}
    ours = SparseLogisticRegression(0.2, tol=1e-11, class_weight=by_class).fit(rows, y, sample_weight=weights)
    theirs = linear_model.LogisticRegression(
        C=0.2, l1_ratio=1.0, solver="saga", tol=1e-9, max_iter=10**5, class_weight=by_class
    ).fit(rows, y, sample_weight=weights)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    # a constant added to all is no part of the multinomial loss
    shift = np.mean(ours.intercept_ - theirs.intercept_) if len(classes) > 2 else 0.0
    np.testing.assert_allclose(ours.intercept_ - shift, theirs.intercept_, atol=1e-5)
    np.testing.assert_allclose(ours.predict_proba(rows), theirs.predict_proba(rows), atol=1e-5)
    # LIBLINEAR weights a class in the column of that class alone
    if len(classes) > 2 and by_class is not None:
        return
    svm = SparseLinearSVC(C=0.05, tol=1e-11, fit_intercept=False, class_weight=by_class)
    theirs = LinearSVC(
        penalty="l1", dual=False, C=0.05, tol=1e-9, max_iter=10**5, fit_intercept=False, class_weight=by_class
    ).fit(rows, y, sample_weight=weights)
    svm.fit(rows, y, sample_weight=weights)
    np.testing.assert_allclose(svm.coef_, theirs.coef_, atol=1e-5)
    assert np.array_equal(svm.used_features_, np.flatnonzero(theirs.coef_.any(axis=0)))
    assert not hasattr(svm, "predict_proba")


@pytest.mark.parametrize("kind", [SparseLogisticRegression, SparseLinearSVC])
def test_cost_and_strength_say_the_same(kind: Any, rows: Any) -> None:
    x, y = rows
    of_cost = kind(0.1).fit(x, y)
    assert np.array_equal(kind(alpha=1 / (0.1 * len(y))).fit(x, y).coef_, of_cost.coef_)
    with pytest.raises(ParameterError, match="they say the same"):
        kind(0.1, alpha=1.0).fit(x, y)
