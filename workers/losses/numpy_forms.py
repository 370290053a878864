"""Parts shared by the NumPy forms of several losses."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlog1py, xlogy

from distls.workers.losses.loss import Codes, Floats, Loss

__all__ = [
    "SingleOutput",
    "binary_entropy",
    "negated_at_class",
    "pairs",
    "scores_of_class",
    "softmax_in_place",
]


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


def class_signs(y: Any, k: int) -> NDArray[np.float64]:
    """Return t, shape (n, k): 1 at each row's class, or where the indicators (n, k) are 1, else -1.

    With one output it is 1 for class 1.
    """
    if y.ndim == 2:
        return np.where(y > 0.5, 1.0, -1.0)
    if k == 1:
        return np.where(y == 1, 1.0, -1.0)[:, None]
    signs = np.full((len(y), k), -1.0)
    signs[np.arange(len(y)), y] = 1.0
    return signs


def binary_entropy(share: Floats) -> NDArray[np.float64]:
    """Return ``p log p + (1 - p) log(1 - p)`` of shares in [0, 1]."""
    p = share.astype(np.float64)
    return np.asarray(xlogy(p, p) + xlog1py(1.0 - p, -p))


class SingleOutput(Loss):
    """A one-versus-rest loss of two classes with a single output, that of class 1. Class 0 is predicted at zero.

    Scores are (n, 1), the value is that of both outputs, the gradient that of the one.
    """

    __slots__ = ()

    separable = True
    both: ClassVar[Loss]  # the form with two outputs, which are each other's negative

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of both outputs."""
        return self.both.values(np.hstack([-scores, scores]), y)

    def gradient(self, scores: Floats, y: Codes) -> Floats:
        """Return the derivatives of the single output's loss, shape (n, 1)."""
        return self.both.gradient(np.hstack([-scores, scores]), y)[:, 1:]

    def conjugate(self, duals: Floats, y: Any) -> NDArray[np.float64]:
        """Return the conjugate of the single output's loss, half of that of both."""
        return self.both.conjugate(duals, y)

    def lipschitz(self, k: int) -> float:
        """Return that of the form with two outputs."""
        return self.both.lipschitz(k)


def softmax_in_place(scores: NDArray[Any]) -> NDArray[Any]:
    """Overwrite scores by their softmax."""
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores
