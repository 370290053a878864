"""Multi-class hinge."""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import numpy as np

from distls.workers.losses.loss import Codes, Floats, Loss
from distls.workers.losses.numpy_forms import pairs, scores_of_class
from distls.workers.losses.row_functions import row_gradient_of

__all__ = ["CrammerSinger"]


class CrammerSinger(Loss):
    """Multi-class hinge, ``max(0, 1 + max_{j != y} z_j - z_y)`` (MCID paper Eq. 9, gradient Eq. 16)."""

    __slots__ = ()

    name = "crammer_singer"
    aliases = ("hinge",)
    certificate = "duality_gap"

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        return np.maximum(0.0, 1.0 + _others(scores, y).max(axis=1) - scores_of_class(scores, y))

    def gradient(self, scores: Floats, y: Codes) -> Floats:
        """Return a subgradient of each row: +1 at the best other class, -1 at y, or 0 beyond the margin."""
        runner_up = _others(scores, y).argmax(axis=1)
        return pairs(np.where(self.values(scores, y) > 0.0, runner_up, y), y, scores)


def _others(scores: Floats, y: Codes) -> Floats:
    """Return the scores with each row's own class at -infinity."""
    out = scores.copy()
    out[np.arange(len(y)), y] = -np.inf
    return out


@row_gradient_of(CrammerSinger)
def _row(z, scale, y, g):
    runner_up = 1 if y == 0 else 0
    for c in range(runner_up + 1, len(z)):
        if z[c] > z[runner_up] and c != y:
            runner_up = c
    value = 1.0 + scale * (np.float64(z[runner_up]) - np.float64(z[y]))
    wrong = z[runner_up] > z[y] or (z[runner_up] == z[y] and runner_up < y)
    predicted = runner_up if wrong else y
    if value <= 0.0:  # not `value > 0`: a NaN must get out
        return 0.0, y, predicted
    return value, runner_up, predicted
