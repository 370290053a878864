"""Kernels that merge the weights of lanes."""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from distls.workers.compilation.jit import kernel


@kernel
def merge_mean(left, right, share):
    """Move `left` towards `right` (n,) by `share` in place; return the squared distance between them, float64.

    With share = n_right / (n_left + n_right) this is the weighted mean of the two, computed in float64.
    """
    # two loops: a sum in a loop that also writes would depend on the arrays' addresses (see `simd.class_sums`)
    total = 0.0
    for i in range(len(left)):
        difference = float(right[i]) - float(left[i])
        total += difference * difference
    for i in range(len(left)):
        left[i] = left[i] + (float(right[i]) - float(left[i])) * share
    return total


@kernel
def add_scaled(out, a, b, factor):
    """Set ``out = a + factor * b``; float64 arrays of shape (n,), b of any float type."""
    for i in range(len(out)):
        out[i] = a[i] + factor * b[i]
