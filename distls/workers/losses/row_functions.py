"""The row functions of losses: generic functions that kernels call, and decorators that register a loss's own.

Kernels call `row_gradient` for any loss; ``@row_gradient_of(Softmax)`` registers its implementation for that loss.
Likewise the others. A kernel with a loss argument is compiled with that loss's functions, looked up by the class of
its numba type; a loss that lacks one is refused at compilation.

The score of class c is ``scale * z[c]``. The factor stays outside, because the lazily scaled weights of MCID give
scores up to a factor: comparing raw ``z`` keeps the perceptron independent of `alpha` to the last bit.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import types
from numba.core import errors
from numba.extending import overload

from distls.workers.compilation.jit import helper
from distls.workers.linear_algebra.score_kernels import row_axpy, row_axpy_pair
from distls.workers.losses.loss import GRADIENT_IN_G, Floats, Loss
from distls.workers.simd.class_sums import sum_of_squares

F = TypeVar("F", bound=Callable[..., Any])

# name of a row function -> (class of the loss, whether targets are sets of labels) -> its implementation
_FUNCTIONS: dict[str, dict[tuple[type, bool], Any]] = {}


def has_row_function(loss: Loss, name: str, *, sets: bool = False) -> bool:
    """Return whether a loss has a row function, as in ``has_row_function(loss, "row_curvature")``."""
    return (type(loss), sets) in _FUNCTIONS[name]


def _registrar(name: str) -> Callable[..., Callable[[F], F]]:
    """Return the decorator that registers a loss's own function of that name."""
    table = _FUNCTIONS.setdefault(name, {})

    def of(loss: type[Loss], *, sets: bool = False) -> Callable[[F], F]:
        def register(function: F) -> F:
            table[loss, sets] = function
            return function

        return register

    return of


def _implementation(name: str, loss: Any, y: Any = None) -> Any:
    """Return the row function of a numba type of loss, for its type of targets."""
    # Label sets are named tuples, classes and numbers arrays: the type tells the targets apart.
    sets = isinstance(y, types.BaseTuple)
    function = _FUNCTIONS[name].get((loss.instance_class, sets))
    if function is None:
        of = " of sets of labels" if sets else ""
        # Refused at compilation, not at run time in a worker.
        raise errors.TypingError(f"{loss.instance_class.__name__} has no {name}{of}")
    return function


# ---------------------------------------------------------------- value and gradient


_row_gradient = _registrar("row_gradient")


def row_gradient_of(loss: type[Loss]) -> Callable[[F], F]:
    """Register ``function(z, scale, y, g)`` as a loss's `row_gradient`."""
    return lambda function: _row_gradient(loss)(helper(function))


def row_gradient(loss: Loss, z: Floats, scale: Any, y: Any, g: Floats) -> tuple[float, int, int]:
    """Return value and gradient of one row with scores ``scale * z`` (for kernels and Python).

    Parameters
    ----------
    loss : Loss
    z : array of shape (k,), the scores up to the factor `scale` >= 0
    y : the row's class
    g : array of shape (k,), scratch; overwritten by losses whose gradient is not a pair

    Returns
    -------
    value : the loss, float64
    runner_up : where the gradient is. A class other than `y`: +1 there and -1 at `y`; `y` itself: all zero;
        `GRADIENT_IN_G`: the k derivatives are in `g`
    predicted : the class of the highest score
    """
    return _FUNCTIONS["row_gradient"][type(loss), False](z, scale, y, g)


@overload(row_gradient)
def _row_gradient_overload(loss, z, scale, y, g):
    function = _implementation("row_gradient", loss)

    def row_gradient_of_loss(loss, z, scale, y, g):
        return function(z, scale, y, g)

    return row_gradient_of_loss


def target_gradient(loss: Loss, z: Floats, scale: Any, y: Any, i: int, g: Floats) -> tuple[float, int, int]:
    """Return `row_gradient` of row i, whose target is the class y[i], the k numbers y[i] or a set (kernels only).

    The predicted class of numbers is -1, and their loss is ``1/2 |scale * z - y_i|^2`` whatever `loss` is. Of sets it
    is -1 where just the row's labels have scores above the threshold.
    """
    raise NotImplementedError


@overload(target_gradient)
def _target_gradient_overload(loss, z, scale, y, i, g):
    def of_class(loss, z, scale, y, i, g):
        return row_gradient(loss, z, scale, np.intp(y[i]), g)

    def of_numbers(loss, z, scale, y, i, g):
        for c in range(len(g)):
            g[c] = g.dtype.type(scale * z[c] - y[i, c])
        # Numbers always have the squared loss, since other losses are of classes.
        return 0.5 * sum_of_squares(g), GRADIENT_IN_G, -1

    if isinstance(y, types.BaseTuple):
        return _of_sets(_implementation("output_loss", loss), loss.instance_class.threshold)
    return of_class if y.ndim == 1 else of_numbers


# of a sum over the outputs: ``function(sign, score)``, the loss of one, then its derivative in the score
output_loss_of = _registrar("output_loss")
_RIGHT, _WRONG = -1, -2  # returned for the predicted class; `code_of` sets is -1


def _of_sets(output_loss: Any, threshold: float) -> Any:
    """Return the `target_gradient` of rows with sets of labels."""

    def of_sets(loss, z, scale, y, i, g):
        one = g.dtype.type(1.0)
        # All outputs are -1, then the row's labels 1: g holds the signs until it holds the slopes.
        g[:] = -one
        for place in range(y.indptr[i], y.indptr[i + 1]):
            g[y.indices[place]] = one
        value, predicted = 0.0, _RIGHT
        for c in range(len(g)):
            # The sign is read before its place is overwritten by the slope.
            sign, score = np.float64(g[c]), scale * np.float64(z[c])
            # A label is predicted above the threshold, so a score equal to it is not.
            if (score > threshold) != (sign > 0.0):
                predicted = _WRONG
            own = output_loss(sign, score)
            value += own[0]
            g[c] = g.dtype.type(own[1])
        return value, GRADIENT_IN_G, predicted

    return of_sets


def code_of(y: Any, i: int) -> int:
    """Return the class of row i, or -1 for numbers and sets of labels (kernels only)."""
    raise NotImplementedError


@overload(code_of)
def _code_of_overload(y, i):
    codes = not isinstance(y, types.BaseTuple) and y.ndim == 1
    return (lambda y, i: np.intp(y[i])) if codes else (lambda y, i: np.intp(-1))


@helper
def add_row_gradient(factor, runner_up, y, g, out):
    """Add ``factor * gradient`` to the k values `out` as `row_gradient` returns it (for the intercept)."""
    if runner_up == GRADIENT_IN_G:
        # All outputs, or just two: a pair costs two columns of weights.
        for c in range(len(out)):
            out[c] += factor * g[c]
    elif runner_up != y:
        out[runner_up] += factor
        out[y] -= factor


@helper
def set_row_gradient(factor, runner_up, y, g, out):
    """Set the k values `out`, which may be g itself, to ``factor * gradient`` likewise."""
    by, in_g = out.dtype.type(factor), runner_up == GRADIENT_IN_G
    # `g` may be `out`: each element is read before it is written.
    for c in range(len(out)):
        out[c] = by * g[c] if in_g else out.dtype.type(0.0)
    if not in_g and runner_up != y:
        out[runner_up], out[y] = by, -by


@helper
def row_update(indices, data, start, stop, factor, runner_up, y, g, w):
    """Add ``factor * x (x) gradient`` to w for a gradient as `row_gradient` returns it."""
    if runner_up == GRADIENT_IN_G:
        row_axpy(indices, data, start, stop, factor, g, w)
    elif runner_up != y:
        row_axpy_pair(indices, data, start, stop, factor, runner_up, y, w)


# ---------------------------------------------------------------- curvature


def row_curvature(loss: Loss, g: Any, h: Any) -> None:
    """Set h to the second derivatives of a loss in the scores, from its gradient g (kernels only)."""
    raise NotImplementedError


row_curvature_of = _registrar("row_curvature")


@overload(row_curvature)
def _row_curvature_overload(loss, g, h):
    return _implementation("row_curvature", loss)


def step_curvature(loss: Loss, y: Any, z: Any, g: Any, h: Any) -> None:
    """Set h to the curvature of each output in a Newton step, for scores z and gradient g: `row_curvature` by default.

    A saturating loss registers its own: its second derivative vanishes where a row is most wrong, and the step would
    overshoot.
    """
    raise NotImplementedError


step_curvature_of = _registrar("step_curvature")


@overload(step_curvature)
def _step_curvature_overload(loss, y, z, g, h):
    def squared(loss, y, z, g, h):
        h[:] = 1.0

    def second_derivative(loss, y, z, g, h):
        row_curvature(loss, g, h)

    if y.ndim == 2:
        return squared
    # Losses without a function of their own use the second derivative.
    return _FUNCTIONS["step_curvature"].get((loss.instance_class, False), second_derivative)


# ---------------------------------------------------------------- the duals of one row, in dual coordinate ascent


def dual_step(
    loss: Loss, z: Any, y: Any, i: int, q: float, a: Any, d: Any, work: Any
) -> tuple[float, float, float, int, int]:
    """Maximise the dual over the duals of row i, and set d to their change (kernels only).

    The new duals minimise ``conjugate(a') + z . (a' - a) + q/2 |a' - a|^2``, up to rounding and a few Newton steps.

    Parameters
    ----------
    z : array of shape (k,), the row's scores
    y : class codes, or numbers (n_rows, k), as in `target_gradient`
    q : float64 > 0, the curvature: what the scores change by when the duals change by one
    a : array of shape (k,), the duals, overwritten
    d : array of shape (k,), overwritten
    work : float64 array of shape (4, padded(k)), overwritten; see `simd.vectors`

    Returns
    -------
    value : the loss at z
    before, after, moved : the conjugate at the old and at the new duals, and how many have changed
    predicted : the class of the highest score, -1 for numbers
    """
    raise NotImplementedError


_dual_step = _registrar("dual_step")


def dual_step_of(loss: type[Loss]) -> Callable[[F], F]:
    """Register ``function(z, y, i, q, a, d, work)`` as a loss's `dual_step`."""
    return lambda function: _dual_step(loss)(helper(function))


@overload(dual_step)
def _dual_step_overload(loss, z, y, i, q, a, d, work):
    function = _implementation("dual_step", loss)

    def dual_step_of_loss(loss, z, y, i, q, a, d, work):
        return function(z, y, i, q, a, d, work)

    return dual_step_of_loss


# ---------------------------------------------------------------- one non-zero, in block coordinate descent

# Inlined as numba IR: a separate function would be optimised once more with the caller that is cached on disk.


def add_score_gradient(loss, z, i, y, factor, g, own, scratch):
    """Add ``factor`` times the gradient of row i to g + own, to be multiplied by `descent_factor`.

    All classes are added to g alike, without a branch; own[y] holds the correction for the row's class. y are class
    codes or `LabelSets`; g is padded to whole vectors (`simd.slack_kernels.padded`).
    """


def add_score_curvature(loss, z, i, y, factor, h, own, scratch):
    """Add ``factor`` times the second derivatives of row i to h and own[y] likewise."""


def add_score_hessian(loss, z, i, y, factor, hessian, scratch):
    """Add ``factor`` times the second derivatives of row i to the lower triangle of hessian (k, k); optional."""


def score_change(loss, z, i, y, x, d, scratch):
    """Add ``x * d`` to the scores of row i and return the change of its loss."""


def row_loss(loss, z, y, i, scratch):
    """Return the loss of row i, whose scores are the vector z."""


def score_derivatives(loss, t, z):
    """Return the loss of the one output's score z, and its first and second derivative; t is 1 for class 1, else -1.

    Of numbers or of a `Vector`; optional.
    """


def descent_factor(loss):
    """Return the factor of g + own."""


def lipschitz(loss, k):
    """Return the Lipschitz constant of a row's gradient in its k scores."""


add_score_gradient_of = _registrar("add_score_gradient")
add_score_curvature_of = _registrar("add_score_curvature")
add_score_hessian_of = _registrar("add_score_hessian")
score_change_of = _registrar("score_change")
row_loss_of = _registrar("row_loss")
score_derivatives_of = _registrar("score_derivatives")


@overload(add_score_gradient, inline="always")
def _add_score_gradient_overload(loss, z, i, y, factor, g, own, scratch):
    return _implementation("add_score_gradient", loss, y)


@overload(add_score_curvature, inline="always")
def _add_score_curvature_overload(loss, z, i, y, factor, h, own, scratch):
    return _implementation("add_score_curvature", loss, y)


@overload(add_score_hessian, inline="always")
def _add_score_hessian_overload(loss, z, i, y, factor, hessian, scratch):
    def none(loss, z, i, y, factor, hessian, scratch):
        pass

    own = (loss.instance_class, isinstance(y, types.BaseTuple))
    return _FUNCTIONS["add_score_hessian"].get(own, none)


@overload(score_change, inline="always")
def _score_change_overload(loss, z, i, y, x, d, scratch):
    return _implementation("score_change", loss, y)


@overload(row_loss, inline="always")
def _row_loss_overload(loss, z, y, i, scratch):
    def of_class(loss, z, y, i, scratch):
        return row_gradient(loss, z, 1.0, np.intp(y[i]), scratch)[0]

    codes = not isinstance(y, types.BaseTuple) and y.ndim == 1
    return of_class if codes else _implementation("row_loss", loss, y)


@overload(score_derivatives, inline="always")
def _score_derivatives_overload(loss, t, z):
    function = _implementation("score_derivatives", loss)
    return lambda loss, t, z: function(t, z)


@overload(descent_factor, inline="always")
def _descent_factor_overload(loss):
    factor = loss.instance_class.descent_factor
    return lambda loss: factor


@overload(lipschitz, inline="always")
def _lipschitz_overload(loss, k):
    function = helper(loss.instance_class.lipschitz)
    return lambda loss, k: function(loss, k)
