"""Small dense fits in memory: the optimum of dual ascent, the gap that is said, and what is left to dual ascent."""

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import refuses
from sklearn.linear_model import ElasticNet, Ridge

from distls import DualLinearSVC, DualLogisticRegression, DualRidge, GeneralizedLeastSquaresClassifier
from distls.estimators import estimator_base
from distls.solvers.elastic_net import elastic_net_optimum
from distls.solvers.lbfgs import RowsInMemory, find_optimum
from distls.workers.losses.loss_registry import loss_named

LOSSES = {"log": DualLogisticRegression, "ovr_log": DualLogisticRegression, "squared_hinge": DualLinearSVC}


def correlated_rows(n_rows, n_features, n_classes):
    """Return rows of columns that depend on each other, and on the class."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n_rows, n_features)) @ rng.normal(size=(n_features, n_features)) + 1.0
    scores = x @ rng.normal(size=(n_features, n_classes)) + 4.0 * rng.gumbel(size=(n_rows, n_classes))
    return x, scores.argmax(axis=1)


def _by_ascent(estimator):
    return type(estimator)(**{**estimator.get_params(), "lanes": 1, "passes": 3000})


def _is_in_memory(fitted):
    return not fitted.model_.dataset_fingerprint


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize(
    "options",
    [{}, {"fit_intercept": False}, {"class_weight": "balanced"}, {"class_weight": {"a": 3.0}, "alpha": 1e-2}],
    ids=["plain", "no_intercept", "balanced", "weights"],
)
def test_has_the_optimum_of_dual_ascent(classes, loss, options):
    x, y = correlated_rows(200, 4, classes)
    s = np.random.default_rng(0).integers(1, 4, len(y)).astype(np.float64)
    strength = {} if "alpha" in options else {"C": 0.01}
    mine = LOSSES[loss](loss, tol=1e-10, **strength, **options).fit(x, np.array(["a", "b", "c"])[y], s)
    other = _by_ascent(mine).fit(x, np.array(["a", "b", "c"])[y], s)
    assert (_is_in_memory(mine), _is_in_memory(other)) == (True, False)
    assert mine.status_ == other.status_ == "CONVERGED"
    np.testing.assert_allclose(mine.coef_, other.coef_, atol=1e-4)
    np.testing.assert_allclose(mine.decision_function(x), other.decision_function(x), atol=2e-3)
    assert mine.model_.params.pop("alpha") == pytest.approx(other.model_.params.pop("alpha"))
    assert {**mine.model_.params, "lanes": 1} == other.model_.params
    assert (mine.model_.loss, mine.model_.classes, mine.model_.source) == (
        other.model_.loss, other.model_.classes, other.model_.source,
    )  # fmt: skip
    assert list(mine.classes_) == list(other.classes_)


@pytest.mark.fast_cases("log-3$")
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_the_gap_bounds_the_excess(classes, loss):
    x, y = correlated_rows(300, 5, classes)
    rough = LOSSES[loss](loss, alpha=1e-3, tol=0.05).fit(x, y)
    fine = LOSSES[loss](loss, alpha=1e-3, tol=1e-9).fit(x, y)
    excess = _objective(rough, x, y) - _objective(fine, x, y)
    assert 0.0 < fine.dual_gap_ <= 1e-9 * _objective(fine, x, y)
    assert 0.0 < excess <= rough.dual_gap_ + fine.dual_gap_
    assert rough.n_iter_ < fine.n_iter_


def _objective(fitted, x, y):
    model = fitted.model_
    values = loss_named(model.loss).values(x @ model.weights + model.intercept, y)
    return float(values.mean() + 0.5 * model.params["alpha"] * np.square(model.weights).sum())


@pytest.mark.slow
def test_scales_of_columns_do_not_matter():
    x, y = correlated_rows(300, 6, 3)
    scaled = DualLogisticRegression(alpha=1e-6).fit(x * np.logspace(-2, 4, 6) + 1e3, y)
    assert _is_in_memory(scaled)
    assert scaled.n_iter_ < 60
    assert scaled.score(x * np.logspace(-2, 4, 6) + 1e3, y) > 0.5


def test_any_smooth_loss_is_solved_as_itself():
    x, y = correlated_rows(100, 4, 3)
    problem = RowsInMemory(x, y.astype(np.int32), np.ones(100), loss_named("squared"), 3, 0.1, False)
    found = find_optimum(problem, 1e-9)
    ridge = np.linalg.solve(x.T @ x / 100 + 0.1 * np.eye(4), x.T @ np.eye(3)[y] / 100)
    np.testing.assert_allclose(found.weights, ridge, atol=1e-6)
    assert 0.0 < found.gap <= 1e-9 * found.objective


def test_takes_no_folder(monkeypatch):
    def refuse(*_):
        raise AssertionError("a folder for rows")

    monkeypatch.setattr(estimator_base, "folder_for_rows", refuse)
    x, y = correlated_rows(40, 3, 2)
    assert DualLogisticRegression().fit(x, y).score(x, y) > 0.5
    refuses(AssertionError, "a folder for rows", DualLogisticRegression(passes=5).fit, x, y)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"lanes": 1}, {"l1_ratio": 0.5}, {"tol": None, "passes": 3}, {"dtype": "float32"}, {"intercept_scaling": 1.0},
     {"passes": 10, "tol": 1e-2}],
    ids=lambda options: next(iter(options)),
)  # fmt: skip
def test_what_is_left_to_dual_ascent(options):
    x, y = correlated_rows(40, 3, 2)
    assert not _is_in_memory(DualLogisticRegression(alpha=0.1, **options).fit(x, y))


@pytest.mark.slow
def test_sparse_rows_hinges_and_warm_starts_are_left_to_dual_ascent():
    x, y = correlated_rows(40, 3, 2)
    assert not _is_in_memory(DualLogisticRegression(alpha=0.1).fit(sp.csr_matrix(x), y))
    assert not _is_in_memory(DualLinearSVC("hinge", alpha=0.1).fit(x, y))
    warm = DualLogisticRegression(alpha=0.1, warm_start=True).fit(x, y)
    assert _is_in_memory(warm)
    first = warm.coef_
    assert not _is_in_memory(warm.fit(x, y))
    np.testing.assert_allclose(warm.coef_, first, rtol=1e-2)


def wide_rows(classes):
    """Sparse rows with more columns than have their products factorised, most of them without a value."""
    rng = np.random.default_rng(4)
    x = sp.random(80, 1100, 0.01, "csr", rng=rng)
    return x, (x @ rng.normal(size=(1100, classes)) + 0.1 * rng.gumbel(size=(80, classes))).argmax(axis=1)


@pytest.mark.parametrize("classes", [2, 3])
def test_least_squares_of_wide_sparse_rows_are_at_their_optimum(classes):
    x, y = wide_rows(classes)
    options = {"alpha": 1e-2, "class_weight": {0: 3.0}}
    sample = np.arange(80) % 3 + 1.0
    found = GeneralizedLeastSquaresClassifier(**options).fit(x, y, sample)
    assert _is_in_memory(found)
    by_steps = GeneralizedLeastSquaresClassifier(**options, lipschitz="adaptive").fit(x, y, sample)
    assert not _is_in_memory(by_steps)
    np.testing.assert_allclose(found.coef_, by_steps.coef_, atol=2e-3 * np.abs(found.coef_).max())
    np.testing.assert_allclose(found.intercept_, by_steps.intercept_, atol=1e-3)
    assert found.status_ == by_steps.status_ == "CONVERGED"
    np.testing.assert_array_equal(found.predict(x), by_steps.predict(x))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"alpha": 0.0}, {"link": "logit"}, {"lanes": 1}, {"dtype": "float32"}, {"passes": 3.0}, {"tol": 1e-12}],
    ids=lambda options: next(iter(options)),
)
def test_what_is_left_to_generalized_least_squares(options):
    x, y = wide_rows(3)
    assert not _is_in_memory(GeneralizedLeastSquaresClassifier(**{"alpha": 1e-2, **options}).fit(x, y))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [np.asarray, lambda x: x[:, :1000]])
def test_products_of_few_or_dense_columns_are_factorised(rows):
    x, y = wide_rows(3)
    x = rows(x.toarray() if rows is np.asarray else x)
    assert not _is_in_memory(GeneralizedLeastSquaresClassifier(alpha=1e-2).fit(x, y))


def test_weights_of_rows_are_refused_as_elsewhere():
    x, y = correlated_rows(40, 3, 2)
    refuses(ValueError, "weight", DualLogisticRegression().fit, x, y, sample_weight=np.full(40, -1.0))


@pytest.mark.slow
def test_columns_that_numbers_cannot_tell_apart_are_left_alone():
    x = np.full((6, 2), 1e160)
    problem = RowsInMemory(x, np.array([0, 1] * 3, np.int32), np.ones(6), loss_named("softmax"), 2, 1e-3, True)
    assert find_optimum(problem, 1e-6) is None or np.isfinite(find_optimum(problem, 1e-6).gap)


def test_a_model_that_guesses_warns():
    x = np.random.default_rng(0).normal(size=(60, 2))
    y = np.arange(60) % 3 == 0
    with pytest.warns(UserWarning, match="is no better than that of always answering False, 33.33 %"):
        assert _is_in_memory(DualLogisticRegression(alpha=100.0).fit(x, y))


@pytest.mark.fast_cases("log$")
@pytest.mark.parametrize("name", ["ridge", "net", "log", "weights"])
@pytest.mark.filterwarnings("ignore:.*(categorical|standardize|missing values)")
def test_few_rows_of_a_frame_of_any_columns_are_solved_as_numbers(name):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    x, y = correlated_rows(200, 3, 2)
    jobs = np.array(["smith", "baker", "clerk"])[y + x[:, 0].astype(int) % 2]
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(job=jobs)
    frame.loc[::9, "a"] = np.nan
    s = np.random.default_rng(0).integers(1, 4, 200) if name == "weights" else None
    options = {"ridge": {}, "net": {"l1_ratio": 0.5}, "weights": {"class_weight": {"v": 3.0}}}.get(name, {})
    make = DualRidge if name in ("ridge", "net") else DualLogisticRegression
    targets = x[:, 1] + y if make is DualRidge else np.array(["u", "v"])[y]
    mine = make(alpha=1e-2, tol=1e-10, **options).fit(frame, targets, s)
    other = _by_ascent(mine).fit(frame, targets, s)
    assert (mine.status_, mine.n_features_in_, list(mine.feature_names_in_)) == ("CONVERGED", 4, list(frame.columns))
    assert mine.n_iter_ < 60 < other.n_iter_ or make is DualLogisticRegression
    np.testing.assert_allclose(mine.coef_, other.coef_, atol=1e-3)
    assert mine.model_.source == other.model_.source
    assert np.array_equal(mine.predict(frame[frame.columns[::-1]]), mine.predict(frame))


@pytest.mark.fast_cases("True-None")
@pytest.mark.parametrize("columns", [None, 2])
@pytest.mark.parametrize("intercept", [True, False])
def test_ridge_is_exact(columns, intercept):
    x, _ = correlated_rows(300, 6, 2)
    y = x @ np.arange(6.0 * (columns or 1)).reshape(6, -1) + np.random.default_rng(0).normal(size=(300, 1)) + 5.0
    y, s = ((y[:, 0] if columns is None else y), np.random.default_rng(1).integers(1, 4, 300).astype(np.float64))
    mine = DualRidge(alpha=0.1, fit_intercept=intercept).fit(x, y, s)
    theirs = Ridge(alpha=0.1 * s.sum(), fit_intercept=intercept).fit(x, y, s)
    assert (_is_in_memory(mine), mine.status_) == (True, "CONVERGED")
    np.testing.assert_allclose(mine.coef_, theirs.coef_, rtol=1e-6)
    np.testing.assert_allclose(mine.predict(x), theirs.predict(x), rtol=1e-6)
    loss = 0.5 * np.average(np.square(y - mine.predict(x)).reshape(300, -1).sum(axis=1), weights=s)
    objective = loss + 0.05 * np.square(mine.coef_).sum()
    assert 0.0 <= mine.dual_gap_ <= 1e-6 * objective
    # what only dual ascent does is left to it
    assert not _is_in_memory(DualRidge(alpha=0.1, lanes=1, passes=300).fit(x, y))


@pytest.mark.fast_cases("True-3$")
@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_elastic_net_of_correlated_columns_is_exact(columns, intercept):
    x, _ = correlated_rows(300, 12, 2)
    rng = np.random.default_rng(0)
    y = x[:, :4] @ rng.normal(size=(4, columns)) + rng.normal(size=(300, columns)) + 5.0
    s = rng.integers(1, 4, 300).astype(np.float64)
    mine = DualRidge(alpha=10.0, l1_ratio=0.7, fit_intercept=intercept).fit(x, y, s)
    assert (_is_in_memory(mine), mine.status_, mine.n_iter_) == (True, "CONVERGED", 1.0)
    assert (mine.model_.params["penalty"], mine.model_.params["l1_ratio"]) == ("elasticnet", 0.7)
    theirs = [
        ElasticNet(10.0, l1_ratio=0.7, fit_intercept=intercept, tol=1e-14, max_iter=10**6).fit(x, y[:, k], s)
        for k in range(columns)
    ]
    coef = np.stack([each.coef_ for each in theirs])
    assert 0 < np.count_nonzero(coef) < coef.size
    assert not _is_in_memory(DualRidge(l1_ratio=None, passes=3).fit(x, y, s))  # no number is no share
    np.testing.assert_allclose(mine.coef_, coef, atol=1e-7)
    np.testing.assert_allclose(mine.intercept_, [each.intercept_ for each in theirs], atol=1e-6)
    loss = 0.5 * np.average(np.square(y - mine.predict(x)).sum(axis=1), weights=s)
    objective = loss + 10.0 * (0.7 * np.abs(mine.coef_).sum() + 0.15 * np.square(mine.coef_).sum())
    assert 0.0 <= mine.dual_gap_ <= 1e-6 * objective
    problem = RowsInMemory(np.full((6, 2), 1e200), y[:6], np.ones(6), loss_named("squared"), columns, 0.1, intercept)
    found = elastic_net_optimum(problem, 0.5, 1e-6)
    assert found is None or np.isfinite(found.gap)
