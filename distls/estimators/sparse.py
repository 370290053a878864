"""Scikit-learn-style estimator of sparse multi-class models: a thin wrapper around `fit`."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from distls.estimators.constructor import estimator
from distls.estimators.estimator_base import DatasetClassifier, LinearCoefficients
from distls.problem import loss_of
from distls.storage.errors import ParameterError
from distls.storage.model.model import used_rows
from distls.workers.losses.loss_registry import has_probabilities


@estimator
class SparseMulticlassClassifier(LinearCoefficients, DatasetClassifier):
    """Direct multi-class model that uses few features, by block coordinate descent (the paper's Algorithms 1-3).

    Objective and scaling: see `distls.problem`; penalties: see `distls.workers.penalties.penalty_registry`.
    A dataset given to `fit` must have column shards.

    Parameters
    ----------
    loss : {"squared_hinge", "multitask_squared_hinge", "log"} or full loss name
    penalty : {"l1l2", "l1", "l2", "elasticnet", "l1linf", "sparse-group"}
        With "l1l2" and "l1linf" all weights of a feature become zero together.
    alpha : float
        Strength of the penalty, the paper's lambda.
    l1_ratio : float or None
        Share of l1 in "elasticnet" and "sparse-group"; None: one half.
    step : {"line-search", "constant"}
    active_sweeps : int
        Extra passes per round over the columns with nonzero weights.
    shrink : bool
        Skip features without weights that are far from getting some, until the others have reached tau.
    tau : float
        Stop when the violation of the optimality conditions is at most this fraction of the first round's.
    violation : {"sum", "max"}
        Of the violations of a round's blocks.
    debias : float or None
        Strength of the l2 penalty of a final refit of the selected features; None: no refit.
    fit_intercept : bool
    class_weight : dict of label -> weight, "balanced" or None
    lanes : int or None
        Groups of column shards processed in parallel; the result depends on it, never on the number of workers.
    dtype : {"float64", "float32"}
        Type of the weights and of the scores of the training rows.
    passes : float
        Reads of the data, at most.
    tol : float or None
        Stop when the certificate, a duality gap, is at most this.
    warm_start : bool
        Start from the weights of the last fit.
    random_state : int
    %(executor)s

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    coef_ : array of shape (n_classes, n_features), of two classes (1, n_features)
    intercept_ : array of shape (n_classes,), of two classes (1,)
    used_features_ : int64 array
        Indices of the features with nonzero weights, increasing.
    n_features_in_ : int
    n_iter_ : float
        Passes done.
    status_ : str
        How `fit` ended: CONVERGED, MAX_PASSES, ...
    """

    _method = "bcd"
    _columns = True

    loss: str = field(default="squared_hinge", kw_only=False)
    penalty: str = "l1l2"
    alpha: float = 1e-4
    l1_ratio: float | None = None
    step: str = "line-search"
    active_sweeps: int = 5
    shrink: bool = False
    tau: float = 5e-4
    violation: str = "sum"
    debias: float | None = None
    fit_intercept: bool = False
    class_weight: Any = None
    lanes: int | None = None
    dtype: str = "float64"
    passes: float = 200
    tol: float | None = None
    warm_start: bool = False
    random_state: int = 0
    executor: Any = None

    @property
    def used_features_(self) -> NDArray[np.int64]:
        """Indices of the features with nonzero weights, increasing."""
        check_is_fitted(self, "model_")
        return used_rows(self.model_.weights)

    def _check_probabilities(self) -> bool:
        if not has_probabilities(loss_of(super()._params(None))):
            raise ParameterError(f"loss={self.loss!r} has no probabilities; use loss='log'")
        return True
