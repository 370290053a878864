"""Vector operations of dense arrays."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from distls.workers.compilation.jit import helper, kernel
from distls.workers.linear_algebra.prefetch import prefetch_element
from distls.workers.linear_algebra.score_kernels import row_scores
from distls.workers.simd.vectors import F64_PER_VECTOR, fused, load, load_as, splat, sum_of_lanes

_AT_ONCE = 4 * F64_PER_VECTOR
_LINE = 16  # float32 values of a cache line


@helper
def dot(a, b):
    """Return the sum of the products, float64."""
    # Four vectors, which need not wait for each other.
    s0 = s1 = s2 = s3 = splat(0.0)
    whole = len(a) // _AT_ONCE * _AT_ONCE
    for j in range(0, whole, _AT_ONCE):
        s0 = _add_products(a, b, j, s0)
        s1 = _add_products(a, b, j + F64_PER_VECTOR, s1)
        s2 = _add_products(a, b, j + 2 * F64_PER_VECTOR, s2)
        s3 = _add_products(a, b, j + 3 * F64_PER_VECTOR, s3)
    return _summed(a, b, whole, s0, s1, s2, s3)


@helper
def dot_ahead(a, b, following):
    """Return the same sum, to the last bit, while the values of `following`, which are next, are fetched."""
    s0 = s1 = s2 = s3 = splat(0.0)
    whole = len(a) // _AT_ONCE * _AT_ONCE
    for j in range(0, whole, _AT_ONCE):
        for p in range(j, j + _AT_ONCE, _LINE):
            prefetch_element(following, p)
        s0 = _add_products(a, b, j, s0)
        s1 = _add_products(a, b, j + F64_PER_VECTOR, s1)
        s2 = _add_products(a, b, j + 2 * F64_PER_VECTOR, s2)
        s3 = _add_products(a, b, j + 3 * F64_PER_VECTOR, s3)
    return _summed(a, b, whole, s0, s1, s2, s3)


@helper
def _add_products(a, b, j, total):
    return fused(load_as(a, j, 0, total), load_as(b, j, 0, total), total)


@helper
def _summed(a, b, whole, s0, s1, s2, s3):
    for j in range(whole, len(a), F64_PER_VECTOR):
        s0 = fused(load(a, j, 0.0), load(b, j, 0.0), s0)
    return sum_of_lanes((s0 + s1) + (s2 + s3))


@kernel
def add_multiple(factor, a, out):
    """Add ``factor * a`` to out."""
    for j in range(len(out)):
        out[j] = fused(factor, a[j], out[j])


@helper
def add_to_scores(b, z):
    """Add the intercept to the scores of a row, in their type."""
    for c in range(len(z)):
        z[c] += z.dtype.type(b[c])


@helper
def scores_of(indices, data, start, stop, w, b, fit_intercept, z):
    """Set z to the scores of a row."""
    # Scores in the type of the given vector, float64 in these methods.
    row_scores(indices, data, start, stop, w, z)
    if fit_intercept:
        add_to_scores(b, z)
