"""Sums over the classes of one row's scores, in vectors: the inner loops of block coordinate descent.

The slack of class r is ``max(z_r + c, 0)``. All classes are processed without a branch, also the row's own, for which
the losses correct: on vectors that is several times faster than skipping zeros. Scores may be float32 or float64;
arithmetic is float64.

Shapes: z (n_rows, k) C-ordered; g, h and d float64 of `vectors.padded(k)`, whose padding is never read.
"""

# mypy: allow-untyped-defs
from distls.workers.compilation.jit import helper
from distls.workers.simd.vectors import F64_PER_VECTOR, load, select, splat, store, sum_of_lanes

_NEVER = -1e300  # a score within no margin: fills a vector beyond the last class


@helper
def _slack(scores, c):
    """Return ``max(scores + c, 0)``; NaN propagates."""
    # Written so that a NaN falls into the second branch.
    total = scores + c
    return select(total <= 0.0, 0.0, total)


@helper
def slack_gradient(z, i, c, factor, g):
    """Add ``factor * max(z_ir + c, 0)`` to g; return the sum of the slacks."""
    row, total = z[i], splat(0.0)
    for first in range(0, len(row), F64_PER_VECTOR):
        # Beyond the last class the score is below every margin.
        slack = _slack(load(row, first, _NEVER), c)
        total = total + slack
        store(load(g, first, 0.0) + factor * slack, g, first)
    return sum_of_lanes(total)


@helper
def slack_curvature(z, i, c, factor, h):
    """Add `factor` to h where ``z_ir + c > 0``; return their number."""
    row, total = z[i], splat(0.0)
    for first in range(0, len(row), F64_PER_VECTOR):
        within = select(load(row, first, _NEVER) + c > 0.0, 1.0, 0.0)
        total = total + within
        store(load(h, first, 0.0) + factor * within, h, first)
    return sum_of_lanes(total)


@helper
def slack_move(z, i, before, after, x, d):
    """Add ``x * d`` to row i of z; return the change of the sum of squared slacks, whose c was `before` too."""
    row, total = z[i], splat(0.0)
    for first in range(0, len(row), F64_PER_VECTOR):
        old = load(row, first, _NEVER)
        # From the stored score, rounded to its type: what later reads will see.
        new = _slack(store(old + x * load(d, first, 0.0), row, first), after)
        slack = _slack(old, before)
        # a^2 - b^2 as (a - b)(a + b): near the optimum the squares cancel
        total = total + (new - slack) * (new + slack)
    return sum_of_lanes(total)
