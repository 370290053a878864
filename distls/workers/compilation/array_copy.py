"""Copies between arrays in kernels.

With an assignment of an array to a slice numba compiles the text of the error for shapes that differ: seconds of CPU
for each kernel.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from distls.workers.compilation.jit import helper


@helper
def copy_vector(source, target):
    """Copy the first ``len(target)`` elements."""
    # The target's length counts, as sources may be padded.
    for i in range(len(target)):
        target[i] = source[i]


@helper
def copy_matrix(source, target):
    """Copy an array of two dimensions into one of the same shape."""
    for i in range(target.shape[0]):
        for c in range(target.shape[1]):
            target[i, c] = source[i, c]
