"""Models as scikit-learn pipelines: hashing or categories, transforms, and a linear model with our weights."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    LabelBinarizer,
    Normalizer,
    OneHotEncoder,
    StandardScaler,
)
from sklearn.svm import LinearSVC

from distls.ingestion.formats.documents import known_hashing
from distls.interchange.linear_form import (
    Folded,
    binary_output,
    class_array,
    expected_rows,
    has_binary_sigmoid,
    has_sigmoids,
    label_threshold,
)
from distls.serving.fitted_model import FittedModel
from distls.storage.errors import ParameterError
from distls.workers.ingestion.formats.table_columns import Feature


def to_skops(model: FittedModel) -> tuple[bytes, str]:
    """Return a pipeline in the format of skops, which is read without running code, and what it expects.

    Raises ParameterError if scikit-learn has no such model, or skops is not installed.
    """
    try:
        import skops.io
    except ImportError:
        raise ParameterError("--to sklearn needs the package skops; pip install 'distls[sklearn]'") from None
    made, rows = pipeline_of(model)
    return bytes(skops.io.dumps(made)), rows


def pipeline_of(model: FittedModel) -> tuple[Pipeline, str]:
    """Return a fitted pipeline of the same predictions, and what it expects as input."""
    first, rows = _first_step(model)
    steps = [(step["name"], _transform(model, step)) for step in model.transforms]
    numbered = [(f"{name}{place}", step) for place, (name, step) in enumerate(steps)]
    return Pipeline([*first, *numbered, ("model", _linear(model))]), rows


# -- input -----------------------------------------------------------------------------------------------


def _first_step(model: FittedModel) -> tuple[list[tuple[str, BaseEstimator]], str]:
    recipe = model.source.get("recipe", {})
    if model.source.get("format") == "text":
        return [("hashing", known_hashing(recipe).vectorizer())], "a list of texts"
    features = msgspec.convert(recipe.get("features", ()), tuple[Feature, ...])
    if not any(f.categories is not None for f in features) and not recipe.get("na"):
        return [], expected_rows(model)
    if any(feature.width or feature.indices for feature in features):
        raise ParameterError(
            f"{model.name}: columns of lists together with categories cannot be exported to scikit-learn"
        )
    names = ", ".join(feature.name for feature in features)
    return [("columns", _encoder(features, recipe["na"]))], f"a pandas frame with the columns {names}"


def _encoder(features: tuple[Feature, ...], na: str) -> ColumnTransformer:
    try:
        import pandas as pd
    except ImportError:
        raise ParameterError("--to sklearn of a table needs the package pandas; pip install pandas") from None
    columns = [
        (f"column {place}", _column(feature, na), [feature.name]) for place, feature in enumerate(features)
    ]
    # fitted to two rows of a frame, which has every attribute that a fit sets
    rows = {f.name: [0.0, 0.0] if f.categories is None else [f.categories[0]] * 2 for f in features}
    return ColumnTransformer(columns, sparse_threshold=1.0).fit(pd.DataFrame(rows))


def _column(feature: Feature, na: str) -> BaseEstimator:
    if feature.categories is None:
        if not na:
            return FunctionTransformer()
        return SimpleImputer(strategy="constant", fill_value=float(na), keep_empty_features=True)
    coded = OneHotEncoder(categories=[np.array(feature.categories, dtype=object)], handle_unknown="ignore")
    if not na:
        return coded
    return make_pipeline(SimpleImputer(strategy="constant", fill_value=na, keep_empty_features=True), coded)


# -- transforms ------------------------------------------------------------------------------------------


def _transform(model: FittedModel, step: dict[str, Any]) -> BaseEstimator:
    name, n_features = step["name"], model.n_features
    if name == "min_count":
        # the selector that needs nothing but a number for each column
        selector = VarianceThreshold(0.5)
        selector.variances_ = np.zeros(step["columns"])
        selector.variances_[model.features["kept"]] = 1.0
        selector.n_features_in_ = step["columns"]
        return selector
    if name == "log1p":
        return FunctionTransformer(np.log1p, accept_sparse=True)
    if name == "l2norm":
        return Normalizer()
    if name == "standardize":
        return _scaler(model.features["std"], model.features.get("mean"))
    # a scaler takes sparse and dense rows, TfidfTransformer makes sparse ones
    return _scaler(
        1.0 / model.features["idf"] if name == "idf" else np.full(n_features, step["divisor"]), None
    )


def _scaler(scale: Any, mean: Any) -> StandardScaler:
    scaler = StandardScaler(with_mean=mean is not None)
    scaler.scale_, scaler.mean_ = np.asarray(scale, np.float64), mean
    scaler.var_, scaler.n_features_in_, scaler.n_samples_seen_ = scaler.scale_**2, len(scale), 1
    return scaler


# -- the model -------------------------------------------------------------------------------------------


def _linear(model: FittedModel) -> BaseEstimator:
    own = Folded(model.weights, model.intercept)
    if model.target == "continuous":
        return _with_weights(LinearRegression(), model.coef_, model.intercept_)
    if model.target == "multilabel":
        return _one_versus_rest(model, Folded(own.weights, own.intercept - label_threshold(model)))
    if len(model.classes) > 2 and has_sigmoids(model):
        return _one_versus_rest(model, own)
    weights, intercept = binary_output(model, own) if len(model.classes) == 2 else own
    kind = LogisticRegression if has_binary_sigmoid(model) else LinearSVC
    made: Any = _with_weights(kind(), weights.T, intercept)
    made.classes_ = class_array(model)
    return made


def _with_weights(made: Any, weights: Any, intercept: Any) -> Any:
    made.coef_, made.intercept_ = np.ascontiguousarray(weights), intercept
    made.n_features_in_ = made.coef_.shape[-1]
    if not isinstance(made, LinearRegression):
        made.n_iter_ = np.ones(1, np.int32)
    return made


def _one_versus_rest(model: FittedModel, own: Folded) -> OneVsRestClassifier:
    """Return a binary model for each class or label; probabilities of classes are sigmoids over their sum."""
    kind = LogisticRegression if has_sigmoids(model) else LinearSVC
    made = OneVsRestClassifier(kind())
    made.estimators_ = [
        _with_weights(kind(), column[None, :], own.intercept[k : k + 1])
        for k, column in enumerate(own.weights.T)
    ]
    for estimator in made.estimators_:
        estimator.classes_ = np.array([0, 1])
    sets = np.repeat([[0], [1]], len(model.classes), axis=1)
    targets = sets if model.target == "multilabel" else class_array(model)
    made.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(targets)
    # a property of older versions, which then hides this
    vars(made)["classes_"] = made.label_binarizer_.classes_
    made.n_features_in_ = model.n_features
    return made
