"""Scikit-learn-style estimators of dual coordinate ascent: the optimum, to a relative duality gap."""

from __future__ import annotations

import math
from dataclasses import field
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distls.estimators.constructor import estimator
from distls.estimators.estimator_base import DatasetClassifier, DatasetEstimator, LinearCoefficients
from distls.estimators.regressors import DatasetRegressor
from distls.estimators.small_fit import fit_small
from distls.estimators.small_optimum import MOST_READS
from distls.methods.default_losses import OF_NUMBERS
from distls.methods.requirements import loss_with
from distls.problem import class_weights
from distls.solvers.solver import Status
from distls.storage.dataset.dataset import Dataset
from distls.storage.errors import ParameterError
from distls.training.fitting import warn_caller
from distls.training.setting_fit import FitResult
from distls.workers.losses.loss_registry import loss_named


def _is_number(value: Any, least: float, most: float) -> bool:
    return isinstance(value, (int, float)) and least <= value <= most


@estimator
class _DualAscent(DatasetEstimator):
    """An estimator whose `tol` is a relative duality gap."""

    _method = "sdca"
    _relative_tol = True

    l1_ratio: float = 0.0
    fit_intercept: bool = True
    intercept_scaling: float | None = None
    lanes: int | None = None
    dtype: str = "float64"
    passes: float = 1000
    tol: float | None = 1e-6
    warm_start: bool = False
    random_state: int = 0
    executor: Any = None

    def _run(self, dataset: Dataset, params: dict[str, Any]) -> FitResult:
        mixed = {"penalty": "elasticnet", "l1_ratio": self.l1_ratio} if self.l1_ratio != 0.0 else {}
        result = super()._run(dataset, {**params, "l1_ratio": None, **mixed})
        certificate = result.record.get("certificate")
        self._gap = None if certificate is None else float(certificate["value"])
        return result

    @property
    def dual_gap_(self) -> float | None:
        """How far the objective is above the optimum, at most; see `distls.problem` for the objective."""
        return getattr(self, "_gap", None)


@estimator
class _DualClassifier(_DualAscent, LinearCoefficients, DatasetClassifier):
    """A classifier that takes the strength of its penalty as scikit-learn's do."""

    _probabilities: ClassVar[bool]  # whether its losses have them

    loss: str
    alpha: float | None = None
    C: float | None = None
    class_weight: Any = None

    def _run(self, dataset: Dataset, params: dict[str, Any]) -> FitResult:
        weights = class_weights(params["class_weight"], dataset)
        total = float(weights @ np.asarray(dataset.meta.label_weights))
        chosen = {"loss": self._loss_of(len(dataset.meta.classes)), "alpha": self._strength(total, params)}
        return super()._run(dataset, {**params, **chosen})

    def _loss_of(self, n_classes: int) -> str:
        """Return the full name of the loss."""
        # one problem a class, except that several probabilities are best made together
        separable_first = n_classes == 2 or not self._probabilities
        return loss_with(
            dual=True, binary=True, probabilities=self._probabilities, separable_first=separable_first
        )(self.loss)

    def _fit_here(self, X: Any, codes: NDArray[Any], sample_weight: Any, classes: NDArray[Any]) -> bool:
        """Find the optimum of few dense rows in memory; what is asked for in another way is left to dual ascent."""
        plain = self.l1_ratio == 0.0 and self.intercept_scaling is None and self.lanes is None
        first = not (self.warm_start and hasattr(self, "model_"))
        limits = _is_number(self.passes, MOST_READS, math.inf) and _is_number(self.tol, 0.0, 1.0)
        if not (plain and first and limits and isinstance(X, np.ndarray)):
            return False
        params = {
            **self._params(classes),
            "loss": self._loss_of(len(classes)),
            "l1_ratio": None,
        }
        if params["dtype"] != "float64":
            return False
        tol, strength = float(self.tol or 0.0), partial(self._strength, params=params)
        found = fit_small(X, codes, sample_weight, params, tol, strength)
        if found is None:
            return False
        self._keep(found.model)
        self._gap, self.classes_ = found.gap, classes
        self.n_features_in_, self.n_iter_, self.status_ = (
            X.shape[1],
            float(found.reads),
            str(Status.CONVERGED),
        )
        if found.warning is not None:
            warn_caller(found.warning)
        return True

    def _params(self, labels: NDArray[Any] | None) -> dict[str, Any]:
        try:
            self._loss_of(2)
        except ValueError as error:
            raise ParameterError(f"loss={self.loss!r}: {error}") from None
        if self.alpha is not None and self.C is not None:
            raise ParameterError(
                f"alpha={self.alpha} and C={self.C}: they say the same, C = 1/(alpha n); give one of them"
            )
        if self.C is not None and not (self.C > 0.0 and np.isfinite(self.C)):
            raise ParameterError(f"C={self.C}: must be greater than 0 and finite")
        return super()._params(labels)

    def _strength(self, total: float, params: dict[str, Any]) -> float:
        """Return alpha; from C by the sum of the rows' weights, as if weights were numbers of equal rows."""
        if self.alpha is not None:
            return self.alpha
        return 1.0 / ((1.0 if self.C is None else self.C) * total) if total > 0.0 else params["alpha"]

    @property
    def _share(self) -> float:  # type: ignore[override]
        """The score of the binary problem over the difference of the scores of two classes."""
        binary = loss_named(self.model_.loss).binary
        assert binary is not None
        return 0.5 / binary.split

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Return the scores, shape (n_rows, n_classes), or (n_rows,) for two classes as scikit-learn has it.

        Of a dask array, as a dask array.
        """
        values = super().decision_function(X)
        return values if values.ndim > 1 else values * values.dtype.type(self._share)


@estimator
class DualLogisticRegression(_DualClassifier):
    """Logistic regression at its optimum, as ``LogisticRegression`` of scikit-learn has it.

    %(dual_objective)s

    Parameters
    ----------
    loss : {"log", "ovr_log"}
        Multinomial, or one problem a class against the rest. Two classes are one binary problem with both.
    %(dual_strength)s
    %(dual_penalty)s
    class_weight : dict of label -> weight, "balanced" or None
    %(dual_ascent)s

    %(dual_classifier)s
    """

    _probabilities = True

    loss: str = field(default="log", kw_only=False)


@estimator
class DualLinearSVC(_DualClassifier):
    """Linear SVM at its optimum, as ``LinearSVC`` of scikit-learn has it, whose intercept is always penalised.

    %(dual_objective)s

    But for the squared hinge, which has a factor 1/2 here: for it C is twice scikit-learn's.

    Parameters
    ----------
    loss : {"squared_hinge", "hinge", "crammer_singer"}
        The first two of one problem a class against the rest. Two classes are one binary problem with all.
    %(dual_strength)s
    %(dual_penalty)s
    class_weight : dict of label -> weight, "balanced" or None
    %(dual_ascent)s

    %(dual_classifier)s
    """

    _probabilities = False

    loss: str = field(default="squared_hinge", kw_only=False)

    def _check_probabilities(self) -> bool:
        raise ParameterError(f"loss={self.loss!r} has no probabilities; use DualLogisticRegression")


@estimator
class DualRidge(_DualAscent, DatasetRegressor):
    """Ridge or elastic-net regression with one or several outputs, at its optimum, for wide sparse rows.

    Minimises ``(1 / sum_i s_i) sum_i s_i 1/2 |y_i - W x_i - b|^2 + alpha R(W)``: scikit-learn's ``Ridge`` with
    ``alpha * sum_i s_i``, and its ``ElasticNet`` with the same `alpha` and `l1_ratio`.

    Parameters
    ----------
    alpha : float
        Strength of the penalty, greater than 0.
    %(dual_penalty)s
    %(dual_ascent)s

    %(regressor)s
    dual_gap_ : float
        How far the objective is above the optimum, at most.
    model_ : LinearModel
    """

    loss: ClassVar[str] = OF_NUMBERS

    alpha: float = field(default=1e-5, kw_only=False)
