"""A loaded model that predicts rows in memory, as `distls predict` does those of files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from distls.evaluation.compatibility import check_probabilities
from distls.facts import Fact, Shown
from distls.ingestion.adhoc_dataset import row_type
from distls.model_check import columns_of, predictor_of
from distls.storage.errors import BadInputError, ParameterError
from distls.storage.filesystem.paths import Place
from distls.storage.model.model import LinearModel, one_of_two
from distls.storage.model.model import load_model as load_stored
from distls.storage.rows import CsrRows
from distls.workers.losses.loss_registry import class_scores, decision_of, loss_named
from distls.workers.prediction.predict_task import chosen_labels, to_probabilities
from distls.workers.prediction.predictor import LinearPredictor, score_pieces, scored_as
from distls.workers.prediction.probability_map import ProbabilityMap, label_cuts

if TYPE_CHECKING:
    from distls.serving.row_encoder import RowEncoder


@dataclass(frozen=True, repr=False)
class FittedModel(LinearModel, Shown):
    """A trained model. Rows go through the hashing, the categories and the transforms of its training.

    X, in each method, is one of

    - a pandas, polars or Arrow data frame, a dict of columns, a dict of values (one row), or a list of dicts (rows):
      columns are found by name; those of the label and of the weight may be there too;
    - a list, array or Series of strings, for a model of raw text; or a frame with its column of documents;
    - a NumPy array or SciPy sparse matrix of shape (n_rows, n_features_in): features before transforms, in the order of
      the training data; categories of a table as indicators, text hashed;
    - a Dask array or data frame of such rows, in all but `transform`; what is returned is then a Dask array, of which
      nothing is computed yet.

    Nothing is written, and several threads may use one model. The other attributes are those of `LinearModel`.

    Attributes
    ----------
    name : str
        Of the model, for messages.
    row_dtype : {"float32", "float64"}
        Type in which rows are stored before they are transformed and scored.
    """

    name: str = "the model"
    row_dtype: str = "float32"

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predictions of rows.

        Returns
        -------
        predictions : array of shape (n_rows,)
            Classes; ties go to the first. Of a multi-label model int64 of shape (n_rows, n_labels), ones for the labels
            that are predicted. Of a regression model numbers, (n_rows, n_outputs) if there are several.

        Raises
        ------
        BadInputError, MismatchError
            These are not rows of this model; the message names the row or the column.
        """
        if hasattr(X, "__dask_graph__"):
            return self._lazily(self.predict, X)
        scores = self.scores(X)
        if self.target == "continuous":
            scores = loss_named(self.loss).numbers(scores)
            return scores[:, 0] if scores.shape[1] == 1 else scores
        if self.target == "multilabel":
            return chosen_labels(self.loss, scores, label_cuts(self)).astype(np.int64)
        return self.classes_[class_scores(self._scored, scores).argmax(axis=1)]

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Return the scores, shape (n_rows, n_classes), or (n_rows,) for two classes: positive for the second.

        Raises
        ------
        ParameterError
            It is a regression model.
        BadInputError, MismatchError
            As `predict`.
        """
        if self.target == "continuous":
            raise ParameterError(f"decision_function: {self.name} predicts numbers; use predict")
        if hasattr(X, "__dask_graph__"):
            return self._lazily(self.decision_function, X)
        scores = self.scores(X)
        return decision_of(self._scored, scores) if self._is_binary else scores

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return probabilities, shape (n_rows, n_classes); those of labels are independent of each other.

        Raises
        ------
        ParameterError
            The loss of the model has no probabilities, and the model is not calibrated.
        BadInputError, MismatchError
            As `predict`.
        """
        if self.target == "continuous":
            raise ParameterError(f"predict_proba: {self.name} predicts numbers; use predict")
        check_probabilities(self, self.name, "predict_proba")
        if hasattr(X, "__dask_graph__"):
            return self._lazily(self.predict_proba, X)
        return to_probabilities(ProbabilityMap.of(self), self.target, self.scores(X))

    def transform(self, X: Any) -> Any:
        """Return the features of rows as they are scored, after the transforms: those that `coef_` has weights for.

        An array or `scipy.sparse.csr_matrix` of shape (n_rows, n_features); times the weights it is what each feature
        adds to the scores. Raises as `predict`.
        """
        from scipy.sparse import csr_matrix, vstack

        blocks = [
            csr_matrix((rows.data, rows.indices, rows.indptr), (len(rows.indptr) - 1, self.n_features))
            if isinstance(rows, CsrRows)
            else rows.values
            for rows in self._encoder.blocks(X)
        ]
        if not blocks:
            return np.empty((0, self.n_features), self.row_dtype)
        return vstack(blocks, format="csr") if isinstance(blocks[0], csr_matrix) else np.concatenate(blocks)

    def facts(self) -> list[Fact]:
        """Return what a reader wants to know first."""
        steps = ", ".join(step["name"] for step in self.transforms) or "none"
        method = f"{self.method} ({self.loss})"
        named: dict[str, Any] = {"method": method, "target": self.target, "classes": self.classes[:10]}
        named |= {"features": self.n_features, "columns": self._encoder.columns[:10], "transforms": steps}
        return [Fact(name, value, str) for name, value in named.items()]

    # -- attributes as scikit-learn has them ---------------------------------------------------------------

    @cached_property
    def classes_(self) -> NDArray[Any]:
        """Classes or labels, sorted, shape (n_classes,)."""
        if self.target == "continuous":
            raise AttributeError(f"{self.name} predicts numbers, it has no classes")
        kinds = {str if isinstance(label, str) else float for label in self.classes}
        # numbers and words in one array of strings would all be words
        return np.array(self.classes, dtype=object if len(kinds) > 1 else None)

    @property
    def coef_(self) -> NDArray[Any]:
        """Weights of the features after transforms, shape (n_outputs, n_features).

        For two classes (1, n_features), the weights of `decision_function`; for regression with one output
        (n_features,).
        """
        weights = self._plain("coef_").weights
        if self._is_binary:
            return one_of_two(weights.T)
        return weights[:, 0] if self._is_single else weights.T

    @property
    def intercept_(self) -> Any:
        """Intercept, shape (1,) for two classes, else (n_outputs,); a number for regression with one output."""
        intercept = self._plain("intercept_").intercept
        if self._is_binary:
            return one_of_two(intercept)
        return intercept[0] if self._is_single else intercept

    @property
    def n_features_in_(self) -> int:
        """Columns of an array X."""
        return self._encoder.width

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the columns that a data frame must have, where the training data had names."""
        if not self._encoder.columns:
            raise AttributeError(f"the columns of the data that {self.name} was trained on have no names")
        return np.array(self._encoder.columns, dtype=object)

    def get_feature_names_out(self) -> NDArray[Any]:
        """Return the names of the features that the columns of `coef_` are for, ``job=baker`` of a category."""
        from distls.storage.dataset.feature_names import unpack_names

        names = unpack_names(self.features, self.name)
        if names is None:
            raise AttributeError(f"the features of {self.name} have no names")
        return np.array(names, dtype=object)

    # -- parts ---------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        # what is cached is made again
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    def _plain(self, what: str) -> LinearModel:
        if self.recipe:
            raise AttributeError(
                f"{what}: {self.name} has generated features or a calibration, its weights are not of columns"
            )
        return self

    @property
    def _is_binary(self) -> bool:
        return self.target == "class" and len(self.classes) == 2

    @property
    def _scored(self) -> str:
        return scored_as(self.loss, self.recipe)

    @property
    def _is_single(self) -> bool:
        return self.target == "continuous" and self.n_outputs == 1

    @cached_property
    def _predictor(self) -> LinearPredictor:
        return predictor_of(self)

    @cached_property
    def _encoder(self) -> RowEncoder:
        # the formats are imported here: a fit has no use for them
        from distls.serving.row_encoder import RowEncoder

        return RowEncoder(self, self.name, self.row_dtype == "float64")

    def _lazily(self, method: Callable[[Any], NDArray[Any]], X: Any) -> Any:
        """Return what a method gives for a Dask collection; columns that do not fit are refused at once."""
        if not hasattr(X, "_meta"):
            raise BadInputError(f"X is a Dask {type(X).__name__.lower()}; give an array or data frame")
        if hasattr(X, "map_partitions"):
            return X.map_partitions(method, meta=method(X._meta))
        return by_chunks(method, X, method(np.empty((0, *X.shape[1:]), X.dtype)))

    def scores(self, X: Any) -> NDArray[Any]:
        """Return the scores of all outputs, shape (n_rows, n_outputs); raises as `predict`."""
        pieces = list(self._pieces(X))
        if not pieces:
            calibrated = "calibration" in self.recipe
            return np.empty((0, columns_of(self)), np.float64 if calibrated else self.weights.dtype)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _pieces(self, X: Any) -> Iterator[NDArray[Any]]:
        for rows in self._encoder.blocks(X):
            for _, values in score_pieces(self._predictor, rows):
                yield values


def by_chunks(method: Callable[[Any], Any], X: Any, empty: NDArray[Any]) -> Any:
    """Apply a method of rows to each chunk of a Dask array; `empty` is what it gives for no rows."""
    axes: dict[str, Any] = {} if empty.ndim == 1 else {"chunks": (X.chunks[0], empty.shape[1:])}
    if X.ndim == 1:  # texts
        axes |= {"new_axis": 1} if empty.ndim > 1 else {}
    else:
        X = X.rechunk({1: -1})  # a row is scored as a whole
        axes |= {"drop_axis": 1} if empty.ndim == 1 else {}
    return X.map_blocks(method, dtype=empty.dtype, meta=empty, **axes)


def load_model(path: str | Place, *, dtype: str | None = None) -> FittedModel:
    """Load the model of a run, or a model folder, to predict with.

    Parameters
    ----------
    path : path
    dtype : {"float32", "float64"}, optional
        Type in which rows are stored before transforms, as at ingest. Default: that of the training data.

    Returns
    -------
    FittedModel
        With `predict`, `decision_function`, `predict_proba` and the attributes of scikit-learn's linear models.

    Raises
    ------
    FormatError
        There is no model at `path`.
    CorruptDataError
        Its arrays do not match their checksums.
    ParameterError
        There is no such `dtype`.
    """
    if dtype not in (None, "float32", "float64"):
        raise ParameterError(f"dtype must be one of float32, float64, not {dtype!r}")
    return fitted_model(load_stored(path), str(path), dtype)


def fitted_model(model: LinearModel, name: str = "the model", dtype: str | None = None) -> FittedModel:
    """Return a model that predicts; messages call it `name`."""
    stored = {entry.name: getattr(model, entry.name) for entry in fields(LinearModel)}
    return FittedModel(**stored, name=name, row_dtype=dtype or row_type(model))
