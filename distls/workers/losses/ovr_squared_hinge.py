"""One-versus-rest squared hinge."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import helper
from distls.workers.losses.binary_losses import BinarySquaredHinge
from distls.workers.losses.loss import GRADIENT_IN_G, Codes, Floats, LabelSets, Loss, output_loss_of
from distls.workers.losses.row_functions import row_curvature_of, row_gradient_of
from distls.workers.losses.shared_parts import (
    class_signs,
    negated_at_class,
    separable_dual_step,
)
from distls.workers.simd.class_sums import first_max, sum_of_squares
from distls.workers.simd.vectors import select


class OvrSquaredHinge(Loss):
    """One-versus-rest squared hinge, ``sum_c 1/2 max(0, 1 - t_c z_c)^2`` (the loss of the SGD-QN paper, section 6)."""

    __slots__ = ()

    name = "ovr_squared_hinge"
    aliases = ("squared_hinge",)
    elsewhere = ("L2R_L2LOSS_SVC", "L2R_L2LOSS_SVC_DUAL", "L1R_L2LOSS_SVC")
    targets = ("class", "multilabel")
    separable = True
    dual_domain = "ray"
    binary = BinarySquaredHinge()

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        return 0.5 * np.square(np.maximum(0.0, 1.0 + negated_at_class(scores, y))).sum(axis=1)

    def gradient(self, scores: Floats, y: Codes) -> Floats:
        """Return the derivatives of each row: ``-t_c max(0, 1 - t_c z_c)``."""
        return negated_at_class(np.maximum(0.0, 1.0 + negated_at_class(scores, y)), y)

    def label_gradient(
        self, scores: Floats, labels: LabelSets, wanted: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the derivatives of each row, as `gradient`, and the losses."""
        signs = np.where(wanted, 1.0, -1.0)
        short = np.maximum(0.0, 1.0 - signs * scores)
        return -signs * short, 0.5 * np.square(short).sum(axis=1)

    def conjugate(self, duals: Floats, y: Codes) -> NDArray[np.float64]:
        """Return ``sum_c a_c^2 / 2 - t_c a_c``."""
        return np.asarray((0.5 * np.square(duals) - class_signs(y, duals.shape[1]) * duals).sum(axis=1))

    def curvature(self, gradients: Floats) -> Floats:
        """Return 1 within the margin, where the gradient is not zero (Mangasarian's generalised Hessian)."""
        return np.asarray(gradients != 0.0, np.float64)

    def lipschitz(self, k: int) -> float:
        """Return 1."""
        return 1.0


@row_gradient_of(OvrSquaredHinge)
def ovr_squared_hinge_row(z, scale, y, g):
    """Return the `row_gradient` of the loss."""
    best, factor, one, none = first_max(z), g.dtype.type(scale), g.dtype.type(1.0), g.dtype.type(0.0)
    for c in range(len(g)):
        short = one + factor * z[c]
        g[c] = none if short <= none else short  # unlike `max`, propagates a NaN
    short = one - factor * z[y]
    g[y] = none if short <= none else -short
    value = 0.5 * sum_of_squares(g)
    # No slack, no gradient.
    return value, y if value == 0.0 else GRADIENT_IN_G, best


@output_loss_of(OvrSquaredHinge)
def _output_loss(sign, score):
    short = 1.0 - sign * score
    return (0.0, 0.0) if short <= 0.0 else (0.5 * short * short, -sign * short)


@row_curvature_of(OvrSquaredHinge)
def _curvature(loss, g, h):
    for c in range(len(g)):
        # The second derivative is 1 within the margin, where the gradient is not zero.
        h[c] = g.dtype.type(1.0 if g[c] != 0.0 else 0.0)


@helper
def _margin_step(m, q, b):
    # The minimiser of a quadratic, cut off at zero: the ray has no upper end.
    new, short = (1.0 - m + q * b) / (1.0 + q), 1.0 - m
    new, short = select(new < 0.0, 0.0, new), select(short < 0.0, 0.0, short)  # propagates a NaN
    return new, 0.5 * short * short, (0.5 * b - 1.0) * b, (0.5 * new - 1.0) * new


separable_dual_step(_margin_step, OvrSquaredHinge)
