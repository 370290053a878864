"""Multi-class hinge (Crammer and Singer 2001), with the dual step of Keerthi et al. (2008), section 3; perceptron."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import helper
from distls.workers.losses.binary_losses import BinaryHinge, BinaryPerceptron
from distls.workers.losses.loss import Codes, Floats, Loss
from distls.workers.losses.row_functions import dual_step_of, row_gradient_of
from distls.workers.losses.shared_parts import pairs, scores_of_class
from distls.workers.losses.softmax import masses_of, set_masses
from distls.workers.simd.class_sums import first_max
from distls.workers.simd.vectors import (
    F64_PER_VECTOR,
    fused,
    is_lane,
    lanes_below,
    load,
    max_of_lanes,
    select,
    splat,
    store,
    sum_of_lanes,
)

_NEVER = -1e300  # below any score


class CrammerSinger(Loss):
    """Multi-class hinge, ``max(0, 1 + max_{j != y} z_j - z_y)`` (MCID paper Eq. 9, gradient Eq. 16)."""

    __slots__ = ()

    name = "crammer_singer"
    aliases = ("hinge",)
    elsewhere = ("MCSVM_CS",)
    certificate = "duality_gap"
    dual_domain = "simplex"
    binary = BinaryHinge()

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        # The first of several best classes, as everywhere: ties go to the lowest code.
        return np.maximum(0.0, 1.0 + _others(scores, y).max(axis=1) - scores_of_class(scores, y))

    def gradient(self, scores: Floats, y: Codes) -> Floats:
        """Return a subgradient of each row: +1 at the best other class, -1 at y, or 0 beyond the margin."""
        runner_up = _others(scores, y).argmax(axis=1)
        return pairs(np.where(self.values(scores, y) > 0.0, runner_up, y), y, scores)

    def score_step(self, k: int, n_rows: int) -> float:
        """Return a step without k: the gradient is non-zero for two outputs, whatever their number."""
        return 0.25 * max(n_rows / 1e4, 1.0) ** 0.25  # docs/decisions/0018

    def conjugate(self, duals: Floats, y: Codes) -> NDArray[np.float64]:
        """Return minus the dual of the row's own class."""
        return np.asarray(-scores_of_class(duals, y).astype(np.float64))


def _others(scores: Floats, y: Codes) -> Floats:
    """Return the scores with each row's own class at -infinity."""
    out = scores.copy()
    out[np.arange(len(y)), y] = -np.inf
    return out


@row_gradient_of(CrammerSinger)
def _row(z, scale, y, g):
    # The best class other than the row's own: Eq. 16 leaves y out of the arg max.
    runner_up = 1 if y == 0 else 0
    for c in range(runner_up + 1, len(z)):
        if z[c] > z[runner_up] and c != y:
            runner_up = c
    value = 1.0 + scale * (np.float64(z[runner_up]) - np.float64(z[y]))
    # On a tie the lower code is predicted, which may be the row's own.
    wrong = z[runner_up] > z[y] or (z[runner_up] == z[y] and runner_up < y)
    predicted = runner_up if wrong else y
    if value <= 0.0:  # not `value > 0`: a NaN must get out
        return 0.0, y, predicted
    return value, runner_up, predicted


@helper
def _project(v, k):
    """Project the first k numbers of v onto the simplex, dropping what is below the threshold (Michelot 1986)."""
    # Padding lanes hold a number that never is the largest and never has mass.
    top = splat(_NEVER)
    for first in range(0, k, F64_PER_VECTOR):
        own = select(lanes_below(k - first), load(v, first, 0.0), _NEVER)
        store(own, v, first)
        top = select(own > top, own, top)
    highest, threshold, count = max_of_lanes(top), -1.0, k + 1.0
    # below the largest, as numbers may be so large that one less is the same
    for first in range(0, k, F64_PER_VECTOR):
        store(load(v, first, 0.0) - highest, v, first)
    while True:  # the threshold rises, so that ever fewer are above it, but for rounding
        total, above = splat(0.0), splat(0.0)
        for first in range(0, k, F64_PER_VECTOR):
            own = load(v, first, 0.0)
            total = total + select(own > threshold, own, 0.0)
            above = above + select(own > threshold, 1.0, 0.0)
        number = sum_of_lanes(above)
        if number >= count or number == 0.0:
            # Rounding may keep the count from falling: the threshold is then as good as it gets.
            break
        threshold, count = (sum_of_lanes(total) - 1.0) / number, number
    for first in range(0, k, F64_PER_VECTOR):
        left = load(v, first, 0.0) - threshold
        store(select(left < 0.0, 0.0, left), v, first)


@dual_step_of(CrammerSinger)
def _dual_step(z, y, i, q, a, d, work):
    own, masses, k = np.int64(y[i]), work[0], len(z)
    runner_up = 1 if own == 0 else 0
    # The scan restarts here in float64, since the dual step is compared with the conjugates.
    for c in range(runner_up + 1, k):
        if z[c] > z[runner_up] and c != own:
            runner_up = c
    value = 1.0 + (np.float64(z[runner_up]) - np.float64(z[own]))
    wrong = z[runner_up] > z[own] or (z[runner_up] == z[own] and runner_up < own)
    predicted = runner_up if wrong else own
    before = masses_of(a, own, masses) - 1.0
    if value <= 0.0 and before == 0.0:  # beyond its margin, and without duals: it stays so
        return 0.0, 0.0, 0.0, 0, predicted
    # The minimiser over the simplex is the projection of old masses plus slacks over q.
    for first in range(0, k, F64_PER_VECTOR):
        short = load(z, first, 0.0) + select(is_lane(own - first), 0.0, 1.0)
        store(fused(short, 1.0 / q, load(masses, first, 0.0)), masses, first)
    _project(masses, k)
    moved = set_masses(masses, own, a, d)
    # The conjugate is minus the own dual, as stored.
    return 0.0 if value <= 0.0 else value, before, -np.float64(a[own]), moved, predicted


class Perceptron(Loss):
    """Multi-class perceptron loss, ``max_j z_j - z_y`` (MCID paper Eq. 11, gradient Eq. 17)."""

    __slots__ = ()

    name = "perceptron"
    certificate = "none"
    binary = BinaryPerceptron()

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        return scores.max(axis=1) - scores_of_class(scores, y)

    def gradient(self, scores: Floats, y: Codes) -> Floats:
        """Return a subgradient of each row: +1 at the first best class, -1 at y, or 0 where they agree."""
        return pairs(scores.argmax(axis=1), y, scores)


@row_gradient_of(Perceptron)
def _perceptron_row(z, scale, y, g):
    best = first_max(z)
    # Both places are `best`: where the row's class is best, the pair cancels to no gradient.
    return scale * (np.float64(z[best]) - np.float64(z[y])), best, best
