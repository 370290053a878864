"""Penalties of block coordinate descent: separable over the rows of W, each row m weights that go to zero together.

========================  ==========================================================================
``l1l2``                  ``sum_j |W_j|_2``: rows become zero as a whole (the paper's, section 2)
``l1``                    ``sum_jr |W_jr|``
``l2``                    ``1/2 |W|_F^2``, the penalty of all other methods
``elasticnet``            ``rho sum_jr |W_jr| + (1 - rho)/2 |W|_F^2`` (section 2)
``l1linf``                ``sum_j max_r |W_jr|`` (section 4.7)
``sparse-group``          ``rho sum_jr |W_jr| + (1 - rho) sum_j |W_j|_2``: zeros within rows (section 4.7)
========================  ==========================================================================

``rho`` is the parameter `l1_ratio`. Kernels know a penalty by its number: they look at it once a block, so that one
compiled kernel serves all.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import elementwise, elementwise_helper

__all__ = [
    "MIXED",
    "Penalty",
    "conjugate",
    "penalty_value",
    "prox_rows",
    "row_penalty",
    "row_prox",
    "zero_from",
]

Array = NDArray[np.float64]


class Penalty(IntEnum):
    """Numbers of the penalties, in the order of their table."""

    L1L2 = 0
    L1 = 1
    L2 = 2
    ELASTICNET = 3
    L1LINF = 4
    SPARSE_GROUP = 5

    @classmethod
    def named(cls, name: str) -> Penalty:
        """Return the penalty of a name in the table above."""
        return cls[name.upper().replace("-", "_")]


# Penalties that are mixed of two by `l1_ratio`.
MIXED = ("elasticnet", "sparse-group")
_L1L2, _L1, _L2, _ELASTICNET, _L1LINF, _SPARSE_GROUP = (int(each) for each in Penalty)


# ---------------------------------------------------------------- whole matrices, on the driver


def penalty_value(name: str, w: NDArray[Any], rho: float) -> float:
    """Return R(W)."""
    values = w.astype(np.float64, copy=False)
    if name in ("l2", "elasticnet"):
        square = 0.5 * float(np.square(values).sum())
        return square if name == "l2" else rho * float(np.abs(values).sum()) + (1.0 - rho) * square
    if name == "l1":
        return float(np.abs(values).sum())
    if name == "l1linf":
        return float(np.abs(values).max(axis=1, initial=0.0).sum())
    group = float(np.sqrt(np.square(values).sum(axis=1)).sum())
    return group if name == "l1l2" else rho * float(np.abs(values).sum()) + (1.0 - rho) * group


def prox_rows(name: str, v: Array, mu: float, rho: float) -> Array:
    """Return argmin_W 1/2 |W - V|_F^2 + mu R(W), row by row."""
    out = np.empty_like(v)
    _prox_rows(int(Penalty.named(name)), v, mu, rho, out)
    return out


def conjugate(name: str, v: Array, alpha: float, rho: float) -> tuple[float, float]:
    """Return (largest factor c <= 1 for which the conjugate of alpha R is finite at c V, its value there).

    That of a norm is zero where the dual norm of every row is at most `alpha`, and infinite elsewhere.
    """
    if name == "l2":
        return 1.0, float(np.square(v).sum()) / (2.0 * alpha)
    if name == "elasticnet" and rho < 1.0:
        over = np.maximum(np.abs(v) - alpha * rho, 0.0)
        return 1.0, float(np.square(over).sum()) / (2.0 * alpha * (1.0 - rho))
    largest = float(_dual_norms(name, v, rho).max(initial=0.0))
    return min(1.0, alpha / largest) if largest > 0.0 else 1.0, 0.0


def zero_from(name: str, gradient: Array, rho: float) -> float:
    """Return the smallest alpha at which W = 0 is optimal, for the gradient of the loss there; infinity for l2."""
    if name == "l2" or (name == "elasticnet" and rho == 0.0):
        return math.inf
    largest = float(_dual_norms(name, gradient, rho).max(initial=0.0))
    return largest / rho if name == "elasticnet" else largest


def _dual_norms(name: str, v: Array, rho: float) -> Array:
    """Return the dual norm of each row: R at which ``v . w`` is at most 1 where R(w) is."""
    if name in ("l1", "elasticnet"):
        return np.asarray(np.abs(v).max(axis=1))
    if name == "l1linf":
        return np.asarray(np.abs(v).sum(axis=1))
    if name == "l1l2":
        return np.asarray(np.sqrt(np.square(v).sum(axis=1)))
    return _sparse_group_dual(np.abs(v), rho)


def _sparse_group_dual(size: Array, rho: float) -> Array:
    """Return the t >= 0 with ``|soft(v, t rho)|_2 = t (1 - rho)``, from above, by halving."""
    if rho == 1.0:
        return np.asarray(size.max(axis=1))
    low, high = np.zeros(len(size)), np.sqrt(np.square(size).sum(axis=1)) / (1.0 - rho)
    for _ in range(60):
        t = 0.5 * (low + high)
        over = np.sqrt(np.square(np.maximum(size - rho * t[:, None], 0.0)).sum(axis=1)) > (1.0 - rho) * t
        low, high = np.where(over, t, low), np.where(over, high, t)
    return high


# ---------------------------------------------------------------- one row, inside kernels


@elementwise_helper
def _square(w):
    total = 0.0
    for r in range(len(w)):
        total += w[r] * w[r]
    return total


@elementwise_helper
def _absolute(w):
    total = 0.0
    for r in range(len(w)):
        total += abs(w[r])
    return total


@elementwise_helper
def _soft(v, mu, out):
    """Set `out` to v less `mu` towards zero."""
    for r in range(len(v)):
        size = abs(v[r]) - mu
        out[r] = math.copysign(0.0 if size <= 0.0 else size, v[r])


@elementwise
def _scale(v, factor, out):
    for r in range(len(v)):
        out[r] = factor * v[r]


@elementwise_helper
def _group(v, mu, out):
    """Set `out` to v shortened by `mu` (Eq. 4)."""
    norm = math.sqrt(_square(v))
    _scale(v, 0.0 if norm <= mu else 1.0 - mu / norm, out)


@elementwise
def _largest(w):
    largest = 0.0
    for r in range(len(w)):
        largest = max(largest, abs(w[r]))
    return largest


@elementwise_helper
def row_penalty(kind, w, rho):
    """Return R of one row of W, float64 (k,)."""
    if kind == _L1L2:
        return math.sqrt(_square(w))
    if kind == _L1:
        return _absolute(w)
    if kind == _L2:
        return 0.5 * _square(w)
    if kind == _ELASTICNET:
        return rho * _absolute(w) + 0.5 * (1.0 - rho) * _square(w)
    if kind == _L1LINF:
        return _largest(w)
    return rho * _absolute(w) + (1.0 - rho) * math.sqrt(_square(w))


@elementwise_helper
def row_prox(kind, v, mu, rho, out):
    """Set `out` to ``argmin_w 1/2 |w - v|^2 + mu R(w)``; all float64 (k,)."""
    if kind == _L1L2:
        _group(v, mu, out)
    elif kind == _L1:
        _soft(v, mu, out)
    elif kind == _L2:
        _scale(v, 1.0 / (1.0 + mu), out)
    elif kind == _ELASTICNET:
        _soft(v, mu * rho, out)
        _scale(out, 1.0 / (1.0 + mu * (1.0 - rho)), out)
    elif kind == _L1LINF:
        _cut_off(v, mu, out)
    else:
        _soft(v, mu * rho, out)
        _group(out, mu * (1.0 - rho), out)


@elementwise
def _prox_rows(kind, v, mu, rho, out):
    for j in range(len(v)):
        row_prox(kind, v[j], mu, rho, out[j])


@elementwise_helper
def _cut_off(v, mu, out):
    """Set `out` to v less its projection onto the l1 ball of radius `mu`: sizes are cut at a common height."""
    if _absolute(v) <= mu:
        out[:] = 0.0
        return
    height = _cut(v, mu)
    for r in range(len(v)):
        out[r] = math.copysign(min(abs(v[r]), height), v[r])


@elementwise
def _cut(v, mu):
    """Return the height above which sizes sum to `mu`: it rises as those below are left out (Michelot)."""
    height, counted = -1.0, len(v) + 1
    while True:
        total, count = 0.0, 0
        for r in range(len(v)):
            size = abs(v[r])
            if size > height:
                total += size
                count += 1
        if count == counted:
            return height
        height, counted = (total - mu) / count, count
