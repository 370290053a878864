"""Scikit-learn-style estimators of the least-squares methods: thin wrappers of `fit`."""

from distls.estimators.constructor import estimator
from distls.estimators.estimator_base import DatasetClassifier
from distls.estimators.optional_parts import LinearCoefficients
from distls.storage.errors import ParameterError


@estimator("gls", "link", alpha=None)
class GeneralizedLeastSquaresClassifier(LinearCoefficients, DatasetClassifier):
    """Linear classifier by steps preconditioned by the second moments (Algorithm 1 of least squares revisited).

    Objective and scaling: see `distls.problem`.
    """

    def _check_probabilities(self) -> bool:
        if self.link == "identity":
            raise ParameterError("link='identity' has no probabilities; use link='softmax'")
        return True


@estimator("cls", "basis", basis=3)
class CalibratedLeastSquaresClassifier(DatasetClassifier):
    """Calibrated least squares (Algorithm 2 of least squares revisited).

    Each round fits the residuals by the rows, then the classes by powers of the predictions, and projects the
    outcome onto the probability simplex: scores are probabilities. `basis` may be a sequence, such as ``(1, 2, 3)``.
    """


@estimator("stagewise", "inner")
class StagewiseClassifier(DatasetClassifier):
    """Blocks of features fitted to the residuals one after another (Algorithm 3 of least squares revisited)."""

    def _check_probabilities(self) -> bool:
        if self.inner not in ("logistic", "logit", "cls"):
            raise ParameterError(f"inner={self.inner!r} has no probabilities; use inner='logistic'")
        return True
