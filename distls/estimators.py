"""Scikit-learn-style estimators: thin faces of `fit`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from distls.estimator_base import DIVERGED, DatasetClassifier, LinearCoefficients, rows_of
from distls.execution.base import Executor
from distls.solvers.streaming import Stream, facts_of
from distls.storage.errors import ParameterError
from distls.storage.model import LinearModel
from distls.storage.rows import Partition, Rows

__all__ = ["MCIDClassifier"]


class MCIDClassifier(LinearCoefficients, DatasetClassifier):
    """Stochastic multi-class logistic regression, SVM or perceptron (MCID, Algorithms 1-4).

    Objective and scaling: see `distls.problem`.

    Parameters
    ----------
    loss : {"log", "hinge", "perceptron"} or full loss name
    alpha : float
        L2 strength, the paper's lambda.
    batch_size : int
        Rows a step, the paper's r.
    average : {"tail", "all", "none"}
        Which iterates the model is the mean of.
    fit_intercept : bool
    class_weight : dict of label -> weight, "balanced" or None
    lanes : int or None
        Chains of partitions worked in parallel; the result depends on it, never on the number of workers.
    shuffle : bool
        Visit rows in a random order; else in the given one.
    dtype : {"float32", "float64"}
        Of the weights.
    t0 : float or None
        Added to t in the step.
    passes : float
        Reads of the data.
    tol : float or None
        Stop when the certificate is at most this.
    warm_start : bool
        Start from the weights of the last fit.
    random_state : int
    executor : Executor or None
        Where to run; None uses the current Dask client if there is one, else this process.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    coef_ : array of shape (n_classes, n_features)
    intercept_ : array of shape (n_classes,)
    n_features_in_ : int
    n_iter_ : float
        Passes done by `fit`.
    status_ : str
        How `fit` ended: CONVERGED, MAX_PASSES, ...
    t_ : int
        Updates done by `partial_fit`.
    """

    _method = "mcid"

    def __init__(
        self,
        loss: str = "log",
        *,
        alpha: float = 1e-5,
        batch_size: int = 1,
        average: str = "tail",
        fit_intercept: bool = False,
        class_weight: Any = None,
        lanes: int | None = None,
        shuffle: bool = True,
        dtype: str = "float32",
        t0: float | None = None,
        passes: float = 10,
        tol: float | None = None,
        warm_start: bool = False,
        random_state: int = 0,
        executor: Executor | None = None,
    ) -> None:
        self.loss = loss
        self.alpha = alpha
        self.batch_size = batch_size
        self.average = average
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.lanes = lanes
        self.shuffle = shuffle
        self.dtype = dtype
        self.t0 = t0
        self.passes = passes
        self.tol = tol
        self.warm_start = warm_start
        self.random_state = random_state
        self.executor = executor

    def _keep(self, model: LinearModel) -> None:
        self._model: LinearModel | None = model
        self._stream: Stream | None = None

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
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=[np.float32, np.float64],
            reset=not hasattr(self, "classes_"),
        )
        labels = self._expected_classes(classes)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float32, ensure_non_negative=True)
        part = Partition(_stored_rows(X), _codes(y, labels), weight)
        stream = self._stream_of(labels, part.x, X.shape[1])
        if not np.isfinite(stream.learn(part)):
            raise ParameterError(DIVERGED)
        self.classes_, self._stream, self._model = labels, stream, None
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

    def _stream_of(self, labels: NDArray[Any], first: Rows, n_features: int) -> Stream:
        """Return the stream so far, or one that starts from zeros or from the weights of `fit`."""
        if self.class_weight == "balanced":
            raise ParameterError(
                "class_weight='balanced' needs all rows at once; give weights to partial_fit"
            )
        if self.lanes not in (None, 1):
            raise ParameterError(f"lanes={self.lanes}: partial_fit works in one lane")
        params = self._params(labels)
        stream: Stream | None = getattr(self, "_stream", None)
        if stream is not None:
            changed = [name for name, value in params.items() if stream.params[name] != value]
            if changed:
                raise ParameterError(f"{changed[0]} was changed after the first call of partial_fit")
            return stream
        by_code = params["class_weight"]
        weights = None if by_code is None else np.array([by_code[str(code)] for code in range(len(labels))])
        fitted: LinearModel | None = getattr(self, "_model", None)
        start = None if fitted is None else (fitted.weights, fitted.intercept.astype(np.float64))
        facts = facts_of(first, params["loss"], "class", params, n_features, len(labels))
        stream = Stream.begin(params, facts, weights, start)
        self._template = _template(params, len(labels), fitted)
        return stream

    @property
    def model_(self) -> LinearModel:
        """The trained model; after `partial_fit` it is put together when first asked for."""
        model: LinearModel | None = getattr(self, "_model", None)
        if model is None:
            weights = self._learned.weights()
            if not np.isfinite(weights.coefficients).all():
                raise ParameterError(DIVERGED)
            intercept = weights.intercept.astype(weights.coefficients.dtype)
            model = self._model = replace(self._template, weights=weights.coefficients, intercept=intercept)
        return model

    @property
    def t_(self) -> int:
        """Updates done by `partial_fit`."""
        return self._learned.updates

    @property
    def _learned(self) -> Stream:
        stream: Stream | None = getattr(self, "_stream", None)
        if stream is None:
            raise AttributeError(f"this {type(self).__name__} has learned nothing by partial_fit")
        return stream

    def _alone(self) -> Self:
        alone = super()._alone()
        alone._stream = None  # only learning needs it
        return alone

    def _check_probabilities(self) -> bool:
        if self.loss not in ("log", "softmax"):
            raise ParameterError(f"loss={self.loss!r} has no probabilities; use loss='log'")
        return True


def _template(params: dict[str, Any], n_classes: int, fitted: LinearModel | None) -> LinearModel:
    """Return the model of a stream but for its weights; it inherits what `fit` knew of the data."""
    none = np.empty((0, n_classes))
    if fitted is not None:
        return replace(fitted, weights=none, intercept=none, params=params, dataset_fingerprint="")
    return LinearModel(
        weights=none, intercept=none, classes=list(range(n_classes)), method="mcid", loss=params["loss"],
        params=params, transforms=[], transforms_digest="", dataset_fingerprint="",
    )  # fmt: skip


def _codes(y: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.int32]:
    """Return the place of each label in the sorted `labels`."""
    check_classification_targets(y)
    codes = np.minimum(np.searchsorted(labels, y), len(labels) - 1)
    strange = labels[codes] != y
    if np.any(strange):
        first = y[strange][:1].tolist()[0]
        raise ValueError(f"y has the label {first!r}, which is not among the {len(labels)} classes")
    return codes.astype(np.int32)


def _stored_rows(X: Any) -> Rows:
    """Return rows as a dataset would hold them: sparse ones sorted, without repeats and zeros."""
    if sp.issparse(X):
        X = X.copy()
        X.sum_duplicates()
        X.eliminate_zeros()
    return rows_of(X)
