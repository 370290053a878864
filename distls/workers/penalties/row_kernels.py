"""`row_penalty` and `row_prox` as kernels call them, for a penalty's number or for one from outside this package."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import overload

from distls.workers.compilation.jit import elementwise, elementwise_helper
from distls.workers.penalties.elasticnet import ElasticNet
from distls.workers.penalties.l1 import L1
from distls.workers.penalties.l1l2 import L1L2
from distls.workers.penalties.l1linf import L1Linf
from distls.workers.penalties.l2 import L2
from distls.workers.penalties.penalty import Array, Penalty
from distls.workers.penalties.penalty_rows import row_function
from distls.workers.penalties.sparse_group import SparseGroup

# kernels identify a penalty by its place here, which is its `number`
NUMBERED: tuple[Penalty, ...] = (L1L2(), L1(), L2(), ElasticNet(), L1Linf(), SparseGroup())

_value_0, _value_1, _value_2, _value_3, _value_4, _value_5 = (
    row_function(type(penalty), "row_penalty") for penalty in NUMBERED
)
_prox_0, _prox_1, _prox_2, _prox_3, _prox_4, _prox_5 = (
    row_function(type(penalty), "row_prox") for penalty in NUMBERED
)


def prox_rows(penalty: Penalty, v: Array, mu: float, rho: float, out: Array) -> None:
    """Set `out` to argmin_W 1/2 |W - V|_F^2 + mu R(W), row by row."""
    _prox_rows(penalty.argument, v, mu, rho, out)


def row_penalty(penalty: Any, w: Any, rho: float) -> Any:
    """Return R of one row of W, float64 (m,); `penalty` is a `Penalty.argument` (kernels only)."""
    raise NotImplementedError


def row_prox(penalty: Any, v: Any, mu: float, rho: float, out: Any) -> None:
    """Set `out` to ``argmin_w 1/2 |w - v|^2 + mu R(w)``; all float64 (m,) (kernels only)."""
    raise NotImplementedError


@elementwise_helper
def _value_by_number(number, w, rho):
    if number == 0:
        return _value_0(w, rho)
    if number == 1:
        return _value_1(w, rho)
    if number == 2:
        return _value_2(w, rho)
    if number == 3:
        return _value_3(w, rho)
    if number == 4:
        return _value_4(w, rho)
    return _value_5(w, rho)


@elementwise_helper
def _prox_by_number(number, v, mu, rho, out):
    if number == 0:
        _prox_0(v, mu, rho, out)
    elif number == 1:
        _prox_1(v, mu, rho, out)
    elif number == 2:
        _prox_2(v, mu, rho, out)
    elif number == 3:
        _prox_3(v, mu, rho, out)
    elif number == 4:
        _prox_4(v, mu, rho, out)
    else:
        _prox_5(v, mu, rho, out)


# Inlined as numba IR: a separate function would be optimised once more with the caller that is cached on disk.


@overload(row_penalty, inline="always")
def _row_penalty_overload(penalty, w, rho):
    if isinstance(penalty, types.Integer):
        return lambda penalty, w, rho: _value_by_number(penalty, w, rho)
    function = row_function(penalty.instance_class, "row_penalty")
    return lambda penalty, w, rho: function(w, rho)


@overload(row_prox, inline="always")
def _row_prox_overload(penalty, v, mu, rho, out):
    def by_number(penalty, v, mu, rho, out):
        _prox_by_number(penalty, v, mu, rho, out)

    if isinstance(penalty, types.Integer):
        return by_number
    function = row_function(penalty.instance_class, "row_prox")

    def of_penalty(penalty, v, mu, rho, out):
        function(v, mu, rho, out)

    return of_penalty


@elementwise
def _prox_rows(penalty, v, mu, rho, out):
    for j in range(len(v)):
        row_prox(penalty, v[j], mu, rho, out[j])
