"""The decorator of helpers that live inside one kernel's hot loop.

Numba passes arrays as seven arguments and returns tuples through memory, and LLVM's own judgement leaves such
calls in place: inlining the parser's helpers by force doubled its speed. Without `fastmath`, so that divisions
and comparisons in them are exact IEEE operations wherever they end up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

__all__ = ["inlined"]

F = TypeVar("F", bound=Callable[..., Any])


def inlined(function: F) -> F:
    """Compile `function` into its callers; it has no entry in the disk cache of its own."""
    return numba.njit(nogil=True, error_model="numpy", forceinline=True)(function)
