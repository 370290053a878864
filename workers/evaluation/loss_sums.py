"""Loss, errors and gradient of linear scores over a block of rows with classes, piece by piece.

A piece's scores and the products with its gradients are made by kernels that know no loss; what depends on the loss is
`class_losses`, on scores alone. So the number of compiled variants is that of losses plus that of kinds of rows, not
their product. Sums go on from piece to piece in the order of the rows: no result depends on where pieces end.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.storage.rows import CsrRows, Rows, n_rows_of
from distls.workers.compilation.jit import kernel
from distls.workers.linear_algebra.score_kernels import row_arrays, row_span, row_weight, scores
from distls.workers.losses.class_losses import LossSums, class_losses
from distls.workers.losses.loss import Loss
from distls.workers.losses.row_functions import add_row_gradient, row_update

__all__ = ["add_gradient", "evaluate_rows"]

# Rows, scores and gradients of a piece: small enough to be still in a cache when they are read again.
_PIECE_BYTES = 2**22
_LEAST_ROWS = 16  # below that calling kernels would cost more than it saves

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
    pieces = _Pieces(rows, w, b)
    for piece in pieces:
        z = scores(rows, w, b, pieces.scores[: piece.stop - piece.start], piece.start)
        class_losses(loss, z, y[piece], weight[piece], sums, predicted=predicted[piece])
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

    Parameters
    ----------
    grad, grad_b : float64 (n_features, k) and (k,), added to

    Returns
    -------
    loss_sum, weight_sum, errors : as in `evaluate_rows`; every y must be a class
    """
    _check_widths(grad, grad_b)
    sums, pieces = LossSums(), _Pieces(rows, w, b)
    all_runner_ups, all_gradients = np.empty(pieces.step, np.int32), np.empty(pieces.scores.shape)
    gather = None if isinstance(rows, CsrRows) else _Gatherer(rows.values, pieces.step)
    for piece in pieces:
        n = piece.stop - piece.start
        # a dense row is read twice: its non-zeros are gathered once
        x, first = (rows, piece.start) if gather is None else (gather(piece), 0)
        z, runner_ups, gradients = pieces.scores[:n], all_runner_ups[:n], all_gradients[:n]
        scores(x, w, b, z, first)
        class_losses(loss, z, y[piece], weight[piece], sums, runner_ups=runner_ups, gradients=gradients)
        _add_products(x, first, y[piece], weight[piece], runner_ups, gradients, grad, grad_b)
    return sums.totals()


def _check_widths(w: Floats, b: Floats) -> None:
    if w.shape[1] != len(b):
        raise ValueError("the weights and the intercept have different numbers of classes")


class _Pieces:
    """Consecutive rows of a block, as many at a time as fill a piece, and room for their scores."""

    def __init__(self, rows: Rows, w: Floats, b: Floats) -> None:
        _check_widths(w, b)
        self._n_rows, k = n_rows_of(rows), len(b)
        arrays = (rows.indices, rows.data) if isinstance(rows, CsrRows) else (rows.values,)
        row_bytes = sum(array.nbytes for array in arrays) // max(self._n_rows, 1) + k * (w.itemsize + 8)
        self.step = min(max(_LEAST_ROWS, _PIECE_BYTES // row_bytes), self._n_rows)
        self.scores = np.empty((self.step, k), w.dtype)

    def __iter__(self) -> Iterator[slice]:
        for first in range(0, self._n_rows, max(self.step, 1)):
            yield slice(first, min(first + self.step, self._n_rows))


class _Gatherer:
    """Makes sparse rows of pieces of dense ones, in arrays that are used again, as `row_span` gathers a row."""

    def __init__(self, values: Floats, step: int) -> None:
        self._values, size = values, step * values.shape[1]
        self._indptr = np.zeros(step + 1, np.int64)
        self._indices, self._data = np.empty(size, np.uint32), np.empty(size, values.dtype)

    def __call__(self, piece: slice) -> CsrRows:
        indptr = self._indptr[: piece.stop - piece.start + 1]
        _gather(self._values[piece], indptr, self._indices, self._data)
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
    """Add the products of the rows from `first` on with their gradients, as `class_losses` leaves those."""
    indices, data = row_arrays(rows)
    for i in range(len(y)):
        start, stop = row_span(rows, first + i, indices, data)
        s, label = row_weight(weight, i), np.intp(y[i])
        add_row_gradient(s, runner_ups[i], label, gradients[i], grad_b)
        row_update(indices, data, start, stop, s, runner_ups[i], label, gradients[i], grad)
