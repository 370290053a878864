"""Base of the scikit-learn-style estimators: `fit` and scores for arrays, dask arrays and datasets."""

import contextlib
import copy
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, is_regressor
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_feature_names,
    _check_y,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from distls.estimators.arguments import (
    classes_given,
    dataset_given,
    has_other_columns,
    labels_given,
    lazy_type,
    number_types,
    rows_of,
    seed_of,
    weights_of,
)
from distls.estimators.optional_parts import WhereProbable
from distls.estimators.temporary_data import folder_for_rows, stored_model
from distls.evaluation.compatibility import check_model_scores
from distls.execution import executor_of
from distls.execution.executor import Executor
from distls.facts import warn_caller
from distls.ingestion.adhoc_dataset import pass_on
from distls.ingestion.formats.memory_arrays import unwrapped
from distls.methods.method import diverged
from distls.methods.method_registry import method_named
from distls.model_check import predictor_of
from distls.serving.fitted_model import FittedModel, by_chunks, fitted_model
from distls.storage.dataset.dataset import Dataset, open_dataset
from distls.storage.errors import MismatchError, ParameterError
from distls.storage.filesystem.paths import Place
from distls.storage.model.model import LinearModel
from distls.training.fitting import fit
from distls.training.setting_fit import FitResult
from distls.workers.ingestion.formats.data_frames import column_labels, is_frame
from distls.workers.ingestion.transforms import AUTO
from distls.workers.losses.loss_registry import class_scores, decision_of
from distls.workers.prediction.predict_task import Predicted, PredictTask
from distls.workers.prediction.predictor import score_pieces, scored_as
from distls.workers.prediction.probability_map import model_probabilities
from distls.workers.rounds.block_stream import DatasetRef

_ORDINARY = 100.0  # mean square of values, up to which they need no scaling


class DatasetEstimator(BaseEstimator):
    """An estimator whose constructor has parameters of the method `_method`, by their names there."""

    _method: ClassVar[str]
    _defaults: ClassVar[dict[str, Any]]  # of the constructor's parameters
    _columns: ClassVar[bool] = False  # whether the method works on column shards
    _relative_tol: ClassVar[bool] = False  # whether `tol` is a part of the objective
    _known: ClassVar[dict[str, str]] = {
        "n_features_in_": "Number of features.",
        "n_iter_": "Passes done by `fit`.",
        "status_": "How `fit` ended: CONVERGED, MAX_PASSES, ...",
    }
    _model: FittedModel | None
    _seed = 0  # drawn once a fit
    _mixed = False  # whether rows are those of a frame with columns that are no plain numbers

    if TYPE_CHECKING:  # the parameters of the method, by their names

        def __getattr__(self, name: str) -> Any: ...

    def __sklearn_tags__(self) -> Any:
        """Declare that sparse input is accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Train.

        Parameters
        ----------
        X : array, sparse matrix, dask array or frame of shape (n_rows, n_features), dataset path or Dataset
            The chunks of a dask array are computed one at a time and stored in a temporary dataset. A frame with
            columns that are no plain numbers, or with `kind`, is read as `distls.train` reads it: categories, texts,
            dates, gaps among them; its columns are found by name in predictions.
        y : array or dask array of shape (n_rows,), for regressors also (n_rows, n_outputs)
            Not given with a dataset, which has its own labels or numbers.
        sample_weight : array of shape (n_rows,), optional
            Not given with a dataset.

        Returns
        -------
        self
        """
        self._seed = seed_of(getattr(self, "random_state", 0))
        dataset, kind = dataset_given(X, y, sample_weight), getattr(self, "kind", None)
        X = unwrapped("X", X)
        self._mixed = has_other_columns(X, kind)
        if dataset is not None:
            vars(self).pop("feature_names_in_", None)  # type: ignore[attr-defined] # of an earlier fit
            return self._fit_dataset(dataset)
        y, sample_weight = y if y is None else labels_given(y), weights_of(X, sample_weight)
        fit_rows = self._fit_lazy if hasattr(X, "__dask_graph__") else self._fit_rows
        return fit_rows(X, y, sample_weight)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each row, shape (n_rows,), or its number; (n_rows, n_outputs) where `y` had columns.

        Parameters
        ----------
        X : array, sparse matrix, dask array or frame of shape (n_rows, n_features), dataset path or Dataset
            The predictions for a dask array are a dask array, computed chunk by chunk when it is.
        """
        check_is_fitted(self, "model_")
        X = unwrapped("X", X)
        if hasattr(X, "__dask_graph__"):
            return self._predict_lazily(X)
        dataset = dataset_given(X)
        return self._of_scores(self._scores(X)) if dataset is None else self._of_blocks(self._predicted(dataset))

    def method_params(self, labels: NDArray[Any] | None) -> dict[str, Any]:
        """Return the parameters of the method; `labels` are the classes of data that hold codes."""
        chosen = method_named(self._method)
        given = {p.name: getattr(self, p.name) for p in chosen.parameters if hasattr(self, p.name)}
        if getattr(self, "as_published", False):
            usual = self._defaults
            own = {n: value for n, value in given.items() if n not in usual or value != usual[n]}
            given = {**given, **chosen.as_published(own)[0]}
        resolved = chosen.resolve(given)
        if resolved.get("loss", "") is None:
            raise ParameterError("loss=None: an estimator needs one, such as 'log' or 'hinge'")
        return resolved

    def _run(self, dataset: Dataset, params: dict[str, Any]) -> FitResult:
        """Fit within the estimator's limits, from the last weights if `warm_start`."""
        tol, rtol = getattr(self, "tol", None), None
        if self._relative_tol:
            tol, rtol = None, tol
        # `fit` reads a list as several settings to choose from
        given = {name: [value] if isinstance(value, (list, tuple)) else value for name, value in params.items()}
        own = vars(self)
        if own.get("alpha", 0.0) is None and "C" not in own and not own.get("as_published"):
            given["alpha"] = None  # the rows decide
        passes = getattr(self, "passes", None)
        if params.get("steps") is not None and passes == method_named(self._method).passes:
            passes = None  # the limit is that of steps
        warm, executor = getattr(self, "warm_start", False) and hasattr(self, "model_"), self._executor()
        with stored_model(self.model_, executor) if warm else contextlib.nullcontext() as init:
            if init is not None:
                given["init"] = str(init)
                if "start" in given:
                    given["start"] = None  # it begins at the weights of the fit before
            return fit(
                self._method, dataset, params=given, passes=passes, seed=self._seed, tol=tol, rtol=rtol,
                executor=executor, progress=False,
            )  # fmt: skip

    def _checked(self, X: Any, y: Any, **asked: Any) -> Any:
        """Return rows and targets that scikit-learn has checked; a mixed frame as it is."""
        if not self._mixed:
            return validate_data(self, X, y, accept_sparse="csr", dtype=number_types(X), **asked)
        if not len(X):
            raise ValueError("X has no rows")
        if len({*map(str, column_labels(X))}) < X.shape[1]:
            raise ValueError("X: two columns have one name; rename one of them")
        X, y = validate_data(self, X, y, skip_check_array=True)
        check_consistent_length(X, y)
        return X, _check_y(y, **asked)

    def _ingest(self, X: Any, path: Place, y: Any, sample_weight: Any, **options: Any) -> Dataset:
        """Write rows as a dataset."""
        from distls.ingestion.ingest import ingest

        if self._mixed:  # as `train` has them
            options |= {"transform": AUTO, "dtype": "float32", "kind": getattr(self, "kind", None) or ()}
        shuffle = getattr(self, "shuffle", True)
        report = ingest(
            X, path, y=y, sample_weight=sample_weight, seed=self._seed, shuffle=shuffle, columns=self._columns,
            executor="serial", row_numbers=False, progress=False, **options,
        )  # fmt: skip
        if self._mixed:
            # the keywords in them are not those of an estimator
            pass_on([f"distls.ingest: {notice}" for notice in report.notices], None)
        return open_dataset(path)

    def _begin_lazily(self, X: Any, y: Any) -> str:
        """Note the columns of a dask array or DataFrame; return the type of numbers that it is stored with."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        _check_feature_names(self, getattr(X, "_meta", X), reset=True)
        self.n_features_in_ = X.shape[1]
        return lazy_type(X)

    def _fitted(self, dataset: Dataset, labels: NDArray[Any] | None = None) -> None:
        result = self._run(dataset, self.method_params(labels))
        if result.model is None:
            size = dataset.meta.mean_square_norm / max(dataset.meta.n_features, 1)
            raise self._diverged(small_rows=size < _ORDINARY)
        for note in result.record.get("notes") or ():
            if "null directions" in note:  # one of several solutions
                warn_caller(note)
        self._keep(result.model)
        if not self._mixed:
            self.n_features_in_ = dataset.meta.n_features
        self.n_iter_ = result.passes
        self.status_ = str(result.status)

    def _diverged(self, small_rows: bool = False) -> ParameterError:
        both = "y" if small_rows else "X and y"
        return ParameterError(diverged(self.get_params(), both if is_regressor(self) else "X"))

    def _keep(self, model: LinearModel) -> None:
        self._model = model if isinstance(model, FittedModel) else fitted_model(model)

    @property
    def model_(self) -> FittedModel:
        """The trained model, as `distls.load_model` returns it."""
        model: FittedModel | None = getattr(self, "_model", None)
        if model is None:
            raise AttributeError(f"this {type(self).__name__} is not fitted")
        return model

    def _executor(self) -> Executor:
        return executor_of(getattr(self, "executor", None))

    def _lazily(self, method: str, X: Any, dtype: np.dtype[Any], n_columns: int | None) -> Any:
        """Apply a method to each chunk of a dask array; the result has `n_columns` columns, or one dimension."""
        check_is_fitted(self, "model_")
        empty = np.empty((0,) if n_columns is None else (0, n_columns), dtype)
        apply = partial(_apply, self._alone(), method, empty)
        if self._mixed and hasattr(X, "map_partitions"):
            return X.map_partitions(apply, meta=empty)
        if hasattr(X, "to_dask_array"):
            _check_feature_names(self, X._meta, reset=False)
            X = X.to_dask_array()
        if X.shape[1] != self.n_features_in_:
            name = type(self).__name__
            raise ValueError(
                f"X has {X.shape[1]} features, but {name} is expecting {self.n_features_in_} features as input."
            )
        return by_chunks(apply, X, empty)

    def _alone(self) -> Self:
        """Return a copy that can be pickled for workers: without the executor, which may hold a client."""
        alone: Any = copy.copy(self)
        alone.executor = None
        # the columns of a dask DataFrame are checked as a whole; its chunks are arrays without names
        vars(alone).pop("feature_names_in_", None)
        return alone

    def _scores(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self, "model_")
        if self._mixed or (is_frame(X) and "features" in self.model_.source.get("recipe", {})):
            return self.model_.scores(X)  # by the recipe of the training data
        X = validate_data(self, X, accept_sparse="csr", dtype=number_types(X), reset=False)
        scores = [values for _, values in score_pieces(predictor_of(self.model_), rows_of(X))]
        return np.concatenate(scores)

    @property
    def _score_dtype(self) -> np.dtype[Any]:
        check_is_fitted(self, "model_")
        calibrated = "calibration" in self.model_.recipe
        return np.dtype(np.float64) if calibrated else self.model_.weights.dtype

    def _predicted(self, dataset: Dataset) -> Iterator[Predicted]:
        """Yield the predictions of each partition of a dataset."""
        check_is_fitted(self, "model_")
        model = self.model_
        check_model_scores(dataset, model, "the model")
        task = PredictTask(DatasetRef.of(dataset), scored_as(model.loss, model.recipe), 1, False, model.target)
        return self._executor().map(task, range(len(dataset)), shared=predictor_of(model))


def set_model(estimator: DatasetEstimator, model: LinearModel) -> None:
    """Make an estimator one that was fitted elsewhere, with this model."""
    estimator._keep(model)
    estimator.n_features_in_ = model.n_features


class DatasetClassifier(ClassifierMixin, DatasetEstimator):
    """A classifier: one class a row."""

    _known: ClassVar[dict[str, str]] = {"classes_": "Classes, shape (n_classes,)."}
    classes_: NDArray[Any]

    def _fit_rows(self, X: Any, y: Any, sample_weight: Any) -> Self:
        X, y = self._checked(X, classes_given(y))
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y has one class only ({classes[0]!r}); at least two classes are needed to learn from")
        if not self._mixed and self._fit_here(X, codes, sample_weight, classes):
            return self
        with folder_for_rows(X, self._executor()) as folder:
            dtype = "" if self._mixed else X.dtype.name
            dataset = self._ingest(X, folder / "data", codes, sample_weight, dtype=dtype)
            return self._fit_dataset(dataset, labels=classes)

    def _fit_here(self, X: Any, codes: NDArray[Any], sample_weight: Any, classes: NDArray[Any]) -> bool:
        """Train without a data set, where an estimator knows how; return whether it did."""
        return False

    def _fit_lazy(self, X: Any, y: Any, sample_weight: Any) -> Self:
        """Train on dask arrays."""
        dtype = self._begin_lazily(X, y)
        with folder_for_rows(X, self._executor()) as folder:
            self._fit_dataset(self._ingest(X, folder / "data", y, sample_weight, target="class", dtype=dtype))
        numbers = getattr(y, "dtype", np.dtype(object)).kind in "fiub"
        self.classes_ = self.classes_.astype(y.dtype if numbers else self.classes_.dtype)
        return self

    def _fit_dataset(self, dataset: Dataset, labels: NDArray[Any] | None = None) -> Self:
        if dataset.meta.target in ("multilabel", "continuous"):
            raise MismatchError(
                f"{dataset.path} has {dataset.meta.target} targets; {type(self).__name__} predicts one class a row: "
                "use `distls.fit`"
            )
        self._fitted(dataset, labels)
        self.classes_ = np.array(dataset.meta.classes) if labels is None else labels
        return self

    def method_params(self, labels: NDArray[Any] | None) -> dict[str, Any]:
        """Return the parameters of the method, with class weights in terms of the codes of an in-memory dataset."""
        params = super().method_params(None)
        given = params.get("class_weight")
        if labels is None or not isinstance(given, dict):
            return params
        weights = getattr(self, "class_weight")  # noqa: B009
        unknown = [label for label in weights if label not in labels]
        if unknown:
            raise ParameterError(f"class_weight: {unknown[0]!r} is not a class of y")
        coded = {str(code): weights.get(label, 1.0) for code, label in enumerate(labels.tolist())}
        return {**params, "class_weight": coded}

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Return the scores, shape (n_rows, n_classes), or (n_rows,) for two classes as scikit-learn has it.

        Of a dask array, as a dask array.
        """
        X = unwrapped("X", X)
        if hasattr(X, "__dask_graph__"):
            columns = len(self.classes_) if len(self.classes_) > 2 else None
            return self._lazily("decision_function", X, self._score_dtype, columns)
        values = self._scores(X)
        return decision_of(self._scored, values) if len(self.classes_) == 2 else values

    def _predict_lazily(self, X: Any) -> Any:
        return self._lazily("predict", X, self.classes_.dtype, None)

    def _of_blocks(self, blocks: Iterable[Predicted]) -> NDArray[Any]:
        codes = [block.codes[:, 0] for block in blocks]
        return self.classes_[np.concatenate(codes)] if codes else self.classes_[:0]

    def _of_scores(self, scores: NDArray[Any]) -> NDArray[Any]:
        return self.classes_[class_scores(self._scored, scores).argmax(axis=1)]

    @property
    def _scored(self) -> str:
        return scored_as(self.model_.loss, self.model_.recipe)

    def _check_probabilities(self) -> bool:
        """Return True, or raise a ParameterError that says why there are no class probabilities."""
        return True

    @WhereProbable
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return class probabilities, shape (n_rows, n_classes); only where the loss gives them."""
        check_is_fitted(self, "model_")
        X = unwrapped("X", X)
        if hasattr(X, "__dask_graph__"):
            return self._lazily("predict_proba", X, np.dtype(np.float64), len(self.classes_))
        return model_probabilities(self.model_, self._scores(X).astype(np.float64))

    @WhereProbable
    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Return the logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))


def _apply(estimator: Any, method: str, empty: NDArray[Any], X: Any) -> NDArray[Any]:
    """Apply a method to a chunk, unless it is empty: scikit-learn's checks would refuse that."""
    return getattr(estimator, method)(X) if X.shape[0] else empty
