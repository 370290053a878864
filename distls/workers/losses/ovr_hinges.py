"""One-versus-rest hinges: plain (MCID paper, section V.C), squared, and that of the block coordinate descent paper."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import helper
from distls.workers.losses.binary_losses import BinaryHinge, BinarySquared, BinarySquaredHinge, hinge_of_score
from distls.workers.losses.loss import GRADIENT_IN_G, Codes, Floats
from distls.workers.losses.row_functions import (
    add_score_curvature_of,
    add_score_gradient_of,
    add_score_hessian_of,
    output_loss_of,
    row_curvature_of,
    row_gradient_of,
    row_loss_of,
    score_change_of,
)
from distls.workers.losses.shared_parts import (
    MarginLoss,
    SquaredSlack,
    class_signs,
    own_correction,
    separable_dual_step,
    square_of_slack,
)
from distls.workers.simd.class_sums import first_max, sum_of, sum_of_squares
from distls.workers.simd.slack_kernels import slack_curvature, slack_gradient, slack_move
from distls.workers.simd.vectors import fused, select


class OvrHinge(MarginLoss):
    """One-versus-rest hinge, ``sum_c max(0, 1 - t_c z_c)`` with t_c = 1 for the row's class, else -1."""

    __slots__ = ()

    name = "ovr_hinge"
    aliases = ("hinge",)
    elsewhere = ("L2R_L1LOSS_SVC_DUAL", "--loss_function hinge")
    targets = ("class", "multilabel")
    certificate = "duality_gap"
    dual_domain = "box"
    binary = BinaryHinge()
    of_margins, of_duals = BinaryHinge.of_margins, BinaryHinge.of_duals


output_loss_of(OvrHinge)(hinge_of_score)


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


@row_curvature_of(OvrHinge)
@row_curvature_of(BinaryHinge)
def _curvature(loss, g, h):
    # Piecewise linear: there is no curvature, and methods that need one take another loss.
    h[:] = 0


@helper
def _margin_step(m, q, b):
    # The unconstrained maximiser, then the box.
    # q is that of all outputs of a row, and one division serves them.
    short, new = 1.0 - m, fused(1.0 - m, 1.0 / q, b)
    new = select(new < 0.0, 0.0, select(new > 1.0, 1.0, new))  # propagates a NaN
    return new, select(short < 0.0, 0.0, short), -b, -new


separable_dual_step(_margin_step, OvrHinge, BinaryHinge)


class OvrSquaredHinge(MarginLoss):
    """One-versus-rest squared hinge, ``sum_c 1/2 max(0, 1 - t_c z_c)^2`` (the loss of the SGD-QN paper, section 6)."""

    __slots__ = ()

    name = "ovr_squared_hinge"
    aliases = ("squared_hinge",)
    elsewhere = ("L2R_L2LOSS_SVC", "L2R_L2LOSS_SVC_DUAL", "L1R_L2LOSS_SVC")
    targets = ("class", "multilabel")
    dual_domain = "ray"
    binary = BinarySquaredHinge()
    lipschitz = BinarySquared.lipschitz

    def of_margins(self, m: Floats) -> tuple[Floats, Floats]:
        short = np.maximum(0.0, 1.0 - m)
        return 0.5 * np.square(short), -short

    def conjugate(self, duals: Floats, y: Codes) -> NDArray[np.float64]:
        """Return ``sum_c a_c^2 / 2 - t_c a_c``."""
        return np.asarray((0.5 * np.square(duals) - class_signs(y, duals.shape[1]) * duals).sum(axis=1))

    def curvature(self, gradients: Floats) -> Floats:
        """Return 1 within the margin, where the gradient is not zero (Mangasarian's generalised Hessian)."""
        return np.asarray(gradients != 0.0, np.float64)


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
@helper
def _squared_output_loss(sign, score):
    short = 1.0 - sign * score
    return (0.0, 0.0) if short <= 0.0 else (0.5 * short * short, -sign * short)


@row_curvature_of(OvrSquaredHinge)
def _squared_curvature(loss, g, h):
    for c in range(len(g)):
        # The second derivative is 1 within the margin, where the gradient is not zero.
        h[c] = g.dtype.type(1.0 if g[c] != 0.0 else 0.0)


@helper
def _squared_margin_step(m, q, b):
    # The minimiser of a quadratic, cut off at zero: the ray has no upper end.
    new, short = fused(b, q, 1.0 - m) * (1.0 / (1.0 + q)), 1.0 - m
    new, short = select(new < 0.0, 0.0, new), select(short < 0.0, 0.0, short)  # propagates a NaN
    return new, 0.5 * short * short, (0.5 * b - 1.0) * b, (0.5 * new - 1.0) * new


separable_dual_step(_squared_margin_step, OvrSquaredHinge)


class MultitaskSquaredHinge(SquaredSlack, MarginLoss):
    """One-versus-rest, ``sum_c max(0, 1 - t_c z_c)^2`` without a 1/2 (BCD paper Eq. 11, gradient Eq. 13)."""

    __slots__ = ()

    name = "multitask_squared_hinge"
    binary = BinarySquaredHinge()
    of_margins, lipschitz = BinarySquaredHinge.of_margins, BinarySquaredHinge.lipschitz


@row_gradient_of(MultitaskSquaredHinge)
def _multitask_row(z, scale, y, g):
    value, runner_up, best = ovr_squared_hinge_row(z, scale, y, g)
    for c in range(len(g)):
        # Twice the gradient, by addition, which is exact.
        g[c] += g[c]
    return 2.0 * value, runner_up, best


# ---------------------------------------------------------------- one non-zero, in block coordinate descent


@add_score_gradient_of(MultitaskSquaredHinge)
def _add_gradient(loss, z, i, y, factor, g, own, scratch):
    slack_gradient(z, i, 1.0, factor, g)
    score = np.float64(z[i, y[i]])
    # For the own class the slack of another class was added, and is replaced.
    own[y[i]] -= factor * (max(1.0 - score, 0.0) + max(1.0 + score, 0.0))


@add_score_gradient_of(MultitaskSquaredHinge, sets=True)
def _add_label_gradient(loss, z, i, y, factor, g, own, scratch):
    slack_gradient(z, i, 1.0, factor, g)
    for a in y.indices[y.indptr[i] : y.indptr[i + 1]]:
        score = np.float64(z[i, a])
        own[a] -= factor * (max(1.0 - score, 0.0) + max(1.0 + score, 0.0))


@add_score_curvature_of(MultitaskSquaredHinge)
def _add_curvature(loss, z, i, y, factor, h, own, scratch):
    slack_curvature(z, i, 1.0, factor, h)
    score = np.float64(z[i, y[i]])
    # A margin between -1 and 1 counts both ways and cancels.
    own[y[i]] += factor * ((1.0 if score < 1.0 else 0.0) - (1.0 if score > -1.0 else 0.0))


@add_score_curvature_of(MultitaskSquaredHinge, sets=True)
def _add_label_curvature(loss, z, i, y, factor, h, own, scratch):
    slack_curvature(z, i, 1.0, factor, h)
    for a in y.indices[y.indptr[i] : y.indptr[i + 1]]:
        score = np.float64(z[i, a])
        own[a] += factor * ((1.0 if score < 1.0 else 0.0) - (1.0 if score > -1.0 else 0.0))


@add_score_hessian_of(MultitaskSquaredHinge)
def _add_hessian(loss, z, i, y, factor, hessian, scratch):
    for r in range(z.shape[1]):
        score = np.float64(z[i, r])
        # The own class is within the margin below 1, the others above -1.
        if (score < 1.0) if r == y[i] else (score > -1.0):
            hessian[r, r] += 2.0 * factor


@add_score_hessian_of(MultitaskSquaredHinge, sets=True)
def _add_label_hessian(loss, z, i, y, factor, hessian, scratch):
    # Signs first: a row's labels are few, and all outputs follow.
    scratch[:] = -1.0
    for a in y.indices[y.indptr[i] : y.indptr[i + 1]]:
        scratch[a] = 1.0
    for r in range(z.shape[1]):
        if scratch[r] * np.float64(z[i, r]) < 1.0:
            hessian[r, r] += 2.0 * factor


@score_change_of(MultitaskSquaredHinge)
def _change(loss, z, i, y, x, d, scratch):
    old = np.float64(z[i, y[i]])
    # The loop moves all classes as if none were the row's own.
    change = slack_move(z, i, 1.0, 1.0, x, d)
    return change + own_correction(z, np.float64(z[i, y[i]])) - own_correction(z, old)


@score_change_of(MultitaskSquaredHinge, sets=True)
def _label_change(loss, z, i, y, x, d, scratch):
    labels = y.indices[y.indptr[i] : y.indptr[i + 1]]
    for a in labels:
        # Old scores of the labels, for the corrections before and after.
        scratch[a] = z[i, a]
    change = slack_move(z, i, 1.0, 1.0, x, d)
    for a in labels:
        change += own_correction(z, np.float64(z[i, a])) - own_correction(z, scratch[a])
    return change


@row_loss_of(MultitaskSquaredHinge, sets=True)
def _label_loss(loss, z, y, i, scratch):
    total = 0.0
    for r in range(len(z)):
        total += square_of_slack(1.0 + z[r])
    for a in y.indices[y.indptr[i] : y.indptr[i + 1]]:
        total += own_correction(z, z[a])
    return total
