"""The task of ridge regression along a path of alphas: one fold predicted by the fits to the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.workers.least_squares.block_task import Moments
from distls.workers.linear_algebra.packed_triangle import unpacked
from distls.workers.linear_algebra.shifted_solve import Shifted

Array = NDArray[np.float64]


class PathJob(NamedTuple):
    """The input that all folds share."""

    # at zero weights, where the gradient of the squared loss is the negative targets
    folds: Sequence[Moments]
    alphas: Array  # (n_alphas,), all > 0
    intercept: bool
    eps: float  # relative rounding error of the Gram matrices


def held_out(job: PathJob, number: int) -> Array:
    """Return the sum of squared residuals on one fold at each alpha, shape (n_alphas,), fitted to the others."""
    fold, n = job.folds[number], len(job.alphas)
    w, b = _fit_others(job, number)
    # sum_i s_i (y_i - W^T x_i - b)^2, expanded; the gradients at zero weights are -y
    own = unpacked(fold.gram, np.empty((len(w), len(w)))) @ w
    targets, products = np.tile(fold.slopes, n), np.tile(fold.cross, n)
    sums = np.tile(fold.squares, n) + np.einsum("ij,ij->j", w, own + 2.0 * products)
    sums += b * (2.0 * (targets + fold.sums @ w) + fold.weight_sum * b)
    return np.asarray(sums.reshape(n, -1).sum(axis=1))


def _fit_others(job: PathJob, number: int) -> tuple[Array, Array]:
    """Fit everything but one fold at all alphas: weights (d, n_alphas * k), intercepts (n_alphas * k,)."""
    others = Moments.over([fold for other, fold in enumerate(job.folds) if other != number])
    total, n = others.weight_sum, len(job.alphas)
    # Gradients at zero weights are minus the targets, hence the signs.
    mean, products, targets = others.sums / total, -others.cross / total, -others.slopes / total
    gram = unpacked(others.gram, np.empty((len(mean), len(mean))))
    gram /= total
    # Freed before the factorisation, which needs the memory.
    del others
    if job.intercept:
        # Centred, so the intercept is eliminated and not penalised.
        gram -= np.outer(mean, mean)
        products -= np.outer(mean, targets)
    shifted = Shifted(gram, job.eps)
    del gram
    # One reduction to a band serves every alpha.
    inner = shifted.inside(products)
    found = np.concatenate([shifted.solve_inside(inner, alpha) for alpha in job.alphas], axis=1)
    weights = shifted.outside(found)
    offsets = np.tile(targets, n) - mean @ weights
    return weights, offsets if job.intercept else np.zeros_like(offsets)


def held_out_bytes(d: int, n_columns: int) -> int:
    """Return the bytes that a task holds in addition to the job."""
    # matrices of d columns, and weights of all alphas and outputs
    return 8 * d * (5 * d + 5 * n_columns)
