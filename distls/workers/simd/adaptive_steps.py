"""AdaGrad's decay and steps of a feature: of one model, or of `MODELS_PER_LINE` models in the lanes of one vector.

AdaGrad is that of Duchi, Hazan and Singer (2011). The same functions serve both, numbers and vectors, so that a model
has the same bits among others as alone. The models' numbers of a feature are contiguous in memory, a *line*,
``lines[j]`` (2 + k, MODELS_PER_LINE): the sums of squares, the factors of its weights, and the weights of each of k
outputs. Lanes without a model are idle.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from numba import types
from numba.extending import overload

from distls.workers.compilation.jit import helper
from distls.workers.simd.exp_log import LOG2_E, exp2_in_float32, exp_of_negative
from distls.workers.simd.vectors import any_of, fused, like, load_whole, root_of, select, store_whole

MODELS_PER_LINE = 16
SQUARES, FACTORS, WEIGHTS = 0, 1, 2  # places in a line, the last that of the first output
TINY = 1e-18  # avoids 0/0, far below the root of any sum of squares that matters
SMALLEST_FACTOR = 1e-4  # smaller ones are folded into the weights, which grow as factors shrink


@helper
def _root(square):
    return root_of(square) + like(square, TINY)


def _exp(x):
    """Return exp(x) of x <= 0 (kernels only)."""
    raise NotImplementedError


@overload(_exp, inline="always")
def _exp_overload(x):
    single = getattr(x, "dtype", x) == types.float32
    return (lambda x: exp2_in_float32(LOG2_E * x)) if single else (lambda x: exp_of_negative(x))


@helper
def decayed(factor, missed, rate, squares):
    """Return ``factor exp(-missed rate / sqrt(squares))``: what a feature's weights are to be multiplied by."""
    step = missed * rate / _root(squares)
    # Without any squares the rate is 1/0, and nothing decays.
    return factor * _exp(-select(squares > 0.0, step, like(step, 0.0)))


@helper
def added_square(squares, square, x):
    """Return ``squares + square x^2``."""
    return square * x * x + squares


@helper
def step_by(eta, x, squares, factor):
    """Return ``eta x / (sqrt(squares) factor)``."""
    return eta * x / (_root(squares) * factor)


# ---------------------------------------------------------------- lines


@helper
def _models(numbers):
    return load_whole(numbers, 0, MODELS_PER_LINE)


@helper
def decay_line(line, missed, rates):
    """Apply `decayed` to the factors of a feature; return whether one is now below `SMALLEST_FACTOR`."""
    factors = decayed(_models(line[FACTORS]), missed, _models(rates), _models(line[SQUARES]))
    return any_of(store_whole(factors, line[FACTORS]) < SMALLEST_FACTOR)


@helper
def add_line_scores(line, x, sums):
    """Add the scores of a non-zero x to sums (k, MODELS_PER_LINE)."""
    # Factors multiply the value once, not every output's weight; fused as `row_scores` and `row_axpy` are.
    value = x * _models(line[FACTORS])
    for c in range(len(sums)):
        store_whole(fused(value, _models(line[WEIGHTS + c]), _models(sums[c])), sums[c])


@helper
def move_line(line, x, squares, etas, gradients):
    """Do the steps of a non-zero x, with `added_square` and `step_by`; gradients (k, MODELS_PER_LINE)."""
    # The stored sum is read back, as the scalar kernel does.
    total = store_whole(added_square(_models(line[SQUARES]), _models(squares), x), line[SQUARES])
    step = step_by(_models(etas), x, total, _models(line[FACTORS]))
    for c in range(len(gradients)):
        weights = line[WEIGHTS + c]
        store_whole(fused(-step, _models(gradients[c]), _models(weights)), weights)
