"""Vector operations of the second-order methods: a loop sums or writes, never both."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from distls.workers.compilation.jit import elementwise, helper
from distls.workers.linear_algebra.score_kernels import row_scores


@helper
def dot(a, b):
    """Return the sum of the products."""
    # A plain loop in one order: the lane is alone, and its bits must not depend on vector widths.
    total = 0.0
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@elementwise  # with nothing to reassociate, all versions that LLVM makes of the loop round alike
def add_multiple(factor, a, out):
    """Add ``factor * a`` to out."""
    for j in range(len(out)):
        out[j] += factor * a[j]


@helper
def scores_of(indices, data, start, stop, w, b, fit_intercept, z):
    """Set z to the scores of a row."""
    # Scores in the type of the given vector, float64 in these methods.
    row_scores(indices, data, start, stop, w, z)
    if fit_intercept:
        for c in range(len(z)):
            z[c] += z.dtype.type(b[c])
