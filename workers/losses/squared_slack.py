"""Parts shared by the squared hinges of block coordinate descent: squares of slacks, gradients of sets of labels."""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from distls.workers.compilation.jit import elementwise
from distls.workers.losses.loss import Floats, LabelSets, Loss
from distls.workers.losses.row_functions import add_score_gradient, descent_factor, row_loss
from distls.workers.simd.slack_kernels import LANES

__all__ = ["change_of_square", "label_gradient", "own_correction", "square_of_slack"]


@register_jitable
def square_of_slack(a):
    """Return ``max(a, 0)^2``; NaN propagates."""
    return 0.0 if a <= 0.0 else a * a


@register_jitable
def change_of_square(new, old):
    """Return ``max(new, 0)^2 - max(old, 0)^2``."""
    after, before = 0.0 if new <= 0.0 else new, 0.0 if old <= 0.0 else old
    return (after - before) * (after + before)  # near the optimum the squares would cancel


@register_jitable
def own_correction(z, own):
    """Return the loss of the row's own class minus its loss as any other class, which the loop over all has added."""
    return square_of_slack(1.0 - own) - square_of_slack(1.0 + own)


def label_gradient(
    loss: Loss, scores: Floats, labels: LabelSets
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return gradients (n, k) and values (n,) of rows with sets of labels."""
    gradients, values = np.empty(scores.shape), np.empty(len(scores))
    _label_gradient(np.ascontiguousarray(scores), labels, loss, gradients, values)
    return gradients, values


@elementwise
def _label_gradient(z, y, loss, gradients, values):
    k = z.shape[1]
    width = (k + LANES - 1) // LANES * LANES
    g, own, scratch = np.zeros(width), np.zeros(k), np.zeros(k)
    for i in range(len(z)):
        g[:], own[:] = 0.0, 0.0
        add_score_gradient(loss, z, i, y, 1.0, g, own, scratch)
        for r in range(k):
            gradients[i, r] = descent_factor(loss) * (g[r] + own[r])
            scratch[r] = z[i, r]
        values[i] = row_loss(loss, scratch, y, i, own)
