"""The builder of vector code in LLVM's own terms, for floats of either size in any number of lanes.

`vectors` makes values of kernels of it, `linear_algebra.row_vectors` whole loops.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
from numba.core import cgutils

INT1, INT8, INT32, INT64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))


class VectorBuilder:
    """Builds operations on vectors of `lanes` floats, or on plain floats where `lanes` is 1."""

    def __init__(self, builder: Any, element: Any, lanes: int) -> None:
        self.builder, self.element, self.lanes = builder, element, lanes
        self.size = 4 if isinstance(element, ir.FloatType) else 8
        self.type = self.of(element)

    @classmethod
    def like(cls, builder: Any, value: Any) -> VectorBuilder:
        """Return the builder for values such as this one."""
        kind = value.type
        form = (kind.element, kind.count) if isinstance(kind, ir.VectorType) else (kind, 1)
        return cls(builder, *form)

    def of(self, element: Any) -> Any:
        """Return the type that has so many lanes of this element."""
        return ir.VectorType(element, self.lanes) if self.lanes > 1 else element

    @property
    def integers(self) -> Any:
        """The type of whole numbers as wide as the floats."""
        return self.of(ir.IntType(8 * self.size))

    def constant(self, number: Any, kind: Any) -> Any:
        """Return a constant, the same in every lane."""
        return ir.Constant(kind, [number] * self.lanes if self.lanes > 1 else number)

    def splat(self, scalar: Any) -> Any:
        """Return a vector with `scalar` in every lane."""
        if self.lanes == 1:
            return scalar
        empty = ir.Constant(self.of(scalar.type), ir.Undefined)
        # LLVM has no splat: insert, then shuffle by zeros.
        one = self.builder.insert_element(empty, scalar, INT32(0))
        return self.builder.shuffle_vector(one, empty, self.constant(0, self.of(INT32)))

    def numbered(self, comparison: str, n: Any) -> Any:
        """Return the mask of the lanes whose number, from zero, compares so with n."""
        numbers = ir.Constant(self.of(INT64), list(range(self.lanes)))
        return self.builder.icmp_signed(comparison, numbers, self.splat(n))

    def halves(self, vector: Any) -> list[Any]:
        """Return the vectors of the lower and of the upper lanes."""
        count = self.lanes // 2
        mask = ir.VectorType(INT32, count)
        each = (ir.Constant(mask, list(range(at, at + count))) for at in (0, count))
        return [self.builder.shuffle_vector(vector, vector, numbers) for numbers in each]

    def converted(self, value: Any, kind: Any) -> Any:
        """Return floats in another type with as many lanes."""
        if value.type == kind:
            return value
        widens = isinstance(getattr(kind, "element", kind), ir.DoubleType)
        return (self.builder.fpext if widens else self.builder.fptrunc)(value, kind)

    def call(self, name: str, *args: Any, result: Any = None, suffix: str = "") -> Any:
        """Call an intrinsic of LLVM that has this type in its name."""
        kind = ir.FunctionType(result or self.type, [arg.type for arg in args])
        vector = f"v{self.lanes}" if self.lanes > 1 else ""
        name = f"llvm.{name}.{vector}f{8 * self.size}{suffix}"
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), args)

    def address(self, data: Any, first: Any) -> Any:
        """Return the address of the vector from element `first` on."""
        return self.builder.bitcast(self.builder.gep(data, [first]), self.type.as_pointer())

    def load(self, address: Any, mask: Any = None) -> Any:
        """Load a vector, zero where a mask is off."""
        # Natural alignment only: rows start anywhere.
        if mask is None:
            return self.builder.load(address, align=self.size)
        args = address, INT32(self.size), mask, ir.Constant(self.type, None)
        return self.call("masked.load", *args, suffix=".p0")

    def gather(self, data: Any, places: Any) -> Any:
        """Load the numbers at these places, a vector of whole numbers."""
        each = self.builder.gep(data, [places], source_etype=self.element)
        each.type = self.of(data.type)
        args = each, INT32(self.size), self.constant(1, self.of(INT1)), ir.Constant(self.type, None)
        return self.call("masked.gather", *args, suffix=f".v{self.lanes}p0")

    def store(self, value: Any, address: Any, mask: Any = None) -> None:
        """Store a vector, where a mask is on."""
        if mask is None:
            self.builder.store(value, address, align=self.size)
        else:
            args = value, address, INT32(self.size), mask
            self.call("masked.store", *args, result=ir.VoidType(), suffix=".p0")


def prefetch_address(builder: Any, pointer: Any) -> None:
    """Build a fetch of the cache line at `pointer`."""
    address = builder.bitcast(pointer, INT8.as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [INT8.as_pointer(), INT32, INT32, INT32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [address, INT32(0), INT32(3), INT32(1)])  # to read, keep, data cache
