"""What kernels are made of, as the cache of compiled kernels has them."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from distls.workers.compilation.array_copy import copy_matrix, copy_vector
from distls.workers.compilation.jit import helper
from distls.workers.compilation.kernel_cache import kernel_folder, source_digest

# numba's function that makes the message for an assignment of an array to a slice of another shape
SHAPES = b"raise_with_shape_context"


# helpers have no cache entry: numba shows nothing of what it loads from one
@helper
def _assigned(source, target):
    target[:] = source


@helper
def _copied(source, target):
    copy_vector(source[0], target[0])
    copy_matrix(source, target)


def _entries(folder, module):
    file = importlib.import_module(f"distls.workers.{module}").__file__
    return [path for path in Path(folder).glob(f"{module}.*.nbc") if source_digest(file) in path.name]


@pytest.mark.fast_cases(r"columns\.transpose_task", r"stochastic\.second_order\.sgdqn_kernels")
@pytest.mark.parametrize(
    "module",
    [
        "columns.transpose_task", "coordinate_descent.descent_kernels", "coordinate_descent.working_set_kernels",
        "stochastic.second_order.olbfgs", "stochastic.second_order.rls", "stochastic.second_order.sgdqn_kernels",
    ],
)  # fmt: skip
def test_no_kernel_has_the_texts_of_errors_of_shapes(module):
    """They took seconds of CPU to compile; entries of earlier tests are looked at."""
    folder = kernel_folder()
    for path in _entries(folder, module):
        assert SHAPES not in path.read_bytes(), path.name


@pytest.mark.slow
def test_copies_have_none():
    source, target = np.arange(6.0).reshape(2, 3), np.zeros((2, 3))
    _copied(source, target)
    np.testing.assert_array_equal(target, source)
    _assigned(source, np.zeros((2, 3)))
    texts = {
        f: next(iter(f.for_python.overloads.values())).library.get_llvm_str().encode() for f in (_copied, _assigned)
    }
    assert SHAPES in texts[_assigned]
    assert SHAPES not in texts[_copied]
