"""The decorators of numba functions: those called from Python are cached on disk, helpers of kernels are not.

Every function is inlined wherever it is called.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from collections.abc import Callable
from typing import Any, TypeVar

import numba

from distls.storage.errors import ParameterError
from distls.workers.compilation.kernel_cache import KernelCache, kernel_folder
from distls.workers.compilation.private_hooks import COUNTED, HelperDispatcher, keep_in

if numba.config.DISABLE_JIT:
    raise ParameterError("NUMBA_DISABLE_JIT is set: the kernels of distls cannot be interpreted; unset it")

F = TypeVar("F", bound=Callable[..., Any])

# No `fastmath`: sums keep the order they are written in, and only `simd.vectors.fused` is fused, so that all processors
# have the same bits. LLVM would choose orders and fusions by the processor, and by what stands around an expression.
# The wrapper for calls from C is left out: nobody makes any.
_COMMON: dict[str, Any] = {
    "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "forceinline": True
}  # fmt: skip


def kernel(function: F) -> F:
    """Compile a function that Python calls: without the GIL, division by zero as in NumPy, cached on disk."""
    # with reference counts, also where a helper calls it first
    dispatcher = numba.njit(**COUNTED, **_COMMON)(function)
    folder = kernel_folder()
    if folder is not None:
        keep_in(KernelCache(dispatcher.py_func, folder), dispatcher)
    return dispatcher


def helper(function: F) -> F:
    """Compile a function that only kernels call, as `kernel` does: it is inlined into them and has no cache entry.

    It neither makes nor returns arrays; see `private_hooks`.
    """
    # Numba passes arrays as seven arguments and returns tuples through memory, and LLVM's heuristics do not inline such
    # calls: forced inlining doubled the speed of the parsers.
    return HelperDispatcher(function, targetoptions=_COMMON)
