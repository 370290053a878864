"""The penalties by name: functions of W that are separable over its rows.

A penalty is added by a class like those of `distls.workers.penalties.penalties` and a call of `register_penalty`, which
every process that trains with it has to run.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import ParameterError
from distls.workers.penalties import row_kernels
from distls.workers.penalties.penalties import L1, L2, NUMBERED
from distls.workers.penalties.penalty import Array, Penalty
from distls.workers.penalties.penalty_rows import row_function

_penalties: dict[str, Penalty] = {}
PENALTIES: Mapping[str, Penalty] = MappingProxyType(_penalties)
PLAIN_PENALTY = L2.name  # of methods without the parameter `penalty`


def register_penalty(penalty: Penalty) -> Penalty:
    """Make a penalty known by its name, and return it.

    Raises ValueError if another one has the name, or it lacks a row function.
    """
    if type(_penalties.get(penalty.name, penalty)) is not type(penalty):
        raise ValueError(f"there is a penalty {penalty.name} already")
    # Looked up here, so that a missing function is an error of registration and not of a worker.
    row_function(type(penalty), "row_penalty")
    row_function(type(penalty), "row_prox")
    _penalties[penalty.name] = penalty
    return penalty


for _penalty in NUMBERED:
    register_penalty(_penalty)


def _is_squares_and_l1(penalty: Penalty) -> bool:
    # Any mixture tells which parts a penalty has.
    parts = penalty.split(0.5)
    return parts is not None and isinstance(parts[0], L1) and parts[2] > 0.0


def penalty_named(name: str) -> Penalty:
    """Return the penalty of that name; raise ParameterError if there is none."""
    if name not in _penalties:
        raise ParameterError(f"penalty={name}: expected one of {', '.join(_penalties)}")
    return _penalties[name]


# what a method may require of a penalty -> the test; what one without it is said to lack
_CAPABILITIES: dict[str, tuple[Callable[[Penalty], bool], str]] = {
    "mixed": (lambda penalty: penalty.mixed, "it is not mixed of two"),
    "split": (
        lambda penalty: penalty.split(0.5) is not None,
        "its shrinkage does not add up over the rows that lack a feature; use bcd, fista or sparsa",
    ),
    "dual": (_is_squares_and_l1, "sdca's dual is that of squares, with or without l1; use bcd or fista"),
}


def penalties_with(**required: bool) -> tuple[str, ...]:
    """Return the names of the penalties with all of these properties.

    ``mixed``: `l1_ratio` mixes two penalties. ``split``: proxes of their norm add up (see `Penalty.split`). ``dual``:
    they are squares, with or without l1, whose conjugate is that of dual coordinate ascent.
    """
    return tuple(name for name in _penalties if not lacks(name, **required))


def lacks(name: str, **required: bool) -> str:
    """Return what a penalty lacks of what is required; nothing if it has all, or is not known."""
    for capability, wanted in required.items() if name in _penalties else ():
        test, without = _CAPABILITIES[capability]
        if test(_penalties[name]) != wanted:
            return without if wanted else f"it is {capability}"
    return ""


def penalty_value(name: str, w: NDArray[Any], rho: float) -> float:
    """Return R(W)."""
    # Sums of float32 weights in float64: objectives are compared to many digits.
    return penalty_named(name).value(w.astype(np.float64, copy=False), rho)


def prox_rows(name: str, v: Array, mu: float, rho: float) -> Array:
    """Return argmin_W 1/2 |W - V|_F^2 + mu R(W), row by row."""
    out = np.empty_like(v)
    row_kernels.prox_rows(row_kernels.kernel_argument(penalty_named(name)), v, mu, rho, out)
    return out
