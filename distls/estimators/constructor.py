"""Constructors of estimators from their fields, and the parts of their documentation that several share."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform

from distls.methods.method import unknown_parameter

T = TypeVar("T")

_EXECUTOR = """
executor : Executor, Client, {"auto", "serial", "dask"} or None
    Where to run; None, as "auto", uses the Dask client that is open if there is one, else this process."""

_FITTED = """
Attributes
----------
classes_ : array of shape (n_classes,)
coef_ : array of shape (n_classes, n_features), of two classes (1, n_features)
intercept_ : array of shape (n_classes,), of two classes (1,)
n_features_in_ : int"""

# Substituted for %(name)s in docstrings: parameters that several estimators share.
_SHARED = {
    "stochastic": f"""
folds : int or None
    Cross-validation folds of ``alpha="path"`` (`fit` only).
alphas : str or None
    Alphas of ``alpha="path"``, such as "1:0.1:0.01".
fit_intercept : bool
class_weight : dict of label -> weight, "balanced" or None
lanes : int or None
    Models trained in parallel and averaged; the result depends on it, never on the number of workers.
shuffle : bool
    Visit rows in a random order; else in the given one.
dtype : {{"float32", "float64"}}
    Type of the weights.
passes : float
    Reads of the data.
tol : float or None
    Stop when the certificate is at most this.
warm_start : bool
    Start from the weights of the last fit.
random_state : int{_EXECUTOR}
{_FITTED}
n_iter_ : float
    Passes done by `fit`.
status_ : str
    How `fit` ended: CONVERGED, MAX_PASSES, ...
t_ : int
    Updates done by `partial_fit`.""",
    "limits": f"""
passes : float
    Reads of the data, at most.
tol : float or None
    Stop when the certificate is at most this.
warm_start : bool
    Start from the weights of the last fit.
random_state : int
    Seed of the order in which rows are stored, on which folds depend.{_EXECUTOR}
{_FITTED}
n_iter_ : float
    Passes done.
status_ : str
    How `fit` ended: CONVERGED, MAX_PASSES, ...""",
    "dual_objective": """
Minimises ``(1/n) sum_i s_i loss_i + alpha R(W)`` with n the sum of the weights s_i: sample weight times class
weight. That is scikit-learn's objective over ``C n``, with ``C = 1/(alpha n)``.""",
    "dual_strength": """
alpha : float or None
    Strength of the penalty, relative to the mean loss.
C : float or None
    Strength of the losses, 1/(alpha n). None: from alpha; neither given: 1.""",
    "dual_penalty": """
l1_ratio : float
    Share of l1 in the penalty, below 1: 0 is l2, more is elastic net.
fit_intercept : bool
intercept_scaling : float or None
    Penalise the intercept as the weight of one more feature, of this value in every row. None: not penalised.""",
    "dual_ascent": f"""
lanes : int or None
    Groups of rows trained in parallel; the result depends on it, never on the number of workers.
dtype : {{"float64", "float32"}}
    Type of the weights and duals.
passes : float
    Reads of the data, at most.
tol : float or None
    Stop when the duality gap is at most this part of the objective; None: after `passes`.
warm_start : bool
    Start from the weights of the last fit.
random_state : int{_EXECUTOR}""",
    "dual_classifier": """
Attributes
----------
classes_ : array of shape (n_classes,)
coef_ : array of shape (n_classes, n_features), of two classes (1, n_features)
intercept_ : array of shape (n_classes,), of two classes (1,)
dual_gap_ : float
    How far the objective is above the optimum, at most.
n_features_in_ : int
n_iter_ : float
    Passes done.
status_ : str
    How `fit` ended: CONVERGED, MAX_PASSES, ...
model_ : LinearModel""",
    "least_squares": f"""
fit_intercept : bool
class_weight : dict of label -> weight, "balanced" or None
lanes : int or None
    Groups of partitions read in parallel; last bits depend on it, never on the number of workers.
dtype : {{"float32", "float64"}}
    Type of features, products and weights.
random_state : int
    Seed of generated features.{_EXECUTOR}

Attributes
----------
classes_ : array of shape (n_classes,)
n_features_in_ : int
n_iter_ : float
    Passes done.
status_ : str
    How `fit` ended: CONVERGED if rounds no longer change anything, or MAX_PASSES.""",
    "executor": _EXECUTOR,
    "regressor": """
Attributes
----------
coef_ : array of shape (n_features,), or (n_outputs, n_features) where `y` had columns
intercept_ : float, or array of shape (n_outputs,)
n_features_in_ : int
n_iter_ : float
    Passes done.
status_ : str
    How `fit` ended.""",
}


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def estimator(cls: type[T]) -> type[T]:
    """Give a class a constructor that stores its fields, as scikit-learn requires, and complete its docstring.

    Fields are keyword-only unless they say otherwise; equality, hash and representation stay scikit-learn's.
    """
    made: Any = dataclass(kw_only=True, eq=False, repr=False)(cls)
    made.__init__ = _explaining(made.__init__, cls.__name__)
    if made.__doc__ is not None:
        made.__doc__ = inspect.cleandoc(made.__doc__) % {
            name: text.strip("\n") for name, text in _SHARED.items()
        }
    return made


def _explaining(init: Any, name: str) -> Any:
    """Return a constructor that says which parameter stands for one of scikit-learn's, or was meant."""
    known = list(inspect.signature(init).parameters)[1:]

    @functools.wraps(init)  # scikit-learn reads the parameters from the signature
    def checked(self: Any, *args: Any, **given: Any) -> None:
        for parameter in given:
            if parameter not in known:
                raise TypeError(unknown_parameter(parameter, name, known))
        init(self, *args, **given)

    return checked
