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
from distls.workers.losses.row_functions import add_slopes, row_update

__all__ = ["add_gradient", "evaluate_rows"]

# Rows, scores and gradients of a piece: small enough to be still in a cache when they are read again.
_PIECE_BYTES = 2**19
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
    for piece, z in _scored(rows, w, b):
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
    if grad.shape[1] != len(grad_b):
        raise ValueError("the weights and the intercept have different numbers of classes")
    sums = LossSums()
    for piece, z in _scored(rows, w, b):
        rivals, gradients = np.empty(len(z), np.int32), np.empty(z.shape)
        class_losses(loss, z, y[piece], weight[piece], sums, rivals=rivals, gradients=gradients)
        _add_products(rows, piece.start, y[piece], weight[piece], rivals, gradients, grad, grad_b)
    return sums.totals()


def _scored(rows: Rows, w: Floats, b: Floats) -> Iterator[tuple[slice, Floats]]:
    """Yield (rows, their scores) for consecutive pieces; the array of the scores is used again."""
    if w.shape[1] != len(b):
        raise ValueError("the weights and the intercept have different numbers of classes")
    n_rows = n_rows_of(rows)
    step = max(_LEAST_ROWS, _PIECE_BYTES // (_row_bytes(rows, n_rows) + len(b) * (w.itemsize + 8)))
    out = np.empty((min(step, n_rows), len(b)), w.dtype)
    for first in range(0, n_rows, step):
        piece = slice(first, min(first + step, n_rows))
        yield piece, scores(rows, w, b, out[: piece.stop - first], first)


def _row_bytes(rows: Rows, n_rows: int) -> int:
    """Return the mean size of a row of a block."""
    arrays = (rows.indices, rows.data) if isinstance(rows, CsrRows) else (rows.values,)
    return sum(array.nbytes for array in arrays) // max(n_rows, 1)


@kernel
def _add_products(rows, first, y, weight, rivals, gradients, grad, grad_b):
    """Add the products of the rows from `first` on with their gradients, as `class_losses` leaves those."""
    indices, data = row_arrays(rows)
    for i in range(len(y)):
        start, stop = row_span(rows, first + i, indices, data)
        s, label = row_weight(weight, i), np.intp(y[i])
        add_slopes(s, rivals[i], label, gradients[i], grad_b)
        row_update(indices, data, start, stop, s, rivals[i], label, gradients[i], grad)
