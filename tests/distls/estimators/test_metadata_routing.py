"""Estimators take part in scikit-learn's routing of sample weights and in its `set_output`."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.feature_selection import SelectFromModel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import distls


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(200, 4)), columns=list("abcd"))
    # the weights make rows with wrong labels the important ones
    wrong = rng.random(200) < 0.3
    y = ((x.a > 0) ^ wrong).to_numpy().astype(int)
    return x, y, np.where(wrong, 50.0, 1.0)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
def test_weights_are_routed_through_a_pipeline(rows):
    x, y, weight = rows
    estimator = distls.StochasticClassifier(passes=2).set_fit_request(sample_weight=True)
    scaler = StandardScaler().set_fit_request(sample_weight=False)
    routed = make_pipeline(scaler, estimator).fit(x, y, sample_weight=weight)
    direct = distls.StochasticClassifier(passes=2).fit(StandardScaler().fit_transform(x), y, weight)
    assert np.array_equal(routed[-1].coef_, direct.coef_)
    plain = make_pipeline(StandardScaler(), distls.StochasticClassifier(passes=2)).fit(x, y)
    assert not np.array_equal(plain[-1].coef_, direct.coef_)


@pytest.mark.slow
@pytest.mark.usefixtures("routing")
def test_a_search_weighs_its_scores(rows):
    x, y, weight = rows
    asked = (
        distls.StochasticClassifier(passes=2).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    )
    found = GridSearchCV(asked, {"alpha": [0.0, 0.1]}).fit(x, y, sample_weight=weight)
    plain = GridSearchCV(distls.StochasticClassifier(passes=2), {"alpha": [0.0, 0.1]}).fit(x, y)
    # nearly all of the weight is on rows whose labels are reversed
    assert found.best_estimator_.coef_[0, 0] < 0 < plain.best_estimator_.coef_[0, 0]


@pytest.mark.slow
def test_names_of_columns_pass_through(rows):
    x, y, _ = rows
    fitted = make_pipeline(StandardScaler(), distls.StochasticClassifier(passes=2))
    fitted.set_output(transform="pandas").fit(x, y)
    assert fitted[-1].feature_names_in_.tolist() == list("abcd")
    chosen = SelectFromModel(distls.StochasticClassifier(passes=2)).set_output(transform="pandas").fit(x, y)
    assert set(chosen.transform(x).columns) <= set("abcd")
