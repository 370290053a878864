"""The penalties of this package: norms of a row of W and its squares, their proximal operators and conjugates."""

# mypy: allow-untyped-defs, allow-untyped-calls
import math

import numpy as np

from distls.workers.compilation.jit import helper
from distls.workers.penalties.penalty import Array, Curvature, Penalty, least_constants
from distls.workers.penalties.penalty_rows import (
    row_penalty_of,
    row_prox_of,
    scale,
    shorten,
    soft_threshold,
    sum_of_absolutes,
    sum_of_squares,
)

_HALVINGS = 60  # more than the bits of a float64's fraction


class _SplitNorm(Penalty):
    """A norm whose proxes add up: shrinking keeps its subgradient, as directions, signs and a common height stay."""

    __slots__ = ()

    def split(self, rho: float) -> tuple[Penalty, float, float] | None:
        """Return the norm itself."""
        return self, 1.0, 0.0


# -- the lasso (Tibshirani 1996)


class L1(_SplitNorm):
    """``sum_jr |W_jr|``."""

    __slots__ = ()

    name = "l1"
    signed = True

    def value(self, w: Array, rho: float) -> float:
        """Return R(W)."""
        return float(np.abs(w).sum())

    def dual_norms(self, v: Array, rho: float) -> Array:
        """Return the largest size in each row."""
        # A maximum for each row takes ten times as long as the sizes.
        return np.abs(v[:, 0]) if v.shape[1] == 1 else np.asarray(np.abs(v).max(axis=1))

    def tangent(self, w: Array, rho: float) -> tuple[Array, Curvature]:
        """Return the signs; a line has no curvature."""
        return np.sign(w), Curvature(np.zeros_like(w), np.zeros_like(w))

    def best_constants(self, w: Array, rho: float) -> Array:
        """Return the median nearest to zero."""
        ordered, m = np.sort(w, axis=1), w.shape[1]
        # Every constant between the two middle weights is a median.
        return np.asarray(np.clip(0.0, ordered[:, (m - 1) // 2], ordered[:, m // 2]))


@row_penalty_of(L1)
def _l1_value(w, rho):
    return sum_of_absolutes(w)


@row_prox_of(L1)
def _l1_prox(v, mu, rho, out):
    soft_threshold(v, mu, out)


# -- the penalty of ridge regression (Hoerl and Kennard 1970)


class L2(Penalty):
    """``1/2 |W|_F^2``, the penalty of most methods."""

    __slots__ = ()

    name = "l2"
    quadratic = True

    def value(self, w: Array, rho: float) -> float:
        """Return R(W)."""
        return 0.5 * float(np.square(w).sum())

    def conjugate(self, v: Array, alpha: float, rho: float) -> tuple[float, float]:
        """Return (1, the conjugate's value), which is finite everywhere."""
        return 1.0, float(np.square(v).sum()) / (2.0 * alpha)

    def zero_from(self, gradient: Array, rho: float) -> float:
        """Return infinity."""
        return math.inf

    def split(self, rho: float) -> tuple[Penalty, float, float] | None:
        """Return nothing of a norm, and all of the squares."""
        # A norm of strength zero stands for none.
        return L1(), 0.0, 1.0


@row_penalty_of(L2)
def _l2_value(w, rho):
    return 0.5 * sum_of_squares(w)


@row_prox_of(L2)
def _l2_prox(v, mu, rho, out):
    scale(v, 1.0 / (1.0 + mu), out)


# -- the group lasso over the rows of W: rows become zero as a whole (Yuan and Lin 2006)


class L1L2(_SplitNorm):
    """``sum_j |W_j|_2`` (section 2 of the paper of block coordinate descent)."""

    __slots__ = ()

    name = "l1l2"

    def value(self, w: Array, rho: float) -> float:
        """Return R(W)."""
        return float(np.sqrt(np.square(w).sum(axis=1)).sum())

    def dual_norms(self, v: Array, rho: float) -> Array:
        """Return the lengths of the rows."""
        return np.asarray(np.sqrt(np.square(v).sum(axis=1)))

    def tangent(self, w: Array, rho: float) -> tuple[Array, Curvature]:
        """Return the directions of the rows, and what turns them, the less the longer a row is."""
        length = np.sqrt(np.square(w).sum(axis=1, keepdims=True))
        length[length == 0.0] = 1.0
        unit = w / length
        return unit, Curvature(np.broadcast_to(1.0 / length, w.shape), unit / np.sqrt(length))


@row_penalty_of(L1L2)
def _rows_value(w, rho):
    # The length of the row, whose subgradient at zero is the unit ball: whole rows become zero.
    return math.sqrt(sum_of_squares(w))


@row_prox_of(L1L2)
def _rows_prox(v, mu, rho, out):
    shorten(v, mu, out)


# -- the elastic net (Zou and Hastie 2005)


class ElasticNet(Penalty):
    """``rho sum_jr |W_jr| + (1 - rho)/2 |W|_F^2`` (section 2 of the paper of block coordinate descent)."""

    __slots__ = ()

    name = "elasticnet"
    mixed = signed = True

    def value(self, w: Array, rho: float) -> float:
        """Return R(W)."""
        return rho * float(np.abs(w).sum()) + (1.0 - rho) * (0.5 * float(np.square(w).sum()))

    def dual_norms(self, v: Array, rho: float) -> Array:
        """Return those of l1."""
        return L1().dual_norms(v, rho)

    def conjugate(self, v: Array, alpha: float, rho: float) -> tuple[float, float]:
        """Return (1, the conjugate's value), or those of l1 without squares."""
        # At rho = 1 there are no squares, and the conjugate is that of a norm.
        if rho == 1.0:
            return super().conjugate(v, alpha, rho)
        # What exceeds the threshold is the conjugate of the squares' share.
        over = np.maximum(np.abs(v) - alpha * rho, 0.0)
        return 1.0, float(np.square(over).sum()) / (2.0 * alpha * (1.0 - rho))

    def tangent(self, w: Array, rho: float) -> tuple[Array, Curvature]:
        """Return those of both parts."""
        return rho * np.sign(w) + (1.0 - rho) * w, Curvature(np.full_like(w, 1.0 - rho), np.zeros_like(w))

    def best_constants(self, w: Array, rho: float) -> Array | None:
        """Return the zeros of the derivative, which is piecewise linear."""
        if rho == 1.0:
            return L1().best_constants(w, rho)
        m, mean = w.shape[1], w.mean(axis=1)

        def slope(c: Array) -> Array:
            return (1.0 - rho) * m * (c - mean[:, None])

        return least_constants(w, rho, slope, lambda pull: mean - pull / ((1.0 - rho) * m))

    def zero_from(self, gradient: Array, rho: float) -> float:
        """Return infinity without the norm: squares alone never make all weights zero."""
        return super().zero_from(gradient, rho) / rho if rho > 0.0 else math.inf

    def split(self, rho: float) -> tuple[Penalty, float, float] | None:
        """Return both parts."""
        return L1(), rho, 1.0 - rho


@row_penalty_of(ElasticNet)
def _net_value(w, rho):
    return rho * sum_of_absolutes(w) + 0.5 * (1.0 - rho) * sum_of_squares(w)


@row_prox_of(ElasticNet)
def _net_prox(v, mu, rho, out):
    # Threshold first, then scale: the prox of a sum of l1 and squares.
    soft_threshold(v, mu * rho, out)
    scale(out, 1.0 / (1.0 + mu * (1.0 - rho)), out)


# -- the sum of the largest sizes of the rows of W


class L1Linf(_SplitNorm):
    """``sum_j max_r |W_jr|`` (section 4.7 of the paper of block coordinate descent)."""

    __slots__ = ()

    name = "l1linf"

    def value(self, w: Array, rho: float) -> float:
        """Return R(W)."""
        return float(np.abs(w).max(axis=1, initial=0.0).sum())

    def dual_norms(self, v: Array, rho: float) -> Array:
        """Return the sum of the sizes in each row."""
        return np.asarray(np.abs(v).sum(axis=1))

    def best_constants(self, w: Array, rho: float) -> Array:
        """Return the middle between the largest and the smallest."""
        # The middle makes the largest size as small as possible.
        return np.asarray(0.5 * (w.max(axis=1) + w.min(axis=1)))


@row_penalty_of(L1Linf)
def _largest_value(w, rho):
    largest = 0.0
    for r in range(len(w)):
        largest = max(largest, abs(w[r]))
    return largest


@helper
def _height(v, mu):
    """Return the height above which sizes sum to `mu`: it rises as those below are left out (Michelot 1986)."""
    height, counted = -1.0, len(v) + 1
    while True:
        total, count = 0.0, 0
        for r in range(len(v)):
            size = abs(v[r])
            if size > height:
                total += size
                count += 1
        # Where mu is lost in rounding, the mean of equal sizes may be above all of them.
        if count == 0 or count >= counted:
            return height
        height, counted = (total - mu) / count, count


@row_prox_of(L1Linf)
def _largest_prox(v, mu, rho, out):
    # v less its projection onto the l1 ball of radius mu: sizes are cut at a common height
    # Inside the dual ball: the row becomes zero.
    if sum_of_absolutes(v) <= mu:
        out[:] = 0.0
        return
    height = _height(v, mu)
    for r in range(len(v)):
        # The sign of the weight, at the common height or below.
        out[r] = math.copysign(min(abs(v[r]), height), v[r])


# -- the sparse group lasso (Friedman, Hastie, Tibshirani 2010): zero rows, and zeros within rows


class SparseGroup(Penalty):
    """``rho sum_jr |W_jr| + (1 - rho) sum_j |W_j|_2`` (section 4.7 of the paper of block coordinate descent)."""

    __slots__ = ()

    name = "sparse-group"
    mixed = signed = True

    # no `split`: soft-thresholding changes the direction in which a row's length shrinks, so proxes do not add up

    def value(self, w: Array, rho: float) -> float:
        """Return R(W)."""
        return rho * float(np.abs(w).sum()) + (1.0 - rho) * L1L2().value(w, rho)

    def tangent(self, w: Array, rho: float) -> tuple[Array, Curvature]:
        """Return those of both parts."""
        unit, turning = L1L2().tangent(w, rho)
        return rho * np.sign(w) + (1.0 - rho) * unit, turning.scaled(1.0 - rho)

    def dual_norms(self, v: Array, rho: float) -> Array:
        """Return the t >= 0 with ``|soft(v, t rho)|_2 = t (1 - rho)`` of each row, from above, by bisection."""
        size = np.abs(v)
        # Without the lengths it is the lasso.
        if rho == 1.0:
            return np.asarray(size.max(axis=1))
        # At this t the row's whole length would be paid for: an upper bound.
        low, high = np.zeros(len(size)), np.sqrt(np.square(size).sum(axis=1)) / (1.0 - rho)
        for _ in range(_HALVINGS):
            t = 0.5 * (low + high)
            left = np.maximum(size - rho * t[:, None], 0.0)
            over = np.sqrt(np.square(left).sum(axis=1)) > (1.0 - rho) * t
            low, high = np.where(over, t, low), np.where(over, high, t)
        # From above: a dual point scaled by it is surely feasible.
        return high

    def best_constants(self, w: Array, rho: float) -> Array | None:
        """Return the zeros of the derivative."""
        if rho == 1.0:
            return L1().best_constants(w, rho)
        m, mean = w.shape[1], w.mean(axis=1)
        spread = np.square(w - mean[:, None]).sum(axis=1)

        def slope(c: Array) -> Array:
            d = c - mean[:, None]
            length = np.sqrt(spread[:, None] + m * np.square(d))
            return (1.0 - rho) * m * d / np.where(length > 0.0, length, 1.0)

        def between(pull: Array) -> Array:
            a = np.square(pull / (1.0 - rho))  # below m where the derivative has a zero between two weights
            return mean - np.sign(pull) * np.sqrt(a * spread / (m * np.maximum(m - a, 1e-300)))

        return least_constants(w, rho, slope, between)


@row_penalty_of(SparseGroup)
def _sparse_value(w, rho):
    return rho * sum_of_absolutes(w) + (1.0 - rho) * math.sqrt(sum_of_squares(w))


@row_prox_of(SparseGroup)
def _sparse_prox(v, mu, rho, out):
    # Soft-threshold, then shorten: the prox of the sum is the two in this order.
    soft_threshold(v, mu * rho, out)
    shorten(out, mu * (1.0 - rho), out)


# kernels identify a penalty of this package by its place here
NUMBERED: tuple[Penalty, ...] = (L1L2(), L1(), L2(), ElasticNet(), L1Linf(), SparseGroup())
