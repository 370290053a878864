"""Squared slacks of all other classes than the row's, and the ranking of labels by the same slacks."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import numpy as np

from distls.workers.compilation.jit import helper
from distls.workers.losses.binary_losses import BinarySquaredHinge
from distls.workers.losses.loss import GRADIENT_IN_G, Codes, Floats, Loss
from distls.workers.losses.row_functions import (
    add_score_curvature_of,
    add_score_gradient_of,
    add_score_hessian_of,
    row_gradient_of,
    row_loss_of,
    score_change_of,
)
from distls.workers.losses.shared_parts import SquaredSlack, change_of_square, scores_of_class, square_of_slack
from distls.workers.simd.class_sums import first_max, sum_of, sum_of_squares
from distls.workers.simd.slack_kernels import slack_curvature, slack_gradient, slack_move


class MulticlassSquaredHinge(SquaredSlack, Loss):
    """Squared slacks of all other classes, ``sum_{j != y} max(0, 1 + z_j - z_y)^2`` (BCD paper Eq. 2, gradient Eq. 5).

    For a set of labels it is the sum over all pairs of a label of the row and any other: a ranking.
    """

    __slots__ = ()

    name = "multiclass_squared_hinge"
    ignores_constants = True
    aliases = ("squared_hinge",)
    ranks = True
    binary = BinarySquaredHinge()

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        return np.square(_slacks(scores, y)).sum(axis=1)

    def gradient(self, scores: Floats, y: Codes) -> Floats:
        """Return the derivatives of each row: twice the slacks, and less their sum at the row's class."""
        out = 2.0 * _slacks(scores, y)
        out[np.arange(len(y)), y] = -out.sum(axis=1)
        return out

    def lipschitz(self, k: int) -> float:
        """Return 2 k: sharp, not the paper's 4 (k - 1) (docs/papers.md)."""
        return 2.0 * k

    def slope_growth(self, k: int) -> float:
        """Return k: the derivative at a row's own class is a sum over all others."""
        return float(k)


def _slacks(scores: Floats, y: Codes) -> Floats:
    """Return ``max(0, 1 + z_c - z_y)``, zero at each row's own class."""
    out = np.maximum(0.0, 1.0 + scores - scores_of_class(scores, y)[:, None])
    out[np.arange(len(y)), y] = 0.0
    return out


@row_gradient_of(MulticlassSquaredHinge)
def _row(z, scale, y, g):
    factor, one, none = g.dtype.type(scale), g.dtype.type(1.0), g.dtype.type(0.0)
    # The constant joins the own score once: a slack is then one difference.
    best, own = first_max(z), factor * z[y] - one
    for c in range(len(g)):
        short = factor * z[c] - own
        g[c] = none if short <= none else short  # unlike `max`, propagates a NaN
    g[y] = none
    value = sum_of_squares(g)
    # Twice the slacks, by addition, which is exact.
    for c in range(len(g)):
        g[c] += g[c]
    g[y] = -sum_of(g)
    # Without loss the gradient is zero, and the caller saves an update.
    return value, y if value == 0.0 else GRADIENT_IN_G, best


# ---------------------------------------------------------------- one non-zero, in block coordinate descent


@add_score_gradient_of(MulticlassSquaredHinge)
def _add_gradient(loss, z, i, y, factor, g, own, scratch):
    # The sum over all slacks includes the row's own, of margin 1: g + own cancels it.
    own[y[i]] -= factor * slack_gradient(z, i, 1.0 - np.float64(z[i, y[i]]), factor, g)


@add_score_gradient_of(MulticlassSquaredHinge, sets=True)
def _add_ranked_gradient(loss, z, i, y, factor, g, own, scratch):
    labels = y.indices[y.indptr[i] : y.indptr[i + 1]]
    for a in labels:
        c = 1.0 - np.float64(z[i, a])
        total = slack_gradient(z, i, c, factor, g)
        for b in labels:  # labels of the same row are not ranked against each other
            # Pairs of two labels of the row are taken out again of what the loop over all has added.
            slack = max(np.float64(z[i, b]) + c, 0.0)
            own[b] -= factor * slack
            total -= slack
        own[a] -= factor * total


@add_score_curvature_of(MulticlassSquaredHinge)
def _add_curvature(loss, z, i, y, factor, h, own, scratch):
    # the row's own class counts the others within the margin; it is itself among those counted, and in h[y] once
    own[y[i]] += factor * (slack_curvature(z, i, 1.0 - np.float64(z[i, y[i]]), factor, h) - 2.0)


@add_score_curvature_of(MulticlassSquaredHinge, sets=True)
def _add_ranked_curvature(loss, z, i, y, factor, h, own, scratch):
    labels = y.indices[y.indptr[i] : y.indptr[i + 1]]
    for a in labels:
        c = 1.0 - np.float64(z[i, a])
        within_margin = slack_curvature(z, i, c, factor, h)
        for b in labels:
            within = 1.0 if np.float64(z[i, b]) + c > 0.0 else 0.0
            # The correction for labels of the same row, as for the gradient.
            own[b] -= factor * within
            within_margin -= within
        own[a] += factor * within_margin


@helper
def _add_pair(hessian, a, r, by):
    """Add the second derivatives of ``by / 2 (z_r - z_a + 1)^2`` to the lower triangle."""
    hessian[a, a] += by
    hessian[r, r] += by
    # Lower triangle only, as the factorisation reads it.
    hessian[max(a, r), min(a, r)] -= by


@add_score_hessian_of(MulticlassSquaredHinge)
def _add_hessian(loss, z, i, y, factor, hessian, scratch):
    own = np.intp(y[i])
    c = 1.0 - np.float64(z[i, own])
    for r in range(z.shape[1]):
        # Inactive slacks have no curvature.
        if r != own and np.float64(z[i, r]) + c > 0.0:
            _add_pair(hessian, own, r, 2.0 * factor)


@add_score_hessian_of(MulticlassSquaredHinge, sets=True)
def _add_ranked_hessian(loss, z, i, y, factor, hessian, scratch):
    labels = y.indices[y.indptr[i] : y.indptr[i + 1]]
    scratch[:] = 0.0
    for a in labels:
        scratch[a] = 1.0
    for a in labels:
        c = 1.0 - np.float64(z[i, a])
        for r in range(z.shape[1]):
            if scratch[r] == 0.0 and np.float64(z[i, r]) + c > 0.0:
                _add_pair(hessian, np.intp(a), r, 2.0 * factor)


@score_change_of(MulticlassSquaredHinge)
def _change(loss, z, i, y, x, d, scratch):
    old = np.float64(z[i, y[i]])
    # Rounded to the type of the scores, so that the change is that of the scores as they are stored.
    new = np.float64(z.dtype.type(old + x * d[y[i]]))
    return slack_move(z, i, 1.0 - old, 1.0 - new, x, d)


@helper
def _move_ranked(z, i, labels, x, d, scratch):
    for r in range(z.shape[1]):
        # Old scores are kept, because every label compares all scores before and after.
        scratch[r] = z[i, r]
        z[i, r] += x * d[r]
    change = 0.0
    for a in labels:
        before, after = 1.0 - scratch[a], 1.0 - np.float64(z[i, a])
        for r in range(z.shape[1]):
            change += change_of_square(np.float64(z[i, r]) + after, scratch[r] + before)
        # Take back the pairs of labels of the same row.
        for b in labels:
            change -= change_of_square(np.float64(z[i, b]) + after, scratch[b] + before)
    return change


@score_change_of(MulticlassSquaredHinge, sets=True)
def _ranked_change(loss, z, i, y, x, d, scratch):
    return _move_ranked(z, i, y.indices[y.indptr[i] : y.indptr[i + 1]], x, d, scratch)


@row_loss_of(MulticlassSquaredHinge, sets=True)
def _ranked_loss(loss, z, y, i, scratch):
    labels = y.indices[y.indptr[i] : y.indptr[i + 1]]
    total = 0.0
    for a in labels:
        for r in range(len(z)):
            total += square_of_slack(1.0 - z[a] + z[r])
        for b in labels:
            total -= square_of_slack(1.0 - z[a] + z[b])
    return total
