"""The losses of two classes with one output, the score of the second; the first is predicted at zero and below.

With t = 1 for rows of the second class and -1 for those of the first, a loss is a function of the margin m = t z. Each
is the form of losses of any number of classes, as their `binary` says: problems of two classes are trained with it.
What such a form shares with its loss, as a dual step, is registered beside that.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls
import math
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from distls.workers.compilation.jit import helper
from distls.workers.losses.loss import GRADIENT_IN_G, Codes, Floats, Loss
from distls.workers.losses.row_functions import (
    add_score_curvature_of,
    add_score_gradient_of,
    add_score_hessian_of,
    row_curvature_of,
    row_gradient_of,
    score_change_of,
    score_derivatives_of,
)
from distls.workers.losses.shared_parts import (
    MarginLoss,
    SquaredSlack,
    binary_entropy,
    class_signs,
    separable_dual_step,
)
from distls.workers.simd.exp_log import exp_of_negative, log_of_normal
from distls.workers.simd.vectors import fused, select

Array = NDArray[np.float64]

_NEAR_ZERO = 1e-3  # margin, of which squares are rounding to what they are added to


class SingleOutput(MarginLoss):
    """A loss of two classes. Scores are (n, 1)."""

    __slots__ = ()

    one_output = True

    def of_classes(self, scores: Floats) -> Floats:
        """Return minus half of the scores, and half: their difference and their softmax are those of the scores."""
        # In the type of the scores, whose half is exact.
        half = scores * scores.dtype.type(0.5)
        return np.hstack([-half, half])


class BinaryLog(SingleOutput):
    """Logistic loss, ``log(1 + exp(-m))``."""

    __slots__ = ()

    name = "binary_log"
    logistic = True
    dual_domain = "box"

    def of_margins(self, m: Array) -> tuple[Array, Array]:
        return np.logaddexp(0.0, -m), -scipy.special.expit(-m)

    def of_duals(self, b: Array) -> Array:
        return binary_entropy(b)

    def probabilities(self, scores: Floats) -> Floats:
        """Return the sigmoids."""
        return np.exp(-np.logaddexp(0.0, np.hstack([scores, -scores])))

    def curvature(self, gradients: Floats) -> Floats:
        """Return the derivatives of the sigmoids."""
        size = np.abs(gradients)
        return np.asarray(size * (1.0 - size))

    def secant_curvature(self, gradients: Floats, scores: Floats) -> Floats:
        """Return the curvature, of rows predicted wrong that of the parabola above the loss that touches it at m, -m.

        It is ``tanh(m / 2) / (2 m)`` (Jaakkola, Jordan 2000).
        """
        size, margins = np.abs(gradients), np.abs(scores)
        # near m = 0 the two differ by terms of its square
        wrong = (size > 0.5) & (margins > _NEAR_ZERO)
        return np.asarray(np.where(wrong, (size - 0.5) / np.maximum(margins, _NEAR_ZERO), size * (1.0 - size)))

    def lipschitz(self, k: int) -> float:
        """Return 1/4, the largest derivative of the sigmoid."""
        return 0.25

    def score_step(self, k: int, n_rows: int) -> float:
        """Return the step of the decision that two columns of the softmax make."""
        return 1.0  # docs/decisions/0011


BinaryLog.log_loss = BinaryLog()


class BinaryHinge(SingleOutput):
    """Hinge, ``max(0, 1 - m)``."""

    __slots__ = ()

    name = "binary_hinge"
    certificate = "duality_gap"
    dual_domain = "box"

    def of_margins(self, m: Array) -> tuple[Array, Array]:
        # Zero at the kink, as the kernel has it.
        return np.maximum(0.0, 1.0 - m), -(m < 1.0).astype(m.dtype)

    def of_duals(self, b: Array) -> Array:
        return -b

    def score_step(self, k: int, n_rows: int) -> float:
        """Return the step of the decision that two columns of the multi-class hinge make."""
        return math.sqrt(0.125) * max(n_rows / 1e4, 1.0) ** 0.25  # docs/decisions/0018


class BinarySquaredHinge(SingleOutput):
    """Squared hinge, ``max(0, 1 - m)^2``: without a factor 1/2, as in LIBLINEAR and scikit-learn."""

    __slots__ = ()

    name = "binary_squared_hinge"
    dual_domain = "ray"
    dual_shortfall = SquaredSlack.dual_shortfall

    def of_margins(self, m: Array) -> tuple[Array, Array]:
        short = np.maximum(0.0, 1.0 - m)
        return np.square(short), -2.0 * short

    def of_duals(self, b: Array) -> Array:
        return (0.25 * b - 1.0) * b

    def curvature(self, gradients: Floats) -> Floats:
        """Return 2 within the margin, where the gradient is not zero (Mangasarian's generalised Hessian)."""
        return 2.0 * np.asarray(gradients != 0.0, np.float64)

    def lipschitz(self, k: int) -> float:
        """Return 2."""
        return 2.0

    def slope_growth(self, k: int) -> float:
        """Return 2: without the factor 1/2 it is twice as steep."""
        return 2.0


class BinarySquared(SingleOutput):
    """Squared distance from -1 or 1, ``1/2 (1 - m)^2``: that of ``RidgeClassifier`` of scikit-learn."""

    __slots__ = ()

    name = "binary_squared"
    dual_domain = "line"
    quadratic = True

    def of_margins(self, m: Array) -> tuple[Array, Array]:
        return 0.5 * np.square(1.0 - m), m - 1.0

    def of_duals(self, b: Array) -> Array:
        return (0.5 * b - 1.0) * b

    def curvature(self, gradients: Floats) -> Floats:
        """Return 1."""
        return np.ones_like(gradients, np.float64)

    def lipschitz(self, k: int) -> float:
        """Return 1."""
        return 1.0


class BinaryShare(SingleOutput):
    """Squared distance from 0 or 1, ``1/2 (z - [y = 1])^2``: scores are probabilities of the second class.

    That of calibrated least squares, which projects them onto [0, 1].
    """

    __slots__ = ()

    name = "binary_share"
    quadratic = True
    threshold = 0.5

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        return 0.5 * np.square(self.gradient(scores, y))[:, 0]

    def gradient(self, scores: Floats, y: Codes) -> Floats:
        """Return the distance of each row's score from its class, shape (n, 1)."""
        return scores - np.asarray(y == 1, scores.dtype)[:, None]

    def of_classes(self, scores: Floats) -> Floats:
        """Return the probabilities of both classes."""
        return np.hstack([1.0 - scores, scores])

    probabilities, lipschitz = of_classes, BinarySquared.lipschitz


class LogOfShare(BinaryShare):
    """``-log p_y`` of scores that are probabilities of the second class; no gradient."""

    __slots__ = ()

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the log loss of each row, infinite where its class has no probability."""
        # A projection may leave a probability of zero, whose loss is meant to be infinite.
        with np.errstate(divide="ignore"):
            return -np.log(np.where(y == 1, scores[:, 0], 1.0 - scores[:, 0]))


BinaryShare.log_loss = LogOfShare()


class BinaryPerceptron(SingleOutput):
    """Perceptron, ``max(0, -m)``; a tie is predicted as the first class."""

    __slots__ = ()

    name = "binary_perceptron"
    certificate = "none"

    def of_margins(self, m: Array) -> tuple[Array, Array]:
        return np.maximum(0.0, -m), -(m < 0.0).astype(m.dtype)

    def gradient(self, scores: Floats, y: Codes) -> Floats:
        """Return the derivative of each row, shape (n, 1): at zero that of rows of the second class."""
        wrong = (scores[:, 0] > 0.0) != (y == 1)
        return np.asarray(-class_signs(y, 1) * wrong[:, None])


# ---------------------------------------------------------------- kernels: value and derivatives of a score, or vectors


@helper
def log_of_score(t, z):
    """Return the logistic loss of a score and its derivatives."""
    m = t * z
    # From the smaller exponential, for either sign of m.
    small = exp_of_negative(-abs(m))
    share = select(m > 0.0, small, 1.0) / (1.0 + small)
    return log_of_normal(1.0 + small) - select(m > 0.0, 0.0, m), -t * share, share * (1.0 - share)


@helper
def hinge_of_score(t, z):
    """Return the hinge of a score and its first and second derivative; t is 1 for the label, else -1."""
    short = 1.0 - t * z
    return (0.0, 0.0, 0.0) if short <= 0.0 else (short, -t, 0.0)


@helper
def _squared_hinge(t, z):
    short = 1.0 - t * z
    met = short <= 0.0
    return select(met, 0.0, short * short), select(met, 0.0, -2.0 * t * short), select(met, 0.0, 2.0)


@helper
def _squared(t, z):
    # From -1 or 1, not from an indicator: zero scores are then in the middle.
    return 0.5 * (z - t) * (z - t), z - t, 1.0


@helper
def share_of_score(t, z):
    """Return half the squared distance of a score from 1, or from 0 where t is -1, and its derivatives."""
    residual = z - (1.0 if t > 0.0 else 0.0)
    return 0.5 * residual * residual, residual, 1.0


@helper
def _log_of_share(t, z):
    # Of the row's own class.
    share = z if t > 0.0 else 1.0 - z
    return (np.inf if share <= 0.0 else -np.log(share)), 0.0, 0.0


@helper
def _perceptron(t, z):
    # At zero a row of the first class is right, and one of the second is not.
    wrong = z <= 0.0 if t > 0.0 else not z <= 0.0
    return (-t * z, -t, 0.0) if wrong else (0.0, 0.0, 0.0)


def _register_rows(loss: type[Loss], of_score: Any) -> None:
    """Register ``of_score(t, z)``, a loss and its first and second derivative, for rows."""
    threshold = loss.threshold  # a constant of the kernel

    def row(z, scale, y, g):
        # The factor first: a threshold is one of scores, not of what they are a multiple of.
        score = scale * np.float64(z[0])
        value, slope, _ = of_score(1.0 if y == 1 else -1.0, score)
        g[0] = g.dtype.type(slope)
        # without a slope the caller saves an update
        return value, y if slope == 0.0 else GRADIENT_IN_G, 1 if score > threshold else 0

    row_gradient_of(loss)(row)


def _register_columns(loss: type[Loss], of_score: Any) -> None:
    """Register the same for the non-zeros of block coordinate descent."""

    @helper
    def of_row(z, y, i):
        # float64, whatever the type of the scores: derivatives are sums over many rows
        return of_score(1.0 if y[i] == 1 else -1.0, np.float64(z[i, 0]))

    def add_gradient(loss, z, i, y, factor, g, own, scratch):
        g[0] += factor * of_row(z, y, i)[1]

    def add_curvature(loss, z, i, y, factor, h, own, scratch):
        h[0] += factor * of_row(z, y, i)[2]

    def add_hessian(loss, z, i, y, factor, hessian, scratch):
        hessian[0, 0] += factor * of_row(z, y, i)[2]

    def change(loss, z, i, y, x, d, scratch):
        # From the score as it is stored, rounded to its type: what later reads will see.
        before = of_row(z, y, i)[0]
        z[i, 0] += x * d[0]
        return of_row(z, y, i)[0] - before

    score_derivatives_of(loss)(of_score)
    add_score_gradient_of(loss)(add_gradient)
    add_score_curvature_of(loss)(add_curvature)
    add_score_hessian_of(loss)(add_hessian)
    score_change_of(loss)(change)


for _loss, _of_score in (
    (BinaryLog, log_of_score),
    (BinaryHinge, hinge_of_score),
    (BinarySquaredHinge, _squared_hinge),
    (BinarySquared, _squared),
    (BinaryShare, share_of_score),
    (LogOfShare, _log_of_share),
    (BinaryPerceptron, _perceptron),
):
    _register_rows(_loss, _of_score)
_register_columns(BinaryLog, log_of_score)
_register_columns(BinarySquaredHinge, _squared_hinge)
_register_columns(BinarySquared, _squared)


@row_curvature_of(BinarySquaredHinge)
def _hinge_curvature(loss, g, h):
    # Twice one within the margin, where the gradient is not zero.
    h[0] = g.dtype.type(2.0 if g[0] != 0.0 else 0.0)


@row_curvature_of(BinarySquared)
def unit_curvature(loss, g, h):
    """Set h to one."""
    h[:] = 1


# ---------------------------------------------------------------- the dual of one row, in dual coordinate ascent


@helper
def _squared_hinge_step(m, q, b):
    # The minimiser of a quadratic, cut off at zero: the ray has no upper end.
    new, short = fused(b, q, 1.0 - m) * (1.0 / (0.5 + q)), 1.0 - m
    new, short = select(new < 0.0, 0.0, new), select(short < 0.0, 0.0, short)  # propagates a NaN
    return new, short * short, (0.25 * b - 1.0) * b, (0.25 * new - 1.0) * new


@helper
def _squared_step(m, q, b):
    new, short = fused(b, q, 1.0 - m) * (1.0 / (1.0 + q)), 1.0 - m
    return new, 0.5 * short * short, (0.5 * b - 1.0) * b, (0.5 * new - 1.0) * new


separable_dual_step(_squared_hinge_step, BinarySquaredHinge)
separable_dual_step(_squared_step, BinarySquared)
