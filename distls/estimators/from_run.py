"""The estimator of a run that the command line, or `distls.fit`, has trained."""

from typing import Any

from distls.estimators.dual_ascent import DualLinearSVC, DualLogisticRegression, DualRidge
from distls.estimators.estimator_base import DatasetEstimator, set_model
from distls.estimators.least_squares import (
    CalibratedLeastSquaresClassifier,
    GeneralizedLeastSquaresClassifier,
    StagewiseClassifier,
)
from distls.estimators.regressors import CSGDRegressor, GeneralizedLeastSquaresRegressor
from distls.estimators.sparse import ElasticNet, Lasso, MultiTaskLasso, SparseMulticlassClassifier
from distls.estimators.stochastic import AdalineClassifier, MCIDClassifier, SGDQNClassifier, StochasticClassifier
from distls.ingestion.request.format_options import KINDS
from distls.problem import l1_share, penalty_of
from distls.serving.fitted_model import FittedModel, load_model
from distls.storage.errors import MismatchError, ParameterError
from distls.storage.filesystem.paths import Place, place_of
from distls.training.run_folder import Run, is_run
from distls.workers.losses.loss_registry import has_probabilities, loss_named

_CLASSIFIERS: dict[str, type[Any]] = {
    "mcid": MCIDClassifier, "sgd": StochasticClassifier, "sgdqn": SGDQNClassifier, "c-adaline": AdalineClassifier,
    "adaline": AdalineClassifier, "gls": GeneralizedLeastSquaresClassifier,
    "cls": CalibratedLeastSquaresClassifier, "stagewise": StagewiseClassifier, "bcd": SparseMulticlassClassifier,
    "sdca": DualLinearSVC,  # of losses with probabilities, DualLogisticRegression
}  # fmt: skip
_REGRESSORS: dict[str, type[Any]] = {
    "gls": GeneralizedLeastSquaresRegressor, "csgd": CSGDRegressor, "sdca": DualRidge,
}  # fmt: skip
# Those of `bcd`, each of one penalty
_SPARSE: dict[str, type[Any]] = {kind.penalty: kind for kind in (Lasso, MultiTaskLasso, ElasticNet)}
# Methods without one of their own: the method of the estimator that has their objective
_ALIKE = {
    "newton": "sdca", "ovr-sdca": "sdca", "fista": "bcd", "sparsa": "bcd", "fobos": "bcd", "asgd": "sgd",
    "svmsgd2": "sgd", "olbfgs": "sgd", "rls": "sgd", "ovr-pegasos": "sgd", "ovr-logistic": "sgd",
}  # fmt: skip
_ALIKE_OF_TARGET = {
    "class": {**_ALIKE, "csgd": "c-adaline", "ncsgd": "adaline"},
    "continuous": {
        **{name: "gls" if own == "sgd" else own for name, own in _ALIKE.items()},
        "sgd": "gls",
        "ncsgd": "csgd",
    },
}
# What of a run is of its objective, and not of the way to the optimum
_OBJECTIVE = {"loss", "alpha", "penalty", "l1_ratio", "fit_intercept", "intercept_scaling", "class_weight"}


def load_estimator(path: str | Place) -> DatasetEstimator:
    """Load the model of a run, or a model folder, as the fitted estimator of its method.

    Parameters
    ----------
    path : path

    Returns
    -------
    estimator
        Of the class that `docs/estimators.md` lists for the method, with the parameters of the run; of a method
        without one the class that has its objective, with the parameters of that.

    Raises
    ------
    MismatchError
        No estimator has this objective and kind of target, or rows that are no table go through hashing or transforms,
        which estimators do not do: `load_model` predicts with such models.
    FormatError
        There is no model at `path`.
    """
    model = load_model(path)
    mixed = _is_mixed(model)
    kind, method = _kind_of(model, path)
    names = kind().get_params().keys() & (_OBJECTIVE if method != model.method else model.params.keys())
    given = {name: model.params[name] for name in names if name in model.params}
    if given.get("loss", "") is None:
        given["loss"] = model.loss
    if method == "sdca":  # whose estimators have no penalty but the share of l1: 0 of l2
        given["l1_ratio"] = l1_share(penalty_of(model.params), model.params.get("l1_ratio"))
    if kind is AdalineClassifier:
        given["constrained"] = method == "c-adaline"
    estimator: DatasetEstimator = kind(**given)
    try:
        if method != model.method:
            estimator.method_params(None)
    except ParameterError:  # a loss that the estimator's method does not have
        raise _none_for(model, path) from None
    _fill(estimator, model, place_of(path))
    if mixed:
        estimator._mixed, estimator.n_features_in_ = True, len(model.feature_names_in_)
        estimator.set_params(kind=_kinds(model))
    return estimator


def _kinds(model: FittedModel) -> dict[str, str] | None:
    """Return what columns of the model's rows are where it is not their values that say so, as `kind` names it."""
    found = {}
    for feature in model.source["recipe"]["features"]:
        kind = feature.get("kind", "category" if "categories" in feature else "number")
        style = feature.get("style" if kind in ("date", "set") else "transform", "")
        # numbers with marks, lists and plain numbers are seen by their values
        if kind in KINDS and (style or kind != "number"):
            found[feature["name"]] = f"{kind}:{style}" if style else kind
    return found or None


def _kind_of(model: FittedModel, path: str | Place) -> tuple[type[Any], str]:
    """Return the estimator that has the objective of a model, and its method."""
    method = _ALIKE_OF_TARGET.get(model.target, {}).get(model.method, model.method)
    known = {"class": _CLASSIFIERS, "continuous": _REGRESSORS}.get(model.target, {})
    if method == "bcd" and model.target == "continuous" and model.params.get("penalty") in _SPARSE:
        known = {"bcd": _SPARSE[model.params["penalty"]]}
    if method not in known:
        raise _none_for(model, path)
    kind = known[method]
    if kind is DualLinearSVC and has_probabilities(model.loss):
        kind = DualLogisticRegression
    elif kind is DualLinearSVC and loss_named(model.loss).quadratic:
        return StochasticClassifier, "sgd"
    return kind, method


def _none_for(model: FittedModel, path: str | Place) -> MismatchError:
    """Return the refusal of a model whose objective no estimator has."""
    return MismatchError(
        f"{path}: no estimator has the objective of {model.method} ({model.loss}) for {model.target} targets; "
        "distls.load_model predicts"
    )


def _is_mixed(model: FittedModel) -> bool:
    """Return whether rows are those of a table, to be encoded; refuse a model of others that go through something."""
    recipe = model.source.get("recipe", {})
    coded = any(feature.keys() - {"name", "width"} for feature in recipe.get("features", ()))
    what = "hashing" if model.source.get("format") == "text" else "categories" if coded else ""
    what = what or ",".join(step["name"] for step in model.transforms)
    if what and "features" not in recipe:
        raise MismatchError(
            f"{model.name}: its rows go through {what}, which estimators do not do; distls.load_model predicts"
        )
    return bool(what)


def _fill(estimator: Any, model: FittedModel, path: Place) -> None:
    set_model(estimator, model)
    if hasattr(model, "feature_names_in_"):
        estimator.feature_names_in_ = model.feature_names_in_
    if model.target == "continuous":
        estimator._single = model.n_outputs == 1
    else:
        estimator.classes_ = model.classes_
    # a model folder alone does not say how it was trained
    if is_run(path):
        status = Run.open(path).status
        estimator.n_iter_, estimator.status_ = status["passes"], str(status["status"])
