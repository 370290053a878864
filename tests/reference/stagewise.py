"""Stagewise regression, Algorithm 3 of the paper, on blocks of features that are given as arrays.

Readings of what is left open: a block is fitted with a ridge on its own weights, in mean form, and an unpenalised
intercept where asked; "calibrated" puts the predictions so far beside the features (section 3.1); with the logit link
the residual means nothing, so the predictions so far are an offset of the margins and W starts at 0 in each stage.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reference import features
from reference.calibrated import ridge

Array = NDArray[np.float64]


def fourier(x: Array, seed: int, stage: int, size: int, bandwidth: float) -> Array:
    """Return the features of a stage."""
    return features.fourier(x, size, bandwidth, seed, stage)


@dataclass
class Stage:
    """What one stage was given and found: weights, intercept, weights on predictions, predictions after it."""

    weights: Array
    intercept: Array
    calibration: Array
    before: Array
    after: Array


def linear(
    features: Sequence[Array], y: Array, alpha: float, *, s: Array, intercept: bool, calibrated: bool = False
) -> list[Stage]:
    """Fit each block to the residuals of those before it; y (n, k) are indicators or targets."""
    k, stages = y.shape[1], []
    before = np.zeros_like(y)
    for number, x in enumerate(features):
        z = np.hstack([x, before]) if calibrated and number else x
        weights, b = ridge(z, y - before, s, alpha, intercept=intercept)
        calibration = weights[x.shape[1] :] if len(weights) > x.shape[1] else np.zeros((k, k))
        after = before + z @ weights + b
        stages.append(Stage(weights[: x.shape[1]], b, calibration, before, after))
        before = after
    return stages


def softmax(z: Array) -> Array:
    """Return the probabilities of margins, row by row."""
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def logits(z: Array) -> Array:
    """Return the probability of each output."""
    return 1.0 / (1.0 + np.exp(-z))


def logistic(
    features: Sequence[Array], y: Array, alpha: float, *, s: Array, intercept: bool, rounds: int,
    accelerate: bool = False, lipschitz: float = 0.5, mean: Callable[[Array], Array] = softmax,
) -> list[Stage]:  # fmt: skip
    """Algorithm 1 on each block, margins of the stages before it as an offset: Equation 14 with a ridge."""
    stages, before = [], np.zeros_like(y)
    for x in features:
        n, m = x.shape
        z = np.hstack([x, np.ones((n, 1))]) if intercept else x
        penalty = alpha * np.diag([1.0] * m + [0.0] * intercept)
        sigma = (s[:, None] * z).T @ z / s.sum()
        w = last = np.zeros((z.shape[1], y.shape[1]))
        for t in range(rounds):
            point = w + (t - 1.0) / (t + 2.0) * (w - last) if accelerate and t else w
            gradient = (s[:, None] * z).T @ (mean(before + z @ point) - y) / s.sum() + penalty @ point
            last, w = w, point - np.linalg.solve(lipschitz * sigma + penalty, gradient)
        after = before + z @ w
        none = np.zeros((y.shape[1], y.shape[1]))
        stages.append(Stage(w[:m], w[m] if intercept else np.zeros(y.shape[1]), none, before, after))
        before = after
    return stages
