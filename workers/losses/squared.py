"""Squared loss of classes, of sets of labels (through their indicators) and of numbers."""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.workers.losses.loss import Codes, Floats, LabelSets, Loss
from distls.workers.losses.row_functions import GRADIENT_IN_G, row_curvature_of, row_gradient_of
from distls.workers.simd.class_sums import first_max, sum_of_squares

__all__ = ["Squared", "squared_residuals"]


class Squared(Loss):
    """Squared distance to the indicator of the row's class, ``1/2 sum_c (z_c - [c = y])^2``."""

    __slots__ = ()

    name = "squared"
    targets = ("class", "multilabel", "continuous")
    separable = True
    threshold = 0.5  # half-way between the values of the indicator

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        return 0.5 * np.square(self.gradient(scores, y)).sum(axis=1)

    def gradient(self, scores: Floats, y: Codes) -> Floats:
        """Return the derivatives of each row: the scores, less 1 at the row's class."""
        out = scores.copy()
        out[np.arange(len(y)), y] -= 1.0
        return out

    def label_gradient(
        self, scores: Floats, labels: LabelSets, wanted: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the distances to the indicators, and the losses."""
        return squared_residuals(scores, wanted)

    def lipschitz(self, k: int) -> float:
        """Return 1."""
        return 1.0


def squared_residuals(
    scores: NDArray[Any], wanted: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return gradients (n, k) and values (n,) of ``1/2 sum_c (z_c - wanted_c)^2``."""
    residuals = np.subtract(scores, wanted, dtype=np.float64)
    return residuals, 0.5 * np.square(residuals).sum(axis=1)


@row_gradient_of(Squared)
def _row(z, scale, y, g):
    best, factor = first_max(z), g.dtype.type(scale)
    for c in range(len(g)):
        g[c] = factor * z[c]
    g[y] -= g.dtype.type(1.0)
    return 0.5 * sum_of_squares(g), GRADIENT_IN_G, best


@row_curvature_of(Squared)
def _curvature(loss, g, h):
    h[:] = 1
