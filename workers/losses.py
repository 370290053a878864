"""Multi-class losses: values and slopes in the scores of one row, and the same for whole arrays.

A loss is an empty NamedTuple: immutable, picklable, and a numba type by itself, so that a kernel which is
given one is compiled for it and cached on disk (measured: 1 % slower than no loss argument at all, against
a recompilation in every process for function arguments and closures).

A new loss needs three things: a class with `values` and `slopes` (plain NumPy, what tests compare with), one
row function under `@_row_of(Class)` (what kernels run), and a line in `LOSSES`. In row functions the score
of class c is ``scale * z[c]``. The factor stays outside, because the lazily scaled weights of MCID give
scores up to a factor: comparing raw ``z`` keeps the perceptron independent of `alpha` to the last bit.

Ties: every arg max takes the lowest class.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numba import types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from distls.workers.kernels._jit import kernel

__all__ = [
    "LOSSES",
    "SLOPES_IN_G",
    "CrammerSinger",
    "Loss",
    "Perceptron",
    "Softmax",
    "add_slopes",
    "loss_slopes",
    "loss_values",
    "row_slopes",
]

Floats = NDArray[np.floating[Any]]
Codes = NDArray[np.integer[Any]]
F = TypeVar("F", bound=Callable[..., Any])

# What a row function returns for `rival` when its slopes are not a pair +1, -1 but stand in `g`.
SLOPES_IN_G = -1


class Softmax(NamedTuple):
    """Multi-class logistic loss, ``log sum_j exp(z_j) - z_y`` (MCID paper Eq. 6, slopes Eq. 15)."""

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        top = scores.max(axis=1)
        total = np.exp(scores - top[:, None]).sum(axis=1)
        return np.log(total) + top - _of_class(scores, y)

    def slopes(self, scores: Floats, y: Codes) -> Floats:
        """Return the derivatives of each row: the probabilities, less 1 at the row's class."""
        out = np.exp(scores - scores.max(axis=1, keepdims=True))
        out /= out.sum(axis=1, keepdims=True)
        out[np.arange(len(y)), y] -= 1.0
        return out


class CrammerSinger(NamedTuple):
    """Multi-class hinge, ``max(0, 1 + max_{j != y} z_j - z_y)`` (MCID paper Eq. 9, slopes Eq. 16)."""

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        return np.maximum(0.0, 1.0 + _others(scores, y).max(axis=1) - _of_class(scores, y))

    def slopes(self, scores: Floats, y: Codes) -> Floats:
        """Return a subgradient of each row: +1 at the best other class, -1 at y, or 0 beyond the margin."""
        rival = _others(scores, y).argmax(axis=1)
        return _pairs(np.where(self.values(scores, y) > 0.0, rival, y), y, scores)


class Perceptron(NamedTuple):
    """Multi-class perceptron loss, ``max_j z_j - z_y`` (MCID paper Eq. 11, slopes Eq. 17)."""

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        return scores.max(axis=1) - _of_class(scores, y)

    def slopes(self, scores: Floats, y: Codes) -> Floats:
        """Return a subgradient of each row: +1 at the first best class, -1 at y, or 0 where they agree."""
        return _pairs(scores.argmax(axis=1), y, scores)


Loss = Softmax | CrammerSinger | Perceptron

LOSSES: dict[str, Loss] = {
    "softmax": Softmax(),
    "crammer_singer": CrammerSinger(),
    "perceptron": Perceptron(),
}


def loss_values(loss: Loss, scores: Floats, y: Codes) -> Floats:
    """Return the loss of each row, shape (n,), for scores of shape (n, k) and class codes y."""
    return loss.values(scores, y)


def loss_slopes(loss: Loss, scores: Floats, y: Codes) -> Floats:
    """Return d loss / d score, shape (n, k): the subgradient that the row functions choose."""
    return loss.slopes(scores, y)


def _of_class(scores: Floats, y: Codes) -> Floats:
    return scores[np.arange(len(y)), y]


def _others(scores: Floats, y: Codes) -> Floats:
    """Return the scores with each row's own class at -infinity."""
    out = scores.copy()
    out[np.arange(len(y)), y] = -np.inf
    return out


def _pairs(rival: Codes, y: Codes, like: Floats) -> Floats:
    """Return slopes +1 at `rival` and -1 at `y`; they cancel where both are the same class."""
    out = np.zeros_like(like)
    rows = np.arange(len(y))
    out[rows, rival] += 1.0
    out[rows, y] -= 1.0
    return out


# ---------------------------------------------------------------- one row, inside kernels

_ROW_FUNCTIONS: dict[type, Any] = {}


def _row_of(loss_type: type) -> Callable[[F], F]:
    def register(function: F) -> F:
        _ROW_FUNCTIONS[loss_type] = kernel(function)
        return _ROW_FUNCTIONS[loss_type]

    return register


def row_slopes(loss: Loss, z: Floats, scale: Any, y: Any, g: Floats) -> tuple[float, int, int]:
    """Value and slopes of one row with scores ``scale * z`` (callable from kernels and from Python).

    Parameters
    ----------
    loss : a member of `LOSSES`
    z : array of shape (k,), the scores up to the factor `scale` >= 0
    y : the row's class
    g : array of shape (k,), scratch; overwritten by losses whose slopes are not a pair

    Returns
    -------
    value : the loss, float64
    rival : where the slopes are. A class other than `y`: +1 there and -1 at `y`; `y` itself: all zero;
        `SLOPES_IN_G`: the k slopes are in `g`
    predicted : the class of the highest score
    """
    return _ROW_FUNCTIONS[type(loss)](z, scale, y, g)


@overload(row_slopes)
def _row_slopes_overload(loss, z, scale, y, g):
    function = _ROW_FUNCTIONS[loss.instance_class]

    def row_slopes_of_loss(loss, z, scale, y, g):
        return function(z, scale, y, g)

    return row_slopes_of_loss


@kernel
def _first_max(z):
    best = 0
    for c in range(1, len(z)):
        if z[c] > z[best]:
            best = c
    return best


@_row_of(Softmax)
def _softmax_row(z, scale, y, g):
    best = _first_max(z)
    total = _exp_below(z, scale, z[best], g)
    inverse = g.dtype.type(1.0 / total)
    for c in range(len(g)):
        g[c] *= inverse
    g[y] -= g.dtype.type(1.0)
    value = math.log(total) + scale * (np.float64(z[best]) - np.float64(z[y]))
    return value, SLOPES_IN_G, best


@_row_of(CrammerSinger)
def _crammer_singer_row(z, scale, y, g):
    rival = 1 if y == 0 else 0
    for c in range(rival + 1, len(z)):
        if z[c] > z[rival] and c != y:
            rival = c
    value = 1.0 + scale * (np.float64(z[rival]) - np.float64(z[y]))
    wrong = z[rival] > z[y] or (z[rival] == z[y] and rival < y)
    predicted = rival if wrong else y
    if value <= 0.0:  # not `value > 0`: a NaN must get out
        return 0.0, y, predicted
    return value, rival, predicted


@_row_of(Perceptron)
def _perceptron_row(z, scale, y, g):
    best = _first_max(z)
    return scale * (np.float64(z[best]) - np.float64(z[y])), best, best


@kernel
def add_slopes(factor, rival, y, g, out):
    """Add ``factor * slopes`` to the k values `out` as `row_slopes` returns them (for the intercept)."""
    if rival == SLOPES_IN_G:
        for c in range(len(out)):
            out[c] += factor * g[c]
    elif rival != y:
        out[rival] += factor
        out[y] -= factor


# ---------------------------------------------------------------- exp that vectorises

# 2^f on [-1/2, 1/2] by Chebyshev interpolation of degree 6; relative error 2e-9 before rounding.
_EXP2 = tuple(
    np.float32(c)
    for c in np.polynomial.chebyshev.Chebyshev.interpolate(np.exp2, 6, domain=[-0.5, 0.5])
    .convert(kind=np.polynomial.Polynomial)
    .coef
)
_LOG2_E = np.float32(1.0 / math.log(2.0))


@kernel
def _sum(g):
    """Return the sum of g, in an order that never changes.

    A loop that writes g too would come in two versions, summed in vectors or one by one, and which one runs
    would depend on how far apart the arrays happen to lie in memory: the same numbers, other last bits.
    """
    total = g.dtype.type(0.0)
    for c in range(len(g)):
        total += g[c]
    return total


def _exp_below(z, scale, top, g):
    """Set ``g = exp(scale * (z - top))`` and return its sum; `top` is the maximum of z."""
    raise NotImplementedError


@intrinsic
def _power_of_two(_context, n):
    """Return the float32 2^n of an int32 n in [-126, 127], by writing the exponent bits."""

    def build(context, builder, _signature, args):
        integer = args[0].type
        bits = builder.shl(builder.add(args[0], integer(127)), integer(23))
        return builder.bitcast(bits, context.get_value_type(types.float32))

    return types.float32(types.int32), build


@overload(_exp_below)
def _exp_below_overload(z, scale, top, g):
    """Choose: the library's exp for float64, a polynomial that LLVM vectorises for float32.

    float32: 2^t with t = n + f. The absolute error of exp(x) is at most 1.2e-7 for every x <= 0, no more than
    the rounding of the score itself costs.
    """

    def in_float64(z, scale, top, g):
        for c in range(len(g)):
            g[c] = math.exp(scale * (z[c] - top))
        return _sum(g)

    def in_float32(z, scale, top, g):
        factor = np.float32(scale) * _LOG2_E
        for c in range(len(g)):
            t = factor * (z[c] - top)
            t = np.float32(-60.0) if t < np.float32(-60.0) else t  # unlike `max`, lets a NaN through
            whole = np.floor(t + np.float32(0.5))
            f = t - whole
            p = _EXP2[5] + f * _EXP2[6]
            p = _EXP2[3] + f * (_EXP2[4] + f * p)
            p = _EXP2[0] + f * (_EXP2[1] + f * (_EXP2[2] + f * p))
            e = p * _power_of_two(np.int32(whole))
            g[c] = np.float32(0.0) if t <= np.float32(-60.0) else e
        return np.float64(_sum(g))

    return in_float32 if g.dtype == types.float32 else in_float64
