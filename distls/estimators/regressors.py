"""Scikit-learn-style regressors: one number a row, or several."""

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from distls.estimators.arguments import number_types
from distls.estimators.constructor import estimator
from distls.estimators.estimator_base import DatasetEstimator
from distls.estimators.partial_fit import StreamingEstimator
from distls.estimators.temporary_data import folder_for_rows
from distls.ingestion.formats.memory_arrays import unwrapped
from distls.methods.parameters import ONE_BLOCK
from distls.storage.dataset.dataset import Dataset
from distls.storage.errors import MismatchError, ParameterError
from distls.storage.model.model import LinearModel
from distls.workers.losses.loss_registry import loss_named
from distls.workers.prediction.predict_task import Predicted


class DatasetRegressor(RegressorMixin, DatasetEstimator):
    """A linear model of one or several outputs."""

    def __sklearn_tags__(self) -> Any:
        """Declare that there may be several outputs."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _fit_rows(self, X: Any, y: Any, sample_weight: Any) -> Self:
        X, y = self._checked(X, y, multi_output=True, y_numeric=True)
        if self._mixed and np.ndim(y) > 1 and y.shape[1] > 1:
            raise ParameterError(
                "y has several columns beside a frame with columns that are no plain numbers: distls.train takes "
                "them as columns of the frame, label_column=[...]"
            )
        return self._fit_numbers(X, y, sample_weight, "" if self._mixed else X.dtype.name)

    def _fit_lazy(self, X: Any, y: Any, sample_weight: Any) -> Self:
        return self._fit_numbers(X, y, sample_weight, self._begin_lazily(X, y))

    def _fit_numbers(self, X: Any, y: Any, sample_weight: Any, dtype: str) -> Self:
        with folder_for_rows(X, self._executor()) as folder:
            numbers = y[:, 0] if self._mixed and np.ndim(y) > 1 else y
            data = self._ingest(X, folder / "data", numbers, sample_weight, target="continuous", dtype=dtype)
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

    def _predict_lazily(self, X: Any) -> Any:
        return self._lazily("predict", X, self._score_dtype, None if self._single else self.model_.n_outputs)

    def _of_blocks(self, blocks: Iterable[Predicted]) -> NDArray[Any]:
        none = np.empty((0, self.model_.n_outputs), self._score_dtype)
        values = np.concatenate([none, *(block.scores for block in blocks)])
        return values[:, 0] if self._single else values

    def _of_scores(self, scores: NDArray[Any]) -> NDArray[Any]:
        values = loss_named(self.model_.loss).numbers(scores)
        return values[:, 0] if self._single else values

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


@estimator("gls", "alpha", without=("class_weight",), link="identity")
class GeneralizedLeastSquaresRegressor(DatasetRegressor):
    """Ridge regression with one or several outputs, in one read of the data (Algorithm 1 of least squares revisited).

    Minimises ``(1 / sum_i s_i) sum_i s_i 1/2 |y_i - W x_i - b|^2 + alpha/2 |W|^2``: scikit-learn's ``Ridge`` with
    ``alpha * sum_i s_i``. With ``link="poisson"`` half the deviance of counts is in the place of the squares:
    scikit-learn's ``PoissonRegressor`` with the same ``alpha``.
    """


@estimator("csgd", "schedule", without=("loss", "class_weight", *(p.name for p in ONE_BLOCK)), dtype="float64")
class CSGDRegressor(StreamingEstimator, DatasetRegressor):
    """Linear regression by stochastic gradients that pass through the mean point (constrained SGD, Algorithm 1).

    Minimises ``(1 / sum_i s_i) sum_i s_i 1/2 |y_i - W x_i - b|^2 + alpha/2 |W|^2``. Without `eta0` the size of steps
    is chosen by trial in `fit`, and is a safe one in `partial_fit`.
    """

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
        X = self._streamable(unwrapped("X", X))
        X, y = validate_data(
            self,
            X,
            unwrapped("y", y),
            accept_sparse="csr",
            dtype=number_types(X),
            multi_output=True,
            y_numeric=True,
            reset=first,
        )
        given = np.asarray(y, dtype=np.float64)
        targets = given.reshape(len(given), -1)
        if first:
            self._single, self._n_outputs = np.ndim(y) == 1, targets.shape[1]
        if targets.shape[1] != self._n_outputs:
            raise ValueError(f"y has {targets.shape[1]} columns, at first it had {self._n_outputs}")
        self._learn(X, targets, sample_weight, self.method_params(None))
        return self
