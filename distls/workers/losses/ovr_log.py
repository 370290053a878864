"""One-versus-rest logistic loss, and its log loss.

The dual step is a Newton iteration in one dual of the logistic loss (Yu, Huang, Lin 2011, section 3).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import math

import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import helper
from distls.workers.losses.binary_losses import BinaryLog, log_of_score
from distls.workers.losses.loss import GRADIENT_IN_G, Codes, Floats, LabelSets, Loss
from distls.workers.losses.row_functions import output_loss_of, row_curvature_of, row_gradient_of, step_curvature_of
from distls.workers.losses.shared_parts import MarginLoss, separable_dual_step, softmax_in_place
from distls.workers.losses.softmax import Softmax, logistic_curvature
from distls.workers.simd.class_sums import exp_of_minus_abs, first_max
from distls.workers.simd.exp_log import exp_of_negative, log_of_normal
from distls.workers.simd.vectors import F64_PER_VECTOR, any_of, fused, is_lane, load, select, splat, sum_of_lanes

_FACTORS = 512  # of at most 2 each: their product does not overflow float64


class NormalizedSigmoids(Loss):
    """``-log p_y`` for scikit-learn's one-versus-rest probabilities p_c = sigmoid(z_c) / sum_j sigmoid(z_j).

    It evaluates models trained with `OvrLog`; it has no gradient.
    """

    __slots__ = ()

    name = "ovr_log"

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the log loss of each row."""
        # The logarithms of the sigmoids are the scores of a softmax.
        return Softmax().values(-np.logaddexp(0.0, -scores), y)


class OvrLog(MarginLoss):
    """One-versus-rest logistic loss, ``sum_c log(1 + exp(-t_c z_c))`` with t_c = 1 for the row's class, else -1."""

    __slots__ = ()

    name = "ovr_log"
    aliases = ("log",)
    link_name = "logit"
    inner_names = ("logit",)
    elsewhere = ("L2R_LR", "L2R_LR_DUAL", "L1R_LR", "--link logistic")
    logistic = True
    targets = ("class", "multilabel")
    log_loss = NormalizedSigmoids()
    binary = BinaryLog()
    dual_domain = "box"
    of_margins, of_duals = BinaryLog.of_margins, BinaryLog.of_duals
    curvature, lipschitz = BinaryLog.curvature, BinaryLog.lipschitz
    secant_curvature = BinaryLog.secant_curvature

    def gradient(self, scores: Floats, y: Codes) -> Floats:
        """Return the derivatives of each row: the sigmoids of the scores, less 1 at the row's class."""
        # 1 / (1 + exp(-z)) without overflow.
        out = np.exp(-np.logaddexp(0.0, -scores))
        out[np.arange(len(y)), y] -= 1.0
        return out

    def label_gradient(
        self, scores: Floats, labels: LabelSets, wanted: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the sigmoids of the scores less the indicators, and the losses."""
        z = scores.astype(np.float64)
        values = np.logaddexp(0.0, np.where(wanted, -z, z)).sum(axis=1)
        return np.exp(-np.logaddexp(0.0, -z)) - wanted, values

    def probabilities(self, scores: Floats) -> Floats:
        """Overwrite scores by the sigmoids over their sum, and return them."""
        # as the softmax of the sigmoids' logarithms, which is right even where all sigmoids underflow
        np.negative(np.logaddexp(0.0, -scores), out=scores)
        return softmax_in_place(scores)


output_loss_of(OvrLog)(log_of_score)
row_curvature_of(OvrLog)(logistic_curvature)
row_curvature_of(BinaryLog)(logistic_curvature)


@helper
def _sum_of_others(z, scale, y):
    """Return the sum of ``max(scale * z[c], 0)`` over all classes but y, float64."""
    total = splat(0.0)
    for first in range(0, len(z), F64_PER_VECTOR):
        # float64: a float32 score is exact in it, and sums over classes keep their digits.
        score = scale * load(z, first, 0.0)
        # unlike `max`, propagates a NaN
        total = total + select(is_lane(y - first), 0.0, select(score <= 0.0, 0.0, score))
    return sum_of_lanes(total)


@helper
def _sum_of_log1p(g):
    """Return the sum of ``log(1 + g[c])`` for g in [0, 1], float64."""
    total = splat(0.0)
    for start in range(0, len(g), _FACTORS * F64_PER_VECTOR):  # one logarithm for a product of many factors
        product = splat(1.0)
        for first in range(start, min(start + _FACTORS * F64_PER_VECTOR, len(g)), F64_PER_VECTOR):
            product = product * (1.0 + load(g, first, 0.0))
        total = total + log_of_normal(product)
    return sum_of_lanes(total)


@row_gradient_of(OvrLog)
def _row(z, scale, y, g):
    best = first_max(z)
    exp_of_minus_abs(z, scale, g)
    value = _sum_of_others(z, scale, y) + _sum_of_log1p(g)
    # The own class counts with its sign turned.
    own = -scale * np.float64(z[y])
    value += 0.0 if own <= 0.0 else own
    one = g.dtype.type(1.0)
    for c in range(len(g)):
        # Both branches divide numbers in [0, 1]: nothing overflows.
        g[c] = (g[c] if z[c] < 0 else one) / (one + g[c])
    g[y] -= one
    return value, GRADIENT_IN_G, best


@row_gradient_of(NormalizedSigmoids)
def _log_loss_row(z, scale, y, g):
    # sigmoid(a) = exp(min(a, 0)) / (1 + exp(-|a|)); the best score is at `floor` or above 0
    best = first_max(z)
    floor, own = min(scale * np.float64(z[best]), 0.0), scale * np.float64(z[y])
    total = 0.0
    for c in range(len(z)):
        score = scale * np.float64(z[c])
        below = 0.0 if score > 0.0 else score
        total += math.exp(below - floor) / (1.0 + math.exp(-abs(score)))
    value = floor + math.log(total) + math.log1p(math.exp(-abs(own))) - (0.0 if own > 0.0 else own)
    return value, y, best


@helper
def _raised_curvature(z, g, h):
    """Set h to the curvatures of one-versus-rest logistic losses with gradient g, raised for wrong rows."""
    for c in range(len(g)):
        size, m = abs(np.float64(g[c])), abs(np.float64(z[c]))
        # |g| (1 - |g|) is the second derivative; for wrong rows see `rls`.
        h[c] = size / (2.0 + m) if size > 0.5 else size * (1.0 - size)
        if m == np.inf:
            h[c] = np.nan  # divergence must be seen: with a curvature of zero the row would be skipped


@step_curvature_of(OvrLog)
@step_curvature_of(BinaryLog)
def _step_curvature(loss, y, z, g, h):
    _raised_curvature(z, g, h)


_NEWTON_STEPS = 100  # a step adds about one to x where q is large, and x is at most about log q then
# Error of the margin at which the iteration ends: one more step squares it, and costs no exponential.
_NEAR = 3e-4
_TINY = 1e-300  # whose logarithm times zero is zero


@helper
def _margin_step(m, q, b):
    # the new dual is sigmoid(-x) at the root of h(x) = x - m - q (sigmoid(-x) - b), which increases with slope >= 1
    small = exp_of_negative(-abs(m))
    value = log_of_normal(1.0 + small) - select(m < 0.0, m, 0.0)
    # Logarithms of zero are replaced: times zero they would be NaN.
    log_own = log_of_normal(select(b < _TINY, _TINY, b))
    log_other = log_of_normal(select(1.0 - b < _TINY, _TINY, 1.0 - b))
    # h is convex below zero and concave above: on the root's side, Newton steps do not pass it twice
    side = select(m > q * (b - 0.5), 1.0, -1.0)
    x, far = m, q * b * (1.0 - b) > 1.0
    # the branches are predicted: what follows need not wait for them
    if any_of(far):
        # where sigmoid(-x) = b: nearer than m, which is on the other side of the root
        x = select(far, log_other - log_own, m)
    beyond = side * x < 0.0
    if any_of(beyond):
        x = select(beyond, 0.0, x)
    # No lane has moved from its start: the exponential at m is still right.
    if any_of(x != m):
        small = exp_of_negative(-abs(x))
    share = select(x > 0.0, small, 1.0) / (1.0 + small)
    for _ in range(_NEWTON_STEPS):
        excess = fused(-q, share - b, x - m)
        far = abs(excess) > fused(abs(x), _NEAR, _NEAR)
        if not any_of(far):
            break
        # those that are near stay: what becomes of an output does not depend on the others
        # The slope of h is at least one, so the step is bounded.
        x = select(far, x - excess / fused(q * share, 1.0 - share, 1.0), x)
        beyond = side * x < 0.0
        if any_of(beyond):
            x = select(beyond, 0.0, x)
        small = exp_of_negative(-abs(x))
        share = select(x > 0.0, small, 1.0) / (1.0 + small)
    # at share = sigmoid(-x) the negative entropy is -log(1 + exp(-x)) - x share
    after = fused(-x, select(x > 0.0, share, share - 1.0), -log_of_normal(1.0 + small))
    # the last step, by the derivatives at x: else duals would rest where the loop ends
    slope = share * (1.0 - share)
    short = fused(-q, share - b, x - m) / fused(slope, q, 1.0)
    change = slope * short
    return (
        share + change,
        value,
        fused(b, log_own, (1.0 - b) * log_other),
        fused(change, fused(short, 0.5, -x), after),
    )


separable_dual_step(_margin_step, OvrLog, BinaryLog)
