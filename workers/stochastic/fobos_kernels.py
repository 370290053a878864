"""Stochastic steps by forward-backward splitting (FOBOS, Duchi and Singer 2009), exact on sparse rows.

With g_t the k slopes of the loss at row t, s_t its weight and eta_t = eta0 / sqrt(t),

    W(t) = prox_(eta_t alpha R)(W(t-1) - eta_t s_t x_t (x) g_t).

R is a norm of each row of W times `pull`, plus half of the squares times `decay`. A row of W whose feature is not in
the data's row only shrinks. The shrinkages of steps t1 to t2 are one: a norm's thresholds add up where shrinking keeps
the norm's subgradient (l1, l1/l2, and l1/linf, which lowers a common height), and squares scale. With

    P_t = prod_(u <= t) (1 + eta_u alpha decay),    C_t = sum_(u <= t) eta_u alpha pull P_(u-1),
    W_j(t2) = prox_((C_t2 - C_t1) |.|)(P_t1 W_j(t1)) / P_t2,

which is done when the feature comes again. So a step costs O(nnz k), and nothing is approximated. Soft-thresholding
changes the direction in which the l1/l2 norm shrinks: of the sparse group lasso the steps do not add up.

The intercept is a feature of value 1 that is not penalised.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import helper, kernel
from distls.workers.linear_algebra.score_kernels import (
    check_widths,
    row_arrays,
    row_scores,
    row_span,
    row_weight,
)
from distls.workers.losses.loss import Loss
from distls.workers.losses.row_functions import add_slopes, code_of, row_update, target_slopes
from distls.workers.penalties.penalty import Penalty
from distls.workers.penalties.registry import penalty_named
from distls.workers.penalties.row_kernels import row_prox
from distls.workers.stochastic.sgd_kernels import prefetch_row
from distls.workers.stochastic.step_sizes import SQRT, step_size

__all__ = [
    "Shrinkage",
    "SplittingSettings",
    "new_shrinkage",
    "shrink_all",
    "splitting_block",
    "splitting_settings",
]

_LARGEST = 1e50  # of P: then all rows are brought up to date and it starts anew
_ROWS_AHEAD = 2


class SplittingSettings(NamedTuple):
    """What `splitting_block` is told; build it with `splitting_settings`, as each set of types is compiled anew.

    Attributes
    ----------
    eta0 : float, > 0
    norm : int or Penalty, the `argument` of a penalty
    pull, decay : float, alpha times those of the penalty
    fit_intercept : bool
    loss : Loss
    """

    eta0: float
    norm: int | Penalty
    pull: float
    decay: float
    fit_intercept: bool
    loss: Loss


def splitting_settings(
    loss: Loss, eta0: float, *, alpha: float, penalty: str, rho: float = 0.0, fit_intercept: bool = False
) -> SplittingSettings:
    """Return settings of the one set of types that kernels are compiled for."""
    if not eta0 > 0 or not alpha >= 0:
        raise ValueError(f"need eta0 > 0 and alpha >= 0: got {eta0}, {alpha}")
    parts = penalty_named(penalty).split(rho)
    if parts is None:
        raise ValueError(f"shrinkages of {penalty} do not add up")
    norm, pull, decay = parts
    return SplittingSettings(
        float(eta0), norm.argument, float(alpha * pull), float(alpha * decay), bool(fit_intercept), loss
    )


class Shrinkage(NamedTuple):
    """What a lane remembers of the shrinkage of rows of W.

    Attributes
    ----------
    clock : float64 (3,)
        Steps taken, P and C.
    marks : float64 (n_features, 2)
        The P and C up to which a row has shrunk.
    """

    clock: NDArray[np.float64]
    marks: NDArray[np.float64]


def new_shrinkage(n_features: int, time: float) -> Shrinkage:
    """Return that of weights that are up to date at `time`."""
    return Shrinkage(np.array([float(time), 1.0, 0.0]), np.tile([1.0, 0.0], (n_features, 1)))


@helper
def _is_zero(w):
    c = 0
    while c < len(w) and w[c] == 0:  # a NaN is not zero
        c += 1
    return c == len(w)


@helper
def _shrink(w, mark, scale, drawn, norm, rows):
    """Bring one row of W up to P = scale and C = drawn; `rows` is scratch, float64 (2, k)."""
    if mark[0] == scale and mark[1] == drawn:
        return
    if not _is_zero(w):
        for c in range(len(w)):
            rows[0, c] = mark[0] * w[c]
        row_prox(norm, rows[0], drawn - mark[1], 0.0, rows[1])
        for c in range(len(w)):
            w[c] = rows[1, c] / scale
    mark[0], mark[1] = scale, drawn


@kernel
def splitting_block(rows, y, weight, order, w, b, shrinkage, settings):
    """Train on the rows `order` of one block, in that order.

    Parameters
    ----------
    rows : CsrRows or DenseRows
    y : int32 (n_rows,), class codes
    weight : float64 (n_rows,), s_i with mean 1 over the data set; or (0,) for all ones
    order : int64 (m,), rows to visit
    w : float32 or float64 (n_features, k), C-ordered; mutated. After `shrink_all` it is W
    b : float64 (k,), mutated if `fit_intercept`, else zeros
    shrinkage : Shrinkage; mutated
    settings : SplittingSettings

    Returns
    -------
    loss_sum : sum_i s_i * loss_i, each at the weights before its own step, float64
    errors : rows whose class did not have the highest score then
    """
    check_widths(w, b)
    if len(shrinkage.marks) != len(w):
        raise ValueError("every feature needs a mark of its shrinkage")
    clock, marks, norm = shrinkage.clock, shrinkage.marks, settings.norm
    k, n, t, scale, drawn = len(b), len(order), clock[0], clock[1], clock[2]
    z, g, scratch = np.empty(k, w.dtype), np.empty(k, w.dtype), np.empty((2, k))
    indices, data = row_arrays(rows)
    loss_sum, errors = 0.0, 0
    for at in range(n):
        i = np.intp(order[at])
        prefetch_row(rows, np.intp(order[min(at + _ROWS_AHEAD, n - 1)]))
        start, stop = row_span(rows, i, indices, data)
        for p in range(start, stop):
            j = np.intp(indices[p])
            _shrink(w[j], marks[j], scale, drawn, norm, scratch)
        row_scores(indices, data, start, stop, w, z)
        if settings.fit_intercept:
            for c in range(k):
                z[c] += w.dtype.type(b[c])
        value, rival, best = target_slopes(settings.loss, z, 1.0, y, i, g)
        s, label = row_weight(weight, i), code_of(y, i)
        loss_sum += s * value
        errors += best != label
        t += 1.0
        eta = step_size(SQRT, settings.eta0, 0.0, t)
        row_update(indices, data, start, stop, -eta * s, rival, label, g, w)
        if settings.fit_intercept:
            add_slopes(-eta * s, rival, label, g, b)
        drawn += eta * settings.pull * scale
        scale *= 1.0 + eta * settings.decay
        if scale > _LARGEST:
            _shrink_all(w, marks, scale, drawn, norm, scratch)
            scale, drawn = 1.0, 0.0
    clock[0], clock[1], clock[2] = t, scale, drawn
    return loss_sum, errors


@kernel
def _shrink_all(w, marks, scale, drawn, norm, scratch):
    for j in range(len(w)):
        _shrink(w[j], marks[j], scale, drawn, norm, scratch)
        marks[j, 0], marks[j, 1] = 1.0, 0.0


def shrink_all(w: NDArray[Any], shrinkage: Shrinkage, settings: SplittingSettings) -> None:
    """Bring all rows up to date, so that w is W, and start the shrinkage anew."""
    clock = shrinkage.clock
    _shrink_all(w, shrinkage.marks, clock[1], clock[2], settings.norm, np.empty((2, w.shape[1])))
    clock[1], clock[2] = 1.0, 0.0
