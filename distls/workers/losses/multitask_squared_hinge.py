"""One-versus-rest squared hinge of classes and of sets of labels (the block coordinate descent paper's)."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import numpy as np

from distls.workers.losses.binary_losses import BinarySquaredHinge
from distls.workers.losses.loss import Codes, Floats
from distls.workers.losses.ovr_squared_hinge import OvrSquaredHinge, ovr_squared_hinge_row
from distls.workers.losses.row_functions import (
    add_score_curvature_of,
    add_score_gradient_of,
    add_score_hessian_of,
    row_gradient_of,
    row_loss_of,
    score_change_of,
)
from distls.workers.losses.shared_parts import SquaredSlack, own_correction, square_of_slack
from distls.workers.simd.slack_kernels import slack_curvature, slack_gradient, slack_move


class MultitaskSquaredHinge(SquaredSlack):
    """One-versus-rest, ``sum_c max(0, 1 - t_c z_c)^2`` without a 1/2 (BCD paper Eq. 11, gradient Eq. 13)."""

    __slots__ = ()

    name = "multitask_squared_hinge"
    separable = True
    binary = BinarySquaredHinge()

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        return 2.0 * OvrSquaredHinge().values(scores, y)

    def gradient(self, scores: Floats, y: Codes) -> Floats:
        """Return the derivatives of each row: ``-2 t_c max(0, 1 - t_c z_c)``."""
        return 2.0 * OvrSquaredHinge().gradient(scores, y)

    def lipschitz(self, k: int) -> float:
        """Return 2."""
        return 2.0


@row_gradient_of(MultitaskSquaredHinge)
def _row(z, scale, y, g):
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
