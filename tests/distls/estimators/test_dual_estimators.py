"""The estimators of dual ascent: the optima of scikit-learn's own, strengths, refusals."""

import pickle
from typing import Any

import numpy as np
import pytest
from helpers import labelled_rows, refuses
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC
from target_helpers import rows_with_numbers

from distls import DualLinearSVC, DualLogisticRegression, DualRidge, ingest
from distls.storage.errors import ParameterError


@pytest.fixture(scope="module")
def rows():
    x, y = labelled_rows(90, 12, 3)
    return x.astype(np.float64), y


@pytest.mark.fast_cases("strength0-3")
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("strength", [{}, {"C": 0.5}])
def test_agrees_with_logistic_regression(rows, classes, strength):
    x, y = rows
    y = np.minimum(y, classes - 1)
    s = np.random.default_rng(0).integers(1, 4, len(y)).astype(np.float64)
    mine = DualLogisticRegression(**strength, tol=1e-12, class_weight="balanced").fit(x, y, sample_weight=s)
    # its "balanced" counts weights too, as here
    theirs = LogisticRegression(**strength, tol=1e-10, max_iter=10_000, class_weight="balanced").fit(x, y, s)
    assert mine.coef_.shape == theirs.coef_.shape
    assert mine.intercept_.shape == theirs.intercept_.shape
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(
        mine.intercept_ - mine.intercept_.mean() * (classes > 2),
        theirs.intercept_ - theirs.intercept_.mean() * (classes > 2), atol=1e-4,
    )  # fmt: skip
    np.testing.assert_allclose(mine.predict_proba(x), theirs.predict_proba(x), atol=1e-4)
    assert mine.decision_function(x).shape == theirs.decision_function(x).shape
    np.testing.assert_allclose(
        mine.decision_function(x), x @ mine.coef_.T[:, 0] + mine.intercept_ if classes == 2
        else x @ mine.coef_.T + mine.intercept_, rtol=1e-9, atol=1e-12,
    )  # fmt: skip


def _cost(loss, classes):
    """Return our C that is 0.7 there: squared hinges of many have a factor 1/2 here, two classes no two columns."""
    return 1.4 if loss == ("crammer_singer" if classes == 2 else "squared_hinge") else 0.7


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("loss", ["squared_hinge", "hinge", "crammer_singer"])
def test_agrees_with_linear_svc(rows, classes, loss):
    x, y = rows
    y = np.minimum(y, classes - 1)
    mine = DualLinearSVC(loss, C=_cost(loss, classes), tol=1e-11, fit_intercept=False)
    mine.fit(x.astype(np.float32), y)  # the same numbers, in the precision that most rows have
    given = {"multi_class": loss} if loss == "crammer_singer" else {"loss": loss}
    theirs = LinearSVC(**given, C=0.7, tol=1e-10, max_iter=1_000_000, fit_intercept=False, dual=True).fit(x, y)
    assert mine.coef_.shape == theirs.coef_.shape
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=1e-4)
    assert mine.status_ == "CONVERGED"
    assert not hasattr(mine, "predict_proba")


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("loss", ["squared_hinge", "hinge", "crammer_singer", "ovr_log"])
def test_agrees_with_liblinear_s_intercept(rows, classes, loss):
    x, y = rows
    y = np.minimum(y, classes - 1)
    mine: Any
    theirs: Any
    given = {"intercept_scaling": 1.5, "tol": 1e-11}
    if loss == "ovr_log":
        mine = DualLogisticRegression(loss, C=0.7, **given)
        theirs = LogisticRegression(C=0.7, **given, solver="liblinear", max_iter=100_000)
        theirs = theirs if classes == 2 else OneVsRestClassifier(theirs)
    else:
        mine = DualLinearSVC(loss, C=_cost(loss, classes), **given)
        kind = {"multi_class": loss} if loss == "crammer_singer" else {"loss": loss}
        theirs = LinearSVC(**kind, C=0.7, **(given | {"tol": 1e-8}), max_iter=1_000_000, dual=True)
    mine.fit(x.astype(np.float32), y)  # the same numbers, in the precision that most rows have
    theirs.fit(x, y)
    if isinstance(theirs, OneVsRestClassifier):
        coef = np.vstack([each.coef_ for each in theirs.estimators_])
        intercept = np.hstack([each.intercept_ for each in theirs.estimators_])
    else:
        coef, intercept = theirs.coef_, theirs.intercept_
    assert (mine.status_, mine.model_.params["intercept_scaling"]) == ("CONVERGED", 1.5)
    np.testing.assert_allclose(mine.coef_, coef, atol=1e-4)
    np.testing.assert_allclose(mine.intercept_, intercept, atol=1e-4)
    np.testing.assert_allclose(mine.decision_function(x), theirs.decision_function(x), atol=1e-4)


@pytest.mark.slow
def test_agrees_with_ridge_on_a_constant_column():
    x, y = rows_with_numbers(60, 5, 2)
    mine = DualRidge(0.1, intercept_scaling=2.0, tol=1e-13).fit(x, y + 10.0)
    whole = np.hstack([x, np.full((60, 1), 2.0)])
    theirs = Ridge(6.0, fit_intercept=False, tol=1e-14).fit(whole, y + 10.0)
    np.testing.assert_allclose(mine.coef_, theirs.coef_[:, :-1], atol=1e-6)
    np.testing.assert_allclose(mine.intercept_, 2.0 * theirs.coef_[:, -1], atol=1e-6)


@pytest.mark.fast_cases(r"None-0\.0$")
@pytest.mark.parametrize("l1_ratio", [0.0, 0.5])
@pytest.mark.parametrize("k", [None, 2])
def test_agrees_with_ridge_and_elastic_net(k, l1_ratio):
    x, y = rows_with_numbers(60, 5, k or 1)
    y = y if k else y[:, 0]
    mine = DualRidge(0.1, l1_ratio=l1_ratio, tol=1e-12, passes=2000).fit(x, y)
    theirs = Ridge(6.0) if l1_ratio == 0.0 else ElasticNet(0.1, l1_ratio=l1_ratio, tol=1e-12)
    theirs.fit(x, y)
    assert mine.coef_.shape == theirs.coef_.shape
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(mine.intercept_, theirs.intercept_, rtol=1e-4)


def test_the_gap_is_that_of_the_weights(rows):
    x, y = rows
    rough = DualLogisticRegression(alpha=1e-2, tol=1e-2).fit(x, y)
    fine = DualLogisticRegression(alpha=1e-2, tol=1e-9).fit(x, y)
    assert 0.0 < fine.dual_gap_ < 1e-8 < rough.dual_gap_
    excess = _objective(rough, x, y, 1e-2) - _objective(fine, x, y, 1e-2)
    assert 0.0 <= excess <= rough.dual_gap_
    assert rough.n_iter_ < fine.n_iter_
    assert pickle.loads(pickle.dumps(fine)).dual_gap_ == fine.dual_gap_


def _objective(fitted, x, y, alpha):
    z = fitted.decision_function(x)
    losses = np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(y)), y]
    return float(losses.mean() + 0.5 * alpha * np.square(fitted.coef_).sum())


@pytest.mark.slow
def test_c_is_alpha_by_the_number_of_rows(tmp_path, rows):
    x, y = rows
    of_c, of_alpha = DualLinearSVC(C=2.0).fit(x, y), DualLinearSVC(alpha=1 / (2.0 * len(y))).fit(x, y)
    assert of_c.model_.params["alpha"] == of_alpha.model_.params["alpha"]
    assert np.array_equal(of_c.coef_, of_alpha.coef_)
    ingest(x, tmp_path / "d", y=y, dtype="float64")
    assert np.array_equal(DualLinearSVC(C=2.0).fit(tmp_path / "d").coef_, of_c.coef_)


@pytest.mark.slow
def test_a_warm_start_begins_at_the_weights_and_not_by_sgd(rows):
    fitted = DualLogisticRegression(warm_start=True, start="sgd", tol=1e-4).fit(*rows)
    first = fitted.coef_
    np.testing.assert_allclose(fitted.fit(*rows).coef_, first, atol=1e-2)


def test_a_warm_start_needs_fewer_passes(rows):
    fitted = DualLogisticRegression(warm_start=True, tol=1e-8).fit(*rows)
    cold = fitted.n_iter_
    assert fitted.fit(*rows).n_iter_ < cold


@pytest.mark.fast_cases("options0")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.1, "C": 1.0}, r"alpha=0.1 and C=1.0: .* give one of them"),
        ({"C": 0.0}, "C=0.0: must be greater than 0 and finite"),
        ({"loss": "squared"}, "loss='squared': .*expected one of ovr_hinge, .*crammer_singer, hinge, squared_hinge"),
    ],
)  # fmt: skip
def test_refusals(rows, options, message):
    refuses(ParameterError, message, DualLinearSVC(**options).fit, *rows)
