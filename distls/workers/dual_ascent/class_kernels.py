"""Dual coordinate ascent for one-versus-rest losses over a block of classes, each of which is a problem of its own.

The steps are those of SDCA (Shalev-Shwartz and Zhang 2013), as in `ascent_kernels`.

A row updates all classes of the block at once, since its scores for them are computed together; nothing else connects
them: the weights of a class are the same bits in whatever block it is trained.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="arg-type"
from typing import NamedTuple

import numpy as np

from distls.workers.compilation.jit import helper, kernel
from distls.workers.dual_ascent.ascent_kernels import add_moved
from distls.workers.linear_algebra.prefetch import prefetch_element, prefetch_row
from distls.workers.linear_algebra.score_kernels import row_arrays, row_span, row_weight, square_norm
from distls.workers.losses.loss import Loss
from distls.workers.losses.shared_parts import dual_margin_step
from distls.workers.simd.vectors import F64_PER_VECTOR, fused, lanes_below, load, select, splat, store, sum_of_lanes

_ROWS_AHEAD = 8  # rows between prefetch and use
_AHEAD = 8  # non-zeros between prefetch and use of their weights
_LINE = 16  # weights of float32 in a cache line
_SPARSE = 4  # classes are updated one by one if fewer than one in this many have moved

# Sums of each class over rows, weighted: of losses; of scores times duals, alpha n |w|^2 at the optimum; and the gap,
# losses plus conjugates plus scores times duals.
LOSS, NORM, GAP = 0, 1, 2


class ClassSettings(NamedTuple):
    """Settings of `ascend_classes`."""

    step: float  # 1 / (alpha n): what a row of weight one adds to the weights
    intercept_square: float  # square of the constant feature behind the intercept, 0: none
    loss: Loss  # with a `dual_margin_step`


# `row_scores` adds up in an order that depends on the number of classes; these do not.
@helper
def _scores(indices, data, start, stop, w, flat, z):
    """Set ``z = W^T x``, adding up non-zero after non-zero; `flat` is w in one dimension."""
    # Unsigned indices: numba would add the length to negative ones, at every access.
    k = np.uintp(len(z))
    for c in range(k):
        z[c] = w.dtype.type(0.0)
    for p in range(np.uintp(start), np.uintp(stop)):
        ahead = np.uintp(indices[min(p + np.uintp(_AHEAD), np.uintp(stop) - np.uintp(1))])
        # Each cache line of the row of weights, since k classes are several.
        for v in range(np.uintp(0), k, np.uintp(_LINE)):
            prefetch_element(flat, np.intp(ahead * k + v))
        x, j = w.dtype.type(data[p]), np.uintp(indices[p])
        for c in range(k):
            z[c] = fused(x, w[j, c], z[c])


@helper
def _add(indices, data, start, stop, d, w):
    """Add ``x (x) d`` to w."""
    for p in range(np.uintp(start), np.uintp(stop)):
        x, j = w.dtype.type(data[p]), np.uintp(indices[p])
        for c in range(np.uintp(len(d))):
            w[j, c] = fused(x, d[c], w[j, c])


@helper
def _add_sums(sums, first, on, s, value, before, product):
    """Add a row's sums to those of the classes from `first` on where `on` is true."""
    losses, norms, gaps = sums[LOSS], sums[NORM], sums[GAP]
    store(load(losses, first, 0.0) + select(on, s * value, 0.0), losses, first)
    store(load(norms, first, 0.0) + select(on, s * product, 0.0), norms, first)
    store(load(gaps, first, 0.0) + select(on, s * (value + before + product), 0.0), gaps, first)


@kernel
def ascend_classes(rows, label_ptr, labels, weight, order, w, b, duals, active, sums, settings):
    """Maximise the dual of each active class over the row's dual, for each row in `order`.

    Parameters
    ----------
    rows : CsrRows or DenseRows
    label_ptr, labels : int64 (n_rows + 1,), int32 (n_labels,), the columns of w of each row's classes
    weight : float64 (n_rows,), s_i with mean 1 over the data set; or (0,) for all ones
    order : int64 (m,), rows to visit
    w : float32 or float64 (n_features, k), C-ordered; mutated
    b : float64 (k,), mutated if `intercept_square`
    duals : (n_rows, k) of the type of w, mutated
    active : bool (k,), the classes to train
    sums : float64 (3, k), sums at the visits are added: see `LOSS`
    settings : ClassSettings
    """
    k = w.shape[1]
    # -1 for every class, and 1 for a row's own while it is visited.
    z, d, sign, trained = np.empty(k, w.dtype), np.zeros(k, w.dtype), np.full(k, -1.0), np.zeros(k)
    for c in range(k):
        trained[c] = 1.0 if active[c] else 0.0
    indices, data = row_arrays(rows)
    flat = w.reshape(w.size)
    for at in range(len(order)):
        i = np.intp(order[at])
        prefetch_row(rows, np.intp(order[min(at + _ROWS_AHEAD, len(order) - 1)]))
        s = row_weight(weight, i)
        if s == 0.0:
            continue
        start, stop = row_span(rows, i, indices, data)
        _scores(indices, data, start, stop, w, flat, z)
        step = settings.step * s
        # not zero, so that rows without features have a best dual too
        q, moved = max(step * (square_norm(rows, i) + settings.intercept_square), 1e-30), splat(0.0)
        for p in range(label_ptr[i], label_ptr[i + 1]):
            # Labels of other blocks are -1.
            if labels[p] >= 0:
                sign[labels[p]] = 1.0
        for first in range(0, k, F64_PER_VECTOR):
            t, old, on = load(sign, first, -1.0), load(duals[i], first, 0.0), load(trained, first, 0.0) > 0.0
            m = t * (load(z, first, 0.0) + load(b, first, 0.0))
            new, value, before, _ = dual_margin_step(settings.loss, m, q, t * old)
            # Classes that have ended keep their duals.
            change = store(select(on, t * new, old), duals[i], first) - old
            store(step * change, d, first)
            # true of a NaN too, which must reach the weights
            moved = moved + select(change != 0.0, 1.0, 0.0)
            _add_sums(sums, first, on, s, value, before, t * m * old)
            # The intercept is the weight of a constant feature.
            store(load(b, first, 0.0) + settings.intercept_square * step * change, b, first)
        for p in range(label_ptr[i], label_ptr[i + 1]):
            if labels[p] >= 0:
                sign[labels[p]] = -1.0
        # Near the optimum few classes move at a row; products and their order are the same in both.
        if _SPARSE * sum_of_lanes(moved) < k:
            add_moved(indices, data, start, stop, 1.0, d, w)
        else:
            _add(indices, data, start, stop, d, w)


@kernel
def judge_classes(rows, label_ptr, labels, weight, w, b, duals, columns, sums, settings):
    """Add the sums of classes at fixed weights: the parameters are those of `ascend_classes`, but for `columns`.

    `w`, `b` and `sums` have the classes judged alone; the duals of the c-th are in column ``columns[c]`` of `duals`,
    and `labels` are numbers of such columns.
    """
    k = w.shape[1]
    z, sign = np.empty(k, w.dtype), np.full(duals.shape[1], -1.0)
    own_sign, own = np.empty(k), np.empty(k)
    indices, data = row_arrays(rows)
    flat = w.reshape(w.size)
    for i in range(len(duals)):
        s = row_weight(weight, i)
        if s == 0.0:
            continue
        start, stop = row_span(rows, i, indices, data)
        _scores(indices, data, start, stop, w, flat, z)
        for p in range(label_ptr[i], label_ptr[i + 1]):
            if labels[p] >= 0:
                sign[labels[p]] = 1.0
        for c in range(k):
            # Gathered, since the classes judged are some of the columns only.
            own_sign[c], own[c] = sign[columns[c]], duals[i, columns[c]]
        for first in range(0, k, F64_PER_VECTOR):
            t, dual = load(own_sign, first, -1.0), load(own, first, 0.0)
            m = t * (load(z, first, 0.0) + load(b, first, 0.0))
            # a step that is not taken: for the loss and the conjugate before it
            _, value, before, _ = dual_margin_step(settings.loss, m, 1.0, t * dual)
            # Padded lanes must not count.
            _add_sums(sums, first, lanes_below(k - first), s, value, before, t * m * dual)
        for p in range(label_ptr[i], label_ptr[i + 1]):
            if labels[p] >= 0:
                sign[labels[p]] = -1.0
