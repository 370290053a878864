"""The dictionary G of calibrated least squares (section 2.3 of least squares revisited): powers, and functions by name.

A function maps the predictions of rows to columns of the calibration, each row by itself. The theory of Algorithm 2
asks that G spans the inverse of the link; those of the links that distls has are ready. Another is made known by
``register_basis_function(name, function)`` in every process that trains or predicts with it: models store the name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts are imported when they are first used: a prediction has none
from numpy.typing import NDArray

from distls.storage.errors import ParameterError
from distls.workers.features.generator_registry import check_name

Array = NDArray[np.float64]
BasisFunction = Callable[[Array], Array]

# Predictions are not yet projected where functions are applied to them: the inverse of a link takes those outside
# as the nearest inside (of the logit, from -6.9 to 6.9).
_MARGIN = 1e-3
# Predictions of three outputs at which a function is checked before it is registered.
_CHECKED = np.random.default_rng(0).uniform(-3.0, 4.0, (64, 3))


def _inside(values: Array) -> Array:
    return np.clip(values, _MARGIN, 1.0 - _MARGIN)


# of scipy.special, whose loops are scalar: the last bits do not depend on a value's place in an array
_functions: dict[str, BasisFunction] = {
    "log": lambda values: np.asarray(scipy.special.xlogy(1.0, np.maximum(values, _MARGIN))),
    "logit": lambda values: np.asarray(scipy.special.logit(_inside(values))),
    "probit": lambda values: np.asarray(scipy.special.ndtri(_inside(values))),
    "cauchit": lambda values: np.asarray(scipy.special.tandg(180.0 * (_inside(values) - 0.5))),
}


def basis_function_names() -> tuple[str, ...]:
    """Return the names of the functions that a basis may have."""
    return tuple(_functions)


def register_basis_function(name: str, function: BasisFunction) -> None:
    """Make a function of predictions known by a name, in this process.

    Parameters
    ----------
    name : str
        Lower-case letters, digits, ``-`` and ``_``, a letter first.
    function : callable
        Takes a float64 array of shape (n_rows, n_outputs), which it must leave alone, and returns one of shape
        (n_rows, m), finite everywhere. A row of it depends on the same row only, m on n_outputs only.

    Raises
    ------
    ValueError
        Another function has the name, or this one is not of that form.
    """
    check_name("basis function", name)
    if _functions.get(name, function) is not function:
        raise ValueError(f"there is a basis function {name} already")
    given = _CHECKED.copy()
    found = function(given)
    if not (isinstance(found, np.ndarray) and found.dtype == np.float64 and found.ndim == 2 and found.shape[1]):
        raise ValueError(f"basis function {name}: expected a float64 array with a row for each row")
    if len(found) != len(given) or not np.isfinite(found).all():
        raise ValueError(f"basis function {name}: its values are not finite, or not one row for each row")
    if not np.array_equal(given, _CHECKED):
        raise ValueError(f"basis function {name}: it changes the predictions that it is given")
    # Row by row: a function that mixes rows would make predictions depend on the batch.
    alone = np.concatenate([function(row[None].copy()) for row in given])
    if not np.allclose(alone, found, rtol=1e-12, atol=1e-12):
        raise ValueError(f"basis function {name}: a row of it depends on other rows")
    _functions[name] = function


def powers_of(values: NDArray[Any], powers: tuple[int, ...]) -> NDArray[Any]:
    """Return elementwise `powers` (increasing, > 0) of predictions (n, k), shape (n, len(powers) * k)."""
    n, k = values.shape
    out = np.empty((n, len(powers) * k), values.dtype)
    power, reached = values, 1
    for place, wanted in enumerate(powers):
        # products, not `pow`, whose last bits may depend on a value's address
        for _ in range(reached, wanted):
            power = power * values
        reached = wanted
        # A copy of the product, since the next power goes on from it.
        out[:, place * k : (place + 1) * k] = power
    return out


@dataclass(frozen=True)
class Basis:
    """The dictionary G: elementwise powers of the predictions, then the columns of functions."""

    powers: tuple[int, ...]  # increasing; 1, the identity, is the first
    functions: tuple[str, ...] = ()

    @classmethod
    def parsed(cls, text: str) -> Basis:
        """Return the basis that a text such as ``1+2+log`` names."""
        terms = text.split("+")
        powers = tuple(int(term) for term in terms if term.isdecimal())
        return cls(powers, tuple(term for term in terms if not term.isdecimal()))

    @classmethod
    def of_recipe(cls, recipe: dict[str, Any]) -> Basis:
        """Return the basis of a stored model's calibration."""
        return cls(tuple(recipe["powers"]), tuple(recipe.get("functions", ())))

    def recipe(self) -> dict[str, Any]:
        """Return what models store; no word of functions where there are none."""
        functions = {"functions": list(self.functions)} if self.functions else {}
        return {"powers": list(self.powers), **functions}

    def width(self, k: int) -> int:
        """Return the columns for k outputs."""
        # In the middle of [0, 1], where every function is defined.
        at_one = np.full((1, k), 0.5)
        return len(self.powers) * k + sum(_named(name)(at_one).shape[1] for name in self.functions)

    def columns(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return G of predictions (n, k), shape (n, width).

        Raises
        ------
        ParameterError
            A function is unknown in this process, or its values are not finite.
        """
        powers = powers_of(values, self.powers)
        if not self.functions:
            return powers
        parts = [_named(name)(values) for name in self.functions]
        for name, part in zip(self.functions, parts, strict=True):
            if not np.isfinite(part).all():
                raise ParameterError(f"basis={name}: the function is not finite at all predictions; bound it")
        return np.concatenate([powers, *parts], axis=1)


def _named(name: str) -> BasisFunction:
    if name not in _functions:
        raise ParameterError(
            f"basis={name}: no such function is known; one of another program has to be registered before "
            "(register_basis_function)"
        )
    return _functions[name]
