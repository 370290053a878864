"""The model that a fit starts from."""

from __future__ import annotations

from distls.problem import Problem
from distls.storage.errors import MismatchError
from distls.storage.model import LinearModel

__all__ = ["check_initial"]


def check_initial(initial: LinearModel, problem: Problem, given: str) -> None:
    """Refuse a model that cannot be started from.

    Raises
    ------
    MismatchError
    """
    meta = problem.dataset.meta
    if initial.recipe:
        raise MismatchError(
            f"init={given}: a model of {initial.method}, which is not plainly linear in the rows"
        )
    shape = initial.n_features, len(initial.intercept)
    if shape != problem.shape or list(initial.classes) != list(meta.classes):
        raise MismatchError(
            f"init={given}: a model of {shape[0]} features and {shape[1]} outputs; "
            f"{problem.dataset.path} has {problem.shape[0]} and {problem.shape[1]}, or other labels"
        )
