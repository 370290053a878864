"""The penalties by name: functions of W that are separable over its rows.

A penalty is added by a file like `distls.workers.penalties.l1` and a call of `register_penalty`, which every process
that trains with it has to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.errors import ParameterError
from distls.workers.penalties import row_kernels
from distls.workers.penalties.penalty import Array, Penalty
from distls.workers.penalties.penalty_rows import row_function

_penalties: dict[str, Penalty] = {}
PENALTIES: Mapping[str, Penalty] = MappingProxyType(_penalties)


def register_penalty(penalty: Penalty) -> Penalty:
    """Make a penalty known by its name, and return it.

    Raises ValueError if another one has the name, or it lacks a row function.
    """
    if type(_penalties.get(penalty.name, penalty)) is not type(penalty):
        raise ValueError(f"there is a penalty {penalty.name} already")
    row_function(type(penalty), "row_penalty")
    row_function(type(penalty), "row_prox")
    _penalties[penalty.name] = penalty
    return penalty


for _penalty in row_kernels.NUMBERED:
    register_penalty(_penalty)


def penalty_named(name: str) -> Penalty:
    """Return the penalty of that name; raise ParameterError if there is none."""
    if name not in _penalties:
        raise ParameterError(f"penalty={name}: expected one of {', '.join(_penalties)}")
    return _penalties[name]


def penalties_with(*, mixed: bool | None = None, split: bool | None = None) -> tuple[str, ...]:
    """Return the names of the penalties with these properties; None does not restrict them.

    `mixed`: `l1_ratio` mixes two penalties. `split`: proxes of their norm add up (see `Penalty.split`).
    """
    return tuple(
        name
        for name, penalty in _penalties.items()
        if mixed in (None, penalty.mixed) and split in (None, penalty.split(0.5) is not None)
    )


def penalty_value(name: str, w: NDArray[Any], rho: float) -> float:
    """Return R(W)."""
    return penalty_named(name).value(w.astype(np.float64, copy=False), rho)


def prox_rows(name: str, v: Array, mu: float, rho: float) -> Array:
    """Return argmin_W 1/2 |W - V|_F^2 + mu R(W), row by row."""
    out = np.empty_like(v)
    row_kernels.prox_rows(penalty_named(name), v, mu, rho, out)
    return out
