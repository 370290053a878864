"""One-versus-rest comparators of the MCID paper, section V.C: K binary models, each trained on its own.

Binary Pegasos (Shalev-Shwartz, Singer, Srebro 2007, Figure 1, whose projection is optional) and logistic
regression by the same steps: at step t, w <- (1 - 1/t) w - 1/(alpha t) * mean over the batch of the loss's
subgradient at the w before the step. Ours, not the papers': the start time t0.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reference.mcid import onto_ball

Array = NDArray[np.float64]


def hinge_slope(margin: float) -> float:
    """d max(0, 1 - margin) / d margin; 0 at the corner."""
    return -1.0 if margin < 1.0 else 0.0


def log_slope(margin: float) -> float:
    """d log(1 + exp(-margin)) / d margin."""
    return -1.0 / (1.0 + np.exp(margin))


SLOPES = {"ovr_hinge": hinge_slope, "ovr_log": log_slope}


def train_binary(
    x: Array, target: Array, loss: str, alpha: float, batches: Sequence[NDArray[np.integer]], t0: float = 0.0, *,
    ball: bool = False,
) -> Array:  # fmt: skip
    """Train one model on targets of -1 and +1; return its last weights, shape (d,)."""
    w = np.zeros(x.shape[1])
    for t, batch in enumerate(batches, start=1):
        now = t + t0
        step = np.zeros_like(w)
        for i in batch:
            step += SLOPES[loss](target[i] * (x[i] @ w)) * target[i] * x[i]
        w = (1.0 - 1.0 / now) * w - step / (alpha * now * len(batch))
        if ball:
            w = onto_ball(w, alpha)
    return w


def train(
    x: Array, y: NDArray[np.integer], n_classes: int, loss: str, alpha: float, batches: Sequence[NDArray[np.integer]],
    t0: float = 0.0, *, ball: bool = False,
) -> Array:  # fmt: skip
    """Train a model for each class against the rest, one after the other; return (d, n_classes)."""
    models = [
        train_binary(x, np.where(y == c, 1.0, -1.0), loss, alpha, batches, t0, ball=ball) for c in range(n_classes)
    ]
    return np.stack(models, axis=1)
