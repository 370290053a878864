"""The decorators of numba functions: those called from Python are cached on disk, helpers of kernels are not.

Every function is inlined wherever it is called. A separate function would be optimised once more with each caller
that is cached on disk: the process that compiles it would run another version, with other sums, than those loading it.
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

# NaN and infinity must survive (divergence is detected by them), so `nnan` and `ninf` stay out.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}
# Without "reassoc", which would undo the reduction of an argument by adding and subtracting a constant.
ELEMENTWISE = {"contract", "nsz"}
# The wrapper for calls from C is left out: nobody makes any.
_COMMON: dict[str, Any] = {
    "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "forceinline": True
}  # fmt: skip


def kernel(function: F) -> F:
    """Compile a function that Python calls: without the GIL, division by zero as in NumPy, cached on disk."""
    return _cached(function, FASTMATH)


def elementwise(function: F) -> F:
    """Compile as `kernel` does, except that sums keep the order they are written in."""
    return _cached(function, ELEMENTWISE)


def helper(function: F) -> F:
    """Compile a function that only kernels call, as `kernel` does: it is inlined into them and has no cache entry.

    It neither makes nor returns arrays; see `private_hooks`.
    """
    return HelperDispatcher(function, targetoptions={**_COMMON, "fastmath": FASTMATH})


def elementwise_helper(function: F) -> F:
    """Compile a function that only kernels call, as `elementwise` does."""
    return HelperDispatcher(function, targetoptions={**_COMMON, "fastmath": ELEMENTWISE})


def inlined(function: F) -> F:
    """Compile a helper with the floating-point flags of the kernel that calls it."""
    # `fastmath` left out is inherited from the caller; given, even as False, it is not: other last bits.
    # Numba passes arrays as seven arguments and returns tuples through memory, and LLVM's heuristics do not inline such
    # calls: forced inlining doubled the speed of the parsers.
    return HelperDispatcher(function, targetoptions=_COMMON)


def _cached(function: F, fastmath: set[str]) -> F:
    # with reference counts, also where a helper calls it first
    dispatcher = numba.njit(fastmath=fastmath, **COUNTED, **_COMMON)(function)
    folder = kernel_folder()
    if folder is not None:
        keep_in(KernelCache(dispatcher.py_func, folder), dispatcher)
    return dispatcher
