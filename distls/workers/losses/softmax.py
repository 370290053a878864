"""Multi-class logistic loss, with the dual step of maximum entropy models (Yu, Huang, Lin 2011, section 5)."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import numpy as np
import scipy
from numpy.typing import NDArray

from distls.workers.compilation.jit import helper
from distls.workers.losses.binary_losses import BinaryLog
from distls.workers.losses.loss import GRADIENT_IN_G, Codes, Floats, Loss
from distls.workers.losses.row_functions import (
    add_score_curvature_of,
    add_score_gradient_of,
    add_score_hessian_of,
    dual_step_of,
    row_curvature_of,
    row_gradient_of,
    score_change_of,
)
from distls.workers.losses.shared_parts import scores_of_class, softmax_in_place
from distls.workers.simd.class_sums import exp_below, first_max
from distls.workers.simd.exp_log import exp_of_negative, log_of_normal
from distls.workers.simd.vectors import (
    F64_PER_VECTOR,
    is_lane,
    lanes_below,
    load,
    max_of_lanes,
    select,
    splat,
    store,
    sum_of_lanes,
)


class Softmax(Loss):
    """Multi-class logistic loss, ``log sum_j exp(z_j) - z_y`` (MCID paper Eq. 6, gradient Eq. 15)."""

    __slots__ = ()

    name = "softmax"
    ignores_constants = True
    aliases = ("log",)
    link_name = "softmax"
    inner_names = ("logistic",)
    elsewhere = ("L2R_LR", "L2R_LR_DUAL", "L1R_LR", "--link logistic")
    logistic = True
    dual_domain = "simplex"
    binary = BinaryLog()
    curvature = BinaryLog.curvature  # p (1 - p): gradients are p - 1 of the row's class, p of the others

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        # Subtract the maximum: no exponential overflows.
        top = scores.max(axis=1)
        total = np.exp(scores - top[:, None]).sum(axis=1)
        return np.log(total) + top - scores_of_class(scores, y)

    def gradient(self, scores: Floats, y: Codes) -> Floats:
        """Return the derivatives of each row: the probabilities, less 1 at the row's class."""
        out = np.exp(scores - scores.max(axis=1, keepdims=True))
        out /= out.sum(axis=1, keepdims=True)
        out[np.arange(len(y)), y] -= 1.0
        return out

    def conjugate(self, duals: Floats, y: Codes) -> NDArray[np.float64]:
        """Return the negative entropy of the masses ``e_y - a``."""
        masses = -duals.astype(np.float64)
        masses[np.arange(len(y)), y] += 1.0
        masses = np.maximum(masses, 0.0)  # by rounding less than zero, where others have all mass
        return np.asarray(scipy.special.xlogy(masses, masses).sum(axis=1))

    def curvature_product(self, gradients: Floats, directions: Floats) -> Floats:
        """Return ``(diag(p) - p p^T) v`` of each row."""
        p = np.where(gradients < 0.0, 1.0 + gradients, gradients)
        moved = p * directions
        return np.asarray(moved - p * moved.sum(axis=1, keepdims=True))

    def probabilities(self, scores: Floats) -> Floats:
        """Overwrite scores by their softmax, and return them."""
        return softmax_in_place(scores)

    def lipschitz(self, k: int) -> float:
        """Return 1/2, the largest eigenvalue of ``diag(p) - p p^T``."""
        return 0.5


Softmax.log_loss = Softmax()


@helper
def _log_of_sum(total):
    """Return the logarithm of a sum of exponentials, of which the largest is 1; NaN propagates."""
    return select(total != total, total, log_of_normal(total))


@row_gradient_of(Softmax)
def _row(z, scale, y, g):
    best = first_max(z)
    total = exp_below(z, scale, z[best], g)
    # One division a row, k products.
    inverse = g.dtype.type(1.0 / total)
    for c in range(len(g)):
        g[c] *= inverse
    g[y] -= g.dtype.type(1.0)
    value = _log_of_sum(total) + scale * (np.float64(z[best]) - np.float64(z[y]))
    return value, GRADIENT_IN_G, best


@row_curvature_of(Softmax)
def logistic_curvature(loss, g, h):
    """Set ``h = p (1 - p)`` for probabilities p of each class, from the gradient."""
    for c in range(len(g)):
        # From the gradient alone, which the kernel has already.
        size = abs(g[c])  # 1 - p of the row's class, p of the others
        h[c] = size * (g.dtype.type(1.0) - size)


# ---------------------------------------------------------------- the duals of one row, in dual coordinate ascent

_NEWTON_STEPS, _NEAR = 40, 1e-9
_NEVER = -1e300  # a score that has no mass
_TINY = 1e-300  # whose logarithm times zero is zero


@helper
def masses_of(a, own, masses):
    """Set masses, on the simplex, to ``e_own - a`` and return that of the row's own class; those of padding are 0."""
    others = splat(0.0)
    for first in range(0, len(a), F64_PER_VECTOR):
        mass = -load(a, first, 0.0)
        # A mass below zero is rounding.
        mass = select(mass > 0.0, mass, 0.0)
        store(mass, masses, first)
        others = others + select(is_lane(own - first), 0.0, mass)
    # The own mass follows from the others, so that they sum to one.
    masses[own] = max(1.0 - sum_of_lanes(others), 0.0)
    return masses[own]


@helper
def set_masses(masses, own, a, d):
    """Set a to ``e_own - masses`` rounded, so that its numbers sum to zero, and d to its change; return how many."""
    own_before, total, moved = np.float64(a[own]), splat(0.0), splat(0.0)
    for first in range(0, len(a), F64_PER_VECTOR):
        is_own, old = is_lane(own - first), load(a, first, 0.0)
        rounded = store(select(is_own, old, -load(masses, first, 0.0)), a, first)
        change = store(rounded - old, d, first)
        moved = moved + select(change != 0.0, 1.0, 0.0)
        total = total - select(is_own, 0.0, rounded)
    # From the rounded duals, so that the stored numbers sum to zero as nearly as their type allows.
    a[own] = a.dtype.type(sum_of_lanes(total))
    d[own] = a.dtype.type(np.float64(a[own]) - own_before)
    return int(sum_of_lanes(moved)) + (d[own] != 0.0)


@helper
def _negative_entropy(masses):
    total = splat(0.0)
    for first in range(0, len(masses), F64_PER_VECTOR):
        mass = load(masses, first, 0.0)
        total = total + mass * log_of_normal(select(mass < _TINY, _TINY, mass))
    return sum_of_lanes(total)


@helper
def _new_masses(z, q, work):
    """Set work[1] to the masses that solve ``log m_c + q (m_c - old_c) = z_c - nu`` and sum to one; old is work[0]."""
    # Newton's method for all logarithms x and nu at once, from a nu at which the masses sum to more than one
    old, x, residual, slope = work[0], work[1], work[2], work[3]
    k, top = len(z), splat(_NEVER)
    for first in range(0, k, F64_PER_VECTOR):
        wanted = load(z, first, _NEVER) + q * load(old, first, 0.0)
        top = select(wanted > top, wanted, top)
        store(wanted, x, first)
    # At this nu every mass is at least the optimal one: Newton's method comes from one side.
    nu = max_of_lanes(top) - q
    for first in range(0, k, F64_PER_VECTOR):
        start = load(x, first, 0.0) - nu
        # Masses are at most one, so logarithms are at most zero.
        store(select(start < 0.0, start, 0.0), x, first)
    for _ in range(_NEWTON_STEPS):
        total, shift, weight, worst = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
        for first in range(0, k, F64_PER_VECTOR):
            x_c = load(x, first, 0.0)
            mass = exp_of_negative(x_c)
            residual_c = load(z, first, _NEVER) + q * load(old, first, 0.0) - nu - x_c - q * mass
            # The Newton step of each logarithm at fixed nu divides by 1 + q m.
            slope_c = 1.0 / (1.0 + q * mass)
            store(residual_c, residual, first)
            store(slope_c, slope, first)
            total = total + mass
            shift = shift + mass * residual_c * slope_c
            weight = weight + mass * slope_c
            # Weighted by the mass: a class without mass may be as wrong as it likes.
            size = abs(residual_c) * mass
            worst = select(size > worst, size, worst)
        excess = sum_of_lanes(total) - 1.0
        if abs(excess) + max_of_lanes(worst) <= _NEAR:
            break
        # One equation for nu, as the others are eliminated.
        step = (excess + sum_of_lanes(shift)) / sum_of_lanes(weight)
        nu += step
        for first in range(0, k, F64_PER_VECTOR):
            moved = load(x, first, 0.0) + (load(residual, first, 0.0) - step) * load(slope, first, 0.0)
            store(select(moved < 0.0, moved, 0.0), x, first)
    total = splat(0.0)
    for first in range(0, k, F64_PER_VECTOR):
        mass = select(lanes_below(k - first), exp_of_negative(load(x, first, 0.0)), 0.0)
        total = total + store(mass, x, first)
    # Normalised, since the iteration ends a little off the simplex.
    inverse = 1.0 / sum_of_lanes(total)
    for first in range(0, k, F64_PER_VECTOR):
        store(load(x, first, 0.0) * inverse, x, first)


@dual_step_of(Softmax)
def _dual_step(z, y, i, q, a, d, work):
    own, best, old, new = np.int64(y[i]), first_max(z), work[0], work[1]
    masses_of(a, own, old)
    top, total, gain = np.float64(z[best]), splat(0.0), splat(0.0)
    for first in range(0, len(z), F64_PER_VECTOR):
        total = total + exp_of_negative(load(z, first, _NEVER) - top)
    value = _log_of_sum(sum_of_lanes(total)) + top - np.float64(z[own])
    _new_masses(z, q, work)
    before, after = _negative_entropy(old), _negative_entropy(new)
    for first in range(0, len(z), F64_PER_VECTOR):
        change = load(new, first, 0.0) - load(old, first, 0.0)
        gain = gain + change * (load(z, first, 0.0) - 0.5 * q * change)
    # A step that lowers the dual is not taken: ascent must be monotone.
    if before - after + sum_of_lanes(gain) < 0.0:  # Newton's method has not converged
        return value, before, before, 0, best
    return value, before, after, set_masses(new, own, a, d), best


# ---------------------------------------------------------------- one non-zero, in block coordinate descent


@helper
def _exponentials(z, i, scratch):
    """Set ``scratch = exp(z_i - max z_i)``; return the sum and the maximum."""
    row, top, total = z[i], splat(_NEVER), splat(0.0)
    for first in range(0, len(row), F64_PER_VECTOR):
        score = load(row, first, _NEVER)
        top = select(score > top, score, top)
    highest = max_of_lanes(top)
    for first in range(0, len(row), F64_PER_VECTOR):
        total = total + store(exp_of_negative(load(row, first, _NEVER) - highest), scratch, first)
    return sum_of_lanes(total), highest


@helper
def _log_loss(z, i, y, scratch):
    total, highest = _exponentials(z, i, scratch)
    return _log_of_sum(total) + highest - np.float64(z[i, y])


@add_score_gradient_of(Softmax)
def _add_gradient(loss, z, i, y, factor, g, own, scratch):
    by = factor / _exponentials(z, i, scratch)[0]
    for first in range(0, z.shape[1], F64_PER_VECTOR):
        store(load(g, first, 0.0) + by * load(scratch, first, 0.0), g, first)
    # Minus one at the row's own class, outside of the vector loop.
    own[y[i]] -= factor


@add_score_curvature_of(Softmax)
def _add_curvature(loss, z, i, y, factor, h, own, scratch):
    inverse = 1.0 / _exponentials(z, i, scratch)[0]
    for first in range(0, z.shape[1], F64_PER_VECTOR):
        p = inverse * load(scratch, first, 0.0)
        store(load(h, first, 0.0) + factor * p * (1.0 - p), h, first)


@add_score_hessian_of(Softmax)
def _add_hessian(loss, z, i, y, factor, hessian, scratch):
    inverse = 1.0 / _exponentials(z, i, scratch)[0]
    for r in range(z.shape[1]):
        p = inverse * scratch[r]
        by = factor * inverse * p
        for c in range(r + 1):
            # The lower triangle of diag(p) - p p^T.
            hessian[r, c] -= by * scratch[c]
        hessian[r, r] += factor * p


@score_change_of(Softmax)
def _change(loss, z, i, y, x, d, scratch):
    before = _log_loss(z, i, y[i], scratch)
    row = z[i]
    for first in range(0, len(row), F64_PER_VECTOR):
        store(load(row, first, 0.0) + x * load(d, first, 0.0), row, first)
    return _log_loss(z, i, y[i], scratch) - before
