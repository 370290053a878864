"""Squared loss of classes, of sets of labels (through their indicators) and of numbers.

It is the calibrated loss of the identity link (Eq. 2 of least squares revisited).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from distls.workers.compilation.jit import helper
from distls.workers.losses.binary_losses import BinarySquared, share_of_score, unit_curvature
from distls.workers.losses.loss import GRADIENT_IN_G, Codes, Floats, LabelSets, Loss
from distls.workers.losses.row_functions import (
    add_score_curvature_of,
    add_score_gradient_of,
    add_score_hessian_of,
    dual_step_of,
    output_loss_of,
    row_curvature_of,
    row_gradient_of,
    row_loss_of,
    score_change_of,
)
from distls.workers.simd.class_sums import first_max, sum_of_squares
from distls.workers.simd.vectors import F64_PER_VECTOR, fused, is_lane, load, select, splat, store, sum_of_lanes


class Squared(Loss):
    """Squared distance to the indicator of the row's class, ``1/2 sum_c (z_c - [c = y])^2``."""

    __slots__ = ()

    name = "squared"
    targets = ("class", "multilabel", "continuous")
    separable = True
    dual_domain = "line"
    link_name = "identity"
    inner_names = ("linear", "calibrated", "cls")
    # epsilon-insensitive losses predict as it does
    elsewhere = ("L2R_L2LOSS_SVR", "L2R_L2LOSS_SVR_DUAL", "L2R_L1LOSS_SVR_DUAL", "--loss_function squared")
    quadratic = True
    binary = BinarySquared()
    threshold = 0.5  # half-way between the values of the indicator
    curvature, lipschitz = BinarySquared.curvature, BinarySquared.lipschitz

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        return 0.5 * np.square(self.gradient(scores, y)).sum(axis=1)

    def gradient(self, scores: Floats, y: Codes) -> Floats:
        """Return the derivatives of each row: the scores, less 1 at the row's class."""
        out = scores.copy()
        out[np.arange(len(y)), y] -= 1.0
        return out

    def label_gradient(
        self, scores: Floats, labels: LabelSets, wanted: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the distances to the indicators, and the losses."""
        return squared_residuals(scores, wanted)

    def number_gradient(
        self, scores: Floats, y: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the distances to the targets, and the losses."""
        return squared_residuals(scores, y)

    def conjugate(self, duals: Floats, y: Any) -> NDArray[np.float64]:
        """Return ``sum_c a_c^2 / 2 - a_c y_c``, of classes and of numbers (n, k)."""
        values = 0.5 * np.square(duals).sum(axis=1)
        if y.ndim == 1:
            return np.asarray(values - duals[np.arange(len(y)), y])
        return np.asarray(values - (duals * y).sum(axis=1))


def squared_residuals(scores: NDArray[Any], wanted: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return gradients (n, k) and values (n,) of ``1/2 sum_c (z_c - wanted_c)^2``."""
    # float64 before the difference: targets may be large numbers.
    residuals = np.subtract(scores, wanted, dtype=np.float64)
    return residuals, 0.5 * np.square(residuals).sum(axis=1)


@row_gradient_of(Squared)
def _row(z, scale, y, g):
    best, factor = first_max(z), g.dtype.type(scale)
    for c in range(len(g)):
        g[c] = factor * z[c]
    g[y] -= g.dtype.type(1.0)
    return 0.5 * sum_of_squares(g), GRADIENT_IN_G, best


output_loss_of(Squared)(share_of_score)
row_curvature_of(Squared)(unit_curvature)


def _targets(y, i, first):
    """Return the numbers that the outputs of row i should be from `first` on, a `Vector` (kernels only)."""
    raise NotImplementedError


@overload(_targets)
def _targets_overload(y, i, first):
    def of_class(y, i, first):
        return select(is_lane(np.int64(y[i]) - first), 1.0, 0.0)

    return of_class if y.ndim == 1 else lambda y, i, first: load(y[i], first, 0.0)


def _predicted_class(z, y):
    """Return the class of the highest score, -1 for numbers (kernels only)."""
    raise NotImplementedError


@overload(_predicted_class)
def _predicted_overload(z, y):
    return (lambda z, y: first_max(z)) if y.ndim == 1 else (lambda z, y: -1)


@dual_step_of(Squared)
def _dual_step(z, y, i, q, a, d, work):
    value, before, after, moved = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
    for first in range(0, len(z), F64_PER_VECTOR):
        target, old = _targets(y, i, first), load(a, first, 0.0)
        residual = target - load(z, first, 0.0)
        # The maximiser of a quadratic in closed form.
        new = store(fused(old, q, residual) * (1.0 / (1.0 + q)), a, first)
        moved = moved + select(store(new - old, d, first) != 0.0, 1.0, 0.0)
        value = value + 0.5 * residual * residual
        before = before + (0.5 * old - target) * old
        after = after + (0.5 * new - target) * new
    return (
        sum_of_lanes(value),
        sum_of_lanes(before),
        sum_of_lanes(after),
        int(sum_of_lanes(moved)),
        _predicted_class(z, y),
    )


# ---------------------------------------------------------------- one non-zero, in block coordinate descent


def _wanted(y, i, r):
    """Return the number that output r of row i should be (kernels only)."""
    raise NotImplementedError


@overload(_wanted, inline="always")
def _wanted_overload(y, i, r):
    if isinstance(y, types.BaseTuple):
        return lambda y, i, r: _of_set(y, i, r)
    return (lambda y, i, r: 1.0 if y[i] == r else 0.0) if y.ndim == 1 else lambda y, i, r: y[i, r]


@helper
def _of_set(y, i, r):
    for p in range(y.indptr[i], y.indptr[i + 1]):
        if y.indices[p] == r:
            return 1.0
    return 0.0


@add_score_gradient_of(Squared)
@add_score_gradient_of(Squared, sets=True)
def _add_gradient(loss, z, i, y, factor, g, own, scratch):
    for r in range(z.shape[1]):
        g[r] += factor * (np.float64(z[i, r]) - _wanted(y, i, r))


@add_score_curvature_of(Squared)
@add_score_curvature_of(Squared, sets=True)
def _add_curvature(loss, z, i, y, factor, h, own, scratch):
    for r in range(z.shape[1]):
        h[r] += factor


@add_score_hessian_of(Squared)
@add_score_hessian_of(Squared, sets=True)
def _add_hessian(loss, z, i, y, factor, hessian, scratch):
    for r in range(z.shape[1]):
        hessian[r, r] += factor


@score_change_of(Squared)
@score_change_of(Squared, sets=True)
def _change(loss, z, i, y, x, d, scratch):
    total = 0.0
    for r in range(z.shape[1]):
        before = np.float64(z[i, r])
        z[i, r] += x * d[r]
        after = np.float64(z[i, r])
        # A difference of squares as a product: small changes of large residuals keep their digits.
        total += (after - before) * (0.5 * (after + before) - _wanted(y, i, r))
    return total


@row_loss_of(Squared)
@row_loss_of(Squared, sets=True)
def _row_loss(loss, z, y, i, scratch):
    total = 0.0
    for r in range(len(z)):
        residual = np.float64(z[r]) - _wanted(y, i, r)
        total += residual * residual
    return 0.5 * total
