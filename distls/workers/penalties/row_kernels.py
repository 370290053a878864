"""`row_penalty` and `row_prox` as kernels call them, for a penalty's number or for one from outside this package."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from typing import Any

from numba import types
from numba.extending import overload

from distls.workers.compilation.jit import helper, kernel
from distls.workers.penalties.penalties import NUMBERED
from distls.workers.penalties.penalty import Penalty
from distls.workers.penalties.penalty_rows import row_function


def kernel_argument(penalty: Penalty) -> int | Penalty:
    """Return the form in which kernels take a penalty."""
    kinds = [type(each) for each in NUMBERED]
    return kinds.index(type(penalty)) if type(penalty) in kinds else penalty


def row_penalty(penalty: Any, w: Any, rho: float) -> Any:
    """Return R of one row of W, float64 (m,); `penalty` is a `kernel_argument` (kernels only)."""
    raise NotImplementedError


def row_prox(penalty: Any, v: Any, mu: float, rho: float, out: Any) -> None:
    """Set `out` to ``argmin_w 1/2 |w - v|^2 + mu R(w)``; all float64 (m,) (kernels only)."""
    raise NotImplementedError


def _by_number(name: str) -> Any:
    """Return the helper of a number and its arguments that calls the function `name` of that numbered penalty."""
    # A chain of branches, since numba cannot index functions of different code.
    *others, last = [row_function(type(penalty), name) for penalty in NUMBERED]
    chosen = helper(lambda number, *args: last(*args))
    for number, function in reversed(list(enumerate(others))):
        chosen = _branch(number, function, chosen)
    return chosen


def _branch(place: int, function: Any, others: Any) -> Any:
    @helper
    def branch(number, *args):
        if number == place:
            return function(*args)
        return others(number, *args)

    return branch


_value_by_number, _prox_by_number = _by_number("row_penalty"), _by_number("row_prox")


# Inlined as numba IR: a separate function would be optimised once more with the caller that is cached on disk.


@overload(row_penalty, inline="always")
def _row_penalty_overload(penalty, w, rho):
    if isinstance(penalty, types.Integer):
        return lambda penalty, w, rho: _value_by_number(penalty, w, rho)
    function = row_function(penalty.instance_class, "row_penalty")
    return lambda penalty, w, rho: function(w, rho)


@overload(row_prox, inline="always")
def _row_prox_overload(penalty, v, mu, rho, out):
    if isinstance(penalty, types.Integer):
        return lambda penalty, v, mu, rho, out: _prox_by_number(penalty, v, mu, rho, out)
    function = row_function(penalty.instance_class, "row_prox")
    return lambda penalty, v, mu, rho, out: function(v, mu, rho, out)


@kernel
def prox_rows(penalty, v, mu, rho, out):
    """Set `out` to argmin_W 1/2 |W - V|_F^2 + mu R(W), row by row; `penalty` is a `kernel_argument`."""
    for j in range(len(v)):
        row_prox(penalty, v[j], mu, rho, out[j])
