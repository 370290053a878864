"""Scikit-learn-style estimators: thin faces of `fit`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from distls.evaluation import check_scorable, reference
from distls.execution.base import Executor
from distls.fitting import fit
from distls.storage.dataset import Dataset, open_dataset
from distls.storage.errors import ParameterError
from distls.storage.model import LinearModel
from distls.storage.rows import CsrRows, DenseRows, Rows, index_dtype
from distls.workers.kernels.linear import scores

__all__ = ["MCIDClassifier"]


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
        Passes done.
    status_ : str
        CONVERGED, MAX_PASSES, ...
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
        X : array or sparse matrix of shape (n_rows, n_features), dataset path or Dataset
        y : array of shape (n_rows,)
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
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float32, np.float64])
        check_classification_targets(y)
        with tempfile.TemporaryDirectory(prefix="distls-fit-") as folder:
            self._write(Path(folder) / "data", X, y, sample_weight)
            return self._fit_dataset(open_dataset(Path(folder) / "data"), labels=np.unique(y))

    def _write(self, path: Path, X: Any, y: Any, sample_weight: Any) -> None:
        from distls.ingestion import ingest

        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"y has one class only ({classes[0]!r}); at least two classes are needed to learn from"
            )
        ingest(X, path, y=codes, sample_weight=sample_weight, dtype=X.dtype.name, seed=self.random_state)

    def _fit_dataset(self, dataset: Dataset, labels: NDArray[Any] | None = None) -> Self:
        params = {
            "loss": self.loss,
            "alpha": self.alpha,
            "batch_size": self.batch_size,
            "average": self.average,
            "fit_intercept": self.fit_intercept,
            "class_weight": self._coded_weights(labels),
            "lanes": self.lanes,
            "dtype": self.dtype,
            "t0": self.t0,
        }
        with tempfile.TemporaryDirectory(prefix="distls-init-") as folder:
            if self.warm_start and hasattr(self, "model_"):
                params["init"] = self._save_start(Path(folder))
            result = fit(
                "mcid", dataset, params=params, passes=self.passes, tol=self.tol, seed=self.random_state,
                eval_every=None if self.tol is not None else 0, executor=self._executor(),
            )  # fmt: skip
        if result.model is None:
            raise ParameterError(
                "the weights are no longer finite; try a larger alpha or t0, or scale the data"
            )
        self.model_: LinearModel = result.model
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
        """Return the scores, shape (n_rows, n_classes), or (n_rows,) for two classes as scikit-learn has it."""
        values = self._scores(X)
        return values[:, 1] - values[:, 0] if len(self.classes_) == 2 else values

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each row, shape (n_rows,).

        Parameters
        ----------
        X : array or sparse matrix of shape (n_rows, n_features), dataset path or Dataset
        """
        if isinstance(X, (str, Path, Dataset)):
            return self._predict_dataset(X if isinstance(X, Dataset) else open_dataset(X))
        codes = self._scores(X).argmax(axis=1)
        return self.classes_[codes]

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return class probabilities, shape (n_rows, n_classes); only with loss="log"."""
        check_is_fitted(self, "model_")
        if not self.model_.has_probabilities:
            raise ParameterError(f"loss={self.loss!r} has no probabilities; use loss='log'")
        values = self._scores(X).astype(np.float64)
        values -= values.max(axis=1, keepdims=True)
        np.exp(values, out=values)
        return values / values.sum(axis=1, keepdims=True)

    def _scores(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self, "model_")
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float32, np.float64], reset=False)
        weights, intercept = self.model_.weights, self.model_.intercept.astype(np.float64)
        return scores(_rows_of(X), weights, intercept, np.empty((X.shape[0], len(intercept)), weights.dtype))

    def _predict_dataset(self, dataset: Dataset) -> NDArray[Any]:
        from functools import partial

        from distls.execution.serial import SerialExecutor
        from distls.workers.predicting import PredictJob, predict_block

        check_is_fitted(self, "model_")
        check_scorable(
            dataset,
            n_features=self.model_.n_features,
            transforms_digest=self.model_.transforms_digest,
            transforms=self.model_.transforms,
            model_name="the model",
        )
        job = PredictJob(reference(dataset), self.model_.loss, 1, False)
        start = (self.model_.weights, self.model_.intercept.astype(np.float64))
        executor = self._executor() or SerialExecutor()
        blocks = executor.map(partial(predict_block, job), range(len(dataset)), shared=start)
        codes = [block.codes[:, 0] for block in blocks]
        return self.classes_[np.concatenate(codes)] if codes else self.classes_[:0]


def _rows_of(X: Any) -> Rows:
    if not sp.issparse(X):
        return DenseRows(np.ascontiguousarray(X))
    return CsrRows(X.indptr.astype(np.int64), X.indices.astype(index_dtype(X.shape[1])), X.data)
