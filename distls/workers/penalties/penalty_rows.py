"""The decorators that register a penalty's row functions, and parts that several penalties share.

``@row_penalty_of(L1)`` and ``@row_prox_of(L1)``, next to the class, register its `row_penalty` and `row_prox`.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import math
from collections.abc import Callable
from typing import Any, TypeVar

from distls.workers.compilation.jit import helper
from distls.workers.penalties.penalty import Penalty

F = TypeVar("F", bound=Callable[..., Any])

_FUNCTIONS: dict[tuple[str, type[Penalty]], Any] = {}


def _registrar(name: str) -> Callable[[type[Penalty]], Callable[[F], F]]:
    return lambda penalty: lambda function: _FUNCTIONS.setdefault((name, penalty), helper(function))


# ``function(w, rho)``, R of one row of W, float64 (m,)
row_penalty_of = _registrar("row_penalty")
# ``function(v, mu, rho, out)``: set `out` to ``argmin_w 1/2 |w - v|^2 + mu R(w)``, all float64 (m,)
row_prox_of = _registrar("row_prox")


def row_function(penalty: type[Penalty], name: str) -> Any:
    """Return the compiled "row_penalty" or "row_prox" of a penalty; raise ValueError if it has none."""
    function = _FUNCTIONS.get((name, penalty))
    if function is None:
        raise ValueError(f"{penalty.__name__} needs a function under @{name}_of")
    return function


# ---------------------------------------------------------------- shared parts


@helper
def sum_of_squares(w):
    """Return ``sum_r w_r^2``."""
    total = 0.0
    for r in range(len(w)):
        total += w[r] * w[r]
    return total


@helper
def sum_of_absolutes(w):
    """Return ``sum_r |w_r|``."""
    total = 0.0
    for r in range(len(w)):
        total += abs(w[r])
    return total


@helper
def soft_threshold(v, mu, out):
    """Set `out` to v less `mu` towards zero."""
    for r in range(len(v)):
        size = abs(v[r]) - mu
        # Not `max`, which would lose a NaN.
        out[r] = math.copysign(0.0 if size <= 0.0 else size, v[r])


@helper
def scale(v, factor, out):
    """Set ``out = factor * v``."""
    for r in range(len(v)):
        out[r] = factor * v[r]


@helper
def shorten(v, mu, out):
    """Set `out` to v shortened by `mu` (Eq. 4 of the paper of block coordinate descent)."""
    norm = math.sqrt(sum_of_squares(v))
    # A row no longer than mu becomes exactly zero.
    scale(v, 0.0 if norm <= mu else 1.0 - mu / norm, out)
