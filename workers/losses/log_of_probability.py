"""Log loss of scores that are already probabilities: for evaluation only."""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import math

import numpy as np

from distls.workers.losses.loss import Codes, Floats, Loss
from distls.workers.losses.numpy_forms import scores_of_class
from distls.workers.losses.row_functions import row_gradient_of
from distls.workers.simd.class_sums import first_max

__all__ = ["LogOfProbability"]


class LogOfProbability(Loss):
    """``-log z_y``, infinite for z_y = 0: evaluates models that end in a projection onto the simplex; no gradient."""

    __slots__ = ()

    name = "simplex"

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the log loss of each row."""
        with np.errstate(divide="ignore"):
            return -np.log(scores_of_class(scores, y))

    def probabilities(self, scores: Floats) -> Floats:
        """Return the scores."""
        return scores


LogOfProbability.log_loss = LogOfProbability()


@row_gradient_of(LogOfProbability)
def _row(z, scale, y, g):
    own = scale * np.float64(z[y])
    return np.inf if own <= 0.0 else -math.log(own), y, first_max(z)
