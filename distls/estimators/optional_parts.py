"""Parts that some estimators have: methods of losses with probabilities, weights in scikit-learn's orientation."""

from collections.abc import Callable
from types import MethodType
from typing import Any

from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from distls.storage.errors import ParameterError
from distls.storage.model.model import LinearModel, one_of_two

_CHECK = "_check_probabilities"  # of an estimator


class WhereProbable:
    """A method that is there only for losses with probabilities; for others its absence says why, and what to do."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, estimator: Any, owner: type) -> Any:
        if estimator is None:
            return self._method
        try:
            getattr(estimator, _CHECK)()
        except ParameterError as error:
            raise AttributeError(
                f"This {owner.__name__!r} has no attribute {self._method.__name__!r}: {error}, or calibrate its "
                f"scores: sklearn.calibration.CalibratedClassifierCV({owner.__name__}(...))"
            ) from error
        return MethodType(self._method, estimator)


class LinearCoefficients:
    """Mix-in of classifiers: the weights of a plain linear model in scikit-learn's orientation."""

    @property
    def coef_(self) -> NDArray[Any]:
        """Weights, shape (n_classes, n_features), of two classes (1, n_features)."""
        return one_of_two(_model_of(self).weights.T)

    @property
    def intercept_(self) -> NDArray[Any]:
        """Intercept, shape (n_classes,), of two classes (1,)."""
        return one_of_two(_model_of(self).intercept)


def _model_of(estimator: Any) -> LinearModel:
    check_is_fitted(estimator, "model_")
    model: LinearModel = estimator.model_
    return model
