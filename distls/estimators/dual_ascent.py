"""Scikit-learn-style estimators of dual coordinate ascent: the optimum, to a relative duality gap."""

import math
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from distls.estimators.constructor import estimator
from distls.estimators.estimator_base import DatasetClassifier, DatasetEstimator, set_model
from distls.estimators.optional_parts import LinearCoefficients
from distls.estimators.regressors import DatasetRegressor
from distls.facts import warn_caller
from distls.methods.default_losses import OF_NUMBERS
from distls.methods.method import Parameter
from distls.methods.parameters import number
from distls.methods.requirements import loss_with
from distls.problem import balanced_weights, class_weights, loss_form, output_count
from distls.request import plain
from distls.solvers.elastic_net import elastic_net_optimum
from distls.solvers.lbfgs import MOST_READS, Optimum, RowsInMemory, are_few, find_optimum, is_solved
from distls.solvers.status import Status
from distls.storage.dataset.dataset import Dataset
from distls.storage.dataset.metadata import TargetKind
from distls.storage.errors import ParameterError
from distls.storage.model.model import LinearModel
from distls.storage.rows import dense_of
from distls.training.fit_warnings import guessing_warning
from distls.training.setting_fit import FitResult, source_of
from distls.workers.losses.loss_registry import loss_named
from distls.workers.penalties.penalty_registry import PLAIN_PENALTY


def _is_number(value: Any, least: float, most: float) -> bool:
    return isinstance(plain(value), (int, float)) and least <= value <= most


class _DualAscent(DatasetEstimator):
    """An estimator whose `tol` is a relative duality gap."""

    _relative_tol = True

    def _run(self, dataset: Dataset, params: dict[str, Any]) -> FitResult:
        mixed = {"penalty": "elasticnet", "l1_ratio": self.l1_ratio} if self.l1_ratio != 0.0 else {}
        result = super()._run(dataset, {**params, "l1_ratio": None, **mixed})
        certificate = result.record.get("certificate")
        self._gap = None if certificate is None else float(certificate["value"])
        return result

    def _is_exact(self, l1_ratio: float) -> bool:
        """Return whether there is an exact method for this share of l1."""
        return l1_ratio == 0.0

    def _loss_of(self) -> str:
        """Return the full name of the loss."""
        return str(self.loss)

    def _fitted(self, dataset: Dataset, labels: NDArray[Any] | None = None) -> None:
        if not (self._mixed and self._fit_few(dataset, labels)):
            super()._fitted(dataset, labels)

    def _fit_few(self, dataset: Dataset, labels: NDArray[Any] | None) -> bool:
        """Find the optimum of few rows as those of an array, once a recipe has made them numbers; else return False."""
        meta, n_classes = dataset.meta, 0 if labels is None else len(labels)
        self.method_params(labels)  # which refuses what cannot be
        if not self._may_fit_here(np.empty(0)) or bool(n_classes) == (meta.target == "continuous"):
            return False
        form = loss_form(self._loss_of(), meta.target, n_classes)
        if not are_few(meta.n_rows, meta.n_features, output_count(form, n_classes, 1), loss_named(form)):
            return False
        parts = [dataset.read(index) for index in range(len(dataset))]
        X = np.concatenate([dense_of(part.x, meta.n_features, np.float64) for part in parts])
        y, sample = np.concatenate([part.y for part in parts]), None
        if meta.weighted:
            sample = np.concatenate([part.sample_weight for part in parts])
        columns = self.n_features_in_  # those of the frame, not of its features
        if not self._solved_here(X, y, sample, labels):
            return False
        self.n_features_in_ = columns
        self._keep(replace(self.model_, **source_of(dataset)))
        return True

    def _may_fit_here(self, X: Any) -> bool:
        """Return whether nothing is asked for that only dual ascent does, and rows are dense and in memory."""
        plain = self._is_exact(self.l1_ratio) and self.intercept_scaling is None and self.lanes is None
        first = not (self.warm_start and hasattr(self, "model_"))
        limits = _is_number(self.passes, MOST_READS, math.inf) and _is_number(self.tol, 0.0, 1.0)
        return bool(plain and first and limits and isinstance(X, np.ndarray) and self.alpha != "path")

    def _strength(self, total: float, params: dict[str, Any]) -> float:
        """Return alpha; `total` is the sum of the rows' weights."""
        return float(params["alpha"])

    def _solved_here(self, X: Any, y: NDArray[Any], sample_weight: Any, labels: NDArray[Any] | None) -> bool:
        """Find and keep the optimum of few dense rows in memory; return False for what is left to dual ascent."""
        if not self._may_fit_here(X):
            return False
        given, loss = self.method_params(labels), self._loss_of()
        n_classes = 0 if labels is None else len(labels)
        codes = y if n_classes else np.zeros(len(y), np.int32)
        weights = row_weights(codes, sample_weight, given.get("class_weight"))
        if weights is None or given["dtype"] != "float64":
            return False
        alpha = self._strength(float(weights.sum()), given)
        target: TargetKind = "class" if n_classes else "continuous"
        form = loss_form(loss, target, n_classes)
        problem = RowsInMemory(
            np.asarray(X, np.float64),
            y,
            weights / weights.mean(),
            loss_named(form),
            output_count(form, n_classes, y.shape[-1]),
            alpha,
            given["fit_intercept"],
        )
        if not is_solved(problem):
            return False
        penalty: dict[str, Any] = {"penalty": PLAIN_PENALTY, "l1_ratio": None}
        if self.l1_ratio == 0.0:
            found = find_optimum(problem, float(self.tol))
        else:
            found = elastic_net_optimum(problem, self.l1_ratio, float(self.tol))
            penalty = {"penalty": "elasticnet", "l1_ratio": self.l1_ratio}
        if found is None:
            return False
        params = {**given, "loss": loss, "alpha": alpha, **penalty}
        self._gap = found.gap
        keep_optimum(self, found, self._method, params, form, n_classes, X)
        if labels is not None and sample_weight is None:
            warn_of_guessing(self.model_, problem, labels)
        return True

    @property
    def dual_gap_(self) -> float | None:
        """How far the objective is above the optimum, at most; see `distls.problem` for the objective."""
        return getattr(self, "_gap", None)


class OfCost(DatasetEstimator):
    """A classifier that takes the strength of its penalty as scikit-learn's do."""

    def _loss_of(self) -> str:
        """Return the full name of the loss."""
        return str(self.loss)

    def _run(self, dataset: Dataset, params: dict[str, Any]) -> FitResult:
        weights = class_weights(params["class_weight"], dataset)
        total = float(weights @ np.asarray(dataset.meta.label_weights))
        chosen = {"loss": self._loss_of(), "alpha": self._strength(total, params)}
        return super()._run(dataset, {**params, **chosen})

    def method_params(self, labels: NDArray[Any] | None) -> dict[str, Any]:
        """Return the parameters of the method; `labels` are the classes of data that hold codes."""
        try:
            self._loss_of()
        except ValueError as error:
            raise ParameterError(f"loss={self.loss!r}: {error}") from None
        if self.alpha is not None and self.C is not None:
            raise ParameterError(
                f"alpha={self.alpha} and C={self.C}: they say the same, C = 1/(alpha n); give one of them"
            )
        if self.C is not None and not (self.C > 0.0 and np.isfinite(self.C)):
            raise ParameterError(f"C={self.C}: must be greater than 0 and finite")
        return super().method_params(labels)

    def _strength(self, total: float, params: dict[str, Any]) -> float:
        """Return alpha; from C by the sum of the rows' weights, as if weights were numbers of equal rows."""
        if self.alpha is not None:
            return self.alpha
        return 1.0 / ((1.0 if self.C is None else self.C) * total) if total > 0.0 else params["alpha"]


STRENGTH = (
    Parameter("alpha", None, number(above=0.0), "strength of the penalty, relative to the mean loss; default: from C"),
    Parameter("C", None, number(above=0.0), "strength of the losses, 1/(alpha n); default: from alpha; of neither: 1"),
)


class _DualClassifier(OfCost, _DualAscent, LinearCoefficients, DatasetClassifier):
    """A classifier of dual ascent."""

    _probabilities: ClassVar[bool]  # whether its losses have them

    def _loss_of(self) -> str:
        """Return the full name of the loss."""
        # one problem a class, except that several probabilities are best made together
        return loss_with(
            dual=True, quadratic=False, probabilities=self._probabilities, separable_first=not self._probabilities
        )(self.loss)

    def _fit_here(self, X: Any, codes: NDArray[Any], sample_weight: Any, classes: NDArray[Any]) -> bool:
        """Find the optimum of few dense rows in memory; what is asked for in another way is left to dual ascent."""
        if not self._solved_here(X, codes.astype(np.int32), sample_weight, classes):
            return False
        self.classes_ = classes
        return True


_OPTIMUM: dict[str, Any] = {
    "l1_ratio": 0.0, "dtype": "float64", "passes": 1000, "tol": 1e-6,
}  # fmt: skip


@estimator("sdca", "loss", *STRENGTH, without=("penalty",), loss="log", **_OPTIMUM)
class DualLogisticRegression(_DualClassifier):
    """Logistic regression at its optimum, as ``LogisticRegression`` of scikit-learn has it.

    Minimises ``(1/n) sum_i s_i loss_i + alpha R(W)`` with n the sum of the weights s_i: sample weight times class
    weight. That is scikit-learn's objective over ``C n``, with ``C = 1/(alpha n)``. The loss is "log", multinomial, or
    "ovr_log", one problem a class against the rest; two classes are one binary problem with both.
    """

    _probabilities = True


@estimator("sdca", "loss", *STRENGTH, without=("penalty",), loss="squared_hinge", **_OPTIMUM)
class DualLinearSVC(_DualClassifier):
    """Linear SVM at its optimum, as ``LinearSVC`` of scikit-learn has it, whose intercept is always penalised.

    Minimises ``(1/n) sum_i s_i loss_i + alpha R(W)`` with n the sum of the weights s_i: sample weight times class
    weight. That is scikit-learn's objective over ``C n``, with ``C = 1/(alpha n)``; but the squared hinge of more
    than two classes has a factor 1/2 here: for it C is twice scikit-learn's. The loss is "squared_hinge" or "hinge", of
    one problem a class against the rest, or "crammer_singer"; two classes are one binary problem with all.
    """

    _probabilities = False

    def _check_probabilities(self) -> bool:
        raise ParameterError(f"loss={self.loss!r} has no probabilities; use DualLogisticRegression")


_ALPHA = Parameter("alpha", 1e-5, number(above=0.0), "strength of the penalty, relative to the mean loss")


@estimator("sdca", "alpha", _ALPHA, without=("loss", "penalty", "class_weight"), **_OPTIMUM)
class DualRidge(_DualAscent, DatasetRegressor):
    """Ridge or elastic-net regression with one or several outputs, at its optimum, for wide sparse rows.

    Minimises ``(1 / sum_i s_i) sum_i s_i 1/2 |y_i - W x_i - b|^2 + alpha R(W)``: scikit-learn's ``Ridge`` with
    ``alpha * sum_i s_i``, and its ``ElasticNet`` with the same `alpha` and `l1_ratio`.
    """

    loss: ClassVar[str] = OF_NUMBERS

    def _is_exact(self, l1_ratio: float) -> bool:
        return _is_number(l1_ratio, 0.0, 1.0) and l1_ratio < 1.0

    def _fit_numbers(self, X: Any, y: Any, sample_weight: Any, dtype: str) -> Self:
        """Find the optimum of few dense rows in memory; what is asked for in another way is left to dual ascent."""
        self.method_params(None)  # which refuses what cannot be
        if not self._mixed:
            numbers = np.asarray(y, np.float64).reshape(len(y), -1) if self._may_fit_here(X) else y
            if self._solved_here(X, numbers, sample_weight, None):
                self._single = np.ndim(y) == 1
                return self
        return super()._fit_numbers(X, y, sample_weight, dtype)


def keep_optimum(
    estimator: DatasetEstimator, found: Optimum, method: str, params: Any, form: str, n_classes: int, X: Any
) -> None:
    """Make an estimator that of an optimum of rows in memory; `form` is the loss, without classes one of numbers."""
    # as of a data set of these rows
    wide = {"dtype": "float64"} if X.dtype == np.float64 else {}
    target: TargetKind = "class" if n_classes else "continuous"
    model = LinearModel(
        np.ascontiguousarray(found.weights),
        found.intercept,
        classes=list(range(n_classes)),
        method=method,
        loss=form,
        params=params,
        transforms=[],
        transforms_digest="",
        dataset_fingerprint="",
        source={"format": "memory", "files": [], **wide},
        target=target,
    )
    set_model(estimator, model)
    estimator.n_iter_, estimator.status_ = float(found.reads), str(Status.CONVERGED)


def warn_of_guessing(model: LinearModel, problem: RowsInMemory, classes: NDArray[Any]) -> None:
    """Judge a fit without weights of rows to the codes of classes (n_classes,) as `distls.fit` does."""
    counts, n_rows = np.bincount(problem.y), len(problem.y)
    scores = problem.x @ model.weights + model.intercept
    error = float((problem.loss.of_classes(scores).argmax(axis=1) != problem.y).mean())
    guessed = float(n_rows - counts.max()) / n_rows
    warning = guessing_warning(error, guessed, "training rows", classes.tolist()[counts.argmax()])
    if warning is not None:
        warn_caller(warning)


def row_weights(codes: NDArray[Any], sample_weight: Any, by_class: Any) -> NDArray[np.float64] | None:
    """Return the weight of each row, None where they have to be refused; `by_class` are those of codes, as text."""
    sample = np.ones(len(codes)) if sample_weight is None else np.asarray(sample_weight)
    if sample.shape != (len(codes),) or sample.dtype.kind not in "fiub":
        return None
    sums = np.asarray(np.bincount(codes, sample), np.float64)
    of_class = np.ones(len(sums))
    if by_class is not None:
        balanced = by_class == "balanced"
        of_class = balanced_weights(sums) if balanced else np.array([by_class[str(c)] for c in range(len(sums))])
    weights = of_class[codes] * sample
    valid = np.isfinite(weights).all() and (sample >= 0).all() and (of_class * sums > 0.0).all()
    return weights if valid else None
