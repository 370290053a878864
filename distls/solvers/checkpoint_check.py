"""Validate a state that was read from disk for the fit that continues from it.

Kernels trust the shapes of its arrays, so they must be those that the solver itself would have made. A bad file gives
a message of one line; errors of the solver's own methods are not caught here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, fields
from typing import Any

import numpy as np

from distls.model_check import check_model
from distls.solvers.solver import S, Solver
from distls.storage.errors import FormatError
from distls.storage.filesystem.safe_read import making_sense
from distls.storage.model.model import LinearModel

_MOST_PASSES = 2.0**53

_SCALARS: dict[str, Callable[[Any], bool]] = {
    "int": lambda value: type(value) is int and 0 <= value < 2**63,
    "float": lambda value: type(value) in (int, float),
    "bool": lambda value: type(value) is bool,
    "str": lambda value: isinstance(value, str),
    "None": lambda value: value is None,
}


def check_state(solver: Solver[S], state: S, where: str) -> S:
    """Return a state from which `solver` can continue; `where` names the checkpoint in errors.

    Raises FormatError if types or shapes of its values are not those that the solver would have made.
    """
    first, n_features = solver.init(), solver.problem.shape[0]
    tests = {field.name: _test_of(field, getattr(first, field.name)) for field in fields(first)}
    # only the values of the file are looked at in here: an error below is never the solver's
    with making_sense(where):
        wrong = next((name for name, sound in tests.items() if not sound(getattr(state, name))), None)
        if wrong is None and not 0.0 <= state.passes < _MOST_PASSES:
            wrong = "passes"
        if wrong is None and not state.describes(n_features):
            wrong = "its features"
    if wrong is None and not solver.fits(state):
        wrong = "its arrays"
    if wrong is None and not _makes_a_model(solver, state, where):
        wrong = "the model that it makes"
    if wrong is not None:
        raise FormatError(f"{where}: no checkpoint of this fit ({wrong}); remove it to go on from one before")
    return state


def _test_of(field: Field[Any], first: Any) -> Callable[[Any], bool]:
    """Return the test of a field's values, from what it holds in the first state, of scalars from its annotation."""
    if isinstance(first, np.ndarray):
        return lambda value: isinstance(value, np.ndarray) and value.dtype == first.dtype
    if isinstance(first, tuple):
        return lambda value: [(a.dtype, a.shape) for a in value] == [(a.dtype, a.shape) for a in first]
    if isinstance(first, (list, dict)):
        return lambda value: type(value) is type(first)
    kinds = [_SCALARS[kind] for kind in str(field.type).split(" | ")]
    return lambda value: any(is_kind(value) for is_kind in kinds)


def _makes_a_model(solver: Solver[S], state: S, where: str) -> bool:
    """Return whether the weights of a state are a model of the fit's data."""
    problem, predictor = solver.problem, solver.weights(state).predictor
    model = LinearModel(
        **predictor.stored(),
        classes=problem.dataset.meta.classes,
        method="",
        loss=problem.loss,
        params={},
        transforms=[],
        transforms_digest="",
        dataset_fingerprint="",
        target=problem.target,
    )
    check_model(model, where)
    shapes = predictor.coefficients.shape, predictor.intercept.shape
    return bool(predictor.recipe) or shapes == (problem.shape, problem.shape[1:])
