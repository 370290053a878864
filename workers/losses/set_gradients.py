"""The gradient of a row with a set of labels, as the kernels of stochastic methods take it.

A separable loss registers that of one output's score z and sign t, 1 for the row's labels and -1 for others, with
``@output_loss_of(OvrLog)``.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import errors

from distls.workers.compilation.jit import helper
from distls.workers.losses.loss import Loss

__all__ = ["GRADIENT_IN_G", "output_loss_of", "set_gradient"]

_OUTPUT_LOSSES: dict[type, Any] = {}
# returned for `runner_up` when the gradient is not a pair +1, -1 but in `g`
GRADIENT_IN_G = -1
_RIGHT, _WRONG = -1, -2  # returned for the predicted class; `code_of` sets is -1


def output_loss_of(loss: type[Loss]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register ``function(sign, score)``, the value and the derivative in the score of a loss of one output."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _OUTPUT_LOSSES[loss] = helper(function)
        return function

    return register


def set_gradient(loss: type[Loss]) -> Any:
    """Return the compiled `target_gradient` of rows with sets of labels."""
    output_loss, threshold = _OUTPUT_LOSSES.get(loss), loss.threshold
    if output_loss is None:
        raise errors.TypingError(f"{loss.__name__} has no output_loss for sets of labels")

    def of_sets(loss, z, scale, y, i, g):
        one = g.dtype.type(1.0)
        g[:] = -one
        for place in range(y.indptr[i], y.indptr[i + 1]):
            g[y.indices[place]] = one
        value, predicted = 0.0, _RIGHT
        for c in range(len(g)):
            sign, score = np.float64(g[c]), scale * np.float64(z[c])
            if (score > threshold) != (sign > 0.0):
                predicted = _WRONG
            own, slope = output_loss(sign, score)
            value += own
            g[c] = g.dtype.type(slope)
        return value, GRADIENT_IN_G, predicted

    return of_sets
