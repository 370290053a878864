"""Loss, errors and gradient of linear scores over a block of rows with classes, batch by batch.

Scores and products with gradients are computed by kernels that are independent of the loss; only `class_losses`, on
scores, depends on it. So the number of compiled variants is that of losses plus that of kinds of rows, not their
product. Sums continue from batch to batch in the order of the rows: no result depends on where batches end.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, Rows, n_rows_of
from distls.workers.compilation.jit import kernel
from distls.workers.linear_algebra.row_vectors import row_add_pairs, row_dot_paired, rows_add, rows_add_pairs
from distls.workers.linear_algebra.score_kernels import row_arrays, row_axpy, row_span, row_weight, scores
from distls.workers.losses.loss import GRADIENT_IN_G, Loss
from distls.workers.losses.row_functions import add_row_gradient, row_update, set_row_gradient
from distls.workers.losses.targets import LossSums, class_losses

# rows, scores and gradients of a batch: small enough to be still in a cache when they are read again
_BATCH_BYTES = 2**22
_LEAST_ROWS = 16  # with fewer, calls of kernels would cost more than the cache saves

Floats = NDArray[Any]


def evaluate_rows(
    rows: Rows,
    y: NDArray[np.int32],
    weight: NDArray[np.float64],
    loss: Loss,
    w: Floats,
    b: Floats,
    predicted: NDArray[np.int32],
) -> tuple[float, float, int]:
    """Sum the loss and count the errors of a block.

    Parameters
    ----------
    y : int32 (n_rows,). A negative code (a label unknown to the model) counts as an error and has no loss
    weight : float64 (n_rows,), or (0,) for all ones
    loss : Loss
    w, b : arrays of shape (n_features, k) and (k,)
    predicted : int32 (n_rows,), filled with the class of the highest score; or (0,)

    Returns
    -------
    loss_sum : sum_i s_i * loss_i over the rows with y >= 0, float64
    weight_sum : sum_i s_i over the same rows, float64
    errors : rows whose predicted class is not y
    """
    sums = LossSums()
    # Batches bound the memory of scores; no result depends on where they end.
    batches = _Batches(rows, w, b)
    for batch in batches:
        z = scores(rows, w, b, batches.scores[: batch.stop - batch.start], batch.start)
        class_losses(loss, z, y[batch], weight[batch], sums, predicted=predicted[batch])
    return sums.totals()


def add_gradient(
    rows: Rows,
    y: NDArray[np.int32],
    weight: NDArray[np.float64],
    loss: Loss,
    w: Floats,
    b: Floats,
    grad: NDArray[np.float64],
    grad_b: NDArray[np.float64],
) -> tuple[float, float, int]:
    """Add ``sum_i s_i x_i (x) g_i`` to `grad` and ``sum_i s_i g_i`` to `grad_b`, g_i the gradient in the scores.

    Both are float64, (n_features, k) and (k,). Returns as `evaluate_rows`; every y must be a class.
    """
    _check_widths(grad, grad_b)
    sums, batches = LossSums(), _Batches(rows, w, b)
    # Allocated once, for the largest batch.
    all_runner_ups, all_gradients = np.empty(batches.step, np.int32), np.empty(batches.scores.shape)
    for batch in batches:
        n = batch.stop - batch.start
        z, runner_ups, gradients = batches.scores[:n], all_runner_ups[:n], all_gradients[:n]
        scores(rows, w, b, z, batch.start)
        class_losses(loss, z, y[batch], weight[batch], sums, runner_ups=runner_ups, gradients=gradients)
        _add_products(rows, batch.start, y[batch], weight[batch], runner_ups, gradients, grad, grad_b)
    return sums.totals()


def add_gradients(
    rows: Rows,
    y: NDArray[np.int32],
    weight: NDArray[np.float64],
    loss: Loss,
    w: Floats,
    b: NDArray[np.float64],
    grad: NDArray[np.float64],
    grad_b: NDArray[np.float64],
) -> list[tuple[float, float, int]]:
    """Do what `add_gradient` does for m models of k outputs each, with its bits, at one traversal of the rows.

    The weights of all models stand side by side: w and grad are (n_features, m k), b and grad_b (m, k). k is from 2 to
    `most_paired`: other scores are added up in another order.
    """
    count, k = b.shape
    _check_widths(grad, grad_b.reshape(-1))
    batches, sums = _Batches(rows, w, b.reshape(-1)), [LossSums() for _ in range(count)]
    every_score = np.empty((count, batches.step, k), w.dtype)
    gradients, runner_ups = np.empty(every_score.shape), np.empty(every_score.shape[:2], np.int32)
    side_by_side = np.empty(batches.scores.shape)
    for batch, x, first in _gathered(rows, batches):
        n = batch.stop - batch.start
        _scores_side_by_side(x, first, n, w, b, batches.scores[0], every_score)
        for m, total in enumerate(sums):
            # Each model alone, with the kernel that a single model has.
            given = loss, every_score[m, :n], y[batch], weight[batch], total
            class_losses(*given, runner_ups=runner_ups[m, :n], gradients=gradients[m, :n])
        pairs = _place_gradients(y[batch], weight[batch], runner_ups, gradients, side_by_side[:n], grad_b)
        # where a batch has few non-zeros of a feature, to look at all features would cost more than it saves
        few = x.indptr[first + n] - x.indptr[first] < len(grad)
        add = _add_by_row if few else _add_by_feature
        add(x, first, side_by_side[:n], pairs, grad)
    return [total.totals() for total in sums]


def _check_widths(w: Floats, b: Floats) -> None:
    if w.shape[1] != len(b):
        raise ValueError("the weights and the intercept have different numbers of classes")


class _Batches:
    """Slices of consecutive rows of a block, and a buffer for their scores."""

    def __init__(self, rows: Rows, w: Floats, b: Floats) -> None:
        _check_widths(w, b)
        self._n_rows, k = n_rows_of(rows), len(b)
        arrays = (rows.indices, rows.data) if isinstance(rows, CsrRows) else (rows.values,)
        # Bytes that a row needs in the cache: its own, its scores and its gradients.
        row_bytes = sum(array.nbytes for array in arrays) // max(self._n_rows, 1) + k * (w.itemsize + 8)
        # At least one batch, and never more rows than there are.
        self.step = min(max(_LEAST_ROWS, _BATCH_BYTES // row_bytes), self._n_rows)
        self.scores = np.empty((self.step, k), w.dtype)

    def __iter__(self) -> Iterator[slice]:
        for first in range(0, self._n_rows, max(self.step, 1)):
            yield slice(first, min(first + self.step, self._n_rows))


def _gathered(rows: Rows, batches: _Batches) -> Iterator[tuple[slice, CsrRows, int]]:
    """Yield each batch with rows that hold it, and its first there.

    Dense rows are read twice: their non-zeros are gathered once.
    """
    if isinstance(rows, CsrRows):
        yield from ((batch, rows, batch.start) for batch in batches)
    else:
        gather = _Gatherer(rows.values, batches.step)
        yield from ((batch, gather(batch), 0) for batch in batches)


class _Gatherer:
    """Converts batches of dense rows to sparse ones, in reused arrays, as `row_span` gathers a row."""

    def __init__(self, values: Floats, step: int) -> None:
        self._values, size = values, step * values.shape[1]
        self._indptr = np.zeros(step + 1, np.int64)
        # Room for rows without a zero.
        self._indices, self._data = np.empty(size, np.uint32), np.empty(size, values.dtype)

    def __call__(self, batch: slice) -> CsrRows:
        indptr = self._indptr[: batch.stop - batch.start + 1]
        _gather(self._values[batch], indptr, self._indices, self._data)
        return CsrRows(indptr, self._indices, self._data)


@kernel
def _gather(values, indptr, indices, data):
    found = 0
    for i in range(len(values)):
        for j in range(values.shape[1]):
            # written always, kept if not zero: no branch to mispredict
            indices[found] = j
            data[found] = values[i, j]
            found += values[i, j] != 0
        indptr[i + 1] = found


@kernel
def _add_products(rows, first, y, weight, runner_ups, gradients, grad, grad_b):
    """Add the products of the rows from `first` on with their gradients, as `class_losses` returns them."""
    indices, data = row_arrays(rows)
    for i in range(len(y)):
        start, stop = row_span(rows, first + i, indices, data)
        s, runner_up, label = row_weight(weight, i), np.intp(runner_ups[i]), np.intp(y[i])
        add_row_gradient(s, runner_up, label, gradients[i], grad_b)
        row_update(indices, data, start, stop, s, runner_up, label, gradients[i], grad)


@kernel
def _scores_side_by_side(rows, first, n, w, b, z, out):
    indices, data = row_arrays(rows)
    for i in range(n):
        start, stop = row_span(rows, first + i, indices, data)
        row_dot_paired(indices, data, start, stop, w, z)
        for m in range(out.shape[0]):
            for c in range(out.shape[2]):
                out[m, i, c] = z[m * out.shape[2] + c] + b[m, c]


@kernel
def _place_gradients(y, weight, runner_ups, gradients, out, grad_b):
    """Set `out` (n, m k) to the models' gradients times weights, add them to grad_b; return whether any is a pair."""
    (count, k), any_pair = grad_b.shape, False
    for i in range(len(y)):
        s, label = row_weight(weight, i), np.intp(y[i])
        for m in range(count):
            runner_up, g = np.intp(runner_ups[m, i]), gradients[m, i]
            add_row_gradient(s, runner_up, label, g, grad_b[m])
            set_row_gradient(s, runner_up, label, g, out[i, m * k : (m + 1) * k])
            any_pair = any_pair or runner_up not in (GRADIENT_IN_G, label)
    return any_pair


@kernel
def _add_by_row(rows, first, gradients, pairs, grad):
    """Add the products of the rows from `first` on with their gradients, row by row."""
    for i in range(len(gradients)):
        # A pair's products are rounded before they are added, as in `row_axpy_pair`.
        start, stop = rows.indptr[first + i], rows.indptr[first + i + 1]
        if pairs:
            row_add_pairs(rows.indices, rows.data, start, stop, grad, gradients[i], 1.0)
        else:
            row_axpy(rows.indices, rows.data, start, stop, 1.0, gradients[i], grad)


@kernel
def _add_by_feature(rows, first, gradients, pairs, grad):
    """Do the same with the same bits, feature by feature: its sum stays in registers from one row to the next."""
    n, d, begin = len(gradients), len(grad), rows.indptr[first]
    count = rows.indptr[first + n] - begin
    # A counting sort of the batch's non-zeros by feature.
    ends = np.zeros(d, np.uint32)
    row_of, values = np.empty(count, np.uint32), np.empty(count, rows.data.dtype)
    for p in range(begin, begin + count):
        ends[rows.indices[p]] += 1
    total = np.uint32(0)
    for j in range(d):
        # From counts to the place where each feature begins.
        total, ends[j] = total + ends[j], total
    for i in range(n):
        for p in range(rows.indptr[first + i], rows.indptr[first + i + 1]):
            # Stable, so a feature's values stay in the order of the rows: the same sums as by rows.
            at = ends[rows.indices[p]]
            row_of[at], values[at] = i, rows.data[p]
            ends[rows.indices[p]] = at + 1
    start = np.intp(0)
    for j in range(d):
        stop = np.intp(ends[j])
        if start == stop:
            continue
        if pairs:
            rows_add_pairs(row_of, values, start, stop, gradients, grad[j])
        else:
            rows_add(row_of, values, start, stop, gradients, grad[j])
        start = stop
