"""Scikit-learn-style classifiers of the stochastic methods: thin wrappers around `fit` and its streams."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from distls.estimators.arguments import labels_given, number_types
from distls.estimators.constructor import estimator
from distls.estimators.estimator_base import DatasetClassifier
from distls.estimators.optional_parts import LinearCoefficients
from distls.estimators.partial_fit import StreamingEstimator
from distls.ingestion.formats.memory_arrays import unwrapped
from distls.methods.method import Parameter
from distls.methods.parameters import ONE_BLOCK, boolean
from distls.problem import loss_of
from distls.storage.errors import ParameterError
from distls.workers.losses.loss_registry import has_probabilities


class StreamingClassifier(StreamingEstimator, LinearCoefficients, DatasetClassifier):
    """A classifier of a stochastic method, which can also learn from blocks of rows as they come."""

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
        X = self._streamable(unwrapped("X", X))
        X, y = validate_data(self, X, labels_given(y), accept_sparse="csr", dtype=number_types(X), reset=fresh)
        labels = self._expected_classes(classes)
        if getattr(self, "class_weight", None) == "balanced":
            raise ParameterError("class_weight='balanced' needs all rows at once; give weights to partial_fit")
        self._learn(X, _codes(y, labels), sample_weight, self.method_params(labels), list(range(len(labels))))
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
        if not has_probabilities(loss_of(super().method_params(None))):
            loss = getattr(self, "loss", "squared")
            remedy = "; use loss='log'" if hasattr(self, "loss") else ""
            raise ParameterError(f"loss={loss!r} has no probabilities{remedy}")
        return True


@estimator("mcid", "loss", loss="log", alpha=None)
class MCIDClassifier(StreamingClassifier):
    """Stochastic multi-class logistic regression, SVM or perceptron (MCID, Algorithms 1-4).

    Objective and scaling: see `distls.problem`.
    """


_FEATURES = tuple(p.name for p in ONE_BLOCK)


@estimator("sgd", "loss", without=(*_FEATURES, "center"), loss="log")
class StochasticClassifier(StreamingClassifier):
    """Stochastic gradient descent for any loss with per-feature adaptive steps: the method `sgd`.

    One or a few passes suffice where others need ten, usually without tuning. Objective: see `distls.problem`.
    """


@estimator("sgdqn", "loss", without=_FEATURES, loss="squared_hinge", alpha=None)
class SGDQNClassifier(StreamingClassifier):
    """Linear SVM or one-versus-rest logistic regression by SGD-QN: stochastic gradients in a diagonal metric.

    Objective: see `distls.problem`; two classes are one binary problem. Without `t0` the first steps are chosen by
    trial in `fit`, and are safe ones in `partial_fit`.
    """


_CONSTRAINED = Parameter(
    "constrained", True, boolean, "project on the models that pass through the mean point, after each step"
)


@estimator("c-adaline", "constrained", _CONSTRAINED, without=("loss", *_FEATURES), schedule=None)
class AdalineClassifier(StreamingClassifier):
    """Least-squares classification by SGD constrained to pass through the mean point (C-Adaline).

    With ``constrained=False`` it is Adaline, whose `schedule` is constant by default. Objective: see `distls.problem`;
    targets are indicators of classes. Without `eta0` the size of steps is chosen by trial in `fit`, and is a safe one
    in `partial_fit`.
    """

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
