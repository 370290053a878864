"""Kernels that merge the weights of lanes."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from distls.workers.compilation.jit import kernel
from distls.workers.simd.vectors import F64_PER_VECTOR, fused, load, splat, store, sum_of_lanes


@kernel
def merge_mean(left, right, share):
    """Move `left` towards `right` (n,) by `share` in place; return the squared distance between them, float64.

    With share = n_right / (n_left + n_right) this is the weighted mean of the two, computed in float64.
    """
    total = splat(0.0)
    for first in range(0, len(left), F64_PER_VECTOR):
        old = load(left, first, 0.0)
        difference = load(right, first, 0.0) - old
        total = fused(difference, difference, total)
        store(old + difference * share, left, first)
    return sum_of_lanes(total)


@kernel
def add_scaled(out, a, b, factor):
    """Set ``out = a + factor * b``; float64 arrays of shape (n,), b of any float type."""
    for i in range(len(out)):
        out[i] = a[i] + factor * b[i]
