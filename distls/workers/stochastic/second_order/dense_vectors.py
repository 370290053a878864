"""Vector operations of the second-order methods."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from distls.workers.compilation.jit import helper, kernel
from distls.workers.linear_algebra.score_kernels import row_scores
from distls.workers.simd.vectors import F64_PER_VECTOR, fused, load, splat, sum_of_lanes


@helper
def dot(a, b):
    """Return the sum of the products."""
    even, odd = splat(0.0), splat(0.0)
    for j in range(0, len(a), 2 * F64_PER_VECTOR):
        even = fused(load(a, j, 0.0), load(b, j, 0.0), even)
        odd = fused(load(a, j + F64_PER_VECTOR, 0.0), load(b, j + F64_PER_VECTOR, 0.0), odd)
    return sum_of_lanes(even + odd)


@kernel
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
