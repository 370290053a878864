"""Products whose rounding is not left to the compiler, which may fuse or reorder the operations of kernels.

It decides by types and by what stands around an expression: the same formula has other last bits in another kernel.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
from numba.core import cgutils
from numba.extending import intrinsic


def rounded_value(builder: Any, value: Any) -> Any:
    """Build a float or a vector of floats that is computed as written, before anything is done with it."""
    element, name = value.type, ""
    if isinstance(element, ir.VectorType):
        element, name = element.element, f"v{element.count}"
    name = f"llvm.arithmetic.fence.{name}f{32 if isinstance(element, ir.FloatType) else 64}"
    kind = ir.FunctionType(value.type, [value.type])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [value])


@intrinsic
def rounded(_context, value):
    """Return a float that is computed as written, before anything is done with it (kernels only)."""
    return value(value), lambda _context, builder, _signature, args: rounded_value(builder, args[0])
