"""The objective, its scaling and all shapes: the one place that defines them.

Objective::

    F(W, b) = (1 / sum_i s_i) * sum_i s_i * loss(y_i, W.T x_i + b) + alpha * R(W)

with the mean loss over rows, ``alpha`` >= 0 the papers' lambda (methods that divide by it want more than 0),
``R(W) = 1/2 ||W||_F^2`` for ``l2``, and row weights ``s_i`` = sample weight times class weight (1 where none are
given). Other penalties are sums over the rows of W too
(`distls.workers.penalties.penalty_registry`); those that are mixed of two have the
parameter ``l1_ratio``. The intercept ``b`` is not penalised, or as the weight of a constant feature B, the parameter
``intercept_scaling``: then ``R`` has ``1/2 |b/B|^2`` too.

Shapes: ``X`` (n_rows, n_features); ``W`` (n_features, n_outputs), C-ordered, so that a row of X touches
contiguous rows of W; ``b`` (n_outputs,); scores ``X @ W + b`` (n_rows, n_outputs). A column is an output: class code
c of class targets, label code c of sets of labels (``multilabel``), target number c of numbers (``continuous``). Two
classes are one column, the score of the second, and the loss is the binary form of the given one (`loss_form`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.dataset.dataset import Dataset
from distls.storage.dataset.metadata import TargetKind
from distls.storage.errors import MismatchError, ParameterError
from distls.workers.losses.binary_losses import BinaryShare
from distls.workers.losses.loss_registry import loss_named, losses_by, losses_with
from distls.workers.penalties.penalty_registry import PLAIN_PENALTY, penalties_with, penalty_named, penalty_value

_EMPTY_CLASSES = 1000  # classes without rows, as data sets may have that are like others
_L1_RATIO = 0.5  # of a mixed penalty, by default


def loss_of(params: Mapping[str, Any]) -> str:
    """Return the full name of the loss that a setting trains with."""
    if "loss" in params:
        return str(params["loss"])
    parameter = "inner" if params.get("inner") else "link"
    # `cls` has neither, and fits by least squares
    name = params.get(parameter) or "identity"
    return losses_by(parameter).get(name, name)


def loss_form(loss: str, target: str, n_classes: int, *, calibrated: bool = False, both: bool = False) -> str:
    """Return the name of the loss to train with on such targets: of two classes the binary form of the given one.

    This is the one place where two classes become one problem; with `both` they keep their columns, as in some papers
    and in earlier versions, and as they do where a loss has no such form. A model that is `calibrated` has
    probabilities for scores, which are projected onto [0, 1].
    """
    form = None if both else loss_named(loss).binary
    if target != "class" or n_classes != 2 or form is None:
        return loss
    return BinaryShare.name if calibrated else form.name


def two_column_step(loss: str, form: str) -> float:
    """Return L at which the one column of a `loss_form` moves as the two of the loss do at L = 1.

    Where both have one loss, as with the softmax, each moves and their difference twice as far.
    """
    return 1.0 if form == loss or loss_named(loss).separable else 0.5


def output_count(loss: str, n_classes: int, n_targets: int) -> int:
    """Return the number of columns of weights, from the `loss_form`."""
    return 1 if loss_named(loss).one_output else n_classes or n_targets


def penalty_of(params: Mapping[str, Any]) -> str:
    """Return the name of the penalty that a setting trains with."""
    return str(params.get("penalty", PLAIN_PENALTY))


def l1_share(penalty: str, given: float | None) -> float:
    """Return the share of l1 in a mixed penalty, 0 in others; raise ParameterError if given for others."""
    if not penalty_named(penalty).mixed:
        if given is not None:
            raise ParameterError(
                f"l1_ratio={given}: used with penalty={' or '.join(penalties_with(mixed=True))} only; leave it out"
            )
        return 0.0
    return _L1_RATIO if given is None else float(given)


@dataclass(frozen=True)
class Problem:
    """The objective and its data, validated before any partition is read."""

    dataset: Dataset
    loss: str  # Full name of the `loss_form`
    alpha: float  # NaN if the method chooses it; the fitted weights then carry it
    fit_intercept: bool
    # shape (n_classes,), or (1,) with the value one if targets are not classes; multiplies the sample weights
    class_weight: NDArray[np.float64]
    weight_scale: float  # n_rows / sum_i s_i: row weights times this have mean one
    dtype: np.dtype[Any]
    seed: int
    penalty: str = PLAIN_PENALTY  # R, by its name
    l1_ratio: float = 0.0  # Of a mixed penalty, else unused
    intercept_scaling: float | None = None  # B of a penalised intercept
    # Threads that are to work at the same time: methods have so many lanes, which fix the order of sums
    parallelism: int = 1

    @classmethod
    def of(
        cls, dataset: Dataset, params: dict[str, Any], seed: int, targets: tuple[str, ...], parallelism: int = 1
    ) -> Problem:
        """Build the problem of a setting, whose data must suit the method.

        Raises MismatchError for another kind of target, no rows, fewer than two classes or no labels, and
        ParameterError for a parameter that has no meaning for such targets.
        """
        if params.get("standardize"):
            dataset = _standardized(dataset, params)
        meta = dataset.meta
        _check_trainable(dataset, targets)
        if meta.target not in loss_named(loss := loss_of(params)).targets:
            raise _unsuitable_loss(dataset, params)
        weight = class_weights(params.get("class_weight"), dataset)
        penalty = penalty_of(params)
        total = float(np.dot(weight, meta.label_weights)) if meta.target == "class" else meta.weight_sum
        if not total > 0:
            remedy = "; give at least one class a positive weight" if meta.target == "class" else ""
            raise ParameterError(f"the row weights sum to zero{remedy}")
        return cls(
            dataset=dataset,
            loss=loss_form(
                loss,
                meta.target,
                len(meta.classes),
                both=params.get("two_columns", False),
                calibrated="basis" in params and params.get("inner", "cls") == "cls",
            ),
            alpha=math.nan if params["alpha"] == "path" else params["alpha"],
            fit_intercept=params["fit_intercept"],
            class_weight=weight,
            weight_scale=meta.n_rows / total,
            dtype=np.dtype(params["dtype"]),
            seed=seed,
            penalty=penalty,
            l1_ratio=l1_share(penalty, params.get("l1_ratio")),
            intercept_scaling=_intercept_scaling(params.get("intercept_scaling"), params["fit_intercept"], penalty),
            parallelism=parallelism,
        )

    def penalty_of(self, weights: NDArray[Any]) -> float:
        """Return R(W) of weights of shape (n_features, n_outputs), or of some of their rows."""
        return penalty_value(self.penalty, weights, self.l1_ratio)

    def penalty_of_model(self, weights: NDArray[Any], intercept: NDArray[Any]) -> float:
        """Return R(W), and what a penalised intercept adds to it."""
        own = 0.0
        if self.intercept_scaling is not None:
            own = 0.5 * float(np.square(intercept.astype(np.float64) / self.intercept_scaling).sum())
        return self.penalty_of(weights) + own

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the weights, (n_features, n_outputs)."""
        meta = self.dataset.meta
        return meta.n_features, output_count(self.loss, len(meta.classes), meta.n_targets)

    @property
    def target(self) -> TargetKind:
        """Kind of the targets: "class", "multilabel" or "continuous"."""
        return self.dataset.meta.target

    @property
    def ranks(self) -> bool:
        """Whether scores only rank a row's labels, so that a threshold must be fitted."""
        return self.target == "multilabel" and loss_named(self.loss).ranks

    @property
    def is_ridge(self) -> bool:
        """Whether this is least squares with l2 and without an intercept."""
        quadratic = loss_named(self.loss).quadratic and self.penalty_is_quadratic
        return quadratic and self.alpha > 0 and not self.fit_intercept

    @property
    def penalty_is_quadratic(self) -> bool:
        """Whether the penalty is the squares of the weights alone."""
        return penalty_named(self.penalty).quadratic

    def with_squares(self, alpha: float) -> Problem:
        """Return the problem with squares of this strength for its penalty."""
        return replace(self, alpha=alpha, penalty=PLAIN_PENALTY)

    @property
    def row_weight_by_class(self) -> NDArray[np.float64]:
        """Normalised weight of a row of each class with sample weight one, shape (n_classes,) or (1,)."""
        return self.class_weight * self.weight_scale

    @property
    def row_weights(self) -> NDArray[np.float64] | None:
        """The same for tasks; None if every row has weight one, so that kernels need no lookup."""
        by_class = self.row_weight_by_class
        plain = not self.dataset.meta.weighted and bool(np.all(by_class == 1.0))
        return None if plain else by_class


def _check_trainable(dataset: Dataset, targets: Sequence[str]) -> None:
    """Raise MismatchError for rows that nothing can be learned from, or not by a method of these targets."""
    meta = dataset.meta
    if meta.target not in targets:
        kind = {"none": "no labels"}.get(meta.target, f"{meta.target} targets")
        raise MismatchError(f"{dataset.path} has {kind}; this method needs {' or '.join(targets)} targets")
    if meta.n_rows == 0:
        raise MismatchError(f"{dataset.path} has no rows")
    if meta.target == "class" and sum(count > 0 for count in meta.label_counts) < 2:
        raise MismatchError(f"{dataset.path} has rows of only one class; at least two are needed to learn from")
    empty = meta.label_counts.count(0)
    # weights of classes that nothing is known of: their number is a mistake, or meant to do harm
    if empty > max(_EMPTY_CLASSES, meta.n_rows):
        raise MismatchError(
            f"{dataset.path}: {empty:,} of its {len(meta.classes):,} classes have no row, and it has "
            f"{meta.n_rows:,} rows; ingest its sources again, with rows of these classes or without them"
        )
    if meta.target == "multilabel" and not sum(meta.label_counts):
        raise MismatchError(f"no row of {dataset.path} has a label; at least one is needed to learn from")


def has_plain_rows(params: Mapping[str, Any]) -> bool:
    """Return whether a setting trains on the features of the rows, not on others that are generated of them."""
    return params.get("features", "none") in ("none", "original")


def _standardized(dataset: Dataset, params: Mapping[str, Any]) -> Dataset:
    """Return the view of a data set that `standardize` asks for; raise ParameterError where it has no meaning."""
    numbers = dataset.meta.target == "continuous" and not loss_named(loss_of(params)).quadratic
    reasons = {
        "sparse rows": dataset.meta.layout != "dense",
        "generated features": not has_plain_rows(params),
        "fit_intercept=false": not params["fit_intercept"],
        "intercept_scaling": params.get("intercept_scaling") is not None,
        "numbers without the squared loss": numbers,
    }
    for reason in (name for name, holds in reasons.items() if holds):
        raise ParameterError(f"standardize=true: not with {reason}; leave it out")
    return dataset.standardized


def _intercept_scaling(given: float | None, fit_intercept: bool, penalty: str) -> float | None:
    """Return B of a penalised intercept; raise ParameterError where there is nothing to penalise like the others."""
    if given is None:
        return None
    if not fit_intercept:
        raise ParameterError(
            f"intercept_scaling={given:g}: of an intercept; give fit_intercept=true too, or leave it out"
        )
    if not penalty_named(penalty).quadratic:
        raise ParameterError(f"intercept_scaling={given:g}: with penalty={PLAIN_PENALTY} only; leave it out")
    return given


def _unsuitable_loss(dataset: Dataset, params: Mapping[str, Any]) -> ParameterError:
    """Return the error of a loss that does not suit the targets, naming the suitable values."""
    target = dataset.meta.target
    name = next(name for name in ("loss", "link", "inner") if params.get(name))
    suitable = losses_with(target=target)
    values = losses_with(target=target, separable=True, stochastic=True) or suitable
    if name != "loss":
        values = tuple(value for value, loss in losses_by(name).items() if loss in suitable)
    elif "round_bytes" not in params:  # of the methods with a `loss`, those of coordinate descent
        values = losses_with(target=target, coordinate_descent=True) or values
    named = " or ".join(f"{name}={value}" for value in values)
    return ParameterError(f"{name}={params[name]}: {dataset.path} has {dataset.meta.target} targets; they need {named}")


def balanced_weights(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights of classes that make classes with these sums of sample weights count the same."""
    # scikit-learn's rule: sum_i w_i / (n_classes * w_c), with w_c the sample weight of class c
    present = counts > 0
    balanced = counts.sum() / (present.sum() * np.where(present, counts, 1.0))
    return np.where(present, balanced, 1.0)


def class_weights(given: Any, dataset: Dataset) -> NDArray[np.float64]:
    """Return one weight per class, or a single one if rows have no class.

    Given are None, "balanced" or weights by the text of labels. Raises ParameterError if a label is not a class of the
    dataset, or rows have no class.
    """
    meta = dataset.meta
    if meta.target != "class":
        if given is not None:
            raise ParameterError(
                f"class_weight: the rows of {dataset.path} have {meta.target} targets, not one class each; "
                "give the rows weights at ingest"
            )
        return np.ones(1)
    counts = np.array(meta.label_weights, dtype=np.float64)
    if given is None:
        return np.ones(len(meta.classes))
    if given == "balanced":
        return balanced_weights(counts)
    codes = {str(label): code for code, label in enumerate(meta.classes)}
    weights = np.ones(len(meta.classes))
    for label, weight in given.items():
        if label not in codes:
            raise ParameterError(f"class_weight: {label!r} is not a class of {dataset.path}")
        weights[codes[label]] = weight
    return weights
