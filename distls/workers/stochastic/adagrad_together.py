"""The AdaGrad steps (Duchi, Hazan, Singer 2011) of several models that see the same rows: strengths side by side.

Rows are decoded once, and what a non-zero costs, its root, exponential and gather, is paid once for all models, whose
numbers are the lanes of vectors (`distls.workers.simd.adaptive_steps`). Every model has the bits of `adagrad_block`.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import helper, kernel
from distls.workers.linear_algebra.prefetch import prefetch_element, prefetch_row
from distls.workers.linear_algebra.score_kernels import row_arrays, row_span, row_weight
from distls.workers.losses.loss import GRADIENT_IN_G, Loss
from distls.workers.losses.row_functions import code_of, set_row_gradient, target_gradient
from distls.workers.simd.adaptive_steps import (
    FACTORS,
    MODELS_PER_LINE,
    SMALLEST_FACTOR,
    SQUARES,
    WEIGHTS,
    add_line_scores,
    decay_line,
    move_line,
)
from distls.workers.stochastic.adagrad_kernels import AdagradSettings, intercept_step, move_intercept, squared_norm
from distls.workers.stochastic.joint_learning import Joint

# The sums of scores have the order of `row_scores` up to here; with more outputs a model fills the vectors alone.
MOST_OUTPUTS = 8

_ROWS_AHEAD = 2  # rows between prefetch and use
_LINE_BYTES = 64  # of the cache
_AHEAD = 8  # likewise non-zeros of a row


class LineSettings(NamedTuple):
    """Settings of `adagrad_lines_block`; arrays are float64 (MODELS_PER_LINE,), idle lanes zero."""

    eta0: NDArray[np.float64]
    eta_b: NDArray[np.float64]
    alpha: NDArray[np.float64]
    fit_intercept: bool
    loss: Loss


@helper
def _prefetch_line(lines, j):
    # A feature's numbers of all models: several cache lines, each of which has to be prefetched.
    line = lines.shape[1] * MODELS_PER_LINE
    for at in range(j * line, (j + 1) * line, _LINE_BYTES // lines.itemsize):
        prefetch_element(lines, at)


@helper
def _fold(lines, j):
    """Multiply a feature's weights by its factors where these have become small."""
    # Lanes of the vector are different models; only those with small factors are folded.
    for m in range(MODELS_PER_LINE):
        if lines[j, FACTORS, m] < lines.dtype.type(SMALLEST_FACTOR):
            for c in range(WEIGHTS, lines.shape[1]):
                lines[j, c, m] *= lines[j, FACTORS, m]
            lines[j, FACTORS, m] = lines.dtype.type(1.0)


@kernel
def adagrad_lines_block(  # noqa: C901  (one loop, as in `adagrad_block`)
    rows, y, weight, order, lines, since, b, square_b, clock, settings
):
    """Train on the rows `order` of one block as `adagrad_block` does, every model at once.

    Parameters
    ----------
    rows, y, weight, order : as of `adagrad_block`
    lines : float32 or float64 (n_features, 2 + k, MODELS_PER_LINE), C-ordered; mutated
    since : float64 (n_features,): the time up to which the feature has decayed; mutated
    b : float64 (m, k) for m models, mutated if `fit_intercept`, else zeros
    square_b : float64 (m,), mutated likewise
    clock : float64 (1,), steps taken; mutated
    settings : LineSettings

    Returns
    -------
    loss_sums, errors : float64 and int64 (m,), as `adagrad_block` has them of each model
    """
    # Unused lanes of a line hold zeros, and their results are never read.
    (count, k), n, t, kind = b.shape, len(order), clock[0], lines.dtype.type
    if (
        lines.shape[1] != WEIGHTS + k
        or lines.shape[2] != MODELS_PER_LINE
        or count > MODELS_PER_LINE
        or len(since) != len(lines)
    ):
        raise ValueError("lines need a place for every sum, factor and weight")
    sums = np.empty((2, k, MODELS_PER_LINE), lines.dtype)
    gradients = np.zeros((k, MODELS_PER_LINE), lines.dtype)
    z, g, rates = np.empty(k, lines.dtype), np.empty(k, lines.dtype), np.zeros(MODELS_PER_LINE, lines.dtype)
    squares, etas = np.zeros(MODELS_PER_LINE, lines.dtype), np.zeros(MODELS_PER_LINE, lines.dtype)
    # In the type of the weights once, as `adagrad_block` rounds it at each row.
    for m in range(count):
        rates[m] = kind(settings.alpha[m] * settings.eta0[m])
    loss_sums, errors = np.zeros(count), np.zeros(count, np.int64)
    indices, data = row_arrays(rows)
    for at in range(n):
        i = np.intp(order[at])
        prefetch_row(rows, np.intp(order[min(at + _ROWS_AHEAD, n - 1)]))
        start, stop = row_span(rows, i, indices, data)
        sums[:] = 0.0
        for p in range(start, stop):
            j, x = np.intp(indices[p]), kind(data[p])
            _prefetch_line(lines, np.intp(indices[min(p + _AHEAD, stop - 1)]))
            # All models have the same rows and clock, so one time per feature serves all of them.
            missed, since[j] = kind(t - since[j]), t
            if decay_line(lines[j], missed, rates):
                _fold(lines, j)
            # Two alternating sums: the same order of additions as in `row_scores`, which the bits need.
            add_line_scores(lines[j], x, sums[(p - start) & 1])
        s, label, moved = row_weight(weight, i), code_of(y, i), False
        t += 1.0
        for m in range(count):
            # The gradient of each model is computed alone: losses are a small part of a row's cost.
            for c in range(k):
                z[c] = sums[0, c, m] + sums[1, c, m]
            if settings.fit_intercept:
                for c in range(k):
                    z[c] += kind(b[m, c])
            value, runner_up, best = target_gradient(settings.loss, z, 1.0, y, i, g)
            loss_sums[m] += s * value
            errors[m] += best != label
            square = s * s * squared_norm(runner_up, label, g)
            squares[m], etas[m] = kind(square), kind(settings.eta0[m] * s)
            moved |= square != 0.0  # true of a NaN, which must reach the weights
            # A pair is written out as a vector, so that all models move in one loop.
            set_row_gradient(1.0, runner_up, label, g, g)
            for c in range(k):
                gradients[c, m] = g[c]
            if settings.fit_intercept and square != 0.0:
                square_b[m] += square
                move_intercept(intercept_step(settings.eta_b[m], s, square_b[m]), GRADIENT_IN_G, label, g, b[m])
        # All models move or none: where a model's gradient is zero its step is zero too.
        if moved:
            for p in range(start, stop):
                move_line(lines[np.intp(indices[p])], kind(data[p]), squares, etas, gradients)
    clock[0] = t
    return loss_sums, errors


def lines_bytes(n_features: int, k: int, models: int, itemsize: int) -> int:
    """Return the bytes of the lines of so many models."""
    return -(-models // MODELS_PER_LINE) * n_features * ((WEIGHTS + k) * MODELS_PER_LINE * itemsize + 8)


class AdagradLines(Joint):
    """Learners of `adagrad_block`, as lanes of the same lines."""

    kernel = staticmethod(adagrad_lines_block)

    def __init__(self, states: Sequence[tuple[Any, ...]], settings: Sequence[AdagradSettings]) -> None:
        self._states = states
        weights, _, _, _, decay, clock = states[0]
        lines = np.zeros((len(weights), WEIGHTS + weights.shape[1], MODELS_PER_LINE), weights.dtype)
        lines[:, FACTORS] = 1.0  # as `new_decay` has them
        # Zero arrays need no copy: in a first round that saves touching all of the lines.
        for m, (weights, _, squares, *_) in enumerate(states):
            if squares.any() or weights.any():  # not in a first round
                lines[:, SQUARES, m], lines[:, WEIGHTS:, m] = squares, weights
        b, square_b = np.stack([state[1] for state in states]), np.concatenate([state[3] for state in states])
        # Idle lanes have steps of size zero.
        each = np.zeros((3, MODELS_PER_LINE))
        each[:, : len(states)] = np.transpose([(own.eta0, own.eta_b, own.alpha) for own in settings])
        super().__init__(
            (lines, decay.since.copy(), b, square_b, clock.copy()),
            LineSettings(each[0], each[1], each[2], settings[0].fit_intercept, settings[0].loss),
        )

    def write(self, number: int) -> None:
        weights, b, squares, square_b, decay, clock = self._states[number]
        lines, decay.since[...], every_b, every_square_b, clock[...] = self._arrays
        weights[...], squares[...] = lines[:, WEIGHTS:, number], lines[:, SQUARES, number]
        b[...], square_b[0] = every_b[number], every_square_b[number]
        decay.factors[...] = lines[:, FACTORS, number]
