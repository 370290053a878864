"""Base of estimators with `partial_fit`: a stream of rows, and the model so far."""

from dataclasses import replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight

from distls.estimators.arguments import has_other_columns, rows_of
from distls.estimators.estimator_base import DatasetEstimator
from distls.methods.method_registry import method_named
from distls.problem import loss_form, loss_of, output_count
from distls.serving.fitted_model import FittedModel, fitted_model
from distls.solvers.stochastic.measured_steps import stats_of_rows
from distls.solvers.stochastic.streaming import Stream
from distls.solvers.warm_start import in_form
from distls.storage.dataset.metadata import TargetKind
from distls.storage.errors import ParameterError
from distls.storage.model.model import LinearModel
from distls.storage.rows import Partition
from distls.workers.stochastic.step_choice import needs_measurement


class StreamingEstimator(DatasetEstimator):
    """An estimator of a stochastic method, which can also learn from blocks of rows as they come."""

    def _keep(self, model: LinearModel) -> None:
        super()._keep(model)
        self._stream: Stream | None = None

    def _learn(
        self,
        X: Any,
        targets: NDArray[Any],
        sample_weight: ArrayLike | None,
        params: dict[str, Any],
        classes: list[Any] | None = None,
    ) -> None:
        """Learn from a block of checked rows; targets are codes of `classes`, or numbers if there are none."""
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float32, ensure_non_negative=True)
        part = Partition(_stored_rows(X), targets, weight)
        stream: Stream | None = getattr(self, "_stream", None)
        if vars(self).get("alpha", 0.0) is None:
            # rows decide it in `fit`, whose objective goes on; a stream alone does not know how many will come
            fitted: FittedModel | None = getattr(self, "_model", None)
            before = stream.params if stream else fitted.params if fitted else params
            params = {**params, "alpha": before["alpha"]}
        self._check_streamable(params)
        if stream is None:
            stream = self._begin(part, params, classes)
        changed = [name for name, value in params.items() if stream.params[name] != value]
        if changed:
            raise ParameterError(f"{changed[0]} was changed after the first call of partial_fit")
        if not np.isfinite(stream.learn(part)):
            raise self._diverged()
        self._stream = stream
        self._model: FittedModel | None = None  # outdated: `model_` assembles it on demand

    def _streamable(self, X: Any) -> Any:
        """Return rows of numbers as they are; refuse others, whose categories and means need all rows at once."""
        if self._mixed or has_other_columns(X, getattr(self, "kind", None)):
            raise ParameterError(
                "partial_fit takes columns of numbers that go through nothing; of others `fit` takes all rows at once, "
                "or encode them: `transform` of a model that distls.load_model returns does"
            )
        return X

    def _check_streamable(self, params: dict[str, Any]) -> None:
        if params["lanes"] not in (None, 1):
            raise ParameterError(f"lanes={params['lanes']}: partial_fit works in one lane")
        if params.get("steps") is not None:
            raise ParameterError(f"steps={params['steps']}: partial_fit learns from all rows that it is given")
        if params.get("alpha") == "path":
            raise ParameterError("alpha='path' needs all rows at once; give partial_fit a number")
        for name in ("eta0", "tolerance"):
            if params.get(name) is not None and needs_measurement(**{name: params[name]}):
                raise ParameterError(f"{name}={params[name]} needs all rows at once; leave it out with partial_fit")
        if params.get("center") == "global":
            raise ParameterError("center='global' needs all rows at once; use center='running' with partial_fit")

    def _begin(self, first: Partition, params: dict[str, Any], classes: list[Any] | None) -> Stream:
        """Return a stream that starts from zeros, or from the weights of `fit`."""
        fitted: LinearModel | None = getattr(self, "_model", None)
        target: TargetKind = "continuous" if classes is None else "class"
        n_targets = first.y.shape[1] if classes is None else 0
        loss = loss_form(loss_of(params), target, len(classes or []))
        n_outputs = output_count(loss, len(classes or []), n_targets)
        # A run of an earlier version may have two columns of two classes.
        fitted = None if fitted is None else in_form(fitted, n_outputs)
        start = None if fitted is None else (fitted.weights, fitted.intercept.astype(np.float64))
        stats = stats_of_rows(first.x, loss, target, params, self.n_features_in_, n_outputs)
        steps = method_named(self._method).load_steps()(stats, params, 1, warm=start is not None)
        by_code = params["class_weight"]
        weights = None if by_code is None else np.array([by_code[str(code)] for code in classes or []])
        self._template = _template(self._method, params, classes or [], fitted, target)
        return Stream.begin(steps, params, (stats.n_features, stats.n_outputs), weights, start)

    @property
    def model_(self) -> FittedModel:
        """The trained model; after `partial_fit` it is assembled on first use."""
        model: FittedModel | None = getattr(self, "_model", None)
        if model is None:
            predictor = self._learned.weights()
            if not np.isfinite(predictor.coefficients).all():
                raise self._diverged()
            model = self._model = fitted_model(replace(self._template, **predictor.stored()))
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


def _template(
    method: str, params: dict[str, Any], classes: list[Any], fitted: LinearModel | None, target: TargetKind
) -> LinearModel:
    """Return the model of a stream without its weights; after `fit` it keeps the metadata of that data."""
    none = np.empty((0, len(classes)))
    if fitted is not None:
        return replace(fitted, weights=none, intercept=none, params=params, dataset_fingerprint="")
    return LinearModel(
        weights=none,
        intercept=none,
        classes=classes,
        method=method,
        params=params,
        loss=loss_form(loss_of(params), target, len(classes)),
        transforms=[],
        transforms_digest="",
        dataset_fingerprint="",
        target=target,
    )


def _stored_rows(X: Any) -> Any:
    """Return rows as a dataset would hold them: sparse ones sorted, without repeats and zeros."""
    if sp.issparse(X):
        X = X.copy()
        X.sum_duplicates()
        X.eliminate_zeros()
    return rows_of(X)
