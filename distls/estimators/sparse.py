"""Scikit-learn-style estimator of sparse multi-class models: a thin wrapper around `fit`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from distls.estimators.constructor import estimator
from distls.estimators.estimator_base import DatasetClassifier, LinearCoefficients
from distls.problem import loss_of
from distls.storage.errors import ParameterError
from distls.storage.model.model import used_rows
from distls.workers.losses.loss_registry import has_probabilities


@estimator("bcd", "loss", loss="squared_hinge")
class SparseMulticlassClassifier(LinearCoefficients, DatasetClassifier):
    """Direct multi-class model that uses few features, by block coordinate descent (the paper's Algorithms 1-3).

    Objective and scaling: see `distls.problem`; penalties: see `distls.workers.penalties.penalty_registry`.
    A dataset given to `fit` must have column shards.
    """

    _columns = True

    @property
    def used_features_(self) -> NDArray[np.int64]:
        """Indices of the features with nonzero weights, increasing."""
        check_is_fitted(self, "model_")
        return used_rows(self.model_.weights)

    def _check_probabilities(self) -> bool:
        if not has_probabilities(loss_of(super()._params(None))):
            raise ParameterError(f"loss={self.loss!r} has no probabilities; use loss='log'")
        return True
