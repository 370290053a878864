"""Scikit-learn-style regressors: one number a row, or several."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from distls.estimators.constructor import estimator
from distls.estimators.estimator_base import DatasetEstimator, dataset_given
from distls.estimators.partial_fit import StreamingEstimator
from distls.estimators.temporary_data import folder_for_rows
from distls.ingestion.formats.memory_arrays import unwrapped
from distls.storage.dataset.dataset import Dataset
from distls.storage.errors import MismatchError
from distls.storage.model.model import LinearModel
from distls.workers.losses.loss_registry import loss_named


@estimator
class DatasetRegressor(RegressorMixin, DatasetEstimator):
    """A linear model of one or several outputs.

    %(regressor)s
    model_ : LinearModel
    """

    fit_intercept: bool = True
    lanes: int | None = None
    dtype: str = "float64"
    random_state: int = 0
    executor: Any = None

    def __sklearn_tags__(self) -> Any:
        """Declare that there may be several outputs."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Train.

        Parameters
        ----------
        X : array, sparse matrix or dask array of shape (n_rows, n_features), dataset path or Dataset
            The chunks of a dask array are computed one at a time and stored in a temporary dataset.
        y : array or dask array of shape (n_rows,) or (n_rows, n_outputs)
            Not given with a dataset, which has its own targets.
        sample_weight : array of shape (n_rows,), optional
            Not given with a dataset.

        Returns
        -------
        self
        """
        dataset = dataset_given(X, y, sample_weight, "targets")
        if dataset is not None:
            return self._fit_dataset(dataset)
        X, y = unwrapped("X", X), y if y is None else unwrapped("y", y)
        if hasattr(X, "__dask_graph__"):
            dtype = self._begin_lazily(X, y)
        else:
            X, y = validate_data(
                self, X, y, accept_sparse="csr", dtype=[np.float32, np.float64], multi_output=True, y_numeric=True
            )  # fmt: skip
            dtype = X.dtype.name
        with folder_for_rows(X, self._executor()) as folder:
            data = self._ingest(X, folder / "data", y, sample_weight, target="continuous", dtype=dtype)
            return self._fit_dataset(data, single=getattr(y, "ndim", 1) == 1)

    def _fit_dataset(self, dataset: Dataset, single: bool | None = None) -> Self:
        if dataset.meta.target != "continuous":
            raise MismatchError(
                f"{dataset.path} has {dataset.meta.target} targets; a regressor needs continuous ones, as ingest "
                "makes them with --target continuous"
            )
        self._fitted(dataset)
        self._single = dataset.meta.n_targets == 1 if single is None else single
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predictions, shape (n_rows,), or (n_rows, n_outputs) where `y` had columns.

        Parameters
        ----------
        X : array, sparse matrix or dask array of shape (n_rows, n_features), dataset path or Dataset
            Those for a dask array are a dask array, computed chunk by chunk when it is.
        """
        X = unwrapped("X", X)
        if hasattr(X, "__dask_graph__"):
            check_is_fitted(self, "model_")
            columns = None if self._single else self.model_.n_outputs
            return self._lazily("predict", X, self._score_dtype, columns)
        dataset = dataset_given(X)
        if dataset is not None:
            values = np.concatenate([self._none, *(block.scores for block in self._predicted(dataset))])
        else:
            values = self._scores(X)
            values = loss_named(self.model_.loss).numbers(values)
        return values[:, 0] if self._single else values

    @property
    def _none(self) -> NDArray[Any]:
        return np.empty((0, self.model_.n_outputs), self._score_dtype)

    @property
    def coef_(self) -> NDArray[Any]:
        """Weights, shape (n_features,) or (n_outputs, n_features)."""
        check_is_fitted(self, "model_")
        return self.model_.weights[:, 0] if self._single else self.model_.weights.T

    @property
    def intercept_(self) -> Any:
        """Intercept, a number or of shape (n_outputs,)."""
        check_is_fitted(self, "model_")
        return self.model_.intercept[0] if self._single else self.model_.intercept


@estimator
class GeneralizedLeastSquaresRegressor(DatasetRegressor):
    """Ridge regression with one or several outputs, in one read of the data (Algorithm 1 of least squares revisited).

    Minimises ``(1 / sum_i s_i) sum_i s_i 1/2 |y_i - W x_i - b|^2 + alpha/2 |W|^2``: scikit-learn's ``Ridge`` with
    ``alpha * sum_i s_i``. With ``link="poisson"`` half the deviance of counts is in the place of the squares:
    scikit-learn's ``PoissonRegressor`` with the same ``alpha``.

    Parameters
    ----------
    alpha : float or "path"
        L2 strength, 0 or more; "path": of many, the best in cross-validation, in the same read.
    folds : int or None
        Of alpha="path"; default 5.
    alphas : str or None
        Of alpha="path", with colons between them, such as "1:0.1:0.01".
    link : {"identity", "poisson"}
        Predictions are the scores, or for counts their exponentials, in at most 100 reads of the data.
    fit_intercept : bool
    lanes : int or None
        Chains of partitions read in parallel; last bits depend on it, never on the number of workers.
    dtype : {"float64", "float32"}
        Of weights and products.
    random_state : int
        Of the order in which rows of arrays are stored; folds depend on it.
    %(executor)s

    %(regressor)s
    model_ : LinearModel
    """

    _method = "gls"

    alpha: Any = field(default=1e-5, kw_only=False)
    folds: int | None = None
    alphas: str | None = None
    link: str = "identity"


@estimator
class CSGDRegressor(StreamingEstimator, DatasetRegressor):
    """Linear regression by stochastic gradients that pass through the mean point (constrained SGD, Algorithm 1).

    Minimises ``(1 / sum_i s_i) sum_i s_i 1/2 |y_i - W x_i - b|^2 + alpha/2 |W|^2``.

    Parameters
    ----------
    schedule : {"two-phase", "sqrt", "inverse", "constant"}
        Of steps.
    eta0 : float or None
        Size of steps; None: tried by `fit`, safe in `partial_fit`.
    switch : float or None
        Of two-phase: a lane's rows before the second phase; None: half of a pass (of the first block of a stream).
    center : {"running", "global"}
        The mean point: of the rows so far, or of all rows (`fit` only).
    alpha : float or "path"
        L2 strength, 0 or more; "path": the best of many by cross-validation (`fit` only).
    folds : int or None
        Cross-validation folds of ``alpha="path"``.
    alphas : str or None
        Alphas of ``alpha="path"``, such as "1:0.1:0.01".
    fit_intercept : bool
    lanes : int or None
        Chains of partitions worked in parallel; the result depends on it, never on the number of workers.
    shuffle : bool
        Visit rows in a random order; else in the given one.
    dtype : {"float32", "float64"}
        Of the weights.
    passes : float
        Reads of the data.
    random_state : int
    %(executor)s

    %(regressor)s
    t_ : int
        Updates done by `partial_fit`.
    """

    _method = "csgd"

    schedule: str = field(default="two-phase", kw_only=False)
    eta0: float | None = None
    switch: float | None = None
    center: str = "running"
    alpha: Any = 0.0
    folds: int | None = None
    alphas: str | None = None
    shuffle: bool = True
    passes: float = 10

    def _keep(self, model: LinearModel) -> None:
        super()._keep(model)
        self._n_outputs = model.n_outputs

    def partial_fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from a block of rows, once and in the given order, and go on from there at the next call.

        One lane, whose bits do not depend on how the rows are cut into blocks, and are those of ``fit`` with
        ``passes=1, lanes=1, shuffle=False`` and the same `eta0` and `switch`. Weights of rows count as given.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_rows, n_features)
        y : array of shape (n_rows,) or (n_rows, n_outputs)
        sample_weight : array of shape (n_rows,), optional

        Returns
        -------
        self
        """
        first = not (hasattr(self, "_model") or hasattr(self, "_stream"))
        X, y = validate_data(
            self, unwrapped("X", X), unwrapped("y", y), accept_sparse="csr", dtype=[np.float32, np.float64],
            multi_output=True, y_numeric=True, reset=first,
        )  # fmt: skip
        given = np.asarray(y, dtype=np.float64)
        targets = given.reshape(len(given), -1)
        if first:
            self._single, self._n_outputs = np.ndim(y) == 1, targets.shape[1]
        if targets.shape[1] != self._n_outputs:
            raise ValueError(f"y has {targets.shape[1]} columns, at first it had {self._n_outputs}")
        self._learn(X, targets, sample_weight, self._params(None))
        return self
