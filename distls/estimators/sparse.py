"""Scikit-learn-style estimators of sparse models: thin wrappers around `fit`."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from distls.estimators.constructor import estimator
from distls.estimators.dual_ascent import STRENGTH, OfCost
from distls.estimators.estimator_base import DatasetClassifier, DatasetEstimator
from distls.estimators.optional_parts import LinearCoefficients
from distls.estimators.regressors import DatasetRegressor
from distls.methods.default_losses import OF_NUMBERS
from distls.problem import loss_of
from distls.storage.errors import ParameterError
from distls.storage.model.model import used_rows
from distls.workers.losses.loss_registry import has_probabilities, losses_with
from distls.workers.penalties import penalties

T = TypeVar("T")


class _SparseEstimator(DatasetEstimator):
    """An estimator whose method works on column shards."""

    _columns = True

    @property
    def used_features_(self) -> NDArray[np.int64]:
        """Indices of the features with nonzero weights, increasing."""
        check_is_fitted(self, "model_")
        return used_rows(self.model_.weights)


@estimator("bcd", "loss", loss="squared_hinge", alpha=None)
class SparseMulticlassClassifier(LinearCoefficients, _SparseEstimator, DatasetClassifier):
    """Direct multi-class model that uses few features, by block coordinate descent (the paper's Algorithms 1-3).

    Objective and scaling: see `distls.problem`; penalties: see `distls.workers.penalties.penalty_registry`.
    A dataset given to `fit` must have column shards.
    """

    def _check_probabilities(self) -> bool:
        if not has_probabilities(loss_of(super().method_params(None))):
            raise ParameterError(f"loss={self.loss!r} has no probabilities; use loss='log'")
        return True


def _classifier(cls: type[T]) -> type[T]:
    """Give a class the parameters of a classifier at the optimum of an l1 penalty."""
    given = ("loss", "penalty", "l1_ratio", "as_published")
    return estimator("bcd", "C", *STRENGTH, without=given, tol=1e-6)(cls)


class _SparseClassifier(OfCost, LinearCoefficients, _SparseEstimator, DatasetClassifier):
    """A classifier with an l1 penalty, shaped like scikit-learn's."""

    _relative_tol = True
    penalty = penalties.L1.name


@_classifier
class SparseLogisticRegression(_SparseClassifier):
    """Logistic regression with few features: scikit-learn's ``LogisticRegression`` with l1, from column shards.

    Minimises ``(1/n) sum_i s_i loss_i + alpha |W|_1`` with n the sum of the weights s_i: sample weight times class
    weight, to a duality gap of `tol` times the objective. That is scikit-learn's objective over ``C n``, with
    ``C = 1/(alpha n)``. More than two classes have the multinomial loss.
    """

    loss = losses_with(coordinate_descent=True, probabilities=True)[0]


@_classifier
class SparseLinearSVC(_SparseClassifier):
    """Linear SVM with few features: scikit-learn's ``LinearSVC`` with ``penalty="l1"``, from column shards.

    Minimises ``(1/n) sum_i s_i loss_i + alpha |W|_1`` with n the sum of the weights s_i: sample weight times class
    weight, to a duality gap of `tol` times the objective. That is scikit-learn's objective over ``C n``, with
    ``C = 1/(alpha n)``. The loss is the squared hinge, of more than two classes the sum of each against the rest.
    """

    loss = losses_with(coordinate_descent=True, separable=True, quadratic=False)[0]

    def _check_probabilities(self) -> bool:
        raise ParameterError("the squared hinge has no probabilities; use SparseLogisticRegression")


class _SparseRegressor(_SparseEstimator, DatasetRegressor):
    """A regressor with one of the sparse penalties, and the squared loss."""

    _relative_tol = True
    loss = OF_NUMBERS


def _regressor(*without: str) -> Callable[[type[T]], type[T]]:
    """Return the decorator of a regressor; `without` what it sets itself."""
    set_here = ("loss", "class_weight", "as_published", *without)
    return estimator("bcd", "alpha", without=set_here, alpha=1.0, tol=1e-6)


@_regressor("penalty", "l1_ratio")
class Lasso(_SparseRegressor):
    """Least squares with few features (Tibshirani 1996): scikit-learn's ``Lasso``, from column shards.

    Minimises ``(1 / sum_i s_i) sum_i s_i 1/2 (y_i - w x_i - b)^2 + alpha |w|_1`` to a duality gap of `tol` times the
    objective.
    """

    penalty = penalties.L1.name


@_regressor("penalty", "l1_ratio")
class MultiTaskLasso(_SparseRegressor):
    """Least squares of several numbers with few features, the same ones for all: scikit-learn's ``MultiTaskLasso``.

    Minimises ``(1 / sum_i s_i) sum_i s_i 1/2 |y_i - W x_i - b|^2 + alpha sum_j |W_j|_2`` with W_j all weights of
    feature j, to a duality gap of `tol` times the objective.
    """

    penalty = penalties.L1L2.name


@_regressor("penalty")
class ElasticNet(_SparseRegressor):
    """Least squares with the elastic net (Zou and Hastie 2005): scikit-learn's ``ElasticNet``.

    Minimises ``(1 / sum_i s_i) sum_i s_i 1/2 |y_i - W x_i - b|^2 + alpha (l1_ratio |W|_1 + (1 - l1_ratio)/2 |W|^2)``
    to a duality gap of `tol` times the objective.
    """

    penalty = penalties.ElasticNet.name
