"""A state that was read from disk, checked against the fit that will go on from it.

Its arrays go to kernels, which trust their shapes; so they must be those that the solver itself would have made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.solvers.solver import State
from distls.storage.errors import FormatError
from distls.storage.filesystem.safe_read import making_sense
from distls.storage.model.model import LinearModel
from distls.workers.features.design import design_of

__all__ = ["check_state"]

_MOST_PASSES = 2.0**53

_IS: dict[str, Callable[[Any], bool]] = {
    "int": lambda value: type(value) is int and 0 <= value < 2**63,
    "float": lambda value: type(value) in (int, float),
    "bool": lambda value: type(value) is bool,
    "str": lambda value: isinstance(value, str),
    "None": lambda value: value is None,
}


def check_state(solver: Any, state: Any, where: str) -> Any:
    """Return a state that `solver` can go on from.

    Raises
    ------
    FormatError
        Its values are not of the types, or its arrays not of the shapes, that the solver would have made.
    """
    with making_sense(where):
        wrong = _wrong_field(state, solver.init()) or _wrong_design(solver, state)
        if not 0.0 <= state.passes < _MOST_PASSES:
            wrong = "passes"
        if wrong is None and not _SHAPES[type(state).__name__](solver, state):
            wrong = "its arrays"
        if wrong is None and not _makes_a_model(solver, state, where):
            wrong = "the model that it makes"
    if wrong is not None:
        raise FormatError(f"{where}: no checkpoint of this fit ({wrong}); remove it to go on from one before")
    return state


def _makes_a_model(solver: Any, state: Any, where: str) -> bool:
    """Tell whether the weights of a state are a model of the fit's data."""
    from distls.metadata_check import check_model  # it knows of models, which are made of states

    problem, made = solver.problem, solver.weights(state)
    model = LinearModel(
        weights=made.coefficients,
        intercept=made.intercept,
        classes=problem.dataset.meta.classes,
        method="",
        loss=problem.loss,
        params={},
        transforms=[],
        transforms_digest="",
        dataset_fingerprint="",
        recipe=made.recipe,
        arrays=made.arrays,
        target=problem.target,
    )
    check_model(model, where)
    return bool(
        made.recipe or (made.coefficients.shape, made.intercept.shape) == (problem.shape, problem.shape[1:])
    )


def _wrong_field(state: State, template: State) -> str | None:
    """Return the first field of another type than in a state that the solver makes, or None."""
    for field in fields(state):
        value, wanted = getattr(state, field.name), getattr(template, field.name)
        if isinstance(wanted, tuple):
            sound = len(value) == len(wanted) and all(map(_alike, value, wanted))
        elif isinstance(wanted, (list, dict)):
            sound = type(value) is type(wanted)
        elif isinstance(wanted, np.ndarray):
            sound = isinstance(value, np.ndarray) and value.dtype == wanted.dtype
        else:
            sound = any(_IS[kind](value) for kind in str(field.type).split(" | "))
        if not sound:
            return field.name
    return None


def _alike(array: NDArray[Any], wanted: NDArray[Any]) -> bool:
    return bool(array.dtype == wanted.dtype and array.shape == wanted.shape)


def _wrong_design(solver: Any, state: Any) -> str | None:
    """Return what is wrong with the features of a state, or None."""
    recipe = getattr(state, "recipe", None)
    if not recipe or recipe["kind"] == "columns":
        return None
    from distls.metadata_check import takes

    n_features = solver.problem.shape[0]
    design = design_of({**recipe, "n_stages": 1}, state.arrays)[0]
    return None if takes(design, n_features) else "its features"


# -- shapes ----------------------------------------------------------------------------------------------


def _like_first(solver: Any, state: Any, names: tuple[str, ...] = ()) -> bool:
    """Tell whether arrays have the shapes of the first state."""
    first = solver.init()
    names = names or tuple(f.name for f in fields(first) if isinstance(getattr(first, f.name), np.ndarray))
    return all(getattr(state, name).shape == getattr(first, name).shape for name in names)


def _stochastic(solver: Any, state: Any) -> bool:
    candidates = len(solver.steps.candidates)
    width = solver.problem.shape[0]
    if state.recipe:
        width = design_of({**state.recipe, "n_stages": 1}, state.arrays)[0].width(width)
    return (
        _like_first(solver, state)
        and width == solver.shape[0]
        and 0 <= state.part < max(solver.parts, 1)
        and 1 <= state.interval <= max(solver.longest, 1)
        and (state.chosen is None or state.chosen < candidates)
        # without averaging there is nothing to average
        and bool(len(state.tail) or not (state.tail_steps or state.before_steps))
    )


def _descending(solver: Any, state: Any) -> bool:
    """Tell of a state of `gls`: p fits, r of them running."""
    n_features, k = solver.problem.shape
    m, p, r = n_features + solver._first, len(state.running), int(state.running.sum())
    own = [getattr(state, f"{name}{part}").shape for name in ("best", "base") for part in ("", "_gradient")]
    counted = ("running", "best_value", "base_value", "lipschitz", "safe", "momentum", "accepted")
    return (
        all(shape == (m, p, k) for shape in own)
        and all(getattr(state, name).shape == (p,) for name in counted)
        and state.best_held.shape == state.base_held.shape == (p, 2)
        and state.candidate.shape in ((m, r, k), (m, p, k))
        and state.ahead.shape in (state.candidate.shape, (0, 0, 0))
        and state.bound.shape == state.candidate.shape[1:2]
        and len(state.basis) in (0, m)
        and len(state.gram) in (0, m, *state.basis.shape)
        and state.alphas.ndim == 1
    )


def _proximal(solver: Any, state: Any) -> bool:
    n_features, k = solver.problem.shape
    m = n_features + solver._first
    read = state.stage == "steps"
    return (
        state.stage in ("norm", "start", "steps")
        and state.point.shape == state.base.shape == state.candidate.shape == (m, k)
        and state.gradient.shape == ((m, k) if read else (0, 0))
        and state.ahead.shape in ((m, k), (0, 0))
        and state.objectives.ndim == 1
        and (state.vectors.ndim, len(state.vectors)) == (2, m if state.stage == "norm" else 0)
    )


def _calibrated(solver: Any, state: Any) -> bool:
    n, first = state.round, solver.init()
    pairs = ((getattr(state, name), getattr(first, name)) for name in ("fits", "intercepts", "calibrations"))
    return all(array.shape == (n, *wanted.shape[1:]) for array, wanted in pairs)


def _stagewise(solver: Any, state: Any) -> bool:
    n_features, k = solver.problem.shape
    stage, widths, columns = state.stage, state.widths, state.columns
    first = solver.init()
    if widths.shape != (stage,) or np.any(widths <= 0) or np.any(widths > n_features + 2**32):
        return False
    total = sum(map(int, widths))
    calibrations = (stage, k, k) if first.calibrations.shape[1:] == (k, k) else (0, 0, 0)
    return (
        state.coefficients.shape == (total, k)
        and state.intercepts.shape == (stage, k)
        and state.calibrations.shape == calibrations
        and _like_first(solver, state, ("base", "base_intercept"))
        and columns.shape in ((0,), (total,))
        and state.order.shape in ((0,), (n_features,))
        and all(_are_places(each, n_features) for each in (columns, state.order))
        and state.sigma.shape == (len(state.sigma),) * 2
        and state.iterate.shape == state.point.shape
        and state.point.shape in ((0, 0), (len(state.sigma), k))
        and _is_block(solver, state)
    )


def _is_block(solver: Any, state: Any) -> bool:
    """Tell whether the weights of a stage under way are as many as its features, and those of others as theirs."""
    from distls.solvers.features import generators

    if not state.recipe:
        return bool(state.stage == 0 and not len(state.point))
    design, n_features = state.design, solver.problem.shape[0]
    if state.recipe["kind"] != "columns":
        width = design.width(n_features)
        if len(state.columns) or np.any(state.widths != width):
            return False
    if not len(state.point):
        return True
    now = generators.design_at(design, state.stage, state.order)
    return bool(len(state.point) == now.width(n_features) + int(solver.problem.fit_intercept))


def _are_places(numbers: NDArray[np.int64], n: int) -> bool:
    return bool(np.all(numbers >= 0) and np.all(numbers < n))


def _descending_blocks(solver: Any, state: Any) -> bool:
    n_features = solver.problem.shape[0]
    used = state.used.shape == ((n_features,) if state.refit else (0,))
    return used and _like_first(solver, state, ("weights", "intercept"))


_SHAPES: dict[str, Callable[[Any, Any], bool]] = {
    "BcdState": _descending_blocks,
    "ClsState": _calibrated,
    "GlsState": _descending,
    "ProximalState": _proximal,
    "StagewiseState": _stagewise,
    "StochasticState": _stochastic,
}
