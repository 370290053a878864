"""Online L-BFGS, for one lane and few features: dense in the parameters even if rows are sparse.

The method is that of Schraudolph, Yu and Guenter 2007 (SGD-QN paper, section 5.2). With theta the weights and
intercepts, and f_t the loss of row t with the penalty,

    s_t = eta_t d_t,    d_t = -B_t grad f_t(theta_t),    eta_t = eta0 tau / (tau + t),
    y_t = grad f_t(theta_t + s_t) - grad f_t(theta_t) + damping s_t,

both gradients of the same row. B_t is the two-loop recursion of L-BFGS over the last pairs (s, y), started from the
mean of s.y / y.y over all of them, or from `epsilon` before the first. A pair whose s.y is not safely positive is
skipped. Cost of a row: O(rank d k); memory: 16 rank d k bytes.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.array_copy import copy_vector
from distls.workers.compilation.jit import helper, kernel
from distls.workers.linear_algebra.dense_vectors import add_multiple, dot, scores_of
from distls.workers.linear_algebra.score_kernels import check_widths, row_arrays, row_axpy, row_span, row_weight
from distls.workers.losses.loss import GRADIENT_IN_G, Loss
from distls.workers.losses.row_functions import code_of, target_gradient
from distls.workers.stochastic.step_choice import Candidate, ProblemStats, StepChoice, boldness
from distls.workers.stochastic.update import Arrays, KernelLearner, Update

Array = NDArray[np.float64]

# The clock of a lane, float64 (3,): the rows seen so far, the number of pairs and the place of the next one.
T, STORED, NEXT, CLOCK_SIZE = 0, 1, 2, 3

_SAFE = 1e-10  # s.y over |s| |y| that a pair must exceed
_GAIN, _TAU, _LEAST_TAU, _DAMPING = 0.1, 1e4, 1e3, 0.1  # the paper's, but for the least tau
_LEAST = 1e-280  # s.y that a pair must exceed, so that 1 / s.y is finite


class OlbfgsSettings(NamedTuple):
    """Settings of `olbfgs_block`."""

    loss: Loss  # smooth
    alpha: float  # >= 0
    eta0: float = 0.1  # > 0; the gain of step t = 0, 1, ... is ``eta0 * tau / (tau + t)``
    tau: float = 1e4  # > 0
    damping: float = 0.1  # >= 0; lambda of the paper
    epsilon: float = 1e-10  # > 0; length of steps before the first pair, relative to the gradient times the gain
    fit_intercept: bool = False


def new_olbfgs(n_features: int, k: int, rank: int = 10) -> tuple[Array, Array, Array, Array, Array]:
    """Return the initial theta (d k + k,), S and Y (rank, d k + k), rho (rank, 2) and clock of a lane."""
    # The intercepts are the last k parameters, so that the weights before them are one contiguous matrix.
    size = (n_features + 1) * k
    history = np.zeros((rank, size)), np.zeros((rank, size))
    return (np.zeros(size), *history, np.zeros((rank, 2)), np.zeros(CLOCK_SIZE))


@kernel
def _load(given, theta):
    """Copy the weights that the caller has changed: elsewhere theta keeps the digits that `given` has lost."""
    for j in range(len(theta)):
        # A float32 weight that is unchanged keeps its float64 value here.
        theta[j] = theta[j] if given.dtype.type(theta[j]) == given[j] else given[j]


@helper
def _store(theta, out):
    for j in range(len(out)):
        out[j] = theta[j]


@helper
def _gradient_at(loss, indices, data, start, stop, y, i, w, b, fit_intercept, z, g):
    """Set g to the gradient of row i with respect to its scores; return its loss and its predicted class."""
    scores_of(indices, data, start, stop, w, b, fit_intercept, z)
    value, runner_up, predicted = target_gradient(loss, z, 1.0, y, i, g)
    if runner_up != GRADIENT_IN_G:  # of a smooth loss: the gradient is zero
        g[:] = 0.0
    return value, predicted


@helper
def _row_plus(indices, data, start, stop, s, g, factor, like, fit_intercept, out):
    """Set ``out = factor * like`` on weights, add ``s x (x) g`` to them, and set the intercepts to ``s g``."""
    k = len(g)
    n_weights = len(out) - k
    # The gradient of the penalty is dense, hence the cost of O(d k) a row.
    for j in range(n_weights):
        out[j] = factor * like[j]
    row_axpy(indices, data, start, stop, s, g, out[:n_weights].reshape(-1, k))
    for c in range(k):
        # No penalty on the intercept.
        out[n_weights + c] = s * g[c] if fit_intercept else 0.0


@helper
def _two_loop_recursion(s_history, y_history, rho, stored, following, epsilon, p, share):
    """Overwrite p by B p: the two loops over the stored pairs, newest first, then oldest first; share is scratch."""
    rank, ratio = len(rho), 0.0
    # Newest first.
    for age in range(stored):
        at = (following - 1 - age) % rank
        share[at] = rho[at, 0] * dot(s_history[at], p)
        add_multiple(-share[at], y_history[at], p)
        # s.y / y.y, an inverse curvature, averaged over the pairs: single rows give noisy ones.
        ratio += rho[at, 1]
    p *= ratio / stored if stored else epsilon
    # Oldest first, the second loop of the recursion (Nocedal 1980).
    for age in range(stored - 1, -1, -1):
        at = (following - 1 - age) % rank
        add_multiple(share[at] - rho[at, 0] * dot(y_history[at], p), s_history[at], p)


@helper
def _remember(change, bend, s_history, y_history, rho, clock):
    """Store a pair (s, y) in place of the oldest, unless s.y is not safely positive."""
    product, squares = dot(change, bend), dot(bend, bend)
    # The second test is relative: s.y of a pair that is nearly orthogonal would make B explode.
    if not (product > _LEAST and product > _SAFE * math.sqrt(dot(change, change)) * math.sqrt(squares)):
        return
    at = np.intp(clock[NEXT])
    copy_vector(change, s_history[at])
    copy_vector(bend, y_history[at])
    rho[at, 0], rho[at, 1] = 1.0 / product, product / squares
    clock[STORED] = min(clock[STORED] + 1.0, float(len(rho)))
    # A ring: the oldest pair is overwritten.
    clock[NEXT] = (at + 1) % len(rho)


@helper
def _check_olbfgs(w, b, theta, s_history, y_history, rho):
    check_widths(w, b)
    # A mismatch would make the kernel write out of bounds.
    if len(theta) != w.size + len(b):
        raise ValueError("theta does not have the size of the weights and the intercept")
    if s_history.shape != y_history.shape or s_history.shape != (len(rho), len(theta)) or not len(rho):
        raise ValueError("the history of pairs does not have the shape (rank, size of theta)")


@kernel
def olbfgs_block(rows, y, weight, order, w, b, theta, s_history, y_history, rho, clock, settings):
    """Train on the rows `order` of one block, in that order, by oLBFGS.

    Parameters
    ----------
    rows, y, weight, order : as of `distls.workers.stochastic.sgd_kernels.sgd_block`, as are the returned sums
    w : float32 or float64 (n_features, k), C-ordered; read, and mutated at the end
    b : (k,) of any float type, likewise if `fit_intercept`
    theta : float64 (d k + k,), the parameters in full: where w or b, rounded, still has its value it is taken
        from theta, so that float32 weights lose no step, however small
    s_history, y_history : float64 (rank, d k + k), the pairs in a ring
    rho : float64 (rank, 2), 1 / s.y and s.y / y.y of each pair
    clock : float64 (3,)
    settings : OlbfgsSettings

    Notes
    -----
    All state is of `new_olbfgs`, and mutated.
    """
    _check_olbfgs(w, b, theta, s_history, y_history, rho)
    d, k = w.shape
    alpha, intercept, loss = settings.alpha, settings.fit_intercept, settings.loss
    weights, intercepts = theta[: d * k].reshape(d, k), theta[d * k :]
    _load(w.reshape(-1), theta[: d * k])
    if intercept:
        _load(b, intercepts)
    # float64 scratch, allocated once a block.
    z, g, after = np.empty(k), np.empty(k), np.empty(k)
    step, bend, share = np.empty(len(theta)), np.empty(len(theta)), np.empty(len(rho))
    loss_sum, errors = 0.0, 0
    indices, data = row_arrays(rows)
    for position in range(len(order)):
        i = np.intp(order[position])
        start, stop = row_span(rows, i, indices, data)
        value, predicted = _gradient_at(loss, indices, data, start, stop, y, i, weights, intercepts, intercept, z, g)
        s = row_weight(weight, i)
        loss_sum += s * value
        errors += predicted != code_of(y, i)
        # alpha theta plus the row's gradient.
        _row_plus(indices, data, start, stop, s, g, alpha, theta, intercept, step)
        _two_loop_recursion(
            s_history, y_history, rho, int(clock[STORED]), int(clock[NEXT]), settings.epsilon, step, share
        )
        # The gain of step t; the sign makes it a descent direction.
        step *= -settings.eta0 * settings.tau / (settings.tau + clock[T])
        add_multiple(1.0, step, theta)
        # the gradient of the same row at the new point, so that their difference is curvature and not noise
        _gradient_at(loss, indices, data, start, stop, y, i, weights, intercepts, intercept, z, after)
        # The change of the row's gradient in its scores.
        add_multiple(-1.0, g, after)
        _row_plus(indices, data, start, stop, s, after, alpha, step, intercept, bend)
        # lambda s of the paper: keeps s.y positive where the loss has no curvature.
        add_multiple(settings.damping, step, bend)
        _remember(step, bend, s_history, y_history, rho, clock)
        clock[T] += 1.0
    _store(weights.reshape(-1), w.reshape(-1))
    if intercept:
        _store(intercepts, b)
    return loss_sum, errors


@dataclass(frozen=True)
class OlbfgsUpdate(Update):
    """Online L-BFGS, for one lane."""

    eta0: float = 0.1
    tau: float = 1e4
    damping: float = 0.1
    rank: int = 10

    def extra_arrays(self, shape: tuple[int, int], dtype: Any) -> Arrays:
        """Return the parameters in float64, the pairs of the last steps, their products and the clock."""
        return new_olbfgs(*shape, self.rank)

    def start_lane(self, arrays: Arrays, time: float, tail_from: float = math.inf) -> KernelLearner:
        """Return the learner; the clock among the arrays has the time."""
        steps = {"eta0": self.eta0, "tau": self.tau, "damping": self.damping}
        settings = OlbfgsSettings(self.row_loss, self.alpha, **steps, fit_intercept=self.fit_intercept)
        own = tuple(array.copy() for array in arrays)
        return _OlbfgsLearner(settings, own, own[-1], len(own))


class _OlbfgsLearner(KernelLearner):
    kernel = staticmethod(olbfgs_block)


def olbfgs_steps(stats: ProblemStats, params: dict[str, Any], n_lanes: int, *, warm: bool) -> StepChoice:
    """Return the steps of online L-BFGS, of the given gain or of gains to be tried."""
    # so that steps decay within the passes over few rows too
    tau = params["tau"] or min(max(float(stats.n_rows), _LEAST_TAU), _TAU)
    # lambda is added to second derivatives, which grow with the squares of values: the paper's rows have length one
    damping = _DAMPING * stats.mean_square_norm if params["damping"] is None else params["damping"]
    steps = {"tau": tau, "damping": damping, "rank": params["rank"]}
    # gains are without a unit once the damping has that of the rows
    gains = [params["eta0"]] if params["eta0"] else [_GAIN / 4.0**power for power in range(-1, 5)]
    updates = [OlbfgsUpdate(**stats.objective(), **steps, eta0=gain) for gain in gains]
    # a gain that suits many like rows has the pairs of few, unlike ones lengthen each other without end
    bold = boldness(stats.n_rows)
    candidates = [Candidate({"eta0": own.eta0}, replace(own, eta0=bold * own.eta0), own) for own in updates]
    # the paper's gain where nothing is tried
    return StepChoice(updates[len(updates) > 1], tuple(candidates) if len(updates) > 1 else ())
