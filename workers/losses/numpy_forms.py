"""Parts that the NumPy forms of several losses share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.workers.losses.loss import Codes, Floats

__all__ = ["both_outputs", "negated_at_class", "pairs", "scores_of_class", "softmax_in_place"]


def scores_of_class(scores: Floats, y: Codes) -> Floats:
    """Return each row's score of its own class."""
    return scores[np.arange(len(y)), y]


def negated_at_class(values: Floats, y: Codes) -> Floats:
    """Return ``-t_c * values``, t_c = 1 for the row's class and -1 for the others: negated at the row's own class."""
    out = values.copy()
    out[np.arange(len(y)), y] *= -1.0
    return out


def pairs(runner_up: Codes, y: Codes, like: Floats) -> Floats:
    """Return gradients +1 at `runner_up` and -1 at `y`; they cancel where both are the same class."""
    out = np.zeros_like(like)
    rows = np.arange(len(y))
    out[rows, runner_up] += 1.0
    out[rows, y] -= 1.0
    return out


def both_outputs(scores: Floats) -> Floats:
    """Return the scores (n, 2) of two classes with the single output (n, 1)."""
    return np.hstack([-scores, scores])


def softmax_in_place(scores: NDArray[Any]) -> NDArray[Any]:
    """Overwrite scores by their softmax."""
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores
