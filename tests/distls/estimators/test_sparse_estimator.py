"""SparseMulticlassClassifier: agreement with `fit` and with scikit-learn."""

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import labelled_rows, refuses, write_dataset
from sklearn import linear_model
from sklearn.svm import LinearSVC

from distls import (
    ElasticNet,
    Lasso,
    MultiTaskLasso,
    SparseLinearSVC,
    SparseLogisticRegression,
    SparseMulticlassClassifier,
    add_columns,
    fit,
    ingest,
    load_estimator,
)
from distls.storage.errors import MismatchError, ParameterError


@pytest.fixture(scope="module")
def rows():
    return labelled_rows(300, 50, 3)


def test_arrays_and_datasets_give_the_same(rows, tmp_path):
    x, y = rows
    made = SparseMulticlassClassifier(alpha=2e-2, lanes=1).fit(x, y)
    assert 0 < len(made.used_features_) < 50
    assert np.array_equal(made.used_features_, np.flatnonzero(made.coef_.any(axis=0)))
    dataset = add_columns(write_dataset(tmp_path / "d", x, y).path)
    stored = SparseMulticlassClassifier(alpha=2e-2, lanes=1).fit(dataset)
    assert stored.model_.sha256 == fit("bcd", dataset, params={"alpha": 2e-2, "lanes": 1}).model.sha256
    np.testing.assert_allclose(stored.coef_, made.coef_, atol=5e-3)
    np.testing.assert_allclose(made.decision_function(x), x @ made.coef_.T + made.intercept_, rtol=1e-9, atol=1e-12)
    assert np.array_equal(made.predict(sp.csr_matrix(x)), made.predict(x.toarray()))


def test_probabilities_of_the_log_loss_alone(rows):
    x, y = rows
    made = SparseMulticlassClassifier("log", alpha=1e-3).fit(x, y)
    np.testing.assert_allclose(made.predict_proba(x).sum(axis=1), 1.0)
    assert not hasattr(SparseMulticlassClassifier().fit(x, y), "predict_proba")


@pytest.mark.slow
def test_few_rows_have_a_larger_alpha(rows):
    x, y = rows
    square = x.multiply(x).sum() / x.shape[0]
    used = SparseMulticlassClassifier().fit(x, y).model_.params["alpha"]
    assert used == pytest.approx(min(1.0, square / 20) / 300, rel=1e-4)
    assert used > SparseMulticlassClassifier(alpha=1e-4, passes=1).fit(x, y).model_.params["alpha"] == 1e-4


@pytest.mark.slow
def test_warm_start_goes_on(rows):
    x, y = rows
    made = SparseMulticlassClassifier(alpha=1e-3, passes=1, active_sweeps=0, warm_start=True).fit(x, y)
    first = made.coef_.copy()
    assert made.fit(x, y).status_ == "MAX_PASSES"
    assert not np.array_equal(first, made.coef_)


def test_what_cannot_be(rows, tmp_path):
    x, y = rows
    bare = write_dataset(tmp_path / "bare", x, y)
    refuses(MismatchError, "has no column shards", SparseMulticlassClassifier().fit, bare)
    with pytest.raises(ParameterError, match=r"l1_ratio=0\.3: used with penalty=elasticnet or sparse-group only"):
        SparseMulticlassClassifier(l1_ratio=0.3).fit(x, y)


@pytest.mark.fast_cases("Lasso")
@pytest.mark.parametrize("kind", ["Lasso", "MultiTaskLasso", "ElasticNet"])
def test_regressors_agree_with_scikit_learns(kind, tmp_path):
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
@pytest.mark.fast_cases("False-ab-False-own")
@pytest.mark.parametrize("by_class", [None, {"a": 2.0, "b": 0.7, "c": 1.0}, "balanced"], ids=["one", "own", "balanced"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", ["ab", "abc"])
@pytest.mark.parametrize("sparse", [False, True])
def test_classifiers_agree_with_scikit_learns(sparse, classes, weighted, by_class):
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


@pytest.mark.fast_cases("SparseLogisticRegression")
@pytest.mark.parametrize("kind", [SparseLogisticRegression, SparseLinearSVC])
def test_cost_and_strength_say_the_same(kind, rows):
    x, y = rows
    of_cost = kind(0.1).fit(x, y)
    assert np.array_equal(kind(alpha=1 / (0.1 * len(y))).fit(x, y).coef_, of_cost.coef_)
    with pytest.raises(ParameterError, match="they say the same"):
        kind(0.1, alpha=1.0).fit(x, y)
