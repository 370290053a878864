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

from distls.workers.compilation.jit import helper

__all__ = [
    "BINARY_LOSSES",
    "LOG_LOSSES",
    "LOSSES",
    "SLOPES_IN_G",
    "BinaryHinge",
    "BinaryLog",
    "BinarySquaredHinge",
    "CrammerSinger",
    "LogOfProbability",
    "Loss",
    "MulticlassSquaredHinge",
    "MultitaskSquaredHinge",
    "NormalizedSigmoids",
    "OvrHinge",
    "OvrLog",
    "OvrSquaredHinge",
    "Perceptron",
    "Softmax",
    "Squared",
    "add_slopes",
    "code_of",
    "loss_slopes",
    "loss_values",
    "probabilities",
    "row_slopes",
    "target_slopes",
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


class OvrHinge(NamedTuple):
    """One-versus-rest hinge, ``sum_c max(0, 1 - t_c z_c)`` with t_c = 1 for the row's class, else -1."""

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        return np.maximum(0.0, 1.0 + _against(scores, y)).sum(axis=1)

    def slopes(self, scores: Floats, y: Codes) -> Floats:
        """Return a subgradient of each row: -t_c for every class within its margin, 0 beyond it."""
        return _against((1.0 + _against(scores, y) > 0.0).astype(scores.dtype), y)


class OvrSquaredHinge(NamedTuple):
    """One-versus-rest squared hinge, ``sum_c 1/2 max(0, 1 - t_c z_c)^2`` (the loss of the SGD-QN paper, section 6)."""

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        return 0.5 * np.square(np.maximum(0.0, 1.0 + _against(scores, y))).sum(axis=1)

    def slopes(self, scores: Floats, y: Codes) -> Floats:
        """Return the derivatives of each row: ``-t_c max(0, 1 - t_c z_c)``."""
        return _against(np.maximum(0.0, 1.0 + _against(scores, y)), y)


class OvrLog(NamedTuple):
    """One-versus-rest logistic loss, ``sum_c log(1 + exp(-t_c z_c))`` with t_c = 1 for the row's class, else -1."""

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        return np.logaddexp(0.0, _against(scores, y)).sum(axis=1)

    def slopes(self, scores: Floats, y: Codes) -> Floats:
        """Return the derivatives of each row: the sigmoids of the scores, less 1 at the row's class."""
        out = np.exp(-np.logaddexp(0.0, -scores))
        out[np.arange(len(y)), y] -= 1.0
        return out


class NormalizedSigmoids(NamedTuple):
    """``-log p_y`` for p_c = sigmoid(z_c) / sum_j sigmoid(z_j): how `OvrLog`'s probabilities are scored.

    These are scikit-learn's one-versus-rest probabilities. Nothing is trained with it: it has no slopes.
    """

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the log loss of each row."""
        logs = -np.logaddexp(0.0, -scores)
        return LOSSES["softmax"].values(logs, y)


class LogOfProbability(NamedTuple):
    """``-log z_y`` for scores that are probabilities already, infinite where that is zero.

    How models that end in a projection onto the simplex are scored. Nothing is trained with it: it has no slopes.
    """

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the log loss of each row."""
        with np.errstate(divide="ignore"):
            return -np.log(_of_class(scores, y))


class Squared(NamedTuple):
    """Squared distance to the indicator of the row's class, ``1/2 sum_c (z_c - [c = y])^2``."""

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        return 0.5 * np.square(self.slopes(scores, y)).sum(axis=1)

    def slopes(self, scores: Floats, y: Codes) -> Floats:
        """Return the derivatives of each row: the scores, less 1 at the row's class."""
        out = scores.copy()
        out[np.arange(len(y)), y] -= 1.0
        return out


class MulticlassSquaredHinge(NamedTuple):
    """Squared slacks of all rivals, ``sum_{j != y} max(0, 1 + z_j - z_y)^2`` (BCD paper Eq. 2, slopes Eq. 5)."""

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        return np.square(_slacks(scores, y)).sum(axis=1)

    def slopes(self, scores: Floats, y: Codes) -> Floats:
        """Return the derivatives of each row: twice the slacks, and less their sum at the row's class."""
        out = 2.0 * _slacks(scores, y)
        out[np.arange(len(y)), y] = -out.sum(axis=1)
        return out


class MultitaskSquaredHinge(NamedTuple):
    """One-versus-rest, ``sum_c max(0, 1 - t_c z_c)^2`` without a 1/2 (BCD paper Eq. 11, slopes Eq. 13)."""

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        return 2.0 * LOSSES["ovr_squared_hinge"].values(scores, y)

    def slopes(self, scores: Floats, y: Codes) -> Floats:
        """Return the derivatives of each row: ``-2 t_c max(0, 1 - t_c z_c)``."""
        return 2.0 * LOSSES["ovr_squared_hinge"].slopes(scores, y)


class BinaryHinge(NamedTuple):
    """`OvrHinge` of two classes with a single output.

    With two classes the outputs of one-versus-rest are each other's negative: one of them, of class 1, is enough.
    Scores are (n, 1), the value is that of both outputs, the slope that of the one. Class 0 is predicted at zero.
    """

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of both outputs."""
        return LOSSES["ovr_hinge"].values(_both(scores), y)

    def slopes(self, scores: Floats, y: Codes) -> Floats:
        """Return the derivatives of the single output's loss, shape (n, 1)."""
        return LOSSES["ovr_hinge"].slopes(_both(scores), y)[:, 1:]


class BinarySquaredHinge(NamedTuple):
    """`OvrSquaredHinge` of two classes with a single output."""

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of both outputs."""
        return LOSSES["ovr_squared_hinge"].values(_both(scores), y)

    def slopes(self, scores: Floats, y: Codes) -> Floats:
        """Return the derivatives of the single output's loss, shape (n, 1)."""
        return LOSSES["ovr_squared_hinge"].slopes(_both(scores), y)[:, 1:]


class BinaryLog(NamedTuple):
    """`OvrLog` of two classes with a single output."""

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of both outputs."""
        return LOSSES["ovr_log"].values(_both(scores), y)

    def slopes(self, scores: Floats, y: Codes) -> Floats:
        """Return the derivatives of the single output's loss, shape (n, 1)."""
        return LOSSES["ovr_log"].slopes(_both(scores), y)[:, 1:]


Loss = (
    Softmax
    | CrammerSinger
    | Perceptron
    | OvrHinge
    | OvrSquaredHinge
    | OvrLog
    | Squared
    | MulticlassSquaredHinge
    | MultitaskSquaredHinge
)

LOSSES: dict[str, Loss] = {
    "softmax": Softmax(),
    "crammer_singer": CrammerSinger(),
    "perceptron": Perceptron(),
    "ovr_hinge": OvrHinge(),
    "ovr_squared_hinge": OvrSquaredHinge(),
    "ovr_log": OvrLog(),
    "squared": Squared(),
    "multiclass_squared_hinge": MulticlassSquaredHinge(),
    "multitask_squared_hinge": MultitaskSquaredHinge(),
}

# Of one output, for data of two classes.
BINARY_LOSSES: dict[str, BinaryHinge | BinarySquaredHinge | BinaryLog] = {
    "ovr_hinge": BinaryHinge(),
    "ovr_squared_hinge": BinarySquaredHinge(),
    "ovr_log": BinaryLog(),
}

# What scores the probabilities of a model trained with a loss; a loss that is not here has none. "simplex" is no
# loss but says that scores are probabilities.
LOG_LOSSES: dict[str, Softmax | NormalizedSigmoids | LogOfProbability] = {
    "softmax": Softmax(),
    "ovr_log": NormalizedSigmoids(),
    "simplex": LogOfProbability(),
}


def probabilities(loss: str, scores: Floats) -> Floats:
    """Overwrite scores (n, k) by the class probabilities of a model trained with `loss`, and return them.

    Parameters
    ----------
    loss : a name in `LOG_LOSSES`

    Notes
    -----
    The softmax of the scores; for ``ovr_log`` that of the sigmoids' logarithms, which are the sigmoids divided by
    their sum even where all of them are too small to be written.
    """
    if loss not in LOG_LOSSES:
        raise ValueError(f"{loss} has no probabilities")
    if loss == "simplex":
        return scores
    if loss == "ovr_log":
        np.negative(np.logaddexp(0.0, -scores), out=scores)
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores


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


def _slacks(scores: Floats, y: Codes) -> Floats:
    """Return ``max(0, 1 + z_c - z_y)``, zero at each row's own class."""
    out = np.maximum(0.0, 1.0 + scores - _of_class(scores, y)[:, None])
    out[np.arange(len(y)), y] = 0.0
    return out


def _both(scores: Floats) -> Floats:
    return np.hstack([-scores, scores])


def _against(values: Floats, y: Codes) -> Floats:
    """Return ``-t_c * values``: negated at each row's own class."""
    out = values.copy()
    out[np.arange(len(y)), y] *= -1.0
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
        _ROW_FUNCTIONS[loss_type] = helper(function)
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


def target_slopes(loss: Loss, z: Floats, scale: Any, y: Any, i: int, g: Floats) -> tuple[float, int, int]:
    """Value and slopes of row i, whose target is the class y[i] or the k numbers y[i] (squared loss).

    As `row_slopes`, and callable from kernels only; the predicted class of numbers is -1, and their loss is
    ``1/2 |scale * z - y_i|^2`` whatever `loss` says.
    """
    raise NotImplementedError


@overload(target_slopes)
def _target_slopes_overload(loss, z, scale, y, i, g):
    def of_class(loss, z, scale, y, i, g):
        return row_slopes(loss, z, scale, np.intp(y[i]), g)

    def of_numbers(loss, z, scale, y, i, g):
        for c in range(len(g)):
            g[c] = g.dtype.type(scale * z[c] - y[i, c])
        return 0.5 * _sum_of_squares(g), SLOPES_IN_G, -1

    return of_class if y.ndim == 1 else of_numbers


def code_of(y: Any, i: int) -> int:
    """Return the class of row i, or -1 where targets are numbers (callable from kernels only)."""
    raise NotImplementedError


@overload(code_of)
def _code_of_overload(y, i):
    return (lambda y, i: np.intp(y[i])) if y.ndim == 1 else (lambda y, i: np.intp(-1))


@helper
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


@_row_of(OvrHinge)
def _ovr_hinge_row(z, scale, y, g):
    best, factor, one, none = _first_max(z), g.dtype.type(scale), g.dtype.type(1.0), g.dtype.type(0.0)
    for c in range(len(g)):
        short = one + factor * z[c]
        g[c] = none if short <= none else short  # not `max`: a NaN must get out
    short = one - factor * z[y]
    g[y] = none if short <= none else short
    total = _sum(g)
    if total == none:
        return 0.0, y, best
    for c in range(len(g)):
        g[c] = one if g[c] > none else none
    g[y] = -g[y]
    return np.float64(total), SLOPES_IN_G, best


@_row_of(OvrSquaredHinge)
def _ovr_squared_hinge_row(z, scale, y, g):
    best, factor, one, none = _first_max(z), g.dtype.type(scale), g.dtype.type(1.0), g.dtype.type(0.0)
    for c in range(len(g)):
        short = one + factor * z[c]
        g[c] = none if short <= none else short  # not `max`: a NaN must get out
    short = one - factor * z[y]
    g[y] = none if short <= none else -short
    value = 0.5 * _sum_of_squares(g)
    return value, y if value == 0.0 else SLOPES_IN_G, best


@_row_of(BinaryHinge)
def _binary_hinge_row(z, scale, y, g):
    sign = 1.0 if y == 1 else -1.0
    short = 1.0 - sign * scale * np.float64(z[0])
    predicted = 1 if z[0] > 0 else 0
    if short <= 0.0:
        return 0.0, y, predicted
    g[0] = g.dtype.type(-sign)
    return 2.0 * short, SLOPES_IN_G, predicted


@_row_of(BinarySquaredHinge)
def _binary_squared_hinge_row(z, scale, y, g):
    sign = 1.0 if y == 1 else -1.0
    short = 1.0 - sign * scale * np.float64(z[0])
    predicted = 1 if z[0] > 0 else 0
    if short <= 0.0:
        return 0.0, y, predicted
    g[0] = g.dtype.type(-sign * short)
    return short * short, SLOPES_IN_G, predicted


@_row_of(BinaryLog)
def _binary_log_row(z, scale, y, g):
    sign = 1.0 if y == 1 else -1.0
    margin = sign * scale * np.float64(z[0])
    small = math.exp(-abs(margin))
    g[0] = g.dtype.type(-sign * (1.0 if margin < 0.0 else small) / (1.0 + small))
    value = math.log1p(small) + (0.0 if margin > 0.0 else -margin)
    return 2.0 * value, SLOPES_IN_G, 1 if z[0] > 0 else 0


@_row_of(OvrLog)
def _ovr_log_row(z, scale, y, g):
    best = _first_max(z)
    _exp_of_minus_abs(z, scale, g)
    value = _sum_of_positive(z, scale, 0, y) + _sum_of_positive(z, scale, y + 1, len(z)) + _sum_of_log1p(g)
    own = -scale * np.float64(z[y])
    value += 0.0 if own <= 0.0 else own
    one = g.dtype.type(1.0)
    for c in range(len(g)):
        g[c] = (g[c] if z[c] < 0 else one) / (one + g[c])
    g[y] -= one
    return value, SLOPES_IN_G, best


@_row_of(Squared)
def _squared_row(z, scale, y, g):
    best, factor = _first_max(z), g.dtype.type(scale)
    for c in range(len(g)):
        g[c] = factor * z[c]
    g[y] -= g.dtype.type(1.0)
    return 0.5 * _sum_of_squares(g), SLOPES_IN_G, best


@_row_of(MulticlassSquaredHinge)
def _multiclass_squared_hinge_row(z, scale, y, g):
    factor, one, none = g.dtype.type(scale), g.dtype.type(1.0), g.dtype.type(0.0)
    best, own = _first_max(z), factor * z[y] - one
    for c in range(len(g)):
        short = factor * z[c] - own
        g[c] = none if short <= none else short  # not `max`: a NaN must get out
    g[y] = none
    value = _sum_of_squares(g)
    for c in range(len(g)):
        g[c] += g[c]
    g[y] = -_sum(g)
    return value, y if value == 0.0 else SLOPES_IN_G, best


@_row_of(MultitaskSquaredHinge)
def _multitask_squared_hinge_row(z, scale, y, g):
    value, rival, best = _ovr_squared_hinge_row(z, scale, y, g)
    for c in range(len(g)):
        g[c] += g[c]
    return 2.0 * value, rival, best


@helper
def _sum_of_squares(g):
    total = 0.0
    for c in range(len(g)):
        total += np.float64(g[c]) * np.float64(g[c])
    return total


@helper
def _sum_of_positive(z, scale, start, stop):
    """Return the sum of ``max(scale * z[c], 0)`` over start <= c < stop, float64."""
    total = 0.0
    for c in range(start, stop):
        score = scale * np.float64(z[c])
        total += 0.0 if score <= 0.0 else score  # not `max`: a NaN must get out
    return total


_FACTORS = 512  # of at most 2 each: their product is less than the largest float64


@helper
def _sum_of_log1p(g):
    """Return the sum of ``log(1 + g[c])`` for g in [0, 1], float64: one logarithm of a product for many."""
    total = 0.0
    for start in range(0, len(g), _FACTORS):
        product = 1.0
        for c in range(start, min(start + _FACTORS, len(g))):
            product *= 1.0 + np.float64(g[c])
        total += math.log(product)
    return total


@_row_of(NormalizedSigmoids)
def _normalized_sigmoids_row(z, scale, y, g):
    # sigmoid(a) = exp(min(a, 0)) / (1 + exp(-|a|)); the best score is at `floor` or above 0
    best = _first_max(z)
    floor, own = min(scale * np.float64(z[best]), 0.0), scale * np.float64(z[y])
    total = 0.0
    for c in range(len(z)):
        score = scale * np.float64(z[c])
        below = 0.0 if score > 0.0 else score
        total += math.exp(below - floor) / (1.0 + math.exp(-abs(score)))
    value = floor + math.log(total) + math.log1p(math.exp(-abs(own))) - (0.0 if own > 0.0 else own)
    return value, y, best


@_row_of(LogOfProbability)
def _log_of_probability_row(z, scale, y, g):
    own = scale * np.float64(z[y])
    return np.inf if own <= 0.0 else -math.log(own), y, _first_max(z)


@helper
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


@helper
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


def _exp_of_minus_abs(z, scale, g):
    """Set ``g = exp(-|scale * z|)``."""
    raise NotImplementedError


@intrinsic
def _power_of_two(_context, n):
    """Return the float32 2^n of an int32 n in [-126, 127], by writing the exponent bits."""

    def build(context, builder, _signature, args):
        integer = args[0].type
        bits = builder.shl(builder.add(args[0], integer(127)), integer(23))
        return builder.bitcast(bits, context.get_value_type(types.float32))

    return types.float32(types.int32), build


@helper
def _exp2_float32(t):
    """Return the float32 2^t of a float32 t <= 0 by a polynomial, with t = n + f; 0 for t <= -60.

    The absolute error of exp(x) is at most 1.2e-7 for every x <= 0, no more than the rounding of a score costs.
    """
    t = np.float32(-60.0) if t < np.float32(-60.0) else t  # unlike `max`, lets a NaN through
    whole = np.floor(t + np.float32(0.5))
    f = t - whole
    p = _EXP2[5] + f * _EXP2[6]
    p = _EXP2[3] + f * (_EXP2[4] + f * p)
    p = _EXP2[0] + f * (_EXP2[1] + f * (_EXP2[2] + f * p))
    e = p * _power_of_two(np.int32(whole))
    return np.float32(0.0) if t <= np.float32(-60.0) else e


@overload(_exp_below)
def _exp_below_overload(z, scale, top, g):
    """Choose: the library's exp for float64, a polynomial that LLVM vectorises for float32."""

    def in_float64(z, scale, top, g):
        for c in range(len(g)):
            g[c] = math.exp(scale * (z[c] - top))
        return _sum(g)

    def in_float32(z, scale, top, g):
        factor = np.float32(scale) * _LOG2_E
        for c in range(len(g)):
            g[c] = _exp2_float32(factor * (z[c] - top))
        return np.float64(_sum(g))

    return in_float32 if g.dtype == types.float32 else in_float64


@overload(_exp_of_minus_abs)
def _exp_of_minus_abs_overload(z, scale, g):
    """Choose as `_exp_below` does."""

    def in_float64(z, scale, g):
        for c in range(len(g)):
            g[c] = math.exp(-abs(scale * z[c]))

    def in_float32(z, scale, g):
        factor = np.float32(scale) * _LOG2_E
        for c in range(len(g)):
            g[c] = _exp2_float32(-abs(factor * z[c]))

    return in_float32 if g.dtype == types.float32 else in_float64
