"""Sums over the classes of one row's scores, in LLVM vectors: the inner loops of block coordinate descent.

The slack of class r is ``max(z_r + c, 0)``. All classes are processed without a branch, also the row's own, for which
the losses correct: on vectors that is several times faster than skipping zeros. Sums are kept in registers and only
one of a loop's arrays is written, so that no result depends on addresses (docs/decisions/0006). Scores may be float32
or float64; arithmetic is float64.

Shapes: z (n_rows, k) C-ordered; g, h and d float64 of `padded(k)`, whose padding is never read.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, disable-error-code="arg-type, assignment, return-value"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir
from numba import types
from numba.core import cgutils, errors
from numba.extending import intrinsic

__all__ = ["LANES", "padded", "prefetch_row", "slack_curvature", "slack_gradient", "slack_move"]

LANES = 4  # float64 a vector; longer ones store across cache lines
_LINE, _MOST_LINES = 64, 8  # bytes of a cache line; lines of a row that are prefetched
_BIT, _BYTE, _INT32, _INT64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
_DOUBLE = ir.DoubleType()
_VECTOR, _MASK, _RAMP = (ir.VectorType(kind, LANES) for kind in (_DOUBLE, _BIT, _INT64))
_FLAGS = ("contract", "nsz")  # as in `elementwise`
_NEVER = -1e300  # a score within no margin: fills a vector beyond the last class


def padded(k: int) -> int:
    """Return k rounded up to whole vectors."""
    return -(-k // LANES) * LANES


class _Row:
    """One row of scores, vector by vector, and padded float64 arrays of the same classes."""

    def __init__(self, context: Any, builder: Any, kinds: Any, args: Any) -> None:
        self.builder, self.context = builder, context
        z = context.make_array(kinds[0])(context, builder, args[0])
        self.width = cgutils.unpack_tuple(builder, z.shape)[1]
        self.element = context.get_data_type(kinds[0].dtype)
        self.size = 4 if isinstance(self.element, ir.FloatType) else 8
        self.row = builder.gep(z.data, [builder.mul(args[1], self.width)])

    def splat(self, scalar: Any, kind: Any = _VECTOR) -> Any:
        """Return a vector with `scalar` in every lane."""
        one = self.builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, _INT32(0))
        zeros = ir.Constant(ir.VectorType(_INT32, LANES), [0] * LANES)
        return self.builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), zeros)

    def each(self, body: Callable[[Any, Any], None]) -> None:
        """Call ``body(first class, mask or None)``: in a loop over whole vectors, and for the rest."""
        b = self.builder
        whole = b.and_(self.width, _INT64(-LANES))
        with cgutils.for_range_slice(b, _INT64(0), whole, _INT64(LANES)) as (first, _):
            body(first, None)
        with b.if_then(b.icmp_signed("<", whole, self.width)):
            ramp = ir.Constant(_RAMP, list(range(LANES)))
            left = self.splat(b.sub(self.width, whole), _RAMP)
            body(whole, b.icmp_signed("<", ramp, left))

    def scores(self, first: Any, mask: Any) -> Any:
        """Load scores as float64."""
        b, kind = self.builder, ir.VectorType(self.element, LANES)
        pointer = b.bitcast(b.gep(self.row, [first]), kind.as_pointer())
        if mask is None:
            return self._widened(b.load(pointer, align=self.size))
        never = ir.Constant(kind, [_NEVER if self.size == 8 else -1e38] * LANES)
        return self._widened(self._masked("load", kind, [pointer, _INT32(self.size), mask, never]))

    def store_scores(self, value: Any, first: Any, mask: Any) -> Any:
        """Store scores in their own type; return them as they are now."""
        b, kind = self.builder, ir.VectorType(self.element, LANES)
        pointer = b.bitcast(b.gep(self.row, [first]), kind.as_pointer())
        rounded = value if self.size == 8 else b.fptrunc(value, kind)
        if mask is None:
            b.store(rounded, pointer, align=self.size)
        else:
            self._masked("store", ir.VoidType(), [rounded, pointer, _INT32(self.size), mask])
        return self._widened(rounded)

    def _widened(self, value: Any) -> Any:
        return value if self.size == 8 else self.builder.fpext(value, _VECTOR)

    def _masked(self, what: str, result: Any, args: list[Any]) -> Any:
        kind = ir.FunctionType(result, [arg.type for arg in args])
        name = f"llvm.masked.{what}.v{LANES}f{8 * self.size}.p0"
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), args)

    def of(self, kind: Any, array: Any) -> Callable[[Any], Any]:
        """Return the function from the first class of a vector to its address in a padded array."""
        data = self.context.make_array(kind)(self.context, self.builder, array).data
        b = self.builder
        return lambda first: b.bitcast(b.gep(data, [first]), _VECTOR.as_pointer())

    def slack(self, scores: Any, c: Any) -> Any:
        """Return ``max(scores + c, 0)``; NaN propagates."""
        b, zero = self.builder, ir.Constant(_VECTOR, None)
        total = b.fadd(scores, c, flags=_FLAGS)
        return b.select(b.fcmp_ordered("<=", total, zero), zero, total)

    def sum(self, vector: Any) -> Any:
        """Return the sum of a vector's lanes."""
        b = self.builder
        lanes = [b.extract_element(vector, _INT32(i)) for i in range(LANES)]
        while len(lanes) > 1:
            lanes = [b.fadd(x, y, flags=_FLAGS) for x, y in zip(lanes[::2], lanes[1::2], strict=True)]
        return lanes[0]

    def multiply_add(self, a: Any, x: Any, y: Any) -> Any:
        """Return ``a * x + y``."""
        return self.builder.fadd(self.builder.fmul(a, x, flags=_FLAGS), y, flags=_FLAGS)


def _check(z: Any, *others: Any) -> None:
    if not isinstance(z, types.Array) or z.layout != "C" or z.ndim != 2:
        raise errors.TypingError(f"scores are a C-ordered array of rows, not {z}")
    for array in others:
        if not isinstance(array, types.Array) or array.layout != "C" or array.dtype != types.float64:
            raise errors.TypingError(f"a C-ordered float64 array is needed here, not {array}")


def _accumulator(builder: Any) -> Any:
    return cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, None))


@intrinsic
def slack_gradient(_context, z, i, c, factor, g):
    """Add ``factor * max(z_ir + c, 0)`` to g; return the sum of the slacks."""
    _check(z, g)

    def build(context, builder, signature, args):
        row = _Row(context, builder, signature.args, args)
        c, factor = row.splat(args[2]), row.splat(args[3])
        address, total = row.of(signature.args[4], args[4]), _accumulator(builder)

        def body(first, mask):
            slack = row.slack(row.scores(first, mask), c)
            builder.store(builder.fadd(builder.load(total), slack, flags=_FLAGS), total)
            place = address(first)
            builder.store(row.multiply_add(factor, slack, builder.load(place, align=8)), place, align=8)

        row.each(body)
        return row.sum(builder.load(total))

    return types.float64(z, types.intp, types.float64, types.float64, g), build


@intrinsic
def slack_curvature(_context, z, i, c, factor, h):
    """Add `factor` to h where ``z_ir + c > 0``; return their number."""
    _check(z, h)

    def build(context, builder, signature, args):
        row = _Row(context, builder, signature.args, args)
        c, factor = row.splat(args[2]), row.splat(args[3])
        address, total = row.of(signature.args[4], args[4]), _accumulator(builder)
        zero, one = ir.Constant(_VECTOR, None), ir.Constant(_VECTOR, [1.0] * LANES)

        def body(first, mask):
            within = builder.fcmp_ordered(">", builder.fadd(row.scores(first, mask), c, flags=_FLAGS), zero)
            count = builder.select(within, one, zero)
            builder.store(builder.fadd(builder.load(total), count, flags=_FLAGS), total)
            place = address(first)
            builder.store(row.multiply_add(factor, count, builder.load(place, align=8)), place, align=8)

        row.each(body)
        return row.sum(builder.load(total))

    return types.float64(z, types.intp, types.float64, types.float64, h), build


@intrinsic
def slack_move(_context, z, i, before, after, x, d):
    """Add ``x * d`` to row i of z; return the change of the sum of squared slacks, whose c was `before` too."""
    _check(z, d)

    def build(context, builder, signature, args):
        row = _Row(context, builder, signature.args, args)
        before, after, x = (row.splat(arg) for arg in args[2:5])
        address, total = row.of(signature.args[5], args[5]), _accumulator(builder)

        def body(first, mask):
            old = row.scores(first, mask)
            moved = row.multiply_add(x, builder.load(address(first), align=8), old)
            new = row.slack(row.store_scores(moved, first, mask), after)
            slack = row.slack(old, before)
            # a^2 - b^2 as (a - b)(a + b): near the optimum the squares cancel
            difference = builder.fsub(new, slack, flags=_FLAGS)
            change = row.multiply_add(difference, builder.fadd(new, slack, flags=_FLAGS), builder.load(total))
            builder.store(change, total)

        row.each(body)
        return row.sum(builder.load(total))

    kinds = z, types.intp, types.float64, types.float64, types.float64, d
    return types.float64(*kinds), build


@intrinsic
def prefetch_row(_context, z, i):
    """Prefetch row i of z."""
    _check(z)  # of a long row only the first lines: the processor's own prefetcher follows

    def build(context, builder, signature, args):
        row = _Row(context, builder, signature.args, args)
        first = builder.bitcast(row.row, _BYTE.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), _INT32, _INT32, _INT32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        n_bytes, most = builder.mul(row.width, _INT64(row.size)), _INT64(_MOST_LINES * _LINE)
        end = builder.select(builder.icmp_signed("<", n_bytes, most), n_bytes, most)
        with cgutils.for_range_slice(builder, _INT64(0), end, _INT64(_LINE)) as (at, _):
            address = builder.gep(first, [at])
            builder.call(function, [address, _INT32(1), _INT32(3), _INT32(1)])  # to write, keep, data cache
        return context.get_dummy_value()

    return types.void(z, types.intp), build
