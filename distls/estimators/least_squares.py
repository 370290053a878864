"""Scikit-learn-style estimators of the least-squares methods: thin wrappers of `fit`."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from distls.estimators.constructor import estimator
from distls.estimators.dual_ascent import keep_optimum, row_weights, warn_of_guessing
from distls.estimators.estimator_base import DatasetClassifier
from distls.estimators.optional_parts import LinearCoefficients
from distls.methods.default_losses import OF_CLASSES
from distls.problem import loss_form, output_count
from distls.request import plain
from distls.solvers.lbfgs import RowsInMemory, are_few, find_optimum
from distls.storage.errors import ParameterError
from distls.workers.losses.loss_registry import loss_named

_WIDE = 1024  # columns; fewer have a matrix of products that is soon factorised
_ANY = ("link", "alpha", "fit_intercept", "class_weight", "tol", "random_state", "executor")
_GAP = 1e-6  # of an optimum, over its objective


@estimator("gls", "link", alpha=None)
class GeneralizedLeastSquaresClassifier(LinearCoefficients, DatasetClassifier):
    """Linear classifier by steps preconditioned by the second moments (Algorithm 1 of least squares revisited).

    Objective and scaling: see `distls.problem`. The optimum of few sparse rows in memory of more than 1,024 columns,
    of which nothing but the strength is chosen, is found by Newton's method, to a gap of 1e-6 of the objective.
    """

    def _fit_here(self, X: Any, codes: NDArray[Any], sample_weight: Any, classes: NDArray[Any]) -> bool:
        given, k, alpha = self.method_params(classes), len(classes), plain(self.alpha)
        usual = all(getattr(self, n) == default for n, default in self._defaults.items() if n not in _ANY)
        exact = usual and self.link == OF_CLASSES and isinstance(alpha, int | float) and alpha > 0.0
        form = loss_form(OF_CLASSES, "class", k)
        loss, n_outputs = loss_named(form), output_count(form, k, 1)
        weights = row_weights(codes, sample_weight, given["class_weight"])
        if not (exact and issparse(X) and X.shape[1] > _WIDE and weights is not None):
            return False
        if not are_few(len(codes), X.shape[1], n_outputs, loss, X.nnz):
            return False
        x, y, share = X.astype(np.float64), codes.astype(np.int32), weights / weights.mean()
        problem = RowsInMemory(x, y, share, loss, n_outputs, float(alpha), given["fit_intercept"])
        found = find_optimum(problem, _GAP)
        if found is None or not found.gap <= (math.inf if self.tol is None else self.tol):
            return False
        keep_optimum(self, found, self._method, {**given, "alpha": float(alpha)}, form, k, X)
        self.classes_ = classes
        if sample_weight is None:
            warn_of_guessing(self.model_, problem, classes)
        return True

    def _check_probabilities(self) -> bool:
        if self.link == "identity":
            raise ParameterError("link='identity' has no probabilities; use link='softmax'")
        return True


@estimator("cls", "basis", basis=3)
class CalibratedLeastSquaresClassifier(DatasetClassifier):
    """Calibrated least squares (Algorithm 2 of least squares revisited).

    Each round fits the residuals by the rows, then the classes by powers of the predictions, and projects the
    outcome onto the probability simplex: scores are probabilities. `basis` may be a sequence, such as ``(1, 2, 3)``.
    """


@estimator("stagewise", "inner")
class StagewiseClassifier(DatasetClassifier):
    """Blocks of features fitted to the residuals one after another (Algorithm 3 of least squares revisited)."""

    def _check_probabilities(self) -> bool:
        if self.inner not in ("logistic", "logit", "cls"):
            raise ParameterError(f"inner={self.inner!r} has no probabilities; use inner='logistic'")
        return True
