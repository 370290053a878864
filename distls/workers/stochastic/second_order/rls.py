"""Recursive least squares, for one lane and few features: dense in the parameters whatever the rows are.

This is 2SGD of the constrained-SGD paper (section 5.1), or Equation 4 of the SGD-QN paper with the Hessian estimated
online. With h_t the curvature of the loss at the scores of row t and a_t = s_t h_t,

    A_t = prior I + sum_{i<=t} a_i x_i x_i^T,    W_t = W_{t-1} - s_t A_t^-1 x_t (x) g_t,

where P_t = A_t^-1 replaces the 1/t H^-1 of Equation 4 and follows from P_{t-1} by the Sherman-Morrison formula. The
penalty is in A_0 = prior I, and W_0 = 0. For the squared loss h = 1, and W_t minimises

    sum_{i<=t} s_i loss_i + prior/2 |W|^2

exactly: after the n rows of an epoch, with s of mean one and **prior = alpha n**, that is n times the objective.

Later epochs add their rows to A as well, so the penalty must be repeated too. It is added as special examples (SGD-QN
paper, Table 2): example j of loss prior/2 |W_j|^2 has the curvature ``prior e_j e_j^T``, of rank one like that of a
row. Each epoch after the first shows all d of them, spread evenly over its rows. At the end of every epoch A_t is a
multiple of its value after the first, and W is still the minimiser, exactly so for the squared loss. `pass_rows` is
the length of an epoch; 0 stands for an endless stream, where the prior counts once and fades.

The intercept is not penalised, which is a prior of zero: its row of A_t^-1 starts infinite. So it is eliminated.
With m the mean of rows with weights a_i, and S their sum, the score is (x - m)^T W + beta with beta = b + m^T W, and A
decouples into S for beta and

    C_t = C_{t-1} + a_t (S_{t-1} / S_t) (x_t - m_{t-1}) (x_t - m_{t-1})^T,    C_0 = prior I

for W. P is C^-1, d x d, with or without intercept. Rows with a large common part do not degrade its accuracy.

One P serves all k outputs. For the squared loss they have the same curvature. For the others P is built with the
largest over the outputs, h_t = max_c h_tc. That alone is safe, but from three outputs on the steps of most outputs are
too short: Theorem 1 of the SGD-QN paper needs the eigenvalues of H B above 1/2. So output c uses the matrix

    A_c = (sum_{i<t} a_ic / sum_{i<t} a_i) A_{t-1} + a_tc x_t x_t^T,    a_ic = s_i h_ic,

its own mean curvature and curvature at row t, in the directions of all. Measured with 10 outputs and 3000 rows: the
excess of the objective after 6 epochs is 0.4 % with it and 5.7 % without for the logistic loss, 1.7 % and 4.3 % for
the squared hinge, whose outputs differ more in their directions; 0.15 % for a single output, whose matrix is A_t.

The curvature of the logistic loss fades exponentially where a row is badly wrong, while its gradient does not: a step
g/h from there would go exp(m) beyond the row's boundary. So for a row wrong by m = |z| we take
h = |g| / (2 + m), which is the curvature at m = 0, above it elsewhere, and never moves a row to more than 2 on
the right side by itself. Where scores are calibrated this adds at most 15 % to the expected curvature: a row at m
is wrong with probability 1/(1 + exp(m)).

Cost of a row: one traversal of half of P, O(d^2), and O(d k). Memory: 8 d^2 bytes. P loses digits as `prior` becomes
small compared with the rows' sum of squares: its error is the machine precision over prior, its size one over that sum.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distls.workers.compilation.array_copy import copy_vector
from distls.workers.compilation.jit import helper, kernel
from distls.workers.linear_algebra.dense_vectors import add_multiple, dot, scores_of
from distls.workers.linear_algebra.score_kernels import check_widths, row_arrays, row_span, row_weight
from distls.workers.losses.loss import GRADIENT_IN_G, Loss
from distls.workers.losses.row_functions import code_of, step_curvature, target_gradient
from distls.workers.stochastic.step_choice import ProblemStats, StepChoice
from distls.workers.stochastic.update import Arrays, KernelLearner, Update

Array = NDArray[np.float64]

# The clock of a lane, float64 (2 + k,): rows seen so far, the sum of the curvatures a_i and that of each output
T, CURVATURE = 0, 1


class RlsSettings(NamedTuple):
    """Settings of `rls_block`."""

    loss: Loss  # squared, or one-versus-rest log or squared hinge
    prior: float  # > 0; alpha times the rows of an epoch
    pass_rows: int = 0  # rows of an epoch, after which the prior is due again; 0: never
    fit_intercept: bool = False


def new_rls(n_features: int, k: int, settings: RlsSettings) -> tuple[Array, Array, Array]:
    """Return the initial P = I / prior (d, d), mean of rows (d,) and clock (2 + k,) of a lane."""
    return np.eye(n_features) / settings.prior, np.zeros(n_features), np.zeros(CURVATURE + 1 + k)


@kernel
def _largest(h):
    best = 0.0
    for c in range(len(h)):
        # A NaN must reach the weights, where it ends the fit.
        best = best if h[c] <= best else h[c]  # unlike `max`, propagates a NaN
    return best


@kernel
def _update_and_multiply(p, pending, u, v, out):
    """Set ``P <- P - pending u u^T``, then ``out = P v``, in one pass over the upper triangle."""
    # the rank-one update is deferred to the next product, because P exceeds the caches: half the memory traffic
    for j in range(len(v)):
        out[j] = 0.0
    # The upper triangle alone: half of the memory traffic of a matrix that exceeds the caches.
    for i in range(len(v)):
        row, right = p[i][i:], v[i:]  # slices: LLVM vectorises no loop over p[i, j]
        add_multiple(-pending * u[i], u[i:], row)
        total = dot(row, right)
        # The mirrored part of the product, from the same row of P.
        add_multiple(right[0], row[1:], out[i + 1 :])
        out[i] += total


@helper
def _mirror(p):
    for i in range(len(p)):
        for j in range(i):
            p[i, j] = p[j, i]


@helper
def _centred(indices, data, start, stop, mean, fit_intercept, v):
    """Set ``v = x - mean``, or x without an intercept."""
    for j in range(len(v)):
        v[j] = -mean[j] if fit_intercept else 0.0
    for p in range(start, stop):
        v[np.intp(indices[p])] += np.float64(data[p])


@helper
def _subtract_outer(u, g, w):
    for j in range(len(u)):
        for c in range(len(g)):
            w[j, c] -= u[j] * g[c]


@helper
def _output_curvature(c, total, own):
    """Return the sum of curvatures of output c, and the ratio of its P to the shared one."""
    # An output without any curvature so far uses the shared matrix.
    curved = own[c] if own[c] > 0.0 else total
    return curved, total / curved if curved > 0.0 else 1.0


@helper
def _penalise(j, prior, fit_intercept, w, b, p, mean, sums, pending, u, v, out, g):
    """Learn from the special example of feature j; return the new `pending`."""
    v[:] = 0.0
    # The column of P that belongs to feature j.
    v[j] = 1.0
    _update_and_multiply(p, pending, u, v, out)
    copy_vector(out, u)
    shift = dot(mean, u) if fit_intercept else 0.0
    for c in range(len(g)):
        _, rate = _output_curvature(c, sums[0], sums[1:])
        # The Sherman-Morrison step on the special example: prior e_j e_j^T.
        step = prior * rate / (1.0 + prior * rate * u[j]) * w[j, c]
        if fit_intercept:
            # The intercept follows, so that beta = b + m^T W stays what it is.
            b[c] += shift * step
        g[c] = step
    _subtract_outer(u, g, w)
    # Deferred to the next product, as those of rows are.
    return prior / (1.0 + prior * u[j])


@kernel
def _gradient_to_steps(s, h, sums, q, shift, fit_intercept, g, b):
    """Update b, and overwrite the gradient g by the steps along P (x - m), where q = (x - m)^T P (x - m)."""
    own = sums[1:]
    for c in range(len(g)):
        a = s * h[c]
        # A row without loss and curvature for this output.
        if a == 0.0 and g[c] == 0.0:
            continue
        curved, rate = _output_curvature(c, sums[0], own)
        # The intercept is eliminated with the curvature before this row.
        left = curved / (curved + a) if fit_intercept else 1.0
        step = s * g[c] * rate * left / (1.0 + a * rate * left * q)
        if fit_intercept:
            # b = beta - m^T W: the step of beta, and the change of the mean and the weights.
            b[c] -= s * g[c] / (curved + a) - step * (shift + a / (curved + a) * q)
        g[c] = step
        own[c] += a


@helper
def _penalties_until(t, d, pass_rows):
    """Return the number of special examples due after t rows: none in the first epoch, then d an epoch."""
    # Integer arithmetic: exactly d special examples an epoch, at rows given by the clock alone.
    return (t - pass_rows) * d // pass_rows if 0 < pass_rows < t else 0


@kernel
def rls_block(rows, y, weight, order, w, b, p, mean, clock, settings):
    """Train on the rows `order` of one block, in that order, by recursive least squares.

    Parameters
    ----------
    rows, y, weight, order : as of `distls.workers.stochastic.sgd_kernels.sgd_block`, as are the returned sums
    w : float64 (n_features, k), C-ordered; mutated. float32 is possible, with the rounding of each step
    b : (k,) of any float type, mutated if `fit_intercept`, else not read
    p, mean, clock : of `new_rls`; mutated. P is symmetric to the bit after each block
    settings : RlsSettings
    """
    check_widths(w, b)
    d, k = w.shape
    # A mismatch would make the kernel write out of bounds.
    if p.shape != (d, d) or len(mean) != d or len(clock) != CURVATURE + 1 + k:
        raise ValueError("the matrix P, the mean of rows or the clock does not have the weights' size")
    z, g, h = np.empty(k, w.dtype), np.empty(k, w.dtype), np.empty(k)
    u, v, out, pending = np.zeros(d), np.zeros(d), np.empty(d), 0.0
    t, sums, intercept = np.int64(clock[T]), clock[CURVATURE:], settings.fit_intercept
    loss_sum, errors = 0.0, 0
    indices, data = row_arrays(rows)
    for position in range(len(order)):
        i = np.intp(order[position])
        start, stop = row_span(rows, i, indices, data)
        scores_of(indices, data, start, stop, w, b, intercept, z)
        value, runner_up, predicted = target_gradient(settings.loss, z, 1.0, y, i, g)
        s = row_weight(weight, i)
        loss_sum += s * value
        errors += predicted != code_of(y, i)
        a = 0.0
        if runner_up == GRADIENT_IN_G:  # else the gradient is zero
            step_curvature(settings.loss, y, z, g, h)
            a = s * _largest(h)
        if a != 0.0:
            # A dense vector: with an intercept the centred row has no zeros.
            _centred(indices, data, start, stop, mean, intercept, v)
            _update_and_multiply(p, pending, u, v, out)
            copy_vector(out, u)
            # S_{t-1} / S_t: the share of the row's curvature that is left for C once the intercept is eliminated
            q, left = dot(u, v), sums[0] / (sums[0] + a) if intercept else 1.0
            _gradient_to_steps(s, h, sums, q, dot(mean, u) if intercept else 0.0, intercept, g, b)
            _subtract_outer(u, g, w)
            pending = a * left / (1.0 + a * left * q)
            # After its use above: `left` needs the sum before this row.
            sums[0] += a
            if intercept:
                # The running mean with weights a_i.
                add_multiple(a / sums[0], v, mean)
        # Special examples are due at fixed rows of an epoch, however rows are cut into blocks.
        for due in range(_penalties_until(t, d, settings.pass_rows), _penalties_until(t + 1, d, settings.pass_rows)):
            pending = _penalise(due % d, settings.prior, intercept, w, b, p, mean, sums, pending, u, v, out, g)
        t += 1
    if len(order):  # apply the deferred update: P is part of the lane's state
        v[:] = 0.0
        _update_and_multiply(p, pending, u, v, out)
        # Symmetric to the bit, so that a lane that is resumed does not depend on which triangle is read.
        _mirror(p)
    clock[T] = t
    return loss_sum, errors


@dataclass(frozen=True)
class RlsUpdate(Update):
    """Recursive least squares, for one lane."""

    n_rows: int = 1  # rows of an epoch, whose objective is minimised

    def _settings(self) -> RlsSettings:
        prior = self.alpha * self.n_rows
        return RlsSettings(self.row_loss, prior, self.n_rows, self.fit_intercept)

    def bytes_of(self, shape: tuple[int, int], dtype: Any) -> int:
        """Return the size of `zeros`, mostly that of P."""
        return super().bytes_of(shape, dtype) + 8 * shape[0] ** 2

    def extra_arrays(self, shape: tuple[int, int], dtype: Any) -> Arrays:
        """Return P, the mean of rows and the clock."""
        return new_rls(*shape, self._settings())

    def start_lane(self, arrays: Arrays, time: float, tail_from: float = math.inf) -> KernelLearner:
        """Return the learner; the clock among the arrays has the time."""
        own = tuple(array.copy() for array in arrays)
        return _RlsLearner(self._settings(), own, own[-1], len(own))


class _RlsLearner(KernelLearner):
    kernel = staticmethod(rls_block)


def rls_steps(stats: ProblemStats, params: dict[str, Any], n_lanes: int, *, warm: bool) -> StepChoice:
    """Return the steps of recursive least squares, which have no step size."""
    return StepChoice(RlsUpdate(**stats.objective(), n_rows=stats.n_rows))
