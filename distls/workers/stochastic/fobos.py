"""Stochastic steps by forward-backward splitting (FOBOS, Duchi and Singer 2009), exact on sparse rows.

With g_t the gradient of row t's loss with respect to its k scores, s_t its weight and eta_t = eta0 / sqrt(t),

    W(t) = prox_(eta_t alpha R)(W(t-1) - eta_t s_t x_t (x) g_t).

R is a norm of each row of W times `pull`, plus half of the squares times `decay`. A row of W whose feature is not in
the data's row only shrinks. The shrinkages of steps t1 to t2 combine into one: thresholds add up where shrinking keeps
the norm's subgradient (l1, l1/l2, and l1/linf, which lowers a common height), and squares scale. With

    P_t = prod_(u <= t) (1 + eta_u alpha decay),    C_t = sum_(u <= t) eta_u alpha pull P_(u-1),
    W_j(t2) = prox_((C_t2 - C_t1) |.|)(P_t1 W_j(t1)) / P_t2,

which is applied at the feature's next occurrence. So a step costs O(nnz k), and nothing is approximated.
Soft-thresholding changes the direction in which the l1/l2 norm shrinks: steps of the sparse group lasso do not add up.

The intercept is an unpenalised feature of value 1, whose steps are at most 1/sqrt(t) over the growth of slopes.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.jit import helper, kernel
from distls.workers.linear_algebra.dense_vectors import scores_of
from distls.workers.linear_algebra.prefetch import prefetch_row
from distls.workers.linear_algebra.score_kernels import check_widths, row_arrays, row_span, row_weight
from distls.workers.losses.loss import Loss
from distls.workers.losses.loss_registry import loss_named
from distls.workers.losses.row_functions import add_row_gradient, code_of, row_update, target_gradient
from distls.workers.penalties.penalty import Penalty
from distls.workers.penalties.penalty_registry import PLAIN_PENALTY, penalty_named, penalty_value
from distls.workers.penalties.row_kernels import kernel_argument, row_prox
from distls.workers.stochastic.step_choice import Candidate, ProblemStats, StepChoice
from distls.workers.stochastic.step_sizes import SQRT, step_size
from distls.workers.stochastic.update import Arrays, KernelLearner, Update

_LARGEST_P = 1e50  # beyond it all rows are shrunk and P restarts at 1, before it overflows
_ROWS_AHEAD = 2  # rows between prefetch and use
_TRIED_POWERS = range(-2, 5)  # of 4, over mean|x|^2: the step sizes tried


class FobosSettings(NamedTuple):
    """Settings of `fobos_block`; with a whole number in the place of a float it would be compiled again."""

    loss: Loss
    eta0: float  # > 0
    norm: int | Penalty  # the `kernel_argument` of a penalty
    pull: float  # alpha times that of the penalty, as is `decay`
    decay: float
    eta_b: float  # in the place of eta0 for the intercept; 0: none


class Shrinkage(NamedTuple):
    """Lazy shrinkage of the rows of W in a lane."""

    clock: NDArray[np.float64]  # (3,): steps taken, P and C
    marks: NDArray[np.float64]  # (n_features, 2): the P and C up to which a row has shrunk


def new_shrinkage(n_features: int, time: float) -> Shrinkage:
    """Return the state of weights that have shrunk up to `time`."""
    # P = 1 and C = 0: nothing has shrunk yet.
    return Shrinkage(np.array([float(time), 1.0, 0.0]), np.tile([1.0, 0.0], (n_features, 1)))


@helper
def _is_zero(w):
    c = 0
    # A loop with an exit instead of `all`: most rows of W are zero under these penalties, and are done at once.
    while c < len(w) and w[c] == 0:  # a NaN is not zero
        c += 1
    return c == len(w)


@helper
def _shrink(w, mark, scale, drawn, norm, rows):
    """Shrink one row of W up to P = scale and C = drawn; `rows` is scratch, float64 (2, k)."""
    # Nothing was drawn since the feature's last occurrence.
    if mark[0] == scale and mark[1] == drawn:
        return
    # A zero row stays zero under any shrinkage, and only its mark moves.
    if not _is_zero(w):
        for c in range(len(w)):
            # In float64, since P is up to 1e50.
            rows[0, c] = mark[0] * w[c]
        row_prox(norm, rows[0], drawn - mark[1], 0.0, rows[1])
        for c in range(len(w)):
            # Rounded to the type of the weights once.
            w[c] = rows[1, c] / scale
    mark[0], mark[1] = scale, drawn


@kernel
def fobos_block(rows, y, weight, order, w, b, shrinkage, settings):
    """Train on the rows `order` of one block, in that order.

    Parameters
    ----------
    rows, y, weight, order : as of `distls.workers.stochastic.sgd_kernels.sgd_block`, as are the returned sums
    w : float32 or float64 (n_features, k), C-ordered; mutated. After `shrink_all` it is W
    b : float64 (k,), mutated if `eta_b`, else zeros
    shrinkage : Shrinkage; mutated
    settings : FobosSettings
    """
    check_widths(w, b)
    if len(shrinkage.marks) != len(w):
        raise ValueError("every feature needs a mark of its shrinkage")
    clock, marks, norm = shrinkage.clock, shrinkage.marks, settings.norm
    k, n, t, scale, drawn = len(b), len(order), clock[0], clock[1], clock[2]
    z, g, scratch = np.empty(k, w.dtype), np.empty(k, w.dtype), np.empty((2, k))
    indices, data = row_arrays(rows)
    loss_sum, errors = 0.0, 0
    for at in range(n):
        i = np.intp(order[at])
        prefetch_row(rows, np.intp(order[min(at + _ROWS_AHEAD, n - 1)]))
        start, stop = row_span(rows, i, indices, data)
        # Weights of the row's features are brought up to date before they are scored.
        for p in range(start, stop):
            j = np.intp(indices[p])
            _shrink(w[j], marks[j], scale, drawn, norm, scratch)
        scores_of(indices, data, start, stop, w, b, settings.eta_b > 0.0, z)
        value, runner_up, best = target_gradient(settings.loss, z, 1.0, y, i, g)
        s, label = row_weight(weight, i), code_of(y, i)
        loss_sum += s * value
        errors += best != label
        t += 1.0
        eta = step_size(SQRT, settings.eta0, 0.0, t)
        row_update(indices, data, start, stop, -eta * s, runner_up, label, g, w)
        if settings.eta_b > 0.0:
            step_b = step_size(SQRT, settings.eta_b, 0.0, t)
            add_row_gradient(-step_b * s, runner_up, label, g, b)
        # C grows by the P before this step, as in the formula above.
        drawn += eta * settings.pull * scale
        scale *= 1.0 + eta * settings.decay
        # Rare: each restart costs a visit of all features.
        if scale > _LARGEST_P:
            _shrink_all(w, marks, scale, drawn, norm, scratch)
            scale, drawn = 1.0, 0.0
    clock[0], clock[1], clock[2] = t, scale, drawn
    return loss_sum, errors


@kernel
def _shrink_all(w, marks, scale, drawn, norm, scratch):
    for j in range(len(w)):
        _shrink(w[j], marks[j], scale, drawn, norm, scratch)
        marks[j, 0], marks[j, 1] = 1.0, 0.0


def shrink_all(w: NDArray[Any], shrinkage: Shrinkage, settings: FobosSettings) -> None:
    """Apply the pending shrinkage of all rows, so that w is W, and reset P and C."""
    # P and C of the lane restart, since the marks now agree with them.
    clock = shrinkage.clock
    _shrink_all(w, shrinkage.marks, clock[1], clock[2], settings.norm, np.empty((2, w.shape[1])))
    clock[1], clock[2] = 1.0, 0.0


@dataclass(frozen=True)
class FobosUpdate(Update):
    """Forward-backward splitting with steps eta0 / sqrt(t)."""

    eta0: float = 1.0
    penalty: str = PLAIN_PENALTY  # one that splits
    l1_ratio: float = 0.0

    def start_lane(self, arrays: Arrays, time: float, tail_from: float = math.inf) -> KernelLearner:
        """Return the learner of a lane that has taken `time` steps."""
        own = tuple(array.copy() for array in arrays)
        # steps that suit rows of small values would throw the intercept about, which is in every row
        most = 1.0 / loss_named(self.loss).slope_growth(len(own[1]))
        eta_b = min(self.eta0, most) if self.fit_intercept else 0.0
        # Lazy shrinkage needs shrinkages that add up, which the sparse group lasso's do not.
        parts = penalty_named(self.penalty).split(self.l1_ratio)
        assert parts is not None
        norm, (pull, decay) = kernel_argument(parts[0]), (float(self.alpha * part) for part in parts[1:])
        settings = FobosSettings(self.row_loss, self.eta0, norm, pull, decay, eta_b)
        shrinkage = new_shrinkage(len(own[0]), time)
        return _FobosLearner(settings, (*own, shrinkage), shrinkage.clock, len(own))

    def penalty_of(self, weights: NDArray[Any]) -> float:
        """Return R of the model's weights."""
        return penalty_value(self.penalty, weights, self.l1_ratio)


class _FobosLearner(KernelLearner):
    kernel = staticmethod(fobos_block)

    def arrays(self) -> Arrays:
        """Return weights and intercept, all shrinkage applied."""
        weights, _, shrinkage = self.state
        shrink_all(weights, shrinkage, self.settings)
        return super().arrays()


def fobos_steps(stats: ProblemStats, params: dict[str, Any], n_lanes: int, *, warm: bool) -> StepChoice:
    """Return FOBOS steps of the given size, or of sizes to be tried."""
    update = FobosUpdate(**stats.objective(), penalty=stats.penalty, l1_ratio=stats.l1_ratio)
    given = params["eta0"]
    if given:
        return StepChoice(replace(update, eta0=given))
    # A step of one over the curvature of a mean row; powers of 4 around it are tried.
    curvature = (stats.mean_square_norm or 1.0) * loss_named(stats.loss).slope_growth(stats.n_outputs)
    sizes = [4.0**power / curvature for power in _TRIED_POWERS]
    if params.get("trial") == "decades":
        sizes = [10.0**power for power in range(-3, 4)]
    updates = [replace(update, eta0=size) for size in sizes]
    candidates = tuple(Candidate({"eta0": each.eta0}, each, each) for each in updates)
    return StepChoice(updates[len(updates) // 2], candidates)
