"""Parts shared by several losses: NumPy forms, dual steps of sums over outputs, squares of slacks."""

# mypy: allow-untyped-defs, allow-untyped-calls
from typing import Any, ClassVar

import numpy as np
import scipy
from numba.extending import overload, register_jitable
from numpy.typing import NDArray

from distls.workers.compilation.jit import kernel
from distls.workers.losses.loss import Codes, Floats, LabelSets, Loss, Target
from distls.workers.losses.row_functions import add_score_gradient, descent_factor, dual_step_of, row_loss
from distls.workers.simd.class_sums import first_max
from distls.workers.simd.vectors import (
    F64_PER_VECTOR,
    is_lane,
    lanes_below,
    load,
    padded,
    select,
    splat,
    store,
    sum_of_lanes,
)


def scores_of_class(scores: Floats, y: Codes) -> Floats:
    """Return each row's score of its own class."""
    return scores[np.arange(len(y)), y]


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
    # 0 log 0 = 0 by definition of `xlogy`.
    return np.asarray(scipy.special.xlogy(p, p) + scipy.special.xlog1py(1.0 - p, -p))


def softmax_in_place(scores: NDArray[Any]) -> NDArray[Any]:
    """Overwrite scores by their softmax."""
    # The largest score becomes zero, so no exponential overflows.
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores


class MarginLoss(Loss):
    """A sum over the outputs c of a function of the margin ``t_c z_c``, t_c = 1 for the row's class and -1 for others.

    A subclass has `of_margins`, and `of_duals` if it has a dual.
    """

    __slots__ = ()

    separable = True

    def of_margins(self, m: Any) -> tuple[Any, Any]:
        """Return losses and their derivatives at margins (n, k)."""
        raise NotImplementedError

    def of_duals(self, b: Any) -> Any:
        """Return the conjugates at duals ``b = t a`` (n, k)."""
        raise ValueError(f"{self.name} has no conjugate")

    def values(self, scores: Floats, y: Codes) -> Floats:
        """Return the loss of each row."""
        return np.asarray(self.of_margins(class_signs(y, scores.shape[1]) * scores)[0].sum(axis=1))

    def gradient(self, scores: Floats, y: Codes) -> Floats:
        """Return the derivatives of each row."""
        t = class_signs(y, scores.shape[1])
        return np.asarray(t * self.of_margins(t * scores)[1])

    def label_gradient(
        self, scores: Floats, labels: LabelSets, wanted: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the derivatives of each row, and the losses."""
        t = class_signs(wanted, scores.shape[1])
        values, slopes = self.of_margins(t * scores)
        return np.asarray(t * slopes), np.asarray(values.sum(axis=1))

    def conjugate(self, duals: Floats, y: Any) -> NDArray[np.float64]:
        """Return the conjugate of each row's loss."""
        return np.asarray(self.of_duals(class_signs(y, duals.shape[1]) * duals).sum(axis=1))


_STEPS: dict[type[Loss], Any] = {}


def _sign(y, i, c, k):
    """Return t of output c of row i, as `dual_domains.class_signs` (kernels only)."""
    raise NotImplementedError


@overload(_sign)
def _sign_overload(y, i, c, k):
    def of_class(y, i, c, k):
        return 1.0 if y[i] == (c if k > 1 else 1) else -1.0

    return of_class if y.ndim == 1 else lambda y, i, c, k: 1.0 if y[i, c] > 0.5 else -1.0


def _signs(y, i, first, k):
    """Return t of the outputs of row i from `first` on, a `Vector` (kernels only)."""
    raise NotImplementedError


@overload(_signs)
def _signs_overload(y, i, first, k):
    def of_class(y, i, first, k):
        # One output stands for class 1, hence the shift.
        own = np.int64(y[i]) if k > 1 else np.int64(y[i]) - 1
        return select(is_lane(own - first), 1.0, -1.0)

    def of_indicators(y, i, first, k):
        return select(load(y[i], first, 0.0) > 0.5, 1.0, -1.0)

    return of_class if y.ndim == 1 else of_indicators


def separable_dual_step(margin_step: Any, *losses: type[Loss]) -> None:
    """Register the `dual_step` of one-versus-rest losses, with an output for each class or with one for two.

    ``margin_step(m, q, b) -> (b', value, before, after)`` is that of one output with the margin m = t z and the dual
    b = t a, t = 1 for the row's class and -1 for the others: of numbers, or of a `Vector` of outputs.
    """

    def step(z, y, i, q, a, d, work):
        none, k = splat(0.0), len(z)
        value, before, after, moved = none, none, none, none
        for first in range(0, k, F64_PER_VECTOR):
            # Lanes beyond the outputs are computed and not counted.
            t, old, inside = _signs(y, i, first, k), load(a, first, 0.0), lanes_below(k - first)
            new, loss_c, before_c, after_c = margin_step(t * load(z, first, 0.0), q, t * old)
            # Rounded by the first store: change and dual agree to the bit.
            change = store(store(t * new, a, first) - old, d, first)
            value = value + select(inside, loss_c, 0.0)
            before = before + select(inside, before_c, 0.0)
            after = after + select(inside, after_c, 0.0)
            # true of a NaN too, which must reach the weights
            moved = moved + select(inside, select(change != 0.0, 1.0, 0.0), 0.0)
        best = first_max(z) if k > 1 else (1 if z[0] > 0.0 else 0)
        return sum_of_lanes(value), sum_of_lanes(before), sum_of_lanes(after), int(sum_of_lanes(moved)), best

    # The same step for both forms: an output does not know how many there are.
    for loss in losses:
        dual_step_of(loss)(step)
        _STEPS[loss] = margin_step


def dual_margin_step(loss: Loss, m: float, q: float, b: float) -> tuple[float, float, float, float]:
    """Return ``margin_step(m, q, b)`` of a one-versus-rest loss, for one of its classes (kernels only)."""
    raise NotImplementedError


@overload(dual_margin_step)
def _dual_margin_step_overload(loss, m, q, b):
    function = _STEPS[loss.instance_class]
    return lambda loss, m, q, b: function(m, q, b)


def has_single_step(loss: Loss) -> bool:
    """Return whether a loss has a `single_dual_step` (kernels only)."""
    raise NotImplementedError


@overload(has_single_step)
def _has_single_step_overload(loss):
    found = loss.instance_class in _STEPS
    return lambda loss: found


def single_dual_step(loss: Loss, z: Any, y: Any, i: int, q: float, a: Any) -> Any:
    """Return (new dual, value, before, after) of the only output, as `dual_step` but of numbers (kernels only).

    Numbers stay in registers, where the arrays of `dual_step` are written and read again.
    """
    raise NotImplementedError


@overload(single_dual_step)
def _single_dual_step_overload(loss, z, y, i, q, a):
    function = _STEPS.get(loss.instance_class)
    # Compiled all the same, since both branches of a caller are.
    if function is None:  # never called
        return lambda loss, z, y, i, q, a: (a, 0.0, 0.0, 0.0)

    def step(loss, z, y, i, q, a):
        t = _sign(y, i, 0, 1)
        new, value, before, after = function(t * z, q, t * a)
        return t * new, value, before, after

    return step


# -- squared hinges of block coordinate descent: squares of slacks, gradients of sets of labels ---------


@register_jitable
def square_of_slack(a):
    """Return ``max(a, 0)^2``; NaN propagates."""
    return 0.0 if a <= 0.0 else a * a


@register_jitable
def change_of_square(new, old):
    """Return ``max(new, 0)^2 - max(old, 0)^2``."""
    after, before = 0.0 if new <= 0.0 else new, 0.0 if old <= 0.0 else old
    return (after - before) * (after + before)  # near the optimum the squares would cancel


@register_jitable
def own_correction(z, own):
    """Return the loss of the row's own class minus its loss as any other class, which the loop over all has added."""
    return square_of_slack(1.0 - own) - square_of_slack(1.0 + own)


class SquaredSlack:
    """What the squared hinges of block coordinate descent share, of classes and of sets of labels."""

    __slots__ = ()

    targets: ClassVar[tuple[Target, ...]] = ("class", "multilabel")
    stochastic = False
    descent_factor = 2.0

    def label_gradient(
        self, scores: Floats, labels: LabelSets, wanted: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return gradients (n, k) and values (n,) of rows with sets of labels."""
        gradients, values = np.empty(scores.shape), np.empty(len(scores))
        _label_gradient(np.ascontiguousarray(scores), labels, self, gradients, values)
        return gradients, values

    def dual_shortfall(self, c: float) -> float:
        """Return (1 - c)^2: the conjugate is quadratic."""
        return (1.0 - c) ** 2


@kernel
def _label_gradient(z, y, loss, gradients, values):
    k = z.shape[1]
    width = padded(k)
    g, own, scratch = np.zeros(width), np.zeros(k), np.zeros(k)
    # Row by row through the functions of the kernels, so that both give the same gradients.
    for i in range(len(z)):
        g[:], own[:] = 0.0, 0.0
        add_score_gradient(loss, z, i, y, 1.0, g, own, scratch)
        for r in range(k):
            gradients[i, r] = descent_factor(loss) * (g[r] + own[r])
            scratch[r] = z[i, r]
        values[i] = row_loss(loss, scratch, y, i, own)
