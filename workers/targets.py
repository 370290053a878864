"""Targets of a block of rows against scores: slopes, loss sums and errors, for every kind of target."""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.workers.kernels._jit import kernel
from distls.workers.kernels.linear import row_weight
from distls.workers.losses import LOSSES, SLOPES_IN_G, add_slopes, row_slopes

__all__ = ["Slopes", "slopes_of"]


class Slopes(NamedTuple):
    """What a block's scores lead to.

    Attributes
    ----------
    values : float64 array of shape (n_rows, k)
        ``s_i * d loss_i / d score``.
    loss_sum, weight_sum : float
        Sums of s_i * loss_i and of s_i.
    errors : int
        Rows whose highest score is not their class's.
    """

    values: NDArray[np.float64]
    loss_sum: float
    weight_sum: float
    errors: int


def slopes_of(loss: str, scores: NDArray[Any], y: Any, weight: NDArray[np.float64]) -> Slopes:
    """Return slopes and sums at `scores` (n_rows, k).

    Parameters
    ----------
    loss : str
        Full loss name.
    y : int32 array of shape (n_rows,)
    weight : float64 array of shape (n_rows,), or (0,) for all ones
    """
    out = np.zeros(scores.shape)
    return Slopes(out, *_class_slopes(scores, y, weight, LOSSES[loss], out))


@kernel
def _class_slopes(scores, y, weight, loss, out):
    g = np.empty(scores.shape[1], scores.dtype)
    loss_sum, weight_sum, wrong = 0.0, 0.0, 0
    for i in range(len(y)):
        s = row_weight(weight, i)
        value, rival, best = row_slopes(loss, scores[i], 1.0, np.intp(y[i]), g)
        loss_sum, weight_sum, wrong = loss_sum + s * value, weight_sum + s, wrong + (best != y[i])
        if rival == SLOPES_IN_G:
            for c in range(len(g)):
                out[i, c] = s * g[c]
        else:
            add_slopes(s, rival, np.intp(y[i]), g, out[i])
    return loss_sum, weight_sum, wrong
