"""Scikit-learn-style classifiers of the stochastic methods: thin wrappers around `fit` and its streams."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from distls.estimators.constructor import estimator
from distls.estimators.estimator_base import DatasetClassifier, LinearCoefficients
from distls.estimators.partial_fit import StreamingEstimator
from distls.ingestion.formats.memory_arrays import unwrapped
from distls.problem import loss_of
from distls.storage.errors import ParameterError
from distls.workers.losses.loss_registry import has_probabilities


@estimator
class StreamingClassifier(StreamingEstimator, LinearCoefficients, DatasetClassifier):
    """A classifier of a stochastic method, which can also learn from blocks of rows as they come."""

    folds: int | None = None
    alphas: str | None = None
    fit_intercept: bool = False
    class_weight: Any = None
    lanes: int | None = None
    shuffle: bool = True
    dtype: str = "float32"
    passes: float = 10
    tol: float | None = None
    warm_start: bool = False
    random_state: int = 0
    executor: Any = None

    def partial_fit(
        self, X: Any, y: Any, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from a block of rows, once and in the given order, and go on from there at the next call.

        One lane, whose bits do not depend on how the rows are cut into blocks (with ``batch_size=r``: at multiples
        of r). They are those of ``fit`` with ``passes=1, lanes=1, shuffle=False`` on the same rows, or on a dataset
        whose partitions are the blocks: always with ``average="none"`` or ``"all"``; with ``"tail"`` when the number
        of updates is a power of two, since the last half of a stream cannot be known before its end (between
        them the model is the mean of the last half of the updates at the least, three quarters at the most).
        Weights of rows and classes count as given, where `fit` scales them to a mean of one.

        `passes`, `tol`, `shuffle`, `warm_start`, `random_state` and `executor` are for `fit`. After `fit`, learning
        goes on from its weights with the start time of a warm start.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_rows, n_features)
        y : array of shape (n_rows,)
        classes : array of shape (n_classes,), optional
            All labels there will ever be; needed at the first call unless the estimator is fitted.
        sample_weight : array of shape (n_rows,), optional

        Returns
        -------
        self
        """
        fresh = not hasattr(self, "classes_")
        X, y = validate_data(
            self, unwrapped("X", X), unwrapped("y", y), accept_sparse="csr", dtype=[np.float32, np.float64],
            reset=fresh,
        )  # fmt: skip
        labels = self._expected_classes(classes)
        if getattr(self, "class_weight", None) == "balanced":
            raise ParameterError(
                "class_weight='balanced' needs all rows at once; give weights to partial_fit"
            )
        self._learn(X, _codes(y, labels), sample_weight, self._params(labels), list(range(len(labels))))
        self.classes_ = labels
        return self

    def _expected_classes(self, classes: ArrayLike | None) -> NDArray[Any]:
        known = getattr(self, "classes_", None)
        if classes is None and known is None:
            raise ValueError("classes must be passed on the first call to partial_fit")
        labels = np.asarray(known) if classes is None else np.unique(np.asarray(classes))
        if known is not None and not np.array_equal(labels, known):
            raise ValueError(f"classes are {labels.tolist()}, at the first call they were {known.tolist()}")
        if len(labels) < 2:
            raise ValueError("classes has one class only; at least two are needed to learn from")
        return labels

    def _check_probabilities(self) -> bool:
        if not has_probabilities(loss_of(super()._params(None))):
            loss = getattr(self, "loss", "squared")
            remedy = "; use loss='log'" if hasattr(self, "loss") else ""
            raise ParameterError(f"loss={loss!r} has no probabilities{remedy}")
        return True


@estimator
class MCIDClassifier(StreamingClassifier):
    """Stochastic multi-class logistic regression, SVM or perceptron (MCID, Algorithms 1-4).

    Objective and scaling: see `distls.problem`.

    Parameters
    ----------
    loss : {"log", "hinge", "perceptron"} or full loss name
    alpha : float or "path"
        L2 strength, the paper's lambda; "path": the best of many by cross-validation (`fit` only).
    batch_size : int
        Rows per step, the paper's r.
    average : {"tail", "all", "none"}
        Iterates whose mean is the model.
    t0 : float or None
        Offset added to t in the step size.
    %(stochastic)s
    """

    _method = "mcid"

    loss: str = field(default="log", kw_only=False)
    alpha: Any = 1e-5
    batch_size: int = 1
    average: str = "tail"
    t0: float | None = None


@estimator
class StochasticClassifier(StreamingClassifier):
    """Stochastic gradient descent for any loss with per-feature adaptive steps: the method `sgd`.

    One or a few passes suffice where others need ten, usually without tuning. Objective: see `distls.problem`.

    Parameters
    ----------
    loss : {"log", "hinge", "perceptron", "ovr_log", "ovr_hinge", "ovr_squared_hinge", "squared"}
    schedule : {"adaptive", "inverse", "constant", "sqrt", "two-phase"}
        Of step sizes.
    eta0 : float or None
        Initial step size; None: if adaptive sqrt(n_classes)/2 (hinge: 1/4 or more) times the cube root of lanes, else
        chosen by trial in `fit`.
    alpha : float or "path"
        L2 strength, 0 or more; "path": the best of many by cross-validation (`fit` only).
    batch_size : int
        Rows per step, for schedules that do not adapt.
    average : {"none", "all", "tail"}
        Iterates whose mean is the model, for schedules that do not adapt.
    %(stochastic)s
    """

    _method = "sgd"

    loss: str = field(default="log", kw_only=False)
    schedule: str = "adaptive"
    eta0: float | None = None
    alpha: Any = 0.0
    batch_size: int = 1
    average: str = "none"


@estimator
class SGDQNClassifier(StreamingClassifier):
    """Linear SVM or one-versus-rest logistic regression by SGD-QN: stochastic gradients in a diagonal metric.

    Objective: see `distls.problem`; two classes are one binary problem.

    Parameters
    ----------
    loss : {"squared_hinge", "hinge", "log"}
    alpha : float or "path"
        L2 strength, the paper's lambda; "path": the best of many by cross-validation (`fit` only).
    diagonal : {"gauss-newton", "secant", "paper"} or None
        Estimate of the metric; None: gauss-newton, of the hinge, which has no second derivatives, secant.
    skip : int or None
        Rows between dense updates (L2, metric).
    t0 : float or None
        Offset added to t in the step size; None: chosen by trial in `fit`, safe in `partial_fit`.
    %(stochastic)s
    """

    _method = "sgdqn"

    loss: str = field(default="squared_hinge", kw_only=False)
    alpha: Any = 1e-5
    diagonal: str | None = None
    skip: int | None = None
    t0: float | None = None


@estimator
class AdalineClassifier(StreamingClassifier):
    """Least-squares classification by SGD constrained to pass through the mean point (C-Adaline).

    With ``constrained=False`` it is Adaline. Objective: see `distls.problem`; targets are indicators of classes.

    Parameters
    ----------
    constrained : bool
        Project on the models that pass through the mean point, after each step.
    schedule : {"constant", "inverse", "sqrt", "two-phase"} or None
        Of step sizes; None: sqrt, or constant if not constrained.
    eta0 : float or None
        Initial step size; None: chosen by trial in `fit`, safe in `partial_fit`.
    switch : float or None
        Rows of a lane before the second phase of two-phase.
    center : {"running", "global"}
        The mean point: of the rows seen so far, or of all rows (`fit` only).
    alpha : float or "path"
        L2 strength, 0 or more; "path": the best of many by cross-validation (`fit` only).
    %(stochastic)s
    """

    constrained: bool = field(default=True, kw_only=False)
    schedule: str | None = None
    eta0: float | None = None
    switch: float | None = None
    center: str = "running"
    alpha: Any = 0.0
    fit_intercept: bool = True

    @property
    def _method(self) -> str:  # type: ignore[override]
        """The method that `constrained` selects."""
        return "c-adaline" if self.constrained else "adaline"


def _codes(y: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.int32]:
    """Return the place of each label in the sorted `labels`."""
    check_classification_targets(y)
    codes = np.minimum(np.searchsorted(labels, y), len(labels) - 1)
    unknown = labels[codes] != y
    if np.any(unknown):
        first = y[unknown][:1].tolist()[0]
        raise ValueError(f"y has the label {first!r}, which is not among the {len(labels)} classes")
    return codes.astype(np.int32)
