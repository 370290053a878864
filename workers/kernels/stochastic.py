"""The stochastic training pass: MCID over one block of rows (MCID paper, Algorithms 1-4).

The paper's step t (Eq. 14), with a start time t0 (0 in the paper), is

    W(t) = (t+t0-1)/(t+t0) W(t-1) - 1/(alpha (t+t0) r) sum_{i in A_t} s_i x_i (x) g_i,

g_i the k slopes of the loss at the scores of W(t-1). For ``U(t) = alpha (t+t0) W(t)`` the decay is gone:

    U(t) = U(t-1) - (1/r) sum_{i in A_t} s_i x_i (x) g_i,    U(0) = alpha t0 W(0),

so that an example costs O(nnz k) for its scores and, where slopes are a pair, O(2 nnz) for its update, never
O(d k). The same form gives the sum of the iterates over a window (m, T] without visiting W at each step: with
``H_s = sum_{j=m+1..s} 1/(alpha (j+t0))`` and u_j the increment of U at time j,

    sum_{s=m+1..T} W(s) = H_T U(T) - Q(T),    Q(T) = sum_{j=m+1..T} H_{j-1} u_j.

The intercept (our addition) is not penalised and has the step min(1/(alpha (t+t0)), 1/sqrt(t+t0)): the first
alone would throw it to 1/alpha at the first example.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from distls.workers.kernels._jit import kernel
from distls.workers.kernels.linear import (
    check_widths,
    is_csr,
    prefetch_address,
    row_arrays,
    row_scores,
    row_span,
    row_update,
    row_weight,
)
from distls.workers.losses import Loss, add_slopes, row_slopes

__all__ = [
    "CLOCK_SIZE",
    "H",
    "McidSettings",
    "T",
    "mcid_block",
    "mcid_settings",
    "new_clock",
    "weights_from",
    "window_mean",
    "window_sum",
]

Floats = NDArray[np.floating[Any]]

# The clock of a lane, float64 (2,): steps taken so far, and the H of the averaging window. Carried from block
# to block with U, Q and the intercept.
T, H, CLOCK_SIZE = 0, 1, 2

_ROWS_AHEAD = 2  # how far before its use a row is fetched


class McidSettings(NamedTuple):
    """What `mcid_block` is told; build it with `mcid_settings`, as each set of field types is compiled anew.

    Attributes
    ----------
    alpha : float, > 0
    t0 : float, start time >= 0
    batch_size : int, the paper's r >= 1
    fit_intercept : bool
    tail_from : float, the lane time m at which the averaging window starts; infinity for no averaging
    loss : a member of `LOSSES`
    """

    alpha: float
    t0: float
    batch_size: int
    fit_intercept: bool
    tail_from: float
    loss: Loss


def mcid_settings(
    loss: Loss,
    alpha: float,
    *,
    t0: float = 0.0,
    batch_size: int = 1,
    fit_intercept: bool = False,
    tail_from: float = math.inf,
) -> McidSettings:
    """Return settings of the one set of types that kernels are compiled for."""
    if not alpha > 0 or not t0 >= 0 or batch_size < 1:
        raise ValueError(f"need alpha > 0, t0 >= 0, batch_size >= 1: got {alpha}, {t0}, {batch_size}")
    return McidSettings(float(alpha), float(t0), int(batch_size), bool(fit_intercept), float(tail_from), loss)


def new_clock() -> NDArray[np.float64]:
    """Return the clock of a lane that has not started."""
    return np.zeros(CLOCK_SIZE)


@intrinsic
def _prefetch(_context, array, position):
    """Fetch the cache line of element `position` of a 1-d or flattened C-ordered array."""

    def build(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        prefetch_address(builder, builder.gep(data, [args[1]]))
        return context.get_dummy_value()

    return types.void(array, types.intp), build


def prefetch_row(rows, i):
    """Fetch row i, to be read soon: in a random order the processor cannot guess it (1.7 times at k = 4)."""


@overload(prefetch_row)
def _prefetch_row(rows, i):
    def csr(rows, i):
        # the processor's own prefetcher has caught on after some lines
        start, stop = rows.indptr[i], min(rows.indptr[i + 1], rows.indptr[i] + 256)
        for p in range(start, stop, 32):
            _prefetch(rows.indices, p)
        for p in range(start, stop, 16):
            _prefetch(rows.data, p)

    def dense(rows, i):
        d = rows.values.shape[1]
        for p in range(i * d, i * d + min(d, 256), 16):
            _prefetch(rows.values, p)

    return csr if is_csr(rows) else dense


@kernel
def _add_intercept(z, scale, b, fit_intercept):
    """Return the factor from z to scores; with an intercept, z becomes the scores and the factor 1."""
    if not fit_intercept:
        return scale
    for c in range(len(z)):
        z[c] = z.dtype.type(scale * z[c] + b[c])
    return 1.0


@kernel
def mcid_block(rows, y, weight, order, u, q, b, qb, clock, settings):
    """Train on the rows `order` of one block, in that order (Algorithm 1, with 2, 3 or 4 as the loss says).

    Parameters
    ----------
    rows : CsrRows or DenseRows
    y : int32 (n_rows,), class codes
    weight : float64 (n_rows,), s_i with mean 1 over the data set; or (0,) for all ones
    order : int64 (m,), rows to visit. Batches are consecutive runs of `batch_size`; the last may be shorter
    u : float32 or float64 (n_features, k), C-ordered; mutated
    q : as `u`, mutated within the averaging window; (0, k) when there is none
    b : (k,) of any float type, mutated if `fit_intercept`, else not read
    qb : float64 (k,), the sum of b over the window; mutated if `fit_intercept`
    clock : float64 (2,), (t, H); mutated
    settings : McidSettings

    Returns
    -------
    loss_sum : sum_i s_i * loss_i, each at the weights before its own step (progressive validation), float64
    errors : rows whose class did not have the highest score then
    """
    check_widths(u, b)
    check_widths(q, qb)
    if settings.tail_from < np.inf and len(q) != len(u):
        raise ValueError("an averaging window needs a Q of the weights' shape")
    alpha, t0, size = settings.alpha, settings.t0, settings.batch_size
    k, n, t, h = len(b), len(order), clock[T], clock[H]
    z, g, rivals = np.empty(k, u.dtype), np.empty((min(size, n), k), u.dtype), np.empty(min(size, n), np.intp)
    indices, data = row_arrays(rows)
    start, stop, loss_sum, errors = 0, 0, 0.0, 0
    for first in range(0, n, size):
        count = min(size, n - first)
        scale = 1.0 / (alpha * (t + t0)) if t + t0 > 0.0 else 0.0  # W(0) = 0 where time starts at 0
        for s in range(count):
            i = np.intp(order[first + s])
            prefetch_row(rows, np.intp(order[min(first + s + _ROWS_AHEAD, n - 1)]))
            start, stop = row_span(rows, i, indices, data)
            row_scores(indices, data, start, stop, u, z)
            factor = _add_intercept(z, scale, b, settings.fit_intercept)
            value, rivals[s], best = row_slopes(settings.loss, z, factor, np.intp(y[i]), g[s])
            loss_sum += row_weight(weight, i) * value
            errors += best != y[i]
        t += 1.0
        averaging = t > settings.tail_from
        step_b = min(1.0 / (alpha * (t + t0)), 1.0 / math.sqrt(t + t0)) if settings.fit_intercept else 0.0
        for s in range(count):
            i, rival = np.intp(order[first + s]), rivals[s]
            label, share = np.intp(y[i]), -row_weight(weight, i) / count
            if size > 1:  # a lone row is still there
                start, stop = row_span(rows, i, indices, data)
            if settings.fit_intercept:
                add_slopes(share * step_b, rival, label, g[s], b)
            row_update(indices, data, start, stop, share, rival, label, g[s], u)
            if averaging and h > 0.0:
                row_update(indices, data, start, stop, share * h, rival, label, g[s], q)
        if averaging:
            h += 1.0 / (alpha * (t + t0))
            if settings.fit_intercept:
                qb += b
    clock[T], clock[H] = t, h
    return loss_sum, errors


def weights_from(u: Floats, alpha: float, time: float, out: Floats | None = None) -> Floats:
    """Return ``W = U / (alpha * time)`` with time = t + t0, zeros at time 0; `out` may be `u` itself."""
    factor = 1.0 / (alpha * time) if time > 0 else 0.0
    return np.multiply(u, u.dtype.type(factor), out=out)


@kernel
def _window_sum(u, q, h):
    for i in range(len(q)):
        q[i] = h * np.float64(u[i]) - np.float64(q[i])


def window_sum(u: Floats, q: Floats, clock: NDArray[np.float64]) -> Floats:
    """Overwrite Q by ``H U - Q``, the sum of W over the window, and return it.

    Divided by the number of steps in the window it is the averaged W; lanes' sums may be added first.
    """
    _window_sum(u.reshape(-1), q.reshape(-1), clock[H])
    return q


def window_mean(u: Floats, q: Floats, clock: NDArray[np.float64], steps: float) -> Floats:
    """Overwrite Q by the mean of W over the window's `steps` > 0 iterates, and return it."""
    window_sum(u, q, clock)
    q *= q.dtype.type(1.0 / steps)
    return q
