"""Kernels of Newton's method on a few columns: derivatives of rows, the Gram of the columns, descent on it alone.

The quadratic model of the loss around the weights W has the Hessian ``F_jq = sum_i x_ij x_iq H_i``, blocks of k x k,
with H_i the second derivatives of row i in its scores. Of these only what differs is kept, the *parts* of a row:

    1            where two scores enter by their difference: H_i = h_i [[1, -1], [-1, 1]]
    k            of a separable loss: the diagonal
    k (k + 1)/2  else: the lower triangle, row by row

Shapes: z and g (n_rows, k) float64, h (n_rows, parts) float32; the Gram (m, m, parts) while it is summed, then
(m, parts, m), float32: it is only a model, and the search along its step takes the objective itself. With an intercept
the last of the m columns are ones.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
import numpy as np

from distls.workers.compilation.jit import helper, kernel
from distls.workers.linear_algebra.dense_vectors import dot, dot_ahead
from distls.workers.linear_algebra.score_kernels import column_of, places, value_of
from distls.workers.losses.loss import LabelSets
from distls.workers.losses.row_functions import (
    add_score_gradient,
    add_score_hessian,
    descent_factor,
    has_row_function,
    row_loss,
    score_derivatives,
)
from distls.workers.penalties.row_kernels import row_prox
from distls.workers.simd.vectors import (
    F64_PER_VECTOR,
    fused,
    load,
    load_whole,
    padded,
    splat,
    splat_lanes,
    store,
    sum_of_lanes,
)

_ROWS = 256  # whose classes are put into vectors at a time
_REPEATS = 30  # prox steps of one block, at most
# Values of a column that `gram_products` takes at a time, so that those of many columns fit in the caches; and at once.
_PIECE, _LANES = 1024, 8


def row_derivatives(z, y, weight, loss, scale, g, h):
    """Set g and h to the derivatives of ``scale s_i loss_i``; return the sum of these losses.

    h of no rows is left alone. The other parameters are as of `column_sweep`.
    """
    if isinstance(y, LabelSets) or y.ndim > 1 or not has_row_function(loss, "score_derivatives"):
        return _of_rows(z, y, weight, loss, scale, g, h)
    return _of_scores(z[:, 0], y, weight, loss, scale, g[:, 0], h[:, 0])


@kernel
def _of_scores(z, y, weight, loss, scale, g, h):
    """Do the same for one output, in vectors of rows."""
    signs, factors, total = np.ones(_ROWS), np.zeros(_ROWS), splat(0.0)
    for start in range(0, len(z), _ROWS):
        m = min(_ROWS, len(z) - start)
        factors[m:] = 0.0
        for i in range(m):
            signs[i] = 1.0 if y[start + i] == 1 else -1.0
            factors[i] = scale * (weight[start + i] if len(weight) else 1.0)
        for p in range(0, m, F64_PER_VECTOR):
            t, factor = load(signs, p, 1.0), load(factors, p, 0.0)
            value, slope, curvature = score_derivatives(loss, t, load(z, start + p, 0.0))
            total = total + factor * value
            store(factor * slope, g, start + p)
            if len(h):
                store(factor * curvature, h, start + p)
    return sum_of_lanes(total)


@kernel
def _of_rows(z, y, weight, loss, scale, g, h):
    k, parts, total = z.shape[1], h.shape[1], 0.0
    slopes, own, scratch, hessian = np.zeros(padded(k)), np.zeros(k), np.zeros(k), np.zeros((k, k))
    by = descent_factor(loss)
    for i in range(len(z)):
        factor = scale * (weight[i] if len(weight) else 1.0)
        total += factor * row_loss(loss, z[i], y, i, scratch)
        slopes[:], own[:] = 0.0, 0.0
        add_score_gradient(loss, z, i, y, factor, slopes, own, scratch)
        for r in range(k):
            g[i, r] = by * (slopes[r] + own[r])
        if len(h):
            for r in range(k):
                # of a separable loss nothing beside the diagonal is ever written
                for c in range(r if parts == k else 0, r + 1):
                    hessian[r, c] = 0.0
            add_score_hessian(loss, z, i, y, factor, hessian, scratch)
            _keep_parts(hessian, h[i])
    return total


@helper
def _keep_parts(hessian, h):
    k, parts, place = len(hessian), len(h), 0
    if parts == 1:
        h[0] = np.float32(hessian[k - 1, k - 1])
    elif parts == k:
        for r in range(k):
            h[r] = np.float32(hessian[r, r])
    else:
        for r in range(k):
            for c in range(r + 1):
                h[place] = np.float32(hessian[r, c])
                place += 1


@helper
def _is_used(w):
    used = False
    for r in range(len(w)):
        used |= w[r] != 0.0
    return used


@kernel
def loss_of_scores(z, change, size, y, weight, loss):
    """Return ``sum_i s_i loss(y_i, z_i + size * change_i)``."""
    scores, scratch = np.empty(z.shape[1]), np.empty(z.shape[1])
    total = 0.0
    for i in range(len(z)):
        for r in range(z.shape[1]):
            scores[r] = np.float64(z[i, r]) + size * np.float64(change[i, r])
        total += row_loss(loss, scores, y, i, scratch) * (weight[i] if len(weight) else 1.0)
    return total


@kernel
def add_products(x, w, z):
    """Add ``sum_j x_ij w_j`` to the scores of all rows; columns without weights do not change a bit."""
    flat = z.ravel()
    # In the order of the columns: the same bits in every process.
    for j in range(len(w)):
        if not _is_used(w[j]):
            continue
        first, end = places(x, j)
        if w.shape[1] == 1:  # in vectors of rows, where columns are dense
            for p in range(first, end):
                flat[column_of(x, p)] += np.float64(value_of(x, j, p)) * w[j, 0]
            continue
        for p in range(first, end):
            i, factor = column_of(x, p), np.float64(value_of(x, j, p))
            for r in range(w.shape[1]):
                z[i, r] += factor * w[j, r]


@kernel
def count_pairs(indptr, indices, work):
    """Add to each column the products that `add_gram` does for it."""
    for i in range(len(indptr) - 1):
        for p in range(indptr[i], indptr[i + 1]):
            work[np.intp(indices[p])] += indptr[i + 1] - p


@kernel
def add_gram(indptr, indices, data, h, gram, first, end):
    """Add the products of the non-zeros of rows, times the rows' parts, to the Gram (m, m, parts), the upper triangle.

    Only to the rows `first` to `end` of the Gram.
    """
    parts = h.shape[1]
    for i in range(len(h)):
        stop = indptr[i + 1]
        for p in range(indptr[i], stop):
            j = np.intp(indices[p])
            if j < first or j >= end:
                continue
            # Columns increase within a row: those from p on are the upper triangle.
            value, row = np.float32(data[p]), gram[j]
            if parts == 1:
                value *= h[i, 0]
                for q in range(p, stop):
                    row[np.intp(indices[q]), 0] += value * np.float32(data[q])
            else:
                for q in range(p, stop):
                    product, place = value * np.float32(data[q]), np.intp(indices[q])
                    for t in range(parts):
                        row[place, t] += product * h[i, t]


@kernel
def complete_gram(gram, scratch):
    """Fill the lower triangle of a Gram (m, m, parts), and turn it in place to (m, parts, m); scratch (parts * m,)."""
    m, parts = gram.shape[0], gram.shape[2]
    for j in range(m):
        for q in range(j):
            for t in range(parts):
                gram[j, q, t] = gram[q, j, t]
    if parts == 1:
        return
    for j in range(m):
        # Each row of blocks has the same place before and after.
        flat = gram[j].reshape(m * parts)
        for q in range(m):
            for t in range(parts):
                scratch[t * m + q] = gram[j, q, t]
        for place in range(m * parts):
            flat[place] = scratch[place]


@kernel
def gram_products(left, right, out):
    """Set out (a, b) to the products of rows, float32 (a, n) and (b, n), a and b multiples of 4, n of 8.

    Every product is summed alike, wherever its rows are: its bits depend on these two rows alone.
    """
    n, zeros = left.shape[1], splat_lanes(np.float32(0.0), _LANES)
    out[:] = 0.0
    for first in range(0, n, _PIECE):
        stop = min(n, first + _PIECE)
        for b in range(0, len(right), 4):
            r0, r1, r2, r3 = right[b], right[b + 1], right[b + 2], right[b + 3]
            for a in range(0, len(left), 4):
                l0, l1, l2, l3 = left[a], left[a + 1], left[a + 2], left[a + 3]
                # Sixteen sums at a time, so that each value that is loaded serves four of them.
                s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = zeros
                s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = zeros
                # fmt: off
                for i in range(first, stop, _LANES):
                    x0, x1 = load_whole(l0, i, _LANES), load_whole(l1, i, _LANES)
                    x2, x3 = load_whole(l2, i, _LANES), load_whole(l3, i, _LANES)
                    y = load_whole(r0, i, _LANES)
                    s00, s10, s20, s30 = fused(x0, y, s00), fused(x1, y, s10), fused(x2, y, s20), fused(x3, y, s30)
                    y = load_whole(r1, i, _LANES)
                    s01, s11, s21, s31 = fused(x0, y, s01), fused(x1, y, s11), fused(x2, y, s21), fused(x3, y, s31)
                    y = load_whole(r2, i, _LANES)
                    s02, s12, s22, s32 = fused(x0, y, s02), fused(x1, y, s12), fused(x2, y, s22), fused(x3, y, s32)
                    y = load_whole(r3, i, _LANES)
                    s03, s13, s23, s33 = fused(x0, y, s03), fused(x1, y, s13), fused(x2, y, s23), fused(x3, y, s33)
                # fmt: on
                _add_four(out[a], b, s00, s01, s02, s03)
                _add_four(out[a + 1], b, s10, s11, s12, s13)
                _add_four(out[a + 2], b, s20, s21, s22, s23)
                _add_four(out[a + 3], b, s30, s31, s32, s33)


@helper
def _add_four(row, b, s0, s1, s2, s3):
    row[b] += sum_of_lanes(s0)
    row[b + 1] += sum_of_lanes(s1)
    row[b + 2] += sum_of_lanes(s2)
    row[b + 3] += sum_of_lanes(s3)


@kernel
def dense_products(values, places, slopes, out):
    """Set out (m, k) to the products of columns, the rows of values (., n) at m places, with slopes (k, n)."""
    for p in range(len(places)):
        following = values[places[min(p + 1, len(places) - 1)]]
        for r in range(len(slopes)):
            out[p, r] = dot_ahead(values[places[p]], slopes[r], following)


@kernel
def lengths_of(values, out):
    """Set out (m,) to the lengths of columns, rows of values (m, n), and a little more than rounding takes."""
    for j in range(len(values)):
        out[j] = (1.0 + 1e-9) * np.sqrt(dot(values[j], values[j]))


@kernel
def copy_products(kept, places, gram, own):
    """Copy the products of columns, whose places in `kept` and in `gram`, both (m, parts, m), are given."""
    for a in range(len(own)):
        for part in range(gram.shape[1]):
            source, target = kept[places[a], part], gram[own[a], part]
            for b in range(len(own)):
                target[own[b]] = source[places[b]]


@helper
def _add(by, row, out):
    for q in range(len(out)):
        out[q] += by * np.float64(row[q])


@helper
def _move(gram, j, d, slopes):
    """Change the gradients (k, m) of the model as block j changes by d."""
    k, parts, place = len(d), gram.shape[1], 0
    if parts < k:
        _add(d[0] - d[1], gram[j, 0], slopes[0])
        _add(d[1] - d[0], gram[j, 0], slopes[1])
    elif parts == k:
        for r in range(k):
            if d[r] != 0.0:
                _add(d[r], gram[j, r], slopes[r])
    else:
        for r in range(k):
            for c in range(r + 1):
                _add(d[c], gram[j, place], slopes[r])
                if r != c:
                    _add(d[r], gram[j, place], slopes[c])
                place += 1


@helper
def _minimise_block(slopes, j, block, curvature, penalty, alpha, rho, w, u, target, new, tolerance):
    """Set u to the minimum of the model plus the penalty over one block, from w; return its first move."""
    k, first = len(w), 0.0
    for r in range(k):
        u[r] = w[r]
    for turn in range(_REPEATS):
        for r in range(k):
            slope = slopes[r, j]
            for c in range(k):
                slope += block[r, c] * (u[c] - w[c])
            target[r] = u[r] - slope / curvature
        row_prox(penalty, target, alpha / curvature, rho, new)
        moved = 0.0
        for r in range(k):
            moved = max(moved, curvature * abs(new[r] - u[r]))
            u[r] = new[r]
        if turn == 0:
            first = moved
        # Exact blocks would cost more than the passes they save.
        if moved <= 0.1 * tolerance:
            break
    return first


@helper
def _pulled(pull, d, out, shift):
    """Set `out` to the change of the intercept by that of a block, and add it to `shift`."""
    for r in range(len(d)):
        out[r] = 0.0
        for c in range(len(d)):
            out[r] -= pull[r, c] * d[c]
        shift[r] += out[r]


@helper
def _add_change(gram, pull, d, shift, slopes, change):
    """Add what a change d (n, k) of all blocks does to the intercept and to the gradients of the model."""
    for j in range(len(d)):
        if _is_used(d[j]):
            _move(gram, j, d[j], slopes)
            if len(pull):
                _pulled(pull[j], d[j], change, shift)
                _move(gram, len(gram) - 1, change, slopes)


@kernel
def gram_descent(gram, blocks, longest, pull, penalty, alpha, rho, w, shift, slopes, tolerance, most):
    """Minimise the model plus the penalty by blocks, in turn; return whether none would move by more than `tolerance`.

    Parameters
    ----------
    gram : float32 (m, parts, m)
    blocks : float64 (n, k, k), the Hessian of each block, at the intercept that is optimal for it
    longest : float64 (n,), its largest eigenvalue
    pull : float64 (n, k, k): a change d of a block moves the intercept by ``-pull d``; or (0, k, k)
    w : float64 (n, k), changed in place
    shift : float64 (k,), to which the changes of the intercept are added
    slopes : float64 (k, m), the gradients of the model, changed in place
    tolerance : of the largest move of a block, times `longest`
    most : passes; 0: do no more than to change `shift` and `slopes` as a change w of all blocks does
    """
    k, everything = w.shape[1], True
    u, target, new, d = np.zeros(k), np.zeros(k), np.zeros(k), np.zeros(k)
    # One kernel with the descent: it is compiled once.
    if most == 0:
        _add_change(gram, pull, w, shift, slopes, new)
    for _ in range(most):
        largest = 0.0
        for j in range(len(w)):
            if longest[j] <= 0.0 or not (everything or _is_used(w[j])):
                continue
            moved = _minimise_block(
                slopes, j, blocks[j], longest[j], penalty, alpha, rho, w[j], u, target, new, tolerance
            )
            largest = max(largest, moved)
            for r in range(k):
                d[r] = u[r] - w[j, r]
                w[j, r] = u[r]
            if _is_used(d):
                _move(gram, j, d, slopes)
                # The intercept follows at once, so that slopes are always those at its optimum.
                if len(pull):
                    _pulled(pull[j], d, new, shift)
                    _move(gram, len(gram) - 1, new, slopes)
        # After a pass over all, those over the blocks with weights alone, until these are done.
        if largest <= tolerance and everything:
            return True
        everything = largest <= tolerance
    return False
