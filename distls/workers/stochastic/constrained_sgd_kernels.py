"""Stochastic least squares that uses the mean of the data (the constrained SGD paper, Algorithms 1 and 2).

Step t of a lane sees row x_i with its k targets y_i and weight s_i, and takes eta_t from `step_size`. The mean is
xbar = S/N, ybar = Y/N with S = sum s x, Y = sum s y, N = sum s over the rows so far, this one included ("running"),
or is given and stays ("fixed": S = xbar, Y = ybar, N = 1). With z the k scores and a penalty alpha/2 |W|^2:

`PROJECT` (CSGD, C-Adaline; Eq. 5-9)

    z = W^T x + b,   W <- (1 - eta alpha) W - eta s x (x) (z - y),   b <- b - eta s (z - y),

then onto the hyperplane W^T xbar + b = ybar:

    q = (S.W + N b - Y) / (|S|^2 + N^2),   W <- W - S (x) q,   b <- b - N q

`CENTRE` (SGD on centred inputs and outputs; the published intercept is ybar - W^T xbar)

    z = ybar + W^T (x - xbar),   W <- (1 - eta alpha) W - eta s (x - xbar) (x) (z - y)

Both move W along S, which has d non-zeros. So W is stored as **W = sigma (V + S (x) a)** with scalars sigma and a (k,):
a step along S changes only `a`, the penalty only sigma, and where S grows by s x, V loses s x (x) a. The update of V
in a step is then a single outer product of x with k numbers, as in plain SGD, and a row costs O(nnz k), never O(d).
The scalars of the projection are tracked in float64, from the products W^T x, S.x and |x|^2 of the row's non-zeros:

    |S + s x|^2 = |S|^2 + 2 s S.x + s^2 |x|^2,     (W - S (x) q).S = S.W - |S|^2 q,
    (S + s x).(W - x (x) h) = S.W + s x.W - (S.x + s |x|^2) h.

**The intercept** is a feature of constant value 1 whose mean is 1. It has no penalty. At the optimum of the penalised
sum the residuals sum to zero, since the intercept is free: the constraint holds there for any alpha, and projecting
does not move the optimum. The shrinking of W leaves the hyperplane, the projection returns to it along (xbar, 1), so
it moves the intercept too. Without an intercept the optimum need not lie on the hyperplane (Theorem 2.1 needs the
constant feature), and where S = 0 there is no hyperplane: nothing is projected then. Where S is almost 0, as on
centred data, the projection throws W far away, in the paper's form as in this one.

**Rounding.** Between folds, V grows with S and a and has to cancel them, and the tracked scalars accumulate rounding
errors. So the lane is folded (V <- W, a <- 0, sigma <- 1, |S|^2 and S.W recomputed, O(d k)) at rows given by its own
clock, not at the end of a block: how rows are cut into blocks changes no bit. With the period P, the first power of two
>= max(d/4, 1024), these rows are P/256, P/128, ... P, since early steps are large, and all multiples of P: O(k) a row.
The lane is also folded when sigma gets small. No error of a scalar outlives its period: the projection after a fold
removes any excess of S.W.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import math
from typing import NamedTuple

import numpy as np
from numba.extending import overload

from distls.workers.compilation.jit import helper, kernel
from distls.workers.linear_algebra.prefetch import prefetch_row
from distls.workers.linear_algebra.score_kernels import (
    check_widths,
    row_arrays,
    row_axpy,
    row_scores,
    row_span,
    row_weight,
)
from distls.workers.losses.loss import Loss
from distls.workers.losses.row_functions import code_of, target_gradient
from distls.workers.losses.squared import Squared
from distls.workers.simd.class_sums import sum_of_squares
from distls.workers.simd.vectors import fused
from distls.workers.stochastic.step_sizes import SQRT, step_size

PROJECT, CENTRE = 0, 1

MODES = {"project": PROJECT, "centre": CENTRE}

# The clock of a lane, float64 (4,): rows seen, N, |S|^2, sigma.
T, MASS, SQUARE, SCALE, CLOCK_SIZE = 0, 1, 2, 3, 4
# State of a lane for each output, the columns of float64 (k, 4): a, b, Y, and the tracked S.W. One array and not four:
# loops over few outputs would spend their time on checking that the arrays do not overlap.
A, B, TARGETS, PRODUCTS, OUTPUT_SIZE = 0, 1, 2, 3, 4

_ROWS_AHEAD = 2  # rows between prefetch and use
_SMALL_SCALE = 2.0**-30  # sigma below it is folded in: V = W / sigma would outgrow float32
_CANCELLED = 1e-8  # |S|^2 reduced to this share in one step has lost half its digits
_MIN_PERIOD = 1024  # rows between folds, at least
_FEATURES_PER_ROW = 4  # features that a fold visits, per row of its period
_FIRST_FOLD = 256  # the first fold is after this part of the period


class ConstrainedSettings(NamedTuple):
    """Settings of `constrained_block`; with a whole number in the place of a float it would be compiled again."""

    mode: int  # `PROJECT` or `CENTRE`
    eta0: float  # > 0
    loss: Loss = Squared()  # or of two classes its binary form
    running: bool = True  # whether the mean is that of the rows seen so far; else it is given and fixed
    schedule: int = SQRT  # a value of `SCHEDULES`
    m: float = math.inf  # > 0, a parameter of the schedule
    alpha: float = 0.0  # >= 0
    fit_intercept: bool = True  # of `PROJECT`: centred data have one


# Codes and numbers have different targets, and numba chooses at compile time: no branch in the loop.
def _add_target(y, i, by, outputs):
    """Add `by` times the k targets of row i to Y."""
    raise NotImplementedError


@overload(_add_target)
def _add_target_overload(y, i, by, outputs):
    def of_class(y, i, by, outputs):
        # One output of two classes is to be -1 or 1.
        if len(outputs) == 1:
            outputs[0, TARGETS] += by if y[i] == 1 else -by
        else:
            outputs[np.intp(y[i]), TARGETS] += by

    def of_numbers(y, i, by, outputs):
        for c in range(len(outputs)):
            outputs[c, TARGETS] += by * y[i, c]

    return of_class if y.ndim == 1 else of_numbers


@kernel
def _check(v, outputs, s):
    check_widths(v, outputs)  # else the kernel would write out of bounds
    if outputs.shape[1] != OUTPUT_SIZE or len(s) != len(v):
        raise ValueError("the weights, the outputs and the mean do not fit")


@helper
def _row_products(indices, data, start, stop, v, s, z):
    """Set ``z = V^T x``; return S.x and |x|^2 in float64."""
    # Scalars of the projection are float64: they are differences of large numbers, and W follows from them.
    row_scores(indices, data, start, stop, v, z)
    along = odd_along = square = odd_square = 0.0
    start, stop = np.uintp(start), np.uintp(stop)
    pairs = start + (stop - start) // np.uintp(2) * np.uintp(2)
    for p in range(start, pairs, np.uintp(2)):
        # Even and odd ones apart, which need not wait for each other.
        x, y = np.float64(data[p]), np.float64(data[p + np.uintp(1)])
        along = fused(x, s[np.intp(indices[p])], along)
        odd_along = fused(y, s[np.intp(indices[p + np.uintp(1)])], odd_along)
        square, odd_square = fused(x, x, square), fused(y, y, odd_square)
    if pairs < stop:
        x = np.float64(data[pairs])
        along, square = fused(x, s[np.intp(indices[pairs])], along), fused(x, x, square)
    return along + odd_along, square + odd_square


@kernel
def _update(indices, data, start, stop, h, v, by, s):
    """Subtract ``x (x) h`` from V and add ``by * x`` to S."""
    # With a single output one pass saves reading the row's indices twice.
    if len(h) == 1 and by != 0.0:  # both in one pass over the non-zeros
        for p in range(start, stop):
            j = np.intp(indices[p])
            v[j, 0] -= v.dtype.type(data[p]) * h[0]
            s[j] += by * np.float64(data[p])
        return
    row_axpy(indices, data, start, stop, -1.0, h, v)
    # A fixed mean does not grow.
    if by != 0.0:
        _grow(indices, data, start, stop, by, s)


@helper
def _grow(indices, data, start, stop, by, s):
    """Add ``by * x`` to S."""
    for p in range(start, stop):
        s[np.intp(indices[p])] += by * np.float64(data[p])


@helper
def _make_plain(v, outputs, s, scale):
    """Set ``V = sigma (V + S (x) a)``."""
    for j in range(v.shape[0]):
        for c in range(v.shape[1]):
            # In float64 and rounded once: S a and V cancel.
            v[j, c] = v.dtype.type(scale * (np.float64(v[j, c]) + s[j] * outputs[c, A]))


@helper
def _sum_products(s, v, outputs):
    """Sum S.V, each output in the order of the features."""
    # The tracked products are recomputed from the folded V, which removes what rounding has added up.
    outputs[:, PRODUCTS] = 0.0
    for j in range(v.shape[0]):
        for c in range(v.shape[1]):
            outputs[c, PRODUCTS] += s[j] * np.float64(v[j, c])


@kernel
def fold(v, outputs, s, scale):
    """Fold sigma and a into V, so that V is W; recompute S.W, and return |S|^2."""
    _make_plain(v, outputs, s, scale)
    outputs[:, A] = 0.0
    _sum_products(s, v, outputs)
    return sum_of_squares(s)


@helper
def _period(d):
    """Return the number of rows between folds: a power of two."""
    # A power of two, so that dueness is a test of bits.
    rows = np.int64(_MIN_PERIOD)
    while rows * _FEATURES_PER_ROW < d:
        rows *= 2
    return rows


@helper
def _is_fold_due(t, period):
    """Return whether row number t is the last before a fold."""
    # In the first period, folds at powers of two: early steps are large, and so is the cancellation.
    if t >= period:
        return t & (period - 1) == 0
    return t * _FIRST_FOLD >= period and t & (t - 1) == 0


@helper
def _scores(z, p, along, outputs, scale, grown, share, settings):
    """Set `p` to the products with W and `z` to the scores, from the products with V."""
    centre, constant = settings.mode == CENTRE, 1.0 if settings.fit_intercept else 0.0
    for c in range(len(z)):
        # The score of W = sigma (V + S (x) a): V's product, and that of S with the row times a.
        p[c] = scale * (np.float64(z[c]) + outputs[c, A] * along)
        if centre:
            # The row's own part of S.W, whose S has grown by s x already.
            outputs[c, PRODUCTS] += grown * p[c]
            # Centred: the mean target, less the score of the mean row.
            z[c] = z.dtype.type(p[c] + share * (outputs[c, TARGETS] - outputs[c, PRODUCTS]))
        else:
            z[c] = z.dtype.type(p[c] + constant * outputs[c, B])


@helper
def _project(g, h, p, outputs, along, square, mass, scale, keep, grown, step, fit_intercept):
    """Take the step of `PROJECT` in all but V; set `h` so that V loses ``x (x) h``."""
    constant = mass if fit_intercept else 0.0
    # The squared length of (S, N), the normal vector of the hyperplane.
    bottom = square + constant * constant
    # S = 0 without an intercept: no hyperplane, so nothing is projected.
    inverse, per_scale = 1.0 / bottom if bottom > 0.0 else 0.0, 1.0 / scale
    step_b = step if fit_intercept else 0.0
    for c in range(len(h)):
        g_c = np.float64(g[c])
        # S.W after the shrinkage, the growth of S by the row, and the row's step.
        product = keep * (outputs[c, PRODUCTS] + grown * p[c]) - step * g_c * along
        moved = outputs[c, B] - step_b * g_c
        # How far the point is off the hyperplane, over the squared length of its normal.
        excess = (product + constant * moved - outputs[c, TARGETS]) * inverse
        # V loses the growth of S times a, since S (x) a has gained it.
        h[c] = h.dtype.type(grown * outputs[c, A] + step * g_c * per_scale)
        # A step along S changes a alone.
        outputs[c, A] -= excess * per_scale
        outputs[c, B] = moved - constant * excess
        outputs[c, PRODUCTS] = product - square * excess


@helper
def _centre(g, h, outputs, along, square, share, scale, keep, grown, step):
    """Take the step of `CENTRE` in all but V; the products already count this row."""
    # x - xbar along S: the row's own product less the share of |S|^2.
    per_scale, change_along = 1.0 / scale, along - share * square
    for c in range(len(h)):
        change = step * np.float64(g[c])
        outputs[c, PRODUCTS] = keep * outputs[c, PRODUCTS] - change * change_along
        h[c] = h.dtype.type(grown * outputs[c, A] + change * per_scale)
        # The part of the step along xbar, which is dense, goes into a.
        outputs[c, A] += change * share * per_scale


@kernel
def constrained_block(rows, y, weight, order, v, outputs, s, clock, settings):
    """Take one step of stochastic least squares for each of the rows `order` of a block, in that order.

    Parameters
    ----------
    rows, y, weight, order : as of `distls.workers.stochastic.sgd_kernels.sgd_block`; the targets of classes are
        indicators, of two classes -1 and 1
    v, outputs, s, clock : the arrays of a `MeanLane`; mutated
    settings : ConstrainedSettings

    Returns
    -------
    loss_sum, errors : likewise; in mode `CENTRE` a running mean has seen the row's target before its loss
    """
    _check(v, outputs, s)
    k, n, period = len(outputs), len(order), _period(len(v))
    p, z, g, h = np.empty(k), np.empty(k, v.dtype), np.empty(k, v.dtype), np.empty(k, v.dtype)
    t, mass, square, scale = np.int64(clock[T]), clock[MASS], clock[SQUARE], clock[SCALE]
    indices, data = row_arrays(rows)
    loss_sum, errors = 0.0, 0
    for at in range(n):
        i = np.intp(order[at])
        prefetch_row(rows, np.intp(order[min(at + _ROWS_AHEAD, n - 1)]))
        start, stop = row_span(rows, i, indices, data)
        # Both products of the row before S grows, since W^T x is of the weights before the step.
        before, own = _row_products(indices, data, start, stop, v, s, z)
        t += 1
        # The penalty does not depend on the weight of a row; its loss does.
        s_i = row_weight(weight, i)
        step = step_size(settings.schedule, settings.eta0, settings.m, np.float64(t))
        keep, step = 1.0 - step * settings.alpha, step * s_i
        grown = s_i if settings.running else 0.0
        # S.x once S contains this row.
        pending, along = grown, before + grown * own
        if settings.running:
            mass += grown
            _add_target(y, i, grown, outputs)
            # |S + s x|^2 by its expansion: no pass over all features.
            length, square = square, square + grown * (before + along)
            # S shrinks where rows point away from the mean; the difference of squares has then lost its digits.
            if square < _CANCELLED * length:  # S grows now and not with V, so that |S|^2 can be recomputed
                _grow(indices, data, start, stop, grown, s)
                pending, square = 0.0, sum_of_squares(s)
        share = 1.0 / mass if mass > 0.0 else 0.0
        _scores(z, p, before, outputs, scale, grown, share, settings)
        # The loss at the weights before the row's own step: progressive validation.
        value, _, best = target_gradient(settings.loss, z, 1.0, y, i, g)
        loss_sum += s_i * value
        errors += best != code_of(y, i)
        scale *= keep
        if scale == 0.0:  # eta alpha = 1: nothing is left of W
            v[:] = 0.0
            outputs[:, A] = 0.0
            scale = 1.0
        if settings.mode == PROJECT:
            constant = settings.fit_intercept
            _project(g, h, p, outputs, along, square, mass, scale, keep, grown, step, constant)
        else:
            _centre(g, h, outputs, along, square, share, scale, keep, grown, step)
        _update(indices, data, start, stop, h, v, pending, s)
        # By the lane's own count of rows, so that cutting rows into blocks changes no bit.
        if _is_fold_due(t, period) or abs(scale) < _SMALL_SCALE:
            square, scale = fold(v, outputs, s, scale), 1.0
    clock[T], clock[MASS], clock[SQUARE], clock[SCALE] = t, mass, square, scale
    return loss_sum, errors
