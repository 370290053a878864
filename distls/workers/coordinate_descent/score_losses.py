"""The loss of all rows along a change of their scores, for block coordinate descent."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import numpy as np

from distls.workers.compilation.jit import elementwise
from distls.workers.losses.row_functions import row_loss


# `elementwise`, as the kernels of sweeps: a process that loads it from the cache has the bits of one that compiles it
@elementwise
def loss_of_scores(z, change, size, y, weight, loss):
    """Return ``sum_i s_i loss(y_i, z_i + size * change_i)``."""
    scores, scratch = np.empty(z.shape[1]), np.empty(z.shape[1])
    total = 0.0
    for i in range(len(z)):
        for r in range(z.shape[1]):
            scores[r] = np.float64(z[i, r]) + size * np.float64(change[i, r])
        total += row_loss(loss, scores, y, i, scratch) * (weight[i] if len(weight) else 1.0)
    return total
