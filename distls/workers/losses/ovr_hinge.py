"""One-versus-rest hinge (MCID paper, section V.C)."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import helper
from distls.workers.losses.binary_losses import BinaryHinge
from distls.workers.losses.loss import GRADIENT_IN_G, Codes, Floats, LabelSets, Loss, output_loss_of
from distls.workers.losses.row_functions import row_curvature_of, row_gradient_of
from distls.workers.losses.shared_parts import (
    class_signs,
    negated_at_class,
    separable_dual_step,
)
from distls.workers.simd.class_sums import first_max, sum_of
from distls.workers.simd.vectors import select


class OvrHinge(Loss):
    """One-versus-rest hinge, ``sum_c max(0, 1 - t_c z_c)`` with t_c = 1 for the row's class, else -1."""

    __slots__ = ()

    name = "ovr_hinge"
    aliases = ("hinge",)
    elsewhere = ("L2R_L1LOSS_SVC_DUAL", "--loss_function hinge")
    targets = ("class", "multilabel")
    separable = True
    certificate = "duality_gap"
    dual_domain = "box"
    binary = BinaryHinge()

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        return np.maximum(0.0, 1.0 + negated_at_class(scores, y)).sum(axis=1)

    def gradient(self, scores: Floats, y: Codes) -> Floats:
        """Return a subgradient of each row: -t_c for every class within its margin, 0 beyond it."""
        within = 1.0 + negated_at_class(scores, y) > 0.0
        return negated_at_class(within.astype(scores.dtype), y)

    def label_gradient(
        self, scores: Floats, labels: LabelSets, wanted: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the subgradients of each row, as `gradient`, and the losses."""
        signs = np.where(wanted, 1.0, -1.0)
        short = np.maximum(0.0, 1.0 - signs * scores)
        return -signs * (short > 0.0), short.sum(axis=1)

    def conjugate(self, duals: Floats, y: Codes) -> NDArray[np.float64]:
        """Return ``-sum_c t_c a_c``."""
        return np.asarray(-(class_signs(y, duals.shape[1]) * duals).sum(axis=1))


@row_gradient_of(OvrHinge)
def _row(z, scale, y, g):
    best, factor, one, none = first_max(z), g.dtype.type(scale), g.dtype.type(1.0), g.dtype.type(0.0)
    for c in range(len(g)):
        short = one + factor * z[c]
        g[c] = none if short <= none else short  # unlike `max`, propagates a NaN
    short = one - factor * z[y]
    g[y] = none if short <= none else short
    total = sum_of(g)
    # Beyond every margin: no gradient, which saves the update.
    if total == none:
        return 0.0, y, best
    for c in range(len(g)):
        g[c] = one if g[c] > none else none
    g[y] = -g[y]
    return np.float64(total), GRADIENT_IN_G, best


@output_loss_of(OvrHinge)
def _output_loss(sign, score):
    short = 1.0 - sign * score
    return (0.0, 0.0) if short <= 0.0 else (short, -sign)


@row_curvature_of(OvrHinge)
@row_curvature_of(BinaryHinge)
def _curvature(loss, g, h):
    # Piecewise linear: there is no curvature, and methods that need one take another loss.
    h[:] = 0


@helper
def _margin_step(m, q, b):
    # The unconstrained maximiser, then the box.
    short, new = 1.0 - m, b + (1.0 - m) / q
    new = select(new < 0.0, 0.0, select(new > 1.0, 1.0, new))  # propagates a NaN
    return new, select(short < 0.0, 0.0, short), -b, -new


separable_dual_step(_margin_step, OvrHinge, BinaryHinge)
