"""Models as scikit-learn pipelines: hashing or categories, transforms, and a linear model with our weights."""

import itertools
import math
import re
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, LabelBinarizer, Normalizer, OneHotEncoder, StandardScaler
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
from distls.interchange.raw_columns import Gaps, check_columns, features_of, has_columns, without_standardize
from distls.serving.fitted_model import FittedModel
from distls.storage.errors import ParameterError, needing
from distls.workers.ingestion.formats.mixed_columns import hashing_of
from distls.workers.ingestion.formats.table_columns import Feature, first_columns
from distls.workers.ingestion.transforms import source_width


def to_skops(model: FittedModel) -> tuple[bytes, str]:
    """Return a pipeline in the format of skops, which is read without running code, and what it expects.

    Raises ParameterError if scikit-learn has no such model, or skops is not installed.
    """
    with needing("--to sklearn needs the package skops; pip install 'distls[sklearn]'"):
        import skops.io
    made, rows = pipeline_of(model)
    return bytes(skops.io.dumps(made)), rows


def pipeline_of(model: FittedModel) -> tuple[Pipeline, str]:
    """Return a fitted pipeline of the same predictions, and what it expects as input."""
    first, rows = _first_step(model)
    transforms, own = [*model.transforms], Folded(model.weights, model.intercept)
    if any("dense" in step for step in transforms[:-1]):
        raise ParameterError(f"{model.name}: numbers beside words, standardized and then transformed; --to npz")
    if transforms and "dense" in transforms[-1]:
        # rows stay sparse: what is centred is so in the weights
        own = without_standardize(model, own, transforms.pop()["dense"])
    # missing values are filled in by the first step
    steps = [(s["name"], _transform(model, s)) for s in transforms if s["name"] != "impute"]
    numbered: list[Any] = [(f"{name}{place}", step) for place, (name, step) in enumerate(steps)]
    made = Pipeline([*first, *numbered, ("model", _linear(model, own))])
    names = [feature.name for feature in features_of(model)]
    if not first and len(names) == source_width(model.transforms, model.n_features):
        made[0].feature_names_in_ = np.array(names, dtype=object)  # a frame in another order is refused
    return made, rows


# -- input -----------------------------------------------------------------------------------------------


def _first_step(model: FittedModel) -> tuple[list[tuple[str, BaseEstimator]], str]:
    recipe, features = model.source.get("recipe", {}), features_of(model)
    if model.source.get("format") == "text":
        return [("hashing", known_hashing(recipe).vectorizer())], "a list of texts"
    if not has_columns(model):
        return [], expected_rows(model)
    check_columns(model, "sklearn", reads=("text", "set"))
    names = ", ".join(feature.name for feature in features)
    # a CountVectorizer has one pattern, which cannot split lists too
    sets = "".join(
        f'; "{feature.name}" as text with "{feature.style}" between values, not as a list'
        for feature in features
        if feature.kind == "set"
    )
    return [("columns", _encoder(model, features))], f"a pandas frame with the columns {names}{sets}"


def _encoder(model: FittedModel, features: tuple[Feature, ...]) -> ColumnTransformer:
    with needing("--to sklearn of a table needs the package pandas; pip install pandas"):
        import pandas as pd
    gaps, starts = Gaps.of(model), dict(zip(first_columns(features), features, strict=False))
    columns: list[tuple[str, Any, Any]] = []
    rows: dict[str, list[Any]] = {}  # two of a frame: a fit to them sets every attribute
    for k, (start, feature) in enumerate(starts.items()):
        stand_in = gaps.stand_in(feature, start)
        columns.append((f"column {k}", _column(feature, stand_in), [feature.name]))
        number = feature.categories is None and not feature.kind
        rows[feature.name] = [stand_in or 0.0 if number else (feature.categories or ("",))[0]] * 2
    # behind all columns
    columns += [
        (f"gaps {k}", MissingIndicator(features="all"), [starts[start].name]) for k, start in enumerate(gaps.indicators)
    ]
    return ColumnTransformer(columns, sparse_threshold=1.0).fit(pd.DataFrame(rows))


def _column(feature: Feature, stand_in: str | float | None) -> BaseEstimator:
    if feature.categories is None and not feature.kind:
        # the median of the rows above, which unlike a constant is filled into columns of integers too
        return FunctionTransformer() if stand_in is None else SimpleImputer(strategy="median")
    coded: BaseEstimator = OneHotEncoder(
        categories=[np.array(feature.categories, dtype=object)], handle_unknown="ignore"
    )
    if feature.kind:
        coded = ColumnTransformer([("words", _words(feature), 0)], sparse_threshold=1.0)
        stand_in = ""
    if stand_in is None:
        return coded
    filled = {"strategy": "constant", "fill_value": stand_in, "keep_empty_features": True}
    # an empty text is a value where it has a category of its own
    gaps = (math.nan, None, "") if feature.impute == "most_frequent" else (math.nan, None)
    return make_pipeline(*(SimpleImputer(missing_values=gap, **filled) for gap in gaps), coded)


def _words(feature: Feature) -> BaseEstimator:
    """Return what turns documents into counts, or sets, whose values stand between marks, into indicators."""
    if feature.kind == "text":
        return hashing_of(feature).vectorizer()
    other = rf"[^\s{re.escape(feature.style)}]"
    pattern = rf"{other}(?:[^{re.escape(feature.style)}]*{other})?"
    return CountVectorizer(vocabulary=feature.categories, token_pattern=pattern, lowercase=False, binary=True)


# -- transforms ------------------------------------------------------------------------------------------


def _transform(model: FittedModel, step: dict[str, Any]) -> BaseEstimator:
    name, n_features = step["name"], model.n_features
    if "ranges" in step and name != "idf":  # whose weights are 1 elsewhere
        # as they are when it is fitted, rows of a table of numbers are dense
        dense = all(feature.is_dense for feature in features_of(model))
        rows = np.zeros((2, n_features)) if dense else csr_matrix((2, n_features))
        return _apart(_transform(model, {"name": name}), step["ranges"], rows)
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
    return _scaler(1.0 / model.features["idf"] if name == "idf" else np.full(n_features, step["divisor"]), None)


def _apart(made: BaseEstimator, ranges: list[list[int]], rows: Any) -> ColumnTransformer:
    """Return a transformer of ranges of columns, which leaves those between them alone, fitted to `rows`."""
    edges = [0, *(edge for first_and_stop in ranges for edge in first_and_stop), rows.shape[1]]
    parts = [
        (f"columns from {first}", made if k % 2 else "passthrough", slice(first, stop))
        for k, (first, stop) in enumerate(itertools.pairwise(edges))
        if first < stop
    ]
    return ColumnTransformer(parts, sparse_threshold=1.0).fit(rows)


def _scaler(scale: Any, mean: Any) -> StandardScaler:
    scaler = StandardScaler(with_mean=mean is not None)
    scaler.scale_, scaler.mean_ = np.asarray(scale, np.float64), mean
    scaler.var_, scaler.n_features_in_, scaler.n_samples_seen_ = scaler.scale_**2, len(scale), 1
    return scaler


# -- the model -------------------------------------------------------------------------------------------


def _linear(model: FittedModel, own: Folded) -> BaseEstimator:
    if model.target == "continuous":
        single = model.n_outputs == 1
        weights, intercept = (own.weights[:, 0], own.intercept[0]) if single else (own.weights.T, own.intercept)
        return _with_weights(LinearRegression(), weights, intercept)
    if model.target == "multilabel":
        return _one_versus_rest(model, Folded(own.weights, own.intercept - label_threshold(model)))
    if len(model.classes) > 2 and has_sigmoids(model):
        return _one_versus_rest(model, own)
    weights, intercept = binary_output(model, own) if len(model.classes) == 2 else own
    kind = LogisticRegression if has_binary_sigmoid(model) or model.calibration else LinearSVC
    made: Any = _with_weights(kind(), weights.T, intercept)
    made.classes_ = class_array(model)
    return _calibrated(model, made) if model.calibration else made


def _calibrated(model: FittedModel, made: LogisticRegression) -> FixedThresholdClassifier:
    """Return a model with Platt's probabilities, which predicts the class that the score says."""
    scale, offset = (model.calibration_arrays[name].item() for name in ("scale", "offset"))
    if scale <= 0:  # the lower score would be the more probable
        raise ParameterError(f"{model.name}: calibrated to fall with the score; --to npz has its scores")
    made.coef_, made.intercept_ = made.coef_ * scale, made.intercept_ * scale + offset
    # a score of zero, which the pipeline would take for the second class, is the first's
    above = float(np.nextafter(offset, np.inf))
    whole = FixedThresholdClassifier(made, threshold=above, response_method="decision_function")
    whole.estimator_ = made
    return whole


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
        _with_weights(kind(), column[None, :], own.intercept[k : k + 1]) for k, column in enumerate(own.weights.T)
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
