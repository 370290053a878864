"""The plain steps of several models that see the same rows: strengths side by side.

Rows are decoded once, and the weights of all models that a non-zero meets stand side by side in memory, so that they
are found and read together, in whole vectors. Every model has the bits of `sgd_block` (of MCID, Algorithm 1 of its
paper with batches of one row).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import helper, kernel
from distls.workers.linear_algebra.prefetch import prefetch_row
from distls.workers.linear_algebra.row_vectors import most_paired, row_add_pairs, row_dot_paired
from distls.workers.linear_algebra.score_kernels import check_widths, row_arrays, row_axpy, row_span, row_weight
from distls.workers.losses.loss import GRADIENT_IN_G, Loss
from distls.workers.losses.row_functions import add_row_gradient, code_of, set_row_gradient, target_gradient
from distls.workers.stochastic.joint_learning import Joint
from distls.workers.stochastic.sgd_kernels import (
    PEGASOS,
    SIGMA,
    SMALLEST_SIGMA,
    H,
    SgdSettings,
    T,
    add_intercept,
    fold,
    pegasos_sigma,
    step_of,
)
from distls.workers.stochastic.update import LEAST_JOINT

MOST_MODELS = 16
_ROWS_AHEAD = 2  # rows between prefetch and use


class SideSettings(NamedTuple):
    """Settings of `sgd_side_by_side_block`; arrays are float64 (m,), the rest is common to all models."""

    alpha: NDArray[np.float64]
    t0: NDArray[np.float64]
    eta0: NDArray[np.float64]
    switch: NDArray[np.float64]
    schedule: int
    fit_intercept: bool
    tail_from: float
    loss: Loss


@helper
# Steps of all models are one long vector, so one loop serves any number of them.
def _add(indices, data, start, stop, in_g, pairs, steps, w):
    """Add ``x (x) steps`` to w, with the bits of `row_update`."""
    if in_g:
        row_axpy(indices, data, start, stop, 1.0, steps, w)
    elif pairs:
        row_add_pairs(indices, data, start, stop, w, steps, w.dtype.type(1.0))


@kernel
def sgd_side_by_side_block(  # noqa: C901  (one loop, as in `sgd_block`)
    rows, y, weight, order, u, q, b, qb, clock, settings
):
    """Train on the rows `order` of one block as `sgd_block` does in batches of one row, every model at once.

    Parameters
    ----------
    rows, y, weight, order : as of `sgd_block`
    u : float32 or float64 (n_features, m k), C-ordered: the U of m models, each of k columns; mutated
    q : as `u`, or (0, m k), likewise
    b, qb : float64 (m, k); mutated
    clock : float64 (m, 3), of which all have the same T; mutated
    settings : SideSettings

    Returns
    -------
    loss_sums, errors : float64 and int64 (m,), as `sgd_block` has them of each model
    """
    check_widths(u, b.reshape(-1))
    check_widths(q, qb.reshape(-1))
    if settings.tail_from < np.inf and len(q) != len(u):
        raise ValueError("an averaging window needs a Q of the weights' shape")
    (count, k), n, t, schedule = b.shape, len(order), clock[0, T], settings.schedule
    # Rows: the scores of all models, their steps, and those of their windows.
    wide = np.empty((3, count * k), u.dtype)
    z, g = np.empty(k, u.dtype), np.empty(k, u.dtype)
    sigmas, hs = clock[:, SIGMA].copy(), clock[:, H].copy()
    if schedule == PEGASOS:
        # sigma is a function of time in this schedule, and is not carried over.
        for m in range(count):
            sigmas[m] = pegasos_sigma(settings.alpha[m], t + settings.t0[m])
    loss_sums, errors = np.zeros(count), np.zeros(count, np.int64)
    indices, data = row_arrays(rows)
    for at in range(n):
        i = np.intp(order[at])
        prefetch_row(rows, np.intp(order[min(at + _ROWS_AHEAD, n - 1)]))
        start, stop = row_span(rows, i, indices, data)
        # One product of the row with the columns of all models.
        row_dot_paired(indices, data, start, stop, u, wide[0])
        label, share = code_of(y, i), -row_weight(weight, i)
        t += 1.0
        averaging, any_in_g, any_pair, any_summed = t > settings.tail_from, False, False, False
        # The loss of each model alone, by the same function as in `sgd_block`.
        for m in range(count):
            for c in range(k):
                z[c] = wide[0, m * k + c]
            factor = add_intercept(z, sigmas[m], b[m], settings.fit_intercept)
            value, runner_up, best = target_gradient(settings.loss, z, factor, y, i, g)
            loss_sums[m] += row_weight(weight, i) * value
            errors[m] += best != label
            of_model = settings.alpha[m], schedule, settings.t0[m], settings.eta0[m], settings.switch[m]
            # Strengths differ, and with them the step sizes.
            sigma, step, step_b = step_of(sigmas[m], t, *of_model)
            if sigma < SMALLEST_SIGMA and schedule != PEGASOS:
                # Only the columns of this model are folded.
                fold(u, q, hs[m], sigma, m * k, (m + 1) * k)
                hs[m], step, sigma = 0.0, step * sigma, 1.0
            in_g, change = runner_up == GRADIENT_IN_G, share * step
            # Pairs and full gradients have different kernels; any full one decides for all.
            any_in_g |= in_g
            any_pair |= not in_g and runner_up != label
            # Written as a dense vector of k numbers, zeros where the pair has none.
            set_row_gradient(change, runner_up, label, g, wide[1, m * k : (m + 1) * k])
            if settings.fit_intercept:
                add_row_gradient(share * step_b, runner_up, label, g, b[m])
            if averaging:
                # H is zero at the first step of a window, which has no increment then.
                any_summed |= hs[m] > 0.0
                set_row_gradient(change * hs[m], runner_up, label, g, wide[2, m * k : (m + 1) * k])
                hs[m] += sigma
            sigmas[m] = sigma
        _add(indices, data, start, stop, any_in_g, any_pair, wide[1], u)
        if any_summed:
            _add(indices, data, start, stop, any_in_g, any_pair, wide[2], q)
        if averaging and settings.fit_intercept:
            qb += b
    clock[:, T], clock[:, H], clock[:, SIGMA] = t, hs, sigmas
    return loss_sums, errors


def fits_side_by_side(columns: int, dtype: Any, batch_size: int) -> bool:
    """Return whether models of so many columns have the bits of `sgd_block` side by side."""
    # A batch of one row: the scores of larger ones would need as many rows of scratch.
    return batch_size == 1 and 2 <= columns <= most_paired(dtype)


def side_by_side_bytes(n_features: int, k: int, models: int, itemsize: int, *, averaging: bool) -> int:
    """Return the bytes of the weights of so many models side by side."""
    return models * n_features * k * itemsize * (1 + averaging) if models >= LEAST_JOINT else 0


class SgdSideBySide(Joint):
    """Learners of `sgd_block`, as columns of the same arrays."""

    kernel = staticmethod(sgd_side_by_side_block)

    def __init__(self, learners: Sequence[Any], settings: Sequence[SgdSettings]) -> None:
        self._learners = learners
        wide = (np.concatenate([getattr(each, name) for each in learners], axis=1) for name in ("u", "q"))
        stacked = (np.stack([getattr(each, name) for each in learners]) for name in ("b", "qb", "clock"))
        # Strengths become arrays; what is equal in all models stays a number.
        own = (np.array([getattr(each, name) for each in settings]) for name in SideSettings._fields[:4])
        common = (getattr(settings[0], name) for name in SideSettings._fields[4:])
        super().__init__((*wide, *stacked), SideSettings(*own, *common))

    def write(self, number: int) -> None:
        own, (u, q, b, qb, clock) = self._learners[number], self._arrays
        k = b.shape[1]
        columns = slice(number * k, (number + 1) * k)
        own.u[...], own.q[...] = u[:, columns], q[:, columns]
        own.b[...], own.qb[...], own.clock[...] = b[number], qb[number], clock[number]
