"""Scikit-learn-style estimators: thin faces of `fit`."""

from __future__ import annotations

import copy
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from distls.evaluation import check_scorable, readout_of, reference
from distls.execution.base import Executor
from distls.fitting import fit
from distls.methods import method_named
from distls.solvers.streaming import McidStream
from distls.storage.dataset import Dataset, open_dataset
from distls.storage.errors import ParameterError
from distls.storage.model import LinearModel
from distls.storage.rows import CsrRows, DenseRows, Partition, Rows, index_dtype
from distls.workers.kernels.linear import scores
from distls.workers.losses import probabilities
from distls.workers.readout import linear_view

__all__ = ["MCIDClassifier"]

_DIVERGED = "the weights are no longer finite; try a larger alpha or t0, or scale the data"


class MCIDClassifier(ClassifierMixin, BaseEstimator):
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

    def __sklearn_tags__(self) -> Any:
        """Declare that sparse input is welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Train.

        Parameters
        ----------
        X : array, sparse matrix or dask array of shape (n_rows, n_features), dataset path or Dataset
            The chunks of a dask array are computed one at a time and stored in a temporary dataset.
        y : array or dask array of shape (n_rows,)
            Not given with a dataset, which has its own labels.
        sample_weight : array of shape (n_rows,), optional
            Not given with a dataset.

        Returns
        -------
        self
        """
        if isinstance(X, (str, Path, Dataset)):
            if y is not None or sample_weight is not None:
                raise ParameterError(
                    "a data set has its own labels and weights; do not pass y or sample_weight"
                )
            return self._fit_dataset(X if isinstance(X, Dataset) else open_dataset(X))
        if hasattr(X, "__dask_graph__"):
            return self._fit_lazy(X, y, sample_weight)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float32, np.float64])
        check_classification_targets(y)
        with tempfile.TemporaryDirectory(prefix="distls-fit-") as folder:
            self._write(Path(folder) / "data", X, y, sample_weight)
            return self._fit_dataset(open_dataset(Path(folder) / "data"), labels=np.unique(y))

    def _fit_lazy(self, X: Any, y: Any, sample_weight: Any) -> Self:
        """Train on dask arrays."""
        from distls.ingestion import ingest

        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        dtype = "float64" if getattr(X, "dtype", None) == np.float64 else "float32"
        with tempfile.TemporaryDirectory(prefix="distls-fit-") as folder:
            path = Path(folder) / "data"
            ingest(
                X, path, y=y, sample_weight=sample_weight, target="class", dtype=dtype, seed=self.random_state,
                shuffle=self.shuffle,
            )  # fmt: skip
            self._fit_dataset(open_dataset(path))
        numbers = getattr(y, "dtype", np.dtype(object)).kind in "fiub"
        self.classes_: NDArray[Any] = self.classes_.astype(y.dtype if numbers else self.classes_.dtype)
        return self

    def _write(self, path: Path, X: Any, y: Any, sample_weight: Any) -> None:
        from distls.ingestion import ingest

        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"y has one class only ({classes[0]!r}); at least two classes are needed to learn from"
            )
        ingest(
            X, path, y=codes, sample_weight=sample_weight, dtype=X.dtype.name, seed=self.random_state,
            shuffle=self.shuffle,
        )  # fmt: skip

    def _params(self, labels: NDArray[Any] | None) -> dict[str, Any]:
        """Return the parameters of the method; `labels` are the classes of data that hold codes."""
        return {
            "loss": self.loss,
            "alpha": self.alpha,
            "batch_size": self.batch_size,
            "average": self.average,
            "fit_intercept": self.fit_intercept,
            "class_weight": self._coded_weights(labels),
            "lanes": self.lanes,
            "shuffle": self.shuffle,
            "dtype": self.dtype,
            "t0": self.t0,
        }

    def _fit_dataset(self, dataset: Dataset, labels: NDArray[Any] | None = None) -> Self:
        params = self._params(labels)
        with tempfile.TemporaryDirectory(prefix="distls-init-") as folder:
            if self.warm_start and hasattr(self, "model_"):
                params["init"] = self._save_start(Path(folder))
            result = fit(
                "mcid", dataset, params=params, passes=self.passes, tol=self.tol, seed=self.random_state,
                eval_every=None if self.tol is not None else 0, executor=self._executor(),
            )  # fmt: skip
        if result.model is None:
            raise ParameterError(_DIVERGED)
        self._model: LinearModel | None = result.model
        self._stream: McidStream | None = None
        self.classes_ = np.array(dataset.meta.classes) if labels is None else labels
        self.n_features_in_ = dataset.meta.n_features
        self.n_iter_ = result.passes
        self.status_ = str(result.status)
        return self

    def _coded_weights(self, labels: NDArray[Any] | None) -> Any:
        """Return class_weight in terms of the class codes that an in-memory dataset is stored with."""
        if labels is None or not isinstance(self.class_weight, dict):
            return self.class_weight
        strange = [label for label in self.class_weight if label not in labels]
        if strange:
            raise ParameterError(f"class_weight: {strange[0]!r} is not a class of y")
        return {str(code): self.class_weight.get(label, 1.0) for code, label in enumerate(labels.tolist())}

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
            raise ParameterError(_DIVERGED)
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

    def _stream_of(self, labels: NDArray[Any], first: Rows, n_features: int) -> McidStream:
        """Return the stream so far, or one that starts from zeros or from the weights of `fit`."""
        if self.class_weight == "balanced":
            raise ParameterError(
                "class_weight='balanced' needs all rows at once; give weights to partial_fit"
            )
        if self.lanes not in (None, 1):
            raise ParameterError(f"lanes={self.lanes}: partial_fit works in one lane")
        params = method_named("mcid").resolve(self._params(labels))
        stream: McidStream | None = getattr(self, "_stream", None)
        if stream is not None:
            changed = [name for name, value in params.items() if stream.params[name] != value]
            if changed:
                raise ParameterError(f"{changed[0]} was changed after the first call of partial_fit")
            return stream
        by_code = params["class_weight"]
        weights = None if by_code is None else np.array([by_code[str(code)] for code in range(len(labels))])
        stream = McidStream.begin(params, (n_features, len(labels)), weights)
        fitted: LinearModel | None = getattr(self, "_model", None)
        if fitted is not None:
            stream.start_from(fitted.weights, fitted.intercept, first)
        self._template = _template(params, len(labels), fitted)
        return stream

    @property
    def model_(self) -> LinearModel:
        """The trained model; after `partial_fit` it is put together when first asked for."""
        model: LinearModel | None = getattr(self, "_model", None)
        if model is None:
            weights = self._learned.weights()
            if not np.isfinite(weights.coefficients).all():
                raise ParameterError(_DIVERGED)
            intercept = weights.intercept.astype(weights.coefficients.dtype)
            model = self._model = replace(self._template, weights=weights.coefficients, intercept=intercept)
        return model

    @property
    def t_(self) -> int:
        """Updates done by `partial_fit`."""
        return self._learned.updates

    @property
    def _learned(self) -> McidStream:
        stream: McidStream | None = getattr(self, "_stream", None)
        if stream is None:
            raise AttributeError(f"this {type(self).__name__} has learned nothing by partial_fit")
        return stream

    def _save_start(self, folder: Path) -> str:
        from distls.storage.model import save_model

        save_model(folder / "init", self.model_)
        return str(folder / "init")

    def _executor(self) -> Executor | None:
        if self.executor is not None:
            return self.executor
        from distls.execution import current_dask_executor

        return current_dask_executor()

    @property
    def coef_(self) -> NDArray[Any]:
        """Weights in scikit-learn's orientation, shape (n_classes, n_features)."""
        check_is_fitted(self, "model_")
        return self.model_.weights.T

    @property
    def intercept_(self) -> NDArray[Any]:
        """Intercept, shape (n_classes,)."""
        check_is_fitted(self, "model_")
        return self.model_.intercept

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Return the scores, shape (n_rows, n_classes), or (n_rows,) for two classes as scikit-learn has it.

        Of a dask array, as a dask array.
        """
        if hasattr(X, "__dask_graph__"):
            return self._lazily("decision_function", X, self._score_dtype, len(self.classes_) > 2)
        values = self._scores(X)
        return values[:, 1] - values[:, 0] if len(self.classes_) == 2 else values

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each row, shape (n_rows,).

        Parameters
        ----------
        X : array, sparse matrix or dask array of shape (n_rows, n_features), dataset path or Dataset
            The classes of a dask array are a dask array, computed chunk by chunk when it is.
        """
        if hasattr(X, "__dask_graph__"):
            return self._lazily("predict", X, self.classes_.dtype, False)
        if isinstance(X, (str, Path, Dataset)):
            return self._predict_dataset(X if isinstance(X, Dataset) else open_dataset(X))
        codes = self._scores(X).argmax(axis=1)
        return self.classes_[codes]

    def _has_probabilities(self) -> bool:
        if self.loss not in ("log", "softmax"):
            raise ParameterError(f"loss={self.loss!r} has no probabilities; use loss='log'")
        return True

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return class probabilities, shape (n_rows, n_classes); only with loss="log"."""
        check_is_fitted(self, "model_")
        if hasattr(X, "__dask_graph__"):
            return self._lazily("predict_proba", X, np.dtype(np.float64), True)
        return probabilities(self.model_.loss, self._scores(X).astype(np.float64))

    @property
    def _score_dtype(self) -> np.dtype[Any]:
        check_is_fitted(self, "model_")
        return self.model_.weights.dtype

    def _lazily(self, method: str, X: Any, dtype: np.dtype[Any], by_class: bool) -> Any:
        """Return what a method makes of each chunk of a dask array, with a column for each class or with none."""
        check_is_fitted(self, "model_")
        X = X.to_dask_array() if hasattr(X, "to_dask_array") else X
        if X.shape[1] != self.n_features_in_:
            name = type(self).__name__
            raise ValueError(
                f"X has {X.shape[1]} features, but {name} is expecting {self.n_features_in_} features as input."
            )
        alone = copy.copy(self)
        alone.executor = None  # a cluster's client does not travel
        alone._stream = None  # nor need what only learning needs
        X = X.rechunk({1: -1})
        shape = (0, len(self.classes_)) if by_class else (0,)
        axes = {"chunks": (X.chunks[0], shape[1:])} if by_class else {"drop_axis": 1}
        empty = np.empty(shape, dtype)
        return X.map_blocks(partial(_apply, alone, method, empty), dtype=dtype, meta=empty, **axes)

    def _scores(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self, "model_")
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float32, np.float64], reset=False)
        rows, weights, intercept = linear_view(readout_of(self.model_), _rows_of(X))
        return scores(rows, weights, intercept, np.empty((X.shape[0], len(intercept)), weights.dtype))

    def _predict_dataset(self, dataset: Dataset) -> NDArray[Any]:
        from distls.execution.serial import SerialExecutor
        from distls.workers.predicting import PredictJob, predict_block

        check_is_fitted(self, "model_")
        check_scorable(
            dataset,
            n_features=self.model_.n_features,
            transforms_digest=self.model_.transforms_digest,
            transforms=self.model_.transforms,
            features=self.model_.features,
            model_name="the model",
        )
        job = PredictJob(reference(dataset), self.model_.loss, 1, False)
        executor = self._executor() or SerialExecutor()
        blocks = executor.map(
            partial(predict_block, job), range(len(dataset)), shared=readout_of(self.model_)
        )
        codes = [block.codes[:, 0] for block in blocks]
        return self.classes_[np.concatenate(codes)] if codes else self.classes_[:0]


def _apply(estimator: Any, method: str, empty: NDArray[Any], X: Any) -> NDArray[Any]:
    """Apply a method to a chunk; scikit-learn's checks refuse one without rows."""
    return getattr(estimator, method)(X) if X.shape[0] else empty


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
    return _rows_of(X)


def _rows_of(X: Any) -> Rows:
    if not sp.issparse(X):
        return DenseRows(np.ascontiguousarray(X))
    return CsrRows(X.indptr.astype(np.int64), X.indices.astype(index_dtype(X.shape[1])), X.data)
