"""The stochastic training pass over one block of rows, with lazily scaled weights.

A step is ``W(t) = (1 - alpha eta_t) W(t-1) - eta_t/r sum_{i in A_t} s_i x_i (x) g_i``, g_i the gradient of the loss
with respect to the k scores at W(t-1). Weights are stored as ``W = sigma U``: the decay changes only the scalar sigma,
an example costs O(nnz k) for its scores and O(nnz k), or O(2 nnz) if g_i is a pair +1, -1, for its update, not O(d k).

MCID (its paper's Algorithms 1-4) has steps eta_t = 1/(alpha (t+t0)), with a start time t0 (0 in the paper). Eq. 14,

    W(t) = (t+t0-1)/(t+t0) W(t-1) - 1/(alpha (t+t0) r) sum_{i in A_t} s_i x_i (x) g_i,

has no decay term with ``sigma(t) = 1/(alpha (t+t0))``, a function of time alone:

    U(t) = U(t-1) - (1/r) sum_{i in A_t} s_i x_i (x) g_i,    U(0) = alpha t0 W(0),

For the other schedules (`step_sizes`) sigma is a product of factors, which is folded into U before it underflows.

The same form gives the sum of the iterates over a window (m, T] without visiting W at each step: with
``H_s = sum_{j=m+1..s} sigma(j)`` and u_j the increment of U at time j,

    sum_{s=m+1..T} W(s) = H_T U(T) - Q(T),    Q(T) = sum_{j=m+1..T} H_{j-1} u_j.

Where sigma is folded, Q takes over the sum so far and H restarts at zero.

The intercept is not penalised. In MCID, which has none, its step is min(1/(alpha (t+t0)), 1/sqrt(t+t0)): the first
alone would throw it to 1/alpha at the first example. Elsewhere it is a coordinate like the others, but for its
eta0 of at most 1: rows of small values take steps that would throw it about, which is in every row.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import helper, kernel
from distls.workers.linear_algebra.prefetch import prefetch_row
from distls.workers.linear_algebra.score_kernels import check_widths, row_arrays, row_scores, row_span, row_weight
from distls.workers.losses.loss import Loss
from distls.workers.losses.row_functions import add_row_gradient, code_of, row_update, target_gradient
from distls.workers.stochastic.step_sizes import step_size

Floats = NDArray[np.floating[Any]]

# The clock of a lane, float64 (3,): steps taken so far, the H of the averaging window, and sigma (not used by PEGASOS,
# where it is a function of time). Carried from block to block with U, Q and the intercept.
T, H, SIGMA, CLOCK_SIZE = 0, 1, 2, 3

PEGASOS = -1  # MCID's schedule, in addition to `SCHEDULES`

SMALLEST_SIGMA = 1e-4  # smaller ones are folded into U, which grows as sigma shrinks

_ROWS_AHEAD = 2  # rows between prefetch and use


class SgdSettings(NamedTuple):
    """Settings of `sgd_block`; with a whole number in the place of a float it would be compiled again."""

    loss: Loss
    alpha: float  # > 0 for PEGASOS
    schedule: int = PEGASOS  # or a value of `SCHEDULES`
    t0: float = 0.0  # start time >= 0 of PEGASOS
    # of `SCHEDULES`: below 1 / alpha, since sigma is multiplied by 1 - alpha eta
    eta0: float = 1.0
    switch: float = math.inf
    batch_size: int = 1  # the MCID paper's r >= 1
    fit_intercept: bool = False
    tail_from: float = math.inf  # lane time m at which the averaging window starts


def new_clock() -> NDArray[np.float64]:
    """Return the clock of a lane that has not started."""
    clock = np.zeros(CLOCK_SIZE)
    # sigma is a product of factors, so it starts at 1.
    clock[SIGMA] = 1.0
    return clock


@helper
def add_intercept(z, scale, b, fit_intercept):
    """Return the factor from z to scores; with an intercept, overwrite z by the scores and return 1."""
    if not fit_intercept:
        # Scores stay those of U; the loss multiplies by sigma itself.
        return scale
    for c in range(len(z)):
        # In the type of the scores, as everything of a row is.
        z[c] = z.dtype.type(scale * z[c] + b[c])
    return 1.0


@helper
def pegasos_sigma(alpha, time):
    """Return sigma at a time of PEGASOS, t0 included."""
    return 1.0 / (alpha * time) if time > 0.0 else 0.0  # W(0) = 0 where time starts at 0


@helper
def step_of(sigma, t, alpha, schedule, t0, eta0, switch):
    """Return sigma after step t, and the step's size in U and for the intercept."""
    # U moves by s x g / r alone: all of the step size is in sigma.
    if schedule == PEGASOS:
        time = t + t0
        sigma = 1.0 / (alpha * time)
        return sigma, 1.0, min(sigma, 1.0 / math.sqrt(time))
    # The others: U = W / sigma, so a step in U is divided by it.
    size = step_size(schedule, eta0, switch, t)
    sigma *= 1.0 - alpha * size
    return sigma, size / sigma, size / max(eta0, 1.0)


@kernel
def fold(u, q, h, sigma, first, end):
    """Multiply columns of U by sigma, and add the sum of the window's iterates so far to Q; H and sigma start anew."""
    # Q takes over H U, so that the sum of the window's iterates stays H U - Q with H = 0.
    for j in range(len(q)):
        for c in range(first, end):
            q[j, c] -= q.dtype.type(h) * u[j, c]
    for j in range(len(u)):
        for c in range(first, end):
            u[j, c] *= u.dtype.type(sigma)


@kernel
def sgd_block(  # noqa: C901  (one loop: its state in other functions would be copied at every step)
    rows, y, weight, order, u, q, b, qb, clock, settings
):
    """Train on the rows `order` of one block, in that order (MCID's Algorithm 1, with 2, 3 or 4 as the loss says).

    Parameters
    ----------
    rows : CsrRows or DenseRows
    y : int32 (n_rows,), class codes, or float64 (n_rows, k), numbers
    weight : float64 (n_rows,), s_i with mean 1 over the data set; or (0,) for all ones
    order : int64 (m,), rows to visit. Batches are consecutive runs of `batch_size`; the last may be shorter
    u : float32 or float64 (n_features, k), C-ordered; mutated
    q : as `u`, mutated within the averaging window; (0, k) when there is none
    b : (k,) of any float type, mutated if `fit_intercept`, else not read
    qb : float64 (k,), the sum of b over the window; mutated if `fit_intercept`
    clock : float64 (3,), (t, H, sigma); mutated
    settings : SgdSettings

    Returns
    -------
    loss_sum : sum_i s_i * loss_i, each at the weights before its own step (progressive validation), float64
    errors : rows whose class did not have the highest score then; 0 for numbers
    """
    check_widths(u, b)
    check_widths(q, qb)
    if settings.tail_from < np.inf and len(q) != len(u):
        raise ValueError("an averaging window needs a Q of the weights' shape")
    alpha, t0, size, schedule = settings.alpha, settings.t0, settings.batch_size, settings.schedule
    pegasos = schedule == PEGASOS
    k, n, t, h, sigma = len(b), len(order), clock[T], clock[H], clock[SIGMA]
    # As many as the batch: a row is scored once only.
    # all gradients of a batch are taken at W(t-1), so they are stored until the last of them is known
    z, g = np.empty(k, u.dtype), np.empty((min(size, n), k), u.dtype)
    runner_ups = np.empty(min(size, n), np.intp)
    indices, data = row_arrays(rows)
    start, stop, loss_sum, errors = 0, 0, 0.0, 0
    for first in range(0, n, size):
        count = min(size, n - first)
        # sigma at the time before the step, at which the batch is scored.
        if pegasos:
            sigma = pegasos_sigma(alpha, t + t0)
        for s in range(count):
            i = np.intp(order[first + s])
            prefetch_row(rows, np.intp(order[min(first + s + _ROWS_AHEAD, n - 1)]))
            start, stop = row_span(rows, i, indices, data)
            row_scores(indices, data, start, stop, u, z)
            factor = add_intercept(z, sigma, b, settings.fit_intercept)
            value, runner_ups[s], best = target_gradient(settings.loss, z, factor, y, i, g[s])
            # Losses in float64, whatever the type of the weights.
            loss_sum += row_weight(weight, i) * value
            errors += best != code_of(y, i)
        t += 1.0
        # Windows begin at a step of the lane, so they do not depend on the blocks of rows.
        averaging = t > settings.tail_from
        sigma, step, step_b = step_of(sigma, t, alpha, schedule, t0, settings.eta0, settings.switch)
        # U grows as sigma shrinks, and float32 would lose digits.
        if sigma < SMALLEST_SIGMA and not pegasos:
            fold(u, q, h, sigma, 0, k)
            h, step, sigma = 0.0, step * sigma, 1.0
        for s in range(count):
            # Only now: all scores of a batch are of W(t-1) (misprint of Algorithms 2-4, docs/papers.md).
            i, runner_up = np.intp(order[first + s]), runner_ups[s]
            label, share = code_of(y, i), -row_weight(weight, i) / count
            if size > 1:  # the scratch of a dense row holds the last one scored
                start, stop = row_span(rows, i, indices, data)
            if settings.fit_intercept:
                add_row_gradient(share * step_b, runner_up, label, g[s], b)
            # Rounded to the type of U once, so that side by side kernels have the same bits.
            change = share * step
            row_update(indices, data, start, stop, change, runner_up, label, g[s], u)
            if averaging and h > 0.0:  # Q's increment is H_{t-1} u_t: nothing at the window's first step
                row_update(indices, data, start, stop, change * h, runner_up, label, g[s], q)
        if averaging:
            h += sigma
            if settings.fit_intercept:
                # The intercept is not scaled, so its sum over the window is plain.
                qb += b
    clock[T], clock[H], clock[SIGMA] = t, h, sigma
    return loss_sum, errors


def scaled(u: Floats, sigma: float, out: Floats | None = None) -> Floats:
    """Return ``W = sigma U``; `out` may be `u` itself."""
    return np.multiply(u, u.dtype.type(sigma), out=out)


@kernel
def _window_sum(u, q, h):
    for i in range(len(q)):
        # float64: H U and Q are large and cancel.
        q[i] = h * np.float64(u[i]) - np.float64(q[i])


def window_sum(u: Floats, q: Floats, clock: NDArray[np.float64]) -> Floats:
    """Overwrite Q by ``H U - Q``, the sum of W over the window, and return it.

    Divided by the number of steps in the window it is the averaged W; lanes' sums may be added first.
    """
    _window_sum(u.reshape(-1), q.reshape(-1), clock[H])
    return q
